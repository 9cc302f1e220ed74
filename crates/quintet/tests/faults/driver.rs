//! Plans the cases, runs each, and verifies the outcome.

use std::{
    collections::BTreeMap,
    fmt,
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    str::FromStr,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use quintet::{
    Error,
    testing::disk::{
        Env as _,
        sim::{Call, Effect, Fault, Policy, SimEnv, When},
    },
};

use crate::{
    oracle::{Bounds, Trace},
    random::mix,
    runner::{Runner, base, open, read, run},
    workload::{HAND_MADE, Op, Workload, random, short_sequences},
};

/// The steps of every database after the fault is lifted.
const AFTERMATH: [Op; 4] = [Op::Put, Op::Batch, Op::Overwrite, Op::SyncPut];
/// Calls that change the disk.
const CHANGING: [Call; 9] = [
    Call::Write,
    Call::Sync,
    Call::SetLen,
    Call::Allocate,
    Call::Create,
    Call::CreateDir,
    Call::Rename,
    Call::Remove,
    Call::SyncDir,
];
/// Calls whose failure leaves earlier changes in doubt.
const SYNCING: [Call; 3] = [Call::Sync, Call::SyncDir, Call::Rename];
/// Number of random and of short workloads beside the written ones.
const RANDOM_WORKLOADS: u64 = 6;
const SHORT_ONE_IN: usize = 97;
const CRASHES_OF_A_RUN: usize = 8;
const SHOWN_MAX: usize = 6;

/// Which loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// Faults from the first opening to the last step.
    Run,
    /// Faults in the recovery from a crash.
    Recovery,
}

/// The calls that fail, and their errors.
#[derive(Clone, Debug)]
struct Plan {
    calls: Vec<Call>,
    when: When,
    effect: Effect,
}

impl Plan {
    /// Whether it may stop all writes until the database is reopened.
    fn may_be_final(&self) -> bool {
        self.calls.iter().any(|call| SYNCING.contains(call))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = match self.calls.as_slice() {
            [call] => format!("{call:?}"),
            calls => format!("{} kinds", calls.len()),
        };
        write!(f, "{calls}.{:?}.{:?}", self.when, self.effect)
    }
}

/// The disk before the fault, and the states that may be found on it.
struct Ground {
    name: String,
    env: SimEnv,
    trace: Trace,
    bounds: Bounds,
    ops: Vec<Op>,
}

fn setting<T: FromStr<Err: Debug>>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Returns the errors of a kind of call. An interrupted call is repeated without limit, so it
/// fails once only.
fn effects(call: Call) -> &'static [Effect] {
    match call {
        Call::Read => &[Effect::Io, Effect::Short, Effect::Interrupted, Effect::TryAgain],
        Call::Write => &[
            Effect::Io,
            Effect::NoSpace,
            Effect::Quota,
            Effect::Short,
            Effect::Interrupted,
            Effect::TryAgain,
        ],
        Call::Sync => &[Effect::Io, Effect::NoSpace, Effect::Interrupted],
        Call::SetLen | Call::Allocate | Call::Punch | Call::Rename | Call::Remove => {
            &[Effect::Io, Effect::NoSpace]
        }
        Call::Open | Call::OpenDir => &[Effect::Io, Effect::TooManyFiles],
        Call::Create | Call::CreateDir => &[Effect::Io, Effect::NoSpace, Effect::TooManyFiles],
        Call::Lock => &[Effect::Io, Effect::TryAgain],
        Call::Map | Call::List | Call::SyncDir | Call::Queue => &[Effect::Io],
    }
}

/// Returns every fault of a run with these numbers of calls of each kind.
fn plans(counts: &[(Call, u64)]) -> Vec<Plan> {
    let mut found = Vec::new();
    for (call, count) in counts {
        for number in 1..=*count {
            for effect in effects(*call) {
                let calls = vec![*call];
                let when = When::Nth(number);
                found.push(Plan { calls: calls.clone(), when, effect: *effect });
                if *effect != Effect::Interrupted {
                    let when = When::From(number);
                    found.push(Plan { calls, when, effect: *effect });
                }
            }
        }
    }
    // All calls fail; the disk is full.
    for (kinds, effect) in
        [(Call::ALL, Effect::Io), (&CHANGING, Effect::Io), (&CHANGING, Effect::NoSpace)]
    {
        let count: u64 = counts.iter().filter(|(call, _)| kinds.contains(call)).map(|c| c.1).sum();
        let plan = |number| Plan { calls: kinds.to_vec(), when: When::From(number), effect };
        found.extend((1..=count).map(plan));
    }
    found
}

