//! Types of values, and their elements as a reader hands them to a sink.

use std::borrow::Cow;

use super::failure::Parsed;

/// Types of values in a dump.
pub(crate) mod value_type {
    /// A string.
    pub(crate) const STRING: u8 = 0;
    /// Count, elements.
    pub(crate) const LIST: u8 = 1;
    /// Count, members.
    pub(crate) const SET: u8 = 2;
    /// Count, members each with its score as text.
    pub(crate) const SORTED_SET_TEXT: u8 = 3;
    /// Count, fields each with its value.
    pub(crate) const HASH: u8 = 4;
    /// Count, members each with its score in 8 bytes.
    pub(crate) const SORTED_SET: u8 = 5;
    /// A value of a module of Redis 4 beta.
    pub(crate) const MODULE_OLD: u8 = 6;
    /// A value of a module.
    pub(crate) const MODULE: u8 = 7;
    /// A zipmap of fields and values.
    pub(crate) const HASH_ZIPMAP: u8 = 9;
    /// A ziplist of elements.
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    /// An intset.
    pub(crate) const SET_INTSET: u8 = 11;
    /// A ziplist of members and scores.
    pub(crate) const SORTED_SET_ZIPLIST: u8 = 12;
    /// A ziplist of fields and values.
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    /// Count, ziplists of elements.
    pub(crate) const LIST_QUICKLIST: u8 = 14;
    /// A stream of Redis 5.
    pub(crate) const STREAM: u8 = 15;
    /// A listpack of fields and values.
    pub(crate) const HASH_LISTPACK: u8 = 16;
    /// A listpack of members and scores.
    pub(crate) const SORTED_SET_LISTPACK: u8 = 17;
    /// Count, nodes: 1 and an element, or 2 and a listpack of elements.
    pub(crate) const LIST_QUICKLIST_2: u8 = 18;
    /// A stream of Redis 7.0.
    pub(crate) const STREAM_2: u8 = 19;
    /// A listpack of members.
    pub(crate) const SET_LISTPACK: u8 = 20;
    /// A stream of Redis 7.2.
    pub(crate) const STREAM_3: u8 = 21;
    /// Count, fields each with its expiry before it and its value behind it.
    pub(crate) const HASH_EXPIRY_OLD: u8 = 22;
    /// A listpack of fields, values and expiries.
    pub(crate) const HASH_LISTPACK_EXPIRY_OLD: u8 = 23;
    /// First expiry (8 bytes), and as before with expiries that count from it.
    pub(crate) const HASH_EXPIRY: u8 = 24;
    /// First expiry (8 bytes), and a listpack of fields, values and expiries.
    pub(crate) const HASH_LISTPACK_EXPIRY: u8 = 25;
}

/// Id of an entry of a stream: milliseconds and sequence number.
pub(crate) type ItemId = (u64, u64);

/// An element of a value.
#[derive(Debug)]
pub(crate) enum Item<'i> {
    /// The whole value of a string.
    String(Vec<u8>),
    /// The next element of a list.
    Element(&'i [u8]),
    /// A member of a set.
    Member(&'i [u8]),
    /// A member of a sorted set with its score.
    Scored(&'i [u8], f64),
    /// A field of a hash with its value and its expiry in milliseconds since 1970.
    Field(&'i [u8], &'i [u8], Option<u64>),
    /// An entry of a stream: its id, and its fields and values.
    Entry(ItemId, &'i [Cow<'i, [u8]>]),
    /// The state of a stream, behind its entries.
    State {
        /// The last id.
        last: ItemId,
        /// The largest id that was deleted.
        max_deleted: ItemId,
        /// Number of entries ever added; `None` if the dump does not say.
        added: Option<u64>,
    },
    /// A group of a stream.
    Group {
        /// Its name.
        name: &'i [u8],
        /// The last id that it has delivered.
        last: ItemId,
        /// Number of entries that it has read, if that is known.
        read: Option<u64>,
    },
    /// A pending entry of a group. Its consumer follows.
    Pending {
        /// The group.
        group: &'i [u8],
        /// The entry.
        id: ItemId,
        /// When it was delivered, in milliseconds since 1970.
        delivered: u64,
        /// Number of deliveries.
        deliveries: u64,
    },
    /// A consumer of a group.
    Consumer {
        /// The group.
        group: &'i [u8],
        /// Its name.
        name: &'i [u8],
        /// When it was seen, in milliseconds since 1970.
        seen: u64,
    },
    /// The consumer of a pending entry.
    Owner {
        /// The group.
        group: &'i [u8],
        /// The consumer.
        consumer: &'i [u8],
        /// The entry.
        id: ItemId,
    },
}

/// Receives the elements of a value in their order.
pub(crate) trait Sink {
    /// Receives an element. A failure ends the reader.
    fn item(&mut self, item: Item<'_>) -> Parsed;
}

/// A sink that drops everything.
#[derive(Debug)]
pub(super) struct Skip;

impl Sink for Skip {
    fn item(&mut self, _: Item<'_>) -> Parsed {
        Ok(())
    }
}
