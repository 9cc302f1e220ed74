//! The settings of a run, and opening databases with them.

use std::{io::Write, path::Path};

use quintet::{Database, Durability, Error, Options};

use crate::{
    arguments::{self, DurabilityChoice},
    bytes::quote,
    failure::{Failure, Outcome},
};

/// The settings and the output of a run.
pub struct Context<'a> {
    /// `--memory-budget`
    pub memory_budget: Option<u64>,
    /// Standard output.
    pub out: &'a mut dyn Write,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("memory_budget", &self.memory_budget)
            .finish_non_exhaustive()
    }
}

impl From<DurabilityChoice> for Durability {
    fn from(choice: DurabilityChoice) -> Self {
        match choice {
            DurabilityChoice::Buffered => Self::Buffered,
            DurabilityChoice::Sync => Self::Sync,
        }
    }
}

impl Context<'_> {
    pub(crate) fn options(&self) -> Options {
        match self.memory_budget {
            Some(bytes) => Options::new().memory_budget(bytes),
            None => Options::new(),
        }
    }

    /// Opens an existing database for reading. Other readers may have it open too.
    pub(crate) fn open_to_read(&self, dir: &Path) -> Outcome<Database> {
        must_be_database(dir)?;
        Ok(self.options().read_only(true).open(dir)?)
    }

    /// Opens an existing database for writing.
    pub(crate) fn open_to_write(
        &self,
        dir: &Path,
        durability: DurabilityChoice,
    ) -> Outcome<Database> {
        must_be_database(dir)?;
        Ok(self.options().create(false).durability(durability.into()).open(dir)?)
    }

    /// Opens a database for the shell.
    pub(crate) fn open_for_shell(&self, command: &arguments::ShellArgs) -> Outcome<Database> {
        if command.read_only {
            self.open_to_read(&command.dir)
        } else {
            self.open_to_write(&command.dir, command.writing.durability)
        }
    }
}

/// Fails if `dir` is not a database, so that a mistyped path does not create one.
fn must_be_database(dir: &Path) -> Outcome {
    if dir.join("catalog").is_file() {
        return Ok(());
    }
    let what = if dir.is_dir() { "is not a Quintet database" } else { "does not exist" };
    Err(Failure::Failed(format!(
        "{} {what}; `quintet create DIR TABLE --engine ENGINE` creates one",
        dir.display()
    )))
}

/// Converts a word of the command line to the name of a table.
pub(crate) fn table_name(word: Vec<u8>) -> Outcome<String> {
    String::from_utf8(word).map_err(|error| {
        let name = quote(error.as_bytes());
        Failure::from(Error::NoSuchTable { name })
    })
}
