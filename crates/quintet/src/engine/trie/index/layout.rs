//! The layout of lists, which an option names.

/// The layout of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Arrays of words.
    Lines,
    /// Linked cells, as in the paper.
    Chain,
}
