//! Typed tables on every engine: agreement with the catalog, and writes checked against the types.

use std::sync::Arc;

use quintet::{
    Database, EngineKind, Error, Options, PutOptions, TableOptions, TableTypes, TypeTag, TypedKey,
    TypedTable, TypedValue,
    testing::disk::sim::{Policy, SimEnv},
};

fn open(env: &SimEnv) -> Database {
    let options = Options::new().memory_budget(64 << 20).segment_bytes(64 << 10);
    options.open_in(Arc::new(env.clone()), "db").unwrap()
}

fn each_engine(test: impl Fn(&SimEnv, TableOptions)) {
    for (seed, kind) in (1..).zip(EngineKind::AVAILABLE) {
        test(&SimEnv::new(seed), TableOptions::new(*kind));
    }
}

fn mismatch<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::TypeMismatch { .. }), "{error}");
    error.to_string()
}

fn typed<K: TypedKey, V: TypedValue>(db: &Database) -> Result<TypedTable<K, V>, Error> {
    db.typed::<K, V>("t")
}

#[test]
fn typed_entries_are_found_again_after_reopening() {
    each_engine(|env, options| {
        let db = open(env);
        let table = db.create_typed::<(String, i64), f64>("t", &options).unwrap();
        table.put(&("a".to_owned(), -1), &0.5).unwrap();
        let mut batch = db.batch();
        table.put_in(&mut batch, &("a".to_owned(), 7), &f64::NEG_INFINITY);
        table.delete_in(&mut batch, &("a".to_owned(), -1));
        batch.commit().unwrap();
        db.close().unwrap();
        let db = open(env);
        let table = typed::<(String, i64), f64>(&db).unwrap();
        let (first, second) = (("a".to_owned(), -1), ("a".to_owned(), 7));
        assert_eq!(table.get(&first).unwrap(), None);
        assert_eq!(table.multi_get(&[first, second]).unwrap(), [None, Some(f64::NEG_INFINITY)]);
        assert_eq!(table.table().types().unwrap().to_string(), "string,i64 -> f64");
        assert_eq!(db.tables()[0].types, table.table().types());
        assert!(db.check().unwrap().is_sound());
    });
}

#[test]
fn types_that_differ_from_the_catalog_are_refused_and_both_are_named() {
    each_engine(|env, options| {
        let db = open(env);
        db.create_typed::<u64, String>("t", &options).unwrap().put(&1, "one").unwrap();
        let expected = "table t has the types u64 -> string, not i64 -> string";
        assert_eq!(mismatch(typed::<i64, String>(&db)), expected);
        mismatch(typed::<u64, Vec<u8>>(&db));
        mismatch(typed::<(u64, u64), String>(&db));
        mismatch(db.open_or_create_typed::<u32, String>("t", &options));
        assert_eq!(typed::<u64, String>(&db).unwrap().get(&1).unwrap().unwrap(), "one");
        let missing = db.typed::<u64, String>("u").unwrap_err();
        assert!(matches!(missing, Error::NoSuchTable { .. }), "{missing}");
    });
}

#[test]
fn a_table_without_types_gets_them_while_it_is_empty() {
    each_engine(|env, options| {
        let db = open(env);
        let plain = db.create_table("t", &options).unwrap();
        plain.put("x", "gone again").unwrap();
        plain.delete("x").unwrap();
        typed::<Vec<u8>, Vec<u8>>(&db).unwrap();
        assert_eq!(plain.types(), None);
        typed::<u32, u32>(&db).unwrap().put(&1, &2).unwrap();
        db.close().unwrap();
        let db = open(env);
        assert_eq!(db.table("t").unwrap().types().unwrap().to_string(), "u32 -> u32");
        let full = db.create_table("full", &options).unwrap();
        full.put("x", "y").unwrap();
        let message = mismatch(db.typed::<u32, u32>("full"));
        assert!(message.contains("blob -> blob (it was made without)"), "{message}");
        assert_eq!(full.types(), None);
        assert!(full.put("any", "thing").is_ok());
    });
}

#[test]
fn bytes_of_other_types_are_refused_by_every_write_and_change_nothing() {
    each_engine(|env, options| {
        let db = open(env);
        let types = TableTypes::new([TypeTag::U32], TypeTag::String).unwrap();
        let table = db.create_table("t", options.types(types)).unwrap();
        let key = 7_u32.to_be_bytes();
        table.put(key, "text").unwrap();
        mismatch(table.put("not four", "text"));
        mismatch(table.put(key, [0xff]));
        mismatch(table.put_with(key, "5", PutOptions::new().type_tag(TypeTag::U32)));
        table.put_with(key, "text", PutOptions::new().type_tag(TypeTag::String)).unwrap();
        mismatch(table.delete("not four"));
        for bad in [(b"no".as_slice(), b"text".as_slice()), (&key, &[0xff])] {
            let mut batch = db.batch();
            batch.put(&table, 8_u32.to_be_bytes(), "fine").put(&table, bad.0, bad.1);
            mismatch(batch.commit());
        }
        assert!(!table.contains(8_u32.to_be_bytes()).unwrap());
        assert_eq!(table.get(key).unwrap().unwrap(), "text");
    });
}

#[test]
fn a_crash_keeps_the_types_with_the_table() {
    for (seed, kind) in (10..).zip(EngineKind::AVAILABLE) {
        let env = SimEnv::new(seed);
        let db = open(&env);
        db.create_table("t", TableOptions::new(*kind)).unwrap();
        typed::<u64, u64>(&db).unwrap();
        let crashed = env.crash(Policy::AllLost);
        let db = open(&crashed);
        assert_eq!(db.table("t").unwrap().types().unwrap().to_string(), "u64 -> u64");
    }
}

#[test]
fn a_database_opened_for_reading_fixes_no_types() {
    let env = SimEnv::new(20);
    let db = open(&env);
    db.create_table("t", TableOptions::new(EngineKind::Naive)).unwrap();
    db.close().unwrap();
    let reader = Options::new().read_only(true).open_in(Arc::new(env.clone()), "db").unwrap();
    assert!(matches!(reader.typed::<u32, u32>("t"), Err(Error::ReadOnly)));
    assert!(reader.typed::<Vec<u8>, Vec<u8>>("t").is_ok());
}

#[test]
fn ranges_of_unordered_engines_are_refused() {
    let env = SimEnv::new(21);
    let db = open(&env);
    let table = db.create_typed::<u32, u32>("t", TableOptions::new(EngineKind::Naive)).unwrap();
    assert!(matches!(table.range(1..2), Err(Error::Unordered { .. })));
    assert!(matches!(table.delete_range(..), Err(Error::Unordered { .. })));
}
