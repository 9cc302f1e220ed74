//! The definition of a workload: its kinds of operations, its choice of records, its suite.

use serde::{Deserialize, Serialize};

use crate::{
    data::KeyOrder,
    failure::{Failure, Outcome},
    store::{StoreFeature, TransactionMode},
};

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
    /// Transactions and atomic updates.
    Txn,
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
    /// Reads a record and overwrites it by its next version, in a transaction.
    TransactionalUpdate,
    /// Reads a record of each table, decrements the version of the first and increments that of the
    /// second, in a transaction.
    Transfer,
    /// Overwrites a record by its next version, in one atomic operation.
    AtomicUpdate,
}

/// Number of kinds.
pub const OPERATION_KINDS: usize = 12;

impl OperationKind {
    pub(crate) const ALL: [Self; OPERATION_KINDS] = [
        Self::Read,
        Self::ReadLatest,
        Self::ReadAbsent,
        Self::ReadDependent,
        Self::Update,
        Self::Insert,
        Self::ReadModifyWrite,
        Self::Range,
        Self::Delete,
        Self::TransactionalUpdate,
        Self::Transfer,
        Self::AtomicUpdate,
    ];

    /// Returns whether the operation changes the store.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Update | Self::Insert | Self::ReadModifyWrite | Self::Delete)
            || self.counts_versions()
    }

    /// Returns whether the operation makes the version of a record from the version that it reads.
    /// Such operations conflict if they overlap, and the sum of all versions shows a lost one.
    pub const fn counts_versions(self) -> bool {
        matches!(self, Self::TransactionalUpdate | Self::Transfer | Self::AtomicUpdate)
    }

    pub(super) const fn code(self) -> u64 {
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
            Self::TransactionalUpdate => 9,
            Self::Transfer => 10,
            Self::AtomicUpdate => 11,
        }
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
    /// Zipfian over this many records, the first ones.
    Hot(u64),
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
    /// Threads, unless the command line says how many.
    pub threads: u64,
    /// Guarantee of transactions, if the workload has some.
    pub mode: TransactionMode,
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

    /// Returns whether all operations count versions; see [`OperationKind::counts_versions`]. No
    /// workload mixes them with others.
    pub fn counts_versions(&self) -> bool {
        OperationKind::ALL.iter().any(|kind| kind.counts_versions() && self.share(*kind) > 0.0)
    }

    /// Returns whether the workload needs the second table of a store.
    pub fn has_transfers(&self) -> bool {
        self.share(OperationKind::Transfer) > 0.0
    }

    /// Returns the feature that the workload needs of a store, if any.
    pub fn feature(&self) -> Option<StoreFeature> {
        if self.share(OperationKind::AtomicUpdate) > 0.0 {
            return Some(StoreFeature::AtomicUpdate);
        }
        self.counts_versions().then(|| StoreFeature::of(self.mode))
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