fn workloads(seed: u64) -> Vec<Workload> {
    let hand_made = HAND_MADE.iter().map(|text| text.parse().unwrap());
    let skip = usize::try_from(mix(seed) % 97).unwrap();
    let short = short_sequences().into_iter().skip(skip).step_by(SHORT_ONE_IN);
    let random = (0..RANDOM_WORKLOADS).map(|index| random(seed ^ index));
    let all = hand_made.chain(short).chain(random).enumerate();
    all.map(|(index, workload)| workload.placed(index)).collect()
}

/// The disk and the trace at the start of a workload.
fn start(seed: u64, workload: &Workload) -> Ground {
    let env = workload.disk(seed);
    let (env, trace) = if workload.from_nothing {
        (env, Trace::default())
    } else {
        let trace = base(&env).unwrap();
        (env.crash(Policy::AllKept), trace)
    };
    let bounds = Bounds::all(&trace);
    Ground { name: workload.to_string(), env, trace, bounds, ops: workload.ops.clone() }
}

/// Returns some crashes of a run without faults.
fn crashes(seed: u64, workload: &Workload) -> Vec<Ground> {
    let ground = start(seed, workload);
    ground.env.record_history();
    let outcome = run(&ground.env, &ground.trace, ground.bounds, &ground.ops).unwrap();
    let history = ground.env.history();
    let served: Vec<u64> = history
        .iter()
        .map(|event| event.number)
        .filter(|number| *number >= outcome.opened)
        .collect();
    let mut found = Vec::new();
    for index in 0..CRASHES_OF_A_RUN {
        let place = mix(seed ^ outcome.opened).wrapping_add(u64::try_from(index).unwrap());
        let chosen = usize::try_from(mix(place) >> 33).unwrap() % served.len();
        let event = served[chosen];
        let policy = match index % 4 {
            0 | 1 => Policy::Killed,
            2 => Policy::AllKept,
            _ => Policy::Random { seed: place },
        };
        found.push(Ground {
            name: format!("{workload} crashed {policy} after {event}"),
            env: ground.env.image_at(event, policy),
            trace: outcome.trace.clone(),
            bounds: outcome.trace.bounds(event, policy),
            ops: Vec::new(),
        });
    }
    found
}

/// Returns a copy of the ground's disk, under the same boot of the machine.
fn copy(ground: &Ground) -> SimEnv {
    ground.env.kill()
}

fn tell(what: &str) -> impl FnOnce(Error) -> String {
    let what = what.to_owned();
    move |error| format!("{what}: {error}")
}

/// Errors that a failing disk may cause.
fn judge(plan: &Plan, doing: &str, error: &Error) -> Result<(), String> {
    let fits = match error {
        Error::Io { .. } => true,
        Error::DiskFull { .. } => matches!(plan.effect, Effect::NoSpace | Effect::Quota),
        Error::LogFailed { .. } => plan.may_be_final(),
        Error::Locked { .. } => plan.calls.contains(&Call::Lock),
        _ => false,
    };
    if fits { Ok(()) } else { Err(format!("{doing}: not an error for this fault: {error:?}")) }
}

/// One run with a fault.
struct Faulty<'a> {
    env: &'a SimEnv,
    plan: &'a Plan,
    runner: Runner<'a>,
    /// The bounds after a crash or a failed close.
    bounds: Bounds,
    /// Set after a failure that only reopening repairs.
    failed: bool,
    /// Set if the log failed: buffered commits may be lost.
    log_failed: bool,
}

