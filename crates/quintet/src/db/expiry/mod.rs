//! Expiry of values: the clock, and the expiry index.
//!
//! A value carries its absolute expiry in its envelope and is invisible from that moment on. The
//! *expiry index* is one hidden `btree` table of the database that lists every such value by its
//! expiry, so that the [`sweep`](crate::db::session::jobs::sweep) finds expired values without a scan of the others.
//! One index serves the whole database: an index for each table would cost each a page cache and
//! files, and the sweep a lookup in each. The price is that dropping a table needs a pass over the
//! index ([`sweep`](crate::db::session::jobs::sweep)).
//!
//! The index is created, and recorded in the catalog, before the first value that expires is
//! logged. A database without such values has none. The key of an entry:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | time | expiry of the value, milliseconds since 1970, big-endian |
//! | 8 | 8 | table | the table's number, big-endian |
//! | 16 | | key | the value's key, cut to the maximum size of an entry's key |
//!
//! A tree's key has at most 65,536 bytes. Keys of 65,520 bytes and more are cut. The value of their
//! entry holds the suffix of each key that begins with these bytes, each after a length byte. All
//! other entries have an empty value.
//!
//! The log does not hold the index. An entry follows from the envelope of the logged value: a put
//! adds it under the stripe of the key, and replay adds it again. Entries are removed without a
//! record; replay, or an older state of the index's files, may restore them, and the sweep checks
//! the value of each entry. So a put without expiry costs one comparison, a put with an expiry logs
//! no additional byte, and no crash separates value and entry.
//!
//! Invariants:
//! - Every stored value that expires has its entry. Entries without a value are allowed; the
//!   reverse is not ([`check`](crate::db::api::check) verifies it).
//! - An entry changes only under the stripe of its key, together with the value, except entries of
//!   dropped tables. It is in the index before the record's log ticket is dropped, so files that
//!   are complete past the record have it.
//! - A put that replaces a value's expiry removes the old entry: a key that is refreshed again and
//!   again has one entry. Plain puts and deletes leave the old entry, which the sweep removes when
//!   it is due.
//! - The clock never goes back while the database is open, so an expired value stays invisible.

use std::sync::Arc;

use super::core::{Core, JobKind, TableState};
use crate::{
    Error, Result,
    contract::{Engine as _, EngineKind, Op, TableOptions},
    db::encoding::envelope::{Envelope, EnvelopeSink},
    io::Env,
    util::{
        codec::{Decoder, Lsn, low_u8, to_u64},
        mutant::{self, Bug},
        sync::{AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, lock},
    },
    wal::Appended,
};

/// A clock in milliseconds since 1970 that never goes back.
#[derive(Debug)]
pub(crate) struct Clock {
    env: Arc<dyn Env>,
    latest: AtomicU64,
}

