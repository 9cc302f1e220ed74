//! Keys and values as reads return them.

use std::{
    fmt,
    ops::Deref,
    time::{Duration, SystemTime},
};

use crate::{contract, db::encoding::envelope::Envelope, util::types::TypeTag};

/// A key, as reads return it.
pub type Key = Vec<u8>;

/// A value read from a table. Dereferences to the user's bytes. A clone copies a small value and
/// shares a larger one.
///
/// It stays valid and unchanged whatever happens to the table or the database.
#[derive(Clone)]
pub struct Value {
    bytes: contract::Value,
    envelope: Envelope,
}

impl Value {
    /// Decodes a stored value. `None` if its envelope is damaged.
    #[inline]
    pub(crate) fn open(stored: contract::Value) -> Option<Self> {
        let (envelope, start) = Envelope::decode(&stored)?;
        Some(Self { bytes: stored.skip(start), envelope })
    }

    /// Replaces the content of `out` by a value. Returns whether there is one.
    pub(crate) fn copy_to(value: Option<&Self>, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.extend_from_slice(value.map_or(&[], |value| &**value));
        value.is_some()
    }

    #[inline]
    pub(crate) fn is_expired(&self, now: u64) -> bool {
        self.envelope.is_expired(now)
    }

    /// Returns the expiry and the type tag.
    pub(crate) fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// Returns the type tag that the writer stored with the value.
    pub fn type_tag(&self) -> Option<TypeTag> {
        self.envelope.type_tag
    }

    /// Returns the expiry in milliseconds since 1970. `None`: the value does not expire.
    pub fn expires_at_unix_millis(&self) -> Option<u64> {
        self.envelope.expires_at
    }

    /// Returns the expiry. `None`: the value does not expire, or expires after the range of
    /// `SystemTime`.
    pub fn expires_at(&self) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(self.envelope.expires_at?))
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Value {}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.to_vec()
    }
}
