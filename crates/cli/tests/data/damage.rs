//! Damage is told by the exit status and says what to do next, whoever listens.

use std::{fs, path::Path};

use crate::{
    make_database,
    scene::{Scene, text},
};

/// Damages a leaf of the first table.
fn damage(database: &Path) {
    let mut bytes = fs::read(database.join("data")).unwrap();
    let is_leaf = |page: &[u8]| (page[21], u32::from_le_bytes(page[16..20].try_into().unwrap())) == (3, 16);
    let leaf = bytes.chunks(8192).position(is_leaf).unwrap();
    bytes[leaf * 8192 + 4000] ^= 1;
    fs::write(database.join("data"), bytes).unwrap();
}

#[test]
fn the_status_does_not_need_a_reader() {
    let scene = Scene::new();
    make_database(&scene.path("db"));
    for json in ["", " --json"] {
        assert_eq!(scene.run_unread(&format!("verify db{json}")).status.code(), Some(0));
    }
    damage(&scene.path("db"));
    for command in ["verify db", "verify db --json"] {
        let output = scene.run_unread(command);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), String::new()), "{command}");
    }
}

#[test]
fn a_campaign_that_finds_something_says_so_to_nobody() {
    let scene = Scene::new();
    for json in ["", " --json"] {
        let output = scene.run_unread(&format!("torture --planted-loss --seconds 1 --threads 2{json}"));
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    }
}
