//! Open: reads the groups of the journal and the state of the last one, and nothing else.
//!
//! The changes in needed groups are kept by region, and applied when the region is first loaded.
//! The state says where everything is. So opening reads the journal, which has a limit, whatever
//! the size of the table. Replay of the log follows ([`super::replay_buffer`]).

use std::sync::Arc;

use super::{
    checkpoint_state::{CheckpointState, STATE, STATE_VERSION},
    hash::Hash,
    options::TrieSettings,
    replay_buffer::TrieReplayBuffer,
    table::Trie,
};
use crate::{
    Error, Result,
    contract::{Context, RoomAttempts, TableOptions},
    engine::trie::{
        index::{ADDRESS_END, LazyTrie},
        store::{
            extents::Extents,
            regions::Regions,
            space::{SPACE, WordSpace},
        },
    },
    io::{Queues, reservation},
    journal::redo::{Owner, RedoGroup, RedoJournal},
    record_store::read_ahead::ReadAhead,
    util::{
        codec::{Decoder, Lsn},
        sync::{AtomicBool, AtomicU64, CachePadded, Mutex, Ordering},
    },
};

/// Bytes of a region of the trie: what one lookup reads if the trie does not fit in memory.
const INDEX_REGION_BYTES: u64 = 64 << 10;
/// The journal takes at most this part of the budget, because recovery holds its changes in memory.
const JOURNAL_PART: u64 = 2;
/// Bytes. The least that the journal gets, however small the budget is.
const JOURNAL_BYTES_MIN: u64 = 64 << 10;
/// The trie takes one part in this many of a limited address space, which bounds its size on disk
/// too.
const ADDRESS_PARTS: u64 = 4;
/// Fewest bytes of address space for the trie beyond the budget, because replay may exceed it.
const SPACE_BYTES_BESIDE: u64 = 32 << 20;
/// Bytes of address space that links can reach. The budget, not this, bounds the memory of the
/// trie.
const SPACE_BYTES_MAX: u64 = 64 << 30;

impl Trie {
    /// As [`Self::open`], with the bits of the hash that are used.
    pub(super) fn open_with_mask(
        options: &TableOptions,
        context: Context,
        hash_mask: u64,
    ) -> Result<(Self, Lsn)> {
        let settings = TrieSettings::parse(options)?;
        let owner = Owner {
            dir: Arc::clone(&context.dir),
            database_id: context.database_id,
            table_id: context.table_id,
        };
        let no_memory = |error| Error::address_space("a table", error);
        let read_only = context.read_only;
        let budget = Arc::clone(&context.budget);
        let space = reserve(&owner, read_only, budget.limit()).map_err(no_memory)?;
        let hash = Hash::new(settings.hash, context.hash);
        let TrieSettings { fanout, sluggishness, layout, .. } = settings;
        let index = LazyTrie::new(space, fanout, sluggishness, layout, hash.fallback());
        let regions = Regions::new(
            owner.clone(),
            read_only,
            settings.region_bytes,
            ADDRESS_END,
            Arc::clone(&budget),
        )
        .map_err(no_memory)?;
        let extents =
            Extents::new(owner.clone(), read_only, settings.max_scan, Arc::clone(&budget));
        let (mut last, label) = (None, owner.label("redo"));
        // Recovery holds the needed groups in memory.
        let journal_bytes =
            settings.journal_bytes.min((budget.limit() / JOURNAL_PART).max(JOURNAL_BYTES_MIN));
        let redo = RedoJournal::open(owner, journal_bytes, read_only, |group| {
            last = Some(read_group(index.space(), &group, &label)?);
            Ok(())
        })?;
        let complete = last.as_ref().map_or(Lsn(0), |(lsn, _)| *lsn);
        if last.is_some() && !read_only {
            // A process that died may have left names in the cache only.
            let io = |error| Error::io(format!("sync {label}"), error);
            context.dir.sync().map_err(io)?;
        }
        let maintenance = CheckpointState { redo, uncertain_images: Vec::new(), complete };
        let engine = Self {
            settings,
            hash,
            hash_mask,
            index,
            regions,
            extents,
            hot: AtomicU64::new(0),
            roll: Mutex::default(),
            loading: Mutex::default(),
            maintenance: Mutex::new(maintenance),
            emptying: Mutex::default(),
            is_cold: AtomicBool::new(false),
            room_attempts: RoomAttempts::default(),
            wanted_bytes: AtomicU64::new(0),
            checkpoint_wanted: AtomicBool::new(false),
            lacks_space: AtomicBool::new(false),
            queues: Queues::default(),
            prefetched: ReadAhead::default(),
            replay_buffer: TrieReplayBuffer::new(last.is_some()),
            counters: CachePadded::default(),
            context,
        };
        match last {
            None => engine.index.start(),
            Some((_, state)) => engine.load_state(&state, &label)?,
        }
        engine.charge_index();
        engine.count_waste();
        Ok((engine, complete))
    }

