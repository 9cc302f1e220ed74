//! The figures of papers beside ours, for presets.
//!
//! Absolute figures belong to other machines and sizes. Comparable is the ratio of a paper's store
//! to a peer that runs here as well ([`rows`]). In every ratio above 1 is better.

mod points;
mod rows;

use super::{
    document::{Document, Mark, Table, TableCell},
    input::{Experiment, Experiments},
    model::{Case, CaseGroup},
    units,
};
use crate::result::PaperFigure;
use rows::{PaperRow, PaperRows, Reading, Verdict};

/// Adds the figures of the paper of a preset beside ours.
pub(super) fn add(
    group: &CaseGroup<'_>,
    experiment: Experiment,
    experiments: &dyn Experiments,
    to: &mut Document,
) {
    let rows = PaperRows::of(group, experiment, experiments);
    if rows.is_empty() {
        to.text("Not comparable: the paper has no number. Here, at every point:");
    } else {
        to.table(table(&rows));
        to.text("At every point:");
    }
    to.table(points::table(group, experiment));
}

/// Adds all figures of the paper of a preset, those of stores that are missing here included.
pub(super) fn add_values(group: &CaseGroup<'_>, experiment: Experiment, to: &mut Document) {
    to.folded(
        "All figures of the paper, each on its own machine",
        values(group, experiment.figures),
    );
}

/// Adds the number of each verdict by paper. Adds nothing if there is no preset of a paper.
pub(super) fn add_summary(
    groups: &[CaseGroup<'_>],
    experiments: &dyn Experiments,
    to: &mut Document,
) {
    let mut table =
        Table::new(2, &["paper", "what runs here", "better", "equal", "worse", "not comparable"]);
    // By paper: of our default and of the paper's design, the numbers of the verdicts.
    let mut papers: Vec<(&str, [[usize; 4]; 2])> = Vec::new();
    for group in groups {
        let Some(experiment) = group.experiment(experiments) else { continue };
        let Some(paper) = experiment.paper else { continue };
        let index = papers.iter().position(|(name, _)| *name == paper).unwrap_or(papers.len());
        if index == papers.len() {
            papers.push((paper, [[0; 4]; 2]));
        }
        let Some((_, counts)) = papers.get_mut(index) else { continue };
        for row in PaperRows::of(group, experiment, experiments) {
            for (reading, counts) in [Some(row.ours), row.design].iter().zip(counts.iter_mut()) {
                let Some(reading) = reading else { continue };
                let column = match reading.verdict {
                    Verdict::Better => 0,
                    Verdict::Equal => 1,
                    Verdict::Worse => 2,
                    Verdict::NotComparable(_) => 3,
                };
                counts.iter_mut().skip(column).take(1).for_each(|count| *count += 1);
            }
        }
    }
    for (paper, counts) in papers {
        for (what, counts) in ["our default", "the paper's design"].iter().zip(counts) {
            if counts.iter().all(|count| *count == 0) {
                continue;
            }
            let mut row: Vec<TableCell> = vec![paper.into(), (*what).into()];
            row.extend(counts.iter().map(|count| count.to_string().into()));
            table.row(row);
        }
    }
    if table.rows.is_empty() {
        return;
    }
    to.heading(2, "Verdicts by paper");
    to.text(
        "Comparable are ratios to the same peer, and figures that depend on no machine. Equal is \
         within 5 %.",
    );
    to.table(table);
}

fn table(rows: &[PaperRow]) -> Table {
    let mut table = Table::new(
        4,
        &[
            "point",
            "figure",
            "engine",
            "to",
            "paper",
            "ours",
            "verdict",
            "paper's design",
            "verdict on it",
            "remark",
        ],
    );
    for row in rows {
        let mut cells: Vec<TableCell> = vec![
            (&*row.point).into(),
            (&*row.figure).into(),
            (&*row.engine).into(),
            if row.peer.is_empty() { units::NONE } else { &row.peer }.into(),
            (&*row.paper).into(),
        ];
        cells.extend(entries(Some(&row.ours)));
        cells.extend(entries(row.design.as_ref()));
        let is_worse = [Some(&row.ours), row.design.as_ref()]
            .iter()
            .flatten()
            .any(|reading| reading.verdict == Verdict::Worse);
        cells
            .push(if is_worse && !row.remark.is_empty() { row.remark } else { units::NONE }.into());
        table.row(cells);
    }
    table
}

/// Returns the cells of a figure and its verdict.
fn entries(reading: Option<&Reading>) -> [TableCell; 2] {
    let Some(reading) = reading else { return [units::NONE.into(), units::NONE.into()] };
    let verdict = TableCell {
        text: reading.verdict.title().to_owned(),
        note: match reading.verdict {
            Verdict::NotComparable(reason) => reason.to_owned(),
            _ => String::new(),
        },
        mark: match reading.verdict {
            Verdict::Better => Mark::Wins,
            Verdict::Worse => Mark::Loses,
            Verdict::Equal | Verdict::NotComparable(_) => Mark::None,
        },
    };
    [(&*reading.text).into(), verdict]
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
        for (point, case) in rows::cases_of(group, figure) {
            table.row(vec![
                point.into(),
                what(figure).into(),
                figure.store.into(),
                plain(figure, figure.value).into(),
                figure.stands_for.into(),
                match here(case, figure) {
                    Some(value) => plain(figure, value).into(),
                    None => rows::missing(case, &[figure.stands_for]).into(),
                },
                if figure.note.is_empty() { units::NONE } else { figure.note }.into(),
            ]);
        }
    }
    table
}
