//! Reads of tables, snapshots and transactions.

use std::{ffi::c_int, ops::ControlFlow};

use quintet::{Key, ReadableTable, Value};

use crate::{
    boundary::{Array, Buffer, Context, In, InOut, Out, Room, Slice, View, export, give, required},
    failure::{Code, Failure},
    handles::Handle,
    range::{self, Range},
    table::{Source, TableHandle, give_entry},
};

/// Gets entries from `quintet_visit` and `quintet_get_with`. The slices are valid until it returns.
/// Returns 0 to go on, and another number to stop.
pub type VisitFunction = extern "C-unwind" fn(context: Context, key: View, value: View) -> c_int;
/// Gets values from `quintet_multi_get`: the index of the key, and its value, or null for an absent
/// key. The slice is valid until it returns.
pub type EachFunction = extern "C-unwind" fn(context: Context, index: usize, value: *const View);

/// The size of a value, and the data that is stored with it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ValueInfo {
    /// Number of bytes of the value.
    pub size: usize,
    /// When the value expires, in milliseconds since 1970. 0: never.
    pub expires_at_ms: u64,
    /// The type of the value, such as `"u64"`. Absent: none. Valid until the program ends.
    pub type_tag: View,
}

/// Returns the value of a key as the handle shows it.
pub fn get(handle: &TableHandle, key: &[u8]) -> Result<Option<Value>, Failure> {
    match &handle.source {
        Source::Live => Ok(handle.table.get(key)?),
        Source::Snapshot(snapshot) => Ok(snapshot.get(&handle.table, key)?),
        Source::Transaction(transaction) => transaction.with(|tx| tx.get(&handle.table, key)),
    }
}

fn get_into(handle: &TableHandle, key: &[u8], out: &mut Vec<u8>) -> Result<bool, Failure> {
    match &handle.source {
        Source::Live => Ok(handle.table.get_into(key, out)?),
        Source::Snapshot(snapshot) => Ok(snapshot.get_into(&handle.table, key, out)?),
        Source::Transaction(tx) => tx.with(|tx| tx.get_into(&handle.table, key, out)),
    }
}

/// Returns the first entry as the handle shows it, or the last.
fn entry_at(handle: &TableHandle, is_last: bool) -> Result<Option<(Key, Value)>, Failure> {
    match &handle.source {
        Source::Live if is_last => Ok(handle.table.last()?),
        Source::Live => Ok(handle.table.first()?),
        Source::Snapshot(snapshot) => {
            let table = snapshot.table(&handle.table);
            Ok(if is_last { table.last()? } else { table.first()? })
        }
        Source::Transaction(tx) => tx.with(|tx| {
            let table = tx.table(&handle.table);
            if is_last { table.last() } else { table.first() }
        }),
    }
}

