//! Asks the farm's servers what this session holds, one question at a time.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use primus_core::SessionId;
use primus_core::lease::Poll;
use primus_node::session::{Answered, Transport};
use primus_shapes::session::{AnswerBody, QuestionBody};
use primus_terminal::failure::Failure;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use primus_client::{refusal_of, tokens};
use primus_terminal::Place;

/// The longest answer: ten thousand groups fit.
const ANSWER_LEN_MAX: usize = 8 << 20;
const CONNECT_TIME: Duration = Duration::from_millis(250);
/// A connection that a server is about to close must not be used again.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// Where to ask, and what was asked last.
pub(in crate::commands) struct Asker {
    client: Option<HttpClient<HttpConnector, Body>>,
    addresses: Vec<String>,
    asked: Option<JoinHandle<Answered<Failure>>>,
}

impl Asker {
    /// Through this server only.
    pub(in crate::commands) fn at(address: &str) -> Self {
        Self { client: None, addresses: vec![address.to_owned()], asked: None }
    }

    /// Through the servers that these arguments mean.
    pub(in crate::commands) fn find(place: &Place) -> Result<Self, Failure> {
        let addresses = place.client()?.into_addresses();
        Ok(Self { client: None, addresses, asked: None })
    }

    /// To be made inside the runtime.
    fn client(&mut self) -> &HttpClient<HttpConnector, Body> {
        self.client.get_or_insert_with(|| {
            let mut connector = HttpConnector::new();
            connector.set_connect_timeout(Some(CONNECT_TIME));
            connector.set_nodelay(true);
            let mut builder = HttpClient::builder(TokioExecutor::new());
            builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIME);
            builder.build(connector)
        })
    }
}

impl Transport for Asker {
    type Refusal = Failure;

    fn ask(&mut self, session: SessionId, poll: Poll, patience: Duration) {
        if let Some(before) = self.asked.take() {
            before.abort();
        }
        let number = poll.number;
        let Some(address) = self.addresses.first() else { return };
        let body = serde_json::to_vec(&QuestionBody::new(poll)).expect("plain fields become JSON");
        let mut request = Request::post(format!("http://{address}/v1/sessions/{:x}", session.0));
        request = request.header(CONTENT_TYPE, "application/json");
        if let Some(token) = tokens::of(address) {
            request = request.header(AUTHORIZATION, token.credentials());
        }
        let request = request.body(Body::from(body)).expect("an address and a number make a path");
        let asking = exchange(self.client().clone(), request);
        self.asked = Some(tokio::spawn(async move {
            timeout(patience, asking).await.ok().flatten().unwrap_or(Answered::Failed(number))
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

async fn exchange(client: HttpClient<HttpConnector, Body>, request: Request<Body>) -> Option<Answered<Failure>> {
    let response = client.request(request).await.ok()?;
    let status = response.status();
    let body = to_bytes(Body::new(response.into_body()), ANSWER_LEN_MAX).await.ok()?;
    if status.is_success() {
        let answer: AnswerBody = serde_json::from_slice(&body).ok()?;
        let lease_us = answer.lease_us();
        return Some(Answered::Answer(answer.into_answer(), lease_us));
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    // What is wrong with the question is wrong everywhere.
    status.is_client_error().then(|| Answered::Refused(refusal_of(status.as_u16(), &body).into()))
}
