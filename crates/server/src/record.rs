//! What a record of the log holds: changes of the register, a batch for the ledger, or who gave way.
//!
//! The first byte says which, so that whoever only passes a batch on reads nothing else of it. A batch that is too long for
//! one record takes several, one behind the other. A leader that is deposed half-way leaves a beginning without an end; the
//! next beginning takes its place.

use bytes::{BufMut, Bytes};
use primus_core::ledger::{Batch, Entry, Ledger};

use crate::gave_way::{Fact, GaveWay};
use crate::register::{Proposal, Register};

/// No record of a batch has more bytes, its first one not counted: it must fit into a frame with others.
pub const PIECE_LEN_MAX: usize = 256 << 10;
/// No batch has more bytes.
pub const BATCH_LEN_MAX: usize = 64 << 20;

const REGISTER: u8 = 0;
const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;
const FACT: u8 = 5;
/// Origin, number and time.
const HEAD_LEN: usize = 24;
/// How long the length of a part is.
const LENGTH_LEN: usize = 8;
/// Set in the length of the register: who gave way comes behind it. No register is that long.
const WITH_GAVE_WAY: u64 = 1 << 63;

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// A proposal for the register.
    Register(&'a [u8]),
    /// A batch, or a piece of one.
    Ledger {
        /// Do more pieces follow?
        goes_on: bool,
    },
    /// Who gave way, or stands again. Control reads it.
    Fact,
    /// Nothing: a term begins, or nobody knows what this is.
    Nothing,
}

impl<'a> Content<'a> {
    /// Looks at the first byte.
    #[must_use]
    pub const fn of(data: &'a [u8]) -> Self {
        match data.split_first() {
            Some((&REGISTER, proposal)) => Self::Register(proposal),
            Some((&(WHOLE | LAST), _)) => Self::Ledger { goes_on: false },
            Some((&(FIRST | MIDDLE), _)) => Self::Ledger { goes_on: true },
            Some((&FACT, _)) => Self::Fact,
            _ => Self::Nothing,
        }
    }
}

/// The record of a proposal for the register.
///
/// # Panics
/// Never: a proposal can always be written.
#[must_use]
pub fn of_register(proposal: &Proposal<'_>) -> Bytes {
    postcard::to_extend(proposal, vec![REGISTER]).expect("a proposal can always be written").into()
}

/// The record of a fact.
///
/// # Panics
/// Never: a fact can always be written.
#[must_use]
pub fn of_fact(fact: Fact) -> Bytes {
    postcard::to_extend(&fact, vec![FACT]).expect("a fact can always be written").into()
}

/// The fact that a record holds, if it holds one.
#[must_use]
pub fn fact(data: &[u8]) -> Option<Fact> {
    let fact = data.strip_prefix(&[FACT])?;
    match postcard::take_from_bytes(fact) {
        Ok((fact, [])) => Some(fact),
        _ => None,
    }
}

/// A batch on its way into the log, already in the log's own form, save for who sends it and when.
///
/// It is written in pieces from the start: they stay as they are for as long as the log has them, and one long text before them
/// would only be memory that a process does not give back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Draft {
    /// Each begins with its tag, the first goes on with room for the head; then come the entries.
    pieces: Vec<Vec<u8>>,
    /// How many it submits.
    tasks: u64,
}

impl Draft {
    /// Writes these entries down.
    ///
    /// # Panics
    /// Never: entries can always be written.
    #[must_use]
    pub fn new(entries: &[Entry]) -> Self {
        let tasks = entries.iter().map(tasks).fold(0, u64::saturating_add);
        let draft = Self { pieces: vec![vec![WHOLE; 1 + HEAD_LEN]], tasks };
        postcard::to_extend(entries, draft).expect("entries can always be written")
    }

    /// How many bytes it takes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }

    /// How many bytes of new content it brings, about. What ends something or gives room back brings none.
    #[must_use]
    pub fn growth(&self) -> u64 {
        // Each task has a state beside what was submitted. A job may name more tasks than any farm can hold.
        if self.tasks == 0 { 0 } else { self.tasks.saturating_mul(2).saturating_add(self.len() as u64) }
    }

    /// It is never empty: it has a head.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The records: process, its number among the batches of that process, and the time.
    #[must_use]
    pub fn seal(mut self, origin: u64, number: u64, time_ms: u64) -> Vec<Bytes> {
        let mut head = &mut self.pieces[0][1..=HEAD_LEN];
        [origin, number, time_ms].into_iter().for_each(|field| head.put_u64(field));
        let last = self.pieces.len() - 1;
        let tag = |place: usize| match place {
            0 if last == 0 => WHOLE,
            0 => FIRST,
            _ if place == last => LAST,
            _ => MIDDLE,
        };
        let tagged = self.pieces.into_iter().enumerate().map(|(place, mut piece)| {
            piece[0] = tag(place);
            Bytes::from(piece)
        });
        tagged.collect()
    }
}

