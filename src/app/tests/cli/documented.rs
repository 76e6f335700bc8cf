//! The commands of README.md and the user guide: bash runs each block of code, and each command in a text, with other programs
//! in place of those that need a cluster or Azure.
//!
//! A block without a language is commands; in one with lines that begin with `$ ` these are, and the others are output. Other
//! output is `text`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use super::output::{stderr, stdout};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Programs that do nothing here, and why. A command of a program that is neither here nor in [`REAL`] fails the test.
const ABSENT: [(&str, &str); 13] = [
    ("argocd", "asks Argo CD"),
    ("az", "signs in to Azure"),
    ("cargo", "builds this repository, as each run of the tests does"),
    ("cosign", "verifies a release"),
    ("curl", "fetches a release, or asks a server that a page has started before"),
    ("docker", "builds the image; habits/image.rs checks its recipe"),
    ("gh", "verifies a release"),
    ("git", "clones this repository"),
    ("helm", "renders a chart of the reader"),
    ("jq", "reads what the programs here do not print"),
    ("kustomize", "builds a kustomization of the reader"),
    ("sh", "runs install.sh; habits/release.rs runs it too"),
    ("sha256sum", "verifies a release"),
];

/// Programs that the pages use and that are run.
const REAL: [&str; 8] = ["bash", "cat", "cp", "date", "grep", "mkdir", "sed", "xargs"];

/// Runs what needs neither a cluster nor Azure, in a folder as a reader has it, and takes exit code 2 for a mistake. Of all else the
/// options are read: the first that is unknown is an error, and `--help` ends the program. Files of the repository that are named
/// must be there. What is in brackets is no argument.
const NAPKEEPER: &str = r#"#!/usr/bin/env bash
echo "napkeeper $*" >> "$CALLS"
arguments=()
for argument in "$@"; do
  case $argument in
    manifests/*|policies/*|src/*)
      [[ -e $argument ]] || echo "napkeeper $*: there is no $argument" >> "$FAILED" ;;
  esac
  [[ $argument == \[* ]] || arguments+=("$argument")
done
set -- "${arguments[@]}"
if [[ $* == *--write* && ($(pwd -P) != "$HOME"/* || $* == *src/*) ]]; then
  echo "napkeeper $*: would write into this repository" >> "$FAILED"
  exit
fi
case "$1 $2 $*" in
  completion\ *|man\ *|rules\ *|schema\ *|version\ *|policies\ export\ *) "$BINARY" "$@" 2> "$CALLS.$$" ;;
  validate\ *|migrate\ *|policies\ test\ *|audit*\ --from\ *|explain\ pod*\ clusters/*|explain\ pod*\ --from\ *|simulate*\ manifests/*)
    [[ /dev/stdin -ef /dev/null ]] && exec < nodepool.yaml
    echo "napkeeper $*" >> "$RUN"
    PATH=$PATH_OF_PROGRAMS "$BINARY" "$@" 2> "$CALLS.$$"
    (( $? < 2 )) ;;
  *) "$BINARY" "$@" --help > /dev/null 2> "$CALLS.$$" ;;
esac || echo "napkeeper $*: $(cat "$CALLS.$$")" >> "$FAILED"
"#;

/// Prints a NodePool, as what renders manifests does.
const RENDERED: &str = "#!/usr/bin/env bash\ncat nodepool.yaml\n";

/// Reads the options, and looks for files, folders and objects of napkeeper that are named. The plugin krew is not there.
const KUBECTL: &str = r#"#!/usr/bin/env bash
echo "kubectl $*" >> "$CALLS"
case $1 in
  napkeeper) exec "$@" ;;
  krew) exit ;;
esac
"$BINARY_KUBECTL" "$@" --help > /dev/null 2> "$CALLS.$$" || echo "kubectl $*: $(cat "$CALLS.$$")" >> "$FAILED"
case "$*" in
  *napkeeper-facts*" -o yaml"*) cat "$FACTS" ;;
  get\ *" -o json"*) for file in clusters/prod/{class,nodepool}.yaml; do cat $file; echo ---; done; echo "$POD" ;;
esac
before=$1
for argument in "${@:2}"; do
  case $before in
    -f|--filename|-k|--kustomize|--patch-file|kustomize)
      [[ $argument == - || $argument == https://* || -e $argument ]] || echo "kubectl $*: there is no $argument" >> "$FAILED" ;;
  esac
  name=${argument##*/}
  if [[ $name == napkeeper-* && ! -e $argument ]]; then
    grep -rqwF -- "$name" "$KUSTOMIZE" || echo "kubectl $*: there is no $name in kustomize/" >> "$FAILED"
  fi
  before=$argument
