//! A data file as text: its extents with their entries, and its large values.
//!
//! Memory holds one extent. Space that was punched out, or that a crash left without a head, is
//! reported as space without an extent.

#![deny(clippy::indexing_slicing)]

use std::io;

use crate::engine::hashlog::{
    arena::EXTENT_HEAD_UNITS,
    entry::{EntryKind, LargeRef, StoredEntry, UNIT_BYTES},
    files::{CHUNK_MAGIC, EXTENT_HEAD_BYTES, ExtentHead, LARGE_MAGIC, TableIdentity, file_head},
    pack::BlockDirectory,
};
use crate::{
    Error, Result,
    io::{BLOCK_BYTES, File, read_up_to},
    util::{
        codec::{crc32c, round_up, to_u64, to_usize},
        format::{LineSink, brief, hex},
    },
};

/// Maximum size of a chunk in bytes, and so of an extent.
const EXTENT_BYTES_MAX: u64 = 16 << 20;

/// Describes a data file. See [`super::data`].
pub(super) fn describe(file: &dyn File, name: &str, say: &mut LineSink<'_>) -> Result<()> {
    let io = |error: io::Error| Error::io(format!("read {name}"), error);
    let read = |offset: u64, bytes: u64| -> Result<Vec<u8>> {
        let mut out = vec![0; to_usize(bytes)];
        let count = read_up_to(file, &mut out, offset).map_err(io)?;
        out.truncate(count);
        Ok(out)
    };
    let head = read(0, BLOCK_BYTES)?;
    let (owner, number, created) =
        file_head(&head).map_err(|what| Error::corruption(name, 0, what))?;
    say("data file of a hashlog table");
    say(&format!("  database id  {}", hex(&owner.database_id)));
    say(&format!("  table id     {}", owner.table_id));
    say(&format!("  number       {number}"));
    say(&format!("  created      {created} ms"));
    let length = file.len().map_err(io)?;
    let mut outcome = Ok(());
    let (mut offset, mut nothing_from) = (BLOCK_BYTES, None);
    while offset < length {
        let block = read(offset, BLOCK_BYTES)?;
        let found = match block.first_chunk::<8>() {
            Some(&(CHUNK_MAGIC | LARGE_MAGIC)) => Some(block.starts_with(&LARGE_MAGIC)),
            _ => None,
        };
        let Some(is_large) = found else {
            nothing_from.get_or_insert(offset);
            offset += BLOCK_BYTES;
            continue;
        };
        gap(&mut nothing_from, offset, say);
        let part = InspectedRange { owner, name, offset };
        let described =
            if is_large { part.large(&block, &read, say) } else { part.extent(&block, &read, say) };
        match described {
            Ok(None) => return outcome,
            Ok(Some(bytes)) => offset += round_up(bytes.max(1), BLOCK_BYTES),
            Err(error @ Error::Corruption { .. }) => {
                say(&format!("byte {offset}: damaged"));
                outcome = outcome.and(Err(error));
                offset += BLOCK_BYTES;
            }
            Err(error) => return Err(error),
        }
    }
    gap(&mut nothing_from, offset, say);
    outcome
}

/// Reports the range from `from` to `to` as space without an extent.
fn gap(from: &mut Option<u64>, to: u64, say: &mut LineSink<'_>) {
    if let Some(from) = from.take() {
        say(&format!("byte {from}: no extent for {} bytes", to - from));
    }
}

type ReadAt<'a> = dyn Fn(u64, u64) -> Result<Vec<u8>> + 'a;

/// The position of an extent or a large value in a file.
struct InspectedRange<'a> {
    owner: TableIdentity,
    name: &'a str,
    offset: u64,
}

