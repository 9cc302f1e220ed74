//! The key browser: pages of a scan with the type, the expiry and the beginning of each value.

use std::sync::Arc;

use quintet::Cursor;
use serde_json::{Value, json};

use super::api::{number, parameter, printable};
use crate::{
    glob,
    state::Server,
    store::{Body, DATABASES, DatabaseId, Head, now_millis},
};

/// Most keys of a page.
const PAGE_MAX: u64 = 500;
/// Entries that are read for one page. A pattern that few keys match gives short pages.
const SCANNED_MAX: usize = 20_000;
/// Entries that are read at a time.
const STEP: usize = 256;
/// Bytes of a value, and of a name, that are shown.
const PREVIEW_BYTES: usize = 96;
const NAME_BYTES: usize = 512;
/// Elements of a small collection that are shown.
const PREVIEW_ELEMENTS: usize = 4;

/// A request for a page.
#[derive(Debug)]
struct PageRequest {
    database: DatabaseId,
    cursor: u64,
    count: usize,
    pattern: Vec<u8>,
}

/// A page of keys. The parameters are `database`, `cursor`, `count` and `match`; a cursor of 0
/// begins, and a returned cursor of 0 ends. Fails with a message for the user.
pub(super) async fn page(server: Arc<Server>, query: &str) -> Result<Value, String> {
    let database = number(query, "database", 0, u64::from(DATABASES) - 1)?;
    let count = number(query, "count", 50, PAGE_MAX)?.max(1);
    let pattern = parameter(query, "match").unwrap_or_default().into_bytes();
    if pattern.len() > glob::PATTERN_BYTES_MAX {
        return Err(format!("match is longer than {} bytes", glob::PATTERN_BYTES_MAX));
    }
    let request = PageRequest {
        database: DatabaseId::of_default(u8::try_from(database).unwrap_or(0)),
        cursor: number(query, "cursor", 0, u64::MAX)?,
        count: usize::try_from(count).unwrap_or(1),
        pattern,
    };
    // A scan may read the disk.
    let read = tokio::task::spawn_blocking(move || read(&server, &request));
    read.await.unwrap_or_else(|_| Err("the scan failed".to_owned()))
}

fn read(server: &Server, request: &PageRequest) -> Result<Value, String> {
    let position = server.cursors.get(request.cursor);
    let position = position.ok_or("the cursor has expired; begin again with 0")?;
    let Some(tables) = server.store.databases.get(request.database) else {
        return Ok(json!({ "keys": [], "cursor": "0", "scanned": 0 }));
    };
    let now = now_millis();
    let (mut cursor, mut scanned, mut keys) = (Cursor(position), 0, Vec::new());
    loop {
        let step = STEP.min(request.count);
        let (entries, next) =
            tables.keys.scan(&cursor, step).map_err(|error| format!("the scan failed: {error}"))?;
        scanned += entries.len();
        for (key, head) in entries {
            let is_match = request.pattern.is_empty() || glob::matches(&request.pattern, &key);
            let head = Head::decode(&head).filter(|_| is_match);
            let live = head.filter(|head| head.expiry.is_none_or(|expiry| expiry > now));
            keys.extend(live.map(|head| describe(&key, &head, now)));
        }
        cursor = next;
        if cursor.is_start() || keys.len() >= request.count || scanned >= SCANNED_MAX {
            break;
        }
    }
    let next = if cursor.is_start() { 0 } else { server.cursors.put(cursor.0) };
    // Numbers of scripts have 53 bits, so the cursor is a text.
    Ok(json!({ "keys": keys, "cursor": next.to_string(), "scanned": scanned }))
}

/// A key with its type, expiry, size and the beginning of its value.
fn describe(key: &[u8], head: &Head, now: u64) -> Value {
    let (size, unit, preview) = match &head.body {
        Body::Str(value) => (u64::try_from(value.len()).unwrap_or(0), "bytes", shorten(value)),
        Body::Elements(elements) => {
            let names = elements.inline.iter().flatten().take(PREVIEW_ELEMENTS);
            let names: Vec<String> = names.map(|(name, _)| shorten(name)).collect();
            (elements.count, "elements", names.join(", "))
        }
    };
    json!({
        "key": printable(key.get(..NAME_BYTES).unwrap_or(key)),
        "key_bytes": key.len(),
        "type": head.kind().name(),
        "ttl_ms": head.expiry.map(|expiry| expiry.saturating_sub(now)),
        "size": size,
        "unit": unit,
        "preview": preview,
    })
}

fn shorten(bytes: &[u8]) -> String {
    match bytes.get(..PREVIEW_BYTES) {
        Some(start) if bytes.len() > PREVIEW_BYTES => {
            // A cut within a character would make the rest look like binary data.
            let valid = match std::str::from_utf8(start) {
                Err(error) if error.error_len().is_none() => start.get(..error.valid_up_to()),
                _ => None,
            };
            format!("{}\u{2026}", printable(valid.unwrap_or(start)))
        }
        _ => printable(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(shorten(b"short"), "short");
        let long = shorten("\u{fc}".repeat(80).as_bytes());
        assert_eq!(long, format!("{}\u{2026}", "\u{fc}".repeat(48)));
        let odd = shorten(format!("a{}", "\u{fc}".repeat(80)).as_bytes());
        assert_eq!(odd, format!("a{}\u{2026}", "\u{fc}".repeat(47)));
        assert_eq!(shorten(&[0xff; 100]), format!("{}\u{2026}", "\\xff".repeat(96)));
    }
}
