//! Serializable descriptions of workloads: by name, by parameters, or as a mix of operations.

use serde::{Deserialize, Serialize};

use super::{
    catalogue::find,
    definition::{Body, OperationKind, RecordChoice, Suite, Workload},
    logkv,
};
use crate::{
    data::KeyOrder,
    failure::{Failure, Outcome},
    numbers::truncate,
    store::TransactionMode,
};

/// Shares of the kinds of operations in a custom workload. They add up to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationMix {
    /// Reads of records.
    pub reads: f64,
    /// Reads of absent keys.
    pub absent: f64,
    /// Overwrites.
    pub updates: f64,
    /// Inserts of new records.
    pub inserts: f64,
    /// Deletes, each record at most once.
    pub deletes: f64,
    /// Ranges of up to 100 entries.
    pub ranges: f64,
    /// Whether records are chosen by the zipfian distribution of YCSB; uniformly if not.
    pub is_zipfian: bool,
}

impl OperationMix {
    /// All shares zero: the base of struct updates.
    pub const NONE: Self = Self {
        reads: 0.0,
        absent: 0.0,
        updates: 0.0,
        inserts: 0.0,
        deletes: 0.0,
        ranges: 0.0,
        is_zipfian: false,
    };

    fn shares(&self) -> Vec<(OperationKind, f64)> {
        let all = [
            (OperationKind::Read, self.reads),
            (OperationKind::ReadAbsent, self.absent),
            (OperationKind::Update, self.updates),
            (OperationKind::Insert, self.inserts),
            (OperationKind::Delete, self.deletes),
            (OperationKind::Range, self.ranges),
        ];
        all.into_iter().filter(|(_, share)| *share > 0.0).collect()
    }

    fn about(&self) -> String {
        let name = |kind| match kind {
            OperationKind::Read => "reads",
            OperationKind::ReadAbsent => "reads of absent keys",
            OperationKind::Update => "updates",
            OperationKind::Insert => "inserts",
            OperationKind::Delete => "deletes",
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

/// Description of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadSpec {
    /// A workload of [`find`], by name.
    Named {
        /// Suite.
        suite: Suite,
        /// Name.
        name: String,
    },
    /// Parameters of the LogKV generator.
    LogKv {
        /// Name of the parameter point.
        name: String,
        /// Parameters.
        point: logkv::LogKvPoint,
    },
    /// A mix of operations.
    Mix {
        /// Name.
        name: String,
        /// Shares.
        mix: OperationMix,
    },
}

impl WorkloadSpec {
    /// Returns the workload. An unknown name is a usage failure.
    pub fn workload(&self) -> Outcome<Workload> {
        match self {
            Self::Named { suite, name } => find(*suite, name),
            Self::LogKv { name, point } => point.workload(name),
            Self::Mix { name, mix } => {
                let total: f64 = mix.shares().iter().map(|(_, share)| share).sum();
                if (total - 1.0).abs() > 1e-6 {
                    return Err(Failure::Usage(format!("{name}: shares add up to {total}, not 1")));
                }
                let choice = match (mix.deletes > 0.99, mix.is_zipfian) {
                    (true, _) => RecordChoice::InTurn,
                    (_, true) => RecordChoice::Zipfian,
                    (_, false) => RecordChoice::Uniform,
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
                    threads: 1,
                    mode: TransactionMode::default(),
                })
            }
        }
    }

    /// Returns the name of the workload.
    pub fn name(&self) -> &str {
        match self {
            Self::Named { name, .. } | Self::LogKv { name, .. } | Self::Mix { name, .. } => name,
        }
    }

    /// Returns the name of the suite in results.
    pub(crate) fn suite_name(&self) -> &'static str {
        match self {
            Self::Named { suite: Suite::Ycsb, .. } => "ycsb",
            Self::Named { suite: Suite::Micro, .. } => "micro",
            Self::Named { suite: Suite::DbBench, .. } => "dbbench",
            Self::Named { suite: Suite::Txn, .. } => "txn",
            Self::Named { suite: Suite::LogKv, .. } | Self::LogKv { .. } => "logkv",
            Self::Mix { .. } => "custom",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_must_add_up_and_describe_themselves() {
        let mix = OperationMix { reads: 0.9, updates: 0.1, is_zipfian: true, ..OperationMix::NONE };
        let spec = WorkloadSpec::Mix { name: "U1".to_owned(), mix };
        let workload = spec.workload().unwrap();
        assert_eq!(workload.about, "90 % reads, 10 % updates, zipfian");
        assert!((workload.share(OperationKind::Read) - 0.9).abs() < 1e-9);
        let wrong = OperationMix { reads: 0.5, ..mix };
        let wrong = WorkloadSpec::Mix { name: "x".to_owned(), mix: wrong };
        assert_eq!(wrong.workload().unwrap_err().code(), 2);
        let mix = OperationMix { deletes: 1.0, ..OperationMix::NONE };
        let spec = WorkloadSpec::Mix { name: "D".to_owned(), mix };
        assert_eq!(spec.workload().unwrap().operations(100, 10), 10, "no record goes twice");
    }
}
