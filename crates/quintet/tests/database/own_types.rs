//! Values of applications' own types in typed tables: JSON and postcard.

use std::{collections::BTreeMap, sync::Arc};

use quintet::{
    EngineKind, Error, Json, Options, Postcard, TableOptions, testing::disk::sim::SimEnv,
};
use serde::{Deserialize, Serialize};

/// Cannot be encoded: the keys of a JSON object are text.
type Pairs = Json<BTreeMap<(u32, u32), u32>>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct User {
    name: String,
    age: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    name: String,
    balance: i64,
}

fn user() -> User {
    User { name: "Ada".to_owned(), age: 36 }
}

#[test]
fn values_of_own_types_round_trip() {
    let env = Arc::new(SimEnv::new(1));
    let db = Options::new().memory_budget(64 << 20).open_in(env, "db").unwrap();
    let options = || TableOptions::new(EngineKind::BTree);
    let json = db.create_typed::<u32, Json<User>>("json", options()).unwrap();
    json.put(&1, &Json(user())).unwrap();
    assert_eq!(json.get(&1).unwrap(), Some(Json(user())));
    let text = json.table().iter().next().unwrap().unwrap().1;
    assert_eq!(text, br#"{"name":"Ada","age":36}"#);
    let short = db.create_typed::<u32, Postcard<User>>("short", options()).unwrap();
    let mut batch = db.batch();
    short.put_in(&mut batch, &1, &Postcard(user()));
    batch.commit().unwrap();
    short.update(&1, |old| old.map(|Postcard(old)| Postcard(User { age: 37, ..old }))).unwrap();
    assert_eq!(short.get(&1).unwrap().unwrap().0.age, 37);
}

#[test]
fn a_value_of_another_type_is_told_with_the_reason() {
    let env = Arc::new(SimEnv::new(1));
    let db = Options::new().memory_budget(64 << 20).open_in(env, "db").unwrap();
    let options = || TableOptions::new(EngineKind::HashLog);
    let json = db.create_typed::<u32, Json<User>>("json", options()).unwrap();
    json.put(&1, &Json(user())).unwrap();
    let other = db.typed::<u32, Json<Account>>("json").unwrap();
    let refused = other.get(&1).unwrap_err().to_string();
    assert!(refused.contains("Account"), "{refused}");
    assert!(refused.contains("missing field `balance`"), "{refused}");
    let short = db.create_typed::<u32, Postcard<(u32, u32)>>("short", options()).unwrap();
    short.put(&1, &Postcard((1, 2))).unwrap();
    let other = db.typed::<u32, Postcard<u32>>("short").unwrap();
    let refused = other.get(&1).unwrap_err().to_string();
    assert!(refused.contains("1 bytes are left"), "{refused}");
}

#[test]
fn a_value_that_cannot_be_encoded_is_refused_and_nothing_is_written() {
    let env = Arc::new(SimEnv::new(1));
    let db = Options::new().memory_budget(64 << 20).open_in(env, "db").unwrap();
    let table = TableOptions::new(EngineKind::Trie);
    let table = db.create_typed::<u32, Pairs>("t", table).unwrap();
    let pairs: Pairs = Json(BTreeMap::from([((1, 2), 3)]));
    let refused = table.put(&1, &pairs).unwrap_err().to_string();
    assert!(refused.contains("key must be a string"), "{refused}");
    let mut batch = db.batch();
    table.put_in(&mut batch, &1, &pairs);
    assert!(matches!(batch.commit(), Err(Error::NotEncodable { .. })));
    let made = table.get_or_insert_with(&1, || Json(BTreeMap::from([((1, 2), 3)])));
    assert!(matches!(made, Err(Error::NotEncodable { .. })));
    assert!(table.table().is_empty().unwrap());
}
