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
mod definition;
pub mod logkv;
mod spec;

pub use catalogue::{DB_BENCH, MICRO, TXN, YCSB, find, names};
pub use definition::{Body, OPERATION_KINDS, OperationKind, RecordChoice, Suite, Workload};
pub use spec::{OperationMix, WorkloadSpec};

use crate::{
    distribution::Distribution,
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
            // Distances from the newest, here from the first.
            RecordChoice::Hot(records) => Distribution::latest(records.min(amount.records)),
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
        if let RecordChoice::Hot(records) = self.choice {
            return self.distribution.draw(&mut self.random, records.min(known));
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
