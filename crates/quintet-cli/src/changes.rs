//! `changes`: prints the commits that the log still has, one change a line.

use quintet::{Change, ChangeFeedOptions, CommittedChanges, Lsn, TableChange};
use serde_json::{Map, Value};

use crate::{
    arguments::ChangesArgs,
    bytes::{escape, hex, put_json},
    context::Context,
    failure::Outcome,
};

/// Prints the changes that `command` selects. Opens the database for reading.
pub fn changes(context: &mut Context<'_>, command: &ChangesArgs) -> Outcome {
    let database = context.open_to_read(&command.dir)?;
    let from = command.from.map_or(database.log_range().start, Lsn);
    let options = command.tables.iter().fold(
        // No writer is open: what the log has now is what opening for writing would keep.
        ChangeFeedOptions::new().unsynced(true),
        ChangeFeedOptions::path,
    );
    let mut remaining = command.limit.unwrap_or(u64::MAX);
    let feed = database.changes(from, options)?;
    for commit in feed.commits() {
        let commit = commit?;
        for change in commit.iter() {
            if remaining == 0 {
                return Ok(());
            }
            remaining -= 1;
            if command.json {
                writeln!(context.out, "{}", json(&commit, &change))?;
            } else {
                writeln!(context.out, "{}", line(&commit, &change, command.hex))?;
            }
        }
    }
    Ok(())
}

/// Formats a change as fields with tabs between them: LSN, table, what, and the keys and values.
fn line(commit: &CommittedChanges, change: &Change<'_>, in_hex: bool) -> String {
    let show = |bytes: &[u8]| if in_hex { hex(bytes) } else { escape(bytes) };
    let mut fields = vec![commit.lsn().to_string(), escape(change.table.as_bytes())];
    fields.push(name_of(&change.change).to_owned());
    match change.change {
        TableChange::Put { key, value, .. } => fields.extend([show(key), show(value)]),
        TableChange::Delete { key } => fields.push(show(key)),
        TableChange::DeleteRange { start, end } => fields.extend([show(start), show(end)]),
        _ => {}
    }
    fields.join("\t")
}

fn json(commit: &CommittedChanges, change: &Change<'_>) -> Value {
    let mut object = Map::new();
    object.insert("lsn".to_owned(), commit.lsn().0.into());
    object.insert("end".to_owned(), commit.end().0.into());
    object.insert("table".to_owned(), change.table.into());
    object.insert("table_number".to_owned(), change.table_number.into());
    object.insert("change".to_owned(), name_of(&change.change).into());
    match change.change {
        TableChange::Put { key, value, expires_at_unix_millis, type_tag } => {
            put_json(&mut object, "key", key);
            put_json(&mut object, "value", value);
            if let Some(millis) = expires_at_unix_millis {
                object.insert("expires_at_unix_millis".to_owned(), millis.into());
            }
            if let Some(tag) = type_tag {
                object.insert("type".to_owned(), tag.to_string().into());
            }
        }
        TableChange::Delete { key } => put_json(&mut object, "key", key),
        TableChange::DeleteRange { start, end } => {
            put_json(&mut object, "start", start);
            put_json(&mut object, "end", end);
        }
        _ => {}
    }
    Value::Object(object)
}

fn name_of(change: &TableChange<'_>) -> &'static str {
    match change {
        TableChange::Begin => "begin",
        TableChange::Put { .. } => "put",
        TableChange::Delete { .. } => "delete",
        TableChange::DeleteRange { .. } => "delete-range",
        _ => "unknown",
    }
}
