//! Tables and their writes. A handle is of the table itself, or of the table as a snapshot or a
//! transaction shows it.

use std::{
    ffi::c_int,
    sync::{Arc, Mutex, MutexGuard, TryLockError},
};

use quintet::{CasOutcome, Database, Key, Snapshot, Table, Transaction, Value};

use crate::{
    boundary::{Buffer, Context, In, InOut, Out, Slice, View, export, give, required},
    failure::{Code, Failure},
    handles::Handle,
    range::{self, Range},
    statistics,
    write::{self, WriteOptions},
};

/// Computes a new value of a key for `quintet_update`. `old` is null if the key is absent.
///
/// Returns 0 to store the content of `value`, which `quintet_buffer_set` sets, and 1 to delete the
/// key. Another number refuses the update. It runs without a lock, so it may use the table, and may
/// run more than once. `value` is empty at each call; the library frees it.
pub type UpdateFunction =
    extern "C-unwind" fn(context: Context, old: *const View, value: *mut Buffer) -> c_int;

/// Maximum number of rounds of an update. Each lost round is a write of another thread to the same
/// key, so a thread loses a few rounds in a row. A function that writes to its own key loses all.
const UPDATE_ROUNDS_MAX: usize = 1000;

/// Result of an update function: stores `new`.
const UPDATE_PUT: c_int = 0;
/// Result of an update function: deletes the key.
const UPDATE_DELETE: c_int = 1;

/// A transaction that its handle and handles of tables share. `None`: it has ended.
#[derive(Debug)]
pub struct SharedTransaction(Mutex<Option<Transaction>>);

impl SharedTransaction {
    /// Shares a transaction.
    pub fn new(transaction: Transaction) -> Self {
        Self(Mutex::new(Some(transaction)))
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<Transaction>>, Failure> {
        exclusive(&self.0)
    }

    /// Runs `body` with the transaction. Fails with `Busy` if another thread, or a caller of this
    /// callback, uses it, and with `Ended` after its end.
    pub fn with<T>(
        &self,
        body: impl FnOnce(&mut Transaction) -> quintet::Result<T>,
    ) -> Result<T, Failure> {
        let mut guard = self.lock()?;
        let ended = || Failure::new(Code::Ended, "the transaction has ended");
        Ok(body(guard.as_mut().ok_or_else(ended)?)?)
    }

    /// Ends the transaction: returns it.
    pub fn end(&self) -> Result<Option<Transaction>, Failure> {
        Ok(self.lock()?.take())
    }
}

/// Locks an object that one thread at a time may use.
pub fn exclusive<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>, Failure> {
    match mutex.try_lock() {
        Ok(guard) => Ok(guard),
        // A callback panicked. The library's objects stay consistent when a callback unwinds.
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(Failure::new(Code::Busy, "the handle is in use by another call"))
        }
    }
}

/// How a handle shows its table.
#[derive(Clone, Debug)]
pub enum Source {
    /// As it is now.
    Live,
    /// As a snapshot shows it.
    Snapshot(Snapshot),
    /// As a transaction shows it.
    Transaction(Arc<SharedTransaction>),
}

/// A table, or its state in a snapshot or a transaction.
#[derive(Clone, Debug)]
pub struct TableHandle {
    pub(crate) table: Table,
    pub(crate) source: Source,
}

impl TableHandle {
    /// Makes a handle of a table as it is now.
    pub fn live(table: Table) -> Result<Handle<Self>, Failure> {
        Handle::new(Self { table, source: Source::Live })
    }

    /// Returns the table if the handle shows it as it is now.
    pub fn table(&self) -> Result<&Table, Failure> {
        match &self.source {
            Source::Live => Ok(&self.table),
            Source::Snapshot(_) => Err(Failure::new(
                Code::Unsupported,
                "a snapshot is only read, by gets, ranges and scans",
            )),
            Source::Transaction(_) => Err(Failure::new(
                Code::Unsupported,
                "a transaction takes gets, ranges, scans, puts, deletes and merges only",
            )),
        }
    }
}

/// Copies an optional value to a buffer, and stores whether there is one.
pub fn give_value(
    value: Option<impl AsRef<[u8]>>,
    buffer: InOut<'_, Buffer>,
    found: Out<'_, bool>,
) -> Result<(), Failure> {
    give(found, value.is_some());
    let Some(buffer) = buffer else { return Ok(()) };
    buffer.fill(|content| {
        if let Some(value) = value {
            content.extend_from_slice(value.as_ref());
        }
        Ok(())
    })
}