impl Faulty<'_> {
    /// Opens the database. Tries a second time, then without the fault.
    fn open(&mut self) -> Result<(), String> {
        let mut left = 3;
        let db = loop {
            left -= 1;
            if left == 0 {
                self.env.clear_faults();
            }
            match open(self.env) {
                Ok(db) => break db,
                Err(error) if left == 0 => return Err(format!("open without the fault: {error}")),
                Err(error) => {
                    judge(self.plan, "open", &error)?;
                    // A failed sync loses the changes that a dead process left un-synced.
                    if self.plan.may_be_final() {
                        self.bounds = self.bounds.after(Policy::AllLost);
                    }
                }
            }
        };
        // The fault may hit the engine's reads, so the contents are read without it as well.
        let contents = match read(&db) {
            Ok(contents) => contents,
            Err(error) => {
                judge(self.plan, "read", &error)?;
                self.env.unharmed(|| read(&db)).map_err(tell("read without the fault"))?
            }
        };
        let found = self.runner.trace.find(&contents, self.bounds, self.env.unix_millis())?;
        self.runner.trace = self.runner.trace.cut(found, self.bounds);
        self.runner.db = Some(db);
        (self.failed, self.log_failed) = (false, false);
        Ok(())
    }

    fn note(&mut self, doing: &str, error: &Error) -> Result<(), String> {
        judge(self.plan, doing, error)?;
        let text = error.to_string();
        let log_failed = text.contains("sync log/");
        self.log_failed |= log_failed;
        let catalog_failed = text.contains("sync catalog") || text.contains("sync tables:");
        self.failed |= log_failed || catalog_failed || matches!(error, Error::LogFailed { .. });
        Ok(())
    }

    /// Returns the bounds after the death of the process now, or after power loss.
    fn bounds_after(&self, policy: Policy) -> (Trace, Bounds) {
        let mut trace = self.runner.trace.clone();
        trace.names.extend(self.runner.uncertain.clone());
        let policy = if self.log_failed { Policy::AllLost } else { policy };
        let bounds = trace.bounds(self.env.mark(), policy);
        (trace, bounds)
    }

    fn step(&mut self, index: usize, op: Op) -> Result<(), String> {
        if self.runner.db.is_none() {
            (self.runner.trace, self.bounds) = self.bounds_after(Policy::Killed);
            self.runner.uncertain = None;
            self.open()?;
        }
        let before = self.failed;
        match self.runner.step(index, op) {
            Ok(()) if before && matches!(op, Op::SyncPut | Op::SyncBatch | Op::Create) => {
                let made = !self.runner.trace.names_now().is_empty() || op == Op::Create;
                if made {
                    Err(format!("{op} was acknowledged after a failed sync"))
                } else {
                    Ok(())
                }
            }
            Ok(()) => Ok(()),
            Err(error) => {
                self.note(&op.to_string(), &error)?;
                if matches!(error, Error::TableFailed { .. }) {
                    // Reopening repairs it.
                    self.runner.db = None;
                }
                Ok(())
            }
        }
    }

    /// Lifts the fault and verifies that writes succeed again.
    fn resume(&mut self) -> Result<(), String> {
        self.env.clear_faults();
        if self.runner.db.is_none() {
            (self.runner.trace, self.bounds) = self.bounds_after(Policy::Killed);
            self.runner.uncertain = None;
            self.open()?;
        }
        self.runner.verify("with the fault lifted")?;
        for op in AFTERMATH {
            match self.runner.step(90, op) {
                Ok(()) => {}
                Err(error @ Error::LogFailed { .. }) if self.plan.may_be_final() => {
                    self.note("aftermath", &error)?;
                }
                // The first sync after a failed one that no caller saw.
                Err(error) => return Err(format!("{op} with the fault lifted: {error}")),
            }
        }
        self.runner.verify("after the aftermath")
    }

    /// Verifies that acknowledged commits survive process death, power loss and a close.
    fn end(mut self) -> Result<(), String> {
        for policy in [Policy::Killed, Policy::AllLost, Policy::AllKept] {
            let (trace, bounds) = self.bounds_after(policy);
            let image = match policy {
                Policy::Killed => self.env.kill(),
                policy => self.env.crash(policy),
            };
            let outcome = run(&image, &trace, bounds, &AFTERMATH);
            outcome.map_err(|what| format!("after {policy}: {what}"))?;
        }
        let (trace, bounds) = self.bounds_after(Policy::Killed);
        let (trace, bounds) = match self.runner.close() {
            Ok(()) if self.failed => return Err("closed well after a failed sync".to_owned()),
            Ok(()) => (self.runner.trace.clone(), Bounds::all(&self.runner.trace)),
            Err(error) if self.failed => {
                self.note("close", &error)?;
                (trace, bounds)
            }
            Err(error) => return Err(format!("close with the fault lifted: {error}")),
        };
        let outcome = run(self.env, &trace, bounds, &AFTERMATH);
        outcome.map(drop).map_err(|what| format!("after closing: {what}"))
    }
}

