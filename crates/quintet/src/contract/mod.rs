//! The engine contract: what a table's index structure does for the database.
//!
//! What: the trait [`Engine`], the types that cross it, and the closed set of engines.
//! Why: policy (when to flush, merge, recover) differs by engine; the log, atomicity, expiry and
//! names do not, and live in `db`.
//!
//! Invariants that every engine keeps:
//! - `admit` is the only place that refuses or delays a write; once logged, `apply` does not fail
//!   because of memory, space or debt. An error from `apply` stops the table.
//! - Applying a record twice, in order, gives the same state: replay is idempotent.
//! - No effect of an LSN beyond the durable end of the log reaches a file that recovery reads:
//!   before it publishes such a file, an engine calls [`Host::sync_log`].
//! - `persist` returns only LSNs below which every effect is durable in the table's own files.
//! - Values are stored as given: the envelope (`db::envelope`) is not looked into.
//! - No threads, clocks or randomness: background work is asked for through [`Host::wake`] and
//!   done when the database calls `persist` or `compact`, as [`Engine::due`] says.
//!
//! Thread rules: every method is `&self` and may run on any number of threads. The database
//! serialises `apply` for one key, in log order, and runs at most one of `persist` and `compact`
//! of a table at once.
//!
//! Lock order, crate-wide, first to last: catalog, stripes (by index), log slots, an engine's own
//! locks, log rotation, log sync.

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
pub(crate) mod fake_host;
mod options;
mod value;
pub(crate) mod value_sink;

use std::{fmt, ops::ControlFlow, sync::Arc, time::Duration};

pub use options::{EngineKind, TableOptions};
pub(crate) use value::FoundValue;
pub use value::Value;

use crate::{
    Error, Result,
    io::{Dir, Env},
    util::{
        budget::Budget,
        codec::{KeyHash, Lsn},
        report::Report,
        sync::AtomicU64,
        words::copy_out,
    },
};

/// How often the memory of a write is looked for again: others may be quicker to take what work
/// under way gives back.
const FINDS_MAX: u32 = 16;
/// So long a writer waits for a part of that work.
pub(crate) const LENT_MAX: Duration = Duration::from_secs(1);
/// It looks again after this.
pub(crate) const LENT_STEP: Duration = Duration::from_millis(1);

/// One mutation of one table. A value is stored as `head` followed by `body`: `head` is the
/// database's envelope, `body` the user's bytes (replay gives both in `body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Sets the value of a key.
    Put {
        /// 1 to 65,535 bytes.
        key: &'a [u8],
        /// First part of the value.
        head: &'a [u8],
        /// Rest of the value.
        body: &'a [u8],
    },
    /// Removes a key, present or not.
    Delete {
        /// 1 to 65,535 bytes.
        key: &'a [u8],
    },
    /// Removes all keys from `start` (included) to `end` (excluded). Ordered engines only.
    DeleteRange {
        /// First key removed.
        start: &'a [u8],
        /// First key kept; empty for "to the last key".
        end: &'a [u8],
    },
}

/// One entry of a table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Value,
}

/// A place in a scan: opaque bytes of the engine; empty at the start and again at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub Vec<u8>);

impl Cursor {
    /// The place before the first entry, and the one after the last.
    pub const START: Self = Self(Vec::new());

    /// Whether this is the start (or, returned by a scan, the end).
    pub fn is_start(&self) -> bool {
        self.0.is_empty()
    }
}

/// Keys from `start` (included) to `end` (excluded); `None` is unbounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// First key.
    pub start: Option<Vec<u8>>,
    /// First key past the range.
    pub end: Option<Vec<u8>>,
}

/// What an entry of a range is shown to: key and stored value. Says whether to go on.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>>;

/// Entries of a range, in key order from the front and in reverse order from the back.
pub type EntryIter = Box<dyn DoubleEndedIterator<Item = Result<Entry>> + Send>;

/// What [`Engine::multi_get_each`] calls: the position of a key, and its value.
pub type EachValue<'a> = dyn FnMut(usize, Option<&[u8]>) -> Result<()> + 'a;

/// What [`Engine::get_split`] returns of an empty value. No envelope begins with it.
pub const NO_FIRST_BYTE: u8 = 0xff;

/// A value as [`Engine::get_split`] returns it.
pub fn split_value(value: &[u8], out: &mut Vec<u8>) -> u8 {
    let (first, rest) = value.split_first().unwrap_or((&NO_FIRST_BYTE, &[]));
    out.clear();
    out.extend_from_slice(rest);
    *first
}

/// As [`split_value`], of the value of `bytes` that begins at byte `at` of `words`.
#[inline]
pub(crate) fn copy_split(
    words: &[AtomicU64],
    (at, bytes): (usize, usize),
    out: &mut Vec<u8>,
) -> u8 {
    let Some(rest) = bytes.checked_sub(1) else {
        out.clear();
        return NO_FIRST_BYTE;
    };
    out.resize(rest, 0);
    copy_out(words, at + 1, out);
    let mut first = [0];
    copy_out(words, at, &mut first);
    first[0]
}

