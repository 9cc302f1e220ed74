//! All stores by name: our engines, the references, the peers.

use std::sync::LazyLock;

use quintet::EngineKind;
use quintet_bench::{
    failure::{Failure, Outcome},
    store::{Durability, Own, Store, StoreOptions, Stores},
};

use crate::{
    peers::{self, Opening, Peer},
    result::{Family, Memory, Setting, StoreInfo},
};

static PEERS: LazyLock<Vec<&'static dyn Peer>> = LazyLock::new(peers::all);

/// All stores, with the memory of a run.
#[derive(Clone, Copy, Debug)]
pub struct Set {
    /// What memory the stores have.
    pub memory: Memory,
}

/// The peer of this name.
pub fn peer(name: &str) -> Option<&'static dyn Peer> {
    PEERS.iter().copied().find(|peer| peer.name() == name)
}

/// The peers, those that are not there included.
pub fn all_peers() -> &'static [&'static dyn Peer] {
    &PEERS
}

/// Our engine of this name.
pub fn engine(name: &str) -> Option<EngineKind> {
    EngineKind::AVAILABLE.iter().copied().find(|kind| kind.name() == name)
}

/// Whether this is the name of an engine that a paper describes and this build does not have.
pub fn is_future_engine(name: &str) -> bool {
    engine(name).is_none() && ["trie", "btree", "slm", "tph", "hashlog", "naive"].contains(&name)
}

/// The names of runs that name no stores: ours, the references, and the peers that are there.
pub fn default_names() -> Vec<&'static str> {
    let peers = PEERS.iter().filter(|peer| peer.is_default() && peer.is_there().is_ok());
    Own.names().into_iter().chain(peers.map(|peer| peer.name())).collect()
}

impl Stores for Set {
    fn names(&self) -> Vec<&'static str> {
        Own.names().into_iter().chain(PEERS.iter().map(|peer| peer.name())).collect()
    }

    fn is_ordered(&self, name: &str) -> bool {
        peer(name).is_some() || Own.is_ordered(name)
    }

    fn is_persistent(&self, name: &str) -> bool {
        peer(name).is_some() || Own.is_persistent(name)
    }

    fn open(&self, name: &str, options: &StoreOptions) -> Outcome<Box<dyn Store>> {
        self.check(name)?;
        let Some(peer) = peer(name) else { return Own.open(name, options) };
        if let Some((option, _)) = options.settings.first()
            && !peer.takes_options()
        {
            return Err(Failure::Usage(format!(
                "{name} has no option {option:?}: its settings are fixed, see `stores`"
            )));
        }
        peer.open(&Opening { options, memory: self.memory })
    }
}

impl Set {
    /// A store as it will be run, for results.
    pub fn describe(&self, name: &str, options: &StoreOptions) -> StoreInfo {
        let (is_ordered, is_persistent) = (self.is_ordered(name), self.is_persistent(name));
        let name = name.to_owned();
        let Some(peer) = peer(&name) else {
            let family = if is_persistent { Family::Ours } else { Family::Reference };
            let version = env!("CARGO_PKG_VERSION").to_owned();
            let (promise, settings) = (String::new(), own_settings(family, options));
            return StoreInfo {
                name,
                version,
                family,
                is_ordered,
                is_persistent,
                promise,
                settings,
            };
        };
        let opening = Opening { options, memory: self.memory };
        StoreInfo {
            version: peer.version(),
            family: Family::Peer,
            promise: peer.promise(options.durability).to_owned(),
            settings: peer.settings(&opening).into_iter().chain(asked_for(options)).collect(),
            name,
            is_ordered,
            is_persistent,
        }
    }
}

/// Our own settings: the budget, and what the command line or the preset asked for.
fn own_settings(family: Family, options: &StoreOptions) -> Vec<Setting> {
    if family == Family::Reference {
        return Vec::new();
    }
    let durability = match options.durability {
        Durability::Buffered => "buffered",
        Durability::Sync => "sync",
    };
    let mut settings = vec![Setting {
        name: "durability".to_owned(),
        value: durability.to_owned(),
        reason: "as asked for; buffered is our default, synced in the background".to_owned(),
    }];
    settings.extend(options.memory_budget.map(|bytes| Setting {
        name: "memory_budget".to_owned(),
        value: bytes.to_string(),
        reason: "the budget that every store gets".to_owned(),
    }));
    settings.extend(asked_for(options));
    settings
}

fn asked_for(options: &StoreOptions) -> impl Iterator<Item = Setting> {
    options.settings.iter().map(|(name, value)| Setting {
        name: name.clone(),
        value: value.clone(),
        reason: "asked for by the command line or the preset".to_owned(),
    })
}
