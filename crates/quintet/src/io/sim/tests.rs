//! Each policy and each fault does what it says.

use std::{
    collections::BTreeSet,
    io::ErrorKind,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

use super::*;
use crate::{
    io::{
        AlignedBuffer, Completion, File, NextRun, Open, Request, contract_tests, read_exact_at,
        write_all_at,
    },
    util::codec::to_usize,
};

fn root(env: &SimEnv) -> Arc<dyn Dir> {
    env.open_dir(Path::new("db"), true).unwrap()
}

fn create(dir: &dyn Dir, name: &str) -> Arc<dyn File> {
    dir.open(name, Open::CREATE).unwrap()
}

/// A durable file of `blocks` blocks of `byte`.
fn durable(dir: &dyn Dir, name: &str, byte: u8, blocks: usize) -> Arc<dyn File> {
    let file = create(dir, name);
    write_all_at(&*file, &vec![byte; blocks * 4096], 0).unwrap();
    file.sync_all().unwrap();
    dir.sync().unwrap();
    file
}

fn names(env: &SimEnv) -> Vec<String> {
    env.files().into_iter().map(|(path, _)| path).collect()
}

fn read(file: &dyn File, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    read_exact_at(file, &mut bytes, 0).unwrap();
    bytes
}

#[test]
fn keeps_the_contract() {
    let env = SimEnv::new(1);
    contract_tests::check_all(&env, Path::new("contract"));
    contract_tests::check_jobs(&env, &|| {
        env.run_due();
    });
}

#[test]
fn only_synced_bytes_under_synced_names_survive_the_worst_crash() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    let file = durable(&*dir, "kept", 1, 1);
    write_all_at(&*file, &[2; 10], 0).unwrap();
    let nameless = create(&*dir, "nameless");
    write_all_at(&*nameless, &[3; 10], 0).unwrap();
    nameless.sync_all().unwrap();
    let after = env.crash(Policy::AllLost);
    assert_eq!(names(&after), ["db/kept"]);
    assert_eq!(after.contents("db/kept").unwrap(), [1; 4096]);
    let after = env.crash(Policy::AllKept);
    assert_eq!(names(&after), ["db/kept", "db/nameless"]);
    assert_eq!(after.contents("db/kept").unwrap()[..11], [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
}

#[test]
fn sync_data_does_not_promise_a_size_that_no_data_needs() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    let file = durable(&*dir, "a", 1, 1);
    file.set_len(10_000).unwrap();
    file.sync_data().unwrap();
    assert_eq!(env.crash(Policy::AllLost).contents("db/a").unwrap().len(), 4096);
    assert_eq!(env.crash(Policy::AllKept).contents("db/a").unwrap().len(), 10_000);
    write_all_at(&*file, &[1], 9000).unwrap();
    file.sync_data().unwrap();
    assert_eq!(env.crash(Policy::AllLost).contents("db/a").unwrap().len(), 10_000);
    file.set_len(100).unwrap();
    file.sync_all().unwrap();
    assert_eq!(env.crash(Policy::AllLost).contents("db/a").unwrap().len(), 100);
}

/// Three writes to blocks 0, 1 and 2 of a durable file of zeros; which of them does `policy` keep?
fn survivors(policy: Policy) -> Vec<u64> {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 0, 3);
    for block in 0..3 {
        write_all_at(&*file, &[9; 4096], block * BLOCK_BYTES).unwrap();
    }
    let bytes = env.crash(policy).contents("db/a").unwrap();
    (0..3).filter(|block| bytes[to_usize(block * BLOCK_BYTES)] == 9).collect()
}

#[test]
fn policies_pick_their_survivors() {
    assert_eq!(survivors(Policy::AllLost), [] as [u64; 0]);
    assert_eq!(survivors(Policy::AllKept), [0, 1, 2]);
    assert_eq!(survivors(Policy::Prefix(2)), [0, 1]);
    assert_eq!(survivors(Policy::OnlyLast), [2]);
    assert_eq!(survivors(Policy::DropOne(1)), [0, 2]);
    assert_eq!(survivors(Policy::KeepOne(1)), [1]);
    assert_eq!(survivors(Policy::SizesOnly { tail: Tail::Zeros }), [] as [u64; 0]);
    let random: BTreeSet<Vec<u64>> =
        (0..64).map(|seed| survivors(Policy::Random { seed })).collect();
    assert!(random.len() >= 6, "random subsets: {random:?}");
}

#[test]
fn random_subsets_split_a_write_into_sectors() {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 0, 1);
    write_all_at(&*file, &[9; 4096], 0).unwrap();
    let mut masks = BTreeSet::new();
    for seed in 0..64 {
        let bytes = env.crash(Policy::Random { seed }).contents("db/a").unwrap();
        let sectors: Vec<bool> = bytes
            .chunks(512)
            .map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "sectors are whole");
                sector[0] == 9
            })
            .collect();
        masks.insert(sectors);
    }
    assert!(masks.len() > 30);
}