/// Runs one case; returns whether the fault occurred.
fn attempt(ground: &Ground, plan: &Plan) -> Result<bool, String> {
    let env = copy(ground);
    env.inject(Fault::new(&plan.calls, plan.when, plan.effect));
    let mut runner = Runner::new(&env, None, ground.trace.clone());
    runner.faulty = true;
    let bounds = ground.bounds;
    let mut faulty = Faulty { env: &env, plan, runner, bounds, failed: false, log_failed: false };
    faulty.open()?;
    for (index, op) in ground.ops.iter().enumerate() {
        faulty.step(index, *op)?;
    }
    let fired = env.faults_fired() > 0;
    faulty.resume()?;
    faulty.end()?;
    Ok(fired)
}

fn guarded(ground: &Ground, plan: &Plan) -> Result<bool, String> {
    catch_unwind(AssertUnwindSafe(|| attempt(ground, plan))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Returns the number of calls of each kind without a fault.
fn count(ground: &Ground) -> Vec<(Call, u64)> {
    let env = copy(ground);
    let mut runner = Runner::new(&env, None, ground.trace.clone());
    runner.db = Some(open(&env).unwrap());
    if !ground.ops.is_empty() {
        // A closed database holds exactly all steps.
        for (index, op) in ground.ops.iter().enumerate() {
            runner.step(index, *op).unwrap();
        }
    }
    Call::ALL.iter().map(|call| (*call, env.calls(&[*call]))).collect()
}

/// Runs the loop, or the one case named, and panics if a case failed.
pub fn run_loop(which: Loop, default_cases: usize) {
    let began = Instant::now();
    let seed = setting("QUINTET_FAULT_SEED", 1);
    let limit = setting("QUINTET_FAULT_CASES", default_cases);
    let wanted = std::env::var("QUINTET_FAULT_CASE").ok();
    let grounds: Vec<Ground> = workloads(seed)
        .iter()
        .flat_map(|workload| match which {
            Loop::Run => vec![start(seed, workload)],
            Loop::Recovery => crashes(seed, workload),
        })
        .collect();
    let mut cases: Vec<(&Ground, Plan)> = grounds
        .iter()
        .flat_map(|ground| plans(&count(ground)).into_iter().map(move |plan| (ground, plan)))
        .collect();
    let all = cases.len();
    let sites = grounds.iter().flat_map(count).map(|(_, count)| count).sum::<u64>();
    let name = |(ground, plan): &(&Ground, Plan)| format!("{seed}/{}/{plan}", ground.name);
    if let Some(wanted) = &wanted {
        cases.retain(|case| name(case) == *wanted);
        // Each case is one of a run or one of a recovery.
        let is_here = wanted.contains(" crashed ") == (which == Loop::Recovery);
        assert!(!is_here || !cases.is_empty(), "no case has this name with seed {seed}: {wanted}");
    } else if limit > 0 && limit < all {
        // In order, from a start that the seed chooses.
        let step = all / limit + 1;
        let skip = usize::try_from(mix(seed) % u64::try_from(step).unwrap()).unwrap();
        cases = cases.into_iter().skip(skip).step_by(step).collect();
    }
    let (next, fired) = (AtomicUsize::new(0), AtomicU64::new(0));
    let failures: Mutex<BTreeMap<String, (u64, String)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match guarded(case.0, &case.1) {
                        Ok(met) => drop(fired.fetch_add(u64::from(met), Ordering::Relaxed)),
                        Err(what) => {
                            // Failures that differ in numbers alone are shown once.
                            let kind = what.chars().filter(|letter| !letter.is_ascii_digit());
                            let mut failures = failures.lock().unwrap();
                            let shown = failures.entry(kind.take(70).collect()).or_default();
                            shown.0 += 1;
                            if shown.0 == 1 {
                                shown.1 = format!("{}'\n    {what}", name(case));
                            }
                        }
                    }
                }
            });
        }
    });
    println!(
        "{which:?} faults: {} workloads, {sites} sites, {all} cases (sites x effects, once \
         and from there on); {} run, seed {seed}, fault met in {}; {:.1} s",
        grounds.len(),
        cases.len(),
        fired.into_inner(),
        began.elapsed().as_secs_f64()
    );
    let failures = failures.into_inner().unwrap();
    for (count, first) in failures.values().take(SHOWN_MAX) {
        println!("{count} times, first QUINTET_FAULT_CASE='{first}");
    }
    assert!(failures.is_empty(), "{} kinds of failure", failures.len());
}
