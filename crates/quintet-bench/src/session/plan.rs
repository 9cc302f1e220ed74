//! Makes sessions from requests: groups of jobs, each group the same session on several stores.
//!
//! Consecutive requests share a session, and so one load, if they agree on everything that loading
//! depends on, and if the number of records stays the same. A step that inserts or deletes ends its
//! session.

use crate::{
    args,
    failure::{Failure, Outcome},
    latency::STRIDE,
    machine::Machine,
    numbers::{to_f64, truncate},
    session::job::{Job, Step},
    store::{Durability, Family, MemoryMode, Stores},
    workload::{Body, Workload, WorkloadSpec},
};

/// Memory budget of a store if all data fits: this multiple of the data size.
const FITTING_FACTOR: u64 = 3;
/// Minimum of that budget.
const FITTING_BYTES_MIN: u64 = 1 << 30;
/// Minimum memory limit: a smaller one leaves no room for the process itself.
const LIMIT_BYTES_MIN: u64 = 64 << 20;
/// Minimum size of a cache that is a share of the data.
const CACHE_BYTES_MIN: u64 = 1 << 20;
/// Size of the cache for direct I/O if the command line gives none: that of the `CompassDB` paper.
const CACHE_BYTES: u64 = 32 << 20;
/// Records in one atomic write while loading with `sync`. One sync for each record would take
/// minutes.
const SYNCED_LOAD_BATCH: u64 = 1000;
/// Memory of the machine if the kernel does not report it.
const MACHINE_BYTES: u64 = 4 << 30;

/// Memory of the stores of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryPlan {
    /// All data fits.
    Fits,
    /// A control group limits memory to this share of the data size.
    Share(f64),
    /// A control group limits memory to this many bytes.
    Limit(u64),
    /// Direct I/O with a cache of this many bytes.
    Direct(u64),
    /// Direct I/O with a cache of this share of the data size.
    DirectShare(f64),
}

/// A store and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreChoice {
    /// Name.
    pub name: String,
    /// Options by name. They precede those of the request and of the command line.
    pub settings: Vec<(String, String)>,
}

impl StoreChoice {
    /// Returns the store of this name without options.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), settings: Vec::new() }
    }
}

/// Settings that all jobs of a plan share.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the switches are independent")]
pub struct SessionOptions {
    /// Stores.
    pub stores: Vec<StoreChoice>,
    /// Options of Quintet's engines: `name` or `engine.name`, and the value.
    pub options: Vec<(String, String)>,
    /// Durability of a returned write.
    pub durability: Durability,
    /// Memory of the stores; their own default if `None`.
    pub memory: Option<MemoryPlan>,
    /// Memory budget of each store; the default is three times the data, or half of a limit.
    pub budget_bytes: Option<u64>,
    /// Whether all bytes of keys are random.
    pub random_keys: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// Records in one atomic write while loading.
    pub load_batch: Option<u64>,
    /// Mean number of operations for each operation that is timed.
    pub timed_one_in: Option<u32>,
    /// Operations per second.
    pub rate: Option<f64>,
    /// Minimum duration of a workload in seconds.
    pub seconds_min: f64,
    /// Longest wait in seconds for background work to end after loading; 0 does not wait.
    pub settle_seconds: u64,
    /// Pause in seconds after each step.
    pub rest_seconds: u64,
    /// Whether to check every read.
    pub verify: bool,
    /// Whether to close and reopen stores after loading.
    pub reopens: bool,
    /// Whether to kill and reopen stores.
    pub recovers: bool,
    /// Whether to leave out stores without files if `recovers` is set.
    pub skips_volatile: bool,
    /// Whether consecutive requests may share a load.
    pub shares_load: bool,
}

impl Default for SessionOptions {
    /// No stores; buffered writes, all in memory, as fast as possible, loads shared.
    fn default() -> Self {
        Self {
            stores: Vec::new(),
            options: Vec::new(),
            durability: Durability::Buffered,
            memory: Some(MemoryPlan::Fits),
            budget_bytes: None,
            random_keys: false,
            seed: 1,
            load_batch: None,
            timed_one_in: None,
            rate: None,
            seconds_min: 0.0,
            settle_seconds: 0,
            rest_seconds: 0,
            verify: false,
            reopens: false,
            recovers: false,
            skips_volatile: true,
            shares_load: true,
        }
    }
}

/// One step, with everything that loading depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRequest {
    /// Point of a preset.
    pub point: Option<String>,
    /// Workload.
    pub spec: WorkloadSpec,
    /// Records.
    pub records: u64,
    /// Operations.
    pub operations: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of values.
    pub value_bytes: Vec<usize>,
    /// Percentage of each value that repeats earlier bytes of the same value.
    pub value_repeated_percent: u32,
    /// Options of Quintet's engines: engine, name, value.
    pub settings: Vec<(String, String, String)>,
}