#[test]
fn last_write_is_torn_at_every_sector() {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 1, 1);
    write_all_at(&*file, &[2; 100], 3900).unwrap();
    write_all_at(&*file, &[9; 5000], 600).unwrap();
    let image = |sectors, tail| env.crash(Policy::Torn { sectors, tail }).contents("db/a").unwrap();
    // The file grew from 4096 to 5600; the write touches sectors 1 (from byte 600) to 10.
    let ends = [600, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 4608, 5120];
    for (sectors, end) in (0..).zip(ends) {
        let zeros = image(sectors, Tail::Zeros);
        assert_eq!(zeros.len(), 5600);
        assert!(zeros[600..end].iter().all(|byte| *byte == 9));
        assert!(zeros[end.max(4096)..].iter().all(|byte| *byte == 0));
        assert_eq!(zeros[599], 1);
        if end <= 3900 {
            assert!(zeros[3900..4000].iter().all(|byte| *byte == 2), "earlier writes are kept");
        }
        let short = image(sectors, Tail::Short);
        assert_eq!(short.len(), end.max(4096));
        assert_eq!(short[..], zeros[..end.max(4096)]);
        let garbage = image(sectors, Tail::Garbage);
        assert_eq!(garbage.len(), 5600);
        assert_eq!(garbage[600..end], zeros[600..end]);
        let stop = (end + 1).next_multiple_of(512).min(5600);
        let half = end + (stop - end) / 2;
        assert!(garbage[end..half].iter().all(|byte| *byte == 9), "half of the torn sector is new");
        assert_ne!(garbage[half..stop], vec![9; stop - half][..], "the other half is noise");
    }
}

#[test]
fn grown_files_may_hold_zeros_or_old_blocks() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    durable(&*dir, "old", 0xaa, 4);
    let file = durable(&*dir, "a", 1, 1);
    write_all_at(&*file, &[9; 4096], 4096).unwrap();
    let zeros = env.crash(Policy::SizesOnly { tail: Tail::Zeros }).contents("db/a").unwrap();
    assert_eq!(zeros[4096..], [0; 4096]);
    let mut stale = false;
    for byte in 0..100 {
        // Each event has a seed of its own.
        write_all_at(&*file, &[byte], 4096).unwrap();
        let image = env.crash(Policy::SizesOnly { tail: Tail::Garbage });
        let bytes = image.contents("db/a").unwrap();
        assert_eq!(bytes[..4096], [1; 4096]);
        assert_ne!(bytes[4096..], [0; 4096]);
        stale |= bytes[4096..5000] == [0xaa; 904];
    }
    assert!(stale, "old blocks of another file show up");
    file.set_len(12_288).unwrap();
    let bytes = env.crash(Policy::SizesOnly { tail: Tail::Garbage }).contents("db/a").unwrap();
    assert_eq!(bytes[8192..], [0; 4096], "what set_len grows reads as zeros");
}

#[test]
fn names_are_undone_one_by_one() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    durable(&*dir, "current", 1, 1);
    durable(&*dir, "dead", 1, 1);
    let next = create(&*dir, "next");
    write_all_at(&*next, &[2; 4096], 0).unwrap();
    next.sync_all().unwrap();
    dir.rename("next", "current").unwrap();
    dir.remove("dead").unwrap();
    let lost = |policy| names(&env.crash(policy));
    assert_eq!(lost(Policy::AllLost), ["db/current", "db/dead"]);
    assert_eq!(env.crash(Policy::AllLost).contents("db/current").unwrap()[0], 1);
    assert_eq!(lost(Policy::AllKept), ["db/current"]);
    assert_eq!(env.crash(Policy::AllKept).contents("db/current").unwrap()[0], 2);
    // The creation undone, the rename kept: the file is under its new name.
    assert_eq!(env.crash(Policy::DropOne(0)).contents("db/current").unwrap()[0], 2);
    // The rename undone: both files, under their old names.
    assert_eq!(lost(Policy::DropOne(1)), ["db/current", "db/next"]);
    assert_eq!(lost(Policy::DropOne(2)), ["db/current", "db/dead"]);
    dir.sync().unwrap();
    assert_eq!(lost(Policy::AllLost), ["db/current"]);
}

#[test]
fn rename_may_be_durable_before_the_content() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    durable(&*dir, "current", 1, 1);
    let next = create(&*dir, "next");
    write_all_at(&*next, &[2; 4096], 0).unwrap();
    dir.rename("next", "current").unwrap();
    // Units: creation, write, rename.
    let empty = env.crash(Policy::DropOne(1)).contents("db/current").unwrap();
    assert!(empty.is_empty(), "the old file is gone and the new one has nothing");
}

#[test]
fn a_lost_directory_takes_what_is_in_it() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    let child = dir.open_dir("child", true).unwrap();
    durable(&*child, "a", 1, 1);
    assert_eq!(names(&env.crash(Policy::AllLost)), [] as [&str; 0]);
    dir.sync().unwrap();
    assert_eq!(names(&env.crash(Policy::AllLost)), ["db/child/a"]);
}

