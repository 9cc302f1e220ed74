//! Options by name and by builder, through the public surface, on the simulated system.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeSet, sync::Arc};

use quintet::{
    BTreeOptions, Compression, Database, EngineKind, EngineOption, Error, HashLogOptions, KeyCode,
    LevelMode, ListLayout, NaiveOptions, OptionAudience, OptionDefault, OptionValues, Options,
    PageReplacement, PerfectHash, SlmOptions, TableOptions, TableTypes, TphOptions, TrieHash,
    TrieOptions, TypeTag, engine_options, testing::disk::sim::SimEnv,
};

/// The options that each builder method sets, with a value that is not the default.
fn built() -> Vec<(&'static str, TableOptions, String)> {
    macro_rules! built {
        ($($builder:ident { $($name:ident: $value:expr,)+ })+) => {
            vec![$($((
                stringify!($name),
                TableOptions::from($builder::new().$name($value)),
                $value.to_string(),
            ),)+)+]
        };
    }
    built! {
        NaiveOptions { snapshot_bytes: 4096, }
        HashLogOptions {
            compression: Compression::Lz4,
            live_ratio: 60,
            chunk_bytes: 16_384,
            mutable_chunks: 3,
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
