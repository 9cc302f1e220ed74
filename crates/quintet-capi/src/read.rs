//! Reads of tables, snapshots and transactions.

use std::{ffi::c_int, ops::ControlFlow};

use quintet::{ReadableTable, Value};

use crate::{
    boundary::{Array, Buffer, Context, In, InOut, Out, Room, Slice, export, give, required},
    failure::{Code, Failure},
    handles::Handle,
    range::{self, Range},
    table::{Source, TableHandle, give_value},
};

/// A function that gets entries. The slices are valid until it returns. 0: go on; otherwise stop.
pub type VisitFunction = extern "C-unwind" fn(context: Context, key: Slice, value: Slice) -> c_int;
/// A function that gets the values of several keys: the index of the key, and null for an absent
/// one. The slice is valid until it returns.
pub type EachFunction = extern "C-unwind" fn(context: Context, index: usize, value: *const Slice);

/// What is stored with a value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ValueInfo {
    /// Number of bytes of the value.
    pub size: usize,
    /// When the value expires, in milliseconds since 1970. 0: never.
    pub expires_at_ms: u64,
    /// The type of the value, such as `u64`. Absent: none. Valid for ever.
    pub type_tag: Slice,
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

export! {
    /// Copies the value of a key to `value` and stores whether the key is present. The memory of
    /// the buffer is used again, so repeated gets allocate nothing.
    pub fn quintet_get(
        table: Handle<TableHandle>, key: Slice, value: InOut<Buffer>, found: Out<bool>,
    ) {
        let (handle, key) = (table.get()?, key.bytes()?);
        let is_found = required(value, "value")?.fill(|out| get_into(&handle, key, out))?;
        give(found, is_found);
        Ok(())
    }

    /// Copies the value of a key to `capacity` bytes of the caller at `memory`, and stores its size
    /// and whether the key is present. Fails with `QUINTET_BUFFER_TOO_SMALL`, having stored both and
    /// copied nothing, if the value is larger.
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

    /// Passes the value of a key to a function without copying it to memory of the caller. `found`
    /// (may be null) tells whether the key is present; the function is called only then.
    pub fn quintet_get_with(
        table: Handle<TableHandle>, key: Slice, function: Option<VisitFunction>, context: Context,
        found: Out<bool>,
    ) {
        let function = required(function, "function")?;
        let value = get(&*table.get()?, key.bytes()?)?;
        give(found, value.is_some());
        if let Some(value) = value {
            function(context, key, Slice::of(&value));
        }
        Ok(())
    }

    /// Stores what is known about the value of a key: size, expiry, type.
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
                .map_or(Slice::NONE, |tag| Slice::of(tag.name().as_bytes())),
        });
        Ok(())
    }

    /// Stores whether a key is present.
    pub fn quintet_contains(table: Handle<TableHandle>, key: Slice, found: Out<bool>) {
        let (handle, key) = (table.get()?, key.bytes()?);
        let is_found = match &handle.source {
            Source::Live => handle.table.contains(key)?,
            _ => get(&handle, key)?.is_some(),
        };
        required(found, "found")?.write(is_found);
        Ok(())
    }

    /// Reads the values of `count` keys at once and passes each to a function, in any order.
    pub fn quintet_multi_get(
        table: Handle<TableHandle>, keys: Array<Slice>, count: usize,
        function: Option<EachFunction>, context: Context,
    ) {
        let (handle, function) = (table.get()?, required(function, "function")?);
        let keys = keys.items(count)?.iter().map(Slice::bytes).collect::<Result<Vec<_>, _>>()?;
        let call = |index, value: Option<&[u8]>| {
            let value = value.map(Slice::of);
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

    /// Passes the entries of a range to a function, in ascending order, until it returns another
    /// value than 0. Copies no values. Ordered engines only; not in a transaction.
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
            match function(context, Slice::of(key), Slice::of(value)) {
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

    /// Stores an estimate of the number of keys in a range. Cheap. Ordered engines only.
    pub fn quintet_estimate_count(
        table: Handle<TableHandle>, range: In<Range>, count: Out<u64>,
    ) {
        let (range, _) = range::bounds(range)?;
        required(count, "count")?.write(table.get()?.table()?.estimate_count(range)?);
        Ok(())
    }

    /// Copies the first entry, or the last if `last`. Ordered engines only.
    pub fn quintet_end(
        table: Handle<TableHandle>, last: bool, key: InOut<Buffer>, value: InOut<Buffer>,
        found: Out<bool>,
    ) {
        let handle = table.get()?;
        let entry = match &handle.source {
            Source::Live if last => handle.table.last()?,
            Source::Live => handle.table.first()?,
            Source::Snapshot(snapshot) => {
                let table = snapshot.table(&handle.table);
                if last { table.last()? } else { table.first()? }
            }
            Source::Transaction(tx) => tx.with(|tx| {
                let table = tx.table(&handle.table);
                if last { table.last() } else { table.first() }
            })?,
        };
        let (first, second) = entry.unzip();
        give_value(first, key, None)?;
        give_value(second, value, found)
    }
}
