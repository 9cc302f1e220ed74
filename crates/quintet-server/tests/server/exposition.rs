//! A strict parser of the text format of Prometheus: what `promtool check metrics` checks, and that
//! nothing is written twice.

use std::collections::{BTreeMap, BTreeSet};

/// Labels with their values.
pub(crate) type Labels = BTreeMap<String, String>;

/// Metrics that obey the format.
pub(crate) struct Metrics {
    samples: BTreeMap<(String, Labels), f64>,
    families: BTreeMap<String, String>,
}

impl Metrics {
    /// Parses a text. Fails the test at the first line that breaks a rule.
    pub(crate) fn parse(text: &str) -> Self {
        let mut metrics = Self { samples: BTreeMap::new(), families: BTreeMap::new() };
        assert!(text.ends_with('\n'), "the text does not end with a line feed");
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let (name, kind) = parse_head(line, lines.next());
            assert!(
                metrics.families.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{name} has two heads"
            );
            while let Some(sample) = lines.next_if(|line| !line.starts_with('#')) {
                metrics.add(name, kind, sample);
            }
        }
        metrics.check_histograms();
        metrics
    }

    fn add(&mut self, family: &str, kind: &str, line: &str) {
        let (name, labels, value) = parse_sample(line);
        let suffix = name.strip_prefix(family).unwrap_or("?");
        let is_allowed = match kind {
            "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
            _ => suffix.is_empty(),
        };
        assert!(is_allowed, "{line}: not a sample of {family}");
        assert_eq!(labels.contains_key("le"), suffix == "_bucket", "{line}");
        assert!(kind == "gauge" || value >= 0.0, "{line}: a count is negative");
        assert!(value.is_finite(), "{line}");
        let is_new = self.samples.insert((name.to_owned(), labels), value).is_none();
        assert!(is_new, "{line}: the series is there twice");
    }

    fn check_histograms(&self) {
        for (family, _) in self.families.iter().filter(|(_, kind)| *kind == "histogram") {
            let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            let bucket = format!("{family}_bucket");
            for ((_, labels), count) in self.samples.iter().filter(|((name, _), _)| *name == bucket)
            {
                let mut labels = labels.clone();
                let bound = labels.remove("le").unwrap();
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
                series.entry(labels).or_default().push((bound, *count));
            }
            for (labels, mut buckets) in series {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.len() > 1, "{family}{labels:?}");
                for pair in buckets.windows(2) {
                    assert!(pair[0].0 < pair[1].0, "{family}{labels:?}: a bound is there twice");
                    assert!(pair[0].1 <= pair[1].1, "{family}{labels:?}: counts fall");
                }
                let (bound, all) = *buckets.last().unwrap();
                assert!(bound.is_infinite(), "{family}{labels:?}: no bucket +Inf");
                let at =
                    |suffix: &str| self.samples[&(format!("{family}{suffix}"), labels.clone())];
                assert!((at("_count") - all).abs() < 0.5, "{family}{labels:?}");
                assert!(at("_sum") >= 0.0);
            }
        }
    }

    /// The value of a series.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.samples.get(&(name.to_owned(), labels.collect())).copied()
    }

    /// The labels of all series of a name.
    pub(crate) fn labels(&self, name: &str) -> Vec<&Labels> {
        self.samples.keys().filter(|(own, _)| own == name).map(|(_, labels)| labels).collect()
    }

    /// Names of the families.
    pub(crate) fn families(&self) -> BTreeSet<&str> {
        self.families.keys().map(String::as_str).collect()
    }
}

