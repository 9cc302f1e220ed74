//! What is run: a [`Job`] is one session of one store in one process.
//!
//! A session opens the store, loads the records once, and runs its steps one after the other on
//! them, each of which gives one line of results; loading is a step of its own where it is what is
//! measured. Why sessions: loading ten million records takes longer than any workload on them, and
//! YCSB prescribes it so. What a step leaves behind (new versions, more records, work for
//! background threads) the next one finds, in every store alike.
//!
//! A job is sent to its child process as one line of JSON, so a plan need not be made twice.

use std::path::PathBuf;

use quintet_bench::{
    data::{KeyOrder, Shape},
    driver::Task,
    failure::{Failure, Outcome},
    numbers::{to_f64, to_u64, to_usize, truncate},
    store::{Durability, StoreOptions},
    workload::{self, Amount, Body, Choice, Kind, Suite, Workload, logkv},
};
use serde::{Deserialize, Serialize};

use crate::result::{Memory, WorkloadInfo};

/// What stores that cannot grow are made for at least.
const BYTES_WRITTEN_MIN: u64 = 64 << 20;
/// Rounds of a workload that writes at most, where it is run again to take its time: stores that
/// cannot reuse memory are made as large as this needs.
pub const WRITING_ROUNDS_MAX: u64 = 32;

/// Shares of the kinds of operations of a workload that has no name of its own. They add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Reads of records.
    pub reads: f64,
    /// Reads of absent keys.
    pub absent: f64,
    /// Overwrites.
    pub updates: f64,
    /// New records.
    pub inserts: f64,
    /// Removals, each record at most once.
    pub deletes: f64,
    /// Ranges of up to 100 entries.
    pub ranges: f64,
    /// Zipfian choice of records, as YCSB has it; else uniform.
    pub is_zipfian: bool,
}

impl Mix {
    /// Nothing: to build others from.
    pub const NONE: Self = Self {
        reads: 0.0,
        absent: 0.0,
        updates: 0.0,
        inserts: 0.0,
        deletes: 0.0,
        ranges: 0.0,
        is_zipfian: false,
    };

    fn shares(&self) -> Vec<(Kind, f64)> {
        let all = [
            (Kind::Read, self.reads),
            (Kind::ReadAbsent, self.absent),
            (Kind::Update, self.updates),
            (Kind::Insert, self.inserts),
            (Kind::Delete, self.deletes),
            (Kind::Range, self.ranges),
        ];
        all.into_iter().filter(|(_, share)| *share > 0.0).collect()
    }

    fn about(&self) -> String {
        let name = |kind| match kind {
            Kind::Read => "reads",
            Kind::ReadAbsent => "reads of absent keys",
            Kind::Update => "updates",
            Kind::Insert => "inserts",
            Kind::Delete => "deletes",
            _ => "ranges",
        };
        let shares = self.shares();
        let parts = shares.iter().map(|(kind, share)| match truncate(share * 100.0 + 0.5) {
            100 => name(*kind).to_owned(),
            percent => format!("{percent} % {}", name(*kind)),
        });
        let choice = if self.is_zipfian { "zipfian" } else { "uniform" };
        format!("{}, {choice}", parts.collect::<Vec<_>>().join(", "))
    }
}

/// Which workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spec {
    /// One of `quintet-bench`, by name.
    Named {
        /// Family.
        suite: Suite,
        /// Name.
        name: String,
    },
    /// A point of LogKV's generator.
    LogKv {
        /// Name of the point.
        name: String,
        /// The parameters.
        point: logkv::Point,
    },
    /// A mix of operations.
    Mix {
        /// Name.
        name: String,
        /// The shares.
        mix: Mix,
    },
}

