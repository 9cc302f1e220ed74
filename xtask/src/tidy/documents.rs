//! Markdown: one first-level heading in each document, and links between files that lead
//! somewhere.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let documents = tree.texts.iter().filter(|(path, _)| !path.ends_with("toml"));
    for (path, text) in documents {
        // Templates become part of a page that has its heading.
        if !path.starts_with(".github/") {
            check_headings(path, text, findings);
        }
        check_links(tree, path, text, findings);
    }
}

/// Lines outside code fences, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
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
        for part in content.split("](").skip(1) {
            let target = part.split([')', '#', ' ']).next().unwrap_or_default();
            if target.is_empty() || target.contains(':') {
                continue;
            }
            let full = join(path, target);
            if !tree.names.contains(&full) {
                let message = format!("the link to `{target}` leads nowhere (no `{full}`)");
                findings.push(Finding::error(path, line, message));
            }
        }
    }
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
