//! Markdown: one first-level heading in each document, and links to files and headings that exist.

use std::collections::HashMap;

use super::{Finding, Tree, tree::is_document};

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let documents = tree.texts.iter().filter(|(path, _)| !path.ends_with("toml"));
    for (path, text) in documents {
        // Templates become part of a page that has its heading. The book's table of contents has a
        // first-level heading for each part.
        if !path.starts_with(".github/") && !path.ends_with("SUMMARY.md") {
            check_headings(path, text, findings);
        }
        check_links(tree, path, text, findings);
    }
}

/// Lines outside code fences, numbered from 1.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

fn check_headings(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let headings: Vec<usize> =
        prose(text).filter(|(_, line)| line.starts_with("# ")).map(|(line, _)| line).collect();
    match headings.as_slice() {
        [] => findings.push(Finding::error(path, 1, "the document has no first-level heading")),
        [_] => {}
        [_, second, ..] => {
            let message = "a second first-level heading; use `##`";
            findings.push(Finding::error(path, *second, message));
        }
    }
}

fn check_links(tree: &Tree, path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (line, content) in prose(text) {
        for part in without_code(content).split("](").skip(1) {
            let link = part.split([')', ' ']).next().unwrap_or_default();
            if link.is_empty() || link.contains(':') {
                continue;
            }
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let full = if target.is_empty() { path.to_owned() } else { join(path, target) };
            if !tree.names.contains(&full) {
                let message = format!("the link to `{target}` leads nowhere (no `{full}`)");
                findings.push(Finding::error(path, line, message));
                continue;
            }
            let document = tree.texts.get(&full).filter(|_| is_document(&full));
            if let Some(document) = document
                && !anchor.is_empty()
                && !anchors(document).iter().any(|known| known == anchor)
            {
                let message = format!("`{full}` has no heading `#{anchor}`");
                findings.push(Finding::error(path, line, message));
            }
        }
    }
}

/// The line without its code spans, in which brackets are no links.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    prose(text)
        .filter_map(|(_, line)| {
            let heading = line.trim_start_matches('#');
            let level = line.len() - heading.len();
            if !(1..=6).contains(&level) || !heading.starts_with(' ') {
                return None;
            }
            let kept = |c: char| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
                _ => None,
            };
            let anchor: String = heading.trim().chars().filter_map(kept).collect();
            let times = seen.entry(anchor.clone()).or_default();
            *times += 1;
            Some(if *times == 1 { anchor } else { format!("{anchor}-{}", *times - 1) })
        })
        .collect()
}

/// The path of `target` as seen from the document at `path`.
fn join(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}
