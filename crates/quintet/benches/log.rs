//! The cost of the log: an append, a synced commit of one writer and of many, and recovery.
//!
//! `cargo bench -p quintet --bench log -- [append|alone|group|recover] [--dir DIRECTORY]`
//!
//! Prints medians of interleaved runs beside the lower bound of the same run. For `append` that is
//! a checksum and a copy of the same bytes into ordinary memory; for `alone`, an overwrite and
//! `fdatasync`.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]
#![expect(clippy::cast_precision_loss, reason = "figures are shown with a few digits")]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use quintet::testing::{
    codec::{Lsn, crc32c},
    disk::{Dir, Env, Open, os::OsEnv, write_all_at},
    wal::{Anchor, Log, LogOptions},
};

const RECORD_BODY_BYTES: usize = 150;

fn main() {
    let mut names: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let dir = match names.iter().position(|argument| argument == "--dir") {
        Some(index) => names.drain(index..).nth(1).map(PathBuf::from),
        None => None,
    };
    let dir = dir.unwrap_or_else(|| std::env::temp_dir().join("quintet-bench-log"));
    let wanted = |name: &str| names.is_empty() || names.iter().any(|argument| argument == name);
    println!("directory {}, load {}", dir.display(), load_average());
    if wanted("append") {
        append(&dir);
    }
    if wanted("alone") {
        alone(&dir);
    }
    if wanted("group") {
        group(&dir);
    }
    if wanted("recover") {
        recover(&dir);
    }
    let _ = std::fs::remove_dir_all(&dir);
}

fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

