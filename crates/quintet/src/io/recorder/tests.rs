//! A recorded run, done again elsewhere, gives the same files at each of its events.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::*;
use crate::{
    io::{
        AlignedBuffer, Completion, Dir, Env, Job, JobHandle, NextRun, Open, Queue, Request,
        os::{OsEnv, tests::TestDir},
        queue::QueueKind,
        read_exact_at, write_all_at,
    },
    util::{codec::to_u64, sync::Ordering},
};

/// Where the runs begin.
const ROOT: &str = "/recorded/run";

/// The system, with [`ROOT`] in a test's directory, so that one trace can be done in several
/// places.
#[derive(Debug)]
struct Rooted {
    env: OsEnv,
    root: PathBuf,
}

impl Rooted {
    fn new(test: &TestDir) -> Arc<Self> {
        Arc::new(Self { env: OsEnv::with_queue(QueueKind::Pool), root: test.0.clone() })
    }
}

impl Env for Rooted {
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>> {
        let below = path.strip_prefix(ROOT).map_err(io::Error::other)?;
        self.env.open_dir(&self.root.join(below), create)
    }

    fn monotonic(&self) -> Duration {
        self.env.monotonic()
    }

    fn unix_millis(&self) -> u64 {
        self.env.unix_millis()
    }

    fn random(&self, out: &mut [u8]) {
        self.env.random(out);
    }

    fn boot_id(&self) -> [u8; 16] {
        self.env.boot_id()
    }

    fn memory_bytes(&self) -> u64 {
        self.env.memory_bytes()
    }

    fn start(&self, job: Arc<dyn Job>) -> JobHandle {
        self.env.start(job)
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.env.queue(depth)
    }
}

/// Everything below a directory, by path; directories have no content.
fn tree(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if path.is_dir() {
                found.insert(name, None);
                left.push(path);
            } else {
                found.insert(name, Some(fs::read(path).unwrap()));
            }
        }
    }
    found
}

/// A run that makes every kind of change, and after each calls `look`.
fn run(env: &RecordEnv, mut look: impl FnMut()) {
    let root = env.open_dir(&Path::new(ROOT).join("db"), true).unwrap();
    look();
    let guard = root.lock("LOCK", true).unwrap();
    look();
    let log = root.open_dir("log", true).unwrap();
    look();
    let segment = log.open("1.log", Open::CREATE).unwrap();
    look();
    segment.allocate(8192).unwrap();
    look();
    let mapping = segment.map(8192).unwrap();
    look();
    for index in [0, 1, 2, 700, 1023] {
        mapping.words()[index].store(to_u64(index) + 1, Ordering::Release);
    }
    segment.sync_data().unwrap();
    look();
    mapping.words()[1].store(77, Ordering::Release);
    env.mark(5);
    look();
    let table = root.open("table.tmp", Open::CREATE.direct()).unwrap();
    look();
    let mut buffer = AlignedBuffer::zeroed(8192);
    buffer.as_mut_slice().fill(3);
    write_all_at(&*table, buffer.as_slice(), 4096).unwrap();
    look();
    table.set_len(12_000).unwrap();
    look();
    table.punch_hole(4096, 4096).unwrap();
    look();
    table.sync_all().unwrap();
    look();
    root.rename("table.tmp", "table").unwrap();
    look();
    root.sync().unwrap();
    look();
    // Stores that only the dropping of the mapping shows.
    mapping.words()[9].store(99, Ordering::Release);
    drop(mapping);
    segment.set_len(4096).unwrap();
    look();
    drop(segment);
    root.open_dir("empty", true).unwrap();
    look();
    root.remove_dir("empty").unwrap();
    look();
    root.remove("table").unwrap();
    look();
    drop(guard);
    look();
}

