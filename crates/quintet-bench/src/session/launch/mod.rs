//! The parent's side: starts child processes, limits them, and receives their replies.

mod cgroup;

use std::{
    env,
    fs::{self, File},
    io::{BufRead as _, BufReader, ErrorKind, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use cgroup::ControlGroup;

use super::{
    job::Job,
    plan,
    protocol::{ChildReply, SessionPart, SessionRequest, StepReport},
};
use crate::{
    failure::{Failure, Outcome},
    store::MemoryMode,
};

/// Environment variable that makes a process a child; its value is a [`Role`].
pub const ROLE: &str = "QUINTET_BENCH_ROLE";
/// Longest time that a child process may take to exit after its reply.
const EXIT_WAIT_MAX: Duration = Duration::from_mins(1);
/// Maximum number of characters of a child's last line on standard error in a message.
const LAST_LINE_CHARS: usize = 300;

/// Role of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs a session, or a part of it.
    Session,
    /// Removes the directory of a run whose process was killed.
    Remover,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Remover => "remover",
        }
    }

    /// Returns the role of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Session, Self::Remover].into_iter().find(|role| role.name() == name)
    }
}

/// Runs jobs in child processes.
#[derive(Debug)]
pub struct Launcher {
    /// Directory for stores and for the standard error of the child.
    dir: PathBuf,
    /// Longest duration of a child process; `None` is unlimited.
    limit: Option<Duration>,
}

impl Launcher {
    /// Creates a launcher that keeps its files in `dir`.
    pub fn new(dir: &Path, limit: Option<Duration>) -> Self {
        Self { dir: dir.to_path_buf(), limit }
    }

    /// Runs a job and returns a report for each step. A job that recovers, or that loads without a
    /// memory limit, uses two child processes.
    pub fn run(&self, job: &Job) -> Outcome<Vec<StepReport>> {
        let dir = self.dir.join("store");
        let doing = |error: std::io::Error| Failure::io(dir.display(), &error);
        fs::create_dir(&dir).map_err(doing)?;
        let outcome = self.run_in(job, &dir);
        fs::remove_dir_all(&dir).map_err(doing)?;
        outcome
    }

    fn run_in(&self, job: &Job, dir: &Path) -> Outcome<Vec<StepReport>> {
        let mut request =
            SessionRequest { job: job.clone(), dir: dir.to_path_buf(), part: SessionPart::Whole };
        let is_short = job.memory.is_some_and(|memory| !matches!(memory, MemoryMode::Fits { .. }));
        if job.reopens && is_short && !job.measures_load() {
            // The limit applies to the measured steps. Loading gets memory for all of the data,
            // and the page cache is dropped after it.
            let budget_bytes = plan::fitting_budget(job.data_bytes());
            request.job.memory = Some(MemoryMode::Fits { budget_bytes });
            request.part = SessionPart::Load;
            request.part = match self.converse(&request)? {
                ChildReply::Loaded(loaded) => SessionPart::Steps(loaded),
                other => return Err(other.into_failure().within("load")),
            };
            request.job.memory = job.memory;
            let dropped = cgroup::drop_page_cache(dir);
            dropped.map_err(|error| Failure::io(dir.display(), &error))?;
        }
        let mut reports = match self.converse(&request)? {
            ChildReply::Measured(reports) => reports,
            other => return Err(other.into_failure()),
        };
        if job.recovers {
            request.part = SessionPart::Recovery;
            let found = match self.converse(&request)? {
                ChildReply::Reopened(recovery) => recovery,
                other => return Err(other.into_failure().within("after kill -9")),
            };
            if let Some(last) = reports.last_mut() {
                last.figures.recovery = Some(found);
            }
        }
        Ok(reports)
    }

