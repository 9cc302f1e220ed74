//! Blocks of a file of versions. The module head of [`super`] has the layout.

use crate::util::codec::{Decoder, Lsn, crc32c, low_u32, put_bytes, put_varint, to_u64, to_usize};

/// Bytes at which a block ends: one page of the system.
pub(super) const BLOCK_BYTES: usize = if cfg!(model) { 256 } else { 4 << 10 };
/// Bytes of the head of a block.
pub(super) const HEAD_BYTES: usize = 8;

/// A version in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VersionEntry<'a> {
    pub(super) key: &'a [u8],
    /// The high half of the key's hash.
    pub(super) half: u32,
    /// The LSN of the write that replaced the version.
    pub(super) lsn: Lsn,
    pub(super) value: Option<&'a [u8]>,
}

impl<'a> VersionEntry<'a> {
    /// Appends the entry.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.key);
        out.extend_from_slice(&self.half.to_le_bytes());
        put_varint(out, self.lsn.0);
        put_varint(out, self.value.map_or(0, |value| to_u64(value.len()) + 1));
        out.extend_from_slice(self.value.unwrap_or(&[]));
    }

    /// Reads an entry. Returns `None` if the bytes are no entry.
    pub(super) fn decode(decoder: &mut Decoder<'a>) -> Option<Self> {
        let key = decoder.bytes()?;
        let half = decoder.u32()?;
        let lsn = Lsn(decoder.varint()?);
        let value = match decoder.varint()?.checked_sub(1) {
            None => None,
            Some(length) => Some(decoder.take(to_usize(length))?),
        };
        Some(Self { key, half, lsn, value })
    }
}

/// Makes room for the head of a block at the end of `out`.
pub(super) fn begin(out: &mut Vec<u8>) {
    out.resize(out.len() + HEAD_BYTES, 0);
}

/// Fills in the head of the block that begins at `start` and ends at the end of `out`.
pub(super) fn finish(out: &mut [u8], start: usize) {
    let Some(block) = out.get_mut(start..) else { return };
    let length = low_u32(to_u64(block.len().saturating_sub(HEAD_BYTES)));
    if let Some(field) = block.get_mut(4..HEAD_BYTES) {
        field.copy_from_slice(&length.to_le_bytes());
    }
    let crc = crc32c(block.get(4..).unwrap_or(&[]));
    if let Some(field) = block.get_mut(..4) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Returns the length of a block from its head.
pub(super) fn length_of(head: [u8; HEAD_BYTES]) -> usize {
    let [_, _, _, _, a, b, c, d] = head;
    HEAD_BYTES + to_usize(u64::from(u32::from_le_bytes([a, b, c, d])))
}

/// Returns whether a block is as it was written.
pub(super) fn is_sound(block: &[u8]) -> bool {
    let Some((head, _)) = block.split_first_chunk::<HEAD_BYTES>() else { return false };
    let [a, b, c, d, ..] = *head;
    length_of(*head) == block.len()
        && crc32c(block.get(4..).unwrap_or(&[])) == u32::from_le_bytes([a, b, c, d])
}

/// Returns a decoder of the entries of a block.
pub(super) fn entries(block: &[u8]) -> Decoder<'_> {
    Decoder::new(block.get(HEAD_BYTES..).unwrap_or(&[]))
}
