//! Wrong calls are errors: panics of callbacks, and handles that another call uses.

use std::{ffi::c_int, mem::MaybeUninit};

use quintet::{Database, EngineKind, Options, TableOptions};
use quintet_c::{
    Buffer, Context, Slice, View,
    failure::Code,
    handles::Handle,
    read::quintet_visit,
    table::{TableHandle, quintet_put, quintet_table_free, quintet_update},
};

fn slice(text: &'static str) -> Slice {
    Slice::of(text.as_bytes())
}

/// A table with one entry, in a directory that lives as long as the guard.
fn table() -> (tempfile::TempDir, Database, Handle<TableHandle>) {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options::new().memory_budget(32 << 20);
    let database = options.open(directory.path().join("data")).expect("a database");
    let options = TableOptions::new(EngineKind::BTree);
    let table = database.create_table("table", options).expect("a table");
    table.put("key", "value").expect("a put");
    let handle = TableHandle::live(table).expect("a handle");
    (directory, database, handle)
}

extern "C-unwind" fn update_panics(_: Context, _: *const View, _: *mut Buffer) -> c_int {
    panic!("the callback panics")
}

extern "C-unwind" fn visit_panics(_: Context, _: View, _: View) -> c_int {
    panic!("the callback panics")
}

#[test]
fn panic_of_a_callback_is_an_error() {
    let (_directory, database, table) = table();
    let update = || {
        quintet_update(
            table,
            slice("key"),
            None,
            Some(update_panics),
            Context::NULL,
            None,
            None,
            None,
        )
    };
    assert_eq!(update(), Code::Panic);
    let visit = quintet_visit(table, None, Some(visit_panics), Context::NULL, None);
    assert_eq!(visit, Code::Panic);
    // Nothing was written, and the table can be used.
    assert_eq!(database.table("table").unwrap().get("key").unwrap().unwrap(), "value");
    assert_eq!(quintet_put(table, slice("key"), slice("new"), None, None, None), Code::Ok);
    assert_eq!(quintet_table_free(table, None), Code::Ok);
}

#[test]
fn freed_handle_is_an_error_also_when_its_slot_is_used_again() {
    let (_directory, database, first) = table();
    assert_eq!(quintet_table_free(first, None), Code::Ok);
    let handles: Vec<_> =
        (0..1000).map(|_| TableHandle::live(database.table("table").unwrap()).unwrap()).collect();
    let put = |handle| quintet_put(handle, slice("a"), slice("b"), None, None, None);
    assert_eq!(put(first), Code::BadHandle);
    for handle in handles {
        assert_eq!(put(handle), Code::Ok);
        assert_eq!(quintet_table_free(handle, None), Code::Ok);
        assert_eq!(put(handle), Code::BadHandle);
    }
}

#[test]
fn threads_share_a_table_while_its_handle_is_freed() {
    let (_directory, _database, table) = table();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    match quintet_put(table, slice("a"), slice("b"), None, None, None) {
                        Code::Ok => (),
                        code => break assert_eq!(code, Code::BadHandle),
                    }
                }
            });
        }
        assert_eq!(quintet_table_free(table, None), Code::Ok);
    });
}

#[test]
fn absent_results_are_allowed() {
    let (_directory, _database, table) = table();
    let mut written = MaybeUninit::uninit();
    let put = quintet_put(table, slice("a"), slice("b"), None, Some(&mut written), None);
    assert_eq!(put, Code::Ok);
    assert_eq!(quintet_put(table, slice(""), slice("b"), None, None, None), Code::Limit);
    assert_eq!(quintet_table_free(table, None), Code::Ok);
}
