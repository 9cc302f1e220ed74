//! Results as multiples of the limit that binds them.

mod binding;

use binding::{Binding, RunProfile, bind};

use super::{document::TableCell, input::Experiments, model::StoreCell, units};
use crate::{
    limits::{Limits, LimitsRecord},
    numbers::to_f64,
    result::{Metric, RunResult},
    store::{Durability, MemoryMode},
    workload::{Suite, Workload, find},
};

/// The limits of all results files, for comparison with runs.
#[derive(Clone, Copy)]
pub(super) struct LimitIndex<'a> {
    records: &'a [LimitsRecord],
    experiments: &'a dyn Experiments,
}

impl<'a> LimitIndex<'a> {
    pub(super) fn new(records: &'a [LimitsRecord], experiments: &'a dyn Experiments) -> Self {
        Self { records, experiments }
    }

    /// Returns the limits of the same comparison, or those measured nearest in time.
    fn limits(&self, run: &RunResult) -> Option<&'a Limits> {
        let same = self.records.iter().rfind(|record| record.run_id == run.run_id);
        let distance =
            |record: &&LimitsRecord| record.measured_unix_ms.abs_diff(run.started_unix_ms);
        same.or_else(|| self.records.iter().min_by_key(distance)).map(|record| &record.limits)
    }

    /// Returns the limit that binds a cell, and the time of an operation as a multiple of it.
    fn binding(&self, cell: &StoreCell<'_>) -> Option<(Binding, f64)> {
        let run = cell.runs.first()?;
        let workload = self.workload(run)?;
        let record_bytes = to_f64(run.workload.record_bytes());
        let binding = bind(
            RunProfile {
                workload: &workload,
                threads: run.workload.threads,
                records: run.workload.records,
                record_bytes,
                synced: run.durability == Durability::Sync,
                memory_bytes: match run.memory {
                    MemoryMode::Fits { .. } => None,
                    MemoryMode::Limited { limit_bytes, .. } => Some(limit_bytes),
                    MemoryMode::Direct { cache_bytes } => Some(cache_bytes),
                },
            },
            self.limits(run)?,
        )?;
        let rate = cell.median(Metric::OpsPerSecond)?;
        binding.multiple(rate).map(|multiple| (binding, multiple))
    }

    /// Returns the cell of the multiple, with the name of the limit.
    pub(super) fn entry(&self, cell: &StoreCell<'_>) -> TableCell {
        self.binding(cell).map_or(units::NONE.into(), |(binding, multiple)| TableCell {
            text: units::ratio(multiple),
            note: binding.limit.to_string(),
            ..TableCell::default()
        })
    }

    /// Returns the workload of a run; `None` if neither its preset nor its name identifies it.
    fn workload(&self, run: &RunResult) -> Option<Workload> {
        if let (Some(preset), Some(point)) = (&run.preset, &run.point)
            && let Some(workload) = self.experiments.workload(preset, point)
        {
            return Some(workload);
        }
        let suite = match run.workload.suite.as_str() {
            "ycsb" => Suite::Ycsb,
            "micro" => Suite::Micro,
            "dbbench" => Suite::DbBench,
            "txn" => Suite::Txn,
            _ => return None,
        };
        find(suite, &run.workload.name).ok()
    }
}
