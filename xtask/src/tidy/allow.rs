//! The list of accepted violations: `xtask/tidy-allow.txt`.
//!
//! A line is `rule key count`, and a reason after ` -- ` if the exception is meant to stay. Tidy
//! drops the findings of a rule and key if there are exactly `count` of them. More findings fail
//! with their places; fewer fail as a stale line, so that the list only shrinks.
//!
//! `UPDATE=1 cargo test -p xtask this_repository` rewrites the list after code was mended or moved.
//! It refuses if a rule has more findings than the list allows.

use std::collections::BTreeMap;

use super::{Finding, Tree, tree::ALLOWED_FILE as FILE};

/// How many findings a rule may have for a key.
#[derive(Debug, Default)]
struct Allowed {
    /// Line of the list, from 1; 0 if the list has none.
    line: usize,
    count: usize,
    #[cfg_attr(not(test), expect(dead_code, reason = "only an update of the list writes it"))]
    reason: Option<String>,
}

/// The lines of the list by rule and key.
type List = BTreeMap<(String, String), Allowed>;

/// Drops the findings that the list allows, and adds one for each line of the list that is stale.
pub(super) fn apply(tree: &Tree, findings: Vec<Finding>) -> Vec<Finding> {
    let (mut list, mut kept) = read(tree);
    for ((rule, key), group) in by_key(findings, &mut kept) {
        let allowed = list.remove(&(rule.clone(), key.clone())).unwrap_or_default();
        if group.len() < allowed.count {
            list.insert((rule, key), Allowed { count: allowed.count - group.len(), ..allowed });
        } else if group.len() > allowed.count {
            let note = match allowed.count {
                0 => format!(" [{rule}]"),
                count => format!(" [{rule}: {} for `{key}`, {count} are allowed]", group.len()),
            };
            kept.extend(group.into_iter().map(|mut finding| {
                finding.message.push_str(&note);
                finding
            }));
        }
    }
    for ((rule, key), allowed) in list {
        let message = format!(
            "stale: `{rule} {key}` allows {} more than there are; run \
             `UPDATE=1 cargo test -p xtask this_repository`",
            allowed.count
        );
        kept.push(Finding::error(FILE, allowed.line, message));
    }
    kept
}

/// The list as it should be for `findings`, or the rules that have more of them than before.
#[cfg(test)]
pub(super) fn updated(tree: &Tree, findings: Vec<Finding>) -> Result<String, String> {
    let (mut old, mut other) = read(tree);
    let groups = by_key(findings, &mut other);
    let mut before: BTreeMap<&str, usize> = BTreeMap::new();
    for ((rule, _), allowed) in &old {
        *before.entry(rule).or_default() += allowed.count;
    }
    let mut after: BTreeMap<&str, usize> = BTreeMap::new();
    for ((rule, _), group) in &groups {
        *after.entry(rule).or_default() += group.len();
    }
    let grown = |(rule, count): (&&str, &usize)| {
        let allowed = before.get(rule).copied().unwrap_or_default();
        (*count > allowed).then(|| format!("{rule}: {count} findings, {allowed} allowed"))
    };
    let grown: Vec<String> = after.iter().filter_map(grown).collect();
    if !grown.is_empty() {
        return Err(grown.join("\n"));
    }
    let head = tree.allowed.lines().take_while(|line| line.starts_with('#'));
    let mut lines: Vec<String> = head.map(str::to_owned).collect();
    for ((rule, key), group) in &groups {
        let reason = old.remove(&(rule.clone(), key.clone())).and_then(|allowed| allowed.reason);
        let reason = reason.map_or_else(String::new, |reason| format!(" -- {reason}"));
        lines.push(format!("{rule} {key} {}{reason}", group.len()));
    }
    Ok(lines.join("\n") + "\n")
}

/// Findings that the list can allow, by rule and key. The others go to `kept`.
fn by_key(
    findings: Vec<Finding>,
    kept: &mut Vec<Finding>,
) -> BTreeMap<(String, String), Vec<Finding>> {
    let mut groups: BTreeMap<_, Vec<Finding>> = BTreeMap::new();
    for finding in findings {
        match &finding.exception {
            Some((rule, key)) => {
                groups.entry(((*rule).to_owned(), key.clone())).or_default().push(finding);
            }
            None => kept.push(finding),
        }
    }
    groups
}

/// The lines of the list, and a finding for each line that is malformed.
fn read(tree: &Tree) -> (List, Vec<Finding>) {
    let mut list = List::new();
    let mut findings = Vec::new();
    for (index, line) in tree.allowed.lines().enumerate() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (entry, reason) =
            line.split_once(" -- ").map_or((line, None), |(entry, why)| (entry, Some(why)));
        let parts: Vec<&str> = entry.split_whitespace().collect();
        let [rule, key, count] = parts.as_slice() else {
            findings.push(Finding::error(FILE, index + 1, "not `rule key count -- reason`"));
            continue;
        };
        let Ok(count) = count.parse() else {
            findings.push(Finding::error(FILE, index + 1, "the count is not a number"));
            continue;
        };
        let allowed = Allowed { line: index + 1, count, reason: reason.map(str::to_owned) };
        if list.insert(((*rule).to_owned(), (*key).to_owned()), allowed).is_some() {
            findings.push(Finding::error(FILE, index + 1, "the list has this line already"));
        }
    }
    (list, findings)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    const LONG: &str = "\nfn f() {\nh();\n}\nstruct Kept;\n";

    fn with_list(list: &str) -> String {
        says(&[
            ("crates/quintet/src/lib.rs", "#![deny(unsafe_code)]\nmod wal;\n"),
            ("crates/quintet/src/wal.rs", LONG),
            (FILE, list),
        ])
    }

    #[test]
    fn a_listed_violation_passes_and_a_stale_line_does_not() {
        assert_finds(&with_list(""), "wal.rs:5:", "`Kept`");
        assert_eq!(with_list("# comment\nname quintet::Kept 1\n"), "");
        let reason = "name quintet::Kept 1 -- the paper's word\n";
        assert_eq!(with_list(reason), "");
        let stale = format!("{reason}name quintet::Taken 1\n");
        assert_finds(&with_list(&stale), "tidy-allow.txt:2:", "stale: `name quintet::Taken`");
        assert_finds(&with_list("name quintet::Kept 2\n"), "tidy-allow.txt:1:", "1 more");
        assert_finds(&with_list("name quintet::Kept\n"), "tidy-allow.txt:1:", "not `rule");
    }

    #[test]
    fn an_update_shrinks_the_list_and_keeps_reasons() {
        let tree = |list: &str| {
            Tree::of(&[
                ("crates/quintet/src/lib.rs", "#![deny(unsafe_code)]\nmod wal;\n"),
                ("crates/quintet/src/wal.rs", LONG),
                (FILE, list),
            ])
        };
        let update = |list: &str| {
            let tree = tree(list);
            updated(&tree, super::super::every_finding(&tree))
        };
        let kept = "# head\nname quintet::Kept 1 -- why\n";
        assert_eq!(update(&format!("{kept}name quintet::Taken 3\n")).unwrap(), kept);
        // A key that moved replaces one that is gone.
        assert_eq!(update("name quintet::Old 1\n").unwrap(), "name quintet::Kept 1\n");
        assert_eq!(update("").unwrap_err(), "name: 1 findings, 0 allowed");
    }
}
