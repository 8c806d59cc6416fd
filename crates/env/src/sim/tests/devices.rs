//! What comes from a device.

use super::*;
use crate::disk::{BLOCK_BYTES, Parts};

/// What was streamed past the page cache comes from the device once, and what the cache has does not.
#[test]
fn what_the_page_cache_does_not_have_is_read_from_the_device() {
    const PAGE: usize = BLOCK_BYTES;
    let program = || {
        RealDisk.create_directory("/files".as_ref()).unwrap();
        let file = RealDisk.open("/files/file".as_ref(), OpenMode::CreateNew).unwrap();
        let is_asked = |offset: usize| {
            let begin = Instant::now();
            file.read_exact_at(&mut vec![0; PAGE], offset as u64).unwrap();
            begin.elapsed() >= Duration::from_micros(100)
        };
        // Blocks of the region lie at multiples of their size.
        let bytes = vec![7; 4 * PAGE];
        let part = |bytes| Parts { words: [&[], &[]], bytes };
        file.write_all_at(&bytes, 0).unwrap();
        assert!(!is_asked(0) && !is_asked(PAGE), "what was written is in the cache");
        file.stream_at(part(&bytes[..]), 0).unwrap();
        file.stream_at(part(&bytes[..100]), 4 * PAGE as u64).unwrap();
        file.set_len(8 * PAGE as u64).unwrap();
        assert!(
            !is_asked(4 * PAGE) && !is_asked(6 * PAGE),
            "no whole block is streamed, and a hole has none"
        );
        assert!(is_asked(0) && !is_asked(0) && is_asked(PAGE), "streamed, read, streamed");
        file.write_all_at(&bytes[..PAGE], 2 * PAGE as u64).unwrap();
        assert!(!is_asked(2 * PAGE), "written since");
        file.set_len(3 * PAGE as u64).unwrap();
        file.set_len(4 * PAGE as u64).unwrap();
        assert!(!is_asked(3 * PAGE), "cut off, and a hole since");
    };
    simulate(&machine(1), program).unwrap();
}
