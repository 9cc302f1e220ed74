//! Goal: on every engine a load has the same result as puts in the same order, in full leaves. A
//! load that bypasses the log takes effect whole or not at all, after any failure or crash. Other
//! writes are refused during a load, or do not disturb it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::*;
use crate::{
    contract::{EngineKind, TableOptions},
    db::{Database, Options},
    io::sim::{Call, Effect, Fault, Policy, PolicyLimits, SimEnv, When},
    util::{
        codec::to_usize,
        mutant::{self, Bug},
        types::TableTypes,
    },
};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(env: &SimEnv) -> Database {
    let options = Options::new().memory_budget(8 << 20).segment_bytes(64 << 10);
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

fn btree() -> TableOptions {
    let options = TableOptions::new(EngineKind::BTree);
    options.set("page_bytes", "4096").set("extend_granularity", "64")
}

fn contents(table: &Table) -> Rows {
    let entries = table.range(..).unwrap().map(Result::unwrap);
    entries.map(|(key, value)| (key, value.to_vec())).collect()
}

/// Returns entries of all kinds, above `from`: short and long keys, empty values, values in extents
/// and in direct extents.
fn rows(from: u32, count: u32) -> Rows {
    let one = |number: u32| {
        let mut key = number.to_be_bytes().to_vec();
        if number.is_multiple_of(11) {
            key.resize(1200, b'l');
        }
        if number.is_multiple_of(13) {
            key.extend_from_slice(&[b'x'; 300]);
        }
        let bytes = match number % 97 {
            0 => 90_000,
            1 | 2 => 5000,
            3..9 => 700,
            9 => 0,
            rest => rest,
        };
        (key, vec![number.to_le_bytes()[0]; to_usize(u64::from(bytes))])
    };
    (from..from + count).map(one).collect()
}

fn detail(table: &Table, name: &str) -> u64 {
    let details = table.stats().unwrap().details;
    details.iter().find(|(known, _)| *known == name).unwrap().1
}

/// Returns the number of pages in use, without the maps of pages, which grow with the file.
fn nodes(table: &Table) -> u64 {
    let used = detail(table, "used_pages");
    used - (used + detail(table, "free_pages")) / 64
}

fn assert_sound(db: &Database) {
    let report = db.check().unwrap();
    assert!(report.is_sound(), "{report:?}");
}

/// Loads after the last key of tables with different content, with other writes between the loads.
#[test]
fn loads_and_other_writes_agree_with_a_map() {
    for seed in 0..6_u32 {
        let env = SimEnv::new(u64::from(seed));
        let mut db = open(&env);
        let mut table = db.create_table("t", btree()).unwrap();
        let mut model = Rows::new();
        let mut next = 0_u32;
        for step in 0..14_u32 {
            let choice = (seed * 31 + step * 17) % 7;
            match choice {
                0 => {
                    // Removes the last keys, and with them whole leaves.
                    let from = (next / 3 * 2).to_be_bytes();
                    table.delete_range(from..).unwrap();
                    model.split_off(&from[..]);
                    next = u32::from_be_bytes(from);
                }
                1 => {
                    for number in (0..next).step_by(3) {
                        table.delete(number.to_be_bytes()).unwrap();
                        model.remove(&number.to_be_bytes()[..]);
                    }
                }
                2 => {
                    for number in (0..next).step_by(7) {
                        let key = [&number.to_be_bytes()[..], b"between"].concat();
                        table.put(&key, [9; 60]).unwrap();
                        model.insert(key, vec![9; 60]);
                    }
                }
                3 if step > 7 => {
                    table.delete_range(..).unwrap();
                    model.clear();
                    next = 0;
                }
                4 => {
                    db.close().unwrap();
                    db = open(&env);
                    table = db.table("t").unwrap();
                }
                _ => {}
            }
            let count = [1, 40, 700, 3][to_usize(u64::from((seed + step) % 4))];
            let last = model.last_key_value().map(|(key, _)| key.clone());
            let mut more = rows(next + 1, count);
            more.retain(|key, _| last.as_ref().is_none_or(|last| key > last));
            next += count + 1;
            let loaded = table.load_sorted(&more).unwrap();
            assert_eq!(loaded, u64::try_from(more.len()).unwrap());
            model.extend(more);
            assert_eq!(contents(&table), model, "seed {seed}, step {step}");
            assert_eq!(table.stats().unwrap().keys, u64::try_from(model.len()).unwrap());
            assert_sound(&db);
        }
        // Deletes and inserts in all parts of the loaded entries.
        for (index, key) in model.keys().cloned().collect::<Vec<_>>().iter().enumerate() {
            if index % 2 == 0 {
                table.delete(key).unwrap();
                model.remove(key);
            } else {
                let key = [&key[..], b"+"].concat();
                table.put(&key, [1; 30]).unwrap();
                model.insert(key, vec![1; 30]);
            }
        }
        let env = env.kill();
        let db = open(&env);
        assert_eq!(contents(&db.table("t").unwrap()), model);
        assert_sound(&db);
    }
}

#[test]
fn every_engine_loads_sorted_entries() {
    let rows = rows(1, 300);
    for (kind, logged) in
        EngineKind::AVAILABLE.iter().flat_map(|kind| [(kind, false), (kind, true)])
    {
        let env = SimEnv::new(1);
        let db = open(&env);
        let table = db.create_table("t", TableOptions::new(*kind)).unwrap();
        let options = LoadOptions::new();
        let options = if logged { options.logged() } else { options };
        let mut loader = table.sorted_loader(options.durability(Durability::Sync)).unwrap();
        for (key, value) in &rows {
            loader.put(key, value).unwrap();
        }
        assert_eq!(loader.len(), 300);
        assert_eq!(loader.commit().unwrap(), 300);
        let db = open(&env.crash(Policy::AllLost));
        let table = db.table("t").unwrap();
        for (key, value) in &rows {
            assert_eq!(table.get(key).unwrap().unwrap(), value[..], "{kind}");
        }
        assert_sound(&db);
    }
}

#[test]
fn keys_out_of_order_are_refused_by_name() {
    let env = SimEnv::new(1);
    let db = open(&env);
    for kind in EngineKind::AVAILABLE {
        let table = db.create_table(&kind.to_string(), TableOptions::new(*kind)).unwrap();
        let mut loader = table.sorted_loader(LoadOptions::new()).unwrap();
        assert!(loader.is_empty());
        loader.put(b"b", b"1").unwrap();
        for low in [&b"b"[..], b"a"] {
            let Err(Error::OutOfOrder { key, after }) = loader.put(low, b"2") else { panic!() };
            assert_eq!((&*key, &*after), (low, &b"b"[..]));
        }
        assert!(matches!(loader.put(b"", b""), Err(Error::Limit { .. })));
        let ordered = PutOptions::new().if_absent();
        assert!(matches!(loader.put_with("c", "", ordered), Err(Error::InvalidOption { .. })));
        loader.put(b"c", b"3").unwrap();
        assert_eq!(loader.commit().unwrap(), 2);
        assert_eq!(table.get(b"b").unwrap().unwrap(), b"1");
        assert_eq!(table.load_sorted::<&[u8], &[u8]>([]).unwrap(), 0);
        let unsorted = table.load_sorted([("d", "1"), ("f", "1"), ("e", "1")]);
        let message = unsorted.unwrap_err().to_string();
        assert!(message.starts_with("key \"e\" is not above \"f\""), "{message}");
        assert!(table.get(b"d").unwrap().is_none(), "{kind}");
    }
    let table = db.table("btree").unwrap();
    let low = table.load_sorted([("bb", "")]);
    assert!(matches!(low, Err(Error::OutOfOrder { key, after }) if key == b"bb" && after == b"c"));
    assert_eq!(table.load_sorted([("d", "")]).unwrap(), 1);
}

/// A sorted entry of 100 bytes takes little more than 100 bytes of file.
#[test]
fn leaves_are_full() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let table = db.create_table("t", TableOptions::new(EngineKind::BTree)).unwrap();
    let key = |number: u32| format!("user{number:019}");
    table.load_sorted((0..20_000).map(|number| (key(number), [7; 128]))).unwrap();
    let (leaves, inner) = (detail(&table, "leaf_pages"), detail(&table, "inner_pages"));
    let stats = table.stats().unwrap();
    let filled = stats.live_bytes + stats.keys * 12;
    assert!(filled * 100 >= leaves * 16_384 * 95, "{leaves} leaves for {filled} bytes");
    assert_eq!((inner, detail(&table, "height")), (1, 2));
    // Ascending puts fill further leaves. Other puts split leaves.
    let before = leaves;
    for number in 20_000..30_000 {
        table.put(key(number), [7; 128]).unwrap();
    }
    assert!(detail(&table, "leaf_pages") - before < before * 60 / 100);
    for number in 0..5000 {
        table.put(key(number * 4) + "x", [7; 128]).unwrap();
    }
    assert_eq!(table.range(..).unwrap().count(), 35_000);
    assert_sound(&db);
}

