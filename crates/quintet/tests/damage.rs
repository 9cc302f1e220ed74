//! Damage at rest: a file of a small closed database has one byte flipped, is truncated, removed,
//! swapped, replaced by an older one or by another database's, or has blocks doubled or zeroed.
//!
//! Opening and reading must return the right contents, or an error that names file and offset.
//! They must not panic. A refused open changes nothing: once the damage is undone, the database
//! is whole again. A database that opened accepts writes, and the next opening finds them.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `QUINTET_DAMAGE_STRIDE` | 97 | one byte of this many is tried in large files; 1: all |
//! | `QUINTET_DAMAGE_SEED` | 1 | chooses the bytes of large files, and the cases |
//! | `QUINTET_DAMAGE_CASES` | 7,000 and 3,000 | number of cases of disk and of persistent memory; 0: all |
//! | `QUINTET_DAMAGE_CASE` | | repeats the case that a failure names |

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

/// The engines that workloads use, table by table.
const ENGINES: &[quintet::EngineKind] = quintet::EngineKind::AVAILABLE;

#[path = "common/modes.rs"]
mod modes;
#[expect(dead_code, reason = "shared with tests that use all of it")]
#[path = "common/random.rs"]
mod random;

#[expect(dead_code, reason = "shared with the crash enumeration, which uses all of it")]
#[path = "crash/oracle.rs"]
mod oracle;
#[expect(dead_code, reason = "shared with the crash enumeration, which uses all of it")]
#[path = "crash/runner.rs"]
mod runner;
#[expect(dead_code, reason = "shared with the crash enumeration, which uses all of it")]
#[path = "crash/workload.rs"]
mod workload;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use quintet::{
    Error,
    testing::disk::{
        Env as _, Open,
        sim::{Call, Damage, Event, EventKind, Policy, SimEnv},
    },
};

use crate::{
    oracle::{Bounds, Trace},
    random::mix,
    runner::{base, open, read, run},
    workload::Workload,
};

/// The steps that write the database. They make a table of each engine. Every file exists in a
/// newer and an older state. Only the catalog has the last table's name, and only the log has the
/// last records.
const STAGES: [&str; 4] = [
    "create,put,batch,persist,put",
    "persist-table,batch,rename,put,create,sync-batch,persist",
    "create,put,overwrite,batch,persist-table,put,create,put,batch,persist,put",
    "put,overwrite,delete,rotate,batch,create,drop,rename,put,sync-put",
];
/// Bytes at the front of a log segment that are all damaged: its head and the small records.
const LOG_FRONT_BYTES: u64 = 4096 + 1024;
const BLOCK_BYTES: u64 = 4096;
/// In larger files, the front of each block is damaged, and a sample of the rest.
const BULK_BYTES: u64 = 32 << 10;
const BULK_FRONT_BYTES: u64 = 64;
const SHOWN_MAX: usize = 5;

/// A closed database: its disk, its contents, and its files after each stage.
struct Place {
    env: SimEnv,
    trace: Trace,
    stages: Vec<BTreeMap<String, Vec<u8>>>,
}

fn files(env: &SimEnv) -> BTreeMap<String, Vec<u8>> {
    let paths = env.files().into_iter().map(|(path, _)| path);
    paths.map(|path| (path.clone(), env.contents(&path).unwrap())).collect()
}

/// A new disk, from a seed.
type Disk = fn(u64) -> SimEnv;

/// The files of the same database just after its catalog was created.
fn newborn(env: &SimEnv) -> BTreeMap<String, Vec<u8>> {
    env.record_history();
    drop(open(env).unwrap());
    let named = |event: &Event| {
        event.kind == EventKind::Call(Call::Rename) && event.path.ends_with("/catalog")
    };
    let event = env.history().iter().find(|event| named(event)).unwrap().number;
    files(&env.image_at(event, Policy::Killed))
}

fn build(disk: Disk, seed: u64) -> Place {
    let env = disk(seed);
    let mut trace = base(&env).unwrap();
    let mut stages = vec![newborn(&disk(seed)), files(&env)];
    for stage in STAGES {
        let ops = stage.parse::<Workload>().unwrap().ops;
        let bounds = Bounds::all(&trace);
        trace = run(&env, &trace, bounds, &ops).unwrap().trace;
        stages.push(files(&env));
    }
    Place { env, trace, stages }
}

/// One damage of one file.
#[derive(Debug)]
struct Case {
    path: String,
    damage: Damage,
    /// Whether the machine was rebooted in between.
    rebooted: bool,
}

impl Case {
    fn name(&self) -> String {
        let damage = match &self.damage {
            Damage::Replace(bytes) => format!("Replace({} bytes)", bytes.len()),
            other => format!("{other:?}"),
        };
        format!("{} {damage} rebooted={}", self.path, self.rebooted)
    }
}

fn is_log(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "log")
}