#[test]
fn stores_into_a_mapping_may_or_may_not_survive_sector_by_sector() {
    let env = SimEnv::new(1);
    env.record_history();
    let dir = root(&env);
    let file = durable(&*dir, "a", 0, 2);
    let mapping = file.map(8192).unwrap();
    let before = env.mark();
    mapping.words()[0].store(1, Ordering::Relaxed);
    let first = env.mark();
    assert_eq!(first, before + 1, "stores are an event");
    assert_eq!(env.mark(), first, "and only one");
    mapping.words()[0].store(2, Ordering::Relaxed);
    mapping.words()[64].store(3, Ordering::Relaxed);
    mapping.words()[1023].store(4, Ordering::Relaxed);
    let second = env.mark();
    assert_eq!(env.pending_units(second), 4);
    let mut found = BTreeSet::new();
    for policy in env.policies(second, PolicyLimits::default()) {
        let bytes = env.image_at(second, policy).contents("db/a").unwrap();
        found.insert((bytes[0], bytes[512], bytes[8184]));
    }
    assert!(found.contains(&(2, 0, 0)));
    assert!(found.contains(&(1, 3, 4)), "an older content of a sector: {found:?}");
    assert!(found.contains(&(0, 3, 4)));
    assert!(found.contains(&(0, 0, 0)));
    // Besides the 3 x 2 x 2 contents: noise, where a torn sector was the last.
    assert!(found.len() >= 12, "{found:?}");
    mapping.words()[65].store(5, Ordering::Relaxed);
    file.sync_data().unwrap();
    let synced = env.crash(Policy::AllLost).contents("db/a").unwrap();
    assert_eq!((synced[0], synced[512], synced[520], synced[8184]), (2, 3, 5, 4));
}

#[test]
fn words_of_persistent_memory_may_or_may_not_survive_until_their_line_is_synced() {
    let env = SimEnv::with_persistent_memory(1);
    env.record_history();
    let dir = root(&env);
    let file = durable(&*dir, "a", 0, 2);
    let mapping = file.map(8192).unwrap();
    let store = |word: usize, value| mapping.words()[word].store(value, Ordering::Relaxed);
    // Two words of one line, one of the next, one of another page.
    for word in [0, 1, 8, 600] {
        store(word, 1);
    }
    let stored = env.mark();
    assert_eq!(env.pending_units(stored), 3, "lines");
    let words = |env: &SimEnv| {
        let bytes = env.contents("db/a").unwrap();
        [0, 1, 8, 600].map(|word| bytes[8 * word])
    };
    let mut found = BTreeSet::new();
    for policy in env.policies(stored, PolicyLimits { random: 200, ..PolicyLimits::default() }) {
        found.insert(words(&env.image_at(stored, policy)));
    }
    assert_eq!(found.len(), 16, "any of the words, and nothing else: {found:?}");
    file.sync_range(&mapping, 8..9).unwrap();
    assert_eq!(words(&env.crash(Policy::AllLost)), [1, 1, 0, 0], "one line");
    store(0, 2);
    file.sync_range(&mapping, 64..65).unwrap();
    assert_eq!(words(&env.crash(Policy::AllLost)), [1, 1, 1, 0], "its neighbour's stores wait");
    file.sync_data().unwrap();
    assert_eq!(words(&env.crash(Policy::AllLost)), [2, 1, 1, 1]);
}

#[test]
fn a_sync_of_a_range_covers_its_blocks_alone() {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 0, 2);
    let mapping = file.map(8192).unwrap();
    for word in [0, 511, 512] {
        mapping.words()[word].store(1, Ordering::Relaxed);
    }
    file.sync_range(&mapping, 8..16).unwrap();
    let bytes = env.crash(Policy::AllLost).contents("db/a").unwrap();
    assert_eq!([0, 511, 512].map(|word| bytes[8 * word]), [1, 1, 0]);
    let bytes = env.crash(Policy::AllKept).contents("db/a").unwrap();
    assert_eq!(bytes[4096], 1, "what is left is pending");
}

#[test]
fn a_dropped_mapping_leaves_its_stores() {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 0, 1);
    let mapping = file.map(4096).unwrap();
    mapping.words()[0].store(7, Ordering::Relaxed);
    drop(mapping);
    assert_eq!(env.crash(Policy::AllKept).contents("db/a").unwrap()[0], 7);
    file.set_len(0).unwrap();
    assert_eq!(env.contents("db/a").unwrap(), [] as [u8; 0], "nothing is mapped any more");
}

#[test]
#[should_panic(expected = "must not shrink")]
fn shrinking_a_mapped_file_is_a_bug() {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 0, 1);
    let _mapping = file.map(4096).unwrap();
    let _ = file.set_len(0);
}

