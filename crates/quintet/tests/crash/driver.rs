//! Enumerates crashes: runs each workload once, then checks the disk that each policy leaves after
//! each event.

use std::{
    collections::HashSet,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use quintet::testing::{
    disk::sim::{Policy, PolicyLimits, SimEnv},
    seeded::{self, Bug},
};

use crate::{
    oracle::{Bounds, Trace},
    runner::{Outcome, base, run},
    workload::{HAND_MADE, Op, Workload, random, short_sequences},
};

/// The steps of every recovered database before it is closed and opened again.
const AFTERMATH: [Op; 5] = [Op::Put, Op::Overwrite, Op::Batch, Op::Delete, Op::SyncPut];
/// One in this number of states is crashed in its recovery and aftermath as well.
const NEST_ONE_IN: u64 = 10;
/// Number of crash images of such a state.
const NESTED_IMAGES: usize = 6;
/// Depth of nested crashes: a crash in the recovery from a crash in the recovery from a crash.
const DEPTH_MAX: usize = 3;
const SHARDS: usize = 64;

/// The extent of an enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Distinct states to verify.
    pub states: u64,
    /// Seeds all random choices.
    pub seed: u64,
    /// Worker threads.
    pub threads: usize,
    /// The enumeration stops after this number of failures.
    pub failures: usize,
    /// A planted bug that must be found.
    pub bug: Option<Bug>,
}

/// One crash: the event before it, and the policy for un-synced changes.
pub type Point = (u64, Policy);

/// One case, as text that repeats it.
#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub workload: Workload,
    /// From the outside in.
    pub points: Vec<Point>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.seed, self.workload)?;
        self.points.iter().try_for_each(|(event, policy)| write!(f, "/{event}@{policy}"))
    }
}

impl std::str::FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('/');
        let seed = parts.next().unwrap_or_default();
        let seed = seed.parse().map_err(|error| format!("seed {seed:?}: {error}"))?;
        let workload = parts.next().unwrap_or_default().parse()?;
        let points = parts
            .map(|part| {
                let (event, policy) = part.split_once('@').ok_or("a point is EVENT@POLICY")?;
                let event = event.parse().map_err(|error| format!("{event:?}: {error}"))?;
                Ok((event, policy.parse()?))
            })
            .collect::<Result<_, String>>()?;
        Ok(Self { seed, workload, points })
    }
}

/// A failed case and its error.
#[derive(Clone, Debug)]
pub struct Failure {
    pub case: Case,
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "QUINTET_CRASH_CASE='{}' cargo test --release -p quintet --test crash repeat_one_case \
             -- --nocapture\n    {}",
            self.case, self.what
        )
    }
}

/// The result of an enumeration.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub states: u64,
    pub nested: u64,
    pub skipped: u64,
    pub workloads: u64,
    pub seconds: f64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = f64::from(u32::try_from(self.states).unwrap_or(u32::MAX)) / self.seconds;
        write!(
            f,
            "{} distinct states verified ({} of them crashes in recovery), {} alike skipped, \
             {} workloads, {:.1} s, {rate:.0} cycles a second",
            self.states, self.nested, self.skipped, self.workloads, self.seconds
        )
    }
}

/// The work that the threads share.
struct Shared {
    plan: Plan,
    workloads: Vec<Workload>,
    next: AtomicUsize,
    seen: Vec<Mutex<HashSet<u64>>>,
    states: AtomicU64,
    nested: AtomicU64,
    skipped: AtomicU64,
    stop: AtomicBool,
    failures: Mutex<Vec<Failure>>,
}

/// Verifies `plan.states` distinct crash states; returns the failures otherwise.
pub fn enumerate(plan: Plan) -> Result<Totals, Vec<Failure>> {
    let mut workloads: Vec<Workload> = HAND_MADE.iter().map(|text| text.parse().unwrap()).collect();
    // The seed sets the order, so that short runs see different sequences.
    let mut short = short_sequences();
    shuffle(&mut short, plan.seed);
    workloads.extend(short);
    enumerate_these(plan, workloads)
}

