//! Groups runs: repetitions into cells, competing cells into cases, cases into groups.
//!
//! A *cell* is one store in one case, with all its repetitions. A *case* is a combination of
//! settings in which stores compete. A *group* is the cases of one comparison that were requested
//! together: a preset or a suite. The report states settings that all cases of a group share once;
//! the settings that differ name the case.

use crate::{
    machine,
    numbers::to_f64,
    result::{Metric, RunResult},
    store::{Durability, Family, MemoryMode, StoreInfo},
};
use hdrhistogram::Histogram;

use super::{
    input::{Experiment, Experiments},
    units,
};

/// Cases of a comparison. See the module head.
#[derive(Debug)]
pub(super) struct CaseGroup<'a> {
    /// Comparison.
    pub(super) run_id: &'a str,
    /// Preset or suite.
    pub(super) name: &'a str,
    /// Whether `name` is a preset.
    pub(super) is_preset: bool,
    /// Whether another comparison has a group of this name.
    pub(super) is_repeated: bool,
    /// Settings that all cases share.
    pub(super) constants: String,
    /// Cases in the order of their first runs.
    pub(super) cases: Vec<Case<'a>>,
}

/// A combination of settings in which stores compete.
#[derive(Debug)]
pub(super) struct Case<'a> {
    /// Name within the group.
    pub(super) label: String,
    /// Description, with the settings that differ from other cases of the group.
    pub(super) about: String,
    /// One of its runs. All have the same settings except the number of operations.
    pub(super) sample: &'a RunResult,
    /// Stores: ours, then peers, then references.
    pub(super) cells: Vec<StoreCell<'a>>,
}

/// One store in one case.
#[derive(Debug)]
pub(super) struct StoreCell<'a> {
    /// Store.
    pub(super) store: &'a StoreInfo,
    /// Repetitions, including failed ones.
    pub(super) runs: Vec<&'a RunResult>,
}

/// Median, minimum and maximum of a figure over the repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
}

/// Kind of operations of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LatencyKind {
    Reads,
    Writes,
}

/// Returns all groups of `runs` in the order of their first runs.
pub(super) fn groups(runs: &[RunResult]) -> Vec<CaseGroup<'_>> {
    let mut groups: Vec<CaseGroup<'_>> = Vec::new();
    for run in runs {
        let name = run.preset.as_deref().unwrap_or(&run.workload.suite);
        let is_preset = run.preset.is_some();
        let same = |group: &&mut CaseGroup<'_>| {
            group.run_id == run.run_id && group.name == name && group.is_preset == is_preset
        };
        if let Some(group) = groups.iter_mut().find(same) {
            group.add(run);
            continue;
        }
        let mut group = CaseGroup {
            run_id: &run.run_id,
            name,
            is_preset,
            is_repeated: false,
            constants: String::new(),
            cases: Vec::new(),
        };
        group.add(run);
        groups.push(group);
    }
    let names: Vec<(&str, bool)> =
        groups.iter().map(|group| (group.name, group.is_preset)).collect();
    for group in &mut groups {
        let own = (group.name, group.is_preset);
        group.is_repeated = names.iter().filter(|name| **name == own).count() > 1;
        group.name_cases();
        for case in &mut group.cases {
            case.cells.sort_by_key(|cell| match cell.store.family {
                Family::Ours => 0,
                Family::Peer => 1,
                Family::Reference => 2,
            });
        }
    }
    groups
}

impl<'a> CaseGroup<'a> {
    fn add(&mut self, run: &'a RunResult) {
        let known = self.cases.iter().position(|case| competes(case.sample, run));
        let index = known.unwrap_or(self.cases.len());
        if known.is_none() {
            let (label, about) = (String::new(), String::new());
            self.cases.push(Case { label, about, sample: run, cells: Vec::new() });
        }
        let Some(case) = self.cases.get_mut(index) else { return };
        match case.cells.iter_mut().find(|cell| cell.store.name == run.store.name) {
            Some(cell) => cell.runs.push(run),
            None => case.cells.push(StoreCell { store: &run.store, runs: vec![run] }),
        }
    }

    /// Returns the description of the preset; `None` if the group is no preset that is known.
    pub(super) fn experiment(&self, experiments: &dyn Experiments) -> Option<Experiment> {
        if self.is_preset { experiments.find(self.name) } else { None }
    }

    /// Returns the title.
    pub(super) fn title(&self) -> String {
        let kind = if self.is_preset { "Preset " } else { "" };
        let run = if self.is_repeated { format!(", run {}", self.run_id) } else { String::new() };
        format!("{kind}{}{run}", self.name)
    }