/// The old content of pages that a load reuses is not read after the load.
fn pages_are_reused() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let table = db.create_table("t", btree()).unwrap();
    for round in 1..6_u8 {
        let rows: Rows =
            (0..3000_u32).map(|key| (key.to_be_bytes().into(), vec![round; 50])).collect();
        table.load_sorted(&rows).unwrap();
        assert_eq!(contents(&table), rows);
        table.delete_range(..).unwrap();
        table.persist().unwrap();
    }
    assert!(detail(&table, "used_pages") < 20);
    assert_sound(&db);
}

#[test]
fn freed_pages_are_reused() {
    pages_are_reused();
    mutant::finds(Bug::LoadForgetsNothing, pages_are_reused);
}

#[test]
fn a_load_refuses_other_writes_and_is_invisible_until_its_commit() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let table = db.create_table("t", btree()).unwrap();
    let other = db.create_table("u", btree()).unwrap();
    let before = rows(1, 200);
    table.load_sorted(&before).unwrap();
    let mut loader = table.sorted_loader(LoadOptions::new()).unwrap();
    for (key, value) in rows(500, 200) {
        loader.put(key, value).unwrap();
    }
    let refused = |outcome: Result<()>| {
        assert!(matches!(outcome, Err(Error::Loading { ref table }) if table == "t"));
    };
    refused(table.put("k", "v"));
    refused(table.delete("k"));
    refused(table.delete_range(..));
    refused(table.compact());
    refused(table.sorted_loader(LoadOptions::new()).map(drop));
    refused(db.typed::<u64, u64>("t").map(drop));
    let mut batch = db.batch();
    batch.put(&other, "k", "v").put(&table, "k", "v");
    refused(batch.commit());
    other.put("k", "w").unwrap();
    db.persist().unwrap();
    assert_eq!(contents(&table), before);
    assert_sound(&db);
    drop(loader);
    assert_eq!(contents(&table), before);
    table.put("k", "v").unwrap();
    table.delete("k").unwrap();
    // A load ends when its database is closed or its table is dropped.
    let mut loader = table.sorted_loader(LoadOptions::new()).unwrap();
    let mut of_other = other.sorted_loader(LoadOptions::new()).unwrap();
    loader.put("z", "v").unwrap();
    of_other.put("z", "v").unwrap();
    db.drop_table("u").unwrap();
    assert!(matches!(of_other.commit(), Err(Error::StaleTable { .. })));
    db.close().unwrap();
    let calls = env.calls(Call::CHANGES);
    assert!(matches!(loader.put("zz", "v"), Err(Error::Closed)));
    drop(loader);
    assert_eq!(env.calls(Call::CHANGES), calls);
    let db = open(&env);
    assert_eq!(contents(&db.table("t").unwrap()), before);
}

