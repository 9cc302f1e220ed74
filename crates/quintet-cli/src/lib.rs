//! The `quintet` command. It is a library so that tests and fuzz targets can call its parsers.
//!
//! API Boundary: this crate sees only the public surface of the `quintet` crate.
#![deny(unsafe_code)]

pub mod arguments;
pub mod bytes;
mod changes;
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
mod listing;
pub mod options;
pub mod progress;
mod redis_dump;
#[cfg(feature = "serve")]
mod serve;
pub mod shell;
mod store_import;

use std::{
    ffi::OsString,
    io::{self, BufWriter, Write},
};

use clap::{CommandFactory as _, Parser as _, error::ErrorKind};

use arguments::Arguments;
use failure::{Failure, Outcome};

/// Runs the command with `words` (the program's name first) and returns its exit code. Writes
/// output to standard output and the message of a failure to standard error.
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let outcome = parse(words, &mut out).and_then(|arguments| match arguments {
        Some(arguments) => commands::run(arguments, &mut out),
        None => Ok(()),
    });
    // Output that was printed before a failure appears before its message.
    let outcome = match (outcome, out.flush()) {
        (Ok(()), Err(error)) => Err(error.into()),
        (outcome, _) => outcome,
    };
    match outcome {
        Ok(()) => 0,
        Err(failure) => {
            print_failure(&failure);
            failure.code()
        }
    }
}

/// Prints the message of a failure, if it has one.
fn print_failure(failure: &Failure) {
    let text = failure.to_string();
    if !text.is_empty() {
        // Standard error may be closed; there is no other place for the message.
        let _ = writeln!(io::stderr(), "quintet: {text}");
    }
}

/// Parses the command line. Returns `None` after printing help or the version.
fn parse(
    words: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
) -> Outcome<Option<Arguments>> {
    let words: Vec<OsString> = words.into_iter().collect();
    let error = match Arguments::try_parse_from(&words) {
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
        kind => {
            let command = command_of(&words).unwrap_or_default();
            let mut text = one_line(&error.render().to_string());
            if kind == ErrorKind::MissingRequiredArgument {
                text.push_str(missing_arguments(&command, &text));
            }
            let page = if command.is_empty() { command } else { format!(" {command}") };
            Err(Failure::Usage(format!("{text}; `quintet{page} --help` explains")))
        }
    }
}

/// Returns the name of the command that `words` ask for.
fn command_of(words: &[OsString]) -> Option<String> {
    let definition = Arguments::command();
    let mut named = words.iter().skip(1).filter_map(|word| definition.find_subcommand(word));
    named.next().map(|command| command.get_name().to_owned())
}

/// Returns what a command with alternative arguments needs, to follow clap's message. Clap names
/// one alternative alone.
fn missing_arguments(command: &str, message: &str) -> &'static str {
    match command {
        "put" if message.contains("<VALUE>") => "; give a VALUE or --value-file",
        "import" if message.contains("<FILE>") => "; or give --rocksdb, --leveldb or --rdb",
        "del" if message.contains("KEYS") => "; give KEYS, or --from and --to",
        _ => "",
    }
}

/// Returns the first paragraph of clap's message as one line.
fn one_line(message: &str) -> String {
    let lines: Vec<_> =
        message.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let text = lines.join(" ");
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    text.to_owned()
}
