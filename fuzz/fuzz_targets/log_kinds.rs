//! `foreshore_hostile::targets`, "log_kinds".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| foreshore_hostile::targets::run("log_kinds", data));
