//! Both kinds of queue do the same: they move all bytes, and complete every request once.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Mutex},
};

use super::{idle::IdleQueues, *};
use crate::{
    io::{
        AlignedBuffer, BLOCK_BYTES, Completion, Dir, Env as _, File, Mapping, Open, Queue, Request,
        os::{OsEnv, tests::TestDir},
    },
    util::codec::{to_u64, to_usize},
};

/// The kinds that this machine has. The pool always; `io_uring` where the kernel permits it.
fn queues(depth: usize) -> Vec<(&'static str, Box<dyn Queue>)> {
    let mut queues = vec![("pool", system(QueueKind::Pool, depth).unwrap())];
    match system(QueueKind::Uring, depth) {
        Ok(queue) => queues.push(("uring", queue)),
        Err(error) => eprintln!("io_uring is not tested: {error}"),
    }
    queues
}

/// A small generator, so that each run is the same (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        to_usize((mixed ^ (mixed >> 31)) % to_u64(bound))
    }
}

/// The bytes that write number `token` leaves in block `index` of its buffer.
fn pattern(token: u64, index: usize) -> u8 {
    u8::try_from((token * 31 + to_u64(index) * 7) % 251).unwrap() + 1
}

/// One request's end, without its buffer's rest.
type Outcome = (Result<usize, io::ErrorKind>, Vec<u8>);

/// The file and the blocks of each request under way.
type Busy = BTreeMap<u64, (usize, std::ops::Range<usize>)>;

/// Runs 10,000 mixed requests on `queue` and gives what each came to. No two requests under way
/// touch the same block, so the outcome is the same whatever the order.
fn run_mixed(queue: &mut dyn Queue, dir: &dyn Dir, depth: usize) -> BTreeMap<u64, Outcome> {
    const BLOCKS: usize = 256;
    let block = to_usize(BLOCK_BYTES);
    let files: Vec<Arc<dyn File>> = ["cached", "direct"]
        .map(|name| {
            let how = if name == "direct" { Open::CREATE.direct() } else { Open::CREATE };
            let file = dir.open(name, how).unwrap();
            file.set_len(to_u64(BLOCKS) * BLOCK_BYTES).unwrap();
            file
        })
        .into();
    let mut random = Random(7);
    let mut busy = Busy::new();
    let mut outcomes = BTreeMap::new();
    let mut done = Vec::new();
    for token in 0..10_000 {
        let (which, write) = (random.below(2), random.below(2) == 0);
        let start = random.below(BLOCKS + 16);
        let count = 1 + random.below(4);
        let range = start..start + count;
        let clashes = |busy: &Busy| {
            busy.values().any(|(file, other)| {
                let overlaps = other.start < range.end && range.start < other.end;
                // A write beyond the end moves the end that a read there meets.
                let both_beyond = other.end.min(range.end) > BLOCKS;
                *file == which && (overlaps || both_beyond)
            })
        };
        let mut want = 0;
        while clashes(&busy) {
            queue.wait(want, &mut done);
            collect(&mut done, &mut busy, &mut outcomes);
            want = 1;
        }
        let mut buffer = AlignedBuffer::zeroed(count * block);
        if write {
            for (index, byte) in buffer.as_mut_slice().iter_mut().enumerate() {
                *byte = pattern(token, index / block);
            }
        }
        let (file, offset) = (Arc::clone(&files[which]), to_u64(start) * BLOCK_BYTES);
        // Lengths beyond the buffer mean the buffer.
        let length = if random.below(2) == 0 { count * block } else { usize::MAX };
        busy.insert(token, (which, range));
        queue.submit(
            token,
            if write {
                Request::Write { file, offset, buffer, length }
            } else {
                Request::Read { file, offset, buffer, length }
            },
        );
        assert_eq!(queue.pending(), busy.len());
        if random.below(depth) == 0 {
            queue.wait(random.below(depth), &mut done);
            collect(&mut done, &mut busy, &mut outcomes);
        }
    }
    queue.wait(usize::MAX, &mut done);
    collect(&mut done, &mut busy, &mut outcomes);
    assert_eq!(queue.pending(), 0);
    assert!(busy.is_empty());
    outcomes
}

