//! Presets: the experiments of the papers, and Quintet's own comparisons, by name.
//!
//! A [`Preset`] names the stores, the points at the paper's size, and the figures that the paper
//! prints for them, so that a report shows both side by side. Each paper has a file.
//!
//! Sizes are those of the papers. `--scale` multiplies records and operations; the default of each
//! preset suits a machine with two processors and 24 GiB. Hardware differs, so the figures to
//! compare are ratios to the same peer. Reports put these first.
//!
//! How we differ from the papers: all stores of a preset run the same operations from the same
//! seed. Keys have 23 bytes if the paper gives no size. A store of a paper that is not available
//! (FASTER, Masstree, `KVell`, `PebblesDB`) is left out, and its figures appear without a
//! measurement.

mod cedrusdb;
mod ckvs;
mod compassdb;
mod logkv;
mod own;
mod slmdb;

use quintet_bench::{
    failure::{Failure, Outcome},
    report::{Experiment, Experiments},
    result::{Metric, PaperFigure},
    session::{
        job::scaled,
        plan::{MemoryPlan, StepRequest},
    },
    store::{Durability, Stores as _},
    workload::{OperationMix, Suite, Workload, WorkloadSpec, logkv::LogKvPoint},
};

use crate::stores::AllStores;

/// Minimum number of records and operations of a scaled point.
const COUNT_MIN: u64 = 1000;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Origin: `CedrusDB, figure 10`.
    pub origin: &'static str,
    /// Subject and the result of the paper, in a few sentences.
    pub about: &'static str,
    /// Engines of Quintet.
    pub engines: &'static [&'static str],
    /// Peers.
    pub peers: &'static [&'static str],
    /// Points; none if the experiment is not a workload of a store.
    pub points: &'static [PresetPoint],
    /// Default scale.
    pub scale: f64,
    /// Default number of repetitions.
    pub runs: u64,
    /// Minimum duration of a workload in seconds.
    pub seconds_min: f64,
    /// Memory of the stores.
    pub memory: MemoryPlan,
    /// Durability of a returned write.
    pub durability: Durability,
    /// Whether stores are closed and reopened after loading.
    pub reopens: bool,
    /// Whether stores are killed and reopened after each point.
    pub recovers: bool,
    /// Figures of the paper.
    pub figures: &'static [PaperFigure],
}

/// A point of a figure or a table.
#[derive(Clone, Copy, Debug)]
pub struct PresetPoint {
    /// Name within the preset.
    pub name: &'static str,
    /// Workload.
    pub what: PointWorkload,
    /// Records in the paper.
    pub records: u64,
    /// Operations in the paper.
    pub operations: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of values.
    pub value_bytes: &'static [usize],
    /// Options of our engines at this point: engine, name, value.
    pub settings: &'static [(&'static str, &'static str, &'static str)],
}

/// Workload of a point.
#[derive(Clone, Copy, Debug)]
pub enum PointWorkload {
    /// A named workload of a suite.
    Named(Suite, &'static str),
    /// A mix of operations.
    Mix(OperationMix),
    /// Parameters of the LogKV generator: hit rate, read fraction, hot fraction, hot rate.
    LogKv([f64; 4]),
}

impl PresetPoint {
    /// Returns the workload.
    pub fn spec(&self) -> WorkloadSpec {
        let name = self.name.to_owned();
        match self.what {
            PointWorkload::Named(suite, workload) => {
                WorkloadSpec::Named { suite, name: workload.to_owned() }
            }
            PointWorkload::Mix(mix) => WorkloadSpec::Mix { name, mix },
            PointWorkload::LogKv([hits, reads, hot_keys, hot_share]) => WorkloadSpec::LogKv {
                name,
                point: LogKvPoint {
                    hit_rate: hits,
                    read_fraction: reads,
                    hot_fraction: hot_keys,
                    hot_rate: hot_share,
                },
            },
        }
    }
}

impl PresetPoint {
    /// Returns the request of the point at a scale.
    fn request(&self, scale: f64) -> StepRequest {
        let owned = |(engine, name, value): &(&str, &str, &str)| {
            ((*engine).to_owned(), (*name).to_owned(), (*value).to_owned())
        };
        StepRequest {
            point: Some(self.name.to_owned()),
            spec: self.spec(),
            records: scaled(self.records, scale, COUNT_MIN),
            operations: scaled(self.operations, scale, COUNT_MIN),
            threads: self.threads,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes.to_vec(),
            value_repeated_percent: 0,
            settings: self.settings.iter().map(owned).collect(),
        }
    }
}

impl Preset {
    /// Defaults: everything fits, buffered writes, three runs at a hundredth of the paper's size.
    const DEFAULT: Self = Self {
        name: "",
        origin: "",
        about: "",
        engines: &[],
        peers: &[],
        points: &[],
        scale: 0.01,
        runs: 3,
        seconds_min: 0.0,
        memory: MemoryPlan::Fits,
        durability: Durability::Buffered,
        reopens: false,
        recovers: false,
        figures: &[],
    };

    /// Returns the stores that are available, and a note for each that is not.
    pub fn stores(&self) -> (Vec<&'static str>, Vec<String>) {
        let mut names = self.engines.to_vec();
        let mut notes = Vec::new();
        for &name in self.peers {
            if AllStores.check(name).is_err() {
                notes.push(format!("{name}: left out of this build"));
            } else if let Err(failure) = AllStores.check_available(name) {
                notes.push(failure.to_string());
            } else {
                names.push(name);
            }
        }
        (names, notes)
    }

