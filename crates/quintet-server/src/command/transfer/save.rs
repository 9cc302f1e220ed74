//! Writes a value of the store in Redis's dump format.
//!
//! The types are those that hold any number of elements, so that no value must be held whole.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use super::super::{
    lists::List,
    members::{member_of, member_range},
    stream::{Fields, Stream, StreamId},
};
use crate::{
    failure::Fail,
    rdb::{ListpackWriter, Output, value_type},
    store::{Body, DatabaseId, Head, Kind, Unit},
};

/// Entries of a stream in one node, and bytes after which a node ends: Redis's defaults.
const NODE_ENTRIES_MAX: usize = 100;
const NODE_BYTES_MAX: usize = 4096;
/// Entries that are read at a time.
const PAGE: usize = 128;

/// Why a value cannot be written.
#[derive(Debug)]
pub(crate) enum SaveFailure {
    /// The target refused bytes.
    Io(io::Error),
    /// The store failed.
    Store(Fail),
}

impl From<io::Error> for SaveFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Fail> for SaveFailure {
    fn from(fail: Fail) -> Self {
        Self::Store(fail)
    }
}

type Saved<T = ()> = Result<T, SaveFailure>;

/// The type of the dump that a value is written as.
pub(crate) fn type_of(head: &Head) -> u8 {
    match head.kind() {
        Kind::String => value_type::STRING,
        Kind::List => value_type::LIST,
        Kind::Set => value_type::SET,
        Kind::SortedSet => value_type::SORTED_SET,
        Kind::Hash if head.field_expiries.is_some() => value_type::HASH_EXPIRY,
        Kind::Hash => value_type::HASH,
        Kind::Stream => value_type::STREAM_2,
    }
}