/// Readers during the last step see all of the load or nothing.
#[test]
fn readers_during_a_load_see_all_or_nothing() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let table = db.create_table("t", btree()).unwrap();
    let mut count = 0;
    for round in 0..20_u32 {
        let stop = crate::util::sync::AtomicBool::new(false);
        let count_after = count + 500;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seen = table.range(..).unwrap().count();
                    // A scan that reaches the old end may continue with loaded entries.
                    assert!((count..=count_after).contains(&seen), "{seen}");
                    let last = (round * 500 + 499).to_be_bytes();
                    let first = (round * 500).to_be_bytes();
                    if table.get(first).unwrap().is_some() {
                        assert!(table.get(last).unwrap().is_some());
                    }
                }
            });
            let keys = round * 500..round * 500 + 500;
            table.load_sorted(keys.map(|key| (key.to_be_bytes(), [1; 40]))).unwrap();
            stop.store(true, Ordering::Relaxed);
        });
        count = count_after;
    }
    assert_sound(&db);
}

#[test]
fn loaded_values_expire_and_their_types_are_checked() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let table = db.create_table("t", btree()).unwrap();
    let mut loader = table.sorted_loader(LoadOptions::new()).unwrap();
    for key in 0..500_u32 {
        let options = PutOptions::new();
        let options = if key % 2 == 0 { options.ttl(Duration::from_mins(1)) } else { options };
        loader.put_with(key.to_be_bytes(), b"value", options).unwrap();
    }
    assert_eq!(loader.commit().unwrap(), 500);
    let env = env.crash(Policy::AllLost);
    let db = open(&env);
    let table = db.table("t").unwrap();
    assert_sound(&db);
    assert_eq!(table.stats().unwrap().keys, 500);
    for _ in 0..100 {
        env.advance(Duration::from_secs(2));
        env.run_due();
    }
    assert_eq!(contents(&table).len(), 250);
    assert_eq!(table.stats().unwrap().keys, 250, "the sweep finds what a load has brought");

    let typed = db.create_typed::<i64, String>("typed", btree()).unwrap();
    typed.load_sorted((-300..300).map(|key| (key, key.to_string()))).unwrap();
    assert_eq!(typed.get(&-7).unwrap().unwrap(), "-7");
    let mut loader = typed.table().sorted_loader(LoadOptions::new()).unwrap();
    assert!(matches!(loader.put("text", "v"), Err(Error::TypeMismatch { .. })));
    assert_eq!(typed.table().types().unwrap(), TableTypes::of::<i64, String>());
}

