//! Large values of a table: stored, read and dropped.
//!
//! The entry of such a key holds a [`LargeRef`]. The value is in memory, in its own file range, or
//! both.

use std::sync::Arc;

use super::{
    entry::{EntryHead, EntryKind, LargeRef, UNIT_BYTES},
    files::{EXTENT_HEAD_BYTES, ExtentHead, FileRange, LARGE_MAGIC},
    large_value::{LargeState, LargeValue},
    pack::unpack_value,
    table::HashLog,
};
use crate::{
    Result,
    contract::Value,
    util::{
        codec::{Lsn, crc32c, to_u64, to_usize},
        sync::{AtomicBool, Mutex, Ordering, lock, read, write},
    },
};

impl HashLog {
    pub(super) fn put_large(&self, lsn: Lsn, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let length = value[0].len() + value[1].len();
        let number = self.next_large.fetch_add(1, Ordering::Relaxed);
        self.counters.live_bytes.fetch_add(to_u64(length), Ordering::Relaxed);
        let budget = &self.context.budget;
        let is_short = budget.used() + to_u64(length) > budget.limit();
        let written = is_short && self.write_large_at_once(number, lsn, value);
        if !written {
            self.keep_large(number, lsn, value);
        }
        let reference = LargeRef { number, bytes: to_u64(length) }.encode();
        let value_bytes = reference.len();
        let head =
            EntryHead { kind: EntryKind::Large, key_bytes: key.len(), value_bytes, lsn: lsn.0 };
        self.counters.unflushed_units.fetch_add(to_u64(length / UNIT_BYTES), Ordering::Relaxed);
        self.put_entry(head, key, [&reference, &[]])
    }

    /// Keeps a large value in memory until a flush writes it.
    fn keep_large(&self, number: u64, lsn: Lsn, value: [&[u8]; 2]) {
        let length = value[0].len() + value[1].len();
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
        if let Some(out) = Arc::get_mut(&mut bytes) {
            let (front, back) = out.split_at_mut(value[0].len());
            front.copy_from_slice(value[0]);
            back.copy_from_slice(value[1]);
        }
        self.context.budget.reserve_unchecked(to_u64(length));
        let large = Arc::new(LargeValue {
            number,
            lsn: lsn.0,
            length: to_u64(length),
            state: Mutex::new(LargeState { bytes: Some(bytes), ..LargeState::default() }),
            written: AtomicBool::new(false),
        });
        write(&self.larges).insert(number, large);
    }

    pub(super) fn discard_large(&self, value: &[&[u8]; 2]) {
        if let Some(large) = LargeRef::decode(value[0]) {
            self.counters.live_bytes.fetch_sub(large.bytes, Ordering::Relaxed);
            self.drop_large(large.number);
        }
    }

    /// Drops a large value that no frozen entry names. It frees the memory now, and a file range
    /// with the next checkpoint.
    pub(super) fn drop_large(&self, number: u64) {
        let Some(large) = read(&self.larges).get(&number).cloned() else { return };
        let mut state = lock(&large.state);
        if state.file_range.is_some() {
            // A flush has started to write it: the next checkpoint frees its file range.
            lock(&self.dead_larges).push(number);
        } else if let Some(bytes) = state.bytes.take() {
            self.context.budget.release(to_u64(bytes.len()));
            drop(write(&self.larges).remove(&number));
        }
    }

    /// Removes a large value from the table and releases its memory.
    pub(super) fn remove_large(&self, number: u64) -> Option<Arc<LargeValue>> {
        let large = write(&self.larges).remove(&number)?;
        if let Some(bytes) = lock(&large.state).bytes.take() {
            self.context.budget.release(to_u64(bytes.len()));
        }
        Some(large)
    }

    /// Returns a large value; `None` if it was dropped.
    pub(super) fn read_large(&self, large: LargeRef) -> Result<Option<Value>> {
        let found = read(&self.larges).get(&large.number).cloned();
        let Some(found) = found else { return Ok(None) };
        let (bytes, file_range) = {
            let state = lock(&found.state);
            (state.bytes.clone(), state.file_range.clone())
        };
        if let Some(bytes) = bytes {
            return Ok(Some(Value::shared(bytes)));
        }
        let Some(file_range) = file_range else { return Ok(None) };
        self.counters.cold_reads_total.fetch_add(1, Ordering::Relaxed);
        match self.read_large_at(&found, &file_range) {
            Ok(value) => Ok(Some(value)),
            Err(_) if !read(&self.larges).contains_key(&large.number) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads and verifies a large value at `file_range`. Fails with `Corruption` if it is damaged.
    pub(super) fn read_large_at(
        &self,
        large: &LargeValue,
        file_range: &FileRange,
    ) -> Result<Value> {
        let length = to_usize(large.length);
        let whole = EXTENT_HEAD_BYTES + length;
        let (buffer, skip) = file_range.read(0, whole.min(to_usize(file_range.bytes)))?;
        let bytes = buffer.as_slice().get(skip..).unwrap_or(&[]);
        let head = ExtentHead::decode(bytes, LARGE_MAGIC, &self.owner)
            .map_err(|what| file_range.damage(0, what))?;
        let packed = usize::try_from(head.packing).unwrap_or(usize::MAX);
        let stored = if packed == 0 { length } else { packed };
        let Some(stored) = bytes.get(EXTENT_HEAD_BYTES..).and_then(|rest| rest.get(..stored))
        else {
            return Err(file_range.damage(0, "the large value is longer than its file range"));
        };
        if head.serial != large.number || head.capacity != large.length {
            return Err(file_range.damage(0, "the file range holds another large value"));
        }
        if crc32c(stored) != head.body_crc {
            return Err(file_range.damage(0, "the checksum of the large value does not match"));
        }
        if packed == 0 {
            return Ok(Value::fill_with(length, |out| out.copy_from_slice(stored)));
        }
        let mut unpacks = None;
        let value = Value::fill_with(length, |out| unpacks = unpack_value(stored, out));
        unpacks.ok_or_else(|| file_range.damage(0, "the large value does not decompress"))?;
        Ok(value)
    }
}
