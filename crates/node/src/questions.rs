//! Questions for the leader: any server can be asked, and passes on what it cannot answer itself.
//!
//! A question and its answer fit into a frame. They travel on links of their own (`conversations.rs`), which a thread of its own
//! serves, so control's thread and control's links have nothing to do with them. That thread keeps the leases of this process,
//! too. What may be longer than a frame, or streams, is passed on by the API (`request_links.rs`). Where both go, and how long
//! they wait between two leaders, is in `leader_search.rs`.

mod conversations;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::SessionId;
use primus_core::lease::{Answer, Poll};
use primus_core::ledger::roll::{Consume, Fingerprint};
use primus_core::ledger::{Effect, Entry, JobId, Spec};
use primus_identity::trust::Identified;
use primus_server::Plan;
use primus_server::register::Change;
use primus_wire::native::Purpose;
use serde::{Deserialize, Serialize};
use tokio::runtime::{self, Builder, Runtime};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use self::conversations::{Asked, Conversation, answer_all};
use crate::budget::{Budget, Weight};
use crate::credentials::Issued;
use crate::fleet;
use crate::handle::{Handle, Unable};
use crate::invitations::{self, Admission};
use crate::jobs::{JobView, TaskView};
use crate::leader_search::Patience;
use crate::request_links::RequestLinks;

/// How many questions of others may be under way.
const ANSWERED_MAX: usize = 1024;
/// How many questions of this server, and of others, may wait for jobs to end: they must leave room for those that cannot wait.
const WAITING_MAX: usize = 512;
const KEPT_MAX: usize = 4096;
/// How many bytes of questions of others may be under way.
const UNANSWERED_LEN_MAX: u32 = 32 << 20;
/// No question is longer, and no answer: each must fit into a frame.
const BODY_LEN_MAX: usize = 768 << 10;
/// How long a link may take to carry what is to be said on it.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// What can be asked of whoever leads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum LeaderRequest {
    /// Give a key this value; without one, forget it.
    Put(String, Option<Bytes>),
    /// What is the value of this key?
    Get(String),
    /// Take this job; under a key it is taken once.
    Submit(Box<Spec>, Option<String>),
    /// What does this session hold?
    Poll(SessionId, Poll),
    /// How is this job?
    Job(JobId),
    /// The same, when it has ended or after so many milliseconds.
    Wait(JobId, u32),
    /// How are its tasks, from this place on?
    Tasks(JobId, u64),
    /// Cancel what has not ended of this job.
    Cancel(JobId),
    /// Let this joiner in, whose public key this is.
    Join(Box<Consume>, Vec<u8>),
    /// Issue another certificate to the server that asks, for this public key.
    Renew(Vec<u8>),
    /// The certificate of the server that asks is from the authority with this hash.
    Shows([u8; 32]),
}

impl LeaderRequest {
    /// True if it can be asked again, although it may have been heard.
    const fn is_repeatable(&self) -> bool {
        match self {
            Self::Get(_) | Self::Job(_) | Self::Wait(..) | Self::Tasks(..) | Self::Cancel(_) => true,
            Self::Shows(_) | Self::Join(..) => true,
            Self::Put(..) | Self::Submit(..) | Self::Poll(..) | Self::Renew(_) => false,
        }
    }
}

/// What it says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum LeaderReply {
    /// It is written, at this index.
    Written(u64),
    /// The value, and where it was set.
    Value(Option<(Bytes, u64)>),
    /// The job, unless too much waits already.
    Job(Option<JobId>),
    /// What the session holds.
    Holds(Answer),
    /// The key belongs to this job, which is another one.
    OtherJob(JobId),
    /// How the job is, if there is one.
    JobView(Option<JobView>),
    /// How its tasks are, if there is such a job.
    Tasks(Option<Vec<TaskView>>),
    /// How many tasks were cancelled, if there is such a job.
    Cancelled(Option<u64>),
    /// What the joiner is given, or why it is not let in.
    Joined(Admission),
    /// The certificate.
    Issued(Issued),
    /// It is noted.
    Noted,
}

/// How this server asks others.
#[derive(Debug)]
pub(crate) struct Asker {
    id: ServerId,
    /// How long a lease lasts here.
    pub(crate) lease_us: u64,
    pub(crate) links: Arc<RequestLinks>,
    conversations: BTreeMap<ServerId, mpsc::Sender<Asked>>,
    waiting: Semaphore,
    runtime: runtime::Handle,
    /// Where each server is reached, as joiners hear it.
    pub(crate) places: Vec<(ServerId, String)>,
    /// True once the server is about to end: then what it holds is given back.
    pub(crate) is_ending: watch::Sender<bool>,
}

