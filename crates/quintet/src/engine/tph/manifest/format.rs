//! The file format: names, header, checksums of edits, and the decoding of a whole file.

use super::record::VersionRecord;
use crate::{
    Error, Result,
    io::SECTOR_BYTES,
    util::{
        codec::{
            Decoder, crc32c, crc32c_append, low_u32, put_u32, put_u64, round_up, to_u64, to_usize,
        },
        mutant::mutant,
    },
};

const MAGIC: &[u8; 8] = b"QTPHMANI";
const FORMAT: u32 = 1;
const HEAD_BYTES: usize = 48;
/// Name of a manifest before its rename.
pub(crate) const UNFINISHED: &str = "manifest-new";

/// Returns the file name of a manifest.
pub(crate) fn name_of(number: u64) -> String {
    format!("manifest-{number:08x}")
}

/// Returns the number in the file name of a manifest, or `None` for other names.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("manifest-").filter(|digits| digits.len() >= 8)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| name_of(*number) == name)
}

/// Returns the identity of a manifest in the header.
pub(super) fn identity_of(database_id: &[u8; 16], table_id: u64, number: u64) -> Vec<u8> {
    let mut out = database_id.to_vec();
    put_u64(&mut out, table_id);
    put_u64(&mut out, number);
    out
}

/// Returns the first sector of a manifest.
pub(super) fn header(identity: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put_u32(&mut out, FORMAT);
    put_u32(&mut out, 0);
    out.extend_from_slice(identity);
    let crc = crc32c(&out).to_le_bytes();
    if let Some(field) = out.get_mut(12..16) {
        field.copy_from_slice(&crc);
    }
    out.resize(to_usize(SECTOR_BYTES), 0);
    out
}

fn checksum(identity: &[u8], offset: u64, size_and_body: (&[u8], &[u8])) -> u32 {
    let sum = crc32c_append(crc32c(identity), &offset.to_le_bytes());
    crc32c_append(crc32c_append(sum, size_and_body.0), size_and_body.1)
}

/// Returns the bytes of an edit in the file at `offset`, padded to whole sectors.
pub(super) fn edit_bytes(identity: &[u8], offset: u64, body: &[u8]) -> Vec<u8> {
    let size = low_u32(to_u64(body.len())).to_le_bytes();
    let mut out = size.to_vec();
    put_u32(&mut out, checksum(identity, offset, (&size, body)));
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(to_usize(SECTOR_BYTES)), 0);
    out
}

/// Returns the body of the edit at `offset` and the offset of the next one, or `None` if there is
/// no whole edit.
fn body_at<'a>(bytes: &'a [u8], identity: &[u8], offset: u64) -> Option<(&'a [u8], u64)> {
    let mut decoder = Decoder::new(bytes.get(to_usize(offset)..)?);
    let size = decoder.u32().filter(|size| *size > 0)?;
    let expected = decoder.u32()?;
    let body = decoder.take(to_usize(u64::from(size)))?;
    let found = checksum(identity, offset, (&size.to_le_bytes(), body));
    let is_valid = mutant!(TphSkipsEditChecksum: true, else found == expected);
    is_valid.then_some((body, round_up(offset + 8 + u64::from(size), SECTOR_BYTES)))
}

/// A decoded manifest.
#[derive(Debug)]
pub(crate) struct DecodedManifest {
    /// Database id, table id and number.
    pub(crate) identity: ([u8; 16], u64, u64),
    pub(crate) contents: VersionRecord,
    pub(crate) edits: u64,
    /// Offset of the end of the last whole edit.
    pub(crate) end: u64,
    /// Nonzero bytes that are no edit follow the last one.
    pub(crate) is_torn: bool,
}

/// Decodes a manifest. The error has the offset of the damage and a description.
pub(crate) fn decode(bytes: &[u8]) -> Result<DecodedManifest, (u64, String)> {
    let mut decoder = Decoder::new(bytes);
    let magic = decoder.take(8).unwrap_or(&[]);
    let (format, crc) = (decoder.u32().unwrap_or(0), decoder.u32().unwrap_or(0));
    let mut copy = bytes.get(..HEAD_BYTES).unwrap_or(&[]).to_vec();
    if let Some(field) = copy.get_mut(12..16) {
        field.fill(0);
    }
    if magic != MAGIC || crc32c(&copy) != crc {
        return Err((0, "the file is no manifest, or its checksum does not match".to_owned()));
    }
    if format != FORMAT {
        return Err((8, format!("the format is {format}; this release reads {FORMAT}")));
    }
    let named = decoder.id().zip(decoder.u64()).zip(decoder.u64());
    let ((database, table), number) = named.ok_or((0, "the header is incomplete".to_owned()))?;
    let identity = identity_of(&database, table, number);
    let (mut contents, mut edits, mut end) = (VersionRecord::default(), 0, SECTOR_BYTES);
    while let Some((body, next)) = body_at(bytes, &identity, end) {
        let edited = contents.apply_edit(body);
        contents = edited.ok_or_else(|| (end, "an edit does not decode".to_owned()))?;
        (edits, end) = (edits + 1, next);
    }
    let tail = bytes.get(to_usize(end)..).unwrap_or(&[]);
    let is_torn = tail.iter().any(|byte| *byte != 0);
    let sectors = (1..to_u64(tail.len()).div_ceil(SECTOR_BYTES)).map(|n| end + n * SECTOR_BYTES);
    if sectors.into_iter().any(|offset| body_at(bytes, &identity, offset).is_some()) {
        return Err((end, "an edit is damaged and others follow it".to_owned()));
    }
    if edits == 0 {
        // The first edit was durable before the manifest was renamed.
        return Err((end, "the first edit is damaged".to_owned()));
    }
    Ok(DecodedManifest { identity: (database, table, number), contents, edits, end, is_torn })
}

/// Fails with `NewerFormat` if a newer release wrote the manifest.
pub(super) fn refuse_newer(bytes: &[u8], label: &str) -> Result<()> {
    let mut copy = bytes.get(..HEAD_BYTES).unwrap_or(&[]).to_vec();
    let mut decoder = Decoder::new(bytes.get(8..).unwrap_or(&[]));
    let (format, crc) = (decoder.u32().unwrap_or(0), decoder.u32());
    if let Some(field) = copy.get_mut(12..16) {
        field.fill(0);
    }
    if bytes.starts_with(MAGIC) && format > FORMAT && crc == Some(crc32c(&copy)) {
        let file = label.to_owned();
        return Err(Error::NewerFormat { file, found: format, supported: FORMAT });
    }
    Ok(())
}
