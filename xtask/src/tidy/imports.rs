//! The imports between the files of each crate.
//!
//! An import is a path that starts with `crate`, `super`, `self`, a child module or an imported
//! module, in a `use` item or elsewhere in the code. It points to the file that *defines* the name.
//! Tidy follows a path through `pub use`, or a private `use` of a parent, to the definition; the
//! file with the `use` is not imported. `mod child;` is no import. `use crate::util::codec;` for a
//! module is none either; the paths that start with `codec::` are. Code that only tests compile
//! does not count, in both directions.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Tree, paths,
    paths::{Named, module_path},
    source::Source,
};

/// Keywords before the name of an item.
const ITEMS: [&str; 9] =
    ["struct", "enum", "union", "trait", "fn", "const", "static", "type", "macro_rules"];

/// Steps through re-exports before a path is given up.
const STEPS_MAX: usize = 8;

/// The files of all crates and their imports.
#[derive(Debug, Default)]
pub(super) struct Imports<'a> {
    /// Each file that is not a test.
    pub(super) files: Vec<File<'a>>,
    /// Ordered by file.
    pub(super) edges: Vec<Import>,
}

/// A file as a module.
#[derive(Debug)]
pub(super) struct File<'a> {
    pub(super) source: &'a Source,
    /// Folder of the crate's sources, with `/` at its end.
    pub(super) root: &'a str,
    /// Module path from the root of the crate; empty for the root.
    pub(super) module: Vec<String>,
    /// Names that are defined at the top level of the file.
    defined: BTreeSet<String>,
    /// Names that `use` items bind, and where they lead (from the root of the crate).
    bound: BTreeMap<String, Vec<String>>,
    /// Modules of `use module::*`.
    globs: Vec<Vec<String>>,
}

/// One import between two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Import {
    /// Index of the importing file.
    pub(super) from: usize,
    /// Index of the file that defines what is imported.
    pub(super) to: usize,
    /// Where the path starts.
    pub(super) offset: usize,
    /// Whether it only passes a name on (`pub use`).
    pub(super) is_export: bool,
}

/// A path in a file, and how it got there.
struct Path {
    named: Named,
    /// From the root of the crate; `None` if it leads out of the crate.
    target: Option<Vec<String>>,
    is_use: bool,
    is_export: bool,
}

impl<'a> Imports<'a> {
    /// Reads the imports of every crate.
    pub(super) fn read(tree: &'a Tree) -> Self {
        let mut graph = Self::default();
        for lib in tree.sources.keys() {
            let Some(root) = lib.strip_suffix("lib.rs").or_else(|| lib.strip_suffix("main.rs"))
            else {
                continue;
            };
            let has_both = tree.sources.contains_key(&format!("{root}lib.rs"));
            if root.ends_with("src/") && !(has_both && lib.ends_with("main.rs")) {
                graph.read_crate(tree, root);
            }
        }
        graph
    }

    fn read_crate(&mut self, tree: &'a Tree, root: &'a str) {
        let first = self.files.len();
        let mut paths = Vec::new();
        for source in tree.sources.values().filter(|source| !source.is_test_file()) {
            let Some(path) = source.path.strip_prefix(root) else { continue };
            let mut module = module_path(path);
            if matches!(path, "lib.rs" | "main.rs") {
                module.clear();
            }
            let read = read_paths(source, &module);
            let mut file = File {
                source,
                root,
                module,
                defined: definitions(source),
                bound: BTreeMap::new(),
                globs: Vec::new(),
            };
            for path in read.iter().filter(|path| path.is_use) {
                bind(&mut file, path);
            }
            self.files.push(file);
            paths.push(read);
        }
        let modules: BTreeMap<Vec<String>, usize> = (first..self.files.len())
            .map(|index| (self.files[index].module.clone(), index))
            .collect();
        for (index, mut paths) in (first..).zip(paths) {
            paths.extend(self.paths_below_bound(index, &modules));
            for path in paths {
                let to = path.target.as_deref();
                let to = to.and_then(|to| self.definer(&modules, to, STEPS_MAX));
                let Some(to) = to.filter(|to| *to != index) else { continue };
                if path.is_use && path.target.as_ref() == Some(&self.files[to].module) {
                    continue;
                }
                let (offset, is_export) = (path.named.offset, path.is_export);
                self.edges.push(Import { from: index, to, offset, is_export });
            }
        }
        self.edges.sort_unstable();
        self.edges.dedup();
    }

