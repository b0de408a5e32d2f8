//! Flipped bits and cut files: a store is opened with exactly what was durable, or not at all.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use primus_replica::message::Record;

use crate::scratch::{Scratch, View, entry, hard_state, open, origin, snapshot, try_open, view_of};

/// A store with everything in it, and with freed pages that still hold what used to be true.
fn filled() -> (Scratch, Scratch, View) {
    let scratch = Scratch::new();
    let mut store = open(scratch.path()).store;
    let mut records = Vec::new();
    let mut write = |batch: Vec<Record>| {
        store.write(&batch).unwrap();
        records.extend(batch);
    };
    for round in 0..12 {
        write((1..=20).map(|step| entry(round * 20 + step, round + 1)).collect());
        write(vec![hard_state(round + 1, round * 20)]);
        write(vec![entry(round * 20 + 20, round + 1), hard_state(round + 1, round * 20 + 1)]);
    }
    write(vec![snapshot(90, 5)]);
    write(vec![entry(241, 12)]);
    store.keep_origin(&origin()).unwrap();
    let crashed = scratch.copy();
    (scratch, crashed, view_of(records))
}

#[derive(Debug, Default)]
struct Tally {
    opened: u32,
    refused: u32,
}

impl Tally {
    /// Opens what was damaged; if that works, a further write must also come back.
    fn judge(&mut self, dir: &Path, expected: &View, what: &str) {
        let Ok(opened) = try_open(dir) else {
            self.refused += 1;
            return;
        };
        self.opened += 1;
        let mut store = opened.store;
        assert_eq!(opened.origin, origin(), "{what}");
        assert!(view_of(opened.records) == *expected, "{what}");
        store.write(&[entry(242, 13)]).unwrap();
        drop(store);
        let again = view_of(open(dir).records);
        assert!(again.0.last().unwrap().term == 13 && again.0[..again.0.len() - 1] == expected.0, "{what}");
    }
}

/// Damages a copy in many ways; `damage` says how many there are by answering false.
fn judge_all(image: &Scratch, expected: &View, name: &str, damage: impl Fn(&Path, u64) -> bool) -> Tally {
    let mut tally = Tally::default();
    for number in 0.. {
        let copy = image.copy();
        if !damage(&copy.path().join(name), number) {
            break;
        }
        tally.judge(copy.path(), expected, &format!("damage {number} of {name}"));
    }
    tally
}

fn flip(file: &Path, offset: u64, bits: u8) {
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ bits], offset).unwrap();
}

/// Where to flip: every byte of the header, then some bytes of every page that is not empty.
fn places(file: &Path, step: usize) -> Vec<u64> {
    let bytes = fs::read(file).unwrap();
    let pages = bytes.chunks(4096).enumerate().skip(1).filter(|(_, page)| page.iter().any(|byte| *byte != 0));
    let inner = pages.flat_map(|(number, _)| {
        (0..64).step_by(9).chain((64..4096).step_by(step)).map(move |place| (number * 4096 + place) as u64)
    });
    (0..320).chain(inner).collect()
}

fn flips(image: &Scratch, expected: &View) -> Tally {
    let places = places(&image.path().join("log.redb"), 401);
    judge_all(image, expected, "log.redb", |file, number| {
        let Some(place) = places.get(usize::try_from(number).unwrap()) else { return false };
        flip(file, *place, if number % 3 == 0 { 0xff } else { 1 << (number % 8) });
        true
    })
}

#[test]
fn a_flipped_byte_in_a_closed_store_is_harmless_or_refused() {
    let (closed, _, expected) = filled();
    let tally = flips(&closed, &expected);
    println!("{tally:?}");
    assert!(tally.opened > 0 && tally.refused > 0, "{tally:?}");
}

#[test]
fn a_flipped_byte_after_a_crash_is_harmless_or_refused() {
    let (_, crashed, expected) = filled();
    let tally = flips(&crashed, &expected);
    println!("{tally:?}");
    assert!(tally.opened > 0 && tally.refused > 0, "{tally:?}");
}

#[test]
fn every_flag_of_the_header_is_harmless_or_refused() {
    let (closed, crashed, expected) = filled();
    for image in [closed, crashed] {
        judge_all(&image, &expected, "log.redb", |file, number| {
            let Ok(bits) = u8::try_from(number) else { return false };
            flip(file, 9, bits);
            true
        });
    }
}

#[test]
fn a_cut_file_is_harmless_or_refused() {
    let (closed, crashed, expected) = filled();
    for image in [closed, crashed] {
        let len = fs::metadata(image.path().join("log.redb")).unwrap().len();
        let tally = judge_all(&image, &expected, "log.redb", |file, number| {
            // Lengths on and beside the borders of pages, and longer files too.
            let new_len = number / 3 * 8192 + [0, 1, 4096 + 77][usize::try_from(number % 3).unwrap()];
            let file = OpenOptions::new().write(true).open(file).unwrap();
            file.set_len(new_len).unwrap();
            new_len < len + 5 * 8192
        });
        println!("{tally:?}");
        assert!(tally.refused > 0, "{tally:?}");
    }
}

#[test]
fn a_damaged_mark_is_refused() {
    let (closed, _, expected) = filled();
    let flipped = judge_all(&closed, &expected, "log.mark", |file, number| {
        let is_inside = number < 28;
        if is_inside {
            flip(file, number, 1 << (number % 8));
        }
        is_inside
    });
    assert_eq!((flipped.opened, flipped.refused), (0, 28));
    let cut = judge_all(&closed, &expected, "log.mark", |file, number| {
        OpenOptions::new().write(true).open(file).unwrap().set_len(number).unwrap();
        number < 28
    });
    assert_eq!((cut.opened, cut.refused), (0, 28));
}
