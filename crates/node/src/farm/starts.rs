//! When attempts were handed out, so that people can be told for how long something has been running.
//!
//! The foreman has no clock, and to note every start would cost each of a hundred thousand tasks per second something. But
//! attempts are numbered in the order in which they are handed out, so a few marks along the way tell the time of each. When
//! there are too many, marks go that stand close together for their age: of what was long ago nobody wants to know the second.

use primus_core::Term;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use primus_core::ledger::Attempt;

/// Marks are this far apart.
const STEP: Duration = Duration::from_millis(10);
/// An age may be wrong by this share of it.
const PRECISION: u32 = 64;
/// With that precision 1,400 are enough for a hundred years.
const MARKS_MAX: usize = 2048;

/// The marks of one leadership.
#[derive(Debug, Default)]
pub(crate) struct Starts(Mutex<VecDeque<Mark>>);

/// No later than then all attempts up to this one had been handed out.
#[derive(Debug, Clone, Copy)]
struct Mark {
    attempt: Attempt,
    at: Instant,
}

impl Starts {
    /// A leadership begins. What was handed out before, by whomever, counts as handed out now.
    pub(super) fn begin(&self, term: Term, now: Instant) {
        let first = Mark { attempt: Attempt { term, sequence: 0 }, at: now };
        *self.0.lock().expect("nobody panics while holding this") = VecDeque::from([first]);
    }

    /// This attempt, and all before it, have been handed out.
    pub(super) fn note(&self, attempt: Attempt, now: Instant) {
        let mut marks = self.0.lock().expect("nobody panics while holding this");
        match marks.back_mut() {
            Some(last) if last.attempt.sequence > 0 && now - last.at < STEP => {
                last.attempt = last.attempt.max(attempt);
            }
            _ => marks.push_back(Mark { attempt, at: now }),
        }
        if marks.len() > MARKS_MAX {
            thin_out(&mut marks, now);
        }
    }

    /// How long ago the attempt was handed out, as far as this leader knows.
    pub(crate) fn age(&self, attempt: Attempt, now: Instant) -> Option<Duration> {
        let marks = self.0.lock().expect("nobody panics while holding this");
        let place = marks.partition_point(|mark| mark.attempt < attempt);
        marks.get(place).map(|mark| now.saturating_duration_since(mark.at))
    }
}

/// Without a mark, what it stood for is dated by the next one.
fn thin_out(marks: &mut VecDeque<Mark>, now: Instant) {
    let times: Vec<Instant> = marks.iter().map(|mark| mark.at).collect();
    let (mut place, mut kept) = (0, None);
    marks.retain(|mark| {
        place += 1;
        let (Some(last), Some(next)) = (kept, times.get(place)) else {
            kept = Some(mark.at);
            return true;
        };
        let is_needed = *next - last > (now - *next) / PRECISION;
        kept = if is_needed { Some(mark.at) } else { kept };
        is_needed
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(term: u64, sequence: u64) -> Attempt {
        Attempt { term: Term(term), sequence }
    }

    #[test]
    fn an_attempt_is_as_old_as_its_mark() {
        let (starts, began) = (Starts::default(), Instant::now());
        let at = |ms| began + Duration::from_millis(ms);
        assert_eq!(starts.age(attempt(7, 1), began), None);
        starts.begin(Term(7), began);
        starts.note(attempt(7, 5), at(100));
        starts.note(attempt(7, 9), at(101));
        starts.note(attempt(7, 12), at(500));
        for (asked, expected) in
            [(attempt(6, 3), 1000), (attempt(7, 1), 900), (attempt(7, 9), 900), (attempt(7, 10), 500)]
        {
            assert_eq!(starts.age(asked, at(1000)), Some(Duration::from_millis(expected)), "{asked}");
        }
        assert_eq!(starts.age(attempt(7, 13), at(1000)), None);
    }

    #[test]
    fn marks_are_few_and_old_ones_are_about_right() {
        let (starts, began) = (Starts::default(), Instant::now());
        starts.begin(Term(1), began);
        let second = |number: u64| began + Duration::from_secs(number);
        (1..=100_000).for_each(|number| starts.note(attempt(1, number), second(number)));
        assert!(starts.0.lock().unwrap().len() <= MARKS_MAX);
        for number in [1, 10, 50_000, 99_000, 100_000] {
            let age = starts.age(attempt(1, number), second(100_000)).unwrap().as_secs();
            let expected = 100_000 - number;
            assert!(age <= expected && age * 100 >= expected * 98, "{number}: {age} for {expected}");
        }
    }
}
