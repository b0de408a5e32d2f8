//! Asks the farm's servers what this session holds, one question at a time.

use std::time::Duration;

use primus_client::http::{Connections, Limits, Request};
use primus_client::refusal_of;
use primus_core::SessionId;
use primus_core::lease::Poll;
use primus_node::session::{Answered, Transport};
use primus_shapes::session::{AnswerBody, QuestionBody};
use primus_terminal::Place;
use primus_terminal::failure::Failure;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LIMITS: Limits = Limits {
    connect_time: Duration::from_millis(250),
    // Servers close a connection after a while that is not used.
    idle_time: Duration::from_secs(2),
    // Ten thousand groups fit.
    answer_len_max: 8 << 20,
};

/// Where to ask, and what was asked last.
pub(in crate::commands) struct Asker {
    connections: Connections,
    addresses: Vec<String>,
    asked: Option<JoinHandle<Answered<Failure>>>,
}

impl Asker {
    /// Through this server only.
    pub(in crate::commands) fn at(address: &str) -> Self {
        Self::new(vec![address.to_owned()])
    }

    /// Through the servers that these arguments mean.
    pub(in crate::commands) fn find(place: &Place) -> Result<Self, Failure> {
        Ok(Self::new(place.client()?.into_addresses()))
    }

    fn new(addresses: Vec<String>) -> Self {
        Self { connections: Connections::new(LIMITS), addresses, asked: None }
    }
}

impl Transport for Asker {
    type Refusal = Failure;

    fn ask(&mut self, session: SessionId, poll: Poll, patience: Duration) {
        if let Some(before) = self.asked.take() {
            before.abort();
        }
        let number = poll.number;
        let Some(address) = self.addresses.first().cloned() else { return };
        let body = serde_json::to_vec(&QuestionBody::new(poll)).expect("plain fields become JSON");
        let connections = self.connections.clone();
        self.asked = Some(tokio::spawn(async move {
            let path = format!("/v1/sessions/{:x}", session.0);
            let request = Request::post(&path, &body);
            let asking = connections.ask(&request, &address, &[], patience);
            let answer = timeout(patience, asking).await.ok().and_then(Result::ok);
            answer.and_then(|(status, body)| understood(status, &body)).unwrap_or(Answered::Failed(number))
        }));
    }

    async fn answer(&mut self) -> Answered<Failure> {
        let Some(asked) = &mut self.asked else { return std::future::pending().await };
        let answered = asked.await;
        self.asked = None;
        let answered = answered.unwrap_or(Answered::Failed(0));
        if matches!(answered, Answered::Failed(_)) && !self.addresses.is_empty() {
            // Perhaps another one is better off.
            self.addresses.rotate_left(1);
        }
        answered
    }
}

/// What a server says; nothing if another one may know better.
fn understood(status: u16, body: &[u8]) -> Option<Answered<Failure>> {
    if (200..300).contains(&status) {
        let answer: AnswerBody = serde_json::from_slice(body).ok()?;
        let lease_us = answer.lease_us();
        return Some(Answered::Answer(answer.into_answer(), lease_us));
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    // What is wrong with the question is wrong everywhere.
    (400..500).contains(&status).then(|| Answered::Refused(refusal_of(status, &body).into()))
}