/// Creates a table with entries, another table, and a load.
fn create_tables(env: &SimEnv) -> Database {
    let db = open(env);
    let table = db.create_table("t", btree()).unwrap();
    for (key, value) in rows(1, 150).into_iter().chain(rows(2000, 400)) {
        table.put(key, value).unwrap();
    }
    db.create_table("u", btree()).unwrap();
    db.persist().unwrap();
    // Free pages within the file.
    table.delete_range(2000_u32.to_be_bytes()..).unwrap();
    db.persist().unwrap();
    db
}

/// Runs a load between two writes to another table.
fn load_between_writes(db: &Database) -> Result<()> {
    let (table, other) = (db.table("t")?, db.table("u")?);
    other.put_with("before", "1", PutOptions::new().durability(Durability::Sync))?;
    table.load_sorted(rows(1000, 250))?;
    other.put("after", "2")
}

/// After a crash at each event a load is whole or missing. Writes that were synced before it are
/// there.
fn crashes_leave_all_or_nothing() {
    let env = SimEnv::new(3);
    create_tables(&env).close().unwrap();
    let env = env.crash(Policy::AllKept);
    let (old, new) = (rows(1, 150), [rows(1, 150), rows(1000, 250)]);
    let new: Rows = new.into_iter().flatten().collect();
    let db = open(&env);
    env.record_history();
    let begun = env.mark();
    load_between_writes(&db).unwrap();
    let (mut states, mut with) = (0, 0);
    let limits = PolicyLimits { each: 5, random: 3, torn: 2, copying: 0 };
    for event in env.history() {
        if event.number < begun {
            continue;
        }
        for policy in env.policies(event.number, limits) {
            let image = env.image_at(event.number, policy);
            let db = open(&image);
            let table = db.table("t").unwrap();
            let found = contents(&table);
            let whole = found == new;
            assert!(whole || found == old, "{} entries: {event}, {policy}", found.len());
            let after = db.table("u").unwrap().get("after").unwrap().is_some();
            assert!(whole || !after, "{event}, {policy}");
            assert_sound(&db);
            if !whole && states % 7 == 0 {
                table.load_sorted(rows(1000, 250)).unwrap();
                assert_eq!(contents(&table), new);
                assert_sound(&db);
            }
            (states, with) = (states + 1, with + u32::from(whole));
        }
    }
    assert!(states > 200 && with > 3, "{states} states, {with} with the load");
}

#[test]
fn a_crash_leaves_all_of_a_load_or_nothing() {
    crashes_leave_all_or_nothing();
    mutant::finds(Bug::LoadSkipsSync, crashes_leave_all_or_nothing);
}