impl Spec {
    /// The workload itself. An unknown name is a usage failure.
    pub fn workload(&self) -> Outcome<Workload> {
        match self {
            Self::Named { suite, name } => workload::find(*suite, name),
            Self::LogKv { name, point } => point.workload(name),
            Self::Mix { name, mix } => {
                let total: f64 = mix.shares().iter().map(|(_, share)| share).sum();
                if (total - 1.0).abs() > 1e-6 {
                    return Err(Failure::Usage(format!("{name}: shares add up to {total}, not 1")));
                }
                let choice = match (mix.deletes > 0.99, mix.is_zipfian) {
                    (true, _) => Choice::InTurn,
                    (_, true) => Choice::Zipfian,
                    (_, false) => Choice::Uniform,
                };
                Ok(Workload {
                    suite: Suite::Micro,
                    name: name.clone(),
                    about: mix.about(),
                    order: KeyOrder::Hashed,
                    body: Body::Mix { shares: mix.shares(), choice },
                    batch: 1,
                    sorted: false,
                    range_entries: None,
                    background_writer: false,
                })
            }
        }
    }

    fn suite(&self) -> &'static str {
        match self {
            Self::Named { suite: Suite::Ycsb, .. } => "ycsb",
            Self::Named { suite: Suite::Micro, .. } => "micro",
            Self::Named { suite: Suite::DbBench, .. } => "dbbench",
            Self::Named { suite: Suite::LogKv, .. } | Self::LogKv { .. } => "logkv",
            Self::Mix { .. } => "custom",
        }
    }
}

/// One workload of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The point of the preset; none where the workload's name says it all.
    pub point: Option<String>,
    /// The workload.
    pub spec: Spec,
    /// Operations.
    pub operations: u64,
}

/// One session of one store. See the module head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The store.
    pub store: String,
    /// Options of the store by name: our engines have some.
    pub settings: Vec<(String, String)>,
    /// The preset that asked for it.
    pub preset: Option<String>,
    /// What is run, in turn. All have keys in the same order.
    pub steps: Vec<Step>,
    /// Records loaded first.
    pub records: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes of each key.
    pub key_bytes: usize,
    /// Bytes of values.
    pub value_bytes: Vec<usize>,
    /// What a returned write promises.
    pub durability: Durability,
    /// What memory it has.
    pub memory: Memory,
    /// Seed of everything random.
    pub seed: u64,
    /// Records that one atomic write loads, where loading is not measured.
    pub load_batch: u64,
    /// One operation in so many is timed.
    pub timed_one_in: u32,
    /// Operations a second; none: as fast as possible.
    pub rate: Option<f64>,
    /// Operations are run again until they have taken so many seconds together. Why: where a store
    /// does them in a few milliseconds, one interruption decides the figure.
    pub seconds_min: f64,
    /// Longest wait for the store to come to rest after loading, in seconds; 0: none.
    pub settle_seconds: u64,
    /// Whether the store is closed and opened again between loading and the steps.
    pub reopens: bool,
    /// Whether the store is killed after its one step, opened again, and compared.
    pub recovers: bool,
}

impl Job {
    /// Names the job in messages.
    pub fn name(&self) -> String {
        let steps: Vec<_> = self.steps.iter().map(step_name).collect();
        format!("{}, {}", self.store, steps.join(" "))
    }

    /// Refuses what cannot be run.
    pub fn check(&self) -> Outcome {
        for step in &self.steps {
            step.spec.workload()?.check(self.records)?;
        }
        if self.recovers && self.steps.len() != 1 {
            return Err(Failure::Usage("recovery is of one workload at a time".to_owned()));
        }
        Ok(())
    }

    /// Whether loading is what a step measures.
    pub fn measures_load(&self) -> bool {
        self.steps
            .iter()
            .any(|step| step.spec.workload().is_ok_and(|workload| workload.body == Body::Load))
    }

    /// Keys and values. The first step decides the order of keys.
    pub fn shape(&self) -> Outcome<Shape> {
        let order = match self.steps.first() {
            Some(step) => step.spec.workload()?.order,
            None => KeyOrder::Hashed,
        };
        Ok(Shape {
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes.clone(),
            order,
            repeated_percent: 0,
        })
    }

    /// How much a step runs when there are `records`.
    pub fn amount(&self, step: &Step, workload: &Workload, records: u64) -> Amount {
        let operations = workload.operations(step.operations, records);
        Amount { records, operations, threads: self.threads, seed: self.seed }
    }

