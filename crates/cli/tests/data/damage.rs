//! Damage is told by the exit status and says what to do next, whoever listens.

use std::{fs, path::Path};

use crate::{
    make_database,
    scene::{Scene, parsed, text},
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
fn damage_has_status_1_and_leads_to_salvage() {
    let scene = Scene::new();
    make_database(&scene.path("db"));
    damage(&scene.path("db"));
    for command in ["verify db", "dump db", "stat db", "backup db copy"] {
        let output = scene.run(command);
        let said = text(&[output.stdout, output.stderr].concat());
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert_eq!(said.matches("foreshore salvage db NEW_DIR").count(), 1, "{command}: {said}");
    }
    let output = scene.run("dump db names --json");
    assert_eq!(output.status.code(), Some(1));
    let error = parsed(text(&output.stdout).lines().last().unwrap())["error"].clone();
    assert_eq!(error["code"], "corrupted");
    assert!(error["message"].as_str().unwrap().contains("foreshore salvage db NEW_DIR"), "{error}");
}

/// Where nothing can be written, as on a full disk, damage is damage all the same.
#[cfg(target_os = "linux")]
#[test]
fn damage_has_status_1_also_where_it_cannot_be_told() {
    let scene = Scene::new();
    make_database(&scene.path("db"));
    for (damaged, status) in [(false, 2), (true, 1)] {
        if damaged {
            damage(&scene.path("db"));
        }
        let output = scene.run_into("verify db", "/dev/full");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains("cannot write to standard output"), "{said}");
        assert_eq!(said.contains("not all is well"), damaged, "{said}");
    }
}

/// Help and versions were told of as if somebody had got them.
#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let scene = Scene::new();
    for command in ["--help", "--version", "help verify", "bench tpcb --help", "verify -h"] {
        let output = scene.run_into(command, "/dev/full");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("cannot write to standard output"), "{command}: {said}");
        // Who reads no further has got enough.
        let output = scene.run_unread(command);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{command}");
    }
}

/// Data and log are there: it is a database, whatever its control file has become.
#[test]
fn an_empty_control_file_is_damage() {
    let scene = Scene::new();
    make_database(&scene.path("db"));
    for content in [vec![], vec![0x5A; 8192]] {
        fs::write(scene.path("db/control"), content).unwrap();
        for command in ["verify db", "dump db", "stat db", "backup db copy", "compact db", "prepared db"] {
            let output = scene.run(command);
            let said = text(&[output.stdout, output.stderr].concat());
            assert_eq!(output.status.code(), Some(1), "{command}: {said}");
            assert!(said.contains("db/control is damaged") && said.contains("foreshore salvage"), "{said}");
        }
    }
    scene.succeed("salvage db saved");
    // Without them it is anything.
    fs::create_dir(scene.path("other")).unwrap();
    fs::write(scene.path("other/control"), "").unwrap();
    assert!(scene.fail("stat other").contains("not a Foreshore database"));
    // And a backup that was not finished is none.
    fs::rename(scene.path("db/control"), scene.path("db/control.backup")).unwrap();
    assert!(scene.fail("stat db").contains("was not finished"));
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
        // It ends as soon as something is found; on a busy machine not every child comes to a commit.
        let output = scene.run_unread(&format!("torture --planted-loss --seconds 30 --threads 2{json}"));
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    }
}
