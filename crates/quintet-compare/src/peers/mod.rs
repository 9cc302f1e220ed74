//! The stores of other projects, behind the traits of `quintet-bench`.
//!
//! A [`Peer`] is a store or a variant of it, with its settings and the reason for each. Settings
//! follow the store's own guide for this machine and this workload; if the guide leaves a choice,
//! the faster setting is used. No setting weakens the guarantee of a returned write below
//! Quintet's, unless the store has no such mode. [`Peer::promise`] then describes the difference.
//!
//! Memory: each store gets the same budget for everything that it caches
//! ([`quintet_bench::store::MemoryMode`]).
//!
//! Layers: peers know the traits of `quintet-bench`, and nothing of sessions and reports.

#[cfg(feature = "fjall")]
mod fjall;
mod library;
mod lsm;
mod mapped;
mod peer;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "sled")]
mod sled;

pub use peer::Peer;

/// Returns all peers, including those that are not available on this machine.
pub fn all() -> Vec<&'static dyn Peer> {
    vec![
        &lsm::LsmLibrary::Rocks,
        &lsm::LsmLibrary::RocksOptimistic,
        &lsm::LsmLibrary::RocksPessimistic,
        &lsm::LsmLibrary::Level,
        &mapped::MappedLibrary { flavour: mapped::Flavour::Lmdb, reads_ahead: false },
        &mapped::MappedLibrary { flavour: mapped::Flavour::Lmdb, reads_ahead: true },
        &mapped::MappedLibrary { flavour: mapped::Flavour::Mdbx, reads_ahead: false },
        #[cfg(feature = "redb")]
        &redb::Redb,
        #[cfg(feature = "fjall")]
        &fjall::Fjall,
        #[cfg(feature = "sled")]
        &sled::Sled,
    ]
}

#[cfg(test)]
mod tests;
