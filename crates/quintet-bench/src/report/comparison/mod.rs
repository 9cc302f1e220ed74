//! The sections of one group: ratios, throughput, latencies, costs, all figures.

mod bars;

use bars::{Bar, CutPolicy};

use super::{
    document::{Chart, Document, Mark, Table, TableCell},
    limit::LimitIndex,
    lines::{self, Axis, Series},
    model::{Case, CaseGroup, LatencyKind, Spread, StoreCell},
    styles::Styles,
    units,
};
use crate::{numbers::to_f64, result::Metric, store::Family};

/// Quantiles of a latency curve. The maximum is added.
const QUANTILES: [f64; 19] = [
    0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999,
    0.9995, 0.9999, 0.99999,
];
/// Maximum of the axis of percentiles, in nines.
const NINES_MAX: f64 = 6.0;

/// Costs that have charts.
const COSTS: [Cost; 7] = [
    Cost::MemoryPerKey,
    Cost::Figure(Metric::IndexBytesPerKey),
    Cost::Figure(Metric::WriteAmplification),
    Cost::Figure(Metric::SpaceAmplification),
    Cost::Figure(Metric::ReadAmplification),
    Cost::Figure(Metric::IosPerRead),
    Cost::Figure(Metric::RecoverySeconds),
];
/// Costs below this limit are shown as 0 everywhere.
const NOTHING: f64 = 0.005;

/// Metrics whose ratios are in a folded table. Less is better for all of them.
const OTHER_RATIOS: [Metric; 8] = [
    Metric::ReadP99Us,
    Metric::WriteP99Us,
    Metric::WriteAmplification,
    Metric::IosPerRead,
    Metric::SpaceAmplification,
    Metric::IndexBytesPerKey,
    Metric::PeakResidentBytes,
    Metric::RecoverySeconds,
];

/// Adds the sections of `group`.
pub(super) fn add(
    group: &CaseGroup<'_>,
    styles: &Styles,
    bound: &LimitIndex<'_>,
    to: &mut Document,
) {
    to.text(format!("{}. Run {}.", group.constants, group.run_id));
    to.heading(3, "Ratios of ours to each peer");
    to.text(
        "Throughput of ours divided by the peer's: above 1 ours is faster, below 1 (\u{25bc}) it \
         loses. Beside it the worst and the best that the repetitions allow. The multiple of the \
         limit says how many times longer than the binding limit of the machine an operation \
         takes.",
    );
    to.table(ratios(group, bound));
    to.folded("Ratios of other figures (the peer's divided by ours: above 1 ours is better)", {
        other_ratios(group)
    });
    to.heading(3, "Throughput");
    to.text(
        "Median of the repetitions; the thin line runs from the slowest to the fastest. \u{25bc}: \
         a peer is faster. Reference stores keep nothing on disk; where they leave the scale their \
         bars are cut.",
    );
    to.charts(throughput_charts(group));
    add_latencies(group, styles, to);
    let costs = cost_charts(group);
    if !costs.is_empty() {
        to.heading(3, "Amplification, memory a key, recovery");
        to.text(
            "Less is better. Device bytes count loading and operations together. Memory is the \
             process's at the end, caches and harness included. Each workload's own figures are in \
             the tables below. A peer far beyond all others has its bar cut.",
        );
        to.charts(costs);
    }
    to.heading(3, "All figures");
    for case in &group.cases {
        to.heading(4, case.label.clone());
        to.text(case.about.clone());
        to.table(figures(case, bound));
    }
}

/// Returns the names of the stores of a family in a group, each once.
fn names<'a>(group: &CaseGroup<'a>, family: Family) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in group.cases.iter().flat_map(|case| case.of(family)) {
        if !names.contains(&cell.store.name.as_str()) {
            names.push(&cell.store.name);
        }
    }
    names
}

/// Returns how many times better `ours` is than `peer`.
pub(super) fn advantage(
    ours: &StoreCell<'_>,
    peer: &StoreCell<'_>,
    metric: Metric,
) -> Option<Spread> {
    let (ours, peer) = (ours.spread(metric)?, peer.spread(metric)?);
    if metric.more_is_better() { ours.over(peer) } else { peer.over(ours) }
}

