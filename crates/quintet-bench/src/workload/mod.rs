//! Workloads: the records that are loaded and the operations that follow.
//!
//! [`Workload`] describes a mix of operations. [`OperationStream`] draws the operations of one
//! thread; the same seed gives the same operations. [`find`] and [`names`] give the workloads of
//! each suite by name. [`WorkloadSpec`] is a serializable description.
//!
//! The driver draws operations into a buffer before it runs them, because drawing a zipfian number
//! costs half as much as a get. An operation is one word, [`Op`]: its kind and a record number. The
//! run resolves numbers that depend on the inserts of all threads.

mod catalogue;
pub mod logkv;
mod spec;

use serde::{Deserialize, Serialize};

pub use catalogue::{DB_BENCH, MICRO, YCSB, find, names};
pub use spec::{OperationMix, WorkloadSpec};

use crate::{
    data::KeyOrder,
    distribution::Distribution,
    failure::{Failure, Outcome},
    numbers::{to_f64, to_usize, truncate},
    random::Random,
};

/// Version of a record that was loaded or inserted.
pub const VERSION_FIRST: u64 = 1;
/// Maximum number of entries of a range, in YCSB and in workloads that do not set a number.
const SCAN_ENTRIES_MAX: u64 = 100;
/// Maximum number of draws until one gives a record that exists.
const DRAWS_MAX: u64 = 100;
/// Position of the kind in an [`Op`].
const KIND_BITS: u32 = 60;
/// Position of the length of a range in an [`Op`].
const LENGTH_BITS: u32 = 52;

/// Suites of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// Yahoo! Cloud Serving Benchmark.
    Ycsb,
    /// Workloads of one kind of operation.
    Micro,
    /// Workloads of `db_bench`, the tool of `LevelDB` and RocksDB.
    DbBench,
    /// Generator of the LogKV paper.
    LogKv,
}

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OperationKind {
    /// Reads a record.
    Read,
    /// Reads the record at this distance from the newest.
    ReadLatest,
    /// Reads an absent key.
    ReadAbsent,
    /// Reads a record that the last value determines.
    ReadDependent,
    /// Overwrites a record.
    Update,
    /// Inserts a record.
    Insert,
    /// Reads a record, then overwrites it.
    ReadModifyWrite,
    /// Reads entries in key order from a record on.
    Range,
    /// Deletes a record.
    Delete,
}

/// Number of kinds.
pub const OPERATION_KINDS: usize = 9;

impl OperationKind {
    const ALL: [Self; OPERATION_KINDS] = [
        Self::Read,
        Self::ReadLatest,
        Self::ReadAbsent,
        Self::ReadDependent,
        Self::Update,
        Self::Insert,
        Self::ReadModifyWrite,
        Self::Range,
        Self::Delete,
    ];

    /// Returns whether the operation changes the store.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Update | Self::Insert | Self::ReadModifyWrite | Self::Delete)
    }

    const fn code(self) -> u64 {
        match self {
            Self::Read => 0,
            Self::ReadLatest => 1,
            Self::ReadAbsent => 2,
            Self::ReadDependent => 3,
            Self::Update => 4,
            Self::Insert => 5,
            Self::ReadModifyWrite => 6,
            Self::Range => 7,
            Self::Delete => 8,
        }
    }
}

/// A drawn operation: the kind in the upper four bits, the length of a range in the next eight
/// bits, then a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op(u64);

impl Op {
    fn new(kind: OperationKind, number: u64) -> Self {
        Self((kind.code() << KIND_BITS) | (number & ((1 << KIND_BITS) - 1)))
    }

    fn range(number: u64, length: u64) -> Self {
        let number = number & ((1 << LENGTH_BITS) - 1);
        Self::new(OperationKind::Range, (length.min(255) << LENGTH_BITS) | number)
    }

    /// Returns the kind.
    #[inline]
    pub fn kind(self) -> OperationKind {
        let code = to_usize(self.0 >> KIND_BITS);
        OperationKind::ALL.get(code).copied().unwrap_or(OperationKind::Read)
    }

    /// Returns the record number. For [`OperationKind::ReadLatest`] it is a distance, for
    /// [`OperationKind::ReadDependent`] any number.
    #[inline]
    pub fn number(self) -> u64 {
        let bits = if self.kind() == OperationKind::Range { LENGTH_BITS } else { KIND_BITS };
        self.0 & ((1 << bits) - 1)
    }

    /// Returns the number of entries of a range.
    #[inline]
    pub fn length(self) -> u64 {
        (self.0 >> LENGTH_BITS) & 255
    }
}

