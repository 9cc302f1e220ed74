use std::collections::BTreeMap;

use super::*;
use crate::{
    contract::{EngineKind, TableOptions},
    io::{
        Env as _,
        sim::{Call, Effect, Fault, Policy, PolicyLimits, SimEnv, When},
        write_all_at,
    },
};

const ID: [u8; 16] = *b"0123456789abcdef";

fn record() -> TableDefinition {
    let options = TableOptions::new(EngineKind::Naive).set("snapshot_bytes", "4096");
    TableDefinition::new(&options, [1, 2])
}

fn dir(env: &SimEnv) -> Arc<dyn Dir> {
    env.open_dir("db".as_ref(), true).unwrap()
}

fn names(catalog: &Catalog) -> Vec<String> {
    catalog.with_tree(CatalogTree::tables).into_iter().map(|(name, _)| name).collect()
}

fn create(catalog: &Catalog, path: &str) -> Result<u64> {
    catalog.create_table(path, record(), None, |_| Ok(()))
}

fn reopen(env: &SimEnv) -> Result<Catalog> {
    Ok(Catalog::open(&dir(env), false)?.unwrap())
}

/// Overwrites the file. Durable when the call returns.
fn store(env: &SimEnv, bytes: &[u8]) {
    let dir = dir(env);
    dir.remove(NAME).unwrap();
    let file = dir.open(NAME, Open::CREATE).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
    file.sync_all().unwrap();
    dir.sync().unwrap();
}

fn bytes(env: &SimEnv) -> Vec<u8> {
    env.contents("db/catalog").unwrap()
}

/// Returns where the edits of a catalog end. Zeros may follow.
fn end(bytes: &[u8]) -> usize {
    crate::util::codec::to_usize(file::parse(bytes).unwrap().end)
}

#[test]
fn layout_is_pinned() {
    let env = SimEnv::new(1);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    create(&catalog, "a/t").unwrap();
    catalog
        .progress(Progress {
            log_start: Lsn(4096),
            log_durable: Lsn(8192),
            tables: vec![(2, Lsn(5000))],
        })
        .unwrap();
    catalog.rename("a", "b").unwrap();
    catalog.remove("b/t", true).unwrap();
    let bytes = bytes(&env);
    assert_eq!(&bytes[..32], b"QUINTCAT\x01\0\0\0\0\0\0\x000123456789abcdef");
    assert_eq!(bytes[32..36], crate::util::codec::crc32c(&bytes[..32]).to_le_bytes());
    assert!(bytes[36..512].iter().chain(&bytes[532..1024]).all(|byte| *byte == 0));
    // Sequence and length: the newest in the odd slot, the one before in the even one.
    assert_eq!(bytes[1024..1040], [[5, 0, 0, 0, 0, 0, 0, 0], 4251_u64.to_le_bytes()].concat());
    assert_eq!(bytes[512..528], [[4, 0, 0, 0, 0, 0, 0, 0], 4233_u64.to_le_bytes()].concat());
    // Prepared zeros.
    assert!(bytes.len() == 16 << 10 && bytes[4251..].iter().all(|byte| *byte == 0));
    let mut edits = Vec::new();
    let mut rest = &bytes[4096..4251];
    while let [a, b, c, d, tail @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        edits.push(&tail[12..12 + length]);
        rest = &tail[12 + length..];
    }
    let table = [
        &[1, 1, 0, 1, b'a', 2, 2, 1, 1, b't', 5][..],
        b"naive\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\x0esnapshot_bytes\x044096",
    ]
    .concat();
    let expected: [&[u8]; 5] = [
        &[6, 1, 5, 0, 0, 0],
        &table,
        &[5, 0x80, 0x20, 0x80, 0x40, 1, 2, 0x88, 0x27],
        &[3, 1, 0, 1, b'b'],
        &[4, 1],
    ];
    assert_eq!(edits, expected);
    let lines = describe(&bytes).unwrap();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines.last().unwrap().1, "remove 1 and everything below it");
}