impl InspectedRange<'_> {
    fn damage(&self, from: u64, what: impl Into<String>) -> Error {
        Error::corruption(self.name, self.offset + from, what)
    }

    fn head(&self, block: &[u8], magic: [u8; 8]) -> Result<ExtentHead> {
        ExtentHead::decode(block, magic, &self.owner).map_err(|what| self.damage(0, what))
    }

    /// Describes an extent. Returns its size on disk in bytes, or `None` if `say` wants no more.
    fn extent(
        &self,
        block: &[u8],
        read: &ReadAt<'_>,
        say: &mut LineSink<'_>,
    ) -> Result<Option<u64>> {
        let head = self.head(block, CHUNK_MAGIC)?;
        let (start, end) = (u64::from(head.start), u64::from(head.end));
        let plain_bytes = end.saturating_sub(start) * 8;
        if plain_bytes > EXTENT_BYTES_MAX || plain_bytes < to_u64(EXTENT_HEAD_BYTES) {
            return Err(self.damage(0, "the size of the extent is out of range"));
        }
        let packed = if head.packing > 0 { ", packed" } else { "" };
        say(&format!(
            "byte {}: extent of chunk serial {} order {}, units {start} to {end}, {} entries, lsn \
             {} to {}{packed}",
            self.offset, head.serial, head.order, head.entry_count, head.first_lsn, head.last_lsn
        ));
        say(&format!(
            "  created {} ms, updated {} ms, capacity of the chunk {} bytes",
            head.created, head.updated, head.capacity
        ));
        let (image, bytes) = if head.packing == 0 {
            let image = read(self.offset, plain_bytes)?;
            self.compare(image.get(EXTENT_HEAD_BYTES..).unwrap_or(&[]), head.body_crc)?;
            (image, plain_bytes)
        } else {
            self.unpacked(&head, read)?
        };
        let mut unit = start + EXTENT_HEAD_UNITS;
        while unit < end {
            let at = to_usize(unit - start) * UNIT_BYTES;
            let entry = image
                .get(at..)
                .and_then(|bytes| StoredEntry::verify(bytes, head.serial, to_usize(unit)))
                .ok_or_else(|| self.damage(to_u64(at), "the entry's checksum does not match"))?;
            if !say(&format!("  unit {unit}: {}", text_of(&entry))) {
                return Ok(None);
            }
            unit += to_u64(entry.head.units());
        }
        Ok(Some(bytes))
    }

    /// Returns the decompressed image of a packed extent, and its size on disk in bytes.
    fn unpacked(&self, head: &ExtentHead, read: &ReadAt<'_>) -> Result<(Vec<u8>, u64)> {
        let (start, end) = (u64::from(head.start), u64::from(head.end));
        let most = (end - start) * 8 + u64::from(head.packing) + to_u64(EXTENT_HEAD_BYTES);
        let stored = read(self.offset, most)?;
        let directory = stored
            .get(EXTENT_HEAD_BYTES..)
            .and_then(|rest| rest.get(..usize::try_from(head.packing).unwrap_or(usize::MAX)));
        let blocks = directory
            .and_then(|directory| BlockDirectory::decode(directory, start, end, most))
            .ok_or_else(|| self.damage(0, "the directory of the extent is not valid"))?;
        let bytes = blocks.stored_bytes();
        let body = stored.get(EXTENT_HEAD_BYTES..to_usize(bytes)).unwrap_or(&[]);
        self.compare(body, head.body_crc)?;
        let mut image = vec![0; to_usize((end - start) * 8)];
        for block in blocks.iter() {
            let at = to_usize((block.start - start) * 8);
            let from = stored.get(to_usize(block.from)..).unwrap_or(&[]);
            let out = image.get_mut(at..at + block.unpacked_bytes());
            out.and_then(|out| block.unpack(from, out))
                .ok_or_else(|| self.damage(block.from, "the block does not decompress"))?;
        }
        Ok((image, bytes))
    }

    /// Describes a large value. Returns as [`Self::extent`].
    fn large(
        &self,
        block: &[u8],
        read: &ReadAt<'_>,
        say: &mut LineSink<'_>,
    ) -> Result<Option<u64>> {
        let head = self.head(block, LARGE_MAGIC)?;
        let packed = u64::from(head.packing);
        let stored = if packed == 0 { head.capacity } else { packed };
        if stored > to_u64(512 << 20) + BLOCK_BYTES {
            return Err(self.damage(0, "the size of the large value is out of range"));
        }
        let how = if packed == 0 { String::new() } else { format!(", packed to {packed}") };
        let wanted = say(&format!(
            "byte {}: large value {} of {} bytes, lsn {}{how}",
            self.offset, head.serial, head.capacity, head.first_lsn
        ));
        self.compare(&read(self.offset + to_u64(EXTENT_HEAD_BYTES), stored)?, head.body_crc)?;
        Ok(wanted.then_some(to_u64(EXTENT_HEAD_BYTES) + stored))
    }

    fn compare(&self, body: &[u8], crc: u32) -> Result<()> {
        let matches = crc32c(body) == crc;
        matches.then_some(()).ok_or_else(|| self.damage(0, "the checksum does not match"))
    }
}

fn text_of(entry: &StoredEntry<'_>) -> String {
    let (key, lsn) = (brief(entry.key()), entry.head.lsn);
    match entry.head.kind {
        EntryKind::Put => format!("put {key}, lsn {lsn}, {} bytes stored", entry.head.value_bytes),
        EntryKind::Tombstone => format!("delete {key}, lsn {lsn}"),
        EntryKind::Large => {
            let number = LargeRef::decode(entry.value()).map_or(0, |large| large.number);
            format!("put {key}, lsn {lsn}, large value {number}")
        }
    }
}
