//! The programs in C: they are compiled against the installed library, run, and run again under
//! valgrind. The names that the library exports are those of the header, and those that
//! `docs/rocksdb.md` lists.
#![cfg(target_os = "linux")]

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use quintet_ctest::{store::StoreLibrary, text};

const LIBRARY: StoreLibrary<'_> =
    StoreLibrary { directory: env!("CARGO_MANIFEST_DIR"), name: "rocksdb" };

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the functions of `functions.txt`, and whether each has an effect.
fn functions_of_the_list() -> Vec<(String, bool)> {
    let list = text(&here("src/functions.txt"));
    let lines = list.lines().map(|line| line.split_once(' ').expect("a name and a state"));
    let functions = lines.map(|(name, state)| match state {
        "works" => (name.to_owned(), true),
        "none" => (name.to_owned(), false),
        _ => panic!("{name}: {state}"),
    });
    functions.collect()
}

/// Returns names in lines of at most 96 characters.
fn wrapped(names: &[&str]) -> String {
    let mut text = String::new();
    let mut column = 0;
    for name in names {
        if column > 0 && column + 1 + name.len() > 96 {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += name;
        column += name.len();
    }
    text
}

#[test]
fn page_lists_each_function() {
    let page = here("../../docs/rocksdb.md");
    let old = text(&page);
    let (before, rest) = old.split_once("<!-- generated: functions -->\n").expect("the mark");
    let (_, after) = rest.split_once("<!-- end -->").expect("the end");
    let functions = functions_of_the_list();
    let list = |title: &str, works: bool| {
        let names = functions.iter().filter(|(_, has_effect)| *has_effect == works);
        let names: Vec<_> = names.map(|(name, _)| name.as_str()).collect();
        format!("{title} ({}):\n\n```text\n{}\n```\n\n", names.len(), wrapped(&names))
    };
    let list = list("Works", true) + &list("Accepted without effect", false);
    let expected = format!("{before}<!-- generated: functions -->\n\n{list}<!-- end -->{after}");
    if env::var_os("UPDATE").is_some() {
        fs::write(&page, &expected).expect("the page is written");
    }
    assert!(text(&page) == expected, "run: UPDATE=1 cargo test -p quintet-rocksdb page_lists");
}

#[test]
fn tests_in_c_pass_on_each_engine() {
    let directory = tempfile::tempdir().expect("a directory");
    LIBRARY.run_on_each_engine(directory.path());
}

#[test]
fn programs_in_c_have_no_leak_and_no_wrong_access() {
    let directory = tempfile::tempdir().expect("a directory");
    LIBRARY.run_under_valgrind(directory.path());
}

#[test]
fn library_exports_the_functions_of_the_header_and_no_others() {
    let Some(exported) = LIBRARY.exported() else { return };
    assert_eq!(exported, LIBRARY.declared());
    let listed: BTreeSet<_> = functions_of_the_list().into_iter().map(|(name, _)| name).collect();
    assert_eq!(exported, listed);
}

#[test]
fn each_function_is_called_by_a_program_in_c() {
    LIBRARY.check_calls();
}

#[test]
fn header_is_valid_in_all_languages() {
    LIBRARY.check_header();
}
