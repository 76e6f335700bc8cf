//! Runs commands as a reader of the guide does.

use crate::control_plane::napkeeper_binary;
use crate::manifests::repository;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Programs that do nothing here, and why. A command of a program that is neither here nor in [`REAL`] fails the test.
const ABSENT: [(&str, &str); 13] = [
    ("argocd", "asks Argo CD"),
    ("az", "signs in to Azure"),
    ("cargo", "builds this repository, as each run of the tests does"),
    ("cosign", "verifies a release"),
    ("curl", "fetches a release, or asks a server that a page has started before"),
    ("docker", "builds the image; src/app/tests/cli/habits/image.rs checks its recipe"),
    ("gh", "verifies a release"),
    ("git", "clones this repository"),
    ("helm", "renders a chart of the reader"),
    ("jq", "reads what the programs here do not print"),
    ("kustomize", "builds a kustomization of the reader"),
    ("sh", "runs install.sh; src/app/tests/cli/habits/release.rs runs it too"),
    ("sha256sum", "verifies a release"),
];

/// Programs that the pages use and that are run.
const REAL: [&str; 10] = ["bash", "cat", "cp", "date", "grep", "mkdir", "sed", "timeout", "tr", "xargs"];

/// Prints a NodePool, as what renders manifests does.
const RENDERED: &str = "#!/usr/bin/env bash\ncat nodepool.yaml\n";

/// What each script begins with: a program that is not found is an error, and nothing is written outside of the folder.
const PRELUDE: &str = r#"
command_not_found_handle() { echo "$1: neither run nor known as absent" >> "$FAILED"; }
cd() { mkdir -p "$1" && builtin cd "$1"; }
kill() { :; }
fpath=(. .)
"#;

/// Folders of the repository that commands name.
const FOLDERS: [&str; 3] = ["manifests", "policies", "src"];

/// What a reader has in Git, by the file of this repository that it is a copy of.
const COMMITTED: [(&str, &str); 6] = [
    ("clusters/prod/class.yaml", "manifests/quickstart/aksnodeclass.yaml"),
    ("clusters/prod/nodepool.yaml", "manifests/quickstart/nodepool-general-purpose.yaml"),
    ("overlays/prod/class.yaml", "manifests/quickstart/aksnodeclass.yaml"),
    ("overlays/prod/nodepool.yaml", "manifests/quickstart/nodepool-general-purpose.yaml"),
    ("nodepool.yaml", "manifests/quickstart/nodepool-gpu.yaml"),
    ("facts.yaml", "src/app/tests/cases/sweeps/facts.yaml"),
];

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

/// Scripts for bash that stand for two programs. They add a line to the file `$CALLS` for each call, one to `$RUN` for each that they
/// run, and one to `$FAILED` for each that is wrong. `$BINARY` is napkeeper, `$BINARY_KUBECTL` kubectl.
#[derive(Debug, Clone, Copy)]
pub struct Programs {
    /// Stands for napkeeper.
    pub napkeeper: &'static str,
    /// Stands for kubectl.
    pub kubectl: &'static str,
}

/// What following a page came to.
#[derive(Debug)]
pub struct Followed {
    /// What is wrong with its commands.
    pub problems: Vec<String>,
    /// How many commands of napkeeper and kubectl they are.
    pub calls: usize,
    /// How many of these were run.
    pub run: usize,
}

