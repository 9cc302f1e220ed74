//! Names of types: nouns, each once in its crate.

use std::collections::BTreeMap;

use super::{Finding, Tree, source::Source};

/// Participles, adverbs and the like. None of them says what the type is.
const NO_NOUNS: [&str; 50] = [
    "Above",
    "Added",
    "Ahead",
    "Alone",
    "Apart",
    "Asked",
    "Before",
    "Behind",
    "Below",
    "Beside",
    "Between",
    "Beyond",
    "Both",
    "Copied",
    "Due",
    "Each",
    "Entered",
    "Few",
    "First",
    "Found",
    "Given",
    "Gone",
    "Held",
    "Here",
    "Kept",
    "Known",
    "Last",
    "Learned",
    "Left",
    concat!("Le", "nt"),
    "Located",
    "Lost",
    "Made",
    "Many",
    "Near",
    "Next",
    "Offered",
    "Other",
    "Over",
    "Passed",
    "Put",
    "Read",
    "Seen",
    "Shown",
    "Split",
    "Taken",
    "Together",
    "Under",
    "Whole",
    "Young",
];

pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut definitions: BTreeMap<(String, String), Vec<(&str, usize)>> = BTreeMap::new();
    for source in tree.sources.values().filter(|source| !source.is_test_file()) {
        let Some((root, _)) = source.path.split_once("/src/") else { continue };
        let krate = root.rsplit('/').next().unwrap_or(root);
        for (name, line) in types(source) {
            let place = (source.path.as_str(), line);
            definitions.entry((krate.to_owned(), name)).or_default().push(place);
        }
    }
    for ((krate, name), places) in definitions {
        let key = format!("{krate}::{name}");
        if NO_NOUNS.contains(&name.as_str()) {
            for (path, line) in &places {
                let message = format!("`{name}` is no noun; name what the type is");
                findings.push(Finding::of("name", &key, path, *line, &message));
            }
        }
        for (path, line) in places.iter().filter(|_| places.len() > 1) {
            let message = format!("`{krate}` has {} types called `{name}`", places.len());
            findings.push(Finding::of("type-name", &key, path, *line, &message));
        }
    }
}

/// Structs, enums, unions and traits of a file with their lines.
fn types(source: &Source) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for keyword in ["struct", "enum", "union", "trait"] {
        for offset in source.words(keyword).filter(|offset| !source.is_test(*offset)) {
            let rest = &source.code[offset + keyword.len()..];
            // `union` is a name too, and `struct $name` is a macro's.
            let Some(rest) = rest.strip_prefix(' ') else { continue };
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if name.starts_with(|c: char| c.is_uppercase()) {
                found.push((name, source.line_of(offset)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;

    #[test]
    fn a_type_name_is_unique_in_its_crate() {
        let other = ("crates/tool/src/lib.rs", "#![forbid(unsafe_code)]\nstruct Place;\n");
        let with = |util: &str| {
            says(&[
                ("crates/quintet/src/lib.rs", "#![deny(unsafe_code)]\nmod util;\nmod wal;\n"),
                ("crates/quintet/src/util.rs", util),
                ("crates/quintet/src/wal.rs", "pub struct Place;\n"),
                other,
            ])
        };
        let said = with("\npub enum Place {}\n");
        assert_finds(&said, "src/util.rs:2:", "`quintet` has 2 types called `Place`");
        assert_finds(&said, "src/wal.rs:1:", "`quintet` has 2 types called `Place`");
        assert_eq!(with("#[cfg(test)]\nmod tests { struct Place; }\n"), "");
    }

    #[test]
    fn a_participle_is_no_name_of_a_type() {
        let said = library("mod wal;", &[("wal.rs", "struct Taken<'a>(&'a u8);\n")]);
        assert_finds(&said, "wal.rs:1:", "`Taken` is no noun");
        assert_eq!(library("mod wal;", &[("wal.rs", "struct TakenPage;\n")]), "");
    }
}