/// Each I/O fails once, or with all later ones. The load returns an error, nothing has changed, and
/// the next load succeeds.
fn faults_change_nothing() {
    let old = rows(1, 150);
    let new: Rows = [rows(1, 150), rows(1000, 250)].into_iter().flatten().collect();
    let cases = [
        (Call::NEED_SPACE, Effect::NoSpace),
        (&[Call::Write], Effect::Io),
        (&[Call::Read, Call::Queue, Call::Punch], Effect::Io),
        (&[Call::Sync], Effect::Io),
    ];
    for (calls, effect) in cases {
        for when in [When::Nth, When::From] {
            let (mut number, mut failed) = (1, 0);
            loop {
                let env = SimEnv::new(5);
                let db = create_tables(&env);
                let table = db.table("t").unwrap();
                let used = nodes(&table);
                env.inject(Fault::new(calls, when(number), effect).on("tables/"));
                let outcome = table.load_sorted(rows(1000, 250));
                let fired = env.faults_fired();
                env.clear_faults();
                if let Err(error) = &outcome {
                    failed += 1;
                    let full = effect == Effect::NoSpace;
                    let expected = matches!(error, Error::DiskFull { .. }) == full;
                    assert!(expected, "{calls:?} {:?}: {error}", when(number));
                    assert_eq!(contents(&table), old, "{calls:?} {:?}", when(number));
                    assert_eq!(nodes(&table), used);
                    if effect != Effect::Io || calls != [Call::Sync] {
                        table.load_sorted(rows(1000, 250)).unwrap();
                    }
                } else {
                    assert_eq!(contents(&table), new);
                }
                let found = contents(&table);
                drop((table, db));
                let db = open(&env.kill());
                let again = contents(&db.table("t").unwrap());
                // A sync that failed may have made the bytes durable.
                assert!(again == found || calls == [Call::Sync] && again == new);
                assert_sound(&db);
                if fired == 0 {
                    break;
                }
                number += 1;
            }
            // Pages in the cache are not read.
            assert!(failed > 0 || calls.contains(&Call::Read), "{calls:?}");
        }
    }
}

#[test]
fn a_load_that_fails_changes_nothing() {
    faults_change_nothing();
    mutant::finds(Bug::LoadShownEarly, faults_change_nothing);
}

/// The space of a load is released after it was discarded, or after the process died.
#[test]
fn a_discarded_load_releases_its_space() {
    let env = SimEnv::new(1);
    let db = create_tables(&env);
    let table = db.table("t").unwrap();
    let size = |env: &SimEnv| {
        let files = env.files();
        files
            .iter()
            .filter(|(name, _)| name.ends_with("pages"))
            .map(|(_, bytes)| bytes)
            .sum::<u64>()
    };
    let (before, used) = (size(&env), nodes(&table));
    let mut loader = table.sorted_loader(LoadOptions::new()).unwrap();
    for (key, value) in rows(1000, 2000) {
        loader.put(key, value).unwrap();
    }
    let punched = env.calls(&[Call::Punch]);
    let grown = size(&env);
    assert!(grown > before + (1 << 20), "{before} to {grown}");
    let killed = env.kill();
    drop(loader);
    assert!(env.calls(&[Call::Punch]) > punched);
    assert_eq!(nodes(&table), used);
    table.load_sorted(rows(1000, 20)).unwrap();
    assert_sound(&db);
    let db = open(&killed);
    assert_eq!(contents(&db.table("t").unwrap()), rows(1, 150));
    assert!(size(&killed) <= before.next_multiple_of(64 * 4096), "{}", size(&killed));
}

/// A load of any size uses the memory of a few buffers.
#[test]
fn memory_stays_within_a_few_buffers() {
    let env = SimEnv::new(1);
    let db = open(&env);
    let table = db.create_table("t", btree()).unwrap();
    let mut loader = table.sorted_loader(LoadOptions::new()).unwrap();
    let before = db.stats().memory_bytes;
    for key in 0..100_000_u32 {
        loader.put(key.to_be_bytes(), [7; 150]).unwrap();
    }
    let during = db.stats().memory_bytes;
    assert!(during <= before + (1 << 20), "{before} to {during}");
    loader.commit().unwrap();
    assert!(db.stats().memory_bytes <= before + (1 << 20));
    assert_eq!(table.stats().unwrap().keys, 100_000);
}
