//! A commit as a change feed returns it: the bytes of its record, and the names of its tables.

use std::sync::Arc;

use crate::{
    Error, Result,
    contract::Op,
    db::{
        core::Core,
        encoding::{
            envelope::Envelope,
            operations::Ops,
            table_begin::{NO_TABLE, TableBegin},
        },
    },
    util::{codec::Lsn, types::TypeTag},
    wal::LoggedCommit,
};

/// One commit: the changes of one write, batch or transaction. It is in memory as a whole.
#[derive(Clone, Debug)]
pub struct CommittedChanges {
    lsn: Lsn,
    end: Lsn,
    body: Vec<u8>,
    tables: ShownTables,
}

/// One change of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The path of the table when the commit was read.
    pub table: &'a str,
    /// The number of the table. A table that is cleared, or dropped and created again, has another
    /// one. A rename keeps it.
    pub table_number: u64,
    /// What was changed.
    pub change: TableChange<'a>,
}

/// What was changed in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableChange<'a> {
    /// The table was created or cleared: it is empty here. What was known of a table of this path
    /// is void. May come more than once before the first entry.
    Begin,
    /// A key got a value.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// The expiry in milliseconds since 1970. `None`: the value does not expire.
        expires_at_unix_millis: Option<u64>,
        /// The type tag that the writer stored with the value.
        type_tag: Option<TypeTag>,
    },
    /// A key was deleted, or its expired value was removed. The key may have had no value.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// The keys from `start` on and below `end` were deleted.
    DeleteRange {
        /// The first key.
        start: &'a [u8],
        /// The first key behind the range. Empty: there is none.
        end: &'a [u8],
    },
}

impl CommittedChanges {
    pub(super) fn new(commit: &LoggedCommit<'_>, tables: ShownTables) -> Self {
        Self { lsn: commit.lsn, end: commit.end, body: commit.body.to_vec(), tables }
    }

    /// Returns the LSN of the commit.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns the position behind the commit: a feed that begins there returns the next one.
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// Returns the changes of the chosen tables in their order.
    pub fn iter(&self) -> impl Iterator<Item = Change<'_>> {
        // The body was decoded once when the tables were looked up.
        Ops::new(&self.body).flatten().filter_map(|(number, op)| self.tables.describe(number, op))
    }
}

/// The tables of a commit that a feed shows, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct ShownTables(Vec<(u64, Arc<str>)>);

impl ShownTables {
    /// Looks up the tables of a commit. Fails with `Corruption` if its record does not parse.
    pub(super) fn of(
        core: &Core,
        commit: &LoggedCommit<'_>,
        paths: Option<&[String]>,
    ) -> Result<Self> {
        let mut shown = Self::default();
        let mut last = None;
        for item in Ops::new(commit.body) {
            let damage = || Error::corruption("log", commit.lsn.0, "a record does not parse");
            let (number, op) = item.ok_or_else(damage)?;
            let begins = if number == NO_TABLE { TableBegin::parse(&op) } else { None };
            let number = begins.unwrap_or(number);
            if last == Some(number) {
                continue;
            }
            last = Some(number);
            if shown.name(number).is_none()
                && let Some(path) = path_of(core, number, begins.is_some())
                && paths.is_none_or(|paths| paths.iter().any(|chosen| contains(chosen, &path)))
            {
                shown.0.push((number, path.into()));
            }
        }
        Ok(shown)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn name(&self, number: u64) -> Option<&str> {
        let found = self.0.iter().find(|(shown, _)| *shown == number);
        found.map(|(_, name)| &**name)
    }

    /// Returns an operation as a change. `None`: the feed does not show it.
    fn describe<'a>(&'a self, number: u64, op: Op<'a>) -> Option<Change<'a>> {
        if number == NO_TABLE {
            let table_number = TableBegin::parse(&op)?;
            let table = self.name(table_number)?;
            return Some(Change { table, table_number, change: TableChange::Begin });
        }
        let change = match op {
            Op::Put { key, body, .. } => {
                let (envelope, start) = Envelope::decode(body)?;
                TableChange::Put {
                    key,
                    value: body.get(start..)?,
                    expires_at_unix_millis: envelope.expires_at,
                    type_tag: envelope.type_tag,
                }
            }
            Op::Delete { key } => TableChange::Delete { key },
            Op::DeleteRange { start, end } => TableChange::DeleteRange { start, end },
        };
        Some(Change { table: self.name(number)?, table_number: number, change })
    }
}

/// Returns the path of a table, or `None` if it is not in the catalog (any more).
fn path_of(core: &Core, number: u64, begins: bool) -> Option<String> {
    let catalog = &core.tables.catalog;
    let find = || {
        catalog.with_tree(|tree| {
            let is_shown = tree.table(number).is_some() && tree.expiry_index() != Some(number);
            is_shown.then(|| tree.path(number)).flatten()
        })
    };
    find().or_else(|| {
        // The edit of the catalog follows this record, and may be under way.
        begins.then(|| catalog.await_edit()).and_then(|()| find())
    })
}

/// Returns whether `path` is `chosen` or below it.
fn contains(chosen: &str, path: &str) -> bool {
    path.strip_prefix(chosen).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
