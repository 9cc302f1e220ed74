//! The trait [`Peer`], and what its implementations share.

use quintet_bench::{
    args::count,
    failure::{Failure, Outcome},
    numbers::to_usize,
    store::{Durability, Setting, Store, StoreFeature, StoreOptions},
};

/// Memory budget if the run sets none.
const BUDGET_BYTES: u64 = 1 << 30;
/// A key that no workload uses, for writes whose only purpose is a sync.
pub(super) const UNUSED_KEY: &[u8] = b"none";

/// A store of another project, or a variant of it.
pub trait Peer: Sync {
    /// Returns the name on the command line.
    fn name(&self) -> &'static str;
    /// Returns the version of the library.
    fn version(&self) -> String;
    /// Fails if the store cannot run on this machine.
    fn check_available(&self) -> Outcome;
    /// Returns whether a run without names of stores includes this one.
    fn is_default(&self) -> bool {
        true
    }
    /// Returns whether this variant of a store differs from another one by its transactions only. A
    /// run without names of stores includes it for workloads of transactions.
    fn is_only_for_transactions(&self) -> bool {
        false
    }
    /// Returns whether [`Peer::open`] reads options of the command line.
    fn takes_options(&self) -> bool {
        false
    }
    /// Describes how the guarantee of a returned write differs from Quintet's; empty if it does
    /// not.
    fn promise(&self, durability: Durability) -> &'static str;
    /// Returns the settings, each with its reason.
    fn settings(&self, options: &StoreOptions) -> Vec<Setting>;
    /// Returns whether the store has a feature.
    fn has_feature(&self, _feature: StoreFeature) -> bool {
        false
    }
    /// Opens the store.
    fn open(&self, options: &StoreOptions) -> Outcome<Box<dyn Store>>;
}

/// Returns the memory budget for everything that the store caches.
pub(super) fn budget(options: &StoreOptions) -> u64 {
    options.memory_budget().unwrap_or(BUDGET_BYTES)
}

/// Returns a setting with its reason.
#[expect(clippy::needless_pass_by_value, reason = "numbers and words, written by hand")]
pub(super) fn setting(name: &str, value: impl ToString, reason: &str) -> Setting {
    Setting { name: name.to_owned(), value: value.to_string(), reason: reason.to_owned() }
}

/// Returns the failure for an error of a store.
pub(super) fn failed(name: &str, error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("{name}: {error}"))
}

/// Converts a size for an interface that takes a `usize`. Lossless: targets are 64-bit.
pub(super) fn size(bytes: u64) -> usize {
    to_usize(bytes)
}

/// Overrides settings by the options of the command line. An unknown name and a value that is not a
/// count are usage failures.
pub(super) fn override_settings(
    store: &str,
    options: &[(String, String)],
    known: &mut [(&'static str, &mut u64)],
) -> Outcome {
    for (name, value) in options {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        let Some((_, setting)) = known.iter_mut().find(|(known, _)| known == name) else {
            let names = names.join(", ");
            return Err(Failure::Usage(format!("{store} has no option {name:?}, but {names}")));
        };
        **setting = count(value)
            .map_err(|why| Failure::Usage(format!("{store}: {name}={value}: {why}")))?;
    }
    Ok(())
}
