//! Runs other programs, which end with the test.
//!
//! Each program starts through a few lines of shell that leave a guard behind and then become the program. The guard
//! reads a pipe whose other end only the test process holds. However the test ends, by a SIGKILL too, the pipe closes
//! and the guard kills the program. All signals go through the guard, so none can hit another process with a reused
//! pid.

use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// `$0` is a folder to remove if the test dies first, or nothing.
const GUARD: &str = r#"
exec 3<&0 </dev/null
(
    while read -r word <&3; do
        [ "$word" = done ] && exit
        kill -s "$word" $$
    done
    kill -s KILL $$
    if [ -n "$0" ]; then sleep 1; rm -rf -- "$0"; fi
) >/dev/null 2>&1 &
exec 3<&-
exec "$@"
"#;

/// Lines of output that are kept, the newest.
const MAX_LINES: usize = 20_000;

/// How long a killed program may take to exit.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
    litter: Option<PathBuf>,
}

impl Program {
    /// The program at this path, or of this name in `PATH`, without arguments.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), args: Vec::new(), env: Vec::new(), folder: None, litter: None }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable to the environment, which is otherwise that of the test.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Runs in this folder.
    #[must_use]
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// A folder that the guard removes if the test process dies before it could do so itself.
    #[must_use]
    pub fn removing(mut self, folder: impl Into<PathBuf>) -> Self {
        self.litter = Some(folder.into());
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new("sh");
        let litter = self.litter.as_deref().map_or_else(|| OsStr::new(""), Path::as_os_str);
        command.arg("-c").arg(GUARD).arg(litter).arg(&self.path).args(&self.args);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A Ctrl-C meant for the test must not take the guard away.
        command.process_group(0);
        command
    }
}

/// The output of the program and its exit status.
#[derive(Debug, Default)]
struct Seen {
    lines: VecDeque<String>,
    /// How many older lines were dropped.
    dropped: usize,
    exit: Option<ExitStatus>,
}

/// Notifies waiters of changes of [`Seen`].
#[derive(Debug)]
struct Board {
    seen: Mutex<Seen>,
    changed: watch::Sender<()>,
}

impl Board {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen());
        self.changed.send_replace(());
    }
}

/// A running program. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    guard: Arc<Mutex<ChildStdin>>,
    board: Arc<Board>,
    killed: Mutex<Receiver<()>>,
}

impl Process {
    /// Starts a program; `name` is what messages call it.
    ///
    /// # Errors
    /// When it cannot be started. A program that does not exist starts and exits with 127.
    pub fn spawn(name: &str, program: &Program) -> Result<Self> {
        let mut child = program.command().spawn().with_context(|| format!("starting {name}"))?;
        let pid = child.id();
        let guard = Arc::new(Mutex::new(child.stdin.take().context("a pipe to the guard")?));
        let board = Arc::new(Board { seen: Mutex::default(), changed: watch::Sender::new(()) });
        let readers = [
            child.stdout.take().map(|pipe| read_lines(name, pipe, Arc::clone(&board))),
            child.stderr.take().map(|pipe| read_lines(name, pipe, Arc::clone(&board))),
        ];
        let (on_exit, killed) = channel();
        let (waiting, child_guard) = (Arc::clone(&board), Arc::clone(&guard));
        std::thread::spawn(move || {
            let exit = child.wait();
            tell(&child_guard, "done").ok();
            on_exit.send(()).ok();
            // What it wrote last comes before its exit, unless a descendant holds the pipe open.
            for reader in readers.into_iter().flatten() {
                reader.recv_timeout(Duration::from_secs(1)).ok();
            }
            waiting.change(|seen| seen.exit = exit.ok());
        });
        Ok(Self { name: name.to_owned(), pid, guard, board, killed: Mutex::new(killed) })
    }

    /// The program's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// How many TCP ports the program listens at.
    ///
    /// # Errors
    /// When it has ended.
    pub fn listening_ports(&self) -> Result<usize> {
        let folder = PathBuf::from(format!("/proc/{}", self.pid));
        let mut sockets = BTreeSet::new();
        for descriptor in std::fs::read_dir(folder.join("fd"))? {
            let Ok(target) = std::fs::read_link(descriptor?.path()) else { continue };
            let name = target.display().to_string();
            sockets
                .extend(name.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')).map(ToOwned::to_owned));
        }
        let mut listening = 0;
        for table in ["net/tcp", "net/tcp6"] {
            let text = std::fs::read_to_string(folder.join(table))?;
            let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            // The fourth column is the state, of which 0A is LISTEN, and the tenth the socket.
            let own =
                |row: &[&str]| row.get(3) == Some(&"0A") && row.get(9).is_some_and(|inode| sockets.contains(*inode));
            listening += rows.filter(|row| own(row)).count();
        }
        Ok(listening)
    }

    /// The retained lines of stdout and stderr, in order.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.board.seen().lines.iter().cloned().collect()
    }

