//! The `quintet` command as its users run it: the real binary on real files.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod address_space;
mod changes;
mod commands;
mod common;
mod hashlog;
mod hierarchy;
mod import_export;
mod kill;
mod listing;
mod pool;
mod redis_dump;
mod shell;
mod store_import;
mod trie;
mod typed;
