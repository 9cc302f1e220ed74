//! Values that go away: the clock that says when, and the index of what will.
//!
//! What: a value carries its absolute expiry in its envelope and is invisible from that moment on.
//! The *expiry index* is one hidden `btree` table of the database that lists every such value by
//! its time, so that [`sweep`](super::sweep) finds what has expired without looking at what has
//! not.
//! Why one for the database: a table for each table would cost each a page cache and files, and
//! the sweep a look at each. What it makes harder is dropping a table: its entries go in a pass
//! over the index ([`sweep`](super::sweep)).
//!
//! The index is made, and recorded in the catalog, before the first value that expires is logged;
//! a database without such values has none. An entry is a key of it:
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | time | when the value expires, milliseconds since 1970, big-endian |
//! | 8 | 8 | table | the table's number, big-endian |
//! | 16 | | key | the value's key, as far as it has room |
//!
//! A tree's key has at most 65,536 bytes. Of a key of 65,520 bytes and more, what is over is the
//! entry's value: for each key that begins with these bytes its rest, a length byte before it. All
//! other values are empty.
//!
//! Nothing of it is in the log. An entry follows from the envelope of the logged value: a put adds
//! it under the stripe of the key, and replay adds it again. Entries are removed without a record:
//! replay, or an older state of the index's files, may bring them back, and the sweep looks at the
//! value before it believes an entry. So a put without expiry pays one comparison, one with an
//! expiry logs not a byte more, and no crash can tear the two apart.
//!
//! Invariants:
//! - Every stored value that expires has its entry. There may be entries of values that are gone;
//!   never the other way round ([`check`](super::check) asks).
//! - An entry changes only under the stripe of its key, together with the value; those of dropped
//!   tables apart. It is in the index before the record's log ticket is dropped, so files that are
//!   complete past the record have it.
//! - A put that replaces a value's expiry removes the old entry: refreshing a key again and again
//!   leaves one entry. Plain puts and deletes do not look; what they leave behind goes when it is
//!   due.
//! - The clock never goes back while the database is open, so a value that was once invisible
//!   stays so.

use std::sync::Arc;

use super::{
    core::{Core, JobKind, TableState},
    envelope::{Envelope, EnvelopeSink},
};
use crate::{
    Error, Result,
    contract::{Engine as _, EngineKind, Op, TableOptions},
    io::Env,
    util::{
        codec::{Decoder, Lsn, low_u8, to_u64},
        mutant::{self, Bug},
        sync::{AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, lock},
    },
    wal::Appended,
};

/// Milliseconds since 1970 that never go back.
#[derive(Debug)]
pub(super) struct Clock {
    env: Arc<dyn Env>,
    latest: AtomicU64,
}

impl Clock {
    pub(super) fn new(env: Arc<dyn Env>) -> Self {
        Self { env, latest: AtomicU64::new(0) }
    }

    /// The time now.
    pub(super) fn now(&self) -> u64 {
        let now = self.env.unix_millis();
        let latest = self.latest.load(Ordering::Relaxed);
        if now <= latest {
            return latest;
        }
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

/// The options of the index: small pages, since most of them are written once and emptied once.
pub(super) fn index_options() -> TableOptions {
    let options = TableOptions::new(EngineKind::BTree);
    let options = options.set("page_bytes", "4096").set("extend_granularity", "256");
    // A model checker makes each word of a cache anew for each run.
    if cfg!(model) { options.set("cache_bytes", "1") } else { options }
}

/// The longest key of a tree.
const ENTRY_BYTES_MAX: usize = 1 << 16;

/// The index of an open database, and what the sweep is to do.
#[derive(Debug)]
pub(super) struct Expiries {
    index: OnceLock<Arc<TableState>>,
    /// Held while the index is made.
    making: Mutex<()>,
    /// Held while an entry of long keys changes: they may have different stripes.
    long: Mutex<()>,
    /// When the sweep looks again by itself: who lists an earlier time wakes it.
    pub(super) next_look: AtomicU64,
    /// A table with entries was dropped: they are to be removed.
    pub(super) purge_wanted: AtomicBool,
}

impl Expiries {
    /// With the index that the catalog knows of.
    pub(super) fn new(index: Option<Arc<TableState>>) -> Self {
        Self {
            index: index.map_or_else(OnceLock::new, OnceLock::from),
            making: Mutex::new(()),
            long: Mutex::new(()),
            next_look: AtomicU64::new(u64::MAX),
            purge_wanted: AtomicBool::new(false),
        }
    }

    /// The index, once there is one.
    #[inline]
    pub(super) fn index(&self) -> Option<&Arc<TableState>> {
        self.index.get()
    }

    /// Whether `table` is the index.
    pub(super) fn is_index(&self, table: &TableState) -> bool {
        self.index().is_some_and(|index| index.id == table.id)
    }
}

/// When the value of a put expires.
#[inline]
pub(super) fn expiry_of(op: &Op<'_>) -> Option<u64> {
    let Op::Put { head, body, .. } = op else { return None };
    let stored = if head.is_empty() { body } else { head };
    Envelope::decode(stored)?.0.expires_at
}

/// An entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listing<'a> {
    pub(super) time: u64,
    pub(super) table_id: u64,
    pub(super) key: &'a [u8],
}

impl<'a> Listing<'a> {
    /// That of a put whose value expires.
    #[inline]
    pub(super) fn of(table_id: u64, op: &Op<'a>) -> Option<Self> {
        let Op::Put { key, .. } = *op else { return None };
        expiry_of(op).map(|time| Self { time, table_id, key })
    }

