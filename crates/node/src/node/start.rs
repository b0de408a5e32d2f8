//! How a server is started: its threads, its links, and what it looks like before it has done anything.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use primus_core::founding::Claim;
use primus_core::load::Load;
use primus_core::machine::Outbox;
use primus_replica::{Consensus, Role};
use primus_server::control::Reason;
use primus_server::record::State;
use primus_server::relay::Relay;
use primus_server::words::Words;
use primus_server::{Plan, Server};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::arrivals::Inputs;
use super::changes::Changes;
use super::log;
use super::others::Others;
use super::own::Own;
use super::peers::Acquaintances;
use super::shown::Shown;
use super::turn::Turns;
use super::writes::Writes;
use super::writing::Writing;
use super::{Config, EndError, Running};
use crate::budget::Budget;
use crate::disk::Disk;
use crate::events::History;
use crate::farm::FarmHandle;
use crate::fleet::{self, Fleet, Wish};
use crate::founding::{Beginning, Begun};
use crate::handle::{Handle, PeerView, UNWRITTEN_LEN_MAX, View};
use crate::link_faults::LinkFaults;
use crate::links::{self, Links};
use crate::meters::Meters;
use crate::proposal_queue::ProposalQueue;
use crate::questions::Questions;
use crate::reads::Reads;
use crate::requests::{Requested, Requests};
use crate::steps::Steps;
use crate::store::{Opened, Origin, StoreId};
use crate::timers::Timers;
use crate::{disk, elections, farm, founding};

pub(super) async fn serve(
    mut config: Config,
    listener: TcpListener,
    mut opened: Opened,
    ready: oneshot::Sender<Handle>,
) -> Result<(), EndError> {
    let list = (config.plan.id, &config.plan.servers);
    founding::begin_alone(&mut opened, (&config.cluster, &config.security), list)?;
    let note = founding::adopt(&mut config.plan, &opened.origin)?;
    let (requests, received) = Requests::new();
    let incarnation = incarnation();
    let found = founding::Shown::new(&opened.origin, opened.store_id, config.plan.servers.keys().copied());
    let standing = found.standing.subscribe();
    let (mut running, (farm, fleet), inputs) =
        Running::new(config, listener, (opened, found), incarnation, (requests.clone(), received));
    let (history, steps) = (Arc::clone(&running.shown.history), Arc::clone(&running.shown.steps));
    let (numbers, meters) = (Arc::default(), Arc::clone(&running.shown.meters));
    let (view, elected) = (running.shown.view.subscribe(), running.others.elections.elected());
    let leadership = running.shown.leadership.subscribe();
    let (asker, heard) = (running.questions.asker(), running.shown.acquaintances.heard());
    let (origin, elections) = (incarnation, running.others.elections.clone());
    let (live, shown) = (running.config.security.live().cloned(), fleet.shown);
    note.into_iter().for_each(|note| history.add(note));
    let handle = Handle {
        requests,
        origin,
        numbers,
        unwritten: Budget::new(UNWRITTEN_LEN_MAX),
        view,
        leadership,
        asker,
        history,
        steps,
        meters,
        farm,
        elected,
        heard,
        elections,
        live,
        shown,
        standing,
    };
    if let Some(live) = handle.live.clone() {
        handle.asker.run(Fleet::new(handle.clone(), live, fleet.needs).run());
    }
    running.questions.start(handle.clone());
    _ = ready.send(handle);
    if running.founding.is_some() {
        running.begin();
    }
    running.run(inputs).await
}

/// What it takes to see to identities.
struct Needs {
    needs: mpsc::Receiver<Wish>,
    shown: Arc<fleet::Shown>,
}

fn incarnation() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    u64::from_be_bytes(bytes)
}