/// A home folder, with the programs in `bin`, and `work` for the commands: a repository of Git with manifests.
#[derive(Debug)]
pub struct Reader {
    folder: TempDir,
    environment: Vec<(&'static str, OsString)>,
}

impl Reader {
    /// One with these programs.
    ///
    /// # Errors
    /// When the folder cannot be made, or a program that pages use is not in `PATH`.
    pub fn new(programs: Programs) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let [bin, work] = ["bin", "work"].map(|name| folder.path().join(name));
        fs::create_dir(&bin)?;
        fs::create_dir(&work)?;
        // That of whoever uses fish.
        fs::create_dir_all(folder.path().join(".config/fish/completions"))?;
        let script = |name: &str, text: &str| {
            fs::write(bin.join(name), text)?;
            fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755))
        };
        script("napkeeper", programs.napkeeper)?;
        script("kubectl", programs.kubectl)?;
        ABSENT.iter().try_for_each(|(name, _)| script(name, "#!/usr/bin/env bash\n"))?;
        ["helm", "kustomize"].iter().try_for_each(|name| script(name, RENDERED))?;
        for name in REAL {
            symlink(program(name)?, bin.join(name))?;
        }
        for name in FOLDERS {
            symlink(repository(name).canonicalize()?, work.join(name))?;
        }
        commit(&work)?;
        let environment = vec![
            ("BINARY", napkeeper_binary()?.into_os_string()),
            ("BINARY_KUBECTL", program("kubectl")?.into_os_string()),
            ("KUBECONFIG", OsString::from("kubeconfig")),
        ];
        Ok(Self { folder, environment })
    }

    /// Where the commands are run.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Sets a variable for the programs.
    pub fn set(&mut self, variable: &'static str, value: impl Into<OsString>) {
        self.environment.retain(|(name, _)| *name != variable);
        self.environment.push((variable, value.into()));
    }

    /// Runs one script.
    ///
    /// # Errors
    /// When bash cannot be run.
    pub fn bash(&self, script: &str) -> Result<Output> {
        let folder = &self.folder.path().canonicalize()?;
        let mut bash = Command::new(program("bash")?);
        bash.args(["-c", &format!("{PRELUDE}{script}")]).current_dir(folder.join("work")).env_clear();
        bash.env("PATH", folder.join("bin")).env("HOME", folder);
        bash.env("PATH_OF_PROGRAMS", std::env::var_os("PATH").context("no PATH")?);
        for (variable, file) in [("CALLS", "calls"), ("FAILED", "failed"), ("RUN", "run")] {
            bash.env(variable, folder.join(file));
        }
        bash.envs(self.environment.iter().map(|(name, value)| (name, value))).output().context("running bash")
    }

    /// Runs the scripts of a page. All are run by one bash, as a later one may need what an earlier one has defined. Errors that
    /// the page shows are none.
    ///
    /// # Errors
    /// When bash cannot be run.
    pub fn follow(&self, scripts: &[String], page: &str) -> Result<Followed> {
        let work = self.work();
        let all: String = scripts.iter().map(|script| format!("builtin cd '{}'\n{script}", work.display())).collect();
        let said = self.bash(&all)?.stderr;
        let said = String::from_utf8_lossy(&said);
        let mut problems: Vec<_> = said.lines().filter(|line| is_mistake(line)).map(ToOwned::to_owned).collect();
        let read = |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let shown: Vec<&str> = page.lines().filter(|line| line.starts_with("error: ")).collect();
        let is_shown = |problem: &&str| shown.iter().any(|error| problem.ends_with(error));
        problems.extend(read("failed").lines().filter(|problem| !is_shown(problem)).map(ToOwned::to_owned));
        let [calls, run] = ["calls", "run"].map(|file| read(file).lines().count());
        Ok(Followed { problems, calls, run })
    }
}

/// Where a program is.
fn program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").context("no PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("this test needs {name} in PATH"))
}

/// What bash says of a command that it cannot run as it stands.
fn is_mistake(line: &str) -> bool {
    line.contains("bash: ") && (line.contains("syntax error") || line.contains("No such file or directory"))
}

/// The repository of a reader, on the branch main, of which the remote is as old.
fn commit(work: &Path) -> Result<()> {
    let write = |name: &str, text: &str| {
        let file = work.join(name);
        fs::create_dir_all(file.parent().unwrap_or(work))?;
        fs::write(file, text)
    };
    for (name, source) in COMMITTED {
        write(name, &fs::read_to_string(repository(source))?)?;
    }
    write("clusters/prod/web.yaml", WEB)?;
    write("napkeeper.yaml", "clusters: [{ name: prod, region: westeurope, paths: [clusters/prod] }]\n")?;
    write("overlays/prod/kustomization.yaml", "resources: [class.yaml, nodepool.yaml]\n")?;
    write(".napkeeperignore", &FOLDERS.map(|folder| format!("{folder}/\n")).concat())?;
    let commands = [
        "init -q -b main",
        "add clusters overlays nodepool.yaml napkeeper.yaml",
        "commit -q -m start",
        "update-ref refs/remotes/origin/main main",
    ];
    for command in commands {
        let mut git = Command::new(program("git")?);
        // Neither the repository nor the settings of whoever runs the tests.
        git.env_clear().env("PATH", std::env::var_os("PATH").context("no PATH")?);
        git.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")]);
        git.args(["-c", "user.name=reader", "-c", "user.email=reader@example.com"]).args(command.split(' '));
        ensure!(git.current_dir(work).status()?.success(), "git {command} failed");
    }
    Ok(())
}
