//! The command line.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use quintet::{EngineKind, TypeTag};

use crate::{
    form::{Typing, parse_type},
    formats::{Column, Format},
};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "quintet",
    version,
    about = "Create, query, import, check and inspect Quintet databases",
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 damage found on disk.",
    max_term_width = 100
)]
pub struct Arguments {
    /// Memory that the database may use, in bytes or with K, M or G (default: a quarter of the
    /// machine's)
    #[arg(long, global = true, value_name = "BYTES", value_parser = parse_size)]
    pub memory_budget: Option<u64>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a table, and the database if there is none
    Create(Create),
    /// List the tables
    Tables(Tables),
    /// List a directory of tables
    List(List),
    /// Show a directory of another database in this one
    Mount(Mount),
    /// Take a mount away; what it showed stays
    Unmount(Unmount),
    /// List the mounts: path, target, directory in it, how
    Mounts(Tables),
    /// Set, print or clear the options of tables that are created without --engine
    Defaults(Defaults),
    /// Drop a table with everything in it
    Drop(Drop),
    /// Rename a table, or a directory of tables
    Rename(Rename),
    /// Print the value of a key (exit code 1 if there is none)
    Get(Get),
    /// Set the value of a key
    Put(Put),
    /// Delete keys, or a range of keys
    Del(Del),
    /// Print entries, one a line: key, tab, value
    Scan(Scan),
    /// Print how many entries there are
    Count(Count),
    /// Read a file into a table
    Import(Import),
    /// Write a table to a file
    Export(Export),
    /// Print figures of a database or a table
    Stats(Stats),
    /// Verify everything on disk, changing nothing (exit code 3 if there is damage)
    Check(Check),
    /// Print a log segment, the catalog or a file of a table in its documented layout
    Inspect(Inspect),
    /// Take commands from the keyboard or a pipe
    Shell(Shell),
    /// Measure engines under standard workloads
    Bench(quintet_bench::cli::Args),
    /// Print a completion script for a shell
    Completions(Completions),
}

/// Which table.
#[derive(Debug, Args)]
pub struct Target {
    /// The database directory
    pub dir: PathBuf,
    /// The table: names and / such as app/users
    pub table: String,
}

/// When a write is durable.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum DurabilityChoice {
    /// Survives the death of the process at once, power loss after the sync interval (100 ms)
    #[default]
    Buffered,
    /// Survives power loss before the command goes on
    Sync,
}

/// When a write is durable.
#[derive(Debug, Args)]
pub struct Writing {
    /// When a write is durable
    #[arg(long, value_enum, default_value_t)]
    pub durability: DurabilityChoice,
}

/// `create`
#[derive(Debug, Args)]
pub struct Create {
    /// Where
    #[command(flatten)]
    pub target: Target,
    /// The index structure (default: what `defaults` says for the directory)
    #[arg(long, value_name = "ENGINE", value_parser = parse_engine)]
    pub engine: Option<EngineKind>,
    /// An engine option; may be repeated
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = parse_option)]
    pub options: Vec<(String, String)>,
    /// Types
    #[command(flatten)]
    pub typing: Typing,
}

/// `tables`
#[derive(Debug, Args)]
pub struct Tables {
    /// The database directory
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `list`
#[derive(Debug, Args)]
pub struct List {
    /// The database directory
    pub dir: PathBuf,
    /// The directory of tables (default: the top)
    #[arg(default_value = "", hide_default_value = true)]
    pub path: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `mount`
#[derive(Debug, Args)]
pub struct Mount {
    /// The database directory
    pub dir: PathBuf,
    /// Where its tables shall be found: names and / such as archive/eu
    pub path: String,
    /// The other database's directory
    pub target: PathBuf,
    /// Only this directory of it (default: all)
    #[arg(long, value_name = "PATH")]
    pub subtree: Option<String>,
    /// Take no writes through the mount
    #[arg(long)]
    pub read_only: bool,
}

/// `unmount`
#[derive(Debug, Args)]
pub struct Unmount {
    /// The database directory
    pub dir: PathBuf,
    /// The mount
    pub path: String,
}

/// `defaults`
#[derive(Debug, Args)]
pub struct Defaults {
    /// The database directory
    pub dir: PathBuf,
    /// The directory of tables (default: the top)
    #[arg(default_value = "", hide_default_value = true)]
    pub path: String,
    /// Set: the index structure
    #[arg(long, value_name = "ENGINE", value_parser = parse_engine, conflicts_with = "clear")]
    pub engine: Option<EngineKind>,
    /// Set: an engine option; may be repeated
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = parse_option)]
    pub options: Vec<(String, String)>,
    /// Types
    #[command(flatten)]
    pub typing: Typing,
    /// Take the directory's own defaults away
    #[arg(long)]
    pub clear: bool,
}

/// `drop`
#[derive(Debug, Args)]
pub struct Drop {
    /// Where
    #[command(flatten)]
    pub target: Target,
    /// Drop everything below this name as well
    #[arg(long)]
    pub tree: bool,
}

