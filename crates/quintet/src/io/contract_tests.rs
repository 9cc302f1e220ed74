//! Contract tests of [`Env`], [`Dir`] and [`File`]: every implementation must pass them.
//!
//! Each test takes an environment and an empty directory to work in. What a crash leaves is not
//! here: only the simulator can crash.

use std::{
    io::ErrorKind,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    AlignedBuffer, BLOCK_BYTES, Completion, Dir, Env, Job, NextRun, Open, Request, read_exact_at,
    read_up_to, write_all_at,
};
use crate::util::codec::to_usize;

type Test = fn(&dyn Env, &Path);

/// Runs everything, each in a directory of its own below `root`.
pub(crate) fn check_all(env: &dyn Env, root: &Path) {
    let tests: &[(&str, Test)] = &[
        ("read-write", reads_give_back_writes),
        ("size", sizes_change_as_asked),
        ("holes", punched_and_grown_ranges_read_as_zeros),
        ("open", opening_refuses_what_the_contract_says),
        ("names", names_are_single_components),
        ("rename", rename_replaces_and_keeps_open_files),
        ("remove", removed_files_stay_readable_while_open),
        ("dirs", directories_nest_and_list_in_order),
        ("lock", locks_exclude),
        ("map", mapping_and_file_are_one),
        ("direct", direct_io_gives_back_what_buffered_wrote),
        ("queue", queue_completes_everything_once),
        ("clock", clocks_and_randomness_work),
    ];
    for (name, test) in tests {
        let path = root.join(name);
        env.open_dir(&path, true).unwrap();
        test(env, &path);
    }
}

fn dir(env: &dyn Env, path: &Path) -> Arc<dyn Dir> {
    env.open_dir(path, false).unwrap()
}

