//! `foreshore_cli::hostile`, "load".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| foreshore_cli::hostile::run("load", data));
