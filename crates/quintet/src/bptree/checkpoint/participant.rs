//! State beside a tree that joins its checkpoints.

use std::fmt;

use crate::{
    Result,
    bptree::tree::{CountChange, Tree},
};

/// State beside a tree that must agree with it.
pub(crate) trait CheckpointParticipant: Send + Sync + fmt::Debug {
    /// A checkpoint begins, and no thread changes the tree: adds to the tree what must agree with
    /// it.
    fn join(&self, tree: &Tree) -> Result<CountChange>;
    /// The checkpoint is about to be written: makes durable what it refers to.
    fn make_durable(&self) -> Result<()>;
    /// The checkpoint is durable.
    fn on_durable(&self);
}
