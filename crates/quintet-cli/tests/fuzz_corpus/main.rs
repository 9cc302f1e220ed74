//! The kept inputs of the import parsers' fuzz target, and mutations of each, as an ordinary test.
//! See the test of the same name in the library.

mod harness;
#[path = "../../../quintet/tests/fuzz_corpus/kept.rs"]
mod kept;

#[test]
fn kept_inputs_of_import() {
    assert!(
        !kept::inputs("import").is_empty(),
        "no inputs in {}",
        kept::folder("import").display()
    );
    kept::run("import", harness::import);
}
