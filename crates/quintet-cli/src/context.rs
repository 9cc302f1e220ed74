//! The settings of a run, and opening databases with them.

use std::{
    io::{self, Write},
    path::Path,
};

use quintet::{Database, Durability, EngineKind, Error, Options, Table, TableOptions};
use quintet_compat::engines::MERGE_OPERATOR;

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
        // The operators are functions of the application.
        let options = Options::new().allow_missing_merge_operators(true);
        match self.memory_budget {
            Some(bytes) => options.memory_budget(bytes),
            None => options,
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
        open_existing(self.options().durability(durability.into()), dir)
    }

    /// Opens the database of an import. With `--engine` a missing one is created.
    pub(crate) fn open_to_import(&self, command: &arguments::ImportArgs) -> Outcome<Database> {
        let options = self.options().durability(command.writing.durability.into());
        let mut options = command.log.apply(options);
        if command.store.is_given() {
            // A table with this operator can only be created with it. An import merges nothing.
            let refuse = |_: &[u8], _: Option<&[u8]>, _: &[u8]| Err("no merges".to_owned());
            options = options.merge_operator(MERGE_OPERATOR, refuse);
        }
        match command.engine {
            Some(_) => open_or_create(&options, &command.dir),
            None => open_existing(options, &command.dir),
        }
    }

    /// Opens a database for the shell.
    pub(crate) fn open_for_shell(&self, command: &arguments::ShellArgs) -> Outcome<Database> {
        if command.read_only {
            self.open_to_read(&command.dir)
        } else {
            let options = self.options().durability(command.writing.durability.into());
            open_existing(command.log.apply(options), &command.dir)
        }
    }
}

/// Opens an existing database for writing.
pub(crate) fn open_existing(options: Options, dir: &Path) -> Outcome<Database> {
    must_be_database(dir)?;
    Ok(options.create(false).open(dir)?)
}

/// Opens a database for writing, and creates it if it is missing.
pub(crate) fn open_or_create(options: &Options, dir: &Path) -> Outcome<Database> {
    must_not_be_file(dir)?;
    Ok(options.open(dir)?)
}

/// Returns whether `dir` holds a database.
pub(crate) fn is_database(dir: &Path) -> bool {
    dir.join("catalog").is_file()
}

/// Fails if `dir` is a file.
pub(crate) fn must_not_be_file(dir: &Path) -> Outcome {
    if dir.is_file() {
        let what = format!("{} is a file; a database is a directory", dir.display());
        return Err(Failure::Failed(what));
    }
    Ok(())
}

/// Fails if `dir` is not a database, so that a mistyped path does not create one.
fn must_be_database(dir: &Path) -> Outcome {
    must_not_be_file(dir)?;
    if is_database(dir) {
        return Ok(());
    }
    let what = if dir.is_dir() { "is not a Quintet database" } else { "does not exist" };
    Err(Failure::Failed(format!(
        "{} {what}; `quintet create DIR TABLE --engine ENGINE` creates one",
        dir.display()
    )))
}

/// Opens the table of a command.
pub(crate) fn open_table(database: &Database, dir: &Path, name: &str) -> Outcome<Table> {
    let opened = database.table(name);
    let table = opened.map_err(|error| explain_missing(error, database, dir, name))?;
    if !database.is_read_only() {
        warn_if_emulated(&table)?;
    }
    Ok(table)
}

/// Opens a table of an import. With `options`, a missing one is created, and one with another
/// engine is refused.
pub(crate) fn open_import_table(
    database: &Database,
    dir: &Path,
    name: &str,
    options: Option<TableOptions>,
) -> Outcome<Table> {
    let Some(options) = options else { return open_table(database, dir, name) };
    let engine = options.kind();
    let table = database.open_or_create_table(name, options)?;
    if table.kind() != engine {
        let what = format!("table {name} exists and uses the {} engine", table.kind());
        return Err(Failure::Failed(what));
    }
    warn_if_emulated(&table)?;
    Ok(table)
}

/// Prints one line on standard error if the table's persistent memory is emulated on an ordinary
/// file.
pub(crate) fn warn_if_emulated(table: &Table) -> Outcome {
    if table.kind() != EngineKind::Slm {
        return Ok(());
    }
    let stats = table.stats()?;
    if stats.details.contains(&("pmem_emulated", 1)) {
        // Standard error may be closed; there is no other place for the message.
        let _ = writeln!(
            io::stderr(),
            "quintet: table {}: persistent memory is emulated on an ordinary file; a power loss \
             while the table is open loses the table",
            stats.name
        );
    }
    Ok(())
}

/// Converts an error of a command for the table `name`. For a missing table, the message says how
/// to list tables, or that the name is a directory.
pub(crate) fn explain_missing(
    error: Error,
    database: &Database,
    dir: &Path,
    name: &str,
) -> Failure {
    if !matches!(error, Error::NoSuchTable { .. }) {
        return error.into();
    }
    let dir = dir.display();
    Failure::Failed(if database.children(name).is_ok() {
        format!("{name:?} is a directory of tables; `quintet list {dir} {name}` lists it")
    } else {
        format!("no table named {name:?}; `quintet tables {dir}` lists the tables")
    })
}

/// Converts a word of the command line to the name of a table.
pub(crate) fn table_name(word: Vec<u8>) -> Outcome<String> {
    String::from_utf8(word).map_err(|error| {
        let name = quote(error.as_bytes());
        Failure::from(Error::NoSuchTable { name })
    })
}
