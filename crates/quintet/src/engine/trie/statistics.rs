//! The statistics of a table.
//!
//! The profile has the counters that the original's tools print, as far as this design has the
//! events. Lookups and hits are counted with the option `profile=on` only: otherwise a get from
//! memory stores nothing.

use super::{index::TrieProfile, table::Trie};
use crate::{
    contract::EngineStats,
    engine::trie::store::{extents::ExtentCounts, regions::UNIT_BYTES},
    util::{
        codec::to_u64,
        sync::{AtomicU64, Ordering, lock},
    },
};

impl Trie {
    /// Returns the statistics of the table.
    pub(super) fn statistics(&self) -> EngineStats {
        // If this fails, the figures lack operations in the replay buffer.
        let _ = self.merge_all();
        let counters = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (_, waste) = self.regions.units();
        let regions = self.regions.in_use();
        let resident = regions.iter().filter(|region| self.regions.is_resident(**region)).count();
        let index_bytes = self.index.space_bytes();
        let (free_nodes, free_index_bytes) = self.index.free_nodes();
        let (loads, evictions) = self.index.space().load_counts();
        let (redo_bytes, image_bytes) = {
            let maintenance = lock(&self.maintenance);
            (maintenance.redo.file_bytes(), self.index.space().file_bytes())
        };
        let data_bytes = self.regions.file_bytes() + self.extents.used_bytes();
        let mut details = vec![
            ("node_bytes", self.index.node_bytes()),
            ("list_bytes", self.index.list_bytes()),
            ("free_nodes", free_nodes),
            ("free_index_bytes", free_index_bytes),
            ("regions", to_u64(regions.len())),
            ("regions_in_memory", to_u64(resident)),
            ("extent_bytes", self.extents.used_bytes()),
            ("journal_bytes", redo_bytes),
            ("image_bytes", image_bytes),
            ("change_bytes", self.index.space().change_bytes()),
            ("index_memory_bytes", self.index.memory_bytes()),
            ("index_regions_loaded_total", loads),
            ("index_regions_evicted_total", evictions),
            ("in_place_updates_total", load(&counters.in_place_total)),
            ("cold_reads_total", load(&counters.cold_reads_total)),
            ("compactions_by_writers_total", load(&counters.writer_compactions_total)),
            ("records_moved_total", load(&counters.moved_total)),
            ("regions_evicted_total", load(&counters.evicted_total)),
            ("cuts_total", load(&counters.cuts_total)),
        ];
        details.extend(self.profile());
        EngineStats {
            keys: self.index.len(),
            live_bytes: load(&counters.live_bytes),
            dead_bytes: waste * UNIT_BYTES,
            file_bytes: data_bytes + redo_bytes + image_bytes,
            memory_bytes: self.regions.frames.memory_bytes()
                + self.extents.memory_bytes()
                + self.replay_buffer.memory_bytes()
                + load(&counters.index_charged),
            index_bytes,
            written_bytes_total: load(&counters.written_bytes_total),
            details,
        }
    }

    /// Counts a get. Call with the option `profile=on` only.
    #[cold]
    pub(super) fn count_get(&self, is_hit: bool) {
        self.counters.lookups_total.fetch_add(1, Ordering::Relaxed);
        if is_hit {
            self.counters.lookup_hits_total.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counters of the original's profile.
    fn profile(&self) -> [(&'static str, u64); 16] {
        let TrieProfile { inserts, insert_nodes, splits, merges, allocations } =
            self.index.profile();
        let (switched, made) = self.index.switched();
        let ExtentCounts { allocated, reused, inspected } = self.extents.counts();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("lookups_total", load(&self.counters.lookups_total)),
            ("lookup_hits_total", load(&self.counters.lookup_hits_total)),
            ("inserts_total", inserts),
            ("insert_nodes_total", insert_nodes),
            ("node_splits_total", splits),
            ("node_merges_total", merges),
            ("switched_subtrees", switched),
            ("subtrees_switched_total", made),
            ("index_objects_allocated_total", allocations.allocated),
            ("index_objects_reused_total", allocations.reused),
            ("index_classes_searched_total", allocations.searched),
            ("extents_allocated_total", allocated),
            ("extents_reused_total", reused),
            ("extent_holes_inspected_total", inspected),
            ("regions_loaded_total", load(&self.counters.loaded_total)),
            ("in_place_shorter_total", load(&self.counters.in_place_shorter_total)),
        ]
    }
}
