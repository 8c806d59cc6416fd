//! `foreshore_hostile::targets`, "key".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| foreshore_hostile::targets::run("key", data));
