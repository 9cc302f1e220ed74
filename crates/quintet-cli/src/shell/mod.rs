//! `shell`: runs commands from the keyboard or a pipe, one per line.
//!
//! On a terminal the shell has line editing, history and completion. It prints an error and reads
//! the next line.
//!
//! On a pipe it answers every command with one line. It flushes the answers when no further input
//! is waiting, so another program can use it interactively. The first error ends the run with exit
//! code 1, unless `--keep-going` is set.

mod complete;
mod session;

use std::{
    io::{self, BufReader, IsTerminal as _, Write},
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

/// Maximum number of lines in the history.
const HISTORY_LINES: usize = 1000;

/// Runs the shell until `quit` or the end of the input.
pub fn run(context: &mut Context<'_>, command: &arguments::ShellArgs) -> Outcome {
    let database = context.open_for_shell(command)?;
    let is_terminal = io::stdin().is_terminal();
    let mut session = Session::new(&database, command.table.as_deref(), is_terminal)?;
    let result = if is_terminal {
        run_terminal(&mut session, context.out)
    } else {
        run_pipe(&mut session, context.out, command.keep_going)
    };
    drop(session);
    let closed = database.close();
    result?;
    Ok(closed?)
}

/// Runs commands from a pipe.
fn run_pipe(session: &mut Session<'_>, out: &mut dyn Write, keep_going: bool) -> Outcome {
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
                crate::print_failure(&failure.within(format!("line {number}")));
                failures += 1;
            }
            Err(failure) => return Err(line_failure(failure.within(format!("line {number}")))),
        }
        if line.capacity() > 1 << 20 {
            line = Vec::new();
        }
    }
    session.end()?;
    if failures > 0 { Err(Failure::Reported(1)) } else { Ok(()) }
}

/// Converts the failure of a line. A wrong line is a failure, not wrong usage of `quintet`.
fn line_failure(failure: Failure) -> Failure {
    match failure {
        Failure::Usage(what) => Failure::Failed(what),
        other => other,
    }
}

/// Runs commands from a terminal.
fn run_terminal(session: &mut Session<'_>, out: &mut dyn Write) -> Outcome {
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
        // The first run has no history file.
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
                    crate::print_failure(&failure);
                }
            },
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break Ok(()),
            Err(error) => break Err(broken(&error)),
        }
    };
    if let Some(path) = &history {
        // A failure here loses only the history.
        let _ = editor.save_history(path);
    }
    result?;
    session.end()
}

/// Returns `$XDG_STATE_HOME/quintet/history`, by default below `~/.local/state`.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".local/state"))
    })?;
    let dir = state.join("quintet");
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join("history"))
}
