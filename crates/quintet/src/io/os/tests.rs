//! The real system keeps what the traits promise.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
};

use super::*;
use crate::{
    io::{
        AlignedBuffer, File, LockGuard, NextRun, Open, contract_tests, persistence::Slowness,
        read_exact_at, read_up_to, write_all_at,
    },
    util::{
        error::LockHolder,
        sync::{Mutex, lock},
    },
};

/// A directory of its own for each test, gone at its end.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("quintet-test-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn open(&self) -> Arc<dyn Dir> {
        OsEnv::new().open_dir(&self.0, false).unwrap()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn directories_are_made_with_their_parents_for_the_owner_alone() {
    let test = TestDir::new();
    let path = test.0.join("a/b/c");
    let env = OsEnv::new();
    assert_eq!(kind(env.open_dir(&path, false)), io::ErrorKind::NotFound);
    let dir = env.open_dir(&path, true).unwrap();
    assert_eq!(dir.path(), path);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    dir.open("file", Open::CREATE).unwrap();
    let mode = fs::metadata(path.join("file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Opening again, with or without `create`, finds the same.
    for create in [true, false] {
        let found = env.open_dir(&path, create).unwrap().list().unwrap();
        assert_eq!(found.len(), 1);
        assert!(!found[0].is_dir);
    }
    assert_eq!(kind(env.open_dir(&path.join("file"), true)), io::ErrorKind::NotADirectory);
}

#[test]
fn names_that_are_not_one_component_are_refused_everywhere() {
    let test = TestDir::new();
    let dir = test.open();
    dir.open("good", Open::CREATE).unwrap();
    for name in ["", ".", "..", "a/b", "/etc", "../x", "a\0b"] {
        let results = [
            dir.open(name, Open::CREATE).map(drop),
            dir.open(name, Open::READ).map(drop),
            dir.open_dir(name, true).map(drop),
            dir.rename(name, "good"),
            dir.rename("good", name),
            dir.remove(name),
            dir.remove_dir(name),
            dir.lock(name, true).map(drop),
        ];
        for result in results {
            assert_eq!(kind(result), io::ErrorKind::InvalidInput, "{name:?}");
        }
    }
    assert_eq!(dir.list().unwrap().len(), 1);
}

#[test]
fn links_pipes_and_directories_are_not_opened_as_files() {
    let test = TestDir::new();
    let outside = TestDir::new();
    fs::write(outside.0.join("secret"), b"secret").unwrap();
    symlink(outside.0.join("secret"), test.0.join("link")).unwrap();
    symlink(&outside.0, test.0.join("dirlink")).unwrap();
    symlink(outside.0.join("absent"), test.0.join("dangling")).unwrap();
    fs::create_dir(test.0.join("dir")).unwrap();
    let pipe = test.0.join("pipe");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();

    let dir = test.open();
    for name in ["link", "dangling"] {
        assert!(dir.open(name, Open::READ).is_err());
        assert!(dir.open(name, Open::WRITE).is_err());
        assert!(dir.lock(name, true).is_err());
    }
    assert_eq!(kind(dir.open("dangling", Open::CREATE)), io::ErrorKind::AlreadyExists);
    assert!(dir.open_dir("dirlink", true).is_err());
    assert_eq!(kind(dir.open("dir", Open::READ)), io::ErrorKind::IsADirectory);
    // Opening a pipe for reading alone would wait for a writer for ever.
    assert_eq!(kind(dir.open("pipe", Open::READ)), io::ErrorKind::InvalidInput);
    assert!(!outside.0.join("absent").exists());
    // A link is listed, as what it is: not a directory.
    let listed = dir.list().unwrap();
    let names: Vec<_> = listed.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["dangling", "dir", "dirlink", "link", "pipe"]);
    assert_eq!(listed.iter().filter(|entry| entry.is_dir).count(), 1);
}

#[test]
fn open_files_follow_a_directory_that_is_moved() {
    let test = TestDir::new();
    let dir = test.open().open_dir("old", true).unwrap();
    fs::rename(test.0.join("old"), test.0.join("new")).unwrap();
    fs::create_dir(test.0.join("old")).unwrap();
    dir.open("file", Open::CREATE).unwrap();
    assert!(test.0.join("new/file").exists());
    assert!(!test.0.join("old/file").exists());
}

#[test]
fn entries_are_created_renamed_and_removed() {
    let test = TestDir::new();
    let dir = test.open();
    let file = dir.open("a", Open::CREATE).unwrap();
    write_all_at(&*file, b"first", 0).unwrap();
    assert_eq!(kind(dir.open("a", Open::CREATE)), io::ErrorKind::AlreadyExists);
    let other = dir.open("b", Open::CREATE).unwrap();
    write_all_at(&*other, b"second", 0).unwrap();
    dir.rename("a", "b").unwrap();
    dir.sync().unwrap();
    let mut bytes = [0; 16];
    let found = dir.open("b", Open::READ).unwrap();
    assert_eq!(read_up_to(&*found, &mut bytes, 0).unwrap(), 5);
    assert_eq!(&bytes[..5], b"first");
    assert_eq!(kind(dir.open("a", Open::READ)), io::ErrorKind::NotFound);
    assert!(found.write_at(b"x", 0).is_err(), "opened for reading");

    dir.open_dir("sub", true).unwrap().open("inner", Open::CREATE).unwrap();
    assert_eq!(kind(dir.remove_dir("sub")), io::ErrorKind::DirectoryNotEmpty);
    assert!(dir.remove("sub").is_err());
    dir.open_dir("sub", false).unwrap().remove("inner").unwrap();
    dir.remove_dir("sub").unwrap();
    dir.remove("b").unwrap();
    assert_eq!(kind(dir.remove("b")), io::ErrorKind::NotFound);
    assert_eq!(kind(dir.open_dir("sub", false)), io::ErrorKind::NotFound);
    assert_eq!(dir.list().unwrap(), []);
}

#[test]
fn growing_by_allocation_leaves_holes() {
    use std::os::unix::fs::MetadataExt as _;
    let test = TestDir::new();
    let file = test.open().open("file", Open::CREATE).unwrap();
    let taken = || fs::metadata(test.0.join("file")).unwrap().blocks() * 512;
    file.allocate(4 << 20).unwrap();
    file.punch_hole(0, 2 << 20).unwrap();
    let before = taken();
    file.allocate(5 << 20).unwrap();
    assert!(taken() <= before + (1 << 20) + 65_536, "{before}, then {}", taken());
}

#[test]
fn sizes_holes_and_reservations() {
    let test = TestDir::new();
    let file = test.open().open("file", Open::CREATE).unwrap();
    file.allocate(0).unwrap();
    file.allocate(100_000).unwrap();
    assert_eq!(file.len().unwrap(), 100_000);
    file.allocate(50).unwrap();
    assert_eq!(file.len().unwrap(), 100_000, "allocating never cuts");
    write_all_at(&*file, &vec![7; 100_000], 0).unwrap();
    file.punch_hole(4096, 8192).unwrap();
    file.punch_hole(99_000, 1 << 20).unwrap();
    file.punch_hole(0, 0).unwrap();
    assert_eq!(file.len().unwrap(), 100_000, "a hole leaves the size");
    let expected = |index: usize| match index {
        4096..12288 | 99_000.. => 0,
        _ => 7,
    };
    let mut bytes = vec![1; 100_000];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    assert!(bytes.iter().enumerate().all(|(index, byte)| *byte == expected(index)));
    file.set_len(10).unwrap();
    file.set_len(20).unwrap();
    assert_eq!(read_up_to(&*file, &mut bytes, 0).unwrap(), 20);
    assert_eq!(&bytes[..20], &[7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(kind(read_exact_at(&*file, &mut bytes, 0)), io::ErrorKind::UnexpectedEof);
    assert_eq!(file.read_at(&mut bytes, 20).unwrap(), 0);
    assert_eq!(file.read_at(&mut bytes, 1 << 40).unwrap(), 0);
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    file.drop_cache().unwrap();
    assert!(file.descriptor().is_some());
}

/// What stands in for preallocation and holes where the file system has none, with and without
/// direct I/O.
#[test]
fn written_zeros_do_what_the_file_system_cannot() {
    for direct in [false, true] {
        let test = TestDir::new();
        let how = if direct { Open::CREATE.direct() } else { Open::CREATE };
        let path = test.0.join("file");
        test.open().open("file", how).unwrap();
        let fd = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let os = dir::file::OsFile::new(fd.into(), path.clone(), false);
        write_all_at(&os, &[7; 5000], 0).unwrap();
        if direct {
            let flags = rustix::fs::OFlags::DIRECT;
            let _ = rustix::fs::fcntl_setfl(os.descriptor().unwrap(), flags);
        }
        os.allocate_by_writing(3_000_001).unwrap();
        assert_eq!(os.len().unwrap(), 3_000_001);
        os.allocate_by_writing(10).unwrap();
        assert_eq!(os.len().unwrap(), 3_000_001);
        let bytes = fs::read(&path).unwrap();
        assert!(bytes[..5000].iter().all(|byte| *byte == 7));
        assert!(bytes[5000..].iter().all(|byte| *byte == 0));
        os.clear_by_writing(0, 4096).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes[..4096].iter().all(|byte| *byte == 0));
        assert!(bytes[4096..5000].iter().all(|byte| *byte == 7));
        assert_eq!(os.len().unwrap(), 3_000_001);
    }
}

#[test]
fn clearing_by_writing_stops_at_the_end_of_the_file() {
    let test = TestDir::new();
    let path = test.0.join("file");
    fs::write(&path, [7; 5000]).unwrap();
    let fd = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let os = dir::file::OsFile::new(fd.into(), path.clone(), false);
    os.clear_by_writing(4000, u64::MAX).unwrap();
    os.clear_by_writing(6000, 10).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 5000);
    assert!(bytes[..4000].iter().all(|byte| *byte == 7));
    assert!(bytes[4000..].iter().all(|byte| *byte == 0));
}

#[test]
fn direct_transfers_are_aligned_and_end_with_the_file() {
    let test = TestDir::new();
    let dir = test.open();
    let file = dir.open("file", Open::CREATE.direct()).unwrap();
    let mut buffer = AlignedBuffer::zeroed(16384);
    for (index, byte) in buffer.as_mut_slice().iter_mut().enumerate() {
        *byte = u8::try_from(index % 251).unwrap();
    }
    write_all_at(&*file, buffer.as_slice(), 8192).unwrap();
    file.set_len(8192 + 5000).unwrap();
    let mut back = AlignedBuffer::zeroed(16384);
    // The second read of `read_up_to` starts at the unaligned end of the file.
    assert_eq!(read_up_to(&*file, back.as_mut_slice(), 8192).unwrap(), 5000);
    assert_eq!(back.as_slice()[..5000], buffer.as_slice()[..5000]);
    // The same bytes come by the page cache.
    let cached = dir.open("file", Open::READ).unwrap();
    let mut bytes = vec![0; 5000];
    read_exact_at(&*cached, &mut bytes, 8192).unwrap();
    assert_eq!(bytes, buffer.as_slice()[..5000]);
}

#[test]
fn unaligned_direct_writes_do_not_leave_direct_io() {
    let test = TestDir::new();
    let file = test.open().open("file", Open::CREATE.direct()).unwrap();
    let buffer = AlignedBuffer::zeroed(8192);
    let before = rustix::fs::fcntl_getfl(file.descriptor().unwrap()).unwrap();
    // Refused or not, as the file system likes; a byte is below any disk's sector.
    let _ = file.write_at(&buffer.as_slice()[..1], 1);
    assert_eq!(rustix::fs::fcntl_getfl(file.descriptor().unwrap()).unwrap(), before);
    assert_eq!(file.write_at(buffer.as_slice(), 0).unwrap(), 8192);
    assert_eq!(kind(file.write_at(buffer.as_slice(), 1 << 63)), io::ErrorKind::InvalidInput);
    assert_eq!(rustix::fs::fcntl_getfl(file.descriptor().unwrap()).unwrap(), before);
}

/// A file system that wants more alignment than a block refuses what we promise: ordinary I/O from
/// then on.
#[test]
fn a_refused_aligned_transfer_leaves_direct_io() {
    let test = TestDir::new();
    let path = test.0.join("file");
    let direct = test.open().open("file", Open::CREATE.direct()).unwrap();
    let fd = direct.descriptor().unwrap().try_clone_to_owned().unwrap();
    let os = dir::file::OsFile::new(fd, path, true);
    let buffer = AlignedBuffer::zeroed(4096);
    assert_eq!(kind(os.refused(&buffer.as_slice()[..100], 0)), io::ErrorKind::InvalidInput);
    os.refused(buffer.as_slice(), 4096).unwrap();
    let flags = rustix::fs::fcntl_getfl(os.descriptor().unwrap()).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::DIRECT));
    assert_eq!(os.write_at(&buffer.as_slice()[..100], 3).unwrap(), 100);
}

