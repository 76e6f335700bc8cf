//! Runs another program with limits of time and output.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of stderr that are kept, to be shown.
const MAX_STDERR: u64 = 16 << 10;
/// How often a program that has closed its output is checked for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Limits of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Time.
    pub(crate) time: Duration,
    /// Bytes on its standard output.
    pub(crate) bytes: u64,
}

/// The output of a program that has ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) stdout: Vec<u8>,
    /// The beginning of its stderr.
    pub(crate) stderr: String,
    pub(crate) status: ExitStatus,
}

/// Why a program has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// It does not exist, or may not be run.
    #[error("cannot run: {0}")]
    Start(#[source] io::Error),
    /// It did not end in time.
    #[error("did not finish within {} s", .0.as_secs())]
    Time(Duration),
    /// Its output is too large.
    #[error("printed more than {} MiB", .0 >> 20)]
    Size(u64),
    /// Its output could not be read.
    #[error("cannot read its output: {0}")]
    Output(#[source] io::Error),
}

/// Runs a program to its end, with `input` on its standard input.
pub(crate) fn run(command: &mut Command, input: Vec<u8>, limits: Limits) -> Result<CommandOutput, CommandError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(CommandError::Start)?;
    let result = wait(&mut child, input, limits);
    if result.is_err() {
        // It may have ended already; then there is nothing to kill.
        drop(child.kill());
        drop(child.wait());
    }
    result
}

fn wait(child: &mut Child, input: Vec<u8>, limits: Limits) -> Result<CommandOutput, CommandError> {
    let until = Instant::now() + limits.time;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends before it has read everything shows that by its exit code.
        thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let stdout = child.stdout.take().map(|pipe| reading(pipe, limits.bytes + 1));
    let stderr = child.stderr.take().map(|pipe| reading(pipe, MAX_STDERR));
    let late = || CommandError::Time(limits.time);
    let take = |from: Option<Receiver<io::Result<Vec<u8>>>>| match from {
        None => Ok(Vec::new()),
        Some(from) => match from.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(bytes) => bytes.map_err(CommandError::Output),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(late()),
        },
    };
    let stdout = take(stdout)?;
    if stdout.len() as u64 > limits.bytes {
        return Err(CommandError::Size(limits.bytes));
    }
    let stderr = String::from_utf8_lossy(&take(stderr)?).trim().to_owned();
    // Nothing is ever sent: the channel is a timer.
    let (_timer, tick) = mpsc::channel::<()>();
    loop {
        match child.try_wait().map_err(CommandError::Output)? {
            Some(status) => return Ok(CommandOutput { stdout, stderr, status }),
            None if Instant::now() >= until => return Err(late()),
            None => drop(tick.recv_timeout(POLL_INTERVAL)),
        }
    }
}

/// Reads a pipe on its own thread. What exceeds `most` is read and dropped, so that the program does not block; on the
/// standard output that is an error anyway.
fn reading(mut pipe: impl Read + Send + 'static, most: u64) -> Receiver<io::Result<Vec<u8>>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.by_ref().take(most).read_to_end(&mut bytes).map(|_| bytes);
        let is_full = read.as_ref().is_ok_and(|bytes| bytes.len() as u64 == most);
        drop(send.send(read));
        if is_full {
            drop(io::copy(&mut pipe, &mut io::sink()));
        }
    });
    receive
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh(script: &str, input: &str, limits: Limits) -> Result<CommandOutput, CommandError> {
        run(Command::new("sh").args(["-c", script]), input.as_bytes().to_vec(), limits)
    }

    const ENOUGH: Limits = Limits { time: Duration::from_secs(20), bytes: 1 << 20 };

    #[test]
    fn output_is_read_while_input_is_written() {
        let input = "x".repeat(500_000);
        let ran = sh("cat; echo no >&2; exit 3", &input, ENOUGH).unwrap();
        assert_eq!((ran.stdout.len(), ran.stderr.as_str(), ran.status.code()), (500_000, "no", Some(3)));
    }

    #[test]
    fn a_program_that_hangs_or_floods_is_ended() {
        let begun = Instant::now();
        let short = Limits { time: Duration::from_millis(200), ..ENOUGH };
        assert!(matches!(sh("sleep 60", "", short), Err(CommandError::Time(_))));
        assert!(matches!(sh("exec >&- 2>&-; sleep 60", "", short), Err(CommandError::Time(_))));
        assert!(matches!(sh("yes", "", ENOUGH), Err(CommandError::Size(_))));
        assert!(begun.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn a_missing_program_is_reported() {
        let error = run(&mut Command::new("no-such-program-here"), Vec::new(), ENOUGH).unwrap_err();
        assert!(matches!(&error, CommandError::Start(e) if e.kind() == io::ErrorKind::NotFound), "{error}");
    }
}
