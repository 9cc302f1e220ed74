//! Paths that a source names: `use` trees and paths in expressions, spread into single paths.

use super::source::{Source, UseItem};

/// One path, as far as it is written with `::`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Its components; the first is `crate`, `super`, `self` or the name of a crate.
    pub(super) parts: Vec<String>,
    /// The name behind `as`.
    pub(super) alias: Option<String>,
    /// Where it starts.
    pub(super) offset: usize,
}

impl Named {
    /// The name that a `use` of this path binds: none for `*` and `as _`.
    pub(super) fn local_name(&self) -> Option<&str> {
        let last = || self.parts.iter().rev().map(String::as_str).find(|part| *part != "self");
        let name = self.alias.as_deref().or_else(last)?;
        (!matches!(name, "*" | "_")).then_some(name)
    }
}

/// The paths of a `use` item.
pub(super) fn of_use(source: &Source, item: &UseItem) -> Vec<Named> {
    let mut spread = Vec::new();
    let text = &source.code[item.offset + "use".len()..item.end];
    let text = text.trim_start().trim_start_matches("::");
    tree(text, &mut Vec::new(), &mut spread);
    named(spread, item.offset)
}

fn named(spread: Spread, offset: usize) -> Vec<Named> {
    spread.into_iter().map(|(parts, alias)| Named { parts, alias, offset }).collect()
}

/// Every path in the code of `source` that starts with `root` (a whole word before `::`).
pub(super) fn starting_with(source: &Source, root: &str) -> Vec<Named> {
    let mut found = Vec::new();
    for offset in source.words(root) {
        let before = source.code[..offset].trim_end();
        let rest = &source.code[offset + root.len()..];
        // `a::super::b` is part of a path that was seen at its start.
        // `pub(in crate::a)` says who may use an item, and uses nothing.
        let is_visibility = before.ends_with("(in");
        if before.ends_with("::") || is_visibility || !rest.starts_with("::") {
            continue;
        }
        let mut parts = vec![root.to_owned()];
        let mut spread = Vec::new();
        tree(&rest[2..], &mut parts, &mut spread);
        found.extend(named(spread, offset));
    }
    found
}

/// Single paths with the names behind `as`.
type Spread = Vec<(Vec<String>, Option<String>)>;

/// Spreads the tree at the start of `text` below `prefix`; returns how many bytes it takes.
fn tree(text: &str, prefix: &mut Vec<String>, out: &mut Spread) -> usize {
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
        } else if text[at..].starts_with('*') {
            prefix.push("*".to_owned());
            at += 1;
        }
        if !text[at..].starts_with("::") {
            let (alias, length) = alias(&text[at..]);
            out.push((prefix.clone(), alias));
            at += length;
            break;
        }
        at += 2;
    }
    prefix.truncate(depth);
    at
}

/// The branches of a brace, up to and with its end; returns how many bytes they take.
fn branches(text: &str, prefix: &mut Vec<String>, out: &mut Spread) -> usize {
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        match next {
            '}' => return at + 1,
            _ if is_name(next) || matches!(next, '{' | '*') => {
                at += tree(&text[at..], prefix, out);
            }
            _ => at += next.len_utf8(),
        }
    }
    at
}

/// The name in ` as name` at the start of `text`, and how many bytes it takes.
fn alias(text: &str) -> (Option<String>, usize) {
    let Some(rest) = text.trim_start().strip_prefix("as ") else { return (None, 0) };
    let name: String = rest.trim_start().chars().take_while(|c| is_name(*c)).collect();
    (Some(name), text.find([',', '}', ';']).unwrap_or(text.len()))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `io/os/file.rs` is `io::os::file`, `io/mod.rs` is `io`.
pub(super) fn module_path(path: &str) -> Vec<String> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_binds_the_last_name_or_its_alias() {
        let text = "use crate::{a::{self, B as C, D as _}, e::*};";
        let source = Source::new("a.rs", text.to_owned());
        let item = source.use_items().next().unwrap();
        let paths = of_use(&source, item);
        let bound: Vec<Option<&str>> = paths.iter().map(Named::local_name).collect();
        assert_eq!(bound, [Some("a"), Some("C"), None, None]);
        assert_eq!(paths[3].parts, ["crate", "e", "*"]);
    }

    #[test]
    fn a_visibility_is_no_import() {
        let text = "pub(in crate::a) fn f() -> crate::b::C { pub(in super::super) use x; }";
        let source = Source::new("a.rs", text.to_owned());
        let paths = |root| starting_with(&source, root);
        assert_eq!(paths("crate")[0].parts, ["crate", "b", "C"]);
        assert_eq!((paths("crate").len(), paths("super").len()), (1, 0));
    }

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
