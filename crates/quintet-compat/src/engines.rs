//! The engine of a new table, chosen by the environment variable `QUINTET_ENGINE`.
//!
//! Its value is an engine (`btree`), or a list of `NAME=ENGINE` for column families, with at most
//! one engine without a name for all others: `index=btree,slm`. An existing table keeps its engine.

use quintet::{EngineKind, Options, TableOptions};

use crate::status::Status;

/// The environment variable.
pub const VARIABLE: &str = "QUINTET_ENGINE";

/// The merge operator of every table. The library with RocksDB's interface registers it and finds
/// the program's operator by the operand. Without it, a table takes all operations but merges.
pub const MERGE_OPERATOR: &str = "rocksdb";

/// Returns options of a database whose tables take all operations but merges.
pub fn without_merges(options: Options) -> Options {
    options.merge_operator(MERGE_OPERATOR, |_, _, _| Err("there are no merges".to_owned()))
}

/// What a program asks of a table that is created. `None`: the default of the engine.
#[derive(Clone, Debug, Default)]
pub struct TableRequest {
    /// Size of a memtable in bytes.
    pub memtable_bytes: Option<u64>,
    /// Size of a block in bytes.
    pub block_bytes: Option<u64>,
    /// Whether blocks are compressed, and how.
    pub compression: Option<&'static str>,
    /// The engine, instead of the variable.
    pub engine: Option<String>,
}

/// Returns the engine of the table of a column family.
pub fn engine_of(family: &str, choice: &str) -> Result<EngineKind, Status> {
    let mut engine = None;
    let mut of_all = None;
    for part in choice.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some((name, kind)) if name == family => engine = Some(kind),
            Some(_) => {}
            None => of_all = Some(part),
        }
    }
    let name = engine.or(of_all).unwrap_or("slm");
    let kind: EngineKind = name.parse()?;
    if is_ordered(kind) {
        return Ok(kind);
    }
    Err(Status::invalid(format!("{VARIABLE}: {name} keeps no key order; use slm, btree or tph")))
}

/// Returns whether an engine keeps the order of keys.
pub fn is_ordered(kind: EngineKind) -> bool {
    matches!(kind, EngineKind::Slm | EngineKind::BTree | EngineKind::Tph)
}

/// Returns the options of the table of a column family.
pub fn table_options(family: &str, request: &TableRequest) -> Result<TableOptions, Status> {
    let variable = std::env::var(VARIABLE).unwrap_or_default();
    let choice = request.engine.as_deref().unwrap_or(&variable);
    let kind = engine_of(family, choice)?;
    Ok(set_options(TableOptions::new(kind).merge(MERGE_OPERATOR), kind, request))
}

/// Sets the options that an engine has.
pub fn set_options(
    mut options: TableOptions,
    kind: EngineKind,
    request: &TableRequest,
) -> TableOptions {
    if kind != EngineKind::BTree {
        if let Some(bytes) = request.memtable_bytes {
            options = options.set("memtable_bytes", bytes.clamp(65_536, 1 << 32).to_string());
        }
        if let Some(bytes) = request.block_bytes {
            options = options.set("block_bytes", bytes.clamp(512, 1 << 20).to_string());
        }
        if let Some(name) = request.compression {
            options = options.set("compression", name);
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_chosen_by_family() {
        let choice = "index=btree, tph";
        assert_eq!(engine_of("index", choice).expect("an engine"), EngineKind::BTree);
        assert_eq!(engine_of("default", choice).expect("an engine"), EngineKind::Tph);
        assert_eq!(engine_of("default", "index=btree").expect("an engine"), EngineKind::Slm);
        assert_eq!(engine_of("default", "").expect("an engine"), EngineKind::Slm);
        for choice in ["hashlog", "trie", "naive", "rocksdb", "default=", "default=trie"] {
            assert!(engine_of("default", choice).is_err(), "{choice}");
        }
    }
}
