//! The libraries with the interfaces of LevelDB and RocksDB: installed under the original's name,
//! tested on each engine, and compared with the original's header.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Compiler, Leaks, check_header, functions, have, library_directory, names, run,
    run_under_valgrind, shared_directory, sources, tests, text,
};

/// Engines other than the default one.
const OTHER_ENGINES: [&str; 2] = ["btree", "tph"];
/// The test that sets the variable of the engine itself.
const ENGINES_TEST: &str = "management";

/// A library that is tested.
#[derive(Clone, Copy, Debug)]
pub struct StoreLibrary<'a> {
    /// The directory of its crate.
    pub directory: &'a str,
    /// The name of the original: `leveldb` or `rocksdb`.
    pub name: &'a str,
}

impl StoreLibrary<'_> {
    fn here(&self, path: &str) -> PathBuf {
        Path::new(self.directory).join(path)
    }

    fn programs(&self) -> PathBuf {
        self.here("tests/programs")
    }

    fn header(&self) -> PathBuf {
        self.here(&format!("include/{}/c.h", self.name))
    }

    fn library(&self) -> String {
        format!("quintet_{}", self.name)
    }

    /// Installs the library in a directory, and compiles the tests as programs of the original are.
    fn compile(&self, directory: &Path) -> PathBuf {
        let prefix = directory.join("prefix");
        let built = library_directory(&self.library());
        run(Command::new("bash").arg(self.here("install")).arg(built).arg(&prefix));
        let program = directory.join("tests");
        let compiler = Compiler {
            standard: "gnu11",
            headers: vec![prefix.join("include")],
            libraries: prefix.join("lib"),
            links: &[self.name],
        };
        compiler.compile_tests(&self.programs(), &program);
        program
    }

    /// Runs the tests on each engine.
    pub fn run_on_each_engine(&self, directory: &Path) {
        if !have(&["cc", "bash"]) {
            return;
        }
        let (program, tests) = (self.compile(directory), tests(&self.programs()));
        run(Command::new(&program).arg(program.with_extension("data")).args(&tests));
        for engine in OTHER_ENGINES {
            let tests = tests.iter().filter(|test| *test != ENGINES_TEST);
            let mut command = Command::new(&program);
            command.env("QUINTET_ENGINE", engine);
            run(command.arg(program.with_extension(engine)).args(tests));
        }
    }

    /// Runs the tests under valgrind.
    pub fn run_under_valgrind(&self, directory: &Path) {
        if have(&["cc", "bash", "valgrind"]) {
            let program = self.compile(directory);
            run_under_valgrind(&program, Leaks::Fail, &tests(&self.programs()));
        }
    }

    /// Returns the functions that the header declares.
    pub fn declared(&self) -> BTreeSet<String> {
        functions(&text(&self.header()), &format!("{}_", self.name))
    }

    /// Returns the names that the library exports. `None`: there is no tool that reads them.
    pub fn exported(&self) -> Option<BTreeSet<String>> {
        if !have(&["nm"]) {
            return None;
        }
        let library = library_directory(&self.library()).join(format!("lib{}.so", self.library()));
        let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
        let symbols = symbols.lines().filter_map(|line| line.split_whitespace().nth(2));
        Some(symbols.map(|name| name.split('@').next().unwrap_or(name).to_owned()).collect())
    }

    /// Checks that a program in C calls each function.
    ///
    /// # Panics
    ///
    /// If none calls a function.
    pub fn check_calls(&self) {
        let programs = self.programs();
        let headers = [programs.join("test.h"), shared_directory().join("store.h")];
        let code: String =
            sources(&programs).iter().chain(&headers).map(|file| text(file)).collect();
        // Some names are arguments of macros.
        let prefix = format!("{}_", self.name);
        let called = names(&code.replace("API(", &prefix), &prefix);
        let missing: Vec<_> = self.declared().difference(&called).cloned().collect();
        assert!(missing.is_empty(), "no program in C calls {missing:?}");
    }

    /// Checks that the header is valid C and C++.
    pub fn check_header(&self) {
        check_header(&self.header(), &["c99"], &["c++11"]);
    }
}
