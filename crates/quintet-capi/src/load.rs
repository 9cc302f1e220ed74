//! Sorted loads.

use std::sync::Mutex;

use quintet::SortedLoader;

use crate::{
    boundary::{In, Out, Slice, export, give, required},
    failure::{Code, Failure},
    handles::Handle,
    options::{self, OptionList},
    table::{TableHandle, exclusive},
    write::{self, WriteOptions},
};

/// A sorted load of a table. `None`: it has ended. One thread at a time uses it.
#[derive(Debug)]
pub struct Load(Mutex<Option<SortedLoader>>);

fn ended() -> Failure {
    Failure::new(Code::Ended, "the load has ended")
}

export! {
    /// Begins a sorted load of a table. `options` may be null. On `"btree"`, each key must be
    /// greater than every key of the table, and other writes of the table fail with
    /// `QUINTET_LOADING` until the load ends. It takes effect at `quintet_load_commit`. On other
    /// engines, and with option `"logged"`, entries are committed in batches, which stay if the
    /// load is not committed.
    ///
    /// Errors: those of a write, `QUINTET_INVALID_OPTION`.
    pub fn quintet_load_new(
        table: Handle<TableHandle>, options: Handle<OptionList>, load: Out<Handle<Load>>,
    ) {
        let out = required(load, "load")?;
        let loader = table.get()?.table()?.sorted_loader(options::of_load(options)?)?;
        out.write(Handle::new(Load(Mutex::new(Some(loader))))?);
        Ok(())
    }

    /// Adds an entry. Its key must be greater than the one before. Of `options` (may be null), the
    /// expiry and the type apply.
    ///
    /// Errors: those of a write, `QUINTET_OUT_OF_ORDER`, `QUINTET_ENDED`.
    pub fn quintet_load_put(
        load: Handle<Load>, key: Slice, value: Slice, options: In<WriteOptions>,
    ) {
        let load = load.get()?;
        let mut loader = exclusive(&load.0)?;
        let loader = loader.as_mut().ok_or_else(ended)?;
        Ok(loader.put_with(key.bytes()?, value.bytes()?, write::put(options)?)?)
    }

    /// Ends a load. `count` (may be null) gets the number of its entries. The load ends in any
    /// case.
    ///
    /// Errors: those of a write, `QUINTET_ENDED`.
    pub fn quintet_load_commit(load: Handle<Load>, count: Out<u64>) {
        let load = load.get()?;
        let loader = exclusive(&load.0)?.take().ok_or_else(ended)?;
        give(count, loader.commit()?);
        Ok(())
    }

    /// Frees a load. Null is allowed. A load that was not committed ends as `quintet_load_new`
    /// says.
    ///
    /// Errors: those of every function.
    pub fn quintet_load_free(load: Handle<Load>) {
        load.free().map(drop)
    }
}