done
"#;

/// What each block begins with: a program that is not found is an error, and nothing is written outside of the folder.
const PRELUDE: &str = r#"
command_not_found_handle() { echo "$1: neither run nor known as absent" >> "$FAILED"; }
cd() { mkdir -p "$1" && builtin cd "$1"; }
kill() { :; }
fpath=(. .)
"#;

/// Folders of the repository that commands name.
const FOLDERS: [&str; 3] = ["manifests", "policies", "src"];

/// What a reader has written by then.
const WRITTEN: [&str; 3] = ["argocd-cm.yaml", "napkeeper-system", "root.yaml"];

/// What a reader has in Git, by the file of this repository that it is a copy of.
const COMMITTED: [(&str, &str); 6] = [
    ("clusters/prod/class.yaml", "manifests/quickstart/aksnodeclass.yaml"),
    ("clusters/prod/nodepool.yaml", "manifests/quickstart/nodepool-general-purpose.yaml"),
    ("overlays/prod/class.yaml", "manifests/quickstart/aksnodeclass.yaml"),
    ("overlays/prod/nodepool.yaml", "manifests/quickstart/nodepool-general-purpose.yaml"),
    ("nodepool.yaml", "manifests/quickstart/nodepool-gpu.yaml"),
    ("facts.yaml", FACTS),
];

/// The ConfigMap that kubectl lists.
const FACTS: &str = "src/app/tests/cases/sweeps/facts.yaml";

/// The Deployment whose pods pages explain.
const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: shop }
spec:
  replicas: 1
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec: { containers: [{ name: web, image: web, resources: { requests: { cpu: 100m, memory: 64Mi } } }] }
";

