//! The position of a replica, which is stored with the keys.

/// Where a replica is in the commands of its master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The history that the master's commands belong to.
    pub(crate) id: String,
    /// Bytes of commands that have been applied.
    pub(crate) offset: u64,
    /// The database that the next command uses.
    pub(crate) database: u8,
}

impl Position {
    /// Layout: offset (8 bytes, little-endian), database (1 byte), id.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let offset = self.offset.to_le_bytes();
        [offset.as_slice(), &[self.database], self.id.as_bytes()].concat()
    }

    /// Decodes a position. Returns `None` if it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (offset, rest) = bytes.split_first_chunk()?;
        let (database, id) = rest.split_first()?;
        let id = String::from_utf8(id.to_vec()).ok()?;
        Some(Self { id, offset: u64::from_le_bytes(*offset), database: *database })
    }
}

#[cfg(test)]
mod tests {
    use super::Position;

    #[test]
    fn positions_decode_to_what_was_encoded() {
        let position = Position { id: "0123abc".to_owned(), offset: 1 << 40, database: 9 };
        assert_eq!(Position::decode(&position.encode()), Some(position));
        assert_eq!(Position::decode(&[0; 8]), None);
    }
}