#[test]
fn opened_files_do_not_answer_try_again() {
    let test = TestDir::new();
    let file = test.open().open("file", Open::CREATE).unwrap();
    let flags = rustix::fs::fcntl_getfl(file.descriptor().unwrap()).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
}

#[test]
fn mappings_and_calls_see_the_same_bytes() {
    let test = TestDir::new();
    let file = test.open().open("file", Open::CREATE).unwrap();
    assert_eq!(kind(file.map(8192)), io::ErrorKind::InvalidInput, "the file is empty");
    file.allocate(8192).unwrap();
    let mapping = file.map(8192).unwrap();
    assert_eq!(mapping.bytes(), 8192);
    mapping.prepare_writes(0..8192);
    mapping.words()[512].store(u64::from_le_bytes(*b"inthemap"), Ordering::Relaxed);
    let mut bytes = [0; 8];
    read_exact_at(&*file, &mut bytes, 4096).unwrap();
    assert_eq!(&bytes, b"inthemap");
    write_all_at(&*file, b"inthefile", 0).unwrap();
    assert_eq!(mapping.words()[0].load(Ordering::Relaxed), u64::from_le_bytes(*b"inthefil"));
    file.sync_data().unwrap();

    // A live mapping keeps its file from being cut.
    assert_eq!(kind(file.set_len(4096)), io::ErrorKind::InvalidInput);
    file.set_len(16384).unwrap();
    drop(mapping);
    file.set_len(4096).unwrap();
}

