//! Results as multiples of the limit that binds them.

use quintet_bench::{
    numbers::to_f64,
    workload::{Suite, Workload, find},
};

use super::{document::Cell as Entry, model::Cell, units};
use crate::{
    limits::{
        Limits, Record,
        binding::{Binding, Run, bind},
    },
    preset,
    result::{Memory, RunResult},
};

/// The limits that runs stand beside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound<'a> {
    records: &'a [Record],
}

impl<'a> Bound<'a> {
    pub(super) const fn new(records: &'a [Record]) -> Self {
        Self { records }
    }

    /// The limits measured with a run, else those measured nearest in time.
    fn limits(&self, run: &RunResult) -> Option<&'a Limits> {
        let same = self.records.iter().rfind(|record| record.run_id == run.run_id);
        let distance = |record: &&Record| record.measured_unix_ms.abs_diff(run.started_unix_ms);
        same.or_else(|| self.records.iter().min_by_key(distance)).map(|record| &record.limits)
    }

    /// The limit that binds a cell, and by how much it is missed.
    fn binding(&self, cell: &Cell<'_>) -> Option<(Binding, f64)> {
        let run = cell.runs.first()?;
        let workload = workload(run)?;
        let record_bytes = to_f64(run.workload.record_bytes());
        let binding = bind(
            Run {
                workload: &workload,
                threads: run.workload.threads,
                records: run.workload.records,
                record_bytes,
                synced: run.durability == quintet_bench::store::Durability::Sync,
                memory_bytes: match run.memory {
                    Memory::Fits { .. } => None,
                    Memory::Limited { limit_bytes, .. } => Some(limit_bytes),
                    Memory::Direct { cache_bytes } => Some(cache_bytes),
                },
            },
            self.limits(run)?,
        )?;
        let rate = cell.median(crate::result::Metric::OpsPerSecond)?;
        binding.multiple(rate).map(|multiple| (binding, multiple))
    }

    /// The multiple, with the limit's name.
    pub(super) fn entry(&self, cell: &Cell<'_>) -> Entry {
        self.binding(cell).map_or(units::NONE.into(), |(binding, multiple)| Entry {
            text: units::ratio(multiple),
            note: binding.limit.to_string(),
            ..Entry::default()
        })
    }
}

/// The workload of a run; `None` where neither its preset nor its name says what it does.
fn workload(run: &RunResult) -> Option<Workload> {
    if let (Some(name), Some(wanted)) = (&run.preset, &run.point)
        && let Ok(preset) = preset::find(name)
        && let Some(point) = preset.points.iter().find(|point| point.name == wanted)
    {
        return point.spec().workload().ok();
    }
    let suite = match run.workload.suite.as_str() {
        "ycsb" => Suite::Ycsb,
        "micro" => Suite::Micro,
        "dbbench" => Suite::DbBench,
        _ => return None,
    };
    find(suite, &run.workload.name).ok()
}
