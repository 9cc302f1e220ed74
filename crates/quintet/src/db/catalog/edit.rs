//! What an edit of the catalog says, and its bytes.
//!
//! An edit is a run of changes; all of them take effect or none. Each change:
//!
//! | tag | change | fields |
//! |---|---|---|
//! | 1 | add directory | id, parent (varints), name (length varint + bytes) |
//! | 2 | add table | id, parent, name, engine (name of it), seed (16 bytes), option count (varint), then each option's name and value |
//! | 3 | move | id, new parent, new name |
//! | 4 | remove | id: the node and everything below it |
//! | 5 | progress | log start, log durable (varints), table count, then each table's id and the LSN its files are complete to |
//! | 6 | next id | ids from here on were never used |

#![deny(clippy::indexing_slicing)]

use std::fmt;

use crate::{
    codec::{Decoder, Lsn, put_bytes, put_u64, put_varint, to_u64},
    engine::TableOptions,
};

/// One change of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new directory of tables.
    AddDirectory {
        /// Its number.
        id: u64,
        /// The directory that it is in; 0 is the root.
        parent: u64,
        /// Its name there.
        name: String,
    },
    /// A new table.
    AddTable {
        /// Its number.
        id: u64,
        /// The directory that it is in; 0 is the root.
        parent: u64,
        /// Its name there.
        name: String,
        /// What stays the same for the table's whole life.
        table: TableRecord,
    },
    /// A new place for a node and everything below it.
    Move {
        /// The node.
        id: u64,
        /// The directory that it goes to.
        parent: u64,
        /// Its name there.
        name: String,
    },
    /// The end of a node and everything below it.
    Remove {
        /// The node.
        id: u64,
    },
    /// How far persisting has come.
    Progress(Progress),
    /// The next number to give to a node.
    NextId {
        /// The number.
        id: u64,
    },
}

/// What the catalog keeps of a table beside its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableRecord {
    /// Engine and options. An engine that this build lacks is kept by name.
    pub(crate) engine: String,
    /// Of the table's keyed hash.
    pub(crate) seed: [u64; 2],
    /// Option names and values.
    pub(crate) settings: Vec<(String, String)>,
}

impl TableRecord {
    pub(crate) fn new(options: &TableOptions, seed: [u64; 2]) -> Self {
        let settings =
            options.settings().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { engine: options.kind().name().to_owned(), seed, settings }
    }

    /// The options to open the table's engine with.
    pub(crate) fn options(&self) -> crate::Result<TableOptions> {
        let options = TableOptions::new(self.engine.parse()?);
        let settings = self.settings.iter();
        Ok(settings.fold(options, |options, (name, value)| options.set(name, value)))
    }
}

/// How far persisting has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The log may have been pruned below.
    pub(crate) log_start: Lsn,
    /// The log was durable below.
    pub(crate) log_durable: Lsn,
    /// The LSN that a table's files are complete to, by table id.
    pub(crate) tables: Vec<(u64, Lsn)>,
}

/// As `quintet inspect` prints it.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddDirectory { id, parent, name } => {
                write!(f, "add directory {id} \"{}\" in {parent}", name.escape_debug())
            }
            Self::AddTable { id, parent, name, table } => {
                let TableRecord { engine, seed: [first, second], settings } = table;
                write!(f, "add table {id} \"{}\" in {parent}", name.escape_debug())?;
                write!(f, ", engine {engine}, seed {first:016x} {second:016x}")?;
                settings.iter().try_for_each(|(name, value)| write!(f, ", {name}={value}"))
            }
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
        }
    }
}

const ADD_DIRECTORY: u8 = 1;
const ADD_TABLE: u8 = 2;
const MOVE: u8 = 3;
const REMOVE: u8 = 4;
const PROGRESS: u8 = 5;
const NEXT_ID: u8 = 6;

impl Change {
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
                put_bytes(out, table.engine.as_bytes());
                for word in table.seed {
                    put_u64(out, word);
                }
                put_varint(out, to_u64(table.settings.len()));
                for (name, value) in &table.settings {
                    put_bytes(out, name.as_bytes());
                    put_bytes(out, value.as_bytes());
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
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let tag = decoder.u8()?;
        match tag {
            ADD_DIRECTORY | ADD_TABLE | MOVE => {
                let (id, parent, name) = (decoder.varint()?, decoder.varint()?, text(decoder)?);
                Some(match tag {
                    ADD_DIRECTORY => Self::AddDirectory { id, parent, name },
                    MOVE => Self::Move { id, parent, name },
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
            _ => None,
        }
    }
}

fn text(decoder: &mut Decoder<'_>) -> Option<String> {
    String::from_utf8(decoder.bytes()?.to_vec()).ok()
}

fn table_record(decoder: &mut Decoder<'_>) -> Option<TableRecord> {
    let engine = text(decoder)?;
    let seed = [decoder.u64()?, decoder.u64()?];
    let mut settings = Vec::new();
    for _ in 0..decoder.varint()? {
        settings.push((text(decoder)?, text(decoder)?));
    }
    Some(TableRecord { engine, seed, settings })
}

/// The changes of an edit's body; `None` where it is not a whole number of them.
pub(crate) fn decode_all(body: &[u8]) -> Option<Vec<Change>> {
    let mut decoder = Decoder::new(body);
    let mut changes = Vec::new();
    while !decoder.is_empty() {
        changes.push(Change::decode(&mut decoder)?);
    }
    Some(changes)
}
