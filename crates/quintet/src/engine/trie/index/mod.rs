//! The lazy-trie (CedrusDB, section 2): maps the hash of a key to the address of its record.
//!
//! Problem: an index on disk should change in few places, and stay balanced without work. The path
//! to a key never changes because of other keys, so an insert or a delete changes a word or two.
//! The height is near the logarithm of the number of keys without balancing.
//!
//! How: a root table of 256 slots, indexed by the first 8 bits of the hash; then nodes of 64, 128
//! or 256 slots, indexed by the next 6, 7 or 8 bits. A slot is empty, a record, a list of records,
//! or a node ([`word`]). Paths are only as long as they have to be: a list becomes a node when it
//! would hold more than `sluggishness` records. Put: lock the subtree, follow the path, store the
//! record's word, in a larger list or a new node if there is no room. Get: follow the path, read
//! the records with the right tag, and compare the subtree's version before and after.
//!
//! Invariants:
//! - Words of a list are filled from the front without gaps; a list has at least two records.
//! - A new node below the root table has at least two records below it. Deletes remove a node that
//!   is left with nothing, or with a single record or list.
//! - A record's tag agrees with the path to it.
//! - A thread that changes anything below a slot of the root table holds the lock of that subtree.
//!   The lock is also a version, odd while held. A reader that found the version even and the same
//!   before and after has seen one state.
//!
//! Thread rules: readers take no lock and store nothing. Writers of different subtrees (256) run in
//! parallel. Splits, merges and deletes lock no more than an update does. Locks are in memory only.
//! Lock order: subtrees from the first to the last, `objects`, lists of the space.
//!
//! How we differ from the paper: one version for each of 256 subtrees instead of a lock for each
//! node on the path. A sluggish list is an array of tagged words in one or two cache lines, not a
//! chain through the records. The kinds of children are in their words instead of in two masks. A
//! node has no pointer to its parent. Hashes have 64 bits and are not stored: 28 of them are in the
//! record's word.

mod gather;
mod list;
#[cfg(all(test, model))]
mod models;
mod objects;
mod stepped_lookup;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod walk;
mod word;
mod writer;

use std::ops::ControlFlow;

pub(crate) use self::{
    list::Layout,
    stepped_lookup::{LookupStep, SteppedLookup},
    walk::TrieShape,
    word::{ADDRESS_END, count_words},
    writer::{WordPosition, Writer},
};
use self::{
    objects::ObjectAllocator,
    word::{ROOT_BITS, Slot, TAG_BITS, address_of, character, tag, tag_of},
};
use crate::{
    Error, Result,
    engine::trie::store::space::Space,
    util::{
        codec::{Decoder, put_varint, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, CachePadded, Mutex, Ordering, fence, lock, spin_loop, yield_now},
    },
};

/// Slots of the root table, and so subtrees.
const ROOTS: u64 = 1 << ROOT_BITS;
/// Words before the first object. The root table is their second half.
const RESERVED_WORDS: u64 = 2 * ROOTS;
/// The first word of the root table.
const ROOT_AT: u64 = RESERVED_WORDS - ROOTS;
/// Spins before a thread that waits for a writer yields.
const SPINS: u32 = 64;
/// Times that a path may lead to an address without a record, although nothing below its subtree
/// changed, before that counts as damage. Memory may be evicted and reused meanwhile.
pub(crate) const RETRIES_MAX: u32 = 500;
/// Regions that a reader loads for one path before it locks the path: more than a path has.
const LOADS_MAX: u32 = 16;
/// The most regions that are evicted at once.
const EVICTED_MAX: u64 = 16;
/// At most this part of the loaded regions is evicted at once.
const EVICTED_PART: u64 = 32;
/// Free objects of a class that are on disk only are loaded if they are this part of all words.
const FREE_PART: u64 = 16;
/// The most nodes of a path: each uses six bits of the tag or more.
const DEPTH_MAX: usize = 5;

/// What a reader says about an address.
#[derive(Debug)]
pub(crate) enum RecordVerdict<T> {
    /// The key's record.
    Found(T),
    /// The record of another key.
    Other,
    /// Memory changed during the read: search again.
    Changed,
}

/// The result of one search along a path.
enum SearchResult<T> {
    Found(T),
    Missing,
    Changed,
    /// The region of this word has to be loaded.
    Load(u64),
}

/// The lock and version of a subtree, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Subtree(AtomicU64);

/// Counters that change with every insert.
#[derive(Debug, Default)]
struct TrieCounts {
    keys: AtomicU64,
    nodes: AtomicU64,
    list_words: AtomicU64,
    /// Records removed since sparse nodes were last gathered.
    removed: AtomicU64,
}

