//! The `quintet` command, as a library so that its parsers can be tested and fuzzed.
//!
//! API Boundary: this crate sees only the public surface of the `quintet` crate.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod bytes;
pub mod commands;
pub mod context;
pub mod entries;
pub mod export;
pub mod failure;
pub mod figures;
pub mod form;
pub mod formats;
mod hierarchy;
pub mod import;
pub mod inspect;
pub mod progress;
pub mod shell;

use std::{
    ffi::OsString,
    io::{self, BufWriter, Write},
};

use clap::{Parser as _, error::ErrorKind};

use arguments::Arguments;
use failure::{Failure, Outcome};

/// Runs the command with `words` (the program's name first) and returns its exit code. Output goes
/// to standard output, the message of a failure to standard error.
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let outcome = parse(words, &mut out).and_then(|arguments| match arguments {
        Some(arguments) => commands::run(arguments, &mut out),
        None => Ok(()),
    });
    // What was printed before a failure is shown before its message.
    let outcome = match (outcome, out.flush()) {
        (Ok(()), Err(error)) => Err(error.into()),
        (outcome, _) => outcome,
    };
    match outcome {
        Ok(()) => 0,
        Err(failure) => {
            complain(&failure);
            failure.code()
        }
    }
}

/// Prints the message of a failure, if it has one.
fn complain(failure: &Failure) {
    let text = failure.to_string();
    if !text.is_empty() {
        // Standard error may be closed; there is nowhere else to say it.
        let _ = writeln!(io::stderr(), "quintet: {text}");
    }
}

/// Reads the command line. `None`: help or the version was asked for and printed.
fn parse(
    words: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
) -> Outcome<Option<Arguments>> {
    let error = match Arguments::try_parse_from(words) {
        Ok(arguments) => return Ok(Some(arguments)),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            write!(out, "{}", error.render())?;
            Ok(None)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::Usage("no command given; `quintet --help` lists them".to_owned()))
        }
        _ => Err(Failure::Usage(one_line(&error.render().to_string()))),
    }
}

/// The first paragraph of clap's message as one line.
fn one_line(message: &str) -> String {
    let lines: Vec<_> =
        message.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let text = lines.join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    format!("{text}; `quintet --help` explains")
}