#[test]
fn every_prefix_of_the_trace_gives_the_files_of_that_moment() {
    let recorded = TestDir::new();
    let env = RecordEnv::new(Rooted::new(&recorded));
    assert!(env.is_empty());
    let mut moments = Vec::new();
    run(&env, || moments.push((env.trace().len(), tree(&recorded.0))));
    let trace = env.trace();
    assert_eq!(env.len(), trace.len());
    for (upto, expected) in moments {
        let again = TestDir::new();
        let replayed = replay(&trace, upto, &*Rooted::new(&again)).unwrap();
        assert!(tree(&again.0) == expected, "the files differ after event {upto}");
        drop(replayed);
    }
    // Beyond the end is the end.
    let again = TestDir::new();
    let replayed = replay(&trace, usize::MAX, &*Rooted::new(&again)).unwrap();
    assert_eq!(replayed.marks(), [5]);
    assert!(tree(&again.0) == tree(&recorded.0));
}

#[test]
fn stores_stand_before_the_call_that_follows_them() {
    let recorded = TestDir::new();
    let env = RecordEnv::new(Rooted::new(&recorded));
    run(&env, || {});
    let trace = env.trace();
    let stores: Vec<usize> = (0..trace.len())
        .filter(|index| matches!(trace[*index], TraceEvent::Store { .. }))
        .collect();
    let words: Vec<_> = stores
        .iter()
        .map(|index| match &trace[*index] {
            TraceEvent::Store { first, words, .. } => (*first, words.clone()),
            _ => unreachable!(),
        })
        .collect();
    let expected =
        [(0, vec![1, 2, 3]), (700, vec![701]), (1023, vec![1024]), (1, vec![77]), (9, vec![99])];
    assert_eq!(words, expected);
    assert!(matches!(trace[stores[2] + 1], TraceEvent::SyncData { .. }));
    assert_eq!(trace[stores[3] + 1], TraceEvent::Mark { value: 5 });
    assert!(matches!(trace[stores[4] + 1], TraceEvent::Unmap { .. }));
    assert!(matches!(trace[stores[4] + 2], TraceEvent::SetLen { size: 4096, .. }));
    assert!(trace.contains(&TraceEvent::Close { file: 3 }));
    assert!(trace.iter().filter(|event| event.changes_disk()).count() > 15);
    assert!(!TraceEvent::Mark { value: 5 }.changes_disk());
}

#[test]
fn failed_calls_and_reads_leave_no_trace() {
    let recorded = TestDir::new();
    let env = RecordEnv::new(Rooted::new(&recorded));
    let root = env.open_dir(Path::new(ROOT), false).unwrap();
    let file = root.open("file", Open::CREATE).unwrap();
    write_all_at(&*file, b"bytes", 0).unwrap();
    let before = env.len();
    assert!(root.open("file", Open::CREATE).is_err());
    assert!(root.open("absent", Open::READ).is_err());
    assert!(root.rename("absent", "other").is_err());
    assert!(root.remove("absent").is_err());
    assert!(file.map(1 << 20).is_err());
    let mut bytes = [0; 5];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"bytes");
    assert_eq!((file.len().unwrap(), root.list().unwrap().len()), (5, 1));
    file.drop_cache().unwrap();
    assert_eq!(env.len(), before);
    assert!(file.descriptor().is_none(), "else a queue would write past the recorder");
}

