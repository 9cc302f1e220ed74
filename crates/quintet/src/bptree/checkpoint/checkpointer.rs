//! The checkpointer: stores checkpoints in the journal, writes pages back, and opens the files.
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
//! When the journal reaches its limit, or too many pages are unevictable, checkpoints also write
//! pages back and sync them. Each page is written once for all checkpoints since its last
//! write-back, the oldest first, and many pages in parts, so that a thread that waits for room
//! waits for one part. The next group declares unneeded the groups before the oldest page that is
//! not written back. When everything is written back, the meta page says so.
//!
//! Each group names the pages that are free at its checkpoint. Changes of them in earlier groups
//! must not be applied, because a value may have been written there since.
//!
//! A checkpoint that fails is abandoned: its pages belong to the next one, whole.
//!
//! Opening reads the indexes of the needed groups into the overlay ([`PageCache::set_overlay`]). It
//! writes nothing; each page gets its changes when it is read. The next write-back of everything
//! moves them to the file.

use std::{io, sync::Arc};

use super::{CheckpointParticipant, Gate, PagedTree, TreeSettings, meta::Meta};
use crate::{
    Error, Result,
    bptree::{
        Tree,
        checkpoint::write_back::runs,
        page_allocator::{Bits, MAP_HEAD_BYTES, PageAllocator, is_set, map_page},
        page_cache::{
            CacheCheckpoint, OverlayLayer, PageCache, PageId, checksum, page_bytes::UNITS,
        },
    },
    contract::Context,
    io::{AlignedBuffer, File, Open, write_all_at},
    journal::redo::{
        Owner, RedoGroup, RedoJournal,
        page_patches::{WRITER_BYTES, append_patch},
    },
    util::{
        codec::{Lsn, to_u64, to_usize},
        mutant::mutant,
        report::Report,
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

/// The file of pages.
pub(crate) const PAGES_NAME: &str = "pages";
/// Twice the usual size of a journal file, in bytes; a file grows beyond it for a larger group.
const JOURNAL_BYTES: u64 = 128 << 20;
/// Minimum size of the journal, in bytes, before its pages are written back.
const JOURNAL_MIN_BYTES: u64 = 64 << 20;
/// Maximum number of pages that one checkpoint writes back. Up to a sixteenth of it is written back
/// at once: each checkpoint journals what changed since the previous one, so small checkpoints
/// would journal more than they write back.
const WRITE_BACK_PAGES_MAX: usize = 1 << 20;
/// When too many pages are not written back, one in this many is.
const WRITE_BACK_SHARE: u64 = 4;
/// Number of pages of the overlay that are read at once.
const OVERLAY_BATCH: usize = 256;

/// The state of the checkpointer.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    redo: RedoJournal,
    complete: Lsn,
    /// Groups up to this one are written back.
    written_back: u64,
    /// A checkpoint failed: until another is stored, the pages in the file may be of two states.
    in_doubt: bool,
}

impl Checkpointer {
    /// Returns the LSN that the files are complete to.
    pub(crate) fn complete(&self) -> Lsn {
        self.complete
    }

    /// Returns the journal group that the next checkpoint will be.
    pub(super) fn next_group(&self) -> u64 {
        self.redo.newest() + 1
    }

    /// Returns the size of the journal's files, in bytes.
    pub(crate) fn journal_bytes(&self) -> u64 {
        self.redo.file_bytes()
    }

    /// For a planted bug: treats all groups as written back.
    pub(super) fn forget_pending_writeback(&mut self) {
        self.written_back = self.redo.newest();
    }

    /// Makes the journal's next group begin a new file.
    pub(super) fn start_new_file(&mut self) {
        self.redo.start_new_file();
    }

    /// Returns the size of live groups in the journal, and whether the next group begins a new
    /// file.
    pub(crate) fn journal_state(&self) -> (u64, bool) {
        (self.redo.live_bytes(), self.redo.is_full())
    }
}

fn owner(context: &Context) -> Owner {
    Owner {
        dir: Arc::clone(&context.dir),
        database_id: context.database_id,
        table_id: context.table_id,
    }
}

/// See [`PagedTree::open`].
pub(super) fn open(
    settings: &TreeSettings,
    context: Context,
    participant: Option<Arc<dyn CheckpointParticipant>>,
) -> Result<(PagedTree, Lsn)> {
    let label = owner(&context).label(PAGES_NAME);
    let budget = Arc::clone(&context.budget);
    let cache = Arc::new(PageCache::new(label.clone(), settings.cache.clone(), budget)?);
    cache.set_env(Arc::clone(&context.env));
    if let Some(file) = open_file(&context, &label)? {
        cache.set_file(file);
    }
    let mut groups = Vec::new();
    let redo = RedoJournal::open(owner(&context), JOURNAL_BYTES, context.read_only, |group| {
        groups.push(group);
        Ok(())
    })?;
    let meta = load_meta(&cache, &context, groups)?;
    truncate_tail(&cache, &context, meta.as_ref());
    let (used, granularity) = match &meta {
        None => (Bits::new(), settings.granularity),
        Some(meta) => (load_maps(&cache, meta)?, meta.granularity),
    };
    let allocator = PageAllocator::new(granularity, used);
    let tree = Tree::new(cache, allocator, !context.read_only, settings.value_bytes);
    match &meta {
        None => {
            sync_name(&context, &tree, &label)?;
            tree.format()?;
        }
        Some(meta) => tree.set_counts(meta.leaves, meta.inner, meta.keys),
    }
    let (keys, bytes, lsn) =
        meta.as_ref().map_or((0, 0, Lsn(0)), |meta| (meta.keys, meta.bytes, meta.lsn));
    // A read-only table keeps the newest groups in memory only.
    let in_doubt = context.read_only;
    let is_all_in_file = meta.as_ref().is_some_and(|meta| meta.written_back >= redo.newest());
    let written_back = if is_all_in_file { redo.newest() } else { redo.needed() - 1 };
    let journal_bytes = redo.live_bytes();
    let paged = PagedTree {
        context,
        tree,
        gate: Gate::new(keys, bytes),
        checkpointer: Mutex::new(Checkpointer { redo, complete: lsn, written_back, in_doubt }),
        file_creation: Mutex::new(()),
        participant,
        journal_bytes_to_write_back: AtomicU64::new(journal_bytes),
        checkpoints_total: AtomicU64::new(0),
        helps_total: AtomicU64::new(0),
        written_bytes_total: AtomicU64::new(0),
        journaled_bytes_total: AtomicU64::new(0),
        written_back_bytes_total: AtomicU64::new(0),
    };
    Ok((paged, lsn))
}

/// A process may have crashed after it created the file and before the name was durable.
fn sync_name(context: &Context, tree: &Tree, label: &str) -> Result<()> {
    if context.read_only || tree.cache().file().is_err() {
        return Ok(());
    }
    context.dir.sync().map_err(|error| Error::io(format!("sync the directory of {label}"), error))
}

fn open_file(context: &Context, label: &str) -> Result<Option<Arc<dyn File>>> {
    let how = if context.read_only { Open::READ } else { Open::WRITE };
    match context.dir.open(PAGES_NAME, how.direct()) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(format!("open {label}"), error)),
    }
}

