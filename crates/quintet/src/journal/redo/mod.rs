//! The redo journal: makes changes of pages atomic on disk, one group for each cut.
//!
//! What: a group is a list of patches (space, offset, bytes) that takes effect whole or not at
//! all. [`Redo::commit_keeping`] writes one and returns when it is durable; [`Redo::open`] gives
//! back the groups that are still needed, in order.
//! Why: the shared log already holds every operation, so pages need consistency only at *cuts*:
//! moments between operations. What changed between two cuts goes here, each word or line once
//! however often it changed, in one sequential write; in place it is written later, many cuts
//! together. CedrusDB journals every operation's page writes (224 bytes for a key of 9); a cut
//! coalesces them, and the operations themselves are in the log, once for all tables.
//!
//! Groups are appended to a file; when it holds half of the limit, or a write or sync of it failed,
//! the next is begun, and a file without a needed group is removed.
//!
//! | offset in a group | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QREDOGRP` |
//! | 8 | 4 | format | 1; of a group of pieces 2 |
//! | 12 | 4 | head crc | CRC32C of bytes 0 to 87 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | sequence | of the group, from 1; never used again |
//! | 48 | 8 | needed | the oldest group that recovery must apply: at most the sequence |
//! | 56 | 8 | lsn | the table is complete to it with this group |
//! | 64 | 8 | size | of the patches, in bytes |
//! | 72 | 8 | follows | sequence of the last group before it that was durable; 0: none |
//! | 80 | 4 | crc | CRC32C of the patches |
//! | 84 | 4 | index | 0; of a group of pieces ([`pieces`]) what its index is |
//! | 88 | | patches | space (1), varint of zigzag(offset - end of the last patch in the group), varint length, bytes |
//!
//! A group starts at a multiple of 4096; the first of a file at 0, the next where the last ended.
//!
//! Invariants:
//! - A group is synced before `commit` returns, and no file with a group that the newest durable
//!   one needs is removed. So a crash leaves all needed groups and at most one torn one.
//! - A group that could not be synced may be found or not: both are states that were. None that
//!   was committed after it follows it, so it counts only while it is the newest. It is not tried
//!   again: the next group, which has its changes too, goes to another file.
//! - A group missing among those that the newest one follows, or a damaged one before another in
//!   the newest file, is damage ([`Error::Corruption`]); one at the end never happened. Whether it
//!   should have is the catalog's to say: it records the LSN.
//!
//! Thread rules: one thread at a time (`&mut self`).

#![deny(clippy::indexing_slicing)]

pub(crate) mod pieces;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Error, Result,
    io::{AlignedBuffer, BLOCK_BYTES, Dir, File, Open, read_up_to, write_all_at},
    util::{
        codec::{
            Decoder, Lsn, VARINT_BYTES_MAX, crc32c, encode_varint, put_u32, put_u64, round_up,
            to_u64, to_usize,
        },
        mutant::{self, Bug},
        report::Report,
    },
};

const MAGIC: &[u8; 8] = b"QREDOGRP";
const FORMAT: u32 = 1;
const FORMAT_PIECES: u32 = 2;
const HEAD_BYTES: usize = 88;
const PREFIX: &str = "redo-";
/// Files are preallocated in steps that double, from this size: small tables stay small.
const FILE_BYTES_MIN: u64 = 64 << 10;
/// Written and read in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// Whose journal it is.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// The table's directory.
    pub(crate) dir: Arc<dyn Dir>,
    /// Salt of every group.
    pub(crate) database_id: [u8; 16],
    /// Salt of every group, and the table's directory in messages.
    pub(crate) table_id: u64,
}

impl Owner {
    /// A file of the table, for messages.
    pub(crate) fn label(&self, name: &str) -> String {
        format!("tables/{}/{name}", self.table_id)
    }
}

/// One change: `bytes` at `offset` of a space. What spaces are is the engine's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patch<'a> {
    /// Which of the table's spaces.
    pub(crate) space: u8,
    /// Where in it, in bytes.
    pub(crate) offset: u64,
    /// The bytes there from now on.
    pub(crate) bytes: &'a [u8],
}

/// A group in the making: patches in memory. Sorted by offset they take least.
#[derive(Debug)]
pub(crate) struct GroupWriter {
    /// Room for the head, then the patches.
    bytes: Vec<u8>,
    end: u64,
}

