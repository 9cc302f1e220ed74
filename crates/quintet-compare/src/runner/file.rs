//! The results file: lines are appended, each synced to the kernel when its run ends, and a line
//! that a dying process left half written is cut before going on.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use quintet_bench::{
    failure::{Failure, Outcome},
    numbers::to_u64,
};

use crate::result::{Line, RunResult};

/// An open results file.
#[derive(Debug)]
pub(super) struct Results {
    path: PathBuf,
    file: File,
    run_id: String,
    /// What was there before, and what has been added.
    runs: Vec<RunResult>,
    has_limits: bool,
}

/// The lines of a results file. A line that is none is a failure with file, number and reason; a
/// last line without its end is left out.
pub fn read(path: &Path) -> Outcome<Vec<Line>> {
    let doing = |error: std::io::Error| Failure::io(path.display(), &error);
    let text = fs::read_to_string(path).map_err(doing)?;
    let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or(""));
    let lines = whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| {
                let number = index + 1;
                Failure::Failed(format!("{}, line {number}: {error}", path.display()))
            })
        })
        .collect()
}

impl Results {
    /// Opens the file, or makes it. One that holds results already is only gone on with where
    /// that is asked for.
    pub(super) fn open(path: &Path, resumes: bool) -> Outcome<Self> {
        let doing = |error: std::io::Error| Failure::io(path.display(), &error);
        let mut runs = Vec::new();
        let mut has_limits = false;
        if path.exists() {
            for line in read(path)? {
                match line {
                    Line::Run(run) => runs.push(*run),
                    Line::Limits(_) => has_limits = true,
                }
            }
            if !runs.is_empty() && !resumes {
                return Err(Failure::Usage(format!(
                    "{} holds results already: --resume goes on with it, or name another file",
                    path.display()
                )));
            }
            cut_torn_line(path).map_err(doing)?;
        }
        let file = File::options().append(true).create(true).open(path).map_err(doing)?;
        let run_id = match runs.last() {
            Some(run) => run.run_id.clone(),
            None => format!("{:x}-{}", super::unix_ms(), std::process::id()),
        };
        Ok(Self { path: path.to_path_buf(), file, run_id, runs, has_limits })
    }

    pub(super) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Whether the run has been done, whatever came of it.
    pub(super) fn has(&self, line: &RunResult) -> bool {
        let same = |run: &RunResult| run.repeats(line) && run.repetition == line.repetition;
        self.runs.iter().any(same)
    }

    /// Whether limits of the machine were there when it was opened.
    pub(super) const fn has_limits(&self) -> bool {
        self.has_limits
    }

    pub(super) fn append(&mut self, run: RunResult) -> Outcome {
        let text = serde_json::to_string(&Line::Run(Box::new(run.clone())))
            .map_err(|error| Failure::Failed(format!("a result: {error}")))?;
        self.append_text(&text)?;
        self.runs.push(run);
        Ok(())
    }

    /// Appends a line that is no run.
    pub(super) fn append_text(&mut self, line: &str) -> Outcome {
        let doing = |error: std::io::Error| Failure::io(self.path.display(), &error);
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(doing)
    }
}

fn cut_torn_line(path: &Path) -> std::io::Result<()> {
    let bytes = fs::read(path)?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if end < bytes.len() {
        File::options().write(true).open(path)?.set_len(to_u64(end))?;
    }
    Ok(())
}