/// Puts the journal's groups into the overlay and returns the meta page; `None` for a table without
/// a durable checkpoint.
fn load_meta(
    cache: &Arc<PageCache>,
    context: &Context,
    groups: Vec<RedoGroup>,
) -> Result<Option<Meta>> {
    let mut buffer = AlignedBuffer::zeroed(cache.page_bytes());
    let in_file = match cache.file() {
        Err(_) => None,
        Ok(_) => match cache.read_page(PageId(0), &mut buffer) {
            Ok(_) => Some(Meta::decode(buffer.as_slice(), cache.label())?),
            Err(error) if error.is_corruption() => None,
            Err(error) => return Err(error),
        },
    };
    let newest = groups.last().map_or(0, RedoGroup::sequence);
    let written_back = in_file.as_ref().map_or(0, |meta| meta.written_back);
    let needs_replay = mutant!(CutNotReplayed: false, else written_back < newest);
    let meta = if needs_replay {
        let lsn = groups.last().map(RedoGroup::lsn);
        cache.set_overlay(layers_of(cache, groups)?, context.read_only);
        cache.read_page(PageId(0), &mut buffer)?;
        let meta = Meta::decode(buffer.as_slice(), cache.label())?;
        if lsn.is_some_and(|lsn| lsn != meta.lsn) {
            let what = "the meta page is not that of the journal's newest group";
            return Err(Error::corruption(cache.label(), 0, what));
        }
        meta
    } else if let Some(meta) = in_file {
        if written_back == 0 {
            let what = "it is not in place whole, and the journal has no group for it";
            return Err(Error::corruption(cache.label(), 0, what));
        }
        meta
    } else if context.complete == Lsn(0) {
        return Ok(None);
    } else {
        return Err(Error::corruption(cache.label(), 0, "the meta page is missing or damaged"));
    };
    let own = meta.database_id == context.database_id && meta.table_id == context.table_id;
    if !own || meta.page_bytes != cache.page_bytes() || meta.granularity % 64 != 0 {
        let what = "the meta page is another table's";
        return Err(Error::corruption(cache.label(), 0, what));
    }
    Ok(Some(meta))
}

