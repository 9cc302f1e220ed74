//! The closed set of engines, and the dispatch of calls to them.
//!
//! [`AnyEngine`] is an enum rather than a trait object, so that a get or a put costs a branch and
//! can be inlined. One macro makes every call: each engine is named once in it, and the compiler
//! refuses an [`Engine`] implementation that lacks a method.

pub mod btree;
pub mod hashlog;
pub mod naive;
pub mod slm;
pub mod tph;
pub mod trie;

use std::borrow::Borrow;

use crate::{
    Result,
    contract::{
        Context, Cursor, Engine, EngineKind, EngineOption, EngineStats, Entry, HashOrder, Hint,
        MaintenanceMode, MemoryUse, MemoryWait, MultiGetSink, Op, OrderedEngine, PendingWork,
        Presence, TableOptions, ValueSink, options::OptionReader,
    },
    util::{codec::Lsn, report::Report},
};

macro_rules! engines {
    ($($kind:ident: $engine:ty, $options:ty;)+) => {
        /// A table's engine.
        #[derive(Debug)]
        pub enum AnyEngine {
            $(
                #[doc = concat!("An engine of kind [`EngineKind::", stringify!($kind), "`].")]
                $kind(Box<$engine>),
            )+
        }

        impl AnyEngine {
            /// Opens a table, or creates it in an empty directory. Returns the LSN to which its
            /// files are complete.
            pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
                match options.kind() {
                    $(EngineKind::$kind => {
                        let (engine, lsn) = <$engine>::open(options, context)?;
                        Ok((Self::$kind(Box::new(engine)), lsn))
                    })+
                }
            }
        }

        /// Returns the options of an engine, the general ones first.
        pub fn engine_options(kind: EngineKind) -> &'static [EngineOption] {
            match kind {
                $(EngineKind::$kind => <$options>::OPTIONS,)+
            }
        }

        /// Calls a method on whichever engine this is.
        macro_rules! dispatch {
            ($self:ident, $one:ident => $call:expr) => {
                match $self { $(AnyEngine::$kind($one) => $call,)+ }
            };
        }
    };
}

engines! {
    Naive: naive::Naive, naive::options::NaiveOptions;
    HashLog: hashlog::HashLog, hashlog::options::HashLogOptions;
    Trie: trie::Trie, trie::options::TrieOptions;
    BTree: btree::BTree, btree::options::BTreeOptions;
    Slm: slm::Slm, slm::options::SlmOptions;
    Tph: tph::Tph, tph::options::TphOptions;
}

/// Checks the options of a new table, as
/// [`Database::create_table`](crate::Database::create_table) does. Needs no database.
///
/// Fails with [`Error::InvalidOption`](crate::Error::InvalidOption) if the engine has no option of
/// a name, an option is set under two names, or a value is not allowed. Fails with
/// [`Error::UnknownEngine`](crate::Error::UnknownEngine) if this build lacks the engine.
pub fn check_table_options(options: impl Borrow<TableOptions>) -> Result<()> {
    let options = options.borrow();
    if !EngineKind::AVAILABLE.contains(&options.kind()) {
        return Err(EngineKind::unknown(options.kind().name()));
    }
    OptionReader::new(options, engine_options(options.kind())).map(drop)
}

impl Engine for AnyEngine {
    #[inline]
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        dispatch!(self, engine => engine.get_with(key, sink))
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        dispatch!(self, engine => engine.multi_get(keys, sink))
    }

    fn exists_hint(&self, key: &[u8]) -> Result<Presence> {
        dispatch!(self, engine => engine.exists_hint(key))
    }

    #[inline]
    fn prefetch(&self, hint: Hint<'_, '_>) {
        dispatch!(self, engine => engine.prefetch(hint));
    }

    #[inline]
    fn admit(&self, op: &Op<'_>, wait: &MemoryWait) -> Result<()> {
        dispatch!(self, engine => engine.admit(op, wait))
    }

    fn admitted_bytes(&self, op: &Op<'_>) -> u64 {
        dispatch!(self, engine => engine.admitted_bytes(op))
    }

    fn cancel(&self, op: &Op<'_>) {
        dispatch!(self, engine => engine.cancel(op));
    }

    #[inline]
    fn make_room(&self, op: &Op<'_>) -> Result<()> {
        dispatch!(self, engine => engine.make_room(op))
    }

    #[inline]
    fn apply(&self, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        dispatch!(self, engine => engine.apply(lsn, op))
    }

    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        dispatch!(self, engine => engine.replay(ops))
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        dispatch!(self, engine => engine.scan(from, limit))
    }

    fn hash_order(&self) -> Option<&dyn HashOrder> {
        dispatch!(self, engine => engine.hash_order())
    }

    fn ordered(&self) -> Option<&dyn OrderedEngine> {
        dispatch!(self, engine => engine.ordered())
    }

    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn> {
        dispatch!(self, engine => engine.checkpoint(up_to))
    }

    fn note_durable(&self, up_to: Lsn) -> Option<Lsn> {
        dispatch!(self, engine => engine.note_durable(up_to))
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        dispatch!(self, engine => engine.maintain(mode))
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        dispatch!(self, engine => engine.check(report))
    }

    fn memory_use(&self) -> MemoryUse {
        dispatch!(self, engine => engine.memory_use())
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        dispatch!(self, engine => engine.reclaim(bytes))
    }

    fn stats(&self) -> EngineStats {
        dispatch!(self, engine => engine.stats())
    }

    fn pending_work(&self) -> PendingWork {
        dispatch!(self, engine => engine.pending_work())
    }
}
