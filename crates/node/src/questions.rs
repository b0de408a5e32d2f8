//! Questions for whoever leads: any server can be asked, and passes on what it cannot answer itself.
//!
//! They travel on the servers' own links, under numbers. The control thread passes bytes on and reads none of them; a thread
//! of its own answers them, and keeps the leases of this process. Whoever asks is told when the leader changes meanwhile, and
//! waits no longer than [`ANSWER_TIME`]: then nobody knows what became of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::SessionId;
use primus_core::lease::{Answer, Poll};
use primus_core::ledger::{Effect, Entry, JobId, Spec};
use primus_server::Plan;
use primus_server::register::Change;
use primus_server::words::Words;
use serde::{Deserialize, Serialize};
use tokio::runtime::{self, Builder, Runtime};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout_at};

use crate::budget::{Budget, Weight};
use crate::handle::{Handle, Unable};
use crate::jobs::{JobView, TaskView};
use crate::links::Links;

/// How many questions of this server may be under way.
const ASKED_MAX: usize = 1024;
/// How many questions of others may wait to be read, and how many may be under way.
const ARRIVED_MAX: usize = 1024;
const ANSWERED_MAX: usize = 1024;
/// How many questions of this server, and of others, may wait for jobs to end: they must leave room for those that cannot wait.
const WAITING_MAX: usize = 512;
const KEPT_MAX: usize = 4096;
/// How many bytes of them may wait, or be under way.
const UNREAD_LEN_MAX: u32 = 32 << 20;
/// No question is longer, and no answer: each must fit into a frame.
const BODY_LEN_MAX: usize = 768 << 10;
/// How long an answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long to wait before asking again, when whoever was asked could not say anything.
/// At first, because leaders change fast, and at most.
const RETRY: Duration = Duration::from_millis(2);
const RETRY_MAX: Duration = Duration::from_millis(50);

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
}

impl LeaderRequest {
    /// True if it can be asked again, although it may have been heard.
    const fn is_repeatable(&self) -> bool {
        match self {
            Self::Get(_) | Self::Job(_) | Self::Wait(..) | Self::Tasks(..) | Self::Cancel(_) => true,
            Self::Put(..) | Self::Submit(..) | Self::Poll(..) => false,
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
}

/// How this server asks others.
#[derive(Debug)]
pub(crate) struct Asker {
    id: ServerId,
    /// How long a lease lasts here.
    pub(crate) lease_us: u64,
    /// Not kept alive by those who may ask: links end with the server.
    links: Weak<Links<Words>>,
    last_number: AtomicU64,
    asked: Mutex<BTreeMap<u64, (ServerId, oneshot::Sender<Bytes>)>>,
    waiting: Semaphore,
    runtime: runtime::Handle,
    /// True once the server is about to end: then what it holds is given back.
    pub(crate) is_ending: watch::Sender<bool>,
}

/// How the control thread passes on what it hears.
#[derive(Debug)]
pub(crate) struct Questions {
    asker: Arc<Asker>,
    arrived: mpsc::Sender<Arrived>,
    unread: Budget,
    /// What the thread is made of, until it is started.
    unstarted: Option<(Runtime, mpsc::Receiver<Arrived>)>,
}

/// Who asks, under which number, and what; and what that weighs.
type Arrived = (ServerId, u64, Bytes, Weight);

impl Questions {
    /// Nobody answers yet.
    ///
    /// # Panics
    /// If the system gives no runtime.
    pub(crate) fn new(plan: &Plan, links: &Arc<Links<Words>>) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        let asker = Asker {
            id: plan.id,
            lease_us: plan.lease_us,
            links: Arc::downgrade(links),
            last_number: AtomicU64::new(0),
            asked: Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
            runtime: runtime.handle().clone(),
            is_ending: watch::Sender::new(false),
        };
        let (arrived, received) = mpsc::channel(ARRIVED_MAX);
        let unread = Budget::new(UNREAD_LEN_MAX);
        Self { asker: Arc::new(asker), arrived, unread, unstarted: Some((runtime, received)) }
    }

    pub(crate) fn asker(&self) -> Arc<Asker> {
        Arc::clone(&self.asker)
    }

    /// Starts the thread that answers. It ends with this value.
    ///
    /// # Panics
    /// If the system gives no thread.
    pub(crate) fn start(&mut self, handle: Handle, links: Arc<Links<Words>>) {
        let Some((runtime, received)) = self.unstarted.take() else { return };
        let running = move || {
            // A task of its own: whatever wakes the future that a runtime was started with costs a system call more.
            runtime.block_on(async { _ = tokio::spawn(answer_all(received, handle, links)).await });
        };
        thread::Builder::new().name("questions".to_owned()).spawn(running).expect("the system gives a thread");
    }

    /// If too many wait, this one is lost as on a link.
    pub(crate) fn on_question(&self, from: ServerId, number: u64, body: Bytes) {
        if let Some(weight) = self.unread.take(body.len()) {
            _ = self.arrived.try_send((from, number, body, weight));
        }
    }

    pub(crate) fn on_answer(&self, from: ServerId, number: u64, body: Bytes) {
        let mut asked = self.asker.asked.lock().expect("nobody panics while holding this");
        if asked.get(&number).is_some_and(|(peer, _)| *peer == from)
            && let Some((_, reply)) = asked.remove(&number)
        {
            // Whoever asked may have given up.
            _ = reply.send(body);
        }
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
        let open = self.open(peer, reply)?;
        let links = self.links.upgrade().ok_or(Unable::NoLeader)?;
        links.send(peer, Words::Question(open.number, body));
        drop(links);
        let body = answer.await.map_err(|_| Unable::Unknown)?;
        postcard::from_bytes(&body).unwrap_or(Err(Unable::Unknown))
    }

    fn open(&self, peer: ServerId, reply: oneshot::Sender<Bytes>) -> Result<Open<'_>, Unable> {
        let mut asked = self.asked.lock().expect("nobody panics while holding this");
        if asked.len() >= ASKED_MAX {
            return Err(Unable::Busy);
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        asked.insert(number, (peer, reply));
        Ok(Open { asker: self, number })
    }
}

/// A question under way; it is forgotten with this.
struct Open<'a> {
    asker: &'a Asker,
    number: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.asker.asked.lock().expect("nobody panics while holding this").remove(&self.number);
    }
}

