//! `foreshore_cli::hostile`, "commands".
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| foreshore_cli::hostile::run("commands", data));