impl StepRequest {
    fn step(&self) -> Step {
        let (point, spec) = (self.point.clone(), self.spec.clone());
        Step { point, spec, operations: self.operations }
    }
}

/// Sessions in groups, with a note for each step that a store cannot run.
#[derive(Clone, Debug, Default)]
pub struct SessionPlan {
    /// Groups of jobs: the same session on different stores.
    pub groups: Vec<Vec<Job>>,
    /// Notes for the user: what is left out, and why.
    pub notes: Vec<String>,
}

/// Plans the sessions of `requests`. `preset` is the name of the preset that they belong to.
pub fn sessions(
    stores: &dyn Stores,
    preset: Option<&str>,
    requests: &[StepRequest],
    options: &SessionOptions,
) -> Outcome<SessionPlan> {
    let mut plan = SessionPlan::default();
    for session in split(requests, options.recovers || !options.shares_load)? {
        let mut group = Vec::new();
        for store in &options.stores {
            group.extend(job(stores, preset, &session, store, options, &mut plan.notes)?);
        }
        if !group.is_empty() {
            plan.groups.push(group);
        }
    }
    plan.notes.dedup();
    Ok(plan)
}

/// Splits requests into sessions: one for each request if `alone`, else as few as possible.
fn split(requests: &[StepRequest], alone: bool) -> Outcome<Vec<Vec<StepRequest>>> {
    let mut sessions: Vec<Vec<StepRequest>> = Vec::new();
    let mut last: Option<(&StepRequest, Workload)> = None;
    for request in requests {
        let workload = request.spec.workload()?;
        let joins = last.as_ref().is_some_and(|(before, ran)| {
            !alone
                && workload.body != Body::Load
                && !ran.changes_count()
                && ran.order == workload.order
                && before.records == request.records
                && before.threads == request.threads
                && before.key_bytes == request.key_bytes
                && before.value_bytes == request.value_bytes
                && before.settings == request.settings
        });
        match sessions.last_mut() {
            Some(session) if joins => session.push(request.clone()),
            _ => sessions.push(vec![request.clone()]),
        }
        last = Some((request, workload));
    }
    Ok(sessions)
}

/// Returns the job of one store in a session; `None` if the store can run no step of it.
fn job(
    stores: &dyn Stores,
    preset: Option<&str>,
    session: &[StepRequest],
    store: &StoreChoice,
    options: &SessionOptions,
    notes: &mut Vec<String>,
) -> Outcome<Option<Job>> {
    let Some(first) = session.first() else { return Ok(None) };
    let name = store.name.as_str();
    stores.check(name)?;
    let mut steps = Vec::new();
    for request in session {
        let workload = request.spec.workload()?;
        if workload.needs_order() && !stores.is_ordered(name) {
            notes.push(format!("{name}: no key order, so no workload {}", workload.name));
        } else if workload.sorted && request.threads > 1 {
            let workload = workload.name;
            notes.push(format!("{name}: one thread loads in order, so no workload {workload}"));
        } else if let Some(feature) = workload.feature().filter(|f| !stores.has_feature(name, *f)) {
            let (feature, workload) = (feature.title(), workload.name);
            notes.push(format!("{name}: no {feature}, so no workload {workload}"));
        } else {
            steps.push(request.step());
        }
    }
    let is_persistent = stores.is_persistent(name);
    if steps.is_empty() || (options.recovers && options.skips_volatile && !is_persistent) {
        return Ok(None);
    }
    let is_synced = options.durability == Durability::Sync;
    let timed_one_in = if is_synced || options.rate.is_some() { 1 } else { STRIDE };
    let load_batch = if is_synced { SYNCED_LOAD_BATCH } else { 1 };
    let mut job = Job {
        store: name.to_owned(),
        settings: settings(stores, store, &first.settings, &options.options),
        is_persistent,
        preset: preset.map(str::to_owned),
        steps,
        records: first.records,
        threads: first.threads,
        key_bytes: first.key_bytes,
        value_bytes: first.value_bytes.clone(),
        random_keys: options.random_keys,
        value_repeated_percent: first.value_repeated_percent,
        durability: options.durability,
        memory: None,
        seed: options.seed,
        load_batch: options.load_batch.unwrap_or(load_batch),
        timed_one_in: options.timed_one_in.unwrap_or(timed_one_in),
        rate: options.rate,
        // The check after recovery knows the operations of one round only.
        seconds_min: if options.recovers { 0.0 } else { options.seconds_min },
        settle_seconds: options.settle_seconds,
        rest_seconds: options.rest_seconds,
        verify: options.verify,
        reopens: options.reopens && is_persistent,
        recovers: options.recovers && is_persistent,
    };
    job.memory = options.memory.map(|plan| memory(plan, options.budget_bytes, job.data_bytes()));
    job.check()?;
    Ok(Some(job))
}

