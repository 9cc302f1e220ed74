//! What all fuzz targets share: the harness of the library's own corpus test, and a memory bound.

#![deny(unsafe_code)]

#[path = "../../crates/quintet/tests/fuzz_corpus/harness/mod.rs"]
pub mod harness;
#[path = "../../crates/quintet-cli/tests/fuzz_corpus/harness.rs"]
pub mod imports;
mod memory;

/// Runs the target `name` on `input` and holds it to its memory bound.
///
/// # Panics
///
/// If the target objects.
pub fn run(name: &str, input: &[u8]) {
    memory::bounded(input, || harness::run(name, input));
}

/// Runs the import parsers on `input` and holds them to the same bound.
///
/// # Panics
///
/// If a parser breaks its promise.
pub fn run_import(input: &[u8]) {
    memory::bounded(input, || imports::import(input));
}
