//! The steps of a workload: words of a small alphabet, written and read as text so that one line
//! repeats a failure.

use std::{fmt, str::FromStr};

use quintet::testing::disk::sim::SimEnv;

use crate::random::Random;

/// First word of a workload that has its log in persistent memory.
const MEMORY: &str = "memory";
/// One in this number of workloads has its log in persistent memory.
const IN_MEMORY_ONE_IN: usize = 3;

/// One step. Keys and values follow from its place in the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A small put under a fresh key of the current table (the newest, or the last renamed).
    Put,
    /// A put whose value is larger than a block.
    PutLarge,
    /// Removes a key of the initial contents, or else an absent one.
    Delete,
    /// Overwrites a key of the initial contents.
    Overwrite,
    /// Puts and deletes in two tables, atomically.
    Batch,
    /// Makes a table, which becomes the current one.
    Create,
    /// Drops the current table.
    Drop,
    /// Gives the current table another name.
    Rename,
    /// Makes all tables complete on disk.
    Persist,
    /// A put with `Durability::Sync`.
    SyncPut,
    /// Puts until the log rotates to another segment.
    Rotate,
    /// A put that expires, time that passes, and the sweep.
    Expire,
    /// A clean close and a recovery.
    Reopen,
    /// Time passes and all background jobs run.
    Tick,
    /// A batch with `Durability::Sync`.
    SyncBatch,
    /// Drops all tables below one directory of the hierarchy.
    DropTree,
    /// Compacts the current table.
    Compact,
    /// Makes the current table complete on disk.
    PersistTable,
    /// A transaction over two tables that reads, rolls a part back and writes.
    Transaction,
    /// A transaction with `Durability::Sync`.
    SyncTransaction,
    /// An atomic update of a key of the initial contents.
    Update,
    /// A batch with two merges into one key.
    Merge,
    /// Clears the current table.
    Clear,
    /// Takes a snapshot, or checks what the one shows that was taken before, and ends it.
    Snapshot,
}

/// The words whose short sequences are all tried.
pub const ALPHABET: [Op; 16] = [
    Op::Put,
    Op::PutLarge,
    Op::Delete,
    Op::Overwrite,
    Op::Batch,
    Op::Create,
    Op::Drop,
    Op::Rename,
    Op::Persist,
    Op::SyncPut,
    Op::Rotate,
    Op::Expire,
    Op::Reopen,
    Op::Tick,
    Op::Transaction,
    Op::Snapshot,
];

const ALL: [(Op, &str); 24] = [
    (Op::Put, "put"),
    (Op::PutLarge, "put-large"),
    (Op::Delete, "delete"),
    (Op::Overwrite, "overwrite"),
    (Op::Batch, "batch"),
    (Op::Create, "create"),
    (Op::Drop, "drop"),
    (Op::Rename, "rename"),
    (Op::Persist, "persist"),
    (Op::SyncPut, "sync-put"),
    (Op::Rotate, "rotate"),
    (Op::Expire, "expire"),
    (Op::Reopen, "reopen"),
    (Op::Tick, "tick"),
    (Op::SyncBatch, "sync-batch"),
    (Op::DropTree, "drop-tree"),
    (Op::Compact, "compact"),
    (Op::PersistTable, "persist-table"),
    (Op::Transaction, "transaction"),
    (Op::SyncTransaction, "sync-transaction"),
    (Op::Update, "update"),
    (Op::Merge, "merge"),
    (Op::Snapshot, "snapshot"),
    (Op::Clear, "clear"),
];

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = ALL.iter().find(|(op, _)| op == self).map_or("?", |(_, word)| word);
        f.write_str(word)
    }
}

/// A sequence of steps, from an empty disk or from a database that has two tables with a few
/// entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Workload {
    /// Whether mapped files, those of the log, are in persistent memory.
    pub is_in_memory: bool,
    /// Whether the creation of the database is part of it.
    pub from_nothing: bool,
    /// The steps.
    pub ops: Vec<Op>,
}

impl Workload {
    /// Moves the log of one workload in [`IN_MEMORY_ONE_IN`] to persistent memory.
    /// `QUINTET_CRASH_MEMORY` chooses for all: `persistent` or `pages`.
    #[must_use]
    pub fn placed(self, index: usize) -> Self {
        let is_in_memory = match std::env::var("QUINTET_CRASH_MEMORY").as_deref() {
            Ok("persistent") => true,
            Ok("pages") => false,
            Ok(other) => panic!("QUINTET_CRASH_MEMORY is persistent or pages, not {other:?}"),
            Err(_) => self.is_in_memory || index.is_multiple_of(IN_MEMORY_ONE_IN),
        };
        Self { is_in_memory, ..self }
    }