/// What kubectl lists: a pod of it, in a cluster whose NodePool and AKSNodeClass are those that are committed.
const POD: &str = "apiVersion: v1
kind: Pod
metadata: { name: web-0, namespace: shop, uid: web-0, creationTimestamp: \"2026-08-01T00:00:00Z\" }
spec:
  containers: [{ name: web, image: web, resources: { requests: { cpu: 100m, memory: 64Mi } } }]
status: { phase: Pending, conditions: [{ type: PodScheduled, status: \"False\", reason: Unschedulable }] }
";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Where a program is.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("this test needs {name} in PATH"))
}

/// README.md, and the user guide without decisions, which are not kept up to date.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![repository("README.md"), repository("kustomize/README.md")];
    for folder in ["docs", "docs/rules"] {
        let files = fs::read_dir(repository(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(files.filter(|file| file.extension().is_some_and(|extension| extension == "md")));
    }
    pages.sort();
    pages
}

/// The commands of a block. Without a prompt all of it is.
fn of_block(block: &str) -> String {
    let mut commands = String::new();
    let mut goes_on = false;
    for line in block.lines() {
        let command = line.strip_prefix("$ ").or_else(|| goes_on.then_some(line));
        goes_on = command.is_some_and(|command| command.ends_with('\\'));
        commands.extend(command.map(|command| format!("{command}\n")));
    }
    if commands.is_empty() { block.to_owned() } else { commands }
}

/// The scripts of a page: its blocks without a language, and commands of napkeeper and kubectl between backticks.
fn scripts(page: &str) -> Vec<String> {
    let (mut scripts, mut block, mut text) = (Vec::new(), None::<(bool, String)>, String::new());
    for line in page.lines() {
        match (&mut block, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => block = Some((language.is_empty(), String::new())),
            (Some(_), Some(_)) => {
                let (is_shell, content) = block.take().unwrap();
                scripts.extend(is_shell.then(|| of_block(&content)));
            }
            (Some((_, content)), None) => content.extend([line, "\n"]),
            // A span may be broken into two lines.
            (None, None) => text.extend([line, if line.is_empty() { "\n" } else { " " }]),
        }
    }
    let spans = text.lines().flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    let is_command = |span: &&str| span.starts_with("napkeeper ") || span.starts_with("kubectl ");
    scripts.extend(spans.filter(is_command).map(|span| format!("{}\n", span.replace("\\|", "|"))));
    scripts
}

/// A folder with the programs in `bin`, and `work` for the commands.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let [bin, work] = ["bin", "work"].map(|name| folder.path().join(name));
    fs::create_dir(&bin).unwrap();
    fs::create_dir(&work).unwrap();
    // That of whoever uses fish.
    fs::create_dir_all(folder.path().join(".config/fish/completions")).unwrap();
    let script = |name: &str, text: &str| {
        fs::write(bin.join(name), text).unwrap();
        fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    };
    script("napkeeper", NAPKEEPER);
    script("kubectl", KUBECTL);
    ABSENT.iter().for_each(|(name, _)| script(name, "#!/usr/bin/env bash\n"));
    ["helm", "kustomize"].iter().for_each(|name| script(name, RENDERED));
    REAL.iter().for_each(|name| symlink(program(name), bin.join(name)).unwrap());
    FOLDERS.iter().for_each(|name| symlink(repository(name).canonicalize().unwrap(), work.join(name)).unwrap());
    WRITTEN.iter().for_each(|name| fs::write(work.join(name), "").unwrap());
    commit(&work);
    folder
}

/// The repository of a reader, on the branch main, of which the remote is as old.
fn commit(work: &Path) {
    let write = |name: &str, text: &str| {
        fs::create_dir_all(work.join(name).parent().unwrap()).unwrap();
        fs::write(work.join(name), text).unwrap();
    };
    for (name, source) in COMMITTED {
        write(name, &fs::read_to_string(repository(source)).unwrap());
    }
    write("clusters/prod/web.yaml", WEB);
    write("napkeeper.yaml", "clusters: [{ name: prod, region: westeurope, paths: [clusters/prod] }]\n");
    for file in fs::read_dir(repository("src/app/tests/cases/audit/saved")).unwrap().map(Result::unwrap) {
        write(&format!("monday/{}", file.file_name().display()), &fs::read_to_string(file.path()).unwrap());
    }
    write("overlays/prod/kustomization.yaml", "resources: [class.yaml, nodepool.yaml]\n");
    write(".napkeeperignore", &FOLDERS.map(|folder| format!("{folder}/\n")).concat());
    let commands = [
        "init -q -b main",
        "add clusters overlays nodepool.yaml napkeeper.yaml",
        "commit -q -m start",
        "update-ref refs/remotes/origin/main main",
    ];
    for command in commands {
        let mut git = Command::new(program("git"));
        // Neither the repository nor the settings of whoever runs the tests.
        git.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        git.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")]);
        git.args(["-c", "user.name=reader", "-c", "user.email=reader@example.com"]).args(command.split(' '));
        assert!(git.current_dir(work).status().unwrap().success(), "git {command}");
    }
}

fn bash(script: &str, folder: &Path) -> Output {
    let folder = &folder.canonicalize().unwrap();
    let mut bash = Command::new(program("bash"));
    bash.args(["-c", &format!("{PRELUDE}{script}")]).current_dir(folder.join("work")).env_clear();
    bash.env("PATH", folder.join("bin")).env("HOME", folder).env("KUBECONFIG", "kubeconfig");
    bash.env("BINARY", env!("CARGO_BIN_EXE_napkeeper")).env("BINARY_KUBECTL", program("kubectl"));
    bash.env("CALLS", folder.join("calls")).env("FAILED", folder.join("failed"));
    bash.env("KUSTOMIZE", repository("kustomize")).env("POD", POD).env("FACTS", repository(FACTS));
    bash.env("RUN", folder.join("run")).env("PATH_OF_PROGRAMS", std::env::var_os("PATH").unwrap());
    bash.output().unwrap()
}

/// What bash says of a command that it cannot run as it stands.
fn is_mistake(line: &str) -> bool {
    line.contains("bash: ") && (line.contains("syntax error") || line.contains("No such file or directory"))
}

/// What is wrong with the scripts of a page, and how many commands of napkeeper and kubectl they are, and how many of these are
/// run. All are run by one bash, as a later one may need what an earlier one has defined. Errors that the page shows are none.
fn problems(scripts: &[String], page: &str) -> (Vec<String>, [usize; 2]) {
    if scripts.is_empty() {
        return (Vec::new(), [0; 2]);
    }
    let folder = folder();
    let work = folder.path().join("work");
    let all: String = scripts.iter().map(|script| format!("builtin cd '{}'\n{script}", work.display())).collect();
    let said = stderr(&bash(&all, folder.path()));
    let mut problems: Vec<_> = said.lines().filter(|line| is_mistake(line)).map(ToOwned::to_owned).collect();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let shown: Vec<&str> = page.lines().filter(|line| line.starts_with("error: ")).collect();
    let is_shown = |problem: &&str| shown.iter().any(|error| problem.ends_with(error));
    problems.extend(read("failed").lines().filter(|problem| !is_shown(problem)).map(ToOwned::to_owned));
    (problems, ["calls", "run"].map(|file| read(file).lines().count()))
}

#[test]
fn every_command_of_the_user_guide_is_one() {
    let pages = pages();
    let judge = |page: &PathBuf| {
        let text = fs::read_to_string(page).unwrap();
        (page.clone(), problems(&scripts(&text), &text))
    };
    let half = pages.len() / 2;
    let of_pages: Vec<_> = std::thread::scope(|scope| {
        let second = scope.spawn(|| pages[half..].iter().map(judge).collect::<Vec<_>>());
        let first: Vec<_> = pages[..half].iter().map(judge).collect();
        first.into_iter().chain(second.join().unwrap()).collect()
    });
    let [commands, run] = [0, 1].map(|n| of_pages.iter().map(|(_, (_, counts))| counts[n]).sum::<usize>());
    assert!(commands > 200 && run > 30, "{commands} commands, {run} run");
    let wrong: Vec<_> = of_pages.into_iter().filter(|(_, (problems, _))| !problems.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_command_that_is_none_is_found() {
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
        let (problems, _) = problems(&[format!("{script}\n")], "");
        assert!(problems.iter().any(|found| found.contains(problem)), "{script}: {problems:#?}");
    }
    let page = "Run `kubectl get\nnodes` or:\n\n```\n$ napkeeper \\\n  version\n1.0\n```\n\n```text\noutput\n```\n";
    assert_eq!(scripts(page), ["napkeeper \\\n  version\n", "kubectl get nodes\n"]);
}

/// Lines of an output that a page shows, up to `…`.
fn assert_shown(page: &str, command: &str) {
    let text = fs::read_to_string(repository(page)).unwrap();
    let first = format!("$ {command}\n");
    let block = text.split("```\n").find_map(|block| block.strip_prefix(&first));
    let block = block.unwrap_or_else(|| panic!("{page} has no block that begins with {first}"));
    let folder = folder();
    let binary = format!(
        "export PATH={}:$PATH\n{command}",
        Path::new(env!("CARGO_BIN_EXE_napkeeper")).parent().unwrap().display()
    );
    let output = stdout(&bash(&binary, folder.path()));
    let mut lines = output.lines();
    for wanted in block.lines().filter(|line| *line != "…") {
        let start = wanted.trim_end_matches('…');
        let found = lines.any(|line| if start == wanted { line == start } else { line.starts_with(start) });
        assert!(found, "{page}: `{command}` does not print, at this place:\n{wanted}\n{output}");
    }
}

#[test]
fn output_in_the_user_guide_is_that_of_the_command() {
    assert_shown("README.md", "cd src/app/tests/cases/howto && napkeeper validate");
    assert_shown("README.md", "napkeeper audit --from src/app/tests/cases/audit/saved");
    assert_shown(
        "docs/policies.md",
        "napkeeper validate --policies policies policies/cases/nodepool-expiry/deny-never.yaml",
    );
}
