//! The key browser: pages of a scan with the type, the expiry and the beginning of each value.
//!
//! A page reads whole values to show their beginnings, so it ends after [`SCANNED_BYTES`], with a
//! cursor for the next page. A user sees the namespaces that it may use.

use std::sync::Arc;

use quintet::Cursor;
use serde_json::{Value, json};

use super::api::{databases, number, parameter, printable};
use crate::{
    acl::User,
    glob,
    state::Server,
    store::{
        Body, DATABASES, DEFAULT_NAMESPACE, DatabaseId, Head, NAMESPACE_BYTES_MAX, Pages,
        now_millis,
    },
};

/// Most keys of a page.
const PAGE_MAX: u64 = 500;
/// Entries that are read for one page. A pattern that few keys match gives short pages.
const SCANNED_MAX: usize = 20_000;
/// Bytes of entries after which a page ends. The last read may have more: see [`STEP`].
const SCANNED_BYTES: usize = 8 << 20;
/// Most entries that are read at a time; fewer if the earlier ones were long.
const STEP: usize = 64;
/// Bytes of a value, and of a name, that are shown.
const PREVIEW_BYTES: usize = 96;
const NAME_BYTES: usize = 512;
/// Elements of a small collection that are shown.
const PREVIEW_ELEMENTS: usize = 4;

/// A request for a page.
#[derive(Debug)]
struct PageRequest {
    namespace: String,
    database: u8,
    cursor: u64,
    count: usize,
    pattern: Vec<u8>,
}

/// The names of the namespaces that the user may use.
pub(super) fn namespaces(server: &Server, user: &User) -> Value {
    let mut names = server.store.databases.namespace_names();
    names.retain(|name| user.allows_namespace(name));
    json!({ "namespaces": names })
}

/// A page of keys. The parameters are `namespace`, `database`, `cursor`, `count` and `match`; a
/// cursor of 0 begins, and a returned cursor of 0 ends. Fails with a message for the user.
pub(super) async fn page(server: Arc<Server>, user: &User, query: &str) -> Result<Value, String> {
    let namespace = parameter(query, "namespace").filter(|name| !name.is_empty());
    let namespace = namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    // Before the search, so that a user does not learn the names of others.
    if namespace.len() > NAMESPACE_BYTES_MAX || !user.allows_namespace(&namespace) {
        return Err("the user may not use this namespace".to_owned());
    }
    let database = number(query, "database", 0, u64::from(DATABASES) - 1)?;
    let count = number(query, "count", 50, PAGE_MAX)?.max(1);
    let pattern = parameter(query, "match").unwrap_or_default().into_bytes();
    if pattern.len() > glob::PATTERN_BYTES_MAX {
        return Err(format!("match is longer than {} bytes", glob::PATTERN_BYTES_MAX));
    }
    let request = PageRequest {
        namespace,
        database: u8::try_from(database).unwrap_or(0),
        cursor: number(query, "cursor", 0, u64::MAX)?,
        count: usize::try_from(count).unwrap_or(1),
        pattern,
    };
    // A scan may read the disk.
    let read = tokio::task::spawn_blocking(move || read(&server, &request));
    read.await.unwrap_or_else(|_| Err("the scan failed".to_owned()))
}

fn read(server: &Server, request: &PageRequest) -> Result<Value, String> {
    // While it is held, the tables of the namespace stay open.
    let namespace = server.store.databases.enter(&request.namespace).map_err(|fail| fail.text())?;
    let namespace = namespace.ok_or_else(|| {
        format!("there is no namespace '{}'", printable(request.namespace.as_bytes()))
    })?;
    let database = DatabaseId::of(namespace.id(), request.database);
    let position = server.cursors.get(request.cursor);
    let position = position.ok_or("the cursor has expired; begin again with 0")?;
    let databases = databases(server, namespace.id());
    let Some(tables) = server.store.databases.get(database) else {
        return Ok(json!({ "keys": [], "cursor": "0", "scanned": 0, "databases": databases }));
    };
    let now = now_millis();
    let mut pages = Pages::small(&tables.keys, Cursor(position), STEP);
    let (mut scanned, mut scanned_bytes, mut keys) = (0, 0, Vec::new());
    while keys.len() < request.count && scanned < SCANNED_MAX && scanned_bytes < SCANNED_BYTES {
        let page = pages
            .next(request.count)
            .map_err(|fail| format!("the scan failed: {}", fail.text()))?;
        let Some((entries, bytes)) = page else { break };
        scanned += entries.len();
        scanned_bytes += bytes;
        for (key, head) in entries {
            let is_match = request.pattern.is_empty() || glob::matches(&request.pattern, &key);
            let head = Head::decode(&head).filter(|_| is_match);
            let live = head.filter(|head| head.expiry.is_none_or(|expiry| expiry > now));
            keys.extend(live.map(|head| describe(&key, &head, now)));
        }
    }
    let next = if pages.cursor.is_start() { 0 } else { server.cursors.put(pages.cursor.0) };
    // Numbers of scripts have 53 bits, so the cursor is a text.
    Ok(json!({
        "keys": keys,
        "cursor": next.to_string(),
        "scanned": scanned,
        "databases": databases,
    }))
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