/// The trie of a table. See the module documentation.
#[derive(Debug)]
pub(crate) struct Trie {
    space: Space,
    fan_bits: u32,
    sluggishness: usize,
    layout: Layout,
    subtrees: Box<[Subtree]>,
    objects: CachePadded<Mutex<ObjectAllocator>>,
    counts: CachePadded<TrieCounts>,
    /// Held by the thread that gathers.
    gathering: Mutex<()>,
}

/// The word at `index`; loads its region if necessary. The caller has its subtree locked, or keeps
/// writers out.
fn word_at(space: &Space, index: u64) -> Result<u64> {
    if let Some(word) = space.get(index) {
        return Ok(word);
    }
    space.load(index)?;
    Ok(space.get(index).unwrap_or(0))
}

impl Trie {
    /// An empty trie in an empty space. `fanout` is 64, 128 or 256.
    pub(crate) fn new(space: Space, fanout: u64, sluggishness: u64, layout: Layout) -> Self {
        Self {
            space,
            fan_bits: fanout.trailing_zeros(),
            sluggishness: to_usize(sluggishness),
            layout,
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
    pub(crate) fn space(&self) -> &Space {
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

    /// Bytes of memory that the words take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.space.memory_bytes(self.end())
    }

    /// Evicts some regions, but not that of the word at `keep`; `false` if none can be evicted.
    /// Locks all subtrees for a moment, so the caller has none locked.
    pub(crate) fn evict(&self, keep: u64) -> bool {
        let words = self.space.region_words();
        // One lock of all subtrees should serve more than one region, but not evict much of what is
        // loaded.
        let count = (self.space.loaded_count() / EVICTED_PART).clamp(1, EVICTED_MAX);
        let writers = self.lock_all();
        let tail = lock(&self.objects).tail();
        self.space.split_huge_pages(tail);
        let leaving: Vec<u64> = (0..count)
            .map_while(|_| self.space.begin_eviction(tail, [tail / words, keep / words]))
            .collect();
        drop(writers);
        for region in &leaving {
            self.space.finish_eviction(*region);
        }
        !leaving.is_empty()
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
    fn subtree(&self, hash: u64) -> &AtomicU64 {
        // The first 8 bits are below the number of subtrees.
        &self.subtrees[to_usize(hash >> (64 - ROOT_BITS))].0
    }

    /// The slot of the node at `at` that `hash` selects at bit `position`.
    #[inline]
    fn child(&self, at: u64, hash: u64, position: u32) -> u64 {
        at + ((hash << position) >> (64 - self.fan_bits))
    }

    /// Passes `look` the addresses whose tag is that of `hash` until it finds its record. `load`
    /// loads the region of a word, and may evict others. Fails with errors of `load`, and with
    /// [`Error::Corruption`] after [`RETRIES_MAX`] addresses without a record.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        hash: u64,
        mut look: impl FnMut(u64) -> RecordVerdict<T>,
        load: impl Fn(u64) -> Result<()>,
    ) -> Result<Option<T>> {
        let version = self.subtree(hash);
        let (mut attempts, mut retries, mut loads) = (0, 0, 0);
        loop {
            let before = version.load(Ordering::Acquire);
            let seen = self.search(hash, &mut |address, _| look(address));
            fence(Ordering::Acquire);
            let same = before & 1 == 0 && version.load(Ordering::Relaxed) == before;
            if mutant!(TrieReadNotValidated: true, else same) {
                match seen {
                    SearchResult::Found(found) => return Ok(Some(found)),
                    SearchResult::Missing => return Ok(None),
                    SearchResult::Load(index) if loads < LOADS_MAX => {
                        load(index)?;
                        loads += 1;
                    }
                    // Regions are evicted again before the path is complete. Under the lock they
                    // stay.
                    SearchResult::Load(_) => self.lock(hash).load_path()?,
                    SearchResult::Changed if retries < RETRIES_MAX => retries += 1,
                    SearchResult::Changed => {
                        return Err(damaged("a path leads to an address without a record"));
                    }
                }
            }
            pause(&mut attempts);
        }
    }

    /// One search along the path of `hash`. `look` receives an address and the position of its
    /// word. The result is valid if the subtree's version did not change.
    #[inline]
    fn search<T>(
        &self,
        hash: u64,
        look: &mut impl FnMut(u64, u64) -> RecordVerdict<T>,
    ) -> SearchResult<T> {
        let mut at = ROOT_AT + (hash >> (64 - ROOT_BITS));
        let mut position = ROOT_BITS;
        loop {
            let Some(word) = self.space.get(at) else { return SearchResult::Load(at) };
            match Slot::of(word) {
                Slot::Empty => return SearchResult::Missing,
                Slot::Record(word) => {
                    return match judge(word, at, hash, look) {
                        ControlFlow::Break(end) => end,
                        ControlFlow::Continue(()) => SearchResult::Missing,
                    };
                }
                Slot::List { class, at } => {
                    if self.layout == Layout::Chain {
                        return self.search_chain(at, hash, look);
                    }
                    let Some(words) = self.space.words(at, 1 << class) else {
                        return SearchResult::Load(at);
                    };
                    for (at, word) in (at..).zip(words) {
                        let word = word.load(Ordering::Relaxed);
                        if word == 0 {
                            break;
                        }
                        if let ControlFlow::Break(end) = judge(word, at, hash, look) {
                            return end;
                        }
                    }
                    return SearchResult::Missing;
                }
                Slot::Node { at: node, .. } => {
                    if position + self.fan_bits > ROOT_BITS + TAG_BITS {
                        return SearchResult::Changed;
                    }
                    at = self.child(node, hash, position);
                    position += self.fan_bits;
                }
            }
        }
    }

    /// Locks the subtree of `hash` for writing.
    pub(crate) fn lock(&self, hash: u64) -> Writer<'_> {
        let subtree = self.subtree(hash);
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
                return Writer { trie: self, subtree, version: version + 1, hash };
            }
            pause(&mut attempts);
        }
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

