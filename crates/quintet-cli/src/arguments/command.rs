//! The command line and the list of commands.

use clap::{Parser, Subcommand};

use super::{
    database::{
        ChangesArgs, CheckArgs, CompactArgs, CompletionsArgs, InspectArgs, ShellArgs, StatsArgs,
    },
    entries::{CountArgs, DelArgs, GetArgs, PutArgs, ScanArgs},
    tables::{
        CreateArgs, DefaultsArgs, DropArgs, ListArgs, MountArgs, MountsArgs, OptionsArgs,
        RenameArgs, TablesArgs, UnmountArgs,
    },
    transfer::{ExportArgs, ImportArgs},
    values::parse_size,
};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "quintet",
    version,
    about = "Create, query, import, check and inspect Quintet databases",
    after_help = "Exit codes: 0 success, 1 failure, 2 wrong usage, 3 damage found on disk.",
    max_term_width = 100
)]
pub struct Arguments {
    /// Memory budget of the database, in bytes or with K, M or G (default: a quarter of the
    /// memory that the process may use)
    #[arg(long, global = true, value_name = "BYTES", value_parser = parse_size)]
    pub memory_budget: Option<u64>,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a table, and the database if it does not exist
    Create(CreateArgs),
    /// List the options of an engine, or of all engines
    Options(OptionsArgs),
    /// List the tables
    Tables(TablesArgs),
    /// List a directory of tables
    List(ListArgs),
    /// Mount a directory of another database in this one
    Mount(MountArgs),
    /// Remove a mount; the mounted tables stay
    Unmount(UnmountArgs),
    /// List the mounts: path, target, directory in the target, access
    Mounts(MountsArgs),
    /// Set, print or clear the options of tables that are created without --engine
    Defaults(DefaultsArgs),
    /// Drop a table and its entries
    Drop(DropArgs),
    /// Rename a table or a directory of tables
    Rename(RenameArgs),
    /// Print the value of a key (exit code 1 if it has none)
    Get(GetArgs),
    /// Set the value of a key
    Put(PutArgs),
    /// Delete keys, or a range of keys
    Del(DelArgs),
    /// Print entries, one per line: key, tab, value
    Scan(ScanArgs),
    /// Print the number of entries
    Count(CountArgs),
    /// Read a file into a table, or a RocksDB or LevelDB database into tables
    Import(ImportArgs),
    /// Write a table to a file
    Export(ExportArgs),
    /// Print statistics of a database or a table
    Stats(StatsArgs),
    /// Release the disk space of deleted, replaced and expired entries
    Compact(CompactArgs),
    /// Verify all files and change nothing (exit code 3 if there is damage)
    Check(CheckArgs),
    /// Print what was written, commit by commit, as far as the log still has it
    Changes(ChangesArgs),
    /// Print a log segment, the catalog or a file of a table in its documented layout
    Inspect(InspectArgs),
    /// Run commands from the keyboard or a pipe
    Shell(ShellArgs),
    /// Serve a database to clients of Redis
    #[cfg(feature = "serve")]
    Serve(quintet_server::ServeArgs),
    /// Measure engines under standard workloads
    Bench(quintet_bench::cli::Args),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
