//! Arguments of the commands that read and write entries.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::Args;
use quintet::TypeTag;

use super::{
    shared::{Selection, TableTarget, WriteArgs},
    values::parse_duration,
};
use crate::form::{Typing, parse_type};

/// `get`
#[derive(Debug, Args)]
pub struct GetArgs {
    /// The table
    #[command(flatten)]
    pub target: TableTarget,
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub key: OsString,
    /// Read the key and print the value in hexadecimal
    #[arg(long, conflicts_with_all = ["raw", "json"])]
    pub hex: bool,
    /// Types of keys and values
    #[command(flatten)]
    pub typing: Typing,
    /// Print exactly the bytes of the value, without escapes or a line end
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `put`
#[derive(Debug, Args)]
pub struct PutArgs {
    /// The table
    #[command(flatten)]
    pub target: TableTarget,
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
    /// Read the bytes of the value from a file (- for standard input)
    #[arg(long, value_name = "FILE")]
    pub value_file: Option<PathBuf>,
    /// Key and value are in hexadecimal
    #[arg(long)]
    pub hex: bool,
    /// Types of keys and values
    #[command(flatten)]
    pub typing: Typing,
    /// Let the entry expire after this time: 500ms, 30s, 5m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub ttl: Option<Duration>,
    /// Store a type tag with the value: u32, u64, i64, f32, f64, string or blob
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    pub type_tag: Option<TypeTag>,
    /// Write only if the key has no value yet
    #[arg(long, conflicts_with = "if_present")]
    pub if_absent: bool,
    /// Write only if the key has a value
    #[arg(long)]
    pub if_present: bool,
    /// When the write is durable
    #[command(flatten)]
    pub writing: WriteArgs,
}

/// `del`
#[derive(Debug, Args)]
pub struct DelArgs {
    /// The table
    #[command(flatten)]
    pub target: TableTarget,
    /// The keys
    #[arg(
        required_unless_present_any = ["from", "to"],
        conflicts_with_all = ["from", "to"],
        allow_negative_numbers = true
    )]
    pub keys: Vec<OsString>,
    /// Delete all keys at or above this one (ordered engines)
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub from: Option<OsString>,
    /// Delete all keys below this one (ordered engines)
    #[arg(long, value_name = "KEY", allow_negative_numbers = true)]
    pub to: Option<OsString>,
    /// Keys are in hexadecimal
    #[arg(long)]
    pub hex: bool,
    /// Types of keys and values
    #[command(flatten)]
    pub typing: Typing,
    /// When the deletion is durable
    #[command(flatten)]
    pub writing: WriteArgs,
}

/// `scan`
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Args)]
pub struct ScanArgs {
    /// The table
    #[command(flatten)]
    pub target: TableTarget,
    /// The entries
    #[command(flatten)]
    pub selection: Selection,
    /// Print in descending key order (ordered engines)
    #[arg(long)]
    pub reverse: bool,
    /// Print at most this number of entries
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Print keys without values
    #[arg(long)]
    pub keys_only: bool,
    /// Keys and values are in hexadecimal
    #[arg(long, conflicts_with = "json")]
    pub hex: bool,
    /// Types of keys and values
    #[command(flatten)]
    pub typing: Typing,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// `count`
#[derive(Debug, Args)]
pub struct CountArgs {
    /// The table
    #[command(flatten)]
    pub target: TableTarget,
    /// The entries
    #[command(flatten)]
    pub selection: Selection,
    /// Keys are in hexadecimal
    #[arg(long)]
    pub hex: bool,
    /// Types of keys and values
    #[command(flatten)]
    pub typing: Typing,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
