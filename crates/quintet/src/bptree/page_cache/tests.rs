//! Goal: pages keep what is written, whatever leaves the cache; a checkpoint is a moment; damage is
//! found; readers without a latch see whole states.

use std::sync::Arc;

use super::*;
use crate::{
    Error,
    io::{AlignedBuffer, Env as _, Open, sim::SimEnv},
    lsm::block_cache::{BlockCache, BlockHandles},
    util::{
        budget::Budget,
        mutant::{self, Bug},
        sync::Ordering,
    },
};

fn cache(frames: u64, replacement: Replacement) -> PageCache {
    let options = CacheOptions {
        page_bytes: 4096,
        frames_min: frames,
        frames_max: frames,
        may_reclaim_others: false,
        table_id: 1,
        replacement,
        evict_last_kind: 2,
        salt: 1,
    };
    cache_of(options, &Arc::new(Budget::new(1 << 30)))
}

fn cache_of(options: CacheOptions, budget: &Arc<Budget>) -> PageCache {
    let env = SimEnv::new(1);
    let dir = env.open_dir("cache".as_ref(), true).unwrap();
    let cache = PageCache::new("pages".to_owned(), options, Arc::clone(budget)).unwrap();
    cache.set_file(dir.open("pages", Open::CREATE.direct()).unwrap());
    cache
}

/// Makes all dirty pages clean.
fn store(cache: &PageCache) {
    let frames = cache.join_pending_writeback(usize::MAX, |_| true);
    let checkpoint = cache.begin_checkpoint(1, frames);
    for (page, frame) in checkpoint.pages() {
        let mut image = AlignedBuffer::zeroed(4096);
        if cache.image(&checkpoint, (*page, *frame), image.as_mut_slice()).is_some() {
            cache.write_raw(cache.offset(*page), image.as_slice()).unwrap();
        }
    }
    cache.finish(checkpoint);
}

fn number_in(cache: &PageCache, page: u32) -> u32 {
    loop {
        let guard = cache.read(PageId(page)).unwrap();
        let number = guard.words().u32(100).unwrap();
        if guard.is_unchanged() {
            return number;
        }
    }
}

#[test]
fn pages_come_back_after_they_left() {
    for replacement in [Replacement::Clock, Replacement::Random] {
        let cache = cache(32, replacement);
        for page in 0..500 {
            cache.create(PageId(page)).unwrap().edit().put_u32(100, page * 3);
            if cache.dirty_count() == 16 {
                store(&cache);
            }
        }
        store(&cache);
        assert_eq!(cache.dirty_count(), 0);
        for page in (0..500).rev().chain(0..500) {
            assert_eq!(number_in(&cache, page), page * 3);
        }
        let stats = cache.stats();
        assert_eq!((stats.frames, stats.overflows_total), (32, 0));
        assert!(stats.evictions_total > 900 && stats.misses_total > 900, "{stats:?}");
    }
}

#[test]
fn what_is_used_often_stays() {
    for replacement in [Replacement::Clock, Replacement::Random] {
        let cache = cache(64, replacement);
        for page in 0..1000 {
            drop(cache.create(PageId(page)).unwrap());
            store(&cache);
        }
        let before = cache.stats().misses_total;
        for round in 0..1000_u32 {
            // A scan goes by; eight pages are wanted again and again.
            number_in(&cache, 8 + round % 990);
            for page in 0..8 {
                number_in(&cache, page);
            }
        }
        let misses = cache.stats().misses_total - before;
        assert!(misses < 1100, "{replacement:?}: {misses}");
    }
}

#[test]
fn a_cache_full_of_dirty_pages_grows() {
    let cache = cache(32, Replacement::Clock);
    for page in 0..200 {
        cache.create(PageId(page)).unwrap().edit().put_u32(100, page);
    }
    let stats = cache.stats();
    assert_eq!(stats.dirty, 200);
    assert!(stats.overflows_total >= 168, "{stats:?}");
    assert!((0..200).all(|page| number_in(&cache, page) == page));
}

