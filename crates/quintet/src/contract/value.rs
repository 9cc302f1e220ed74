//! The bytes of a value, inline or shared.

use std::{fmt, ops::Deref, sync::Arc};

/// Maximum size in bytes, envelope included, of a value that is stored inline, without an
/// allocation. With a tag and a length byte, 142 bytes fill 144, a multiple of the alignment.
pub const INLINE_BYTES_MAX: usize = 142;

/// The bytes of a stored value. Dereferences to a slice. A clone copies an inline value and shares
/// a larger one.
///
/// It stays valid and unchanged whatever happens to the table.
#[derive(Clone)]
pub struct Value {
    bytes: Bytes,
    /// Offset of the first byte that the user sees.
    start: usize,
}

#[derive(Clone)]
enum Bytes {
    Shared(Arc<[u8]>),
    Inline { length: u8, bytes: [u8; INLINE_BYTES_MAX] },
}

impl Value {
    /// Creates a value over shared bytes, without a copy.
    pub fn shared(bytes: Arc<[u8]>) -> Self {
        Self { bytes: Bytes::Shared(bytes), start: 0 }
    }

    /// Creates a value of `length` bytes. `fill` receives zeroed bytes.
    #[inline]
    pub fn fill_with(length: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        match u8::try_from(length) {
            Ok(short) if length <= INLINE_BYTES_MAX => {
                let mut bytes = [0; INLINE_BYTES_MAX];
                if let Some(used) = bytes.get_mut(..length) {
                    fill(used);
                }
                Self { bytes: Bytes::Inline { length: short, bytes }, start: 0 }
            }
            _ => {
                let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
                if let Some(used) = Arc::get_mut(&mut bytes) {
                    fill(used);
                }
                Self::shared(bytes)
            }
        }
    }

    /// Creates a value from a copy of `bytes`.
    #[inline]
    pub fn copy(bytes: &[u8]) -> Self {
        Self::fill_with(bytes.len(), |out| out.copy_from_slice(bytes))
    }

    /// Returns the value without its first `count` bytes. Copies nothing.
    #[inline]
    #[must_use]
    pub fn skip(mut self, count: usize) -> Self {
        self.start = (self.start + count).min(self.start + self.len());
        self
    }

    #[inline]
    fn whole(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Shared(bytes) => bytes,
            Bytes::Inline { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or(&[]),
        }
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.whole().get(self.start..).unwrap_or(&[])
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Value {}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::shared(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes_are_not_copied() {
        let bytes: Arc<[u8]> = b"head and value".as_slice().into();
        let value = Value::shared(Arc::clone(&bytes)).skip(9);
        let clone = value.clone();
        drop(value);
        assert_eq!(clone, b"value");
        assert_eq!(clone.as_ptr_range().end, bytes.as_ptr_range().end);
        assert_eq!(Arc::strong_count(&bytes), 2);
    }

    #[test]
    fn short_and_long_values_skip_and_clone_alike() {
        for length in [0, 1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, 70_000] {
            let value = Value::fill_with(length, |bytes| bytes.fill(7));
            assert_eq!(value, vec![7; length]);
            assert_eq!(value.clone().skip(1).len(), length.saturating_sub(1));
            assert_eq!(value.skip(1).skip(usize::MAX / 2).len(), 0);
        }
    }
}
