//! An open file of versions.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use super::{
    block::{self, HEAD_BYTES, VersionEntry},
    fences::BlockFences,
    file_name::{FileName, VERSIONS_NAME},
    filter::VersionFilter,
};
use crate::{
    Error, Result,
    contract::Value,
    db::versions::version_key::{VersionKey, half_of_hash},
    io::{File, read_exact_at},
    lsm::block_cache::{BlockCache, BlockHandles},
    util::{
        budget::Budget,
        codec::{Lsn, low_u32, to_u64, to_usize},
        mutant::mutant,
        words::{WORD_BYTES, copy_out},
    },
};

/// What a [`VersionFile`] consists of.
#[derive(Debug)]
pub(super) struct FileParts {
    pub(super) name: FileName,
    pub(super) file: Arc<dyn File>,
    pub(super) number: u64,
    pub(super) fences: BlockFences,
    pub(super) filter: VersionFilter,
    /// The highest LSN at which a version of the file was replaced.
    pub(super) last: Lsn,
    pub(super) versions: u64,
    pub(super) bytes: u64,
    pub(super) cache: Arc<BlockCache>,
    pub(super) budget: Arc<Budget>,
}

/// A file of versions. See the module head of [`super`].
#[derive(Debug)]
pub(in crate::db::versions) struct VersionFile {
    // Before the rest: it frees the cached blocks.
    handles: BlockHandles,
    parts: FileParts,
    /// Bytes reserved in the budget for fences and filter.
    charged: u64,
}

/// Copies a stored value.
fn owned(value: Option<&[u8]>) -> Option<Value> {
    value.map(|value| Value::fill_with(value.len(), |out| out.copy_from_slice(value)))
}

impl VersionFile {
    pub(super) fn new(parts: FileParts) -> Self {
        let charged = parts.fences.memory_bytes() + parts.filter.memory_bytes();
        parts.budget.reserve_unchecked(charged);
        let blocks = low_u32(to_u64(parts.fences.len()));
        let handles = BlockHandles::new(&parts.cache, parts.number << 32).with_count(blocks);
        Self { handles, parts, charged }
    }

    /// Returns whether a version in it was replaced at `lsn` or later.
    pub(in crate::db::versions) fn reaches(&self, lsn: Lsn) -> bool {
        self.parts.last >= lsn
    }

    /// Returns the bytes of memory of its filter and its fences.
    pub(in crate::db::versions) fn memory_bytes(&self) -> u64 {
        self.charged
    }

    /// Returns its bytes on disk.
    pub(in crate::db::versions) fn file_bytes(&self) -> u64 {
        self.parts.bytes
    }

    /// Returns the number of its versions.
    pub(in crate::db::versions) fn versions(&self) -> u64 {
        self.parts.versions
    }

    /// Returns the number of its blocks.
    pub(super) fn blocks(&self) -> usize {
        self.parts.fences.len()
    }

    /// Returns the file offsets of some blocks.
    pub(super) fn span(&self, blocks: Range<usize>) -> Range<u64> {
        self.parts.fences.span(blocks)
    }

    /// Returns the error for a block that is damaged.
    pub(super) fn damage(&self, offset: u64) -> Error {
        let file = format!("{VERSIONS_NAME}/{}", self.parts.name.name);
        Error::corruption(file, offset, "a block of versions is not as it was written")
    }

    /// Reads bytes of the file.
    pub(super) fn read(&self, span: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        out.resize(to_usize(span.end.saturating_sub(span.start)), 0);
        read_exact_at(&*self.parts.file, out, span.start).map_err(|error| {
            Error::io(format!("read {VERSIONS_NAME}/{}", self.parts.name.name), error)
        })
    }

    /// Fails with `Corruption` unless `block`, which was read at `offset`, is as it was written.
    pub(super) fn verify(&self, block: &[u8], offset: u64) -> Result<()> {
        let is_sound = mutant!(VersionBlockNotVerified: true, else block::is_sound(block));
        if is_sound { Ok(()) } else { Err(self.damage(offset)) }
    }

