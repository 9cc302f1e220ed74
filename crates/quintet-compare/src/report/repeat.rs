//! Repeatability: the same comparison made twice, in two runs. What differs between them is noise
//! of the machine, and no smaller difference between stores means anything.

use super::{
    comparison::advantage,
    document::{Cell as Entry, Document, Table},
    model::{Case, Group, competes},
    units,
};
use crate::result::{Family, Metric};

/// Adds the section, where two runs have a case in common.
pub(super) fn add(groups: &[Group<'_>], to: &mut Document) {
    let mut table = Table::new(
        3,
        &["workload", "store", "peer", "ratio, first run", "ratio, second run", "difference"],
    );
    for (index, group) in groups.iter().enumerate() {
        let later = groups
            .iter()
            .skip(index + 1)
            .filter(|later| (later.name, later.is_preset) == (group.name, group.is_preset));
        for case in &group.cases {
            // The next run of the same, if there is one.
            let again = later.clone().find_map(|later| {
                later.cases.iter().find(|other| competes(case.sample, other.sample))
            });
            if let Some(again) = again {
                add_rows(case, again, &mut table);
            }
        }
    }
    if table.rows.is_empty() {
        return;
    }
    to.heading(2, "Repeatability");
    to.text(
        "Ratios of throughput, ours to the peer's, where two runs made the same comparison: how \
         far the second is from the first.",
    );
    to.table(table);
}

fn add_rows(case: &Case<'_>, again: &Case<'_>, table: &mut Table) {
    for ours in case.of(Family::Ours) {
        for peer in case.of(Family::Peer) {
            let metric = Metric::OpsPerSecond;
            let first = advantage(ours, peer, metric);
            let second = again
                .cell(&ours.store.name)
                .zip(again.cell(&peer.store.name))
                .and_then(|(ours, peer)| advantage(ours, peer, metric));
            let Some((first, second)) = first.zip(second) else { continue };
            let change = (second.median / first.median - 1.0) * 100.0;
            table.row(vec![
                case.label.clone().into(),
                (&*ours.store.name).into(),
                (&*peer.store.name).into(),
                units::ratio(first.median).into(),
                units::ratio(second.median).into(),
                Entry::figure(Some(change), |change| format!("{change:+.1} %")),
            ]);
        }
    }
}
