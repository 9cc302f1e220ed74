//! The changes of a catalog edit, and their bytes.
//!
//! An edit is a sequence of changes. All of them take effect or none. Each change:
//!
//! | tag | change | fields |
//! |---|---|---|
//! | 1 | add directory | id, parent (varints), name (length varint + bytes) |
//! | 2 | add table | id, parent, name, name of the engine, seed (16 bytes), option count (varint), then each option's name and value |
//! | 3 | move | id, new parent, new name |
//! | 4 | remove | id: the node and everything below it |
//! | 5 | progress | log start, log durable (varints), table count, then each table's id and the LSN its files are complete to |
//! | 6 | next id | ids from here on were never used |
//! | 7 | types | id: a table, key part count (varint), a type byte for each part, the value's type byte |
//! | 8 | defaults | id: a directory (0: the root), 0 or 1 (a byte); with 1, engine, option count, options as in 2, 0 or 1 (a byte); with 1, types as in 7 |
//! | 9 | add mount | id, parent, name, target, subtree (length varint + bytes each), 1 if it is for reading only (a byte) |
//! | 10 | add expiry index | id, then engine, seed, option count, options as in 2: a table without a name in the tree |

#![deny(clippy::indexing_slicing)]

use std::fmt;

use crate::{
    contract::TableOptions,
    engine::engine_options,
    util::{
        codec::{Decoder, Lsn, put_bytes, put_u64, put_varint, to_u64},
        types::{TableTypes, TypeTag},
    },
};

/// One change of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CatalogChange {
    /// A new directory of tables.
    AddDirectory {
        /// The number of the new node.
        id: u64,
        /// The directory that contains it; 0 is the root.
        parent: u64,
        /// Its name in the directory.
        name: String,
    },
    /// A new table.
    AddTable {
        /// The number of the new node.
        id: u64,
        /// The directory that contains it; 0 is the root.
        parent: u64,
        /// Its name in the directory.
        name: String,
        /// The engine and the options, which never change.
        table: TableDefinition,
    },
    /// A node, with everything below it, moves to another directory or name.
    Move {
        /// The node.
        id: u64,
        /// The new directory.
        parent: u64,
        /// The new name.
        name: String,
    },
    /// The removal of a node and everything below it.
    Remove {
        /// The node.
        id: u64,
    },
    /// The LSNs that tables and log are persisted to.
    Progress(Progress),
    /// The number of the next new node.
    NextId {
        /// The number.
        id: u64,
    },
    /// The default options of tables created in a directory.
    Defaults {
        /// The directory; 0 is the root.
        id: u64,
        /// The options; `None` removes them.
        defaults: Option<TableDefaults>,
    },
    /// A new mount.
    AddMount {
        /// The number of the new node.
        id: u64,
        /// The directory that contains it; 0 is the root.
        parent: u64,
        /// Its name in the directory.
        name: String,
        /// The mounted database and directory.
        mount: MountRecord,
    },
    /// The hidden table of the expiry index.
    AddExpiryIndex {
        /// The number of the table.
        id: u64,
        /// The engine and the options, which never change.
        table: TableDefinition,
    },
    /// The types of a table that was untyped.
    Types {
        /// The table.
        id: u64,
        /// The types.
        types: TableTypes,
    },
}

/// The engine and the options of a table. They never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableDefinition {
    /// The engine's name. This build need not have the engine.
    pub(crate) engine: String,
    /// The seed of the table's keyed hash.
    pub(crate) seed: [u64; 2],
    /// Option names and values. New definitions have the current names, so that a former name can
    /// be given to another option once no catalog has it.
    pub(crate) settings: Vec<(String, String)>,
}

impl TableDefinition {
    pub(crate) fn new(options: &TableOptions, seed: [u64; 2]) -> Self {
        let settings = options.current_settings(engine_options(options.kind()));
        Self { engine: options.kind().name().to_owned(), seed, settings }
    }

    /// Returns the options that open the table's engine. Fails with [`crate::Error::UnknownEngine`]
    /// if this build does not have it.
    pub(crate) fn options(&self) -> crate::Result<TableOptions> {
        let options = TableOptions::new(self.engine.parse()?);
        let settings = self.settings.iter();
        Ok(settings.fold(options, |options, (name, value)| options.set(name, value)))
    }
}

/// The default options of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableDefaults {
    /// The engine's name.
    pub(crate) engine: String,
    /// Option names and values.
    pub(crate) settings: Vec<(String, String)>,
    /// The types.
    pub(crate) types: Option<TableTypes>,
}

impl TableDefaults {
    pub(crate) fn new(options: &TableOptions) -> Self {
        let TableDefinition { engine, settings, .. } = TableDefinition::new(options, [0; 2]);
        Self { engine, settings, types: options.table_types().cloned() }
    }

    pub(crate) fn options(&self) -> crate::Result<TableOptions> {
        let (engine, settings) = (self.engine.clone(), self.settings.clone());
        let options = TableDefinition { engine, seed: [0; 2], settings }.options()?;
        Ok(match &self.types {
            Some(types) => options.types(types.clone()),
            None => options,
        })
    }
}