    /// Returns a block, from the cache or from disk.
    fn block(&self, number: usize) -> Result<Vec<u8>> {
        let FileParts { fences, cache, .. } = &self.parts;
        let slot = self.handles.get(low_u32(to_u64(number)));
        let cached = slot.and_then(|slot| {
            cache.read(slot, |words| {
                let mut head = [0; HEAD_BYTES];
                copy_out(words, 0, &mut head);
                // While the frame changes the length may be any; the result is discarded then.
                let length = block::length_of(head).min(words.len() * WORD_BYTES);
                let mut block = vec![0; length];
                copy_out(words, 0, &mut block);
                block
            })
        });
        if let Some(block) = cached {
            return Ok(block);
        }
        let span = fences.span(number..number + 1);
        let mut block = Vec::new();
        self.read(span.clone(), &mut block)?;
        self.verify(&block, span.start)?;
        if let Some(slot) = slot {
            cache.fill(slot, &[&block]);
        }
        Ok(block)
    }

    /// Calls `each` with the entries of a block, until it breaks off.
    fn visit_block<T>(
        &self,
        number: usize,
        mut each: impl FnMut(&VersionEntry<'_>) -> ControlFlow<T>,
    ) -> Result<ControlFlow<T>> {
        let block = self.block(number)?;
        let mut decoder = block::entries(&block);
        while !decoder.is_empty() {
            let entry = VersionEntry::decode(&mut decoder)
                .ok_or_else(|| self.damage(self.span(number..number).start))?;
            if let ControlFlow::Break(found) = each(&entry) {
                return Ok(ControlFlow::Break(found));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Calls `each` with the entries whose key is not below `key`, until it breaks off.
    fn visit_from<T>(
        &self,
        key: &[u8],
        mut each: impl FnMut(&VersionEntry<'_>) -> ControlFlow<T>,
    ) -> Result<Option<T>> {
        for number in self.parts.fences.seek(key)..self.blocks() {
            let flow = self.visit_block(number, |entry| {
                if *entry.key < *key { ControlFlow::Continue(()) } else { each(entry) }
            })?;
            if let ControlFlow::Break(found) = flow {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns what `found` makes of the oldest version of the key that was replaced at `lsn` or
    /// later.
    fn find<T>(
        &self,
        key: &VersionKey,
        lsn: Lsn,
        found: impl Fn(&VersionEntry<'_>) -> T,
    ) -> Result<Option<T>> {
        if !self.parts.filter.may_have(half_of_hash(key.hash)) {
            return Ok(None);
        }
        let found = self.visit_from(&key.bytes, |entry| {
            if *entry.key != *key.bytes {
                ControlFlow::Break(None)
            } else if entry.lsn >= lsn {
                ControlFlow::Break(Some(found(entry)))
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(found.flatten())
    }

    /// Returns whether the key has a version that was replaced at `lsn` or later.
    pub(in crate::db::versions) fn has_since(&self, key: &VersionKey, lsn: Lsn) -> Result<bool> {
        Ok(self.find(key, lsn, |_| ())?.is_some())
    }

    /// Returns the oldest version of the key that was replaced at `lsn` or later: the LSN of the
    /// write that replaced it, and the value, if there was one.
    pub(in crate::db::versions) fn oldest_since(
        &self,
        key: &VersionKey,
        lsn: Lsn,
    ) -> Result<Option<(Lsn, Option<Value>)>> {
        self.find(key, lsn, |entry| (entry.lsn, owned(entry.value)))
    }

    /// Copies the first encoded key that is not below `start` to `out`. Returns whether there is
    /// one.
    pub(in crate::db::versions) fn first_key(
        &self,
        start: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let found = self.visit_from(start, |entry| {
            out.clear();
            out.extend_from_slice(entry.key);
            ControlFlow::Break(())
        })?;
        Ok(found.is_some())
    }

    /// Copies the last encoded key below `end` to `out`. Returns whether there is one.
    pub(in crate::db::versions) fn last_key(&self, end: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        // The keys of the last of these blocks may all be above `end`, because fences are short.
        for number in (0..self.parts.fences.count_below(end)).rev() {
            let mut is_found = false;
            let _ = self.visit_block(number, |entry| {
                if *entry.key >= *end {
                    return ControlFlow::Break(());
                }
                out.clear();
                out.extend_from_slice(entry.key);
                is_found = true;
                ControlFlow::Continue(())
            })?;
            if is_found {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for VersionFile {
    fn drop(&mut self) {
        self.parts.budget.release(self.charged);
    }
}
