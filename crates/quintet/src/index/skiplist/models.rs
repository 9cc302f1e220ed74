//! Models of inserts beside each other and beside readers, explored by loom (every interleaving
//! up to a bound) and by shuttle (many random ones).
//!
//! Run with `just loom` or `just shuttle`.

use super::{Inserted, SkipList};
use crate::{
    pages::Region,
    sync::{Arc, thread},
};

fn explore(model: impl Fn() + Send + Sync + 'static) {
    #[cfg(loom)]
    {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }
    #[cfg(shuttle)]
    shuttle::check_pct(model, 2_000, 4);
}

fn list() -> Arc<SkipList<Region>> {
    Arc::new(SkipList::new(Region::reserve(512).unwrap(), Region::reserve(8).unwrap()))
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
            thread::spawn(move || assert_eq!(list.insert((key, 1), 1, 0, &[b"v"]), Inserted::New))
        })
        .collect();
    // Beside them: whoever is seen is whole, and in order.
    let seen = keys(&list);
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(keys(&list), [(b"a".to_vec(), 1), (b"b".to_vec(), 1)]);
}

fn a_version_beside_a_reader() {
    let list = list();
    list.insert((b"k", 1), 1, 0, &[b"1"]);
    let writer = {
        let list = Arc::clone(&list);
        thread::spawn(move || assert_eq!(list.insert((b"k", 1), 2, 0, &[b"2"]), Inserted::Again))
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
fn shuttle_a_version_beside_a_reader() {
    explore(a_version_beside_a_reader);
}