impl Clock {
    pub(crate) fn new(env: Arc<dyn Env>) -> Self {
        Self { env, latest: AtomicU64::new(0) }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> u64 {
        let now = self.env.unix_millis();
        let latest = self.latest.load(Ordering::Relaxed);
        if now <= latest {
            return latest;
        }
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

/// Returns the options of the index: small pages, since most of them are written once and emptied
/// once.
pub(crate) fn index_options() -> TableOptions {
    let options = TableOptions::new(EngineKind::BTree);
    let options = options.set("page_bytes", "4096").set("extend_granularity", "256");
    // A model checker makes each word of a cache anew for each run.
    if cfg!(model) { options.set("cache_bytes", "1") } else { options }
}

/// Maximum size of a tree's key in bytes.
const ENTRY_BYTES_MAX: usize = 1 << 16;

/// The expiry index of an open database, and signals to the sweep.
#[derive(Debug)]
pub(crate) struct Expiries {
    index: OnceLock<Arc<TableState>>,
    /// Held while the index is created.
    making: Mutex<()>,
    /// Held while an entry of long keys changes, because these keys may have different stripes.
    long: Mutex<()>,
    /// When the sweep runs next without a wake. A writer that adds an earlier entry wakes it.
    pub(crate) next_look: AtomicU64,
    /// A table with entries was dropped; the sweep must remove them.
    pub(crate) purge_wanted: AtomicBool,
}

impl Expiries {
    /// Creates the state with the index that the catalog has.
    pub(crate) fn new(index: Option<Arc<TableState>>) -> Self {
        Self {
            index: index.map_or_else(OnceLock::new, OnceLock::from),
            making: Mutex::new(()),
            long: Mutex::new(()),
            next_look: AtomicU64::new(u64::MAX),
            purge_wanted: AtomicBool::new(false),
        }
    }

    /// Returns the index, if it exists.
    #[inline]
    pub(crate) fn index(&self) -> Option<&Arc<TableState>> {
        self.index.get()
    }

    /// Returns whether `table` is the index.
    pub(crate) fn is_index(&self, table: &TableState) -> bool {
        self.index().is_some_and(|index| index.id == table.id)
    }
}

/// Returns the expiry of a put's value.
#[inline]
pub(crate) fn expiry_of(op: &Op<'_>) -> Option<u64> {
    let Op::Put { head, body, .. } = op else { return None };
    let stored = if head.is_empty() { body } else { head };
    Envelope::decode(stored)?.0.expires_at
}

/// An entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listing<'a> {
    pub(crate) time: u64,
    pub(crate) table_id: u64,
    pub(crate) key: &'a [u8],
}

impl<'a> Listing<'a> {
    /// Returns the entry of a put whose value expires.
    #[inline]
    pub(crate) fn of(table_id: u64, op: &Op<'a>) -> Option<Self> {
        let Op::Put { key, .. } = *op else { return None };
        expiry_of(op).map(|time| Self { time, table_id, key })
    }

    /// Returns the key of the entry in the index.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut entry = [&self.time.to_be_bytes(), &self.table_id.to_be_bytes(), self.key].concat();
        entry.truncate(ENTRY_BYTES_MAX);
        entry
    }

    /// Returns the suffix of a long key, which is in the value of the entry.
    fn rest(&self) -> Option<&'a [u8]> {
        self.key.get(ENTRY_BYTES_MAX - 16..)
    }

    /// Decodes the key of an entry. `None`: not an entry. For an entry of long keys, `key` is their
    /// common prefix.
    pub(crate) fn decode(entry: &'a [u8]) -> Option<Self> {
        let mut decoder = Decoder::new(entry);
        let (time, table_id) = (decoder.u64()?.swap_bytes(), decoder.u64()?.swap_bytes());
        let key = decoder.rest();
        (!key.is_empty()).then_some(Self { time, table_id, key })
    }

    /// Returns whether the index has the entry.
    pub(crate) fn is_in(&self, index: &TableState) -> Result<bool> {
        let value = index.engine.get(&self.encode())?;
        Ok(value
            .is_some_and(|value| self.rest().is_none_or(|rest| rests(&value).any(|it| it == rest))))
    }

    /// Adds the entry to the index, or removes it. The caller excludes other changes of long keys.
    fn change(&self, index: &TableState, lsn: Lsn, add: bool) -> Result<()> {
        let entry = self.encode();
        let Some(rest) = self.rest() else {
            let put = Op::Put { key: &entry, head: &[], body: &[] };
            let op = if add { put } else { Op::Delete { key: &entry } };
            return index.engine.apply(lsn, &op);
        };
        let before = index.engine.get(&entry)?;
        let mut after = Vec::new();
        let others = before.as_deref().into_iter().flat_map(rests).filter(|other| *other != rest);
        for rest in others.chain(add.then_some(rest)) {
            after.push(low_u8(to_u64(rest.len())));
            after.extend_from_slice(rest);
        }
        let put = Op::Put { key: &entry, head: &[], body: &after };
        let op = if after.is_empty() { Op::Delete { key: &entry } } else { put };
        index.engine.apply(lsn, &op)
    }
}

