//! The thread of a server's further elections: where the machine of its groups meets links and a clock.
//!
//! It has a thread of its own, because control must never be late, however many groups there are: control passes on what it
//! hears, unread, and what groups say goes to the links from here. A server without groups has no such thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use primus_core::bounds::ABSURD;
use primus_core::machine::{Input, Machine, Outbox, Output};
use primus_core::{Round, ServerId};
use primus_server::groups::{Command, GroupPlan, Groups, Notice, Said, Timer};
use primus_server::words::Words;
use primus_server::{Plan, Reason};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::clock;
use crate::events::{History, Kind, ServerScore};
use crate::links::Links;
use crate::meters::Meters;
use crate::steps::Steps;
use crate::timers::{Timers, drawn};
use crate::watched::{Broken, watch};

/// How many inputs may wait for the thread. What does not fit is lost, as on a link: elections repeat what matters, and
/// whoever was not heard to die is soon found to be silent.
const INPUTS_MAX: usize = 4096;

/// Groups by name.
pub type ElectedGroups = BTreeMap<String, Elected>;

/// A group that elects its leader without a quorum, as one server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elected {
    /// Who leads it.
    pub leader: Option<ServerId>,
    /// In which round of its elections that was decided. A round is no term: nobody ratifies it.
    pub round: Round,
    /// Since when.
    pub since: SystemTime,
    /// Why.
    pub reason: Reason,
    /// Who takes part.
    pub members: BTreeSet<ServerId>,
}

/// How others talk to this thread.
#[derive(Debug, Clone)]
pub(crate) struct Elections {
    inputs: Option<mpsc::Sender<Input<Groups>>>,
    elected: watch::Receiver<ElectedGroups>,
}

impl Elections {
    /// Passes on what has happened, if there are groups.
    pub(crate) fn tell(&self, input: Input<Groups>) {
        if let Some(inputs) = &self.inputs {
            _ = inputs.try_send(input);
        }
    }

    /// Who leads, from now on.
    pub(crate) fn elected(&self) -> watch::Receiver<ElectedGroups> {
        self.elected.clone()
    }
}

/// Starts the thread, if there are groups. It ends when nobody tells it anything any more.
///
/// # Panics
/// If the system gives no thread.
pub(crate) fn start(
    plan: &Plan,
    links: Arc<Links<Words>>,
    (history, steps, meters): (Arc<History>, Arc<Steps>, Arc<Meters>),
    failures: mpsc::UnboundedSender<Broken>,
) -> Elections {
    let groups = plan.elections();
    let seen: ElectedGroups =
        groups.views().map(|(group, ..)| (group.name.clone(), Elected::unknown(group))).collect();
    let has_groups = !seen.is_empty();
    let (sender, elected) = watch::channel(seen);
    let (inputs, received) = mpsc::channel(INPUTS_MAX);
    let running = Running {
        groups,
        started: Instant::now(),
        outbox: Outbox::new(),
        timers: Timers::default(),
        links,
        down: BTreeSet::new(),
        id: plan.id,
        elected: sender,
        history,
        steps,
        meters,
    };
    if has_groups {
        let running = move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
            // A task of its own: whatever wakes the future that a runtime was started with costs a system call more.
            let ended = runtime.block_on(async { tokio::spawn(watch("groups", running.turn(received))).await });
            if let Ok(Err(broken)) = ended {
                _ = failures.send(broken);
            }
        };
        thread::Builder::new().name("groups".to_owned()).spawn(running).expect("the system gives a thread");
    }
    Elections { inputs: has_groups.then_some(inputs), elected }
}

/// The loop's state.
struct Running {
    groups: Groups,
    started: Instant,
    outbox: Outbox<Groups>,
    timers: Timers<Timer>,
    links: Arc<Links<Words>>,
    /// Nothing is said to these: by the time that they are back it would be old.
    down: BTreeSet<ServerId>,
    id: ServerId,
    elected: watch::Sender<ElectedGroups>,
    history: Arc<History>,
    steps: Arc<Steps>,
    meters: Arc<Meters>,
}

