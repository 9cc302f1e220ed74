//! From what is asked for to sessions: which stores run which steps, in which groups.
//!
//! Steps share a session, and so one load, as long as they agree on everything that is decided
//! before loading, and as long as the number of records stays the same: a step that inserts or
//! deletes ends its session.

use quintet_bench::{
    data::KeyOrder,
    failure::{Failure, Outcome},
    machine::Machine,
    numbers::{to_f64, truncate},
    store::{Durability, Stores as _},
    workload::{Body, Kind, Workload},
};

use crate::{
    job::{Job, Spec, Step, scaled},
    preset::{MemoryPlan, Point, Preset},
    result::Memory,
    stores::Set,
};

/// Records and operations are scaled down to this many at most.
const COUNT_MIN: u64 = 1000;
/// The budget of a store when everything fits: this many times the data, and at least this much.
const FITS_FACTOR: u64 = 3;
const FITS_BYTES_MIN: u64 = 1 << 30;
/// A smaller limit leaves no room for the process itself.
const LIMIT_BYTES_MIN: u64 = 64 << 20;
/// Records that a synced batch loads: one sync for each would take minutes.
const SYNCED_LOAD_BATCH: u64 = 1000;
/// One operation in so many is timed where operations are fast.
const TIMED_ONE_IN: u32 = quintet_bench::latency::STRIDE;

/// What is the same for all jobs of a plan, wherever its points come from.
#[derive(Clone, Debug)]
pub struct Common {
    /// The stores.
    pub stores: Vec<String>,
    /// Options of our engines, `name` or `engine.name`, and values.
    pub options: Vec<(String, String)>,
    /// What a returned write promises.
    pub durability: Durability,
    /// What memory the stores have.
    pub memory: MemoryPlan,
    /// What stores are told that they may use; else three times the data, or half of a limit.
    pub budget_bytes: Option<u64>,
    /// Seed of everything random.
    pub seed: u64,
    /// Records that one atomic write loads.
    pub load_batch: Option<u64>,
    /// One operation in so many is timed.
    pub timed_one_in: Option<u32>,
    /// Operations a second.
    pub rate: Option<f64>,
    /// Operations are run again until they have taken so many seconds.
    pub seconds_min: f64,
    /// Wait for rest after loading, at most so many seconds; 0: go on at once.
    pub settle_seconds: u64,
    /// Close and open again after loading.
    pub reopens: bool,
    /// Kill and open again.
    pub recovers: bool,
}

/// One step with everything that is decided before loading.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Name of the point, where there is a preset.
    pub point: Option<String>,
    /// The workload.
    pub spec: Spec,
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
    /// Options of our engines: engine, name, value.
    pub settings: Vec<(String, String, String)>,
}

impl Request {
    /// A preset's point at a scale.
    pub fn of(point: &Point, scale: f64) -> Self {
        let owned = |(engine, name, value): &(&str, &str, &str)| {
            ((*engine).to_owned(), (*name).to_owned(), (*value).to_owned())
        };
        Self {
            point: Some(point.name.to_owned()),
            spec: point.spec(),
            records: scaled(point.records, scale, COUNT_MIN),
            operations: scaled(point.operations, scale, COUNT_MIN),
            threads: point.threads,
            key_bytes: point.key_bytes,
            value_bytes: point.value_bytes.to_vec(),
            settings: point.settings.iter().map(owned).collect(),
        }
    }

    fn step(&self) -> Step {
        let (point, spec) = (self.point.clone(), self.spec.clone());
        Step { point, spec, operations: self.operations }
    }
}

/// The sessions of some requests, in groups, and a line for each that a store cannot run.
pub fn sessions(
    preset: Option<&Preset>,
    requests: &[Request],
    common: &Common,
) -> Outcome<(Vec<Vec<Job>>, Vec<String>)> {
    let mut groups = Vec::new();
    let mut notes = Vec::new();
    for session in split(requests, common.recovers)? {
        let mut group = Vec::new();
        for store in &common.stores {
            let job = job(preset, &session, store, common, &mut notes)?;
            group.extend(job);
        }
        if !group.is_empty() {
            groups.push(group);
        }
    }
    notes.dedup();
    Ok((groups, notes))
}

