//! Builds, runs and checks the programs in C that test Quintet's C libraries.
//!
//! Why: three libraries have tests in C; how they are compiled and run is written here once.
//!
//! How: the crate of a library has programs in `tests/programs`. `tests.def` there lists the tests,
//! and `c/main.c` here runs those that are named. [`store`] has what the libraries with the
//! interfaces of LevelDB and RocksDB share beyond that.
//!
//! A test is skipped, with a message, without a tool that it needs: see [`have`].
#![deny(unsafe_code)]

pub mod store;

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Warnings are errors in the programs.
const FLAGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-g", "-pthread"];
/// Variables of the environment that change what a program does, unless the test sets them. Cargo's
/// value of the first names a directory where an older build of the library may be.
const VARIABLES: [&str; 2] = ["LD_LIBRARY_PATH", "QUINTET_ENGINE"];

/// The directory of the C files that all libraries share.
pub fn shared_directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/c"))
}

/// Returns the text of a file.
///
/// # Panics
///
/// If it cannot be read.
pub fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the directory of the shared library that Cargo built for this test.
///
/// # Panics
///
/// If the library is not beside the test.
pub fn library_directory(name: &str) -> PathBuf {
    let program = env::current_exe().expect("a path");
    let deps = program.parent().expect("a directory");
    let candidates = [deps.to_path_buf(), deps.parent().expect("a directory").to_path_buf()];
    let file = format!("{}{name}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let found = candidates.into_iter().find(|directory| directory.join(&file).exists());
    found.unwrap_or_else(|| panic!("{file} is not beside {}", program.display()))
}

/// Returns whether the tools exist. Prints that the test is skipped if one does not.
pub fn have(tools: &[&str]) -> bool {
    tools.iter().all(|tool| {
        let argument = if *tool == "go" { "version" } else { "--version" };
        let run = Command::new(tool).arg(argument).output();
        let works = run.is_ok_and(|run| run.status.success());
        if !works {
            println!("skipped: there is no {tool}");
        }
        works
    })
}

/// Runs a command that must succeed, and returns its output.
///
/// # Panics
///
/// If the command does not start or does not succeed.
pub fn run(command: &mut Command) -> String {
    for variable in VARIABLES {
        if !command.get_envs().any(|(name, _)| name == variable) {
            command.env_remove(variable);
        }
    }
    let output = command.output().expect("the command starts");
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{err}", output.status);
    String::from_utf8_lossy(out).into_owned()
}

/// How programs are compiled with a library.
#[derive(Clone, Debug)]
pub struct Compiler<'a> {
    /// The standard of C.
    pub standard: &'a str,
    /// Directories of headers, beside [`shared_directory`].
    pub headers: Vec<PathBuf>,
    /// The directory of the shared library.
    pub libraries: PathBuf,
    /// The names of libraries.
    pub links: &'a [&'a str],
}

impl Compiler<'_> {
    /// Compiles C files into one program.
    pub fn compile(&self, sources: &[impl AsRef<OsStr>], program: &Path) {
        let mut command = Command::new("cc");
        command.arg(format!("-std={}", self.standard)).args(FLAGS);
        for headers in self.headers.iter().map(PathBuf::as_path).chain([shared_directory()]) {
            command.arg("-I").arg(headers);
        }
        run(command
            .args(sources)
            .arg("-o")
            .arg(program)
            .arg("-L")
            .arg(&self.libraries)
            .args(self.links.iter().map(|library| format!("-l{library}")))
            .arg(format!("-Wl,-rpath,{}", self.libraries.display())));
    }

    /// Compiles the tests of a directory, with the main program, into one program.
    pub fn compile_tests(&self, directory: &Path, program: &Path) {
        let mut compiler = self.clone();
        compiler.headers.push(directory.to_path_buf());
        let sources: Vec<_> =
            sources(directory).into_iter().chain([shared_directory().join("main.c")]).collect();
        compiler.compile(&sources, program);
    }
}

/// Returns the C files of a directory, by name.
///
/// # Panics
///
/// If there is none.
pub fn sources(directory: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).expect("the programs");
    let files = files.map(|file| file.expect("a file").path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|e| e == "c")).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", directory.display());
    files
}

/// Returns the tests that `tests.def` of a directory lists.
///
/// # Panics
///
/// If there is none.
pub fn tests(directory: &Path) -> Vec<String> {
    let list = text(&directory.join("tests.def"));
    let names = list.lines().filter_map(|line| line.strip_prefix("TEST(")?.strip_suffix(')'));
    let names: Vec<_> = names.map(str::to_owned).collect();
    assert!(!names.is_empty(), "{}", directory.display());
    names
}

/// What valgrind does with memory that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaks {
    /// It is a failure.
    Fail,
    /// It is ignored.
    Ignore,
}

/// Runs a program under valgrind.
pub fn run_under_valgrind(program: &Path, leaks: Leaks, tests: &[impl AsRef<OsStr>]) {
    let leaks = if leaks == Leaks::Fail { "full" } else { "no" };
    // Without inlined functions, valgrind reads the symbols of the library in half of the time.
    run(Command::new("valgrind")
        .args(["--quiet", "--read-inline-info=no", "--error-exitcode=9"])
        .arg(format!("--leak-check={leaks}"))
        .args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"])
        .arg(program)
        .arg(program.with_extension(format!("valgrind-{leaks}")))
        .args(tests));
}

/// Returns the names in a text that begin with a prefix.
pub fn names(text: &str, prefix: &str) -> BTreeSet<String> {
    words(text, prefix).map(|(name, _)| name.to_owned()).collect()
}

/// Returns the names in a text that begin with a prefix and are before a parenthesis.
pub fn functions(text: &str, prefix: &str) -> BTreeSet<String> {
    let named = words(text, prefix).filter(|(_, rest)| rest.starts_with('('));
    named.map(|(name, _)| name.to_owned()).collect()
}

/// Returns the names that begin with a prefix, each with the text after it.
fn words<'t>(text: &'t str, prefix: &str) -> impl Iterator<Item = (&'t str, &'t str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let starts = text.match_indices(prefix).map(|(at, _)| at);
    let starts = starts.filter(move |at| !text[..*at].ends_with(is_word));
    starts.filter_map(move |at| {
        let size = text[at..].find(|c| !is_word(c))?;
        Some((&text[at..at + size], &text[at + size..]))
    })
}

/// Checks that a header is valid C and C++ in standards of both.
pub fn check_header(header: &Path, c: &[&str], cpp: &[&str]) {
    for (compiler, language, standards) in [("cc", "c", c), ("c++", "c++", cpp)] {
        if !have(&[compiler]) {
            continue;
        }
        for standard in standards {
            run(Command::new(compiler)
                .args(["-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic"])
                .args(["-Werror", &format!("-std={standard}")])
                .arg(header));
        }
    }
}
