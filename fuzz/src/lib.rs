//! Shared by all fuzz targets: the harness of the corpus tests of the library, and a memory bound.

#![deny(unsafe_code)]

#[path = "../../crates/quintet/tests/fuzz_corpus/harness/mod.rs"]
pub mod harness;
#[path = "../../crates/quintet-cli/tests/fuzz_corpus/harness.rs"]
pub mod imports;
mod memory;

/// Runs the target `name` on `input` within its memory bound.
///
/// # Panics
///
/// If the target finds a defect, or exceeds the bound.
pub fn run(name: &str, input: &[u8]) {
    memory::bounded(input, || harness::run(name, input));
}

/// Runs the import parsers on `input` within the same bound.
///
/// # Panics
///
/// If a parser violates an invariant, or exceeds the bound.
pub fn run_import(input: &[u8]) {
    memory::bounded(input, || imports::import(input));
}

/// Runs a parser of the server on `input` within the same bound.
///
/// # Panics
///
/// If the parser breaks a promise, or exceeds the bound.
pub fn run_server(parser: fn(&[u8]), input: &[u8]) {
    memory::bounded(input, || parser(input));
}
