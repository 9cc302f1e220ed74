//! All stores by name: those of `quintet-bench`, the designs of papers, and the peers.

use std::sync::LazyLock;

use quintet_bench::{
    builtin::BuiltinStores,
    failure::{Failure, Outcome},
    store::{Family, Store, StoreFeature, StoreInfo, StoreOptions, Stores},
};

use crate::{
    design::{self, DESIGNS},
    peers::{self, Peer},
};

static PEERS: LazyLock<Vec<&'static dyn Peer>> = LazyLock::new(peers::all);

/// The engines of Quintet, the reference stores, the designs of papers, and the peers.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllStores;

/// Returns the peer of this name.
pub fn peer(name: &str) -> Option<&'static dyn Peer> {
    PEERS.iter().copied().find(|peer| peer.name() == name)
}

/// Returns the stores of a run that names none: all available stores without variants. With
/// `transactions`, only those that have transactions or atomic updates.
pub fn default_names(transactions: bool) -> Vec<&'static str> {
    let has_some = |name: &str| {
        [StoreFeature::Transactions, StoreFeature::AtomicUpdate]
            .into_iter()
            .any(|feature| AllStores.has_feature(name, feature))
    };
    let peers = PEERS.iter().filter(|peer| {
        let is_own = !transactions && peer.is_only_for_transactions();
        peer.is_default() && !is_own && peer.check_available().is_ok()
    });
    let names = BuiltinStores.names().into_iter().chain(peers.map(|peer| peer.name()));
    names.filter(|name| !transactions || has_some(name)).collect()
}

impl Stores for AllStores {
    fn names(&self) -> Vec<&'static str> {
        let designs = DESIGNS.iter().map(|design| design.name);
        let peers = PEERS.iter().map(|peer| peer.name());
        BuiltinStores.names().into_iter().chain(designs).chain(peers).collect()
    }

    fn engine<'a>(&self, name: &'a str) -> &'a str {
        design::find(name).map_or(name, |design| design.engine)
    }

    fn family(&self, name: &str) -> Family {
        if peer(name).is_some() { Family::Peer } else { BuiltinStores.family(self.engine(name)) }
    }

    fn is_ordered(&self, name: &str) -> bool {
        peer(name).is_some() || BuiltinStores.is_ordered(self.engine(name))
    }

    fn is_persistent(&self, name: &str) -> bool {
        peer(name).is_some() || BuiltinStores.is_persistent(self.engine(name))
    }

    fn has_feature(&self, name: &str, feature: StoreFeature) -> bool {
        match peer(name) {
            Some(peer) => peer.has_feature(feature),
            None => BuiltinStores.has_feature(self.engine(name), feature),
        }
    }

    fn open(&self, name: &str, options: &StoreOptions) -> Outcome<Box<dyn Store>> {
        self.check(name)?;
        if let Some(design) = design::find(name) {
            let settings = design.settings(&options.settings);
            return BuiltinStores
                .open(design.engine, &StoreOptions { settings, ..options.clone() });
        }
        let Some(peer) = peer(name) else { return BuiltinStores.open(name, options) };
        if let Some((option, _)) = options.settings.first()
            && !peer.takes_options()
        {
            return Err(Failure::Usage(format!(
                "{name} has no option {option:?}: its settings are fixed, see `stores`"
            )));
        }
        peer.open(options)
    }

    fn describe(&self, name: &str, options: &StoreOptions) -> StoreInfo {
        if let Some(design) = design::find(name) {
            let settings = design.settings(&options.settings);
            let options = StoreOptions { settings, ..options.clone() };
            let described = BuiltinStores.describe(design.engine, &options);
            return StoreInfo { name: name.to_owned(), ..described };
        }
        let Some(peer) = peer(name) else { return BuiltinStores.describe(name, options) };
        let settings = peer.settings(options).into_iter();
        StoreInfo {
            name: name.to_owned(),
            version: peer.version(),
            family: Family::Peer,
            is_ordered: self.is_ordered(name),
            is_persistent: self.is_persistent(name),
            promise: peer.promise(options.durability).to_owned(),
            settings: settings.chain(options.requested_settings()).collect(),
        }
    }

    fn check_available(&self, name: &str) -> Outcome {
        self.check(name)?;
        peer(name).map_or(Ok(()), Peer::check_available)
    }
}
