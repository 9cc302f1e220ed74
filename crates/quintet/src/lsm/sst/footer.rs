//! The footer and the head of an SST: who it belongs to, and where its sections are. The tables are
//! in the head of [`super`].
//!
//! No field is trusted before the checksum matched. A footer whose counts or sections need a longer
//! file is refused.

use std::{io, sync::Arc};

use crate::{
    io::{BLOCK_BYTES, Dir, File, read_up_to},
    util::codec::{Decoder, crc32c, put_u32, put_u64},
};

pub(super) const FORMAT: u32 = 3;
/// The oldest format that can be read.
const FORMAT_OLDEST: u32 = 2;
/// Maximum of the option `block_bytes`.
pub(crate) const BLOCK_BYTES_MAX: u64 = 1 << 20;
pub(super) const HEAD_BYTES: usize = 64;
pub(super) const FOOT_BYTES: usize = 192;
/// Bytes of the footer of a file with blocks of slots: one section more.
const SLOTTED_FOOT_BYTES: usize = 216;
/// Offset of the first block.
pub(super) const BLOCKS_START: u64 = BLOCK_BYTES;

/// The kind of an SST: file suffix and magic numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SstKind {
    pub(crate) magic: [u8; 8],
    foot_magic: [u8; 8],
    suffix: &'static str,
    /// Whether files have a block index, for seeks by key.
    pub(super) has_fences: bool,
    /// Whether blocks are in the order of hash slots ([`super::slot_block`]).
    pub(super) has_slots: bool,
}

impl SstKind {
    /// An SST of a table of `tph`.
    pub(crate) const PIECE: Self = Self {
        magic: *b"QTPHPIEC",
        foot_magic: *b"QTPHFOOT",
        suffix: ".ph",
        has_fences: true,
        has_slots: false,
    };
    /// A piece of a table of `tph` with two tiers of hashes.
    pub(crate) const SLOTTED: Self = Self {
        magic: *b"QTPHSLOT",
        foot_magic: *b"QTPHSLFT",
        has_fences: false,
        has_slots: true,
        ..Self::PIECE
    };
    /// A run of `slm`.
    pub(crate) const RUN: Self = Self {
        magic: *b"QSLMRUN\0",
        foot_magic: *b"QSLMFOOT",
        suffix: ".run",
        has_fences: false,
        has_slots: false,
    };

    /// Returns the bytes of a footer.
    pub(super) const fn foot_bytes(self) -> usize {
        if self.has_slots { SLOTTED_FOOT_BYTES } else { FOOT_BYTES }
    }

    /// Returns the file name of SST `number`.
    pub(crate) fn name_of(self, number: u64) -> String {
        format!("{number:08x}{}", self.suffix)
    }

    /// Returns the number in a file name; `None` if it is not the name of such a file.
    pub(crate) fn number_of(self, name: &str) -> Option<u64> {
        let digits = name.strip_suffix(self.suffix).filter(|digits| digits.len() >= 8)?;
        u64::from_str_radix(digits, 16).ok().filter(|number| self.name_of(*number) == name)
    }
}

/// The table that SSTs belong to.
#[derive(Clone, Debug)]
pub(crate) struct SstOwner {
    pub(crate) kind: SstKind,
    pub(crate) dir: Arc<dyn Dir>,
    pub(crate) database_id: [u8; 16],
    pub(crate) table_id: u64,
}

impl SstOwner {
    /// Returns a file's path within the database, for messages.
    pub(crate) fn label(&self, name: &str) -> String {
        format!("tables/{}/{name}", self.table_id)
    }

    pub(super) fn identity(&self, out: &mut Vec<u8>, number: u64) {
        out.extend_from_slice(&self.database_id);
        put_u64(out, self.table_id);
        put_u64(out, number);
    }
}

/// Stores the CRC in bytes 12 to 15.
pub(super) fn store_crc(bytes: &mut [u8]) {
    let crc = crc32c(bytes).to_le_bytes();
    if let Some(field) = bytes.get_mut(12..16) {
        field.copy_from_slice(&crc);
    }
}

fn encode_identity(magic: [u8; 8], format: u32, owner: &SstOwner, number: u64) -> Vec<u8> {
    let mut out = magic.to_vec();
    put_u32(&mut out, format);
    put_u32(&mut out, 0);
    owner.identity(&mut out, number);
    out
}

pub(super) fn encode_head(format: u32, owner: &SstOwner, number: u64) -> Vec<u8> {
    let mut out = encode_identity(owner.kind.magic, format, owner, number);
    out.resize(HEAD_BYTES, 0);
    store_crc(&mut out);
    out
}

/// A range of a file with its checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(super) crc: u64,
}

fn put_section(out: &mut Vec<u8>, section: Section) {
    for word in [section.offset, section.bytes, section.crc] {
        put_u64(out, word);
    }
}

/// Decodes a section of a file of `length` bytes.
fn decode_section(decoder: &mut Decoder<'_>, length: u64) -> Option<Section> {
    let (offset, bytes, crc) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
    (offset.checked_add(bytes)? <= length).then_some(Section { offset, bytes, crc })
}

/// The footer of an SST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) blocks: u64,
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) index: Section,
    pub(crate) offsets: Section,
    pub(crate) fences: Section,
    pub(crate) keys: Section,
    /// The key-location array of a table, in a file with blocks of slots.
    pub(crate) order: Section,
    /// Maximum bytes of a block when it was written; 0: unknown.
    pub(crate) block_bytes: u64,
    pub(super) format: u32,
}

