//! Repeatability: the same comparison in two runs. The difference is noise of the machine. A
//! smaller difference between stores has no meaning.

use crate::numbers::to_f64;

use super::{
    document::{Document, Table, TableCell},
    model::{Case, CaseGroup, StoreCell, competes},
    units,
};
use crate::{result::Metric, store::Family};

/// Maximum difference in percent that counts as equal.
const ALIKE_PERCENT: f64 = 15.0;

/// Adds the section if two runs have a case in common.
pub(super) fn add(groups: &[CaseGroup<'_>], to: &mut Document) {
    let mut table = Table::new(
        3,
        &["workload", "store", "peer", "ratio, first run", "ratio, second run", "difference"],
    );
    let mut alike = 0;
    for (index, group) in groups.iter().enumerate() {
        let later = groups
            .iter()
            .skip(index + 1)
            .filter(|later| (later.name, later.is_preset) == (group.name, group.is_preset));
        for case in &group.cases {
            // The next run of the same case, if there is one.
            let again = later.clone().find_map(|later| {
                later.cases.iter().find(|other| competes(case.sample, other.sample))
            });
            if let Some(again) = again {
                alike += add_rows(case, again, &mut table);
            }
        }
    }
    if table.rows.is_empty() {
        return;
    }
    to.heading(2, "Repeatability");
    to.text(
        "Ratios of throughput, ours to the peer's, where two runs made the same comparison: how \
         far the second is from the first. A ratio is of the means of the fastest quarter of the \
         repetitions: what else a machine does can only make one slower.",
    );
    to.text(format!("{alike} of {} ratios are within {ALIKE_PERCENT} %.", table.rows.len()));
    to.table(table);
}

/// Returns the mean throughput of the fastest quarter of the repetitions.
fn undisturbed(cell: &StoreCell<'_>) -> Option<f64> {
    let mut rates: Vec<f64> =
        cell.runs.iter().filter_map(|run| run.figure(Metric::OpsPerSecond)).collect();
    rates.sort_unstable_by(|a, b| b.total_cmp(a));
    rates.truncate(rates.len().div_ceil(4));
    let count = to_f64(crate::numbers::to_u64(rates.len()));
    Some(rates.iter().sum::<f64>() / count).filter(|mean| *mean > 0.0)
}

/// Adds a row for each pair of stores. Returns the number of equal ratios.
fn add_rows(case: &Case<'_>, again: &Case<'_>, table: &mut Table) -> usize {
    let mut alike = 0;
    for ours in case.of(Family::Ours) {
        for peer in case.of(Family::Peer) {
            let ratio = |case: &Case<'_>| {
                let of = |cell: &StoreCell<'_>| case.cell(&cell.store.name).and_then(undisturbed);
                Some(of(ours)? / of(peer)?)
            };
            let Some((first, second)) = ratio(case).zip(ratio(again)) else { continue };
            let change = (second / first - 1.0) * 100.0;
            alike += usize::from(change.abs() <= ALIKE_PERCENT);
            table.row(vec![
                case.label.clone().into(),
                (&*ours.store.name).into(),
                (&*peer.store.name).into(),
                units::ratio(first).into(),
                units::ratio(second).into(),
                TableCell::figure(Some(change), |change| format!("{change:+.1} %")),
            ]);
        }
    }
    alike
}

#[cfg(test)]
mod tests {
    use super::super::{model, tests};
    use super::*;

    #[test]
    fn what_disturbs_one_repetition_does_not_count() {
        let mut runs = tests::repetitions(&[100.0, 98.0, 20.0, 60.0, 10.0]);
        let groups = model::groups(&runs);
        let mean = undisturbed(&groups[0].cases[0].cells[0]).unwrap();
        assert!((mean - 99.0).abs() < 1e-9, "{mean}");
        runs.truncate(1);
        let groups = model::groups(&runs);
        assert_eq!(undisturbed(&groups[0].cases[0].cells[0]), Some(100.0));
        for run in &mut runs {
            run.figures = None;
        }
        let groups = model::groups(&runs);
        assert_eq!(undisturbed(&groups[0].cases[0].cells[0]), None);
    }
}