/// Returns the cell of a ratio with its spread and mark.
fn ratio_entry(ratio: Spread) -> TableCell {
    let note = if ratio.least < ratio.greatest {
        format!("{} to {}", units::digits(ratio.least), units::digits(ratio.greatest))
    } else {
        String::new()
    };
    let mark = if ratio.median < 1.0 { Mark::Loses } else { Mark::Wins };
    TableCell { text: units::ratio(ratio.median), note, mark }
}

/// Returns the ratio of `ours` to the peer of this name in a case, or the reason why there is none.
fn against(case: &Case<'_>, ours: &StoreCell<'_>, peer: &str, metric: Metric) -> TableCell {
    let Some(peer) = case.cell(peer) else { return units::NONE.into() };
    match advantage(ours, peer, metric) {
        Some(ratio) => ratio_entry(ratio),
        None if peer.spread(metric).is_none() && peer.errors().next().is_some() => "failed".into(),
        None => units::NONE.into(),
    }
}

fn ratios(group: &CaseGroup<'_>, bound: &LimitIndex<'_>) -> Table {
    let peers = names(group, Family::Peer);
    let titles: Vec<String> = peers.iter().map(|peer| format!("to {peer}")).collect();
    let mut head = vec!["workload", "store", "throughput, ops/s"];
    head.extend(titles.iter().map(String::as_str));
    head.extend(["x floor", "x limit"]);
    let mut table = Table::new(2, &head);
    for case in &group.cases {
        for ours in case.of(Family::Ours) {
            let mut row: Vec<TableCell> =
                vec![case.label.clone().into(), (&*ours.store.name).into()];
            row.push(throughput(ours));
            row.extend(peers.iter().map(|peer| against(case, ours, peer, Metric::OpsPerSecond)));
            row.push(TableCell::figure(of_floor(case, ours), units::ratio));
            row.push(bound.entry(ours));
            table.row(row);
        }
    }
    table
}

fn other_ratios(group: &CaseGroup<'_>) -> Table {
    let peers = names(group, Family::Peer);
    let titles: Vec<String> = peers.iter().map(|peer| format!("to {peer}")).collect();
    let mut head = vec!["figure", "workload", "store"];
    head.extend(titles.iter().map(String::as_str));
    let mut table = Table::new(3, &head);
    for metric in OTHER_RATIOS {
        for case in &group.cases {
            for ours in case.of(Family::Ours).filter(|cell| cell.spread(metric).is_some()) {
                let mut row: Vec<TableCell> = vec![
                    metric.title().into(),
                    case.label.clone().into(),
                    (&*ours.store.name).into(),
                ];
                let ratios: Vec<TableCell> =
                    peers.iter().map(|peer| against(case, ours, peer, metric)).collect();
                if ratios.iter().any(|entry| entry.mark != Mark::None) {
                    row.extend(ratios);
                    table.row(row);
                }
            }
        }
    }
    table
}

/// Returns the cell of the median, or of the failure.
fn throughput(cell: &StoreCell<'_>) -> TableCell {
    match cell.median(Metric::OpsPerSecond) {
        Some(rate) => units::scaled(rate).into(),
        None => "failed".into(),
    }
}

/// Returns the time of an operation as a multiple of the time of `floor` in the same case.
fn of_floor(case: &Case<'_>, cell: &StoreCell<'_>) -> Option<f64> {
    let floor = case.cell("floor")?.ns_per_operation()?;
    cell.ns_per_operation().map(|time| time / floor)
}

/// Returns whether a peer is better than `cell`, which is ours.
fn loses(case: &Case<'_>, cell: &StoreCell<'_>, metric: Metric) -> bool {
    cell.store.family == Family::Ours
        && case
            .of(Family::Peer)
            .filter_map(|peer| advantage(cell, peer, metric))
            .any(|ratio| ratio.median < 1.0)
}

