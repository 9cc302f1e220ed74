//! A stream as elements.
//!
//! | name | value |
//! |---|---|
//! | `e`, id | the fields and values of an entry, each with its length |
//! | `g`, group | last id, number of entries read or -1 |
//! | `c`, group with its length, consumer | when it was seen last |
//! | `p`, group with its length, id | delivery time, number of deliveries, consumer |
//!
//! The state of the type has the last id, the largest deleted id and the number of entries ever
//! added. Ids have 16 bytes, big-endian, so that their order is that of names.

use std::ops::{Bound, ControlFlow};

use super::call::Call;
use crate::{
    failure::{Done, Fail},
    number::parse_u64,
    resp::Reply,
    store::{Collection, Kind, put_bytes, take_bytes},
};

/// Milliseconds and sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId(pub(crate) u64, pub(crate) u64);

/// The fields and values of an entry.
pub(super) type Fields = Vec<Vec<u8>>;

/// The state of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupState {
    pub(super) last: StreamId,
    /// Number of entries read, if it is known.
    pub(super) entries_read: Option<u64>,
}

/// An entry that a consumer has not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct PendingEntry {
    pub(super) id: StreamId,
    pub(super) delivered: u64,
    pub(super) deliveries: u64,
    pub(super) consumer: Vec<u8>,
}

/// A stream that is open.
pub(super) struct Stream<'u> {
    elements: Collection<'u>,
    pub(super) last: StreamId,
    pub(super) max_deleted: StreamId,
    pub(super) added: u64,
}

pub(super) const BAD_ID: Fail =
    Fail::new("ERR Invalid stream ID specified as stream command argument");

impl StreamId {
    pub(super) const MAX: Self = Self(u64::MAX, u64::MAX);
    /// The range of all ids.
    pub(super) const ALL: (Self, Self) = (Self(0, 0), Self::MAX);

    fn bytes(self) -> [u8; 16] {
        (u128::from(self.0) << 64 | u128::from(self.1)).to_be_bytes()
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let (ms, rest) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let sequence = rest.first_chunk().unwrap_or(&[0; 8]);
        Self(u64::from_be_bytes(*ms), u64::from_be_bytes(*sequence))
    }

    /// The next id, or `None` behind the last.
    pub(super) fn next(self) -> Option<Self> {
        match self.1.checked_add(1) {
            Some(sequence) => Some(Self(self.0, sequence)),
            None => Some(Self(self.0.checked_add(1)?, 0)),
        }
    }

    /// The id before, or `None` before the first.
    pub(super) fn previous(self) -> Option<Self> {
        match self.1.checked_sub(1) {
            Some(sequence) => Some(Self(self.0, sequence)),
            None => Some(Self(self.0.checked_sub(1)?, u64::MAX)),
        }
    }

    /// Parses `5-3`, or `5` with a given sequence number.
    pub(super) fn parse(text: &[u8], sequence: u64) -> Done<Self> {
        let mut parts = text.splitn(2, |byte| *byte == b'-');
        let ms = parts.next().and_then(parse_u64).ok_or(BAD_ID)?;
        let sequence = match parts.next() {
            None => sequence,
            Some(text) => parse_u64(text).ok_or(BAD_ID)?,
        };
        Ok(Self(ms, sequence))
    }

    pub(super) fn text(self) -> String {
        format!("{}-{}", self.0, self.1)
    }
}

fn entry_name(id: StreamId) -> Vec<u8> {
    [b"e".as_slice(), &id.bytes()].concat()
}

fn group_name(group: &[u8]) -> Vec<u8> {
    [b"g", group].concat()
}

/// The prefix of the consumers (`c`) or the pending entries (`p`) of a group.
fn group_prefix(kind: u8, group: &[u8]) -> Vec<u8> {
    let mut prefix = vec![kind];
    put_bytes(&mut prefix, group);
    prefix
}

