//! How the farm's thread is started, and what joins it with the other threads of a server.

use std::sync::Arc;
use std::thread;

use primus_core::farm::foreman;
use primus_core::machine::Outbox;
use primus_core::{ServerId, Term};
use primus_server::Plan;
use primus_server::farm::{Farm, Rules};
use primus_server::record::State;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};

use super::arrivals::Inputs;
use super::fleet::Fleet;
use super::news::News;
use super::outputs::Outputs;
use super::replies::Replies;
use super::run::Driver;
use super::starts::Starts;
use super::worker_links::WorkerLinks;
use super::{FarmHandle, ToControl, ToFarm, UNASKED_LEN_MAX};
use crate::budget::Budget;
use crate::clock::now;
use crate::credentials::Security;
use crate::events::History;
use crate::fleet::{Shown, WISHES_MAX, Wish};
use crate::leases::Teller;
use crate::link_faults::LinkFaults;
use crate::links::{Doors, Identity};
use crate::meters::Meters;
use crate::neighbours::Neighbours;
use crate::requests::Requests;
use crate::timers::Timers;
use crate::watched::{Broken, watch};

/// How many workers, and how many servers of other farms, may wait for an answer.
const CALLERS_MAX: usize = 256;
const ENVOYS_MAX: usize = 64;

/// How the control thread talks to the farm.
pub(crate) struct Ends {
    pub(crate) handle: FarmHandle,
    pub(crate) leases: Teller,
    /// Who leads, for leases.
    pub(crate) leader: watch::Sender<(Option<ServerId>, Term)>,
    pub(crate) told: mpsc::UnboundedSender<ToFarm>,
    pub(crate) doors: Doors,
    pub(crate) wishes: mpsc::UnboundedReceiver<ToControl>,
    /// What workers need so that they can prove who they are.
    pub(crate) needs: mpsc::Receiver<Wish>,
    pub(crate) shown: Arc<Shown>,
}

/// Starts the thread. It ends when nobody tells it anything any more.
///
/// # Panics
/// If the system gives no thread.
pub(crate) fn start(
    (identity, security): (Identity, Security),
    plan: &Plan,
    (index, state): (u64, State),
    (cuts, failures): (watch::Receiver<LinkFaults>, mpsc::UnboundedSender<Broken>),
    requests: Requests,
    (history, meters): (Arc<History>, Arc<Meters>),
) -> Ends {
    let mut farm = Farm::new(identity.server, identity.incarnation, rules(plan));
    farm.restore(now(), index, state);
    let ((need, needs), shown) = (mpsc::channel(WISHES_MAX), Arc::<Shown>::default());
    let fleet = Fleet::new(security.live().cloned(), need, Arc::clone(&shown));
    let (neighbours, of_neighbours) = Neighbours::new(identity.clone(), &plan.lending.neighbours, cuts, security);
    let neighbourhood = neighbours.watch();
    let (told_sender, told) = mpsc::unbounded_channel();
    let (asks_sender, asks) = mpsc::unbounded_channel();
    let (workers, calls) = mpsc::channel(CALLERS_MAX);
    let (envoys_sender, envoys) = mpsc::channel(ENVOYS_MAX);
    let (wishes, wishes_received) = mpsc::unbounded_channel();
    let (want, wanted) = mpsc::unbounded_channel();
    let (leases, of_leases) = mpsc::unbounded_channel();
    let (leader, leader_of_leases) = watch::channel((None, Term(0)));
    let ends = crate::leases::Ends {
        requests: requests.clone(),
        wishes: wishes.clone(),
        farm: want,
        failures: failures.clone(),
        meters: Arc::clone(&meters),
    };
    crate::leases::start(plan, ends, of_leases, leader_of_leases);
    let to_leases = leases.clone();
    let starts = Arc::<Starts>::default();
    let (roll, roll_for_others) = watch::channel(Arc::new(farm.ledger().roll().clone()));
    let handle = FarmHandle {
        requests,
        leases: leases.clone(),
        asks: asks_sender,
        unasked: Budget::new(UNASKED_LEN_MAX),
        starts: Arc::clone(&starts),
        roll: roll_for_others,
        neighbourhood: neighbourhood.clone(),
    };
    let running = move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        runtime.block_on(async {
            let (callers, of_workers) = WorkerLinks::new();
            let inputs = Inputs { told, of_workers, calls, of_neighbours, envoys, wanted, asks };
            let news = News::new(Arc::clone(&history), Arc::clone(&meters));
            let driver = Driver {
                id: identity.server,
                farm,
                outbox: Outbox::new(),
                timers: Timers::default(),
                callers,
                neighbours,
                replies: Replies::default(),
                outputs: Outputs::default(),
                placements: Vec::new(),
                starts,
                news,
                leases: to_leases,
                roll,
                fleet,
                wishes,
                history,
                meters,
            };
            // A task of its own: whatever wakes the future that a runtime was started with costs a system call more.
            if let Ok(Err(broken)) = tokio::spawn(watch("farm", driver.run(inputs))).await {
                _ = failures.send(broken);
            }
        });
    };
    thread::Builder::new().name("farm".to_owned()).spawn(running).expect("the system gives a thread");
    let doors = Doors { workers, envoys: envoys_sender, neighbours: neighbourhood };
    Ends { handle, leases, leader, told: told_sender, doors, wishes: wishes_received, needs, shown }
}

fn rules(plan: &Plan) -> Rules {
    Rules {
        work: foreman::Rules {
            assignment: plan.farm.assignment,
            weights: plan.farm.weights,
            ..foreman::Rules::default()
        },
        lending: plan.lending.rules,
        neighbours: plan.lending.neighbours.iter().map(|neighbour| neighbour.name.clone()).collect(),
        limits: plan.farm.limits,
        state_max: plan.farm.state_max,
        servers: plan.servers.len(),
        planted: plan.planted,
    }
}
