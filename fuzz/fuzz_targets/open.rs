//! `foreshore_hostile::targets`, "open".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| foreshore_hostile::targets::run("open", data));
