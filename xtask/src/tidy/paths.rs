//! Paths that a source names: `use` trees and paths in expressions, spread into single paths.

use super::source::Source;

/// One path, as far as it is written with `::`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Its components; the first is `crate`, `super`, `self` or the name of a crate.
    pub(super) parts: Vec<String>,
    /// Where it starts.
    pub(super) offset: usize,
}

/// Every path in the code of `source` that starts with `root` (a whole word before `::`).
pub(super) fn starting_with(source: &Source, root: &str) -> Vec<Named> {
    let mut found = Vec::new();
    for offset in source.words(root) {
        let before = source.code[..offset].trim_end();
        let rest = &source.code[offset + root.len()..];
        // `a::super::b` is part of a path that was seen at its start.
        if before.ends_with("::") || !rest.starts_with("::") {
            continue;
        }
        let mut parts = vec![root.to_owned()];
        let mut spread = Vec::new();
        tree(&rest[2..], &mut parts, &mut spread);
        found.extend(spread.into_iter().map(|parts| Named { parts, offset }));
    }
    found
}

/// Spreads the tree at the start of `text` below `prefix`; returns how many bytes it takes.
fn tree(text: &str, prefix: &mut Vec<String>, out: &mut Vec<Vec<String>>) -> usize {
    let depth = prefix.len();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        if text[at..].starts_with('{') {
            at += 1 + branches(&text[at + 1..], prefix, out);
            break;
        }
        let name: String = text[at..].chars().take_while(|c| is_name(*c)).collect();
        at += name.len();
        if !name.is_empty() {
            prefix.push(name);
        }
        if !text[at..].starts_with("::") {
            out.push(prefix.clone());
            break;
        }
        at += 2;
    }
    prefix.truncate(depth);
    at
}

/// The branches of a brace, up to and with its end; returns how many bytes they take.
fn branches(text: &str, prefix: &mut Vec<String>, out: &mut Vec<Vec<String>>) -> usize {
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        match next {
            '}' => return at + 1,
            _ if is_name(next) || next == '{' => {
                at += tree(&text[at..], prefix, out);
                at += rename_length(&text[at..]);
            }
            _ => at += next.len_utf8(),
        }
    }
    at
}

/// The length of ` as name` at the start of `text`.
fn rename_length(text: &str) -> usize {
    if text.trim_start().starts_with("as ") {
        text.find([',', '}']).unwrap_or(text.len())
    } else {
        0
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_trees_are_spread() {
        let text = "use crate::{\n    Result, codec::{Lsn as L, self},\n \
            disk::os::OsEnv};\nfn f() { crate::wal::open::<u8>() }";
        let source = Source::new("a.rs", text.to_owned());
        let paths: Vec<String> =
            starting_with(&source, "crate").iter().map(|named| named.parts.join("::")).collect();
        assert_eq!(
            paths,
            [
                "crate::Result",
                "crate::codec::Lsn",
                "crate::codec::self",
                "crate::disk::os::OsEnv",
                "crate::wal::open",
            ]
        );
    }
}