/// The thread that asks and answers. It ends with this value.
#[derive(Debug)]
pub(crate) struct Questions {
    asker: Arc<Asker>,
    /// What the thread is made of, until it is started.
    unstarted: Option<Runtime>,
    /// Ends it when it is dropped.
    stop: Option<oneshot::Sender<()>>,
}

impl Questions {
    /// Nobody answers yet.
    ///
    /// # Panics
    /// If the system gives no runtime.
    pub(crate) fn new(plan: &Plan, links: &Arc<RequestLinks>) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        let converse = |peer: &ServerId| {
            let (conversation, asked) = Conversation::new(*peer, Arc::clone(links));
            runtime.spawn(conversation.run());
            (*peer, asked)
        };
        let asker = Asker {
            id: plan.id,
            lease_us: plan.lease_us,
            links: Arc::clone(links),
            conversations: plan.servers.keys().filter(|peer| **peer != plan.id).map(converse).collect(),
            waiting: Semaphore::new(WAITING_MAX),
            runtime: runtime.handle().clone(),
            places: plan.servers.iter().map(|(id, place)| (*id, place.to_string())).collect(),
            is_ending: watch::Sender::new(false),
        };
        Self { asker: Arc::new(asker), unstarted: Some(runtime), stop: None }
    }

    pub(crate) fn asker(&self) -> Arc<Asker> {
        Arc::clone(&self.asker)
    }

    /// Starts the thread.
    ///
    /// # Panics
    /// If the system gives no thread.
    pub(crate) fn start(&mut self, handle: Handle) {
        let Some(runtime) = self.unstarted.take() else { return };
        let (stop, stopped) = oneshot::channel::<()>();
        self.stop = Some(stop);
        let links = Arc::clone(&self.asker.links);
        let calls = links.serve(Purpose::Questions);
        let joiners = invitations::answer_all(links.joiners.serve(), handle.clone());
        let running = move || {
            runtime.spawn(joiners);
            // A task of its own: whatever wakes the future that a runtime was started with costs a system call more.
            runtime.spawn(answer_all(calls, links, handle));
            _ = runtime.block_on(stopped);
        };
        thread::Builder::new().name("questions".to_owned()).spawn(running).expect("the system gives a thread");
    }
}

impl Asker {
    /// Runs this on the thread that answers, which is late for nobody's sake but its own.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Asks a peer, once. Dropping this gives the question up.
    async fn ask(&self, peer: ServerId, body: Bytes) -> Result<LeaderReply, Unable> {
        let (reply, answer) = oneshot::channel();
        let conversation = self.conversations.get(&peer).ok_or(Unable::NoLeader)?;
        conversation.try_send((body, reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Unable::Busy,
            mpsc::error::TrySendError::Closed(_) => Unable::NoLeader,
        })?;
        // If the link was lost meanwhile, the peer may have heard it.
        let body = answer.await.map_err(|_| Unable::Unknown)??;
        self.links.gate(peer).travel(1).await;
        postcard::from_bytes(&body).unwrap_or(Err(Unable::Unknown))
    }
}

impl Handle {
    /// Asks the leader, again and again if it did not take the question, until it answers or it takes too long.
    pub(crate) async fn ask_patiently(
        &self,
        question: LeaderRequest,
        patience: Patience,
    ) -> Result<LeaderReply, Unable> {
        let is_wait = matches!(question, LeaderRequest::Wait(..));
        let _room = if is_wait { self.asker.waiting.acquire().await.ok() } else { None };
        let (mut search, by) = (self.search(patience), Instant::now() + patience.answer);
        loop {
            // A write waits where it shares its way to the disk with the first entry of a server that begins to lead.
            let leader = match question {
                LeaderRequest::Put(..) => search.leader_now(),
                _ => search.leader().await,
            };
            let answer = timeout_at(by, self.ask_at(leader, &question)).await.unwrap_or(Err(Unable::Unknown));
            let was_taken = match answer {
                Err(Unable::NotLeading(_) | Unable::NoLeader | Unable::Busy) => false,
                Err(Unable::Unknown) => !question.is_repeatable(),
                _ => true,
            };
            if was_taken || !search.again().await {
                return answer;
            }
        }
    }

    /// Asks the leader, here or elsewhere, if there is one.
    pub(crate) async fn ask_once(&self, question: &LeaderRequest) -> Result<LeaderReply, Unable> {
        let leader = self.leadership.borrow().leader.ok_or(Unable::NoLeader)?;
        self.ask_at(Some(leader), question).await
    }

    async fn ask_at(&self, leader: Option<ServerId>, question: &LeaderRequest) -> Result<LeaderReply, Unable> {
        let Some(leader) = leader.filter(|leader| *leader != self.asker.id) else {
            return answer(self, question.clone(), Asking::Here).await;
        };
        let body = postcard::to_stdvec(question).map_err(|_| Unable::TooLong)?;
        if body.len() > BODY_LEN_MAX {
            return Err(Unable::TooLong);
        }
        let asking = self.asker.ask(leader, body.into());
        self.unless_deposed(leader, asking).await.unwrap_or(Err(Unable::Unknown))
    }
}

