//! Repository commands: `cargo xtask tidy`, `planted-bugs`, `reference`, `instructions`, `chart`.
#![forbid(unsafe_code)]

mod chart;
mod instructions;
mod reference;
mod tidy;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use tidy::planted_bugs;

const USAGE: &str = "\
usage: cargo xtask <command>

commands:
  tidy                     check the rules that no compiler checks (CONTRIBUTING.md lists them)
  planted-bugs [--check]   write docs/planted-bugs.md from the list of planted bugs and the tests
                           (--check: compare the file and write nothing)
  reference [--check]      write the generated parts of docs/reference: options and command line
                           (--check: compare the pages and write nothing)
  instructions [--update]  count the instructions of the hot paths under valgrind and compare them
                           with the recorded counts (--update: record the new counts)
  chart [--check]          draw docs/images/throughput-*.svg from docs/results (--check: compare the
                           committed images and write nothing)
  help                     print this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => with_tree("tidy", |tree| Ok(run_tidy(tree))),
        ["planted-bugs"] => with_tree("planted-bugs", |tree| run_planted_bugs(tree, false)),
        ["planted-bugs", "--check"] => {
            with_tree("planted-bugs", |tree| run_planted_bugs(tree, true))
        }
        ["reference"] => reference::run(&repository(), false),
        ["reference", "--check"] => reference::run(&repository(), true),
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

/// Reads the repository and runs `command` on it. Prints an I/O error after `name`.
fn with_tree(name: &str, command: impl FnOnce(&tidy::Tree) -> io::Result<ExitCode>) -> ExitCode {
    let outcome = tidy::Tree::read(&repository()).and_then(|tree| command(&tree));
    outcome.unwrap_or_else(|error| {
        eprintln!("{name}: {error}");
        ExitCode::FAILURE
    })
}

fn run_tidy(tree: &tidy::Tree) -> ExitCode {
    let findings = tidy::check(tree);
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

fn run_planted_bugs(tree: &tidy::Tree, check_only: bool) -> io::Result<ExitCode> {
    if !check_only {
        fs::write(repository().join(planted_bugs::DOCUMENT), planted_bugs::render(tree))?;
        println!("planted-bugs: wrote {}", planted_bugs::DOCUMENT);
        return Ok(ExitCode::SUCCESS);
    }
    let findings = planted_bugs::findings(tree);
    for finding in &findings {
        println!("{finding}");
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The root of the repository: the parent of this crate's folder.
fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