fn collect(done: &mut Vec<Completion>, busy: &mut Busy, outcomes: &mut BTreeMap<u64, Outcome>) {
    for completion in done.drain(..) {
        assert!(busy.remove(&completion.token).is_some(), "completed twice, or never submitted");
        let result = completion.result.map_err(|error| error.kind());
        let moved = result.unwrap_or(0);
        let bytes = completion.buffer.as_slice()[..moved].to_vec();
        outcomes.insert(completion.token, (result, bytes));
    }
}

#[test]
fn ten_thousand_mixed_requests_come_to_the_same() {
    let depth = 32;
    let mut results = Vec::new();
    for (name, mut queue) in queues(depth) {
        let test = TestDir::new();
        let outcomes = run_mixed(&mut *queue, &*test.open(), depth);
        assert_eq!(outcomes.len(), 10_000, "{name}");
        let files: Vec<Vec<u8>> =
            ["cached", "direct"].map(|file| std::fs::read(test.0.join(file)).unwrap()).into();
        results.push((name, outcomes, files));
    }
    let (_, expected, files) = &results[0];
    assert!(expected.values().any(|(result, _)| *result == Ok(0)), "some reads met the end");
    for (name, outcomes, other_files) in &results {
        assert!(outcomes == expected, "{name}: other results");
        assert!(files == other_files, "{name}: other files");
    }
}

#[test]
fn dropping_a_queue_waits_for_its_writes() {
    for (name, mut queue) in queues(4) {
        let test = TestDir::new();
        let file = test.open().open("file", Open::CREATE).unwrap();
        for token in 0..100 {
            let mut buffer = AlignedBuffer::zeroed(4096);
            buffer.as_mut_slice().fill(u8::try_from(token).unwrap() + 1);
            let (file, offset) = (Arc::clone(&file), token * BLOCK_BYTES);
            queue.submit(token, Request::Write { file, offset, buffer, length: 4096 });
        }
        drop(queue);
        let bytes = std::fs::read(test.0.join("file")).unwrap();
        assert_eq!(bytes.len(), 409_600, "{name}");
        for (index, block) in bytes.chunks(4096).enumerate() {
            assert!(block.iter().all(|byte| usize::from(*byte) == index + 1), "{name}");
        }
        assert_eq!(Arc::strong_count(&file), 1, "{name}: the files are let go");
    }
}

#[test]
fn waiting_with_nothing_under_way_returns() {
    for (_, mut queue) in queues(0) {
        let mut done = Vec::new();
        queue.wait(1, &mut done);
        queue.wait(usize::MAX, &mut done);
        assert!(done.is_empty());
        let test = TestDir::new();
        let file = test.open().open("file", Open::CREATE).unwrap();
        // Nothing to move is done at once; depth 0 serves one at a time.
        for token in 0..3 {
            let (file, buffer) = (Arc::clone(&file), AlignedBuffer::zeroed(0));
            queue.submit(token, Request::Write { file, offset: 0, buffer, length: 9 });
        }
        queue.wait(3, &mut done);
        assert_eq!(done.len(), 3);
        assert!(done.iter().all(|completion| matches!(completion.result, Ok(0))));
    }
}

#[test]
fn errors_come_with_their_request() {
    for (name, mut queue) in queues(8) {
        let test = TestDir::new();
        let dir = test.open();
        dir.open("file", Open::CREATE).unwrap();
        let read_only = dir.open("file", Open::READ).unwrap();
        let buffer = || AlignedBuffer::zeroed(4096);
        let file = Arc::clone(&read_only);
        queue.submit(1, Request::Write { file, offset: 0, buffer: buffer(), length: 4096 });
        let file = Arc::clone(&read_only);
        queue.submit(2, Request::Read { file, offset: 0, buffer: buffer(), length: 4096 });
        let file = Arc::clone(&read_only);
        queue.submit(3, Request::Read { file, offset: 1 << 63, buffer: buffer(), length: 4096 });
        let mut done = Vec::new();
        queue.wait(3, &mut done);
        done.sort_by_key(|completion| completion.token);
        assert_eq!(done.len(), 3, "{name}");
        assert!(done[0].result.is_err(), "{name}");
        assert_eq!(*done[1].result.as_ref().unwrap(), 0, "{name}");
        let kind = done[2].result.as_ref().unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::InvalidInput, "{name}");
        assert!(done.iter().all(|completion| completion.buffer.len() == 4096), "{name}");
    }
}

