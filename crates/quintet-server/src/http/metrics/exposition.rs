//! A writer of the text format of Prometheus, version 0.0.4.
//!
//! Each metric is a *family*: a HELP line, a TYPE line, and samples that differ in their labels.

use std::fmt::{Display, Write as _};

/// The content type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Labels with their values.
pub(crate) type Labels<'l> = &'l [(&'l str, &'l str)];

/// The text that is being written.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
}

impl Exposition {
    /// Begins a family of counters. Its name ends in `_total`.
    pub(crate) fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    /// Begins a family of values that go up and down.
    pub(crate) fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// Begins a family of histograms.
    pub(crate) fn histogram(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        // A write to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: &mut self.text, name }
    }

    /// The text.
    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// A family whose samples are being written.
#[derive(Debug)]
pub(crate) struct Family<'e> {
    text: &'e mut String,
    name: &'static str,
}

impl Family<'_> {
    /// Writes the one sample of a family without labels.
    pub(crate) fn value(&mut self, value: impl Display) {
        self.sample("", &[], value);
    }

    /// Writes a sample.
    pub(crate) fn labelled(&mut self, labels: Labels<'_>, value: impl Display) {
        self.sample("", labels, value);
    }

    /// Writes a sample of a histogram, whose name has a suffix.
    pub(crate) fn suffixed(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        self.sample(suffix, labels, value);
    }

    fn sample(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (index, (name, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(self.text, value);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        // A write to a string cannot fail.
        let _ = writeln!(self.text, " {value}");
    }
}

fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_values_have_the_format() {
        let mut text = Exposition::default();
        text.counter("a_total", "Counts.").value(7);
        let mut family = text.gauge("b_bytes", "Bytes.");
        family.labelled(&[("table", "x\"\\\n"), ("engine", "trie")], 0.5);
        text.histogram("c_seconds", "Time.").suffixed("_sum", &[], 1);
        assert_eq!(
            text.finish(),
            "# HELP a_total Counts.\n# TYPE a_total counter\na_total 7\n\
             # HELP b_bytes Bytes.\n# TYPE b_bytes gauge\n\
             b_bytes{table=\"x\\\"\\\\\\n\",engine=\"trie\"} 0.5\n\
             # HELP c_seconds Time.\n# TYPE c_seconds histogram\nc_seconds_sum 1\n"
        );
    }
}
