//! Programs that a test starts end with the test.

use napkeeper_tests::wait::eventually;
use anyhow::{Context, Result, ensure};
use napkeeper_tests::control_plane::{ControlPlane, Mode, Process, Program};
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
/// Set in the process that [`everything_ends_with_a_killed_test`] starts and kills.
const VICTIM: &str = "NAPKEEPER_TEST_VICTIM";

/// True unless the process has exited, including zombies.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// Does nothing, but in the process that is to be killed.
#[tokio::test]
async fn victim() -> Result<()> {
    if std::env::var_os(VICTIM).is_none() {
        return Ok(());
    }
    let plane = ControlPlane::start(Mode::Api).await?;
    let pids: Vec<_> = plane.pids().iter().map(u32::to_string).collect();
    println!("\nrunning:{}:{}", pids.join(","), plane.folder().display());
    tokio::time::sleep(Duration::from_secs(300)).await;
    Ok(())
}

#[tokio::test]
async fn everything_ends_with_a_killed_test() -> Result<()> {
    let test = Program::new(std::env::current_exe()?)
        .args(["--exact", "live::processes::victim", "--nocapture"])
        .env(VICTIM, "yes");
    let victim = Process::spawn("a test", &test)?;
    let line = victim.line("running:", Duration::from_secs(300)).await?;
    let mut parts = line.split(':').skip(1);
    let pids: Vec<_> = parts.next().context("pids")?.split(',').map(str::to_owned).collect();
    let folder = parts.next().context("a folder")?.to_owned();
    ensure!(pids.len() == 2 && pids.iter().all(|pid| lives(pid)) && Path::new(&folder).is_dir(), "{line}");
    victim.kill();
    eventually("end of all processes", SOON, async || Ok((!pids.iter().any(|pid| lives(pid))).then_some(()))).await?;
    eventually("end of the folder", SOON, async || Ok((!Path::new(&folder).exists()).then_some(()))).await
}

#[tokio::test]
async fn a_dropped_control_plane_leaves_nothing() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    let (pids, folder) = (plane.pids(), plane.folder().to_owned());
    drop(plane);
    ensure!(!pids.iter().any(|pid| lives(&pid.to_string())), "a process is left");
    ensure!(!folder.exists(), "{} is left", folder.display());
    Ok(())
}

fn shell(script: &str) -> Result<Process> {
    Process::spawn("a script", &Program::new("sh").args(["-c", script]))
}

#[tokio::test]
async fn lines_of_a_program_and_its_exit_are_read() -> Result<()> {
    let script = shell("echo one; echo two >&2; exit 3")?;
    ensure!(script.line("two", SOON).await? == "two");
    ensure!(script.exited(SOON).await?.code() == Some(3));
    let mut lines = script.lines();
    lines.sort();
    ensure!(lines == ["one", "two"], "{lines:?}");
    let missing = script.line("three", SOON).await;
    ensure!(missing.as_ref().is_err_and(|e| e.to_string().contains("ended (exit status: 3)")), "{missing:?}");
    Ok(())
}

#[tokio::test]
async fn a_program_can_end_on_request_and_is_killed_otherwise() -> Result<()> {
    let script = shell("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")?;
    script.line("up", SOON).await?;
    script.terminate()?;
    script.line("bye", SOON).await?;
    ensure!(script.exited(SOON).await?.success());
    ensure!(script.terminate().is_err(), "nobody is there to hear");

    let deaf = shell("trap '' TERM; echo up; while :; do sleep 0.1; done")?;
    deaf.line("up", SOON).await?;
    deaf.terminate()?;
    ensure!(deaf.exited(Duration::from_millis(500)).await.is_err(), "it does not listen");
    deaf.kill();
    ensure!(!lives(&deaf.pid().to_string()));
    ensure!(deaf.exited(SOON).await?.code().is_none(), "a signal ended it");
    Ok(())
}

#[tokio::test]
async fn a_missing_program_is_named() -> Result<()> {
    let nothing = Process::spawn("nothing", &Program::new("/nonexistent/program"))?;
    ensure!(nothing.exited(SOON).await?.code() == Some(127));
    ensure!(nothing.tail(1).contains("/nonexistent/program"), "{}", nothing.tail(1));
    Ok(())
}
