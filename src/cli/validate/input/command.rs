//! How is another program run so that it cannot hang us or fill our memory?

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of stderr that are kept, to be shown.
const MOST_SAID: u64 = 16 << 10;
/// How often it is looked whether a program that closed its output has ended.
const LOOK: Duration = Duration::from_millis(5);

/// What a program may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Time.
    pub(super) time: Duration,
    /// Bytes on its standard output.
    pub(super) bytes: u64,
}

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) stdout: Vec<u8>,
    /// What it said on stderr, cut.
    pub(super) said: String,
    pub(super) status: ExitStatus,
}

/// Why a program has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// It is not there, or may not be run.
    #[error("cannot run: {0}")]
    Start(#[source] io::Error),
    /// It did not end in time.
    #[error("did not finish within {} s", .0.as_secs())]
    Time(Duration),
    /// It said more than can be meant.
    #[error("printed more than {} MiB", .0 >> 20)]
    Size(u64),
    /// Its output could not be read.
    #[error("cannot read its output: {0}")]
    Output(#[source] io::Error),
}

/// Runs a program to its end, with `input` on its standard input.
pub(super) fn run(command: &mut Command, input: Vec<u8>, bounds: Bounds) -> Result<Ran, CommandError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(CommandError::Start)?;
    let result = attend(&mut child, input, bounds);
    if result.is_err() {
        // It may have ended by itself; then there is nothing to kill.
        drop(child.kill());
        drop(child.wait());
    }
    result
}

fn attend(child: &mut Child, input: Vec<u8>, bounds: Bounds) -> Result<Ran, CommandError> {
    let until = Instant::now() + bounds.time;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends before it has read all says so by its exit code.
        thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let stdout = child.stdout.take().map(|pipe| reading(pipe, bounds.bytes + 1));
    let stderr = child.stderr.take().map(|pipe| reading(pipe, MOST_SAID));
    let late = || CommandError::Time(bounds.time);
    let take = |from: Option<Receiver<io::Result<Vec<u8>>>>| match from {
        None => Ok(Vec::new()),
        Some(from) => match from.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(bytes) => bytes.map_err(CommandError::Output),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(late()),
        },
    };
    let stdout = take(stdout)?;
    if stdout.len() as u64 > bounds.bytes {
        return Err(CommandError::Size(bounds.bytes));
    }
    let said = String::from_utf8_lossy(&take(stderr)?).trim().to_owned();
    // Nobody sends here: it is a timer.
    let (_timer, tick) = mpsc::channel::<()>();
    loop {
        match child.try_wait().map_err(CommandError::Output)? {
            Some(status) => return Ok(Ran { stdout, said, status }),
            None if Instant::now() >= until => return Err(late()),
            None => drop(tick.recv_timeout(LOOK)),
        }
    }
}

/// Reads a pipe on a thread of its own. What is beyond `most` is read and dropped, so that the program is not held up;
/// of the standard output that is an error anyway.
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

    fn sh(script: &str, input: &str, bounds: Bounds) -> Result<Ran, CommandError> {
        run(Command::new("sh").args(["-c", script]), input.as_bytes().to_vec(), bounds)
    }

    const ENOUGH: Bounds = Bounds { time: Duration::from_secs(20), bytes: 1 << 20 };

    #[test]
    fn what_a_program_prints_is_read_while_it_is_fed() {
        let input = "x".repeat(500_000);
        let ran = sh("cat; echo no >&2; exit 3", &input, ENOUGH).unwrap();
        assert_eq!((ran.stdout.len(), ran.said.as_str(), ran.status.code()), (500_000, "no", Some(3)));
    }

    #[test]
    fn a_program_that_hangs_or_floods_is_ended() {
        let begun = Instant::now();
        let short = Bounds { time: Duration::from_millis(200), ..ENOUGH };
        assert!(matches!(sh("sleep 60", "", short), Err(CommandError::Time(_))));
        assert!(matches!(sh("exec >&- 2>&-; sleep 60", "", short), Err(CommandError::Time(_))));
        assert!(matches!(sh("yes", "", ENOUGH), Err(CommandError::Size(_))));
        assert!(begun.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn a_program_that_is_not_there_is_named_so() {
        let error = run(&mut Command::new("no-such-program-here"), Vec::new(), ENOUGH).unwrap_err();
        assert!(matches!(&error, CommandError::Start(e) if e.kind() == io::ErrorKind::NotFound), "{error}");
    }
}