fn kind<T: std::fmt::Debug>(result: std::io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn reads_give_back_writes(env: &dyn Env, path: &Path) {
    let dir = dir(env, path);
    let file = dir.open("a", Open::CREATE).unwrap();
    assert_eq!(file.len().unwrap(), 0);
    let bytes: Vec<u8> = (0..20_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    write_all_at(&*file, &bytes, 5000).unwrap();
    assert_eq!(file.len().unwrap(), 25_000);
    let mut all = vec![1; 25_000];
    read_exact_at(&*file, &mut all, 0).unwrap();
    assert!(all[..5000].iter().all(|byte| *byte == 0), "a gap reads as zeros");
    assert_eq!(all[5000..], bytes);
    let mut tail = [0; 100];
    assert_eq!(read_up_to(&*file, &mut tail, 24_990).unwrap(), 10);
    assert_eq!(tail[..10], bytes[19_990..]);
    assert_eq!(file.read_at(&mut tail, 25_000).unwrap(), 0);
    assert_eq!(file.read_at(&mut tail, 1 << 40).unwrap(), 0);
    assert_eq!(kind(read_exact_at(&*file, &mut tail, 24_950)), ErrorKind::UnexpectedEof);
    write_all_at(&*file, b"middle", 10_000).unwrap();
    file.sync_data().unwrap();
    file.drop_cache().unwrap();
    let again = dir.open("a", Open::READ).unwrap();
    let mut middle = [0; 6];
    read_exact_at(&*again, &mut middle, 10_000).unwrap();
    assert_eq!(&middle, b"middle");
}

fn sizes_change_as_asked(env: &dyn Env, path: &Path) {
    let file = dir(env, path).open("a", Open::CREATE).unwrap();
    write_all_at(&*file, &[7; 10_000], 0).unwrap();
    file.set_len(5000).unwrap();
    assert_eq!(file.len().unwrap(), 5000);
    file.set_len(9000).unwrap();
    let mut bytes = vec![1; 9000];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    assert!(bytes[..5000].iter().all(|byte| *byte == 7));
    assert!(bytes[5000..].iter().all(|byte| *byte == 0), "what was cut never comes back");
    file.allocate(20_000).unwrap();
    assert_eq!(file.len().unwrap(), 20_000);
    file.allocate(100).unwrap();
    assert_eq!(file.len().unwrap(), 20_000, "allocating less never shrinks");
    file.sync_all().unwrap();
    file.set_len(0).unwrap();
    assert_eq!(file.len().unwrap(), 0);
}

fn punched_and_grown_ranges_read_as_zeros(env: &dyn Env, path: &Path) {
    let file = dir(env, path).open("a", Open::CREATE).unwrap();
    write_all_at(&*file, &vec![7; 40_000], 0).unwrap();
    file.punch_hole(5000, 20_000).unwrap();
    assert_eq!(file.len().unwrap(), 40_000);
    let mut bytes = vec![1; 40_000];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    for (position, byte) in bytes.iter().enumerate() {
        let expected = if (5000..25_000).contains(&position) { 0 } else { 7 };
        assert_eq!(*byte, expected, "at {position}");
    }
}

fn opening_refuses_what_the_contract_says(env: &dyn Env, path: &Path) {
    let dir = dir(env, path);
    assert_eq!(kind(dir.open("a", Open::READ)), ErrorKind::NotFound);
    assert_eq!(kind(dir.open("a", Open::WRITE)), ErrorKind::NotFound);
    assert_eq!(kind(env.open_dir(&path.join("missing"), false)), ErrorKind::NotFound);
    assert_eq!(kind(dir.open_dir("missing", false)), ErrorKind::NotFound);
    dir.open("a", Open::CREATE).unwrap();
    assert_eq!(kind(dir.open("a", Open::CREATE)), ErrorKind::AlreadyExists);
    let reader = dir.open("a", Open::READ).unwrap();
    reader.write_at(b"x", 0).unwrap_err();
    assert_eq!(reader.len().unwrap(), 0);
    assert_eq!(kind(dir.open_dir("a", false)), ErrorKind::NotADirectory);
    assert_eq!(kind(dir.remove("missing")), ErrorKind::NotFound);
    assert_eq!(kind(dir.rename("missing", "b")), ErrorKind::NotFound);
}

fn names_are_single_components(env: &dyn Env, path: &Path) {
    let dir = dir(env, path);
    for name in ["", ".", "..", "a/b", "/a", "../a"] {
        dir.open(name, Open::CREATE).unwrap_err();
        dir.open_dir(name, true).unwrap_err();
        dir.lock(name, true).unwrap_err();
    }
    assert_eq!(dir.list().unwrap(), []);
}

fn rename_replaces_and_keeps_open_files(env: &dyn Env, path: &Path) {
    let dir = dir(env, path);
    let old = dir.open("current", Open::CREATE).unwrap();
    write_all_at(&*old, b"old", 0).unwrap();
    let new = dir.open("next", Open::CREATE).unwrap();
    write_all_at(&*new, b"new", 0).unwrap();
    dir.rename("next", "current").unwrap();
    dir.sync().unwrap();
    let mut bytes = [0; 3];
    read_exact_at(&*dir.open("current", Open::READ).unwrap(), &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"new");
    read_exact_at(&*old, &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"old");
    assert_eq!(dir.list().unwrap().len(), 1);
    dir.rename("current", "current").unwrap();
    assert_eq!(dir.list().unwrap().len(), 1);
}

fn removed_files_stay_readable_while_open(env: &dyn Env, path: &Path) {
    let dir = dir(env, path);
    let file = dir.open("a", Open::CREATE).unwrap();
    write_all_at(&*file, b"still", 0).unwrap();
    dir.remove("a").unwrap();
    dir.sync().unwrap();
    let mut bytes = [0; 5];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"still");
    assert_eq!(kind(dir.open("a", Open::READ)), ErrorKind::NotFound);
    dir.open("a", Open::CREATE).unwrap();
}

fn directories_nest_and_list_in_order(env: &dyn Env, path: &Path) {
    let dir = dir(env, path);
    let child = dir.open_dir("b-child", true).unwrap();
    child.open("file", Open::CREATE).unwrap();
    for name in ["c", "a", "B"] {
        dir.open(name, Open::CREATE).unwrap();
    }
    let listed: Vec<(String, bool)> =
        dir.list().unwrap().into_iter().map(|entry| (entry.name, entry.is_dir)).collect();
    let expected = [("B", false), ("a", false), ("b-child", true), ("c", false)];
    assert_eq!(listed, expected.map(|(name, is_dir)| (name.to_owned(), is_dir)));
    assert_eq!(kind(dir.remove_dir("b-child")), ErrorKind::DirectoryNotEmpty);
    assert!(dir.remove("b-child").is_err(), "remove is for files");
    assert!(dir.remove_dir("a").is_err(), "remove_dir is for directories");
    child.remove("file").unwrap();
    child.sync().unwrap();
    dir.remove_dir("b-child").unwrap();
    dir.sync().unwrap();
    assert_eq!(dir.list().unwrap().len(), 3);
    let again = env.open_dir(&path.join("x/y/z"), true).unwrap();
    again.open("deep", Open::CREATE).unwrap();
    assert_eq!(dir.open_dir("x", false).unwrap().list().unwrap().len(), 1);
}

fn locks_exclude(env: &dyn Env, path: &Path) {
    let dir = dir(env, path);
    let first = dir.lock("LOCK", true).unwrap();
    assert_eq!(kind(dir.lock("LOCK", true)), ErrorKind::WouldBlock);
    assert_eq!(kind(dir.lock("LOCK", false)), ErrorKind::WouldBlock);
    drop(first);
    let shared = dir.lock("LOCK", false).unwrap();
    let second = dir.lock("LOCK", false).unwrap();
    assert_eq!(kind(dir.lock("LOCK", true)), ErrorKind::WouldBlock);
    drop(shared);
    assert_eq!(kind(dir.lock("LOCK", true)), ErrorKind::WouldBlock);
    drop(second);
    drop(dir.lock("LOCK", true).unwrap());
}

fn mapping_and_file_are_one(env: &dyn Env, path: &Path) {
    let dir = dir(env, path);
    let file = dir.open("a", Open::CREATE).unwrap();
    file.allocate(2 * BLOCK_BYTES).unwrap();
    write_all_at(&*file, &[9; 16], 0).unwrap();
    let mapping = file.map(2 * BLOCK_BYTES).unwrap();
    assert_eq!(mapping.bytes(), 2 * BLOCK_BYTES);
    assert_eq!(mapping.words()[0].load(Ordering::Relaxed), 0x0909_0909_0909_0909);
    mapping.words()[1].store(0x0807_0605_0403_0201, Ordering::Relaxed);
    let mut bytes = [0; 20];
    read_exact_at(&*file, &mut bytes, 4).unwrap();
    assert_eq!(bytes, [9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    write_all_at(&*file, &[0xff; 3], 14).unwrap();
    assert_eq!(mapping.words()[1].load(Ordering::Relaxed), 0xffff_0605_0403_0201);
    assert_eq!(mapping.words()[2].load(Ordering::Relaxed), 0xff);
    file.sync_data().unwrap();
    mapping.prepare_writes(0..2 * BLOCK_BYTES);
    mapping.words()[100].store(1, Ordering::Relaxed);
    file.sync_range(&mapping, 0..2 * BLOCK_BYTES).unwrap();
    assert_eq!(mapping.words()[100].load(Ordering::Relaxed), 1, "a sync takes nothing away");
    // Part of a page, and again after a page was synced.
    mapping.words()[101].store(2, Ordering::Relaxed);
    file.sync_range(&mapping, 808..816).unwrap();
    mapping.words()[102].store(3, Ordering::Relaxed);
    let words = [100, 101, 102].map(|word: usize| mapping.words()[word].load(Ordering::Relaxed));
    assert_eq!(words, [1, 2, 3]);
    drop(mapping);
    read_exact_at(&*file, &mut bytes, 800).unwrap();
    assert_eq!((bytes[0], bytes[8], bytes[16]), (1, 2, 3), "stores outlive the mapping");
}

fn direct_io_gives_back_what_buffered_wrote(env: &dyn Env, path: &Path) {
    let dir = dir(env, path);
    let direct = dir.open("a", Open::CREATE.direct()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(8192);
    buffer.as_mut_slice().fill(3);
    write_all_at(&*direct, buffer.as_slice(), 0).unwrap();
    let buffered = dir.open("a", Open::WRITE).unwrap();
    write_all_at(&*buffered, &[5; 100], 4096).unwrap();
    buffered.sync_data().unwrap();
    let mut read = AlignedBuffer::zeroed(16_384);
    assert_eq!(read_up_to(&*direct, read.as_mut_slice(), 0).unwrap(), 8192);
    assert!(read.as_slice()[..4096].iter().all(|byte| *byte == 3));
    assert!(read.as_slice()[4096..4196].iter().all(|byte| *byte == 5));
    assert!(read.as_slice()[4196..8192].iter().all(|byte| *byte == 3));
}

fn queue_completes_everything_once(env: &dyn Env, path: &Path) {
    let file = dir(env, path).open("a", Open::CREATE).unwrap();
    let mut queue = env.queue(8).unwrap();
    let mut done: Vec<Completion> = Vec::new();
    for token in 0..100_u64 {
        let mut buffer = AlignedBuffer::zeroed(4096);
        buffer.as_mut_slice().fill(token.to_le_bytes()[0]);
        let offset = token * BLOCK_BYTES;
        let request =
            Request::Write { file: file.clone(), offset, buffer, length: to_usize(BLOCK_BYTES) };
        queue.submit(token, request);
    }
    while queue.pending() > 0 {
        queue.wait(1, &mut done);
    }
    queue.wait(1, &mut done);
    let mut tokens: Vec<u64> = done.iter().map(|completion| completion.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..100).collect::<Vec<_>>());
    assert!(done.iter().all(|completion| matches!(completion.result, Ok(4096))));
    done.clear();
    for token in 0..101 {
        let (buffer, offset) = (AlignedBuffer::zeroed(4096), token * BLOCK_BYTES);
        let request = Request::Read { file: file.clone(), offset, buffer, length: 1 << 20 };
        queue.submit(token, request);
    }
    queue.wait(101, &mut done);
    assert_eq!(done.len(), 101);
    for completion in &done {
        let expected = if completion.token == 100 { 0 } else { 4096 };
        assert_eq!(completion.result.as_ref().unwrap(), &expected);
        let byte = completion.token.to_le_bytes()[0];
        assert!(completion.buffer.as_slice()[..expected].iter().all(|found| *found == byte));
    }
}

fn clocks_and_randomness_work(env: &dyn Env, _path: &Path) {
    let (first, second) = (env.monotonic(), env.monotonic());
    assert!(first <= second);
    assert!(env.unix_millis() > 1_500_000_000_000);
    let (mut left, mut right) = ([0; 32], [0; 32]);
    env.random(&mut left);
    env.random(&mut right);
    assert_ne!(left, right);
    assert_eq!(env.boot_id(), env.boot_id());
    assert!(env.memory_bytes() > 1 << 20);
}

struct Counter(AtomicU64);

impl Job for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn run(&self) -> NextRun {
        self.0.fetch_add(1, Ordering::SeqCst);
        NextRun::WhenWoken
    }
}

/// A woken job runs; a stopped one never again. `turn` lets the scheduler do its work.
pub(crate) fn check_jobs(env: &dyn Env, turn: &dyn Fn()) {
    let job = Arc::new(Counter(AtomicU64::new(0)));
    let handle = env.start(job.clone());
    let deadline = env.monotonic() + Duration::from_mins(1);
    let runs = || job.0.load(Ordering::SeqCst);
    for _ in 0..3 {
        let before = runs();
        handle.wake();
        while runs() == before {
            assert!(env.monotonic() < deadline, "the job never ran");
            turn();
        }
    }
    drop(handle);
    let after = runs();
    turn();
    assert_eq!(runs(), after);
    assert_eq!(Arc::strong_count(&job), 1, "a stopped job is let go");
}