impl Default for GroupWriter {
    fn default() -> Self {
        Self { bytes: vec![0; HEAD_BYTES], end: 0 }
    }
}

impl GroupWriter {
    /// Adds a change. Later ones of the same bytes win.
    pub(crate) fn patch(&mut self, patch: Patch<'_>) {
        self.bytes.push(patch.space);
        let mut buffer = [0; VARINT_BYTES_MAX];
        let distance = zigzag(patch.offset.wrapping_sub(self.end));
        self.bytes.extend_from_slice(encode_varint(distance, &mut buffer));
        let length = to_u64(patch.bytes.len());
        self.bytes.extend_from_slice(encode_varint(length, &mut buffer));
        self.bytes.extend_from_slice(patch.bytes);
        self.end = patch.offset.wrapping_add(length);
    }

    /// What the group will take in the journal, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        round_up(to_u64(self.bytes.len()), BLOCK_BYTES)
    }
}

/// A group read back.
#[derive(Debug)]
pub(crate) struct Group {
    head: Head,
    /// Head and patches, verified; of a group of pieces, these, where they are in memory.
    bytes: Vec<u8>,
    /// Of a group of pieces, its index.
    index: Vec<u8>,
    /// Of one that is not in memory, its file, and where in it the pieces begin.
    far: Option<(Arc<dyn File>, u64)>,
}

impl Group {
    /// Its number.
    pub(crate) fn sequence(&self) -> u64 {
        self.head.sequence
    }

    /// The oldest group that recovery needs with it.
    pub(crate) fn needed(&self) -> u64 {
        self.head.needed
    }

    /// The table is complete to this with the group.
    pub(crate) fn lsn(&self) -> Lsn {
        self.head.lsn
    }

    /// Its patches in order; `None` at the end for bytes that no writer wrote. None, of a group of
    /// pieces.
    pub(crate) fn patches(&self) -> impl Iterator<Item = Option<Patch<'_>>> {
        let plain = self.bytes.get(HEAD_BYTES..).filter(|_| !self.has_pieces());
        let mut rest = Decoder::new(plain.unwrap_or(&[]));
        let mut end = 0_u64;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let patch = decode_patch(&mut rest, &mut end);
            if patch.is_none() {
                rest = Decoder::new(&[]);
            }
            Some(patch)
        })
    }
}

fn decode_patch<'a>(rest: &mut Decoder<'a>, end: &mut u64) -> Option<Patch<'a>> {
    let space = rest.u8()?;
    let offset = end.wrapping_add(unzigzag(rest.varint()?));
    let bytes = rest.bytes()?;
    *end = offset.wrapping_add(to_u64(bytes.len()));
    Some(Patch { space, offset, bytes })
}

#[derive(Clone, Copy, Debug)]
struct Head {
    sequence: u64,
    needed: u64,
    lsn: Lsn,
    size: u64,
    follows: u64,
    crc: u32,
    index: u32,
}

impl Head {
    fn encode(&self, owner: &Owner) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, if self.has_pieces() { FORMAT_PIECES } else { FORMAT });
        put_u32(&mut out, 0);
        out.extend_from_slice(&owner.database_id);
        let words = [self.sequence, self.needed, self.lsn.0, self.size, self.follows];
        for word in std::iter::once(owner.table_id).chain(words) {
            put_u64(&mut out, word);
        }
        put_u32(&mut out, self.crc);
        put_u32(&mut out, self.index);
        let crc = crc32c(&out).to_le_bytes();
        if let Some(field) = out.get_mut(12..16) {
            field.copy_from_slice(&crc);
        }
        out
    }

    /// `None` for anything but a whole head of this table.
    fn decode(bytes: &[u8], owner: &Owner) -> Option<Self> {
        let mut rest = Decoder::new(bytes.get(..HEAD_BYTES)?);
        let (magic, _format, _crc) = (rest.take(8)?, rest.u32()?, rest.u32()?);
        let (database_id, table_id) = (rest.id()?, rest.u64()?);
        let (sequence, needed, lsn) = (rest.u64()?, rest.u64()?, Lsn(rest.u64()?));
        let (size, follows, crc, index) = (rest.u64()?, rest.u64()?, rest.u32()?, rest.u32()?);
        let head = Self { sequence, needed, lsn, size, follows, crc, index };
        let known = magic == MAGIC && database_id == owner.database_id;
        // Encoding it again compares the checksum, the format and what is reserved.
        let whole = table_id == owner.table_id && head.encode(owner) == bytes.get(..HEAD_BYTES)?;
        (known && whole && needed <= sequence && follows < sequence).then_some(head)
    }

    /// Where the patches begin.
    fn front_bytes(&self) -> u64 {
        if self.has_pieces() { BLOCK_BYTES } else { to_u64(HEAD_BYTES) }
    }

    /// Bytes of the group.
    fn group_bytes(&self) -> Option<u64> {
        self.size.checked_add(self.front_bytes())
    }
}

