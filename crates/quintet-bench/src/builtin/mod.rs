//! The stores of this crate: the engines of Quintet and the reference stores.

mod engine;
mod floor;
mod hashbrown;
mod null;

use quintet::EngineKind;

use crate::{
    failure::{Failure, Outcome},
    store::{Family, Setting, Store, StoreFeature, StoreInfo, StoreOptions, Stores},
};

pub use self::{engine::Engine, floor::Floor, hashbrown::Hashbrown, null::Null};

/// The engines of Quintet, `floor`, `hashbrown` and `null`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltinStores;

fn engine(name: &str) -> Option<EngineKind> {
    EngineKind::AVAILABLE.iter().copied().find(|kind| kind.name() == name)
}

impl Stores for BuiltinStores {
    fn names(&self) -> Vec<&'static str> {
        let engines = EngineKind::AVAILABLE.iter().map(EngineKind::name);
        engines.chain(["floor", "hashbrown", "null"]).collect()
    }

    fn family(&self, name: &str) -> Family {
        if engine(name).is_some() { Family::Ours } else { Family::Reference }
    }

    fn is_ordered(&self, name: &str) -> bool {
        engine(name).is_some_and(EngineKind::is_ordered)
    }

    fn is_persistent(&self, name: &str) -> bool {
        engine(name).is_some()
    }

    fn has_feature(&self, name: &str, _: StoreFeature) -> bool {
        engine(name).is_some()
    }

    fn open(&self, name: &str, options: &StoreOptions) -> Outcome<Box<dyn Store>> {
        self.check(name)?;
        if let Some(kind) = engine(name) {
            return Ok(Box::new(Engine::open(kind, options)?));
        }
        if let Some((option, _)) = options.settings.first() {
            return Err(Failure::Usage(format!("{name} has no option {option:?}; it has none")));
        }
        Ok(match name {
            "floor" => Box::new(Floor::open(options)?),
            "hashbrown" => Box::new(Hashbrown::default()),
            _ => Box::new(Null),
        })
    }

    fn describe(&self, name: &str, options: &StoreOptions) -> StoreInfo {
        let family = self.family(name);
        StoreInfo {
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            family,
            is_ordered: self.is_ordered(name),
            is_persistent: self.is_persistent(name),
            promise: String::new(),
            settings: if family == Family::Ours { engine_settings(options) } else { Vec::new() },
        }
    }
}

/// Settings of an engine of Quintet: durability, memory budget, and the requested options.
fn engine_settings(options: &StoreOptions) -> Vec<Setting> {
    let mut settings = vec![Setting {
        name: "durability".to_owned(),
        value: options.durability.to_string(),
        reason: "as requested; the default is buffered, synced in the background".to_owned(),
    }];
    settings.extend(options.memory_budget().map(|bytes| Setting {
        name: "memory_budget".to_owned(),
        value: bytes.to_string(),
        reason: "the memory budget that every store gets".to_owned(),
    }));
    settings.extend(options.requested_settings());
    settings
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::store::{
        Durability, StoreFeature, TransactionMode,
        conformance::{check_atomic_updates, check_operations, check_threads, check_transactions},
    };

    fn options(dir: &std::path::Path) -> StoreOptions {
        StoreOptions {
            dir: dir.to_path_buf(),
            durability: Durability::Buffered,
            records_max: 1000,
            bytes_written_max: 10 << 20,
            memory: None,
            settings: Vec::new(),
        }
    }

    #[test]
    fn every_store_keeps_its_promises() {
        for name in BuiltinStores.names().into_iter().filter(|name| *name != "null") {
            let dir = tempfile::tempdir().unwrap();
            let store = BuiltinStores.open(name, &options(dir.path())).unwrap();
            let store = store.as_ref();
            check_operations(store).unwrap_or_else(|failure| panic!("{name}: {failure}"));
            store.put(b"a", b"again").unwrap();
            let mut seen = BTreeMap::new();
            store.scan(&mut |key, value| drop(seen.insert(key.to_vec(), value.to_vec()))).unwrap();
            assert_eq!(seen.len(), 102, "{name}");
            assert_eq!(seen[b"a".as_slice()], b"again");
            let stats = store.stats();
            assert_eq!(stats.keys, Some(102), "{name}");
            // Of a tree with one leaf, none.
            assert!(stats.index_bytes.is_some(), "{name}");
            store.sync().unwrap();
        }
    }

    #[test]
    fn every_engine_has_transactions_and_atomic_updates() {
        for name in BuiltinStores.names() {
            if !BuiltinStores.has_feature(name, StoreFeature::Transactions) {
                assert_eq!(BuiltinStores.family(name), Family::Reference);
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            let store = BuiltinStores.open(name, &options(dir.path())).unwrap();
            for mode in
                [TransactionMode::Serializable, TransactionMode::Snapshot, TransactionMode::Locked]
            {
                for threads in [1, 4] {
                    check_transactions(store.as_ref(), mode, threads)
                        .unwrap_or_else(|failure| panic!("{name}, {mode:?}: {failure}"));
                }
            }
            check_atomic_updates(store.as_ref(), 4)
                .unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    }

    #[test]
    fn wrong_names_and_options_are_usage_failures() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path());
        let open = |name: &str, options: &StoreOptions| {
            BuiltinStores
                .open(name, options)
                .err()
                .map(|failure| (failure.code(), failure.to_string()))
        };
        let (code, message) = open("rocks", &options).unwrap();
        assert_eq!(code, 2);
        assert!(message.contains("naive") && message.contains("floor"), "{message}");
        options.settings = vec![("no_such".to_owned(), "1".to_owned())];
        for name in BuiltinStores.names() {
            let (code, message) = open(name, &options).unwrap();
            assert_eq!(code, 2, "{name}: {message}");
            assert!(message.contains("no_such"), "{message}");
        }
    }

    #[test]
    fn eight_threads_see_their_own_writes() {
        for name in ["floor", "hashbrown", "naive"] {
            let dir = tempfile::tempdir().unwrap();
            let store = BuiltinStores.open(name, &options(dir.path())).unwrap();
            check_threads(store.as_ref(), 8, 200)
                .unwrap_or_else(|failure| panic!("{name}: {failure}"));
            assert_eq!(store.stats().keys, Some(401), "{name}");
        }
    }
}
