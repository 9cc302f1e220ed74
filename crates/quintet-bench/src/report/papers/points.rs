//! What runs here at every point of an experiment, whether the paper has a number for it or not.

use crate::{
    report::{
        document::{Table, TableCell},
        input::Experiment,
        model::{Case, CaseGroup},
        units,
    },
    result::Metric,
    store::Family,
};

use super::rows::with_unit;

/// Returns the table of all points: our stores with their ratios to peers, or their values if the
/// experiment has no peer. In a ratio above 1 is better.
pub(super) fn table(group: &CaseGroup<'_>, experiment: Experiment) -> Table {
    let names = |family: Family| {
        let mut names: Vec<&str> = Vec::new();
        let cells = group.cases.iter().flat_map(|case| case.of(family));
        for name in cells.map(|cell| cell.store.name.as_str()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let (peers, ours) = (names(Family::Peer), names(Family::Ours));
    let mut columns: Vec<(&str, Option<&str>)> = Vec::new();
    for store in ours {
        if peers.is_empty() {
            columns.push((store, None));
        }
        columns.extend(peers.iter().map(|peer| (store, Some(*peer))));
    }
    let titles = columns.iter().map(|(store, peer)| match peer {
        Some(peer) => format!("{store} to {peer}"),
        None => (*store).to_owned(),
    });
    let titles: Vec<String> = titles.collect();
    let head: Vec<&str> =
        ["point", "figure"].into_iter().chain(titles.iter().map(String::as_str)).collect();
    let mut table = Table::new(2, &head);
    for case in &group.cases {
        for metric in experiment.metrics {
            let mut row: Vec<TableCell> = vec![case.label.clone().into(), metric.title().into()];
            row.extend(columns.iter().map(|(store, peer)| cell(case, *metric, store, *peer)));
            if row.iter().skip(2).any(|cell| cell.text != units::NONE) {
                table.row(row);
            }
        }
    }
    table
}

fn cell(case: &Case<'_>, metric: Metric, store: &str, peer: Option<&str>) -> TableCell {
    let median = |store: &str| case.cell(store)?.median(metric);
    let Some(peer) = peer else {
        return TableCell::figure(median(store), |value| with_unit(metric, value));
    };
    let ratio = median(store)
        .zip(median(peer))
        .map(|(ours, peer)| if metric.more_is_better() { ours / peer } else { peer / ours });
    TableCell::figure(ratio, units::ratio)
}
