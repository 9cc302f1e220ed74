//! The command line: clap definitions, by noun.
//!
//! [`Command`] (in `command`) lists the commands. The arguments of each are in `tables`, `entries`,
//! `transfer` or `database`; `shared` has those of several commands, and `values` parses their
//! values. Doc comments of fields and variants are the help texts.

mod command;
mod database;
mod entries;
mod shared;
mod tables;
mod transfer;
mod values;

pub use command::{Arguments, Command};
pub use database::{
    ChangesArgs, CheckArgs, CompactArgs, CompletionsArgs, InspectArgs, ShellArgs, StatsArgs,
    TableOrder,
};
pub use entries::{CountArgs, DelArgs, GetArgs, PutArgs, ScanArgs};
pub use shared::{DurabilityChoice, LogArgs, Selection, TableSelection, TableTarget, WriteArgs};
pub use tables::{
    CreateArgs, DefaultsArgs, DropArgs, ListArgs, MountArgs, MountsArgs, OptionsArgs, RenameArgs,
    TablesArgs, UnmountArgs,
};
pub use transfer::{ExportArgs, ImportArgs, StoreArgs};