/// A sync of emulated persistent memory is as many write-backs as the range has lines.
#[test]
fn emulated_memory_is_synced_line_by_line() {
    let test = TestDir::new();
    let slow = Slowness { line: Duration::from_millis(2), bytes_per_second: 0 };
    let env = OsEnv::new().on(MappedMemory::Emulated(slow));
    let dir = env.open_dir(&test.0, false).unwrap().open_dir("below", true).unwrap();
    let file = dir.open("file", Open::CREATE).unwrap();
    file.allocate(8192).unwrap();
    let mapping = file.map(8192).unwrap();
    mapping.words()[20].store(7, Ordering::Relaxed);
    let took = |range| {
        let start = env.monotonic();
        file.sync_range(&mapping, range).unwrap();
        env.monotonic().saturating_sub(start)
    };
    // Bytes 100 to 299 touch lines 1 to 4.
    let four = took(100..300);
    assert!(four >= Duration::from_millis(8), "{four:?}");
    assert!(took(0..0) < four && took(8191..9000) >= Duration::from_millis(2));
    file.sync_data().unwrap();
    let mut bytes = [0; 8];
    read_exact_at(&*file, &mut bytes, 160).unwrap();
    assert_eq!(bytes, 7_u64.to_le_bytes());
}

#[test]
fn locks_exclude_other_openings_of_this_process() {
    let test = TestDir::new();
    let (one, two) = (test.open(), test.open());
    let exclusive = one.lock("LOCK", true).unwrap();
    for exclusive in [true, false] {
        assert_eq!(kind(two.lock("LOCK", exclusive)), io::ErrorKind::WouldBlock);
        assert_eq!(kind(one.lock("LOCK", exclusive)), io::ErrorKind::WouldBlock);
    }
    drop(exclusive);
    let shared = (one.lock("LOCK", false).unwrap(), two.lock("LOCK", false).unwrap());
    assert_eq!(kind(one.lock("LOCK", true)), io::ErrorKind::WouldBlock);
    drop(shared);
    one.lock("LOCK", true).unwrap();
}

