//! Handlers of task kinds. They run on the program's own runtime, so that none of them makes the worker late.

use std::panic::resume_unwind;
use std::sync::Arc;

use primus_core::ledger::TaskId;
use primus_node::executor::{Answer, Call, Kinds};
use tokio::runtime;
use tokio::task::{JoinError, JoinSet};

/// What a handler is called with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Task {
    /// The name of the task: `12.7` is the seventh task of job 12.
    pub id: TaskId,
    /// The name of this start of it: another start has another one.
    pub attempt: String,
    /// The task's own argument: its number or its line.
    pub argument: String,
    /// What the job was submitted with.
    pub input: Vec<u8>,
}

impl Task {
    /// The job's input as text or, if it is empty, the task's own argument.
    #[must_use]
    pub fn text(&self) -> String {
        if self.input.is_empty() {
            self.argument.clone()
        } else {
            String::from_utf8_lossy(&self.input).into_owned()
        }
    }
}

impl Task {
    fn of(call: Call) -> Self {
        let Call { held, argument, input } = call;
        Self { id: held.task, attempt: held.attempt.to_string(), argument, input }
    }
}

/// Adds a handler to the kinds of a worker, once it is known where handlers run.
pub(super) type Register = Box<dyn Fn(&mut Kinds, &runtime::Handle) + Send + Sync>;

pub(super) fn register<T, F>(name: String, handler: impl Fn(Task) -> F + Send + Sync + 'static) -> Register
where
    T: Into<Vec<u8>> + Send + 'static,
    F: Future<Output = Result<T, String>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Box::new(move |kinds, runtime| {
        let (handler, runtime) = (Arc::clone(&handler), runtime.clone());
        kinds.add(&name, move |call| {
            let (handler, runtime) = (Arc::clone(&handler), runtime.clone());
            async move {
                // The set ends the handler with whatever waits for it.
                let mut alone = JoinSet::new();
                alone.spawn_on(async move { handler(Task::of(call)).await }, &runtime);
                answer(alone.join_next().await)
            }
        });
    })
}

pub(super) fn register_blocking<T>(
    name: String,
    handler: impl Fn(Task) -> Result<T, String> + Send + Sync + 'static,
) -> Register
where
    T: Into<Vec<u8>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Box::new(move |kinds, runtime| {
        let (handler, runtime) = (Arc::clone(&handler), runtime.clone());
        kinds.add(&name, move |call| {
            let (handler, runtime) = (Arc::clone(&handler), runtime.clone());
            async move { answer(Some(runtime.spawn_blocking(move || handler(Task::of(call))).await)) }
        });
    })
}

fn answer<T: Into<Vec<u8>>>(joined: Option<Result<Result<T, String>, JoinError>>) -> Answer {
    match joined {
        Some(Ok(answer)) => answer.map(Into::into),
        // The worker says what became of the task.
        Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
        Some(Err(_)) | None => Err("the program is about to end".to_owned()),
    }
}