#[test]
fn a_killed_process_leaves_the_page_cache_and_a_later_power_loss_takes_it() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    let file = durable(&*dir, "a", 1, 1);
    let guard = dir.lock("LOCK", true).unwrap();
    write_all_at(&*file, &[2; 10], 0).unwrap();
    let killed = env.kill();
    assert_eq!(killed.boot_id(), env.boot_id());
    assert_eq!(killed.contents("db/a").unwrap()[0], 2);
    drop(root(&killed).lock("LOCK", true).unwrap());
    drop(guard);
    let lost = killed.crash(Policy::AllLost);
    assert_ne!(lost.boot_id(), env.boot_id());
    assert_eq!(lost.contents("db/a").unwrap()[0], 1);
    assert_ne!(lost.crash(Policy::AllLost).boot_id(), lost.boot_id());
    // The clocks: one starts again, the other goes on.
    assert!(lost.unix_millis() >= env.unix_millis());
    env.advance(Duration::from_secs(100));
    assert!(env.crash(Policy::AllLost).monotonic() < env.monotonic());
}

#[test]
fn a_kill_while_copying_leaves_old_words() {
    let env = SimEnv::new(1);
    env.record_history();
    let file = durable(&*root(&env), "a", 1, 1);
    let mapping = file.map(4096).unwrap();
    env.mark();
    for word in &mapping.words()[10..20] {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    let event = env.mark();
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let image = env.image_at(event, Policy::KilledCopying { seed });
        assert_eq!(image.boot_id(), env.boot_id());
        let bytes = image.contents("db/a").unwrap();
        let (words, _) = bytes.as_chunks::<8>();
        let copied: Vec<bool> = words[10..20]
            .iter()
            .map(|word| {
                assert!(*word == [0xff; 8] || *word == [1; 8]);
                *word == [0xff; 8]
            })
            .collect();
        assert!(words[20..].iter().all(|word| *word == [1; 8]));
        seen.insert(copied);
    }
    assert!(seen.len() > 20);
    assert!(seen.contains(&vec![false; 10]));
}

#[test]
fn history_gives_the_image_of_every_event_without_a_second_run() {
    let env = SimEnv::new(7);
    let dir = root(&env);
    env.record_history();
    let file = create(&*dir, "a");
    for byte in 1..=5 {
        write_all_at(&*file, &[byte; 100], 0).unwrap();
    }
    file.sync_all().unwrap();
    dir.sync().unwrap();
    let events = env.history();
    assert_eq!(events.len(), 9);
    assert_eq!(events[0].kind, EventKind::Start);
    assert_eq!(events[1].kind, EventKind::Call(Call::Create));
    assert_eq!(events[1].to_string(), format!("{} Call(Create) db/a", events[1].number));
    for (event, byte) in events[2..7].iter().zip(1..) {
        let image = env.image_at(event.number, Policy::AllKept);
        assert_eq!(image.contents("db/a").unwrap(), [byte; 100]);
        assert_eq!(names(&env.image_at(event.number, Policy::AllLost)), [] as [&str; 0]);
    }
    let last = env.image_at(events[8].number, Policy::AllLost);
    assert_eq!(last.contents("db/a").unwrap(), [5; 100]);
    last.record_history();
    assert_eq!(last.mark(), events[8].number, "numbers go on in the image");
}

#[test]
fn an_image_has_the_time_of_its_event() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    env.record_history();
    let wall = env.unix_millis();
    env.advance(Duration::from_secs(10));
    durable(&*dir, "a", 1, 1);
    let event = env.mark();
    env.advance(Duration::from_secs(1000));
    for policy in [Policy::Killed, Policy::AllLost] {
        let passed = env.image_at(event, policy).unix_millis() - wall;
        assert!((10_000..11_000).contains(&passed), "{policy}: {passed}");
    }
    assert!(env.unix_millis() - wall >= 1_010_000);
}

#[test]
fn equal_images_have_equal_hashes() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    let file = durable(&*dir, "a", 1, 3);
    let base = env.crash(Policy::AllLost).image_hash();
    write_all_at(&*file, &[2], 5000).unwrap();
    assert_eq!(env.crash(Policy::AllLost).image_hash(), base);
    let kept = env.crash(Policy::AllKept).image_hash();
    assert_ne!(kept, base);
    assert_eq!(env.crash(Policy::DropOne(0)).image_hash(), base);
    assert_ne!(env.kill().image_hash(), kept, "what is pending is part of it");
    write_all_at(&*file, &[1], 5000).unwrap();
    assert_eq!(env.crash(Policy::AllKept).image_hash(), base);
    dir.rename("a", "b").unwrap();
    assert_ne!(env.crash(Policy::AllKept).image_hash(), base);
}