#[test]
fn types_defaults_and_mounts_have_pinned_bytes_and_words() {
    let types = TableTypes::of::<(String, u64), f64>();
    let defaults = TableDefaults {
        engine: "naive".to_owned(),
        settings: vec![("a".to_owned(), "b".to_owned())],
        types: Some(types.clone()),
    };
    let (target, subtree) = ("/x".to_owned(), "eu".to_owned());
    let mount = MountRecord { target, subtree, read_only: true };
    let table = TableDefinition { engine: "btree".to_owned(), seed: [1, 2], settings: Vec::new() };
    let cases: [(CatalogChange, &[u8], &str); 5] = [
        (
            CatalogChange::AddExpiryIndex { id: 6, table },
            b"\x0a\x06\x05btree\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0",
            "add expiry index 6, engine btree, seed 0000000000000001 0000000000000002",
        ),
        (
            CatalogChange::Types { id: 5, types },
            &[7, 5, 2, 6, 2, 5],
            "types of 5, string,u64 -> f64",
        ),
        (
            CatalogChange::Defaults { id: 0, defaults: Some(defaults) },
            b"\x08\0\x01\x05naive\x01\x01a\x01b\x01\x02\x06\x02\x05",
            "defaults for tables in 0, engine naive, a=b, types string,u64 -> f64",
        ),
        (
            CatalogChange::Defaults { id: 3, defaults: None },
            &[8, 3, 0],
            "no defaults for tables in 3",
        ),
        (
            CatalogChange::AddMount { id: 4, parent: 0, name: "m".to_owned(), mount },
            b"\x09\x04\0\x01m\x02/x\x02eu\x01",
            "add mount 4 \"m\" in 0 of \"/x\", below \"eu\", read only",
        ),
    ];
    for (change, bytes, words) in cases {
        let mut encoded = Vec::new();
        change.encode(&mut encoded);
        assert_eq!(encoded, bytes, "{words}");
        assert_eq!(edit::decode_all(bytes), Some(vec![change.clone()]));
        assert_eq!(change.to_string(), words);
        for cut in 1..bytes.len() {
            assert_eq!(edit::decode_all(&bytes[..cut]), None, "{words} cut at {cut}");
        }
    }
    assert_eq!(edit::decode_all(&[7, 5, 0, 5]), None, "a key without parts");
    assert_eq!(edit::decode_all(&[8, 3, 2]), None, "no flag");
}

#[test]
fn changes_are_described() {
    let env = SimEnv::new(1);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    create(&catalog, "app/users").unwrap();
    catalog.rename("app", "old").unwrap();
    let tables = vec![(2, Lsn(4100))];
    let progress = Progress { log_start: Lsn(4096), log_durable: Lsn(5000), tables };
    catalog.progress(progress).unwrap();
    catalog.remove("old", false).unwrap();
    let told: Vec<String> =
        describe(&bytes(&env)).unwrap().into_iter().map(|(_, line)| line).collect();
    let golden = [
        "next id 1",
        "progress, log starts at 0, durable below 0",
        "add directory 1 \"app\" in 0",
        "add table 2 \"users\" in 1, engine naive, seed 0000000000000001 0000000000000002, \
         snapshot_bytes=4096",
        "move 1 to \"old\" in 0",
        "progress, log starts at 4096, durable below 5000, table 2 complete to 4100",
        "remove 1 and everything below it",
    ];
    assert_eq!(told, golden);
    let mount = MountRecord {
        target: "/data/other".to_owned(),
        subtree: "app".to_owned(),
        read_only: true,
    };
    let mount = CatalogChange::AddMount { id: 7, parent: 0, name: "m".to_owned(), mount };
    let golden = "add mount 7 \"m\" in 0 of \"/data/other\", below \"app\", read only";
    assert_eq!(mount.to_string(), golden);
    let options = TableOptions::new(EngineKind::Naive).set("snapshot_bytes", "4096");
    let defaults = CatalogChange::Defaults { id: 3, defaults: Some(TableDefaults::new(&options)) };
    let golden = "defaults for tables in 3, engine naive, snapshot_bytes=4096";
    assert_eq!(defaults.to_string(), golden);
    let none = CatalogChange::Defaults { id: 3, defaults: None };
    assert_eq!(none.to_string(), "no defaults for tables in 3");
    let size = catalog.file_bytes();
    drop(catalog);
    let catalog = Catalog::open(&dir(&env), true).unwrap().unwrap();
    assert_eq!(catalog.file_bytes(), size, "opened for reading as well");
}

