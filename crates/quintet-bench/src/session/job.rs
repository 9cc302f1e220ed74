//! The description of a session.
//!
//! A session opens the store, loads the records once, and runs its steps on them one after the
//! other. Each step gives one result. Loading is a step if it is what the session measures. Steps
//! share a load because loading ten million records takes longer than any workload on them, and
//! because YCSB prescribes it. A step starts from the state that the previous step left: new
//! versions, more records, background work. This holds for every store.
//!
//! A job reaches its child process as one line of JSON, so only the parent makes a plan.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    data::{KeyOrder, RecordShape},
    driver::Task,
    failure::{Failure, Outcome},
    numbers::{to_f64, to_u64, to_usize, truncate},
    result::WorkloadInfo,
    store::{Durability, MemoryMode, StoreOptions},
    workload::{Body, OperationKind, RunSize, Workload, WorkloadSpec},
};

/// Bytes that are copied in about the time of an operation, and of the start and end of a process
/// with its store.
const OPERATION_BYTES: u64 = 500;
const PROCESS_BYTES: u64 = 500 << 20;
/// Minimum capacity in bytes of stores that cannot grow.
const BYTES_WRITTEN_MIN: u64 = 64 << 20;
/// Maximum number of rounds of a workload that writes, if it repeats to reach its minimum
/// duration. Stores that never reuse memory get the capacity for this many rounds.
pub const WRITING_ROUNDS_MAX: u64 = 32;
/// Maximum number of records of a job. A larger number is a typing error; the check fails before
/// the harness allocates one word for each record.
const RECORDS_MAX: f64 = 1e11;

/// One workload of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Point of a preset; `None` if the workload's name identifies the step.
    pub point: Option<String>,
    /// Workload.
    pub spec: WorkloadSpec,
    /// Operations of all threads together.
    pub operations: u64,
}

impl Step {
    /// Returns the name of the step: its point, or the name of its workload.
    pub fn name(&self) -> &str {
        self.point.as_deref().unwrap_or_else(|| self.spec.name())
    }
}

/// One session of one store. See the module head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the switches are independent")]
pub struct Job {
    /// Name of the store.
    pub store: String,
    /// Options of the store, by name.
    pub settings: Vec<(String, String)>,
    /// Whether the store keeps files.
    pub is_persistent: bool,
    /// Preset that requested the session.
    pub preset: Option<String>,
    /// Workloads in the order in which they run. All use the same key order.
    pub steps: Vec<Step>,
    /// Records loaded before the first step.
    pub records: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes of each key.
    pub key_bytes: usize,
    /// Bytes of values: one size, or several in equal parts.
    pub value_bytes: Vec<usize>,
    /// Whether all bytes of keys are random.
    #[serde(default)]
    pub random_keys: bool,
    /// Percentage of each value that repeats earlier bytes of the same value.
    pub value_repeated_percent: u32,
    /// Durability of a returned write.
    pub durability: Durability,
    /// Memory of the run; the store's own default if `None`.
    pub memory: Option<MemoryMode>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Records in one atomic write while loading, unless the session measures loading.
    pub load_batch: u64,
    /// Mean number of operations for each operation that is timed.
    pub timed_one_in: u32,
    /// Operations per second of all threads; `None` is as fast as possible.
    pub rate: Option<f64>,
    /// Minimum duration of a workload in seconds. The child repeats shorter workloads with other
    /// seeds, because one interruption dominates a measurement of a few milliseconds.
    pub seconds_min: f64,
    /// Longest wait in seconds for background work to end after loading; 0 does not wait.
    pub settle_seconds: u64,
    /// Pause in seconds after each step, before bytes written and files are counted.
    pub rest_seconds: u64,
    /// Whether the child checks every read, and every record at the end.
    pub verify: bool,
    /// Whether the child closes and reopens the store between loading and the steps.
    pub reopens: bool,
    /// Whether the parent kills the store after its one step, reopens it, and checks the records.
    pub recovers: bool,
}

impl Job {
    /// Returns the name of the job in messages.
    pub fn name(&self) -> String {
        let steps: Vec<_> = self.steps.iter().map(Step::name).collect();
        format!("{}, {}", self.store, steps.join(" "))
    }

    /// Fails if the job cannot run.
    pub fn check(&self) -> Outcome {
        for step in &self.steps {
            let workload = step.spec.workload()?;
            workload.check(self.records)?;
            let operations = workload.operations(step.operations, self.records);
            let records = workload.records_max(operations, self.records);
            if workload.counts_versions() {
                self.check_versions(&workload)?;
            }
            if to_f64(records) > RECORDS_MAX {
                let what = format!("{}: {records} records are too many", self.name());
                return Err(Failure::Usage(what));
            }
        }
        if (self.recovers || self.verify) && self.steps.len() != 1 {
            return Err(Failure::Usage("recovery is of one workload at a time".to_owned()));
        }
        Ok(())
    }

    /// Fails if a workload that counts versions cannot run.
    fn check_versions(&self, workload: &Workload) -> Outcome {
        let name = &workload.name;
        if self.recovers {
            let what = format!("{name}: the check after a kill does not know what committed last");
            return Err(Failure::Usage(what));
        }
        if !self.shape()?.is_versioned() {
            let what = format!("{name}: values need 24 bytes, to hold a version");
            return Err(Failure::Usage(what));
        }
        Ok(())
    }

    /// Returns whether a step measures loading.
    pub fn measures_load(&self) -> bool {
        self.steps
            .iter()
            .any(|step| step.spec.workload().is_ok_and(|workload| workload.body == Body::Load))
    }

