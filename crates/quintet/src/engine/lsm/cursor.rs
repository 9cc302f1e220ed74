//! Walks over one memtable, and over one piece.
//!
//! A walk over a piece takes from the cache what is there: entries are copied out of a block where
//! it lies, a few at first, then twice as many each time, so that one of many sources copies little
//! more than it gives. What is not there is read from the disk, whole blocks at a time.

#![deny(clippy::indexing_slicing)]

use std::{ops::Range, sync::Arc};

use super::{
    block::{self, EntryRef},
    cached::{Look, Part},
    memtable::Memtable,
    piece::{Piece, Span},
    walk::{Ahead, Start, Walk, Way},
};
use crate::{Result, disk::AlignedBuffer, index::skiplist::Node};

/// What a walk that reads a second time asks for.
const READ_AHEAD_MIN: u64 = 16 << 10;
/// Entries that are copied out of a block at first, and at most.
const PART_MIN: usize = 2;
const PART_MAX: usize = 64;

/// A walk over one memtable.
#[derive(Debug)]
pub(crate) struct MemCursor {
    memtable: Arc<Memtable>,
    way: Way,
    node: Option<Node>,
    key: Vec<u8>,
    value: Vec<u8>,
    tombstone: bool,
}

impl MemCursor {
    pub(crate) fn new(memtable: Arc<Memtable>, start: &Start) -> Self {
        let key = start.key.as_deref();
        let node = match start.way {
            Way::Up => memtable.seek(key.unwrap_or(&[])),
            Way::Down => memtable.seek_before(key),
        };
        let mut cursor = Self {
            memtable,
            way: start.way,
            node,
            key: Vec::new(),
            value: Vec::new(),
            tombstone: false,
        };
        cursor.load();
        cursor
    }

    fn load(&mut self) {
        if let Some(node) = self.node {
            self.tombstone = self.memtable.read(node, &mut self.key, &mut self.value);
        }
    }

    fn go_on(&mut self) {
        self.node = match (self.node, self.way) {
            (None, _) => None,
            (Some(node), Way::Up) => self.memtable.next_key(node, &self.key),
            (Some(_), Way::Down) => self.memtable.seek_before(Some(&self.key)),
        };
        self.load();
    }
}

impl Walk for MemCursor {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.node.is_some().then_some(self.key.as_slice())
    }

    fn value(&self) -> Option<&[u8]> {
        (!self.tombstone).then_some(self.value.as_slice())
    }

    fn advance(&mut self) -> Result<()> {
        self.go_on();
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn approach(&self) {}

    fn waiting<'a>(&'a mut self, _out: &mut Vec<&'a mut PieceCursor>) -> Result<()> {
        Ok(())
    }
}

/// Where a walk goes on in the first block that is loaded next.
#[derive(Clone, Copy, Debug)]
enum Goal {
    /// At its first entry, or its last.
    Edge,
    /// At the first entry not below the start's key, or the last below.
    Key,
    /// At this entry of `of`; walking down, before it.
    Entry { number: usize, of: usize },
}

/// A walk over one piece.
#[derive(Debug)]
pub(crate) struct PieceCursor {
    piece: Arc<Piece>,
    start: Start,
    ahead: Ahead,
    /// Blocks that are to be loaded next, and where the walk goes on in them.
    pending: Option<Range<u32>>,
    goal: Goal,
    /// Blocks that were loaded; of one from the cache, the entries that were copied.
    loaded: Range<u32>,
    part: Option<Part>,
    /// Entries to be copied next.
    part_entries: usize,
    /// The entries with their blocks' numbers, and where the walk is.
    bytes: Vec<u8>,
    entries: Vec<(EntryRef, u32)>,
    place: Option<usize>,
    /// Something came from the disk.
    has_read: bool,
}

impl PieceCursor {
    pub(crate) fn new(piece: Arc<Piece>, start: Start, ahead: Ahead) -> Self {
        let groups = piece.fences.len();
        let at = match (&start.key, start.way) {
            (Some(key), _) => piece.fences.find(key),
            (None, Way::Up) => 0,
            (None, Way::Down) => groups.saturating_sub(1),
        };
        let pending = (groups > 0).then(|| {
            let groups = match start.way {
                Way::Up => piece.groups_from(at, ahead.first),
                Way::Down => piece.groups_before(at + 1, ahead.first),
            };
            piece.fences.blocks(groups)
        });
        let goal = if start.key.is_some() { Goal::Key } else { Goal::Edge };
        Self {
            piece,
            start,
            ahead,
            pending,
            goal,
            loaded: 0..0,
            part: None,
            part_entries: PART_MIN,
            bytes: Vec::new(),
            entries: Vec::new(),
            place: None,
            has_read: false,
        }
    }

