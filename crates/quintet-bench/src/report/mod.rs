//! Reports from raw results: one HTML page with charts, and the same tables as Markdown.
//!
//! [`run`] reads results files ([`crate::result`]) and writes both, in four steps:
//!
//! 1. `input` checks lines.
//! 2. `model` groups repetitions and competing stores.
//! 3. `overview`, `comparison`, `papers`, `scaling` and `repeat` make sections of one `document`.
//! 4. `html` and `markdown` write it. `lines` and `comparison::bars` draw charts with `svg`.
//!
//! Reports use files only, so a report can be made again at any time, and results of several
//! sessions can be combined.
//!
//! Invariants:
//! - The same lines in the same order give the same bytes: no clock, no random order.
//! - Nothing is dropped silently: the report contains unusable lines and failed runs. A comparison
//!   that ours loses is marked by sign and weight, not by colour alone.
//! - Every figure has its unit, in its cell or in the title of its column.
//! - The page needs no network and no script. Text of a store or a file never becomes markup.

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

use document::Document;

use input::ReportInput;
pub use input::{Experiment, Experiments, Remark};

/// Arguments of `report`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    /// Results files: one JSON object on each line, as comparisons write them.
    #[arg(required = true)]
    pub results: Vec<PathBuf>,
    /// File of the page. The tables go to the same name with the ending `.md`.
    #[arg(long, short, default_value = "report.html")]
    pub output: PathBuf,
    /// Title of the report.
    #[arg(long, default_value = "Quintet beside other stores")]
    pub title: String,
}

/// Writes the report, and prints its location and the rejected lines to `out`. Fails if a file
/// cannot be read or written, or if no line is usable. An unusable line among others does not fail;
/// the report names it.
pub fn run(args: &ReportArgs, experiments: &dyn Experiments, out: &mut dyn Write) -> Outcome {
    let input = read(&args.results, out)?;
    let page = document(&args.title, &input, experiments);
    write(&args.output, &input, [&page, &page], out)
}

/// Writes the report of the experiments of papers: the same page as [`run`], and as Markdown only
/// what the papers have beside ours. Prints and fails as [`run`].
pub fn run_papers(
    args: &ReportArgs,
    experiments: &dyn Experiments,
    out: &mut dyn Write,
) -> Outcome {
    let input = read(&args.results, out)?;
    let page = document(&args.title, &input, experiments);
    let tables = papers_only(&args.title, &input, experiments);
    write(&args.output, &input, [&page, &tables], out)
}

/// Reads results files, and prints their rejected lines to `out`. Fails if no line is usable.
fn read(results: &[PathBuf], out: &mut dyn Write) -> Outcome<ReportInput> {
    let mut input = ReportInput::default();
    for path in results {
        input.add_file(path)?;
    }
    for rejected in &input.rejected {
        writeln!(out, "{}:{}: left out: {}", rejected.file, rejected.line, rejected.what)?;
    }
    if input.runs.is_empty() {
        let names: Vec<String> = results.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::Failed(format!("{}: no results", names.join(", "))));
    }
    Ok(input)
}

/// Writes the first document as a page and the second as Markdown beside it.
fn write(
    path: &Path,
    input: &ReportInput,
    [page, tables]: [&Document; 2],
    out: &mut dyn Write,
) -> Outcome {
    let tables_path = path.with_extension("md");
    if tables_path == path {
        return Err(Failure::Usage("--output: the page cannot end in .md".to_owned()));
    }
    write_file(path, &html::write(page))?;
    write_file(&tables_path, &markdown::write(tables))?;
    writeln!(out, "{} runs: {} and {}", input.runs.len(), path.display(), tables_path.display())?;
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
    papers::add_summary(&groups, experiments, &mut document);
    overview::add_summary(&groups, &mut document);
    for group in &groups {
        document.heading(2, group.title());
        if let Some(known) = group.experiment(experiments) {
            document.text(format!("{}. {}", known.origin, known.about));
            if known.paper.is_some() {
                document.heading(3, "The paper beside ours");
                papers::add(group, known, experiments, &mut document);
                papers::add_values(group, known, &mut document);
            }
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

/// Returns the document with only what papers have beside ours.
fn papers_only(title: &str, input: &ReportInput, experiments: &dyn Experiments) -> Document {
    let groups = model::groups(&input.runs);
    let mut document = Document { title: title.to_owned(), blocks: Vec::new() };
    papers::add_summary(&groups, experiments, &mut document);
    let mut last = None;
    for name in experiments.of_papers() {
        let Some(known) = experiments.find(name) else { continue };
        let Some(paper) = known.paper else { continue };
        if last != Some(paper) {
            document.heading(2, paper);
        }
        last = Some(paper);
        document.heading(3, known.origin);
        let runs: Vec<_> =
            groups.iter().filter(|group| group.is_preset && group.name == name).collect();
        if runs.is_empty() {
            document.text(format!("{} Not run.", known.about));
        }
        for group in runs {
            document.text(format!("{} Here: {}.", known.about, group.constants));
            papers::add(group, known, experiments, &mut document);
        }
    }
    overview::add_failures(&groups, input, &mut document);
    overview::add_machine(input, &mut document);
    document
}

#[cfg(test)]
mod tests;