fn format_of(bytes: &[u8]) -> Option<u32> {
    let mut rest = Decoder::new(bytes);
    (rest.take(8)? == MAGIC).then(|| rest.u32())?
}

/// The groups at the start of a file.
#[derive(Debug, Default)]
struct Chain {
    groups: Vec<Group>,
    /// The group behind them is damaged: it has a successor, of this sequence.
    damage: Option<(u64, Error)>,
}

/// One file.
#[derive(Debug)]
struct Turn {
    name: String,
    number: u64,
    file: Arc<dyn File>,
    /// Where the next group goes.
    end: u64,
    /// What is preallocated.
    size: u64,
    /// Sequence of the last group in it; 0: none.
    last: u64,
    /// Takes no more groups.
    closed: bool,
}

/// The journal. See the module head.
#[derive(Debug)]
pub(crate) struct Redo {
    owner: Owner,
    /// Oldest first; the last takes groups.
    turns: Vec<Turn>,
    next_number: u64,
    next_sequence: u64,
    /// The newest durable group.
    newest: u64,
    needed: u64,
    half_bytes: u64,
}

impl Redo {
    /// Opens the journal in the table's directory and shows `apply` the groups that are needed,
    /// oldest first. `limit` is what the files together should take, in bytes; groups that are
    /// needed may exceed it. Unless `read_only`, what is shown is durable. Of sealed groups the
    /// pieces are not read.
    pub(crate) fn open(
        owner: Owner,
        limit: u64,
        read_only: bool,
        apply: impl FnMut(Group) -> Result<()>,
    ) -> Result<Self> {
        Self::open_as(owner, limit, (read_only, false), apply)
    }

    /// As [`Redo::open`]; with `reads_all`, sealed groups are read and verified whole.
    fn open_as(
        owner: Owner,
        limit: u64,
        (read_only, reads_all): (bool, bool),
        mut apply: impl FnMut(Group) -> Result<()>,
    ) -> Result<Self> {
        let mut redo = Self {
            owner,
            turns: Vec::new(),
            next_number: 1,
            next_sequence: 1,
            newest: 0,
            needed: 1,
            half_bytes: limit / 2,
        };
        let mut groups = BTreeMap::new();
        let mut newest_turn = None;
        let mut damage = None;
        for (number, name) in redo.files()? {
            let chain = redo.read_chain(number, name, (read_only, reads_all))?;
            redo.next_number = number + 1;
            let last = chain.groups.last().map_or(0, Group::sequence);
            if last > redo.newest {
                (redo.newest, newest_turn) = (last, Some(number));
            }
            damage = chain.damage.or(damage);
            groups.extend(chain.groups.into_iter().map(|group| (group.sequence(), group)));
        }
        // Where all that is needed is there, damage before it does not matter.
        if let Some((successor, damage)) = damage
            && successor > redo.newest
        {
            return Err(damage);
        }
        redo.turns.sort_by_key(|turn| (Some(turn.number) == newest_turn, turn.number));
        let Some(head) = groups.get(&redo.newest).map(|group| group.head) else { return Ok(redo) };
        redo.needed = head.needed;
        redo.next_sequence = head.sequence + 1;
        for group in redo.line(head, groups)? {
            apply(group)?;
        }
        Ok(redo)
    }