    /// The entry's key.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut entry = [&self.time.to_be_bytes(), &self.table_id.to_be_bytes(), self.key].concat();
        entry.truncate(ENTRY_BYTES_MAX);
        entry
    }

    /// What of a long key is in the entry's value.
    fn rest(&self) -> Option<&'a [u8]> {
        self.key.get(ENTRY_BYTES_MAX - 16..)
    }

    /// `None`: not an entry. Of an entry of long keys, `key` is what they have in common.
    pub(super) fn decode(entry: &'a [u8]) -> Option<Self> {
        let mut decoder = Decoder::new(entry);
        let (time, table_id) = (decoder.u64()?.swap_bytes(), decoder.u64()?.swap_bytes());
        let key = decoder.rest();
        (!key.is_empty()).then_some(Self { time, table_id, key })
    }

    /// Whether the index has it.
    pub(super) fn is_in(&self, index: &TableState) -> Result<bool> {
        let value = index.engine.get(&self.encode())?;
        Ok(value
            .is_some_and(|value| self.rest().is_none_or(|rest| rests(&value).any(|it| it == rest))))
    }

    /// Adds it to the index, or removes it. Changes of long keys' entries exclude one another.
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

/// What the value of an entry says of long keys.
pub(super) fn rests(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut decoder = Decoder::new(value);
    std::iter::from_fn(move || {
        let length = decoder.u8()?;
        decoder.take(usize::from(length))
    })
}

/// Lists a replayed value where the index's files lack it.
pub(super) fn replay(index: &TableState, listing: &Listing<'_>, lsn: Lsn) -> Result<()> {
    if lsn < index.persisted() {
        return Ok(());
    }
    listing.change(index, lsn, true)?;
    index.note_applied(Lsn(lsn.0 + 1));
    Ok(())
}

impl TableState {
    /// When a key's stored value expires, visible or not.
    pub(super) fn stored_expiry(&self, key: &[u8]) -> Result<Option<u64>> {
        let envelope = self.engine.get_with(key, &mut EnvelopeSink)?.flatten();
        Ok(envelope.and_then(|envelope| envelope.expires_at))
    }

    /// When the value that a put is about to replace expires, if the new one does. Unknown is as
    /// good as never: its entry goes when it is due. The caller holds the key's stripe.
    #[inline]
    pub(super) fn replaced_expiry(&self, op: &Op<'_>) -> Option<u64> {
        let Op::Put { key, .. } = op else { return None };
        expiry_of(op)?;
        self.stored_expiry(key).unwrap_or_default()
    }
}

impl Core {
    /// Before a put is logged: has the index take what it will list.
    #[inline]
    pub(super) fn admit_expiry(&self, table: &TableState, op: &Op<'_>) -> Result<()> {
        match Listing::of(table.id, op) {
            None => Ok(()),
            Some(listing) => self.admit_listing(&listing),
        }
    }

    /// Takes back [`Core::admit_expiry`].
    pub(super) fn retract_expiry(&self, table: &TableState, op: &Op<'_>) {
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

    /// Lists a put whose value expires, in place of the one that it replaced. The caller holds the
    /// key's stripe and the ticket of the put's record.
    #[inline]
    pub(super) fn list(
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

    /// Lists what a sorted load brings: before it is adopted, and so before its table holds it. The
    /// caller has admitted it, and persists the index before the load is adopted; what of it then
    /// never comes is an entry of nothing.
    pub(super) fn list_loaded(&self, table: &TableState, op: &Op<'_>) -> Result<()> {
        let Some(listing) = Listing::of(table.id, op) else { return Ok(()) };
        let Some(index) = self.expiries.index() else { return Ok(()) };
        table.may_expire.store(true, Ordering::Release);
        self.change_listing(index, self.log.end(), &listing, true)?;
        self.wake_sweep_before(listing.time);
        Ok(())
    }

    /// Removes an entry. The caller holds the key's stripe, and the value does not expire then.
    pub(super) fn unlist(&self, listing: &Listing<'_>) -> Result<()> {
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

    /// Removes an entry of a table that is gone.
    pub(super) fn forget_entry(&self, index: &TableState, entry: &[u8]) -> Result<()> {
        let outcome = index.engine.apply(self.log.end(), &Op::Delete { key: entry });
        outcome.map_err(|error| self.stop_index(index, &error))
    }

    /// A change that failed stops the index: from then on no value that expires is taken.
    fn stop_index(&self, index: &TableState, error: &Error) -> Error {
        index.fail(error);
        Error::TableFailed { table: self.name_of(index), reason: error.to_string() }
    }

    /// Wakes the sweep if it would come too late.
    fn wake_sweep_before(&self, time: u64) {
        // The sweep stores when it will look and then looks: one of the two sees the other.
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
