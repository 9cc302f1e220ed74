//! The figures of papers beside ours, for presets.
//!
//! Absolute figures belong to other machines and sizes. Comparable is the ratio of a paper's store
//! to a peer that runs here as well. The report shows the ratio of the paper and ours; above 1 is
//! better in both.

use super::{
    document::{Document, Mark, Table, TableCell},
    model::{Case, CaseGroup},
    units,
};
use crate::result::PaperFigure;

/// Adds the figures of the paper of a preset. Adds nothing if there are none.
pub(super) fn add(group: &CaseGroup<'_>, figures: &[PaperFigure], to: &mut Document) {
    if figures.is_empty() {
        return;
    }
    to.heading(3, "The paper's figures beside ours");
    to.text(
        "Figures of the paper are of its own machine and its own number of records; ours are of \
         this run. Only ratios to the same peer compare.",
    );
    to.table(ratios(group, figures));
    to.table(values(group, figures));
}

/// Returns the cases of a figure.
fn cases_of<'a>(
    group: &'a CaseGroup<'a>,
    figure: &PaperFigure,
) -> impl Iterator<Item = &'a Case<'a>> {
    let point = figure.point;
    group.cases.iter().filter(move |case| {
        point.is_empty() || case.sample.point.as_deref().unwrap_or(&case.label) == point
    })
}

/// Returns the same figure in a case here; a ratio if the figure is one.
fn here(case: Option<&Case<'_>>, figure: &PaperFigure) -> Option<f64> {
    let of = |store: &str| case?.cell(store)?.median(figure.metric);
    let value = of(figure.stands_for)?;
    if figure.relative_to.is_empty() {
        return Some(value);
    }
    of(figure.relative_to).filter(|other| *other > 0.0).map(|other| value / other)
}

/// Returns the metric of a figure, with its unit.
fn what(figure: &PaperFigure) -> String {
    let title = figure.metric.title();
    match figure.metric.unit() {
        _ if !figure.relative_to.is_empty() => format!("{title}, to {}", figure.relative_to),
        "" => title.to_owned(),
        unit => format!("{title}, {unit}"),
    }
}

/// Formats a value without its unit, which is in the row.
fn plain(figure: &PaperFigure, value: f64) -> String {
    match figure.metric.unit() {
        _ if !figure.relative_to.is_empty() => units::ratio(value),
        "ops/s" | "B" => units::scaled(value),
        _ => units::digits(value),
    }
}

fn values(group: &CaseGroup<'_>, figures: &[PaperFigure]) -> Table {
    let mut table =
        Table::new(3, &["point", "figure", "paper's store", "paper", "store here", "here", "note"]);
    for figure in figures {
        let mut cases: Vec<Option<&Case<'_>>> = cases_of(group, figure).map(Some).collect();
        if cases.is_empty() {
            // Points that did not run stay visible.
            cases.push(None);
        }
        for case in cases {
            let point = case.map_or(figure.point, |case| &case.label);
            table.row(vec![
                point.into(),
                what(figure).into(),
                figure.store.into(),
                plain(figure, figure.value).into(),
                figure.stands_for.into(),
                match here(case, figure) {
                    Some(value) => plain(figure, value).into(),
                    None => missing(case, figure).into(),
                },
                if figure.note.is_empty() { units::NONE } else { figure.note }.into(),
            ]);
        }
    }
    table
}

/// Returns why there is no figure here.
fn missing(case: Option<&Case<'_>>, figure: &PaperFigure) -> &'static str {
    match case {
        None => "not run",
        Some(case) => match case.cell(figure.stands_for) {
            None => "not run",
            Some(cell) if cell.errors().next().is_some() => "failed",
            Some(_) => "not measured",
        },
    }
}

/// Returns the table of ratios to peers, in the paper and here.
fn ratios(group: &CaseGroup<'_>, figures: &[PaperFigure]) -> Table {
    let mut table = Table::new(3, &["point", "figure", "ratio", "paper", "here", "here to paper"]);
    let is_ours = |figure: &&PaperFigure| figure.stands_for.parse::<quintet::EngineKind>().is_ok();
    for ours in figures.iter().filter(is_ours) {
        if !ours.relative_to.is_empty() {
            // The paper prints the ratio itself.
            let pair = StorePair { ours, peer: ours.relative_to, peer_name: ours.relative_to };
            cases_of(group, ours).for_each(|case| pair.add_row(ours.value, case, &mut table));
            continue;
        }
        let peers = figures.iter().filter(|peer| {
            !is_ours(peer)
                && peer.relative_to.is_empty()
                && (peer.point, peer.metric) == (ours.point, ours.metric)
        });
        for peer in peers {
            let pair = StorePair { ours, peer: peer.stands_for, peer_name: peer.store };
            let there = ours.value / peer.value;
            cases_of(group, ours).for_each(|case| pair.add_row(there, case, &mut table));
        }
    }
    table
}

/// A store of a paper and a peer.
struct StorePair<'a> {
    ours: &'a PaperFigure,
    /// Name of the peer here.
    peer: &'a str,
    /// Name of the peer in the paper.
    peer_name: &'a str,
}

impl StorePair<'_> {
    /// Adds a row: the ratio in the paper, `there`, and the ratio in `case`. Adds nothing if one of
    /// the two stores did not run here.
    fn add_row(&self, there: f64, case: &Case<'_>, table: &mut Table) {
        let metric = self.ours.metric;
        let figure = |store: &str| case.cell(store)?.median(metric);
        let Some((ours, peer)) = figure(self.ours.stands_for).zip(figure(self.peer)) else {
            return;
        };
        let better = |ratio: f64| if metric.more_is_better() { ratio } else { 1.0 / ratio };
        let (there, here) = (better(there), better(ours / peer));
        if !(there.is_finite() && there > 0.0 && here.is_finite()) {
            return;
        }
        let entry = |ratio: f64| TableCell {
            text: units::ratio(ratio),
            mark: if ratio < 1.0 { Mark::Loses } else { Mark::Wins },
            ..TableCell::default()
        };
        let names = if self.peer == self.peer_name {
            format!("{} ({}) to {}", self.ours.store, self.ours.stands_for, self.peer)
        } else {
            format!(
                "{} ({}) to {} ({})",
                self.ours.store, self.ours.stands_for, self.peer_name, self.peer
            )
        };
        table.row(vec![
            case.label.clone().into(),
            metric.title().into(),
            names.into(),
            units::ratio(there).into(),
            entry(here),
            entry(here / there),
        ]);
    }
}
