//! Stores checkpoints in the journal, and decides which of them write pages back.
//!
//! | file | what |
//! |---|---|
//! | `pages` | the table's pages: meta page 0 ([`super::meta`]), maps, nodes, extents |
//! | `redo-...` | the journal ([`crate::journal::redo`]): groups of pieces, one for each page |
//!
//! A checkpoint is stored in this order:
//! - The log is synced.
//! - Pages that no durable checkpoint has are written whole to their place, and synced together
//!   with values that were written directly.
//! - The group of all other changes is committed to the journal. From here on the table is complete
//!   to the checkpoint's LSN.
//!
//! Most checkpoints end here: their pages stay in the cache, and the journal keeps their groups.
//!
//! When the journal reaches its limit, or too many pages are unevictable, checkpoints also write
//! pages back and sync them, the oldest first. Each page is written once for all checkpoints since
//! its last write-back. On a disk that is nearly full, each checkpoint writes all pages back, so
//! the journal stays small. Many pages are written in parts, so that a thread that waits for room
//! waits for one part. The next group declares unneeded the groups before the oldest page that is
//! not written back. When everything is written back, the meta page says so.
//!
//! Each group names the pages that are free at its checkpoint. Changes of them in earlier groups
//! must not be applied, because a value may have been written there since.
//!
//! A checkpoint that fails is abandoned: its pages belong to the next one, whole. If the disk was
//! full, its group is taken back durably. Otherwise a crash may leave it, so the pages that it was
//! the first to have go to the next group, whole too.

use super::{
    checkpointer::Checkpointer,
    meta::Meta,
    paged_tree::{PagedTree, SHORT_JOURNAL_BYTES},
    write_back::runs,
};
use crate::{
    Error, Result,
    bptree::{
        node::MAP,
        page_allocator::{CheckpointEnd, MAP_HEAD_BYTES, is_set},
        page_cache::{CacheCheckpoint, PageCache, PageId, checksum, page_bytes::UNITS},
    },
    io::{AlignedBuffer, write_all_at},
    journal::redo::page_patches::{WRITER_BYTES, append_patch},
    util::{
        codec::{Lsn, to_u64, to_usize},
        mutant::mutant,
        sync::Ordering,
    },
};

/// Minimum size of the journal, in bytes, before its pages are written back.
const JOURNAL_MIN_BYTES: u64 = 64 << 20;
/// Maximum number of pages that one checkpoint writes back. Up to a sixteenth of it is written back
/// at once: each checkpoint journals what changed since the previous one, so small checkpoints
/// would journal more than they write back.
const WRITE_BACK_PAGES_MAX: usize = 1 << 20;
/// When too many pages are not written back, one in this many is, and at least that sixteenth.
const WRITE_BACK_SHARE: u64 = 4;
/// The minimum while nearly all pages are in the cache: one that is written back there is soon
/// changed again.
const WRITE_BACK_PAGES_MIN: u64 = 256;
/// Number of pages of the overlay that are read at once.
const OVERLAY_BATCH: usize = 256;

impl PagedTree {
    /// Makes everything applied so far durable; the files are then complete to `lsn`.
    pub(crate) fn store_checkpoint(&self, checkpointer: &mut Checkpointer, lsn: Lsn) -> Result<()> {
        if self.is_overlay_too_large() {
            return self.write_back_overlay(checkpointer, lsn);
        }
        if self.lacks_space() {
            return self.write_back_journal(checkpointer, lsn);
        }
        let full = checkpointer.redo.live_bytes() > self.journal_limit();
        if full || self.is_crowded() {
            return self.write_back_oldest(checkpointer, lsn);
        }
        self.store_once(checkpointer, lsn, 0)
    }

