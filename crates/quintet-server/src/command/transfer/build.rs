//! Builds a value of the store from the elements of a dump.

use quintet::Durability;

use super::super::{
    lists::{End, List},
    sorted_set::SortedSet,
    stream::{GroupState, PendingEntry, Stream, StreamId},
};
use crate::{
    failure::{Done, Fail},
    rdb::{Failure, Item, ItemId, Parsed, Sink},
    store::{DatabaseId, Kind, Unit, check_names},
};

/// Bytes of elements after which an unfinished value is committed.
const STEP_BYTES: usize = 1 << 20;
/// Elements after which it is.
const STEP_ITEMS: usize = 4096;
/// Most bytes of a value that is not committed in steps: the limit of one command.
const WHOLE_BYTES_MAX: usize = 1 << 30;

const TWICE: Failure = Failure::Content("a collection has the same element twice");

/// A value under construction: puts elements of a dump at a key, which must not exist, and whose
/// stripe must be held.
#[derive(Debug)]
pub(crate) struct Building {
    database: DatabaseId,
    key: Vec<u8>,
    /// Whether unfinished values are committed.
    in_steps: bool,
    /// Bytes that were put since the last commit.
    pub(crate) bytes: usize,
    items: usize,
    is_present: bool,
}

/// A sink that builds one value as a part of a unit.
#[derive(Debug)]
pub(super) struct Restoring<'u, 's> {
    pub(super) unit: &'u mut Unit<'s>,
    pub(super) building: Building,
}

impl Sink for Restoring<'_, '_> {
    fn item(&mut self, item: Item<'_>) -> Parsed {
        self.building.put(self.unit, item)
    }
}

impl Building {
    /// Builds a value that becomes a part of the unit.
    pub(crate) fn new(database: DatabaseId, key: Vec<u8>) -> Self {
        Self { database, key, in_steps: false, bytes: 0, items: 0, is_present: false }
    }

    /// Builds a value that the unit commits in steps, so that its size does not matter. The caller
    /// must see to it that no client reads it before its end.
    pub(crate) fn in_steps(database: DatabaseId, key: Vec<u8>) -> Self {
        Self { in_steps: true, ..Self::new(database, key) }
    }

    /// The database and the key.
    pub(crate) fn key(&self) -> (DatabaseId, &[u8]) {
        (self.database, &self.key)
    }

    /// Whether there was an element.
    pub(crate) fn is_present(&self) -> bool {
        self.is_present
    }

    fn stream<'u>(&self, unit: &'u mut Unit<'_>) -> Done<Stream<'u>> {
        Ok(Stream::new(unit.open_or_create(self.database, &self.key, Kind::Stream)?))
    }

    /// Counts an element. Commits what there is if that is large.
    fn note(&mut self, unit: &mut Unit<'_>, bytes: usize) -> Done {
        self.is_present = true;
        self.bytes += bytes;
        self.items += 1;
        if !self.in_steps {
            return if self.bytes > WHOLE_BYTES_MAX {
                Err(Fail::with(format!(
                    "ERR the value is too large; the limit of one command is {WHOLE_BYTES_MAX} \
                     bytes"
                )))
            } else {
                Ok(())
            };
        }
        if self.bytes > STEP_BYTES || self.items > STEP_ITEMS {
            unit.commit(Durability::Buffered)?;
            unit.lock_one(self.database, &self.key);
            (self.bytes, self.items) = (0, 0);
        }
        Ok(())
    }

    fn put_named(&self, unit: &mut Unit<'_>, kind: Kind, name: &[u8], value: &[u8]) -> Parsed {
        check_names([name])?;
        let mut collection = unit.open_or_create(self.database, &self.key, kind)?;
        if collection.contains(name)? {
            return Err(TWICE);
        }
        collection.put(name, value)?;
        collection.set_count(collection.count() + 1);
        Ok(())
    }

    fn put_field(
        &self,
        unit: &mut Unit<'_>,
        (field, value): (&[u8], &[u8]),
        expiry: Option<u64>,
    ) -> Parsed {
        if expiry.is_some_and(|expiry| unit.is_past(expiry)) {
            return Ok(());
        }
        self.put_named(unit, Kind::Hash, field, value)?;
        if let Some(expiry) = expiry {
            let mut hash = unit.open_or_create(self.database, &self.key, Kind::Hash)?;
            hash.set_field_expiry(field, Some(expiry))?;
        }
        Ok(())
    }

