//! Key codes: order-preserving compression of keys.
//!
//! Problem: most of an index page is keys. A page of shorter keys holds more of them.
//!
//! How: each byte value has a code of bits. The code is alphabetic (a greater byte has a greater
//! code) and prefix-free, and is trained on a sample of keys ([`trainer`]). [`KeyCode::encode`]
//! concatenates the codes of a key's bytes, and [`KeyCode::decode`] returns the key. Ten digits
//! take 3.6 bits each; the minimum for ten symbols is 3.4, and the rest goes to the bytes that the
//! sample lacks.
//!
//! One more symbol is the end of a key. It is the lowest, so its code is all zeros, and padding is
//! zeros too. Zero bytes at the end of a coded key are left out, so the end takes no space.
//!
//! Invariants:
//! - For all keys a and b: a < b if and only if coded a < coded b, both as byte strings. So two
//!   keys never have the same code. Two keys differ at a symbol, whose codes differ at a bit that
//!   both have. Zeros behind the last byte do not change the order of byte strings that do not end
//!   in zero.
//! - Every key can be coded: each byte has a code of at most [`code::BITS_MAX`] bits. The empty key
//!   is the only one whose code is empty.
//! - Decoding accepts exactly the output of encoding, and never panics.
//!
//! Thread rules: none. A code never changes.
//!
//! Paper: Zhang and others, "Order-Preserving Key Compression for In-Memory Search Trees" (HOPE,
//! SIGMOD 2020), its Single-Char scheme. How we differ:
//! - The end of a key is a symbol. So keys that are prefixes of one another have different codes,
//!   without a stored length in bits.
//! - Keys can be decoded. The paper's trees never decode.
//! - Training counts only the bytes that a key does not share with the one before it, because pages
//!   compress prefixes already.
//! - The code is the optimal alphabetic tree by the algorithm of Garsia and Wachs, not Hu and
//!   Tucker's.

mod code;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod trainer;

use std::sync::Arc;

pub(crate) use self::code::{DecodeState, GROWTH_MAX, KeyBuffer, KeyCode, SYMBOLS};
use self::trainer::Trainer;
use crate::{
    Result,
    lsm::{
        cursor::merge::{Direction, MemtableCursor, MergeCursor, ScanStart},
        memtable::Memtable,
    },
};

/// Approximate number of sampled keys. More would not change a code much.
const SAMPLE: u64 = 10_000;

/// Trains a code on a sample of the keys of some memtables. Returns `None` if it would save less
/// than an eighth.
pub(super) fn train(memtables: &[Arc<Memtable>]) -> Result<Option<KeyCode>> {
    let keys: u64 = memtables.iter().map(|memtable| memtable.keys()).sum();
    let (every, mut number) = ((keys / SAMPLE).max(1), 0_u64);
    let mut trainer = Trainer::default();
    let mut cursor = MergeCursor::new(
        MemtableCursor::all(memtables.to_vec(), &ScanStart::up(None)),
        Direction::Up,
    );
    cursor.load_first()?;
    while let Some(key) = cursor.key() {
        if number.is_multiple_of(every) {
            trainer.add(key);
        }
        number += 1;
        cursor.advance()?;
    }
    Ok(trainer.finish())
}
