//! Wrong code of the planted bugs of the catalog.

/// Returns the first number after those in use, although a removed table may have had it.
pub(super) fn id_after<'a>(ids: impl Iterator<Item = &'a u64>) -> u64 {
    ids.max().map_or(0, |id| *id) + 1
}
