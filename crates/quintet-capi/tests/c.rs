//! The programs in C and Go: examples, tests, and the page `docs/c.md`. They are compiled with the
//! system's compilers, run, and run again under valgrind.
//!
//! Each test is skipped, with a message, without the tool that it needs. Continuous integration has
//! all of them.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use quintet_ctest::{
    Compiler, Leaks, check_header, functions as named_functions, have, library_directory, run,
    run_under_valgrind, sources, tests, text,
};

/// The library as Cargo names it.
const LIBRARY: &str = "quintet_c";
/// Functions that the header defines itself.
const INLINE: [&str; 3] = ["quintet_string", "quintet_bytes", "quintet_content"];
/// The test that forks. Its child exits while the parent's database is open. Memory that only the
/// stacks of the parent's other threads name is lost there, since the child has no such threads. So
/// the check for leaks fails in the child, and reads all address space that the database reserved:
/// some 50 GiB with the default budget, which takes minutes. Other checks of valgrind apply.
const FORKING_TEST: &str = "forked";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns how the programs are compiled.
fn compiler() -> Compiler<'static> {
    Compiler {
        standard: "c11",
        headers: vec![here("include"), here("examples")],
        libraries: library_directory(LIBRARY),
        links: &[LIBRARY, "m"],
    }
}

/// Compiles the examples, and returns the programs.
fn examples(directory: &Path) -> Vec<PathBuf> {
    let compiled = sources(&here("examples")).into_iter().map(|source| {
        let program = directory.join(source.file_stem().expect("a name"));
        compiler().compile(&[source], &program);
        program
    });
    compiled.collect()
}

/// Compiles the tests into one program.
fn compile_tests(directory: &Path) -> PathBuf {
    let program = directory.join("tests");
    compiler().compile_tests(&here("tests/programs"), &program);
    program
}

/// Returns a run of a program, whose first argument is where its data is.
fn on(program: &Path, tests: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.arg(program.with_extension("data")).args(tests);
    command
}

/// Returns the functions that the header declares or defines.
fn functions() -> BTreeSet<String> {
    let header = text(&here("include/quintet.h"));
    // The text outside comments.
    let code: String = header
        .split("/*")
        .enumerate()
        .map(|(index, part)| {
            let code = if index == 0 { Some(part) } else { part.split_once("*/").map(|(_, c)| c) };
            code.expect("comments end")
        })
        .collect();
    let names = named_functions(&code, "quintet_");
    assert!(names.len() > 100, "{}", names.len());
    names
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
    let program = compile_tests(directory.path());
    for test in tests(&here("tests/programs")) {
        run(&mut on(&program, &[&test]));
    }
}

#[test]
fn programs_in_c_have_no_leak_and_no_wrong_access() {
    if !have(&["cc", "valgrind"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let examples = examples(directory.path());
    let program = compile_tests(directory.path());
    let mut others = tests(&here("tests/programs"));
    others.retain(|test| test != FORKING_TEST);
    thread::scope(|scope| {
        scope.spawn(|| {
            for example in &examples {
                run_under_valgrind(example, Leaks::Fail, &[] as &[&str]);
            }
        });
        run_under_valgrind(&program, Leaks::Fail, &others);
        run_under_valgrind(&program, Leaks::Ignore, &[FORKING_TEST]);
    });
}

#[test]
fn each_function_is_called_by_a_program_in_c() {
    let files = sources(&here("examples")).into_iter().chain(sources(&here("tests/programs")));
    let headers = [here("examples/example.h"), here("tests/programs/test.h")];
    let programs: String = files.chain(headers).map(|file| text(&file)).collect();
    // `S` is `quintet_string`.
    let programs = programs.replace("S(", "quintet_string(");
    let called = named_functions(&programs, "quintet_");
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
    compiler().compile(&[source], &directory.path().join("all"));
}

#[test]
fn header_is_valid_in_all_languages() {
    check_header(&here("include/quintet.h"), &["c99", "c11", "c17"], &["c++11", "c++17", "c++20"]);
}

/// Writes the examples of the page to files.
fn examples_of_the_page(directory: &Path) -> Vec<PathBuf> {
    let page = text(&here("../../docs/c.md"));
    let examples = page.split("```c\n").skip(1).map(|rest| rest.split("```").next());
    let sources = examples.enumerate().map(|(number, example)| {
        let source = directory.join(format!("page{number}.c"));
        fs::write(&source, example.expect("an example")).expect("the source");
        source
    });
    sources.collect()
}

#[test]
fn examples_of_the_page_run() {
    if !have(&["cc"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let outputs = ["Alice\n", "begin users \nput users alice\n"];
    let sources = examples_of_the_page(directory.path());
    assert_eq!(sources.len(), outputs.len());
    for (source, output) in sources.into_iter().zip(outputs) {
        let program = source.with_extension("");
        compiler().compile(&[source], &program);
        assert_eq!(run(Command::new(&program).current_dir(directory.path())), output);
    }
}

#[test]
fn installed_library_is_found_by_pkg_config() {
    if !have(&["cc", "pkg-config", "bash"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let prefix = directory.path().join("prefix");
    run(Command::new("bash").arg(here("install")).arg(library_directory(LIBRARY)).arg(&prefix));
    let flags = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        run(command.args(arguments).arg("quintet"))
    };
    assert_eq!(flags(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let source = examples_of_the_page(directory.path()).swap_remove(0);
    let build = |name: &str, libraries: &str| {
        let program = directory.path().join(name);
        let mut command = Command::new("cc");
        command
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror"])
            .arg(&source)
            .arg("-o")
            .arg(&program);
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
    let libraries = library_directory(LIBRARY);
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
