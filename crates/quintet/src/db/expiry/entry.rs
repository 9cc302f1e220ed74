//! One entry of the expiry index. The parent module has its layout.

use crate::{
    Result,
    contract::{Engine as _, Op},
    db::{
        encoding::envelope::{Envelope, EnvelopeSink},
        tables::state::TableState,
    },
    util::codec::{Decoder, Lsn, low_u8, to_u64},
};

/// Maximum size in bytes of a key of `btree`, which the index is.
const ENTRY_BYTES_MAX: usize = 1 << 16;

/// Returns the expiry of a put's value.
#[inline]
pub(crate) fn expiry_of(op: &Op<'_>) -> Option<u64> {
    let Op::Put { head, body, .. } = op else { return None };
    let stored = if head.is_empty() { body } else { head };
    Envelope::decode(stored)?.0.expires_at
}

/// An entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpiryEntry<'a> {
    pub(crate) time: u64,
    pub(crate) table_id: u64,
    pub(crate) key: &'a [u8],
}

impl<'a> ExpiryEntry<'a> {
    /// Returns the entry of a put whose value expires.
    #[inline]
    pub(crate) fn of(table_id: u64, op: &Op<'a>) -> Option<Self> {
        let Op::Put { key, .. } = *op else { return None };
        expiry_of(op).map(|time| Self { time, table_id, key })
    }

    /// Returns the key of the entry in the index.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut entry = [&self.time.to_be_bytes(), &self.table_id.to_be_bytes(), self.key].concat();
        entry.truncate(ENTRY_BYTES_MAX);
        entry
    }

    /// Returns the suffix of a long key, which is in the value of the entry.
    pub(super) fn key_suffix(&self) -> Option<&'a [u8]> {
        self.key.get(ENTRY_BYTES_MAX - 16..)
    }

    /// Decodes the key of an entry. `None`: not an entry. For an entry of long keys, `key` is their
    /// common prefix.
    pub(crate) fn decode(entry: &'a [u8]) -> Option<Self> {
        let mut decoder = Decoder::new(entry);
        let (time, table_id) = (decoder.u64()?.swap_bytes(), decoder.u64()?.swap_bytes());
        let key = decoder.rest();
        (!key.is_empty()).then_some(Self { time, table_id, key })
    }

    /// Returns whether the index has the entry.
    pub(crate) fn is_in(&self, index: &TableState) -> Result<bool> {
        let value = index.engine.get(&self.encode())?;
        let has_suffix = |value: &[u8]| match self.key_suffix() {
            None => true,
            Some(suffix) => key_suffixes(value).any(|other| other == suffix),
        };
        Ok(value.is_some_and(|value| has_suffix(&value)))
    }

    /// Adds the entry to the index, or removes it. The caller excludes other changes of long keys.
    pub(super) fn change(&self, index: &TableState, lsn: Lsn, add: bool) -> Result<()> {
        let entry = self.encode();
        let Some(suffix) = self.key_suffix() else {
            let put = Op::Put { key: &entry, head: &[], body: &[] };
            let op = if add { put } else { Op::Delete { key: &entry } };
            return index.engine.apply(lsn, &op);
        };
        let before = index.engine.get(&entry)?;
        let suffixes = before.as_deref().into_iter().flat_map(key_suffixes);
        let others = suffixes.filter(|other| *other != suffix);
        let mut after = Vec::new();
        for suffix in others.chain(add.then_some(suffix)) {
            after.push(low_u8(to_u64(suffix.len())));
            after.extend_from_slice(suffix);
        }
        let put = Op::Put { key: &entry, head: &[], body: &after };
        let op = if after.is_empty() { Op::Delete { key: &entry } } else { put };
        index.engine.apply(lsn, &op)
    }

    /// Adds the entry of a replayed value if the index's files lack it.
    pub(crate) fn replay(&self, index: &TableState, lsn: Lsn) -> Result<()> {
        if lsn < index.persisted() {
            return Ok(());
        }
        self.change(index, lsn, true)?;
        index.record_applied(Lsn(lsn.0 + 1));
        Ok(())
    }
}

/// Returns the suffixes of long keys in the value of an entry.
pub(crate) fn key_suffixes(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut decoder = Decoder::new(value);
    std::iter::from_fn(move || {
        let length = decoder.u8()?;
        decoder.take(usize::from(length))
    })
}

impl TableState {
    /// Returns the expiry of a key's stored value, whether or not it is visible.
    pub(crate) fn stored_expiry(&self, key: &[u8]) -> Result<Option<u64>> {
        let envelope = self.engine.get_with(key, &mut EnvelopeSink)?.flatten();
        Ok(envelope.and_then(|envelope| envelope.expires_at))
    }

    /// Returns the expiry of the value that a put is about to replace, if the new value expires
    /// too. A failed read counts as no expiry: the sweep removes the old entry when it is due. The
    /// caller holds the key's stripe.
    #[inline]
    pub(crate) fn replaced_expiry(&self, op: &Op<'_>) -> Option<u64> {
        let Op::Put { key, .. } = op else { return None };
        expiry_of(op)?;
        self.stored_expiry(key).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_pinned() {
        let entry = ExpiryEntry { time: 0x0102, table_id: 7, key: b"key" };
        let bytes = b"\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x07key";
        assert_eq!(entry.encode(), bytes);
        assert_eq!(ExpiryEntry::decode(bytes), Some(entry));
        assert_eq!(ExpiryEntry::decode(&bytes[..16]), None);
        assert_eq!(ExpiryEntry::decode(&bytes[..7]), None);
    }

    #[test]
    fn the_suffixes_of_long_keys_are_in_the_value() {
        let keys = [vec![7; ENTRY_BYTES_MAX - 16], vec![7; ENTRY_BYTES_MAX - 1]];
        let [at, over] = keys.each_ref().map(|key| ExpiryEntry { time: 1, table_id: 2, key });
        assert_eq!(at.encode(), over.encode());
        assert_eq!(at.key_suffix(), Some(&[][..]));
        assert_eq!(over.key_suffix(), Some(&[7; 15][..]));
        let under = ExpiryEntry { time: 1, table_id: 2, key: &keys[0][1..] };
        assert_eq!(under.key_suffix(), None);
        assert!(under.encode().len() < ENTRY_BYTES_MAX);
        assert_eq!(key_suffixes(b"\0\x02ab\x01c").collect::<Vec<_>>(), [&b""[..], b"ab", b"c"]);
        assert_eq!(key_suffixes(b"").count(), 0);
    }

    #[test]
    fn only_puts_with_an_expiry_have_an_entry() {
        let expiring = Envelope { expires_at: Some(5), type_tag: None }.encode();
        let plain = Envelope::default().encode();
        let put = |head, body| ExpiryEntry::of(3, &Op::Put { key: b"k", head, body });
        let entry = Some(ExpiryEntry { time: 5, table_id: 3, key: b"k" });
        assert_eq!(put(expiring.as_slice(), b"value"), entry);
        // Replay has the envelope before the user's bytes.
        assert_eq!(put(&[], expiring.as_slice()), entry);
        assert_eq!(put(plain.as_slice(), expiring.as_slice()), None);
        assert_eq!(ExpiryEntry::of(3, &Op::Delete { key: b"k" }), None);
    }
}
