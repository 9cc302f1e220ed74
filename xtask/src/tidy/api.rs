//! Each public function of the library is called by a test, an example or a doctest.
//!
//! Public are the `pub fn` items that `lib.rs` exports by name, and those in an `impl` of a type
//! that it exports. A call is the function's name before `(` or `::<`, or behind `::`.

use std::collections::BTreeSet;

use super::{
    Finding, Tree, paths,
    source::{Source, whole_words},
    tree::LIBRARY,
};

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(root) = tree.sources.get(&format!("{LIBRARY}lib.rs")) else { return };
    let exports: BTreeSet<String> = root
        .use_items()
        .filter(|item| item.is_public && root.inline_modules(item.offset).is_empty())
        .flat_map(|item| paths::of_use(root, item))
        .filter_map(|named| named.local_name().map(str::to_owned))
        .collect();
    let called = called(tree);
    for (_, source) in tree.library() {
        for (owner, name, offset) in public_functions(source) {
            if !exports.contains(owner.as_ref().unwrap_or(&name)) || called.contains(&name) {
                continue;
            }
            let key = owner.map_or_else(|| name.clone(), |owner| format!("{owner}::{name}"));
            let message = format!("no test, example or doctest calls `{key}`");
            let line = source.line_of(offset);
            findings.push(Finding::of("untested", &key, &source.path, line, &message));
        }
    }
}

/// The `pub fn` items outside tests: the type of their `impl`, their name, their offset.
fn public_functions(source: &Source) -> Vec<(Option<String>, String, usize)> {
    let blocks: Vec<(String, usize, usize)> = source
        .words("impl")
        .filter_map(|offset| {
            let line_start = source.code[..offset].rfind('\n').map_or(0, |end| end + 1);
            let open = offset + source.code[offset..].find('{')?;
            let head = &source.code[offset + 4..open];
            // `impl Trait for Type` has no visibility; `-> impl Trait` is no block.
            if source.code[line_start..offset].contains(['(', '>', ':']) || head.contains(" for ") {
                return None;
            }
            Some((type_of(head), open, source.closing_brace(open)))
        })
        .collect();
    let mut found = Vec::new();
    for offset in source.words("fn").filter(|offset| !source.is_test(*offset)) {
        let line_start = source.code[..offset].rfind('\n').map_or(0, |end| end + 1);
        if !source.code[line_start..offset].trim_start().starts_with("pub ") {
            continue;
        }
        let name: String = source.code[offset + 2..]
            .trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let block = blocks.iter().find(|(_, open, close)| (*open..*close).contains(&offset));
        found.push((block.map(|(owner, _, _)| owner.clone()), name, offset));
    }
    found
}

/// The name of the type in the head of an `impl`: behind its generics.
fn type_of(head: &str) -> String {
    let mut depth = 0_usize;
    let mut name = String::new();
    for c in head.chars() {
        match c {
            '<' if !name.is_empty() => break,
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            _ if c.is_alphanumeric() || c == '_' => name.push(c),
            _ if name.is_empty() => {}
            _ => break,
        }
    }
    name
}

/// Names that tests, examples and doctests call.
fn called(tree: &Tree) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for source in tree.sources.values() {
        let is_example = source.path.split('/').any(|part| part == "examples");
        for line in doc_code(source) {
            note_calls(line, |_| true, &mut found);
        }
        note_calls(&source.code, |offset| is_example || source.is_test(offset), &mut found);
    }
    // The README's examples are doctests.
    if let Some(text) = tree.texts.get("README.md") {
        note_calls(text, |_| true, &mut found);
    }
    found
}

/// Lines of fenced code in the doc comments of a file.
fn doc_code(source: &Source) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    source.comments.lines().filter(move |line| {
        let text = line.trim().trim_start_matches(['/', '!']).trim_start();
        if text.starts_with("```") {
            is_fenced = !is_fenced;
        }
        is_fenced
    })
}

/// Adds each name that `code` calls where `counts` says so.
fn note_calls(code: &str, counts: impl Fn(usize) -> bool, found: &mut BTreeSet<String>) {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in code.match_indices(['(', ':', ')', ',']).filter(|(at, _)| counts(*at)) {
        let before = &code[..at];
        let start = before.rfind(|c| !is_name(c)).map_or(0, |start| start + 1);
        let is_path = before[..start].ends_with("::");
        let is_call = code[at..].starts_with('(') || code[at..].starts_with("::<");
        let is_definition = whole_words(&before[before.len().min(start.saturating_sub(3))..], "fn")
            .next()
            .is_some();
        if start < at && (is_call || is_path) && !is_definition {
            found.insert(before[start..].to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;

    fn with(wal: &str, others: &[(&str, &str)]) -> String {
        let root = "#![deny(unsafe_code)]\nmod wal;\npub use wal::{Log, open};\n";
        let mut files =
            vec![("crates/quintet/src/lib.rs", root), ("crates/quintet/src/wal.rs", wal)];
        files.extend(others);
        says(&files)
    }

    const LOG: &str = "pub struct Log;\nimpl<T> Log<T> {\n    pub fn append(&self) {}\n}\n";

    #[test]
    fn a_public_function_without_a_caller_is_found() {
        assert_finds(&with(LOG, &[]), "wal.rs:3:", "calls `Log::append`");
        let free = "pub fn open() {}\nstruct Own;\nimpl Own { pub fn f() {} }\nfn g() { open() }\n";
        let said = with(free, &[]);
        assert_finds(&said, "wal.rs:1:", "calls `open`");
        assert!(!said.contains("Own"), "{said}");
    }

    #[test]
    fn a_test_an_example_or_a_doctest_calls_it() {
        let test = format!("{LOG}#[cfg(test)]\nmod tests {{ fn t() {{ log.append(); }} }}\n");
        assert_eq!(with(&test, &[]), "");
        let doc = format!("/// ```\n/// log.append();\n/// ```\n{LOG}");
        assert_eq!(with(&doc, &[]), "");
        for path in ["crates/quintet/tests/a.rs", "crates/quintet/examples/a.rs"] {
            assert_eq!(with(LOG, &[(path, "fn t() { map(Log::append) }\n")]), "");
        }
    }
}