/// The name and the type of a family, from its two lines.
fn parse_head<'t>(help: &'t str, kind: Option<&'t str>) -> (&'t str, &'t str) {
    let rest = help.strip_prefix("# HELP ").unwrap_or_else(|| panic!("no HELP line: {help}"));
    let (name, text) = rest.split_once(' ').unwrap();
    assert!(is_name(name, true), "{help}");
    assert!(text.ends_with('.') && text.len() > 5, "{help}: no sentence");
    let kind = kind.and_then(|line| line.strip_prefix("# TYPE ")).unwrap();
    let (same, kind) = kind.split_once(' ').unwrap();
    assert_eq!(name, same, "HELP and TYPE do not belong together");
    assert!(["counter", "gauge", "histogram"].contains(&kind), "{name} {kind}");
    assert_eq!(kind == "counter", name.ends_with("_total"), "{name} {kind}");
    for unit in ["ms", "millis", "micros", "us", "kb", "mb", "minutes", "percent"] {
        assert!(!name.split('_').any(|word| word == unit), "{name} has no base unit");
    }
    (name, kind)
}

fn is_name(name: &str, has_colons: bool) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || (has_colons && c == ':');
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.starts_with("__")
        && name.chars().all(is_legal)
}

fn parse_sample(line: &str) -> (&str, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no sample: {line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name, true), "{line}");
    let mut labels = Labels::new();
    if let Some(mut inner) = rest.strip_prefix('{') {
        loop {
            let (label, value) = inner.split_once("=\"").unwrap();
            assert!(is_name(label, false), "{line}");
            let (value, after) = unescape(value, line);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}: label twice");
            if let Some(after) = after.strip_prefix(',') {
                inner = after;
            } else {
                rest = after.strip_prefix('}').unwrap_or_else(|| panic!("{line}: no end"));
                break;
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}: no value"));
    assert!(!value.contains(' '), "{line}: more than a value");
    (name, labels, value.parse().unwrap_or_else(|_| panic!("{line}: no number")))
}

/// A label's value up to its closing quote, and what follows.
fn unescape<'t>(text: &'t str, line: &str) -> (String, &'t str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match characters.next() {
                Some((_, 'n')) => '\n',
                Some((_, escaped @ ('\\' | '"'))) => escaped,
                _ => panic!("{line}: a wrong escape"),
            }),
            other => value.push(other),
        }
    }
    panic!("{line}: a label has no end");
}

#[test]
fn the_parser_refuses_what_breaks_a_rule() {
    let head = "# HELP a_total A count.\n# TYPE a_total counter\n";
    let histogram = "# HELP h_seconds Some time.\n# TYPE h_seconds histogram\n";
    let refused = [
        "a_total 1\n".to_owned(),
        format!("{head}a_total 1"),
        format!("{head}a_total 1\na_total 2\n"),
        format!("{head}a_total{{x=\"1\",x=\"2\"}} 1\n"),
        format!("{head}a_total{{x=\"1}} 1\n"),
        format!("{head}a_total{{x=\"\\t\"}} 1\n"),
        format!("{head}a_total -1\n"),
        format!("{head}a_total 1 2\n"),
        format!("{head}a_total x\n"),
        format!("{head}b_total 1\n"),
        format!("{head}{head}"),
        "# HELP a A gauge.\n# TYPE a counter\na 1\n".to_owned(),
        "# HELP a_ms A gauge.\n# TYPE a_ms gauge\na_ms 1\n".to_owned(),
        "# HELP 9a A gauge.\n# TYPE 9a gauge\n9a 1\n".to_owned(),
        format!("{histogram}h_seconds_bucket{{le=\"1\"}} 1\nh_seconds_bucket{{le=\"+Inf\"}} 0\n"),
        format!("{histogram}h_seconds_bucket{{le=\"1\"}} 1\nh_seconds_sum 1\nh_seconds_count 1\n"),
    ];
    for text in refused {
        let parsed = std::panic::catch_unwind(|| Metrics::parse(&text));
        assert!(parsed.is_err(), "{text}");
    }
    let good = format!(
        "{head}a_total{{x=\"\\\\\\\"\\n\"}} 1\n{histogram}h_seconds_bucket{{le=\"1\"}} 1\n\
         h_seconds_bucket{{le=\"+Inf\"}} 2\nh_seconds_sum 1.5\nh_seconds_count 2\n"
    );
    let metrics = Metrics::parse(&good);
    assert_eq!(metrics.value("a_total", &[("x", "\\\"\n")]), Some(1.0));
    assert_eq!(metrics.families().len(), 2);
}