/// Returns a chart of throughput for each case.
fn throughput_charts(group: &CaseGroup<'_>) -> Vec<Chart> {
    let metric = Metric::OpsPerSecond;
    let chart = |case: &Case<'_>| {
        let bar = |cell: &StoreCell<'_>| {
            let spread = cell.spread(metric);
            Bar {
                name: cell.store.name.clone(),
                family: cell.store.family,
                spread,
                text: spread
                    .map_or("failed".to_owned(), |spread| figure_text(metric, spread.median)),
                loses: loses(case, cell, metric),
            }
        };
        let bars: Vec<Bar> = case.cells.iter().map(bar).collect();
        Chart {
            title: case.label.clone(),
            about: case.about.clone(),
            picture: bars::draw(
                "throughput, ops/s (more is better)",
                &bars,
                CutPolicy::None,
                |value| figure_text(metric, value),
            ),
        }
    };
    group.cases.iter().map(chart).collect()
}

/// Returns a chart of each cost over all cases. A cost that is zero everywhere is left out.
fn cost_charts(group: &CaseGroup<'_>) -> Vec<Chart> {
    let chart = |cost: &Cost| {
        let mut bars = Vec::new();
        for family in [Family::Ours, Family::Peer, Family::Reference] {
            for name in names(group, family) {
                if let Some(bar) = cost.bar(group, name, family) {
                    bars.push(bar);
                }
            }
        }
        let medians = |family: Family| {
            let of_family = bars.iter().filter(move |bar: &&Bar| bar.family == family);
            of_family.filter_map(|bar| bar.spread).map(|spread| spread.median)
        };
        let best = medians(Family::Peer).fold(f64::INFINITY, f64::min);
        let is_nothing = [Family::Ours, Family::Peer, Family::Reference]
            .into_iter()
            .all(|family| medians(family).all(|median| median < NOTHING));
        for bar in bars.iter_mut().filter(|bar| bar.family == Family::Ours) {
            bar.loses = bar.spread.is_some_and(|spread| spread.median > best);
        }
        let cases = match group.cases.len() {
            1 => String::new(),
            count => format!("median of {count} workloads, and from the least to the greatest"),
        };
        (!is_nothing).then(|| Chart {
            title: cost.title().to_owned(),
            about: cases,
            picture: bars::draw(&cost.axis(), &bars, CutPolicy::FarPeers, |value| cost.text(value)),
        })
    };
    COSTS.iter().filter_map(chart).collect()
}

/// A cost of a store.
#[derive(Clone, Copy, Debug)]
enum Cost {
    /// Resident memory per key.
    MemoryPerKey,
    /// A metric of which less is better.
    Figure(Metric),
}

impl Cost {
    const fn title(self) -> &'static str {
        match self {
            Self::MemoryPerKey => "resident memory a key",
            Self::Figure(metric) => metric.title(),
        }
    }

    fn axis(self) -> String {
        let unit = match self {
            Self::MemoryPerKey => "B/key",
            Self::Figure(metric) => metric.unit(),
        };
        let unit = if unit.is_empty() { "ratio" } else { unit };
        format!("{}, {unit} (less is better)", self.title())
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::MemoryPerKey => format!("{} B", units::digits(value)),
            Self::Figure(metric) => figure_text(metric, value),
        }
    }

    /// Returns the medians of a store over the cases; none if it has no such figure.
    fn bar(self, group: &CaseGroup<'_>, name: &str, family: Family) -> Option<Bar> {
        let of_case = |case: &Case<'_>| {
            let cell = case.cell(name)?;
            let spread = match self {
                Self::MemoryPerKey => cell.memory_per_key(),
                Self::Figure(metric) => cell.spread(metric),
            };
            spread.map(|spread| spread.median)
        };
        let medians: Vec<f64> = group.cases.iter().filter_map(of_case).collect();
        let spread = Spread::of(&medians)?;
        let (name, text) = (name.to_owned(), self.text(spread.median));
        Some(Bar { name, family, spread: Some(spread), text, loses: false })
    }
}

/// Formats a figure in a suitable unit, for charts.
pub(super) fn figure_text(metric: Metric, value: f64) -> String {
    match metric {
        Metric::OpsPerSecond | Metric::LoadOpsPerSecond => units::scaled(value),
        Metric::ReadMeanUs | Metric::ReadP99Us | Metric::WriteMeanUs | Metric::WriteP99Us => {
            units::time(value * 1e3)
        }
        Metric::Seconds | Metric::RecoverySeconds => units::time(value * 1e9),
        Metric::ResidentBytes | Metric::PeakResidentBytes | Metric::DeviceBytesWritten => {
            units::bytes(value)
        }
        Metric::IndexBytesPerKey => format!("{} B", units::digits(value)),
        Metric::WriteAmplification | Metric::ReadAmplification | Metric::SpaceAmplification => {
            units::ratio(value)
        }
        Metric::IosPerRead => units::digits(value),
        Metric::RecoveryErrorRate | Metric::AbortRate => {
            format!("{} %", units::digits(value * 100.0))
        }
    }
}

