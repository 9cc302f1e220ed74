//! Arguments that several commands have.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};

/// A table of a database.
#[derive(Debug, Args)]
pub struct TableTarget {
    /// The database directory
    pub dir: PathBuf,
    /// The table: a path of names, such as app/users
    pub table: String,
}

/// When a write is durable.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum DurabilityChoice {
    /// A write survives a crash of the process at once, and a power loss after the sync interval
    /// (100 ms)
    #[default]
    Buffered,
    /// A write survives a power loss before the command continues
    Sync,
}

/// Arguments of commands that write.
#[derive(Debug, Args)]
pub struct WriteArgs {
    /// When a write is durable
    #[arg(long, value_enum, default_value_t)]
    pub durability: DurabilityChoice,
}

/// The tables that a command lists.
#[derive(Debug, Args)]
pub struct TableSelection {
    /// Only tables whose path has this form: * stands for any text, ? for one character
    #[arg(long = "match", value_name = "PATTERN")]
    pub pattern: Option<String>,
    /// Only tables at or above this path. The next page starts at the last path of this page
    #[arg(long, value_name = "TABLE")]
    pub from: Option<String>,
    /// At most this many tables
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// The entries that a command reads.
#[derive(Debug, Args)]
pub struct Selection {
    /// Only keys that start with this text
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<OsString>,
    /// Only keys at or above this one (ordered engines)
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<OsString>,
    /// Only keys below this one (ordered engines)
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<OsString>,
}