    fn put_entry(
        &self,
        unit: &mut Unit<'_>,
        id: StreamId,
        words: &[std::borrow::Cow<'_, [u8]>],
    ) -> Parsed {
        let mut stream = self.stream(unit)?;
        if id <= stream.last && stream.len() > 0 {
            return Err(Failure::Content("the ids of a stream do not ascend"));
        }
        stream.add(id, words.iter().map(|word| &**word))?;
        Ok(())
    }

    fn put_state(
        &self,
        unit: &mut Unit<'_>,
        (last, max_deleted): (ItemId, ItemId),
        added: Option<u64>,
    ) -> Parsed {
        let mut stream = self.stream(unit)?;
        let last = StreamId(last.0, last.1);
        if last < stream.last {
            return Err(Failure::Content("the last id of a stream is below that of an entry"));
        }
        stream.last = last;
        stream.max_deleted = StreamId(max_deleted.0, max_deleted.1);
        stream.added = added.unwrap_or_else(|| u64::try_from(stream.len()).unwrap_or(u64::MAX));
        stream.save();
        Ok(())
    }

    fn put_pending(&self, unit: &mut Unit<'_>, group: &[u8], entry: &PendingEntry) -> Parsed {
        let mut stream = self.stream(unit)?;
        if stream.pending_entry(group, entry.id)?.is_some() {
            return Err(Failure::Content("a group has the same pending entry twice"));
        }
        stream.put_pending(group, entry)?;
        Ok(())
    }

    fn put_owner(
        &self,
        unit: &mut Unit<'_>,
        (group, consumer): (&[u8], &[u8]),
        id: StreamId,
    ) -> Parsed {
        let mut stream = self.stream(unit)?;
        let Some(mut entry) = stream.pending_entry(group, id)? else {
            return Err(Failure::Content("a consumer has an entry that its group has not"));
        };
        if !entry.consumer.is_empty() && !consumer.is_empty() {
            return Err(Failure::Content("two consumers have the same pending entry"));
        }
        consumer.clone_into(&mut entry.consumer);
        stream.put_pending(group, &entry)?;
        Ok(())
    }

    /// Puts an element.
    pub(crate) fn put(&mut self, unit: &mut Unit<'_>, item: Item<'_>) -> Parsed {
        // 64: what a slot and a batch take beside an element.
        let bytes = 64
            + match item {
                Item::String(value) => {
                    let bytes = value.len();
                    unit.set_string(self.database, &self.key, value, None)?;
                    bytes
                }
                Item::Element(element) => {
                    let list = unit.open_or_create(self.database, &self.key, Kind::List)?;
                    List::new(list).push(End::Right, element)?;
                    element.len()
                }
                Item::Member(member) => {
                    self.put_named(unit, Kind::Set, member, &[])?;
                    member.len()
                }
                Item::Scored(member, score) => {
                    check_names([member])?;
                    let set = unit.open_or_create(self.database, &self.key, Kind::SortedSet)?;
                    if SortedSet::new(set).put(member, score)?.is_some() {
                        return Err(TWICE);
                    }
                    2 * member.len()
                }
                Item::Field(field, value, expiry) => {
                    self.put_field(unit, (field, value), expiry)?;
                    field.len() + value.len()
                }
                other => self.put_of_stream(unit, &other)?,
            };
        Ok(self.note(unit, bytes)?)
    }

    /// Puts an element of a stream. Returns its bytes.
    fn put_of_stream(&self, unit: &mut Unit<'_>, item: &Item<'_>) -> Parsed<usize> {
        Ok(match *item {
            Item::Entry(id, words) => {
                self.put_entry(unit, StreamId(id.0, id.1), words)?;
                words.iter().map(|word| word.len() + 1).sum()
            }
            Item::State { last, max_deleted, added } => {
                self.put_state(unit, (last, max_deleted), added)?;
                40
            }
            Item::Group { name, last, read } => {
                let last = StreamId(last.0, last.1);
                let mut stream = self.stream(unit)?;
                if stream.group(name)?.is_some() {
                    return Err(Failure::Content("a stream has the same group twice"));
                }
                stream.put_group(name, GroupState { last, entries_read: read })?;
                name.len()
            }
            Item::Pending { group, id, delivered, deliveries } => {
                let (id, consumer) = (StreamId(id.0, id.1), Vec::new());
                let entry = PendingEntry { id, delivered, deliveries, consumer };
                self.put_pending(unit, group, &entry)?;
                group.len()
            }
            Item::Consumer { group, name, seen } => {
                if !self.stream(unit)?.see_consumer(group, name, seen)? {
                    return Err(Failure::Content("a group has the same consumer twice"));
                }
                group.len() + name.len()
            }
            Item::Owner { group, consumer, id } => {
                self.put_owner(unit, (group, consumer), StreamId(id.0, id.1))?;
                group.len() + consumer.len()
            }
            _ => 0,
        })
    }
}
