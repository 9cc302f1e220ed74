//! The definition of a preset: stores, points and figures.

use quintet_bench::{
    report::Remark,
    result::{Metric, PaperFigure},
    session::{
        job::scaled,
        plan::{MemoryPlan, StepRequest},
    },
    store::{Durability, Stores as _},
    workload::{OperationMix, Suite, WorkloadSpec, logkv::LogKvPoint},
};

use crate::{design, paper::Paper, stores::AllStores};

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
    /// Metrics that the experiment is about.
    pub metrics: &'static [Metric],
    /// Figures of the paper.
    pub figures: &'static [PaperFigure],
    /// Causes of figures that are worse than the paper's, and what was tried.
    pub remarks: &'static [Remark],
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
                    // The committed results have no deletes.
                    delete_fraction: 0.0,
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
    pub(super) const DEFAULT: Self = Self {
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
        metrics: &[Metric::OpsPerSecond],
        figures: &[],
        remarks: &[],
    };

    /// Returns the paper that the preset is an experiment of.
    pub fn paper(&self) -> Option<Paper> {
        Paper::of_preset(self.name)
    }

    /// Returns the designs of the paper on the engines of the preset.
    pub fn designs(&self) -> impl Iterator<Item = &'static str> {
        let designs = self.engines.iter().filter_map(|engine| design::of(self.paper()?, engine));
        designs.map(|design| design.name)
    }

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
pub(super) const fn point(
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
    pub(super) const fn threads(mut self, threads: u64) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the sizes of keys and values.
    pub(super) const fn sizes(mut self, key_bytes: usize, value_bytes: &'static [usize]) -> Self {
        self.key_bytes = key_bytes;
        self.value_bytes = value_bytes;
        self
    }

    /// Sets options of engines.
    pub(super) const fn with(
        mut self,
        settings: &'static [(&'static str, &'static str, &'static str)],
    ) -> Self {
        self.settings = settings;
        self
    }
}

/// Returns a figure of a paper in its own unit.
pub(super) const fn paper(
    point: &'static str,
    store: &'static str,
    stands_for: &'static str,
    metric: Metric,
    value: f64,
) -> PaperFigure {
    PaperFigure { point, store, stands_for, relative_to: "", metric, value, note: "" }
}

/// Returns a figure of a paper that is a ratio to another store.
pub(super) const fn ratio(
    point: &'static str,
    store: &'static str,
    [stands_for, relative_to]: [&'static str; 2],
    metric: Metric,
    value: f64,
    note: &'static str,
) -> PaperFigure {
    PaperFigure { point, store, stands_for, relative_to, metric, value, note }
}

/// Returns the cause of worse figures of a point. An empty point or peer is any.
pub(super) const fn remark(
    point: &'static str,
    peer: &'static str,
    metric: Option<Metric>,
    text: &'static str,
) -> Remark {
    Remark { point, peer, metric, text }
}
