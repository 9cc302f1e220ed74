//! Arguments of the commands for a whole database, and of `inspect` and `completions`.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::shared::{LogArgs, TableSelection, WriteArgs};

/// `stats`
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// The database directory
    pub dir: PathBuf,
    /// The table (default: the whole database)
    pub table: Option<String>,
    /// Print one line for each table
    #[arg(long, conflicts_with = "table")]
    pub tables: bool,
    /// With --tables: the order of the tables. Numbers are sorted from high to low
    #[arg(long, value_enum, default_value_t, requires = "tables")]
    pub sort: TableOrder,
    /// With --tables: the tables to list
    #[command(flatten)]
    pub selection: TableSelection,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The order of tables in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TableOrder {
    /// By path
    #[default]
    Name,
    /// By the number of keys
    Keys,
    /// By the bytes of live keys and values
    LiveBytes,
    /// By the bytes in files that a compaction would release
    DeadBytes,
    /// By the bytes in files
    FileBytes,
    /// By the bytes in memory
    MemoryBytes,
}

/// `compact`
#[derive(Debug, Args)]
pub struct CompactArgs {
    /// The database directory
    pub dir: PathBuf,
    /// The table (default: every table)
    pub table: Option<String>,
}

/// `check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The database directory
    pub dir: PathBuf,
    /// Verify only what opening the database reads
    #[arg(long, conflicts_with = "deep")]
    pub quick: bool,
    /// Verify every byte (the default)
    #[arg(long)]
    pub deep: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `changes`
#[derive(Debug, Args)]
pub struct ChangesArgs {
    /// The database directory
    pub dir: PathBuf,
    /// A table, or a directory of tables (default: all tables); may be given several times
    #[arg(long = "table", value_name = "PATH")]
    pub tables: Vec<String>,
    /// Start with the first commit at or behind this position of the log (default: the first that
    /// the log still has)
    #[arg(long, value_name = "LSN")]
    pub from: Option<u64>,
    /// Print at most this number of changes
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print keys and values in hexadecimal
    #[arg(long, conflicts_with = "json")]
    pub hex: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// `inspect`
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The file
    pub file: PathBuf,
}

/// `shell`
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// The database directory
    pub dir: PathBuf,
    /// The table to start with (default: the only table, if there is exactly one)
    pub table: Option<String>,
    /// Input from a pipe: continue after a command that fails (the exit code is still 1)
    #[arg(long)]
    pub keep_going: bool,
    /// Refuse writes, so that other readers can open the database
    #[arg(long)]
    pub read_only: bool,
    /// When a write is durable
    #[command(flatten)]
    pub writing: WriteArgs,
    /// Limits of the log
    #[command(flatten)]
    pub log: LogArgs,
}

/// `completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, action = ArgAction::Set)]
    pub shell: clap_complete::Shell,
}