/// Returns all damages to try, each before and after a reboot.
fn cases(place: &Place, other: &Place, (stride, seed): (u64, u64)) -> Vec<Case> {
    let mut found = Vec::new();
    let Some(newest) = place.stages.last() else { return found };
    for (path, bytes) in newest {
        let size = u64::try_from(bytes.len()).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let used = u64::try_from(used).unwrap();
        let is_bulk = !is_log(path) && size > BULK_BYTES;
        let is_sampled = |offset: u64| mix(offset ^ seed).is_multiple_of(stride);
        let looked_at = |offset: &u64| {
            let edge = *offset + 64 >= used && *offset < used + 64;
            let kind = if is_log(path) {
                *offset < LOG_FRONT_BYTES || offset.is_multiple_of(stride)
            } else {
                let front = *offset < used && *offset % BLOCK_BYTES < BULK_FRONT_BYTES;
                !is_bulk || front || is_sampled(*offset)
            };
            kind || edge
        };
        let mut damages = Vec::new();
        for offset in (0..size).filter(looked_at) {
            let bit = u8::try_from((offset * 5 + offset / 8) % 8).unwrap();
            damages.push(Damage::FlipBit { offset, bit });
            // Any other size than a log segment's head's is refused: a look at some is enough.
            let cut = match (is_log(path), is_bulk) {
                (true, _) => offset % 41 == 0,
                (_, true) => offset.is_multiple_of(BLOCK_BYTES) || is_sampled(offset),
                _ => true,
            };
            if cut {
                damages.push(Damage::Truncate(offset));
            }
        }
        damages.extend([1, 7, 4096, 100_000].map(Damage::Extend));
        damages.push(Damage::Delete);
        for block in 0..size.div_ceil(BLOCK_BYTES) {
            damages.push(Damage::ZeroBlock(block));
            damages.push(Damage::CopyBlock { from: block.saturating_sub(1), to: block });
            damages.push(Damage::CopyBlock { from: block + 1, to: block });
        }
        for (name, theirs) in place.stages.iter().flatten().chain(other.stages.iter().flatten()) {
            if theirs != bytes && Path::new(name).extension() == Path::new(path).extension() {
                damages.push(Damage::Replace(theirs.clone()));
            }
        }
        damages.extend(
            newest.keys().filter(|name| *name > path).map(|name| Damage::Swap(name.into())),
        );
        for (index, damage) in damages.into_iter().enumerate() {
            // Byte by byte it is one or the other, by turns.
            let single = matches!(damage, Damage::FlipBit { .. } | Damage::Truncate(_));
            for rebooted in [false, true] {
                if !single || stride == 1 || rebooted == (index % 3 == 0) {
                    found.push(Case { path: path.clone(), damage: damage.clone(), rebooted });
                }
            }
        }
    }
    found
}

/// The outcome of opening a damaged database.
enum Verdict {
    Right,
    Refused(Error),
}

/// Opens, reads everything, compares, checks, writes, and opens again. Only right contents or an
/// error pass.
fn attempt(env: &SimEnv, trace: &Trace) -> Result<Verdict, String> {
    let compare = |contents, when: &str| {
        let found = trace.find(contents, Bounds::all(trace), env.unix_millis());
        found.map_err(|what| format!("{when}: {what}"))
    };
    let db = match open(env) {
        Ok(db) => db,
        Err(error) => return Ok(Verdict::Refused(error)),
    };
    let contents = match read(&db) {
        Ok(contents) => contents,
        Err(error) => return Ok(Verdict::Refused(error)),
    };
    compare(&contents, "after opening")?;
    // `check` may report damage in bytes that no read needs.
    let told = db.check().map_err(|error| format!("check: {error}"))?;
    let Some(name) = contents.keys().next() else { return Err("no tables".to_owned()) };
    let late = |what: &str, error: &Error| format!("opened, but {what}: {error}");
    let table = db.table(name).map_err(|error| late("table", &error))?;
    table.put("after", "damage").map_err(|error| late("put", &error))?;
    drop(table);
    db.close().map_err(|error| late("close", &error))?;
    let db = open(env).map_err(|error| late("open again", &error))?;
    let mut contents = read(&db).map_err(|error| late("read again", &error))?;
    let after = contents.get_mut(name).and_then(|entries| entries.remove(&b"after"[..]));
    if after.as_deref() != Some(b"damage") {
        return Err(format!("what was put after the damage is {after:?}"));
    }
    compare(&contents, "after opening again")?;
    let report = db.check().map_err(|error| format!("check again: {error}"))?;
    if !report.is_sound() && told.is_sound() {
        return Err(format!("check again: {:?}", report.findings));
    }
    Ok(Verdict::Right)
}

/// Asserts that an error names file and offset.
fn judge(case: &Case, error: &Error) -> Result<(), String> {
    match error {
        Error::Corruption { file, .. } | Error::NewerFormat { file, .. } if !file.is_empty() => {
            Ok(())
        }
        Error::NotADatabase { .. } if case.path.ends_with("/catalog") => Ok(()),
        error => Err(format!("refused without a place: {error}")),
    }
}

