//! Eviction of regions, and the part of the table's state that is not in words.

use super::{
    layout::Layout,
    lazy_trie::{LazyTrie, ROOT_AT},
    objects::ObjectAllocator,
};
use crate::util::{
    codec::{Decoder, low_u32, put_varint},
    sync::{Ordering, lock},
};

/// The most regions that are evicted at once.
const EVICTED_MAX: u64 = 16;
/// At most this part of the loaded regions is evicted at once.
const EVICTED_PART: u64 = 32;

/// Bit of the shape: lists are chains.
const CHAIN: u64 = 1 << 8;
/// Bit of the shape: paths are bytes of keys. Then the number of switched nodes follows the shape.
const KEY_BYTES: u64 = 1 << 9;

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
        if self.fallback.is_some() {
            put_varint(out, self.counts.switched.load(Ordering::Relaxed));
        }
    }

    /// Decodes what [`Self::encode`] wrote. Returns `None` for anything else, and for another
    /// shape.
    pub(crate) fn decode(&self, rest: &mut Decoder<'_>) -> Option<()> {
        *lock(&self.objects) = ObjectAllocator::decode(rest, &self.space)?;
        for counter in [&self.counts.keys, &self.counts.nodes, &self.counts.list_words] {
            counter.store(rest.varint()?, Ordering::Relaxed);
        }
        self.counts.keys_at_open.store(self.len(), Ordering::Relaxed);
        (rest.varint()? == self.shape_bits()).then_some(())?;
        if self.fallback.is_some() {
            self.counts.switched.store(rest.varint()?, Ordering::Relaxed);
        }
        Some(())
    }

    /// Identifies tries that cannot read one another: bits of a node's index, layout of lists, and
    /// whether paths are bytes of keys.
    fn shape_bits(&self) -> u64 {
        let chain = if self.layout == Layout::Chain { CHAIN } else { 0 };
        let key_bytes = if self.fallback.is_some() { KEY_BYTES } else { 0 };
        u64::from(self.fan_bits) | chain | key_bytes
    }

    /// Describes the state that [`Self::encode`] wrote: the trie space and its free list (CedrusDB,
    /// figure 7). Returns `None` for anything else.
    pub(crate) fn describe_state(rest: &mut Decoder<'_>, lines: &mut Vec<String>) -> Option<()> {
        let objects = ObjectAllocator::decode_any(rest)?;
        let (keys, nodes, list_words) = (rest.varint()?, rest.varint()?, rest.varint()?);
        let shape = rest.varint()?;
        let switched = if shape & KEY_BYTES == 0 { 0 } else { rest.varint()? };
        let fanout = 1_u64.checked_shl(low_u32(shape & 0xff))?;
        let layout = if shape & CHAIN == 0 { "arrays" } else { "chains" };
        let paths = if shape & KEY_BYTES == 0 { "hashes" } else { "bytes of keys" };
        lines.push(format!("  trie space: {} words, root table at word {ROOT_AT}", objects.tail()));
        lines.push(format!("    {nodes} nodes of {fanout} words, {switched} of them switched"));
        lines.push(format!("    {list_words} words of lists in {layout}"));
        lines.push(format!("    {keys} records, paths are {paths}"));
        lines.push(format!("  trie free list: {} words", objects.free_words()));
        for ((class, head), (_, count)) in objects.free_heads().zip(objects.free_counts()) {
            if count > 0 {
                let words = 1_u64 << class;
                lines.push(format!(
                    "    {count} objects of {words} words, the first at word {head}"
                ));
            }
        }
        Some(())
    }
}