/// Truncates what an interrupted load left after the end of the file's pages. Optional: errors are
/// ignored.
fn truncate_tail(cache: &PageCache, context: &Context, meta: Option<&Meta>) {
    let end = meta.map_or(0, |meta| meta.end) * to_u64(cache.page_bytes());
    if let Ok(file) = cache.file()
        && !context.read_only
        && file.len().is_ok_and(|length| length > end)
    {
        let _ = file.set_len(end);
    }
}

/// Returns the overlay layers of the groups.
fn layers_of(cache: &PageCache, groups: Vec<RedoGroup>) -> Result<Vec<OverlayLayer>> {
    let layers = groups.into_iter().map(|group| {
        let what = if group.has_page_patches() {
            format!("group {} of the journal does not parse", group.sequence())
        } else {
            format!("group {} of the journal is of a format of before 0.1", group.sequence())
        };
        OverlayLayer::of(group).ok_or_else(|| Error::corruption(cache.label(), 0, what))
    });
    layers.collect()
}

fn create_file(context: &Context, label: &str) -> Result<Arc<dyn File>> {
    let io = |error| Error::io(format!("create {label}"), error);
    let file = match context.dir.open(PAGES_NAME, Open::CREATE.direct()) {
        // An earlier attempt failed when it made the name durable.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            context.dir.open(PAGES_NAME, Open::WRITE.direct())
        }
        outcome => outcome,
    };
    let file = file.map_err(io)?;
    context.dir.sync().map_err(io)?;
    Ok(file)
}

fn sync(cache: &PageCache) -> Result<()> {
    let io = |error| Error::io(format!("sync {}", cache.label()), error);
    cache.file()?.sync_data().map_err(io)
}