/// A sorted load under way ([`Engine::load`]). Dropped before it is adopted, it has changed nothing
/// and its space is given back.
pub trait Load: Send + fmt::Debug {
    /// Adds an entry, whose key is above all others. After an error the load takes no more.
    fn put(&mut self, key: &[u8], head: &[u8], body: &[u8]) -> Result<()>;
    /// Writes what can be written before the load is adopted.
    fn finish(&mut self) -> Result<()>;
    /// Makes all of it durable and then visible, at once; the table's files are complete to the LSN
    /// returned. Everything below `up_to` is applied. As [`Engine::persist`], not beside it.
    fn adopt(&mut self, up_to: Lsn) -> Result<Lsn>;
}

/// A load that was begun.
#[derive(Debug)]
pub struct LoadStart {
    /// It.
    pub load: Box<dyn Load>,
    /// The table's last key, which all of the load's have to be above.
    pub last: Option<Vec<u8>>,
}

/// The background work that an engine wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// None.
    Nothing,
    /// [`Engine::persist`].
    Persist,
    /// [`Engine::compact`].
    Compact,
    /// None now; but ask again after a second: work that is better done once the writers rest.
    Later,
}

/// Figures of one table. Bytes and counts are current, not cumulative, unless the name says
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Live keys (those expired but not yet swept included).
    pub keys: u64,
    /// Bytes of live keys and values.
    pub live_bytes: u64,
    /// Bytes in files that a compaction would give back.
    pub dead_bytes: u64,
    /// Bytes in files.
    pub file_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Of `memory_bytes`, what finds keys rather than holds them.
    pub index_bytes: u64,
    /// Bytes written to the table's files since the database was opened.
    pub written_bytes_total: u64,
    /// What only this engine counts, by name.
    pub details: Vec<(&'static str, u64)>,
}

/// What [`Engine::presence`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// There is no value.
    Absent,
    /// There is one, which never expires.
    Present,
    /// Only [`Engine::get`] says.
    InValue,
}

/// What the database does for its engines.
pub trait Host: Send + Sync + fmt::Debug {
    /// Makes the log durable past every operation applied before the call. An error means that an
    /// effect in memory may not be in the log after a crash: the engine publishes nothing, and
    /// says so. Always an error while the log is replayed, since what is replayed is not known to
    /// be durable before all of it is: an engine that has to give memory back then can do so only
    /// of what its files have already.
    fn sync_log(&self) -> Result<()>;
    /// Has [`Engine::due`] asked soon. Cheap; callable with locks held.
    fn wake(&self);
    /// Whether so much log has gathered that the next round of persisting should not wait for work
    /// that can go on after it. Cheap.
    fn is_round_due(&self) -> bool {
        false
    }
    /// Whether a stored value has expired and may be dropped.
    fn is_expired(&self, stored: &[u8]) -> bool;
    /// Whether a stored value may expire one day. Where it says no, that the key is there is
    /// enough to know that it has a value.
    fn expires(&self, _stored: &[u8]) -> bool {
        true
    }
}

/// Where a table lives and what it draws on.
#[derive(Clone, Debug)]
pub struct Context {
    /// The system.
    pub env: Arc<dyn Env>,
    /// The table's own directory.
    pub dir: Arc<dyn Dir>,
    /// Identity of the database: goes into every file's head.
    pub database_id: [u8; 16],
    /// Number of the table, never used again: goes into every file's head.
    pub table_id: u64,
    /// The table's keyed hash.
    pub hash: KeyHash,
    /// The database's memory account.
    pub budget: Arc<Budget>,
    /// The database.
    pub host: Arc<dyn Host>,
    /// Nothing may be written.
    pub read_only: bool,
    /// The catalog's word for how far the files are complete. An engine that finds less removes
    /// nothing: the database refuses the table, and what is missing may come back.
    pub complete: Lsn,
}

impl Context {
    fn has_free(&self, bytes: u64) -> bool {
        self.budget.used().saturating_add(bytes) <= self.budget.limit()
    }

    /// Waits until work under way has given back so much that `bytes` are free, but not long;
    /// whether they are. Not for who has memory lent itself.
    pub(crate) fn await_lent(&self, bytes: u64) -> bool {
        let began = self.env.monotonic();
        while !self.has_free(bytes) {
            let waited = self.env.monotonic().saturating_sub(began);
            if self.budget.transient_bytes() == 0 || waited > LENT_MAX {
                return false;
            }
            self.env.pause(LENT_STEP);
        }
        true
    }

