//! Atomic batches.

mod batch_merge;
mod merges;

use std::sync::Arc;

use super::{session::Session, table::Table, write_options::PutOptions};
use batch_merge::BatchMerge;

use crate::{
    Error, Result,
    contract::Op,
    db::{
        core::{condition::Condition, durability::Durability},
        encoding::{envelope::Envelope, operations::put_op},
        limits::{BATCH_BYTES_MAX, check_key, check_value},
        tables::state::TableState,
    },
    io::process::ProcessArc,
    util::codec::to_u64,
};

/// Operations on any number of tables of one database, committed atomically.
/// [`Database::batch`](crate::db::Database::batch) creates it.
///
/// Operations apply in the order of addition. A batch is stored encoded, so it needs little more
/// memory than its keys and values; its limit is [`BATCH_BYTES_MAX`]. A refused operation (limit,
/// table of another database, option) is reported by [`Batch::commit`], which then commits nothing.
///
/// ```no_run
/// # fn main() -> quintet::Result<()> {
/// # let db = quintet::Database::open("data")?;
/// # let accounts = db.table("accounts")?;
/// let mut batch = db.batch();
/// batch.put(&accounts, "alice", "90").put(&accounts, "bob", "110");
/// batch.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Batch {
    session: ProcessArc<Session>,
    body: Vec<u8>,
    tables: Vec<ProcessArc<TableState>>,
    /// The merges, in order.
    merges: Vec<BatchMerge>,
    merge_bytes: u64,
    operations: usize,
    /// The first operation that was refused.
    refused: Option<Error>,
}

impl Batch {
    pub(crate) fn new(session: ProcessArc<Session>) -> Self {
        Self {
            session,
            body: Vec::new(),
            tables: Vec::new(),
            merges: Vec::new(),
            merge_bytes: 0,
            operations: 0,
            refused: None,
        }
    }

    /// Adds a put.
    pub fn put(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.put_with(table, key, value, PutOptions::new())
    }

    /// Adds a put with an expiry or a type tag. A ttl counts from this call. A condition or a
    /// durability makes [`Batch::commit`] fail with [`Error::InvalidOption`]; the durability of a
    /// batch is chosen by [`Batch::commit_with`].
    pub fn put_with(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: PutOptions,
    ) -> &mut Self {
        let added = self.try_put(table, key.as_ref(), value.as_ref(), &options);
        self.keep_refusal(added)
    }

    /// Adds a delete.
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> &mut Self {
        let key = key.as_ref();
        let added = check_key(key).and_then(|()| self.add(table, &Op::Delete { key }));
        self.keep_refusal(added)
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.operations
    }

    /// Returns whether the batch has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// Returns the encoded size in bytes.
    pub fn bytes(&self) -> u64 {
        to_u64(self.body.len()) + self.merge_bytes
    }

    /// Removes all operations, and the record of a refused one.
    pub fn clear(&mut self) {
        self.body.clear();
        self.tables.clear();
        self.merges.clear();
        self.merge_bytes = 0;
        self.operations = 0;
        self.refused = None;
    }

    /// Commits with the database's durability and empties the batch. After an error the batch is
    /// unchanged.
    ///
    /// Fails with the first refused operation, with [`Error::StaleTable`] if a table was dropped,
    /// or as [`Table::put`] does; nothing is committed then. Only after [`Error::LogFailed`] or
    /// [`Error::TableFailed`] may the writes be visible, and found at the next open.
    pub fn commit(&mut self) -> Result<()> {
        self.commit_with(self.session.core.durability)
    }

    /// Commits with `durability`. Otherwise as [`Batch::commit`].
    pub fn commit_with(&mut self, durability: Durability) -> Result<()> {
        self.session.core.tables.check_process()?;
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        if self.merges.is_empty() {
            self.session.core.commit_batch(&self.body, &self.tables, None, durability)?;
        } else {
            self.commit_merges(durability)?;
        }
        self.clear();
        Ok(())
    }

    pub(super) fn keep_refusal(&mut self, added: Result<()>) -> &mut Self {
        if let Err(error) = added {
            self.refused.get_or_insert(error);
        }
        self
    }

    fn try_put(
        &mut self,
        table: &Table,
        key: &[u8],
        value: &[u8],
        options: &PutOptions,
    ) -> Result<()> {
        self.session.core.tables.check_process()?;
        check_key(key)?;
        check_value(value)?;
        if options.condition != Condition::Always || options.durability.is_some() {
            return Err(Error::InvalidOption {
                name: "batch".to_owned(),
                what: "a put in a batch has neither a condition nor a durability".to_owned(),
            });
        }
        let clock = &self.session.core.host.clock;
        let expires_at = options.expiry(|| clock.now())?;
        let envelope = Envelope { expires_at, type_tag: options.type_tag }.encode();
        self.add(table, &Op::Put { key, head: envelope.as_slice(), body: value })
    }

    fn add(&mut self, table: &Table, op: &Op<'_>) -> Result<()> {
        self.check_own(table)?;
        let before = self.body.len();
        put_op(&mut self.body, table.state.id, op);
        if let Err(error) = self.check_bytes() {
            self.body.truncate(before);
            return Err(error);
        }
        self.operations += 1;
        let is_known = |other: &ProcessArc<TableState>| Arc::ptr_eq(other, &table.state);
        // Searched from the end: consecutive operations on one table are the common case.
        if !self.tables.iter().rev().any(is_known) {
            self.tables.push(table.state.clone());
        }
        Ok(())
    }

    /// Fails if the table is of another database.
    fn check_own(&self, table: &Table) -> Result<()> {
        if Arc::ptr_eq(&self.session.core, &table.session.core) {
            return Ok(());
        }
        Err(Error::OtherDatabase { table: table.name() })
    }

    /// Fails if the batch is too large.
    fn check_bytes(&self) -> Result<()> {
        if self.bytes() <= BATCH_BYTES_MAX {
            return Ok(());
        }
        let bytes = self.bytes();
        let what = format!("a batch has {bytes} bytes; batches have at most {BATCH_BYTES_MAX}");
        Err(Error::Limit { what })
    }
}
