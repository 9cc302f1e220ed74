//! What a paper prints, what runs here, and the verdict.
//!
//! Comparable are the ratio to a peer that runs in both places, and figures that do not depend on
//! the machine, such as bytes of the index per key. All else has a row with the reason.

use crate::{
    numbers::{to_f64, to_u64},
    report::{
        input::{Experiment, Experiments, Remark},
        model::{Case, CaseGroup},
        units,
    },
    result::{Metric, PaperFigure},
};

/// Ratios of 0.95 to 1.05 are equal: repetitions differ by as much.
const EQUAL: f64 = 0.05;

/// One figure of a paper beside what runs here.
#[derive(Debug, PartialEq)]
pub(super) struct PaperRow {
    pub(super) point: String,
    pub(super) figure: String,
    /// Our engine.
    pub(super) engine: String,
    /// Peer; empty if the figure itself compares.
    pub(super) peer: String,
    /// Figure or ratio in the paper.
    pub(super) paper: String,
    /// Our default.
    pub(super) ours: Reading,
    /// The paper's own design here; `None` if it is no choice of this preset.
    pub(super) design: Option<Reading>,
    /// Cause of a worse figure, and what was tried.
    pub(super) remark: &'static str,
}

/// A figure here, and how it compares with the paper's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) text: String,
    pub(super) verdict: Verdict,
}

/// How a figure compares with the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Better,
    Equal,
    Worse,
    /// The reason.
    NotComparable(&'static str),
}

impl Verdict {
    /// Returns the verdict about `here / there`, where more is better.
    fn of(here: f64, there: f64) -> Self {
        match here / there {
            // Both may be zero.
            _ if here.total_cmp(&there).is_eq() => Self::Equal,
            ratio if ratio.is_nan() => Self::NotComparable("not measured"),
            ratio if ratio > 1.0 + EQUAL => Self::Better,
            ratio if ratio < 1.0 - EQUAL => Self::Worse,
            _ => Self::Equal,
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Equal => "equal",
            Self::Worse => "worse",
            Self::NotComparable(_) => "not comparable",
        }
    }
}

/// Returns whether a figure is the same on any machine.
const fn depends_on_no_machine(metric: Metric) -> bool {
    matches!(
        metric,
        Metric::WriteAmplification
            | Metric::ReadAmplification
            | Metric::IosPerRead
            | Metric::SpaceAmplification
            | Metric::IndexBytesPerKey
            | Metric::RecoveryErrorRate
    )
}

/// Formats a figure with its unit.
pub(super) fn with_unit(metric: Metric, value: f64) -> String {
    match metric.unit() {
        "" => units::digits(value),
        unit @ ("ops/s" | "B") => format!("{} {unit}", units::scaled(value)),
        unit => format!("{} {unit}", units::digits(value)),
    }
}

/// The rows of a preset.
pub(super) struct PaperRows<'a> {
    group: &'a CaseGroup<'a>,
    experiment: Experiment,
    experiments: &'a dyn Experiments,
    rows: Vec<PaperRow>,
}

impl<'a> PaperRows<'a> {
    /// Returns the rows of the figures of the paper's own store.
    pub(super) fn of(
        group: &'a CaseGroup<'a>,
        experiment: Experiment,
        experiments: &'a dyn Experiments,
    ) -> Vec<PaperRow> {
        let mut rows = Self { group, experiment, experiments, rows: Vec::new() };
        let figures = experiment.figures;
        for figure in figures.iter().filter(|figure| is_ours(figure)) {
            rows.add_figure(figure);
        }
        rows.rows
    }

    /// Adds the rows of a figure of the paper's own store.
    fn add_figure(&mut self, figure: &PaperFigure) {
        if !figure.relative_to.is_empty() {
            self.add_ratio(figure, figure.relative_to, figure.relative_to, figure.value);
            return;
        }
        let is_peer = |peer: &&PaperFigure| {
            !is_ours(peer)
                && peer.relative_to.is_empty()
                && (peer.point, peer.metric) == (figure.point, figure.metric)
        };
        let mut peers = self.experiment.figures.iter().filter(is_peer).peekable();
        if peers.peek().is_none() {
            self.add_value(figure);
        }
        for peer in peers {
            self.add_ratio(figure, peer.stands_for, peer.store, figure.value / peer.value);
        }
    }