/// After a crash at any event, each edit has taken effect as a whole or not at all.
#[test]
fn a_crash_at_any_event_leaves_the_state_before_or_after_an_edit() {
    let env = SimEnv::new(7);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    env.record_history();
    // The names after each edit, and the event at which it had returned.
    let mut states = vec![(env.mark(), names(&catalog))];
    for step in 0..60 {
        match step % 6 {
            0 | 1 | 3 => drop(create(&catalog, &format!("d{}/t{step}", step % 5)).unwrap()),
            2 => catalog.rename(&format!("d{}", (step - 1) % 5), &format!("m{step}")).unwrap(),
            4 => {
                let first = names(&catalog).into_iter().next().unwrap();
                catalog.remove(first.split('/').next().unwrap(), false).unwrap();
            }
            _ => catalog
                .progress(Progress { log_start: Lsn(step), log_durable: Lsn(step), tables: vec![] })
                .unwrap(),
        }
        states.push((env.mark(), names(&catalog)));
    }
    let mut images = 0;
    for event in states[0].0..=states.last().unwrap().0 {
        let limits = PolicyLimits { each: 8, random: 4, torn: 8, copying: 0 };
        for policy in env.policies(event, limits) {
            let image = env.image_at(event, policy);
            let opened = reopen(&image).unwrap_or_else(|error| panic!("{event} {policy}: {error}"));
            let before = states.iter().rposition(|(mark, _)| *mark <= event).unwrap_or(0);
            let allowed = &states[before..(before + 2).min(states.len())];
            let found = names(&opened);
            assert!(
                allowed.iter().any(|(_, names)| *names == found),
                "{event} {policy}: {found:?}"
            );
            // Further edits work, and the part that was cut off does not return.
            create(&opened, "after/crash").unwrap();
            assert_eq!(names(&opened).len(), names(&reopen(&image).unwrap()).len());
            images += 1;
        }
    }
    assert!(images > 500, "{images}");
}

#[test]
fn the_file_is_rewritten_when_it_is_mostly_dead() {
    let env = SimEnv::new(2);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    let kept = create(&catalog, "kept").unwrap();
    let mut largest = 0;
    for step in 0..2000 {
        create(&catalog, "passing/table").unwrap();
        catalog.remove("passing", false).unwrap();
        largest = largest.max(catalog.file_bytes());
        assert_eq!(catalog.file_bytes(), bytes(&env).len() as u64, "step {step}");
    }
    assert_eq!(largest, 16 << 10);
    let opened = reopen(&env.crash(Policy::AllLost)).unwrap();
    assert_eq!(names(&opened), ["kept"]);
    assert_eq!(opened.with_tree(|tree| tree.find_table("kept")), Some(kept));
    // Numbers are not reused, even those that no edit names any more.
    assert_eq!(create(&opened, "next").unwrap(), 2 + 2 * 2000);
}

#[test]
fn a_torn_last_edit_is_cut_and_a_damaged_one_is_refused() {
    let env = SimEnv::new(3);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    create(&catalog, "one").unwrap();
    let before = bytes(&env);
    create(&catalog, "two").unwrap();
    let after = bytes(&env);
    drop(catalog);
    let (first, second) = (end(&before), end(&after));
    let with_zeros = |cut: usize| [&after[..cut], &vec![0; after.len() - cut]].concat();
    // The crash was during the write of the edit: its length is not recorded yet.
    for cut in first..second {
        for torn in [before[..first].to_vec(), before.clone()] {
            let mut torn = [&torn[..first], &after[first..cut], &torn[first..]].concat();
            torn.truncate(after.len());
            store(&env, &torn);
            assert_eq!(names(&reopen(&env).unwrap()), ["one"], "cut at {cut}");
            let kept = bytes(&env);
            assert_eq!(kept[..first], before[..first]);
            assert!(kept[first..].iter().all(|byte| *byte == 0), "cut at {cut}");
        }
    }
    // The edit was complete, and its length is recorded.
    for cut in first..second {
        store(&env, &after[..cut]);
        assert!(reopen(&env).is_err_and(|error| error.is_corruption()), "cut at {cut}");
        if with_zeros(cut) != after {
            store(&env, &with_zeros(cut));
            assert!(reopen(&env).is_err_and(|error| error.is_corruption()), "cut at {cut}");
        }
    }
}

