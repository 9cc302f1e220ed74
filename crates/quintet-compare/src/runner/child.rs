//! One child process: started, limited, told its job, heard, and killed where that is the point.

use std::{
    env,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use quintet_bench::failure::{Failure, Outcome};

use crate::{
    cgroup::Group,
    measure::{Answer, Order, Part},
    result::Memory,
};

/// The hidden subcommand that makes a process a child.
pub const SUBCOMMAND: &str = "child";
/// A store is given this long to close after it answered.
const CLOSING: Duration = Duration::from_mins(1);

/// Runs an order and returns the answer. What the child writes to standard error goes to `log`; its
/// last line is part of the failure of one that dies.
pub(super) fn run(order: &Order, log: &Path, limit: Duration) -> Outcome<Answer> {
    let group = match (order.job.memory, order.part) {
        // What loads for another process is not what is limited.
        (Memory::Limited { limit_bytes, .. }, Part::Session | Part::Steps(_) | Part::Recovery) => {
            Some(Group::new(limit_bytes)?)
        }
        _ => None,
    };
    let mut child = spawn(log)?;
    let answer = converse(&mut child, order, group.as_ref(), limit);
    // Whatever happened, the child is gone before its group and its directory are removed.
    let kills = order.job.recovers && matches!(order.part, Part::Session | Part::Steps(_));
    let ended = end(&mut child, kills || answer.is_err());
    let died = |what: String| {
        let last = last_line(log);
        let last = if last.is_empty() { last } else { format!(": {last}") };
        Failure::Failed(format!("{}: {what}{last}", order.job.store))
    };
    match answer {
        Ok(Some(line)) => {
            if let (false, Err(what)) = (kills, ended) {
                return Err(died(what));
            }
            serde_json::from_str(&line).map_err(|error| died(format!("a garbled answer: {error}")))
        }
        Ok(None) => Err(died(ended.err().unwrap_or_else(|| "no answer".to_owned()))),
        Err(failure) => Err(died(failure.to_string())),
    }
}

fn spawn(log: &Path) -> Outcome<Child> {
    let program = env::current_exe().map_err(|error| Failure::io("this program", &error))?;
    let log = File::create(log).map_err(|error| Failure::io(log.display(), &error))?;
    Command::new(program)
        .arg(SUBCOMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| Failure::io("start a run", &error))
}

/// The child's line; none where it died without one.
fn converse(
    child: &mut Child,
    order: &Order,
    group: Option<&Group>,
    limit: Duration,
) -> Outcome<Option<String>> {
    // In its group before it is told anything: all that it does is limited.
    if let Some(group) = group {
        group.add(child.id())?;
    }
    let text = serde_json::to_string(order)
        .map_err(|error| Failure::Failed(format!("an order: {error}")))?;
    if let Some(stdin) = &mut child.stdin
        && let Err(error) = stdin.write_all(format!("{text}\n").as_bytes())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        return Err(Failure::io("start a run", &error));
    }
    let Some(stdout) = child.stdout.take() else { return Ok(None) };
    let (sender, receiver) = mpsc::channel();
    // Ends with the child, whose end closes the pipe.
    let reader = thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        // Nobody listens once the limit is over.
        let _ = sender.send(read.map(|_| line));
    });
    match receiver.recv_timeout(limit) {
        Ok(Ok(line)) => {
            let joined = reader.join();
            joined.map_err(|_| Failure::Failed("the reader panicked".to_owned()))?;
            Ok((!line.is_empty()).then_some(line))
        }
        Ok(Err(error)) => Err(Failure::io("hear from a run", &error)),
        Err(_) => Err(Failure::Failed(format!(
            "it took longer than the {} s of --limit",
            limit.as_secs()
        ))),
    }
}

/// Waits for the child's end, killing it where asked or where it does not come; how it ended where
/// that was not in order.
fn end(child: &mut Child, kill: bool) -> Result<(), String> {
    // A child that waits for its death ends at the end of its input, too.
    let stdin = child.stdin.take();
    if kill {
        // SIGKILL: nothing of the process runs after this. It may be gone already.
        let _ = child.kill();
    }
    drop(stdin);
    let start = std::time::Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("the run died ({status})")),
            Ok(None) if start.elapsed() > CLOSING => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("it did not end after its answer".to_owned());
            }
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The last line that the child wrote to standard error.
fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("");
    line.trim().chars().take(300).collect()
}

/// The failure in an answer.
pub(super) fn unexpected(answer: Answer) -> Failure {
    match answer {
        Answer::Failed { code: 2, what } => Failure::Usage(what),
        Answer::Failed { code: 3, what } => Failure::Damage(what),
        Answer::Failed { what, .. } => Failure::Failed(what),
        Answer::Measured(_) | Answer::Loaded(_) | Answer::Reopened(_) => {
            Failure::Failed("the run answered something else".to_owned())
        }
    }
}
