//! Arguments that several commands have.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use quintet::Options;
use quintet_bench::args::LogLimits;

use super::values::{parse_duration, parse_size};

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

/// Limits of the log, for commands that have the database open for long.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LogArgs {
    /// Sync the log this long after the first unsynced write: 1ms to 1h (default: 100ms)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub sync_interval: Option<Duration>,
    /// Bound of the log that opening replays, in bytes or with K, M or G: at least 64K (default:
    /// 256M)
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub recovery_budget: Option<u64>,
    /// Checkpoint all tables with unpersisted updates this often: 10ms to 24h (default: 0s, as the
    /// engines and the bound of the log ask)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub checkpoint_interval: Option<Duration>,
}

impl LogArgs {
    /// Adds the limits that are given to the options of a database.
    pub fn apply(self, options: Options) -> Options {
        let Self { sync_interval, recovery_budget, checkpoint_interval } = self;
        LogLimits { sync_interval, recovery_budget, checkpoint_interval }.apply(options)
    }
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
