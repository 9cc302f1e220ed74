//! `quintet._quintet`: the part of the Python package that is written in Rust.
//!
//! Problem: a call from Python costs some 50 ns before it does anything, so a wrapper in Python
//! around a get would cost more than the get.
//! How: the classes that programs call are here, with their codecs. What needs no speed is in
//! `python/quintet`: exceptions, views of mappings, asyncio, the plyvel interface.
//!
//! Threads: every object may be used from any number of threads, also without the global
//! interpreter lock. Calls that can wait or read run detached from the interpreter. No lock is
//! waited for while a thread is attached; see [`guarded`].
//!
//! Start at [`database`], [`view`] and [`table`].
#![forbid(unsafe_code)]

mod batch;
mod changes;
mod codec;
mod database;
mod errors;
mod guarded;
mod options;
mod range;
mod snapshot;
mod source;
mod stats;
mod table;
mod transaction;
mod view;

use pyo3::prelude::*;

/// The module of the package's classes.
#[pymodule(gil_used = false)]
mod _quintet {
    #[pymodule_export]
    use crate::{
        batch::{Batch, TableBatch},
        changes::PyChangeFeed,
        database::PyDatabase,
        range::{Chunks, PyRange},
        snapshot::PySnapshot,
        table::PyTable,
        transaction::{PySavepoint, PyTransaction, TransactionTable},
        view::{Bytes, TableView},
    };
    use pyo3::{prelude::*, types::PyDict};

    /// Counts a fork, in the child.
    #[pyfunction]
    fn _after_fork() {
        crate::guarded::count_fork();
    }

    /// Adds the limits of the library, and asks Python to report forks.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let named = PyDict::new(module.py());
        named.set_item("after_in_child", module.getattr("_after_fork")?)?;
        module.py().import("os")?.call_method("register_at_fork", (), Some(&named))?;
        module.add("KEY_BYTES_MAX", quintet::KEY_BYTES_MAX)?;
        module.add("VALUE_BYTES_MAX", quintet::VALUE_BYTES_MAX)?;
        module.add("BATCH_BYTES_MAX", quintet::BATCH_BYTES_MAX)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