#[test]
fn direct_reads_end_with_the_file() {
    for (name, mut queue) in queues(8) {
        let test = TestDir::new();
        std::fs::write(test.0.join("file"), [7; 5000]).unwrap();
        let file = test.open().open("file", Open::READ.direct()).unwrap();
        for (token, offset) in [0, 4096, 8192].into_iter().enumerate() {
            let (file, buffer) = (Arc::clone(&file), AlignedBuffer::zeroed(16384));
            queue.submit(to_u64(token), Request::Read { file, offset, buffer, length: 16384 });
        }
        let mut done = Vec::new();
        queue.wait(3, &mut done);
        done.sort_by_key(|completion| completion.token);
        for (completion, expected) in done.iter().zip([5000, 904, 0]) {
            assert_eq!(*completion.result.as_ref().unwrap(), expected, "{name}");
            assert!(completion.buffer.as_slice()[..expected].iter().all(|byte| *byte == 7));
        }
    }
}

/// A queue with requests under way may go to another thread, and the first thread may end.
#[test]
fn a_queue_outlives_the_thread_that_filled_it() {
    for (name, mut queue) in queues(64) {
        let test = TestDir::new();
        let file = test.open().open("file", Open::CREATE.direct()).unwrap();
        let mut queue = std::thread::spawn(move || {
            for token in 0..64 {
                let mut buffer = AlignedBuffer::zeroed(65536);
                buffer.as_mut_slice().fill(9);
                let (file, offset) = (Arc::clone(&file), token * 65536);
                queue.submit(token, Request::Write { file, offset, buffer, length: 65536 });
            }
            queue
        })
        .join()
        .unwrap();
        let mut done = Vec::new();
        queue.wait(64, &mut done);
        assert_eq!(done.len(), 64, "{name}");
        for completion in &done {
            assert_eq!(*completion.result.as_ref().unwrap(), 65536, "{name}");
        }
        let bytes = std::fs::read(test.0.join("file")).unwrap();
        assert!(bytes.len() == 64 * 65536 && bytes.iter().all(|byte| *byte == 9), "{name}");
    }
}

/// A file without a descriptor that answers each call as its script says, then without fault. Call
/// `i` moves at most the scripted count, or fails.
#[derive(Debug)]
struct Scripted {
    content: Mutex<Vec<u8>>,
    script: Mutex<VecDeque<Result<usize, io::ErrorKind>>>,
    /// Offsets that are not multiples of this are refused, as direct I/O does; with 0, every call
    /// panics.
    alignment: u64,
}

impl Scripted {
    fn new(alignment: u64, script: &[Result<usize, io::ErrorKind>]) -> Arc<Self> {
        Arc::new(Self {
            content: Mutex::new((0..10_000).map(|index| pattern(0, index)).collect()),
            script: Mutex::new(script.iter().copied().collect()),
            alignment,
        })
    }

    fn limit(&self, offset: u64) -> io::Result<usize> {
        if self.alignment == 0 {
            std::panic::resume_unwind(Box::new("no reading here"));
        }
        let end = to_u64(self.content.lock().unwrap().len());
        if !offset.is_multiple_of(self.alignment) && offset < end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.script.lock().unwrap().pop_front().unwrap_or(Ok(usize::MAX)).map_err(Into::into)
    }
}

