//! A real run (real threads, a real file system) is recorded, repeated on the simulated disk, and
//! crashed there.
//!
//! After a crash at any event, with any subset of the un-synced changes, the commits of each thread
//! are a prefix that holds every durable one. A commit is never there without those acknowledged
//! before it began. Names are as acknowledged.
//!
//! `QUINTET_RECORD_STATES` sets the number of states to verify (400), `QUINTET_RECORD_SEED` chooses
//! them. The run itself differs each time; the recording is kept in memory only.

use std::{path::Path, sync::Arc, time::Instant};

use quintet::{
    Durability,
    testing::disk::{
        os::OsEnv,
        record::{RecordEnv, TraceEvent, TraceReplay},
        sim::{Policy, PolicyLimits, SimEnv},
    },
};

use crate::{
    lanes::{self, Lanes, change_names, found_names},
    random::mix,
};

/// Number of lanes. Lane 0 commits with `Sync`. One more lane, after them, changes names.
const LANES: usize = 4;
const COMMITS: u64 = 150;
const NAME_CHANGES: u64 = 20;
/// The one change of names without an effect: there is no table yet to drop.
const NO_CHANGE: u64 = 2;
/// Approximate number of policies to try after one event.
const POLICIES_EACH: u64 = 15;

fn options() -> quintet::Options {
    lanes::options().memory_budget(8 << 20).segment_bytes(64 << 10).recovery_budget(256 << 10)
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap()
}

/// A mark in the recording: a step of a lane begins, or is acknowledged.
fn mark(lane: usize, number: u64, acknowledged: bool) -> u64 {
    (to_u64(lane) << 32 | number) << 1 | u64::from(acknowledged)
}

/// Opens the database twice; each time all lanes write while another thread persists.
fn record(path: &Path) -> Vec<TraceEvent> {
    let env = RecordEnv::new(Arc::new(OsEnv::new()));
    for part in 0..2 {
        let db = options().open_in(Arc::new(env.clone()), path).unwrap();
        let lanes = Lanes::new(&db, &[]).unwrap();
        std::thread::scope(|scope| {
            for lane in 0..LANES {
                let (env, lanes) = (&env, &lanes);
                scope.spawn(move || {
                    let durability =
                        if lane == 0 { Durability::Sync } else { Durability::Buffered };
                    // A lane with `Sync` makes fewer commits.
                    let count = if lane == 0 { COMMITS / 3 } else { COMMITS };
                    for number in part * count..(part + 1) * count {
                        env.mark(mark(lane, number, false));
                        lanes.commit(to_u64(lane), number, durability).unwrap();
                        env.mark(mark(lane, number, true));
                    }
                });
            }
            for number in part * NAME_CHANGES..(part + 1) * NAME_CHANGES {
                env.mark(mark(LANES, number, false));
                change_names(&db, number).unwrap();
                env.mark(mark(LANES, number, true));
                if number % 7 == 3 {
                    db.persist().unwrap();
                }
            }
        });
        drop(lanes);
        db.close().unwrap();
    }
    env.trace()
}

/// The states that the marks so far allow.
#[derive(Default)]
struct Known {
    /// By lane, the names last.
    acknowledged: [u64; LANES + 1],
    durable: [u64; LANES + 1],
    /// By lane and commit: the counts acknowledged when it began.
    began: [Vec<[u64; LANES + 1]>; LANES + 1],
}

impl Known {
    fn note(&mut self, value: u64) {
        let (number, acknowledged) = ((value >> 1) & 0xffff_ffff, value & 1 == 1);
        let lane = usize::try_from(value >> 33).unwrap();
        if !acknowledged {
            self.began[lane].push(self.acknowledged);
            return;
        }
        self.acknowledged[lane] = number + 1;
        // A synced commit or a change of names makes everything before it durable.
        if lane == 0 || lane == LANES && number != NO_CHANGE {
            let before = self.began[lane][usize::try_from(number).unwrap()];
            for (durable, before) in self.durable.iter_mut().zip(before) {
                *durable = (*durable).max(before);
            }
            self.durable[lane] = number + 1;
        }
    }

    /// Opens the disk that a crash left, and compares.
    fn verify(&self, image: &SimEnv, path: &Path) -> Result<(), String> {
        let db = options()
            .open_in(Arc::new(image.clone()), path)
            .map_err(|error| format!("open: {error}"))?;
        let report = db.check().map_err(|error| format!("check: {error}"))?;
        if !report.is_sound() {
            return Err(format!("check: {:?}", report.findings));
        }
        found_names(&db, self.acknowledged[LANES])?;
        let lanes = Lanes::new(&db, &[]).map_err(|error| format!("tables: {error}"))?;
        let found = lanes.found(to_u64(LANES))?;
        for (lane, count) in found.iter().enumerate() {
            let began = to_u64(self.began[lane].len());
            if *count < self.durable[lane] || *count > began {
                let durable = self.durable[lane];
                return Err(format!("lane {lane}: {count}, durable {durable}, begun {began}"));
            }
            let Some(last) = count.checked_sub(1) else { continue };
            let before = self.began[lane][usize::try_from(last).unwrap()];
            if found.iter().zip(before).any(|(found, before)| *found < before) {
                return Err(format!(
                    "commit {last} of lane {lane} is there, of those acknowledged before it \
                     ({before:?}) some are not: {found:?}"
                ));
            }
        }
        lanes.commit(9, 0, Durability::Sync).map_err(|error| format!("commit: {error}"))?;
        drop(lanes);
        db.close().map_err(|error| format!("close: {error}"))
    }
}

#[test]
fn a_recorded_run_crashed_at_any_event_leaves_prefixes() {
    let setting = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().unwrap())
    };
    let states = setting("QUINTET_RECORD_STATES", 400);
    let seed = setting("QUINTET_RECORD_SEED", 1);
    let began = Instant::now();
    let root =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("record-{}", std::process::id()));
    let path = root.join("db");
    let events = record(&path);
    std::fs::remove_dir_all(&root).unwrap();
    let sim = SimEnv::new(seed);
    let (mut replayed, mut known) = (TraceReplay::default(), Known::default());
    let changing = to_u64(events.iter().filter(|event| event.changes_disk()).count());
    let limits = PolicyLimits { each: 1, random: 2, torn: 1, copying: 0 };
    let (mut verified, mut place) = (0, seed);
    for (index, event) in events.iter().enumerate() {
        replayed.step(event, &sim).unwrap();
        if let TraceEvent::Mark { value } = event {
            known.note(*value);
        }
        place = mix(place.wrapping_add(0x9e37_79b9_7f4a_7c15));
        // About the number asked for, spread over the run.
        if !event.changes_disk() || place % changing.max(1) > states / POLICIES_EACH {
            continue;
        }
        sim.record_history();
        let event = sim.mark();
        for policy in sim.policies(event, limits).into_iter().filter(|policy| !policy.is_kill()) {
            verified += 1;
            if let Err(what) = known.verify(&sim.crash(policy), &path) {
                panic!("seed {seed}, {policy} after event {index} of {}: {what}", events.len());
            }
        }
    }
    // The whole run, closed.
    known.durable = known.acknowledged;
    known.verify(&sim.crash(Policy::AllLost), &path).unwrap();
    println!(
        "recorded run: {} events, {changing} of them change the disk; {verified} states verified, \
         seed {seed}; {:.1} s",
        events.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(verified > states / 3);
}