    /// Runs one child process and returns its reply. If the child dies, the failure contains the
    /// last line that it wrote to standard error.
    fn converse(&self, request: &SessionRequest) -> Outcome<ChildReply> {
        let log = self.dir.join("stderr");
        let group = match (request.job.memory, request.part) {
            // The process that only loads has no limit.
            (_, SessionPart::Load) => None,
            (Some(MemoryMode::Limited { limit_bytes, .. }), _) => {
                Some(ControlGroup::new(limit_bytes)?)
            }
            _ => None,
        };
        let mut child = spawn(Role::Session, Some(&log))?;
        let reply = exchange(&mut child, request, group.as_ref(), self.limit);
        // The child must be gone before its control group and its directory are removed.
        let is_step = matches!(request.part, SessionPart::Whole | SessionPart::Steps(_));
        let kills = request.job.recovers && is_step;
        let ended = end(&mut child, kills || reply.is_err());
        let died = |what: String| {
            let last = last_line(&log);
            let last = if last.is_empty() { last } else { format!(": {last}") };
            Failure::Failed(format!("{}: {what}{last}", request.job.store))
        };
        match reply {
            Ok(Some(line)) => {
                if let (false, Err(what)) = (kills, ended) {
                    return Err(died(what));
                }
                let reply = serde_json::from_str(&line);
                reply.map_err(|error| died(format!("the reply is not readable: {error}")))
            }
            Ok(None) => Err(died(ended.err().unwrap_or_else(|| "no reply".to_owned()))),
            Err(failure) => Err(died(failure.to_string())),
        }
    }
}

/// Starts this executable with the same command line in a role. Its standard error goes to `log`
/// if there is one. A remover gets its own process group.
pub(super) fn spawn(role: Role, log: Option<&Path>) -> Outcome<Child> {
    let program = env::current_exe().map_err(|error| Failure::io("this program", &error))?;
    let mut command = Command::new(program);
    if role == Role::Remover {
        command.process_group(0);
    }
    if let Some(log) = log {
        let file = File::create(log).map_err(|error| Failure::io(log.display(), &error))?;
        command.stderr(file);
    }
    command
        .args(env::args_os().skip(1))
        .env(ROLE, role.name())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::io("start a run", &error))
}

/// Sends a message to a child. A child that has died is not a failure here: its end is.
pub(super) fn send(child: &mut Child, message: &impl Serialize) -> Outcome {
    let text = serde_json::to_string(message)
        .map_err(|error| Failure::Failed(format!("encode a request: {error}")))?;
    if let Some(stdin) = &mut child.stdin
        && let Err(error) = stdin.write_all(format!("{text}\n").as_bytes())
        && error.kind() != ErrorKind::BrokenPipe
    {
        return Err(Failure::io("start a run", &error));
    }
    Ok(())
}

/// Sends the request and returns the line of the reply; `None` if the child died without one.
fn exchange(
    child: &mut Child,
    request: &SessionRequest,
    group: Option<&ControlGroup>,
    limit: Option<Duration>,
) -> Outcome<Option<String>> {
    // The child joins its group before it gets the request, so all of its work is limited.
    if let Some(group) = group {
        group.add(child.id())?;
    }
    send(child, request)?;
    let Some(stdout) = child.stdout.take() else { return Ok(None) };
    let (sender, receiver) = mpsc::channel();
    // This thread ends with the child, because that closes the pipe.
    let reader = thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        // After the time limit there is no receiver.
        let _ = sender.send(read.map(|_| line));
    });
    let reply = match limit {
        Some(limit) => receiver.recv_timeout(limit).map_err(|_| {
            Failure::Failed(format!("it took longer than the {} s of --limit", limit.as_secs()))
        }),
        None => receiver.recv().map_err(|_| Failure::Failed("the reader panicked".to_owned())),
    };
    let line = reply?.map_err(|error| Failure::io("receive a reply", &error))?;
    reader.join().map_err(|_| Failure::Failed("the reader panicked".to_owned()))?;
    Ok((!line.is_empty()).then_some(line))
}

/// Waits for the end of the child; kills it if `kill` is set or if it does not exit in time.
/// Returns how it ended if that was not in order.
fn end(child: &mut Child, kill: bool) -> Result<(), String> {
    // The end of its standard input also ends a child that waits for the kill.
    let stdin = child.stdin.take();
    if kill {
        // SIGKILL: the process executes no further instruction. It may have ended already.
        let _ = child.kill();
    }
    drop(stdin);
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("the run died ({status})")),
            Ok(None) if start.elapsed() > EXIT_WAIT_MAX => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("it did not exit after its reply".to_owned());
            }
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Returns the last line that the child wrote to standard error.
fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("");
    line.trim().chars().take(LAST_LINE_CHARS).collect()
}
