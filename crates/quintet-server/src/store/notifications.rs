//! Events of keys, which clients receive through channels (`notify-keyspace-events`).
//!
//! A command notes events in its unit, and the commit publishes them under the stripes of the keys.
//! So the events of one key arrive in the order of its changes, and an event tells of a change that
//! has been committed. An event has a class. The setting chooses classes, and one or both of two
//! channels: `__keyspace@0__:key` with the event, and `__keyevent@0__:event` with the key. Only
//! connections in the namespace of the key receive them.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use super::database_id::DatabaseId;

/// Classes of events, and the two channels, as bits.
pub(crate) mod event {
    /// Commands on keys of any type.
    pub(crate) const GENERIC: u32 = 1;
    /// Commands on strings.
    pub(crate) const STRING: u32 = 1 << 1;
    /// Commands on lists.
    pub(crate) const LIST: u32 = 1 << 2;
    /// Commands on sets.
    pub(crate) const SET: u32 = 1 << 3;
    /// Commands on hashes.
    pub(crate) const HASH: u32 = 1 << 4;
    /// Commands on sorted sets.
    pub(crate) const SORTED_SET: u32 = 1 << 5;
    /// Keys that expire.
    pub(crate) const EXPIRED: u32 = 1 << 6;
    /// Keys that are evicted, which does not happen here.
    pub(crate) const EVICTED: u32 = 1 << 7;
    /// Commands on streams.
    pub(crate) const STREAM: u32 = 1 << 8;
    /// Commands of modules, which do not exist here.
    pub(crate) const MODULE: u32 = 1 << 9;
    /// Reads of keys that are absent.
    pub(crate) const MISS: u32 = 1 << 10;
    /// New keys.
    pub(crate) const NEW: u32 = 1 << 11;
    /// The channel of the key.
    pub(crate) const KEYSPACE: u32 = 1 << 12;
    /// The channel of the event.
    pub(crate) const KEYEVENT: u32 = 1 << 13;
    /// What `A` stands for.
    pub(crate) const ALL: u32 = (1 << 10) - 1;
}

/// The letter of each class, in the order in which Redis shows them.
const LETTERS: [(char, u32); 14] = [
    ('g', event::GENERIC),
    ('$', event::STRING),
    ('l', event::LIST),
    ('s', event::SET),
    ('h', event::HASH),
    ('z', event::SORTED_SET),
    ('x', event::EXPIRED),
    ('e', event::EVICTED),
    ('t', event::STREAM),
    ('d', event::MODULE),
    ('n', event::NEW),
    ('K', event::KEYSPACE),
    ('E', event::KEYEVENT),
    ('m', event::MISS),
];

/// Parses the letters of classes. Returns `None` for a letter that is none.
pub(crate) fn parse_classes(text: &str) -> Option<u32> {
    let mut classes = 0;
    for letter in text.chars() {
        classes |= match letter {
            'A' => event::ALL,
            _ => LETTERS.iter().find(|(own, _)| *own == letter)?.1,
        };
    }
    Some(classes)
}

/// The letters of classes as Redis shows them.
pub(crate) fn format_classes(classes: u32) -> String {
    let has_all = classes & event::ALL == event::ALL;
    let is_shown =
        |bit: u32| classes & bit != 0 && !(has_all && bit & (event::ALL | event::NEW) != 0);
    let single = LETTERS.iter().filter(|(_, bit)| is_shown(*bit)).map(|(letter, _)| *letter);
    has_all.then_some('A').into_iter().chain(single).collect()
}

/// An event that a unit has noted.
#[derive(Debug)]
pub(super) struct KeyEvent {
    pub(super) class: u32,
    pub(super) name: &'static str,
    pub(super) database: DatabaseId,
    pub(super) key: Vec<u8>,
    /// The database in which the key is now, if the event tells of what had expired when the unit
    /// loaded the key. It is published only if the unit changes the key. Otherwise the background
    /// removes what has expired, and tells.
    pub(super) expired_in: Option<DatabaseId>,
}

/// Receives the id of a namespace, a channel and a message.
type Publish = Box<dyn Fn(u32, &[u8], &[u8]) + Send + Sync>;

/// Where events go.
#[derive(Default)]
pub(crate) struct Notifications {
    receiver: OnceLock<(Arc<AtomicU32>, Publish)>,
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications").finish_non_exhaustive()
    }
}

impl Notifications {
    /// Connects events to their receiver. `classes` is what the setting says at each moment.
    pub(crate) fn connect(
        &self,
        classes: Arc<AtomicU32>,
        publish: impl Fn(u32, &[u8], &[u8]) + Send + Sync + 'static,
    ) {
        // A store has one receiver for its life.
        let _ = self.receiver.set((classes, Box::new(publish)));
    }

    /// Whether events of a class are published.
    pub(crate) fn wants(&self, class: u32) -> bool {
        let classes = self.receiver.get().map_or(0, |(own, _)| own.load(Ordering::Relaxed));
        classes & class != 0 && classes & (event::KEYSPACE | event::KEYEVENT) != 0
    }

    /// Publishes an event.
    pub(crate) fn send(&self, class: u32, name: &str, database: DatabaseId, key: &[u8]) {
        let Some((classes, publish)) = self.receiver.get() else { return };
        let classes = classes.load(Ordering::Relaxed);
        if classes & class == 0 {
            return;
        }
        let (namespace, index) = (database.namespace(), database.index());
        if classes & event::KEYSPACE != 0 {
            let channel = [format!("__keyspace@{index}__:").as_bytes(), key].concat();
            publish(namespace, &channel, name.as_bytes());
        }
        if classes & event::KEYEVENT != 0 {
            publish(namespace, format!("__keyevent@{index}__:{name}").as_bytes(), key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_letters() {
        for (text, shown) in [("", ""), ("KEA", "AKE"), ("Kg$", "g$K"), ("Enm", "nEm")] {
            assert_eq!(format_classes(parse_classes(text).unwrap()), shown, "{text}");
        }
        assert_eq!(parse_classes("Kq"), None);
    }
}
