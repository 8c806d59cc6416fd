//! `foreshore_cli::hostile`, "script".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| foreshore_cli::hostile::run("script", data));
