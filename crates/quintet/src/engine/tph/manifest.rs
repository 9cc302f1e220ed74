//! The manifest: which pieces make which tables of which level.
//!
//! Each version of the table set is a file of its own, `manifest-<number>`, that takes effect with
//! its name: it is written and synced under another one, and renamed.
//!
//! | part | meaning |
//! |---|---|
//! | magic | `QTPHMANI` |
//! | format | 4 bytes: 1 |
//! | crc | 4 bytes: CRC32C of the file with this field zero |
//! | identity | database id (16), table id (8), number (8) |
//! | complete | 8 bytes: LSN below which the files have everything |
//! | next piece | varint: number of the next piece |
//! | fan-out | varint: tables of level 1 in hash ranges, 0 in key ranges |
//! | levels | varint count; each: varint tables, and the tables in order |
//! | a table | lowest place (varint length, bytes), varint tombstones, varint pieces, and these from the newest on: varints number, file bytes, live entries, live bytes |
//!
//! Level 0 is listed from the newest table to the oldest; the others from the lowest place on,
//! the first of which is empty.
//!
//! Invariants: whatever a manifest names is durable before it has its name, names of files
//! included. The highest number counts; damage in it is an error, never a reason to take an older
//! one. Files are removed only once a manifest that does not name them has its name durably, so
//! while that is in doubt either is right.
//!
//! How we differ from an LSM's usual log of edits: a version takes about 20 bytes a piece, so one
//! of a hundred million keys is some 100 KiB, written beside hundreds of MiB; whole, it needs no
//! rule that tells a torn edit from a damaged one.

#![deny(clippy::indexing_slicing)]

use std::io;

use super::piece::Owner;
use crate::{
    Error, Result,
    codec::{Decoder, crc32c, put_bytes, put_u32, put_u64, put_varint, to_u64, to_usize},
    disk::{Open, read_up_to, write_all_at},
    seeded::{self, Bug},
};

const MAGIC: &[u8; 8] = b"QTPHMANI";
const FORMAT: u32 = 1;
/// Levels at most; each is several times the one above.
pub(super) const LEVELS_MAX: u64 = 16;
pub(super) const UNFINISHED: &str = "manifest-new";
/// More than any real one: no length is believed beyond it.
const BYTES_MAX: u64 = 1 << 30;

/// A piece as the manifest names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PieceRecord {
    pub(super) number: u64,
    pub(super) file_bytes: u64,
    pub(super) live: u64,
    pub(super) live_bytes: u64,
}

/// A table as the manifest names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TableRecord {
    pub(super) low: Vec<u8>,
    pub(super) tombstones: u64,
    pub(super) pieces: Vec<PieceRecord>,
}

/// What a manifest says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) number: u64,
    pub(super) complete: u64,
    pub(super) next_piece: u64,
    pub(super) fanout: u64,
    pub(super) levels: Vec<Vec<TableRecord>>,
}

/// The name of a manifest.
pub(super) fn name_of(number: u64) -> String {
    format!("manifest-{number:08x}")
}

/// The number in a manifest's name.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("manifest-").filter(|digits| digits.len() >= 8)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| name_of(*number) == name)
}

impl Contents {
    pub(super) fn encode(&self, database_id: &[u8; 16], table_id: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_u32(&mut out, FORMAT);
        put_u32(&mut out, 0);
        out.extend_from_slice(database_id);
        put_u64(&mut out, table_id);
        put_u64(&mut out, self.number);
        put_u64(&mut out, self.complete);
        put_varint(&mut out, self.next_piece);
        put_varint(&mut out, self.fanout);
        put_varint(&mut out, to_u64(self.levels.len()));
        for level in &self.levels {
            put_varint(&mut out, to_u64(level.len()));
            for table in level {
                put_bytes(&mut out, &table.low);
                put_varint(&mut out, table.tombstones);
                put_varint(&mut out, to_u64(table.pieces.len()));
                for piece in &table.pieces {
                    let words = [piece.number, piece.file_bytes, piece.live, piece.live_bytes];
                    for word in words {
                        put_varint(&mut out, word);
                    }
                }
            }
        }
        let crc = crc32c(&out).to_le_bytes();
        if let Some(field) = out.get_mut(12..16) {
            field.copy_from_slice(&crc);
        }
        out
    }

