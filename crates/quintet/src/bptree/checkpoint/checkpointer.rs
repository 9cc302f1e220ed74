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
const PLACED_MAX: usize = 1 << 20;
/// When too many pages are not written back, one in this many is.
const PLACED_SHARE: u64 = 4;
/// Number of pages of the overlay that are read at once.
const OVERLAY_BATCH: usize = 256;

/// The state of the checkpointer.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    redo: RedoJournal,
    complete: Lsn,
    /// Groups up to this one are written back.
    placed: u64,
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
    pub(super) fn forget_unplaced(&mut self) {
        self.placed = self.redo.newest();
    }

    /// Makes the journal's next group begin a new file.
    pub(super) fn end_file(&mut self) {
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
    beside: Option<Arc<dyn CheckpointParticipant>>,
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
    give_back_tail(&cache, &context, meta.as_ref());
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
    let all_in_place = meta.as_ref().is_some_and(|meta| meta.placed >= redo.newest());
    let placed = if all_in_place { redo.newest() } else { redo.needed() - 1 };
    let unsettled = redo.live_bytes();
    let paged = PagedTree {
        context,
        tree,
        gate: Gate::new(keys, bytes),
        keeper: Mutex::new(Checkpointer { redo, complete: lsn, placed, in_doubt }),
        making: Mutex::new(()),
        beside,
        unsettled_bytes: AtomicU64::new(unsettled),
        cuts_total: AtomicU64::new(0),
        helps_total: AtomicU64::new(0),
        written_bytes_total: AtomicU64::new(0),
        journaled_bytes_total: AtomicU64::new(0),
        placed_bytes_total: AtomicU64::new(0),
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
    let in_place = match cache.file() {
        Err(_) => None,
        Ok(_) => match cache.read_page(PageId(0), &mut buffer) {
            Ok(_) => Some(Meta::decode(buffer.as_slice(), cache.label())?),
            Err(error) if error.is_corruption() => None,
            Err(error) => return Err(error),
        },
    };
    let newest = groups.last().map_or(0, RedoGroup::sequence);
    let placed = in_place.as_ref().map_or(0, |meta| meta.placed);
    let needs_replay = mutant!(CutNotReplayed: false, else placed < newest);
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
    } else if let Some(meta) = in_place {
        if placed == 0 {
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
fn give_back_tail(cache: &PageCache, context: &Context, meta: Option<&Meta>) {
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
    pub(crate) fn make_file(&self) -> Result<()> {
        if self.tree.cache().file().is_ok() {
            return Ok(());
        }
        let _making = lock(&self.making);
        if self.tree.cache().file().is_err() {
            let file = create_file(&self.context, self.tree.cache().label())?;
            self.tree.cache().set_file(file);
        }
        Ok(())
    }

    /// Makes everything applied so far durable; the files are then complete to `lsn`.
    pub(crate) fn persist_cut(&self, keeper: &mut Checkpointer, lsn: Lsn) -> Result<()> {
        if self.is_overlay_in_the_way() {
            return self.place_overlaid(keeper, lsn);
        }
        let full = keeper.redo.live_bytes() > self.journal_limit();
        if full || self.is_crowded() {
            return self.place_oldest(keeper, lsn);
        }
        self.store_one(keeper, lsn, 0)
    }

    /// As [`PagedTree::persist_cut`], and writes back a part of what is only in the journal.
    pub(crate) fn place_oldest(&self, keeper: &mut Checkpointer, lsn: Lsn) -> Result<()> {
        let cache = self.tree.cache();
        if cache.is_overlaid() {
            return self.place_everything(keeper, lsn);
        }
        self.make_file()?;
        let kept = cache.unplaced_count().max(cache.kept_count());
        let mut left = to_usize(kept / PLACED_SHARE).max(PLACED_MAX / 16);
        while left > 0 {
            let count = left.min(PLACED_MAX);
            self.store_one(keeper, lsn, count)?;
            left -= count;
        }
        Ok(())
    }

    /// As [`PagedTree::persist_cut`], and writes back everything that is only in the journal.
    pub(crate) fn place_everything(&self, keeper: &mut Checkpointer, lsn: Lsn) -> Result<()> {
        loop {
            self.place_overlaid(keeper, lsn)?;
            if !self.tree.cache().is_overlaid() {
                return Ok(());
            }
        }
    }

    /// As [`PagedTree::persist_cut`], and writes back what is only in the journal. Of the overlay it
    /// takes only as many pages as the cache has room for.
    fn place_overlaid(&self, keeper: &mut Checkpointer, lsn: Lsn) -> Result<()> {
        self.make_file()?;
        let cache = self.tree.cache();
        let most = self.kept_limit() / 2;
        loop {
            let room = to_usize(most.saturating_sub(cache.kept_count()));
            let pages = cache.overlaid(room.clamp(1, OVERLAY_BATCH));
            cache.load_many(&pages);
            pages.iter().try_for_each(|page| cache.take_from_overlay(*page))?;
            if pages.is_empty() || cache.kept_count() >= most {
                break;
            }
        }
        self.store_one(keeper, lsn, usize::MAX)
    }

    /// Returns the size of the journal, in bytes, above which pages are written back.
    fn journal_limit(&self) -> u64 {
        let pages = self.tree.allocator().used() * to_u64(self.tree.shape().page_bytes);
        (pages / 2).min(self.context.budget.limit() / 8).max(JOURNAL_MIN_BYTES)
    }

    /// Takes and stores a checkpoint, and writes back this many pages.
    pub(super) fn store_one(
        &self,
        keeper: &mut Checkpointer,
        lsn: Lsn,
        placed: usize,
    ) -> Result<()> {
        self.make_file()?;
        let cut = self.take_cut(lsn, keeper.next_group(), placed);
        self.store_taken(keeper, lsn, cut)
    }

    /// Stores a checkpoint that was taken, and ends or abandons it.
    pub(super) fn store_taken(
        &self,
        keeper: &mut Checkpointer,
        lsn: Lsn,
        cut: Result<CacheCheckpoint>,
    ) -> Result<()> {
        let cache = self.tree.cache();
        let cut = match cut {
            Ok(cut) => cut,
            Err(error) => {
                self.tree.allocator().end_cut(false);
                return Err(error);
            }
        };
        keeper.in_doubt = true;
        let stored = self.store_cut(keeper, &cut, lsn);
        self.tree.allocator().end_cut(stored.is_ok());
        if let Some(beside) = self.beside.as_ref().filter(|_| stored.is_ok()) {
            beside.stored();
        }
        match stored {
            Ok(()) => {
                keeper.in_doubt = false;
                self.unsettled_bytes.store(keeper.redo.live_bytes(), Ordering::Relaxed);
                cache.finish(cut);
                self.cuts_total.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                cache.abandon(cut);
                Err(error)
            }
        }
    }

    /// Takes a checkpoint: closes the gate and makes all dirty pages, and `placed` pages that are
    /// not written back, part of it. `group` is the journal's next group.
    pub(crate) fn take_cut(&self, lsn: Lsn, group: u64, placed: usize) -> Result<CacheCheckpoint> {
        let (cache, allocator) = (self.tree.cache(), self.tree.allocator());
        let _closed = self.gate.close();
        if let Some(beside) = &self.beside {
            self.gate.note(beside.join(&self.tree)?);
        }
        for (page, bits) in allocator.cut() {
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
        if placed > 0 {
            let used = allocator.used_at_cut();
            joined = cache.join_unplaced(placed, |page| is_set(&used, u64::from(page.0)));
        }
        Ok(cache.cut(group, joined).with_fresh(allocator.fresh_at_cut()))
    }

    fn meta(&self, lsn: Lsn, placed: u64) -> Meta {
        let (keys, bytes) = self.gate.figures();
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
            placed,
        }
    }

    pub(crate) fn store_cut(
        &self,
        keeper: &mut Checkpointer,
        cut: &CacheCheckpoint,
        lsn: Lsn,
    ) -> Result<()> {
        let cache = self.tree.cache();
        mutant!(CutSkipsLogSync: (), else self.context.host.sync_log()?);
        self.beside.as_ref().map_or(Ok(()), |beside| beside.settle())?;
        let mut pages = cut.pages().to_vec();
        pages.sort_unstable();
        pages.dedup();
        let (fresh, mut pages): (Vec<_>, Vec<_>) =
            pages.into_iter().partition(|(page, _)| cut.is_fresh(*page));
        self.place_fresh(cut, &fresh)?;
        if self.tree.allocator().take_written_directly() || !fresh.is_empty() {
            sync(cache)?;
        }
        mutant!(CutWritesInPlaceFirst => self.place(cut, &pages)?);
        let (sequence, group_bytes) = self.journal(keeper, (cut, &pages), lsn)?;
        self.written_bytes_total.fetch_add(group_bytes, Ordering::Relaxed);
        self.journaled_bytes_total.fetch_add(group_bytes, Ordering::Relaxed);
        keeper.complete = lsn;
        if cut.placed_count() == 0 {
            return Ok(());
        }
        pages.retain(|(_, frame)| cut.is_placed(*frame));
        self.place(cut, &pages)?;
        sync(cache)?;
        if cache.is_overlaid() {
            return Ok(());
        }
        if let Some(group) = cache.oldest_unplaced() {
            keeper.placed = keeper.placed.max(group.saturating_sub(1));
        } else {
            keeper.placed = sequence;
            self.note_placed(cut, sequence)?;
        }
        Ok(())
    }

    /// Commits a journal group: the changes of a checkpoint, and the pages that are free at it.
    /// Returns the group's number and its size in bytes.
    fn journal(
        &self,
        keeper: &mut Checkpointer,
        (cut, pages): (&CacheCheckpoint, &[(PageId, u32)]),
        lsn: Lsn,
    ) -> Result<(u64, u64)> {
        let cache = self.tree.cache();
        let _memory = self.context.budget.reserve_transient(WRITER_BYTES);
        let needed = keeper.placed + 1;
        let mut writer = keeper.redo.begin_page_group(&*self.context.env)?;
        let mut freed = self.tree.allocator().freed_by_cut().into_iter().peekable();
        let unit = cache.page_bytes() / UNITS;
        let (mut image, mut piece) = (vec![0; cache.page_bytes()], Vec::new());
        for (page, frame) in pages {
            while let Some(freed) = freed.next_if(|freed| freed <= page) {
                writer.add_page(u64::from(freed.0), &[]);
            }
            let Some(units) = cache.image(cut, (*page, *frame), &mut image) else { continue };
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
    fn note_placed(&self, cut: &CacheCheckpoint, sequence: u64) -> Result<()> {
        let cache = self.tree.cache();
        let meta = cut.pages().iter().find(|(page, _)| *page == PageId(0));
        let mut buffer = AlignedBuffer::zeroed(cache.page_bytes());
        let image = meta.and_then(|place| cache.image(cut, *place, buffer.as_mut_slice()));
        if image.is_none() {
            return Ok(());
        }
        let mut meta = Meta::decode(buffer.as_slice(), cache.label())?;
        meta.placed = sequence;
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
    pub(crate) fn give_back_space(&self, keeper: &mut Checkpointer) -> Result<()> {
        let complete = keeper.complete();
        if self.tree.cache().dirty_count() > 0 || keeper.placed != keeper.redo.newest() {
            self.place_everything(keeper, complete)?;
        }
        let cache = self.tree.cache();
        let Ok(file) = cache.file() else { return Ok(()) };
        self.tree.allocator().give_back(|first, count| {
            let page_bytes = to_u64(cache.page_bytes());
            file.punch_hole(first * page_bytes, count * page_bytes)
                .map_err(|error| Error::io(format!("give back space of {}", cache.label()), error))
        })
    }

    /// Whether the meta page in the file says that the newest group is written back.
    fn is_in_place(&self, keeper: &Checkpointer) -> Result<bool> {
        let cache = self.tree.cache();
        let mut buffer = AlignedBuffer::zeroed(cache.page_bytes());
        match cache.read_page(PageId(0), &mut buffer) {
            Ok(_) => {
                let meta = Meta::decode(buffer.as_slice(), cache.label())?;
                Ok(meta.placed > 0 && meta.placed == keeper.redo.newest())
            }
            Err(error) if error.is_corruption() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Verifies the files: the journal, and then every page of the durable tree, after writing it
    /// back. If the pages in the file may be of two states, verifies the journal only: it has what
    /// they lack.
    pub(crate) fn check_files(&self, keeper: &mut Checkpointer, report: &mut Report) -> Result<()> {
        if keeper.complete == Lsn(0) && self.tree.cache().file().is_err() {
            return Ok(());
        }
        keeper.redo.check(report);
        if !self.context.read_only && keeper.placed != keeper.redo.newest() {
            let complete = keeper.complete();
            match self.place_everything(keeper, complete) {
                Err(Error::Corruption { file, offset, what }) => report.add(file, offset, what),
                outcome => outcome?,
            }
        }
        if keeper.in_doubt && !self.is_in_place(keeper)? {
            return Ok(());
        }
        self.tree.check(report)
    }
}
