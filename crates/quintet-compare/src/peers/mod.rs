//! Other projects' stores, each behind the trait of `quintet-bench`.
//!
//! What: a [`Peer`] for each store and variant, with the settings that it is run with and the
//! reason for each. The rule for settings: what the store's own guide would have an owner of this
//! machine and this workload do, and in doubt what makes it faster; nothing that weakens what a
//! returned write promises below what ours does, unless the store has no such mode, and then it is
//! said ([`Peer::promise`]).
//!
//! Memory: each store gets the same budget for all that it caches ([`crate::result::Memory`]).
//!
//! Layers: the peers know `quintet-bench`'s traits and nothing of runs and reports.

#[cfg(feature = "fjall")]
mod fjall;
mod level;
mod library;
mod lsm;
mod mapped;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "sled")]
mod sled;

use quintet_bench::{
    failure::{Failure, Outcome},
    store::{Durability, Store, StoreOptions},
};

use crate::result::{Memory, Setting};

/// How a peer is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Directory, durability, and how much will be written.
    pub options: &'a StoreOptions,
    /// What memory the run has.
    pub memory: Memory,
}

impl Opening<'_> {
    /// Memory for everything that the store caches.
    pub fn budget(&self) -> u64 {
        self.memory.budget_bytes()
    }

    /// Whether reads shall bypass the page cache.
    pub fn is_direct(&self) -> bool {
        matches!(self.memory, Memory::Direct { .. })
    }

    /// Whether a returned write has to survive the loss of power.
    pub fn is_synced(&self) -> bool {
        self.options.durability == Durability::Sync
    }
}

/// One peer, or one variant of it.
pub trait Peer: Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;
    /// Version of the library.
    fn version(&self) -> String;
    /// Why it cannot be used here, if it cannot.
    fn is_there(&self) -> Outcome;
    /// Whether it is part of runs that name no stores. Variants for one's own look are not.
    fn is_default(&self) -> bool {
        true
    }
    /// Whether it takes options of its own from the command line, for one's own look at another
    /// setting. [`Peer::open`] reads them.
    fn takes_options(&self) -> bool {
        false
    }
    /// What a returned write promises where that is not what ours does; empty where it is.
    fn promise(&self, durability: Durability) -> &'static str;
    /// The settings of this opening, each with the reason.
    fn settings(&self, opening: &Opening<'_>) -> Vec<Setting>;
    /// Opens it.
    fn open(&self, opening: &Opening<'_>) -> Outcome<Box<dyn Store>>;
}

/// All peers, those that are not there included.
pub fn all() -> Vec<&'static dyn Peer> {
    vec![
        &lsm::Kind::Rocks,
        &lsm::Kind::Level,
        &mapped::Kind { flavour: mapped::Flavour::Lmdb, reads_ahead: false },
        &mapped::Kind { flavour: mapped::Flavour::Lmdb, reads_ahead: true },
        &mapped::Kind { flavour: mapped::Flavour::Mdbx, reads_ahead: false },
        #[cfg(feature = "redb")]
        &redb::Redb,
        #[cfg(feature = "fjall")]
        &fjall::Fjall,
        #[cfg(feature = "sled")]
        &sled::Sled,
    ]
}

/// A setting with its reason.
#[expect(clippy::needless_pass_by_value, reason = "numbers and words, written by hand")]
fn setting(name: &str, value: impl ToString, reason: &str) -> Setting {
    Setting { name: name.to_owned(), value: value.to_string(), reason: reason.to_owned() }
}

/// The failure of a store's own error.
fn failed(name: &str, error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("{name}: {error}"))
}

/// A size for an interface that wants a `usize`. Lossless: targets are 64-bit.
fn size(bytes: u64) -> usize {
    quintet_bench::numbers::to_usize(bytes)
}

/// Changes settings to what the command line asks for, by their names. An unknown name and a value
/// that is no count are usage failures.
fn change(
    store: &str,
    asked: &[(String, String)],
    known: &mut [(&'static str, &mut u64)],
) -> Outcome {
    for (name, value) in asked {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        let Some((_, setting)) = known.iter_mut().find(|(known, _)| known == name) else {
            let names = names.join(", ");
            return Err(Failure::Usage(format!("{store} has no option {name:?}, but {names}")));
        };
        **setting = quintet_bench::cli::count(value)
            .map_err(|why| Failure::Usage(format!("{store}: {name}={value}: {why}")))?;
    }
    Ok(())
}

/// A key that no workload uses, for writes that only bring a sync about.
const UNUSED_KEY: &[u8] = b"none";

#[cfg(test)]
mod tests;
