//! The results file. The runner appends a line when a run ends. Opening the file removes a line
//! that a dying process left incomplete.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::{
    failure::{Failure, Outcome},
    machine::unix_ms,
    numbers::to_u64,
    result::{ResultLine, RunResult},
};

/// An open results file.
#[derive(Debug)]
pub(super) struct ResultsFile {
    path: PathBuf,
    file: File,
    run_id: String,
    /// Runs that the file contains.
    runs: Vec<RunResult>,
    has_limits: bool,
}

/// Reads the lines of a results file. An unreadable line is a failure with file, number and reason.
/// An incomplete last line is left out.
pub fn read(path: &Path) -> Outcome<Vec<ResultLine>> {
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

impl ResultsFile {
    /// Opens the file, or creates it. Fails if the file contains results and `resumes` is not set.
    pub(super) fn open(path: &Path, resumes: bool) -> Outcome<Self> {
        let doing = |error: std::io::Error| Failure::io(path.display(), &error);
        let mut runs = Vec::new();
        let mut has_limits = false;
        if path.exists() {
            for line in read(path)? {
                match line {
                    ResultLine::Run(run) => runs.push(*run),
                    ResultLine::Limits(_) => has_limits = true,
                }
            }
            if !runs.is_empty() && !resumes {
                return Err(Failure::Usage(format!(
                    "{} contains results: resume it with --resume, or name another file",
                    path.display()
                )));
            }
            remove_incomplete_line(path).map_err(doing)?;
        }
        let file = File::options().append(true).create(true).open(path).map_err(doing)?;
        let run_id = match runs.last() {
            Some(run) => run.run_id.clone(),
            None => format!("{:x}-{}", unix_ms(), std::process::id()),
        };
        Ok(Self { path: path.to_path_buf(), file, run_id, runs, has_limits })
    }

    pub(super) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Returns whether the file contains this run, successful or failed.
    pub(super) fn has(&self, line: &RunResult) -> bool {
        let same = |run: &RunResult| run.repeats(line) && run.repetition == line.repetition;
        self.runs.iter().any(same)
    }

    /// Returns whether the file contained limits of the machine when it was opened.
    pub(super) const fn has_limits(&self) -> bool {
        self.has_limits
    }

    pub(super) fn append(&mut self, run: RunResult) -> Outcome {
        let text = serde_json::to_string(&ResultLine::Run(Box::new(run.clone())))
            .map_err(|error| Failure::Failed(format!("encode a result: {error}")))?;
        self.append_text(&text)?;
        self.runs.push(run);
        Ok(())
    }

    /// Appends a line that is not a run.
    pub(super) fn append_text(&mut self, line: &str) -> Outcome {
        let doing = |error: std::io::Error| Failure::io(self.path.display(), &error);
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(doing)
    }
}

fn remove_incomplete_line(path: &Path) -> std::io::Result<()> {
    let bytes = fs::read(path)?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if end < bytes.len() {
        File::options().write(true).open(path)?.set_len(to_u64(end))?;
    }
    Ok(())
}