/// Reads the maps of used pages.
fn load_maps(cache: &PageCache, meta: &Meta) -> Result<Bits> {
    let mut used = Bits::new();
    let extents = meta.end / meta.granularity.max(1);
    let bytes = to_usize(meta.granularity / 8);
    let maps: Vec<_> = (0..extents).map(|extent| map_page(extent, meta.granularity)).collect();
    // Maps that do not fit in the cache together are read one by one.
    cache.load_many(&maps);
    for extent in 0..extents {
        let page = map_page(extent, meta.granularity);
        let guard = cache.read(page)?;
        let map = guard.words().copy(MAP_HEAD_BYTES, bytes);
        let kind = guard.words().u8(8) == Some(crate::bptree::node::MAP);
        let Some(map) = map.filter(|_| kind) else {
            return Err(Error::corruption(cache.label(), cache.offset(page), "it is no map page"));
        };
        let words = map.chunks_exact(8).map(|chunk| {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        used.extend(words);
    }
    Ok(used)
}

impl PagedTree {
    /// Creates the table's file, if there is none, and makes its name durable.
    pub(crate) fn ensure_file(&self) -> Result<()> {
        if self.tree.cache().file().is_ok() {
            return Ok(());
        }
        let _creating = lock(&self.file_creation);
        if self.tree.cache().file().is_err() {
            let file = create_file(&self.context, self.tree.cache().label())?;
            self.tree.cache().set_file(file);
        }
        Ok(())
    }

    /// Makes everything applied so far durable; the files are then complete to `lsn`.
    pub(crate) fn store_checkpoint(&self, checkpointer: &mut Checkpointer, lsn: Lsn) -> Result<()> {
        if self.is_overlay_too_large() {
            return self.write_back_overlay(checkpointer, lsn);
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
        let mut left = to_usize(unevictable / WRITE_BACK_SHARE).max(WRITE_BACK_PAGES_MAX / 16);
        while left > 0 {
            let count = left.min(WRITE_BACK_PAGES_MAX);
            self.store_once(checkpointer, lsn, count)?;
            left -= count;
        }
        Ok(())
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
                self.tree.allocator().end_checkpoint(false);
                return Err(error);
            }
        };
        checkpointer.in_doubt = true;
        let stored = self.write_checkpoint(checkpointer, &checkpoint, lsn);
        self.tree.allocator().end_checkpoint(stored.is_ok());
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
            edit.put_bytes(8, &[crate::bptree::node::MAP]);
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
        let image = meta.and_then(|place| cache.image(checkpoint, *place, buffer.as_mut_slice()));
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

    /// Punches holes for the disk space of free pages.
    pub(crate) fn punch_holes(&self, checkpointer: &mut Checkpointer) -> Result<()> {
        let complete = checkpointer.complete();
        if self.tree.cache().dirty_count() > 0
            || checkpointer.written_back != checkpointer.redo.newest()
        {
            self.write_back_all(checkpointer, complete)?;
        }
        let cache = self.tree.cache();
        let Ok(file) = cache.file() else { return Ok(()) };
        self.tree.allocator().punch_holes(|first, count| {
            let page_bytes = to_u64(cache.page_bytes());
            file.punch_hole(first * page_bytes, count * page_bytes)
                .map_err(|error| Error::io(format!("give back space of {}", cache.label()), error))
        })
    }

    /// Whether the meta page in the file says that the newest group is written back.
    fn is_written_back(&self, checkpointer: &Checkpointer) -> Result<bool> {
        let cache = self.tree.cache();
        let mut buffer = AlignedBuffer::zeroed(cache.page_bytes());
        match cache.read_page(PageId(0), &mut buffer) {
            Ok(_) => {
                let meta = Meta::decode(buffer.as_slice(), cache.label())?;
                Ok(meta.written_back > 0 && meta.written_back == checkpointer.redo.newest())
            }
            Err(error) if error.is_corruption() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Verifies the files: the journal, and then every page of the durable tree, after writing it
    /// back. If the pages in the file may be of two states, verifies the journal only: it has what
    /// they lack.
    pub(crate) fn check_files(
        &self,
        checkpointer: &mut Checkpointer,
        report: &mut Report,
    ) -> Result<()> {
        if checkpointer.complete == Lsn(0) && self.tree.cache().file().is_err() {
            return Ok(());
        }
        checkpointer.redo.check(report);
        if !self.context.read_only && checkpointer.written_back != checkpointer.redo.newest() {
            let complete = checkpointer.complete();
            match self.write_back_all(checkpointer, complete) {
                Err(Error::Corruption { file, offset, what }) => report.add(file, offset, what),
                outcome => outcome?,
            }
        }
        if checkpointer.in_doubt && !self.is_written_back(checkpointer)? {
            return Ok(());
        }
        self.tree.check(report)
    }
}