#[test]
fn policies_are_written_and_read_alike() {
    let env = SimEnv::new(1);
    env.record_history();
    let dir = root(&env);
    let file = durable(&*dir, "a", 1, 1);
    let mapping = file.map(4096).unwrap();
    write_all_at(&*file, &[1; 4096], 4096).unwrap();
    mapping.words()[0].store(1, Ordering::Relaxed);
    let event = env.mark();
    let mut policies = env.policies(event, PolicyLimits::default());
    policies.push(Policy::Torn { sectors: 1, tail: Tail::Short });
    assert!(policies.contains(&Policy::KilledCopying { seed: 3 }));
    for policy in policies {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    for text in ["", "torn", "torn:1", "torn:1:wide", "prefix:x", "nothing"] {
        text.parse::<Policy>().unwrap_err();
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let env = SimEnv::new(seed);
        let file = durable(&*root(&env), "a", 0, 8);
        let mut queue = env.queue(4).unwrap();
        let mut order = Vec::new();
        for token in 0..20 {
            let (buffer, offset) = (AlignedBuffer::zeroed(4096), token % 8 * BLOCK_BYTES);
            queue.submit(token, Request::Write { file: file.clone(), offset, buffer, length: 512 });
        }
        queue.wait(20, &mut order);
        let order: Vec<u64> = order.iter().map(|done: &Completion| done.token).collect();
        write_all_at(&*file, &[1; 4096], 0).unwrap();
        let mut random = [0; 8];
        env.random(&mut random);
        (order, random, env.boot_id(), env.crash(Policy::Random { seed: 5 }).image_hash())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
    assert_ne!(run(1).0, (0..20).collect::<Vec<u64>>());
}

#[test]
fn an_error_hits_the_planned_call_alone_or_from_there_on() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    let file = durable(&*dir, "a", 1, 1);
    env.inject(Fault::new(&[Call::Write], When::Nth(2), Effect::Io));
    file.write_at(b"1", 0).unwrap();
    let error = file.write_at(b"2", 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    file.write_at(b"3", 0).unwrap();
    assert_eq!(env.faults_fired(), 1);
    env.inject(Fault::new(&[Call::Write], When::From(2), Effect::Io).on("other"));
    let other = create(&*dir, "other");
    other.write_at(b"1", 0).unwrap();
    other.write_at(b"2", 0).unwrap_err();
    other.write_at(b"3", 0).unwrap_err();
    file.write_at(b"4", 0).unwrap();
    env.clear_faults();
    other.write_at(b"5", 0).unwrap();
    assert_eq!(env.contents("db/other").unwrap(), b"5");
    assert_eq!(env.calls(&[Call::Write]), 8 + 1);
}

type Attempt = fn(&SimEnv, &dyn Dir, &dyn File) -> io::Result<()>;

#[test]
fn every_call_can_fail_with_every_error() {
    let effects = [
        (Effect::Io, Errno::IO),
        (Effect::NoSpace, Errno::NOSPC),
        (Effect::Quota, Errno::DQUOT),
        (Effect::TooManyFiles, Errno::MFILE),
        (Effect::Interrupted, Errno::INTR),
        (Effect::TryAgain, Errno::AGAIN),
    ];
    let calls: &[(Call, Attempt)] = &[
        (Call::Read, |_, _, file| file.read_at(&mut [0; 4], 0).map(drop)),
        (Call::Write, |_, _, file| file.write_at(b"x", 0).map(drop)),
        (Call::Sync, |_, _, file| file.sync_data()),
        (Call::SetLen, |_, _, file| file.set_len(3)),
        (Call::Allocate, |_, _, file| file.allocate(8192)),
        (Call::Punch, |_, _, file| file.punch_hole(0, 10)),
        (Call::Map, |_, _, file| file.map(4096).map(drop)),
        (Call::Open, |_, dir, _| dir.open("a", Open::READ).map(drop)),
        (Call::Create, |_, dir, _| dir.open("new", Open::CREATE).map(drop)),
        (Call::OpenDir, |_, dir, _| dir.open_dir("child", false).map(drop)),
        (Call::CreateDir, |_, dir, _| dir.open_dir("new", true).map(drop)),
        (Call::CreateDir, |env, _, _| env.open_dir(Path::new("db/deep/er"), true).map(drop)),
        (Call::List, |_, dir, _| dir.list().map(drop)),
        (Call::Rename, |_, dir, _| dir.rename("a", "b")),
        (Call::Remove, |_, dir, _| dir.remove("a")),
        (Call::Remove, |_, dir, _| dir.remove_dir("child")),
        (Call::SyncDir, |_, dir, _| dir.sync()),
        (Call::Lock, |_, dir, _| dir.lock("LOCK", true).map(drop)),
        (Call::Queue, |env, _, _| env.queue(1).map(drop)),
    ];
    let tested: BTreeSet<Call> = calls.iter().map(|(call, _)| *call).collect();
    assert_eq!(tested.len(), Call::ALL.len());
    for (call, run) in calls {
        for (effect, errno) in effects {
            let env = SimEnv::new(1);
            let dir = root(&env);
            let file = durable(&*dir, "a", 1, 1);
            dir.open_dir("child", true).unwrap();
            let before = env.kill().image_hash();
            env.inject(Fault::new(&[*call], When::Nth(1), effect));
            let error = run(&env, &*dir, &*file).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{call:?} {effect:?}");
            assert_eq!(env.kill().image_hash(), before, "a failed {call:?} changes nothing");
            run(&env, &*dir, &*file).unwrap();
        }
    }
}

#[test]
fn a_failed_sync_marks_pages_clean_and_a_retry_saves_nothing() {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 1, 1);
    let direct = root(&env).open("a", Open::READ.direct()).unwrap();
    write_all_at(&*file, &[2; 100], 0).unwrap();
    env.inject(Fault::new(Call::SYNCS, When::Nth(1), Effect::Io));
    file.sync_data().unwrap_err();
    file.sync_data().unwrap();
    assert_eq!(read(&*file, 1), [2], "readable until the reboot");
    let mut buffer = AlignedBuffer::zeroed(4096);
    direct.read_at(buffer.as_mut_slice(), 0).unwrap();
    assert_eq!(buffer.as_slice()[0], 1, "but not there");
    assert_eq!(env.kill().contents("db/a").unwrap()[0], 2);
    assert_eq!(env.crash(Policy::AllKept).contents("db/a").unwrap()[0], 1);
    // What is written later is synced as ever.
    write_all_at(&*file, &[3; 10], 200).unwrap();
    file.sync_data().unwrap();
    let after = env.crash(Policy::AllLost).contents("db/a").unwrap();
    assert_eq!((after[0], after[200]), (1, 3));
    file.drop_cache().unwrap();
    assert_eq!(read(&*file, 1), [1]);
}

#[test]
fn an_interrupted_sync_loses_nothing() {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 1, 1);
    write_all_at(&*file, &[2; 100], 0).unwrap();
    env.inject(Fault::new(&[Call::Sync], When::Nth(1), Effect::Interrupted));
    assert_eq!(file.sync_data().unwrap_err().kind(), ErrorKind::Interrupted);
    file.sync_data().unwrap();
    assert_eq!(env.crash(Policy::AllLost).contents("db/a").unwrap()[0], 2);
}

