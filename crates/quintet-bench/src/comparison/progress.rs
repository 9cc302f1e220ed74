//! Progress on standard error: a bar on a terminal, otherwise one line for each run.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Instant,
};

use crate::{
    numbers::{to_f64, to_usize, truncate},
    session::Job,
};

/// Width of the bar in characters.
const BAR: u64 = 24;

/// State of the progress display.
#[derive(Debug)]
pub(super) struct ProgressBar {
    total: u64,
    /// Runs that have ended, including skipped ones.
    over: u64,
    /// Bytes that all runs handle, and those that are over.
    work_bytes: u64,
    work_over: u64,
    /// Bytes that the runs of this process handled.
    work_ran: u64,
    start: Instant,
    is_terminal: bool,
}

impl ProgressBar {
    pub(super) fn new(total: u64, work_bytes: u64) -> Self {
        Self {
            total,
            over: 0,
            work_bytes,
            work_over: 0,
            work_ran: 0,
            start: Instant::now(),
            is_terminal: io::stderr().is_terminal(),
        }
    }

    /// Writes a line that remains visible.
    pub(super) fn note(&self, what: &str) {
        let clear = if self.is_terminal { "\r\x1b[K" } else { "" };
        say(&format!("{clear}quintet-compare: {what}\n"));
    }

    pub(super) fn begin(&self, job: &Job, repetition: u64) {
        if !self.is_terminal {
            return;
        }
        let done = (self.over * BAR).checked_div(self.total).unwrap_or(BAR);
        let bar = "#".repeat(to_usize(done)) + &"-".repeat(to_usize(BAR - done));
        let run = repetition + 1;
        let line = format!(
            "\r\x1b[K[{bar}] {} of {}, {}: run {run} of {}",
            self.over + 1,
            self.total,
            self.left(),
            job.name()
        );
        say(&line);
    }

    /// Estimates the remaining time: the runs of this process took it for their bytes.
    fn left(&self) -> String {
        if self.work_ran == 0 {
            return "time unknown".to_owned();
        }
        let each = self.start.elapsed().as_secs_f64() / to_f64(self.work_ran);
        let seconds = truncate(each * to_f64(self.work_bytes.saturating_sub(self.work_over)));
        match seconds {
            0..=99 => format!("{seconds} s left"),
            100..=5999 => format!("{} min left", seconds / 60),
            _ => format!("{} h left", seconds / 3600),
        }
    }

    pub(super) fn skip(&mut self, job: &Job) {
        self.over += 1;
        self.work_over = self.work_over.saturating_add(job.work_bytes());
    }

    pub(super) fn fail(&self, job: &Job, what: &str) {
        self.note(&format!("{}: {what}", job.name()));
    }

    pub(super) fn done(&mut self, job: &Job, repetition: u64) {
        self.skip(job);
        self.work_ran = self.work_ran.saturating_add(job.work_bytes());
        if !self.is_terminal {
            let (over, total, run) = (self.over, self.total, repetition + 1);
            let left = self.left();
            say(&format!("{over} of {total}, {left}: run {run} of {}\n", job.name()));
        }
    }

    pub(super) fn end(&self) {
        if self.is_terminal {
            say("\r\x1b[K");
        }
    }
}

fn say(text: &str) {
    // Standard error may be closed, and there is no other output for this text.
    let _ = io::stderr().write_all(text.as_bytes());
    let _ = io::stderr().flush();
}