/// The same over these workloads, then over random ones.
pub fn enumerate_these(plan: Plan, workloads: Vec<Workload>) -> Result<Totals, Vec<Failure>> {
    let start = Instant::now();
    let shared = Shared {
        plan,
        workloads,
        next: AtomicUsize::new(0),
        seen: (0..SHARDS).map(|_| Mutex::default()).collect(),
        states: AtomicU64::new(0),
        nested: AtomicU64::new(0),
        skipped: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failures: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(|| shared.work());
        }
    });
    let failures = shared.failures.into_inner().unwrap();
    if !failures.is_empty() {
        return Err(failures);
    }
    Ok(Totals {
        states: shared.states.into_inner(),
        nested: shared.nested.into_inner(),
        skipped: shared.skipped.into_inner(),
        workloads: u64::try_from(shared.next.into_inner()).unwrap(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Runs one case, in the notation of a failure.
pub fn repeat(case: &Case) -> Result<(), String> {
    let (env, trace, bounds) = ground(case.seed, &case.workload)?;
    let ops = case.workload.ops.clone();
    let mut points = case.points.iter();
    let mut outcome = observe(&env, &trace, bounds, &ops)?;
    let (mut env, mut trace, mut bounds) = (env, trace, bounds);
    while let Some((event, policy)) = points.next() {
        for past in env.history() {
            println!("{past}");
        }
        (env, trace, bounds) = crash(&env, &trace, bounds, &outcome, (*event, *policy));
        println!("--- {policy} after {event}; allowed: {bounds:?}");
        match observe(&env, &trace, bounds, &AFTERMATH) {
            Ok(next) => outcome = next,
            Err(error) if points.len() == 0 => return Err(error),
            // Deeper crashes interrupt this recovery before it fails.
            Err(_) => outcome = Outcome { trace: trace.clone(), opened: u64::MAX },
        }
    }
    Ok(())
}

/// The disk and the trace at the start of a workload.
fn ground(seed: u64, workload: &Workload) -> Result<(SimEnv, Trace, Bounds), String> {
    let env = workload.disk(seed);
    let (env, trace) = if workload.from_nothing {
        (env, Trace::default())
    } else {
        let trace = base(&env)?;
        // Closed and synced: a copy of the disk, and nothing pending.
        (env.crash(Policy::AllKept), trace)
    };
    let bounds = Bounds::all(&trace);
    Ok((env, trace, bounds))
}

/// Runs a workload after a history. A panic is returned as an error.
fn observe(env: &SimEnv, trace: &Trace, bounds: Bounds, ops: &[Op]) -> Result<Outcome, String> {
    env.record_history();
    guarded(env, trace, bounds, ops)
}

fn guarded(env: &SimEnv, trace: &Trace, bounds: Bounds, ops: &[Op]) -> Result<Outcome, String> {
    catch_unwind(AssertUnwindSafe(|| run(env, trace, bounds, ops))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// The disk after a crash in a run, its trace, and the bounds of the prefix that may be found.
fn crash(
    env: &SimEnv,
    before: &Trace,
    bounds: Bounds,
    outcome: &Outcome,
    (event, policy): Point,
) -> (SimEnv, Trace, Bounds) {
    let image = env.image_at(event, policy);
    if event < outcome.opened {
        // Nothing was served: the earlier bounds still hold.
        (image, before.clone(), bounds.after(policy))
    } else {
        (image, outcome.trace.clone(), outcome.trace.bounds(event, policy))
    }
}

/// A pseudo-random choice that depends on its arguments alone.
fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut state = seed | 1;
    for index in (1..list.len()).rev() {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let high = usize::try_from(state >> 33).unwrap();
        list.swap(index, high % (index + 1));
    }
}

/// One level of crashes: an observed run.
struct Level<'a> {
    env: &'a SimEnv,
    trace: &'a Trace,
    bounds: Bounds,
    outcome: &'a Outcome,
    case: &'a Case,
}

impl Shared {
    fn work(&self) {
        let _planted = self.plan.bug.map(seeded::plant);
        while !self.stop.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let workload = match self.workloads.get(index) {
                Some(workload) => workload.clone(),
                None => random(self.plan.seed ^ u64::try_from(index).unwrap()),
            };
            let workload = workload.placed(index);
            let case = Case { seed: self.plan.seed, workload, points: Vec::new() };
            self.explore(&case, self.quota());
        }
    }

    /// Returns the number of states for each workload, so that all workloads are reached.
    fn quota(&self) -> usize {
        let each = self.plan.states / u64::try_from(self.workloads.len().max(1)).unwrap();
        usize::try_from(each).unwrap() + 16
    }

    fn explore(&self, case: &Case, quota: usize) {
        let observed = ground(case.seed, &case.workload).and_then(|(env, trace, bounds)| {
            let outcome = observe(&env, &trace, bounds, &case.workload.ops)?;
            Ok((env, trace, bounds, outcome))
        });
        match observed {
            Ok((env, trace, bounds, outcome)) => {
                let (trace, outcome) = (&trace, &outcome);
                self.descend(&Level { env: &env, trace, bounds, outcome, case }, quota);
            }
            Err(what) => self.fail(case.clone(), what),
        }
    }

    /// Crashes one observed run until `quota` new states are verified; returns their number.
    fn descend(&self, level: &Level<'_>, quota: usize) -> usize {
        let nested = !level.case.points.is_empty();
        let limits = if nested {
            PolicyLimits { each: 8, random: 4, torn: 4, copying: 2 }
        } else {
            PolicyLimits::default()
        };
        let mut points: Vec<Point> = Vec::new();
        for event in level.env.history() {
            let policies = level.env.policies(event.number, limits);
            points.extend(policies.into_iter().map(|policy| (event.number, policy)));
        }
        let seed =
            points.iter().fold(self.plan.seed, |seed, (event, _)| seed.rotate_left(5) ^ event);
        shuffle(&mut points, seed);
        let mut done = 0;
        for point in points {
            if done >= quota || self.stop.load(Ordering::Relaxed) {
                break;
            }
            done += self.visit(level, point);
        }
        done
    }

    /// Verifies one crash, and crashes in its recovery. Returns the number of new states: none if
    /// an equal state was verified before.
    fn visit(&self, level: &Level<'_>, point: Point) -> usize {
        let (image, trace, bounds) =
            crash(level.env, level.trace, level.bounds, level.outcome, point);
        let hash = image.image_hash() ^ trace.hash(bounds).rotate_left(1);
        let shard = usize::try_from(hash).unwrap() % SHARDS;
        if !self.seen[shard].lock().unwrap().insert(hash) {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return 0;
        }
        let mut case = level.case.clone();
        case.points.push(point);
        let goes_deeper = case.points.len() < DEPTH_MAX && (hash >> 32) % NEST_ONE_IN == 0;
        let result = if goes_deeper {
            observe(&image, &trace, bounds, &AFTERMATH)
        } else {
            guarded(&image, &trace, bounds, &AFTERMATH)
        };
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(what) => {
                self.fail(case, what);
                return 1;
            }
        };
        self.nested.fetch_add(u64::from(case.points.len() > 1), Ordering::Relaxed);
        if self.states.fetch_add(1, Ordering::Relaxed) + 1 >= self.plan.states {
            self.stop.store(true, Ordering::Relaxed);
        }
        if goes_deeper {
            let (env, trace, outcome) = (&image, &trace, &outcome);
            let deeper = Level { env, trace, bounds, outcome, case: &case };
            return 1 + self.descend(&deeper, NESTED_IMAGES);
        }
        1
    }

    fn fail(&self, case: Case, what: String) {
        let mut failures = self.failures.lock().unwrap();
        failures.push(Failure { case, what });
        if failures.len() >= self.plan.failures {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}