    pub(crate) fn piece(&self) -> &Piece {
        &self.piece
    }

    /// What has to be read before the walk goes on.
    pub(crate) fn request(&self) -> Option<Span> {
        Some(self.piece.span(self.pending.clone()?))
    }

    /// Takes what was read for the request.
    pub(crate) fn take(&mut self, buffer: &AlignedBuffer) -> Result<()> {
        let Some(blocks) = self.pending.take() else { return Ok(()) };
        let span = self.piece.span(blocks.clone());
        self.bytes.clear();
        self.entries.clear();
        let cache = self.start.cache.clone().filter(|_| !self.has_read);
        for number in blocks.clone() {
            let open = self.piece.open_block(buffer, span, (blocks.start, number))?;
            let base = self.bytes.len();
            self.bytes.extend_from_slice(open.entries());
            if let Some(cache) = &cache {
                cache.fill(self.piece.slot_to_fill(number, cache), open.entries());
            }
            self.list_entries(base, number)?;
        }
        (self.loaded, self.part, self.has_read) = (blocks, None, true);
        self.find_place();
        Ok(())
    }

    /// Lists the entries of a block that begins at `base`.
    fn list_entries(&mut self, base: usize, number: u32) -> Result<()> {
        let mut at = base;
        while at < self.bytes.len() {
            let Some((entry, next)) = block::entry_at(&self.bytes, at) else {
                let offset = self.piece.span(number..number + 1).offset;
                return Err(self.piece.damage(offset, "an entry does not parse"));
            };
            self.entries.push((entry, number));
            at = next;
        }
        Ok(())
    }