    fn name_cases(&mut self) {
        let parameters: Vec<Vec<String>> = self.cases.iter().map(Case::parameters).collect();
        let count = parameters.first().map_or(0, Vec::len);
        let varies = |index: usize| {
            let first = parameters.first().and_then(|list| list.get(index));
            parameters.iter().any(|list| list.get(index) != first)
        };
        let varying: Vec<bool> = (0..count).map(varies).collect();
        let chosen = |list: &[String], wanted: bool| {
            let pairs = list
                .iter()
                .zip(&varying)
                .filter(|(text, varies)| **varies == wanted && !text.is_empty());
            pairs.map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(", ")
        };
        let list = parameters.first().map_or(&[][..], Vec::as_slice);
        self.constants = chosen(list, false);
        let several_suites = self
            .cases
            .iter()
            .any(|case| self.cases.first().is_some_and(|first| case.suite() != first.suite()));
        let short: Vec<String> = self.cases.iter().map(|case| case.name(several_suites)).collect();
        for (index, (case, list)) in self.cases.iter_mut().zip(&parameters).enumerate() {
            let differs = chosen(list, true);
            case.about = case.sample.workload.about.clone();
            let name = short.get(index).cloned().unwrap_or_default();
            if short.iter().filter(|other| **other == name).count() > 1 && !differs.is_empty() {
                case.label = format!("{name}, {differs}");
            } else {
                case.label = name;
                if !differs.is_empty() {
                    case.about = format!("{}; {differs}", case.about);
                }
            }
        }
    }
}

/// Returns whether two runs of a group compete: they have the same settings, except store and
/// number of operations (slow stores may run fewer).
pub(super) fn competes(a: &RunResult, b: &RunResult) -> bool {
    let (of_a, of_b) = (&a.workload, &b.workload);
    // The budgets of stores may differ if all data fits.
    let memory = match (a.memory, b.memory) {
        (MemoryMode::Fits { .. }, MemoryMode::Fits { .. }) => true,
        (a, b) => a == b,
    };
    memory
        && a.point == b.point
        && a.durability == b.durability
        && (&of_a.suite, &of_a.name) == (&of_b.suite, &of_b.name)
        && (of_a.records, of_a.threads, of_a.batch) == (of_b.records, of_b.threads, of_b.batch)
        && (of_a.key_bytes, of_a.random_keys) == (of_b.key_bytes, of_b.random_keys)
        && of_a.value_bytes == of_b.value_bytes
        && (of_a.load_batch, of_a.rate) == (of_b.load_batch, of_b.rate)
        && of_a.is_settled == of_b.is_settled
}

impl<'a> Case<'a> {
    fn suite(&self) -> &str {
        &self.sample.workload.suite
    }

    fn name(&self, with_suite: bool) -> String {
        let workload = &self.sample.workload;
        match &self.sample.point {
            Some(point) => point.clone(),
            None if with_suite => format!("{} {}", workload.suite, workload.name),
            None => workload.name.clone(),
        }
    }

    /// Returns the settings as text, in the same positions for all cases.
    fn parameters(&self) -> Vec<String> {
        let workload = &self.sample.workload;
        let sizes: Vec<String> =
            workload.value_bytes.iter().map(|size| units::size(*size)).collect();
        let many = |count: u64, one: &str, many: &str| {
            format!("{} {}", units::count(count), if count == 1 { one } else { many })
        };
        let optional = |shown: bool, text: String| if shown { text } else { String::new() };
        vec![
            many(workload.records, "record", "records"),
            many(workload.threads, "thread", "threads"),
            format!(
                "{}keys {}",
                if workload.random_keys { "random " } else { "" },
                units::size(workload.key_bytes)
            ),
            format!("values {}", sizes.join(" / ")),
            optional(workload.batch > 1, format!("{} keys a multi_get", workload.batch)),
            optional(workload.load_batch > 1, format!("loaded {} at once", workload.load_batch)),
            optional(workload.is_settled, "at rest after loading".to_owned()),
            workload
                .rate
                .map_or(String::new(), |rate| format!("{} ops/s asked", units::scaled(rate))),
            match self.sample.durability {
                Durability::Buffered => "buffered".to_owned(),
                Durability::Sync => "every write synced".to_owned(),
            },
            match self.sample.memory {
                MemoryMode::Fits { .. } => "all in memory".to_owned(),
                MemoryMode::Limited { limit_bytes, budget_bytes } => {
                    let told = budget_bytes.map(|bytes| format!(", {} told", units::size(bytes)));
                    let limit = units::size(limit_bytes);
                    format!("memory limited to {limit}{}", told.unwrap_or_default())
                }
                MemoryMode::Direct { cache_bytes } => {
                    format!("direct I/O, cache {}", units::size(cache_bytes))
                }
            },
        ]
    }