fn add_latencies(group: &CaseGroup<'_>, styles: &Styles, to: &mut Document) {
    let mut charts = Vec::new();
    for case in &group.cases {
        for (kind, name) in [(LatencyKind::Reads, "reads"), (LatencyKind::Writes, "writes")] {
            if let Some(picture) = latency_picture(case, kind, styles) {
                charts.push(Chart {
                    title: format!("{}: {name}", case.label),
                    about: case.about.clone(),
                    picture,
                });
            }
        }
    }
    if !charts.is_empty() {
        to.heading(3, "Latency percentiles");
        to.text(
            "From the whole histograms of all repetitions together. Both axes are logarithmic: \
             each step to the right is one more nine. Less is better.",
        );
        to.charts(charts);
    }
}

/// Returns the curves of all stores except `null`.
fn latency_picture(case: &Case<'_>, kind: LatencyKind, styles: &Styles) -> Option<String> {
    let mut series = Vec::new();
    let (mut least, mut greatest, mut nines) = (f64::INFINITY, 0.0_f64, 2.0_f64);
    for cell in case.cells.iter().filter(|cell| cell.store.name != "null") {
        let Some(histogram) = cell.latencies(kind) else { continue };
        let samples = to_f64(histogram.len());
        // Beyond this quantile the curve would consist of single operations.
        let end = 1.0 - 1.0 / samples;
        let known = QUANTILES.iter().copied().filter(|quantile| *quantile < end);
        let points: Vec<[f64; 2]> = known
            .chain([end])
            .map(|quantile| {
                let time = to_f64(histogram.value_at_quantile(quantile).max(1));
                least = least.min(time);
                greatest = greatest.max(time);
                [-(1.0 - quantile).log10(), time.log10()]
            })
            .collect();
        nines = nines.max(samples.log10().min(NINES_MAX));
        series.push(Series {
            name: cell.store.name.clone(),
            class: styles.class(&cell.store.name, cell.store.family),
            points,
            spreads: Vec::new(),
        });
    }
    if series.is_empty() {
        return None;
    }
    let percent = ["p90", "p99", "p99.9", "p99.99", "p99.999", "p99.9999"];
    let whole = percent.iter().enumerate().map(|(index, name)| (index + 1, (*name).to_owned()));
    let mut ticks: Vec<(f64, String)> = vec![(2_f64.log10(), "p50".to_owned())];
    ticks.extend(
        whole
            .map(|(count, name)| (to_f64(crate::numbers::to_u64(count)), name))
            .filter(|(at, _)| *at <= nines),
    );
    let x = Axis { title: "percentile of operations".to_owned(), from: 0.0, to: nines, ticks };
    Some(lines::draw(&x, &time_axis("latency (log scale)", least, greatest), &series))
}

/// Returns a logarithmic axis of nanoseconds.
fn time_axis(title: &str, least: f64, greatest: f64) -> Axis {
    let steps = units::steps(least, greatest);
    let tick = |ns: &f64| (ns.log10(), units::whole_time(*ns));
    // Over many powers of ten only these are named.
    let named: Vec<f64> = match steps.len() {
        ..=8 => steps.clone(),
        _ => steps.iter().copied().filter(|ns| units::is_power_of_ten(*ns)).collect(),
    };
    Axis {
        title: title.to_owned(),
        from: steps.first().copied().unwrap_or(1.0).log10(),
        to: steps.last().copied().unwrap_or(10.0).log10(),
        ticks: named.iter().map(tick).collect(),
    }
}

