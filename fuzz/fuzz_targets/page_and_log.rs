//! `foreshore_hostile::targets`, "page_and_log".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| foreshore_hostile::targets::run("page_and_log", data));