impl Running {
    fn new(
        config: Config,
        listener: TcpListener,
        (opened, founding): (Opened, founding::Shown),
        incarnation: u64,
        (requests, received): (Requests, mpsc::UnboundedReceiver<Requested>),
    ) -> (Self, (FarmHandle, Needs), Inputs) {
        let StoreId(store) = opened.store_id;
        let identity =
            links::Identity { cluster: config.cluster.clone(), server: config.plan.id, store, incarnation };
        let history = Arc::<History>::default();
        let steps = Arc::new(Steps::new(config.plan.id));
        let meters = Arc::<Meters>::default();
        let (cut, cuts) = watch::channel(LinkFaults::default());
        let witnesses = (Arc::clone(&history), Arc::clone(&meters));
        let (failed, failures) = mpsc::unbounded_channel();
        let (applied, state, end) = match log::restored(&opened.records) {
            Ok((applied, state)) => (applied, state, None),
            Err(end) => (0, State::default(), Some(end)),
        };
        let ends = (cuts, failed.clone());
        let farm = farm::start(
            (identity.clone(), config.security.clone()),
            &config.plan,
            (applied, state),
            ends,
            requests,
            witnesses,
        );
        if let Some(live) = config.security.live() {
            live.ask(farm.handle.watch_roll());
        }
        let known = known(&config, founding.claim.subscribe());
        let (links, link_events) = Links::start(identity, listener, known, farm.doors, cut, Arc::clone(&history));
        let links = Arc::new(links);
        let told = (Arc::clone(&history), Arc::clone(&steps), Arc::clone(&meters));
        let elections = elections::start(&config.plan, Arc::clone(&links), told, failed);
        let questions = Questions::new(&config.plan, &links.requests);
        let server = config.plan.server(opened.records);
        let shown = first_shown(first_view(&config.plan, &server, applied), (history, steps, meters));
        let begins = (opened.origin, opened.store.directory().to_owned());
        let disk = disk::start(opened.store, Arc::clone(&shown.meters));
        let (founding, begun) = begin(&config, begins, (&disk, &links, &shown.history), founding);
        let running = Self {
            relay: Relay::new(applied, config.plan.snapshot_every),
            config,
            started: Instant::now(),
            server,
            outbox: Outbox::new(),
            inputs: None,
            links,
            end,
            writing: Writing::new(disk),
            timers: Timers::default(),
            others: Others::new(farm.told, (farm.leases, farm.leader), elections),
            proposals: ProposalQueue::default(),
            turns: Turns::default(),
            writes: Writes::new(incarnation),
            reads: Reads::default(),
            own: Own::new(),
            changes: Changes::new(),
            shown,
            founding,
            questions,
        };
        let inputs =
            Inputs { links: link_events, wishes: farm.wishes, requests: received, failures, founding: begun };
        (running, (farm.handle, Needs { needs: farm.needs, shown: farm.shown }), inputs)
    }
}

/// What a server knows of its peers when it starts.
fn known(Config { plan, security, .. }: &Config, claim: watch::Receiver<Claim>) -> links::Known {
    let peers = plan.servers.iter().filter(|(id, _)| **id != plan.id).map(|(id, at)| (*id, at.clone()));
    links::Known { peers: peers.collect(), claim, security: security.clone() }
}

/// What a disk and links are needed for as long as the server belongs to no cluster. One that does has nothing to begin, and only
/// keeps where its members are.
fn begin(
    Config { plan, security, .. }: &Config,
    (origin, dir): (Origin, PathBuf),
    (disk, links, history): (&Disk, &Links<Words>, &Arc<History>),
    shown: founding::Shown,
) -> (Option<founding::Shown>, Option<oneshot::Receiver<Begun>>) {
    if let Some(record) = origin.founded() {
        let present = founding::with_addresses(&origin, record, plan.servers.iter());
        if present != origin {
            // It is kept in its turn; nothing waits for it.
            drop(disk.origins().keep(present));
        }
        return (Some(shown), None);
    }
    let beginning = Beginning {
        list: plan.servers.clone(),
        origin,
        origins: disk.origins(),
        security: security.clone(),
        introductions: Arc::clone(&links.introductions),
        shown,
        history: Arc::clone(history),
        dir,
    };
    (None, Some(founding::start(beginning)))
}

/// What others see of a server that has just started.
fn first_shown(state: View, (history, steps, meters): (Arc<History>, Arc<Steps>, Arc<Meters>)) -> Shown {
    Shown {
        view: watch::Sender::new(state.clone()),
        leadership: watch::Sender::new(state.leadership()),
        acquaintances: Acquaintances::new(state.peers.keys().copied()),
        state,
        history,
        has_events: false,
        steps,
        meters,
    }
}

/// What a server looks like that has just started.
fn first_view(plan: &Plan, server: &Server, applied: u64) -> View {
    let (_, _, term) = server.replica().view();
    let peers = plan.servers.keys().filter(|peer| **peer != plan.id);
    View {
        id: plan.id,
        role: Role::Follower,
        leader: None,
        term,
        since: SystemTime::now(),
        reason: Reason::Start,
        applied,
        last: server.replica().extent().0,
        load: Load::default(),
        peers: peers.map(|peer| (*peer, PeerView::default())).collect(),
        gave_way: server.gave_way().servers().clone(),
        suspicions: 0,
        silence_us: server.silence_us(),
        longest_turn: Duration::ZERO,
    }
}
