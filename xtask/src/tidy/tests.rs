//! Each rule finds the violation that is planted for it, and lets the sound form pass.

use super::{Tree, allow, check, every_finding, tree::ALLOWED_FILE};

/// What tidy says about `files`, errors and warnings, one a line.
pub(super) fn says(files: &[(&str, &str)]) -> String {
    let lines: Vec<String> = check(&Tree::of(files)).iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// A library whose root declares the modules of `files` below `crates/quintet/src/`.
pub(super) fn library(modules: &str, files: &[(&str, &str)]) -> String {
    let root = format!("#![deny(unsafe_code)]\n{modules}\n");
    let mut all = vec![("crates/quintet/src/lib.rs".to_owned(), root)];
    all.extend(
        files.iter().map(|(path, text)| (format!("crates/quintet/src/{path}"), (*text).to_owned())),
    );
    let all: Vec<(&str, &str)> =
        all.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    says(&all)
}

#[track_caller]
pub(super) fn assert_finds(said: &str, place: &str, words: &str) {
    let found = said.lines().any(|line| line.contains(place) && line.contains(words));
    assert!(found, "expected {place} ... {words} in:\n{said}");
}

#[test]
fn this_repository_is_tidy() {
    let root = crate::repository();
    let mut tree = Tree::read(&root).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        let text = allow::updated(&tree, every_finding(&tree)).unwrap();
        std::fs::write(root.join(ALLOWED_FILE), text).unwrap();
        tree = Tree::read(&root).unwrap();
    }
    let errors: Vec<String> =
        check(&tree).iter().filter(|finding| finding.fails).map(ToString::to_string).collect();
    assert!(errors.is_empty(), "run `cargo xtask tidy`:\n{}", errors.join("\n"));
}

#[test]
fn imports_point_down() {
    let sound = [("io.rs", "use crate::util::Lsn;\n"), ("util.rs", "pub struct Lsn;\n")];
    assert_eq!(library("mod io;\nmod util;", &sound), "");
    let up = [("io.rs", "fn a() {}\nuse crate::{util::Lsn, wal::Log};\n"), ("wal.rs", "\n")];
    let said = library("mod io;\nmod wal;", &up);
    assert_finds(&said, "src/io.rs:2:", "layer `io` may not import `wal`");
}

#[test]
fn super_paths_are_resolved_through_inline_modules() {
    let sound = "mod inner { use super::super::util; }\n";
    assert_eq!(library("mod io;\nmod util;", &[("io.rs", sound), ("util.rs", "\n")]), "");
    let up = "mod inner { use super::super::wal::Log; }\n";
    let said = library("mod io;\nmod wal;", &[("io.rs", up), ("wal.rs", "\n")]);
    assert_finds(&said, "src/io.rs:1:", "may not import `wal`");
}

#[test]
fn a_re_export_counts_as_its_module() {
    let files = [("io.rs", "use crate::Log;\n"), ("wal.rs", "pub struct Log;\n")];
    let said = library("mod io;\nmod wal;\npub use wal::{Log, Other};", &files);
    assert_finds(&said, "src/io.rs:1:", "may not import `wal`");
}

#[test]
fn engines_do_not_import_one_another() {
    let files = [
        ("engine/mod.rs", "mod naive;\nmod trie;\nuse trie::Node;\n"),
        ("engine/naive.rs", "use super::trie::Node;\n"),
        ("engine/trie.rs", "use crate::contract::Engine;\n"),
        ("contract.rs", "pub trait Engine {}\n"),
    ];
    let said = library("mod contract;\nmod engine;", &files);
    assert_finds(&said, "engine/naive.rs:1:", "may not import `engine/trie`");
    assert!(!said.contains("engine/trie.rs"), "{said}");
    let files = [
        ("engine/mod.rs", "mod naive;\npub struct AnyEngine;\n"),
        ("engine/naive.rs", "use super::AnyEngine;\n"),
    ];
    let said = library("mod engine;", &files);
    assert_finds(&said, "engine/naive.rs:1:", "`engine/naive` may not import `engine`");
}

#[test]
fn a_new_layer_needs_a_place() {
    let said = library("mod cloud;", &[("cloud.rs", "\n")]);
    assert_finds(&said, "src/cloud.rs:1:", "not a known layer");
}

#[test]
fn unit_tests_may_import_upwards() {
    let file =
        "#[cfg(test)]\nmod tests { use crate::wal::Log; fn f() { std::fs::read(\"x\"); } }\n";
    assert_eq!(library("mod io;\nmod wal;", &[("io.rs", file), ("wal.rs", "\n")]), "");
    let files = [
        ("util/mod.rs", "#[cfg(test)]\nmod tests;\n"),
        ("util/tests.rs", "use crate::wal::Log;\nfn f(a: u8) -> u64 { a as u64 }\n"),
        ("wal.rs", "\n"),
    ];
    assert_eq!(library("mod util;\nmod wal;", &files), "");
}

