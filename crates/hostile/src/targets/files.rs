//! Files whose checksums are right and whose content is not: what a fuzzer's bytes make of a sample.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use foreshore_env::sync::OnceLock;
use foreshore_testkit::FaultyDisk;

use crate::{
    edit::Source,
    sample::{PAGE_BYTES, Sample},
    seal::{KIND, RECORD_HEADER_BYTES, database_id, records, seal, seal_page, seal_record},
};

/// A sample, and what must be known of it to damage it.
pub(super) struct Template {
    pub(super) sample: Sample,
    id: u64,
    /// Pages of the data file that were ever written.
    pages: Vec<usize>,
    segments: Vec<PathBuf>,
    /// The records of all segments: kind, segment, and where it is there.
    records: Vec<(u8, usize, Range<usize>)>,
}

/// A damaged copy of a sample.
pub(super) struct Case {
    pub(super) template: &'static Template,
    pub(super) disk: FaultyDisk,
}

impl Template {
    fn new(sample: Sample) -> Template {
        let data = sample.disk.read_file(&Sample::file("data")).expect("a data file");
        let used = |page: &[u8]| page.iter().any(|&byte| byte != 0);
        let pages = (0..).zip(data.chunks(PAGE_BYTES)).filter(|(_, page)| used(page));
        let mut segments = sample.disk.files();
        segments.retain(|file| file.extension().is_some_and(|extension| extension == "log"));
        let records = segments.iter().enumerate().flat_map(|(number, file)| {
            let bytes = sample.disk.read_file(file).expect("a segment of the sample");
            let places = records(&bytes).into_iter().map(|(start, length)| start..start + length);
            places.map(|place| (bytes[place.start + KIND], number, place)).collect::<Vec<_>>()
        });
        let records = records.collect();
        Template {
            id: database_id(&sample.disk),
            pages: pages.map(|(page, _)| page).collect(),
            segments,
            records,
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

    /// The sample whose log has records of nearly all kinds.
    fn of_many_kinds() -> &'static Template {
        static OF_MANY_KINDS: OnceLock<Template> = OnceLock::new();
        OF_MANY_KINDS.get_or_init(|| Template::new(Sample::of_many_kinds()))
    }

    /// A record of this kind, or of the next one that there is: its segment, and where it is there.
    fn record(&self, kind: u8, number: u16) -> (&Path, Range<usize>) {
        let distance = |of: &u8| of.wrapping_sub(kind);
        let kinds = self.records.iter().map(|(kind, ..)| *kind);
        let kind = kinds.min_by_key(distance).expect("a record");
        let same: Vec<_> = self.records.iter().filter(|(of, ..)| *of == kind).collect();
        let (_, segment, place) = same[usize::from(number) % same.len()];
        (&self.segments[*segment], place.clone())
    }

    /// Changes a page of the data file.
    fn edit_page(&self, source: &mut Source<'_>, bytes: &mut [u8]) {
        let page = self.pages[usize::from(source.u8()) % self.pages.len()];
        let page = &mut bytes[page * PAGE_BYTES..][..PAGE_BYTES];
        // The head says most: every other change is made there.
        if source.u8().is_multiple_of(2) {
            source.edit(&mut page[8..96]);
        } else {
            source.edit(page);
        }
        seal_page(page, self.id);
    }

    /// Changes a record of the log, chosen by its kind.
    fn edit_record(&self, source: &mut Source<'_>, disk: &FaultyDisk) {
        let (file, place) = self.record(source.u8(), source.u16());
        let mut bytes = disk.read_file(file).expect("a segment of the sample");
        let record = &mut bytes[place];
        // The length and the LSN stay, or the record would not be read.
        let from = if source.u8().is_multiple_of(4) { 16 } else { RECORD_HEADER_BYTES };
        source.edit(&mut record[from..]);
        seal_record(record, self.id);
        disk.write_file(file, &bytes).expect("a disk in memory");
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
pub(super) fn page(data: &[u8]) -> Case {
    let template = Template::closed();
    let mut source = Source::new(data);
    let disk = template.with(&Sample::file("data"), |bytes| {
        while !source.is_empty() {
            template.edit_page(&mut source, bytes);
        }
    });
    Case { template, disk }
}

/// Records of a log that must be redone and undone, with other bytes behind their lengths and LSNs.
pub(super) fn log_record(data: &[u8]) -> Case {
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
    Case { template, disk }
}

/// A segment with other bytes anywhere, or one that is made of nothing but the fuzzer's bytes.
pub(super) fn log_segment(data: &[u8]) -> Case {
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
    Case { template, disk }
}

/// One slot of the control file, or both, with other bytes.
pub(super) fn control(data: &[u8]) -> Case {
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
    Case { template, disk }
}

/// Any files of a database with other bytes, other lengths, or gone; their checksums right, or not.
pub(super) fn open(data: &[u8]) -> Case {
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
    Case { template, disk }
}

/// Records by their kinds, in a log that has nearly all of them: their payloads, or anything behind their lengths and
/// LSNs.
pub(super) fn log_kinds(data: &[u8]) -> Case {
    let template = Template::of_many_kinds();
    let mut source = Source::new(data);
    let disk = template.sample.copy();
    while !source.is_empty() {
        template.edit_record(&mut source, &disk);
    }
    Case { template, disk }
}

/// Pages and records of one database, which is then recovered: what redo and undo meet on pages that lie.
pub(super) fn page_and_log(data: &[u8]) -> Case {
    let mut source = Source::new(data);
    let template =
        if source.u8().is_multiple_of(2) { Template::crashed() } else { Template::of_many_kinds() };
    let disk = template.sample.copy();
    let file = Sample::file("data");
    let mut pages = disk.read_file(&file).expect("a data file");
    while !source.is_empty() {
        // Most changes of pages are repaired by the images that the log has of them.
        if source.u8().is_multiple_of(4) {
            template.edit_record(&mut source, &disk);
        } else {
            template.edit_page(&mut source, &mut pages);
        }
    }
    disk.write_file(&file, &pages).expect("a disk in memory");
    Case { template, disk }
}
