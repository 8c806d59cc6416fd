//! The records of all lines that were ever accessed, found by their address: one table for the region of the
//! simulation's own memory, page by page, and a map for whatever lies elsewhere (stacks, statics).

use std::{ops::Range, panic::Location};

use super::map::Map;
use crate::sim::{arena, prefetch};

/// The number of a line: its page's, in the order of first access, and its place in the page.
pub(in crate::sim) type LineNumber = usize;

/// Bytes of a line and lines of a page, as powers of two.
pub(super) const LINE_SHIFT: u32 = 6;
const PAGE_LINES_SHIFT: u32 = 6;
const PAGE_SHIFT: u32 = LINE_SHIFT + PAGE_LINES_SHIFT;
const PAGE_LINES: usize = 1 << PAGE_LINES_SHIFT;
/// Pages outside of the region that are remembered. A page that shares another's place takes it over.
const LAST_ELSEWHERE: usize = 64;
/// No core.
pub(super) const NOBODY: u16 = u16::MAX;
/// A line that nobody has touched has no home.
pub(super) const NO_HOME: u8 = u8::MAX;

/// One line of the real machine's caches.
#[derive(Clone)]
#[repr(align(64))]
pub(super) struct Line {
    /// When it was accessed last.
    pub(super) used: u64,
    /// Until then the line is on its way to somebody.
    pub(super) busy_until: u64,
    /// Until then `keeper` still hits.
    pub(super) kept_until: u64,
    /// Picoseconds that cores waited for it since counting began.
    pub(super) waited: u64,
    /// Where in the source it was accessed when it first moved since counting began: where most moves are, of most
    /// lines.
    first: Option<&'static Location<'static>>,
    /// Times that it came from another core or from memory since counting began.
    pub(super) moves: u32,
    /// Where else it was accessed when it moved, if anywhere: a place in [`Table::places`] plus one.
    places: u32,
    /// Who had the line before its owner.
    pub(super) keeper: u16,
    /// Who may change it.
    pub(super) owner: u16,
    /// Who is last in the queue of those that wait for it.
    pub(super) last: u16,
    pub(super) sharers: u16,
    /// Sockets with sharers, a bit each.
    pub(super) sockets: u16,
    /// Words of [`Table::sharers`] that are not 0, a bit each.
    words: u16,
    /// The socket whose memory it lies in: that of whoever touched it first.
    pub(super) home: u8,
    /// Whether a spinning core sleeps until it moves.
    pub(super) watched: bool,
    /// Whether its owner has changed it.
    pub(super) changed: bool,
}

const UNTOUCHED: Line = Line {
    used: 0,
    busy_until: 0,
    kept_until: 0,
    waited: 0,
    first: None,
    moves: 0,
    places: 0,
    keeper: NOBODY,
    owner: NOBODY,
    last: NOBODY,
    sharers: 0,
    sockets: 0,
    words: 0,
    home: NO_HOME,
    watched: false,
    changed: false,
};

/// A place in the source, and how often a line moved there.
pub(super) type Place = (&'static Location<'static>, u64);

/// A place of a line, and the line's next one: its number plus one, 0 if there is none.
struct Elsewhere {
    place: Place,
    next: u32,
}

pub(super) struct Table {
    pub(super) lines: Vec<Line>,
    /// The sharers of each line, a bit for each core: `words` words a line.
    sharers: Vec<u64>,
    words: usize,
    /// By page of the region: the page's number plus one, 0 when it was never accessed.
    region: Vec<u32>,
    /// The same for pages elsewhere.
    elsewhere: Map<usize, u32>,
    /// Those of them that were looked up last, and their numbers.
    last_elsewhere: Vec<(usize, u32)>,
    /// The address of each page, in pages.
    pages: Vec<usize>,
    /// Where lines moved that did so in more places than one, but for the first.
    places: Vec<Elsewhere>,
    /// By page of the region: whether it was prepared without being charged.
    prepared: Vec<bool>,
    prepared_pages: u64,
    /// When what was prepared last lay in the last caches; `None` if it found no room there.
    fits: Option<u64>,
}

impl Table {
    pub(super) fn new(cores: usize) -> Table {
        Table {
            lines: Vec::new(),
            sharers: Vec::new(),
            words: cores.div_ceil(64),
            region: Vec::new(),
            elsewhere: Map::default(),
            last_elsewhere: vec![(0, 0); LAST_ELSEWHERE],
            pages: Vec::new(),
            places: Vec::new(),
            prepared: Vec::new(),
            prepared_pages: 0,
            fits: None,
        }
    }