    /// Has `find` look for the memory of a write, and again where it is refused while work under
    /// way has memory, which that gives back in the end. Not for who has memory lent itself.
    pub(crate) fn find_memory(
        &self,
        bytes: u64,
        mut find: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        for _ in 0..FINDS_MAX {
            match find() {
                Err(Error::OutOfMemory { .. })
                    if self.budget.transient_bytes() > 0 || self.has_free(bytes) =>
                {
                    self.host.wake();
                    self.await_lent(bytes);
                }
                outcome => return outcome,
            }
        }
        find()
    }
}

/// A table's index structure. See the module head for what every engine keeps.
pub trait Engine: Send + Sync {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Value>>;
    /// Whether `key` has a value, as far as the engine can say without reading one: for conditional
    /// writes.
    fn presence(&self, _key: &[u8]) -> Result<Presence> {
        Ok(Presence::InValue)
    }
    /// The values of `keys`, appended to `out` in their order.
    fn multi_get(&self, keys: &[&[u8]], out: &mut Vec<Option<Value>>) -> Result<()> {
        for key in keys {
            out.push(self.get(key)?);
        }
        Ok(())
    }
    /// Copies the value of `key` into `out`, in place of what was there, but for its first byte,
    /// which it returns: the database's envelope is one byte, nearly always. For an empty value,
    /// which the database never stores, [`NO_FIRST_BYTE`]. `None` where there is no value; `out` is
    /// anything then.
    fn get_split(&self, key: &[u8], out: &mut Vec<u8>) -> Result<Option<u8>> {
        Ok(self.get(key)?.map(|value| split_value(&value, out)))
    }
    /// The values of `keys`: `each` is called once for each with its position, in any order.
    fn multi_get_each(&self, keys: &[&[u8]], each: &mut EachValue<'_>) -> Result<()> {
        let mut values = Vec::with_capacity(keys.len());
        self.multi_get(keys, &mut values)?;
        let mut values = values.iter().enumerate();
        values.try_for_each(|(index, value)| each(index, value.as_deref()))
    }
    /// Refuses or delays a write before it is logged. What it grants, `apply` can rely on.
    fn admit(&self, op: &Op<'_>) -> Result<()>;
    /// Takes back an `admit` whose operation will not be logged after all (a condition did not
    /// hold, the log refused). Engines that reserve nothing in `admit` have nothing to do.
    fn retract(&self, _op: &Op<'_>) {}
    /// A hint that an operation on `key` is soon to be applied, so that what it will look at can be
    /// on its way from memory: replay gives it some records ahead.
    fn expect(&self, _key: &[u8]) {}
    /// A hint that a write of the key of this hash ([`Context::hash`]) is under way: while it is
    /// logged, what it will look at can come from memory, a miss after the other. `steps` is how
    /// many there was time for since the first of these calls.
    fn approach(&self, _hash: u64, _steps: u32) {}
    /// A hint that operations on `keys` are soon to be admitted or applied, so that what has to be
    /// read from the disk for them can be read at once. Looks at `keys` only if that is of use.
    fn expect_many(&self, _keys: &mut dyn Iterator<Item = &[u8]>) {}
    /// Applies a logged operation. In replay there was no `admit`.
    fn apply(&self, lsn: Lsn, op: &Op<'_>) -> Result<()>;
    /// Applies some logged operations, each on one key, in their order, when a database is opened:
    /// as `apply` does, but together they cost less.
    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        for (_, op) in ops {
            if let Op::Put { key, .. } | Op::Delete { key } = op {
                self.expect(key);
            }
        }
        ops.iter().try_for_each(|(lsn, op)| self.apply(*lsn, op))
    }
    /// Begins a load of entries in ascending order, behind all that the table has, that goes round
    /// the log; `None`: the engine has nothing better than [`Engine::apply`]. Until it is adopted
    /// or dropped, nothing is applied to the table, and it is not compacted.
    fn load(&self) -> Result<Option<LoadStart>> {
        Ok(None)
    }
    /// About `limit` entries from `from` on, and where to go on ([`Cursor::START`] at the end).
    /// Every entry that is present throughout a whole scan is returned at least once; a scan ends.
    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)>;
    /// The entries of a range; `None` for an engine without order.
    fn range(&self, range: KeyRange) -> Result<Option<EntryIter>>;
    /// Makes every effect below `up_to` durable in the table's files (`up_to` is at most what is
    /// applied) and returns the LSN below which they are complete.
    fn persist(&self, up_to: Lsn) -> Result<Lsn>;
    /// Gives back space: rewrites what is mostly dead, drops what has expired
    /// ([`Host::is_expired`]).
    fn compact(&self) -> Result<()>;
    /// Verifies every file of the table and that what is in memory agrees.
    fn check(&self, report: &mut Report) -> Result<()>;
    /// Figures.
    fn stats(&self) -> EngineStats;
    /// The background work that is wanted now. Cheap: a few loads.
    fn due(&self) -> Due;
}
