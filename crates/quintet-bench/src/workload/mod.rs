//! Workloads: what is loaded, and which operations follow, chosen before the clock runs.
//!
//! What: [`Workload`] describes a mix of operations; [`OperationStream`] turns it into operations for one
//! thread, the same for the same seed; [`find`] and [`names`] know each suite's workloads by name.
//! Why beforehand: drawing a zipfian number costs as much as half a get. Operations are drawn into
//! a buffer and then run, so that throughput is the store's.
//!
//! A drawn operation is one word, [`Op`]: kind and record number. What only the run knows (how
//! many records have been inserted by all threads) is resolved when it runs.

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
    numbers::{to_f64, truncate},
    random::Random,
};

/// The version of a record that was loaded or inserted.
pub const VERSION_FIRST: u64 = 1;
/// The most entries of a range, in YCSB and where a workload does not say how many.
const SCAN_ENTRIES_MAX: u64 = 100;
/// Draws of one popular record, until it is one that is there.
const DRAWS_MAX: u64 = 100;
const KIND_BITS: u32 = 60;
const LENGTH_BITS: u32 = 52;

/// The families of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// The Yahoo! Cloud Serving Benchmark.
    Ycsb,
    /// One kind of operation each.
    Micro,
    /// The names of `db_bench`, the tool of `LevelDB` and RocksDB.
    DbBench,
    /// The generator of the LogKV paper.
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
    /// Reads a key that is not there.
    ReadAbsent,
    /// Reads a record that the last value read decides.
    ReadDependent,
    /// Overwrites a record.
    Update,
    /// Adds a record.
    Insert,
    /// Reads a record, then overwrites it.
    ReadModifyWrite,
    /// Reads some entries in key order from a record on.
    Range,
    /// Removes a record.
    Delete,
}

/// How many kinds there are.
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

    /// Whether the operation changes the store.
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

/// One drawn operation: kind in the upper four bits, then (for ranges) a length of eight bits,
/// then a number.
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

    /// The kind.
    #[inline]
    pub fn kind(self) -> OperationKind {
        let code = crate::numbers::to_usize(self.0 >> KIND_BITS);
        OperationKind::ALL.get(code).copied().unwrap_or(OperationKind::Read)
    }

    /// The record number; a distance for [`OperationKind::ReadLatest`], any number for
    /// [`OperationKind::ReadDependent`].
    #[inline]
    pub fn number(self) -> u64 {
        let bits = if self.kind() == OperationKind::Range { LENGTH_BITS } else { KIND_BITS };
        self.0 & ((1 << bits) - 1)
    }

    /// Entries of a range.
    #[inline]
    pub fn length(self) -> u64 {
        (self.0 >> LENGTH_BITS) & 255
    }
}

/// How the records of a mix are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordChoice {
    /// All alike.
    Uniform,
    /// Zipfian, hashed over the records.
    Zipfian,
    /// Zipfian, the newest first.
    Latest,
    /// A hot share of the records, at a rate.
    HotCold {
        /// Share of the records that is hot.
        hot_fraction: f64,
        /// Share of the operations that goes to them.
        hot_rate: f64,
    },
    /// Each once, one after the other, round and round.
    InTurn,
}

/// What is run once the records are loaded.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Nothing: loading is what is measured.
    Load,
    /// Visiting all entries, in key order where there is one; an operation is an entry.
    ReadAll,
    /// Operations drawn from a mix.
    Mix {
        /// Kinds and their shares, which add up to 1.
        shares: Vec<(OperationKind, f64)>,
        /// Which records.
        choice: RecordChoice,
    },
}

/// A workload. See the module head.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its family.
    pub suite: Suite,
    /// Its name within the family.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// How keys relate to record numbers.
    pub order: KeyOrder,
    /// What is measured.
    pub body: Body,
    /// Keys of one `multi_get`; 1 for single gets. Only mixes of reads have more.
    pub batch: usize,
    /// Entries of each range; none: 1 to 100, all alike.
    pub range_entries: Option<u64>,
    /// Records are loaded as sorted runs, each in one piece.
    pub sorted: bool,
    /// One more thread updates records meanwhile, unmeasured.
    pub background_writer: bool,
}

impl Workload {
    /// Whether it can run on ordered stores only.
    pub fn needs_order(&self) -> bool {
        match &self.body {
            Body::Mix { shares, .. } => {
                shares.iter().any(|(kind, _)| *kind == OperationKind::Range)
            }
            _ => false,
        }
    }

    /// Operations that this workload does when `asked` are asked for.
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

    /// The most records that there may be in the end.
    pub fn records_max(&self, operations: u64, records: u64) -> u64 {
        records + if self.share(OperationKind::Insert) > 0.0 { operations } else { 0 }
    }

    /// Returns whether the workload adds or removes records.
    pub fn changes_count(&self) -> bool {
        self.share(OperationKind::Insert) > 0.0 || self.share(OperationKind::Delete) > 0.0
    }

    /// The share of a kind of operation.
    pub fn share(&self, kind: OperationKind) -> f64 {
        let Body::Mix { shares, .. } = &self.body else { return 0.0 };
        shares.iter().filter(|(each, _)| *each == kind).map(|(_, share)| share).sum()
    }

    /// Refuses what cannot be run.
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

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSize {
    /// Records loaded first.
    pub records: u64,
    /// Operations of all threads together.
    pub operations: u64,
    /// Threads.
    pub threads: u64,
    /// Seed of everything random.
    pub seed: u64,
}

impl RunSize {
    /// The part of `count` that a thread does: from, to.
    pub fn part(&self, count: u64, thread: u64) -> (u64, u64) {
        let at = |index: u64| {
            let product = u128::from(count) * u128::from(index) / u128::from(self.threads.max(1));
            u64::try_from(product).unwrap_or(count)
        };
        (at(thread), at(thread + 1))
    }

    /// The version that a thread's operation writes.
    pub fn version(&self, thread: u64, index: u64) -> u64 {
        VERSION_FIRST + 1 + index * self.threads + thread
    }
}

/// The operations of one thread, drawn one after the other.
#[derive(Debug)]
pub struct OperationStream {
    shares: Vec<(OperationKind, f64)>,
    choice: RecordChoice,
    distribution: Distribution,
    /// Records that popular ones are chosen among, once and for all.
    spread: u64,
    random: Random,
    range_entries: Option<u64>,
    amount: RunSize,
    thread: u64,
    /// Operations drawn so far.
    drawn: u64,
    /// Inserts among them.
    inserts: u64,
    /// Operations to draw in all.
    total: u64,
}

impl OperationStream {
    /// The operations of thread number `thread`; none where the workload is no mix.
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
        // As YCSB: those that there are, and twice as many as will be inserted.
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

    /// Draws up to `count` operations over `out`; none at the end.
    pub fn fill(&mut self, out: &mut Vec<Op>, count: u64) {
        out.clear();
        out.extend(self.take(crate::numbers::to_usize(count)));
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
        // With one thread this is exact; with more, reads may be a little ahead of the other
        // threads' inserts (the run brings them back), and writes keep to the records that
        // are certainly there.
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
            // Which records are popular must not change with every insert. Those that are not
            // there yet are drawn again.
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
