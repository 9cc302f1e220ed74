//! The papers' figures beside ours, for presets.
//!
//! Absolute figures are of other machines and sizes. What can be compared is the ratio of a paper's
//! store to a peer that runs here as well: the paper's ratio and ours stand side by side.

use super::{
    document::{Cell as Entry, Document, Mark, Table},
    model::{Case, Group},
    units,
};
use crate::result::{Family, Metric, PaperFigure};

/// Adds the figures of a preset's paper; nothing where there are none.
pub(super) fn add(group: &Group<'_>, figures: &[PaperFigure], to: &mut Document) {
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

/// Cases that a figure is about.
fn cases_of<'a>(group: &'a Group<'a>, figure: &PaperFigure) -> impl Iterator<Item = &'a Case<'a>> {
    let point = figure.point;
    group.cases.iter().filter(move |case| {
        point.is_empty() || case.sample.point.as_deref().unwrap_or(&case.label) == point
    })
}

fn here(case: Option<&Case<'_>>, figure: &PaperFigure) -> Option<f64> {
    case?.cell(figure.stands_for)?.median(figure.metric)
}

fn unit_text(metric: Metric) -> String {
    match metric.unit() {
        "" => metric.title().to_owned(),
        unit => format!("{}, {unit}", metric.title()),
    }
}

/// A figure without its unit, which stands in the row.
fn plain(metric: Metric, value: f64) -> String {
    match metric.unit() {
        "ops/s" | "B" => units::scaled(value),
        _ => units::digits(value),
    }
}

fn values(group: &Group<'_>, figures: &[PaperFigure]) -> Table {
    let mut table =
        Table::new(3, &["point", "figure", "paper's store", "paper", "store here", "here", "note"]);
    for figure in figures {
        let mut cases: Vec<Option<&Case<'_>>> = cases_of(group, figure).map(Some).collect();
        if cases.is_empty() {
            // What was not run stays visible.
            cases.push(None);
        }
        for case in cases {
            let point = case.map_or(figure.point, |case| &case.label);
            table.row(vec![
                point.into(),
                unit_text(figure.metric).into(),
                figure.store.into(),
                plain(figure.metric, figure.value).into(),
                figure.stands_for.into(),
                match here(case, figure) {
                    Some(value) => plain(figure.metric, value).into(),
                    None => missing(case, figure).into(),
                },
                if figure.note.is_empty() { units::NONE } else { figure.note }.into(),
            ]);
        }
    }
    table
}

/// Why there is no figure here.
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

/// How many times better than the peer the paper's store is, there and here.
fn ratios(group: &Group<'_>, figures: &[PaperFigure]) -> Table {
    let mut table = Table::new(3, &["point", "figure", "ratio", "paper", "here", "here to paper"]);
    let is_ours = |figure: &PaperFigure| figure.stands_for.parse::<quintet::EngineKind>().is_ok();
    for ours in figures.iter().filter(|figure| is_ours(figure)) {
        let peers = figures.iter().filter(|peer| {
            !is_ours(peer) && peer.point == ours.point && peer.metric == ours.metric
        });
        for peer in peers {
            for case in cases_of(group, ours) {
                row(&mut table, case, ours, peer);
            }
        }
    }
    table
}

/// The ratio of `ours` to `peer` in the paper and under `case`; nothing where one did not run here.
fn row(table: &mut Table, case: &Case<'_>, ours: &PaperFigure, peer: &PaperFigure) {
    let metric = ours.metric;
    let better = |ours: f64, peer: f64| {
        if metric.more_is_better() { ours / peer } else { peer / ours }
    };
    let there = better(ours.value, peer.value);
    let runs_here = case.cell(ours.stands_for).filter(|cell| cell.store.family == Family::Ours);
    let here = runs_here
        .and_then(|cell| Some(better(cell.median(metric)?, here(Some(case), peer)?)))
        .filter(|ratio| ratio.is_finite());
    let Some(here) = here else { return };
    let mark = |ratio: f64| if ratio < 1.0 { Mark::Loses } else { Mark::Wins };
    table.row(vec![
        case.label.clone().into(),
        metric.title().into(),
        format!(
            "{} to {} (here {} to {})",
            ours.store, peer.store, ours.stands_for, peer.stands_for
        )
        .into(),
        units::ratio(there).into(),
        Entry { text: units::ratio(here), mark: mark(here) },
        Entry { text: units::ratio(here / there), mark: mark(here / there) },
    ]);
}