/// Returns the CPU time of this thread since `start`.
fn cpu_time_since(start: Duration) -> Duration {
    cpu_time().saturating_sub(start)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn fresh(dir: &Path) -> (Arc<dyn Env>, Arc<dyn Dir>) {
    let _ = std::fs::remove_dir_all(dir);
    let env: Arc<dyn Env> = Arc::new(OsEnv::new());
    let dir = env.open_dir(dir, true).unwrap();
    (env, dir)
}

fn open(env: &Arc<dyn Env>, dir: &Arc<dyn Dir>, created: bool) -> (Log, u64) {
    let options = LogOptions { segment_bytes: 64 << 20, read_only: false, retention: 0 };
    let anchor =
        Anchor { database_id: [7; 16], start: Lsn(0), durable: Lsn(0), created, catalog: 0 };
    let mut replayed = 0;
    let mut replay = |_: Lsn, body: &[u8]| {
        replayed += 1;
        std::hint::black_box(body);
        Ok(())
    };
    let log = Log::open(env, dir, &options, &anchor, &mut replay).unwrap();
    (log, replayed)
}

/// CPU time of an append, with the next segments prepared in the background, beside a checksum and
/// a copy.
fn append(dir: &Path) {
    const RECORDS: u64 = 2_000_000;
    const RUNS: usize = 7;
    let body = [0x5a_u8; RECORD_BODY_BYTES];
    let (mut ours, mut all, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (env, handle) = fresh(dir);
        let (log, _) = open(&env, &handle, true);
        let (mut spent, mut background) = (Duration::ZERO, Duration::ZERO);
        for turn in 1..=RECORDS / 5_000 {
            let start = cpu_time();
            for _ in 0..5_000 {
                let mut ticket = log.begin().unwrap();
                ticket.append(&[&body[..10], &body[10..]]).unwrap();
            }
            spent += cpu_time_since(start);
            let start = cpu_time();
            if log.wants_preparation() {
                log.prepare().unwrap();
            }
            background += cpu_time_since(start);
            // 500,000 records are about what one thread appends in the default sync interval.
            if turn % 100 == 0 {
                log.sync().unwrap();
                log.prune(log.durable()).unwrap();
            }
        }
        all.push((spent + background).as_nanos() as f64 / RECORDS as f64);
        ours.push(spent.as_nanos() as f64 / RECORDS as f64);
        floor.push(append_floor(RECORDS, &body));
    }
    println!(
        "append: {:.0} ns of CPU a record of {RECORD_BODY_BYTES} bytes, {:.0} ns with the \
         background's page preparation; checksum and copy {:.0} ns",
        median(ours),
        median(all),
        median(floor)
    );
}

fn append_floor(records: u64, body: &[u8]) -> f64 {
    let mut memory = vec![0_u8; 64 << 20];
    memory.fill(1);
    let start = cpu_time();
    let mut offset = 0;
    for _ in 0..records {
        let body = std::hint::black_box(body);
        if offset + 32 + body.len() > memory.len() {
            offset = 0;
        }
        let crc = crc32c(body);
        memory[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
        memory[offset + 32..offset + 32 + body.len()].copy_from_slice(body);
        offset += 184;
    }
    std::hint::black_box(&memory);
    cpu_time_since(start).as_nanos() as f64 / records as f64
}

/// One writer that syncs every commit, beside an overwrite and `fdatasync` of a preallocated file.
/// The two alternate.
fn alone(dir: &Path) {
    const COMMITS: usize = 2_000;
    let (env, handle) = fresh(dir);
    let (log, _) = open(&env, &handle, true);
    let bare = handle.open("bare", Open::CREATE).unwrap();
    write_all_at(&*bare, &vec![1; 64 << 20], 0).unwrap();
    bare.sync_all().unwrap();
    let body = [0x5a_u8; RECORD_BODY_BYTES];
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for turn in 0..COMMITS {
        let start = Instant::now();
        let mut ticket = log.begin().unwrap();
        let end = ticket.append(&[&body]).unwrap().end;
        drop(ticket);
        log.wait_durable(end).unwrap();
        ours.push(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        write_all_at(&*bare, &body, u64::try_from(turn * 184).unwrap()).unwrap();
        bare.sync_data().unwrap();
        floor.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let (ours, floor) = (median(ours), median(floor));
    println!(
        "alone: {ours:.0} us a synced commit, bare write and fdatasync {floor:.0} us, ratio {:.2}",
        ours / floor
    );
}

/// Synced commits a second and commits a sync, by number of threads. Runs are interleaved.
fn group(dir: &Path) {
    const RUNS: usize = 5;
    const COUNTS: [u64; 5] = [1, 4, 16, 64, 256];
    let mut rates = vec![Vec::new(); COUNTS.len()];
    let mut shares = vec![Vec::new(); COUNTS.len()];
    for _ in 0..RUNS {
        for (index, threads) in COUNTS.into_iter().enumerate() {
            let (rate, share) = group_run(dir, threads);
            rates[index].push(rate);
            shares[index].push(share);
        }
    }
    let single = median(rates[0].clone());
    for (index, threads) in COUNTS.into_iter().enumerate() {
        let rate = median(rates[index].clone());
        println!(
            "group: {threads:3} threads: {rate:8.0} commits/s ({:.1} x one thread), \
             {:.1} commits a sync",
            rate / single,
            median(shares[index].clone()),
        );
    }
}

fn group_run(dir: &Path, threads: u64) -> (f64, f64) {
    let (env, handle) = fresh(dir);
    let (log, _) = open(&env, &handle, true);
    let time = Duration::from_secs(1);
    let start = Instant::now();
    let total: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let body = [0x5a_u8; RECORD_BODY_BYTES];
                    let mut commits = 0_u64;
                    while start.elapsed() < time {
                        let mut ticket = log.begin().unwrap();
                        let end = ticket.append(&[&body]).unwrap().end;
                        drop(ticket);
                        log.wait_durable(end).unwrap();
                        commits += 1;
                    }
                    commits
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let rate = total as f64 / start.elapsed().as_secs_f64();
    (rate, total as f64 / log.stats().syncs_total as f64)
}

/// Records replayed a second, from the page cache.
fn recover(dir: &Path) {
    const RECORDS: u64 = 1_000_000;
    let (env, handle) = fresh(dir);
    let (log, _) = open(&env, &handle, true);
    let body = [0x5a_u8; RECORD_BODY_BYTES];
    for _ in 0..RECORDS {
        log.begin().unwrap().append(&[&body]).unwrap();
    }
    log.sync().unwrap();
    drop(log);
    let mut rates = Vec::new();
    for _ in 0..7 {
        let start = Instant::now();
        let (log, replayed) = open(&env, &handle, false);
        rates.push(replayed as f64 / start.elapsed().as_secs_f64());
        assert_eq!(replayed, RECORDS);
        drop(log);
    }
    println!("recover: {:.2} million records a second", median(rates) / 1e6);
}