    /// Adds the ratio of a figure to a peer: `there` in the paper. `peer` is empty if it cannot be
    /// had here.
    fn add_ratio(&mut self, figure: &PaperFigure, peer: &str, peer_name: &str, there: f64) {
        let metric = figure.metric;
        let better = |ratio: f64| if metric.more_is_better() { ratio } else { 1.0 / ratio };
        let there = better(there);
        let points = Points::of(self.group, figure);
        let reading = |store: &str| {
            if peer.is_empty() {
                return none("this peer cannot be had here");
            }
            let ratio = |case: &Case<'_>| {
                let median = |store: &str| case.cell(store)?.median(metric);
                Some(better(median(store)? / median(peer)?))
            };
            match points.sum_up(ratio) {
                Some(here) => {
                    Reading { text: units::ratio(here), verdict: Verdict::of(here, there) }
                }
                None => none(points.missing(&[store, peer])),
            }
        };
        let paper = units::ratio(there);
        self.push(figure, points.title(figure), (peer, peer_name), paper, reading);
    }

    /// Adds a figure that the paper prints without a peer.
    fn add_value(&mut self, figure: &PaperFigure) {
        let metric = figure.metric;
        let points = Points::of(self.group, figure);
        let better = |value: f64| if metric.more_is_better() { value } else { 1.0 / value };
        let reading = |store: &str| {
            let value = |case: &Case<'_>| case.cell(store)?.median(metric);
            let Some(here) = points.sum_up(value) else { return none(points.missing(&[store])) };
            let verdict = if depends_on_no_machine(metric) {
                Verdict::of(better(here), better(figure.value))
            } else {
                Verdict::NotComparable("another machine without a peer")
            };
            Reading { text: with_unit(metric, here), verdict }
        };
        let paper = with_unit(metric, figure.value);
        self.push(figure, points.title(figure), ("", ""), paper, reading);
    }

    fn design(&self, engine: &str) -> Option<&'static str> {
        let name = self.experiments.design(self.group.name, engine)?;
        let has_run = self.group.cases.iter().any(|case| case.cell(name).is_some());
        has_run.then_some(name)
    }

    fn remark(&self, point: &str, peer: &str, metric: Metric) -> &'static str {
        let is_meant = |remark: &&Remark| {
            (remark.point.is_empty() || remark.point == point)
                && (remark.peer.is_empty() || remark.peer == peer)
                && remark.metric.is_none_or(|known| known == metric)
        };
        self.experiment.remarks.iter().find(is_meant).map_or("", |remark| remark.text)
    }

    /// Adds a row, unless an earlier figure of the paper gave the same.
    fn push(
        &mut self,
        figure: &PaperFigure,
        point: String,
        (peer, peer_name): (&str, &str),
        paper: String,
        reading: impl Fn(&str) -> Reading,
    ) {
        let metric = figure.metric;
        let row = PaperRow {
            figure: metric.title().to_owned(),
            engine: figure.stands_for.to_owned(),
            peer: peer_name.to_owned(),
            paper,
            ours: reading(figure.stands_for),
            design: self.design(figure.stands_for).map(reading),
            remark: self.remark(figure.point, peer, metric),
            point,
        };
        let same = |known: &PaperRow| {
            (&known.point, &known.figure) == (&row.point, &row.figure)
                && (&known.ours.text, &known.paper) == (&row.ours.text, &row.paper)
        };
        if !self.rows.iter().any(same) {
            self.rows.push(row);
        }
    }
}

/// The cases that a figure of a paper is about.
struct Points<'a> {
    cases: Vec<&'a Case<'a>>,
    takes_best: bool,
}

impl<'a> Points<'a> {
    fn of(group: &'a CaseGroup<'a>, figure: &PaperFigure) -> Self {
        let cases = cases_of(group, figure).into_iter().filter_map(|(_, case)| case).collect();
        Self { cases, takes_best: figure.point == PaperFigure::BEST }
    }

    fn title(&self, figure: &PaperFigure) -> String {
        match figure.point {
            PaperFigure::MEAN => "mean of all".to_owned(),
            PaperFigure::BEST => "best of all".to_owned(),
            point => self.cases.first().map_or(point, |case| &case.label).to_owned(),
        }
    }

    /// Returns the best value or the geometric mean; `None` if no case has a value.
    fn sum_up(&self, value: impl Fn(&Case<'_>) -> Option<f64>) -> Option<f64> {
        let values = self.cases.iter().filter_map(|case| value(case));
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let sum = if let [value] = values.as_slice() {
            *value
        } else if self.takes_best {
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
        } else {
            let logs: f64 = values.iter().map(|value| value.ln()).sum();
            (logs / to_f64(to_u64(values.len()))).exp()
        };
        (!values.is_empty() && sum.is_finite()).then_some(sum)
    }

    /// Returns why one of the stores has no figure.
    fn missing(&self, stores: &[&str]) -> &'static str {
        missing(self.cases.first().copied(), stores)
    }
}

/// Returns the cases of a figure by name; its own point without a case if it did not run.
pub(super) fn cases_of<'a>(
    group: &'a CaseGroup<'a>,
    figure: &PaperFigure,
) -> Vec<(String, Option<&'a Case<'a>>)> {
    let is_meant = |case: &&Case<'_>| {
        let point = figure.point;
        [PaperFigure::MEAN, PaperFigure::BEST].contains(&point)
            || case.sample.point.as_deref().unwrap_or(&case.label) == point
    };
    let cases = group.cases.iter().filter(is_meant);
    let mut cases: Vec<_> = cases.map(|case| (case.label.clone(), Some(case))).collect();
    if cases.is_empty() {
        // Points that did not run stay visible.
        cases.push((figure.point.to_owned(), None));
    }
    cases
}

/// Returns whether a name is one of our engines, without options of a paper.
fn is_engine(name: &str) -> bool {
    name.parse::<quintet::EngineKind>().is_ok()
}

fn is_ours(figure: &PaperFigure) -> bool {
    is_engine(figure.stands_for)
}

/// Returns a figure that is missing for this reason.
fn none(reason: &'static str) -> Reading {
    Reading { text: units::NONE.to_owned(), verdict: Verdict::NotComparable(reason) }
}

/// Returns why one of the stores has no figure in a case.
pub(super) fn missing(case: Option<&Case<'_>>, stores: &[&str]) -> &'static str {
    let Some(case) = case else { return "not run" };
    let mut reason = "not measured";
    for store in stores {
        match case.cell(store) {
            None => reason = "not run",
            Some(cell) if cell.errors().next().is_some() => return "failed",
            Some(_) => {}
        }
    }
    reason
}
