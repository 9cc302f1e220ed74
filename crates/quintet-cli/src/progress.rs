//! A progress bar. It is hidden if standard error is not a terminal.

use std::{
    io::{self, IsTerminal as _, Read},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

/// Shows the progress of a long operation.
#[derive(Clone, Debug)]
pub struct Meter(ProgressBar);

impl Meter {
    /// Counts bytes of `total`; without a total, it shows the bytes so far.
    pub fn bytes(total: Option<u64>) -> Self {
        let with_total = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left {msg}";
        Self::new(total, with_total, "{spinner} {bytes}, {bytes_per_sec} {msg}")
    }

    /// Counts entries of an approximate `total`.
    pub fn entries(total: u64) -> Self {
        Self::new(Some(total), "{bar:30} {human_pos} of {human_len} entries, {eta} left {msg}", "")
    }

    fn new(total: Option<u64>, with_total: &str, without: &str) -> Self {
        if !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), with_total),
            None => (ProgressBar::new_spinner(), without),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// Adds `amount` to the count.
    pub fn add(&self, amount: u64) {
        self.0.inc(amount);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }

    /// Returns a reader that counts the bytes read from `source`.
    pub fn wrap<R: Read>(&self, source: R) -> impl Read + use<R> {
        Counted { source, meter: self.clone() }
    }
}

struct Counted<R> {
    source: R,
    meter: Meter,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.meter.add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }
}
