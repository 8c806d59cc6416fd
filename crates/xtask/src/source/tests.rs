use super::{Source, mark_test_modules};

fn source(path: &str, text: &str) -> Source {
    Source::new(path.to_string(), text)
}

fn code(text: &str) -> Vec<String> {
    source("crates/x/src/lib.rs", text).lines.into_iter().map(|line| line.code).collect()
}

fn tests(source: &Source) -> Vec<usize> {
    source.numbered().filter(|(_, line)| line.is_test).map(|(number, _)| number).collect()
}

#[test]
fn comments_and_strings_are_not_code() {
    assert_eq!(code("let a = 1; // std::fs"), ["let a = 1; "]);
    assert_eq!(code("a /* std::fs /* nested */ still */ b"), ["a  b"]);
    assert_eq!(code("/* one\ntwo */ three"), ["", " three"]);
    assert_eq!(code(r#"f("std::fs \" // not a comment", x)"#), [r#"f("", x)"#]);
    assert_eq!(code("f(r#\"a \" // b\"#, br\"c\") // d"), ["f(\"\", b\"\") "]);
    assert_eq!(code("let s = \"one\ntwo // three\"; four"), ["let s = \"", "\"; four"]);
}

#[test]
fn quotes_and_lifetimes() {
    assert_eq!(code("let c = '\"'; let d = '\\''; d // e"), ["let c = ' '; let d = ' '; d "]);
    assert_eq!(code("fn f<'a>(x: &'a str) {} // g"), ["fn f<'a>(x: &'a str) {} "]);
    assert_eq!(code("let c = '\\u{1F600}'; '/'"), ["let c = ' '; ' '"]);
    assert_eq!(code("let for_r = var; r\"x\""), ["let for_r = var; \"\""]);
}

#[test]
fn comments_are_kept() {
    let source = source("crates/x/src/lib.rs", "f(); // see LOCK-3\n/* and */ g(\"// not\")");
    assert_eq!(source.lines[0].comment, " see LOCK-3");
    assert_eq!(source.lines[1].comment, " and ");
}

#[test]
fn items_under_cfg_test_are_tests() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { if x { } }\n}\nfn c() {}\n";
    assert_eq!(tests(&source("crates/x/src/a.rs", text)), [2, 3, 4, 5]);
    let text = "#[cfg(all(test, not(loom)))]\n#[rustfmt::skip]\nfn a(x: [u8; 2]) {\n}\nfn b() {}\n";
    assert_eq!(tests(&source("crates/x/src/a.rs", text)), [1, 2, 3, 4]);
    let text = "#[cfg(test)] use a::b;\nfn c() {}\n#[cfg(not(test))]\nfn d() {}\n";
    assert_eq!(tests(&source("crates/x/src/a.rs", text)), [1]);
    assert_eq!(source("crates/x/src/a.rs", text).size(), 3);
}

#[test]
fn files_of_test_modules_are_tests() {
    let mut sources = [
        source("crates/x/src/lib.rs", "#[cfg(test)]\nmod models;\nmod models_of_time;\n"),
        source("crates/x/src/models.rs", "fn a() {}\n"),
        source("crates/x/src/models/b.rs", "fn b() {}\n"),
        source("crates/x/src/models_of_time.rs", "#[cfg(test)]\nmod check;\n"),
        source("crates/x/src/models_of_time/check.rs", "fn c() {}\n"),
        source("crates/x/tests/d.rs", "fn d() {}\n"),
    ];
    mark_test_modules(&mut sources);
    let sizes: Vec<usize> = sources.iter().map(Source::size).collect();
    assert_eq!(sizes, [1, 0, 0, 0, 0, 0]);
}
