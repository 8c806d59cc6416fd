//! Limits of a script that only whole scripts come to; the others are tested where they are looked at.

use serde_json::json;

use crate::player::Player;

/// One byte below, at, and one above what a scan gives; and it goes on behind what it gave.
#[test]
fn a_scan_breaks_off() {
    const MOST: usize = 32 << 20;
    const ENTRIES: usize = 16;
    let mut player = Player::new();
    player.ok("main", "begin", json!({"durability": "lazy"}));
    for number in 0..ENTRIES {
        let (key, value) = (format!("k{number:02}"), "x".repeat(MOST / ENTRIES - 3));
        player.ok("main", "put", json!({"key": key, "value": value}));
    }
    player.ok("main", "put", json!({"key": "last", "value": "y"}));
    for (more, entries) in [(-1, ENTRIES + 1), (0, ENTRIES), (1, ENTRIES)] {
        let length = (MOST / ENTRIES - 3).checked_add_signed(more).unwrap();
        player.ok("main", "put", json!({"key": "k00", "value": "x".repeat(length)}));
        let seen = player.ok("main", "scan", json!({}));
        let given = seen["entries"].as_array().unwrap();
        assert_eq!(given.len(), entries, "{more}");
        assert!(seen.get("cut_off").is_some(), "{more}");
        let last = given.last().unwrap()[0].clone();
        let rest = player.ok("main", "scan", json!({"lo": last, "lo_inclusive": false}));
        assert_eq!(rest["entries"].as_array().unwrap().len(), ENTRIES + 1 - entries);
        assert!(rest.get("cut_off").is_none());
    }
    // Without the last one there is nothing that was left out.
    player.ok("main", "delete", json!({"key": "last"}));
    player.ok("main", "put", json!({"key": "k00", "value": "x".repeat(MOST / ENTRIES - 4)}));
    assert!(player.ok("main", "scan", json!({})).get("cut_off").is_none());
    player.ok("main", "commit", json!({}));
}
