//! Writes that take effect together.

use std::sync::Arc;

use super::{
    Durability, PutOptions, Table,
    core::TableState,
    database::Session,
    envelope::Envelope,
    ops::put_op,
    options::{BATCH_BYTES_MAX, Condition, check_key, check_value},
};
use crate::{Error, Result, contract::Op, util::codec::to_u64};

/// Writes to any number of tables of one database that are committed together: all of them or
/// none, whatever happens. Made by [`Database::batch`](super::Database::batch).
///
/// Operations take effect in the order in which they were added. They are kept encoded, so a batch
/// takes little more memory than its keys and values; its limit is [`BATCH_BYTES_MAX`]. An
/// operation that is refused (a limit, a table of another database) is reported by
/// [`Batch::commit`], which then commits nothing.
#[derive(Debug)]
pub struct Batch {
    session: Arc<Session>,
    body: Vec<u8>,
    tables: Vec<Arc<TableState>>,
    operations: usize,
    /// The first operation that was refused.
    refused: Option<Error>,
}

impl Batch {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self { session, body: Vec::new(), tables: Vec::new(), operations: 0, refused: None }
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

    /// Adds a put with an expiry or a type tag. A lifetime is counted from this call. Conditions
    /// and durability belong to single puts and to [`Batch::commit_with`]: they are refused here.
    pub fn put_with(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: PutOptions,
    ) -> &mut Self {
        let added = self.try_put(table, key.as_ref(), value.as_ref(), &options);
        self.note(added)
    }

    /// Adds a delete.
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> &mut Self {
        let key = key.as_ref();
        let added = check_key(key).and_then(|()| self.add(table, &Op::Delete { key }));
        self.note(added)
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.operations
    }

    /// Whether it has no operation.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// Its size in bytes, as encoded.
    pub fn bytes(&self) -> u64 {
        to_u64(self.body.len())
    }

    /// Removes all operations, and forgets one that was refused.
    pub fn clear(&mut self) {
        self.body.clear();
        self.tables.clear();
        self.operations = 0;
        self.refused = None;
    }

    /// Commits with the database's durability. The batch is empty afterwards and can be used
    /// again; after an error it is as it was.
    ///
    /// Fails with the first operation that was refused; with [`Error::StaleTable`] where a table
    /// was dropped; and as [`Table::put`] does. Nothing is committed then. Only with
    /// [`Error::LogFailed`] and [`Error::TableFailed`] the writes may be visible, and found again
    /// on the next open.
    pub fn commit(&mut self) -> Result<()> {
        self.commit_with(self.session.core.durability)
    }

    /// Commits with a durability of its own; otherwise as [`Batch::commit`].
    pub fn commit_with(&mut self, durability: Durability) -> Result<()> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        self.session.core.commit_batch(&self.body, &self.tables, durability)?;
        self.clear();
        Ok(())
    }

    fn note(&mut self, added: Result<()>) -> &mut Self {
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
        check_key(key)?;
        check_value(value)?;
        if options.condition != Condition::Always || options.durability.is_some() {
            return Err(Error::InvalidOption {
                name: "batch".to_owned(),
                what: "a put in a batch has no condition and no durability of its own".to_owned(),
            });
        }
        let clock = &self.session.core.shared.clock;
        let expires_at = options.expiry(|| clock.now())?;
        let envelope = Envelope { expires_at, type_tag: options.type_tag }.encode();
        self.add(table, &Op::Put { key, head: envelope.as_slice(), body: value })
    }

    fn add(&mut self, table: &Table, op: &Op<'_>) -> Result<()> {
        if !Arc::ptr_eq(&self.session.core, &table.session.core) {
            return Err(Error::OtherDatabase { table: table.name() });
        }
        let before = self.body.len();
        put_op(&mut self.body, table.state.id, op);
        if to_u64(self.body.len()) > BATCH_BYTES_MAX {
            let what = format!(
                "a batch has more than {} bytes; batches have at most {BATCH_BYTES_MAX}",
                self.body.len()
            );
            self.body.truncate(before);
            return Err(Error::Limit { what });
        }
        self.operations += 1;
        let known = |other: &Arc<TableState>| Arc::ptr_eq(other, &table.state);
        // From the back: runs of operations on one table are the common case.
        if !self.tables.iter().rev().any(known) {
            self.tables.push(Arc::clone(&table.state));
        }
        Ok(())
    }
}
