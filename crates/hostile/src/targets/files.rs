//! Files whose checksums are right and whose content is not.

use std::path::{Path, PathBuf};

use foreshore::{Database, Direction, Error, Result, TableDefinition, TransactOptions};
use foreshore_env::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use foreshore_testkit::FaultyDisk;

use crate::{
    edit::Source,
    sample::{PAGE_BYTES, Sample, options},
    seal::{database_id, records, seal, seal_page, seal_record},
};

/// A sample, and what must be known of it to damage it.
struct Template {
    sample: Sample,
    id: u64,
    /// Pages of the data file that were ever written.
    pages: Vec<usize>,
    segments: Vec<PathBuf>,
}

impl Template {
    fn new(sample: Sample) -> Template {
        let data = sample.disk.read_file(&Sample::file("data")).expect("a data file");
        let used = |page: &[u8]| page.iter().any(|&byte| byte != 0);
        let pages = (0..).zip(data.chunks(PAGE_BYTES)).filter(|(_, page)| used(page));
        let mut segments = sample.disk.files();
        segments.retain(|file| file.extension().is_some_and(|extension| extension == "log"));
        Template {
            id: database_id(&sample.disk),
            pages: pages.map(|(page, _)| page).collect(),
            segments,
            sample,
        }
    }

    /// The closed sample, whose pages are all in the data file.
    fn closed() -> &'static Template {
        static CLOSED: OnceLock<Template> = OnceLock::new();
        CLOSED.get_or_init(|| Template::new(Sample::closed()))
    }

    /// The crashed sample, whose log is needed.
    fn crashed() -> &'static Template {
        static CRASHED: OnceLock<Template> = OnceLock::new();
        CRASHED.get_or_init(|| Template::new(Sample::crashed()))
    }

    /// A copy of the disk on which one file is changed.
    fn with(&self, file: &Path, change: impl FnOnce(&mut Vec<u8>)) -> FaultyDisk {
        let disk = self.sample.copy();
        let mut bytes = disk.read_file(file).expect("a file of the sample");
        change(&mut bytes);
        disk.write_file(file, &bytes).expect("a disk in memory");
        disk
    }
}

/// A node, a bitmap or the header page with other bytes.
pub(super) fn page(data: &[u8]) {
    let template = Template::closed();
    let mut source = Source::new(data);
    let disk = template.with(&Sample::file("data"), |bytes| {
        while !source.is_empty() {
            let page = template.pages[usize::from(source.u8()) % template.pages.len()];
            let page = &mut bytes[page * PAGE_BYTES..][..PAGE_BYTES];
            // The head says most: every other change is made there.
            if source.u8().is_multiple_of(2) {
                source.edit(&mut page[8..96])
            } else {
                source.edit(page)
            }
            seal_page(page, template.id);
        }
    });
    exercise(&disk);
}

/// Records of a log that must be redone and undone, with other bytes behind their lengths and LSNs.
pub(super) fn log_record(data: &[u8]) {
    let template = Template::crashed();
    let mut source = Source::new(data);
    let disk = template.sample.copy();
    while !source.is_empty() {
        let file = &template.segments[usize::from(source.u8()) % template.segments.len()];
        let mut bytes = disk.read_file(file).expect("a segment of the sample");
        let records = records(&bytes);
        if let Some((start, length)) = records.get(usize::from(source.u16()) % records.len().max(1)) {
            let record = &mut bytes[*start..start + length];
            source.edit(&mut record[16..]);
            seal_record(record, template.id);
        }
        disk.write_file(file, &bytes).expect("a disk in memory");
    }
    exercise(&disk);
}

/// A segment with other bytes anywhere, or one that is made of nothing but the fuzzer's bytes.
pub(super) fn log_segment(data: &[u8]) {
    let template = Template::crashed();
    let mut source = Source::new(data);
    let file = &template.segments[usize::from(source.u8()) % template.segments.len()];
    let disk = template.with(file, |bytes| {
        if source.u8().is_multiple_of(4) {
            let rest = source.rest();
            let from = 4096.min(bytes.len());
            let count = rest.len().min(bytes.len() - from);
            bytes[from..from + count].copy_from_slice(&rest[..count]);
        }
        while !source.is_empty() {
            // Any kilobyte of it.
            let start = usize::from(source.u8()) << 10;
            if let Some(piece) = bytes.get_mut(start..) {
                let count = piece.len().min(8192);
                source.edit(&mut piece[..count]);
            }
        }
        seal(file, bytes, template.id);
    });
    exercise(&disk);
}