/// `rename`
#[derive(Debug, Args)]
pub struct Rename {
    /// Where
    #[command(flatten)]
    pub target: Target,
    /// The new name
    pub new_name: String,
}

/// `get`
#[derive(Debug, Args)]
pub struct Get {
    /// Where
    #[command(flatten)]
    pub target: Target,
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub key: OsString,
    /// The key is in hexadecimal, and so will be the value
    #[arg(long, conflicts_with_all = ["raw", "json"])]
    pub hex: bool,
    /// Types
    #[command(flatten)]
    pub typing: Typing,
    /// Write exactly the bytes of the value: no escapes, no line end
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `put`
#[derive(Debug, Args)]
pub struct Put {
    /// Where
    #[command(flatten)]
    pub target: Target,
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub key: OsString,
    /// The value; may be empty
    #[arg(
        required_unless_present = "value_file",
        conflicts_with = "value_file",
        allow_negative_numbers = true
    )]
    pub value: Option<OsString>,
    /// Take the value from a file, byte for byte (- for standard input)
    #[arg(long, value_name = "FILE")]
    pub value_file: Option<PathBuf>,
    /// Key and value are in hexadecimal
    #[arg(long)]
    pub hex: bool,
    /// Types
    #[command(flatten)]
    pub typing: Typing,
    /// Let the entry expire after this time: 500ms, 30s, 5m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub ttl: Option<Duration>,
    /// Note what the value is: u32, u64, i64, f32, f64, string or blob
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    pub type_tag: Option<TypeTag>,
    /// Only if the key has no value yet
    #[arg(long, conflicts_with = "if_present")]
    pub if_absent: bool,
    /// Only if the key has a value
    #[arg(long)]
    pub if_present: bool,
    /// When it is durable
    #[command(flatten)]
    pub writing: Writing,
}

/// `del`
#[derive(Debug, Args)]
pub struct Del {
    /// Where
    #[command(flatten)]
    pub target: Target,
    /// The keys
    #[arg(
        required_unless_present_any = ["from", "to"],
        conflicts_with_all = ["from", "to"],
        allow_negative_numbers = true
    )]
    pub keys: Vec<OsString>,
    /// Delete the range from this key on (ordered engines)
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<OsString>,
    /// Delete the range up to, without, this key (ordered engines)
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<OsString>,
    /// Keys are in hexadecimal
    #[arg(long)]
    pub hex: bool,
    /// Types
    #[command(flatten)]
    pub typing: Typing,
    /// When it is durable
    #[command(flatten)]
    pub writing: Writing,
}

/// Which entries.
#[derive(Debug, Args)]
pub struct Selection {
    /// Only keys that start with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<OsString>,
    /// From this key on (ordered engines)
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<OsString>,
    /// Up to, without, this key (ordered engines)
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<OsString>,
}

