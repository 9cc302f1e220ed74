//! The programs in C: they are compiled against the installed library, run, and run again under
//! valgrind. The names that the library exports are those of the header.
//!
//! Each test is skipped, with a message, without the tool that it needs. Continuous integration has
//! all of them.
#![cfg(target_os = "linux")]

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Warnings are errors in the programs.
const FLAGS: [&str; 6] = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-pthread"];
/// The tests of `tests/programs/main.c`.
const TESTS: [&str; 12] = [
    "batches",
    "families",
    "gets",
    "iterators",
    "management",
    "merges",
    "nulls",
    "numbers",
    "objects",
    "threads",
    "optimistic",
    "transactions",
];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The directory of the shared library that Cargo built for this test.
fn library_directory() -> PathBuf {
    let program = env::current_exe().expect("a path");
    let deps = program.parent().expect("a directory");
    let candidates = [deps.to_path_buf(), deps.parent().expect("a directory").to_path_buf()];
    let name = "libquintet_rocksdb.so";
    let found = candidates.into_iter().find(|directory| directory.join(name).exists());
    found.unwrap_or_else(|| panic!("{name} is not beside {}", program.display()))
}

/// Returns whether the tools exist. Prints that the test is skipped if one does not.
fn have(tools: &[&str]) -> bool {
    tools.iter().all(|tool| {
        let works = Command::new(tool).arg("--version").output();
        let works = works.is_ok_and(|run| run.status.success());
        if !works {
            println!("skipped: there is no {tool}");
        }
        works
    })
}

/// Runs a command that must succeed, and returns its output.
fn run(command: &mut Command) -> String {
    // Cargo's value names a directory where an older build of the library may be.
    command.env_remove("LD_LIBRARY_PATH").env_remove("QUINTET_ENGINE");
    let output = command.output().expect("the command starts");
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{err}", output.status);
    String::from_utf8_lossy(out).into_owned()
}

/// Installs the library in a directory, and compiles the tests with `-lrocksdb`.
fn tests(directory: &Path) -> PathBuf {
    let prefix = directory.join("prefix");
    run(Command::new("bash").arg(here("install")).arg(library_directory()).arg(&prefix));
    let program = directory.join("tests");
    let libraries = prefix.join("lib");
    run(Command::new("cc")
        .args(FLAGS)
        .arg("-I")
        .arg(prefix.join("include"))
        .args(sources())
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&libraries)
        .arg("-lrocksdb")
        .arg(format!("-Wl,-rpath,{}", libraries.display())));
    program
}

/// Returns the C files of the tests, by name.
fn sources() -> Vec<PathBuf> {
    let files = fs::read_dir(here("tests/programs")).expect("the programs");
    let files = files.map(|file| file.expect("a file").path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|e| e == "c")).collect();
    files.sort();
    assert_eq!(files.len(), TESTS.len() + 1, "{files:?}");
    files
}

/// Returns the words of a text that begin with `rocksdb_`.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let starts = text.match_indices("rocksdb_").map(|(at, _)| at);
    let starts = starts.filter(move |at| !text[..*at].ends_with(is_word));
    starts.filter_map(move |at| {
        let size = text[at..].find(|c| !is_word(c))?;
        Some((&text[at..at + size], &text[at + size..]))
    })
}

/// Returns the functions that a text names before a parenthesis.
fn functions(text: &str) -> BTreeSet<String> {
    let named = words(text).filter(|(_, rest)| rest.starts_with('('));
    named.map(|(name, _)| name.to_owned()).collect()
}

fn declared() -> BTreeSet<String> {
    functions(&fs::read_to_string(here("include/rocksdb/c.h")).expect("the header"))
}

/// Returns the functions of `functions.txt`, and whether each has an effect.
fn functions_of_the_list() -> Vec<(String, bool)> {
    let list = fs::read_to_string(here("src/functions.txt")).expect("the list");
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
    let text = fs::read_to_string(&page).expect("the page");
    let (before, rest) = text.split_once("<!-- generated: functions -->\n").expect("the mark");
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
    let text = fs::read_to_string(&page).expect("the page");
    assert!(text == expected, "run: UPDATE=1 cargo test -p quintet-rocksdb page_lists");
}

#[test]
fn tests_in_c_pass_on_each_engine() {
    if !have(&["cc", "bash"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = tests(directory.path());
    run(Command::new(&program).arg(program.with_extension("data")).args(TESTS));
    for engine in ["btree", "tph"] {
        // `management` sets the variable itself.
        let tests = TESTS.iter().filter(|test| **test != "management");
        let mut command = Command::new("env");
        command.arg(format!("QUINTET_ENGINE={engine}")).arg(&program);
        run(command.arg(program.with_extension(engine)).args(tests));
    }
}

#[test]
fn programs_in_c_have_no_leak_and_no_wrong_access() {
    if !have(&["cc", "bash", "valgrind"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = tests(directory.path());
    // Without inlined functions, valgrind reads the symbols of the library in half of the time.
    run(Command::new("valgrind")
        .args(["--quiet", "--read-inline-info=no", "--error-exitcode=9", "--leak-check=full"])
        .args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"])
        .arg(&program)
        .arg(program.with_extension("valgrind"))
        .args(TESTS));
}

#[test]
fn library_exports_the_functions_of_the_header_and_no_others() {
    if !have(&["nm"]) {
        return;
    }
    let library = library_directory().join("libquintet_rocksdb.so");
    let names = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let exported: BTreeSet<_> =
        names.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let exported: BTreeSet<_> = exported
        .into_iter()
        .map(|name| name.split('@').next().unwrap_or(name).to_owned())
        .collect();
    assert_eq!(exported, declared());
    let listed: BTreeSet<_> = functions_of_the_list().into_iter().map(|(name, _)| name).collect();
    assert_eq!(exported, listed);
}

#[test]
fn each_function_is_called_by_a_program_in_c() {
    let files = sources().into_iter().chain([here("tests/programs/test.h")]);
    let programs: String = files.map(|file| fs::read_to_string(file).expect("a program")).collect();
    // Some names are arguments of macros.
    let called: BTreeSet<_> = words(&programs).map(|(name, _)| name.to_owned()).collect();
    let missing: Vec<_> = declared().difference(&called).cloned().collect();
    assert!(missing.is_empty(), "no program in C calls {missing:?}");
}

#[test]
fn header_is_valid_in_all_languages() {
    let header = here("include/rocksdb/c.h");
    for (compiler, language, standard) in [("cc", "c", "c99"), ("c++", "c++", "c++11")] {
        if have(&[compiler]) {
            run(Command::new(compiler)
                .args(["-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic"])
                .args(["-Werror", &format!("-std={standard}")])
                .arg(&header));
        }
    }
}
