//! A plain get of a record in memory allocates nothing, makes no system call, and writes to no
//! memory that another thread can see.
//!
//! Each test takes the means away and reads in a child process: an allocator that counts, a
//! thread that the kernel kills at its first system call (`seccomp` in strict mode), and a process
//! whose writable memory is read-only except the reader's own stack. A second child breaks the
//! rule on purpose and must be caught; otherwise the trap would prove nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a counting allocator, and memory made read-only")]
#![cfg(target_os = "linux")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ffi::c_void,
    os::fd::AsFd as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use quintet::{Database, EngineKind, Options, Table, TableOptions};
use rustix::{
    mm::{MprotectFlags, mprotect},
    thread::{SecureComputingMode, set_secure_computing_mode},
};

/// The engines that make this promise.
const ENGINES: [EngineKind; 2] = [EngineKind::HashLog, EngineKind::Trie];
const RECORDS: u64 = 20_000;
const GETS: u64 = 100_000;
/// Environment variable that names the trap for the child.
const TRAP: &str = "QUINTET_GETS_TRAP";
const DONE: &[u8] = b"all gets answered\n";

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator; the count is a plain cell of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns a table in memory, persisted and idle, so that no background job runs.
fn table(dir: &std::path::Path, engine: EngineKind) -> (Database, Table) {
    let options = Options::new().memory_budget(256 << 20).sync_interval(Duration::from_millis(1));
    let db = options.open(dir).unwrap();
    let table = db.create_table("gets", TableOptions::new(engine)).unwrap();
    for number in 0..RECORDS {
        table.put(key(number), value(number)).unwrap();
    }
    db.persist().unwrap();
    let rest = Instant::now();
    while db.stats().log.durable < db.stats().log.end || rest.elapsed().as_millis() < 200 {
        std::thread::sleep(Duration::from_millis(10));
    }
    (db, table)
}

fn key(number: u64) -> [u8; 23] {
    let mut key = *b"user-0000000000000-gets";
    key[5..13].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn value(number: u64) -> [u8; 128] {
    [number.to_le_bytes()[0]; 128]
}

/// Reads present records, and one absent key in nine; returns the number of right answers.
fn read(table: &Table) -> u64 {
    let mut right = 0;
    for step in 0..GETS {
        let number = step * 7919 % (RECORDS + RECORDS / 8);
        let found = table.get(key(number)).unwrap();
        let expected = (number < RECORDS).then(|| value(number));
        let alike = match (&found, &expected) {
            (Some(found), Some(expected)) => found[..] == expected[..],
            (None, None) => true,
            _ => false,
        };
        right += u64::from(alike);
    }
    right
}

#[test]
fn a_get_allocates_nothing() {
    for engine in ENGINES {
        allocates_nothing(engine);
    }
}

fn allocates_nothing(engine: EngineKind) {
    let dir = tempfile();
    let (db, table) = table(&dir.0, engine);
    let mut buffer = Vec::with_capacity(256);
    assert!(table.get_into(key(1), &mut buffer).unwrap());
    let before = ALLOCATIONS.get();
    assert_eq!(read(&table), GETS);
    for number in 0..RECORDS {
        assert!(table.get_into(key(number), &mut buffer).unwrap());
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    drop(Box::new(1_u64));
    assert_eq!(ALLOCATIONS.get() - before, 1, "the counter counts");
    db.close().unwrap();
}

#[test]
fn a_get_makes_no_system_call() {
    for engine in ENGINES {
        assert!(child_comes_through("calls", engine), "{engine}");
        let cheats = child_comes_through("calls-cheating", engine);
        assert!(!cheats, "the trap does not catch a system call");
    }
}

#[test]
fn a_get_writes_to_no_memory_but_its_own_stack() {
    for engine in ENGINES {
        assert!(child_comes_through("writes", engine), "{engine}");
        let cheats = child_comes_through("writes-cheating", engine);
        assert!(!cheats, "the trap does not catch a write");
    }
}

fn child_comes_through(trap: &str, engine: EngineKind) -> bool {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["child_that_gets", "--exact", "--nocapture", "--test-threads=1"])
        .env(TRAP, format!("{trap} {engine}"))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    output.stdout.windows(DONE.len()).any(|window| window == DONE)
}

/// The child of the other tests. Does nothing in an ordinary run.
#[test]
fn child_that_gets() {
    let Ok(trap) = std::env::var(TRAP) else { return };
    let (trap, engine) = trap.split_once(' ').unwrap();
    let dir = tempfile();
    let (_db, table) = table(&dir.0, engine.parse().unwrap());
    assert_eq!(read(&table), GETS);
    let path = dir.0.clone();
    drop(dir);
    match trap {
        "calls" | "calls-cheating" => {
            end_with_this_thread();
            set_secure_computing_mode(SecureComputingMode::Strict).unwrap();
            if trap == "calls-cheating" {
                let _ = path.exists();
            }
            answer(read(&table));
            // The end of a test makes system calls: the kernel kills the thread here.
        }
        _ => {
            let memory = writable_memory();
            protect(&memory, MprotectFlags::READ);
            if trap == "writes-cheating" {
                // Writes one count on the heap, as a reader that registers itself would.
                drop(table.clone());
            }
            let right = read(&table);
            answer(right);
            protect(&memory, MprotectFlags::READ | MprotectFlags::WRITE);
        }
    }
}

/// The kernel kills only the thread that made a call. This ends the process with it.
fn end_with_this_thread() {
    let thread = format!("/proc/self/task/{}", rustix::thread::gettid().as_raw_nonzero());
    std::thread::spawn(move || {
        while std::path::Path::new(&thread).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::process::exit(0);
    });
}

/// Reports success without allocating.
fn answer(right: u64) {
    if right == GETS {
        rustix::io::write(std::io::stdout().as_fd(), DONE).unwrap();
    }
}

/// Returns start and length of all private writable memory, heaps, tables and records included,
/// except the current stack with the thread's own variables, and the data of libraries.
fn writable_memory() -> Vec<(usize, usize)> {
    let here = ALLOCATIONS.with(|count| (&raw const *count).addr());
    let local = 0_u8;
    let stack = (&raw const local).addr();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = |line: &str| {
        let mut words = line.split_whitespace();
        let (range, access) = (words.next()?, words.next()?);
        let file = words.nth(3).unwrap_or("");
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let own = (start..end).contains(&stack) || (start..end).contains(&here);
        let other = file.contains(".so") || file.starts_with("[stack");
        (access.starts_with("rw") && !own && !other).then_some((start, end - start))
    };
    let memory: Vec<_> = maps.lines().filter_map(range).collect();
    let total: usize = memory.iter().map(|(_, length)| length).sum();
    assert!(memory.len() > 3 && total > 4 << 20, "records and index are among it");
    memory
}

fn protect(memory: &[(usize, usize)], access: MprotectFlags) {
    for (start, length) in memory {
        // SAFETY: changes no byte. A write there meanwhile is the fault that this must catch.
        unsafe {
            mprotect(std::ptr::with_exposed_provenance_mut::<c_void>(*start), *length, access)
        }
        .unwrap();
    }
}

/// A directory that is removed when this is dropped.
struct Temporary(std::path::PathBuf);

fn tempfile() -> Temporary {
    let name = format!("quintet-gets-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name.replace(['(', ')'], ""));
    std::fs::create_dir_all(&path).unwrap();
    Temporary(path)
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