fn tasks(entry: &Entry) -> u64 {
    if let Entry::Submit { spec, .. } = entry { spec.expansion.len() } else { 0 }
}

impl Extend<u8> for Draft {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        let mut bytes = bytes.into_iter().peekable();
        while bytes.peek().is_some() {
            if self.pieces.last().is_none_or(|piece| piece.len() > PIECE_LEN_MAX) {
                let mut piece = Vec::with_capacity(1 + PIECE_LEN_MAX);
                piece.push(MIDDLE);
                self.pieces.push(piece);
            }
            if let Some(piece) = self.pieces.last_mut() {
                piece.extend(bytes.by_ref().take(1 + PIECE_LEN_MAX - piece.len()));
            }
        }
    }
}

/// A batch from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filed {
    /// The process that proposed it.
    pub origin: u64,
    /// Which of its batches this is.
    pub number: u64,
    /// What is to change.
    pub batch: Batch,
}

/// Puts batches together from the records of the log, taken in order.
#[derive(Debug, Default)]
pub struct Assembly {
    hold: Vec<u8>,
}

impl Assembly {
    /// The batch that ends with this record, if one does and it makes sense.
    pub fn take(&mut self, data: &[u8]) -> Option<Filed> {
        let (tag, piece) = data.split_first()?;
        match *tag {
            WHOLE => return filed(piece),
            FIRST => self.hold.clear(),
            MIDDLE | LAST if !self.hold.is_empty() => {}
            _ => return None,
        }
        if self.hold.len() + piece.len() > BATCH_LEN_MAX {
            self.hold.clear();
            return None;
        }
        self.hold.extend_from_slice(piece);
        (*tag == LAST).then(|| std::mem::take(&mut self.hold)).and_then(|whole| filed(&whole))
    }
}

fn filed(bytes: &[u8]) -> Option<Filed> {
    let (head, entries) = bytes.split_first_chunk::<HEAD_LEN>()?;
    let (fields, _) = head.as_chunks::<8>();
    let [origin, number, time_ms] = [0, 1, 2].map(|place| u64::from_be_bytes(fields[place]));
    match postcard::take_from_bytes(entries) {
        Ok((entries, [])) => Some(Filed { origin, number, batch: Batch { time_ms, entries } }),
        _ => None,
    }
}

/// The beginning of a whole state: the register and who gave way. A state of version 0.6.0 has nothing of the latter.
///
/// # Panics
/// Never: who gave way can always be written.
#[must_use]
pub fn front(register: &[u8], gave_way: &GaveWay) -> Bytes {
    let mut bytes = vec![0; LENGTH_LEN];
    bytes.extend_from_slice(register);
    end_front(&mut bytes, gave_way);
    bytes.into()
}

/// Behind the place of its length stands the register.
fn end_front(bytes: &mut Vec<u8>, gave_way: &GaveWay) {
    let flag = if gave_way.is_empty() { 0 } else { WITH_GAVE_WAY };
    let length = (bytes.len() - LENGTH_LEN) as u64 | flag;
    bytes[..LENGTH_LEN].copy_from_slice(&length.to_be_bytes());
    if !gave_way.is_empty() {
        let text = postcard::to_stdvec(gave_way).expect("who gave way can always be written");
        bytes.put_u64(text.len() as u64);
        bytes.put_slice(&text);
    }
}

/// All that is agreed on about a farm at one place of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// Keys and values.
    pub register: Register,
    /// Jobs, workers, leases and loans.
    pub ledger: Ledger,
}

impl State {
    /// As a snapshot holds it: its [`front`], then the ledger.
    ///
    /// # Panics
    /// Never: a ledger can always be written.
    #[must_use]
    pub fn to_bytes(&self, gave_way: &GaveWay) -> Bytes {
        // In one place from the beginning: to copy what is long costs more than to write it.
        let content_len = self.register.len_bytes() as u64 + self.ledger.len_bytes();
        let mut bytes = Vec::with_capacity(usize::try_from(content_len).unwrap_or(0) + LENGTH_LEN);
        bytes.resize(LENGTH_LEN, 0);
        bytes = postcard::to_extend(&self.register, bytes).expect("a register can always be written");
        end_front(&mut bytes, gave_way);
        bytes = postcard::to_extend(&self.ledger, bytes).expect("a ledger can always be written");
        // It is kept for a long time.
        bytes.shrink_to_fit();
        bytes.into()
    }

