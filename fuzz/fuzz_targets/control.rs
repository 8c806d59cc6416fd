//! `foreshore_hostile::targets`, "control".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| foreshore_hostile::targets::run("control", data));