#[test]
fn short_transfers_move_a_part() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    let file = durable(&*dir, "a", 1, 4);
    env.inject(Fault::new(&[Call::Read, Call::Write], When::OneIn(1), Effect::Short));
    assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 50);
    assert_eq!(file.read_at(&mut [0; 1], 0).unwrap(), 1);
    assert_eq!(file.write_at(&[2; 100], 0).unwrap(), 50);
    let direct = dir.open("a", Open::WRITE.direct()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(3 * 4096);
    assert_eq!(direct.read_at(buffer.as_mut_slice(), 0).unwrap(), 4096);
    assert_eq!(direct.write_at(&buffer.as_slice()[..4096], 0).unwrap(), 4096);
    let mut bytes = [0; 16_384];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    write_all_at(&*file, &[5; 10_000], 0).unwrap();
    assert_eq!(env.contents("db/a").unwrap()[..10_000], [5; 10_000]);
}

#[test]
fn bad_writes_are_acknowledged_seen_and_gone_after_the_reboot() {
    // Each damages a synced overwrite of block 1 of four blocks of ones by a block of twos.
    let after = |effect| {
        let env = SimEnv::new(1);
        let file = durable(&*root(&env), "a", 1, 4);
        write_all_at(&*file, &[7; 4096], 0).unwrap();
        env.inject(Fault::new(&[Call::Write], When::Nth(1), effect));
        write_all_at(&*file, &[2; 4096], 4096).unwrap();
        file.sync_all().unwrap();
        assert_eq!(env.contents("db/a").unwrap()[4096..8192], [2; 4096], "the cache is right");
        env.crash(Policy::AllLost).contents("db/a").unwrap()
    };
    let blocks = |bytes: &[u8]| -> Vec<u8> { bytes.iter().step_by(4096).copied().collect() };
    assert_eq!(blocks(&after(Effect::Phantom)), [7, 1, 1, 1]);
    assert_eq!(blocks(&after(Effect::ZeroBlock)), [7, 0, 1, 1]);
    assert_eq!(blocks(&after(Effect::DuplicateBlock)), [7, 7, 1, 1]);
    assert_eq!(blocks(&after(Effect::Misdirect(1))), [7, 1, 2, 1]);
    assert_eq!(blocks(&after(Effect::Misdirect(-1))), [2, 1, 1, 1]);
    assert_eq!(blocks(&after(Effect::Misdirect(3))), [7, 1, 1, 1, 2]);
    let flipped = after(Effect::FlipBits(3));
    let bits: u32 = flipped[4096..8192].iter().map(|byte| (byte ^ 2).count_ones()).sum();
    assert_eq!(bits, 3);
}

#[test]
fn a_lying_sync_makes_nothing_durable() {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 1, 1);
    write_all_at(&*file, &[2; 100], 0).unwrap();
    env.inject(Fault::new(&[Call::Sync], When::Nth(1), Effect::Phantom));
    file.sync_all().unwrap();
    assert_eq!(env.crash(Policy::AllLost).contents("db/a").unwrap()[0], 1);
}

#[test]
fn bad_reads_return_wrong_bytes_once() {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 1, 2);
    write_all_at(&*file, &[2; 4096], 4096).unwrap();
    env.inject(Fault::new(&[Call::Read], When::Nth(1), Effect::FlipBits(1)));
    let bits: u32 = read(&*file, 4096).iter().map(|byte| (byte ^ 1).count_ones()).sum();
    assert_eq!(bits, 1);
    assert_eq!(read(&*file, 4096), [1; 4096]);
    env.inject(Fault::new(&[Call::Read], When::Nth(1), Effect::Misdirect(1)));
    assert_eq!(read(&*file, 4096), [2; 4096]);
    env.inject(Fault::new(&[Call::Read], When::Nth(1), Effect::ZeroBlock));
    assert_eq!(read(&*file, 4096), [0; 4096]);
}