/// Requests that share a session, together.
fn split(requests: &[Request], alone: bool) -> Outcome<Vec<Vec<Request>>> {
    let mut sessions: Vec<Vec<Request>> = Vec::new();
    let mut last: Option<(&Request, Workload)> = None;
    for request in requests {
        let workload = request.spec.workload()?;
        let joins = last.as_ref().is_some_and(|(before, ran)| {
            !alone
                && workload.body != Body::Load
                && !changes_count(ran)
                && order(ran) == order(&workload)
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

/// Whether a workload adds or removes records.
pub fn changes_count(workload: &Workload) -> bool {
    workload.share(Kind::Insert) > 0.0 || workload.share(Kind::Delete) > 0.0
}

const fn order(workload: &Workload) -> KeyOrder {
    workload.order
}

/// One store's job of a session; none where no step is left for it.
fn job(
    preset: Option<&Preset>,
    session: &[Request],
    store: &str,
    common: &Common,
    notes: &mut Vec<String>,
) -> Outcome<Option<Job>> {
    let Some(first) = session.first() else { return Ok(None) };
    let set = Set { memory: Memory::Fits { budget_bytes: 0 } };
    set.check(store)?;
    let mut steps = Vec::new();
    for request in session {
        let workload = request.spec.workload()?;
        if workload.needs_order() && !set.is_ordered(store) {
            notes.push(format!("{store}: no key order, so no workload {}", workload.name));
        } else {
            steps.push(request.step());
        }
    }
    if steps.is_empty() || (common.recovers && !set.is_persistent(store)) {
        return Ok(None);
    }
    let is_synced = common.durability == Durability::Sync;
    let every = if is_synced || common.rate.is_some() { 1 } else { TIMED_ONE_IN };
    let mut job = Job {
        store: store.to_owned(),
        settings: settings(store, &first.settings, &common.options),
        preset: preset.map(|preset| preset.name.to_owned()),
        steps,
        records: first.records,
        threads: first.threads,
        key_bytes: first.key_bytes,
        value_bytes: first.value_bytes.clone(),
        durability: common.durability,
        memory: Memory::Fits { budget_bytes: 0 },
        seed: common.seed,
        load_batch: common.load_batch.unwrap_or(if is_synced { SYNCED_LOAD_BATCH } else { 1 }),
        timed_one_in: common.timed_one_in.unwrap_or(every),
        rate: common.rate,
        // Recovery compares with one drawing of the operations.
        seconds_min: if common.recovers { 0.0 } else { common.seconds_min },
        settle_seconds: common.settle_seconds,
        reopens: common.reopens && set.is_persistent(store),
        recovers: common.recovers,
    };
    job.memory = memory(common, job.data_bytes());
    job.check()?;
    Ok(Some(job))
}

/// The options of a store: the point's, then the command line's. Those without a name of a store
/// are for our engines.
fn settings(
    store: &str,
    point: &[(String, String, String)],
    options: &[(String, String)],
) -> Vec<(String, String)> {
    let is_ours = crate::stores::engine(store).is_some();
    let from_point = point
        .iter()
        .filter(|(engine, ..)| engine == store)
        .map(|(_, name, value)| (name.clone(), value.clone()));
    let from_line = options.iter().filter_map(|(name, value)| match name.split_once('.') {
        Some((engine, name)) => (engine == store).then(|| (name.to_owned(), value.clone())),
        None => is_ours.then(|| (name.clone(), value.clone())),
    });
    from_point.chain(from_line).collect()
}

fn memory(common: &Common, data_bytes: u64) -> Memory {
    match common.memory {
        MemoryPlan::Fits => {
            let budget_bytes = common.budget_bytes.unwrap_or_else(|| budget_that_fits(data_bytes));
            Memory::Fits { budget_bytes }
        }
        MemoryPlan::Share(share) => {
            let limit_bytes = truncate(to_f64(data_bytes) * share).max(LIMIT_BYTES_MIN);
            Memory::Limited { limit_bytes, budget_bytes: common.budget_bytes }
        }
        MemoryPlan::Limit(limit_bytes) => {
            Memory::Limited { limit_bytes, budget_bytes: common.budget_bytes }
        }
        MemoryPlan::Direct(cache_bytes) => Memory::Direct { cache_bytes },
        MemoryPlan::DirectShare(share) => {
            Memory::Direct { cache_bytes: truncate(to_f64(data_bytes) * share).max(1 << 20) }
        }
    }
}

/// A budget in which a store has room for data of this size.
pub fn budget_that_fits(data_bytes: u64) -> u64 {
    let budget = data_bytes.saturating_mul(FITS_FACTOR).max(FITS_BYTES_MIN);
    budget.min(machine_bytes() / 2)
}

fn machine_bytes() -> u64 {
    // Only the amount of memory is of interest: the probe of the disk finds nothing here.
    Machine::look(std::path::Path::new("/nonexistent")).memory_bytes.unwrap_or(4 << 30)
}

/// Reads `--memory`: `fits`, `limit:BYTES`, `share:FRACTION` of the data, `direct:BYTES` or
/// `direct:FRACTION` of the data as cache.
pub fn parse_memory(text: &str) -> Result<MemoryPlan, String> {
    let (mode, size) = text.split_once(':').unwrap_or((text, ""));
    match mode {
        "fits" if size.is_empty() => Ok(MemoryPlan::Fits),
        "limit" => {
            let bytes = bytes(size)?;
            if bytes < LIMIT_BYTES_MIN {
                return Err(format!("a limit is at least {LIMIT_BYTES_MIN} bytes"));
            }
            Ok(MemoryPlan::Limit(bytes))
        }
        "share" => {
            let share = size.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
            share.map(MemoryPlan::Share).ok_or_else(|| "a share is from 0 to 1".to_owned())
        }
        "direct" if size.is_empty() => Ok(MemoryPlan::Direct(32 << 20)),
        "direct" => match size.parse() {
            Ok(share) if size.contains('.') && share > 0.0 && share < 100.0 => {
                Ok(MemoryPlan::DirectShare(share))
            }
            _ => bytes(size).map(MemoryPlan::Direct),
        },
        _ => Err("not fits, limit:BYTES, share:FRACTION or direct[:BYTES|:FRACTION]".to_owned()),
    }
}

/// A size: a count, with `KiB`, `MiB` or `GiB` where wanted.
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    let count = quintet_bench::cli::count(digits)?;
    count.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

/// Refuses names of stores that are wrong or twice there.
pub fn check_stores(names: &[String]) -> Outcome {
    let set = Set { memory: Memory::Fits { budget_bytes: 0 } };
    for (index, name) in names.iter().enumerate() {
        if crate::stores::is_future_engine(name) {
            return Err(Failure::Usage(format!("this build has no engine {name} yet")));
        }
        set.check(name)?;
        if names.get(..index).is_some_and(|earlier| earlier.contains(name)) {
            return Err(Failure::Usage(format!("--store: {name} is there twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quintet_bench::workload::Suite;

    fn request(suite: Suite, name: &str) -> Request {
        Request {
            point: None,
            spec: Spec::Named { suite, name: name.to_owned() },
            records: 5000,
            operations: 5000,
            threads: 1,
            key_bytes: 23,
            value_bytes: vec![100],
            settings: vec![("naive".to_owned(), "snapshot_bytes".to_owned(), "65536".to_owned())],
        }
    }

    fn common(stores: &[&str]) -> Common {
        Common {
            stores: stores.iter().map(|&name| name.to_owned()).collect(),
            options: vec![("hashlog.x".to_owned(), "1".to_owned()), ("y".to_owned(), "2".into())],
            durability: Durability::Buffered,
            memory: MemoryPlan::Fits,
            budget_bytes: None,
            seed: 1,
            load_batch: None,
            timed_one_in: None,
            rate: None,
            seconds_min: 0.0,
            settle_seconds: 0,
            reopens: false,
            recovers: false,
        }
    }

    fn names(groups: &[Vec<Job>]) -> Vec<Vec<String>> {
        groups.iter().map(|group| group.iter().map(Job::name).collect()).collect()
    }

    #[test]
    fn steps_share_a_load_until_the_records_change() {
        let requests = ["load", "a", "c", "d", "e"].map(|name| request(Suite::Ycsb, name));
        let (groups, notes) =
            sessions(None, &requests, &common(&["naive", "lmdb", "null"])).unwrap();
        assert_eq!(
            names(&groups),
            [vec!["naive, load a c d", "lmdb, load a c d", "null, load a c d"], vec!["lmdb, e"],]
        );
        assert_eq!(notes.len(), 2, "{notes:?}");
        let mut different = requests.to_vec();
        different[2].value_bytes = vec![10];
        let (groups, _) = sessions(None, &different, &common(&["null"])).unwrap();
        assert_eq!(names(&groups), [["null, load a"], ["null, c"], ["null, d"]]);
        let requests = [request(Suite::DbBench, "fillseq"), request(Suite::DbBench, "fillrandom")];
        let (groups, _) = sessions(None, &requests, &common(&["null"])).unwrap();
        assert_eq!(groups.len(), 2, "keys in another order");
    }

    #[test]
    fn recovery_is_of_one_workload_and_of_stores_with_files() {
        let requests = ["load", "a"].map(|name| request(Suite::Ycsb, name));
        let mut common = common(&["naive", "floor"]);
        common.recovers = true;
        let (groups, _) = sessions(None, &requests, &common).unwrap();
        assert_eq!(names(&groups), [["naive, load"], ["naive, a"]]);
    }

    #[test]
    fn options_reach_the_engine_that_they_are_for() {
        let (groups, _) =
            sessions(None, &[request(Suite::Ycsb, "a")], &common(&["hashlog", "naive", "lmdb"]))
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
            check_stores(&names).map_err(|failure| failure.to_string())
        };
        assert!(check(&["naive", "floor", "lmdb"]).is_ok());
        assert!(check(&["naive", "naive"]).unwrap_err().contains("twice"));
        assert!(check(&["rockdb"]).unwrap_err().contains("there are"));
    }
}