    /// Returns the shape of keys and values. The first step determines the key order.
    pub fn shape(&self) -> Outcome<RecordShape> {
        let order = match self.steps.first() {
            Some(step) => step.spec.workload()?.order,
            None => KeyOrder::Hashed,
        };
        let order =
            if self.random_keys && order == KeyOrder::Hashed { KeyOrder::Random } else { order };
        Ok(RecordShape {
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes.clone(),
            order,
            repeated_percent: self.value_repeated_percent,
        })
    }

    /// Returns the size of a step on `records` records.
    pub fn amount(&self, step: &Step, workload: &Workload, records: u64) -> RunSize {
        let operations = workload.operations(step.operations, records);
        RunSize { records, operations, threads: self.threads, seed: self.seed }
    }

    /// Returns the size of loading.
    pub fn load_amount(&self) -> RunSize {
        let (records, threads, seed) = (self.records, self.threads, self.seed);
        RunSize { records, operations: records, threads, seed }
    }

    /// Returns the task of the driver.
    pub fn task<'a>(
        &self,
        workload: &'a Workload,
        shape: &'a RecordShape,
        amount: RunSize,
    ) -> Task<'a> {
        let load_batch = if self.measures_load() { 1 } else { to_usize(self.load_batch) };
        Task {
            workload,
            shape,
            amount,
            timed_one_in: self.timed_one_in,
            rate: self.rate,
            verify: self.verify,
            load_batch,
        }
    }

    /// Returns the options of the store in `dir`.
    pub fn store_options(&self, dir: PathBuf) -> Outcome<StoreOptions> {
        let largest = to_u64(self.value_bytes.iter().copied().max().unwrap_or(0));
        let record = (to_u64(self.key_bytes) + largest).max(64);
        let (mut records_max, mut writes) = (self.records, self.records);
        for step in &self.steps {
            let workload = step.spec.workload()?;
            let operations = workload.operations(step.operations, self.records);
            let share = |kind| workload.share(kind);
            records_max += if share(OperationKind::Insert) > 0.0 { operations } else { 0 };
            let is_change = |kind: &&OperationKind| {
                kind.is_write() && **kind != OperationKind::Delete && share(**kind) > 0.0
            };
            let changes = OperationKind::ALL.iter().filter(is_change).count();
            if changes > 0 || workload.background_writer {
                let rounds = if self.seconds_min > 0.0 { WRITING_ROUNDS_MAX } else { 1 };
                writes += operations.saturating_mul(rounds);
            }
            if workload.has_transfers() {
                // The second table, and two records of each operation.
                writes += self.records + operations.saturating_mul(WRITING_ROUNDS_MAX);
            }
        }
        Ok(StoreOptions {
            dir,
            durability: self.durability,
            records_max,
            // Each round starts new threads, and a thread may allocate memory by the chunk.
            bytes_written_max: writes.saturating_mul(record).max(BYTES_WRITTEN_MIN),
            memory: self.memory,
            settings: self.settings.clone(),
        })
    }

    /// Returns the bytes of all keys and values that are loaded.
    pub fn data_bytes(&self) -> u64 {
        let sizes = to_u64(self.value_bytes.len()).max(1);
        let mean = self.value_bytes.iter().copied().map(to_u64).sum::<u64>() / sizes;
        self.records.saturating_mul(to_u64(self.key_bytes) + mean)
    }

    /// Returns the work of the job, for estimates of time: the bytes of all records that are
    /// loaded, read or written. An operation and a process take as long as some bytes.
    pub fn work_bytes(&self) -> u64 {
        let operations = |step: &Step| match step.spec.workload() {
            Ok(workload) => workload.operations(step.operations, self.records),
            Err(_) => 0,
        };
        let operations = self.steps.iter().map(operations).fold(self.records, u64::saturating_add);
        let record = self.data_bytes().checked_div(self.records).unwrap_or(0);
        operations.saturating_mul(record + OPERATION_BYTES).saturating_add(PROCESS_BYTES)
    }

    /// Returns the description of a step in results.
    pub fn workload_info(&self, step: &Step) -> Outcome<WorkloadInfo> {
        let workload = step.spec.workload()?;
        let load_batch = if self.measures_load() { 1 } else { self.load_batch };
        Ok(WorkloadInfo {
            suite: step.spec.suite_name().to_owned(),
            name: workload.name.clone(),
            about: workload.about.clone(),
            records: self.records,
            operations: workload.operations(step.operations, self.records),
            threads: self.threads,
            key_bytes: to_u64(self.key_bytes),
            random_keys: self.random_keys,
            value_bytes: self.value_bytes.iter().copied().map(to_u64).collect(),
            batch: to_u64(workload.batch),
            load_batch,
            is_settled: self.settle_seconds > 0,
            rate: self.rate,
            timed_one_in: self.timed_one_in,
            seconds_min: self.seconds_min,
            seed: self.seed,
        })
    }
}

/// Scales a count, to no less than `least` unless the count itself is smaller.
pub fn scaled(count: u64, scale: f64, least: u64) -> u64 {
    if count == 0 {
        return 0;
    }
    let result = truncate(to_f64(count) * scale);
    result.max(least.min(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_keeps_a_least_size() {
        assert_eq!(scaled(1_000_000, 0.01, 1000), 10_000);
        assert_eq!(scaled(1_000_000, 0.000_1, 1000), 1000);
        assert_eq!(scaled(500, 0.01, 1000), 500);
        assert_eq!(scaled(0, 0.5, 1000), 0);
    }
}
