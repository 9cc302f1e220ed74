//! Arguments of `import` and `export`.

use std::path::PathBuf;

use clap::Args;
use quintet::EngineKind;

use super::{
    shared::{LogArgs, WriteArgs},
    values::{parse_column, parse_engine},
};
use crate::{
    form::Typing,
    formats::{Column, Format},
};

const IMPORT_USAGE: &str = "\
quintet import [OPTIONS] <DIR> <TABLE> <FILE>
       quintet import [OPTIONS] <DIR> [TABLE] --rocksdb <DIR>
       quintet import [OPTIONS] <DIR> [TABLE] --leveldb <DIR>
       quintet import [--json] [--namespace <NAME>] <DIR> --rdb <FILE>";

const EXPORT_USAGE: &str = "\
quintet export [OPTIONS] <DIR> <TABLE> [FILE]
       quintet export [--json] [--namespace <NAME>] <DIR> --rdb <FILE>";

const IMPORT_HELP: &str = "\
CSV and TSV: with --value, the text of the key column is the key and the text of the value column \
is the value, byte for byte. Without --value, the value is the whole row as a JSON object. The \
object has all columns in the order of the file, the key column included, and export turns it \
back into the same columns.

JSON lines: without --key, each line is {\"key\": .., \"value\": ..}, as export writes it. Bytes \
that are not UTF-8 are in key_hex or value_hex. With --key NAME, each line is a record; its field \
NAME is the key, and the unchanged line is the value.

Dump: a file that mdb_dump wrote, with or without -p.

Rows are written in atomic batches of --batch rows, or fewer if the rows are large. If the import \
fails or is interrupted or killed, the table has all acknowledged batches and no partial batch. If \
a key occurs again, its new value replaces the earlier one; import prints the number of replaced \
values.

RocksDB and LevelDB: --rocksdb DIR and --leveldb DIR read a database through the library of that \
store, which must be installed. Column family NAME is imported into table cf/NAME, where a program \
with the compatible library finds it. An empty key is stored as one zero byte there, and a key of \
zeros only has one zero more. With TABLE, one column family is imported into that table, with its \
keys unchanged. Keys and values are bytes, whatever the types of the table are.

The database is locked during the import and is not changed. RocksDB opens it read-only. LevelDB \
cannot; it opens a directory beside DIR with hard links to the tables and copies of the other \
files, which is removed afterwards.

Redis: --rdb FILE reads a dump (dump.rdb) of Redis up to 7.4 into DIR, which `quintet serve` uses. \
The directory is created if it is missing, and must have no keys. With --namespace NAME the keys \
go into that namespace, which is made if it is missing and must have no keys. The import takes \
effect as a whole: until its end `quintet serve` refuses the directory, and the next import begins \
anew. \
Functions and data of modules are skipped, and the note at the end counts them.";

/// `import`
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Args)]
#[command(
    after_long_help = IMPORT_HELP,
    after_help = "See --help for how rows become values.",
    override_usage = IMPORT_USAGE
)]
pub struct ImportArgs {
    /// The database directory
    pub dir: PathBuf,
    /// The table: a path of names, such as app/users
    #[arg(required_unless_present_any = ["rocksdb", "leveldb", "rdb"])]
    pub table: Option<String>,
    /// The file (- for standard input)
    #[arg(required_unless_present_any = ["rocksdb", "leveldb", "rdb"])]
    pub file: Option<PathBuf>,
    /// A database of RocksDB or LevelDB, instead of a file
    #[command(flatten)]
    pub store: StoreArgs,
    /// Import the keys of this dump of Redis (dump.rdb; - for standard input)
    #[arg(long, value_name = "FILE", conflicts_with_all = NOT_OF_REDIS)]
    pub rdb: Option<PathBuf>,
    /// Dump of Redis: import into this namespace of `quintet serve` (default: default)
    #[arg(long, value_name = "NAME", requires = "rdb", conflicts_with_all = NOT_OF_REDIS)]
    pub namespace: Option<String>,
    /// The format (default: from the file's extension: csv, tsv, jsonl, dump)
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The key column: a name, or a number from 1 (CSV and TSV default: 1)
    #[arg(long, value_name = "COLUMN", value_parser = parse_column)]
    pub key: Option<Column>,
    /// The value column (default: the whole row)
    #[arg(long, value_name = "COLUMN", value_parser = parse_column)]
    pub value: Option<Column>,
    /// CSV and TSV: the first line is data; columns are named c1, c2, ...
    #[arg(long)]
    pub no_header: bool,
    /// CSV and TSV: a double quote is an ordinary character
    #[arg(long)]
    pub no_quotes: bool,
    /// Dump: the database to read from a file with several databases
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,
    /// Create the table with this engine if it does not exist, and also the database
    #[arg(long, value_name = "ENGINE", value_parser = parse_engine)]
    pub engine: Option<EngineKind>,
    /// Types of keys and values
    #[command(flatten)]
    pub typing: Typing,
    /// Rows in one atomic batch
    #[arg(long, value_name = "ROWS", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub batch: u64,
    /// Load the rows as one sorted run: keys must be ascending and above those of the table. This
    /// is faster on btree, and atomic there
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
    pub writing: WriteArgs,
    /// Limits of the log
    #[command(flatten)]
    pub log: LogArgs,
}