/// Returns the options of a store: its own, then those of the request, then those of the command
/// line. An option of an engine applies to its variants too; an option without the name of a store
/// applies to Quintet's engines.
fn settings(
    stores: &dyn Stores,
    store: &StoreChoice,
    requested: &[(String, String, String)],
    options: &[(String, String)],
) -> Vec<(String, String)> {
    let is_ours = stores.family(&store.name) == Family::Ours;
    let means = |engine: &str| engine == store.name || engine == stores.engine(&store.name);
    let requested = requested
        .iter()
        .filter(|(engine, ..)| means(engine))
        .map(|(_, name, value)| (name.clone(), value.clone()));
    let options = options.iter().filter_map(|(name, value)| match name.split_once('.') {
        Some((engine, name)) => means(engine).then(|| (name.to_owned(), value.clone())),
        None => is_ours.then(|| (name.clone(), value.clone())),
    });
    store.settings.iter().cloned().chain(requested).chain(options).collect()
}

fn memory(plan: MemoryPlan, budget_bytes: Option<u64>, data_bytes: u64) -> MemoryMode {
    let share_of_data = |share: f64| truncate(to_f64(data_bytes) * share);
    match plan {
        MemoryPlan::Fits => {
            let budget_bytes = budget_bytes.unwrap_or_else(|| fitting_budget(data_bytes));
            MemoryMode::Fits { budget_bytes }
        }
        MemoryPlan::Share(share) => {
            let limit_bytes = share_of_data(share).max(LIMIT_BYTES_MIN);
            MemoryMode::Limited { limit_bytes, budget_bytes }
        }
        MemoryPlan::Limit(limit_bytes) => MemoryMode::Limited { limit_bytes, budget_bytes },
        MemoryPlan::Direct(cache_bytes) => MemoryMode::Direct { cache_bytes },
        MemoryPlan::DirectShare(share) => {
            MemoryMode::Direct { cache_bytes: share_of_data(share).max(CACHE_BYTES_MIN) }
        }
    }
}

/// Returns a memory budget with room for all of the data: three times the data size, at least
/// 1 GiB, at most half of the machine's memory.
pub fn fitting_budget(data_bytes: u64) -> u64 {
    let budget = data_bytes.saturating_mul(FITTING_FACTOR).max(FITTING_BYTES_MIN);
    // Only the amount of memory matters here: the directory, which the disk is probed in, does not
    // exist.
    let machine = Machine::look(std::path::Path::new("/nonexistent"));
    budget.min(machine.memory_bytes.unwrap_or(MACHINE_BYTES) / 2)
}

/// Parses `--memory`: `fits`, `limit:BYTES`, `share:FRACTION` of the data, or `direct`,
/// `direct:BYTES` or `direct:FRACTION` of the data as cache.
pub fn parse_memory(text: &str) -> Result<MemoryPlan, String> {
    let (mode, size) = text.split_once(':').unwrap_or((text, ""));
    match mode {
        "fits" if size.is_empty() => Ok(MemoryPlan::Fits),
        "limit" => {
            let bytes = args::bytes(size)?;
            if bytes < LIMIT_BYTES_MIN {
                return Err(format!("the minimum limit is {LIMIT_BYTES_MIN} bytes"));
            }
            Ok(MemoryPlan::Limit(bytes))
        }
        "share" => {
            let share = size.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
            share.map(MemoryPlan::Share).ok_or_else(|| "a share is from 0 to 1".to_owned())
        }
        "direct" if size.is_empty() => Ok(MemoryPlan::Direct(CACHE_BYTES)),
        "direct" => match size.parse() {
            Ok(share) if size.contains('.') && share > 0.0 && share < 100.0 => {
                Ok(MemoryPlan::DirectShare(share))
            }
            _ => args::bytes(size).map(MemoryPlan::Direct),
        },
        _ => Err("not fits, limit:BYTES, share:FRACTION or direct[:BYTES|:FRACTION]".to_owned()),
    }
}