export! {
    /// Copies the value of a key to `value`. `found` (may be null) gets whether the key is present.
    /// A buffer that has enough memory is filled without an allocation.
    ///
    /// Errors: those of a read.
    pub fn quintet_get(
        table: Handle<TableHandle>, key: Slice, value: InOut<Buffer>, found: Out<bool>,
    ) {
        let (handle, key) = (table.get()?, key.bytes()?);
        let is_found = required(value, "value")?.fill(|out| get_into(&handle, key, out))?;
        give(found, is_found);
        Ok(())
    }

    /// Copies the value of a key to `capacity` bytes at `memory`. `size` and `found` (may be null)
    /// get its size and whether the key is present. They are written also with
    /// `QUINTET_BUFFER_TOO_SMALL`: `memory` is unchanged then, and `size` bytes suffice.
    ///
    /// Errors: those of a read; `QUINTET_BUFFER_TOO_SMALL` if the value has more than `capacity`
    /// bytes.
    pub fn quintet_get_into(
        table: Handle<TableHandle>, key: Slice, memory: Room, capacity: usize, size: Out<usize>,
        found: Out<bool>,
    ) {
        let value = get(&*table.get()?, key.bytes()?)?;
        give(found, value.is_some());
        let bytes = value.as_deref().unwrap_or(&[]);
        give(size, bytes.len());
        if memory.copy(capacity, bytes)? {
            return Ok(());
        }
        let message = format!("the value has {} bytes, the memory {capacity}", bytes.len());
        Err(Failure::new(Code::BufferTooSmall, message))
    }

    /// Passes the value of a key to `function`, whose result is ignored. `found` (may be null) gets
    /// whether the key is present; otherwise the function is not called.
    ///
    /// Errors: those of a read.
    pub fn quintet_get_with(
        table: Handle<TableHandle>, key: Slice, function: Option<VisitFunction>, context: Context,
        found: Out<bool>,
    ) {
        let function = required(function, "function")?;
        let key = key.bytes()?;
        let value = get(&*table.get()?, key)?;
        give(found, value.is_some());
        if let Some(value) = value {
            function(context, View::of(key), View::of(&value));
        }
        Ok(())
    }

    /// Stores the size, the expiry and the type of a value. `found` (may be null) gets whether the
    /// key is present; otherwise `info` gets zeros.
    ///
    /// Errors: those of a read.
    pub fn quintet_get_info(
        table: Handle<TableHandle>, key: Slice, info: Out<ValueInfo>, found: Out<bool>,
    ) {
        let info = required(info, "info")?;
        let value = get(&*table.get()?, key.bytes()?)?;
        give(found, value.is_some());
        info.write(ValueInfo {
            size: value.as_ref().map_or(0, |value| value.len()),
            expires_at_ms: value.as_ref().and_then(Value::expires_at_unix_millis).unwrap_or(0),
            type_tag: value
                .and_then(|value| value.type_tag())
                .map_or(View::NONE, |tag| View::of(tag.name().as_bytes())),
        });
        Ok(())
    }

    /// Stores whether a key is present.
    ///
    /// Errors: those of a read.
    pub fn quintet_contains(table: Handle<TableHandle>, key: Slice, found: Out<bool>) {
        let (handle, key) = (table.get()?, key.bytes()?);
        let is_found = match &handle.source {
            Source::Live => handle.table.contains(key)?,
            _ => get(&handle, key)?.is_some(),
        };
        required(found, "found")?.write(is_found);
        Ok(())
    }

    /// Reads the values of `count` keys and passes each to `function`, in any order. Cheaper than
    /// single gets. The values may be of different moments, except in a snapshot.
    ///
    /// Errors: those of a read.
    pub fn quintet_multi_get(
        table: Handle<TableHandle>, keys: Array<Slice>, count: usize,
        function: Option<EachFunction>, context: Context,
    ) {
        let (handle, function) = (table.get()?, required(function, "function")?);
        let keys = keys.items(count)?.iter().map(Slice::bytes).collect::<Result<Vec<_>, _>>()?;
        let call = |index, value: Option<&[u8]>| {
            let value = value.map(View::of);
            let value = value.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            function(context, index, value);
        };
        if let Source::Live = handle.source {
            return Ok(handle.table.multi_get_each(&keys, call)?);
        }
        for (index, key) in keys.iter().enumerate() {
            call(index, get(&handle, key)?.as_deref());
        }
        Ok(())
    }

    /// Prefetches what gets of `count` keys will read, for a caller that reads them one at a time
    /// soon afterwards. Changes nothing but the time of these reads. Does nothing in a snapshot or
    /// a transaction, and for the engines `naive`, `slm` and `tph`.
    ///
    /// Errors: those of a read, but none because of a key.
    pub fn quintet_prefetch(table: Handle<TableHandle>, keys: Array<Slice>, count: usize) {
        let handle = table.get()?;
        let keys = keys.items(count)?.iter().map(Slice::bytes).collect::<Result<Vec<_>, _>>()?;
        if let Source::Live = handle.source {
            handle.table.prefetch(&keys)?;
        }
        Ok(())
    }

    /// Passes the entries of a range to `function` in ascending order, until it returns another
    /// value than 0. Copies no entry. A null range is the whole table.
    ///
    /// Errors: those of a read; `QUINTET_UNORDERED` if the engine keeps no key order;
    /// `QUINTET_UNSUPPORTED` for a reverse range or in a transaction.
    pub fn quintet_visit(
        table: Handle<TableHandle>, range: In<Range>, function: Option<VisitFunction>,
        context: Context,
    ) {
        let (handle, function) = (table.get()?, required(function, "function")?);
        let (range, is_reverse) = range::bounds(range)?;
        if is_reverse {
            return Err(Failure::new(Code::Unsupported, "a visit is in ascending order"));
        }
        let each = |key: &[u8], value: &[u8]| {
            match function(context, View::of(key), View::of(value)) {
                0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        };
        match &handle.source {
            Source::Snapshot(snapshot) => Ok(snapshot.visit(&handle.table, range, each)?),
            _ => Ok(handle.table()?.visit(range, each)?),
        }
    }

    /// Stores the exact number of entries. Reads the whole table.
    ///
    /// Errors: those of a read.
    pub fn quintet_count(table: Handle<TableHandle>, count: Out<u64>) {
        let handle = table.get()?;
        let number = match &handle.source {
            Source::Live => handle.table.len()?,
            Source::Snapshot(snapshot) => snapshot.table(&handle.table).len()?,
            Source::Transaction(tx) => tx.with(|tx| tx.table(&handle.table).len())?,
        };
        required(count, "count")?.write(number);
        Ok(())
    }

    /// Stores an estimate of the number of keys in a range. Reads the index only. A null range is
    /// the whole table.
    ///
    /// Errors: those of a read; `QUINTET_UNORDERED` if the engine keeps no key order;
    /// `QUINTET_UNSUPPORTED` in a snapshot or a transaction.
    pub fn quintet_estimate_count(
        table: Handle<TableHandle>, range: In<Range>, count: Out<u64>,
    ) {
        let (range, _) = range::bounds(range)?;
        required(count, "count")?.write(table.get()?.table()?.estimate_count(range)?);
        Ok(())
    }

    /// Copies the first entry. `key` and `value` (may be null) get the entry, `found` (may be null)
    /// whether there is one.
    ///
    /// Errors: those of a read; `QUINTET_UNORDERED` if the engine keeps no key order.
    pub fn quintet_first(
        table: Handle<TableHandle>, key: InOut<Buffer>, value: InOut<Buffer>, found: Out<bool>,
    ) {
        give_entry(entry_at(&*table.get()?, false)?, key, value, found)
    }

    /// Copies the last entry. Otherwise as `quintet_first`.
    ///
    /// Errors: those of a read; `QUINTET_UNORDERED` if the engine keeps no key order.
    pub fn quintet_last(
        table: Handle<TableHandle>, key: InOut<Buffer>, value: InOut<Buffer>, found: Out<bool>,
    ) {
        give_entry(entry_at(&*table.get()?, true)?, key, value, found)
    }
}