#[test]
fn a_lock_on_a_replaced_file_is_not_the_lock() {
    let test = TestDir::new();
    let dir = dir::OsDir::open_path(&test.0, false).unwrap();
    let file = dir.lock_file("LOCK", true).unwrap();
    assert!(dir.names("LOCK", &file).unwrap());
    dir.remove("LOCK").unwrap();
    assert!(!dir.names("LOCK", &file).unwrap(), "gone");
    dir.open("LOCK", Open::CREATE).unwrap();
    assert!(!dir.names("LOCK", &file).unwrap(), "another file took its place");
    drop(file);

    let first = dir.lock("LOCK", true).unwrap();
    dir.remove("LOCK").unwrap();
    // The first holds a file without a name; whoever comes now shares a new one with all others.
    let second = dir.lock("LOCK", true).unwrap();
    assert_eq!(kind(dir.lock("LOCK", true)), io::ErrorKind::WouldBlock);
    drop(first);
    assert_eq!(kind(dir.lock("LOCK", true)), io::ErrorKind::WouldBlock);
    drop(second);
}

/// The directory to lock, for the child of the next test.
const CHILD_DIR: &str = "QUINTET_TEST_LOCK_DIR";

/// Not a test of its own: what the child process of the next test does. Holds the lock until its
/// input ends.
#[test]
fn lock_holder_child() {
    let Some(path) = std::env::var_os(CHILD_DIR) else { return };
    let dir = OsEnv::new().open_dir(Path::new(&path), false).unwrap();
    let _guard: Box<dyn LockGuard> = dir.lock("LOCK", true).unwrap();
    dir.open("held", Open::CREATE).unwrap();
    let _ = io::Read::read(&mut io::stdin(), &mut [0]);
}

