//! The two tables of one database. `tables.rs` has their layout.

use std::sync::atomic::{AtomicI64, Ordering};

use quintet::{Error, Table};

use crate::failure::Done;

/// Prefix of entries that list keys by expiry.
pub(crate) const EXPIRIES: [u8; 8] = 0_u64.to_be_bytes();
/// Prefix of entries that list dead versions.
pub(crate) const DEAD_VERSIONS: [u8; 8] = 1_u64.to_be_bytes();
/// Prefix of entries that list hashes by the earliest expiry of a field.
pub(crate) const FIELD_EXPIRIES: [u8; 8] = 2_u64.to_be_bytes();

/// The tables of one database.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Heads by key.
    pub(crate) keys: Table,
    /// Elements of large collections, expiries and dead versions.
    pub(crate) elements: Table,
    /// Number of heads. Expired keys count until they are swept.
    pub(crate) count: AtomicI64,
}

impl Tables {
    /// Whether there is no head and no element.
    pub(super) fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.count.load(Ordering::Acquire) == 0 && self.elements.is_empty()?)
    }

    /// Removes all entries. A crash between the two tables keeps elements without heads. No head
    /// refers to them, and the next start removes them.
    pub(super) fn clear(&self) -> Result<(), Error> {
        if self.is_empty()? {
            return Ok(());
        }
        self.keys.clear()?;
        self.elements.clear()
    }

    /// An estimate of the number of keys that expire.
    pub(crate) fn expiring(&self) -> u64 {
        let range = EXPIRIES.to_vec()..DEAD_VERSIONS.to_vec();
        self.elements.estimate_count(range).unwrap_or(0)
    }

    /// An estimate of the number of hashes whose fields expire.
    pub(crate) fn hashes_with_expiries(&self) -> u64 {
        let range = FIELD_EXPIRIES.to_vec()..3_u64.to_be_bytes().to_vec();
        self.elements.estimate_count(range).unwrap_or(0)
    }

    /// Whether a field of some hash expires.
    pub(crate) fn has_field_expiries(&self) -> Done<bool> {
        let mut is_found = false;
        let end = 3_u64.to_be_bytes().to_vec();
        self.elements.visit(FIELD_EXPIRIES.to_vec()..end, |_, _| {
            is_found = true;
            std::ops::ControlFlow::Break(())
        })?;
        Ok(is_found)
    }
}
