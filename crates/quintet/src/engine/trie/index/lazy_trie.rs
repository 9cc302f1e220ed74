//! The state of a trie: its words, its objects, and the locks of its subtrees.

use super::{
    key_path::{KeyPath, path_bits},
    layout::Layout,
    objects::{self, AllocationCounts, ObjectAllocator},
    word::{ROOT_BITS, TAG_BITS},
};
use crate::{
    Error, Result,
    engine::trie::store::space::WordSpace,
    util::{
        codec::{KeyHash, to_u64, to_usize},
        sync::{AtomicU64, CachePadded, Mutex, Ordering, fence, lock, spin_loop, yield_now},
    },
};

/// Slots of the root table, and so subtrees.
pub(super) const ROOTS: u64 = 1 << ROOT_BITS;
/// Words before the first object. The root table is their second half.
pub(super) const RESERVED_WORDS: u64 = 2 * ROOTS;
/// The first word of the root table.
pub(super) const ROOT_AT: u64 = RESERVED_WORDS - ROOTS;
/// Spins before a thread that waits for a writer yields.
const SPINS: u32 = 64;
/// Times that a path may lead to an address without a record, although nothing below its subtree
/// changed, before that counts as damage. Memory may be evicted and reused meanwhile.
pub(crate) const RETRIES_MAX: u32 = 500;
/// Regions that a reader loads for one path before it locks the path: more than a path has.
pub(super) const LOADS_MAX: u32 = 16;
/// Free objects of a class that are on disk only are loaded if they are this part of all words.
const FREE_PART: u64 = 16;

/// The lock and version of a subtree, on a separate cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Subtree(pub(super) AtomicU64);

/// Counters that change with every insert.
#[derive(Debug, Default)]
pub(super) struct TrieCounts {
    pub(super) keys: AtomicU64,
    pub(super) nodes: AtomicU64,
    pub(super) list_words: AtomicU64,
    /// Switched nodes.
    pub(super) switched: AtomicU64,
    /// Lists that were switched since the table was opened.
    pub(super) switches_total: AtomicU64,
    /// Records removed since sparse nodes were last gathered.
    pub(super) removed: AtomicU64,
    /// Records removed before, since the table was opened.
    pub(super) removed_before: AtomicU64,
    /// Records when the table was opened.
    pub(super) keys_at_open: AtomicU64,
    /// Sum over the inserts of the nodes on their paths, the root table included.
    pub(super) insert_nodes_total: AtomicU64,
    /// Nodes built, and nodes removed, since the table was opened.
    pub(super) splits_total: AtomicU64,
    pub(super) merges_total: AtomicU64,
}

/// Counts of a trie since the table was opened, as the paper's tools print them. The table counts
/// lookups, if it is asked to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrieProfile {
    pub(crate) inserts: u64,
    /// Sum over the inserts of the nodes on their paths, the root table included.
    pub(crate) insert_nodes: u64,
    pub(crate) splits: u64,
    pub(crate) merges: u64,
    pub(crate) allocations: AllocationCounts,
}

/// The shape of a trie (CedrusDB, figures 4 and 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrieShape {
    /// Records.
    pub(crate) records: u64,
    /// Sum over the records of the nodes on the path, the root table included.
    pub(crate) path_nodes: u64,
    /// Nodes of the longest path.
    pub(crate) height: u64,
    /// Nodes, without the root table.
    pub(crate) nodes: u64,
    /// Slots of nodes that are not empty.
    pub(crate) used_slots: u64,
    /// Words of lists.
    pub(crate) list_words: u64,
    /// Switched nodes.
    pub(crate) switched: u64,
    /// Records below switched nodes.
    pub(crate) switched_records: u64,
    /// Records of the longest list.
    pub(crate) list_records_max: u64,
    /// Records of the largest subtree.
    pub(crate) subtree_records_max: u64,
}

/// The trie of a table. See the module documentation.
#[derive(Debug)]
pub(crate) struct LazyTrie {
    pub(super) space: WordSpace,
    pub(super) fan_bits: u32,
    pub(super) sluggishness: usize,
    pub(super) layout: Layout,
    /// The keyed hash of switched subtrees; `None`: paths are hashes, and nothing is switched.
    pub(super) fallback: Option<KeyHash>,
    pub(super) subtrees: Box<[Subtree]>,
    pub(super) objects: CachePadded<Mutex<ObjectAllocator>>,
    pub(super) counts: CachePadded<TrieCounts>,
    /// Held by the thread that gathers.
    pub(super) gathering: Mutex<()>,
}