impl Handle {
    /// Asks whoever leads, again and again if nobody took the question, until somebody answers or it takes too long.
    pub(crate) async fn ask_patiently(&self, question: LeaderRequest) -> Result<LeaderReply, Unable> {
        let is_wait = matches!(question, LeaderRequest::Wait(..));
        let _room = if is_wait { self.asker.waiting.acquire().await.ok() } else { None };
        let by = Instant::now() + ANSWER_TIME;
        let mut pause = RETRY;
        loop {
            let answer = timeout_at(by, self.ask_once(&question)).await.unwrap_or(Err(Unable::Unknown));
            let was_taken = match answer {
                Err(Unable::NotLeading(_) | Unable::NoLeader | Unable::Busy) => false,
                Err(Unable::Unknown) => !question.is_repeatable(),
                _ => true,
            };
            if was_taken || by <= Instant::now() + pause {
                return answer;
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Asks whoever leads, here or elsewhere.
    pub(crate) async fn ask_once(&self, question: &LeaderRequest) -> Result<LeaderReply, Unable> {
        let body = postcard::to_stdvec(question).map_err(|_| Unable::TooLong)?;
        if body.len() > BODY_LEN_MAX {
            return Err(Unable::TooLong);
        }
        let mut leadership = self.leadership.clone();
        let leader = leadership.borrow_and_update().leader.ok_or(Unable::NoLeader)?;
        if leader == self.asker.id {
            return answer(self, question.clone()).await;
        }
        tokio::select! {
            answer = self.asker.ask(leader, body.into()) => answer,
            _ = leadership.wait_for(|now| now.leader != Some(leader)) => Err(Unable::Unknown),
        }
    }
}

/// How many questions of others are under way.
struct Rooms {
    short: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

async fn answer_all(mut questions: mpsc::Receiver<Arrived>, handle: Handle, links: Arc<Links<Words>>) {
    let [short, long] = [ANSWERED_MAX, KEPT_MAX].map(|most| Arc::new(Semaphore::new(most)));
    let rooms = Rooms { short, long };
    while let Some((from, number, body, weight)) = questions.recv().await {
        let (handle, links) = (handle.clone(), Arc::clone(&links));
        // Of another version, perhaps: nothing here can answer it.
        let question: Option<LeaderRequest> = postcard::from_bytes(&body).ok();
        let is_wait = matches!(question, Some(LeaderRequest::Wait(..)));
        let room = Arc::clone(if is_wait { &rooms.long } else { &rooms.short }).try_acquire_owned();
        tokio::spawn(async move {
            let answer = match question.filter(|_| room.is_ok()) {
                Some(question) => answer(&handle, question).await,
                None => Err(Unable::Busy),
            };
            drop(weight);
            if let Some(body) = written(&answer) {
                links.send(from, Words::Answer(number, body));
            }
        });
    }
}

fn written(answer: &Result<LeaderReply, Unable>) -> Option<Bytes> {
    let body = postcard::to_stdvec(answer).ok().filter(|body| body.len() <= BODY_LEN_MAX);
    let too_long = || postcard::to_stdvec(&Err::<LeaderReply, Unable>(Unable::TooLong)).ok();
    body.or_else(too_long).map(Bytes::from)
}

/// Answers as the leader, if this server is that.
async fn answer(handle: &Handle, question: LeaderRequest) -> Result<LeaderReply, Unable> {
    match question {
        LeaderRequest::Put(key, value) => {
            let (reply, answer) = oneshot::channel();
            let change = value.as_ref().map_or(Change::Delete(&key), |value| Change::Put(&key, value));
            handle.change([vec![change]], false, reply);
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
    }
}