impl Running {
    async fn turn(mut self, mut inputs: mpsc::Receiver<Input<Groups>>) {
        // Nothing counts before the server belongs to a cluster.
        while let Some(input) = inputs.recv().await {
            let is_boot = matches!(input, Input::Command(Command::Boot));
            if is_boot {
                self.step(input);
                break;
            }
        }
        loop {
            let due = self.timers.next().unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                biased;
                input = inputs.recv() => match input {
                    Some(input) => self.take(input),
                    None => return,
                },
                () = sleep_until(due) => {}
            }
            // What has arrived counts before the clock: nobody is silent whose words have not been read yet.
            for _ in 0..INPUTS_MAX {
                let Ok(input) = inputs.try_recv() else { break };
                self.take(input);
            }
            let now = Instant::now();
            while let Some((_, timer)) = self.timers.take_due(now) {
                self.step(Input::Timer(timer));
            }
        }
    }

    fn take(&mut self, input: Input<Groups>) {
        match input {
            Input::LinkUp(peer) => _ = self.down.remove(&peer),
            Input::LinkDown(peer) | Input::Command(Command::Gone(peer)) => _ = self.down.insert(peer),
            _ => {}
        }
        self.step(input);
    }

    fn step(&mut self, input: Input<Groups>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        let copy = Steps::copy_of(&self.groups, &input);
        self.groups.step(clock::since(self.started), input, &mut outbox);
        if let Some(input) = copy {
            self.steps.add(&input, outbox.as_slice());
        }
        outbox.drain().for_each(|output| self.carry_out(output));
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Groups>) {
        match output {
            Output::Send { to, message } => self.send(to, message),
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(notice) => self.on_notice(notice),
            Output::Ignore(ABSURD) => self.history.refused(format!("what a peer says of a group: {ABSURD}")),
            Output::Ignore(_) => {}
        }
    }

    fn send(&self, to: ServerId, said: Said) {
        if !self.down.contains(&to) {
            self.meters.sent.add(1);
            self.links.send(to, Words::Groups(said));
        }
    }

    fn on_notice(&self, notice: Notice) {
        let Notice { group, leader, round, previous, reason, is_result } = notice;
        self.elected.send_modify(|seen| {
            if let Some(elected) = seen.get_mut(&group) {
                elected.learn(leader, round, reason);
            }
        });
        if let Some(leader) = leader.filter(|leader| Some(*leader) != previous) {
            let (previous, reason) = (previous.map(|previous| previous.0), reason.name());
            self.history.add(Kind::GroupLeaderChanged { group, leader: leader.0, previous, reason });
        } else if let Some(leader) = leader.filter(|_| is_result) {
            let scores = self.groups.scores(&group);
            let scores = scores.iter().map(|(id, score)| ServerScore::new(*id, *score)).collect();
            let (leader, round, held_by) = (leader.0, round.0, self.id.0);
            self.history.add(Kind::GroupLeaderConfirmed { group, leader, round, held_by, scores });
        }
    }
}

impl Elected {
    /// A group before its first election.
    fn unknown(group: &GroupPlan) -> Self {
        let (since, members) = (SystemTime::now(), group.members.clone());
        Self { leader: None, round: Round::UNKNOWN, since, reason: Reason::Start, members }
    }

    fn learn(&mut self, leader: Option<ServerId>, round: Round, reason: Reason) {
        if self.leader != leader {
            self.since = SystemTime::now();
            self.reason = reason;
        }
        (self.leader, self.round) = (leader, round);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use primus_core::election::Algorithm;
    use primus_core::rank::RankBy;
    use tokio::net::TcpListener;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::credentials::Security;
    use crate::founding::founded_with;
    use crate::link_faults::LinkFaults;
    use crate::links::{Doors, Identity, Known};

    const PATIENCE: Duration = Duration::from_secs(30);
    const ME: ServerId = ServerId(1);
    const GROUP: &str = "group";

    /// The only member of a group.
    async fn alone() -> (Elections, Arc<History>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let mut plan = Plan::new(ME, BTreeMap::from([(ME, listener.local_addr().expect("it is bound"))]));
        let (algorithm, rank, members) = (Algorithm::Bully, RankBy::Id, BTreeSet::from([ME]));
        plan.groups = vec![GroupPlan { name: GROUP.to_owned(), algorithm, rank, asking: None, members }];
        let identity = Identity { cluster: "test".to_owned(), server: ME, store: [1; 16], incarnation: 1 };
        let doors = Doors {
            workers: mpsc::channel(1).0,
            envoys: mpsc::channel(1).0,
            neighbours: watch::channel(Arc::default()).1,
        };
        let cuts = watch::channel(LinkFaults::default()).0;
        let claim = founded_with(ME, [(ME, [1; 16])].into_iter());
        let known = Known { peers: BTreeMap::new(), claim, security: Security::None };
        let (links, _) = Links::start(identity, listener, known, doors, cuts, Arc::default());
        let history = Arc::<History>::default();
        let told = (Arc::clone(&history), Arc::new(Steps::new(ME)), Arc::default());
        let elections = start(&plan, Arc::new(links), told, mpsc::unbounded_channel().0);
        elections.tell(Input::Command(Command::Boot));
        (elections, history)
    }

    #[tokio::test]
    async fn what_groups_cannot_take_is_lost_and_nobody_waits_for_them() {
        let (elections, history) = alone().await;
        let mut elected = elections.elected();
        let leads = elected.wait_for(|groups| groups[GROUP].leader == Some(ME));
        drop(timeout(PATIENCE, leads).await.expect("it leads in time").expect("it lives"));
        let inputs = elections.inputs.as_ref().expect("there is a group");
        let elect = || elections.tell(Input::Command(Command::Elect(GROUP.to_owned())));
        // As long as somebody looks, the thread cannot say what came of the first election.
        let looks = elected.borrow();
        (0..2 * INPUTS_MAX).for_each(|_| elect());
        assert_eq!((inputs.capacity(), inputs.max_capacity()), (0, INPUTS_MAX));
        drop(looks);
        let came = async {
            while inputs.capacity() < INPUTS_MAX {
                sleep(Duration::from_millis(1)).await;
            }
            let mut newest = history.newest();
            let before = *newest.borrow_and_update();
            elect();
            newest.wait_for(|number| *number > before).await.expect("it lives");
        };
        timeout(PATIENCE, came).await.expect("it goes on");
    }
}
