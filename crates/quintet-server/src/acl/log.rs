//! `ACL LOG`: the last refused commands and logins.
//!
//! Equal refusals within a minute are one entry with a count. Entries have names and addresses,
//! never values or passwords.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Time in which an equal refusal joins an entry.
const JOIN_TIME: Duration = Duration::from_mins(1);
/// Most bytes of the object of an entry.
const OBJECT_BYTES_MAX: usize = 128;

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The login failed.
    Auth,
    /// The command is not allowed.
    Command,
    /// The key is not allowed.
    Key,
    /// The channel is not allowed.
    Channel,
}

impl Reason {
    /// The name in `ACL LOG`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
        }
    }
}

/// A refusal, or equal ones.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    /// Number of refusals.
    pub(crate) count: u64,
    /// Why.
    pub(crate) reason: Reason,
    /// Whether it was within `MULTI`.
    pub(crate) is_in_multi: bool,
    /// The command, key or channel, shortened.
    pub(crate) object: Vec<u8>,
    /// The user.
    pub(crate) user: String,
    /// When the last one was.
    pub(crate) time: Instant,
    /// The client as in `CLIENT LIST`.
    pub(crate) client: String,
}

impl LogEntry {
    /// A refusal now.
    pub(crate) fn new(reason: Reason, object: &[u8], user: &str, client: String) -> Self {
        Self {
            count: 1,
            reason,
            is_in_multi: false,
            object: object.get(..OBJECT_BYTES_MAX).unwrap_or(object).to_vec(),
            user: user.to_owned(),
            time: Instant::now(),
            client,
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.reason == other.reason
            && self.is_in_multi == other.is_in_multi
            && self.object == other.object
            && self.user == other.user
            && other.time.saturating_duration_since(self.time) <= JOIN_TIME
    }
}

/// The last refusals, newest first.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<VecDeque<LogEntry>>);

impl Log {
    fn entries(&self) -> MutexGuard<'_, VecDeque<LogEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a refusal and keeps at most `max` entries.
    pub(crate) fn add(&self, mut added: LogEntry, max: u64) {
        let mut entries = self.entries();
        if let Some(at) = entries.iter().position(|entry| entry.is_like(&added)) {
            let earlier = entries.remove(at);
            added.count += earlier.map_or(0, |entry| entry.count);
        }
        entries.push_front(added);
        entries.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    }

    /// The newest entries, at most `count`.
    pub(crate) fn newest(&self, count: usize) -> Vec<LogEntry> {
        self.entries().iter().take(count).cloned().collect()
    }

    /// Forgets all entries.
    pub(crate) fn reset(&self) {
        self.entries().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_refusals_are_one_entry_and_old_ones_go() {
        let log = Log::default();
        let entry =
            |object: &str| LogEntry::new(Reason::Command, object.as_bytes(), "u", String::new());
        for object in ["a", "b", "a", "c"] {
            log.add(entry(object), 2);
        }
        let entries = log.newest(9);
        let shown: Vec<_> = entries.iter().map(|e| (e.object.as_slice(), e.count)).collect();
        assert_eq!(shown, [(b"c".as_slice(), 1), (b"a", 2)]);
        let mut later = entry("c");
        later.time += JOIN_TIME + Duration::from_secs(1);
        log.add(later, 2);
        assert_eq!(log.newest(1)[0].count, 1);
        log.reset();
        assert_eq!(log.newest(9).len(), 0);
    }
}
