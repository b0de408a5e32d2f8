//! Connections that are used again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::connection::{Answer, Connection};
use super::{Field, Request, TransportError};

/// To each server one connection is kept while it is not used.
#[derive(Debug, Clone)]
pub struct Connections {
    limits: Limits,
    kept: Arc<Mutex<BTreeMap<String, (Connection, Instant)>>>,
}

/// What such connections are held to.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long it may take to open one.
    pub connect_time: Duration,
    /// How long one is kept that is not used. A connection that its server is about to close must not be used again.
    pub idle_time: Duration,
    /// The longest answer.
    pub answer_len_max: usize,
}

impl Connections {
    /// None yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, kept: Arc::default() }
    }

    /// The status and the body of the answer. After any trouble the next request opens another connection.
    pub async fn ask(
        &self,
        request: &Request<'_>,
        address: &str,
        fields: &[Field<'_>],
        answer_time: Duration,
    ) -> Result<(u16, Vec<u8>), TransportError> {
        let head_time = request.head_time(answer_time);
        let mut request = request.addressed(address, fields)?;
        if let Some(kept) = self.take(address) {
            match kept.ask(request, head_time, answer_time).await.map_err(|failed| (failed.request, failed.error)) {
                Ok(answer) => return self.read(address, answer).await,
                // The server has closed it meanwhile.
                Err((Some(again), _)) => request = *again,
                Err((None, error)) => return Err(error),
            }
        }
        let connection = Connection::open(address, self.limits.connect_time.min(answer_time)).await?;
        let asked = connection.ask(request, head_time, answer_time).await;
        self.read(address, asked.map_err(|failed| failed.error)?).await
    }

    async fn read(&self, address: &str, mut answer: Answer) -> Result<(u16, Vec<u8>), TransportError> {
        let body = answer.bytes_max(self.limits.answer_len_max).await.map_err(TransportError::NoAnswer)?;
        let kept = (answer.connection, Instant::now());
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(address.to_owned(), kept);
        Ok((answer.status, body))
    }

    fn take(&self, address: &str) -> Option<Connection> {
        let (connection, since) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(address)?;
        (since.elapsed() < self.limits.idle_time).then_some(connection)
    }
}