/// Arguments of files, which do not apply to a database.
const OF_FILES: [&str; 7] =
    ["file", "format", "key", "value", "no_header", "no_quotes", "database"];

/// Arguments of other imports than that of a dump of Redis.
const NOT_OF_REDIS: [&str; 19] = [
    "table",
    "file",
    "rocksdb",
    "leveldb",
    "library",
    "family",
    "format",
    "key",
    "value",
    "no_header",
    "no_quotes",
    "database",
    "engine",
    "batch",
    "sorted",
    "acknowledge",
    "sync_interval",
    "recovery_budget",
    "durability",
];

/// The database of `import --rocksdb` or `--leveldb`.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// Import the RocksDB database in this directory: each column family into a table
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_FILES)]
    pub rocksdb: Option<PathBuf>,
    /// Import the LevelDB database in this directory
    #[arg(long, value_name = "DIR", conflicts_with = "rocksdb", conflicts_with_all = OF_FILES)]
    pub leveldb: Option<PathBuf>,
    /// RocksDB and LevelDB: the file of the store's library (default: the installed one)
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// RocksDB: import only this column family; may be repeated
    #[arg(long, value_name = "NAME")]
    pub family: Vec<String>,
}

impl StoreArgs {
    /// Returns whether a database is imported, not a file.
    pub fn is_given(&self) -> bool {
        self.rocksdb.is_some() || self.leveldb.is_some()
    }
}

/// Arguments of exports of a table.
const OF_TABLES: [&str; 8] =
    ["table", "file", "format", "pairs", "rows", "columns", "no_header", "print"];

const EXPORT_HELP: &str = "\
CSV, TSV and JSON lines contain either pairs (key and value) or rows. A row is a value that is a \
JSON object, as import makes it. Without --pairs, --rows or --columns, the first entry decides: \
the file has rows if its value is a JSON object with the key in one of its fields, and pairs \
otherwise. Exporting rows fails at the first entry that the file cannot represent; --columns \
writes the named columns of every entry and omits its other fields.

Pairs represent any bytes in every format. Expiry times and type tags are not exported. The rows \
are in the order of the engine.

Export writes to FILE.partial and renames it to FILE when it is complete.

Redis: --rdb FILE writes all keys of a directory that `quintet serve` uses, with their expiries, \
as a dump (dump.rdb) that Redis loads from version 7.0 on. The server must not run.";

/// `export`
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Args)]
#[command(
    after_long_help = EXPORT_HELP,
    after_help = "See --help for how values become rows.",
    override_usage = EXPORT_USAGE
)]
pub struct ExportArgs {
    /// The database directory
    pub dir: PathBuf,
    /// The table: a path of names, such as app/users
    #[arg(required_unless_present = "rdb")]
    pub table: Option<String>,
    /// The file (default: -, standard output)
    pub file: Option<PathBuf>,
    /// Export the keys of `quintet serve` as this dump of Redis (- for standard output)
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_TABLES)]
    pub rdb: Option<PathBuf>,
    /// Dump of Redis: export this namespace of `quintet serve` (default: default)
    // Beside a table, `requires` alone would ignore these: the table conflicts with `--rdb`.
    #[arg(long, value_name = "NAME", requires = "rdb", conflicts_with_all = OF_TABLES)]
    pub namespace: Option<String>,
    /// Dump of Redis: print the result as JSON
    #[arg(long, requires = "rdb", conflicts_with_all = OF_TABLES)]
    pub json: bool,
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
    /// CSV and TSV: write no line of column names
    #[arg(long)]
    pub no_header: bool,
    /// Types of keys and values
    #[command(flatten)]
    pub typing: Typing,
    /// Dump: write printable text instead of hexadecimal, as `mdb_dump -p` does
    #[arg(long)]
    pub print: bool,
}