/// Returns the suffixes of long keys in the value of an entry.
pub(crate) fn rests(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut decoder = Decoder::new(value);
    std::iter::from_fn(move || {
        let length = decoder.u8()?;
        decoder.take(usize::from(length))
    })
}

/// Adds the entry of a replayed value if the index's files lack it.
pub(crate) fn replay(index: &TableState, listing: &Listing<'_>, lsn: Lsn) -> Result<()> {
    if lsn < index.persisted() {
        return Ok(());
    }
    listing.change(index, lsn, true)?;
    index.note_applied(Lsn(lsn.0 + 1));
    Ok(())
}

impl TableState {
    /// Returns the expiry of a key's stored value, whether or not it is visible.
    pub(crate) fn stored_expiry(&self, key: &[u8]) -> Result<Option<u64>> {
        let envelope = self.engine.get_with(key, &mut EnvelopeSink)?.flatten();
        Ok(envelope.and_then(|envelope| envelope.expires_at))
    }

    /// Returns the expiry of the value that a put is about to replace, if the new value expires
    /// too. A failed read counts as no expiry: the sweep removes the old entry when it is due. The
    /// caller holds the key's stripe.
    #[inline]
    pub(crate) fn replaced_expiry(&self, op: &Op<'_>) -> Option<u64> {
        let Op::Put { key, .. } = op else { return None };
        expiry_of(op)?;
        self.stored_expiry(key).unwrap_or_default()
    }
}

impl Core {
    /// Admits the entry of a put to the index, before the put is logged.
    #[inline]
    pub(crate) fn admit_expiry(&self, table: &TableState, op: &Op<'_>) -> Result<()> {
        match Listing::of(table.id, op) {
            None => Ok(()),
            Some(listing) => self.admit_listing(&listing),
        }
    }

    /// Reverses [`Core::admit_expiry`].
    pub(crate) fn retract_expiry(&self, table: &TableState, op: &Op<'_>) {
        if let (Some(listing), Some(index)) = (Listing::of(table.id, op), self.expiries.index()) {
            index.engine.cancel(&Op::Put { key: &listing.encode(), head: &[], body: &[] });
        }
    }

    fn admit_listing(&self, listing: &Listing<'_>) -> Result<()> {
        let index = match self.expiries.index() {
            Some(index) => index,
            None => &self.make_expiry_index()?,
        };
        self.check_usable(index)?;
        index.engine.admit(&Op::Put { key: &listing.encode(), head: &[], body: &[] })
    }

    fn make_expiry_index(&self) -> Result<Arc<TableState>> {
        let _making = lock(&self.expiries.making);
        if let Some(index) = self.expiries.index() {
            return Ok(Arc::clone(index));
        }
        let index = self.create_expiry_index(&index_options())?;
        Ok(Arc::clone(self.expiries.index.get_or_init(|| index)))
    }

    /// Adds the entry of a put whose value expires, and removes the entry of the value that it
    /// replaced. The caller holds the key's stripe and the ticket of the put's record.
    #[inline]
    pub(crate) fn list(
        &self,
        table: &TableState,
        appended: Appended,
        op: &Op<'_>,
        replaced: Option<u64>,
    ) -> Result<()> {
        let Some(listing) = Listing::of(table.id, op) else { return Ok(()) };
        let Some(index) = self.expiries.index() else { return Ok(()) };
        table.may_expire.store(true, Ordering::Release);
        if !mutant::active(Bug::ExpiryIndexNotNoted) {
            index.note_applied(appended.end);
        }
        self.change_listing(index, appended.lsn, &listing, true)?;
        if let Some(time) = replaced.filter(|time| *time != listing.time) {
            self.unlist(&Listing { time, ..listing })?;
        }
        self.wake_sweep_before(listing.time);
        Ok(())
    }