    /// The page of this address is prepared, without being charged.
    pub(super) fn prepare(&mut self, address: usize) {
        if !arena::is_ours(address) {
            return;
        }
        let page = (address - arena::BASE) >> PAGE_SHIFT;
        if page >= self.prepared.len() {
            arena::outside(|| self.prepared.resize(page + 1, false));
        }
        let before = std::mem::replace(&mut self.prepared[page], true);
        self.prepared_pages += u64::from(!before);
    }

    /// What was prepared until `now` lies in caches of so many bytes, if it finds room there.
    pub(super) fn prepared(&mut self, cache_bytes: u64, now: u64) {
        self.fits = (self.prepared_pages << PAGE_SHIFT <= cache_bytes).then_some(now);
    }

    /// The page of a line, counted from the region's beginning, if it was prepared.
    pub(super) fn prepared_page(&self, number: LineNumber) -> Option<usize> {
        let page = self.pages[number >> PAGE_LINES_SHIFT].wrapping_sub(arena::BASE >> PAGE_SHIFT);
        self.prepared.get(page).is_some_and(|prepared| *prepared).then_some(page)
    }

    /// When a line that no core has accessed came to a last cache all the same, if it did.
    pub(super) fn was_prepared(&self, number: LineNumber) -> Option<u64> {
        self.fits.filter(|_| self.prepared_page(number).is_some())
    }

    /// The line in which an address lies.
    #[inline]
    pub(super) fn number_of(&mut self, address: usize) -> LineNumber {
        let page = address >> PAGE_SHIFT;
        let known = self.region.get(page.wrapping_sub(arena::BASE >> PAGE_SHIFT)).copied().unwrap_or(0);
        let known = if known == 0 { self.page(page) } else { known };
        (known as usize - 1) << PAGE_LINES_SHIFT | address >> LINE_SHIFT & (PAGE_LINES - 1)
    }

    /// The line of this address is accessed soon, by this core.
    #[inline]
    pub(super) fn prefetch(&self, address: usize, core: usize) {
        let page = (address >> PAGE_SHIFT).wrapping_sub(arena::BASE >> PAGE_SHIFT);
        if let Some(&known) = self.region.get(page)
            && known != 0
        {
            let number = (known as usize - 1) << PAGE_LINES_SHIFT | address >> LINE_SHIFT & (PAGE_LINES - 1);
            prefetch(&raw const self.lines[number]);
            prefetch(&raw const self.sharers[number * self.words + core / 64]);
        }
    }

    /// The number plus one of a page that is new, or does not lie in the region.
    fn page(&mut self, page: usize) -> u32 {
        let (last, number) = self.last_elsewhere[page % LAST_ELSEWHERE];
        if last == page {
            return number;
        }
        let known = self.elsewhere.get(&page).copied();
        let number = known.unwrap_or_else(|| arena::outside(|| self.add(page)));
        if !arena::is_ours(page << PAGE_SHIFT) {
            self.last_elsewhere[page % LAST_ELSEWHERE] = (page, number);
        }
        number
    }

    /// Pages outside of the region that lie there are other ones from here on, with other lines.
    pub(super) fn forget(&mut self, place: Range<usize>) {
        for page in place.start >> PAGE_SHIFT..place.end >> PAGE_SHIFT {
            self.elsewhere.remove(&page);
            self.last_elsewhere[page % LAST_ELSEWHERE] = (0, 0);
        }
    }

    #[cold]
    fn add(&mut self, page: usize) -> u32 {
        self.pages.push(page);
        let number = u32::try_from(self.pages.len()).expect("fewer pages than memory has");
        self.lines.resize(self.pages.len() << PAGE_LINES_SHIFT, UNTOUCHED);
        self.sharers.resize(self.lines.len() * self.words, 0);
        if arena::is_ours(page << PAGE_SHIFT) {
            let place = page - (arena::BASE >> PAGE_SHIFT);
            if place >= self.region.len() {
                self.region.resize(place + 1, 0);
            }
            self.region[place] = number;
        } else {
            self.elsewhere.insert(page, number);
        }
        number
    }

    /// The address of a line.
    pub(super) fn address(&self, number: LineNumber) -> usize {
        self.pages[number >> PAGE_LINES_SHIFT] << PAGE_SHIFT | (number & (PAGE_LINES - 1)) << LINE_SHIFT
    }

