//! The programs in C and Go: examples, tests, and the page `docs/c.md`. They are compiled with the
//! system's compilers, run, and run again under valgrind.
//!
//! Each test is skipped, with a message, without the tool that it needs. Continuous integration has
//! all of them.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

/// Warnings are errors in the programs.
const FLAGS: [&str; 5] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-g"];
/// Functions that the header defines itself.
const INLINE: [&str; 3] = ["quintet_string", "quintet_bytes", "quintet_content"];
/// The tests of `tests/programs/main.c` that valgrind checks for leaks too.
const TESTS: [&str; 14] = [
    "callbacks",
    "closed",
    "keys",
    "loads",
    "merges",
    "mounts",
    "nulls",
    "reads",
    "snapshots",
    "tables",
    "threads",
    "transactions",
    "tree",
    "wrong_handles",
];
/// The test that forks. Its child exits while the parent's database is open. Memory that only the
/// stacks of the parent's other threads name is lost there, since the child has no such threads. So
/// the check for leaks fails in the child, and reads all address space that the database reserved:
/// some 50 GiB with the default budget, which takes minutes. Other checks of valgrind apply.
const FORKING_TEST: &str = "forked";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The directory of the shared library that Cargo built for this test.
fn library_directory() -> PathBuf {
    let program = env::current_exe().expect("a path");
    let deps = program.parent().expect("a directory");
    let candidates = [deps.to_path_buf(), deps.parent().expect("a directory").to_path_buf()];
    let name = format!("{}quintet_c{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let found = candidates.into_iter().find(|directory| directory.join(&name).exists());
    found.unwrap_or_else(|| panic!("{name} is not beside {}", program.display()))
}

/// Returns whether the tools exist. Prints that the test is skipped if one does not.
fn have(tools: &[&str]) -> bool {
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
fn run(command: &mut Command) -> String {
    // Cargo's value names a directory where an older build of the library may be.
    if !command.get_envs().any(|(name, _)| name == "LD_LIBRARY_PATH") {
        command.env_remove("LD_LIBRARY_PATH");
    }
    let output = command.output().expect("the command starts");
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{err}", output.status);
    String::from_utf8_lossy(out).into_owned()
}

/// Compiles C files into one program.
fn compile(sources: &[impl AsRef<OsStr>], program: &Path) {
    let libraries = library_directory();
    run(Command::new("cc")
        .args(FLAGS)
        .args(["-I".as_ref(), here("include").as_os_str(), "-I".as_ref()])
        .arg(here("examples"))
        .args(sources)
        .arg("-o")
        .arg(program)
        .arg("-L")
        .arg(&libraries)
        .args(["-lquintet_c", "-lpthread", "-lm"])
        .arg(format!("-Wl,-rpath,{}", libraries.display())));
}

/// Returns the C files of a directory, by name.
fn sources(directory: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(here(directory)).expect("the programs");
    let files = files.map(|file| file.expect("a file").path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|e| e == "c")).collect();
    files.sort();
    assert!(files.len() >= 7, "{files:?}");
    files
}

/// Compiles the examples, and returns the programs.
fn examples(directory: &Path) -> Vec<PathBuf> {
    let compiled = sources("examples").into_iter().map(|source| {
        let program = directory.join(source.file_stem().expect("a name"));
        compile(&[source], &program);
        program
    });
    compiled.collect()
}

/// Compiles the tests into one program.
fn tests(directory: &Path) -> PathBuf {
    let program = directory.join("tests");
    compile(&sources("tests/programs"), &program);
    program
}

/// Returns a run of a program, whose first argument is where its data is.
fn on(program: &Path, tests: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.arg(program.with_extension("data")).args(tests);
    command
}

/// Runs a program under valgrind. `leaks` is `full` or `no`.
fn run_under_valgrind(program: &Path, leaks: &str, tests: &[&str]) {
    let data = program.with_extension(format!("valgrind-{leaks}"));
    // Without inlined functions, valgrind reads the symbols of the library in half of the time.
    run(Command::new("valgrind")
        .args(["--quiet", "--read-inline-info=no", "--error-exitcode=9"])
        .arg(format!("--leak-check={leaks}"))
        .args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"])
        .arg(program)
        .arg(data)
        .args(tests));
}

/// Returns the functions that the header declares or defines.
fn functions() -> BTreeSet<String> {
    let header = fs::read_to_string(here("include/quintet.h")).expect("the header");
    // The text outside comments.
    let code: String = header
        .split("/*")
        .enumerate()
        .map(|(index, part)| {
            let code = if index == 0 { Some(part) } else { part.split_once("*/").map(|(_, c)| c) };
            code.expect("comments end")
        })
        .collect();
    let names = called(&code);
    assert!(names.len() > 100, "{}", names.len());
    names
}

/// Returns the names that begin with `quintet_` and are followed by a parenthesis.
fn called(code: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let starts = code.match_indices("quintet_").map(|(at, _)| at);
    let starts = starts.filter(|at| !code[..*at].ends_with(is_word));
    let ends = starts.map(|at| (at, code[at..].find(|c| !is_word(c)).map(|size| at + size)));
    let names = ends.filter_map(|(start, end)| end.map(|end| (&code[start..end], &code[end..])));
    let names = names.filter(|(_, rest)| rest.starts_with('('));
    names.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn examples_in_c_run() {
    if !have(&["cc"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for program in examples(directory.path()) {
        run(&mut on(&program, &[]));
    }
}

#[test]
fn tests_in_c_pass() {
    if !have(&["cc"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = tests(directory.path());
    for test in TESTS.into_iter().chain([FORKING_TEST]) {
        run(&mut on(&program, &[test]));
    }
}

#[test]
fn programs_in_c_have_no_leak_and_no_wrong_access() {
    if !have(&["cc", "valgrind"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let examples = examples(directory.path());
    let tests = tests(directory.path());
    thread::scope(|scope| {
        scope.spawn(|| {
            for example in &examples {
                run_under_valgrind(example, "full", &[]);
            }
        });
        run_under_valgrind(&tests, "full", &TESTS);
        run_under_valgrind(&tests, "no", &[FORKING_TEST]);
    });
}

#[test]
fn main_program_lists_each_test() {
    let main = fs::read_to_string(here("tests/programs/main.c")).expect("the program");
    let header = fs::read_to_string(here("tests/programs/test.h")).expect("the header");
    let tests: Vec<_> = TESTS.into_iter().chain([FORKING_TEST]).collect();
    for test in &tests {
        assert!(main.contains(&format!("{{\"{test}\", test_{test}}}")), "{test}");
    }
    assert_eq!(header.matches("void test_").count(), tests.len());
}

#[test]
fn each_function_is_called_by_a_program_in_c() {
    let files = sources("examples").into_iter().chain(sources("tests/programs"));
    let headers = [here("examples/example.h"), here("tests/programs/test.h")];
    let programs: String =
        files.chain(headers).map(|file| fs::read_to_string(file).expect("a program")).collect();
    // `S` is `quintet_string`.
    let programs = programs.replace("S(", "quintet_string(");
    let called = called(&programs);
    let missing: Vec<_> = functions().difference(&called).cloned().collect();
    assert!(missing.is_empty(), "no program in C calls {missing:?}");
}

#[test]
fn each_declared_function_is_exported() {
    if !have(&["cc"]) {
        return;
    }
    let mut addresses = String::new();
    for name in functions().iter().filter(|name| !INLINE.contains(&name.as_str())) {
        addresses += &["(function)", name, ",\n"].concat();
    }
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("all.c");
    let text = format!(
        "#include \"quintet.h\"\ntypedef void (*function)(void);\nvolatile function all[] = \
         {{\n{addresses}}};\nint main(void) {{ return all[0] == 0; }}\n"
    );
    fs::write(&source, text).expect("the source");
    compile(&[source], &directory.path().join("all"));
}

#[test]
fn header_is_valid_in_all_languages() {
    let header = here("include/quintet.h");
    let languages =
        [("cc", "c", ["c99", "c11", "c17"]), ("c++", "c++", ["c++11", "c++17", "c++20"])];
    for (compiler, language, standards) in languages {
        if !have(&[compiler]) {
            continue;
        }
        for standard in standards {
            run(Command::new(compiler)
                .args(["-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic"])
                .args(["-Werror", &format!("-std={standard}")])
                .arg(&header));
        }
    }
}

/// Writes the example of the page to a file.
fn example_of_the_page(directory: &Path) -> PathBuf {
    let page = fs::read_to_string(here("../../docs/c.md")).expect("the page");
    let example = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let source = directory.join("page.c");
    fs::write(&source, example.expect("an example")).expect("the source");
    source
}

#[test]
fn example_of_the_page_runs() {
    if !have(&["cc"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("page");
    compile(&[example_of_the_page(directory.path())], &program);
    run(Command::new(&program).current_dir(directory.path()));
}

#[test]
fn installed_library_is_found_by_pkg_config() {
    if !have(&["cc", "pkg-config", "bash"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let prefix = directory.path().join("prefix");
    run(Command::new("bash").arg(here("install")).arg(library_directory()).arg(&prefix));
    let flags = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        run(command.args(arguments).arg("quintet"))
    };
    assert_eq!(flags(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let source = example_of_the_page(directory.path());
    let build = |name: &str, libraries: &str| {
        let program = directory.path().join(name);
        let mut command = Command::new("cc");
        command.args(FLAGS).arg(&source).arg("-o").arg(&program);
        run(command
            .args(flags(&["--cflags"]).split_whitespace())
            .args(libraries.split_whitespace()));
        program
    };
    let shared = build("shared", &flags(&["--libs"]));
    run(Command::new(shared)
        .env("LD_LIBRARY_PATH", prefix.join("lib"))
        .current_dir(directory.path()));
    // The static library: the same flags, without the shared one.
    let library = format!("{}quintet{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    fs::remove_file(prefix.join("lib").join(library)).expect("the shared library");
    let fixed = build("static", &flags(&["--static", "--libs"]));
    run(Command::new(fixed).current_dir(directory.path()));
}

#[test]
fn example_in_go_runs() {
    if !have(&["go", "cc"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let libraries = library_directory();
    let libraries = libraries.display();
    let program = directory.path().join("example");
    run(Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .current_dir(here("../../examples/go"))
        .env("CGO_ENABLED", "1")
        .env("CGO_CFLAGS", format!("-I{}", here("include").display()))
        .env("CGO_LDFLAGS", format!("-L{libraries} -lquintet_c -Wl,-rpath,{libraries}"))
        .env("GOFLAGS", "-mod=mod")
        // Kept between runs, since it has the compiled standard library.
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go")));
    run(Command::new(&program).arg(directory.path().join("data")));
}
