//! The closed set of engines, and the dispatch of calls to them.

pub mod btree;
pub mod hashlog;
pub mod naive;
pub mod slm;
pub mod tph;
pub mod trie;

use crate::{
    Result,
    contract::{
        Context, Cursor, Due, EachValue, Engine, EngineKind, EngineStats, Entry, EntryIter,
        KeyRange, LoadStart, Op, Presence, TableOptions, Value, Visit,
    },
    util::{codec::Lsn, report::Report},
};

/// The engines that this build has. Hot calls are dispatched here without a virtual call.
#[derive(Debug)]
pub enum AnyEngine {
    /// See [`naive`].
    Naive(Box<naive::Naive>),
    /// See [`hashlog`].
    HashLog(Box<hashlog::HashLog>),
    /// See [`btree`].
    BTree(Box<btree::BTree>),
    /// See [`trie`].
    Trie(Box<trie::Trie>),
    /// See [`slm`].
    Slm(Box<slm::Slm>),
    /// See [`tph`].
    Tph(Box<tph::Tph>),
}

impl AnyEngine {
    /// Loads (or, in an empty directory, starts) a table and says to which LSN its files are
    /// complete.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        match options.kind() {
            EngineKind::Naive => naive::Naive::open(options, context)
                .map(|(engine, lsn)| (Self::Naive(Box::new(engine)), lsn)),
            EngineKind::HashLog => hashlog::HashLog::open(options, context)
                .map(|(engine, lsn)| (Self::HashLog(Box::new(engine)), lsn)),
            EngineKind::BTree => btree::BTree::open(options, context)
                .map(|(engine, lsn)| (Self::BTree(Box::new(engine)), lsn)),
            EngineKind::Trie => trie::Trie::open(options, context)
                .map(|(engine, lsn)| (Self::Trie(Box::new(engine)), lsn)),
            EngineKind::Tph => tph::Tph::open(options, context)
                .map(|(engine, lsn)| (Self::Tph(Box::new(engine)), lsn)),
            EngineKind::Slm => slm::Slm::open(options, context)
                .map(|(engine, lsn)| (Self::Slm(Box::new(engine)), lsn)),
        }
    }

    /// About how many keys a range holds; `None` for an engine without order.
    pub fn estimate(&self, range: &KeyRange) -> Result<Option<u64>> {
        match self {
            Self::BTree(engine) => engine.estimate(range).map(Some),
            _ => Ok(None),
        }
    }

    /// Shows `each` the entries of a range, in key order, until it breaks off: as stored, without
    /// an allocation for each where the engine can. `false`: an engine without order.
    pub fn visit(&self, range: KeyRange, each: Visit<'_>) -> Result<bool> {
        match self {
            Self::BTree(engine) => return engine.visit(range, each).map(|()| true),
            Self::Slm(engine) => return engine.visit(range, each).map(|()| true),
            Self::Tph(engine) => return engine.visit(range, each).map(|()| true),
            _ => {}
        }
        let Some(entries) = self.engine().range(range)? else { return Ok(false) };
        for entry in entries {
            let entry = entry?;
            if each(&entry.key, &entry.value)?.is_break() {
                break;
            }
        }
        Ok(true)
    }

    /// Whether [`Engine::load`] has something to offer.
    pub(crate) fn loads_sorted(&self) -> bool {
        matches!(self, Self::BTree(_))
    }

    /// Whether each entry is an allocation of its own.
    pub(crate) fn is_on_heap(&self) -> bool {
        matches!(self, Self::Naive(_))
    }

    fn engine(&self) -> &dyn Engine {
        match self {
            Self::Naive(engine) => &**engine,
            Self::HashLog(engine) => &**engine,
            Self::BTree(engine) => &**engine,
            Self::Trie(engine) => &**engine,
            Self::Slm(engine) => &**engine,
            Self::Tph(engine) => &**engine,
        }
    }
}

impl Engine for AnyEngine {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        match self {
            Self::Naive(engine) => engine.get(key),
            Self::HashLog(engine) => engine.get(key),
            Self::BTree(engine) => engine.get(key),
            Self::Trie(engine) => engine.get(key),
            Self::Slm(engine) => engine.get(key),
            Self::Tph(engine) => engine.get(key),
        }
    }

    #[inline]
    fn get_split(&self, key: &[u8], out: &mut Vec<u8>) -> Result<Option<u8>> {
        match self {
            Self::HashLog(engine) => engine.get_split(key, out),
            Self::Trie(engine) => engine.get_split(key, out),
            Self::BTree(engine) => engine.get_split(key, out),
            Self::Slm(engine) => engine.get_split(key, out),
            Self::Tph(engine) => engine.get_split(key, out),
            Self::Naive(_) => self.engine().get_split(key, out),
        }
    }

    fn presence(&self, key: &[u8]) -> Result<Presence> {
        self.engine().presence(key)
    }

    fn multi_get(&self, keys: &[&[u8]], out: &mut Vec<Option<Value>>) -> Result<()> {
        self.engine().multi_get(keys, out)
    }

    fn multi_get_each(&self, keys: &[&[u8]], each: &mut EachValue<'_>) -> Result<()> {
        self.engine().multi_get_each(keys, each)
    }

    #[inline]
    fn admit(&self, op: &Op<'_>) -> Result<()> {
        match self {
            Self::Naive(engine) => engine.admit(op),
            Self::HashLog(engine) => engine.admit(op),
            Self::BTree(engine) => engine.admit(op),
            Self::Trie(engine) => engine.admit(op),
            Self::Slm(engine) => engine.admit(op),
            Self::Tph(engine) => engine.admit(op),
        }
    }

    fn retract(&self, op: &Op<'_>) {
        self.engine().retract(op);
    }

    fn expect(&self, key: &[u8]) {
        self.engine().expect(key);
    }

    fn expect_many(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        self.engine().expect_many(keys);
    }

    #[inline]
    fn approach(&self, hash: u64, steps: u32) {
        if let Self::Trie(engine) = self {
            engine.approach(hash, steps);
        }
    }

    #[inline]
    fn apply(&self, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        match self {
            Self::Naive(engine) => engine.apply(lsn, op),
            Self::HashLog(engine) => engine.apply(lsn, op),
            Self::BTree(engine) => engine.apply(lsn, op),
            Self::Trie(engine) => engine.apply(lsn, op),
            Self::Slm(engine) => engine.apply(lsn, op),
            Self::Tph(engine) => engine.apply(lsn, op),
        }
    }

    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        match self {
            Self::Naive(engine) => engine.replay(ops),
            Self::HashLog(engine) => engine.replay(ops),
            Self::BTree(engine) => engine.replay(ops),
            Self::Trie(engine) => engine.replay(ops),
            Self::Slm(engine) => engine.replay(ops),
            Self::Tph(engine) => engine.replay(ops),
        }
    }

    fn load(&self) -> Result<Option<LoadStart>> {
        self.engine().load()
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        self.engine().scan(from, limit)
    }

    fn range(&self, range: KeyRange) -> Result<Option<EntryIter>> {
        self.engine().range(range)
    }

    fn persist(&self, up_to: Lsn) -> Result<Lsn> {
        self.engine().persist(up_to)
    }

    fn compact(&self) -> Result<()> {
        self.engine().compact()
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        self.engine().check(report)
    }

    fn stats(&self) -> EngineStats {
        self.engine().stats()
    }

    fn due(&self) -> Due {
        self.engine().due()
    }
}