    /// The last lines, joined, for the message of an error.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        let seen = self.board.seen();
        let skip = seen.lines.len().saturating_sub(lines);
        seen.lines.iter().skip(skip).map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.board.seen().exit
    }

    /// Waits for a line that contains `text`, among those already written too.
    ///
    /// # Errors
    /// When the program exits or the time is over first; with the end of its output.
    pub async fn line(&self, text: &str, within: Duration) -> Result<String> {
        let mut from = 0;
        self.until(&format!("a line with {text:?}"), within, |seen| {
            let start = from.max(seen.dropped);
            let found = seen.lines.iter().skip(start - seen.dropped).find(|line| line.contains(text)).cloned();
            from = seen.dropped + seen.lines.len();
            found
        })
        .await
    }

    /// Waits until it has exited.
    ///
    /// # Errors
    /// When the time is over first; with the end of its output.
    pub async fn exited(&self, within: Duration) -> Result<ExitStatus> {
        self.until("its exit", within, |seen| seen.exit).await
    }

    async fn until<T>(&self, condition: &str, within: Duration, mut look: impl FnMut(&Seen) -> Option<T>) -> Result<T> {
        let mut changed = self.board.changed.subscribe();
        let waiting = async {
            loop {
                let exit = {
                    let seen = self.board.seen();
                    if let Some(found) = look(&seen) {
                        return Ok(found);
                    }
                    seen.exit
                };
                if let Some(exit) = exit {
                    bail!("{} ended ({exit}) before {condition}; its last lines:\n{}", self.name, self.tail(20));
                }
                changed.changed().await.context("nobody watches the program any more")?;
            }
        };
        match tokio::time::timeout(within, waiting).await {
            Ok(found) => found,
            Err(_) => {
                bail!("{}: no sign of {condition} within {within:?}; its last lines:\n{}", self.name, self.tail(20))
            }
        }
    }

    /// Asks it to end (SIGTERM).
    ///
    /// # Errors
    /// If the guard has ended, and thus the program.
    pub fn terminate(&self) -> Result<()> {
        self.signal("TERM")
    }

    /// Sends a signal by name, such as `HUP`, `STOP` or `CONT`.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn signal(&self, signal: &str) -> Result<()> {
        ensure!(self.exit_status().is_none(), "{} has ended already", self.name);
        tell(&self.guard, signal).with_context(|| format!("sending {signal} to {}", self.name))
    }

    /// Kills it (SIGKILL) and waits until it has exited. Nothing happens if it has ended.
    pub fn kill(&self) {
        if tell(&self.guard, "KILL").is_ok() {
            let killed = self.killed.lock().unwrap_or_else(PoisonError::into_inner);
            killed.recv_timeout(KILLED_WITHIN).ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What follows a key such as `health=` in a line of a log, as far as the next space.
///
/// # Errors
/// When the key is not there.
pub fn word(line: &str, key: &str) -> Result<String> {
    let rest = line.split(key).nth(1).with_context(|| format!("no {key} in {line}"))?;
    Ok(rest.split_whitespace().next().unwrap_or_default().to_owned())
}

fn tell(guard: &Mutex<ChildStdin>, word: &str) -> std::io::Result<()> {
    let mut pipe = guard.lock().unwrap_or_else(PoisonError::into_inner);
    pipe.write_all(format!("{word}\n").as_bytes())
}

/// Reads lines until the pipe closes, then answers. With `NAPKEEPER_TEST_LOGS=FOLDER` they go to a file there too, to
/// see why a test failed.
fn read_lines(name: &str, pipe: impl Read + Send + 'static, board: Arc<Board>) -> Receiver<()> {
    let (done, closed) = channel();
    let file = std::env::var_os("NAPKEEPER_TEST_LOGS").map(|folder| PathBuf::from(folder).join(format!("{name}.log")));
    let mut copy = file.and_then(|file| OpenOptions::new().create(true).append(true).open(file).ok());
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if let Some(copy) = &mut copy {
                writeln!(copy, "{text}").ok();
            }
            board.change(|seen| {
                if seen.lines.len() == MAX_LINES {
                    seen.lines.pop_front();
                    seen.dropped += 1;
                }
                seen.lines.push_back(text);
            });
        }
        done.send(()).ok();
    });
    closed
}
