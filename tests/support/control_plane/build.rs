//! Builds programs from a Go module, once for all test processes.
//!
//! The result of a build lies in a folder named by a hash of everything that goes into it. A file lock lets one process
//! build while the others wait, and a rename at the end makes the folder appear atomically.

use super::process::{Process, Program};
use anyhow::{Context, Result, bail};
use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A cold build took six minutes on two idle cores.
const BUILT_WITHIN: Duration = Duration::from_secs(45 * 60);
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_secs(5);

/// What to build.
pub(crate) struct Recipe<'a> {
    /// What messages call it, and the name of its folder in the cache.
    pub(crate) name: &'a str,
    /// The folder of `go.mod`.
    pub(crate) module: PathBuf,
    /// Arguments of `go build` besides those that every build has and `-o`.
    pub(crate) flags: Vec<String>,
}

impl Recipe<'_> {
    /// Where the results of this recipe are. `finish` may complete the folder before it appears.
    pub(crate) async fn build(&self, finish: impl AsyncFnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let cache = cache()?.join(self.name);
        fs::create_dir_all(&cache).with_context(|| format!("making the folder {}", cache.display()))?;
        let built = cache.join(self.stamp().await?);
        if built.is_dir() {
            return Ok(built);
        }
        let lock = self.lock(&cache.join("lock")).await?;
        if !built.is_dir() {
            let unfinished = cache.join("unfinished");
            remove(&unfinished)?;
            fs::create_dir_all(&unfinished).with_context(|| format!("making {}", unfinished.display()))?;
            self.compile(&unfinished).await?;
            finish(&unfinished).await?;
            fs::rename(&unfinished, &built)
                .with_context(|| format!("moving a finished build to {}", built.display()))?;
        }
        drop(lock);
        Ok(built)
    }

    /// The output of `go` with these arguments in the module's folder.
    pub(crate) async fn go(&self, args: &[&str]) -> Result<String> {
        let command = format!("go {}", args.join(" "));
        let go = Process::spawn(&command, &self.program().args(args))?;
        let exit = go.exited(ANSWERED_WITHIN).await?;
        match exit.code() {
            Some(0) => Ok(go.lines().join("\n")),
            Some(127) => bail!(
                "there is no `go` in PATH to build {} with: install Go as new as {} says, or set KUBEBUILDER_ASSETS to a \
                 folder with the programs of a control plane",
                self.name,
                self.module.join("go.mod").display()
            ),
            _ => bail!("`{command}` in {} failed ({exit}):\n{}", self.module.display(), go.tail(20)),
        }
    }

    fn program(&self) -> Program {
        // An outer workspace, or a download of another Go, would change the build.
        let settings = [("GOWORK", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", ""), ("CGO_ENABLED", "0")];
        settings.iter().fold(Program::new("go").in_folder(&self.module), |go, (name, value)| go.env(*name, *value))
    }

    /// Names everything that goes into the build.
    async fn stamp(&self) -> Result<String> {
        let mut hasher = DefaultHasher::new();
        self.go(&["env", "GOVERSION", "GOOS", "GOARCH"]).await?.hash(&mut hasher);
        self.flags.hash(&mut hasher);
        for file in ["go.mod", "go.sum"] {
            let path = self.module.join(file);
            fs::read(&path).with_context(|| format!("reading {}", path.display()))?.hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    async fn lock(&self, path: &Path) -> Result<File> {
        let file = File::create(path).with_context(|| format!("making the lock {}", path.display()))?;
        let start = Instant::now();
        let mut last_message = None;
        while start.elapsed() < BUILT_WITHIN {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {
                    if last_message.is_none_or(|last_message: Instant| last_message.elapsed() > 6 * STEP) {
                        say(&format!("{}: another process builds it, waiting", self.name));
                        last_message = Some(Instant::now());
                    }
                    tokio::time::sleep(STEP / 10).await;
                }
                Err(TryLockError::Error(e)) => return Err(e).with_context(|| format!("locking {}", path.display())),
            }
        }
        bail!("{} is still locked after {BUILT_WITHIN:?}: does another process build {}?", path.display(), self.name)
    }

    async fn compile(&self, into: &Path) -> Result<()> {
        let start = Instant::now();
        say(&format!("{}: building with Go; minutes the first time", self.name));
        let mut output = into.as_os_str().to_owned();
        output.push("/");
        let program = self
            .program()
            .args(["build", "-v", "-mod=readonly", "-buildvcs=false", "-trimpath", "-p", "2", "-o"])
            .args([output])
            .args(&self.flags);
        let go = Process::spawn("go build", &program)?;
        while start.elapsed() < BUILT_WITHIN {
            if let Ok(exit) = go.exited(STEP).await {
                if !exit.success() {
                    bail!("building {} from {} failed ({exit}):\n{}", self.name, self.module.display(), go.tail(20));
                }
                say(&format!("{}: built in {} s", self.name, start.elapsed().as_secs()));
                return Ok(());
            }
            let lines = go.lines();
            let now = lines.last().map_or("downloading or linking", String::as_str);
            say(&format!("{}: {now} ({} packages, {} s)", self.name, lines.len(), start.elapsed().as_secs()));
        }
        bail!("building {} took longer than {BUILT_WITHIN:?}", self.name)
    }
}

/// `$NAPKEEPER_CACHE`, or a folder beside what Cargo builds.
fn cache() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("NAPKEEPER_CACHE") {
        return Ok(PathBuf::from(folder));
    }
    let target = super::binaries::built_programs()?;
    let target = target.parent().context("the folder of a test's program has no parent")?;
    Ok(target.join("control-plane"))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Writes past what captures the output of tests, so that a person sees why nothing happens.
fn say(line: &str) {
    writeln!(std::io::stderr().lock(), "{line}").ok();
}
