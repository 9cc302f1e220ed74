//! Expiry of values: the expiry index, which lists every value that expires by its expiry.
//!
//! A value carries its absolute expiry in its envelope and is invisible from that moment on. The
//! *expiry index* is one hidden `btree` table of the database that lists every such value, so that
//! the [sweep](crate::db::api::session::jobs) finds expired values without a scan of the others.
//! One index serves the whole database: an index for each table would cost each a page
//! cache and files, and the sweep a lookup in each. The price is that the sweep passes over the
//! whole index after a table was dropped.
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
//! A key of `btree` has at most 65,536 bytes. Keys of 65,520 bytes and more are cut. The value of
//! their entry holds the suffix of each key that begins with these bytes, each after a length byte.
//! All other entries have an empty value.
//!
//! The log does not hold the index. An entry follows from the envelope of the logged value: a put
//! adds it under the stripe of the key, and replay adds it again. Entries are removed without a
//! record. Replay, or an older state of the index's files, may restore them, and the sweep checks
//! the value of each entry. So a put without expiry costs one comparison. A put with an expiry logs
//! no additional byte. No crash separates value and entry.
//!
//! Invariants:
//! - Every stored value that expires has its entry. Entries without a value are allowed; the
//!   reverse is not (`Database::check` verifies it).
//! - An entry changes only under the stripe of its key, together with the value, except entries of
//!   dropped tables. It is in the index before the record's log ticket is dropped, so files that
//!   are complete past the record have it.
//! - A put that replaces a value's expiry removes the old entry. So a key that is put with a ttl
//!   many times has one entry. Plain puts and deletes leave the old entry, which the sweep removes
//!   when it is due.
//!
//! Start reading at [`index`].

pub(crate) mod entry;
pub(crate) mod index;

pub(crate) use entry::ExpiryEntry;
pub(crate) use index::ExpiryIndex;
