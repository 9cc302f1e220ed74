//! Counters of errors by kind. The kinds are a fixed list, so metrics have bounded labels.

use std::sync::atomic::{AtomicU64, Ordering};

use quintet::Error;

/// Codes of error replies. The last one stands for all others.
const CODES: [&str; 15] = [
    "ERR",
    "WRONGTYPE",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "NOPROTO",
    "EXECABORT",
    "OOM",
    "READONLY",
    "BUSYGROUP",
    "NOGROUP",
    "BUSYKEY",
    "UNBLOCKED",
    "INVALIDOBJ",
    "other",
];

/// Kinds of failures of the store. The last one stands for all others.
const KINDS: [&str; 10] = [
    CORRUPTION,
    "out_of_memory",
    "disk_full",
    "io",
    "log_failed",
    "table_failed",
    "limit",
    "read_only",
    "closed",
    "other",
];

/// The kind of damage: a checksum that does not fit, or bytes that no write produces.
const CORRUPTION: &str = "corruption";

/// Counts errors.
#[derive(Debug, Default)]
pub(crate) struct ErrorCounters {
    replies: [AtomicU64; CODES.len()],
    storage: [AtomicU64; KINDS.len()],
}

fn kind_of(error: &Error) -> &'static str {
    match error {
        Error::Corruption { .. } => CORRUPTION,
        Error::OutOfMemory { .. } => "out_of_memory",
        Error::DiskFull { .. } => "disk_full",
        Error::Io { .. } => "io",
        Error::LogFailed { .. } => "log_failed",
        Error::TableFailed { .. } => "table_failed",
        Error::Limit { .. } => "limit",
        Error::ReadOnly => "read_only",
        Error::Closed => "closed",
        _ => "other",
    }
}

fn add<const N: usize>(counters: &[AtomicU64; N], names: &[&str; N], name: &str) {
    let at = names.iter().position(|own| *own == name).unwrap_or(N - 1);
    if let Some(counter) = counters.get(at) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn values<'n>(
    counters: &'n [AtomicU64],
    names: &'n [&'static str],
) -> impl Iterator<Item = (&'static str, u64)> + 'n {
    names.iter().copied().zip(counters.iter().map(|counter| counter.load(Ordering::Relaxed)))
}

impl ErrorCounters {
    /// Counts a reply if it is an error.
    pub(crate) fn note_reply(&self, reply: &[u8]) {
        let Some((b'-', text)) = reply.split_first() else { return };
        let end = text.iter().position(|byte| !byte.is_ascii_uppercase()).unwrap_or(text.len());
        let code = text.get(..end).and_then(|code| std::str::from_utf8(code).ok());
        add(&self.replies, &CODES, code.unwrap_or_default());
    }

    /// Counts a failure of the store. Returns its kind.
    pub(crate) fn note_storage(&self, error: &Error) -> &'static str {
        let kind = kind_of(error);
        add(&self.storage, &KINDS, kind);
        kind
    }

    /// Error replies by code.
    pub(crate) fn replies(&self) -> impl Iterator<Item = (&'static str, u64)> {
        values(&self.replies, &CODES)
    }

    /// Failures of the store by kind.
    pub(crate) fn storage(&self) -> impl Iterator<Item = (&'static str, u64)> {
        values(&self.storage, &KINDS)
    }

    /// Failures that were damage.
    pub(crate) fn corruptions(&self) -> u64 {
        self.storage().find(|(kind, _)| *kind == CORRUPTION).map_or(0, |(_, count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kind() {
        let counters = ErrorCounters::default();
        for reply in ["-ERR x\r\n", "-WRONGTYPE y\r\n", "-ERR\r\n", "-MADEUP z\r\n", "+OK\r\n", ""]
        {
            counters.note_reply(reply.as_bytes());
        }
        let found: Vec<_> = counters.replies().filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, [("ERR", 2), ("WRONGTYPE", 1), ("other", 1)]);
        let damage = Error::Corruption { file: "f".into(), offset: 0, what: "w".into() };
        assert_eq!(counters.note_storage(&damage), "corruption");
        assert_eq!(counters.note_storage(&Error::Closed), "closed");
        assert_eq!(counters.note_storage(&Error::Forked), "other");
        assert_eq!(counters.corruptions(), 1);
        assert_eq!(counters.storage().map(|(_, count)| count).sum::<u64>(), 3);
    }
}
