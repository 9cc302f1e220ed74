//! Reads results files. An unusable line is rejected with file, line number and reason; the others
//! are kept.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::Path,
};

use crate::failure::{Failure, Outcome};
use serde_json::Value;

use crate::{
    limits::LimitsRecord,
    result::{Metric, PaperFigure, ResultLine, RunResult, SCHEMA},
    workload::Workload,
};

/// Content of results files.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportInput {
    /// Runs in the order of the lines.
    pub(super) runs: Vec<RunResult>,
    /// Limits of the machine.
    pub(super) limits: Vec<LimitsRecord>,
    /// Rejected lines.
    pub(super) rejected: Vec<RejectedLine>,
}

/// A rejected line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RejectedLine {
    /// File name as given.
    pub(super) file: String,
    /// Line number, from 1.
    pub(super) line: u64,
    /// Reason.
    pub(super) what: String,
}

impl ReportInput {
    /// Adds the lines of a file. Fails if the file cannot be read.
    pub(super) fn add_file(&mut self, path: &Path) -> Outcome {
        let name = path.display();
        let file = File::open(path).map_err(|error| Failure::io(&name, &error))?;
        let mut reader = BufReader::new(file);
        let mut text = Vec::new();
        let mut number = 0;
        loop {
            text.clear();
            number += 1;
            let read = reader.read_until(b'\n', &mut text);
            if read.map_err(|error| Failure::io(format!("{name}:{number}"), &error))? == 0 {
                return Ok(());
            }
            self.add_line(&name.to_string(), number, &text);
        }
    }

    /// Adds a line. Ignores an empty one.
    pub(super) fn add_line(&mut self, file: &str, number: u64, text: &[u8]) {
        if text.trim_ascii().is_empty() {
            return;
        }
        if let Err(what) = self.parse(text) {
            // The parser counts lines of its input, which is one line.
            let what = what.replace(" at line 1 column ", " at column ");
            self.rejected.push(RejectedLine { file: file.to_owned(), line: number, what });
        }
    }

    fn parse(&mut self, text: &[u8]) -> Result<(), String> {
        let value: Value = serde_json::from_slice(text).map_err(|error| {
            if error.is_eof() {
                "the line is cut off".to_owned()
            } else {
                format!("not JSON: {error}")
            }
        })?;
        // Another schema may have other fields, so its version is checked first.
        match value.get("schema").map(Value::as_u64) {
            Some(Some(schema)) if schema == u64::from(SCHEMA) => {}
            Some(Some(schema)) => {
                return Err(format!("schema {schema}; this program reads schema {SCHEMA}"));
            }
            _ => return Err("no schema version: not a result".to_owned()),
        }
        match serde_json::from_value(value).map_err(|error| error.to_string())? {
            ResultLine::Run(run) => {
                check(&run)?;
                self.runs.push(*run);
            }
            ResultLine::Limits(value) => {
                let record = serde_json::from_value(value).map_err(|error| error.to_string())?;
                self.limits.push(record);
            }
        }
        Ok(())
    }
}

/// Fails if a run has no figures, or impossible ones.
fn check(run: &RunResult) -> Result<(), String> {
    let Some(figures) = &run.figures else {
        return if run.error.is_some() { Ok(()) } else { Err("neither figures nor error".into()) };
    };
    let numbers = [
        ("ops_per_second", figures.ops_per_second),
        ("seconds", figures.seconds),
        ("cpu_seconds", figures.cpu_seconds),
        ("load_ops_per_second", figures.load_ops_per_second),
    ];
    for (name, value) in numbers {
        if !(value.is_finite() && value >= 0.0) {
            return Err(format!("{name} is {value}"));
        }
    }
    for latency in [&figures.reads, &figures.writes] {
        latency.histogram().map_err(|failure| failure.to_string())?;
    }
    Ok(())
}

/// Description of a preset.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Origin.
    pub origin: &'static str,
    /// Subject.
    pub about: &'static str,
    /// Name of its paper; `None` if the preset is no experiment of a paper.
    pub paper: Option<&'static str>,
    /// Metrics that it is about.
    pub metrics: &'static [Metric],
    /// Figures of its paper.
    pub figures: &'static [PaperFigure],
    /// Causes of figures that are worse than the paper's.
    pub remarks: &'static [Remark],
}

/// The cause of a figure that is worse than the paper's, and what was tried.
#[derive(Clone, Copy, Debug)]
pub struct Remark {
    /// Point that it is about; empty for all.
    pub point: &'static str,
    /// Peer that it is about; empty for all.
    pub peer: &'static str,
    /// Metric that it is about; `None` for all.
    pub metric: Option<Metric>,
    /// Text.
    pub text: &'static str,
}

/// Lookup of presets by name.
pub trait Experiments {
    /// Returns the names of the presets of papers, by paper.
    fn of_papers(&self) -> Vec<&'static str>;
    /// Returns a preset; `None` if this build has no preset of this name.
    fn find(&self, preset: &str) -> Option<Experiment>;
    /// Returns the store that has the design of a preset's paper on this engine; `None` if there
    /// is none.
    fn design(&self, preset: &str, engine: &str) -> Option<&'static str>;
    /// Returns the workload of a point of a preset.
    fn workload(&self, preset: &str, point: &str) -> Option<Workload>;
}
