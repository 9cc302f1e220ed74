//! Streams of a dump.
//!
//! A stream is a number of nodes, each an id and a listpack. Then: number of entries, last id, from
//! type 19 on first id, largest deleted id and entries ever added; groups. A group: name, last id,
//! from type 19 on entries read; pending entries; consumers. The listpack of a node:
//!
//! | entries | content |
//! |---|---|
//! | 1, 1 | entries, deleted entries |
//! | 1, n, 1 | number of fields, the fields, 0: the fields that most entries have |
//! | 1, 1, 1 | of each entry: flags, milliseconds and sequence number above the id of the node |
//! | n, 1 | values, number of these listpack entries; with flag 2 |
//! | 1, 2n, 1 | number of fields, fields and values, number of these; without flag 2 |
//!
//! Flag 1 marks a deleted entry.

use std::{borrow::Cow, io::Read};

use crate::rdb::{
    failure::{Failure, Parsed},
    input::Input,
    item::{Item, ItemId, Sink, value_type},
    packed::{Entry, Malformed, Packed, Packing},
};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// Reads a stream of type 15, 19 or 21.
pub(super) fn read<R: Read>(input: &mut Input<R>, kind: u8, sink: &mut dyn Sink) -> Parsed {
    let mut counted = Counted { sink, entries: 0 };
    for _ in 0..input.length()? {
        let id = input.string()?;
        let id = id.first_chunk::<16>().filter(|_| id.len() == 16).map(split_id);
        let id = id.ok_or_else(|| input.malformed("the id of a node has not 16 bytes"))?;
        let node = input.string()?;
        let offset = input.offset;
        read_node(&node, id, offset, &mut counted).map_err(|failure| failure.at(offset))?;
    }
    let length = input.length()?;
    if length != counted.entries {
        return Err(input.malformed(format!(
            "a stream has {} entries and says that it has {length}",
            counted.entries
        )));
    }
    let last = (input.length()?, input.length()?);
    let (mut max_deleted, mut added) = ((0, 0), None);
    if kind != value_type::STREAM {
        // The first id follows from the entries.
        input.length()?;
        input.length()?;
        max_deleted = (input.length()?, input.length()?);
        added = Some(input.length()?);
    }
    emit(input, counted.sink, Item::State { last, max_deleted, added })?;
    for _ in 0..input.length()? {
        read_group(input, kind, counted.sink)?;
    }
    Ok(())
}

/// A sink whose entries are counted.
struct Counted<'s> {
    sink: &'s mut dyn Sink,
    entries: u64,
}

fn emit<R: Read>(input: &Input<R>, sink: &mut dyn Sink, item: Item<'_>) -> Parsed {
    let offset = input.offset;
    sink.item(item).map_err(|failure| failure.at(offset))
}

fn split_id(id: &[u8; 16]) -> ItemId {
    let number = u128::from_be_bytes(*id);
    let low = u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0);
    (u64::try_from(number >> 64).unwrap_or(0), low)
}

/// The entries of a node.
struct NodeReader<'b> {
    packed: Packed<'b>,
    offset: u64,
}

impl<'b> NodeReader<'b> {
    fn malformed(&self, Malformed(at, what): &Malformed) -> Failure {
        Failure::Malformed {
            offset: self.offset,
            what: format!("byte {at} of the node that ends here: {what}"),
        }
    }

    fn next(&mut self) -> Parsed<Option<Entry<'b>>> {
        self.packed.next().map_err(|malformed| self.malformed(&malformed))
    }

    fn entry(&mut self) -> Parsed<Entry<'b>> {
        self.next()?.ok_or(Failure::Content("a node of a stream is cut short"))
    }

    fn integer(&mut self) -> Parsed<i64> {
        let found = self.entry()?.integer();
        found.ok_or(Failure::Content("a word of a node of a stream is no number"))
    }

    fn count(&mut self) -> Parsed<u64> {
        let count = u64::try_from(self.integer()?).ok();
        count.ok_or(Failure::Content("a node of a stream has a negative count"))
    }
}

fn read_node(bytes: &[u8], base: ItemId, offset: u64, counted: &mut Counted<'_>) -> Parsed {
    let open = Packed::open(Packing::Listpack, bytes);
    let packed = open.map_err(|Malformed(at, what)| Failure::Malformed {
        offset,
        what: format!("byte {at} of the node that ends here: {what}"),
    })?;
    let mut node = NodeReader { packed, offset };
    let (live, deleted) = (node.count()?, node.count()?);
    let mut fields = Vec::new();
    for _ in 0..node.count()? {
        fields.push(node.entry()?.bytes());
    }
    node.entry()?;
    let mut found = (0, 0);
    while let Some(flags) = node.next()? {
        let flags = flags.integer().ok_or(Failure::Content("the flags of an entry are none"))?;
        let (millis, sequence) = (node.integer()?, node.integer()?);
        // Differences are of 64 bits without a sign; a listpack has a sign.
        let id = (base.0.wrapping_add(millis.cast_unsigned()), {
            base.1.wrapping_add(sequence.cast_unsigned())
        });
        let mut words: Vec<Cow<'_, [u8]>> = Vec::new();
        if flags & SAME_FIELDS != 0 {
            for field in &fields {
                words.push(field.clone());
                words.push(node.entry()?.bytes());
            }
        } else {
            for _ in 0..node.count()? {
                words.push(node.entry()?.bytes());
                words.push(node.entry()?.bytes());
            }
        }
        node.entry()?;
        if flags & DELETED == 0 {
            found.0 += 1;
            counted.sink.item(Item::Entry(id, &words))?;
        } else {
            found.1 += 1;
        }
    }
    counted.entries += found.0;
    if found != (live, deleted) {
        return Err(Failure::Content("a node of a stream has not as many entries as it says"));
    }
    Ok(())
}

fn read_group<R: Read>(input: &mut Input<R>, kind: u8, sink: &mut dyn Sink) -> Parsed {
    let group = input.string()?;
    let last = (input.length()?, input.length()?);
    let read = match kind {
        value_type::STREAM => None,
        _ => Some(input.length()?).filter(|read| *read != u64::MAX),
    };
    emit(input, sink, Item::Group { name: &group, last, read })?;
    for _ in 0..input.length()? {
        let id = split_id(&input.array()?);
        let (delivered, deliveries) = (input.millis()?, input.length()?);
        emit(input, sink, Item::Pending { group: &group, id, delivered, deliveries })?;
    }
    for _ in 0..input.length()? {
        let name = input.string()?;
        let seen = input.millis()?;
        if kind == value_type::STREAM_3 {
            // When it was active, which is not stored.
            input.millis()?;
        }
        emit(input, sink, Item::Consumer { group: &group, name: &name, seen })?;
        for _ in 0..input.length()? {
            let id = split_id(&input.array()?);
            emit(input, sink, Item::Owner { group: &group, consumer: &name, id })?;
        }
    }
    Ok(())
}