/// A locked subtree.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(super) trie: &'a LazyTrie,
    pub(super) subtree: &'a AtomicU64,
    /// The version while it is locked, which is odd.
    pub(super) version: u64,
    pub(super) path: KeyPath<'a>,
}

/// A record's word and its position. Valid while the subtree stays locked and is not changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordPosition {
    pub(super) at: u64,
    pub(super) word: u64,
}

impl LazyTrie {
    /// An empty trie in an empty space. `fanout` is 64, 128 or 256. With `fallback`, paths are
    /// bytes of keys.
    pub(crate) fn new(
        space: WordSpace,
        fanout: u64,
        sluggishness: u64,
        layout: Layout,
        fallback: Option<KeyHash>,
    ) -> Self {
        Self {
            space,
            fan_bits: fanout.trailing_zeros(),
            sluggishness: to_usize(sluggishness),
            layout,
            fallback,
            subtrees: (0..ROOTS).map(|_| Subtree::default()).collect(),
            objects: CachePadded(Mutex::new(ObjectAllocator::starting_at(RESERVED_WORDS))),
            counts: CachePadded::default(),
            gathering: Mutex::default(),
        }
    }

    /// Initialises a new trie: one without a state to decode.
    pub(crate) fn start(&self) {
        self.space.begin_region(0);
    }

    /// The space of the trie.
    pub(crate) fn space(&self) -> &WordSpace {
        &self.space
    }

    /// The number of records.
    pub(crate) fn len(&self) -> u64 {
        self.counts.keys.load(Ordering::Relaxed)
    }

    /// Bytes of nodes, the root table included.
    pub(crate) fn node_bytes(&self) -> u64 {
        (self.counts.nodes.load(Ordering::Relaxed) << self.fan_bits) * 8 + RESERVED_WORDS * 8
    }

    /// Bytes of lists.
    pub(crate) fn list_bytes(&self) -> u64 {
        self.counts.list_words.load(Ordering::Relaxed) * 8
    }

    /// Counts since the table was opened.
    pub(crate) fn profile(&self) -> TrieProfile {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        let removed = load(&counts.removed_before) + load(&counts.removed);
        TrieProfile {
            // Threads may count between these loads.
            inserts: load(&counts.keys)
                .saturating_add(removed)
                .saturating_sub(load(&counts.keys_at_open)),
            insert_nodes: load(&counts.insert_nodes_total),
            splits: load(&counts.splits_total),
            merges: load(&counts.merges_total),
            allocations: lock(&self.objects).counts(),
        }
    }

