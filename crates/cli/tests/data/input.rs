//! Files as people have them: what is wrong with them is said so that it can be mended.

use crate::scene::Scene;

#[test]
fn a_key_that_is_there_is_shown_as_dump_shows_it() {
    let scene = Scene::new();
    scene.write("c.csv", "a,b\n1,2\n1,3\n");
    for (table, key_type, key) in [("n", "u64", "1"), ("s", "str", "\"1\""), ("b", "bytes", "\"1\"")] {
        let said = scene.fail(&format!("load db c.csv --table {table} --key-type {key_type}"));
        assert!(said.contains(&format!("line 3: the key {key} is in table \"{table}\" already")), "{said}");
    }
}
