//! Options by name and by builder, through the public surface, on the simulated system.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use quintet::{
    BTreeOptions, CheckLevel, Compression, Database, EngineKind, EngineOption, Error,
    HashLogOptions, IndexMedium, KeyCode, LevelMode, ListLayout, Medium, MemtableMedium,
    NaiveOptions, OptionAudience, OptionDefault, OptionValues, Options, PageReplacement,
    PerfectHash, SlmOptions, TableOptions, TableTypes, Tiers, TphOptions, TrieHash, TrieOptions,
    TrieProfiling, TypeTag, check_table_options, check_table_path, database_options,
    engine_options, testing::disk::sim::SimEnv,
};

macro_rules! built {
    ($($builder:ident { $($name:ident: $value:expr,)+ })+) => {
        vec![$($((
            stringify!($name),
            TableOptions::from($builder::new().$name($value)),
            $value.to_string(),
        ),)+)+]
    };
}

/// The options that each builder method sets, with a value that is not the default.
fn built() -> Vec<(&'static str, TableOptions, String)> {
    built! {
        NaiveOptions { snapshot_bytes: 4096, }
        HashLogOptions {
            compression: Compression::Lz4, live_ratio: 60, chunk_bytes: 16_384,
            file_bytes: 8_388_608, mutable_chunks: 3,
        }
        TrieOptions {
            live_ratio: 60,
            journal_bytes: 65_536,
            cut_bytes: 65_536,
            fanout: 128,
            sluggishness: 8,
            region_bytes: 65_536,
            max_scan: 5,
            hash: TrieHash::Highway64,
            layout: ListLayout::Chain,
            profile: TrieProfiling::On,
        }
        BTreeOptions {
            page_bytes: 4096,
            cache_bytes: 1_000_000,
            extend_granularity: 64,
            replacement: PageReplacement::Random,
        }
        SlmOptions {
            compression: Compression::Zstd,
            cache_bytes: 1_000_000,
            index_cache_bytes: 1_000_000,
            memtable_bytes: 65_536,
            live_ratio: 60,
            key_code: KeyCode::None,
            memtables: 3,
            run_bytes: 65_536,
            block_bytes: 1024,
            page_bytes: 4096,
            leaf_threshold: 5,
            leaf_runs: 3,
            range_threshold: 5,
            range_keys: 20,
            compaction_runs: 3,
            merge_runs: 5,
            merge_rate: 1_000_000,
            medium: Medium::Pmem,
            memtable: MemtableMedium::Pmem,
            index: IndexMedium::Pmem,
            pmem_path: "/pools",
            pmem_bytes: 1_048_576,
            pmem_latency_ns: 500,
            pmem_bandwidth: 2_000_000_000,
        }
        TphOptions {
            compression: Compression::Lz4,
            cache_bytes: 1_000_000,
            memtable_bytes: 65_536,
            max_pieces: 5,
            memtables: 3,
            table_bytes: 65_536,
            level0_tables: 3,
            level_bytes: 65_536,
            fanout: 4,
            block_bytes: 1024,
            signature_bits: 9,
            merge_rate: 1_000_000,
            mode: LevelMode::HashRange,
            perfect_hash: PerfectHash::CpHash,
            tiers: Tiers::Two,
        }
    }
}

fn open() -> Database {
    let options = Options::new().memory_budget(256 << 20).segment_bytes(64 << 10);
    options.open_in(Arc::new(SimEnv::new(1)), "db").unwrap()
}

fn option(kind: EngineKind, name: &str) -> &'static EngineOption {
    engine_options(kind).iter().find(|option| option.name == name).unwrap()
}

#[test]
fn each_builder_method_sets_the_option_of_its_name() {
    let mut names: BTreeSet<(EngineKind, &str)> = BTreeSet::new();
    for (name, options, value) in built() {
        let set: Vec<_> = options.settings().collect();
        assert_eq!(set, [(name, value.as_str())]);
        option(options.kind(), name).check(&value).unwrap();
        names.insert((options.kind(), name));
    }
    for kind in EngineKind::ALL {
        for option in engine_options(kind) {
            assert!(names.contains(&(kind, option.name)), "{kind} has no method {}", option.name);
        }
    }
}

