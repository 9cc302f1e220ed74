//! The global hash of a table: from a key to its signature and its piece.
//!
//! It is a [`TableIndex`] whose slots have piece numbers in the place of block numbers. Number 0 is
//! the *invalid piece*: the key is deleted. Number `n` is the table's piece `n - 1`, the newest
//! first. A slot without a key has signature 0 and number 0, so a key that it matches by chance is
//! deleted too, which says the same as absent.
//!
//! Layout of the section: number of keys that lead to the invalid piece (8 bytes), size of the
//! global hash (8 bytes), the hash, and the samples ([`super::key_order`]).

#![deny(clippy::indexing_slicing)]

use super::key_order::KeyOrder;
use crate::{
    Error, Result,
    engine::tph::index::TableIndex,
    util::codec::{Decoder, put_u64, to_u64, to_usize},
};

/// The number of the invalid piece.
pub(crate) const INVALID: u64 = 0;

/// Where a key leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GlobalAnswer {
    /// The table has no entry of the key, or the key is deleted.
    Nothing,
    /// The piece with this index may have the key.
    Piece(usize),
}

/// Returns what a number of the index says; `None` is the answer for an absent key.
#[inline]
pub(crate) fn answer(number: Option<u32>) -> GlobalAnswer {
    match number.and_then(|number| number.checked_sub(1)) {
        Some(piece) => GlobalAnswer::Piece(to_usize(u64::from(piece))),
        None => GlobalAnswer::Nothing,
    }
}

/// Returns the number of the piece with this index.
pub(crate) fn number_of(piece: usize) -> u64 {
    to_u64(piece) + 1
}

/// The global hash of a table, the samples of its key order, and the number of keys that lead to
/// the invalid piece.
pub(crate) type GlobalSection = (TableIndex, KeyOrder, u64);

/// Encodes the section in chunks.
pub(crate) fn encode((index, order, invalid): &GlobalSection) -> impl Iterator<Item = Vec<u8>> {
    let hash: u64 = index.encode().map(|part| to_u64(part.len())).sum();
    let mut head = Vec::new();
    put_u64(&mut head, *invalid);
    put_u64(&mut head, hash);
    std::iter::once(head).chain(index.encode()).chain(std::iter::once(order.encode()))
}

/// Decodes the section of a table with this number of pieces, whose array takes `order_bytes`.
/// Fails with `Corruption` if the bytes are invalid. `origin` is the file and the section's offset
/// in it, for the message.
pub(crate) fn decode(
    bytes: &[u8],
    (pieces, order_bytes): (usize, u64),
    origin: (&str, u64),
) -> Result<GlobalSection> {
    let damage = |what: &str| Error::corruption(origin.0, origin.1, what);
    let mut decoder = Decoder::new(bytes);
    let mut head = || Some((decoder.u64()?, to_usize(decoder.u64()?)));
    let (invalid, size) = head().ok_or_else(|| damage("the global hash is cut off"))?;
    let hash = decoder.take(size).ok_or_else(|| damage("the global hash is cut off"))?;
    let index = TableIndex::decode(hash, number_of(pieces), origin)?;
    let order = KeyOrder::decode(decoder.rest(), order_bytes);
    let order = order.ok_or_else(|| damage("the samples of the key order do not decode"))?;
    Ok((index, order, invalid))
}