#[test]
fn slow_calls_take_virtual_time() {
    let env = SimEnv::new(1);
    let file = durable(&*root(&env), "a", 1, 1);
    env.inject(Fault::new(&[Call::Read], When::Nth(1), Effect::Delay(Duration::from_secs(30))));
    let before = env.monotonic();
    read(&*file, 10);
    let took = env.monotonic().checked_sub(before).unwrap();
    assert!(took >= Duration::from_secs(30) && took < Duration::from_secs(31));
}

#[test]
fn a_full_disk_refuses_and_takes_again_what_was_freed() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    env.set_capacity(Some(10 * BLOCK_BYTES));
    let file = create(&*dir, "a");
    file.allocate(8 * BLOCK_BYTES).unwrap();
    assert_eq!(file.allocate(11 * BLOCK_BYTES).unwrap_err().kind(), ErrorKind::StorageFull);
    let other = create(&*dir, "b");
    write_all_at(&*other, &[1; 8192], 0).unwrap();
    assert_eq!(other.write_at(&[1], 8192).unwrap_err().kind(), ErrorKind::StorageFull);
    write_all_at(&*file, &vec![1; 8 * 4096], 0).unwrap();
    other.set_len(1 << 30).unwrap();
    file.punch_hole(0, BLOCK_BYTES).unwrap();
    write_all_at(&*other, &[1], 8192).unwrap();
    drop(file);
    dir.remove("a").unwrap();
    dir.sync().unwrap();
    let last = create(&*dir, "c");
    assert_eq!(last.allocate(8 * BLOCK_BYTES).unwrap_err().kind(), ErrorKind::StorageFull);
    last.allocate(7 * BLOCK_BYTES).unwrap();
}

#[test]
fn damage_at_rest_does_what_it_says() {
    let env = SimEnv::new(1);
    let dir = root(&env);
    let file = durable(&*dir, "a", 1, 3);
    durable(&*dir, "b", 2, 1);
    write_all_at(&*file, &[3; 4096], 4096).unwrap();
    let damaged = |damage: Damage| {
        let image = env.kill();
        image.damage("db/a", &damage).unwrap();
        image.crash(Policy::AllLost)
    };
    let bytes = |damage| damaged(damage).contents("db/a").unwrap();
    assert_eq!(bytes(Damage::FlipBit { offset: 100, bit: 3 })[100], 9);
    let flipped: u32 = bytes(Damage::FlipBits(8))
        .iter()
        .zip(env.contents("db/a").unwrap())
        .map(|(left, right)| (left ^ right).count_ones())
        .sum();
    assert_eq!(flipped, 8);
    let blocks = |damage| -> Vec<u8> { bytes(damage).iter().step_by(4096).copied().collect() };
    assert_eq!(blocks(Damage::ZeroBlock(2)), [1, 3, 0]);
    assert_eq!(blocks(Damage::CopyBlock { from: 1, to: 0 }), [3, 3, 1]);
    assert_eq!(bytes(Damage::Truncate(5000)).len(), 5000);
    assert_eq!(bytes(Damage::Extend(100)).len(), 3 * 4096 + 100);
    assert_eq!(bytes(Damage::Replace(b"old".to_vec())), b"old");
    assert_eq!(names(&damaged(Damage::Delete)), ["db/b"]);
    let swapped = damaged(Damage::Swap("db/b".into()));
    assert_eq!(swapped.contents("db/a").unwrap(), [2; 4096]);
    assert_eq!(swapped.contents("db/b").unwrap().len(), 3 * 4096);
    assert_eq!(env.contents("db/a").unwrap()[0], 1, "the original is as it was");
    env.damage("db/none", &Damage::Delete).unwrap_err();
}

#[test]
fn the_wall_clock_jumps_and_the_other_does_not() {
    let env = SimEnv::new(1);
    let (wall, steady) = (env.unix_millis(), env.monotonic());
    env.jump_wall_clock(-3_600_000);
    assert!(env.unix_millis() <= wall - 3_599_000);
    env.jump_wall_clock(7_200_000);
    assert!(env.unix_millis() >= wall + 3_599_000);
    assert!(env.monotonic() < steady + Duration::from_millis(1));
    env.advance(Duration::from_secs(5));
    assert!(env.monotonic() >= steady + Duration::from_secs(5));
}