/// Writes the value of an existing key, without its type. Its stripe must be held.
pub(crate) fn save<W: Write>(
    unit: &mut Unit<'_>,
    database: DatabaseId,
    key: &[u8],
    output: &mut Output<W>,
) -> Saved {
    let Some(head) = unit.head(database, key)? else { return Err(Fail::NO_SUCH_KEY.into()) };
    let kind = head.kind();
    if let Body::Str(value) = &head.body {
        return Ok(output.string(value)?);
    }
    let mut collection = unit.open(database, key, kind)?.ok_or(Fail::NO_SUCH_KEY)?;
    if kind == Kind::Stream {
        return save_stream(&Stream::new(collection), output);
    }
    let first_expiry = collection.first_field_expiry();
    if let Some(first) = first_expiry {
        output.millis(first)?;
    }
    output.count(collection.count())?;
    let mut written = Ok(());
    let mut check = |result: io::Result<()>| {
        written = result;
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    if kind == Kind::List {
        let list = List::new(collection);
        let end = list.len().saturating_sub(1);
        list.visit((0, end), |element| check(output.string(element)))?;
    } else if let Some(first) = first_expiry {
        collection.visit_with_expiries(|field, value, expiry| {
            let expiry = expiry.map_or(0, |expiry| expiry.saturating_sub(first) + 1);
            let written = output.length(expiry).and_then(|()| output.string(field));
            check(written.and_then(|()| output.string(value)))
        })?;
    } else {
        collection.visit(member_range(kind), false, |name, value| {
            let member = output.string(member_of(kind, name));
            check(member.and_then(|()| match kind {
                Kind::SortedSet => output.raw(value),
                Kind::Hash => output.string(value),
                _ => Ok(()),
            }))
        })?;
    }
    Ok(written?)
}

/// Calls `each` with the entries of a stream in order.
fn each_entry(stream: &Stream<'_>, mut each: impl FnMut(StreamId, &Fields) -> Saved) -> Saved {
    let mut from = Some(StreamId::default());
    while let Some(start) = from {
        let page = stream.range((start, StreamId::MAX), false, PAGE)?;
        for (id, fields) in &page {
            each(*id, fields)?;
        }
        from = page.last().filter(|_| page.len() == PAGE).and_then(|(id, _)| id.next());
    }
    Ok(())
}

/// Where nodes end: decides for each entry whether it begins a node.
#[derive(Debug, Default)]
struct Splitter {
    entries: usize,
    bytes: usize,
}

impl Splitter {
    fn begins(&mut self, fields: &Fields) -> bool {
        let is_first =
            self.entries == 0 || self.entries == NODE_ENTRIES_MAX || self.bytes >= NODE_BYTES_MAX;
        if is_first {
            (self.entries, self.bytes) = (0, 0);
        }
        self.entries += 1;
        self.bytes += fields.iter().map(|field| field.len() + 2).sum::<usize>();
        is_first
    }
}

/// A node of a stream.
struct NodeWriter {
    id: StreamId,
    entries: Vec<(StreamId, Fields)>,
}

impl NodeWriter {
    fn write<W: Write>(&self, output: &mut Output<W>) -> Saved {
        let mut listpack = ListpackWriter::new();
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        listpack.integer(number(self.entries.len()));
        // No deleted entries, no common fields, and the end of the common fields.
        (0..3).for_each(|_| listpack.integer(0));
        for (id, words) in &self.entries {
            // A node begins with an id, and differences are of 64 bits without a sign.
            listpack.integer(0);
            listpack.integer(id.0.wrapping_sub(self.id.0).cast_signed());
            listpack.integer(id.1.wrapping_sub(self.id.1).cast_signed());
            listpack.integer(number(words.len() / 2));
            for word in words {
                listpack.string(word);
            }
            // Flags, two differences, the number of fields, and the words.
            listpack.integer(number(4 + words.len()));
        }
        output.raw(&[16])?;
        output.raw(&self.id.0.to_be_bytes())?;
        output.raw(&self.id.1.to_be_bytes())?;
        if listpack.len() > crate::rdb::LISTPACK_BYTES_MAX {
            return Err(Fail::new("ERR an entry of a stream is too large for a dump").into());
        }
        let listpack = listpack.finish();
        output.count(listpack.len())?;
        Ok(output.raw(&listpack)?)
    }
}

fn save_stream<W: Write>(stream: &Stream<'_>, output: &mut Output<W>) -> Saved {
    let mut nodes = 0;
    let mut splitter = Splitter::default();
    each_entry(stream, |_, fields| {
        nodes += usize::from(splitter.begins(fields));
        Ok(())
    })?;
    output.count(nodes)?;
    let mut splitter = Splitter::default();
    let mut node: Option<NodeWriter> = None;
    each_entry(stream, |id, fields| {
        if splitter.begins(fields)
            && let Some(full) = node.replace(NodeWriter { id, entries: Vec::new() })
        {
            full.write(output)?;
        }
        if let Some(node) = &mut node {
            node.entries.push((id, fields.clone()));
        }
        Ok(())
    })?;
    if let Some(last) = node {
        last.write(output)?;
    }
    output.count(stream.len())?;
    let first = stream.first()?;
    for id in [stream.last, first, stream.max_deleted] {
        output.length(id.0)?;
        output.length(id.1)?;
    }
    output.length(stream.added)?;
    let groups = stream.groups()?;
    output.count(groups.len())?;
    for (name, state) in groups {
        output.string(&name)?;
        output.length(state.last.0)?;
        output.length(state.last.1)?;
        output.length(state.entries_read.unwrap_or(u64::MAX))?;
        save_consumers(stream, &name, output)?;
    }
    Ok(())
}

fn write_id<W: Write>(id: StreamId, output: &mut Output<W>) -> io::Result<()> {
    output.raw(&id.0.to_be_bytes())?;
    output.raw(&id.1.to_be_bytes())
}

fn save_consumers<W: Write>(stream: &Stream<'_>, group: &[u8], output: &mut Output<W>) -> Saved {
    let pending = stream.pending(group, StreamId::ALL)?;
    output.count(pending.len())?;
    for entry in &pending {
        write_id(entry.id, output)?;
        output.millis(entry.delivered)?;
        output.length(entry.deliveries)?;
    }
    let consumers = stream.consumers(group)?;
    output.count(consumers.len())?;
    for (name, seen) in consumers {
        output.string(&name)?;
        output.millis(seen)?;
        let own = pending.iter().filter(|entry| entry.consumer == name);
        output.count(own.clone().count())?;
        for entry in own {
            write_id(entry.id, output)?;
        }
    }
    Ok(())
}