    #[inline]
    pub(super) fn shares(&self, number: LineNumber, core: usize) -> bool {
        self.sharers[number * self.words + core / 64] & 1 << (core % 64) != 0
    }

    /// Whether each core that shares a line meets a condition.
    pub(super) fn all_sharers(&self, number: LineNumber, meets: impl Fn(usize) -> bool) -> bool {
        let sharers = &self.sharers[number * self.words..(number + 1) * self.words];
        sharers.iter().enumerate().all(|(word, &bits)| {
            let mut bits = bits;
            std::iter::from_fn(|| {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits.wrapping_sub(1);
                (bit < 64).then_some(word * 64 + bit)
            })
            .all(&meets)
        })
    }

    /// Whether one of these cores shares a line, `but` this one.
    pub(super) fn shares_among(&self, number: LineNumber, cores: Range<usize>, but: usize) -> bool {
        let sharers = &self.sharers[number * self.words..(number + 1) * self.words];
        (cores.start / 64..cores.end.div_ceil(64)).any(|word| {
            let from = u64::MAX << cores.start.saturating_sub(word * 64);
            let to = u64::MAX >> ((word + 1) * 64).saturating_sub(cores.end);
            let own = if but / 64 == word { 1 << (but % 64) } else { 0 };
            sharers[word] & from & to & !own != 0
        })
    }

    /// The core, of this socket, has a copy, too.
    #[inline]
    pub(super) fn share(&mut self, number: LineNumber, core: usize, socket: usize) {
        self.sharers[number * self.words + core / 64] |= 1 << (core % 64);
        let line = &mut self.lines[number];
        line.sharers += 1;
        line.sockets |= 1 << socket;
        line.words |= 1 << (core / 64);
    }

    /// The core, of this socket, no longer has its copy. Nobody else has one in a socket where nobody is known to.
    pub(super) fn unshare(&mut self, number: LineNumber, core: usize, socket: usize, cores: Range<usize>) {
        self.sharers[number * self.words + core / 64] &= !(1 << (core % 64));
        let others = self.shares_among(number, cores, core);
        let line = &mut self.lines[number];
        line.sharers -= 1;
        if !others {
            line.sockets &= !(1 << socket);
        }
    }

    /// Nobody has a copy any more.
    #[inline]
    pub(super) fn forget_sharers(&mut self, number: LineNumber) {
        let line = &mut self.lines[number];
        let mut words = line.words;
        (line.sharers, line.sockets, line.words) = (0, 0, 0);
        while words != 0 {
            self.sharers[number * self.words + words.trailing_zeros() as usize] = 0;
            words &= words - 1;
        }
    }

    /// The line moved, for an access at this place in the source.
    #[inline]
    pub(super) fn moved(&mut self, number: LineNumber, at: &'static Location<'static>) {
        let line = &mut self.lines[number];
        line.moves += 1;
        if !std::ptr::eq(*line.first.get_or_insert(at), at) {
            self.moved_elsewhere(number, at);
        }
    }

    fn moved_elsewhere(&mut self, number: LineNumber, at: &'static Location<'static>) {
        let line = &mut self.lines[number];
        let mut next = line.places;
        while next != 0 {
            let elsewhere = &mut self.places[next as usize - 1];
            if std::ptr::eq(elsewhere.place.0, at) {
                elsewhere.place.1 += 1;
                return;
            }
            next = elsewhere.next;
        }
        let elsewhere = Elsewhere { place: (at, 1), next: line.places };
        arena::outside(|| self.places.push(elsewhere));
        line.places = u32::try_from(self.places.len()).expect("fewer places than memory has");
    }

    /// Where in the source a line was accessed when it moved.
    pub(super) fn places(&self, number: LineNumber) -> Vec<Place> {
        let line = &self.lines[number];
        let mut places = Vec::new();
        let mut next = line.places;
        while next != 0 {
            let elsewhere = &self.places[next as usize - 1];
            places.push(elsewhere.place);
            next = elsewhere.next;
        }
        let elsewhere: u64 = places.iter().map(|(_, count)| count).sum();
        places.extend(line.first.map(|at| (at, u64::from(line.moves) - elsewhere)));
        places
    }

    /// Counts moves from here on.
    pub(super) fn count_anew(&mut self) {
        self.places.clear();
        for line in &mut self.lines {
            (line.moves, line.waited, line.first, line.places) = (0, 0, None, 0);
        }
    }
}