    /// Decodes a manifest; says what is wrong with one that is damaged. With `owner`, also with one
    /// of another table.
    pub(super) fn decode(bytes: &[u8], owner: Option<(&[u8; 16], u64)>) -> Result<Self, String> {
        let mut decoder = Decoder::new(bytes);
        let magic = decoder.take(8).unwrap_or(&[]);
        let (format, crc) = (decoder.u32().unwrap_or(0), decoder.u32().unwrap_or(0));
        let mut copy = bytes.to_vec();
        if let Some(field) = copy.get_mut(12..16) {
            field.fill(0);
        }
        if magic != MAGIC || crc32c(&copy) != crc {
            return Err("no manifest, or its checksum does not match".to_owned());
        }
        if format != FORMAT {
            return Err(format!("format {format}, this release reads {FORMAT}"));
        }
        let ids = decoder.id().zip(decoder.u64());
        if owner.is_some_and(|(database, table)| ids != Some((*database, table))) {
            return Err("it is another table's manifest".to_owned());
        }
        let contents = Self::parse(&mut decoder).filter(|_| decoder.is_empty());
        contents.ok_or_else(|| "the manifest does not parse".to_owned())
    }

    fn parse(decoder: &mut Decoder<'_>) -> Option<Self> {
        let (number, complete) = (decoder.u64()?, decoder.u64()?);
        let (next_piece, fanout) = (decoder.varint()?, decoder.varint()?);
        let mut levels = Vec::new();
        for _ in 0..decoder.varint().filter(|count| *count <= LEVELS_MAX)? {
            let mut level = Vec::new();
            for _ in 0..decoder.varint()? {
                let (low, tombstones) = (decoder.bytes()?.to_vec(), decoder.varint()?);
                let mut table = TableRecord { low, tombstones, pieces: Vec::new() };
                for _ in 0..decoder.varint()? {
                    table.pieces.push(PieceRecord {
                        number: decoder.varint().filter(|number| *number < next_piece)?,
                        file_bytes: decoder.varint()?,
                        live: decoder.varint()?,
                        live_bytes: decoder.varint()?,
                    });
                }
                level.push(table);
            }
            levels.push(level);
        }
        // Below level 0, every place belongs to a table, or the level has none.
        let covers = |level: &Vec<TableRecord>| {
            level.first().is_none_or(|table| table.low.is_empty())
                && level.is_sorted_by(|one, next| one.low < next.low)
        };
        levels.get(1..)?.iter().all(covers).then_some(Self {
            number,
            complete,
            next_piece,
            fanout,
            levels,
        })
    }
}

/// Reads the manifest of this number.
pub(super) fn read(owner: &Owner, number: u64, write: bool) -> Result<Contents> {
    let name = name_of(number);
    let label = owner.label(&name);
    let io = |error: io::Error| Error::io(format!("read {label}"), error);
    let file = owner.dir.open(&name, if write { Open::WRITE } else { Open::READ }).map_err(io)?;
    if write {
        // A process that died may have left it, or its name, in the cache alone. The log is pruned
        // on the strength of it.
        file.sync_all().map_err(|error| Error::io(format!("sync {label}"), error))?;
        let doing = |error| Error::io(format!("sync {}", owner.label("")), error);
        owner.dir.sync().map_err(doing)?;
    }
    let length = file.len().map_err(io)?;
    if length > BYTES_MAX {
        return Err(Error::corruption(label, 0, format!("{length} bytes are no manifest")));
    }
    let mut bytes = vec![0; to_usize(length)];
    let count = read_up_to(&*file, &mut bytes, 0).map_err(io)?;
    bytes.truncate(count);
    let damage = |what: String| Error::corruption(&*label, 0, what);
    if bytes.get(..8) == Some(MAGIC) {
        let format = Decoder::new(bytes.get(8..).unwrap_or(&[])).u32().unwrap_or(0);
        let mut copy = bytes.clone();
        let crc = Decoder::new(bytes.get(12..).unwrap_or(&[])).u32();
        if let Some(field) = copy.get_mut(12..16) {
            field.fill(0);
        }
        if format > FORMAT && crc == Some(crc32c(&copy)) {
            return Err(Error::NewerFormat { file: label, found: format, supported: FORMAT });
        }
    }
    let found = Contents::decode(&bytes, Some((&owner.database_id, owner.table_id)));
    let found = found.map_err(damage)?;
    if found.number == number {
        Ok(found)
    } else {
        Err(damage(format!("it is manifest {}", found.number)))
    }
}

