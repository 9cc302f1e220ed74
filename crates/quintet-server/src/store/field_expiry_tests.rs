//! A hash with fields that expire beside a model, under a clock of the test.

use std::{collections::BTreeMap, path::Path};

use quintet::{Durability, Options};

use super::{ALL, Changes, DatabaseId, Databases, Engines, Kind, Store, Stripes, Unit};
use crate::{failure::Done, sweeper::Sweeper};

const KEY: &[u8] = b"hash";
const OTHER: &[u8] = b"other";
const START: u64 = 1_000_000;

fn open(dir: &Path) -> Store {
    let options = Options::new().durability(Durability::Buffered).memory_budget(64 << 20);
    let databases = Databases::open(options.open(dir).unwrap(), Engines::default()).unwrap();
    Store { databases, stripes: Stripes::new(), changes: Changes::default() }
}

/// Runs a function as one commit at a time.
fn commit<T>(store: &Store, now: u64, run: impl FnOnce(&mut Unit<'_>) -> Done<T>) -> T {
    let mut unit = Unit::new(store, now);
    unit.lock(DatabaseId::FIRST, [KEY, OTHER].into_iter());
    let result = run(&mut unit).unwrap();
    unit.commit(Durability::Buffered).unwrap();
    result
}

fn random(state: &mut u64, end: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % end
}

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;
type Contents = Vec<(Vec<u8>, Vec<u8>, Option<u64>)>;

/// All that a command sees of the hash.
fn contents(store: &Store, now: u64) -> Contents {
    commit(store, now, |unit| {
        let exists = unit.exists(DatabaseId::FIRST, KEY)?;
        let Some(mut hash) = unit.open(DatabaseId::FIRST, KEY, Kind::Hash)? else {
            assert!(!exists);
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        hash.visit_with_expiries(|field, value, expiry| {
            found.push((field.to_vec(), value.to_vec(), expiry));
            std::ops::ControlFlow::Continue(())
        })?;
        assert_eq!(hash.count(), found.len());
        assert_eq!(hash.collect(ALL)?.len(), found.len());
        let expiring: Vec<_> =
            found.iter().filter_map(|(field, _, at)| Some((field.clone(), (*at)?))).collect();
        assert_eq!(hash.field_expiries()?, expiring);
        assert_eq!(hash.first_field_expiry(), expiring.iter().map(|(_, at)| *at).min());
        Ok(found)
    })
}

fn live(model: &Model, now: u64) -> Contents {
    let live = model.iter().filter(|(_, (_, at))| at.is_none_or(|at| at > now));
    live.map(|(field, (value, at))| (field.clone(), value.clone(), *at)).collect()
}

/// Changes one field of the hash and of the model, as a command does.
fn change(unit: &mut Unit<'_>, model: &mut Model, state: &mut u64, fields: u64) -> Done {
    let now = unit.now;
    model.retain(|_, (_, at)| at.is_none_or(|at| at > now));
    let field = format!("field:{}", random(state, fields)).into_bytes();
    let choice = random(state, 8);
    if choice < 3 {
        let value = random(state, 1000).to_string().into_bytes();
        let mut hash = unit.open_or_create(DatabaseId::FIRST, KEY, Kind::Hash)?;
        if !hash.contains(&field)? {
            hash.set_count(hash.count() + 1);
        }
        hash.set_field_expiry(&field, None)?;
        hash.put(&field, &value)?;
        model.insert(field, (value, None));
        return Ok(());
    }
    let Some(mut hash) = unit.open(DatabaseId::FIRST, KEY, Kind::Hash)? else { return Ok(()) };
    let Some(found) = model.get_mut(&field) else {
        assert!(!hash.contains(&field)?);
        assert_eq!(hash.field_expiry(&field)?, None);
        return Ok(());
    };
    assert_eq!(hash.get(&field)?.as_ref(), Some(&found.0));
    assert_eq!(hash.field_expiry(&field)?, found.1);
    match choice {
        3..=5 => {
            let expiry = now + 1 + random(state, 400);
            hash.set_field_expiry(&field, Some(expiry))?;
            found.1 = Some(expiry);
        }
        6 => {
            hash.set_field_expiry(&field, None)?;
            found.1 = None;
        }
        _ => {
            hash.set_field_expiry(&field, None)?;
            hash.remove(&field);
            hash.set_count(hash.count() - 1);
            model.remove(&field);
        }
    }
    Ok(())
}

fn check_against_model(fields: u64, mut state: u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let (mut model, mut now) = (Model::new(), START);
    for round in 0..300 {
        let steps = 1 + random(&mut state, 40);
        commit(&store, now, |unit| {
            for _ in 0..steps {
                change(unit, &mut model, &mut state, fields)?;
                unit.end_command();
            }
            Ok(())
        });
        assert_eq!(contents(&store, now), live(&model, now), "round {round}");
        now += random(&mut state, 60);
        assert_eq!(contents(&store, now), live(&model, now), "round {round}");
        match random(&mut state, 6) {
            0 => {
                while Sweeper::step(&store, Some(now)).unwrap().is_more {}
                let count = i64::from(!live(&model, now).is_empty());
                let tables = store.databases.get(DatabaseId::FIRST).unwrap();
                assert_eq!(tables.count.load(std::sync::atomic::Ordering::Acquire), count);
                assert_eq!(contents(&store, now), live(&model, now), "round {round}");
            }
            1 => commit(&store, now, |unit| {
                if let Some(taken) = unit.take(DatabaseId::FIRST, KEY)? {
                    unit.put_taken(DatabaseId::FIRST, OTHER, taken)?;
                }
                if let Some(taken) = unit.take(DatabaseId::FIRST, OTHER)? {
                    unit.put_taken(DatabaseId::FIRST, KEY, taken)?;
                }
                Ok(())
            }),
            2 if round % 5 == 0 => {
                let database = store.databases.database();
                database.sync().unwrap();
                database.close().unwrap();
                drop(store);
                store = open(dir.path());
            }
            _ => {}
        }
    }
}

#[test]
fn a_small_hash_equals_its_model() {
    check_against_model(12, 7);
}

#[test]
fn a_large_hash_equals_its_model() {
    check_against_model(600, 11);
}

fn fill(store: &Store, fields: u64, expiry: impl Fn(u64) -> Option<u64>) {
    commit(store, START, |unit| {
        let mut hash = unit.open_or_create(DatabaseId::FIRST, KEY, Kind::Hash)?;
        for number in 0..fields {
            let field = format!("field:{number}");
            hash.put(field.as_bytes(), b"value")?;
            hash.set_field_expiry(field.as_bytes(), expiry(number))?;
        }
        hash.set_count(usize::try_from(fields).unwrap_or(0));
        Ok(())
    });
}

/// Number of entries of the ordered table, with those that list keys and versions.
fn stored(store: &Store) -> usize {
    let mut count = 0;
    let tables = store.databases.get(DatabaseId::FIRST).unwrap();
    let visited = tables.elements.visit(vec![0].., |_, _| {
        count += 1;
        std::ops::ControlFlow::Continue(())
    });
    visited.unwrap();
    count
}

#[test]
fn the_background_removes_fields_in_bounded_steps() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 2000, |number| (number % 2 == 0).then_some(START + 10));
    assert_eq!(Sweeper::step(&store, Some(START + 9)).unwrap().fields, 0);
    // A replica removes nothing.
    assert_eq!(Sweeper::step(&store, None).unwrap().fields, 0);
    assert_eq!(contents(&store, START + 10).len(), 1000);
    let mut steps = Vec::new();
    loop {
        let swept = Sweeper::step(&store, Some(START + 10)).unwrap();
        steps.push(swept.fields);
        assert_eq!(contents(&store, START + 10).len(), 1000);
        if !swept.is_more {
            break;
        }
    }
    steps.retain(|fields| *fields > 0);
    assert_eq!(steps, [512, 488]);
    // Only the fields that are left are stored: no expiry, and no list.
    assert_eq!(stored(&store), 1000);
}

