//! Links the rivals that are libraries of the system. Without their features there is nothing to do here, and nothing
//! is done where FORESHORE_UNLINKED is set: then their code can be checked where the libraries are not, but not run.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FORESHORE_UNLINKED");
    if std::env::var_os("FORESHORE_UNLINKED").is_none() {
        link();
    }
}

fn link() {
    #[cfg(feature = "rocksdb")]
    system::link(&system::Library {
        feature: "rocksdb",
        name: "rocksdb",
        header: "rocksdb/c.h",
        package: "librocksdb-dev",
    });
    #[cfg(feature = "bdb")]
    if system::link(&system::Library {
        feature: "bdb",
        name: "db-5.3",
        header: "db.h",
        package: "libdb5.3-dev",
    }) {
        system::compile("src/engines/bdb/calls.c");
    }
}

#[cfg(any(feature = "rocksdb", feature = "bdb"))]
mod system {
    use std::{env, fs, path::PathBuf};

    /// A library, and what a program needs that uses it.
    pub(crate) struct Library {
        pub(crate) feature: &'static str,
        /// As the linker knows it.
        pub(crate) name: &'static str,
        pub(crate) header: &'static str,
        /// The package of Debian that has all this.
        pub(crate) package: &'static str,
    }

    /// Links a library if it is there; whether it is. If not the build fails, and says what to install.
    pub(crate) fn link(library: &Library) -> bool {
        let Library { feature, name, header, package } = library;
        if !is_there(library) {
            println!(
                "cargo::error=the feature {feature} needs the library {name} and its header {header}; on Debian: apt install \
                 {package}; or build without the feature"
            );
            return false;
        }
        println!("cargo::rustc-link-lib={name}");
        true
    }

    /// Whether a program that includes the header can be linked with the library.
    fn is_there(library: &Library) -> bool {
        let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
        let source = out.join(format!("{}.c", library.feature));
        let program = format!("#include <{}>\nint main(void) {{ return 0; }}\n", library.header);
        if fs::write(&source, program).is_err() {
            return false;
        }
        let mut compile = cc::Build::new().get_compiler().to_command();
        let compiled = compile
            .arg(&source)
            .arg("-o")
            .arg(out.join(library.feature))
            .arg(format!("-l{}", library.name))
            .output();
        compiled.is_ok_and(|output| output.status.success())
    }

    /// Compiles a file of C into the library that it is for.
    #[cfg(feature = "bdb")]
    pub(crate) fn compile(path: &str) {
        println!("cargo::rerun-if-changed={path}");
        cc::Build::new()
            .file(path)
            .std("gnu11")
            .warnings(true)
            .extra_warnings(true)
            .compile("foreshore_bench_c");
    }
}