    /// Returns the requests of the preset at a scale.
    pub fn requests(&self, scale: f64) -> Vec<StepRequest> {
        self.points.iter().map(|point| point.request(scale)).collect()
    }
}

/// Returns a point with the default sizes.
const fn point(
    name: &'static str,
    what: PointWorkload,
    records: u64,
    operations: u64,
) -> PresetPoint {
    PresetPoint {
        name,
        what,
        records,
        operations,
        threads: 1,
        key_bytes: 23,
        value_bytes: &[128],
        settings: &[],
    }
}

impl PresetPoint {
    /// Sets the number of threads.
    const fn threads(mut self, threads: u64) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the sizes of keys and values.
    const fn sizes(mut self, key_bytes: usize, value_bytes: &'static [usize]) -> Self {
        self.key_bytes = key_bytes;
        self.value_bytes = value_bytes;
        self
    }

    /// Sets options of engines.
    const fn with(
        mut self,
        settings: &'static [(&'static str, &'static str, &'static str)],
    ) -> Self {
        self.settings = settings;
        self
    }
}

/// Returns a figure of a paper in its own unit.
const fn paper(
    point: &'static str,
    store: &'static str,
    stands_for: &'static str,
    metric: Metric,
    value: f64,
) -> PaperFigure {
    PaperFigure { point, store, stands_for, relative_to: "", metric, value, note: "" }
}

/// Returns a figure of a paper that is a ratio to another store.
const fn ratio(
    point: &'static str,
    store: &'static str,
    [stands_for, relative_to]: [&'static str; 2],
    metric: Metric,
    value: f64,
    note: &'static str,
) -> PaperFigure {
    PaperFigure { point, store, stands_for, relative_to, metric, value, note }
}

/// Returns all presets, ours first.
pub fn all() -> impl Iterator<Item = &'static Preset> {
    [
        own::PRESETS,
        cedrusdb::PRESETS,
        slmdb::PRESETS,
        compassdb::PRESETS,
        ckvs::PRESETS,
        logkv::PRESETS,
    ]
    .into_iter()
    .flatten()
}

/// Returns the preset of this name. An unknown name is a usage failure.
pub fn find(name: &str) -> Outcome<&'static Preset> {
    all().find(|preset| preset.name == name).ok_or_else(|| {
        Failure::Usage(format!("there is no preset {name:?}; `quintet-compare presets` lists them"))
    })
}

/// The presets of this build, for reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownPresets;

impl Experiments for KnownPresets {
    fn find(&self, preset: &str) -> Option<Experiment> {
        let Preset { origin, about, figures, .. } = *find(preset).ok()?;
        Some(Experiment { origin, about, figures })
    }

    fn workload(&self, preset: &str, point: &str) -> Option<Workload> {
        let points = find(preset).ok()?.points;
        points.iter().find(|known| known.name == point)?.spec().workload().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_workloads_exist() {
        let mut names = Vec::new();
        for preset in all() {
            assert!(!names.contains(&preset.name), "{}", preset.name);
            names.push(preset.name);
            assert!(!preset.origin.is_empty() && preset.about.len() > 20, "{}", preset.name);
            assert!(preset.scale > 0.0 && preset.scale <= 1.0, "{}", preset.name);
            for point in preset.points {
                let workload = point.spec().workload();
                let workload =
                    workload.unwrap_or_else(|failure| panic!("{}: {failure}", preset.name));
                assert!(workload.check(point.records).is_ok(), "{} {}", preset.name, point.name);
            }
            let points: Vec<_> = preset.points.iter().map(|point| point.name).collect();
            let unique: std::collections::BTreeSet<_> = points.iter().collect();
            assert_eq!(points.len(), unique.len(), "{}: {points:?}", preset.name);
        }
        assert!(find("smoke").is_ok());
        assert_eq!(find("cedrusdb-fig99").unwrap_err().code(), 2);
    }

    #[test]
    fn figures_belong_to_points_and_known_stores() {
        for preset in all() {
            for figure in preset.figures {
                let known = figure.point.is_empty()
                    || preset.points.iter().any(|point| point.name == figure.point);
                assert!(known, "{}: no point {}", preset.name, figure.point);
                assert!(figure.value.is_finite() && figure.value > 0.0, "{figure:?}");
                let stores: Vec<_> = preset.engines.iter().chain(preset.peers).collect();
                for name in [figure.stands_for, figure.relative_to] {
                    let there = name.is_empty() || stores.contains(&&name);
                    assert!(there, "{}: {figure:?}", preset.name);
                }
            }
        }
    }

    #[test]
    fn every_experiment_of_the_checklist_has_a_preset() {
        for name in [
            "smoke",
            "cedrusdb-fig4",
            "cedrusdb-fig9",
            "cedrusdb-fig10",
            "cedrusdb-fig11",
            "cedrusdb-fig12",
            "cedrusdb-fig13",
            "cedrusdb-fig14",
            "cedrusdb-fig15",
            "cedrusdb-fig16",
            "cedrusdb-fig17",
            "cedrusdb-fig18a",
            "cedrusdb-fig18b",
            "cedrusdb-fig19",
            "cedrusdb-table1",
            "slmdb-sync",
            "slmdb-table1",
            "slmdb-fig2",
            "slmdb-fig4",
            "slmdb-fig5",
            "slmdb-fig6",
            "slmdb-table2",
            "slmdb-fig7",
            "slmdb-thresholds",
            "slmdb-fig8",
            "slmdb-20gb",
            "compassdb-table2",
            "compassdb-ycsb-c",
            "compassdb-dbbench",
            "compassdb-fig13",
            "compassdb-fig14",
            "compassdb-memory",
            "compassdb-one-level",
            "compassdb-single-tier",
            "compassdb-hash-range",
            "ckvs-perf",
            "logkv-table1",
            "logkv-table2",
            "logkv-fig3",
            "logkv-fig4",
            "logkv-fig5",
            "logkv-table3",
        ] {
            assert!(find(name).is_ok(), "{name}");
        }
    }
}