    /// As [`PagedTree::store_checkpoint`], and writes back a part of what is only in the journal.
    pub(crate) fn write_back_oldest(
        &self,
        checkpointer: &mut Checkpointer,
        lsn: Lsn,
    ) -> Result<()> {
        let cache = self.tree.cache();
        if cache.has_overlay() {
            return self.write_back_all(checkpointer, lsn);
        }
        self.ensure_file()?;
        let unevictable = cache.pending_writeback_count().max(cache.unevictable_count());
        let least = if self.holds_most_pages() {
            WRITE_BACK_PAGES_MIN
        } else {
            to_u64(WRITE_BACK_PAGES_MAX / 16)
        };
        let mut left = to_usize((unevictable / WRITE_BACK_SHARE).max(least));
        while left > 0 {
            let count = left.min(WRITE_BACK_PAGES_MAX);
            self.store_once(checkpointer, lsn, count)?;
            left -= count;
        }
        self.end_long_journal(checkpointer, lsn)
    }

    /// Ends a journal that recovery does not need, on a full disk, so that its files can be
    /// removed. Without space for a group in a new file, it stays.
    fn end_long_journal(&self, checkpointer: &mut Checkpointer, lsn: Lsn) -> Result<()> {
        let is_needed = checkpointer.written_back != checkpointer.redo.newest();
        if !self.lacks_space() || is_needed || checkpointer.journal_bytes() <= SHORT_JOURNAL_BYTES {
            return Ok(());
        }
        mutant!(FullDiskKeepsJournal => return Ok(()));
        match self.end_journal(checkpointer, lsn) {
            Err(Error::DiskFull { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// As [`PagedTree::store_checkpoint`], and writes back everything that is only in the journal.
    pub(crate) fn write_back_all(&self, checkpointer: &mut Checkpointer, lsn: Lsn) -> Result<()> {
        loop {
            self.write_back_overlay(checkpointer, lsn)?;
            if !self.tree.cache().has_overlay() {
                return Ok(());
            }
        }
    }

    /// As [`PagedTree::store_checkpoint`], and writes back what is only in the journal. Of the
    /// overlay it takes only as many pages as the cache has room for.
    fn write_back_overlay(&self, checkpointer: &mut Checkpointer, lsn: Lsn) -> Result<()> {
        self.ensure_file()?;
        let cache = self.tree.cache();
        let most = self.unevictable_limit() / 2;
        loop {
            let room = to_usize(most.saturating_sub(cache.unevictable_count()));
            let pages = cache.pages_in_overlay(room.clamp(1, OVERLAY_BATCH));
            cache.load_many(&pages);
            pages.iter().try_for_each(|page| cache.move_from_overlay(*page))?;
            if pages.is_empty() || cache.unevictable_count() >= most {
                break;
            }
        }
        self.store_once(checkpointer, lsn, usize::MAX)
    }

    /// Returns the size of the journal, in bytes, above which pages are written back.
    fn journal_limit(&self) -> u64 {
        let pages = self.tree.allocator().used() * to_u64(self.tree.shape().page_bytes);
        (pages / 2).min(self.context.budget.limit() / 8).max(JOURNAL_MIN_BYTES)
    }

    /// Takes and stores a checkpoint, and writes back this many pages.
    pub(super) fn store_once(
        &self,
        checkpointer: &mut Checkpointer,
        lsn: Lsn,
        written_back: usize,
    ) -> Result<()> {
        self.ensure_file()?;
        let checkpoint = self.begin_checkpoint(lsn, checkpointer.next_group(), written_back);
        self.store_begun(checkpointer, lsn, checkpoint)
    }

    /// Stores a checkpoint that was taken, and ends or abandons it.
    pub(super) fn store_begun(
        &self,
        checkpointer: &mut Checkpointer,
        lsn: Lsn,
        checkpoint: Result<CacheCheckpoint>,
    ) -> Result<()> {
        let cache = self.tree.cache();
        let checkpoint = match checkpoint {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                self.tree.allocator().end_checkpoint(CheckpointEnd::Revoked);
                return Err(error);
            }
        };
        let earlier = (checkpointer.in_doubt, checkpointer.redo.newest());
        checkpointer.in_doubt = true;
        let stored = self.write_checkpoint(checkpointer, &checkpoint, lsn);
        self.note_space(checkpointer.redo.lacks_space());
        let end = match &stored {
            Ok(()) => CheckpointEnd::Durable,
            Err(error) => checkpointer.revoke(error, earlier),
        };
        self.tree.allocator().end_checkpoint(end);
        if let Some(participant) = self.participant.as_ref().filter(|_| stored.is_ok()) {
            participant.on_durable();
        }
        match stored {
            Ok(()) => {
                checkpointer.in_doubt = false;
                self.journal_bytes_to_write_back
                    .store(checkpointer.redo.live_bytes(), Ordering::Relaxed);
                cache.finish(checkpoint);
                self.checkpoints_total.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                cache.abandon(checkpoint);
                Err(error)
            }
        }
    }

    /// Takes a checkpoint: closes the gate and makes all dirty pages, and `written_back` pages that
    /// are not written back, part of it. `group` is the journal's next group.
    pub(crate) fn begin_checkpoint(
        &self,
        lsn: Lsn,
        group: u64,
        written_back: usize,
    ) -> Result<CacheCheckpoint> {
        let (cache, allocator) = (self.tree.cache(), self.tree.allocator());
        let _closed = self.gate.close();
        if let Some(participant) = &self.participant {
            self.gate.add(participant.join(&self.tree)?);
        }
        for (page, bits) in allocator.begin_checkpoint() {
            let guard = cache.create(page)?;
            let edit = guard.edit();
            edit.put_bytes(8, &[MAP]);
            for (index, word) in bits.iter().enumerate() {
                edit.put_word(MAP_HEAD_BYTES / 8 + index, *word);
            }
        }
        let guard = cache.create(PageId(0))?;
        guard.edit().put_page(&self.meta(lsn, 0).encode());
        drop(guard);
        let mut joined = Vec::new();
        if written_back > 0 {
            let used = allocator.used_at_checkpoint();
            joined =
                cache.join_pending_writeback(written_back, |page| is_set(&used, u64::from(page.0)));
        }
        Ok(cache.begin_checkpoint(group, joined).with_fresh(allocator.fresh_at_checkpoint()))
    }

    fn meta(&self, lsn: Lsn, written_back: u64) -> Meta {
        let (keys, bytes) = self.gate.counts();
        Meta {
            packs: self.tree.shape().value_bytes > 0,
            page_bytes: self.tree.cache().page_bytes(),
            database_id: self.context.database_id,
            table_id: self.context.table_id,
            lsn,
            granularity: self.tree.allocator().granularity(),
            end: self.tree.allocator().end(),
            keys,
            bytes,
            leaves: self.tree.leaf_pages(),
            inner: self.tree.inner_pages(),
            written_back,
        }
    }

    pub(crate) fn write_checkpoint(
        &self,
        checkpointer: &mut Checkpointer,
        checkpoint: &CacheCheckpoint,
        lsn: Lsn,
    ) -> Result<()> {
        let cache = self.tree.cache();
        mutant!(CutSkipsLogSync: (), else self.context.host.sync_log()?);
        self.participant.as_ref().map_or(Ok(()), |participant| participant.make_durable())?;
        let mut pages = checkpoint.pages().to_vec();
        pages.sort_unstable();
        pages.dedup();
        let (fresh, mut pages): (Vec<_>, Vec<_>) =
            pages.into_iter().partition(|(page, _)| checkpoint.is_fresh(*page));
        self.write_fresh_pages(checkpoint, &fresh)?;
        if self.tree.allocator().take_direct_write_flag() || !fresh.is_empty() {
            sync(cache)?;
        }
        mutant!(CutWritesInPlaceFirst => self.write_back_pages(checkpoint, &pages)?);
        let (sequence, group_bytes) = self.journal(checkpointer, (checkpoint, &pages), lsn)?;
        self.written_bytes_total.fetch_add(group_bytes, Ordering::Relaxed);
        self.journaled_bytes_total.fetch_add(group_bytes, Ordering::Relaxed);
        checkpointer.complete = lsn;
        if checkpoint.writeback_count() == 0 {
            return Ok(());
        }
        pages.retain(|(_, frame)| checkpoint.is_to_write_back(*frame));
        self.write_back_pages(checkpoint, &pages)?;
        sync(cache)?;
        if cache.has_overlay() {
            return Ok(());
        }
        if let Some(group) = cache.oldest_pending_group() {
            checkpointer.written_back = checkpointer.written_back.max(group.saturating_sub(1));
        } else {
            checkpointer.written_back = sequence;
            self.record_write_back(checkpoint, sequence)?;
        }
        Ok(())
    }

    /// Commits a journal group: the changes of a checkpoint, and the pages that are free at it.
    /// Returns the group's number and its size in bytes.
    fn journal(
        &self,
        checkpointer: &mut Checkpointer,
        (checkpoint, pages): (&CacheCheckpoint, &[(PageId, u32)]),
        lsn: Lsn,
    ) -> Result<(u64, u64)> {
        let cache = self.tree.cache();
        let _memory = self.context.budget.reserve_transient(WRITER_BYTES);
        let needed = checkpointer.written_back + 1;
        let mut writer = checkpointer.redo.begin_page_group(&*self.context.env)?;
        let mut freed = self.tree.allocator().freed_at_checkpoint().into_iter().peekable();
        let unit = cache.page_bytes() / UNITS;
        let (mut image, mut piece) = (vec![0; cache.page_bytes()], Vec::new());
        for (page, frame) in pages {
            while let Some(freed) = freed.next_if(|freed| freed <= page) {
                writer.add_page(u64::from(freed.0), &[]);
            }
            let Some(units) = cache.image(checkpoint, (*page, *frame), &mut image) else {
                continue;
            };
            let mut end = 0;
            piece.clear();
            for (first, count) in runs(units.changed) {
                let bytes = image.get(first * unit..(first + count) * unit).unwrap_or(&[]);
                append_patch(&mut piece, &mut end, to_u64(first * unit), bytes);
            }
            writer.add_page(u64::from(page.0), &piece);
        }
        freed.for_each(|freed| writer.add_page(u64::from(freed.0), &[]));
        let bytes = writer.bytes();
        Ok((writer.commit(lsn, needed)?, bytes))
    }

    /// Records in the meta page which group is written back. A hint, which need not be durable: it
    /// only saves applying the group again.
    fn record_write_back(&self, checkpoint: &CacheCheckpoint, sequence: u64) -> Result<()> {
        let cache = self.tree.cache();
        let meta = checkpoint.pages().iter().find(|(page, _)| *page == PageId(0));
        let mut buffer = AlignedBuffer::zeroed(cache.page_bytes());
        let image =
            meta.and_then(|meta_page| cache.image(checkpoint, *meta_page, buffer.as_mut_slice()));
        if image.is_none() {
            return Ok(());
        }
        let mut meta = Meta::decode(buffer.as_slice(), cache.label())?;
        meta.written_back = sequence;
        let page = buffer.as_mut_slice();
        page.copy_from_slice(&meta.encode());
        let sum = checksum(cache.salt(), page);
        if let Some(head) = page.first_chunk_mut::<4>() {
            *head = sum.to_le_bytes();
        }
        write_all_at(&**cache.file()?, buffer.as_slice(), 0)
            .map_err(|error| Error::io(format!("write {}", cache.label()), error))
    }

    /// Writes back all pages, and punches holes for the disk space of those that are free then.
    pub(crate) fn punch_holes(&self, checkpointer: &mut Checkpointer) -> Result<()> {
        let complete = checkpointer.complete();
        if self.tree.cache().dirty_count() > 0
            || checkpointer.written_back != checkpointer.redo.newest()
        {
            self.write_back_all(checkpointer, complete)?;
        }
        self.punch_free_pages()
    }

    /// Punches holes for the disk space of free pages that recovery does not need. Needs no space.
    /// The caller holds the checkpointer's lock, so nothing is being written to one of them.
    pub(crate) fn punch_free_pages(&self) -> Result<()> {
        let cache = self.tree.cache();
        let Ok(file) = cache.file() else { return Ok(()) };
        self.tree.allocator().punch_holes(|first, count| {
            let page_bytes = to_u64(cache.page_bytes());
            file.punch_hole(first * page_bytes, count * page_bytes)
                .map_err(|error| Error::io(format!("give back space of {}", cache.label()), error))
        })
    }
}

fn sync(cache: &PageCache) -> Result<()> {
    let io = |error| Error::io(format!("sync {}", cache.label()), error);
    cache.file()?.sync_data().map_err(io)
}
