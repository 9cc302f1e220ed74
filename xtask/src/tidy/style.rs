//! Sizes, characters and words of every Rust source.

use super::{Finding, Tree, source::Source, tree::LIBRARY};

/// Lines of a file, unit tests not counted.
const FILE_LINES_MAX: usize = 600;
/// Lines of code between the braces of a function, as Clippy counts: comments and blanks are free.
const FUNCTION_LINES_MAX: usize = 70;
/// Characters in a line.
const COLUMNS_MAX: usize = 100;

/// Words that ask for work in a comment. Spelt in two, so that this file passes.
const UNFINISHED_WORDS: [&str; 4] =
    [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("HA", "CK"), concat!("XX", "X")];
/// Macros that are left behind by work in progress.
const UNFINISHED_MACROS: [&str; 3] = ["dbg!", "todo!", "unimplemented!"];

/// Types that `as` converts to without a word about what is lost.
const NUMBERS: [&str; 15] = [
    "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32",
    "f64", "_",
];

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for source in tree.sources.values() {
        check_lines(source, findings);
        check_words(source, findings);
        check_size(source, findings);
        check_functions(source, findings);
    }
    for (path, source) in tree.library().filter(|(path, _)| *path != "util/codec.rs") {
        check_casts(path, source, findings);
        check_modules_are_used(source, findings);
    }
}

fn check_lines(source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        // A row of a table and a link cannot be broken.
        let is_row = ["//! |", "/// |"].iter().any(|start| line.trim_start().starts_with(start));
        if columns > COLUMNS_MAX && !is_row && !line.contains("://") {
            let message = format!("{columns} columns; the limit is {COLUMNS_MAX}");
            findings.push(Finding::error(&source.path, index + 1, message));
        }
        if let Some(c) = line.chars().find(|c| !c.is_ascii()) {
            let message = format!("{c:?} is not ASCII; write an escape or a word");
            findings.push(Finding::error(&source.path, index + 1, message));
        }
    }
}

fn check_words(source: &Source, findings: &mut Vec<Finding>) {
    for word in UNFINISHED_WORDS {
        for offset in super::source::whole_words(&source.comments, word) {
            let message = format!("{word}: finish it, or open an issue and give the reason here");
            findings.push(Finding::error(&source.path, source.line_of(offset), message));
        }
    }
    for name in UNFINISHED_MACROS {
        for offset in source.words(name) {
            let message = format!("{name}: left behind by work in progress");
            findings.push(Finding::error(&source.path, source.line_of(offset), message));
        }
    }
    for start in ["#[allow(", "#![allow("] {
        for (offset, _) in source.code.match_indices(start) {
            let message = "`allow`: use `expect` with a reason";
            findings.push(Finding::error(&source.path, source.line_of(offset), message));
        }
    }
}

/// A module that only tests reach is dead code in the build of a release, which the lints of that
/// build refuse. So no module may silence them.
fn check_modules_are_used(source: &Source, findings: &mut Vec<Finding>) {
    for offset in source.words("dead_code").filter(|offset| !source.is_test(*offset)) {
        let start = source.code[..offset].rfind('#').unwrap_or(offset);
        let attribute = &source.code[start..];
        let close = attribute.find(']').map_or(attribute.len(), |close| close + 1);
        let item = attribute[close..].trim_start();
        let words = item.split_whitespace().take(2);
        let is_module = words.into_iter().any(|word| word == "mod");
        if is_module || attribute.starts_with("#![") {
            let message = "a module that only tests reach: remove it, or give it a user";
            findings.push(Finding::error(&source.path, source.line_of(offset), message));
        }
    }
}

fn check_size(source: &Source, findings: &mut Vec<Finding>) {
    let mut offset = 0;
    let mut lines = 0;
    for line in source.text.split_inclusive('\n') {
        if !source.is_test(offset) {
            lines += 1;
        }
        offset += line.len();
    }
    if lines > FILE_LINES_MAX {
        let path = &source.path;
        let message = format!(
            "{lines} lines without unit tests; aim for 150 to 400, {FILE_LINES_MAX} is the limit"
        );
        findings.push(Finding::of("file-length", path, path, 1, &message));
    }
}

fn check_functions(source: &Source, findings: &mut Vec<Finding>) {
    for offset in source.words("fn").filter(|offset| !source.is_test(*offset)) {
        let rest = &source.code[offset + 2..];
        let name: String =
            rest.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // `fn(u8) -> u8` is a type, `fn name();` has no body.
        let Some(open) = body(rest).filter(|_| !name.is_empty()) else { continue };
        let open = offset + 2 + open;
        let close = source.closing_brace(open);
        let inside = &source.code[(open + 1).min(close)..close];
        let lines = inside.lines().filter(|line| !line.trim().is_empty()).count();
        if lines > FUNCTION_LINES_MAX {
            let message = format!("function `{name}`: {lines} lines of {FUNCTION_LINES_MAX}");
            let (path, line) = (&source.path, source.line_of(offset));
            let key = format!("{path}:{name}");
            findings.push(Finding::of("function-length", &key, path, line, &message));
        }
    }
}

/// Where the body opens: the first brace outside brackets, unless a `;` ends the signature first.
fn body(signature: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, c) in signature.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '{' if depth == 0 => return Some(offset),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn check_casts(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    for offset in source.words("as").filter(|offset| !source.is_test(*offset)) {
        let rest = source.code[offset + 2..].trim_start();
        let target: String =
            rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if NUMBERS.contains(&target.as_str()) && !is_rename(&source.code[..offset]) {
            let message = format!(
                "`as {target}`: use `codec` or `try_from` ({LIBRARY}{path} is not util/codec.rs)"
            );
            findings.push(Finding::error(&source.path, source.line_of(offset), message));
        }
    }
}

/// Whether `as` at the end of `code` belongs to a `use`: `use std::fmt::Write as _;`.
fn is_rename(code: &str) -> bool {
    let statement = code.rfind(';').map_or(code, |end| &code[end..]);
    statement.rsplit('\n').any(|line| {
        let line = line.trim_start_matches([';', ' ']);
        line.starts_with("use ") || line.starts_with("pub use ") || line.contains(") use ")
    })
}