/// One slot of the control file, or both, with other bytes.
pub(super) fn control(data: &[u8]) {
    let template = Template::crashed();
    let mut source = Source::new(data);
    let file = Sample::file("control");
    let disk = template.with(&file, |bytes| {
        let both = source.u8().is_multiple_of(2);
        while !source.is_empty() {
            source.edit(&mut bytes[..96]);
        }
        if both {
            let (one, other) = bytes.split_at_mut(4096);
            other[..512].copy_from_slice(&one[..512]);
        }
        seal(&file, bytes, template.id);
    });
    exercise(&disk);
}

/// Any files of a database with other bytes, other lengths, or gone; their checksums right, or not.
pub(super) fn open(data: &[u8]) {
    let mut source = Source::new(data);
    let template = if source.u8().is_multiple_of(2) { Template::closed() } else { Template::crashed() };
    let disk = template.sample.copy();
    let files = disk.files();
    while !source.is_empty() {
        let file = &files[usize::from(source.u8()) % files.len()];
        let mut bytes = disk.read_file(file).expect("a file of the sample");
        let kind = source.u8();
        if kind == 0 {
            let length = bytes.len() * usize::from(source.u16()) / usize::from(u16::MAX);
            bytes.truncate(length);
        } else {
            let start = (usize::from(source.u8()) << 12) % bytes.len().max(1);
            let count = (bytes.len() - start).min(16 << 10);
            source.edit(&mut bytes[start..start + count]);
        }
        if !kind.is_multiple_of(8) && bytes.len() >= 8192 {
            seal(file, &mut bytes, template.id);
        }
        disk.write_file(file, &bytes).expect("a disk in memory");
    }
    exercise(&disk);
}

/// How long a wait may take where nobody waits for anybody.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens the database on this disk and does to it what users do. Errors are fine.
fn exercise(disk: &FaultyDisk) {
    let database = || Database::builder().options(options()).create(false).disk(Arc::new(disk.clone()));
    let Ok(db) = database().open(Sample::directory()) else { return };
    let _ = use_it(&db);
    let _ = db.verify_within(PATIENCE);
    let _ = db.checkpoint();
    let _ = db.close();
    drop(db);
    let _ = database().read_only(true).open(Sample::directory());
}

fn use_it(db: &Database) -> Result<()> {
    for table in db.tables()? {
        let definition = TableDefinition::encoded(&table.name);
        for direction in [Direction::Ascending, Direction::Descending] {
            let _ = run(db, |tx| {
                let mut cursor = tx.cursor(definition, .., direction)?;
                // A loop among pages is damage that must be found; a table of the sample has no thousand entries.
                for _ in 0..100_000 {
                    if cursor.next_encoded(tx)?.is_none() {
                        return Ok(());
                    }
                }
                panic!("a scan of {} does not end", table.name);
            });
        }
        for number in [0_u64, 41, 60, 300, u64::MAX] {
            let key = number.to_be_bytes();
            let _ = run(db, |tx| tx.get(definition, key.as_slice()));
            let _ = run(db, |tx| tx.put(definition, key.as_slice(), &[number as u8; 1000][..]));
            let _ = run(db, |tx| tx.delete(definition, key.as_slice()));
            let _ = run(db, |tx| tx.put(definition, key.as_slice(), &[7; 5000][..]));
        }
        let _ = run(db, |tx| {
            tx.put(definition, &b"to be rolled back"[..], &b"value"[..])?;
            Err::<(), _>(Error::application("rolled back"))
        });
        let _ = run(db, |tx| tx.remove_range(definition, ..));
    }
    Ok(())
}

fn run<R>(db: &Database, body: impl FnMut(&mut foreshore::Transaction) -> Result<R>) -> Result<R> {
    let options = TransactOptions { deadline: Some(PATIENCE), ..TransactOptions::default() };
    db.transact_with(&options, body)
}
