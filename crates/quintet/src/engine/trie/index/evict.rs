//! Eviction of regions, and the part of the table's state that is not in words.

use super::{layout::Layout, lazy_trie::LazyTrie, objects::ObjectAllocator};
use crate::util::{
    codec::{Decoder, put_varint},
    sync::{Ordering, lock},
};

/// The most regions that are evicted at once.
const EVICTED_MAX: u64 = 16;
/// At most this part of the loaded regions is evicted at once.
const EVICTED_PART: u64 = 32;

impl LazyTrie {
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

    /// Appends the state that is not in the words. The caller keeps writers out.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        lock(&self.objects).encode(out);
        for counter in [&self.counts.keys, &self.counts.nodes, &self.counts.list_words] {
            put_varint(out, counter.load(Ordering::Relaxed));
        }
        put_varint(out, self.shape_bits());
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

    /// Identifies tries that cannot read one another: bits of a node's index, and layout of lists.
    fn shape_bits(&self) -> u64 {
        u64::from(self.fan_bits) | u64::from(self.layout == Layout::Chain) << 8
    }
}
