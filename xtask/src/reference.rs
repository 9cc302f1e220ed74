//! Generated parts of `docs/reference`.
//!
//! Tests of `quintet-cli` make them, because they need the library and the command. This crate
//! builds without either.

use std::{
    path::Path,
    process::{Command, ExitCode},
};

/// Tells the tests to write the pages instead of comparing them.
const WRITE: &str = "QUINTET_REFERENCE_WRITE";

/// Writes the pages, or (`check_only`) compares the committed ones.
pub(crate) fn run(root: &Path, check_only: bool) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tests = Command::new(cargo);
    tests
        .args(["test", "--quiet", "--package", "quintet-cli", "--test", "reference"])
        .current_dir(root)
        .env_remove(WRITE);
    if !check_only {
        tests.env(WRITE, "1");
    }
    match tests.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("reference: cargo test: {error}");
            ExitCode::FAILURE
        }
    }
}
