//! Those who wait to be let in.

use std::collections::VecDeque;

use foreshore_env::{
    sync::{Arc, Condvar},
    thread,
};

use super::crowd::Turn;

/// The age of a transaction that has never run.
pub(super) const NEW: u64 = u64::MAX;
/// How many of the first places are searched for a thread that was last on the processor that becomes free.
const NEAR: usize = 8;
/// How often another may be let in before the first of those who have never run.
const PASSED: u32 = 8;

/// Where one waits.
#[derive(Debug)]
pub(super) struct Seat {
    /// Begins when it is let in, under the mutex of [`Admission::state`](super::Admission).
    pub(super) turn: Arc<Turn>,
    /// Signalled when the one who waits here may come in.
    pub(super) vacancy: Condvar,
}

/// A seat, and what decides when its turn comes.
#[derive(Debug)]
struct Place {
    seat: Arc<Seat>,
    /// Of its transaction, or [`NEW`].
    age: u64,
    /// Where its thread was when it sat down, and where the system will wake it, as a rule.
    processor: Option<usize>,
    /// How often another was let in while it was the first.
    passed: u32,
}

/// Those who wait and have not been let in, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Place>);

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The calling thread sits down, before those who are younger, and behind those as old.
    pub(super) fn sit_down(&mut self, age: u64, turn: &Arc<Turn>) -> Arc<Seat> {
        self.sit_down_at(thread::processor(), age, turn)
    }

    fn sit_down_at(&mut self, processor: Option<usize>, age: u64, turn: &Arc<Turn>) -> Arc<Seat> {
        let seat = Arc::new(Seat { turn: Arc::clone(turn), vacancy: Condvar::new() });
        let behind = self.0.partition_point(|other| other.age <= age);
        self.0.insert(behind, Place { seat: Arc::clone(&seat), age, processor, passed: 0 });
        seat
    }

    /// How many are before this seat; `None` if it is not in the queue.
    pub(super) fn before(&self, seat: &Arc<Seat>) -> Option<usize> {
        self.0.iter().position(|other| Arc::ptr_eq(&other.seat, seat))
    }

    /// Takes out a seat whose thread waits no longer.
    pub(super) fn stand_up(&mut self, seat: &Arc<Seat>) {
        self.0.retain(|other| !Arc::ptr_eq(&other.seat, seat));
    }

    /// The next to be let in by a thread that runs on this processor and is about to sleep: the first, but of those who
    /// have never run rather one whose thread was last there. It goes on at once, in a cache that may still know it;
    /// another would be woken behind whoever runs where it was, while this processor stands idle.
    pub(super) fn next(&mut self, processor: Option<usize>) -> Option<Arc<Seat>> {
        let first = self.0.front()?;
        let may_pass = first.age == NEW && first.passed < PASSED && processor.is_some();
        let near = |place: &Place| !may_pass || place.processor == processor;
        let chosen = self.0.iter().take(NEAR).position(near).unwrap_or(0);
        if chosen > 0 {
            self.0[0].passed += 1;
        }
        Some(self.0.remove(chosen)?.seat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In which order those are let in who wait at these places with these ages, by a thread at `here`.
    fn order(waiting: &[(u64, Option<usize>)], here: Option<usize>) -> Vec<usize> {
        let (mut queue, turn) = (Queue::default(), Arc::new(Turn::default()));
        let seats: Vec<_> = waiting.iter().map(|&(age, at)| queue.sit_down_at(at, age, &turn)).collect();
        std::iter::from_fn(|| queue.next(here))
            .map(|next| seats.iter().position(|seat| Arc::ptr_eq(seat, &next)).unwrap())
            .collect()
    }

    #[test]
    fn those_who_have_run_go_by_age_wherever_they_are() {
        let waiting = [(9, Some(0)), (NEW, Some(0)), (3, Some(1)), (5, Some(0)), (3, Some(0))];
        assert_eq!(order(&waiting, Some(0)), [2, 4, 3, 0, 1]);
    }

    #[test]
    fn of_the_new_ones_those_who_are_near_go_first() {
        let waiting = [1, 0, 1, 0].map(|processor| (NEW, Some(processor)));
        assert_eq!(order(&waiting, Some(0)), [1, 3, 0, 2]);
        assert_eq!(order(&waiting, Some(1)), [0, 2, 1, 3]);
        // Where nobody knows, or nobody is near, they go as they came.
        assert_eq!(order(&waiting, None), [0, 1, 2, 3]);
        assert_eq!(order(&waiting, Some(2)), [0, 1, 2, 3]);
    }

    /// Neither by those who are near, nor because somebody older comes in between, or gives up.
    #[test]
    fn nobody_is_passed_more_often_when_others_come_and_go() {
        let (mut queue, turn) = (Queue::default(), Arc::new(Turn::default()));
        let first = queue.sit_down_at(Some(1), NEW, &turn);
        let mut passed = 0;
        for age in 0.. {
            queue.sit_down_at(Some(0), NEW, &turn);
            let older = queue.sit_down_at(Some(1), age, &turn);
            if age % 2 == 0 {
                assert!(Arc::ptr_eq(&queue.next(Some(0)).unwrap(), &older));
            } else {
                queue.stand_up(&older);
            }
            if Arc::ptr_eq(&queue.next(Some(0)).unwrap(), &first) {
                break;
            }
            passed += 1;
        }
        assert_eq!(passed, PASSED);
    }

    #[test]
    fn nobody_is_passed_for_ever() {
        let mut waiting = vec![(NEW, Some(1)); 2];
        waiting.resize(100, (NEW, Some(0)));
        let went = order(&waiting, Some(0));
        assert_eq!(went.iter().position(|&seat| seat == 0), Some(PASSED as usize));
        assert_eq!(went.iter().position(|&seat| seat == 1), Some(2 * PASSED as usize + 1));
        // Nobody comes from far behind.
        let mut waiting = vec![(NEW, Some(1)); NEAR];
        waiting.push((NEW, Some(0)));
        assert_eq!(order(&waiting, Some(0))[0], 0);
    }
}
