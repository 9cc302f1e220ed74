//! A database that was written with much memory, and whose process was killed, opens with the
//! minimum of the memory budget. Its log has a batch of 40 MB and a value of 40 MiB.
//!
//! A child writes and is killed. Another child opens the database, checks it, and prints the peak
//! of its anonymous memory while the database was opened.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

#[path = "common/scratch.rs"]
mod scratch;

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use quintet::{Database, EngineKind, Options, TableOptions};

use crate::scratch::Scratch;

const WRITER: &str = "QUINTET_SMALL_BUDGET_WRITER";
const OPENER: &str = "QUINTET_SMALL_BUDGET_OPENER";
const MIB: u64 = 1 << 20;
/// The minimum of the budget.
const SMALL_BYTES: u64 = MIB;
const VALUE_BYTES: u64 = 40 * MIB;
const BATCH_ENTRIES: u64 = 40_000;
/// Memory that is not in the budget, and what engines hold at least.
const BESIDE_BYTES: u64 = 24 * MIB;

/// Peak of anonymous memory, in bytes.
static PEAK: AtomicU64 = AtomicU64::new(0);

fn open(path: &Path, budget: u64) -> Database {
    Options::new().memory_budget(budget).recovery_budget(1 << 30).open(path).unwrap()
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn value() -> Vec<u8> {
    vec![7; usize::try_from(VALUE_BYTES).unwrap()]
}

fn parameters(name: &str) -> Option<(EngineKind, String)> {
    let text = std::env::var(name).ok()?;
    let (kind, path) = text.split_once('|').unwrap();
    Some((kind.parse().unwrap(), path.to_owned()))
}

/// The first child. Does nothing in an ordinary run.
#[test]
fn child_that_writes() {
    let Some((kind, path)) = parameters(WRITER) else { return };
    let db = open(path.as_ref(), 256 * MIB);
    let table = db.create_table("t", TableOptions::new(kind)).unwrap();
    (0..2000).for_each(|number| table.put(key(number), [1; 100]).unwrap());
    db.persist().unwrap();
    let mut batch = db.batch();
    (1000..BATCH_ENTRIES).for_each(|number| _ = batch.put(&table, key(number), [2; 1000]));
    batch.commit().unwrap();
    table.put("large", value()).unwrap();
    (0..1000).for_each(|number| table.put(key(number), [3; 100]).unwrap());
    println!("\nwritten");
    loop {
        std::thread::park();
    }
}

fn own_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// The second child. Does nothing in an ordinary run.
#[test]
fn child_that_opens() {
    let Some((kind, path)) = parameters(OPENER) else { return };
    std::thread::spawn(|| {
        loop {
            PEAK.fetch_max(own_memory(), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let db = open(path.as_ref(), SMALL_BYTES);
    let peak = PEAK.load(Ordering::Relaxed).max(own_memory());
    let table = db.table("t").unwrap();
    assert!(table.get("large").unwrap().unwrap() == value()[..], "{kind}: the large value");
    for number in (0..BATCH_ENTRIES).step_by(37) {
        let found = table.get(key(number)).unwrap();
        let expected = if number < 1000 { &[3; 100][..] } else { &[2; 1000][..] };
        assert!(found.as_deref() == Some(expected), "{kind}: key {number}");
    }
    println!("\npeak {peak}");
}

fn spawn(test: &str, variable: &str, kind: EngineKind, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(variable, format!("{kind}|{}", path.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the output of a child, line by line.
fn lines_of(child: &mut Child) -> impl Iterator<Item = String> {
    BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok)
}

#[test]
fn a_killed_database_opens_with_the_minimum_of_memory() {
    for kind in EngineKind::ALL {
        let scratch = Scratch::new(&format!("small-budget-{kind}"));
        let mut writer = spawn("child_that_writes", WRITER, kind, &scratch.0);
        let is_written = lines_of(&mut writer).any(|line| line == "written");
        assert!(is_written, "{kind}: the writer failed");
        writer.kill().unwrap();
        writer.wait().unwrap();
        let mut opener = spawn("child_that_opens", OPENER, kind, &scratch.0);
        // To the end: the child's harness fails if it cannot print.
        let lines: Vec<String> = lines_of(&mut opener).collect();
        assert!(opener.wait().unwrap().success(), "{kind}: the database does not open");
        let peak = lines.iter().find_map(|line| line.strip_prefix("peak "));
        let peak: u64 = peak.unwrap().parse().unwrap();
        // `naive` holds everything, and the value twice while its put is replayed: a checkpoint
        // that was being written may have it already. A memtable holds a copy of the value, and its
        // flush more.
        let held = match kind {
            EngineKind::Naive => BATCH_ENTRIES * 1200 + 2 * VALUE_BYTES,
            EngineKind::Slm | EngineKind::Tph => 4 * VALUE_BYTES,
            _ => 0,
        };
        let most = SMALL_BYTES + VALUE_BYTES + BESIDE_BYTES + held;
        println!("{kind}: peak {} KiB, limit {} KiB", peak >> 10, most >> 10);
        assert!(peak <= most, "{kind}: {peak} bytes, {most} are allowed");
    }
}