#[test]
fn only_disk_calls_the_system() {
    for text in [
        "use std::fs;\n",
        "use std::{time::{Duration, Instant}};\n",
        "fn f() { std::thread::spawn(|| ()); }\n",
        "use std::thread;\nfn f() { thread::spawn(|| ()); }\n",
        "use rustix::fs::open;\n",
        "use std::time::SystemTime;\nfn f() { SystemTime::now(); }\n",
    ] {
        let said = library("mod wal;", &[("wal.rs", text)]);
        assert_finds(&said, "src/wal.rs:", "only `io` calls the operating system");
        assert_eq!(library("mod io;", &[("io.rs", text)]), "");
    }
    let sound =
        "use std::{fmt, time::{Duration, SystemTime}, thread};\nfn f() { thread::yield_now(); }\n";
    assert_eq!(library("mod wal;", &[("wal.rs", sound)]), "");
}

#[test]
fn casts_belong_to_codec() {
    let cast = "fn f(a: u8) -> u64 {\n    a as u64\n}\n";
    assert_finds(&library("mod wal;", &[("wal.rs", cast)]), "src/wal.rs:2:", "`as u64`");
    assert_eq!(
        library("mod util;", &[("util/mod.rs", "mod codec;\n"), ("util/codec.rs", cast)]),
        ""
    );
    let sound = "use std::fmt::Write as _;\nuse std::io::{\n    Read as _,\n};\n";
    assert_eq!(library("mod wal;", &[("wal.rs", sound)]), "");
    let in_test = format!("#[cfg(test)]\nmod tests {{ {cast} }}\n");
    assert_eq!(library("mod wal;", &[("wal.rs", in_test.as_str())]), "");
}

#[test]
fn lines_are_short_and_ascii() {
    let long = format!("// {}\n", "x".repeat(98));
    assert_finds(&library("mod wal;", &[("wal.rs", long.as_str())]), "wal.rs:1:", "101 columns");
    let row = format!("//! | 0 | 8 | {} |\n", "x".repeat(98));
    assert_eq!(library("mod wal;", &[("wal.rs", row.as_str())]), "");
    let said = library("mod wal;", &[("wal.rs", "\n// \u{e9}\n")]);
    assert_finds(&said, "wal.rs:2:", "not ASCII");
}

#[test]
fn files_and_functions_are_small() {
    let lines = |count: usize| "const A: u8 = 0;\n".repeat(count);
    let said = library("mod wal;", &[("wal.rs", lines(601).as_str())]);
    assert_finds(&said, "wal.rs:1: error:", "601 lines");
    let tested = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(590), lines(600));
    assert_eq!(library("mod wal;", &[("wal.rs", tested.as_str())]), "");

    let function = |count: usize| format!("\nfn f() -> [u8; 2] {{\n{}}}\n", "g();\n".repeat(count));
    let said = library("mod wal;", &[("wal.rs", function(71).as_str())]);
    assert_finds(&said, "wal.rs:2:", "function `f`: 71 lines");
    let sound = format!("{}\n// a\n\n{}", function(70), function(70));
    assert_eq!(library("mod wal;", &[("wal.rs", sound.as_str())]), "");
}

#[test]
fn unfinished_work_is_found() {
    let text = concat!("// a FIX", "ME\nfn f() { db", "g!(1); }\n/* TO", "DO */\n");
    let said = library("mod wal;", &[("wal.rs", text)]);
    assert_finds(&said, "wal.rs:1:", concat!("FIX", "ME"));
    assert_finds(&said, "wal.rs:2:", concat!("db", "g!"));
    assert_finds(&said, "wal.rs:3:", concat!("TO", "DO"));
    let in_text = concat!("const A: &str = \"FIX", "ME\";\n");
    assert_eq!(library("mod wal;", &[("wal.rs", in_text)]), "");
}

#[test]
fn bare_allow_is_found() {
    let said = library("mod wal;", &[("wal.rs", "#[allow(dead_code)]\nfn f() {}\n")]);
    assert_finds(&said, "wal.rs:1:", "use `expect` with a reason");
}

#[test]
fn modules_for_tests_alone_are_found() {
    let reason = "expect(dead_code, reason = \"not used yet\")";
    let library_root = format!("#[{reason}]\npub(crate) mod wal;\n");
    let said = library(&library_root, &[("wal.rs", "const A: u8 = 0;\n")]);
    assert_finds(&said, "lib.rs:", "only tests reach");
    let inner = format!("#![{reason}]\n");
    let said = library("mod wal;", &[("wal.rs", inner.as_str())]);
    assert_finds(&said, "wal.rs:1:", "only tests reach");
    let field = format!("#[{reason}]\nstruct A(u8);\n");
    assert_eq!(library("mod wal;", &[("wal.rs", field.as_str())]), "");
}

