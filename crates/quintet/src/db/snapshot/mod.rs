//! Reads of a snapshot: the engine's answer, corrected by the version store.
//!
//! The order of the two is the point. A write saves the earlier value before the engine applies it,
//! so a reader asks the engine first and [`versions`](crate::db::versions) afterwards. What the
//! engine answered holds if the key has no version for the snapshot then.
//!
//! | module | content |
//! |---|---|
//! | [`point`] | get, contains, multi-get; which keys were written since |
//! | [`range`] | entries of a range from both ends, and visits |
//! | [`peeked_ends`] | an iterator whose next entry can be looked at |
//! | [`scan`] | pages of a scan, each entry once |
//!
//! Invariants:
//! - A read first waits until the commits below the snapshot's LSN are applied. It checks last
//!   that the snapshot has not ended.
//! - Expiry is judged at the snapshot's own time.
//!
//! Locks: it takes none itself.

mod mutants;
pub(crate) mod peeked_ends;
mod point;
pub(crate) mod range;
mod scan;