/// How many questions of others are under way, and how many bytes of them.
#[derive(Clone)]
struct Rooms {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
    unanswered: Budget,
}

impl Rooms {
    fn new() -> Self {
        let [short, long] = [ANSWERED_MAX, KEPT_MAX].map(|most| Arc::new(Semaphore::new(most)));
        Self { short, long, unanswered: Budget::new(UNANSWERED_LEN_MAX) }
    }

    /// The answer to a question of a peer, and what the question weighs until the answer is sent.
    fn answer(
        &self,
        handle: &Handle,
        body: Bytes,
        who: Option<Identified>,
    ) -> impl Future<Output = (Bytes, Option<Weight>)> + Send + use<> {
        let weight = self.unanswered.take(body.len());
        // Of another version, perhaps: nothing here can answer it.
        let question: Option<LeaderRequest> = postcard::from_bytes(&body).ok();
        let is_wait = matches!(question, Some(LeaderRequest::Wait(..)));
        let room = Arc::clone(if is_wait { &self.long } else { &self.short }).try_acquire_owned();
        let handle = handle.clone();
        async move {
            let answer = match question.filter(|_| room.is_ok() && weight.is_some()) {
                Some(question) => answer(&handle, question, Asking::There(who)).await,
                None => Err(Unable::Busy),
            };
            (written(&answer), weight)
        }
    }
}

fn written(answer: &Result<LeaderReply, Unable>) -> Bytes {
    let body = postcard::to_stdvec(answer).ok().filter(|body| body.len() <= BODY_LEN_MAX);
    let too_long = || postcard::to_stdvec(&Err::<LeaderReply, Unable>(Unable::TooLong)).unwrap_or_default();
    body.unwrap_or_else(too_long).into()
}

/// Who asks.
enum Asking {
    /// This server itself: what it asks may wait here until it leads.
    Here,
    /// A peer, that has proved this on a link that is encrypted.
    There(Option<Identified>),
}

/// Answers as the leader, if this server is that.
async fn answer(handle: &Handle, question: LeaderRequest, asking: Asking) -> Result<LeaderReply, Unable> {
    let may_wait = matches!(asking, Asking::Here);
    match question {
        LeaderRequest::Renew(key) => {
            let issued = match &asking {
                Asking::Here => fleet::issue_own(handle, &key).await,
                Asking::There(Some(who)) => fleet::issue(handle, who, &key).await,
                Asking::There(None) => return Err(Unable::Unknown),
            };
            let told = |error: String| handle.history.refused(format!("no certificate for a server: {error}"));
            issued.map(LeaderReply::Issued).map_err(|error| {
                told(error);
                Unable::Unknown
            })
        }
        LeaderRequest::Shows(authority) => {
            if let Asking::There(Some(who)) = &asking
                && let Some(id) = who.name.server_id()
            {
                handle.shown.server(id, Fingerprint(authority));
            }
            Ok(LeaderReply::Noted)
        }
        LeaderRequest::Put(key, value) => {
            let (reply, answer) = oneshot::channel();
            let change = value.as_ref().map_or(Change::Delete(&key), |value| Change::Put(&key, value));
            handle.change([vec![change]], may_wait, reply);
            answer.await.unwrap_or(Err(Unable::Unknown)).map(LeaderReply::Written)
        }
        LeaderRequest::Get(key) => handle.farm.get(key).await.map(LeaderReply::Value),
        LeaderRequest::Submit(spec, key) => {
            let effects = handle.farm.enter(vec![Entry::Submit { spec: *spec, key }]).await?;
            Ok(match effects.first() {
                Some(Effect::Submitted { job, .. }) => LeaderReply::Job(Some(*job)),
                Some(Effect::OtherJob(job)) => LeaderReply::OtherJob(*job),
                _ => LeaderReply::Job(None),
            })
        }
        LeaderRequest::Poll(session, poll) => handle.farm.poll(session, poll).await.map(LeaderReply::Holds),
        LeaderRequest::Job(id) => handle.job_here(id).await.map(LeaderReply::JobView),
        LeaderRequest::Wait(id, time_ms) => handle.wait_here(id, time_ms).await.map(LeaderReply::JobView),
        LeaderRequest::Tasks(id, from) => handle.tasks_here(id, from).await.map(LeaderReply::Tasks),
        LeaderRequest::Cancel(id) => handle.cancel_here(id).await.map(LeaderReply::Cancelled),
        LeaderRequest::Join(consume, key) => {
            invitations::admit_here(handle, *consume, &key).await.map(LeaderReply::Joined)
        }
    }
}
