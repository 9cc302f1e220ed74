//! The name of a database: a namespace and an index.

/// Number of databases of a namespace, which `SELECT` reaches.
pub(crate) const DATABASES: u8 = 16;

/// Bits of the index.
const INDEX_BITS: u32 = 4;

const _: () = assert!(DATABASES as usize == 1 << INDEX_BITS, "each index has a number");

/// Most ids of namespaces. They are not used twice.
pub(crate) const NAMESPACE_IDS: u32 = 1 << (32 - INDEX_BITS);

/// A database: the id of its namespace, and its index in there. It has 4 bytes, because each key
/// that a unit holds has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DatabaseId(u32);

impl DatabaseId {
    /// The first database of the namespace `default`.
    pub(crate) const FIRST: Self = Self(0);

    /// A database of the namespace `default`. Indexes from 16 on wrap.
    pub(crate) const fn of_default(index: u8) -> Self {
        Self::of(0, index)
    }

    /// A database of a namespace. Indexes from 16 on wrap, and so do ids beyond their number.
    pub(crate) const fn of(namespace: u32, index: u8) -> Self {
        Self(namespace << INDEX_BITS | (index % DATABASES) as u32)
    }

    /// All databases of a namespace.
    pub(crate) fn all_of(namespace: u32) -> impl Iterator<Item = Self> {
        (0..DATABASES).map(move |index| Self::of(namespace, index))
    }

    /// Another database of the same namespace.
    pub(crate) fn sibling(self, index: u8) -> Self {
        Self::of(self.namespace(), index)
    }

    /// The id of the namespace.
    pub(crate) fn namespace(self) -> u32 {
        self.0 >> INDEX_BITS
    }

    /// The index in the namespace, as `SELECT` takes it.
    pub(crate) fn index(self) -> u8 {
        // It has four bits.
        self.0.to_le_bytes()[0] % DATABASES
    }

    /// The number that stands for both.
    pub(super) fn number(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_both_parts() {
        for namespace in [0, 1, 1000, NAMESPACE_IDS - 1] {
            for index in 0..DATABASES {
                let id = DatabaseId::of(namespace, index);
                assert_eq!((id.namespace(), id.index()), (namespace, index));
                assert_eq!(id.sibling(3), DatabaseId::of(namespace, 3));
            }
        }
        assert_eq!(DatabaseId::all_of(7).count(), usize::from(DATABASES));
        assert_eq!(DatabaseId::of_default(0), DatabaseId::FIRST);
    }
}
