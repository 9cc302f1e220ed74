//! The programs in C: they are compiled against the installed library, run, and run again under
//! valgrind. The names that the library exports are those of the header.
#![cfg(target_os = "linux")]

use quintet_ctest::store::StoreLibrary;

const LIBRARY: StoreLibrary<'_> =
    StoreLibrary { directory: env!("CARGO_MANIFEST_DIR"), name: "leveldb" };
/// Number of functions of `leveldb/c.h` 1.23.
const FUNCTIONS: usize = 68;

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
    assert_eq!(exported.len(), FUNCTIONS);
}

#[test]
fn each_function_is_called_by_a_program_in_c() {
    LIBRARY.check_calls();
}

#[test]
fn header_is_valid_in_all_languages() {
    LIBRARY.check_header();
}