/// The target of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountRecord {
    /// The other database's directory.
    pub(crate) target: String,
    /// The mounted directory of its tree; empty: all of it.
    pub(crate) subtree: String,
    /// Whether writes through the mount are refused.
    pub(crate) read_only: bool,
}

/// The LSNs that tables and log are persisted to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The log may lack records below this LSN.
    pub(crate) log_start: Lsn,
    /// The log was durable below this LSN.
    pub(crate) log_durable: Lsn,
    /// For tables by number, the LSN that their files are complete to.
    pub(crate) tables: Vec<(u64, Lsn)>,
}

impl fmt::Display for TableDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, seed: [first, second], settings } = self;
        write!(f, ", engine {engine}, seed {first:016x} {second:016x}")?;
        settings.iter().try_for_each(|(name, value)| write!(f, ", {name}={value}"))
    }
}

/// The form in which `quintet inspect` prints it.
impl fmt::Display for CatalogChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddDirectory { id, parent, name } => {
                write!(f, "add directory {id} \"{}\" in {parent}", name.escape_debug())
            }
            Self::AddTable { id, parent, name, table } => {
                write!(f, "add table {id} \"{}\" in {parent}", name.escape_debug())?;
                write!(f, "{table}")
            }
            Self::AddExpiryIndex { id, table } => write!(f, "add expiry index {id}{table}"),
            Self::Move { id, parent, name } => {
                write!(f, "move {id} to \"{}\" in {parent}", name.escape_debug())
            }
            Self::Remove { id } => write!(f, "remove {id} and everything below it"),
            Self::Progress(Progress { log_start, log_durable, tables }) => {
                write!(f, "progress, log starts at {log_start}, durable below {log_durable}")?;
                let mut tables = tables.iter();
                tables.try_for_each(|(id, lsn)| write!(f, ", table {id} complete to {lsn}"))
            }
            Self::NextId { id } => write!(f, "next id {id}"),
            Self::Defaults { id, defaults: None } => write!(f, "no defaults for tables in {id}"),
            Self::Defaults { id, defaults: Some(TableDefaults { engine, settings, types }) } => {
                write!(f, "defaults for tables in {id}, engine {engine}")?;
                settings.iter().try_for_each(|(name, value)| write!(f, ", {name}={value}"))?;
                types.iter().try_for_each(|types| write!(f, ", types {types}"))
            }
            Self::AddMount { id, parent, name, mount } => {
                let MountRecord { target, subtree, read_only } = mount;
                write!(f, "add mount {id} \"{}\" in {parent}", name.escape_debug())?;
                write!(f, " of \"{}\"", target.escape_debug())?;
                if !subtree.is_empty() {
                    write!(f, ", below \"{}\"", subtree.escape_debug())?;
                }
                f.write_str(if *read_only { ", read only" } else { "" })
            }
            Self::Types { id, types } => write!(f, "types of {id}, {types}"),
        }
    }
}

const ADD_DIRECTORY: u8 = 1;
const ADD_TABLE: u8 = 2;
const MOVE: u8 = 3;
const REMOVE: u8 = 4;
const PROGRESS: u8 = 5;
const NEXT_ID: u8 = 6;
const TYPES: u8 = 7;
const DEFAULTS: u8 = 8;
const ADD_MOUNT: u8 = 9;
const ADD_EXPIRY_INDEX: u8 = 10;