    /// Locks every subtree: no operation is in progress until the writers are dropped.
    pub(crate) fn lock_all(&self) -> Vec<Writer<'_>> {
        (0..ROOTS).map(|root| self.lock(root << (64 - ROOT_BITS))).collect()
    }

    /// Appends the state that is not in the words. The caller keeps writers out.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        lock(&self.objects).encode(out);
        for counter in [&self.counts.keys, &self.counts.nodes, &self.counts.list_words] {
            put_varint(out, counter.load(Ordering::Relaxed));
        }
        put_varint(out, self.shape_bits());
    }

    /// Identifies tries that cannot read one another: bits of a node's index, and layout of lists.
    fn shape_bits(&self) -> u64 {
        u64::from(self.fan_bits) | u64::from(self.layout == Layout::Chain) << 8
    }

    /// Decodes what [`Self::encode`] wrote. Returns `None` for anything else, and for another
    /// shape.
    pub(crate) fn decode(&self, rest: &mut Decoder<'_>) -> Option<()> {
        *lock(&self.objects) = ObjectAllocator::decode(rest, &self.space)?;
        for counter in [&self.counts.keys, &self.counts.nodes, &self.counts.list_words] {
            counter.store(rest.varint()?, Ordering::Relaxed);
        }
        (rest.varint()? == self.shape_bits()).then_some(())
    }

    /// Stores the words of a new object.
    fn fill(&self, object: objects::NewObject, class: u32, words: &[u64]) {
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
    fn allocate(&self, class: u32) -> Result<objects::NewObject> {
        lock(&self.objects).allocate(&self.space, class)
    }

    /// Frees an object.
    fn free(&self, class: u32, at: u64) {
        lock(&self.objects).push(&self.space, class, at);
    }

    /// Builds a slot's word for records that share the hash bits before `position`.
    fn build(&self, words: &[u64], position: u32) -> Result<u64> {
        if let [word] = words {
            return Ok(*word);
        }
        let splits = position + self.fan_bits <= ROOT_BITS + TAG_BITS;
        if words.len() <= self.sluggishness || !splits {
            return self.build_list(words);
        }
        let mut children = vec![0; 1 << self.fan_bits];
        let mut sorted = words.to_vec();
        let of = |word: &u64| character(*word, position, self.fan_bits);
        sorted.sort_unstable_by_key(of);
        for group in sorted.chunk_by(|one, next| of(one) == of(next)) {
            let Some(first) = group.first() else { continue };
            if let Some(child) = children.get_mut(to_usize(of(first))) {
                *child = self.build(group, position + self.fan_bits)?;
            }
        }
        let object = self.allocate(self.fan_bits)?;
        let end = children.iter().rposition(|child| *child != 0).map_or(0, |last| last + 1);
        self.fill(object, self.fan_bits, children.get(..end).unwrap_or(&[]));
        self.counts.nodes.fetch_add(1, Ordering::Relaxed);
        Ok(word::node(self.fan_bits, object.at))
    }
}

/// Passes the record whose word is at `at` to `look` if its tag is that of `hash`.
#[inline]
fn judge<T>(
    word: u64,
    at: u64,
    hash: u64,
    look: &mut impl FnMut(u64, u64) -> RecordVerdict<T>,
) -> ControlFlow<SearchResult<T>> {
    if tag_of(word) != tag(hash) {
        return ControlFlow::Continue(());
    }
    match look(address_of(word), at) {
        RecordVerdict::Found(found) => ControlFlow::Break(SearchResult::Found(found)),
        RecordVerdict::Other => ControlFlow::Continue(()),
        RecordVerdict::Changed => ControlFlow::Break(SearchResult::Changed),
    }
}

#[inline]
fn pause(attempts: &mut u32) {
    *attempts += 1;
    if *attempts < SPINS && !cfg!(model) {
        spin_loop();
    } else {
        yield_now();
    }
}

fn damaged(what: &str) -> Error {
    Error::corruption("nodes", 0, what)
}
