//! Scaling: the same workload with more threads, and with more records.

use std::collections::BTreeMap;

use crate::numbers::to_f64;

use super::{
    document::{Chart, Document, Table, TableCell},
    lines::{self, Axis, Series},
    model::{Case, CaseGroup, Spread, StoreCell},
    styles::Styles,
    units,
};
use crate::{result::Metric, store::Family};

/// The quantity that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScalingAxis {
    Threads,
    Records,
}

/// Cases that differ in one quantity only.
struct ScalingSeries<'a> {
    cases: Vec<(u64, &'a Case<'a>)>,
}

/// Adds the section if there are such cases.
pub(super) fn add(groups: &[CaseGroup<'_>], styles: &Styles, to: &mut Document) {
    let cases: Vec<&Case<'_>> = groups.iter().flat_map(|group| &group.cases).collect();
    let mut any = false;
    for by in [ScalingAxis::Threads, ScalingAxis::Records] {
        let ladders = ladders(&cases, by);
        if ladders.is_empty() {
            continue;
        }
        if !any {
            to.heading(2, "Scaling");
            any = true;
        }
        to.heading(
            3,
            match by {
                ScalingAxis::Threads => "By threads",
                ScalingAxis::Records => "By records",
            },
        );
        to.text(match by {
            ScalingAxis::Threads => {
                "Throughput of all threads together; median, and a line from the least to the \
                 greatest. The table gives multiples of the throughput with the fewest threads."
            }
            ScalingAxis::Records => {
                "Throughput as the number of records grows; median, and a line from the least to \
                 the greatest. The table gives multiples of the throughput with the fewest records."
            }
        });
        to.charts(ladders.iter().filter_map(|ladder| ladder.chart(by, styles)).collect());
        for ladder in &ladders {
            to.table(ladder.table(by));
        }
    }
}

fn step(case: &Case<'_>, by: ScalingAxis) -> u64 {
    match by {
        ScalingAxis::Threads => case.sample.workload.threads,
        ScalingAxis::Records => case.sample.workload.records,
    }
}

/// Returns whether two cases differ in `by` only. The point of a preset may differ too, because it
/// may name this quantity.
fn only_differs(a: &Case<'_>, b: &Case<'_>, by: ScalingAxis) -> bool {
    let (of_a, of_b) = (&a.sample.workload, &b.sample.workload);
    let same_kind =
        std::mem::discriminant(&a.sample.memory) == std::mem::discriminant(&b.sample.memory);
    let same_memory = match by {
        ScalingAxis::Threads => same_kind,
        ScalingAxis::Records => {
            same_kind
                && (matches!(a.sample.memory, crate::store::MemoryMode::Fits { .. })
                    || a.sample.memory == b.sample.memory)
        }
    };
    same_memory
        && (&of_a.suite, &of_a.name) == (&of_b.suite, &of_b.name)
        && (of_a.key_bytes, &of_a.value_bytes) == (of_b.key_bytes, &of_b.value_bytes)
        && (of_a.batch, of_a.load_batch, of_a.rate) == (of_b.batch, of_b.load_batch, of_b.rate)
        && of_a.is_settled == of_b.is_settled
        && a.sample.durability == b.sample.durability
        && (by == ScalingAxis::Threads || of_a.threads == of_b.threads)
        && (by == ScalingAxis::Records || of_a.records == of_b.records)
}

/// Returns the series with at least two steps, each sorted. Of two cases at one step the later one
/// counts.
fn ladders<'a>(cases: &[&'a Case<'a>], by: ScalingAxis) -> Vec<ScalingSeries<'a>> {
    let mut ladders: Vec<ScalingSeries<'a>> = Vec::new();
    for case in cases {
        let at = step(case, by);
        let fits = |ladder: &&mut ScalingSeries<'a>| {
            ladder.cases.first().is_some_and(|(_, first)| only_differs(first, case, by))
        };
        match ladders.iter_mut().find(fits) {
            Some(ladder) => match ladder.cases.iter_mut().find(|(step, _)| *step == at) {
                Some(place) => place.1 = case,
                None => ladder.cases.push((at, case)),
            },
            None => ladders.push(ScalingSeries { cases: vec![(at, case)] }),
        }
    }
    ladders.retain(|ladder| ladder.cases.len() > 1);
    for ladder in &mut ladders {
        ladder.cases.sort_by_key(|(step, _)| *step);
    }
    ladders
}

