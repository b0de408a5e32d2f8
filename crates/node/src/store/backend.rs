//! The file under the database: it holds back every write until the database has been found sound.
//!
//! The database repairs itself when it is opened: it falls back to the transaction before the last if the last does not
//! match its checksums. That is right after a power cut, and wrong after a flipped bit, because then a durable vote is
//! gone. Only the store can tell the two apart, so nothing reaches the file before it has.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// The unit in which writes are held back; the database writes in multiples of it, save for its header.
const PAGE_BYTES: usize = 4096;

/// Where the database keeps its flags, and two of them (format 3 of redb): "was not closed" and "the last transaction
/// can be trusted unread".
const FLAGS_OFFSET: u64 = 9;
const NOT_CLOSED: u8 = 2;
const TRUSTED: u8 = 4;

/// The file of a database. Clones are the same file.
#[derive(Debug, Clone)]
pub(super) struct Backend(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    held: Mutex<Option<Held>>,
    sync_failed: AtomicBool,
}

/// What the file would be if writes were not held back.
#[derive(Debug)]
struct Held {
    len: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Backend {
    /// A file whose writes are held back until they are [released](Self::release).
    pub(super) fn held(file: File) -> Result<Self> {
        let held = Held { len: file.metadata()?.len(), pages: BTreeMap::new() };
        Ok(Self::new(file, Some(held)))
    }

    /// A file that is written at once, because nothing in it can be lost.
    pub(super) fn direct(file: File) -> Self {
        Self::new(file, None)
    }

    fn new(file: File, held: Option<Held>) -> Self {
        Self(Arc::new(Inner { file, held: Mutex::new(held), sync_failed: AtomicBool::new(false) }))
    }

    /// Writes what was held back, the header last, and holds back nothing from now on.
    pub(super) fn release(&self) -> Result<()> {
        let Some(held) = self.state().take() else { return Ok(()) };
        if held.len != self.0.file.metadata()?.len() {
            self.0.file.set_len(held.len)?;
        }
        for (number, page) in held.pages.iter().rev() {
            if *number == 0 {
                self.sync_data()?;
            }
            let offset = number * PAGE_BYTES as u64;
            let end = usize::try_from(held.len.saturating_sub(offset)).unwrap_or(PAGE_BYTES).min(PAGE_BYTES);
            self.0.file.write_all_at(&page[..end], offset)?;
        }
        self.sync_data()
    }

    /// Has the system ever failed to make writes durable? It then forgets which, and a later success means nothing.
    pub(super) fn sync_failed(&self) -> bool {
        self.0.sync_failed.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, Option<Held>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn read(&self, file: &File, offset: u64, out: &mut [u8]) -> Result<()> {
        if offset.saturating_add(out.len() as u64) > self.len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        read_with_zeros(file, offset, out)?;
        for_each_piece(offset, out.len(), |number, within, range| {
            if let Some(page) = self.pages.get(&number) {
                let len = range.len();
                out[range].copy_from_slice(&page[within..within + len]);
            }
            Ok(())
        })?;
        // Without these flags the database would trust its pages unread; with them it checks every one.
        if let Some(place) = FLAGS_OFFSET.checked_sub(offset).and_then(|place| usize::try_from(place).ok())
            && let Some(flags) = out.get_mut(place)
        {
            *flags = (*flags | NOT_CLOSED) & !TRUSTED;
        }
        Ok(())
    }

    fn write(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<()> {
        self.len = self.len.max(offset.saturating_add(data.len() as u64));
        for_each_piece(offset, data.len(), |number, within, range| {
            let page = match self.pages.entry(number) {
                std::collections::btree_map::Entry::Occupied(page) => page.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    let mut page = vec![0; PAGE_BYTES];
                    read_with_zeros(file, number * PAGE_BYTES as u64, &mut page)?;
                    place.insert(page)
                }
            };
            page[within..within + range.len()].copy_from_slice(&data[range]);
            Ok(())
        })
    }
}

/// Cuts a range of the file into pages: the page, where in it, and where in the caller's buffer.
fn for_each_piece(
    offset: u64,
    len: usize,
    mut visit: impl FnMut(u64, usize, std::ops::Range<usize>) -> Result<()>,
) -> Result<()> {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = usize::try_from(at % PAGE_BYTES as u64).expect("less than a page");
        let end = len.min(done + PAGE_BYTES - within);
        visit(at / PAGE_BYTES as u64, within, done..end)?;
        done = end;
    }
    Ok(())
}

/// Reads; what lies behind the end of the file is zero, as if the file had been made longer.
fn read_with_zeros(file: &File, offset: u64, out: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < out.len() {
        match file.read_at(&mut out[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    out[done..].fill(0);
    Ok(())
}

impl StorageBackend for Backend {
    fn len(&self) -> Result<u64> {
        match &*self.state() {
            Some(held) => Ok(held.len),
            None => Ok(self.0.file.metadata()?.len()),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match &*self.state() {
            Some(held) => held.read(&self.0.file, offset, out),
            None => self.0.file.read_exact_at(out, offset),
        }
    }

    fn set_len(&self, len: u64) -> Result<()> {
        match &mut *self.state() {
            Some(held) => {
                held.len = len;
                Ok(())
            }
            None => self.0.file.set_len(len),
        }
    }

    fn sync_data(&self) -> Result<()> {
        if self.state().is_some() {
            return Ok(());
        }
        if self.sync_failed() {
            return Err(Error::other("an earlier write could not be made durable"));
        }
        self.0.file.sync_data().inspect_err(|_| self.0.sync_failed.store(true, Ordering::Relaxed))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        match &mut *self.state() {
            Some(held) => held.write(&self.0.file, offset, data),
            None => self.0.file.write_all_at(data, offset),
        }
    }
}
