#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sluice::fuzzing::run("headers", bytes));