    /// What the driver is told.
    pub fn task<'a>(&self, workload: &'a Workload, shape: &'a Shape, amount: Amount) -> Task<'a> {
        let load_batch = if self.measures_load() { 1 } else { to_usize(self.load_batch) };
        Task {
            workload,
            shape,
            amount,
            timed_one_in: self.timed_one_in,
            rate: self.rate,
            verify: false,
            load_batch,
        }
    }

    /// How the store is opened in `dir`.
    pub fn store_options(&self, dir: PathBuf) -> Outcome<StoreOptions> {
        let largest = to_u64(self.value_bytes.iter().copied().max().unwrap_or(0));
        let record = (to_u64(self.key_bytes) + largest).max(64);
        let (mut records_max, mut writes) = (self.records, self.records);
        for step in &self.steps {
            let workload = step.spec.workload()?;
            let operations = workload.operations(step.operations, self.records);
            let share = |kind| workload.share(kind);
            records_max += if share(Kind::Insert) > 0.0 { operations } else { 0 };
            let changes = share(Kind::Insert) + share(Kind::Update) + share(Kind::ReadModifyWrite);
            if changes > 0.0 || workload.background_writer {
                let rounds = if self.seconds_min > 0.0 { WRITING_ROUNDS_MAX } else { 1 };
                writes += operations.saturating_mul(rounds);
            }
        }
        Ok(StoreOptions {
            dir,
            durability: self.durability,
            records_max,
            // Each round has threads of its own, and a thread may take memory by the chunk.
            bytes_written_max: writes.saturating_mul(record).max(BYTES_WRITTEN_MIN),
            memory_budget: Some(self.memory.budget_bytes()),
            settings: self.settings.clone(),
        })
    }

    /// Bytes of all keys and values that are loaded.
    pub fn data_bytes(&self) -> u64 {
        let sizes = to_u64(self.value_bytes.len()).max(1);
        let mean = self.value_bytes.iter().copied().map(to_u64).sum::<u64>() / sizes;
        self.records.saturating_mul(to_u64(self.key_bytes) + mean)
    }

    /// A step as it stands in results.
    pub fn workload_info(&self, step: &Step) -> Outcome<WorkloadInfo> {
        let workload = step.spec.workload()?;
        let load_batch = if self.measures_load() { 1 } else { self.load_batch };
        Ok(WorkloadInfo {
            suite: step.spec.suite().to_owned(),
            name: workload.name.clone(),
            about: workload.about.clone(),
            records: self.records,
            operations: workload.operations(step.operations, self.records),
            threads: self.threads,
            key_bytes: to_u64(self.key_bytes),
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

/// The name of a step: its point, else its workload's.
pub fn step_name(step: &Step) -> &str {
    step.point.as_deref().unwrap_or(match &step.spec {
        Spec::Named { name, .. } | Spec::LogKv { name, .. } | Spec::Mix { name, .. } => name,
    })
}

/// `count` scaled, at least `least` where it is not 0.
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
    fn mixes_must_add_up_and_describe_themselves() {
        let mix = Mix { reads: 0.9, updates: 0.1, is_zipfian: true, ..Mix::NONE };
        let spec = Spec::Mix { name: "U1".to_owned(), mix };
        let workload = spec.workload().unwrap();
        assert_eq!(workload.about, "90 % reads, 10 % updates, zipfian");
        assert!((workload.share(Kind::Read) - 0.9).abs() < 1e-9);
        let wrong = Spec::Mix { name: "x".to_owned(), mix: Mix { reads: 0.5, ..mix } };
        assert_eq!(wrong.workload().unwrap_err().code(), 2);
        let all = Mix { deletes: 1.0, ..Mix::NONE };
        let spec = Spec::Mix { name: "D".to_owned(), mix: all };
        assert_eq!(spec.workload().unwrap().operations(100, 10), 10, "no record goes twice");
    }

    #[test]
    fn scaling_keeps_a_least_size() {
        assert_eq!(scaled(1_000_000, 0.01, 1000), 10_000);
        assert_eq!(scaled(1_000_000, 0.000_1, 1000), 1000);
        assert_eq!(scaled(500, 0.01, 1000), 500);
        assert_eq!(scaled(0, 0.5, 1000), 0);
    }
}