    /// Decodes the state of the last group, opens the files, and loads the tail of the trie and the
    /// hot region.
    fn load_state(&self, state: &[u8], label: &str) -> Result<()> {
        if self.decode_state(state).is_none() {
            return Err(Error::corruption(label, 0, "the state in the last group does not parse"));
        }
        self.index.space().open_file()?;
        self.index.choose_pages(self.context.budget.limit() / 2);
        if !self.context.read_only {
            // New nodes are added here: no write should have to read it.
            self.index.load_tail()?;
        }
        self.regions.open_file()?;
        self.extents.open_file()?;
        // Appends continue in the region that was hot at the checkpoint.
        for region in self.regions.in_use() {
            let (_, sealed) = self.regions.used(region);
            if sealed {
                continue;
            }
            let go_on = self.hot.load(Ordering::Relaxed) == 0
                && !self.context.read_only
                && self.load_region(region)?;
            if go_on {
                self.hot.store(region + 1, Ordering::Release);
            } else {
                self.regions.seal(region);
            }
        }
        Ok(())
    }

    /// Decodes the state. Returns `None` if it is not one that a checkpoint wrote.
    fn decode_state(&self, state: &[u8]) -> Option<()> {
        let mut rest = Decoder::new(state);
        if rest.varint()? != STATE_VERSION {
            return None;
        }
        self.counters.live_bytes.store(rest.varint()?, Ordering::Relaxed);
        self.index.decode(&mut rest)?;
        self.index.space().decode(&mut rest)?;
        self.index.set_used_end();
        self.regions.decode(&mut rest)?;
        self.extents.decode(&mut rest)?;
        rest.is_empty().then_some(())
    }
}

/// Reserves address space for all that links can reach, or as much of it as the system grants.
fn reserve(owner: &Owner, read_only: bool, limit: u64) -> std::io::Result<WordSpace> {
    let least = limit + SPACE_BYTES_BESIDE;
    let within = reservation(ADDRESS_PARTS, SPACE_BYTES_MAX, least);
    let mut bytes_max = SPACE_BYTES_MAX;
    while bytes_max / 2 >= within {
        bytes_max /= 2;
    }
    loop {
        let space = WordSpace::new(owner.clone(), read_only, bytes_max, INDEX_REGION_BYTES);
        if space.is_ok() || bytes_max / 2 < least {
            return space;
        }
        bytes_max /= 2;
    }
}

/// Keeps a group's changes. Returns the LSN up to which the table is complete with it, and its
/// state.
fn read_group(space: &WordSpace, group: &RedoGroup, label: &str) -> Result<(Lsn, Vec<u8>)> {
    let damage = || {
        let what = format!("a patch of group {} does not parse", group.sequence());
        Error::corruption(label, 0, what)
    };
    let mut state = None;
    let mut changes = space.recover(group.sequence());
    for patch in group.patches() {
        let patch = patch.ok_or_else(damage)?;
        match patch.space {
            SPACE if changes.add_patch(&patch) => {}
            STATE => state = Some(patch.bytes.to_vec()),
            _ => return Err(damage()),
        }
    }
    Ok((group.lsn(), state.ok_or_else(damage)?))
}
