//! The program `foreshore`: see the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    foreshore_cli::main()
}