    /// An empty disk for it.
    pub fn disk(&self, seed: u64) -> SimEnv {
        if self.is_in_memory { SimEnv::with_persistent_memory(seed) } else { SimEnv::new(seed) }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = self.ops.iter().map(Op::to_string).collect();
        if self.from_nothing {
            words.insert(0, "init".to_owned());
        }
        if self.is_in_memory {
            words.insert(0, MEMORY.to_owned());
        }
        f.write_str(&words.join(","))
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',').filter(|word| !word.is_empty()).peekable();
        let is_in_memory = words.next_if_eq(&MEMORY).is_some();
        let from_nothing = words.next_if_eq(&"init").is_some();
        let ops = words
            .map(|word| {
                let found = ALL.iter().find(|(_, name)| *name == word);
                found.map(|(op, _)| *op).ok_or_else(|| format!("no operation named {word:?}"))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { is_in_memory, from_nothing, ops })
    }
}

/// All sequences of one to three words of the alphabet, short ones first.
pub fn short_sequences() -> Vec<Workload> {
    let mut found: Vec<Vec<Op>> = Vec::new();
    let mut last: Vec<Vec<Op>> = vec![Vec::new()];
    for _ in 0..3 {
        last = last
            .iter()
            .flat_map(|ops| ALPHABET.iter().map(|op| [ops.as_slice(), &[*op]].concat()))
            .collect();
        found.extend(last.iter().cloned());
    }
    found
        .into_iter()
        .map(|ops| Workload { is_in_memory: false, from_nothing: false, ops })
        .collect()
}

/// Longer sequences, each for one mechanism.
pub const HAND_MADE: [&str; 55] = [
    // The creation of a database and of its first tables.
    "init",
    "init,create",
    "init,create,put,sync-put",
    "init,create,create,batch,reopen",
    "init,create,put,drop,create,put,reopen",
    // The log: rotation, pruning, recycled segments, large records.
    "rotate,rotate,rotate",
    "rotate,persist,rotate,persist,rotate,put",
    "rotate,tick,rotate,tick,rotate,tick,put",
    "rotate,persist,put,rotate,persist,put,reopen,put",
    "put-large,put-large,put-large,put-large,sync-put",
    "put,sync-put,put,sync-put,put",
    "put,put,put,tick,put,put,put",
    "sync-put,rotate,sync-put,rotate,sync-batch",
    "rotate,persist,rotate,persist,rotate,persist,rotate,sync-put,put",
    // Pruning while one table lags behind.
    "batch,rotate,persist-table,reopen",
    "rotate,batch,rotate,persist-table,put,reopen",
    "batch,rotate,rotate,persist-table,rotate,persist-table,put",
    // Snapshots and replay of one table among several.
    "persist-table,put,persist-table,put,persist",
    "create,put,persist-table,batch,persist-table,batch",
    "put,persist,put,persist,put,persist,put",
    "batch,persist,batch,persist-table,batch,tick,batch",
    "put-large,persist,overwrite,persist,delete,persist",
    "delete,persist,reopen,put,persist,reopen",
    // Batches across everything else.
    "batch,rotate,batch,persist,batch",
    "batch,sync-batch,batch,reopen,batch",
    "create,batch,rename,batch,drop,batch",
    "batch,create,sync-batch,drop,sync-batch",
    // Names.
    "create,create,create,rename,drop,drop",
    "create,put,create,put,drop-tree,create,put",
    "create,rename,rename,rename,reopen,rename",
    "create,put,drop,create,put,drop,create,put,reopen",
    "create,put,persist,drop,create,put,persist,reopen",
    "create,put,rename,persist,drop-tree,persist,create",
    "create,create,drop-tree,create,create,drop-tree,reopen",
    // Expiry.
    "expire,expire,expire",
    "expire,persist,expire,reopen,expire",
    "expire,compact,put,compact,tick",
    "put,overwrite,compact,delete,compact,reopen",
    "expire,rotate,expire,persist,tick",
    // Transactions, updates and merges.
    "transaction,sync-transaction,transaction,reopen,transaction",
    "transaction,rotate,persist-table,transaction,rotate,persist,transaction",
    "create,transaction,rename,transaction,drop,transaction",
    "update,update,persist,update,reopen,update",
    "merge,persist-table,merge,rotate,merge,persist,merge,reopen,merge",
    "transaction,merge,update,tick,merge,transaction,compact,reopen",
    // Snapshots beside everything that replaces what they show.
    "snapshot,overwrite,delete,rotate,persist,compact,snapshot",
    "snapshot,transaction,drop,create,put,snapshot,drop-tree,persist",
    "expire,snapshot,expire,tick,merge,rotate,persist,snapshot,reopen",
    // Clears.
    "clear,put,clear,reopen,clear,batch",
    "batch,rotate,clear,batch,persist-table,clear,drop,put",
    "snapshot,clear,transaction,rename,clear,persist,snapshot,expire,clear,tick",
    // Opening again and again.
    "reopen,reopen,reopen",
    "put,reopen,put,reopen,put,reopen",
    "tick,put,tick,reopen,tick,put,tick",
    "rotate,reopen,rotate,reopen,rotate,reopen",
];

/// A long random sequence.
pub fn random(seed: u64) -> Workload {
    let mut random = Random(seed);
    let mut next = move || usize::try_from(random.next() >> 32).unwrap();
    let length = 8 + next() % 40;
    Workload {
        is_in_memory: false,
        from_nothing: next() % 16 == 0,
        ops: (0..length).map(|_| ALL[next() % ALL.len()].0).collect(),
    }
}