#[test]
fn a_table_gets_the_options_of_its_builder() {
    let db = open();
    for (name, options, _) in built() {
        let kind = options.kind();
        db.set_default_options("", Some(&options)).unwrap();
        assert_eq!(db.default_options("").unwrap().unwrap(), options);
        let path = format!("{kind}/{name}");
        db.create_default_table(&path).unwrap().put("k", "v").unwrap();
        db.drop_table(&path).unwrap();
        // The same option with a value out of its range reaches the same check.
        let wrong = TableOptions::new(kind).set(name, "wrong");
        match db.create_table(&path, wrong) {
            Err(Error::InvalidOption { name: named, .. }) => assert_eq!(named, name),
            other => panic!("{path}: {other:?}"),
        }
    }
    // A builder goes wherever options go.
    let types = TableTypes::new([TypeTag::U64], TypeTag::String).unwrap();
    let builder = SlmOptions::new().types(types.clone());
    assert_eq!(db.create_table("typed", builder).unwrap().types(), Some(types));
    db.open_or_create_table("default", NaiveOptions::default()).unwrap();
}

#[test]
fn an_option_of_another_engine_is_refused() {
    let db = open();
    let all: BTreeSet<&str> =
        EngineKind::ALL.into_iter().flat_map(engine_options).map(|option| option.name).collect();
    for kind in EngineKind::ALL {
        let own: Vec<&str> = engine_options(kind).iter().map(|option| option.name).collect();
        for name in all.iter().filter(|name| !own.contains(name)) {
            match db.create_table("t", TableOptions::new(kind).set(*name, "1")) {
                Err(Error::InvalidOption { name: named, what }) => {
                    assert_eq!(named, *name);
                    assert!(what.ends_with(&format!("it has: {}", own.join(", "))), "{what}");
                }
                other => panic!("{kind} {name}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_data_file_of_hashlog_has_room_for_four_chunks() {
    let db = open();
    let create = |name: &str, chunk_bytes| {
        let options = HashLogOptions::new().chunk_bytes(chunk_bytes).file_bytes(8 << 20);
        db.create_table(name, options).map(drop).map_err(|error| error.to_string())
    };
    create("fits", 2 << 20).unwrap();
    let what = create("too_small", 4 << 20).unwrap_err();
    assert!(what.contains("file_bytes") && what.contains("at least 16777216"), "{what}");
    // Nothing is left of the refused table.
    create("too_small", 1 << 20).unwrap();
}

#[test]
fn options_are_checked_without_a_database() {
    assert!(check_table_options(SlmOptions::new()).is_ok());
    let packed = TableOptions::new(EngineKind::HashLog).set("compression", "zstd");
    let expected = "option compression: the hashlog engine does not accept \"zstd\"; it accepts \
                    one of: none, lz4";
    assert_eq!(check_table_options(&packed).unwrap_err().to_string(), expected);
    assert!(check_table_path("app/users").is_ok());
    for path in ["", "app//users", ".app", "a b", &"x".repeat(65), &"x/".repeat(33)] {
        let refused = check_table_path(path).unwrap_err();
        assert!(matches!(refused, Error::Limit { .. }), "{path:?}: {refused}");
    }
}

#[test]
fn the_types_of_options_are_those_of_the_table() {
    let types = TableTypes::new([TypeTag::String, TypeTag::U64], TypeTag::Blob).unwrap();
    let options = TableOptions::new(EngineKind::Naive);
    assert_eq!(options.table_types(), None);
    let options = options.types(types.clone());
    assert_eq!(options.table_types(), Some(&types));
    let database = Options::new().open_in(Arc::new(SimEnv::new(1)), "db").unwrap();
    assert_eq!(database.create_table("t", &options).unwrap().types(), Some(types));
}

#[test]
fn a_read_only_database_says_so_and_refuses_writes() {
    let env = SimEnv::new(1);
    let open = |is_read_only| {
        Options::new().read_only(is_read_only).open_in(Arc::new(env.clone()), "db").unwrap()
    };
    let database = open(false);
    database.create_table("t", NaiveOptions::new()).unwrap().put("k", "v").unwrap();
    assert!(!database.is_read_only());
    database.close().unwrap();
    let database = open(true);
    assert!(database.is_read_only());
    let table = database.table("t").unwrap();
    assert!(matches!(table.put("k", "w"), Err(Error::ReadOnly)));
    assert_eq!(table.get("k").unwrap().unwrap(), b"v");
}

#[test]
fn an_option_of_a_database_outside_its_limits_is_refused_with_them() {
    let options = database_options();
    let refused = [
        ("memory_budget", Options::new().memory_budget(1)),
        ("sync_interval", Options::new().sync_interval(Duration::ZERO)),
        ("recovery_budget", Options::new().recovery_budget(1)),
        ("checkpoint_interval", Options::new().checkpoint_interval(Duration::from_millis(1))),
        ("space_reserve", Options::new().space_reserve(1)),
        ("segment_bytes", Options::new().segment_bytes(100_000)),
        ("log_retention", Options::new().log_retention(1 << 51)),
        ("snapshot_limit", Options::new().snapshot_limit(1)),
        ("snapshot_max_age", Options::new().snapshot_max_age(Duration::ZERO)),
    ];
    assert_eq!(options.len(), refused.len());
    for (option, (name, refused)) in options.iter().zip(refused) {
        let error = refused.open_in(Arc::new(SimEnv::new(1)), "db").unwrap_err();
        assert_eq!(error.to_string(), format!("option {name}: it must be {}", option.allowed));
        assert_eq!(option.name, name);
    }
    assert_eq!(options[3].allowed, "0, or from 10 ms to 24 hours");
    assert_eq!(options[5].allowed, "a power of two from 64 KiB to 1 GiB");
}

#[test]
fn a_quick_check_reads_no_table() {
    let database = Options::new().open_in(Arc::new(SimEnv::new(1)), "db").unwrap();
    let table = database.create_table("t", TrieOptions::new()).unwrap();
    for key in 0..100_u32 {
        table.put(key.to_be_bytes(), "value").unwrap();
    }
    database.persist().unwrap();
    let quick = database.check_with(CheckLevel::Quick).unwrap();
    let deep = database.check_with(CheckLevel::Deep).unwrap();
    assert!(quick.is_sound() && deep.is_sound(), "{quick:?} {deep:?}");
    // A deep check of `trie` counts an entry in its file, and again when it reads the value.
    assert_eq!((quick.checked_entries, deep.checked_entries), (0, 200));
    assert!(0 < quick.checked_bytes && quick.checked_bytes < deep.checked_bytes, "{quick:?}");
}

#[test]
fn declarations_are_complete() {
    for kind in EngineKind::ALL {
        let options = engine_options(kind);
        let general =
            options.iter().take_while(|option| option.audience == OptionAudience::General);
        assert!((1..=5).contains(&general.count()), "{kind}: general options");
        assert!(options.is_sorted_by_key(|option| option.audience), "{kind}: order");
        let mut names = BTreeSet::new();
        for option in options {
            let context = format!("{kind}, {}", option.name);
            for name in [&option.name].into_iter().chain(option.aliases) {
                assert!(names.insert(*name), "{context}: {name} is there twice");
            }
            for text in [option.meaning, option.change_when] {
                assert!(!text.is_empty() && !text.ends_with(['.', ' ']), "{context}: {text:?}");
            }
            let is_word = matches!(option.values, OptionValues::Words(_));
            match option.default {
                OptionDefault::Number { value, .. } => option.check(&value.to_string()).unwrap(),
                OptionDefault::Word(word) => option.check(word).unwrap(),
                OptionDefault::Computed(how) => assert!(!is_word && !how.is_empty(), "{context}"),
                _ => panic!("{context}: an unknown form of default"),
            }
        }
    }
}
