//! Models of inserts concurrent with each other and with readers, explored by loom (all
//! interleavings up to a bound) and by shuttle (many random ones).
//!
//! Run with `just loom` or `just shuttle`.

use super::{InsertOutcome, KeyVersion, SkipList};
use crate::{
    io::Region,
    util::sync::{Arc, model_check::Exploration, thread},
};

fn explore(model: impl Fn() + Send + Sync + 'static) {
    Exploration::DEFAULT.explore(model);
}

fn list() -> Arc<SkipList<Region>> {
    Arc::new(SkipList::new(Region::reserve(512).unwrap(), Region::reserve(8).unwrap()))
}

fn version<'a>(key: &'a [u8], version: u64, value: &'a [u8]) -> KeyVersion<'a> {
    KeyVersion { key, hash: 1, number: version, kind: 0, ssts: [value, &[]] }
}

fn keys(list: &SkipList<Region>) -> Vec<(Vec<u8>, u64)> {
    let (mut found, mut node) = (Vec::new(), list.seek(b""));
    while let Some(one) = node {
        let mut key = Vec::new();
        list.copy_key(one, &mut key);
        found.push((key, list.version(one)));
        node = list.next(one);
    }
    found
}

fn inserts_meet() {
    let list = list();
    let threads: Vec<_> = [b"a", b"b"]
        .into_iter()
        .map(|key| {
            let list = Arc::clone(&list);
            thread::spawn(move || {
                assert_eq!(list.insert(&version(key, 1, b"v")), InsertOutcome::New)
            })
        })
        .collect();
    // The reader sees complete nodes, in order.
    let seen = keys(&list);
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(keys(&list), [(b"a".to_vec(), 1), (b"b".to_vec(), 1)]);
}

fn many_meet_one() {
    let list = list();
    let many = {
        let list = Arc::clone(&list);
        thread::spawn(move || {
            let two = [version(b"a", 1, b"v"), version(b"c", 1, b"v")];
            assert_eq!(list.insert_many(&two), Some(2));
        })
    };
    assert_eq!(list.insert(&version(b"b", 1, b"v")), InsertOutcome::New);
    // The reader sees complete nodes, in order.
    let seen = keys(&list);
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
    many.join().unwrap();
    let all = [b"a", b"b", b"c"].map(|key| (key.to_vec(), 1));
    assert_eq!(keys(&list), all);
}

fn a_version_beside_a_reader() {
    let list = list();
    list.insert(&version(b"k", 1, b"1"));
    let writer = {
        let list = Arc::clone(&list);
        thread::spawn(move || {
            assert_eq!(list.insert(&version(b"k", 2, b"2")), InsertOutcome::Again)
        })
    };
    let node = list.get(b"k", 1).unwrap();
    let mut value = [0];
    list.copy_value(node, &mut value);
    assert_eq!(u64::from(value[0] - b'0'), list.version(node));
    writer.join().unwrap();
    assert_eq!(list.version(list.get(b"k", 1).unwrap()), 2);
}

#[cfg(loom)]
#[test]
fn loom_inserts_meet() {
    explore(inserts_meet);
}

#[cfg(loom)]
#[test]
fn loom_many_meet_one() {
    explore(many_meet_one);
}

#[cfg(loom)]
#[test]
fn loom_a_version_beside_a_reader() {
    explore(a_version_beside_a_reader);
}

#[cfg(shuttle)]
#[test]
fn shuttle_inserts_meet() {
    explore(inserts_meet);
}

#[cfg(shuttle)]
#[test]
fn shuttle_many_meet_one() {
    explore(many_meet_one);
}

#[cfg(shuttle)]
#[test]
fn shuttle_a_version_beside_a_reader() {
    explore(a_version_beside_a_reader);
}