    /// From a snapshot; nothing if any part of it cannot be read.
    #[must_use]
    pub fn from_bytes(bytes: &Bytes) -> Option<Self> {
        let (register, ledger) = split_state(bytes)?;
        let register = Register::from_bytes(&register)?;
        Some(Self { register, ledger: postcard::from_bytes(&ledger).ok()? })
    }
}

/// The bytes of register and ledger in a whole state.
#[must_use]
pub fn split_state(state: &Bytes) -> Option<(Bytes, Bytes)> {
    let (register, _, ledger) = parts(state)?;
    Some((register, ledger))
}

/// Who gave way, according to a whole state.
#[must_use]
pub fn gave_way(state: &Bytes) -> GaveWay {
    let text = parts(state).and_then(|(_, text, _)| text);
    text.and_then(|text| postcard::from_bytes(&text).ok()).unwrap_or_default()
}

/// Register, who gave way if that is there, and ledger.
fn parts(state: &Bytes) -> Option<(Bytes, Option<Bytes>, Bytes)> {
    let (length, rest) = cut_length(state)?;
    let (register, rest) = cut(&rest, length & !WITH_GAVE_WAY)?;
    if length & WITH_GAVE_WAY == 0 {
        return Some((register, None, rest));
    }
    let (length, rest) = cut_length(&rest)?;
    let (gave_way, ledger) = cut(&rest, length)?;
    Some((register, Some(gave_way), ledger))
}

fn cut_length(bytes: &Bytes) -> Option<(u64, Bytes)> {
    let length = bytes.first_chunk::<LENGTH_LEN>()?;
    Some((u64::from_be_bytes(*length), bytes.slice(LENGTH_LEN..)))
}

fn cut(bytes: &Bytes, length: u64) -> Option<(Bytes, Bytes)> {
    let end = usize::try_from(length).ok().filter(|end| *end <= bytes.len())?;
    Some((bytes.slice(..end), bytes.slice(end..)))
}

#[cfg(test)]
mod tests {
    use primus_core::ledger::{
        Attempt, Expansion, JobId, Limits, Outcome, Report, Spec, Start, Tail, Target, TaskId, Verdict, Work,
    };
    use primus_core::{ServerId, Term};

    use super::*;
    use crate::register::Change;

    fn entries(count: u64) -> Vec<Entry> {
        let job = |number| Entry::Cancel(Target::Job(JobId(number)));
        (u64::MAX - count..u64::MAX).map(job).collect()
    }

    fn take_all(assembly: &mut Assembly, records: &[Bytes]) -> Vec<Filed> {
        records.iter().filter_map(|record| assembly.take(record)).collect()
    }

    #[test]
    fn a_batch_comes_out_as_it_went_in_however_long_it_is() {
        for count in [0, 1, 100_000] {
            let records = Draft::new(&entries(count)).seal(7, 8, 9);
            assert_eq!(records.len() > 1, count == 100_000);
            let goes_on = |record: &Bytes| Content::of(record) == Content::Ledger { goes_on: true };
            assert_eq!(records.iter().filter(|record| goes_on(record)).count(), records.len() - 1);
            let found = take_all(&mut Assembly::default(), &records);
            let batch = Batch { time_ms: 9, entries: entries(count) };
            assert_eq!(found, [Filed { origin: 7, number: 8, batch }]);
        }
    }

    #[test]
    fn a_beginning_without_an_end_is_forgotten() {
        let mut assembly = Assembly::default();
        let (first, second) =
            (Draft::new(&entries(100_000)).seal(1, 1, 1), Draft::new(&entries(100_001)).seal(2, 1, 1));
        assert_eq!(take_all(&mut assembly, &first[..2]), []);
        assert_eq!(take_all(&mut assembly, &second).len(), 1);
        assert_eq!(take_all(&mut assembly, &first[1..]), [], "an end without a beginning");
    }

    #[test]
    fn bytes_that_make_no_sense_are_no_batch() {
        for bytes in [&b""[..], b"\x01", b"\x01short", b"\x04end", b"\x09what", &[WHOLE; 30]] {
            assert_eq!(Assembly::default().take(bytes), None, "{bytes:?}");
        }
        assert_eq!(Content::of(b""), Content::Nothing);
        assert_eq!(Content::of(b"\x09"), Content::Nothing);
    }