    /// Takes what is wanted next from the cache, if it is there.
    fn take_cached(&mut self) -> Result<()> {
        let (Some(cache), Some(blocks)) = (&self.start.cache, &self.pending) else { return Ok(()) };
        let bytes = &mut self.bytes;
        let mut copy = |number: u32, look: Look<'_>| {
            bytes.clear();
            let wanted = (look, self.start.way, self.part_entries);
            cache.part(self.piece.slot(number), wanted, bytes)
        };
        let edge = match self.start.way {
            Way::Up => blocks.start,
            Way::Down => blocks.end.saturating_sub(1),
        };
        let found = match (self.goal, self.start.key.as_deref(), self.start.way) {
            (Goal::Key, Some(key), _) => {
                // The last block whose first entry is below the key, or the first block.
                let before =
                    |(number, part): &(u32, Part)| !part.has_below && *number > blocks.start;
                let mut number = blocks.end.saturating_sub(1);
                let mut found = copy(number, Look::Key(key)).map(|part| (number, part));
                while found.as_ref().is_some_and(before) {
                    number -= 1;
                    found = copy(number, Look::Key(key)).map(|part| (number, part));
                }
                found
            }
            (Goal::Entry { number, .. }, ..) => {
                copy(edge, Look::Entry(number)).map(|part| (edge, part))
            }
            (_, _, Way::Up) => copy(edge, Look::Entry(0)).map(|part| (edge, part)),
            (_, _, Way::Down) => copy(edge, Look::Entry(usize::MAX)).map(|part| (edge, part)),
        };
        let Some((number, part)) = found else { return Ok(()) };
        self.entries.clear();
        self.list_entries(0, number)?;
        (self.pending, self.loaded) = (None, number..number + 1);
        if part.is_whole {
            self.part = None;
            self.find_place();
        } else {
            self.part = Some(part);
            self.goal = Goal::Edge;
            self.part_entries = (self.part_entries * 2).min(PART_MAX);
            self.place_at_edge();
        }
        Ok(())
    }

    fn place_at_edge(&mut self) {
        self.place = match self.start.way {
            Way::Up => (!self.entries.is_empty()).then_some(0),
            Way::Down => self.entries.len().checked_sub(1),
        };
    }

    fn key_at(&self, place: usize) -> &[u8] {
        let entry = self.entries.get(place);
        entry.and_then(|(entry, _)| self.bytes.get(entry.key.clone())).unwrap_or(&[])
    }

    /// Puts the walk where it goes on, in blocks that were loaded whole.
    fn find_place(&mut self) {
        let first = match (std::mem::replace(&mut self.goal, Goal::Edge), self.start.key.take()) {
            (Goal::Key, Some(key)) => {
                let bytes = &self.bytes;
                let below = |(entry, _): &(EntryRef, u32)| {
                    bytes.get(entry.key.clone()).unwrap_or(&[]) < &*key
                };
                self.entries.partition_point(below)
            }
            // The block is the first of those that were loaded, or the last.
            (Goal::Entry { number, of }, _) => match self.start.way {
                Way::Up => number,
                Way::Down => (self.entries.len() + number).saturating_sub(of),
            },
            _ => return self.place_at_edge(),
        };
        self.place = match self.start.way {
            Way::Up => (first < self.entries.len()).then_some(first),
            Way::Down => first.checked_sub(1),
        };
    }

    /// What comes after what was loaded: the rest of the block, or other blocks.
    fn ask_on(&mut self) -> bool {
        let (way, blocks) = (self.start.way, self.piece.blocks());
        if let Some(part) = self.part.take() {
            let number = match way {
                Way::Up => part.entries.end,
                Way::Down => part.entries.start,
            };
            if number > 0 && number < part.count {
                self.goal = Goal::Entry { number, of: part.count };
                self.pending = Some(self.loaded.clone());
                return true;
            }
        }
        if self.has_read {
            self.ahead.first = (self.ahead.first * 2).clamp(READ_AHEAD_MIN, self.ahead.most);
        }
        let bytes = self.ahead.first;
        self.pending = match way {
            Way::Up if self.loaded.end < blocks => {
                Some(self.piece.blocks_from(self.loaded.end, bytes))
            }
            Way::Down if self.loaded.start > 0 => {
                Some(self.piece.blocks_before(self.loaded.start, bytes))
            }
            _ => None,
        };
        self.pending.is_some()
    }

    /// Loads on until there is an entry, or no more.
    fn load_on(&mut self) -> Result<()> {
        loop {
            self.take_cached()?;
            if let Some(span) = self.request() {
                let buffer = self.piece.read(span)?;
                self.take(&buffer)?;
            }
            if self.place.is_some() || !self.ask_on() {
                return Ok(());
            }
        }
    }

    fn entry(&self) -> Option<&(EntryRef, u32)> {
        self.entries.get(self.place?)
    }

    /// The number of the entry's block.
    pub(crate) fn block(&self) -> u32 {
        self.entry().map_or(0, |(_, block)| *block)
    }
}

impl Walk for PieceCursor {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        self.place.map(|place| self.key_at(place))
    }

    fn value(&self) -> Option<&[u8]> {
        let (entry, _) = self.entry().filter(|(entry, _)| !entry.tombstone)?;
        self.bytes.get(entry.value.clone())
    }

    fn advance(&mut self) -> Result<()> {
        self.place = match (self.place, self.start.way) {
            (None, _) => return Ok(()),
            (Some(place), Way::Up) => Some(place + 1).filter(|next| *next < self.entries.len()),
            (Some(place), Way::Down) => place.checked_sub(1),
        };
        if self.place.is_none() && self.ask_on() { self.load_on() } else { Ok(()) }
    }

    fn settle(&mut self) -> Result<()> {
        if self.place.is_none() { self.load_on() } else { Ok(()) }
    }

    fn approach(&self) {
        if let (Some(cache), Some(blocks)) = (&self.start.cache, &self.pending) {
            let number = match self.start.way {
                Way::Up if matches!(self.goal, Goal::Edge) => blocks.start,
                _ => blocks.end.saturating_sub(1),
            };
            cache.prefetch(self.piece.slot(number));
        }
    }

    fn waiting<'a>(&'a mut self, out: &mut Vec<&'a mut PieceCursor>) -> Result<()> {
        self.take_cached()?;
        if self.pending.is_some() {
            out.push(self);
        }
        Ok(())
    }
}