impl CatalogChange {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let node = |out: &mut Vec<u8>, tag, id, parent, name: &str| {
            out.push(tag);
            put_varint(out, id);
            put_varint(out, parent);
            put_bytes(out, name.as_bytes());
        };
        match self {
            Self::AddDirectory { id, parent, name } => node(out, ADD_DIRECTORY, *id, *parent, name),
            Self::AddTable { id, parent, name, table } => {
                node(out, ADD_TABLE, *id, *parent, name);
                put_table_record(out, table);
            }
            Self::AddExpiryIndex { id, table } => {
                out.push(ADD_EXPIRY_INDEX);
                put_varint(out, *id);
                put_table_record(out, table);
            }
            Self::AddMount { id, parent, name, mount } => {
                node(out, ADD_MOUNT, *id, *parent, name);
                put_bytes(out, mount.target.as_bytes());
                put_bytes(out, mount.subtree.as_bytes());
                out.push(u8::from(mount.read_only));
            }
            Self::Defaults { id, defaults } => {
                out.push(DEFAULTS);
                put_varint(out, *id);
                out.push(u8::from(defaults.is_some()));
                if let Some(defaults) = defaults {
                    put_bytes(out, defaults.engine.as_bytes());
                    put_settings(out, &defaults.settings);
                    out.push(u8::from(defaults.types.is_some()));
                    if let Some(types) = &defaults.types {
                        put_types(out, types);
                    }
                }
            }
            Self::Move { id, parent, name } => node(out, MOVE, *id, *parent, name),
            Self::Remove { id } => {
                out.push(REMOVE);
                put_varint(out, *id);
            }
            Self::Progress(progress) => {
                out.push(PROGRESS);
                put_varint(out, progress.log_start.0);
                put_varint(out, progress.log_durable.0);
                put_varint(out, to_u64(progress.tables.len()));
                for (id, lsn) in &progress.tables {
                    put_varint(out, *id);
                    put_varint(out, lsn.0);
                }
            }
            Self::NextId { id } => {
                out.push(NEXT_ID);
                put_varint(out, *id);
            }
            Self::Types { id, types } => {
                out.push(TYPES);
                put_varint(out, *id);
                put_types(out, types);
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let tag = decoder.u8()?;
        match tag {
            ADD_DIRECTORY | ADD_TABLE | ADD_MOUNT | MOVE => {
                let (id, parent, name) = (decoder.varint()?, decoder.varint()?, text(decoder)?);
                Some(match tag {
                    ADD_DIRECTORY => Self::AddDirectory { id, parent, name },
                    MOVE => Self::Move { id, parent, name },
                    ADD_MOUNT => Self::AddMount { id, parent, name, mount: mount(decoder)? },
                    _ => Self::AddTable { id, parent, name, table: table_record(decoder)? },
                })
            }
            REMOVE => Some(Self::Remove { id: decoder.varint()? }),
            PROGRESS => {
                let log_start = Lsn(decoder.varint()?);
                let log_durable = Lsn(decoder.varint()?);
                let mut tables = Vec::new();
                for _ in 0..decoder.varint()? {
                    tables.push((decoder.varint()?, Lsn(decoder.varint()?)));
                }
                Some(Self::Progress(Progress { log_start, log_durable, tables }))
            }
            NEXT_ID => Some(Self::NextId { id: decoder.varint()? }),
            TYPES => Some(Self::Types { id: decoder.varint()?, types: types(decoder)? }),
            ADD_EXPIRY_INDEX => {
                let (id, table) = (decoder.varint()?, table_record(decoder)?);
                Some(Self::AddExpiryIndex { id, table })
            }
            DEFAULTS => {
                let id = decoder.varint()?;
                let defaults = if flag(decoder)? { Some(defaults(decoder)?) } else { None };
                Some(Self::Defaults { id, defaults })
            }
            _ => None,
        }
    }
}

fn text(decoder: &mut Decoder<'_>) -> Option<String> {
    String::from_utf8(decoder.bytes()?.to_vec()).ok()
}

fn table_record(decoder: &mut Decoder<'_>) -> Option<TableDefinition> {
    let engine = text(decoder)?;
    let seed = [decoder.u64()?, decoder.u64()?];
    Some(TableDefinition { engine, seed, settings: settings(decoder)? })
}

fn put_table_record(out: &mut Vec<u8>, table: &TableDefinition) {
    put_bytes(out, table.engine.as_bytes());
    for word in table.seed {
        put_u64(out, word);
    }
    put_settings(out, &table.settings);
}

fn put_settings(out: &mut Vec<u8>, settings: &[(String, String)]) {
    put_varint(out, to_u64(settings.len()));
    for (name, value) in settings {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value.as_bytes());
    }
}

fn settings(decoder: &mut Decoder<'_>) -> Option<Vec<(String, String)>> {
    let mut settings = Vec::new();
    for _ in 0..decoder.varint()? {
        settings.push((text(decoder)?, text(decoder)?));
    }
    Some(settings)
}

fn flag(decoder: &mut Decoder<'_>) -> Option<bool> {
    match decoder.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn mount(decoder: &mut Decoder<'_>) -> Option<MountRecord> {
    let (target, subtree) = (text(decoder)?, text(decoder)?);
    Some(MountRecord { target, subtree, read_only: flag(decoder)? })
}

fn defaults(decoder: &mut Decoder<'_>) -> Option<TableDefaults> {
    let (engine, settings) = (text(decoder)?, settings(decoder)?);
    let types = if flag(decoder)? { Some(types(decoder)?) } else { None };
    Some(TableDefaults { engine, settings, types })
}

fn put_types(out: &mut Vec<u8>, types: &TableTypes) {
    put_varint(out, to_u64(types.key().len()));
    out.extend(types.key().iter().map(|tag| tag.to_byte()));
    out.push(types.value().to_byte());
}

fn types(decoder: &mut Decoder<'_>) -> Option<TableTypes> {
    let mut key = Vec::new();
    for _ in 0..decoder.varint()? {
        key.push(TypeTag::from_byte(decoder.u8()?)?);
    }
    TableTypes::new(key, TypeTag::from_byte(decoder.u8()?)?).ok()
}

/// Decodes the changes of an edit's body. `None`: the body is not a sequence of changes.
pub(crate) fn decode_all(body: &[u8]) -> Option<Vec<CatalogChange>> {
    let mut decoder = Decoder::new(body);
    let mut changes = Vec::new();
    while !decoder.is_empty() {
        changes.push(CatalogChange::decode(&mut decoder)?);
    }
    Some(changes)
}
