//! Sorted loads of a table: see [`crate::bptree::checkpoint::bulk_load`].
//!
//! Threads: the database keeps writers and compaction of the table out.

use std::sync::Arc;

use super::{state::BTreeState, table::BTree};
use crate::{
    Result,
    bptree::checkpoint::bulk_load::BulkLoader,
    contract::{BulkLoad, Load, LoadStart},
    util::{codec::Lsn, sync::lock},
};

/// A load in progress; it is given up when dropped.
#[derive(Debug)]
struct BTreeLoad {
    inner: Arc<BTreeState>,
    loader: BulkLoader,
}

impl BulkLoad for BTree {
    fn begin_load(&self) -> Result<LoadStart> {
        let inner = Arc::clone(&self.inner);
        inner.paged.context.check_writable()?;
        inner.merge_all()?;
        let (loader, last) = BulkLoader::begin(&inner.paged)?;
        Ok(LoadStart { load: Box::new(BTreeLoad { inner, loader }), last })
    }
}

impl Load for BTreeLoad {
    fn put(&mut self, key: &[u8], head: &[u8], body: &[u8]) -> Result<()> {
        self.loader.put(&self.inner.paged, key, [head, body])
    }

    fn finish(&mut self) -> Result<()> {
        self.loader.finish(&self.inner.paged)
    }

    fn adopt(&mut self, up_to: Lsn) -> Result<Lsn> {
        let mut checkpointer = lock(&self.inner.paged.checkpointer);
        let lsn = up_to.max(checkpointer.complete());
        self.loader.adopt(&self.inner.paged, &mut checkpointer, lsn)?;
        Ok(lsn)
    }
}

impl Drop for BTreeLoad {
    fn drop(&mut self) {
        self.loader.abandon(&self.inner.paged);
    }
}
