#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| quintet_fuzz::run_server(
    quintet_server::fuzzing::dump_payload,
    input
));
