//! The durability of a write.

/// What a returned write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Survives the death of the process. A power loss may lose the writes of the last
    /// `sync_interval` (100 ms by default); the remaining state is a prefix of the commits. The
    /// call waits for no sync.
    #[default]
    Buffered,
    /// Survives a power loss. The call returns after a sync of the log; concurrent writers share
    /// one.
    Sync,
}