    #[test]
    fn a_fact_comes_out_as_it_went_in() {
        let gave_way = Fact::GaveWay { server: ServerId(3), to: ServerId(2), is_chosen: true };
        for sent in [gave_way, Fact::AllStand] {
            let record = of_fact(sent);
            assert_eq!((fact(&record), Content::of(&record)), (Some(sent), Content::Fact));
            assert_eq!(Assembly::default().take(&record), None);
        }
        for bytes in [&b""[..], b"\x05", b"\x05\x09", b"\x05\x01more", b"\x01\x01"] {
            assert_eq!(fact(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_state_can_be_read_again() {
        let mut register = Register::default();
        register.apply(3, &Proposal { origin: 1, number: 2, changes: vec![Change::Put("a", b"x")] }.to_bytes());
        let kept = State { register, ledger: Ledger::new(Limits { results: 3, ..Limits::default() }) };
        let mut one = GaveWay::default();
        one.apply(Fact::GaveWay { server: ServerId(3), to: ServerId(2), is_chosen: true });
        for gave_way in [GaveWay::default(), one] {
            let bytes = kept.to_bytes(&gave_way);
            assert_eq!(State::from_bytes(&bytes).as_ref(), Some(&kept));
            assert_eq!(super::gave_way(&bytes), gave_way);
            assert_eq!(State::from_bytes(&bytes.slice(..bytes.len() - 1)), None, "half a state is none");
        }
        assert_eq!(split_state(&Bytes::from_static(b"\0\0\0\0\0\0\0\x09short")), None);
        assert_eq!(split_state(&Bytes::from_static(b"\x80\0\0\0\0\0\0\x01r\0\0\0\0\0\0\0\x09short")), None);
    }

    #[test]
    fn a_state_of_the_version_before_tells_of_nobody_who_gave_way() {
        let kept = Ledger::new(Limits::default());
        let old = postcard::to_extend(&kept, b"\0\0\0\0\0\0\0\x01\0".to_vec()).unwrap().into();
        assert_eq!(gave_way(&old), GaveWay::default());
        assert_eq!(State::from_bytes(&old), Some(State { register: Register::default(), ledger: kept }));
    }

    /// A ledger with something of everything that has to do with tasks.
    fn busy_ledger() -> Ledger {
        let spec = |expansion: Expansion, is_once| Spec {
            name: "name".to_owned(),
            work: Work::Kind { name: "noop".to_owned(), input: vec![1, 2] },
            expansion,
            retries: 1,
            timeout_ms: None,
            is_once,
            priority: 0,
            cpus: 1,
        };
        let task = |job, index| TaskId { job: JobId(job), index };
        let attempt = |sequence| Attempt { term: Term(1), sequence };
        let finish = |task, sequence, code| {
            let (stdout, stderr) = (Tail { total: 5, bytes: b"hello".to_vec() }, Tail::default());
            let (worker, verdict) = ("w1".to_owned(), Verdict::Exited(code));
            let attempt = attempt(sequence);
            let outcome = Outcome { attempt, worker, verdict, started_us: 7, took_us: 8, stdout, stderr };
            Entry::Finish(Report { task, outcome })
        };
        let array = Entry::Submit {
            spec: spec(Expansion::Array { first: 1, last: 70 }, false),
            key: Some("key".to_owned()),
        };
        let once = Entry::Submit { spec: spec(Expansion::Array { first: 1, last: 2 }, true), key: None };
        let start = Entry::Start(Start { task: task(2, 1), worker: "w1".to_owned(), attempt: attempt(5) });
        let mut ledger = Ledger::new(Limits { results: 90, ..Limits::default() });
        ledger.apply(Batch {
            time_ms: 5,
            entries: vec![array, once, Entry::Join { worker: "w1".to_owned(), slots: 2 }],
        });
        let ended = vec![finish(task(1, 40), 1, 0), finish(task(1, 40), 2, 0), finish(task(1, 3), 3, 1), start];
        ledger.apply(Batch { time_ms: 9, entries: ended });
        ledger.apply(Batch { time_ms: 10, entries: vec![Entry::Cancel(Target::Job(JobId(1)))] });
        let again = Target::Task(task(1, 66));
        ledger.apply(Batch { time_ms: 12, entries: vec![Entry::Retry(again), finish(task(1, 66), 4, 0)] });
        ledger
    }

    #[test]
    fn a_ledger_is_written_as_ever_and_comes_out_as_it_went_in() {
        let kept = busy_ledger();
        let written = postcard::to_stdvec(&kept).unwrap();
        let hash = written
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        assert_eq!(
            (written.len(), hash),
            (453, 1_064_622_156_101_563_476),
            "so it was written before there were stretches of tasks"
        );
        assert_eq!(postcard::from_bytes(&written), Ok(kept));
    }
}