    /// Paths that start with a name that a `use` binds to a module.
    fn paths_below_bound(&self, index: usize, modules: &BTreeMap<Vec<String>, usize>) -> Vec<Path> {
        let file = &self.files[index];
        let mut found = Vec::new();
        for (name, target) in file.bound.iter().filter(|(_, to)| modules.contains_key(*to)) {
            for named in outside_uses(file.source, name) {
                let mut target = target.clone();
                target.extend_from_slice(&named.parts[1..]);
                let target = Some(target);
                found.push(Path { named, target, is_use: false, is_export: false });
            }
        }
        found
    }

    /// The file that defines what `path` names; `None` if it leads out of the crate.
    fn definer(
        &self,
        modules: &BTreeMap<Vec<String>, usize>,
        path: &[String],
        steps: usize,
    ) -> Option<usize> {
        let (length, index) = (0..=path.len())
            .rev()
            .find_map(|length| Some((length, *modules.get(&path[..length])?)))?;
        let file = &self.files[index];
        let Some(name) = path.get(length).filter(|name| *name != "*") else { return Some(index) };
        if file.defined.contains(name) {
            return Some(index);
        }
        if steps == 0 {
            return None;
        }
        if let Some(bound) = file.bound.get(name) {
            let mut onward = bound.clone();
            onward.extend_from_slice(&path[length + 1..]);
            return self.definer(modules, &onward, steps - 1);
        }
        for glob in &file.globs {
            let mut onward = glob.clone();
            onward.extend_from_slice(&path[length..]);
            if let Some(to) = self.definer(modules, &onward, steps - 1)
                && self.files[to].defined.contains(name)
            {
                return Some(to);
            }
        }
        // A macro defines the name; macros of the whole crate have no file.
        (!file.module.is_empty()).then_some(index)
    }
}

/// Every path of a file that starts in its crate, and every `use` that leads out of it.
fn read_paths(source: &Source, module: &[String]) -> Vec<Path> {
    let children: Vec<&str> =
        source.declared_modules().filter(|m| !m.is_test).map(|m| m.name.as_str()).collect();
    let mut found = Vec::new();
    for item in source.use_items().filter(|item| !source.is_test(item.offset)) {
        for named in paths::of_use(source, item) {
            let target = resolve(source, module, &named, &children);
            found.push(Path { named, target, is_use: true, is_export: item.is_public });
        }
    }
    for root in ["crate", "super", "self"].iter().chain(&children) {
        for named in outside_uses(source, root) {
            let target = resolve(source, module, &named, &children);
            found.push(Path { named, target, is_use: false, is_export: false });
        }
    }
    found
}

/// Paths in code that is neither a `use` item nor a test.
fn outside_uses(source: &Source, root: &str) -> Vec<Named> {
    let mut found = paths::starting_with(source, root);
    found.retain(|named| {
        !source.is_test(named.offset)
            && !source.use_items().any(|item| (item.offset..item.end).contains(&named.offset))
    });
    found
}

/// The path from the root of the crate that `named` means, or `None` if it leads out of it.
pub(super) fn resolve(
    source: &Source,
    module: &[String],
    named: &Named,
    children: &[&str],
) -> Option<Vec<String>> {
    let mut here: Vec<String> = Vec::new();
    let first = named.parts.first()?.as_str();
    if first != "crate" {
        if !matches!(first, "self" | "super") && !children.contains(&first) {
            return None;
        }
        here.extend(module.iter().cloned());
        here.extend(source.inline_modules(named.offset).into_iter().map(str::to_owned));
    }
    for part in &named.parts {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => {
                here.pop()?;
            }
            name => here.push(name.to_owned()),
        }
    }
    Some(here)
}

fn bind(file: &mut File<'_>, path: &Path) {
    let Some(target) = &path.target else {
        // A name from another crate: it hides no file of ours.
        if let Some(name) = path.named.local_name() {
            file.bound.insert(name.to_owned(), vec![format!("::{name}")]);
        }
        return;
    };
    if target.last().is_some_and(|last| last == "*") {
        file.globs.push(target[..target.len() - 1].to_vec());
    } else if let Some(name) = path.named.local_name() {
        // A child module that is imported as itself is already known.
        let mut child = file.module.clone();
        child.push(name.to_owned());
        if *target != child {
            file.bound.insert(name.to_owned(), target.clone());
        }
    }
}

/// Names of the items at the top level of a file, inline modules among them.
fn definitions(source: &Source) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut depth = 0_usize;
    let mut words = Vec::new();
    let mut word = String::new();
    for c in source.code.chars().chain([' ']) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() && depth == 0 {
            words.push(std::mem::take(&mut word));
        }
        word.clear();
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ';' => words.push(String::new()),
            _ => {}
        }
    }
    for pair in words.windows(2) {
        if ITEMS.contains(&pair[0].as_str()) {
            found.insert(pair[1].clone());
        }
    }
    found.extend(source.top_inline_modules().map(str::to_owned));
    found
}