/// Choice of the records of a mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordChoice {
    /// All records with the same probability.
    Uniform,
    /// Zipfian, hashed over the records.
    Zipfian,
    /// Zipfian, new records most often.
    Latest,
    /// Hot records at a given rate.
    HotCold {
        /// Share of the records that are hot.
        hot_fraction: f64,
        /// Share of the operations that go to hot records.
        hot_rate: f64,
    },
    /// Each record once in sequence, then from the start again.
    InTurn,
}

/// Operations that follow loading.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// None: the workload measures loading.
    Load,
    /// A visit of all entries, in key order if the store has one. Each entry counts as an
    /// operation.
    ReadAll,
    /// Operations drawn from a mix.
    Mix {
        /// Kinds and their shares, which add up to 1.
        shares: Vec<(OperationKind, f64)>,
        /// Choice of records.
        choice: RecordChoice,
    },
}

/// A workload. See the module head.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Suite.
    pub suite: Suite,
    /// Name within the suite.
    pub name: String,
    /// Short description.
    pub about: String,
    /// Relation of key order to record numbers.
    pub order: KeyOrder,
    /// Measured operations.
    pub body: Body,
    /// Keys of one `multi_get`; 1 for single gets. Only workloads of reads have more.
    pub batch: usize,
    /// Entries of each range; `None` is 1 to 100 with the same probability.
    pub range_entries: Option<u64>,
    /// Whether each thread loads its records as one sorted run.
    pub sorted: bool,
    /// Whether one more thread updates records during the run. Its operations do not count.
    pub background_writer: bool,
}

impl Workload {
    /// Returns whether the workload needs a store with key order.
    pub fn needs_order(&self) -> bool {
        match &self.body {
            Body::Mix { shares, .. } => {
                shares.iter().any(|(kind, _)| *kind == OperationKind::Range)
            }
            _ => false,
        }
    }

    /// Returns the operations of the workload if `asked` are requested.
    pub fn operations(&self, asked: u64, records: u64) -> u64 {
        match &self.body {
            Body::Load | Body::ReadAll => records,
            Body::Mix { choice: RecordChoice::InTurn, shares }
                if shares.iter().any(|(kind, _)| *kind == OperationKind::Delete) =>
            {
                asked.min(records)
            }
            Body::Mix { .. } => asked,
        }
    }

    /// Returns the maximum number of records at the end.
    pub fn records_max(&self, operations: u64, records: u64) -> u64 {
        records + if self.share(OperationKind::Insert) > 0.0 { operations } else { 0 }
    }

    /// Returns whether the workload adds or removes records.
    pub fn changes_count(&self) -> bool {
        self.share(OperationKind::Insert) > 0.0 || self.share(OperationKind::Delete) > 0.0
    }

    /// Returns the share of a kind of operation.
    pub fn share(&self, kind: OperationKind) -> f64 {
        let Body::Mix { shares, .. } = &self.body else { return 0.0 };
        shares.iter().filter(|(each, _)| *each == kind).map(|(_, share)| share).sum()
    }

    /// Fails if the workload cannot run.
    pub fn check(&self, records: u64) -> Outcome {
        let reads_only = matches!(&self.body, Body::Mix { shares, .. }
            if shares.iter().all(|(kind, _)| *kind == OperationKind::Read));
        if self.batch > 1 && !reads_only {
            return Err(Failure::Usage(format!("{}: only reads go in batches", self.name)));
        }
        let starts_empty = self.share(OperationKind::Insert) > 0.0 && self.suite == Suite::LogKv;
        if records == 0 && !starts_empty {
            return Err(Failure::Usage(format!("{}: --records must be at least 1", self.name)));
        }
        Ok(())
    }
}

/// Size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSize {
    /// Records loaded first.
    pub records: u64,
    /// Operations of all threads together.
    pub operations: u64,
    /// Threads.
    pub threads: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl RunSize {
    /// Returns the part of `count` of a thread: from, to.
    pub fn part(&self, count: u64, thread: u64) -> (u64, u64) {
        let at = |index: u64| {
            let product = u128::from(count) * u128::from(index) / u128::from(self.threads.max(1));
            u64::try_from(product).unwrap_or(count)
        };
        (at(thread), at(thread + 1))
    }

    /// Returns the version that an operation of a thread writes.
    pub fn version(&self, thread: u64, index: u64) -> u64 {
        VERSION_FIRST + 1 + index * self.threads + thread
    }
}

