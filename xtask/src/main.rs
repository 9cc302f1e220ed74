//! Repository chores: `cargo xtask tidy`, `cargo xtask instructions`, `cargo xtask chart`.
#![forbid(unsafe_code)]

mod chart;
mod instructions;
mod tidy;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

const USAGE: &str = "\
usage: cargo xtask <command>

commands:
  tidy                     check the rules of the repository that no compiler checks
                           (CONTRIBUTING.md lists them)
  instructions [--update]  count the instructions of the hot paths under valgrind and compare them
                           with the recorded ones (--update: record them)
  chart [--check]          draw docs/images/throughput-*.svg from docs/results (--check: only say
                           whether the committed images are those)
  help                     print this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        ["instructions"] => instructions::run(&repository(), false),
        ["instructions", "--update"] => instructions::run(&repository(), true),
        ["chart"] => chart::run(&repository(), false),
        ["chart", "--check"] => chart::run(&repository(), true),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_tidy() -> ExitCode {
    let tree = match tidy::Tree::read(&repository()) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot read the repository: {error}");
            return ExitCode::FAILURE;
        }
    };
    let findings = tidy::check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    let failures = findings.iter().filter(|finding| finding.fails).count();
    println!(
        "tidy: {} files, {failures} errors, {} warnings",
        tree.file_count(),
        findings.len() - failures
    );
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The root of the repository: the folder above this crate's.
fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