fn pending_name(group: &[u8], id: StreamId) -> Vec<u8> {
    [group_prefix(b'p', group).as_slice(), &id.bytes()].concat()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The end of the range of names with a prefix: the prefix with its last byte increased.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

impl<'u> Stream<'u> {
    /// A stream over its elements.
    pub(super) fn new(elements: Collection<'u>) -> Self {
        let extra = elements.extra();
        let id = |at: usize| StreamId(u64_at(extra, at), u64_at(extra, at + 8));
        let (last, max_deleted, added) = (id(0), id(16), u64_at(extra, 32));
        Self { elements, last, max_deleted, added }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.elements.count()
    }

    /// Stores the state after a change of its fields.
    pub(super) fn save(&mut self) {
        let numbers =
            [self.last.0, self.last.1, self.max_deleted.0, self.max_deleted.1, self.added];
        let extra: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.elements.set_extra(&extra);
    }

    /// Adds an entry, whose id must be above the last.
    pub(super) fn add<'f>(&mut self, id: StreamId, fields: impl Iterator<Item = &'f [u8]>) -> Done {
        let mut value = Vec::new();
        for field in fields {
            put_bytes(&mut value, field);
        }
        self.elements.put(&entry_name(id), &value)?;
        self.elements.set_count(self.len() + 1);
        self.last = id;
        self.added += 1;
        self.save();
        Ok(())
    }

    /// The fields of an entry.
    pub(super) fn get(&self, id: StreamId) -> Done<Option<Fields>> {
        Ok(self.elements.get(&entry_name(id))?.map(|value| decode_fields(&value)))
    }

    /// Removes an entry. Returns whether it was there.
    pub(super) fn delete(&mut self, id: StreamId) -> Done<bool> {
        let name = entry_name(id);
        if !self.elements.contains(&name)? {
            return Ok(false);
        }
        self.elements.remove(&name);
        self.elements.set_count(self.len() - 1);
        Ok(true)
    }

    /// Up to `count` entries from `from` to `to`, both included, or from the end.
    pub(super) fn range(
        &self,
        (from, to): (StreamId, StreamId),
        is_reverse: bool,
        count: usize,
    ) -> Done<Vec<(StreamId, Fields)>> {
        let mut found = Vec::new();
        if count == 0 || from > to {
            return Ok(found);
        }
        let (start, end) = (entry_name(from), entry_name(to));
        let range = (Bound::Included(start.as_slice()), Bound::Included(end.as_slice()));
        self.elements.visit(range, is_reverse, |name, value| {
            let id = StreamId::of_bytes(name.get(1..).unwrap_or(&[]));
            found.push((id, decode_fields(value)));
            self.elements.hold(value.len())?;
            if found.len() >= count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// Ids of up to `count` entries from `from` to `to`, both included.
    pub(super) fn ids(
        &self,
        (from, to): (StreamId, StreamId),
        count: usize,
    ) -> Done<Vec<StreamId>> {
        let mut found = Vec::new();
        if count == 0 || from > to {
            return Ok(found);
        }
        let (start, end) = (entry_name(from), entry_name(to));
        let range = (Bound::Included(start.as_slice()), Bound::Included(end.as_slice()));
        self.elements.visit(range, false, |name, _| {
            found.push(StreamId::of_bytes(name.get(1..).unwrap_or(&[])));
            self.elements.hold(0)?;
            if found.len() >= count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// The id of the first entry, or the lowest id without one.
    pub(super) fn first(&self) -> Done<StreamId> {
        let all = (StreamId::default(), StreamId::MAX);
        Ok(self.range(all, false, 1)?.first().map_or(StreamId::default(), |(id, _)| *id))
    }

    /// The state of a group.
    pub(super) fn group(&self, group: &[u8]) -> Done<Option<GroupState>> {
        Ok(self.elements.get(&group_name(group))?.map(|value| decode_group(&value)))
    }

    /// Creates or changes a group.
    pub(super) fn put_group(&mut self, group: &[u8], state: GroupState) -> Done {
        let read = state.entries_read.unwrap_or(u64::MAX);
        let numbers = [state.last.0, state.last.1, read];
        let value: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.elements.put(&group_name(group), &value)
    }

    /// All groups by name.
    pub(super) fn groups(&self) -> Done<Vec<(Vec<u8>, GroupState)>> {
        let groups = self.under(b"g")?;
        Ok(groups.into_iter().map(|(name, value)| (name, decode_group(&value))).collect())
    }

    /// Removes a group with its consumers.
    pub(super) fn remove_group(&mut self, group: &[u8]) -> Done {
        for kind in [b'c', b'p'] {
            let prefix = group_prefix(kind, group);
            for (rest, _) in self.under(&prefix)? {
                self.elements.remove(&[prefix.as_slice(), &rest].concat());
            }
        }
        self.elements.remove(&group_name(group));
        Ok(())
    }

    /// Consumers of a group, each with when it was seen last.
    pub(super) fn consumers(&self, group: &[u8]) -> Done<Vec<(Vec<u8>, u64)>> {
        let consumers = self.under(&group_prefix(b'c', group))?;
        Ok(consumers.into_iter().map(|(name, value)| (name, u64_at(&value, 0))).collect())
    }

    /// Notes that a consumer was seen. Returns whether it is new.
    pub(super) fn see_consumer(&mut self, group: &[u8], consumer: &[u8], now: u64) -> Done<bool> {
        let name = [group_prefix(b'c', group).as_slice(), consumer].concat();
        let is_new = !self.elements.contains(&name)?;
        self.elements.put(&name, &now.to_le_bytes())?;
        Ok(is_new)
    }

    /// Removes a consumer. Returns the number of its pending entries.
    pub(super) fn remove_consumer(&mut self, group: &[u8], consumer: &[u8]) -> Done<usize> {
        let mut count = 0;
        for entry in self.pending(group, (StreamId::default(), StreamId::MAX))? {
            if entry.consumer == consumer {
                self.elements.remove(&pending_name(group, entry.id));
                count += 1;
            }
        }
        self.elements.remove(&[group_prefix(b'c', group).as_slice(), consumer].concat());
        Ok(count)
    }

    /// Pending entries of a group in order.
    pub(super) fn pending(
        &self,
        group: &[u8],
        (from, to): (StreamId, StreamId),
    ) -> Done<Vec<PendingEntry>> {
        self.first_pending(group, (from, to), usize::MAX)
    }

    /// The first `most` pending entries of a group in order.
    pub(super) fn first_pending(
        &self,
        group: &[u8],
        range: (StreamId, StreamId),
        most: usize,
    ) -> Done<Vec<PendingEntry>> {
        let mut found = Vec::new();
        self.visit_pending(group, range, |entry| {
            self.hold(entry.consumer.len())?;
            found.push(entry);
            if found.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// Calls `each` with the pending entries of a group in order, until it returns `Break`. What it
    /// keeps must be counted with [`Self::hold`]. Fails if the command is beyond a limit.
    pub(super) fn visit_pending(
        &self,
        group: &[u8],
        (from, to): (StreamId, StreamId),
        mut each: impl FnMut(PendingEntry) -> ControlFlow<()>,
    ) -> Done {
        let (start, end) = (pending_name(group, from), pending_name(group, to));
        if start > end {
            return Ok(());
        }
        let range = (Bound::Included(start.as_slice()), Bound::Included(end.as_slice()));
        let id_at = start.len() - 16;
        self.elements.visit(range, false, |name, value| {
            let id = StreamId::of_bytes(name.get(id_at..).unwrap_or(&[]));
            each(decode_pending(id, value))
        })
    }

    /// Counts bytes that the command copies for an element. `Break` beyond a limit.
    pub(super) fn hold(&self, bytes: usize) -> ControlFlow<()> {
        self.elements.hold(bytes)
    }

    /// A pending entry.
    pub(super) fn pending_entry(&self, group: &[u8], id: StreamId) -> Done<Option<PendingEntry>> {
        let value = self.elements.get(&pending_name(group, id))?;
        Ok(value.map(|value| decode_pending(id, &value)))
    }

    /// Creates or changes a pending entry.
    pub(super) fn put_pending(&mut self, group: &[u8], entry: &PendingEntry) -> Done {
        let mut value = entry.delivered.to_le_bytes().to_vec();
        value.extend_from_slice(&entry.deliveries.to_le_bytes());
        value.extend_from_slice(&entry.consumer);
        self.elements.put(&pending_name(group, entry.id), &value)
    }

    /// Removes a pending entry. Returns whether it was there.
    pub(super) fn acknowledge(&mut self, group: &[u8], id: StreamId) -> Done<bool> {
        let name = pending_name(group, id);
        let is_pending = self.elements.contains(&name)?;
        if is_pending {
            self.elements.remove(&name);
        }
        Ok(is_pending)
    }

    /// Whether an entry above `start` has been deleted out of order.
    pub(super) fn has_tombstones_from(&self, start: StreamId) -> bool {
        let is_none = self.len() == 0 || self.max_deleted == StreamId::default();
        !is_none && start <= self.max_deleted
    }

    /// The number of entries ever added up to `id`, if it can be known.
    pub(super) fn entries_up_to(&self, id: StreamId) -> Done<Option<u64>> {
        let length = u64::try_from(self.len()).unwrap_or(0);
        if self.added == 0 {
            return Ok(Some(0));
        }
        if (length == 0 && id <= self.last) || id == self.last {
            return Ok(Some(self.added));
        }
        let has_deleted = self.max_deleted != StreamId::default();
        if id > self.last || (has_deleted && id < self.max_deleted) {
            return Ok(None);
        }
        let first = self.first()?;
        if has_deleted && self.max_deleted >= first {
            return Ok(None);
        }
        Ok(match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(self.added - length),
            std::cmp::Ordering::Equal => Some(self.added - length + 1),
            std::cmp::Ordering::Greater => None,
        })
    }

    /// The number of entries that a group has not read, if it can be known. `XGROUP SETID` takes
    /// any number of entries read, so it may be negative, as in Redis.
    pub(super) fn lag(&self, state: &GroupState) -> Done<Option<i64>> {
        let read = if self.has_tombstones_from(state.last) { None } else { state.entries_read };
        let known = match read {
            Some(read) => Some(read),
            None => self.entries_up_to(state.last)?,
        };
        Ok(known.map(|known| self.added.cast_signed().wrapping_sub_unsigned(known)))
    }

    /// Elements with a prefix, without it.
    fn under(&self, prefix: &[u8]) -> Done<Vec<(Vec<u8>, Vec<u8>)>> {
        let end = prefix_end(prefix);
        let found = self.elements.collect((Bound::Included(prefix), Bound::Excluded(&end)))?;
        let strip = |(name, value): (Vec<u8>, Vec<u8>)| {
            (name.get(prefix.len()..).unwrap_or(&[]).to_vec(), value)
        };
        Ok(found.into_iter().map(strip).collect())
    }
}

fn decode_fields(mut value: &[u8]) -> Fields {
    let mut fields = Vec::new();
    while let Some(field) = take_bytes(&mut value) {
        fields.push(field.to_vec());
    }
    fields
}

fn decode_group(value: &[u8]) -> GroupState {
    let read = u64_at(value, 16);
    GroupState {
        last: StreamId(u64_at(value, 0), u64_at(value, 8)),
        entries_read: (read != u64::MAX).then_some(read),
    }
}

fn decode_pending(id: StreamId, value: &[u8]) -> PendingEntry {
    PendingEntry {
        id,
        delivered: u64_at(value, 0),
        deliveries: u64_at(value, 8),
        consumer: value.get(16..).unwrap_or(&[]).to_vec(),
    }
}

/// Replies an entry: its id and its fields.
pub(super) fn reply_entry(reply: &mut Reply, id: StreamId, fields: &Fields) {
    reply.array(2);
    reply.text(&id.text());
    reply.array(fields.len());
    for field in fields {
        reply.bulk(field);
    }
}

/// Bytes for a message.
pub(super) fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The failure for a missing stream or group.
pub(super) fn no_group(key: &[u8], group: &[u8], suffix: &str) -> Fail {
    Fail::with(format!(
        "NOGROUP No such key '{}' or consumer group '{}'{suffix}",
        lossy(key),
        lossy(group)
    ))
}

impl Call<'_, '_> {
    /// Opens a stream.
    pub(super) fn stream(&mut self, key: &[u8]) -> Done<Option<Stream<'_>>> {
        Ok(self.open(key, Kind::Stream)?.map(Stream::new))
    }

    /// Opens a stream, or makes an empty one.
    pub(super) fn create_stream(&mut self, key: &[u8]) -> Done<Stream<'_>> {
        Ok(Stream::new(self.create(key, Kind::Stream)?))
    }
}
