//! Process death on real files: a child with several writing threads is killed with SIGKILL at a
//! random moment, again and again on one directory.
//!
//! After each kill every acknowledged commit is found, batches are whole, names are as
//! acknowledged, and the check is sound. Every second child has its log in emulated persistent
//! memory.
//!
//! `QUINTET_KILLS` sets the number of kills (20), `QUINTET_KILL_SEED` their moments.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/lanes.rs"]
mod lanes;
#[path = "common/modes.rs"]
mod modes;
#[expect(dead_code, reason = "shared with tests that use all of it")]
#[path = "common/random.rs"]
mod random;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use quintet::{Durability, EngineKind, TableOptions};

use crate::{
    lanes::{Lanes, change_names, found_names, options},
    modes::{modes, with_mode},
    random::Random,
};

/// Number of lanes. Lane 0 commits with `Sync`, the others with `Buffered`. One more lane, after
/// them, changes names.
const LANES: u64 = 4;
const CHILD: &str = "QUINTET_KILL_CHILD";
/// Set if the child has its log in emulated persistent memory.
const MEMORY: &str = "QUINTET_KILL_MEMORY";
/// Commits after which the next child starts with an empty directory. Bounds the time of a check.
const COMMITS_MAX: u64 = 15_000;
const LIFE_MS_MAX: u64 = 150;

/// The child: writes until it is killed. Does nothing in an ordinary run.
#[test]
fn child_that_writes() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let mut words = path.split('|');
    let path = words.next().unwrap();
    let starts: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    let options = match std::env::var(MEMORY) {
        Ok(_) => options().emulate_persistent_memory(Duration::ZERO, 0),
        Err(_) => options(),
    };
    let db = options.open(path).unwrap();
    let lanes = Lanes::new(&db, &more()).unwrap();
    let acknowledge = |lane: u64, number: u64| {
        // One write per line, so that the lines of threads do not mix.
        let line = format!("acknowledged {lane} {number}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    };
    // Ends the line in which the harness names the test.
    println!();
    std::thread::scope(|scope| {
        for (lane, start) in (0..LANES).zip(starts.clone()) {
            let lanes = &lanes;
            scope.spawn(move || {
                let durability = if lane == 0 { Durability::Sync } else { Durability::Buffered };
                for number in start.. {
                    lanes.commit(lane, number, durability).unwrap();
                    acknowledge(lane, number);
                }
            });
        }
        for number in starts[starts.len() - 1].. {
            change_names(&db, number).unwrap();
            acknowledge(LANES, number);
        }
    });
}

/// Tables of the engines that the lanes lack, in all modes. Pools are in emulated memory.
fn more() -> Vec<(String, TableOptions)> {
    let mut tables = Vec::new();
    for kind in [EngineKind::BTree, EngineKind::Slm, EngineKind::Tph] {
        for (number, mode) in modes(kind).iter().enumerate() {
            let small: &[&str] = match kind {
                EngineKind::Slm => &["memtable_bytes", "run_bytes"],
                EngineKind::Tph => &["memtable_bytes", "table_bytes", "level_bytes"],
                _ => &[],
            };
            let options = small
                .iter()
                .fold(TableOptions::new(kind), |options, name| options.set(*name, "262144"));
            tables.push((format!("{kind}-{number}"), with_mode(options, mode)));
        }
    }
    tables
}

fn spawn(path: &Path, starts: &[u64], is_in_memory: bool) -> Child {
    let starts: Vec<String> = starts.iter().map(|start| format!("|{start}")).collect();
    Command::new(std::env::current_exe().unwrap())
        .envs(is_in_memory.then_some((MEMORY, "1")))
        .args(["child_that_writes", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{}{}", path.display(), starts.concat()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a child for `life`, kills it, and raises `counts` to the commits that it acknowledged.
fn live(path: &Path, counts: &mut [u64], life: Duration, is_in_memory: bool) {
    let mut child = spawn(path, counts, is_in_memory);
    let output = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for line in output.lines().map_while(Result::ok) {
            let words: Option<(u64, u64)> = line.strip_prefix("acknowledged ").and_then(|rest| {
                let (lane, number) = rest.split_once(' ')?;
                Some((lane.parse().ok()?, number.parse().ok()?))
            });
            seen.extend(words);
        }
        seen
    });
    std::thread::sleep(life);
    let early = child.try_wait().unwrap();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(early.is_none() && errors.is_empty(), "the child ended by itself: {errors}");
    for (lane, number) in reader.join().unwrap() {
        let count = &mut counts[usize::try_from(lane).unwrap()];
        *count = (*count).max(number + 1);
    }
}

/// Opens the database, compares it with `counts`, and raises `counts` to the commits found.
fn verify(path: &Path, counts: &mut [u64]) -> Result<(), String> {
    let db = options().open(path).map_err(|error| format!("open: {error}"))?;
    let lanes = Lanes::new(&db, &more()).map_err(|error| format!("tables: {error}"))?;
    let found = lanes.found(LANES)?;
    for (lane, (count, found)) in counts.iter_mut().zip(found).enumerate() {
        if found < *count || found > *count + 1 {
            return Err(format!("lane {lane}: {count} acknowledged, {found} found"));
        }
        *count = found;
    }
    let names = &mut counts[usize::try_from(LANES).unwrap()];
    *names = found_names(&db, *names)?;
    let report = db.check().map_err(|error| format!("check: {error}"))?;
    if !report.is_sound() {
        return Err(format!("check: {:?}", report.findings));
    }
    drop(lanes);
    db.close().map_err(|error| format!("close: {error}"))
}

#[test]
fn every_acknowledged_commit_survives_a_killed_process() {
    let kills: u64 = std::env::var("QUINTET_KILLS").map_or(20, |text| text.parse().unwrap());
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = std::env::var("QUINTET_KILL_SEED")
        .map_or_else(|_| u64::from(clock.subsec_nanos()), |text| text.parse().unwrap());
    println!("QUINTET_KILL_SEED={seed}");
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let root = root.join(format!("kill-{}-{seed}", std::process::id()));
    let began = Instant::now();
    let (mut random, mut total, mut generation) = (Random(seed), 0, 0);
    let mut counts = vec![0; usize::try_from(LANES).unwrap() + 1];
    for kill in 0..kills {
        let path = root.join(generation.to_string());
        std::fs::create_dir_all(&root).unwrap();
        let before: u64 = counts.iter().sum();
        let life = Duration::from_micros(random.below(LIFE_MS_MAX * 1000));
        live(&path, &mut counts, life, kill % 2 == 1);
        if let Err(what) = verify(&path, &mut counts) {
            panic!("kill {kill} after {life:?}, seed {seed}, left in {}: {what}", path.display());
        }
        let after: u64 = counts.iter().sum();
        total += after - before;
        if after > COMMITS_MAX {
            std::fs::remove_dir_all(&path).unwrap();
            generation += 1;
            counts.fill(0);
        }
    }
    let _ = std::fs::remove_dir_all(&root);
    println!(
        "{kills} kills, {total} acknowledged commits, all found; {:.1} s",
        began.elapsed().as_secs_f64()
    );
    assert!(total > 0, "no child lived long enough to write");
}