impl File for Scripted {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let limit = self.limit(offset)?;
        let content = self.content.lock().unwrap();
        let rest = content.get(to_usize(offset)..).unwrap_or(&[]);
        let count = rest.len().min(buffer.len()).min(limit);
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let count = self.limit(offset)?.min(bytes.len());
        let mut content = self.content.lock().unwrap();
        let (start, end) = (to_usize(offset), to_usize(offset) + count);
        let length = content.len().max(end);
        content.resize(length, 0);
        content[start..end].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(to_u64(self.content.lock().unwrap().len()))
    }

    fn set_len(&self, _size: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocate(&self, _size: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn punch_hole(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, _size: u64) -> io::Result<Arc<Mapping>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn drop_cache(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs one read and one write of 9,000 bytes against files of this script.
fn run_scripted(
    queue: &mut dyn Queue,
    alignment: u64,
    script: &[Result<usize, io::ErrorKind>],
) -> [Result<usize, io::ErrorKind>; 2] {
    let files = [Scripted::new(alignment, script), Scripted::new(alignment, script)];
    let mut buffer = AlignedBuffer::zeroed(9000);
    let (file, length) = (Arc::clone(&files[0]), 9000);
    queue.submit(0, Request::Read { file, offset: 0, buffer: buffer.clone(), length });
    buffer.as_mut_slice().fill(255);
    let file = Arc::clone(&files[1]);
    queue.submit(1, Request::Write { file, offset: 0, buffer, length });
    let mut done = Vec::new();
    queue.wait(2, &mut done);
    done.sort_by_key(|completion| completion.token);
    if let Ok(count) = done[0].result {
        let content = files[0].content.lock().unwrap();
        assert!(done[0].buffer.as_slice()[..count] == content[..count]);
    }
    if let Ok(count) = done[1].result {
        assert!(files[1].content.lock().unwrap()[..count].iter().all(|byte| *byte == 255));
    }
    let results: Vec<_> =
        done.into_iter().map(|end| end.result.map_err(|error| error.kind())).collect();
    results.try_into().unwrap()
}

#[test]
fn files_without_a_descriptor_are_read_and_written_in_pieces() {
    use io::ErrorKind::{Interrupted, InvalidInput, Other, WouldBlock};
    for (name, mut queue) in queues(4) {
        let mut run = |alignment, script: &[_]| run_scripted(&mut *queue, alignment, script);
        let all = [Ok(9000), Ok(9000)];
        assert_eq!(run(1, &[]), all, "{name}");
        assert_eq!(run(1, &[Ok(1), Ok(4095), Ok(1)]), all, "{name}: short transfers");
        assert_eq!(run(1, &[Err(Interrupted), Ok(5), Err(WouldBlock)]), all, "{name}: signals");
        assert_eq!(run(1, &[Ok(5), Err(Other)]), [Err(Other), Err(Other)], "{name}: an error");
        assert_eq!(run(4096, &[Ok(5000)]), all, "{name}: taken up at a whole block");
        let stuck = run(4096, &[Ok(5000), Ok(100)]);
        assert_eq!(stuck, [Err(InvalidInput); 2], "{name}: but once only");
        let ended = run(1, &[Ok(100), Ok(0)]);
        assert_eq!(ended, [Ok(100), Err(io::ErrorKind::WriteZero)], "{name}: the end of the file");
        let always = vec![Err(Interrupted); 20_000];
        assert_eq!(run(1, &always), [Err(Interrupted); 2], "{name}: for ever");
    }
}

#[test]
fn a_panic_in_the_pool_is_an_error_of_its_request() {
    let mut queue = system(QueueKind::Pool, 2).unwrap();
    for token in 0..20 {
        let (file, buffer) = (Scripted::new(0, &[]), AlignedBuffer::zeroed(4096));
        queue.submit(token, Request::Read { file, offset: 0, buffer, length: 4096 });
    }
    let mut done = Vec::new();
    queue.wait(20, &mut done);
    assert_eq!(done.len(), 20);
    for completion in done {
        assert!(completion.result.unwrap_err().to_string().contains("no reading here"));
    }
}

#[test]
fn the_environment_gives_the_kind_asked_for() {
    let shown = |kind| format!("{:?}", OsEnv::with_queue(kind).queue(4).unwrap());
    assert!(shown(QueueKind::Pool).starts_with("PoolQueue"));
    if OsEnv::with_queue(QueueKind::Uring).queue(4).is_ok() {
        assert!(shown(QueueKind::Auto).starts_with("UringQueue"));
        assert!(shown(QueueKind::Uring).starts_with("UringQueue"));
    } else {
        assert!(shown(QueueKind::Auto).starts_with("PoolQueue"));
    }
}

/// A sandbox closed behind an open ring: what the kernel has is waited for, the rest done without
/// it.
#[cfg(target_os = "linux")]
#[test]
fn a_ring_that_is_given_up_loses_nothing() {
    let Ok(mut queue) = uring::UringQueue::new(64) else { return };
    let test = TestDir::new();
    let file = test.open().open("file", Open::CREATE.direct()).unwrap();
    for token in 0..61 {
        let mut buffer = AlignedBuffer::zeroed(4096);
        buffer.as_mut_slice().fill(u8::try_from(token).unwrap() + 1);
        let (file, offset) = (Arc::clone(&file), token * BLOCK_BYTES);
        if token == 30 {
            queue.give_up();
        }
        queue.submit(token, Request::Write { file, offset, buffer, length: 4096 });
    }
    let mut done = Vec::new();
    queue.wait(61, &mut done);
    assert_eq!(done.len(), 61);
    assert!(done.iter().all(|completion| matches!(completion.result, Ok(4096))));
    let bytes = std::fs::read(test.0.join("file")).unwrap();
    for (index, block) in bytes.chunks(4096).enumerate() {
        assert!(block.iter().all(|byte| usize::from(*byte) == index + 1));
    }
}

#[test]
fn transfers_of_a_flow_are_waited_for_one_by_one() {
    let test = TestDir::new();
    let dir = test.open();
    for (kind, queue) in queues(4) {
        let file = dir.open(kind, Open::CREATE.direct()).unwrap();
        let idle = IdleQueues::default();
        let flow = Flow::new(queue, idle.clone());
        let write = |token: u64| {
            let mut buffer = AlignedBuffer::zeroed(to_usize(BLOCK_BYTES));
            buffer.as_mut_slice().fill(pattern(token, 0));
            let (file, offset, length) = (Arc::clone(&file), token * BLOCK_BYTES, buffer.len());
            flow.start(Request::Write { file, offset, buffer, length })
        };
        let mut under_way: Vec<Pending> = (0..40).map(write).collect();
        // Forgotten, the last first; each has ended when it is gone.
        for token in (20..40).rev() {
            drop(under_way.pop());
            let mut byte = [0];
            let plain = dir.open(kind, Open::READ).unwrap();
            plain.read_at(&mut byte, token * BLOCK_BYTES).unwrap();
            assert_eq!(byte[0], pattern(token, 0), "{kind} {token}");
        }
        for (token, write) in (0..20_u64).zip(under_way) {
            let done = write.wait();
            assert_eq!((done.token, done.result.unwrap()), (token, 4096), "{kind}");
        }
        let read_only = dir.open(kind, Open::READ.direct()).unwrap();
        let read = |at: u64| {
            let (buffer, length) = (AlignedBuffer::zeroed(4096), 4096);
            let file = Arc::clone(&read_only);
            flow.start(Request::Read { file, offset: at * BLOCK_BYTES, buffer, length })
        };
        let (buffer, file) = (AlignedBuffer::zeroed(4096), Arc::clone(&read_only));
        let refused = flow.start(Request::Write { file, offset: 0, buffer, length: 4096 });
        let reads: Vec<Pending> = (0..40).map(read).collect();
        refused.wait().result.unwrap_err();
        for (token, read) in (0..40).zip(reads) {
            let done = read.wait();
            assert_eq!(done.result.unwrap(), 4096, "{kind}");
            assert!(done.buffer.as_slice().iter().all(|byte| *byte == pattern(token, 0)));
        }
        let other = flow.clone();
        drop(flow);
        assert!(idle.take().is_none(), "it is in use");
        drop(other);
        assert_eq!(idle.take().map(|queue| queue.pending()), Some(0), "{kind}");
        assert!(idle.take().is_none());
    }
}