/// Copies an optional entry to buffers, and stores whether there is one.
pub fn give_entry(
    entry: Option<(Key, Value)>,
    key: InOut<'_, Buffer>,
    value: InOut<'_, Buffer>,
    found: Out<'_, bool>,
) -> Result<(), Failure> {
    let (first, second) = entry.unzip();
    give_value(first, key, None)?;
    give_value(second, value, found)
}

/// Calls an update function. Fails with `CallbackFailed` if it refuses.
fn update(
    function: UpdateFunction,
    context: Context,
    old: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut new = Buffer::EMPTY;
    let old = old.map(View::of);
    let old = old.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    match function(context, old, &raw mut new) {
        UPDATE_PUT => Ok(Some(new.take())),
        UPDATE_DELETE => Ok(None),
        other => Err(Failure::new(
            Code::CallbackFailed,
            format!("the update function returned {other}; nothing was written"),
        )),
    }
}

/// Updates a key by rounds of compare-and-swap. In `Table::update`, the function cannot refuse,
/// and the number of rounds has no limit.
fn update_key(
    table: &Table,
    key: &[u8],
    options: In<'_, WriteOptions>,
    call: impl Fn(Option<&[u8]>) -> Result<Option<Vec<u8>>, Failure>,
) -> Result<Option<Vec<u8>>, Failure> {
    let options = write::update(options)?;
    let mut old = table.get(key)?;
    for _ in 0..UPDATE_ROUNDS_MAX {
        let new = call(old.as_deref())?;
        let swap = table.compare_and_swap_with(key, old.as_deref(), new.as_deref(), options)?;
        match swap {
            CasOutcome::Swapped => return Ok(new),
            CasOutcome::Different { current } => old = current,
        }
    }
    Err(Failure::new(
        Code::Busy,
        format!(
            "other writes changed the key in each of {UPDATE_ROUNDS_MAX} rounds; nothing was \
             written"
        ),
    ))
}

