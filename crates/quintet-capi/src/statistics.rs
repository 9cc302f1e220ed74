//! Statistics by name and as JSON.

use std::fmt::Write as _;

use quintet::{DatabaseStats, Error, TableStats};

use crate::failure::Failure;

type Statistic = (&'static str, u64);

/// Returns the statistics of a table.
pub fn of_table(stats: &TableStats) -> Vec<Statistic> {
    let mut list = stats.numbers();
    list.extend_from_slice(&stats.details);
    list
}

/// Returns a statistic by name.
pub fn find(list: &[Statistic], name: &str) -> Result<u64, Failure> {
    let found = list.iter().find(|(other, _)| *other == name).map(|(_, number)| *number);
    let what = || "there is no such statistic".to_owned();
    Ok(found.ok_or_else(|| Error::InvalidOption { name: name.to_owned(), what: what() })?)
}

fn members(list: &[Statistic]) -> String {
    let members = list.iter().map(|(name, number)| format!("{}:{number}", quote(name)));
    members.collect::<Vec<_>>().join(",")
}

fn failure(failure: Option<&str>) -> String {
    failure.map_or("null".to_owned(), quote)
}

/// Returns the statistics of a table as a JSON object.
pub fn table_json(stats: &TableStats) -> String {
    let (name, engine) = (quote(&stats.name), quote(stats.kind.name()));
    let (members, failure) = (members(&of_table(stats)), failure(stats.failure.as_deref()));
    format!("{{\"name\":{name},\"engine\":{engine},{members},\"failure\":{failure}}}")
}

/// Returns the statistics of a database as a JSON object.
pub fn database_json(stats: &DatabaseStats) -> String {
    let tables = stats.tables.iter().map(table_json).collect::<Vec<_>>().join(",");
    let members = members(&stats.numbers());
    let failure = failure(stats.background_failure.as_deref());
    format!("{{{members},\"background_failure\":{failure},\"tables\":[{tables}]}}")
}

/// Returns a text as a JSON string.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
