#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| quintet_fuzz::run("tph_slotted_piece", input));