#[test]
fn locks_exclude_other_processes_and_end_with_them() {
    let test = TestDir::new();
    let dir = test.open();
    let name = format!("{}::lock_holder_child", module_path!().split_once("::").unwrap().1);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture"])
        .env(CHILD_DIR, &test.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The child says by a file that it holds the lock, or ends.
    while dir.open("held", Open::READ).is_err() {
        assert_eq!(child.try_wait().unwrap(), None, "the child could not take the lock");
        std::thread::yield_now();
    }
    assert_eq!(kind(dir.lock("LOCK", true)), io::ErrorKind::WouldBlock);
    assert_eq!(kind(dir.lock("LOCK", false)), io::ErrorKind::WouldBlock);
    child.kill().unwrap();
    child.wait().unwrap();
    dir.lock("LOCK", true).unwrap();
}

#[test]
fn the_holder_is_found_while_other_locks_come_and_go() {
    const LOCKS: u32 = 12;
    let test = TestDir::new();
    let (dir, stop) = (test.open(), AtomicBool::new(false));
    // These are before the lock of this test in the list of the system, or after it.
    let churn = |thread: u32| {
        let dir = test.open();
        while !stop.load(Ordering::Relaxed) {
            let held = |number| dir.lock(&format!("other-{thread}-{number}"), true).unwrap();
            drop((0..LOCKS).map(held).collect::<Vec<_>>());
        }
    };
    let _guard = dir.lock("LOCK", true).unwrap();
    let missing = std::thread::scope(|scope| {
        let churn = &churn;
        (0..2).for_each(|thread| drop(scope.spawn(move || churn(thread))));
        let missing = (0..300).find(|_| dir.lock_holder("LOCK") != LockHolder::ThisProcess);
        stop.store(true, Ordering::Relaxed);
        missing
    });
    assert_eq!(missing, None);
}

#[test]
fn the_machine_is_described() {
    let env = OsEnv::new();
    assert_eq!(env.boot_id(), OsEnv::new().boot_id(), "one boot, one id");
    assert_ne!(env.boot_id(), [0; 16]);
    assert!(env.memory_bytes() > 1 << 20);
    let first = env.monotonic();
    assert!(env.monotonic() >= first);
    assert!(OsEnv::new().monotonic() >= first, "environments share their zero");
    assert!(env.unix_millis() > 1_700_000_000_000);
    let (mut one, mut two) = ([0; 33], [0; 33]);
    env.random(&mut one);
    env.random(&mut two);
    assert_ne!(one, two);
    env.random(&mut []);
}

#[test]
fn boot_ids_are_parsed() {
    let id = host::parse_uuid("00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
    assert_eq!(id[..4], [0x00, 0x11, 0x22, 0x33]);
    assert_eq!(id[15], 0xff);
    for bad in ["", "+0112233-4455-6677-8899-aabbccddeeff", "00112233", &"0".repeat(33)] {
        assert_eq!(host::parse_uuid(bad), None, "{bad}");
    }
}

#[test]
fn the_least_memory_limit_counts() {
    let test = TestDir::new();
    let put = |path: &str, text: &str| {
        let path = test.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let limit = |groups: &str| host::group_limit(&test.0, groups);
    assert_eq!(limit("0::/a/b\n"), None, "no groups at all");
    put("sys/fs/cgroup/memory.max", "900\n");
    assert_eq!(limit("0::/not/visible/here\n"), Some(900));
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/memory.max", "500\n");
    assert_eq!(limit("0::/a/b\n"), Some(500));
    assert_eq!(limit("0::/\n"), Some(900));
    put("sys/fs/cgroup/memory/v1/memory.limit_in_bytes", "300");
    assert_eq!(limit("9:cpu:/v1\n4:memory,hugetlb:/v1\n0::/a\n"), Some(300));
    assert_eq!(limit("9:cpu:/v1\nnonsense\n"), None);
    assert_eq!(limit("0::/../../../../../../etc\n"), Some(900));
}

/// A job that tells of each run and does what it is told next.
struct TestJob {
    runs: mpsc::Sender<()>,
    next: Mutex<mpsc::Receiver<NextRun>>,
}

/// A job with the test's ends of its channels: one that receives each run, one that answers it.
fn test_job() -> (Arc<TestJob>, mpsc::Receiver<()>, mpsc::Sender<NextRun>) {
    let (runs, ran) = mpsc::channel();
    let (answer, next) = mpsc::channel();
    (Arc::new(TestJob { runs, next: Mutex::new(next) }), ran, answer)
}

impl Job for TestJob {
    fn name(&self) -> &'static str {
        "test-job-name"
    }

    fn run(&self) -> NextRun {
        assert_eq!(std::thread::current().name(), Some(self.name()));
        self.runs.send(()).unwrap();
        self.next.lock().unwrap().recv().unwrap_or(NextRun::WhenWoken)
    }
}

/// Replay has the calling thread make what it allocates: a thread that ends takes its memory along.
#[test]
fn the_first_of_parallel_tasks_is_the_callers_and_each_is_done_once() {
    let env = OsEnv::new();
    for count in [0, 1, 2, 9].repeat(200) {
        let done = Mutex::new(Vec::new());
        env.parallel(count, &|task| {
            if task == 0 {
                // Time for the others to come first.
                std::thread::yield_now();
            }
            lock(&done).push((task, std::thread::current().id()));
        });
        let mut done = std::mem::take(&mut *lock(&done));
        done.sort_unstable_by_key(|(task, _)| *task);
        assert!(done.iter().map(|(task, _)| *task).eq(0..count));
        assert!(done.iter().take(1).all(|(_, thread)| *thread == std::thread::current().id()));
    }
}

#[test]
fn a_job_runs_when_started_woken_or_due() {
    let env = OsEnv::new();
    let (job, ran, answer) = test_job();
    let handle = env.start(job);
    ran.recv().unwrap();
    answer.send(NextRun::Now).unwrap();
    ran.recv().unwrap();
    let before = env.monotonic();
    answer.send(NextRun::After(Duration::from_millis(20))).unwrap();
    ran.recv().unwrap();
    let delay = env.monotonic().saturating_sub(before);
    assert!(delay >= Duration::from_millis(20), "not before its time");
    // Woken during a run: it is due again, however the run ends.
    handle.wake();
    handle.wake();
    answer.send(NextRun::WhenWoken).unwrap();
    ran.recv().unwrap();
    answer.send(NextRun::After(Duration::MAX)).unwrap();
    handle.wake();
    ran.recv().unwrap();
    answer.send(NextRun::After(Duration::from_hours(1))).unwrap();
    handle.wake();
    ran.recv().unwrap();
    answer.send(NextRun::WhenWoken).unwrap();
    drop(handle);
    assert!(ran.recv().is_err(), "no run after the stop, and the job is gone");
}

#[test]
fn stop_waits_for_the_running_call() {
    let (job, ran, answer) = test_job();
    let handle = OsEnv::new().start(job);
    ran.recv().unwrap();
    let (stopped, seen) = mpsc::channel();
    let waiting = std::thread::spawn(move || {
        drop(handle);
        stopped.send(()).unwrap();
    });
    // The run is under way until it is answered, and so is the stop.
    for _ in 0..100 {
        assert_eq!(seen.try_recv(), Err(mpsc::TryRecvError::Empty));
        std::thread::yield_now();
    }
    // The stop may not have begun yet: then there is another run, which ends unanswered.
    answer.send(NextRun::Now).unwrap();
    drop(answer);
    seen.recv().unwrap();
    waiting.join().unwrap();
    ran.try_iter().for_each(drop);
    assert_eq!(ran.try_recv(), Err(mpsc::TryRecvError::Disconnected), "the job is gone");
}

#[test]
fn stop_ends_a_delay() {
    let (job, ran, answer) = test_job();
    let handle = OsEnv::new().start(job);
    ran.recv().unwrap();
    answer.send(NextRun::After(Duration::from_secs(1 << 30))).unwrap();
    drop(handle);
    assert!(ran.recv().is_err());
}

/// Tells the niceness of the thread that runs it.
#[cfg(target_os = "linux")]
struct Nice {
    is_patient: bool,
    niceness: mpsc::Sender<i32>,
}

#[cfg(target_os = "linux")]
impl Job for Nice {
    fn name(&self) -> &'static str {
        "nice"
    }

    fn is_patient(&self) -> bool {
        self.is_patient
    }

    fn run(&self) -> NextRun {
        self.niceness.send(rustix::process::getpriority_process(None).unwrap()).unwrap();
        NextRun::WhenWoken
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_patient_job_alone_gives_way() {
    let own = rustix::process::getpriority_process(None).unwrap();
    for (is_patient, more) in [(false, 0), (true, 5)] {
        let (niceness, told) = mpsc::channel();
        let _handle = OsEnv::new().start(Arc::new(Nice { is_patient, niceness }));
        assert_eq!(told.recv().unwrap(), (own + more).min(19));
    }
    assert_eq!(rustix::process::getpriority_process(None).unwrap(), own);
}

/// Drops its own handle in its first run.
struct Suicide {
    handle: Mutex<mpsc::Receiver<JobHandle>>,
    runs: mpsc::Sender<()>,
}

impl Job for Suicide {
    fn name(&self) -> &'static str {
        "suicide"
    }

    fn run(&self) -> NextRun {
        drop(self.handle.lock().unwrap().recv().unwrap());
        self.runs.send(()).unwrap();
        NextRun::Now
    }
}

#[test]
fn a_job_may_stop_itself() {
    let (give, handle) = mpsc::channel();
    let (runs, ran) = mpsc::channel();
    let job = Arc::new(Suicide { handle: Mutex::new(handle), runs });
    give.send(OsEnv::new().start(job)).unwrap();
    ran.recv().unwrap();
    assert!(ran.recv().is_err(), "it ran once and let go of everything");
}

struct Panicker;

impl Job for Panicker {
    fn name(&self) -> &'static str {
        "panicker"
    }

    fn run(&self) -> NextRun {
        // Unwinds without the message of the panic hook.
        std::panic::resume_unwind(Box::new(()))
    }
}

#[test]
fn stopping_a_job_that_panicked_does_not_hang() {
    let job = Arc::new(Panicker);
    let handle = OsEnv::new().start(Arc::clone(&job) as Arc<dyn Job>);
    while Arc::strong_count(&job) > 1 {
        std::thread::yield_now();
    }
    handle.wake();
    drop(handle);
}

#[test]
fn shared_files_are_used_from_many_threads() {
    let test = TestDir::new();
    let file = test.open().open("file", Open::CREATE).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..64_u64 {
                    let offset = (round * 8 + u64::from(thread)) * 100;
                    write_all_at(&**file, &[thread; 100], offset).unwrap();
                }
            });
        }
    });
    let bytes = fs::read(test.0.join("file")).unwrap();
    assert_eq!(bytes.len(), 8 * 64 * 100);
    for (index, chunk) in bytes.chunks(100).enumerate() {
        assert_eq!(chunk, [u8::try_from(index % 8).unwrap(); 100]);
    }
}

#[test]
fn keeps_the_contract() {
    let dir = TestDir::new();
    for queue in [QueueKind::Auto, QueueKind::Pool] {
        let env = OsEnv::with_queue(queue);
        let root = dir.0.join(format!("{queue:?}"));
        contract_tests::check_all(&env, &root);
        contract_tests::check_jobs(&env, &std::thread::yield_now);
    }
}
