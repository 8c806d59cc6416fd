//! `foreshore_hostile::targets`, "page".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| foreshore_hostile::targets::run("page", data));