    /// Adds the entry of a value in a sorted load, before the load is adopted. The caller has
    /// admitted it, and persists the index before it adopts the load. If the load is discarded, the
    /// entry has no value.
    pub(crate) fn list_loaded(&self, table: &TableState, op: &Op<'_>) -> Result<()> {
        let Some(listing) = Listing::of(table.id, op) else { return Ok(()) };
        let Some(index) = self.expiries.index() else { return Ok(()) };
        table.may_expire.store(true, Ordering::Release);
        self.change_listing(index, self.log.end(), &listing, true)?;
        self.wake_sweep_before(listing.time);
        Ok(())
    }

    /// Removes an entry. The caller holds the key's stripe, and the value does not expire at that
    /// time.
    pub(crate) fn unlist(&self, listing: &Listing<'_>) -> Result<()> {
        let Some(index) = self.expiries.index() else { return Ok(()) };
        self.change_listing(index, self.log.end(), listing, false)
    }

    fn change_listing(
        &self,
        index: &TableState,
        lsn: Lsn,
        listing: &Listing<'_>,
        add: bool,
    ) -> Result<()> {
        let _long = listing.rest().map(|_| lock(&self.expiries.long));
        let outcome = listing.change(index, lsn, add);
        outcome.map_err(|error| self.stop_index(index, &error))
    }

    /// Removes an entry of a dropped table.
    pub(crate) fn forget_entry(&self, index: &TableState, entry: &[u8]) -> Result<()> {
        let outcome = index.engine.apply(self.log.end(), &Op::Delete { key: entry });
        outcome.map_err(|error| self.stop_index(index, &error))
    }

    /// Stops the index after a failed change. From then on every value that expires is refused.
    fn stop_index(&self, index: &TableState, error: &Error) -> Error {
        index.fail(error);
        Error::TableFailed { table: self.name_of(index), reason: error.to_string() }
    }

    /// Wakes the sweep if it would run after `time`.
    fn wake_sweep_before(&self, time: u64) {
        // The sweep stores when it runs next and then reads the index: one of the two sees the
        // other.
        if time < self.expiries.next_look.fetch_min(time, Ordering::SeqCst) {
            self.shared.jobs.wake(JobKind::Expire);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_pinned() {
        let listing = Listing { time: 0x0102, table_id: 7, key: b"key" };
        let bytes = b"\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x07key";
        assert_eq!(listing.encode(), bytes);
        assert_eq!(Listing::decode(bytes), Some(listing));
        assert_eq!(Listing::decode(&bytes[..16]), None);
        assert_eq!(Listing::decode(&bytes[..7]), None);
    }

    #[test]
    fn the_rests_of_long_keys_are_in_the_value() {
        let keys = [vec![7; ENTRY_BYTES_MAX - 16], vec![7; ENTRY_BYTES_MAX - 1]];
        let [at, over] = keys.each_ref().map(|key| Listing { time: 1, table_id: 2, key });
        assert_eq!(at.encode(), over.encode());
        assert_eq!(at.rest(), Some(&[][..]));
        assert_eq!(over.rest(), Some(&[7; 15][..]));
        let under = Listing { time: 1, table_id: 2, key: &keys[0][1..] };
        assert_eq!(under.rest(), None);
        assert!(under.encode().len() < ENTRY_BYTES_MAX);
        assert_eq!(rests(b"\0\x02ab\x01c").collect::<Vec<_>>(), [&b""[..], b"ab", b"c"]);
        assert_eq!(rests(b"").count(), 0);
    }

    #[test]
    fn only_puts_with_an_expiry_are_listed() {
        let expiring = Envelope { expires_at: Some(5), type_tag: None }.encode();
        let plain = Envelope::default().encode();
        let put = |head, body| Listing::of(3, &Op::Put { key: b"k", head, body });
        let listing = Some(Listing { time: 5, table_id: 3, key: b"k" });
        assert_eq!(put(expiring.as_slice(), b"value"), listing);
        // Replay has the envelope before the user's bytes.
        assert_eq!(put(&[], expiring.as_slice()), listing);
        assert_eq!(put(plain.as_slice(), expiring.as_slice()), None);
        assert_eq!(Listing::of(3, &Op::Delete { key: b"k" }), None);
    }
}
