//! The rules of this repository that neither the compiler nor Clippy knows.
//!
//! Each rule is a function from a [`Tree`] (every file, in memory) to [`Finding`]s. A rule that a
//! program checks is kept; a rule that only reviewers check is not.
//!
//! Invariants:
//! - Each rule has a test that plants a violation and finds it (`tests.rs`).
//! - Findings name file and line.
//! - Tidy reads only Rust sources, Markdown documents and Cargo manifests.
//!
//! Start reading at `every_finding`; `tree`, `source` and `paths` are what the rules share.

mod allow;
mod api;
mod circles;
mod document_paths;
mod documents;
mod english;
mod finding;
mod homes;
mod imports;
mod layers;
mod manifests;
mod names;
mod paths;
pub(crate) mod planted_bugs;
mod reach;
mod source;
mod style;
mod tree;
mod unsafe_list;

#[cfg(test)]
mod tests;

pub(crate) use finding::Finding;
pub(crate) use tree::Tree;

/// Runs every rule, and drops the findings that the list of exceptions allows.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = allow::apply(tree, every_finding(tree));
    findings.sort();
    findings
}

/// Runs every rule.
fn every_finding(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let imports = imports::Imports::read(tree);
    layers::check(tree, &imports, &mut findings);
    circles::check(&imports, &mut findings);
    homes::check(tree, &imports, &mut findings);
    style::check(tree, &mut findings);
    names::check(tree, &mut findings);
    api::check(tree, &mut findings);
    english::check(tree, &mut findings);
    unsafe_list::check(tree, &mut findings);
    reach::check(tree, &mut findings);
    documents::check(tree, &mut findings);
    document_paths::check(tree, &mut findings);
    manifests::check(tree, &mut findings);
    planted_bugs::check(tree, &mut findings);
    findings.sort();
    findings.dedup();
    findings
}