/// With any single byte wrong, opening fails or returns the right content.
#[test]
fn every_flipped_byte_is_detected_or_harmless() {
    let env = SimEnv::new(4);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    for name in ["a/x", "a/y", "b"] {
        create(&catalog, name).unwrap();
    }
    catalog.close().unwrap();
    let sound = bytes(&env);
    let expected = describe(&sound).unwrap();
    let mut refused = BTreeMap::new();
    for place in 0..sound.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = sound.clone();
            damaged[place] ^= flip;
            match describe(&damaged) {
                Ok(lines) => assert_eq!(lines, expected, "byte {place}"),
                Err(_) => *refused.entry(place / 4096).or_insert(0) += 1,
            }
        }
    }
    // All bytes of the edits are checked, and those of the head, except its unused bytes and one of
    // the two lengths.
    assert_eq!(refused[&1], 3 * (end(&sound) - 4096));
    assert!(refused[&0] >= 3 * 36);
}

#[test]
fn impossible_changes_are_damage() {
    let add =
        |id, parent, name: &str| CatalogChange::AddDirectory { id, parent, name: name.to_owned() };
    let moved = |id, parent, name: &str| CatalogChange::Move { id, parent, name: name.to_owned() };
    let bad: [&[CatalogChange]; 9] = [
        &[add(0, 0, "root")],
        &[add(1, 0, "a"), add(1, 0, "b")],
        &[add(1, 0, "a"), add(2, 0, "a")],
        &[add(1, 7, "a")],
        &[add(1, 0, "../a")],
        &[add(u64::MAX, 0, "a")],
        &[add(1, 0, "a"), add(2, 1, "b"), moved(1, 2, "c")],
        &[moved(1, 0, "a")],
        &[CatalogChange::Remove { id: 0 }],
    ];
    for changes in bad {
        let mut tree = CatalogTree::default();
        let outcome = changes.iter().try_for_each(|change| tree.apply(change));
        assert!(outcome.is_err(), "{changes:?}");
    }
}

#[test]
fn a_full_disk_refuses_an_edit_and_a_failed_sync_refuses_all() {
    let env = SimEnv::new(5);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    env.inject(Fault::new(&[Call::Write], When::From(1), Effect::NoSpace));
    assert!(matches!(create(&catalog, "a"), Err(Error::DiskFull { .. })));
    env.clear_faults();
    create(&catalog, "b").unwrap();
    env.inject(Fault::new(&[Call::Sync], When::Nth(1), Effect::Io));
    assert!(matches!(create(&catalog, "c"), Err(Error::Io { .. })));
    env.clear_faults();
    assert!(matches!(create(&catalog, "d"), Err(Error::LogFailed { .. })));
    assert_eq!(names(&catalog), ["b"]);
    assert_eq!(names(&reopen(&env.crash(Policy::AllLost)).unwrap()), ["b"]);
}

#[test]
fn renaming_keeps_the_tree_whole() {
    let env = SimEnv::new(6);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    for name in ["a/b/c/t", "a/u", "z"] {
        create(&catalog, name).unwrap();
    }
    // Into a new directory, below one that would otherwise be empty.
    catalog.rename("a/b/c/t", "a/b/d/t").unwrap();
    assert_eq!(names(&catalog), ["a/b/d/t", "a/u", "z"]);
    catalog.rename("a/b", "b").unwrap();
    catalog.rename("a/u", "u").unwrap();
    assert_eq!(names(&catalog), ["b/d/t", "u", "z"]);
    create(&catalog, "a").unwrap();
    let deep = vec!["x"; 31].join("/");
    catalog.rename("z", &format!("{deep}/z")).unwrap();
    assert!(matches!(catalog.rename("b", &format!("{deep}/b")), Err(Error::Limit { .. })));
    assert!(matches!(catalog.rename("u", "z/u/u"), Ok(())));
    assert_eq!(names(&reopen(&env).unwrap()), names(&catalog));
    let mut report = Report::default();
    catalog.check(&mut report).unwrap();
    assert!(report.is_sound());
}

