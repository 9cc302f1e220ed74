//! `stats`: statistics by name, as text or JSON.

use std::fmt::Write as _;

use quintet::{Database, Table, TableStats};
use serde_json::{Map, Value};

use crate::failure::Outcome;

/// Named statistics, in the order in which they are printed.
pub type Figures = Vec<(String, Value)>;

/// Returns the statistics of one table.
pub fn of_table(table: &Table) -> Outcome<Figures> {
    Ok(of_table_stats(&table.stats()?))
}

/// Returns statistics of one table by name.
pub fn of_table_stats(stats: &TableStats) -> Figures {
    let mut figures = vec![text("table", &stats.name), text("engine", stats.kind.name())];
    figures.extend(stats.numbers().into_iter().map(|(name, value)| number(name, value)));
    figures.extend(stats.failure.iter().map(|failure| text("failure", failure)));
    figures.extend(stats.details.iter().map(|(name, value)| number(name, *value)));
    figures
}

/// Returns the statistics of a whole database: sums over its tables, and what the tables share.
pub fn of_database(database: &Database) -> Figures {
    let stats = database.stats();
    let sum = |figure: fn(&TableStats) -> u64| stats.tables.iter().map(figure).sum::<u64>();
    let mut figures = vec![
        ("tables".to_owned(), stats.tables.len().into()),
        number("keys", sum(|table| table.keys)),
        number("live_bytes", sum(|table| table.live_bytes)),
        number("dead_bytes", sum(|table| table.dead_bytes)),
    ];
    figures.extend(stats.numbers().into_iter().map(|(name, value)| number(name, value)));
    let failure = stats.background_failure.iter();
    figures.extend(failure.map(|failure| text("background_failure", failure)));
    figures
}

fn text(name: &str, value: &str) -> (String, Value) {
    (name.to_owned(), value.into())
}

fn number(name: &str, value: u64) -> (String, Value) {
    (name.to_owned(), value.into())
}

/// Formats one `name value` line for each statistic, with aligned values.
pub fn as_text(figures: &Figures) -> String {
    let width = figures.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in figures {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(text, "{name:width$}  {shown}");
    }
    text
}

/// Formats one JSON object.
pub fn as_json(figures: Figures) -> Value {
    Value::Object(figures.into_iter().collect::<Map<_, _>>())
}