const FIGURES: [&str; 28] = [
    "store",
    "runs",
    "ops/s, median",
    "ops/s, least to greatest",
    "ns an operation",
    "x floor",
    "x limit",
    "read p50",
    "read p99",
    "read p99.9",
    "read max",
    "write p50",
    "write p99",
    "write p99.9",
    "write max",
    "CPU us an operation",
    "load ops/s",
    "resident memory",
    "peak memory",
    "memory B/key",
    "index B/key",
    "write amplification",
    "read amplification",
    "I/Os a read",
    "space amplification",
    "recovery",
    "wrong after recovery",
    "abort rate",
];

fn figures(case: &Case<'_>, bound: &LimitIndex<'_>) -> Table {
    let mut table = Table::new(1, &FIGURES);
    for cell in &case.cells {
        let metric = |metric: Metric| {
            TableCell::figure(cell.median(metric), |value| figure_text(metric, value))
        };
        let cpu = cell.spread_of(|run| {
            // A workload may have been repeated: rate and duration give the number of operations.
            let figures = run.figures.as_ref()?;
            let operations = figures.ops_per_second * figures.seconds;
            (operations > 0.0).then(|| figures.cpu_seconds * 1e6 / operations)
        });
        let failed = cell.errors().count();
        let runs = cell.runs.len() - failed;
        let mut row: Vec<TableCell> = vec![
            (&*cell.store.name).into(),
            if failed > 0 { format!("{runs}, {failed} failed") } else { runs.to_string() }.into(),
            TableCell {
                mark: if loses(case, cell, Metric::OpsPerSecond) {
                    Mark::Loses
                } else {
                    Mark::None
                },
                ..throughput(cell)
            },
            range(cell.spread(Metric::OpsPerSecond)),
            TableCell::figure(cell.ns_per_operation(), units::digits),
            TableCell::figure(of_floor(case, cell), units::ratio),
            bound.entry(cell),
        ];
        for kind in [LatencyKind::Reads, LatencyKind::Writes] {
            row.extend(percentiles(cell, kind));
        }
        row.push(TableCell::figure(cpu.map(|spread| spread.median), units::digits));
        row.push(metric(Metric::LoadOpsPerSecond));
        row.extend([Metric::ResidentBytes, Metric::PeakResidentBytes].map(metric));
        row.push(TableCell::figure(
            cell.memory_per_key().map(|spread| spread.median),
            units::digits,
        ));
        row.push(TableCell::figure(cell.median(Metric::IndexBytesPerKey), units::digits));
        row.extend(
            [
                Metric::WriteAmplification,
                Metric::ReadAmplification,
                Metric::IosPerRead,
                Metric::SpaceAmplification,
                Metric::RecoverySeconds,
                Metric::RecoveryErrorRate,
                Metric::AbortRate,
            ]
            .map(metric),
        );
        table.row(row);
    }
    table
}

fn range(spread: Option<Spread>) -> TableCell {
    let several = spread.filter(|spread| spread.least < spread.greatest);
    several.map_or(units::NONE.into(), |spread| {
        format!("{} to {}", units::scaled(spread.least), units::scaled(spread.greatest)).into()
    })
}

fn percentiles(cell: &StoreCell<'_>, kind: LatencyKind) -> [TableCell; 4] {
    let histogram = cell.latencies(kind);
    [0.5, 0.99, 0.999, 1.0].map(|quantile| {
        let time = histogram.as_ref().map(|times| to_f64(times.value_at_quantile(quantile)));
        TableCell::figure(time, units::time)
    })
}

/// Group, case, our store, peer, and the ratio of their throughput.
pub(super) type Pairing<'a> =
    (&'a CaseGroup<'a>, &'a Case<'a>, &'a StoreCell<'a>, &'a StoreCell<'a>, Spread);

/// Returns every pair of ours and a peer in the same case, with the ratio of their throughput.
pub(super) fn comparisons<'a>(groups: &'a [CaseGroup<'a>]) -> impl Iterator<Item = Pairing<'a>> {
    groups.iter().flat_map(|group| {
        group.cases.iter().flat_map(move |case| {
            case.of(Family::Ours).flat_map(move |ours| {
                case.of(Family::Peer).filter_map(move |peer| {
                    let ratio = advantage(ours, peer, Metric::OpsPerSecond)?;
                    Some((group, case, ours, peer, ratio))
                })
            })
        })
    })
}