#[test]
fn direct_io_refuses_what_is_not_aligned() {
    let env = SimEnv::new(1);
    let file = root(&env).open("a", Open::CREATE.direct()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(8192);
    for (offset, length) in [(1, 4096), (0, 100), (512, 512)] {
        file.write_at(&buffer.as_slice()[..length], offset).unwrap_err();
        file.read_at(&mut buffer.as_mut_slice()[..length], offset).unwrap_err();
    }
    file.write_at(&buffer.as_slice()[512..4608], 0).unwrap_err();
    file.write_at(buffer.as_slice(), 4096).unwrap();
}

#[test]
fn queued_writes_cross_a_crash_in_any_order() {
    let mut found = BTreeSet::new();
    for seed in 0..40 {
        let env = SimEnv::new(seed);
        let file = durable(&*root(&env), "a", 0, 3);
        let mut queue = env.queue(8).unwrap();
        for token in 0..3 {
            let mut buffer = AlignedBuffer::zeroed(4096);
            buffer.as_mut_slice().fill(1);
            let offset = token * BLOCK_BYTES;
            queue
                .submit(token, Request::Write { file: file.clone(), offset, buffer, length: 4096 });
        }
        queue.wait(1, &mut Vec::new());
        let bytes = env.crash(Policy::AllKept).contents("db/a").unwrap();
        found.insert(bytes.iter().step_by(4096).copied().collect::<Vec<u8>>());
        drop(queue);
        assert_eq!(env.contents("db/a").unwrap(), vec![1; 3 * 4096], "dropping waits");
    }
    assert!(found.contains(&vec![0, 0, 1]) && found.contains(&vec![1, 0, 0]), "{found:?}");
}

/// Runs three times at once, then every second.
struct Ticker {
    env: SimEnv,
    runs: AtomicU64,
    times: Mutex<Vec<Duration>>,
}

impl Job for Ticker {
    fn name(&self) -> &'static str {
        "ticker"
    }

    fn run(&self) -> NextRun {
        self.times.lock().unwrap().push(self.env.monotonic());
        match self.runs.fetch_add(1, SeqCst) {
            0 | 1 => NextRun::Now,
            _ => NextRun::After(Duration::from_secs(1)),
        }
    }
}

#[test]
fn jobs_run_when_due_under_the_virtual_clock() {
    let env = SimEnv::new(1);
    let times = Mutex::new(Vec::new());
    let job = Arc::new(Ticker { env: env.clone(), runs: AtomicU64::new(0), times });
    let handle = env.start(job.clone());
    let start = env.monotonic();
    assert_eq!(env.due_jobs(), ["ticker"]);
    assert_eq!(env.step(), Some("ticker"));
    assert_eq!(env.run_due(), 2);
    assert_eq!(env.step(), None);
    env.advance(Duration::from_millis(5500));
    assert_eq!(job.runs.load(SeqCst), 8);
    let times: Vec<u64> =
        job.times.lock().unwrap().iter().map(|time| time.saturating_sub(start).as_secs()).collect();
    assert_eq!(times, [0, 0, 0, 1, 2, 3, 4, 5]);
    handle.wake();
    assert_eq!(env.run_due(), 1);
    assert!(env.run_job("ticker"));
    assert!(!env.run_job("nobody"));
    drop(handle);
    env.advance(Duration::from_secs(100));
    assert_eq!(job.runs.load(SeqCst), 10);
}

struct Blocker {
    started: AtomicBool,
    release: AtomicBool,
    ended: AtomicBool,
}

impl Job for Blocker {
    fn name(&self) -> &'static str {
        "blocker"
    }

    fn run(&self) -> NextRun {
        self.started.store(true, SeqCst);
        while !self.release.load(SeqCst) {
            std::thread::yield_now();
        }
        self.ended.store(true, SeqCst);
        NextRun::Now
    }
}

#[test]
fn stopping_a_job_waits_for_its_run_on_another_thread() {
    let env = SimEnv::new(1);
    let job = Arc::new(Blocker {
        started: AtomicBool::new(false),
        release: AtomicBool::new(false),
        ended: AtomicBool::new(false),
    });
    let handle = env.start(job.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| env.step());
        while !job.started.load(SeqCst) {
            std::thread::yield_now();
        }
        scope.spawn(|| job.release.store(true, SeqCst));
        drop(handle);
        assert!(job.ended.load(SeqCst));
    });
    assert_eq!(env.step(), None);
}

#[test]
fn many_threads_share_one_disk() {
    let env = SimEnv::new(1);
    env.record_history();
    let dir = root(&env);
    let file = durable(&*dir, "map", 0, 1);
    let mapping = file.map(4096).unwrap();
    std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|thread: u64| {
            let (dir, mapping, file) = (dir.clone(), mapping.clone(), file.clone());
            scope.spawn(move || {
                let own = create(&*dir, &format!("file-{thread}"));
                for round in 0..50 {
                    write_all_at(&*own, &[1; 100], round * 100).unwrap();
                    mapping.words()[to_usize(thread * 64 + round)].store(1, Ordering::Relaxed);
                    own.sync_all().unwrap();
                    file.sync_data().unwrap();
                }
                dir.sync().unwrap();
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    });
    let after = env.crash(Policy::AllLost);
    assert_eq!(names(&after).len(), 5);
    assert_eq!(after.files()[0].1, 5000);
    let stored = after.contents("db/map").unwrap();
    let sum: u32 = stored.iter().copied().map(u32::from).sum();
    assert_eq!(sum, 200);
    let numbers: Vec<u64> = env.history().iter().map(|event| event.number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
}