/// Restores the damaged files.
fn undo(place: &Place, case: &Case, env: &SimEnv) -> Result<(), String> {
    let Some(newest) = place.stages.last() else { return Ok(()) };
    let mut paths = vec![Path::new(&case.path)];
    if let Damage::Swap(other) = &case.damage {
        paths.push(other);
    }
    for path in paths {
        let dir = env.open_dir(path.parent().unwrap(), false).map_err(|error| error.to_string())?;
        let name = path.file_name().unwrap().to_str().unwrap();
        // Refusing leaves everything as it was, so it is there unless it was deleted.
        if dir.open(name, Open::READ).is_err() {
            dir.open(name, Open::CREATE).map_err(|error| error.to_string())?;
        }
        let bytes = newest[path.to_str().unwrap()].clone();
        env.damage(path, &Damage::Replace(bytes)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Returns the error of a refused open.
fn verify(place: &Place, case: &Case) -> Result<Option<Error>, String> {
    let env = if case.rebooted { place.env.crash(Policy::AllKept) } else { place.env.kill() };
    env.damage(&case.path, &case.damage).map_err(|error| format!("damage: {error}"))?;
    match attempt(&env, &place.trace)? {
        Verdict::Right => Ok(None),
        Verdict::Refused(error) => {
            judge(case, &error)?;
            undo(place, case, &env)?;
            match attempt(&env, &place.trace) {
                Ok(Verdict::Right) => Ok(Some(error)),
                Ok(Verdict::Refused(late)) => {
                    Err(format!("refused with {error:?}; once undone still refused: {late}"))
                }
                Err(what) => Err(format!("refused with {error:?}; once undone: {what}")),
            }
        }
    }
}

fn guarded(place: &Place, case: &Case) -> Result<Option<Error>, String> {
    catch_unwind(AssertUnwindSafe(|| verify(place, case))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

#[test]
fn any_damage_gives_an_error_or_the_right_answer() {
    damage_is_found(SimEnv::new, 7_000);
}

/// Log and pools are in persistent memory.
#[test]
fn any_damage_of_persistent_memory_gives_an_error_or_the_right_answer() {
    damage_is_found(SimEnv::with_persistent_memory, 3_000);
}

fn damage_is_found(disk: Disk, cases_at_most: u64) {
    let setting = |name: &str| std::env::var(name).ok();
    let stride = setting("QUINTET_DAMAGE_STRIDE").map_or(97, |text| text.parse().unwrap());
    let seed = setting("QUINTET_DAMAGE_SEED").map_or(1, |text| text.parse().unwrap());
    let wanted = setting("QUINTET_DAMAGE_CASE");
    let start = Instant::now();
    let (place, other) = (build(disk, 1), build(disk, 2));
    let mut cases = cases(&place, &other, (stride, seed));
    let all = cases.len();
    if let Some(wanted) = &wanted {
        cases.retain(|case| case.name() == *wanted);
    } else {
        let limit =
            setting("QUINTET_DAMAGE_CASES").map_or(cases_at_most, |text| text.parse().unwrap());
        let total = u64::try_from(all).unwrap();
        let numbered = (0..total).map(|index| limit == 0 || mix(index ^ seed) % total < limit);
        let mut chosen = numbered.collect::<Vec<_>>().into_iter();
        cases.retain(|_| chosen.next().unwrap_or_default());
    }
    let next = AtomicUsize::new(0);
    let refused = AtomicU64::new(0);
    let failures: Mutex<BTreeMap<String, (u64, String)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match guarded(&place, case) {
                        Ok(error) => {
                            if wanted.is_some() {
                                println!("{error:?}");
                            }
                            refused.fetch_add(u64::from(error.is_some()), Ordering::Relaxed);
                        }
                        Err(what) => {
                            // Shows one failure of each kind: only numbers differ within a kind.
                            let kind: String =
                                what.chars().filter(|letter| !letter.is_ascii_digit()).collect();
                            let mut failures = failures.lock().unwrap();
                            let entry = failures.entry(kind).or_insert((0, String::new()));
                            entry.0 += 1;
                            if entry.0 == 1 {
                                entry.1 = format!("{}\n    {what}", case.name());
                            }
                        }
                    }
                }
            });
        }
    });
    println!(
        "damage: {} of {all} cases, {} refused, the others right; {:.1} s",
        cases.len(),
        refused.into_inner(),
        start.elapsed().as_secs_f64()
    );
    let failures = failures.into_inner().unwrap();
    for (count, first) in failures.values().take(SHOWN_MAX) {
        println!("{count} times, first QUINTET_DAMAGE_CASE='{first}");
    }
    assert!(failures.is_empty(), "{} kinds of failure", failures.len());
}
