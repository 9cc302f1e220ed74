//! How a client learns of changed keys (`CLIENT TRACKING`). `tracking/` has what it does.

/// Which changed keys a client learns of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrackingMode {
    /// Those that it has read.
    Reads,
    /// Those that a command after `CLIENT CACHING YES` has read.
    OptIn,
    /// Those that it has read, but for commands after `CLIENT CACHING NO`.
    OptOut,
    /// Those with its prefixes.
    Broadcast,
}

/// How a client learns of changed keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientTracking {
    /// Which keys.
    pub(crate) mode: TrackingMode,
    /// Whether it does not learn of its own changes.
    pub(crate) is_noloop: bool,
    /// The number of the connection that gets its messages; 0 for its own.
    pub(crate) redirect: u64,
    /// Whether that connection has ended.
    pub(crate) is_broken: bool,
}
