//! `shell`: commands one a line, from the keyboard or a pipe.
//!
//! On a terminal there is line editing, history and completion, and an error is shown and the next
//! line read. On a pipe every command is answered by one line, answers are flushed when no further
//! input is waiting (so that another program can talk to it), and the first error ends the run
//! with exit code 1, unless `--keep-going` was given.

mod complete;
mod session;
mod words;

use std::{
    io::{self, BufRead as _, BufReader, IsTerminal as _, Write},
    path::PathBuf,
};

use rustyline::{CompletionType, Config, Editor, error::ReadlineError, history::FileHistory};

use crate::{
    arguments,
    context::Context,
    failure::{Failure, Outcome},
    formats::{ROW_BYTES_MAX, read_line},
};
use complete::CommandHelper;
use session::{Flow, Session};

/// Lines of history kept.
const HISTORY_LINES: usize = 1000;

/// Runs the shell until `quit` or the end of the input.
pub fn run(context: &mut Context<'_>, command: &arguments::Shell) -> Outcome {
    let database = context.open_for_shell(command)?;
    let is_terminal = io::stdin().is_terminal();
    let mut session = Session::new(&database, command.table.as_deref(), is_terminal)?;
    let result = if is_terminal {
        converse(&mut session, context.out)
    } else {
        obey(&mut session, context.out, command.keep_going)
    };
    drop(session);
    let closed = database.close();
    result?;
    Ok(closed?)
}

/// Commands from a pipe.
fn obey(session: &mut Session<'_>, out: &mut dyn Write, keep_going: bool) -> Outcome {
    let mut input = BufReader::with_capacity(1 << 16, io::stdin());
    let mut line = Vec::new();
    let mut number = 0_u64;
    let mut failures = 0_u64;
    loop {
        if input.buffer().is_empty() {
            out.flush()?;
        }
        number += 1;
        let more = read_line(&mut input, &mut line, ROW_BYTES_MAX);
        if !more.map_err(|error| Failure::io(format!("line {number}"), &error))? {
            break;
        }
        match session.execute(&line, out) {
            Ok(Flow::Continue) => {}
            Ok(Flow::Quit) => break,
            Err(Failure::BrokenPipe) => return Err(Failure::BrokenPipe),
            Err(failure) if keep_going => {
                out.flush()?;
                crate::complain(&failure.within(format!("line {number}")));
                failures += 1;
            }
            Err(failure) => return Err(fail_with(failure.within(format!("line {number}")))),
        }
        if line.capacity() > 1 << 20 {
            line = Vec::new();
        }
    }
    // Whatever is left unread was asked not to be: `quit` came first.
    input.consume(0);
    session.end()?;
    if failures > 0 { Err(Failure::Reported(1)) } else { Ok(()) }
}

/// A line that makes no sense is a failure of the input, not of the command line.
fn fail_with(failure: Failure) -> Failure {
    match failure {
        Failure::Usage(what) => Failure::Failed(what),
        other => other,
    }
}

/// Commands from a person.
fn converse(session: &mut Session<'_>, out: &mut dyn Write) -> Outcome {
    let broken = |error: &ReadlineError| Failure::Failed(format!("the terminal: {error}"));
    let config = Config::builder()
        .max_history_size(HISTORY_LINES)
        .map_err(|error| broken(&error))?
        .auto_add_history(true)
        .completion_type(CompletionType::List)
        .build();
    let mut editor: Editor<CommandHelper, FileHistory> =
        Editor::with_config(config).map_err(|error| broken(&error))?;
    let history = history_file();
    if let Some(path) = &history {
        // There is none the first time.
        let _ = editor.load_history(path);
    }
    writeln!(out, "Type help for the commands, quit to leave.")?;
    let result = loop {
        out.flush()?;
        editor.set_helper(Some(CommandHelper::new(session.table_names())));
        match editor.readline(&session.prompt()) {
            Ok(line) => match session.execute(line.as_bytes(), out) {
                Ok(Flow::Continue) => {}
                Ok(Flow::Quit) => break Ok(()),
                Err(Failure::BrokenPipe) => break Err(Failure::BrokenPipe),
                Err(failure) => {
                    out.flush()?;
                    crate::complain(&failure);
                }
            },
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break Ok(()),
            Err(error) => break Err(broken(&error)),
        }
    };
    if let Some(path) = &history {
        // Losing the history is no reason to fail.
        let _ = editor.save_history(path);
    }
    result?;
    session.end()
}

/// `$XDG_STATE_HOME/quintet/history`, by default below `~/.local/state`.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".local/state"))
    })?;
    let dir = state.join("quintet");
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join("history"))
}