    /// The needed groups up to the newest, each following the one before.
    fn line(&self, newest: Head, mut groups: BTreeMap<u64, Group>) -> Result<Vec<Group>> {
        let (mut line, mut sequence) = (Vec::new(), newest.sequence);
        while sequence >= newest.needed {
            let Some(group) = groups.remove(&sequence) else {
                let label = self.owner.label(PREFIX);
                let what = format!("group {sequence} is missing before {}", newest.sequence);
                return Err(Error::corruption(label, 0, what));
            };
            sequence = group.head.follows;
            line.push(group);
        }
        line.reverse();
        Ok(line)
    }

    /// Numbers and names of the files, in order.
    fn files(&self) -> Result<Vec<(u64, String)>> {
        let io = |error| Error::io(format!("list {}", self.owner.label("")), error);
        let names = self.owner.dir.list().map_err(io)?.into_iter().map(|entry| entry.name);
        let number = |name: &str| {
            let digits = name.strip_prefix(PREFIX)?;
            let number = u64::from_str_radix(digits, 16).ok()?;
            (name_of(number) == name).then_some(number)
        };
        let mut files: Vec<_> = names.filter_map(|name| Some((number(&name)?, name))).collect();
        files.sort_unstable();
        Ok(files)
    }

    /// The groups of one file, from its start to the first that is none.
    fn read_chain(
        &mut self,
        number: u64,
        name: String,
        (read_only, reads_all): (bool, bool),
    ) -> Result<Chain> {
        let label = self.owner.label(&name);
        let io = |doing: &str, error| Error::io(format!("{doing} {label}"), error);
        let how = if read_only { Open::READ } else { Open::WRITE };
        let file = self.owner.dir.open(&name, how.direct()).map_err(|error| io("open", error))?;
        if !read_only {
            // A process that died may have left a group that was never synced: the log will be
            // pruned on the strength of it.
            file.sync_all().map_err(|error| io("sync", error))?;
        }
        let size = file.len().map_err(|error| io("ask the size of", error))?;
        // Groups are whole blocks, and direct I/O reads nothing else: what a file that was cut
        // short has behind its last block is in no group.
        let size = size - size % BLOCK_BYTES;
        let mut reader = Reader { file: &*file, label: &label, size, held: Vec::new(), start: 0 };
        let (mut chain, mut offset) = (Chain::default(), 0);
        while let Some(mut group) = self.read_group(&mut reader, offset, reads_all, &mut chain)? {
            if group.head.is_sealed() && !reads_all {
                group.far = Some((Arc::clone(&file), offset + BLOCK_BYTES));
            }
            offset += round_up(group.head.group_bytes().unwrap_or(0), BLOCK_BYTES);
            // The last one is durable, since another follows it: what it does not need, nobody
            // does.
            if let Some(needed) = chain.groups.last().map(Group::needed) {
                chain.groups.retain(|group| group.sequence() >= needed);
            }
            chain.groups.push(group);
        }
        let last = chain.groups.last().map_or(0, Group::sequence);
        // Whoever made a file without a group may have died, or met an error, before the file's
        // name was durable: it takes none.
        let closed = chain.groups.is_empty();
        self.turns.push(Turn { name, number, file, end: offset, size, last, closed });
        Ok(chain)
    }

    fn read_group(
        &self,
        reader: &mut Reader<'_>,
        offset: u64,
        reads_all: bool,
        chain: &mut Chain,
    ) -> Result<Option<Group>> {
        let Some(bytes) = reader.get(offset, to_u64(HEAD_BYTES))? else { return Ok(None) };
        let Some(head) = Head::decode(bytes, &self.owner) else {
            return match format_of(bytes) {
                Some(found) if found > FORMAT_PIECES && offset == 0 => Err(Error::NewerFormat {
                    file: reader.label.to_owned(),
                    found,
                    supported: FORMAT_PIECES,
                }),
                _ => Ok(None),
            };
        };
        if chain.groups.last().is_some_and(|last| head.follows != last.sequence()) {
            return Ok(None);
        }
        let Some(size) = head.group_bytes() else { return Ok(None) };
        if head.is_sealed() && !reads_all {
            let group = read_sealed(reader, offset, head)?;
            if group.is_none() {
                let what = format!("the index of group {} is damaged", head.sequence);
                let damage = Error::corruption(reader.label, offset, what);
                chain.damage = Some((head.sequence, damage));
            }
            return Ok(group);
        }
        let Some(bytes) = reader.get(offset, size)? else { return Ok(None) };
        if let Some(group) = whole_group(head, bytes) {
            return Ok(Some(group));
        }
        // A torn group has nothing behind it.
        let next = round_up(offset + size, BLOCK_BYTES);
        if let Some(bytes) = reader.get(next, to_u64(HEAD_BYTES))?
            && let Some(behind) = Head::decode(bytes, &self.owner)
            && behind.sequence > head.sequence
        {
            let what = format!("the checksum of group {} does not match", head.sequence);
            let damage = Error::corruption(reader.label, offset, what);
            chain.damage = Some((behind.sequence, damage));
        }
        Ok(None)
    }

