//! Lists of tables: `tables`, and `stats --tables`.
//!
//! A database may have thousands of tables. A list is filtered by name, sorted, and then cut to the
//! requested number of lines.

use std::cmp::Reverse;

use quintet::{TableInfo, TableStats};
use serde_json::json;

use crate::{
    arguments::{StatsArgs, TableOrder, TableSelection, TablesArgs},
    context::Context,
    failure::{Failure, Outcome},
    figures,
};

/// Runs `tables`.
pub fn tables(context: &mut Context<'_>, command: &TablesArgs) -> Outcome {
    let database = context.open_to_read(&command.dir)?;
    let selected = |table: &TableInfo| is_selected(&command.selection, &table.name);
    let limit = command.selection.limit.unwrap_or(usize::MAX);
    for table in database.tables().into_iter().filter(selected).take(limit) {
        let types = table.types.as_ref().map(ToString::to_string);
        if command.json {
            let mut object = json!({ "table": table.name, "engine": table.kind.name() });
            if let Some(types) = types {
                object["types"] = types.into();
            }
            writeln!(context.out, "{object}")?;
        } else if let Some(types) = types {
            writeln!(context.out, "{}\t{}\t{types}", table.name, table.kind)?;
        } else {
            writeln!(context.out, "{}\t{}", table.name, table.kind)?;
        }
    }
    Ok(())
}

/// Runs `stats --tables`.
pub fn stats(context: &mut Context<'_>, command: &StatsArgs) -> Outcome {
    let database = context.open_to_read(&command.dir)?;
    let mut tables = database.stats().tables;
    tables.retain(|table| is_selected(&command.selection, &table.name));
    // Stable: tables with equal numbers stay in the order of their paths.
    tables.sort_by_key(|table| Reverse(figure(command.sort, table)));
    tables.truncate(command.selection.limit.unwrap_or(usize::MAX));
    if !command.json {
        let names = "table\tengine\tkeys\tlive_bytes\tdead_bytes\tfile_bytes\tmemory_bytes";
        writeln!(context.out, "{names}")?;
    }
    for table in &tables {
        if command.json {
            let figures = figures::of_table_stats(table);
            writeln!(context.out, "{}", figures::as_json(figures))?;
            continue;
        }
        let TableStats { name, kind, keys, live_bytes, dead_bytes, .. } = table;
        let files_and_memory = format!("{}\t{}", table.file_bytes, table.memory_bytes);
        writeln!(
            context.out,
            "{name}\t{kind}\t{keys}\t{live_bytes}\t{dead_bytes}\t{files_and_memory}"
        )?;
    }
    Ok(())
}

/// Fails if arguments of a list are given to a command that prints none.
pub fn must_be_empty(selection: &TableSelection) -> Outcome {
    let TableSelection { pattern, from, limit } = selection;
    if pattern.is_none() && from.is_none() && limit.is_none() {
        return Ok(());
    }
    Err(Failure::Usage("--match, --from and --limit need --tables".to_owned()))
}

/// Returns the number that a list is sorted by; 0 for an order by path.
fn figure(order: TableOrder, table: &TableStats) -> u64 {
    match order {
        TableOrder::Name => 0,
        TableOrder::Keys => table.keys,
        TableOrder::LiveBytes => table.live_bytes,
        TableOrder::DeadBytes => table.dead_bytes,
        TableOrder::FileBytes => table.file_bytes,
        TableOrder::MemoryBytes => table.memory_bytes,
    }
}

fn is_selected(selection: &TableSelection, name: &str) -> bool {
    selection.from.as_deref().is_none_or(|from| name >= from)
        && selection
            .pattern
            .as_deref()
            .is_none_or(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
}

/// Returns whether `text` has the form `pattern`. Takes time in proportion to the product of the
/// lengths: only the last `*` is tried again.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    // The pattern after the last `*`, and the text that the `*` does not stand for.
    let mut retry = None;
    while let Some(byte) = text.get(position) {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                retry = Some((at, position));
            }
            Some(expected) if *expected == b'?' || expected == byte => {
                at += 1;
                position += 1;
            }
            _ => {
                let Some((after_star, from)) = retry else { return false };
                (at, position) = (after_star, from + 1);
                retry = Some((after_star, from + 1));
            }
        }
    }
    pattern.get(at..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_any_text_and_any_character() {
        let cases = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("app/*", "app/eu/users", true),
            ("app/*", "apps", false),
            ("*users", "app/eu/users", true),
            ("*a*b*c", "xxaxbxbxc", true),
            ("*a*b*c", "xxaxcxc", false),
            ("t?", "t1", true),
            ("t?", "t", false),
            ("t?", "t12", false),
            ("**t**", "t", true),
            ("ab*ab", "ab", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