    /// Returns the cell of a store.
    pub(super) fn cell(&self, store: &str) -> Option<&StoreCell<'a>> {
        self.cells.iter().find(|cell| cell.store.name == store)
    }

    /// Returns the cells of stores of a family.
    pub(super) fn of(&self, family: Family) -> impl Iterator<Item = &StoreCell<'a>> {
        self.cells.iter().filter(move |cell| cell.store.family == family)
    }
}

impl StoreCell<'_> {
    /// Returns a metric over the repetitions; `None` if no repetition has it.
    pub(super) fn spread(&self, metric: Metric) -> Option<Spread> {
        self.spread_of(|run| run.figure(metric))
    }

    /// Returns any figure over the repetitions.
    pub(super) fn spread_of(&self, figure: impl Fn(&RunResult) -> Option<f64>) -> Option<Spread> {
        let figures: Vec<f64> = self.runs.iter().filter_map(|run| figure(run)).collect();
        Spread::of(&figures)
    }

    /// Returns the median of a metric.
    pub(super) fn median(&self, metric: Metric) -> Option<f64> {
        self.spread(metric).map(|spread| spread.median)
    }

    /// Returns nanoseconds between operations, all threads together.
    pub(super) fn ns_per_operation(&self) -> Option<f64> {
        self.median(Metric::OpsPerSecond).filter(|rate| *rate > 0.0).map(|rate| 1e9 / rate)
    }

    /// Returns the latencies of all repetitions together; `None` if no operation was timed.
    pub(super) fn latencies(&self, kind: LatencyKind) -> Option<Histogram<u64>> {
        let mut sum: Option<Histogram<u64>> = None;
        for figures in self.runs.iter().filter_map(|run| run.figures.as_ref()) {
            let latency = match kind {
                LatencyKind::Reads => &figures.reads,
                LatencyKind::Writes => &figures.writes,
            };
            // The reader of the file rejected histograms that cannot be decoded.
            let Ok(Some(histogram)) = latency.histogram() else { continue };
            match &mut sum {
                Some(sum) => sum.add(&histogram).ok()?,
                None => sum = Some(histogram),
            }
        }
        sum.filter(|sum| !sum.is_empty())
    }

    /// Returns the failed repetitions with their errors.
    pub(super) fn errors(&self) -> impl Iterator<Item = (&RunResult, &str)> {
        self.runs.iter().filter_map(|run| Some((*run, run.error.as_deref()?)))
    }

    /// Returns the resident memory per live key in bytes.
    pub(super) fn memory_per_key(&self) -> Option<Spread> {
        self.spread_of(|run| {
            let figures = run.figures.as_ref()?;
            (figures.keys > 0).then(|| to_f64(figures.resident_bytes) / to_f64(figures.keys))
        })
    }
}

impl Spread {
    /// Returns the spread of figures; `None` if there are none.
    pub(super) fn of(figures: &[f64]) -> Option<Self> {
        let (median, least, greatest) = machine::spread(figures);
        (!figures.is_empty()).then_some(Self { median, least, greatest })
    }

    /// Returns the ratio of the same figure of two stores: of the medians, and the worst and best
    /// ratio that the repetitions allow. `None` if a divisor is not above zero.
    pub(super) fn over(self, other: Self) -> Option<Self> {
        let spread = Self {
            median: self.median / other.median,
            least: self.least / other.greatest,
            greatest: self.greatest / other.least,
        };
        let fine = [self.least, other.least].iter().all(|value| *value > 0.0);
        (fine && spread.greatest.is_finite()).then_some(spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_keep_the_worst_and_the_best() {
        let ours = Spread { median: 10.0, least: 8.0, greatest: 12.0 };
        let peer = Spread { median: 5.0, least: 4.0, greatest: 8.0 };
        let ratio = ours.over(peer).unwrap();
        assert_eq!(ratio, Spread { median: 2.0, least: 1.0, greatest: 3.0 });
        let nothing = Spread { median: 0.0, least: 0.0, greatest: 0.0 };
        assert_eq!(ours.over(nothing), None);
        assert_eq!(nothing.over(ours), None);
    }
}