#[test]
fn writes_of_a_queue_are_recorded() {
    for kind in [QueueKind::Auto, QueueKind::Pool] {
        let recorded = TestDir::new();
        let env = RecordEnv::new(Arc::new(OsEnv::with_queue(kind)));
        let file = env.open_dir(&recorded.0, false).unwrap().open("file", Open::CREATE).unwrap();
        let mut queue = env.queue(4).unwrap();
        for token in 0..50 {
            let mut buffer = AlignedBuffer::zeroed(4096);
            buffer.as_mut_slice().fill(u8::try_from(token).unwrap());
            let (file, offset) = (Arc::clone(&file), token * 4096);
            queue.submit(token, Request::Write { file, offset, buffer, length: 100 });
        }
        let mut done: Vec<Completion> = Vec::new();
        queue.wait(50, &mut done);
        assert!(done.iter().all(|completion| matches!(completion.result, Ok(100))));
        let mut writes: Vec<(u64, Vec<u8>)> = env
            .trace()
            .into_iter()
            .filter_map(|event| match event {
                TraceEvent::Write { offset, bytes, .. } => Some((offset, bytes)),
                _ => None,
            })
            .collect();
        writes.sort_unstable();
        assert_eq!(writes.len(), 50);
        for (index, (offset, bytes)) in writes.iter().enumerate() {
            assert_eq!(*offset, to_u64(index) * 4096);
            assert_eq!(bytes, &vec![u8::try_from(index).unwrap(); 100]);
        }
    }
}

#[test]
fn traces_of_several_threads_are_in_the_order_of_effect() {
    let recorded = TestDir::new();
    let env = RecordEnv::new(Rooted::new(&recorded));
    let root = env.open_dir(Path::new(ROOT), false).unwrap();
    let file = root.open("file", Open::CREATE).unwrap();
    std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|thread: u8| {
            let file = &file;
            // All write the same bytes of the file: the last one in the trace must be the one
            // found.
            scope.spawn(move || {
                for _ in 0..200 {
                    write_all_at(&**file, &[thread; 64], 0).unwrap();
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
    });
    let again = TestDir::new();
    let _replayed = replay(&env.trace(), usize::MAX, &*Rooted::new(&again)).unwrap();
    assert!(tree(&again.0) == tree(&recorded.0));
}

#[test]
fn a_trace_that_does_not_fit_is_refused() {
    let test = TestDir::new();
    let env = Rooted::new(&test);
    let bad = |event: TraceEvent| replay(&[event], 1, &*env).unwrap_err().kind();
    for event in [
        TraceEvent::Write { file: 3, offset: 0, bytes: vec![1] },
        TraceEvent::SyncDir { dir: 0 },
        TraceEvent::Store { mapping: 1, first: 0, words: vec![1] },
    ] {
        assert_eq!(bad(event), io::ErrorKind::InvalidData);
    }
    let name = "file".to_owned();
    let mut trace = vec![
        TraceEvent::OpenRoot { dir: 0, path: ROOT.into() },
        TraceEvent::Open { file: 1, dir: 0, name, how: Open::CREATE },
        TraceEvent::Allocate { file: 1, size: 4096 },
        TraceEvent::Map { mapping: 2, file: 1, size: 4096 },
        TraceEvent::Store { mapping: 2, first: 511, words: vec![1] },
    ];
    drop(replay(&trace, 5, &*env).unwrap());
    fs::remove_file(test.0.join("file")).unwrap();
    trace.push(TraceEvent::Store { mapping: 2, first: 511, words: vec![1, 2] });
    assert_eq!(replay(&trace, 6, &*env).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

/// Clocks, randomness and jobs are those of the environment below.
#[test]
fn everything_else_is_passed_on() {
    #[derive(Debug)]
    struct Once(std::sync::mpsc::Sender<()>);
    impl Job for Once {
        fn name(&self) -> &'static str {
            "once"
        }
        fn run(&self) -> NextRun {
            let _ = self.0.send(());
            NextRun::WhenWoken
        }
    }
    let env = RecordEnv::new(Arc::new(OsEnv::new()));
    assert_eq!(env.boot_id(), OsEnv::new().boot_id());
    assert!(env.memory_bytes() > 0 && env.unix_millis() > 0);
    assert!(env.monotonic() <= env.monotonic());
    let mut bytes = [0; 16];
    env.random(&mut bytes);
    assert_ne!(bytes, [0; 16]);
    let (sender, receiver) = std::sync::mpsc::channel();
    let handle = env.start(Arc::new(Once(sender)));
    receiver.recv().unwrap();
    drop(handle);
    assert!(env.is_empty());
}