/// A crash at any event of a rewrite leaves the old file or the new one. Later edits are durable.
#[test]
fn a_crash_at_any_event_of_a_rewrite_loses_nothing() {
    let env = SimEnv::new(8);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    create(&catalog, "kept").unwrap();
    let mut before = 0;
    // A rewrite removes dead edits.
    while end(&bytes(&env)) >= before {
        before = end(&bytes(&env));
        if before > 12_000 {
            env.record_history();
        }
        create(&catalog, "passing").unwrap();
        catalog.remove("passing", true).unwrap();
    }
    let rewritten = env.mark();
    create(&catalog, "after").unwrap();
    let end = env.mark();
    let first = env.history().first().unwrap().number;
    for event in first..=end {
        for policy in env.policies(event, PolicyLimits { each: 8, random: 4, torn: 8, copying: 0 })
        {
            let image = env.image_at(event, policy);
            let opened = reopen(&image).unwrap_or_else(|error| panic!("{event} {policy}: {error}"));
            let found = names(&opened);
            assert!(found.contains(&"kept".to_owned()), "{event} {policy}: {found:?}");
            assert!(event < rewritten || !found.contains(&"passing".to_owned()));
            assert_eq!(
                found.contains(&"after".to_owned()),
                event == end || found.len() > 1 && event >= rewritten
            );
        }
    }
}

#[test]
fn numbers_are_never_reused() {
    let env = SimEnv::new(9);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    let first = create(&catalog, "t").unwrap();
    catalog.remove("t", true).unwrap();
    assert!(create(&catalog, "t").unwrap() > first);
}

/// Each planted bug makes a test above fail.
mod seeded_bugs {
    use super::*;
    use crate::util::mutant::{Bug, finds};

    #[test]
    fn catalog_skips_sync() {
        finds(Bug::CatalogSkipsSync, a_crash_at_any_event_leaves_the_state_before_or_after_an_edit);
    }

    #[test]
    fn catalog_skips_checksum() {
        finds(Bug::CatalogSkipsChecksum, every_flipped_byte_is_detected_or_harmless);
    }

    #[test]
    fn catalog_renames_before_sync() {
        finds(Bug::CatalogRenamesBeforeSync, a_crash_at_any_event_of_a_rewrite_loses_nothing);
    }

    #[test]
    fn catalog_skips_dir_sync() {
        finds(Bug::CatalogSkipsDirSync, a_crash_at_any_event_of_a_rewrite_loses_nothing);
    }

    #[test]
    fn catalog_reuses_table_id() {
        finds(Bug::CatalogReusesTableId, numbers_are_never_reused);
    }
}

/// The expiry index has a number and no path. No name leads to it, and a rewrite keeps it.
#[test]
fn the_expiry_index_is_no_table_of_the_tree() {
    let env = SimEnv::new(1);
    let catalog = Catalog::create(&dir(&env), ID).unwrap();
    create(&catalog, "a").unwrap();
    let id = catalog.create_expiry_index(record(), |_| Ok(())).unwrap();
    assert_eq!(id, 2);
    let again = catalog.create_expiry_index(record(), |_| panic!("it is there")).unwrap();
    assert_eq!(again, id);
    let tables = vec![(id, Lsn(5000))];
    let progress = Progress { tables, ..Progress::default() };
    catalog.progress(progress).unwrap();
    assert_eq!(names(&catalog), ["a"]);
    assert!(catalog.remove(".expiry", false).is_err());
    for _ in 0..400 {
        catalog.rename("a", "b").unwrap();
        catalog.rename("b", "a").unwrap();
    }
    drop(catalog);
    let catalog = reopen(&env).unwrap();
    assert_eq!(catalog.with_tree(CatalogTree::expiry_index), Some(id));
    let complete: Vec<_> = catalog.with_tree(|tree| {
        let complete = |id| (id, tree.table(id).unwrap().complete);
        tree.table_ids().into_iter().map(complete).collect()
    });
    assert_eq!(complete, [(1, Lsn(0)), (id, Lsn(5000))]);
    assert_eq!(create(&catalog, "c").unwrap(), 3);
}