    /// As [`Redo::commit_keeping`]; with `retire`, no earlier group is needed from now on.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn commit(&mut self, group: GroupWriter, lsn: Lsn, retire: bool) -> Result<u64> {
        let needed = if retire { self.next_sequence } else { self.needed };
        self.commit_keeping(group, lsn, needed)
    }

    /// Writes a group and syncs it: the table is complete to `lsn` with it. `needed` is the oldest
    /// group that is needed from now on, at least the one until now, at most the new one:
    /// everything in those before it is in place and synced, or in later ones. Returns the group's
    /// sequence.
    ///
    /// After an error the group may be durable or not: until another is, nothing that it names may
    /// be changed. The next group has to have its changes too.
    pub(crate) fn commit_keeping(
        &mut self,
        group: GroupWriter,
        lsn: Lsn,
        needed: u64,
    ) -> Result<u64> {
        let sequence = self.next_sequence;
        let needed = needed.clamp(self.needed.min(sequence), sequence);
        let mut bytes = group.bytes;
        let patches = bytes.get(HEAD_BYTES..).unwrap_or(&[]);
        let (size, crc) = (to_u64(patches.len()), crc32c(patches));
        let head = Head { sequence, needed, lsn, size, follows: self.newest, crc, index: 0 };
        if let Some(room) = bytes.get_mut(..HEAD_BYTES) {
            room.copy_from_slice(&head.encode(&self.owner));
        }
        let space = round_up(to_u64(bytes.len()), BLOCK_BYTES);
        let (size_now, end) = self.turn().map(|turn| (turn.size, turn.end + space))?;
        let wanted = self.space_for(size_now, end);
        let turn = self.turn()?;
        // Whatever becomes of it, its number is gone.
        let written = turn.append(&bytes, wanted);
        turn.closed = written.is_err();
        let label_of = turn.name.clone();
        self.next_sequence += 1;
        if let Err(error) = written {
            return Err(Error::io(format!("write {}", self.owner.label(&label_of)), error));
        }
        self.note_committed(sequence, needed);
        Ok(sequence)
    }

    /// A group is durable, and those before `needed` are not needed any more.
    fn note_committed(&mut self, sequence: u64, needed: u64) {
        if let Some(turn) = self.turns.last_mut() {
            turn.last = sequence;
        }
        self.newest = sequence;
        self.needed = needed;
        let early = mutant::active(Bug::RedoRemovesNeeded);
        let (gone, kept) = std::mem::take(&mut self.turns)
            .into_iter()
            .partition(|turn| turn.number + 1 != self.next_number && (turn.last < needed || early));
        self.turns = kept;
        for turn in gone {
            // What stays is removed at another time: nothing in it is needed.
            let _: Result<(), std::io::Error> = self.owner.dir.remove(&turn.name);
        }
    }

    /// What a file of `size` bytes should grow to when it has to have `end`.
    fn space_for(&self, size: u64, end: u64) -> u64 {
        let size = (size * 2).clamp(FILE_BYTES_MIN, self.half_bytes.max(FILE_BYTES_MIN));
        round_up(size.max(end), BLOCK_BYTES)
    }

    /// The file that takes the next group: another one when the last is full or has failed.
    fn turn(&mut self) -> Result<&mut Turn> {
        let half_bytes = self.half_bytes;
        let goes_on = self.turns.last().is_some_and(|turn| !turn.closed && turn.end < half_bytes);
        if !goes_on {
            let (number, name) = (self.next_number, name_of(self.next_number));
            let io = |error| Error::io(format!("create {}", self.owner.label(&name)), error);
            self.next_number += 1;
            let file = self.owner.dir.open(&name, Open::CREATE.direct()).map_err(io)?;
            self.owner.dir.sync().map_err(io)?;
            let (end, size, last, closed) = (0, 0, 0, false);
            self.turns.push(Turn { name, number, file, end, size, last, closed });
        }
        self.turns.last_mut().ok_or_else(|| Error::corruption(PREFIX, 0, "there is no file"))
    }

    /// Number of the oldest group that recovery needs.
    pub(crate) fn needed(&self) -> u64 {
        self.needed
    }

    /// Number of the newest group; 0: there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Bytes of groups that recovery would apply, about: whole files.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.turns.iter().map(|turn| turn.end).sum()
    }

    /// Has the next group begin a file.
    pub(crate) fn end_file(&mut self) {
        if let Some(turn) = self.turns.last_mut() {
            turn.closed = true;
        }
    }

    /// Whether it is time to put in place what the journal holds and to retire its groups.
    pub(crate) fn is_full(&self) -> bool {
        self.live_bytes() > self.half_bytes
    }

    /// The last group of the oldest file, where the files hold more than they should: with images
    /// of all up to it, the file can go.
    pub(crate) fn overdue(&self) -> u64 {
        let oldest = self.turns.first().filter(|_| self.turns.len() > 1 && self.is_full());
        oldest.map_or(0, |turn| turn.last)
    }

    /// Half of what the files should take, in bytes: what one takes.
    pub(crate) fn half_bytes(&self) -> u64 {
        self.half_bytes
    }

    /// Bytes that the files take.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.turns.iter().map(|turn| turn.size).sum()
    }

    /// Reads all needed groups back and notes those that are damaged or missing.
    pub(crate) fn check(&self, report: &mut Report) {
        let mut newest = 0;
        let how = (true, true);
        let outcome = Self::open_as(self.owner.clone(), self.half_bytes * 2, how, |group| {
            report.checked_bytes += group.head.group_bytes().unwrap_or(0);
            newest = group.sequence();
            Ok(())
        });
        let label = self.owner.label(PREFIX);
        match outcome {
            Err(Error::Corruption { file, offset, what }) => report.add(file, offset, what),
            Err(error) => report.add(label, 0, error.to_string()),
            Ok(_) if newest < self.newest => {
                report.add(label, 0, format!("group {} is damaged or missing", self.newest));
            }
            Ok(_) => {}
        }
    }
}