/// Fails if a name of a store is unknown or occurs twice. `option` is the command-line option that
/// gave the names.
pub fn check_stores(stores: &dyn Stores, option: &str, names: &[String]) -> Outcome {
    for (index, name) in names.iter().enumerate() {
        stores.check(name)?;
        if names.get(..index).is_some_and(|earlier| earlier.contains(name)) {
            return Err(Failure::Usage(format!("{option}: {name} occurs twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{builtin::BuiltinStores, workload::Suite};

    fn request(suite: Suite, name: &str) -> StepRequest {
        StepRequest {
            point: None,
            spec: WorkloadSpec::Named { suite, name: name.to_owned() },
            records: 5000,
            operations: 5000,
            threads: 1,
            key_bytes: 23,
            value_bytes: vec![100],
            value_repeated_percent: 0,
            settings: vec![("naive".to_owned(), "snapshot_bytes".to_owned(), "65536".to_owned())],
        }
    }

    fn options(stores: &[&str]) -> SessionOptions {
        SessionOptions {
            stores: stores.iter().map(|name| StoreChoice::named(name)).collect(),
            options: vec![("hashlog.x".to_owned(), "1".to_owned()), ("y".to_owned(), "2".into())],
            ..SessionOptions::default()
        }
    }

    fn names(groups: &[Vec<Job>]) -> Vec<Vec<String>> {
        groups.iter().map(|group| group.iter().map(Job::name).collect()).collect()
    }

    #[test]
    fn steps_share_a_load_until_the_records_change() {
        let requests = ["load", "a", "c", "d", "e"].map(|name| request(Suite::Ycsb, name));
        let SessionPlan { groups, notes } =
            sessions(&BuiltinStores, None, &requests, &options(&["naive", "slm", "null"])).unwrap();
        assert_eq!(
            names(&groups),
            [vec!["naive, load a c d", "slm, load a c d", "null, load a c d"], vec!["slm, e"],]
        );
        assert_eq!(notes.len(), 2, "{notes:?}");
        let mut different = requests.to_vec();
        different[2].value_bytes = vec![10];
        let SessionPlan { groups, .. } =
            sessions(&BuiltinStores, None, &different, &options(&["null"])).unwrap();
        assert_eq!(names(&groups), [["null, load a"], ["null, c"], ["null, d"]]);
        let requests = [request(Suite::DbBench, "fillseq"), request(Suite::DbBench, "fillrandom")];
        let SessionPlan { groups, .. } =
            sessions(&BuiltinStores, None, &requests, &options(&["null"])).unwrap();
        assert_eq!(groups.len(), 2, "keys in another order");
    }

    #[test]
    fn recovery_is_of_one_workload_and_of_stores_with_files() {
        let requests = ["load", "a"].map(|name| request(Suite::Ycsb, name));
        let mut options = options(&["naive", "floor"]);
        options.recovers = true;
        let SessionPlan { groups, .. } =
            sessions(&BuiltinStores, None, &requests, &options).unwrap();
        assert_eq!(names(&groups), [["naive, load"], ["naive, a"]]);
    }

    #[test]
    fn options_reach_the_engine_that_they_are_for() {
        let SessionPlan { groups, .. } = sessions(
            &BuiltinStores,
            None,
            &[request(Suite::Ycsb, "a")],
            &options(&["hashlog", "naive", "floor"]),
        )
        .unwrap();
        let of = |index: usize| {
            let job: &Job = &groups[0][index];
            job.settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(of(0), ["x=1", "y=2"]);
        assert_eq!(of(1), ["snapshot_bytes=65536", "y=2"]);
        assert!(of(2).is_empty());
    }

    #[test]
    fn memory_is_read_with_its_units() {
        assert_eq!(parse_memory("fits"), Ok(MemoryPlan::Fits));
        assert_eq!(parse_memory("limit:1GiB"), Ok(MemoryPlan::Limit(1 << 30)));
        assert_eq!(parse_memory("direct"), Ok(MemoryPlan::Direct(32 << 20)));
        assert_eq!(parse_memory("direct:64MiB"), Ok(MemoryPlan::Direct(64 << 20)));
        assert_eq!(parse_memory("share:0.125"), Ok(MemoryPlan::Share(0.125)));
        assert_eq!(parse_memory("direct:1.25"), Ok(MemoryPlan::DirectShare(1.25)));
        for wrong in ["", "fits:1", "limit", "limit:1", "share:2", "cgroup:1GiB", "direct:x"] {
            assert!(parse_memory(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stores_are_checked_by_name() {
        let check = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            check_stores(&BuiltinStores, "--store", &names).map_err(|failure| failure.to_string())
        };
        assert!(check(&["naive", "floor", "slm"]).is_ok());
        assert!(check(&["naive", "naive"]).unwrap_err().contains("twice"));
        assert!(check(&["rockdb"]).unwrap_err().contains("there are"));
    }
}
