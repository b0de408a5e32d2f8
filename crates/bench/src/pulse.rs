//! How late this host lets a thread go on that slept for a millisecond: what no program can be faster than.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::report::milliseconds;

const EVERY: Duration = Duration::from_millis(1);

/// Measures until it is asked.
pub(crate) struct Pulse {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Pulse {
    pub(crate) fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let is_heard = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut longest_ms = 0.0_f64;
            while !is_heard.load(Ordering::Relaxed) {
                let began = Instant::now();
                thread::sleep(EVERY);
                longest_ms = longest_ms.max(milliseconds(began) - 1.0);
            }
            longest_ms
        });
        Self { is_over, thread }
    }

    /// The longest pause, in milliseconds.
    pub(crate) fn stop(self) -> f64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
