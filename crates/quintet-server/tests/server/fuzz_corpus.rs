//! The kept inputs of the server's fuzz targets, and mutations of each, as an ordinary test.

#[path = "../../../quintet/tests/fuzz_corpus/kept.rs"]
mod kept;

use quintet_server::fuzzing;

fn run(target: &str, one: fn(&[u8])) {
    assert!(!kept::inputs(target).is_empty(), "no inputs in {}", kept::folder(target).display());
    kept::run(target, one);
}

#[test]
fn kept_inputs_of_dump_files() {
    run("server_dump", fuzzing::dump_file);
}

#[test]
fn kept_inputs_of_dump_payloads() {
    run("server_payload", fuzzing::dump_payload);
}

#[test]
fn kept_inputs_of_requests() {
    run("server_requests", fuzzing::requests);
}