export! {
    /// Opens a table as a snapshot shows it. The handle takes gets, ranges and scans. It keeps the
    /// snapshot.
    ///
    /// Errors: `QUINTET_UNSUPPORTED` if `table` is of a snapshot or a transaction.
    pub fn quintet_snapshot_table(
        snapshot: Handle<Snapshot>, table: Handle<TableHandle>, view: Out<Handle<TableHandle>>,
    ) {
        let source = Source::Snapshot((*snapshot.get()?).clone());
        let table = table.get()?.table()?.clone();
        required(view, "view")?.write(Handle::new(TableHandle { table, source })?);
        Ok(())
    }

    /// Frees the handle of a table. Null is allowed. Calls that use it in other threads end as
    /// usual.
    ///
    /// Errors: those of every function.
    pub fn quintet_table_free(table: Handle<TableHandle>) {
        table.free().map(drop)
    }

    /// Stores the path of a table.
    ///
    /// Errors: those of every function.
    pub fn quintet_table_name(table: Handle<TableHandle>, name: InOut<Buffer>) {
        required(name, "name")?.set(table.get()?.table.name().into_bytes());
        Ok(())
    }

    /// Stores the name of a table's engine.
    ///
    /// Errors: those of every function.
    pub fn quintet_table_engine(table: Handle<TableHandle>, engine: InOut<Buffer>) {
        required(engine, "engine")?.set(table.get()?.table.kind().name().as_bytes().to_vec());
        Ok(())
    }

    /// Stores the types of a table, such as `"string,u64 -> blob"`. Empty for an untyped table.
    ///
    /// Errors: those of every function.
    pub fn quintet_table_types(table: Handle<TableHandle>, types: InOut<Buffer>) {
        let text = table.get()?.table.types().map(|types| types.to_string()).unwrap_or_default();
        required(types, "types")?.set(text.into_bytes());
        Ok(())
    }

    /// Stores a value under a key, and replaces an earlier one. `options` may be null. `written`
    /// (may be null) gets false if a condition of the options did not hold.
    ///
    /// Errors: those of a write.
    pub fn quintet_put(
        table: Handle<TableHandle>, key: Slice, value: Slice, options: In<WriteOptions>,
        written: Out<bool>,
    ) {
        let (handle, options) = (table.get()?, write::put(options)?);
        let (key, value) = (key.bytes()?, value.bytes()?);
        let done = match &handle.source {
            Source::Transaction(transaction) => {
                transaction.with(|tx| tx.put_with(&handle.table, key, value, options))?
            }
            _ => handle.table()?.put_with(key, value, options)?,
        };
        give(written, done);
        Ok(())
    }

    /// Deletes a key; an absent key is no error. `options` may be null. `written` (may be null)
    /// gets false if a condition of the options did not hold.
    ///
    /// Errors: those of a write.
    pub fn quintet_delete(
        table: Handle<TableHandle>, key: Slice, options: In<WriteOptions>, written: Out<bool>,
    ) {
        let (handle, options, key) = (table.get()?, write::delete(options)?, key.bytes()?);
        let done = match &handle.source {
            Source::Transaction(transaction) => {
                transaction.with(|tx| tx.delete_with(&handle.table, key, options))?
            }
            _ => handle.table()?.delete_with(key, options)?,
        };
        give(written, done);
        Ok(())
    }

    /// Deletes the keys of a range. Its direction has no effect. A null range is the whole table.
    ///
    /// Errors: those of a write; `QUINTET_UNORDERED` if the engine keeps no key order.
    pub fn quintet_delete_range(table: Handle<TableHandle>, range: In<Range>) {
        let (handle, (range, _)) = (table.get()?, range::bounds(range)?);
        match &handle.source {
            Source::Transaction(transaction) => {
                transaction.with(|tx| tx.delete_range(&handle.table, range))
            }
            _ => Ok(handle.table()?.delete_range(range)?),
        }
    }

    /// Merges an operand into the value of a key, by the merge operator of the table. `options` may
    /// be null. In a transaction it must be null.
    ///
    /// Errors: those of a write, `QUINTET_MERGE_REFUSED`, `QUINTET_MERGE_OPERATOR_MISSING`,
    /// `QUINTET_INVALID_OPTION` if the table has no operator.
    pub fn quintet_merge(
        table: Handle<TableHandle>, key: Slice, operand: Slice, options: In<WriteOptions>,
    ) {
        let (handle, key, operand) = (table.get()?, key.bytes()?, operand.bytes()?);
        match &handle.source {
            Source::Transaction(_) if options.is_some() => Err(Failure::new(
                Code::Unsupported, "a merge of a transaction has no options",
            )),
            Source::Transaction(transaction) => {
                transaction.with(|tx| tx.merge(&handle.table, key, operand))
            }
            _ => Ok(handle.table()?.merge_with(key, operand, write::update(options)?)?),
        }
    }

    /// Replaces the value of a key by one that `function` computes from it. The new value is stored
    /// only if no other write of the key came between. Otherwise the function runs again, 1000
    /// times in all. `options` may be null. `value` (may be null) gets the new value, `found` (may
    /// be null) whether there is one.
    ///
    /// Errors: those of a write; `QUINTET_CALLBACK_FAILED` if the function refuses; `QUINTET_BUSY`
    /// if another write came between each time. Nothing is written then.
    pub fn quintet_update(
        table: Handle<TableHandle>, key: Slice, options: In<WriteOptions>,
        function: Option<UpdateFunction>, context: Context, value: InOut<Buffer>, found: Out<bool>,
    ) {
        let (handle, function) = (table.get()?, required(function, "function")?);
        let call = |old: Option<&[u8]>| update(function, context, old);
        give_value(update_key(handle.table()?, key.bytes()?, options, call)?, value, found)
    }

    /// Sets a key to `value` if its value is `expected`. An absent slice stands for an absent key:
    /// as `value` it deletes. `swapped` gets whether the key was set. If not, `current` (may be
    /// null) gets the present value and `found` (may be null) whether there is one. `options` may
    /// be null.
    ///
    /// Errors: those of a write.
    pub fn quintet_compare_and_swap(
        table: Handle<TableHandle>, key: Slice, expected: Slice, value: Slice,
        options: In<WriteOptions>, swapped: Out<bool>, current: InOut<Buffer>, found: Out<bool>,
    ) {
        let handle = table.get()?;
        let options = write::update(options)?;
        let (expected, new) = (expected.optional()?, value.optional()?);
        let swapped = required(swapped, "swapped")?;
        let outcome =
            handle.table()?.compare_and_swap_with(key.bytes()?, expected, new, options)?;
        swapped.write(outcome.is_swapped());
        match outcome {
            CasOutcome::Swapped => give_value(None::<&[u8]>, current, found),
            CasOutcome::Different { current: value } => give_value(value, current, found),
        }
    }

    /// Adds `delta` to the integer value of a key, 0 if absent. `before` (may be null) gets the
    /// value before. The value of an untyped table has 8 bytes, signed, little-endian. `options`
    /// may be null.
    ///
    /// Errors: those of a write; `QUINTET_TYPE_MISMATCH` if the value is no integer;
    /// `QUINTET_LIMIT` if the sum overflows.
    pub fn quintet_fetch_and_add(
        table: Handle<TableHandle>, key: Slice, delta: i64, options: In<WriteOptions>,
        before: Out<i64>,
    ) {
        let (handle, options) = (table.get()?, write::update(options)?);
        give(before, handle.table()?.fetch_and_add_with(key.bytes()?, delta, options)?);
        Ok(())
    }

    /// Deletes a key. `value` (may be null) gets the value that it had, `found` (may be null)
    /// whether it had one.
    ///
    /// Errors: those of a write.
    pub fn quintet_take(
        table: Handle<TableHandle>, key: Slice, value: InOut<Buffer>, found: Out<bool>,
    ) {
        give_value(table.get()?.table()?.take(key.bytes()?)?, value, found)
    }

    /// Stores `value` under a key. `old` (may be null) gets the value that the key had, `found`
    /// (may be null) whether it had one.
    ///
    /// Errors: those of a write.
    pub fn quintet_replace(
        table: Handle<TableHandle>, key: Slice, value: Slice, old: InOut<Buffer>, found: Out<bool>,
    ) {
        give_value(table.get()?.table()?.replace(key.bytes()?, value.bytes()?)?, old, found)
    }

    /// Deletes the first entry. `key` and `value` (may be null) get the entry, `found` (may be
    /// null) whether there was one.
    ///
    /// Errors: those of a write; `QUINTET_UNORDERED` if the engine keeps no key order.
    pub fn quintet_pop_first(
        table: Handle<TableHandle>, key: InOut<Buffer>, value: InOut<Buffer>, found: Out<bool>,
    ) {
        give_entry(table.get()?.table()?.pop_first()?, key, value, found)
    }

    /// Deletes the last entry. Otherwise as `quintet_pop_first`.
    ///
    /// Errors: those of a write; `QUINTET_UNORDERED` if the engine keeps no key order.
    pub fn quintet_pop_last(
        table: Handle<TableHandle>, key: InOut<Buffer>, value: InOut<Buffer>, found: Out<bool>,
    ) {
        give_entry(table.get()?.table()?.pop_last()?, key, value, found)
    }

    /// Removes all entries. The time does not depend on their number. Handles of the table stay
    /// valid.
    ///
    /// Errors: those of a write.
    pub fn quintet_clear(table: Handle<TableHandle>) {
        Ok(table.get()?.table()?.clear()?)
    }

    /// Checkpoints a table.
    ///
    /// Errors: those of a write.
    pub fn quintet_table_persist(table: Handle<TableHandle>) {
        Ok(table.get()?.table()?.persist()?)
    }

    /// Rewrites the files of a table without deleted and replaced entries.
    ///
    /// Errors: those of a write.
    pub fn quintet_table_compact(table: Handle<TableHandle>) {
        Ok(table.get()?.table()?.compact()?)
    }

    /// Stores the statistics of a table as a JSON object.
    ///
    /// Errors: those of a read; `QUINTET_UNSUPPORTED` in a snapshot or a
    /// transaction.
    pub fn quintet_table_stats_json(table: Handle<TableHandle>, json: InOut<Buffer>) {
        let stats = table.get()?.table()?.stats()?;
        required(json, "json")?.set(statistics::table_json(&stats).into_bytes());
        Ok(())
    }

    /// Stores a statistic of a table. `name` is a name of `quintet_table_stats_json`.
    ///
    /// Errors: those of a read; `QUINTET_INVALID_OPTION` if there is no such statistic;
    /// `QUINTET_UNSUPPORTED` in a snapshot or a transaction.
    pub fn quintet_table_stat(table: Handle<TableHandle>, name: Slice, value: Out<u64>) {
        let stats = table.get()?.table()?.stats()?;
        let number = statistics::find(&statistics::of_table(&stats), name.text()?)?;
        required(value, "value")?.write(number);
        Ok(())
    }

    /// Stores whether a table of this name exists. Opens it, so damage of the table is an error.
    ///
    /// Errors: those of `quintet_open_table`, except `QUINTET_NO_SUCH_TABLE`.
    pub fn quintet_is_table(database: Handle<Database>, name: Slice, exists: Out<bool>) {
        let name = name.text()?;
        let result = database.get()?.table(name);
        let exists = required(exists, "exists")?;
        match result {
            Ok(_) => exists.write(true),
            Err(quintet::Error::NoSuchTable { .. }) => exists.write(false),
            Err(error) => return Err(error.into()),
        };
        Ok(())
    }
}