/// Fills a cache with dirty pages until an access fails.
fn a_full_address_space_refuses_a_page() {
    let options = CacheOptions {
        page_bytes: 4096,
        frames_min: 32,
        frames_max: 32,
        may_reclaim_others: false,
        table_id: 1,
        replacement: Replacement::Clock,
        evict_last_kind: 2,
        salt: 1,
    };
    let budget = Arc::new(Budget::new(1 << 20));
    let cache = cache_of(options, &budget);
    let most = u32::try_from(cache.frames_possible()).unwrap();
    let mut made = 0;
    let error = loop {
        match cache.create(PageId(made)) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(cache.frames() <= cache.frames_possible(), "frames without memory");
    assert!(made <= most && made + 16 >= most, "{made} of {most}");
    let Error::OutOfMemory { budget: limit, needed } = error else { panic!("{error}") };
    assert_eq!(limit, 1 << 20);
    assert!(needed > cache.memory_bytes(), "{needed}");
    // Reads of pages in the cache and, once there is room, all others work.
    assert!(cache.read(PageId(made - 1)).is_ok());
    assert!(cache.read(PageId(made)).is_err());
    store(&cache);
    assert!(cache.create(PageId(made)).is_ok());
}

#[test]
fn an_access_fails_after_a_bounded_wait_if_no_frame_can_be_had() {
    a_full_address_space_refuses_a_page();
    mutant::finds(Bug::CacheExceedsAddresses, a_full_address_space_refuses_a_page);
}

#[test]
fn a_cache_that_goes_first_has_blocks_give_way() {
    for may_reclaim_others in [true, false] {
        let budget = Arc::new(Budget::new(4 << 20));
        // Table 1 has the pages. A cache that does not go first takes nothing from its own table.
        let table = if may_reclaim_others { 2 } else { 1 };
        let blocks = Arc::new(BlockCache::new((4 << 20, 1000), 7, (&budget, table)).unwrap());
        budget.register_reclaimable(Arc::downgrade(&blocks) as _);
        let options = cache(32, Replacement::Clock).options.clone();
        let cache =
            cache_of(CacheOptions { frames_max: 600, may_reclaim_others, ..options }, &budget);
        let places = BlockHandles::new(&blocks, 0).with_count(4_000);
        for block in 0..4_000 {
            blocks.fill(places.get(block).unwrap(), &[&[7; 1000]]);
        }
        assert!(blocks.memory_bytes() > 3 << 20);
        for page in 0..600 {
            cache.create(PageId(page)).unwrap().edit().put_u32(100, page);
            if cache.dirty_count() == 16 {
                store(&cache);
            }
        }
        let stats = cache.stats();
        assert!(budget.used() <= budget.limit(), "{} of {}", budget.used(), budget.limit());
        assert_eq!(stats.frames >= 600, may_reclaim_others, "{stats:?}");
    }
}

#[test]
fn a_page_that_is_given_up_need_not_be_written() {
    let cache = cache(32, Replacement::Clock);
    cache.create(PageId(1)).unwrap().edit().put_u32(100, 1);
    store(&cache);
    cache.write(PageId(1)).unwrap().edit().put_u32(100, 2);
    cache.discard(PageId(1));
    assert_eq!(cache.dirty_count(), 0);
    let frames = cache.join_pending_writeback(usize::MAX, |_| true);
    let checkpoint = cache.begin_checkpoint(1, frames);
    let mut image = vec![0; 4096];
    let pages = checkpoint.pages().to_vec();
    assert!(
        pages
            .iter()
            .all(|(page, frame)| cache.image(&checkpoint, (*page, *frame), &mut image).is_none())
    );
    cache.finish(checkpoint);
    // One of a cut under way is written as it was.
    cache.write(PageId(1)).unwrap().edit().put_u32(100, 3);
    let frames = cache.join_pending_writeback(usize::MAX, |_| true);
    let checkpoint = cache.begin_checkpoint(1, frames);
    cache.discard(PageId(1));
    let (page, frame) = checkpoint.pages()[0];
    assert!(cache.image(&checkpoint, (page, frame), &mut image).is_some());
    assert_eq!(image[100], 3);
    cache.abandon(checkpoint);
    assert_eq!(cache.dirty_count(), 1);
    let frames = cache.join_pending_writeback(usize::MAX, |_| true);
    let checkpoint = cache.begin_checkpoint(1, frames);
    let (page, frame) = checkpoint.pages()[0];
    let units = cache.image(&checkpoint, (page, frame), &mut image).unwrap();
    assert_eq!(units.changed, u64::MAX);
    cache.finish(checkpoint);
}

#[test]
fn damage_and_foreign_pages_are_refused() {
    let cache = cache(32, Replacement::Clock);
    cache.create(PageId(1)).unwrap().edit().put_u32(100, 1);
    store(&cache);
    let mut page = AlignedBuffer::zeroed(4096);
    cache.read_page(PageId(1), &mut page).unwrap();
    cache.write_raw(3 * 4096, page.as_slice()).unwrap();
    let error = cache.read(PageId(3)).unwrap_err().to_string();
    assert!(error.contains("page 3 is stored as page 1"), "{error}");
    page.as_mut_slice()[4000] ^= 1;
    cache.write_raw(2 * 4096, page.as_slice()).unwrap();
    assert!(cache.read(PageId(2)).unwrap_err().is_corruption());
    let error = cache.read(PageId(9)).unwrap_err().to_string();
    assert!(error.contains("ends within page 9"), "{error}");
    assert_eq!(number_in(&cache, 1), 1);
}

#[test]
fn readers_see_whole_states_while_pages_change_and_leave() {
    let cache = cache(48, Replacement::Clock);
    for page in 0..200 {
        drop(cache.create(PageId(page)).unwrap());
        store(&cache);
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3_u32 {
            let (cache, stop) = (&cache, &stop);
            scope.spawn(move || {
                let mut page = thread;
                while !stop.load(Ordering::Relaxed) {
                    page = (page * 5 + 3 + thread) % 200;
                    let guard = cache.read(PageId(page)).unwrap();
                    let (one, other) = (guard.words().u32(100), guard.words().u32(3000));
                    if guard.is_unchanged() {
                        assert_eq!(one, other);
                    }
                }
            });
        }
        for round in 0..20_000_u32 {
            let guard = cache.write(PageId(round % 200)).unwrap();
            guard.edit().put_u32(100, round);
            guard.edit().put_u32(3000, round);
            drop(guard);
            if cache.dirty_count() > 20 {
                store(&cache);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A page's image as a file has it.
fn image_of(page: u32, number: u32) -> Vec<u8> {
    let mut image = vec![0; 4096];
    image[4..8].copy_from_slice(&page.to_le_bytes());
    image[100..104].copy_from_slice(&number.to_le_bytes());
    let sum = checksum(1, &image);
    image[..4].copy_from_slice(&sum.to_le_bytes());
    image
}

#[test]
fn what_the_journal_has_lies_over_the_file_until_it_is_placed() {
    let cache = cache(32, Replacement::Clock);
    for page in 0..100 {
        cache.create(PageId(page)).unwrap().edit().put_u32(100, page);
        store(&cache);
    }
    let (seven, eight, new) = (image_of(7, 70), image_of(8, 80), image_of(200, 2000));
    let old = OverlayLayer::of_patches(&[
        (7, &[(0, &[0xff; 8]), (100, &[0xff; 4])]),
        (8, &[(0, &eight[..8]), (100, &eight[100..104])]),
        (9, &[(100, &[0xff; 4])]),
    ]);
    // What is void of a page is as if it had not been; 200 never was in the file.
    let newer = OverlayLayer::of_patches(&[
        (7, &[(0, &seven[..8]), (100, &[0xff; 4]), (100, &seven[100..104])]),
        (9, &[]),
        (200, &[(0, &new)]),
    ]);
    cache.set_overlay(vec![old, newer], false);
    assert_eq!(cache.pages_in_overlay(9).len(), 3);
    assert_eq!(number_in(&cache, 7), 70);
    assert_eq!(number_in(&cache, 200), 2000);
    // A page that is only read leaves like any other, and is read with its changes again.
    assert_eq!((cache.pages_in_overlay(9).len(), cache.pending_writeback_count()), (3, 0));
    (20..100).for_each(|page| assert_eq!(number_in(&cache, page), page));
    assert!(!cache.contains(PageId(7)) && !cache.contains(PageId(200)));
    assert_eq!((number_in(&cache, 7), number_in(&cache, 200)), (70, 2000));
    cache.write(PageId(7)).unwrap().edit().put_u32(104, 71);
    cache.move_from_overlay(PageId(200)).unwrap();
    assert_eq!((cache.pages_in_overlay(9), cache.pending_writeback_count()), (vec![PageId(8)], 2));
    // Those stay until they are placed, however many others come.
    (20..100).for_each(|page| assert_eq!(number_in(&cache, page), page));
    assert!(cache.contains(PageId(7)) && cache.contains(PageId(200)));
    assert_eq!(cache.oldest_pending_group(), Some(0), "any group may be needed");
    store(&cache);
    assert_eq!((cache.pending_writeback_count(), cache.oldest_pending_group()), (0, None));
    (20..100).for_each(|page| assert_eq!(number_in(&cache, page), page));
    assert_eq!((number_in(&cache, 7), number_in(&cache, 200)), (70, 2000));
    assert_eq!(cache.read(PageId(7)).unwrap().words().u32(104), Some(71));
    // One that is given up is forgotten.
    cache.discard(PageId(8));
    assert!(cache.pages_in_overlay(9).is_empty());
    assert_eq!(number_in(&cache, 8), 8);
}

#[test]
fn several_pages_come_at_once_and_damaged_ones_are_left_out() {
    let cache = cache(64, Replacement::Clock);
    cache.set_env(Arc::new(SimEnv::new(2)));
    for page in 0..200 {
        cache.create(PageId(page)).unwrap().edit().put_u32(100, page);
        store(&cache);
    }
    let mut other = AlignedBuffer::zeroed(4096);
    other.as_mut_slice().copy_from_slice(&image_of(4, 4));
    cache.write_raw(3 * 4096, other.as_slice()).unwrap();
    let pages: Vec<_> = (0..8).map(PageId).collect();
    let before = cache.stats().misses_total;
    cache.load_many(&pages);
    let present: Vec<_> = pages.iter().filter(|page| cache.contains(**page)).collect();
    assert_eq!(present.len(), 7);
    assert!(!cache.contains(PageId(3)) && cache.read(PageId(3)).unwrap_err().is_corruption());
    assert!(cache.stats().misses_total >= before + 8);
    let before = cache.stats().misses_total;
    (4..8).for_each(|page| assert_eq!(number_in(&cache, page), page));
    assert_eq!(cache.stats().misses_total, before);
    // No more than a quarter of the frames at once.
    let before = cache.stats().misses_total;
    cache.load_many(&(20..120).map(PageId).collect::<Vec<_>>());
    assert_eq!(cache.stats().misses_total, before + 16);
}

#[test]
fn pages_that_are_kept_and_the_lasting_kind_stay() {
    let cache = cache(32, Replacement::Clock);
    for page in 0..200 {
        let guard = cache.create(PageId(page)).unwrap();
        guard.edit().put_bytes(8, &[if page < 8 { 2 } else { 1 }]);
        drop(guard);
        store(&cache);
    }
    (0..8).for_each(|page| _ = number_in(&cache, page));
    let kept: Vec<_> =
        (8..16).map(|page| cache.read(PageId(page)).unwrap().pin().unwrap()).collect();
    let read_others = || (100..200).for_each(|page| _ = number_in(&cache, page));
    (0..3).for_each(|_| read_others());
    assert!((0..16).all(|page| cache.contains(PageId(page))));
    for kept in kept {
        cache.unpin(kept);
    }
    (0..3).for_each(|_| read_others());
    assert!((0..8).all(|page| cache.contains(PageId(page))));
    assert!((8..16).all(|page| !cache.contains(PageId(page))));
    // Where only they are left, they go.
    let kept: Vec<_> =
        (100..124).filter_map(|page| cache.read(PageId(page)).unwrap().pin()).collect();
    assert_eq!(kept.len(), 24);
    number_in(&cache, 150);
    assert!((0..8).any(|page| !cache.contains(PageId(page))));
    assert_eq!(cache.stats().overflows_total, 0);
    for kept in kept {
        cache.unpin(kept);
    }
}

/// Fills a cache, makes another table's request for memory, and reads and fills it again.
fn reclaimed_frames_are_used_again() {
    let budget = Arc::new(Budget::new(8 << 20));
    let options = cache(32, Replacement::Clock).options.clone();
    let cache = cache_of(CacheOptions { frames_max: 1000, ..options }, &budget);
    let fill = |from: u32| {
        for page in from..from + 600 {
            cache.create(PageId(page)).unwrap().edit().put_u32(100, page);
        }
    };
    fill(0);
    assert_eq!(cache.memory_use().reclaimable_bytes, 0, "all pages are dirty");
    assert!(cache.memory_use().unwritten_bytes > 2 << 20);
    assert_eq!(cache.reclaim(1 << 20), 0);
    store(&cache);
    let (used, frames) = (budget.used(), cache.frames());
    let released = cache.reclaim(1 << 20);
    assert!((1 << 20..(1 << 20) + 8192).contains(&released), "{released}");
    assert_eq!(budget.used(), used - released);
    assert!(cache.frames() < frames - 200, "{} of {frames}", cache.frames());
    // What was released is read from the file, in the frames that were discarded.
    assert!((0..600).all(|page| number_in(&cache, page) == page));
    fill(600);
    assert!((0..1200).all(|page| number_in(&cache, page) == page));
    assert_eq!(budget.used(), cache.memory_bytes());
    store(&cache);
    let floor = budget.table_floor();
    while cache.reclaim(1 << 20) > 0 {}
    assert!(cache.memory_bytes() <= floor + (256 << 10), "{} left", cache.memory_bytes());
    assert!((0..1200).all(|page| number_in(&cache, page) == page));
}

#[test]
fn another_table_gets_clean_frames() {
    reclaimed_frames_are_used_again();
    mutant::finds(Bug::PageEvictsDirty, reclaimed_frames_are_used_again);
}
