//! State beside a tree that joins its checkpoints.

use std::fmt;

use crate::{
    Result,
    bptree::tree::{CountChange, Tree},
};

/// State outside a tree that must agree with it.
pub(crate) trait CheckpointParticipant: Send + Sync + fmt::Debug {
    /// Adds to the tree what must agree with it. Called when a checkpoint begins, while no thread
    /// changes the tree.
    fn join(&self, tree: &Tree) -> Result<CountChange>;
    /// Makes durable what the checkpoint refers to. Called before the checkpoint is written.
    fn make_durable(&self) -> Result<()>;
    /// Called when the checkpoint is durable.
    fn on_durable(&self);
}