#[test]
fn unsafe_and_its_list_agree() {
    let map = "fn f() { unsafe { g() } }\n";
    let with_list = |list: &str| {
        says(&[
            ("crates/quintet/src/lib.rs", "#![deny(unsafe_code)]\nmod io;\n"),
            ("crates/quintet/src/io/mod.rs", "mod map;\n"),
            ("crates/quintet/src/io/map.rs", map),
            ("UNSAFE.md", list),
        ])
    };
    let row = "| `io::map` | never shrinks | test `a` |\n";
    assert_eq!(with_list(&format!("# Unsafe\n\n{row}")), "");
    assert_finds(&with_list("# Unsafe\n"), "io/map.rs:1:", "give it a row in UNSAFE.md");
    let stale = format!("# Unsafe\n{row}| `wal::tail` | a claim | test `b` |\n");
    assert_finds(&with_list(&stale), "UNSAFE.md:3:", "`wal::tail` is listed but uses no `unsafe`");
    let bare = "# Unsafe\n| `io::map` | never shrinks | |\n";
    assert_finds(&with_list(bare), "UNSAFE.md:2:", "needs a claim and a test");
}

#[test]
fn an_expectation_of_unsafe_needs_a_row() {
    let text = "#[expect(unsafe_code, reason = \"x\")]\nfn f() {}\n";
    let said = library("mod wal;", &[("wal.rs", text)]);
    assert_finds(&said, "wal.rs:1:", "`wal` uses `unsafe`");
}

#[test]
fn a_crate_root_denies_unsafe() {
    let said = says(&[("crates/tool/src/main.rs", "fn main() {}\n")]);
    assert_finds(&said, "crates/tool/src/main.rs:1:", "forbid(unsafe_code)");
}

#[test]
fn dead_files_are_found() {
    let files = [("wal.rs", "mod record;\n"), ("wal/record.rs", "\n"), ("wal/old.rs", "\n")];
    let said = library("mod wal;", &files);
    assert_finds(&said, "src/wal/old.rs:1:", "dead file");
    assert!(!said.contains("record.rs"), "{said}");
    let tests = [
        ("crates/tool/tests/crash/main.rs", "mod driver;\n"),
        ("crates/tool/tests/crash/driver.rs", "\n"),
        ("crates/tool/tests/model.rs", "mod common;\n"),
        ("crates/tool/tests/common/mod.rs", "\n"),
    ];
    assert_eq!(says(&tests), "");
}

#[test]
fn documents_have_one_heading_and_sound_links() {
    assert_finds(&says(&[("a.md", "text\n")]), "a.md:1:", "no first-level heading");
    let said = says(&[("a.md", "# A\n\n# B\n")]);
    assert_finds(&said, "a.md:3:", "second first-level heading");
    assert_eq!(says(&[("a.md", "# A\n```\n# not a heading\n```\n")]), "");
    let parts = "# B\n## A part, `of` it\n## Part\n## Part\n";
    let to = |link: &str| {
        says(&[("docs/a.md", &format!("# A\n[b]({link}) [c](https://c.d/e)\n")), ("b.md", parts)])
    };
    for sound in ["../b.md", "../b.md#a-part-of-it", "../b.md#part-1", "#a"] {
        assert_eq!(to(sound), "", "{sound}");
    }
    assert_finds(&to("../b.md#lost"), "docs/a.md:2:", "`b.md` has no heading `#lost`");
    assert_finds(&to("#lost"), "docs/a.md:2:", "`docs/a.md` has no heading `#lost`");
    assert_eq!(says(&[("docs/SUMMARY.md", "# A\n\n# B\n")]), "");
    let said = says(&[("docs/a.md", "# A\n[b](b.md)\n")]);
    assert_finds(&said, "docs/a.md:2:", "no `docs/b.md`");
}

#[test]
fn testing_stays_out_of_release_builds() {
    let manifest = |text: &str| says(&[("crates/quintet/Cargo.toml", text)]);
    let sound = "[features]\ntesting = []\n[dev-dependencies]\n\
        quintet = { path = \".\", features = [\"testing\"] }\n";
    assert_eq!(manifest(sound), "");
    let by_default = "[features]\ndefault = [\n  \"testing\",\n]\n";
    assert_finds(&manifest(by_default), "Cargo.toml:4:", "no other feature");
    let needed = "[dependencies]\nquintet = { path = \"../quintet\", features = [\"testing\"] }\n";
    assert_finds(&manifest(needed), "Cargo.toml:2:", "only dev-dependencies");
    let table = "[dependencies.quintet]\npath = \"..\"\nfeatures = [\"testing\"]\n";
    assert_finds(&manifest(table), "Cargo.toml:3:", "only dev-dependencies");
}
