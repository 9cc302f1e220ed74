//! The envelope: metadata that the database stores before the user's bytes of every value.
//!
//! Engines store envelope and value as one byte string and do not decode it.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 1 | flags | bit 0: expiry follows; bit 1: type tag follows; the others are zero |
//! | 1 | 8 | expiry | if bit 0: milliseconds since 1970 from which the value is expired |
//! | | 1 | type tag | if bit 1: see [`TypeTag`]: 1 u32, 2 u64, 3 i64, 4 f32, 5 f64, 6 string, 7 blob |
//! | | | value | the user's bytes |

#![deny(clippy::indexing_slicing)]

use crate::{
    contract::ValueSink,
    util::{codec::Decoder, sync::AtomicU64, types::TypeTag, words::copy_out},
};

/// Stands for the expiry of a value that has none, in milliseconds since 1970.
pub(crate) const NEVER: u64 = u64::MAX;

/// Maximum size of an envelope in bytes.
pub(crate) const ENVELOPE_BYTES_MAX: usize = 10;

const HAS_EXPIRY: u8 = 1;
const HAS_TAG: u8 = 2;

/// A decoded envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// Milliseconds since 1970 from which the value is expired.
    pub(crate) expires_at: Option<u64>,
    /// The type tag that the writer stored with the value.
    pub(crate) type_tag: Option<TypeTag>,
}

/// The bytes of an envelope, on the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodedEnvelope {
    bytes: [u8; ENVELOPE_BYTES_MAX],
    length: usize,
}

impl EncodedEnvelope {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    fn push(&mut self, more: &[u8]) {
        if let Some(target) = self.bytes.get_mut(self.length..self.length + more.len()) {
            target.copy_from_slice(more);
            self.length += more.len();
        }
    }
}

impl Envelope {
    /// The only byte of an envelope with neither expiry nor type tag.
    pub(crate) const PLAIN: u8 = 0;
    /// The first byte of an envelope with a type tag and no expiry.
    pub(crate) const TAGGED: u8 = HAS_TAG;

    pub(crate) fn encode(&self) -> EncodedEnvelope {
        let mut encoded = EncodedEnvelope { bytes: [0; ENVELOPE_BYTES_MAX], length: 0 };
        let expiry = if self.expires_at.is_some() { HAS_EXPIRY } else { 0 };
        let tag = if self.type_tag.is_some() { HAS_TAG } else { 0 };
        encoded.push(&[expiry | tag]);
        if let Some(expires_at) = self.expires_at {
            encoded.push(&expires_at.to_le_bytes());
        }
        if let Some(tag) = self.type_tag {
            encoded.push(&[tag.to_byte()]);
        }
        encoded
    }

    /// Returns the envelope of a stored value, and the offset of the user's bytes. `None`: the
    /// bytes are no envelope.
    #[inline]
    pub(crate) fn decode(stored: &[u8]) -> Option<(Self, usize)> {
        let mut decoder = Decoder::new(stored);
        let flags = decoder.u8()?;
        if flags == 0 {
            return Some((Self::default(), 1));
        }
        if flags & !(HAS_EXPIRY | HAS_TAG) != 0 {
            return None;
        }
        let expires_at = if flags & HAS_EXPIRY != 0 { Some(decoder.u64()?) } else { None };
        let type_tag =
            if flags & HAS_TAG != 0 { Some(TypeTag::from_byte(decoder.u8()?)?) } else { None };
        Some((Self { expires_at, type_tag }, stored.len() - decoder.rest().len()))
    }

    /// Returns whether the value is expired at `now` (milliseconds since 1970).
    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}

/// Decodes the envelope of a value and copies nothing else. `None` if the envelope is damaged.
#[derive(Debug)]
pub(crate) struct EnvelopeSink;

impl ValueSink for EnvelopeSink {
    type Output = Option<Envelope>;

    fn of_words(&mut self, words: &[AtomicU64], (at, bytes): (usize, usize)) -> Option<Envelope> {
        let mut front = [0; ENVELOPE_BYTES_MAX];
        let front = front.get_mut(..bytes.min(ENVELOPE_BYTES_MAX))?;
        copy_out(words, at, front);
        Envelope::decode(front).map(|(envelope, _)| envelope)
    }

    fn needed_bytes(&self, bytes: usize) -> usize {
        bytes.min(ENVELOPE_BYTES_MAX)
    }

    fn of_bytes(&mut self, bytes: &[u8]) -> Option<Envelope> {
        Envelope::decode(bytes).map(|(envelope, _)| envelope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_pinned() {
        let plain = Envelope::default();
        assert_eq!(plain.encode().as_slice(), [0]);
        let full =
            Envelope { expires_at: Some(0x0102_0304_0506_0708), type_tag: Some(TypeTag::String) };
        assert_eq!(full.encode().as_slice(), [3, 8, 7, 6, 5, 4, 3, 2, 1, 6]);
    }

    #[test]
    fn every_envelope_round_trips() {
        let tags = TypeTag::ALL.iter().map(|(tag, ..)| Some(*tag)).chain([None]);
        for type_tag in tags {
            for expires_at in [None, Some(0), Some(u64::MAX)] {
                let envelope = Envelope { expires_at, type_tag };
                let encoded = envelope.encode();
                let mut stored = encoded.as_slice().to_vec();
                let start = stored.len();
                stored.extend_from_slice(b"value");
                assert_eq!(Envelope::decode(&stored), Some((envelope, start)));
                for cut in 0..start {
                    assert_eq!(Envelope::decode(&stored[..cut]), None);
                }
            }
        }
    }

    #[test]
    fn unknown_flags_and_tags_are_refused() {
        assert_eq!(Envelope::decode(&[4]), None);
        assert_eq!(Envelope::decode(&[0x80]), None);
        assert_eq!(Envelope::decode(&[2, 0]), None);
        assert_eq!(Envelope::decode(&[2, 8]), None);
    }
}
