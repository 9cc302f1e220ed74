//! The stores of this crate: the engines of Quintet and the reference stores.

use quintet::EngineKind;

use super::{
    Engine, Family, Floor, Hashbrown, Null, Setting, Store, StoreInfo, StoreOptions, Stores,
};
use crate::failure::{Failure, Outcome};

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
