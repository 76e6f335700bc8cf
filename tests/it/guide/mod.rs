//! The commands of README.md and the user guide: bash runs each block of code, and each command in a text, with other programs
//! in place of those that need a cluster or Azure. `live::install` runs those that need them.

use anyhow::{Context, Result, ensure};
use napkeeper_tests::control_plane::napkeeper_binary;
use napkeeper_tests::guide::{Followed, Page, Programs, Reader, page, pages};
use napkeeper_tests::manifests::repository;

const PROGRAMS: Programs = Programs { napkeeper: include_str!("napkeeper.sh"), kubectl: include_str!("kubectl.sh") };

/// What a reader has written by then.
const WRITTEN: [&str; 3] = ["argocd-cm.yaml", "napkeeper-system", "root.yaml"];

/// What kubectl lists: a pod of a Deployment, in a cluster whose NodePool and AKSNodeClass are those that are committed.
const POD: &str = "apiVersion: v1
kind: Pod
metadata: { name: web-0, namespace: shop, uid: web-0, creationTimestamp: \"2026-08-01T00:00:00Z\" }
spec:
  containers: [{ name: web, image: web, resources: { requests: { cpu: 100m, memory: 64Mi } } }]
status: { phase: Pending, conditions: [{ type: PodScheduled, status: \"False\", reason: Unschedulable }] }
";

fn reader() -> Result<Reader> {
    let mut reader = Reader::new(PROGRAMS)?;
    let work = reader.work();
    WRITTEN.iter().try_for_each(|name| std::fs::write(work.join(name), ""))?;
    std::fs::create_dir(work.join("monday"))?;
    for file in std::fs::read_dir(repository("src/app/tests/cases/audit/saved"))? {
        let file = file?;
        std::fs::copy(file.path(), work.join("monday").join(file.file_name()))?;
    }
    reader.set("POD", POD);
    reader.set("KUSTOMIZE", repository("kustomize"));
    reader.set("FACTS", repository("src/app/tests/cases/sweeps/facts.yaml"));
    Ok(reader)
}

/// What is wrong with the scripts of a page.
fn followed(scripts: &[String], page: &str) -> Result<Followed> {
    if scripts.is_empty() {
        return Ok(Followed { problems: Vec::new(), calls: 0, run: 0 });
    }
    reader()?.follow(scripts, page)
}

#[test]
fn every_command_of_the_user_guide_is_one() -> Result<()> {
    let pages = pages()?;
    let judge = |page: &Page| Ok((page.name.clone(), followed(&page.scripts(), &page.text)?));
    let half = pages.len() / 2;
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| pages[half..].iter().map(judge).collect::<Result<Vec<_>>>());
        (pages[..half].iter().map(judge).collect::<Result<Vec<_>>>(), second.join())
    });
    let mut of_pages = first?;
    of_pages.extend(second.ok().context("a thread panicked")??);
    let sum = |count: fn(&Followed) -> usize| of_pages.iter().map(|(_, followed)| count(followed)).sum::<usize>();
    let (calls, run) = (sum(|followed| followed.calls), sum(|followed| followed.run));
    ensure!(calls > 200 && run > 30, "{calls} commands, {run} run");
    let wrong: Vec<_> = of_pages.into_iter().filter(|(_, followed)| !followed.problems.is_empty()).collect();
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[test]
fn a_command_that_is_none_is_found() -> Result<()> {
    for (script, problem) in [
        ("napkeeper validate --everything", "unexpected argument '--everything'"),
        ("napkeeper valdate", "unrecognized subcommand 'valdate'"),
        ("napkeeper validate -o yaml", "invalid value 'yaml'"),
        ("napkeeper validate clusters/nowhere", "does not exist"),
        ("napkeeper explain pod another clusters/prod -n shop", "another"),
        ("cd src/app/tests/cases/howto && napkeeper migrate --write", "would write into this repository"),
        ("napkeeper migrate src/app/tests/cases/howto --write", "would write into this repository"),
        ("napkeeper rules NK0000", "NK0000"),
        ("echo $(napkeeper audit --form a) | cat", "unexpected argument '--form'"),
        ("kubectl napkeeper validate --everything", "unexpected argument '--everything'"),
        ("kubectl apply --severside -k napkeeper-system", "unknown flag: --severside"),
        ("kubectl apply -f nowhere.yaml", "there is no nowhere.yaml"),
        ("kubectl kustomize nowhere", "there is no nowhere"),
        ("kubectl rollout status deployment/napkeeper-web", "there is no napkeeper-web"),
        ("terraform apply", "terraform: neither run nor known as absent"),
        ("kubectl get nodes | kubectl get (", "syntax error"),
        ("napkeeper validate - < nowhere.yaml", "No such file or directory"),
    ] {
        let problems = followed(&[format!("{script}\n")], "")?.problems;
        ensure!(problems.iter().any(|found| found.contains(problem)), "{script}: {problems:#?}");
    }
    let text = "Run `kubectl get\nnodes` or:\n\n```\n$ napkeeper \\\n  version\n1.0\n```\n\n```text\noutput\n```\n";
    let page = Page { name: "page.md".to_owned(), text: text.to_owned() };
    assert_eq!(page.scripts(), ["napkeeper \\\n  version\n", "kubectl get nodes\n"]);
    Ok(())
}

/// Checks that a command prints the lines that a page shows of it, up to `…`.
fn ensure_shown(name: &str, command: &str) -> Result<()> {
    let page = page(name)?;
    let first = format!("$ {command}\n");
    let block = page.text.split("```\n").find_map(|block| block.strip_prefix(&first));
    let block = block.with_context(|| format!("{name} has no block that begins with {first}"))?;
    let programs = napkeeper_binary()?;
    let programs = programs.parent().context("the folder of the program")?;
    let output = reader()?.bash(&format!("export PATH={}:$PATH\n{command}", programs.display()))?;
    let output = String::from_utf8(output.stdout)?;
    let mut lines = output.lines();
    for wanted in block.lines().filter(|line| *line != "…") {
        let start = wanted.trim_end_matches('…');
        let found = lines.any(|line| if start == wanted { line == start } else { line.starts_with(start) });
        ensure!(found, "{name}: `{command}` does not print, at this place:\n{wanted}\n{output}");
    }
    Ok(())
}

#[test]
fn output_in_the_user_guide_is_that_of_the_command() -> Result<()> {
    ensure_shown("README.md", "cd src/app/tests/cases/howto && napkeeper validate")?;
    ensure_shown("README.md", "napkeeper audit --from src/app/tests/cases/audit/saved")?;
    ensure_shown(
        "docs/policies.md",
        "napkeeper validate --policies policies policies/cases/nodepool-expiry/deny-never.yaml",
    )
}