/// Why a footer is refused.
pub(super) enum FooterError {
    Damaged(String),
    /// It has this format, of a later release.
    Newer(u32),
    /// The file is the right one and of another kind: of a table with this value of `tiers`.
    OtherKind(&'static str),
}

impl From<&str> for FooterError {
    fn from(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }
}

impl Footer {
    pub(super) fn encode(&self, owner: &SstOwner, number: u64) -> Vec<u8> {
        let mut out = encode_identity(owner.kind.foot_magic, FORMAT, owner, number);
        for word in [self.blocks, self.entries, self.tombstones, self.payload_bytes] {
            put_u64(&mut out, word);
        }
        for section in [self.index, self.offsets, self.fences, self.keys] {
            put_section(&mut out, section);
        }
        put_u64(&mut out, self.block_bytes);
        if owner.kind.has_slots {
            put_section(&mut out, self.order);
        }
        out.resize(owner.kind.foot_bytes(), 0);
        store_crc(&mut out);
        out
    }

    /// Decodes the footer of a file of `length` bytes.
    pub(super) fn decode(
        bytes: &[u8],
        kind: SstKind,
        identity: &[u8],
        length: u64,
    ) -> Result<Self, FooterError> {
        let other = if kind.has_slots { SstKind::PIECE } else { SstKind::SLOTTED };
        if kind.suffix == other.suffix && is_footer_of(bytes, other, identity) {
            let tiers = if other.has_slots { "two" } else { "one" };
            return Err(FooterError::OtherKind(tiers));
        }
        let bytes = bytes.get(..kind.foot_bytes()).ok_or("the footer is cut off")?;
        let mut copy = bytes.to_vec();
        let mut decoder = Decoder::new(bytes);
        let magic = decoder.take(8).unwrap_or(&[]);
        let (format, crc) = (decoder.u32().unwrap_or(0), decoder.u32().unwrap_or(0));
        if let Some(field) = copy.get_mut(12..16) {
            field.fill(0);
        }
        if magic != kind.foot_magic || crc32c(&copy) != crc {
            return Err("the footer is missing, or its checksum does not match".into());
        }
        if format > FORMAT {
            return Err(FooterError::Newer(format));
        }
        if format < FORMAT_OLDEST {
            let what = format!("format {format}, this release reads {FORMAT_OLDEST} to {FORMAT}");
            return Err(FooterError::Damaged(what));
        }
        if decoder.take(32) != Some(identity) {
            return Err("the footer belongs to another file".into());
        }
        let mut words = || {
            let mut footer = Self {
                blocks: decoder.u64()?,
                entries: decoder.u64()?,
                tombstones: decoder.u64()?,
                payload_bytes: decoder.u64()?,
                format,
                ..Self::default()
            };
            let Self { index, offsets, fences, keys, .. } = &mut footer;
            for section in [index, offsets, fences, keys] {
                *section = decode_section(&mut decoder, length)?;
            }
            footer.block_bytes = decoder.u64().filter(|bytes| *bytes <= BLOCK_BYTES_MAX)?;
            if kind.has_slots {
                footer.order = decode_section(&mut decoder, length)?;
            }
            // No compression makes 256 bytes of one.
            let most = length.checked_mul(256)?;
            if footer.entries.max(footer.payload_bytes) > most || footer.tombstones > footer.entries
            {
                return None;
            }
            let counts = footer.blocks.checked_add(1)?.checked_mul(4)?;
            (counts == footer.offsets.bytes).then_some(footer)
        };
        words().ok_or_else(|| {
            "a count or a section in the footer is impossible for the file's length".into()
        })
    }
}

/// Returns whether the bytes are a sound footer of this kind and of this file.
fn is_footer_of(bytes: &[u8], kind: SstKind, identity: &[u8]) -> bool {
    let Some(mut copy) = bytes.get(..kind.foot_bytes()).map(<[u8]>::to_vec) else { return false };
    let crc = bytes.get(12..16).map(<[u8]>::to_vec);
    store_crc_of_zeros(&mut copy);
    copy.starts_with(&kind.foot_magic)
        && copy.get(16..48) == Some(identity)
        && copy.get(12..16).map(<[u8]>::to_vec) == crc
}

/// Computes the CRC of bytes whose field for it counts as zero, and stores it there.
fn store_crc_of_zeros(bytes: &mut [u8]) {
    if let Some(field) = bytes.get_mut(12..16) {
        field.fill(0);
    }
    store_crc(bytes);
}

/// Decodes the head of an SST: database id, table id, number. Returns `None` if its checksum does
/// not match.
pub(super) fn decode_identity(bytes: &[u8]) -> Option<([u8; 16], u64, u64)> {
    let mut copy = bytes.get(..HEAD_BYTES)?.to_vec();
    let mut decoder = Decoder::new(copy.get(12..)?);
    let crc = decoder.u32()?;
    let found = (decoder.id()?, decoder.u64()?, decoder.u64()?);
    copy.get_mut(12..16)?.fill(0);
    (crc32c(&copy) == crc).then_some(found)
}

/// Reads the head of a file, or as much of it as there is.
pub(super) fn read_head(file: &dyn File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEAD_BYTES];
    let count = read_up_to(file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}
