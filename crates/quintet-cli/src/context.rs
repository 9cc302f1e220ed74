//! What all commands need: the settings of the whole run, and databases opened by them.

use std::{io::Write, path::Path};

use quintet::{Database, Durability, Error, Options};

use crate::{
    arguments::{self, DurabilityChoice},
    bytes::quote,
    failure::{Failure, Outcome},
};

/// What all commands need.
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

    /// Opens a database that must be there, for reading: other readers may have it open too.
    pub(crate) fn open_to_read(&self, dir: &Path) -> Outcome<Database> {
        must_be_database(dir)?;
        Ok(self.options().read_only(true).open(dir)?)
    }

    /// Opens a database that must be there.
    pub(crate) fn open_to_write(
        &self,
        dir: &Path,
        durability: DurabilityChoice,
    ) -> Outcome<Database> {
        must_be_database(dir)?;
        Ok(self.options().create(false).durability(durability.into()).open(dir)?)
    }

    /// Opens a database for the shell.
    pub(crate) fn open_for_shell(&self, command: &arguments::Shell) -> Outcome<Database> {
        if command.read_only {
            self.open_to_read(&command.dir)
        } else {
            self.open_to_write(&command.dir, command.writing.durability)
        }
    }
}

/// A mistyped path must not leave a new database behind.
fn must_be_database(dir: &Path) -> Outcome {
    if dir.join("catalog").is_file() {
        return Ok(());
    }
    let what = if dir.is_dir() { "is not a Quintet database" } else { "does not exist" };
    Err(Failure::Failed(format!(
        "{} {what}; `quintet create DIR TABLE --engine ENGINE` makes one",
        dir.display()
    )))
}

/// Text from the command line that must be a table's name.
pub(crate) fn table_name(word: Vec<u8>) -> Outcome<String> {
    String::from_utf8(word).map_err(|error| {
        let name = quote(error.as_bytes());
        Failure::from(Error::NoSuchTable { name })
    })
}
