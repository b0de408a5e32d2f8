//! What a worker can do without starting a program: handlers by name, inside the worker's own process.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use primus_core::ledger::Held;

/// The runtime's own timers count whole milliseconds and are late by up to two; the rest of a sleep is the system's.
const COARSE: Duration = Duration::from_millis(2);

/// What handlers a worker has.
#[derive(Clone)]
pub struct Kinds(BTreeMap<String, Handler>);

/// What a handler is called with.
#[derive(Debug, Clone)]
pub struct Call {
    /// Which attempt at which task.
    pub held: Held,
    /// The task's own argument: its number or its line.
    pub argument: String,
    /// What the job was submitted with.
    pub input: Vec<u8>,
}

/// What a handler gives back: what it prints, or a complaint.
pub type Answer = Result<Vec<u8>, String>;

type Handler = Arc<dyn Fn(Call) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync>;

impl Kinds {
    /// Does nothing, at once.
    pub const NOOP: &str = "noop";
    /// Waits for as many milliseconds as its input says or, if that is empty, its argument.
    pub const SLEEP: &str = "sleep";

    /// Registers a handler under a name; an older one of that name is replaced.
    ///
    /// Tasks of that kind (`primus submit --kind NAME --input TEXT`, or `{"kind":NAME,"input":TEXT}` over HTTP) call it with
    /// the input and with their own argument. What it gives back is the task's output; a complaint counts as exit code 1, and
    /// is what the task printed to stderr. When the task is cancelled, or takes too long, the handler is dropped where
    /// it waits. It must not keep the thread busy, because the worker lives there, too: long work belongs into
    /// [`spawn_blocking`](tokio::task::spawn_blocking).
    ///
    /// ```
    /// use primus_node::executor::{Call, Kinds};
    ///
    /// let mut kinds = Kinds::default();
    /// kinds.add("shout", async |call: Call| {
    ///     let text = String::from_utf8(call.input).map_err(|_| "the input is no text".to_owned())?;
    ///     Ok(text.to_uppercase().into_bytes())
    /// });
    /// ```
    ///
    /// [`worker::start`](crate::worker::start) takes the kinds.
    pub fn add<F>(&mut self, name: &str, handler: impl Fn(Call) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        self.0.insert(name.to_owned(), Arc::new(move |call| Box::pin(handler(call))));
    }

    /// The work of a call, if there is a handler of that name.
    pub(super) fn call(&self, name: &str, call: Call) -> Option<Pin<Box<dyn Future<Output = Answer> + Send>>> {
        self.0.get(name).map(|handler| handler(call))
    }

    /// The names, for a sentence.
    pub(super) fn names(&self) -> String {
        self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl Default for Kinds {
    fn default() -> Self {
        let mut kinds = Self(BTreeMap::new());
        kinds.add(Self::NOOP, async |_| Ok(Vec::new()));
        kinds.add(Self::SLEEP, sleep);
        kinds
    }
}

async fn sleep(call: Call) -> Answer {
    let text = if call.input.is_empty() { call.argument.into_bytes() } else { call.input };
    let text = String::from_utf8_lossy(&text);
    let length_ms = text.trim().parse().map_err(|_| format!("{text:?} is not a number of milliseconds"))?;
    let began = Instant::now();
    let length = Duration::from_millis(length_ms);
    tokio::time::sleep(length.saturating_sub(COARSE)).await;
    let rest = length.saturating_sub(began.elapsed());
    if !rest.is_zero() {
        _ = tokio::task::spawn_blocking(move || thread::sleep(rest)).await;
    }
    Ok(Vec::new())
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
