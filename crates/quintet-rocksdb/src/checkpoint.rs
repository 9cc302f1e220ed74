//! Checkpoints: copies of the present state of a database in new directories.

use std::sync::Arc;

use quintet_compat::{
    boundary::{Text, required},
    export, export_fallible,
    status::Status,
};

use crate::core::{Core, Db};

/// `rocksdb_checkpoint_t`.
#[derive(Debug)]
pub struct Checkpoint {
    core: Arc<Core>,
}

fn object(db: Option<&Db>) -> Result<Option<Box<Checkpoint>>, Status> {
    Ok(Some(Box::new(Checkpoint { core: required(db, "the database")?.core.clone() })))
}

export_fallible! {
    /// Makes an object that makes checkpoints.
    pub fn rocksdb_checkpoint_object_create(db: Option<&Db>) -> Option<Box<Checkpoint>>, None, {
        object(db)
    }

    /// Makes an object that makes checkpoints.
    pub fn rocksdb_transactiondb_checkpoint_object_create(
        db: Option<&Db>,
    ) -> Option<Box<Checkpoint>>, None, {
        object(db)
    }

    /// Makes an object that makes checkpoints.
    pub fn rocksdb_optimistictransactiondb_checkpoint_object_create(
        db: Option<&Db>,
    ) -> Option<Box<Checkpoint>>, None, {
        object(db)
    }

    /// Copies the present state to a directory of the same environment that does not exist.
    /// Reads and writes all entries.
    pub fn rocksdb_checkpoint_create(
        checkpoint: Option<&Checkpoint>, directory: Text, _log_size_for_flush: u64,
    ) {
        let core = &required(checkpoint, "the checkpoint")?.core;
        core.copy(&core.environment.path(directory)?)
    }
}

export! {
    /// Frees an object that makes checkpoints.
    pub fn rocksdb_checkpoint_object_destroy(checkpoint: Option<Box<Checkpoint>>) {
        drop(checkpoint);
    }
}