    /// The number of switched nodes, and of lists switched since the table was opened.
    pub(crate) fn switched(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.counts.switched), load(&self.counts.switches_total))
    }

    /// Bytes of memory that the words take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.space.memory_bytes(self.end())
    }

    /// Bytes of the words in use, and of free ones between them.
    pub(crate) fn space_bytes(&self) -> u64 {
        self.end() * 8
    }

    /// The end of the words that were ever part of an object.
    pub(crate) fn end(&self) -> u64 {
        lock(&self.objects).tail()
    }

    /// Call after the states of trie and space were decoded: words of the space beyond the end may
    /// not be zero.
    pub(crate) fn set_used_end(&self) {
        lock(&self.objects).set_used_end(self.space.known_end());
    }

    /// Uses huge pages only if `limit` bytes are enough for the whole trie. Called before anything
    /// is loaded.
    pub(crate) fn choose_pages(&self, limit: u64) {
        self.space.choose_pages(self.end(), limit);
    }

    /// Loads the region from which new objects are allocated, as [`Self::allocate`] requires.
    pub(crate) fn load_tail(&self) -> Result<()> {
        let tail = lock(&self.objects).tail();
        if tail & (self.space.region_words() - 1) == 0 { Ok(()) } else { self.space.load(tail) }
    }

    /// Loads the first free object of each class, as far as they can be read: until then they are
    /// not used, and the space grows instead. Classes with too few free objects to be worth a read
    /// are skipped, unless there is room.
    pub(crate) fn load_free_objects(&self, has_room: bool) {
        let unloaded: Vec<u64> = {
            let objects = lock(&self.objects);
            let worth = if has_room { 1 } else { objects.tail() / FREE_PART };
            let free = objects.free_heads().zip(objects.free_counts());
            free.filter(|((class, head), (_, count))| *head != 0 && count << class >= worth)
                .map(|((_, head), _)| head)
                .filter(|head| self.space.get(*head).is_none())
                .collect()
        };
        for head in unloaded {
            let _ = self.space.load(head);
        }
    }

    /// Returns whether every word in use is in memory.
    pub(crate) fn is_all_loaded(&self) -> bool {
        let words = to_usize(self.space.region_words());
        (0..lock(&self.objects).tail()).step_by(words).all(|at| self.space.get(at).is_some())
    }

    #[inline]
    pub(super) fn subtree(&self, hash: u64) -> &AtomicU64 {
        // The first 8 bits are below the number of subtrees.
        &self.subtrees[to_usize(hash >> (64 - ROOT_BITS))].0
    }

    /// The slot of the node at `at` that `hash` selects at bit `position`.
    #[inline]
    pub(super) fn child(&self, at: u64, hash: u64, position: u32) -> u64 {
        at + ((hash << position) >> (64 - self.fan_bits))
    }

    /// Returns whether a list at bit `position` of a path can become a node.
    #[inline]
    pub(super) fn splits_at(&self, position: u32) -> bool {
        position + self.fan_bits <= ROOT_BITS + TAG_BITS
    }

    /// Bits of a path that the trie uses.
    #[inline]
    pub(super) fn path_bits(&self) -> u32 {
        path_bits(self.fan_bits)
    }

    /// Locks the subtree of a path for writing.
    pub(crate) fn lock<'a>(&'a self, path: KeyPath<'a>) -> Writer<'a> {
        let subtree = self.subtree(path.hash);
        let mut attempts = 0;
        loop {
            let version = subtree.load(Ordering::Relaxed);
            let free = version & 1 == 0;
            if free
                && subtree
                    .compare_exchange_weak(
                        version,
                        version + 1,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                fence(Ordering::Release);
                return Writer { trie: self, subtree, version: version + 1, path };
            }
            pause(&mut attempts);
        }
    }

    /// Locks every subtree: no operation is in progress until the writers are dropped.
    pub(crate) fn lock_all(&self) -> Vec<Writer<'_>> {
        (0..ROOTS).map(|root| self.lock(KeyPath::of_hash(root << (64 - ROOT_BITS)))).collect()
    }

    /// The versions of all subtrees; `None` while one is locked.
    pub(crate) fn versions(&self) -> Option<Vec<u64>> {
        let versions = self.subtrees.iter().map(|subtree| subtree.0.load(Ordering::Acquire));
        versions.map(|version| (version & 1 == 0).then_some(version)).collect()
    }

    /// Returns whether nothing has changed since [`Self::versions`] returned these.
    pub(crate) fn is_unchanged(&self, versions: &[u64]) -> bool {
        fence(Ordering::Acquire);
        let now = self.subtrees.iter().map(|subtree| subtree.0.load(Ordering::Relaxed));
        now.eq(versions.iter().copied())
    }

    /// The version of the subtree of a path, for [`Self::is_version`].
    pub(crate) fn version(&self, path: u64) -> u64 {
        self.subtree(path).load(Ordering::Acquire)
    }

    /// Returns whether the subtree has not changed since [`Self::version`] returned `version`.
    pub(crate) fn is_version(&self, path: u64, version: u64) -> bool {
        fence(Ordering::Acquire);
        version & 1 == 0 && self.subtree(path).load(Ordering::Relaxed) == version
    }

    /// Stores the words of a new object.
    pub(super) fn fill(&self, object: objects::NewObject, class: u32, words: &[u64]) {
        let used = to_u64(words.len());
        if object.is_zero && used * 4 < 1 << class {
            for (at, word) in (object.at..).zip(words).filter(|(_, word)| **word != 0) {
                self.space.set(at, *word);
            }
        } else {
            let rest = if object.is_zero { 0 } else { to_usize((1 << class) - used) };
            let words = words.iter().copied().chain(std::iter::repeat_n(0, rest));
            self.space.set_all(object.at, words);
        }
    }

    /// Allocates an object.
    pub(super) fn allocate(&self, class: u32) -> Result<objects::NewObject> {
        lock(&self.objects).allocate(&self.space, class)
    }

    /// Frees an object.
    pub(super) fn free(&self, class: u32, at: u64) {
        lock(&self.objects).push(&self.space, class, at);
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.subtree.store(self.version + 1, Ordering::Release);
    }
}

/// The word at `index`; loads its region if necessary. The caller has its subtree locked, or keeps
/// writers out.
pub(super) fn word_at(space: &WordSpace, index: u64) -> Result<u64> {
    if let Some(word) = space.get(index) {
        return Ok(word);
    }
    space.load(index)?;
    Ok(space.get(index).unwrap_or(0))
}

#[inline]
pub(super) fn pause(attempts: &mut u32) {
    *attempts += 1;
    if *attempts < SPINS && !cfg!(model) {
        spin_loop();
    } else {
        yield_now();
    }
}

pub(super) fn damaged(what: &str) -> Error {
    Error::corruption("nodes", 0, what)
}