impl Turn {
    /// Writes a group and syncs it.
    fn append(&mut self, bytes: &[u8], wanted: u64) -> std::io::Result<()> {
        let space = round_up(to_u64(bytes.len()), BLOCK_BYTES);
        let end = self.end + space;
        if end > self.size {
            self.file.allocate(wanted)?;
            self.file.sync_all()?;
            self.size = wanted;
        }
        let mut offset = self.end;
        let mut buffer = AlignedBuffer::zeroed(PIECE_BYTES.min(to_usize(space)));
        for piece in bytes.chunks(PIECE_BYTES) {
            let padded = to_usize(round_up(to_u64(piece.len()), BLOCK_BYTES));
            let target = buffer.as_mut_slice().get_mut(..padded).unwrap_or(&mut []);
            let (front, back) = target.split_at_mut(piece.len());
            front.copy_from_slice(piece);
            back.fill(0);
            write_all_at(&*self.file, target, offset)?;
            offset += to_u64(padded);
        }
        if !mutant::active(Bug::RedoSkipsSync) {
            self.file.sync_data()?;
        }
        self.end = end;
        Ok(())
    }
}

/// A group that was read whole; `None`: it is not what was written.
fn whole_group(head: Head, bytes: &[u8]) -> Option<Group> {
    let body = bytes.get(to_usize(head.front_bytes())..)?;
    if crc32c(body) != head.crc && !mutant::active(Bug::RedoSkipsChecksum) {
        return None;
    }
    if !head.has_pieces() {
        return Some(Group { head, bytes: bytes.to_vec(), index: Vec::new(), far: None });
    }
    let (start, _) = head.index_place()?;
    let (pieces, index) = body.split_at_checked(to_usize(start - BLOCK_BYTES))?;
    let index = pieces::verified_index(&head, index)?;
    Some(Group { head, bytes: pieces.to_vec(), index, far: None })
}

