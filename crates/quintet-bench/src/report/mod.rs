//! Reports from raw results: one HTML page with charts, and the same tables as Markdown.
//!
//! What: [`run`] reads results files ([`crate::result`]) and writes both. The way of the data:
//! lines are checked (`input`), repetitions and stores that compete are put together (`model`),
//! sections are made of them (`overview`, `comparison`, `papers`, `scaling`, `repeat`) as one
//! document (`document`), which is written out (`html`, `markdown`); charts are drawn by `bars` and
//! `lines` on `svg`.
//!
//! Why from files alone: a report can be made again, of old results too, and with results of other
//! sessions beside them.
//!
//! Invariants:
//! - the same lines in the same order give the same bytes: no clock, no random order;
//! - nothing is dropped in silence: a line that cannot be used and a run that failed are in the
//!   report; a comparison that ours loses is marked by sign and weight, not by colour alone;
//! - every figure has its unit, in its cell or in its column's title;
//! - the page needs no network and no script, and nothing that a store or a file says becomes
//!   markup.

mod bars;
mod comparison;
mod document;
mod html;
mod input;
mod limit;
mod lines;
mod markdown;
mod model;
mod overview;
mod papers;
mod repeat;
mod scaling;
mod styles;
mod svg;
mod units;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use crate::failure::{Failure, Outcome};

use crate::{result::PaperFigure, workload::Workload};
use document::Document;
use input::ReportInput;

/// What is asked for.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    /// Results files: one JSON object a line, as runs write them.
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// Where the page goes; the tables go beside it, with the ending `.md`.
    #[arg(long, short, default_value = "report.html")]
    pub output: PathBuf,
    /// Title of the report.
    #[arg(long, default_value = "Quintet beside other stores")]
    pub title: String,
}

/// What is known of a preset.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Where it comes from.
    pub origin: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// What its paper prints.
    pub figures: &'static [PaperFigure],
}

/// Lookup of presets by name.
pub trait Experiments {
    /// Returns a preset; `None` if this build has no preset of this name.
    fn find(&self, preset: &str) -> Option<Experiment>;
    /// Returns the workload of a point of a preset.
    fn workload(&self, preset: &str, point: &str) -> Option<Workload>;
}

/// Writes the report that `args` ask for, and says on `out` where it is and what was left out.
/// Fails where a file cannot be read or written, and where no line could be used; a line that
/// could not be used alongside others that could is named in the report and does not fail it.
pub fn run(args: &ReportArgs, experiments: &dyn Experiments, out: &mut dyn Write) -> Outcome {
    let mut input = ReportInput::default();
    for path in &args.results {
        input.add_file(path)?;
    }
    for rejected in &input.rejected {
        writeln!(out, "{}:{}: left out: {}", rejected.file, rejected.line, rejected.what)?;
    }
    if input.runs.is_empty() {
        let names: Vec<String> =
            args.results.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::Failed(format!("{}: no results", names.join(", "))));
    }
    let tables = args.output.with_extension("md");
    if tables == args.output {
        return Err(Failure::Usage("--output: the page cannot end in .md".to_owned()));
    }
    let document = document(&args.title, &input, experiments);
    write_file(&args.output, &html::write(&document))?;
    write_file(&tables, &markdown::write(&document))?;
    writeln!(out, "{} runs: {} and {}", input.runs.len(), args.output.display(), tables.display())?;
    Ok(())
}

fn write_file(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| Failure::io(path.display(), &error))
}

fn document(title: &str, input: &ReportInput, experiments: &dyn Experiments) -> Document {
    let groups = model::groups(&input.runs);
    let styles = styles::Styles::new(&groups);
    let bound = limit::LimitIndex::new(&input.limits, experiments);
    let mut document = Document { title: title.to_owned(), blocks: Vec::new() };
    overview::add_summary(&groups, &mut document);
    for group in &groups {
        document.heading(2, group.title());
        let known =
            Some(group.name).filter(|_| group.is_preset).and_then(|name| experiments.find(name));
        if let Some(known) = known {
            document.text(format!("{}. {}", known.origin, known.about));
            papers::add(group, known.figures, &mut document);
        }
        comparison::add(group, &styles, &bound, &mut document);
    }
    scaling::add(&groups, &styles, &mut document);
    repeat::add(&groups, &mut document);
    overview::add_failures(&groups, input, &mut document);
    overview::add_machine(input, &mut document);
    overview::add_stores(&groups, &mut document);
    document
}

#[cfg(test)]
mod tests;
