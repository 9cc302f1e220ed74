//! Shuttle models of readers concurrent with a writer of the persistent list.
//!
//! Run with `just shuttle`.

use std::sync::Arc;

use super::PersistentList;
use crate::{
    pmem::{Pool, SLAB_BYTES, simulator::Recorder},
    util::{
        mutant::{Bug, finds},
        sync::{model_check::Exploration, thread},
    },
};

/// A key stays visible while others are linked before it.
fn a_key_stays_found() {
    let recorder = Arc::new(Recorder::zeroed(16 * SLAB_BYTES));
    let pool = Arc::new(Pool::on_recorder(&recorder).unwrap());
    let list = Arc::new(PersistentList::create(&pool, 4096).unwrap());
    for key in [b"a", b"z"] {
        list.insert(key, 1, 0, &[key]).unwrap();
    }
    let writer = {
        let list = Arc::clone(&list);
        thread::spawn(move || {
            for key in [b"y", b"x"] {
                list.insert(key, 1, 0, &[key]).unwrap();
            }
        })
    };
    for _ in 0..2 {
        assert!(list.get(b"z").is_some(), "a key that is there was not found");
    }
    writer.join().unwrap();
}

fn explore() {
    let exploration = Exploration { schedules: 1_000, priority_changes: 3, ..Exploration::DEFAULT };
    exploration.explore(a_key_stays_found);
}

#[test]
fn shuttle_a_key_stays_found() {
    explore();
}

#[test]
fn shuttle_finds_persistent_list_looks_again() {
    finds(Bug::PersistentListLooksAgain, explore);
}