/// `scan`
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Args)]
pub struct Scan {
    /// Where
    #[command(flatten)]
    pub target: Target,
    /// Which
    #[command(flatten)]
    pub selection: Selection,
    /// In reverse key order (ordered engines)
    #[arg(long)]
    pub reverse: bool,
    /// At most this many entries
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print keys without values
    #[arg(long)]
    pub keys_only: bool,
    /// Keys are in hexadecimal, values too
    #[arg(long, conflicts_with = "json")]
    pub hex: bool,
    /// Types
    #[command(flatten)]
    pub typing: Typing,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// `count`
#[derive(Debug, Args)]
pub struct Count {
    /// Where
    #[command(flatten)]
    pub target: Target,
    /// Which
    #[command(flatten)]
    pub selection: Selection,
    /// Keys are in hexadecimal
    #[arg(long)]
    pub hex: bool,
    /// Types
    #[command(flatten)]
    pub typing: Typing,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const IMPORT_HELP: &str = "\
CSV and TSV: with --value the key column's text becomes the key and the value column's text the \
value, byte for byte. Without it the value is the whole row as a JSON object, key column included, \
in the file's column order; export turns such rows back into the same columns.

JSON lines: without --key each line is {\"key\": .., \"value\": ..} (key_hex, value_hex for bytes \
that are not UTF-8), as export writes it. With --key NAME each line is a record, kept as it is, \
whose field NAME is the key.

Dump: as mdb_dump writes it, with or without -p.

Rows are written in atomic batches of --batch rows (fewer where they are large). At an error, or \
when the command is interrupted or killed, the table holds whole batches: every batch that was \
acknowledged, and no part of another. A key that comes again replaces the earlier value; how many \
did is reported.";

/// `import`
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Args)]
#[command(after_long_help = IMPORT_HELP, after_help = "See --help for how rows become values.")]
pub struct Import {
    /// Where
    #[command(flatten)]
    pub target: Target,
    /// The file (- for standard input)
    pub file: PathBuf,
    /// The format (default: from the file's extension: csv, tsv, jsonl, dump)
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The column that is the key: a name, or a number from 1 (CSV and TSV default: 1)
    #[arg(long, value_name = "COLUMN", value_parser = parse_column)]
    pub key: Option<Column>,
    /// The column that is the value (default: the whole row)
    #[arg(long, value_name = "COLUMN", value_parser = parse_column)]
    pub value: Option<Column>,
    /// CSV and TSV: the first line is data; columns are named c1, c2, ...
    #[arg(long)]
    pub no_header: bool,
    /// CSV and TSV: a double quote is a character like any other
    #[arg(long)]
    pub no_quotes: bool,
    /// Dump: which database of a file that holds several
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,
    /// Create the table with this engine if it does not exist, and the database too
    #[arg(long, value_name = "ENGINE", value_parser = parse_engine)]
    pub engine: Option<EngineKind>,
    /// Types
    #[command(flatten)]
    pub typing: Typing,
    /// Rows in one atomic batch
    #[arg(long, value_name = "ROWS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub batch: u64,
    /// The rows are in ascending order of their keys, all above those of the table: load them as
    /// one sorted run, which is faster on btree and takes effect whole or not at all there
    #[arg(long, conflicts_with_all = ["batch", "acknowledge"])]
    pub sorted: bool,
    /// Print a line `acknowledged ROWS` after each batch
    #[arg(long)]
    pub acknowledge: bool,
    /// Print the result as JSON
    #[arg(long, conflicts_with = "acknowledge")]
    pub json: bool,
    /// When a batch is durable
    #[command(flatten)]
    pub writing: Writing,
}

const EXPORT_HELP: &str = "\
CSV, TSV and JSON lines hold either pairs (key and value) or rows (values that are JSON objects, \
as import makes them). Without --pairs, --rows or --columns the first entry decides: rows if its \
value is a JSON object with the key in one of its fields, else pairs. Exporting rows stops with \
an error at an entry that the file could not hold; --columns writes the named columns whatever \
the entries have.

Pairs hold any bytes in every format. Expiry times and type tags are not exported. The order of \
the rows is that of the engine.

FILE is written beside itself as FILE.partial and renamed when it is complete.";

/// `export`
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Args)]
#[command(after_long_help = EXPORT_HELP, after_help = "See --help for how values become rows.")]
pub struct Export {
    /// Where
    #[command(flatten)]
    pub target: Target,
    /// The file (default: -, standard output)
    #[arg(default_value = "-")]
    pub file: PathBuf,
    /// The format (default: from the file's extension; jsonl on standard output)
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Write keys and values
    #[arg(long, conflicts_with_all = ["rows", "columns"])]
    pub pairs: bool,
    /// Write the columns of the first entry's value
    #[arg(long, conflicts_with = "columns")]
    pub rows: bool,
    /// Write these columns, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// CSV and TSV: no line of column names
    #[arg(long)]
    pub no_header: bool,
    /// Types
    #[command(flatten)]
    pub typing: Typing,
    /// Dump: printable text instead of hexadecimal, as with `-p` of `mdb_dump`
    #[arg(long)]
    pub print: bool,
}

/// `stats`
#[derive(Debug, Args)]
pub struct Stats {
    /// The database directory
    pub dir: PathBuf,
    /// The table (default: the whole database)
    pub table: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `check`
#[derive(Debug, Args)]
pub struct Check {
    /// The database directory
    pub dir: PathBuf,
    /// Verify what opening the database reads
    #[arg(long, conflicts_with = "deep")]
    pub quick: bool,
    /// Verify every byte (the default)
    #[arg(long)]
    pub deep: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `inspect`
#[derive(Debug, Args)]
pub struct Inspect {
    /// The file
    pub file: PathBuf,
}

/// `shell`
#[derive(Debug, Args)]
pub struct Shell {
    /// The database directory
    pub dir: PathBuf,
    /// The table to start with (default: the only one, if there is one)
    pub table: Option<String>,
    /// On a pipe: go on after a command that fails (the exit code is still 1)
    #[arg(long)]
    pub keep_going: bool,
    /// Refuse writes, and let other readers in
    #[arg(long)]
    pub read_only: bool,
    /// When a write is durable
    #[command(flatten)]
    pub writing: Writing,
}

/// `completions`
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum, action = ArgAction::Set)]
    pub shell: clap_complete::Shell,
}

fn parse_engine(text: &str) -> Result<EngineKind, String> {
    text.parse::<EngineKind>().map_err(|error| error.to_string())
}

fn parse_option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("an option is NAME=VALUE".to_owned()),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "clap's signature for parsers")]
fn parse_column(text: &str) -> Result<Column, String> {
    Ok(Column::from(text))
}

/// A number of bytes, with K, M, G or T (and an i or a B after it, if liked) for powers of 1024.
fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size such as 1048576, 64M or 2G");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// A time with its unit: ms, s, m, h or d.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 500ms, 30s, 5m, 2h or 7d");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn sizes_and_times_are_read_with_their_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_hours(7 * 24)));
        for wrong in ["", "M", "1.5G", "-1", "5x", "99999999999999999999", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "5", "s", "-1s", "1y", "99999999999999999d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
