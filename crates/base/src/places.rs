//! Where in a list what belongs to a table is: a transaction touches few tables, as a rule, and goes through its list
//! of them; but it may touch all that there are.

use std::collections::BTreeMap;

/// Entries of a list that are found by going through it.
const FEW: usize = 32;

/// The places of the entries of a list, each of which has another key. Of a short list nothing is noted. Whoever
/// shortens the list, or changes its order, notes all before anything is looked for again.
#[derive(Debug)]
pub struct Places<K>(BTreeMap<K, usize>);

impl<K> Default for Places<K> {
    fn default() -> Places<K> {
        Places(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Places<K> {
    /// The place of the entry with this key. `key_of`: the key of an entry, always the same one.
    #[inline]
    pub fn place<T>(&self, list: &[T], key: K, key_of: impl Fn(&T) -> K) -> Option<usize> {
        if list.len() > FEW {
            return self.noted(key);
        }
        list.iter().position(|entry| key_of(entry) == key)
    }

    /// The entry itself.
    #[inline]
    pub fn find<'l, T>(&self, list: &'l [T], key: K, key_of: impl Fn(&T) -> K) -> Option<&'l T> {
        if list.len() > FEW {
            return self.noted(key).map(|place| &list[place]);
        }
        list.iter().find(|entry| key_of(entry) == key)
    }

    /// The same, to be changed; not its key.
    #[inline]
    pub fn find_mut<'l, T>(&self, list: &'l mut [T], key: K, key_of: impl Fn(&T) -> K) -> Option<&'l mut T> {
        if list.len() > FEW {
            return self.noted(key).map(|place| &mut list[place]);
        }
        list.iter_mut().find(|entry| key_of(entry) == key)
    }

    #[cold]
    fn noted(&self, key: K) -> Option<usize> {
        self.0.get(&key).copied()
    }

    /// An entry has come to the end of the list.
    #[inline]
    pub fn note_last<T>(&mut self, list: &[T], key_of: impl Fn(&T) -> K) {
        if list.len() > FEW {
            self.note_from(list, key_of);
        }
    }

    #[cold]
    fn note_from<T>(&mut self, list: &[T], key_of: impl Fn(&T) -> K) {
        let noted = if self.0.is_empty() { 0 } else { list.len() - 1 };
        let entries = list.iter().enumerate().skip(noted);
        self.0.extend(entries.map(|(place, entry)| (key_of(entry), place)));
    }

    /// The list has become another one.
    #[inline]
    pub fn note_all<T>(&mut self, list: &[T], key_of: impl Fn(&T) -> K) {
        if !self.0.is_empty() {
            self.0.clear();
        }
        self.note_last(list, key_of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_in_lists_of_any_length() {
        let key_of = |entry: &(u32, &str)| entry.0;
        let (mut list, mut places) = (Vec::new(), Places::default());
        for round in 0..2 {
            for key in 0..3 * FEW as u32 {
                assert_eq!(places.place(&list, key, key_of), None);
                list.push((key, "entry"));
                places.note_last(&list, key_of);
                for (place, (key, _)) in list.iter().enumerate() {
                    assert_eq!(places.place(&list, *key, key_of), Some(place));
                }
            }
            // Half of them go.
            list.retain(|(key, _)| key % 2 == round);
            places.note_all(&list, key_of);
            for key in 0..3 * FEW as u32 {
                let place = list.iter().position(|entry| entry.0 == key);
                assert_eq!(places.place(&list, key, key_of), place);
                assert_eq!(places.find(&list, key, key_of), place.map(|place| &list[place]));
                let found = places.find_mut(&mut list, key, key_of).map(|entry| entry.0);
                assert_eq!(found, place.map(|_| key));
            }
            list.clear();
            places.note_all(&list, key_of);
        }
    }
}