/// Writes a manifest and gives it its name, durably; its bytes. After a failure it may or may not
/// have the name.
pub(super) fn publish(owner: &Owner, contents: &Contents) -> Result<u64> {
    let label = owner.label(&name_of(contents.number));
    let bytes = contents.encode(&owner.database_id, owner.table_id);
    let io = |error: io::Error| Error::io(format!("write {label}"), error);
    match owner.dir.remove(UNFINISHED) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    let file = owner.dir.open(UNFINISHED, Open::CREATE).map_err(io)?;
    write_all_at(&*file, &bytes, 0).map_err(io)?;
    if !seeded::active(Bug::TphSkipsManifestSync) {
        file.sync_all().map_err(|error| Error::io(format!("sync {label}"), error))?;
    }
    // The names of pieces first: none that the manifest names may be missing.
    let sync = || {
        let doing = |error| Error::io(format!("sync {}", owner.label("")), error);
        owner.dir.sync().map_err(doing)
    };
    if !seeded::active(Bug::TphNamesPiecesLate) {
        sync()?;
    }
    owner.dir.rename(UNFINISHED, &name_of(contents.number)).map_err(io)?;
    if !seeded::active(Bug::TphSkipsDirSync) {
        sync()?;
    }
    Ok(to_u64(bytes.len()))
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn sample() -> Contents {
        let piece = PieceRecord { number: 4, file_bytes: 8192, live: 3, live_bytes: 300 };
        let table = |low: &[u8]| TableRecord {
            low: low.to_vec(),
            tombstones: 1,
            pieces: vec![piece, PieceRecord { number: 2, ..piece }],
        };
        Contents {
            number: 7,
            complete: 4096,
            next_piece: 5,
            fanout: 0,
            levels: vec![vec![table(b"")], vec![table(b""), table(b"m")]],
        }
    }

    #[test]
    fn what_was_written_comes_back_and_damage_does_not() {
        let (contents, owner) = (sample(), ([9; 16], 3));
        let bytes = contents.encode(&owner.0, owner.1);
        assert_eq!(Contents::decode(&bytes, Some((&owner.0, 3))).unwrap(), contents);
        assert!(Contents::decode(&bytes, Some((&owner.0, 4))).is_err());
        for byte in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1 << (byte % 8);
            assert!(Contents::decode(&damaged, None).is_err(), "byte {byte}");
            assert!(Contents::decode(&bytes[..byte], None).is_err());
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        let bytes = sample().encode(&[9; 16], 3);
        assert_eq!(bytes[..12], *b"QTPHMANI\x01\0\0\0");
        assert_eq!(bytes[48..61], [0, 16, 0, 0, 0, 0, 0, 0, 5, 0, 2, 1, 0]);
        assert_eq!(bytes[61..75], [1, 2, 4, 128, 64, 3, 172, 2, 2, 128, 64, 3, 172, 2]);
    }

    #[test]
    fn names_are_exact() {
        assert_eq!(number_of("manifest-0000000a"), Some(10));
        assert_eq!(number_of("manifest-a"), None);
        assert_eq!(number_of("manifest-0000000A"), None);
        assert_eq!(number_of(UNFINISHED), None);
    }
}
