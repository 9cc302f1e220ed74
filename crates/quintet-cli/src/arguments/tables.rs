//! Arguments of the commands that create, list, rename and drop tables, and of those for
//! directories and mounts.

use std::path::PathBuf;

use clap::Args;
use quintet::EngineKind;

use super::{
    shared::{TableSelection, TableTarget},
    values::{parse_engine, parse_option},
};
use crate::{form::Typing, options};

/// `create`
#[derive(Debug, Args)]
#[command(after_long_help = options::summary(), after_help = "See --help for engine options.")]
pub struct CreateArgs {
    /// The table
    #[command(flatten)]
    pub target: TableTarget,
    /// The engine (default: the one that `defaults` sets for the table's directory)
    #[arg(long, value_name = "ENGINE", value_parser = parse_engine)]
    pub engine: Option<EngineKind>,
    /// An option of the engine; may be repeated
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = parse_option)]
    pub options: Vec<(String, String)>,
    /// Types of keys and values
    #[command(flatten)]
    pub typing: Typing,
}

/// `options`
#[derive(Debug, Args)]
pub struct OptionsArgs {
    /// The engine (default: all engines)
    #[arg(value_name = "ENGINE", value_parser = parse_engine)]
    pub engine: Option<EngineKind>,
}

/// `tables`
#[derive(Debug, Args)]
pub struct TablesArgs {
    /// The database directory
    pub dir: PathBuf,
    /// The tables to list
    #[command(flatten)]
    pub selection: TableSelection,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `mounts`
#[derive(Debug, Args)]
pub struct MountsArgs {
    /// The database directory
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The database directory
    pub dir: PathBuf,
    /// The directory of tables (default: the root)
    #[arg(default_value = "", hide_default_value = true)]
    pub path: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `mount`
#[derive(Debug, Args)]
pub struct MountArgs {
    /// The database directory
    pub dir: PathBuf,
    /// The path of the mount: names, such as archive/eu
    pub path: String,
    /// The directory of the other database
    pub target: PathBuf,
    /// Mount only this directory of the other database (default: all of it)
    #[arg(long, value_name = "PATH")]
    pub subtree: Option<String>,
    /// Refuse writes through the mount
    #[arg(long)]
    pub read_only: bool,
}

/// `unmount`
#[derive(Debug, Args)]
pub struct UnmountArgs {
    /// The database directory
    pub dir: PathBuf,
    /// The path of the mount
    pub path: String,
}

/// `defaults`
#[derive(Debug, Args)]
pub struct DefaultsArgs {
    /// The database directory
    pub dir: PathBuf,
    /// The directory of tables (default: the root)
    #[arg(default_value = "", hide_default_value = true)]
    pub path: String,
    /// Set the default engine
    #[arg(long, value_name = "ENGINE", value_parser = parse_engine, conflicts_with = "clear")]
    pub engine: Option<EngineKind>,
    /// Set an option of the default engine; may be repeated
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = parse_option)]
    pub options: Vec<(String, String)>,
    /// Types of keys and values
    #[command(flatten)]
    pub typing: Typing,
    /// Remove the defaults of this directory; those of its parent then apply
    #[arg(long)]
    pub clear: bool,
}

/// `drop`
#[derive(Debug, Args)]
pub struct DropArgs {
    /// The table
    #[command(flatten)]
    pub target: TableTarget,
    /// Also drop all tables below this path
    #[arg(long)]
    pub tree: bool,
}

/// `rename`
#[derive(Debug, Args)]
pub struct RenameArgs {
    /// The table or directory
    #[command(flatten)]
    pub target: TableTarget,
    /// The new name
    pub new_name: String,
}