/// Operations of one thread.
#[derive(Debug)]
pub struct OperationStream {
    shares: Vec<(OperationKind, f64)>,
    choice: RecordChoice,
    distribution: Distribution,
    /// Number of records over which popular records are spread. It is fixed for the run.
    spread: u64,
    random: Random,
    range_entries: Option<u64>,
    amount: RunSize,
    thread: u64,
    /// Operations drawn.
    drawn: u64,
    /// Inserts among them.
    inserts: u64,
    /// Operations to draw.
    total: u64,
}

impl OperationStream {
    /// Returns the operations of a thread; none if the workload is not a mix.
    pub fn new(workload: &Workload, amount: RunSize, thread: u64) -> Self {
        let (shares, choice, total) = match &workload.body {
            Body::Mix { shares, choice } => {
                let (from, to) = amount.part(amount.operations, thread);
                (shares.clone(), *choice, to - from)
            }
            Body::Load | Body::ReadAll => (Vec::new(), RecordChoice::Uniform, 0),
        };
        let distribution = match choice {
            RecordChoice::Uniform | RecordChoice::InTurn => Distribution::Uniform,
            RecordChoice::Zipfian => Distribution::scrambled(),
            RecordChoice::Latest => Distribution::latest(amount.records),
            RecordChoice::HotCold { hot_fraction, hot_rate } => {
                Distribution::HotCold { hot_fraction, hot_rate }
            }
        };
        // As in YCSB: the existing records, and twice as many as the run inserts.
        let inserts = to_f64(amount.operations) * workload.share(OperationKind::Insert);
        let spread = amount.records.saturating_add(truncate(2.0 * inserts));
        let random = Random::new(amount.seed, thread);
        let range_entries = workload.range_entries;
        let (drawn, inserts) = (0, 0);
        Self {
            shares,
            choice,
            distribution,
            spread,
            random,
            range_entries,
            amount,
            thread,
            drawn,
            inserts,
            total,
        }
    }

    /// Overwrites `out` with up to `count` operations; with none at the end.
    pub fn fill(&mut self, out: &mut Vec<Op>, count: u64) {
        out.clear();
        out.extend(self.take(to_usize(count)));
    }

    fn kind(&mut self) -> OperationKind {
        let mut rest = self.random.fraction();
        let mut last = OperationKind::Read;
        for (kind, share) in &self.shares {
            last = *kind;
            if rest < *share {
                break;
            }
            rest -= share;
        }
        last
    }

    fn draw(&mut self) -> Op {
        let kind = self.kind();
        // With one thread this number is exact. With more threads, reads may use a number that
        // another thread has not inserted yet, which the run corrects; writes use only records that
        // exist.
        let known = match (self.amount.threads, kind.is_write()) {
            (1, _) => self.amount.records + self.inserts,
            (_, true) => self.amount.records,
            (threads, false) => self.amount.records + self.inserts * threads,
        };
        match kind {
            OperationKind::Insert => self.insert(),
            OperationKind::ReadAbsent | OperationKind::ReadDependent => {
                Op::new(kind, self.random.bits() >> (64 - LENGTH_BITS))
            }
            _ if known == 0 && kind.is_write() => self.insert(),
            _ if known == 0 => Op::new(OperationKind::ReadAbsent, 0),
            OperationKind::Range => {
                let number = self.number(known);
                let drawn = || 1 + self.random.below(SCAN_ENTRIES_MAX);
                Op::range(number, self.range_entries.unwrap_or_else(drawn))
            }
            _ => Op::new(kind, self.number(known)),
        }
    }

    fn insert(&mut self) -> Op {
        self.inserts += 1;
        Op::new(OperationKind::Insert, 0)
    }

    fn number(&mut self, known: u64) -> u64 {
        if self.choice == RecordChoice::InTurn {
            return (self.amount.part(self.amount.operations, self.thread).0 + self.drawn) % known;
        }
        if self.choice == RecordChoice::Zipfian {
            // Inserts must not change which records are popular. A record that does not exist yet
            // is drawn again.
            let among = |_| self.distribution.draw(&mut self.random, self.spread);
            if let Some(number) = (0..DRAWS_MAX).map(among).find(|number| *number < known) {
                return number;
            }
        }
        self.distribution.draw(&mut self.random, known)
    }
}

impl Iterator for OperationStream {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        if self.drawn == self.total {
            return None;
        }
        let op = self.draw();
        self.drawn += 1;
        Some(op)
    }
}

#[cfg(test)]
mod tests;