#[test]
fn a_hash_whose_fields_have_all_expired_is_removed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 2000, |number| Some(START + 10 + number % 7));
    assert_eq!(contents(&store, START + 15).len(), 2000 / 7);
    assert!(contents(&store, START + 16).is_empty());
    assert_eq!(Sweeper::step(&store, Some(START + 16)).unwrap().fields, 2000);
    while Sweeper::step(&store, Some(START + 16)).unwrap().is_more {}
    assert_eq!(stored(&store), 0);
}

#[test]
fn a_hash_without_expiries_is_stored_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    fill(&store, 2, |number| (number == 0).then_some(START + 10));
    let head = || {
        store
            .databases
            .get(DatabaseId::FIRST)
            .unwrap()
            .keys
            .get(KEY)
            .unwrap()
            .unwrap()
            .as_ref()
            .to_vec()
    };
    assert_eq!(head().first(), Some(&0x06));
    assert_eq!(stored(&store), 1);
    commit(&store, START, |unit| {
        let mut hash = unit.open_or_create(DatabaseId::FIRST, KEY, Kind::Hash)?;
        hash.set_field_expiry(b"field:0", None)
    });
    let after = head();
    let (start, rest) = after.split_at(9);
    assert_eq!(start.first(), Some(&0x04));
    assert_eq!(rest, b"\x02\0\0\0\0\0\0\0\0\x07field:0\x05value\x07field:1\x05value");
    assert_eq!(stored(&store), 0);
}

#[test]
fn the_longest_fields_expire() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let field = vec![b'x'; super::NAME_BYTES_MAX];
    commit(&store, START, |unit| {
        let mut hash = unit.open_or_create(DatabaseId::FIRST, KEY, Kind::Hash)?;
        hash.put(&field, b"value")?;
        hash.set_count(1);
        hash.set_field_expiry(&field, Some(START + 2))?;
        assert_eq!(hash.first_field_expiry(), Some(START + 2));
        hash.put(&field[1..], b"value")?;
        hash.set_count(2);
        hash.set_field_expiry(&field[1..], Some(START + 1))
    });
    assert_eq!(contents(&store, START).len(), 2);
    assert_eq!(contents(&store, START + 1).len(), 1);
    assert_eq!(contents(&store, START + 2).len(), 0);
}
