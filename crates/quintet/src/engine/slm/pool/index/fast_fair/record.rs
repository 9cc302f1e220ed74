//! Records: a whole key and its word, outside the nodes.

use std::cmp;

use super::FairTree;
use crate::{
    Error, Result,
    util::{
        codec::{crc32c, low_u8, to_u64, to_usize, widen},
        mutant::mutant,
        words::{compare_at, copy_out, equals},
    },
};

const MARK: u64 = 0x4b;
pub(super) const VALUE: u64 = 8;
const KEY: u64 = 16;
/// Maximum bytes of a key: its length has 24 bits.
const KEY_BYTES_MAX: usize = 0xff_ffff;

/// Returns the head of a record without the checksum.
fn head_of(key_bytes: usize) -> u64 {
    let length = to_u64(key_bytes);
    length & 0xffff | MARK << 16 | length >> 16 << 24
}

/// Returns the length of the key that a head tells.
fn length_of(head: u64) -> usize {
    to_usize(head & 0xffff | (head >> 24 & 0xff) << 16)
}

impl FairTree {
    /// Writes a record that nothing links to yet, and flushes it. The caller must fence. Fails with
    /// [`Error::Limit`] on empty or long keys.
    pub(super) fn write_record(&self, key: &[u8], value: u64) -> Result<u64> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Error::Limit { what: format!("a key of {} bytes", key.len()) });
        }
        let bytes = KEY + to_u64(key.len().next_multiple_of(8));
        let at = self.pool.alloc(bytes)?;
        self.pool.store(at, head_of(key.len()) | widen(crc32c(key)) << 32);
        self.pool.store(at + VALUE, value);
        self.pool.store_bytes(at + KEY, &[key]);
        mutant!(FairSkipsRecord => return Ok(at));
        self.pool.flush(at, bytes);
        Ok(at)
    }

    fn key_bytes(&self, record: u64) -> Result<usize> {
        let head = self.pool.load(record);
        if low_u8(head >> 16) == low_u8(MARK) {
            Ok(length_of(head))
        } else {
            Err(self.pool.damage(record, "a link of the index does not point to a record"))
        }
    }

    /// Compares a record's key with `key`.
    #[inline]
    pub(super) fn compare_key(&self, record: u64, key: &[u8]) -> Result<cmp::Ordering> {
        let length = self.key_bytes(record)?;
        Ok(compare_at(self.pool.words(record + KEY), (0, length), key))
    }

    /// Whether a record is at this offset and has this key.
    #[inline]
    pub(super) fn has_key(&self, record: u64, key: &[u8]) -> bool {
        let head = self.pool.load(record);
        length_of(head) == key.len()
            && low_u8(head >> 16) == low_u8(MARK)
            && equals(self.pool.words(record + KEY), key)
    }

    /// Returns a record's key. Fails with [`Error::Corruption`] if its checksum is wrong.
    pub(super) fn read_key(&self, record: u64) -> Result<Vec<u8>> {
        let length = self.key_bytes(record)?;
        if self.pool.words(record + KEY).len() * 8 < length {
            return Err(self.pool.damage(record, "a key is not within the pool"));
        }
        let mut key = vec![0; length];
        copy_out(self.pool.words(record + KEY), 0, &mut key);
        if widen(crc32c(&key)) == self.pool.load(record) >> 32 {
            Ok(key)
        } else {
            Err(self.pool.damage(record, "a key's checksum is wrong"))
        }
    }
}