/// A sealed group, of which the index alone is read.
fn read_sealed(reader: &mut Reader<'_>, offset: u64, head: Head) -> Result<Option<Group>> {
    let Some((start, length)) = head.index_place() else { return Ok(None) };
    let Some(from) = offset.checked_add(start) else { return Ok(None) };
    // What is read starts with a block.
    let skip = from % BLOCK_BYTES;
    let Some(blocks) = reader.get(from - skip, length + skip)? else { return Ok(None) };
    let index = pieces::verified_index(&head, blocks.get(to_usize(skip)..).unwrap_or(&[]));
    Ok(index.map(|index| Group { head, bytes: Vec::new(), index, far: None }))
}

/// Shows all groups of one file to `visit`, whoever they belong to, until it has had enough. Takes
/// no part in recovery.
pub(crate) fn read_all(
    dir: &Arc<dyn Dir>,
    file: &dyn File,
    name: &str,
    visit: &mut dyn FnMut(&Owner, &Group) -> bool,
) -> Result<()> {
    let io = |error| Error::io(format!("read {name}"), error);
    let mut head = AlignedBuffer::zeroed(to_usize(BLOCK_BYTES));
    read_up_to(file, head.as_mut_slice(), 0).map_err(io)?;
    let mut rest = Decoder::new(head.as_slice().get(16..HEAD_BYTES).unwrap_or(&[]));
    let owner = rest.id().zip(rest.u64()).map(|(database_id, table_id)| Owner {
        dir: Arc::clone(dir),
        database_id,
        table_id,
    });
    let Some(owner) = owner.filter(|owner| Head::decode(head.as_slice(), owner).is_some()) else {
        return Err(Error::corruption(name, 0, "the first group is damaged"));
    };
    let size = file.len().map_err(io)?;
    let mut reader = Reader { file, label: name, size, held: Vec::new(), start: 0 };
    let mut offset = 0;
    while let Some(bytes) = reader.get(offset, to_u64(HEAD_BYTES))?
        && let Some(head) = Head::decode(bytes, &owner)
    {
        let size = head.group_bytes().unwrap_or(u64::MAX);
        let bytes = reader.get(offset, size)?;
        let Some(group) = bytes.and_then(|bytes| whole_group(head, bytes)) else {
            let what = format!("the checksum of group {} does not match", head.sequence);
            return Err(Error::corruption(name, offset, what));
        };
        if !visit(&owner, &group) {
            break;
        }
        offset = round_up(offset + size, BLOCK_BYTES);
    }
    Ok(())
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:08x}")
}

/// Reads a file forwards in large pieces.
struct Reader<'a> {
    file: &'a dyn File,
    label: &'a str,
    size: u64,
    /// What was read, from `start` on.
    held: Vec<u8>,
    start: u64,
}

impl Reader<'_> {
    /// `length` bytes at `offset` (at least that of the call before); `None` past the end.
    fn get(&mut self, offset: u64, length: u64) -> Result<Option<&[u8]>> {
        let end = offset.saturating_add(length);
        if end > self.size {
            return Ok(None);
        }
        if offset > self.start {
            let gone = to_usize(offset - self.start).min(self.held.len());
            // Whole blocks are read, so what is held starts at one.
            self.held.drain(..gone);
            self.start = if self.held.is_empty() { offset } else { self.start + to_u64(gone) };
        }
        while self.start + to_u64(self.held.len()) < end {
            let at = self.start + to_u64(self.held.len());
            let left = to_usize(self.size.saturating_sub(at));
            let mut buffer = AlignedBuffer::zeroed(PIECE_BYTES.min(left));
            let count = read_up_to(self.file, buffer.as_mut_slice(), at)
                .map_err(|error| Error::io(format!("read {}", self.label), error))?;
            if count == 0 {
                return Ok(None);
            }
            self.held.extend_from_slice(buffer.as_slice().get(..count).unwrap_or(&[]));
        }
        Ok(self.held.get(to_usize(offset - self.start)..to_usize(end - self.start)))
    }
}

fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ 0_u64.wrapping_sub(difference >> 63)
}

fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ 0_u64.wrapping_sub(coded & 1)
}