impl<'a> ScalingSeries<'a> {
    /// Returns the throughput of each store at each step; ours and peers.
    fn stores(&self) -> Vec<(&'a StoreCell<'a>, BTreeMap<u64, Spread>)> {
        let mut stores: Vec<(&'a StoreCell<'a>, BTreeMap<u64, Spread>)> = Vec::new();
        for (step, case) in &self.cases {
            for cell in case.cells.iter().filter(|cell| cell.store.family != Family::Reference) {
                let Some(spread) = cell.spread(Metric::OpsPerSecond) else { continue };
                match stores.iter_mut().find(|(known, _)| known.store.name == cell.store.name) {
                    Some((_, steps)) => {
                        steps.insert(*step, spread);
                    }
                    None => stores.push((cell, BTreeMap::from([(*step, spread)]))),
                }
            }
        }
        stores.sort_by_key(|(cell, _)| cell.store.family != Family::Ours);
        stores
    }

    fn title(&self) -> String {
        self.cases.first().map_or(String::new(), |(_, case)| {
            let workload = &case.sample.workload;
            format!("{} {}", workload.suite, workload.name)
        })
    }

    fn chart(&self, by: ScalingAxis, styles: &Styles) -> Option<Chart> {
        let stores = self.stores();
        let series: Vec<Series> = stores
            .iter()
            .map(|(cell, steps)| Series {
                name: cell.store.name.clone(),
                class: styles.class(&cell.store.name, cell.store.family),
                points: steps.iter().map(|(at, rate)| [place(*at), rate.median]).collect(),
                spreads: steps
                    .iter()
                    .map(|(at, rate)| [place(*at), rate.least, rate.greatest])
                    .collect(),
            })
            .collect();
        let rates = stores.iter().flat_map(|(_, steps)| steps.values());
        let end = units::nice(rates.fold(0.0, |most, rate| rate.greatest.max(most)));
        let (first, last) = (self.cases.first()?.0, self.cases.last()?.0);
        // A margin on both sides keeps dots off the edges.
        let margin = 0.04 * (place(last) - place(first)).max(0.1);
        let x = Axis {
            title: match by {
                ScalingAxis::Threads => "threads (log scale)".to_owned(),
                ScalingAxis::Records => "records (log scale)".to_owned(),
            },
            from: place(first) - margin,
            to: place(last) + margin,
            ticks: self.cases.iter().map(|(at, _)| (place(*at), units::count(*at))).collect(),
        };
        let tick = |part: f64| {
            let text = if part > 0.0 { units::scaled(end * part) } else { "0".to_owned() };
            (end * part, text)
        };
        let y = Axis {
            title: "throughput, ops/s".to_owned(),
            from: 0.0,
            to: end,
            ticks: [0.0, 0.25, 0.5, 0.75, 1.0].map(tick).to_vec(),
        };
        let about = self
            .cases
            .first()
            .map_or(String::new(), |(_, case)| case.sample.workload.about.clone());
        let picture = lines::draw(&x, &y, &series);
        (!series.is_empty()).then(|| Chart { title: self.title(), about, picture })
    }

    fn table(&self, by: ScalingAxis) -> Table {
        let unit = match by {
            ScalingAxis::Threads => "threads",
            ScalingAxis::Records => "records",
        };
        let titles: Vec<String> = self
            .cases
            .iter()
            .map(|(at, _)| format!("{} {unit}, ops/s", units::count(*at)))
            .collect();
        let name = format!("{}: store", self.title());
        let mut head = vec![name.as_str()];
        head.extend(titles.iter().map(String::as_str));
        let mut table = Table::new(1, &head);
        for (cell, steps) in self.stores() {
            let base = steps.values().next().map(|spread| spread.median);
            let mut row: Vec<TableCell> = vec![(&*cell.store.name).into()];
            row.extend(self.cases.iter().map(|(at, _)| {
                let Some(rate) = steps.get(at) else { return units::NONE.into() };
                let multiple = base.filter(|base| *base > 0.0).map(|base| rate.median / base);
                let multiple =
                    multiple.map_or(String::new(), |m| format!(" ({})", units::ratio(m)));
                format!("{}{multiple}", units::scaled(rate.median)).into()
            }));
            table.row(row);
        }
        table
    }
}

/// Returns the position of a number of threads or records on a logarithmic axis.
fn place(value: u64) -> f64 {
    to_f64(value.max(1)).log2()
}
