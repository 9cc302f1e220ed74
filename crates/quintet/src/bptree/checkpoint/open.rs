//! Opens a tree's files.
//!
//! Opening reads the indexes of the needed journal groups into the overlay
//! ([`PageCache::set_overlay`]). It writes nothing; each page gets its changes when it is read. The
//! next write-back of everything moves them to the file.

use std::{io, sync::Arc};

use super::{
    checkpointer::Checkpointer, gate::Gate, meta::Meta, paged_tree::PagedTree,
    participant::CheckpointParticipant, settings::TreeSettings,
};
use crate::{
    Error, Result,
    bptree::{
        node::MAP,
        page_allocator::{Bits, MAP_HEAD_BYTES, PageAllocator, map_page},
        page_cache::{OverlayLayer, PageCache, PageId},
        tree::Tree,
    },
    contract::{Context, RoomAttempts},
    io::{AlignedBuffer, File, Open},
    journal::redo::{Owner, RedoGroup, RedoJournal},
    util::{
        codec::{Lsn, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Mutex, lock},
    },
};

/// The file of pages.
pub(crate) const PAGES_NAME: &str = "pages";
/// Twice the usual size of a journal file, in bytes; a file grows beyond it for a larger group.
const JOURNAL_BYTES: u64 = 128 << 20;

impl PagedTree {
    /// Opens the tree in its directory: puts the journal's groups into the overlay and reads the
    /// maps of free pages. Returns the LSN that the files are complete to (0 for a new table).
    /// Fails with `Corruption` if the files do not agree.
    pub(crate) fn open(
        settings: &TreeSettings,
        context: Context,
        participant: Option<Arc<dyn CheckpointParticipant>>,
    ) -> Result<(Self, Lsn)> {
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
        let paged = Self {
            context,
            tree,
            gate: Gate::new(keys, bytes),
            checkpointer: Mutex::new(Checkpointer { redo, complete: lsn, written_back, in_doubt }),
            file_creation: Mutex::new(()),
            participant,
            journal_bytes_to_write_back: AtomicU64::new(journal_bytes),
            lacks_space: AtomicBool::new(false),
            checkpoints_total: AtomicU64::new(0),
            room_attempts: RoomAttempts::default(),
            helps_total: AtomicU64::new(0),
            written_bytes_total: AtomicU64::new(0),
            journaled_bytes_total: AtomicU64::new(0),
            written_back_bytes_total: AtomicU64::new(0),
        };
        Ok((paged, lsn))
    }

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
}

fn owner(context: &Context) -> Owner {
    Owner {
        dir: Arc::clone(&context.dir),
        database_id: context.database_id,
        table_id: context.table_id,
    }
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
        let kind = guard.words().u8(8) == Some(MAP);
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
