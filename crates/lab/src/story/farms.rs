//! Stories of farms, with any number of servers and workers each: the farms and workers that ship ([`primus_server::farm`],
//! [`primus_server::worker`]), on logs that are only told of.
//!
//! | command | does |
//! |---|---|
//! | `submit TASKS [FARM] [once] [retries=N] [cpus=N]` | a client asks the leader; FARM is named where there are several |
//! | `cancel ID [FARM]` `retry ID [FARM]` `drain W` `undrain W` `forget W` | the same |
//! | `lend FARM TO [COUNT]` `recall LOAN FARM` | an operator asks the leader of FARM |
//! | `lead N` `follow N` | N leads its farm in a new term; N hears that it does not lead any more |
//! | `link W N` | a new link between W and N comes up, if nothing is in its way |
//! | `unlink W N` | their link breaks, with what is on its way, and whoever is awake notices |
//! | `end W TASK [CODE]` `abandon W TASK` | what W runs ends, or is killed through no fault of its own |
//! | `restart X` | a new process starts: a server with an empty log, a worker with what is on its disk; its links come up |
//! | `agree [FARM]` | one more thing is agreed on, and every server hears of it; no message arrives |
//! | `settle [quietly]` | messages arrive, writes become durable, logs grow, until nothing is left to do |
//! | `wait 100ms [quietly]` | time passes: the same, and timers run out |
//! | `table [FARM]` | what is agreed about each task of FARM or of the only farm, else about loans; what each worker does |
//!
//! and everything about links, disks and processes that [`super::stage`] lists. No timer runs out unless somebody says so, by
//! `wait` or by `fire 1 grace w1`. What a leader wants in the log is agreed on while it is alive and awake; another leader
//! begins with what was agreed on, and what was under way is gone. Each farm is led by its first server when the story begins,
//! all workers are at home and have links to all its servers, and several farms have heard of each other.

mod cast;
mod log;
mod member;
mod words;

use std::collections::BTreeSet;

use primus_core::ledger::roll::Change;
use primus_core::ledger::{Entry, Expansion, Held, JobId, LoanId, Target, TaskId, Work};
use primus_core::loan::lending::LendOrder;
use primus_core::{FarmId, ServerId};
use primus_server::farm::{self, Ticket};
use primus_server::record::Draft;
use primus_server::worker;

pub use self::cast::Description;
use self::cast::{Farm, Node};
use self::log::Log;
use self::member::{Hand, Host, Member, Of, kept, shows_ms};
use super::cluster::parse_number;
use super::scenery::{Manner, NO_SUCH_COMMAND, Scenery, parse_time};
use super::stage::Stage;
use crate::tasks::{address, job, report};
use crate::world::{Taken, World};

/// How long every task takes: long enough that a worker has only one in advance.
const TASK_US: u64 = 100_000;
/// For how long an operator lends.
const LOAN_MS: u64 = 60_000;
/// After so long every farm has heard of every other, and knows that its workers have been at home for a while.
const OPENING_US: u64 = 2_000_000;
/// A story that takes longer than this will not end.
const STEPS_MAX: usize = 100_000;

/// The farms of a story.
pub(super) struct Farms {
    scenery: Scenery<Member>,
    logs: Vec<Log>,
    slots: u16,
    /// How many processes have started, and how many questions were asked.
    processes: u64,
    questions: u64,
}

impl Stage for Farms {
    fn perform(&mut self, words: &[&str]) -> Result<(), String> {
        self.carry_out(words)?;
        self.see_to_all();
        Ok(())
    }

    fn lines(&mut self) -> &mut Vec<String> {
        &mut self.scenery.lines
    }
}

impl Farms {
    fn carry_out(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["lead", server] => self.lead(self.scenery.alive(server)?),
            ["follow", server] => self.tell(self.scenery.alive(server)?, farm::Command::Leader(None)),
            ["link", worker, server] => self.link(self.scenery.node(worker)?, self.scenery.node(server)?),
            ["unlink", worker, server] => self.unlink(self.scenery.node(worker)?, self.scenery.node(server)?),
            ["end", worker, task] => self.end(worker, task, 0)?,
            ["end", worker, task, code] => self.end(worker, task, parse_number(code)?)?,
            ["abandon", worker, task] => {
                let (worker, (farm, _), held) = self.running(worker, task)?;
                self.tell_worker(worker, worker::Command::Abandoned(farm, held));
            }
            ["restart", node] => self.restart(self.scenery.dead(node)?),
            ["agree", farm @ ..] => self.agree(self.farm(farm)?)?,
            ["settle"] => self.pass(0)?,
            ["wait", time] => self.pass(parse_time(time)?)?,
            ["table", farm @ ..] => self.print_table(farm)?,
            ["lend", farm, to] => self.lend(farm, to, 1)?,
            ["lend", farm, to, count] => self.lend(farm, to, parse_number(count)?)?,
            [command @ ("submit" | "cancel" | "retry" | "recall" | "drain" | "undrain" | "forget"), words @ ..] => {
                self.enter(command, words)?;
            }
            words => self.scenery.perform(words)?,
        }
        Ok(())
    }

    /// The farm that is named here, or the only one.
    fn farm(&self, names: &[&str]) -> Result<Farm, String> {
        match (names, &self.logs[..]) {
            ([], [log]) => Ok(log.farm),
            ([name], logs) => {
                let farm = logs.iter().map(|log| log.farm).find(|farm| farm.0 == *name);
                farm.ok_or_else(|| format!("{name} is not a farm"))
            }
            _ => Err("say which farm".to_owned()),
        }
    }
}

/// What clients and operators want, and what becomes of tasks.
impl Farms {
    fn enter(&mut self, command: &str, words: &[&str]) -> Result<(), String> {
        let is_farm = |word: &&str| self.logs.iter().any(|log| log.farm.0 == *word);
        let (farms, words): (Vec<&str>, Vec<&str>) = words.iter().copied().partition(is_farm);
        let mut farm = self.farm(&farms);
        let entry = match (command, &words[..]) {
            ("submit", [tasks, options @ ..]) => submission(tasks, options)?,
            ("cancel", [id]) => Entry::Cancel(parse_target(id)?),
            ("retry", [id]) => Entry::Retry(parse_target(id)?),
            ("recall", [loan]) => Entry::Recall(LoanId(parse_number(loan)?)),
            ("drain" | "undrain", [worker]) => {
                farm = Ok(self.scenery.node(worker)?.farm());
                Entry::Drain { worker: (*worker).to_owned(), is_draining: command == "drain" }
            }
            ("forget", [worker]) => {
                farm = Ok(self.scenery.node(worker)?.farm());
                Entry::Roll(Change::ForgetWorker((*worker).to_owned()))
            }
            _ => return Err(NO_SUCH_COMMAND.to_owned()),
        };
        let draft = Draft::new(&[entry]);
        self.ask(farm?, |ticket| farm::Command::Enter(ticket, draft))
    }

    fn lend(&mut self, farm: &str, to: &str, count: u32) -> Result<(), String> {
        let order = LendOrder { to: self.farm(&[to])?.0.to_owned(), count, for_ms: LOAN_MS };
        self.ask(self.farm(&[farm])?, |ticket| farm::Command::Lend(ticket, order))
    }

    /// Only the leader is asked.
    fn ask(&mut self, farm: Farm, question: impl FnOnce(Ticket) -> farm::Command) -> Result<(), String> {
        let leader = self.log(farm).leader;
        if !self.is_able(leader) {
            return Err("nobody leads".to_owned());
        }
        self.questions += 1;
        self.tell(leader, question(Ticket(self.questions)));
        Ok(())
    }

    fn end(&mut self, worker: &str, task: &str, code: u8) -> Result<(), String> {
        let (node, (farm, of), held) = self.running(worker, task)?;
        self.tell_worker(node, worker::Command::Ended(farm, report(held, node.name_in(of), code, TASK_US)));
        Ok(())
    }

    /// The attempt at this task that the worker runs, and for whom.
    fn running(&self, worker: &str, task: &str) -> Result<(Node, (FarmId, Farm), Held), String> {
        let id: TaskId = task.parse().map_err(|_| format!("{task} is not a task"))?;
        let node = self.scenery.alive(worker)?;
        let running = self.hand(node).and_then(|hand| {
            let mut running = hand.works().flat_map(|(farm, work)| work.running().map(move |held| (farm, held)));
            running.find(|(_, held)| held.task == id).map(|(farm, held)| (node, (farm, hand.farm(farm)), held))
        });
        running.ok_or_else(|| format!("{worker} does not run {task}"))
    }
}

/// Processes and links.
impl Farms {
    pub(super) fn new(description: Description) -> Result<Self, String> {
        let Description { names, farms, slots } = description;
        let nodes: BTreeSet<Node> = names.values().copied().collect();
        let scenery = Scenery::new(names, World::new([]), Manner { is_told: words::is_told, tell: words::tell });
        let logs = farms.into_iter().map(Log::new).collect();
        let mut stage = Self { scenery, logs, slots, processes: 0, questions: 0 };
        nodes.into_iter().for_each(|node| stage.restart(node));
        let leaders: Vec<Node> = stage.logs.iter().map(|log| log.leader).collect();
        leaders.into_iter().for_each(|leader| stage.lead(leader));
        stage.pass(if stage.logs.len() > 1 { OPENING_US } else { 0 })?;
        stage.scenery.lines.clear();
        Ok(stage)
    }

    /// Whoever has not noticed that the process before this one is gone does so now.
    fn restart(&mut self, node: Node) {
        let peers: Vec<Node> =
            self.scenery.world.nodes().filter(|peer| peer.is_worker() != node.is_worker()).collect();
        peers.iter().for_each(|peer| self.lose_link(*peer, node));
        self.processes += 1;
        if node.is_worker() {
            self.start_worker(node);
        } else {
            self.log(node.farm()).forget(node);
            let host = self.new_host(node);
            self.scenery.world.restart(node, Of::Server(Box::new(host)));
            let serves = |hand: &Hand| hand.works().any(|(farm, _)| hand.farm(farm) == node.farm());
            let workers: Vec<Node> =
                peers.into_iter().filter(|peer| self.hand(*peer).is_some_and(serves)).collect();
            workers.into_iter().for_each(|worker| self.link(worker, node));
        }
    }

    fn start_worker(&mut self, node: Node) {
        let disk = self.scenery.world.disk(node).to_vec();
        let farms: Vec<Farm> = self.logs.iter().map(|log| log.farm).collect();
        let others = farms.iter().filter(|farm| **farm != node.farm());
        let visited = others.map(|farm| (address(farm.0, [ServerId(1)]), kept(&disk, *farm))).collect();
        let hand = Hand::new(node, self.slots, farms, &disk);
        self.scenery.world.restart(node, Of::Worker(Box::new(hand)));
        self.tell_worker(node, worker::Command::Start(visited));
        self.dial(node, node.farm());
    }

    fn new_host(&self, node: Node) -> Host {
        let others = self.logs.iter().map(|log| log.farm).filter(|farm| *farm != node.farm());
        let neighbours: Vec<(Farm, Vec<Node>)> = others.map(|farm| (farm, self.servers(farm))).collect();
        Host::new(node, self.processes, self.servers(node.farm()).len(), &neighbours)
    }

    fn servers(&self, farm: Farm) -> Vec<Node> {
        let nodes: BTreeSet<Node> = self.scenery.names.values().copied().collect();
        nodes.into_iter().filter(|node| !node.is_worker() && node.farm() == farm).collect()
    }

    fn dial(&mut self, worker: Node, farm: Farm) {
        self.servers(farm).into_iter().for_each(|server| self.link(worker, server));
    }

    /// A link comes up where nothing is in its way. What an older one has left behind is gone by then.
    fn link(&mut self, worker: Node, server: Node) {
        let world = &self.scenery.world;
        let is_cut = world.is_cut(worker, server) || world.is_cut(server, worker);
        if !is_cut && self.is_able(worker) && self.is_able(server) {
            self.unlink(worker, server);
            self.act(worker, |world| world.link_up(worker, server));
            self.act(server, |world| world.link_up(server, worker));
        }
    }

    fn unlink(&mut self, worker: Node, server: Node) {
        self.lose_link(server, worker);
        self.lose_link(worker, server);
    }

    /// Nothing follows where there was no link.
    fn lose_link(&mut self, node: Node, peer: Node) {
        self.scenery.lose(node, peer);
        self.act(node, |world| world.link_down(node, peer));
    }

    fn tell(&mut self, server: Node, command: farm::Command) {
        self.act(server, |world| world.command(server, Of::Server(command)));
    }

    fn tell_worker(&mut self, worker: Node, command: worker::Command) {
        self.act(worker, |world| world.command(worker, Of::Worker(command)));
    }

    /// Whoever is crashed or stands still does nothing.
    fn act(&mut self, node: Node, act: impl FnOnce(&mut World<Member>) -> Option<Taken<Member>>) {
        if self.is_able(node) {
            self.scenery.act(node, act).expect("it is alive");
        }
    }

    fn is_able(&self, node: Node) -> bool {
        self.scenery.world.machine(node).is_some() && !self.scenery.is_frozen(node)
    }

    fn hand(&self, node: Node) -> Option<&Hand> {
        match self.scenery.world.machine(node)? {
            Of::Worker(hand) => Some(hand),
            Of::Server(_) => None,
        }
    }
}

/// What machines want of their owners.
impl Farms {
    fn see_to_all(&mut self) {
        while let Some((node, notice)) = self.scenery.told.pop_front() {
            match notice {
                Of::Server(farm::Notice::Append(term, records)) => {
                    self.log(node.farm()).append(node, term, records);
                }
                Of::Server(_) => {}
                Of::Worker(notice) => self.see_to_worker(node, notice),
            }
        }
    }

    fn see_to_worker(&mut self, node: Node, notice: worker::Notice) {
        let Some(hand) = self.hand(node) else { return };
        match notice {
            worker::Notice::Open(address) => {
                let farm = self.farm(&[&address.name]).expect("only neighbours borrow");
                let records = kept(self.scenery.world.disk(node), farm);
                self.tell_worker(node, worker::Command::Opened(address.name, Ok(records)));
            }
            worker::Notice::Begin { farm, .. } => self.dial(node, hand.farm(farm)),
            worker::Notice::Part(farm) => {
                self.servers(hand.farm(farm)).into_iter().for_each(|server| self.unlink(node, server));
            }
            worker::Notice::DropLinks => {
                let farms: Vec<Farm> = hand.works().map(|(farm, _)| hand.farm(farm)).collect();
                farms.into_iter().for_each(|farm| self.dial(node, farm));
            }
            _ => {}
        }
    }
}

/// Logs, and time.
impl Farms {
    fn log(&mut self, farm: Farm) -> &mut Log {
        self.logs.iter_mut().find(|log| log.farm == farm).expect("every farm has a log")
    }

    /// A new leader has applied all that was ever agreed on before it is told that it leads, and has heard what time it is.
    fn lead(&mut self, leader: Node) {
        let farm = leader.farm();
        while self.apply_next(leader) {}
        let shows_ms = shows_ms(self.scenery.clock_us);
        for server in self.servers(farm) {
            self.tell(leader, farm::Command::Clock(ServerId(server.number()), shows_ms));
        }
        self.tell(leader, farm::Command::Leader(Some(ServerId(leader.number()))));
        let term = self.log(farm).lead(leader);
        self.tell(leader, farm::Command::Lead(term));
    }

    fn agree(&mut self, farm: Farm) -> Result<(), String> {
        let leader = self.log(farm).leader;
        if !self.is_able(leader) || !self.log(farm).commit_next() {
            return Err("there is nothing to agree on".to_owned());
        }
        while self.apply_anywhere() {}
        Ok(())
    }

    /// One more thing is agreed on where somebody can see to it. False if there is none.
    fn commit_next(&mut self) -> bool {
        let leaders: Vec<Node> =
            self.logs.iter().map(|log| log.leader).filter(|leader| self.is_able(*leader)).collect();
        leaders.into_iter().any(|leader| self.log(leader.farm()).commit_next())
    }

    /// A server hears of the next thing that is agreed on. False if all know everything.
    fn apply_anywhere(&mut self) -> bool {
        let servers: Vec<Node> = self.scenery.world.nodes().filter(|node| !node.is_worker()).collect();
        servers.into_iter().any(|server| self.apply_next(server))
    }

    fn apply_next(&mut self, server: Node) -> bool {
        let next = if self.is_able(server) { self.log(server.farm()).next_for(server) } else { None };
        next.map(|next| self.tell(server, next)).is_some()
    }

    /// So much time passes, or none: then no timer runs out.
    fn pass(&mut self, us: u64) -> Result<(), String> {
        let until_us = self.scenery.clock_us + us;
        for _ in 0..STEPS_MAX {
            self.see_to_all();
            let is_at_once = self.scenery.deliver_next() || self.apply_anywhere() || self.commit_next();
            if !is_at_once && (us == 0 || !self.scenery.go_on(until_us)) {
                self.scenery.clock_us = until_us;
                return Ok(());
            }
        }
        Err(format!("nothing settled within {STEPS_MAX} steps"))
    }
}

/// What is printed.
impl Farms {
    fn print_table(&mut self, names: &[&str]) -> Result<(), String> {
        let is_alone = self.logs.len() == 1;
        let mut lines = if names.is_empty() && !is_alone {
            self.logs.iter().map(|log| format!("{}: {}", log.farm.0, self.loans_words(log))).collect()
        } else {
            let farm = self.farm(names)?;
            let leader = self.logs.iter().find(|log| log.farm == farm).and_then(|log| self.leader(log));
            words::tasks_words(leader.ok_or("nobody leads")?.farm.foreman())
        };
        let workers = self.scenery.world.nodes().filter(|node| node.is_worker());
        lines.extend(workers.map(|node| match self.hand(node) {
            Some(hand) if is_alone => format!("{node} {}", words::service_words(hand)),
            Some(hand) => format!("{node}: {}", words::place_words(hand)),
            None => format!("{node}{} crashed", if is_alone { "" } else { ":" }),
        }));
        self.scenery.lines.extend(lines);
        Ok(())
    }

    fn loans_words(&self, log: &Log) -> String {
        let leader = self.leader(log);
        leader.map_or_else(|| "nobody leads".to_owned(), |host| words::loans_words(host.farm.ledger().loans()))
    }

    fn leader(&self, log: &Log) -> Option<&Host> {
        match self.scenery.world.machine(log.leader)? {
            Of::Server(host) if host.farm.is_leading() => Some(host),
            _ => None,
        }
    }
}

fn submission(tasks: &str, options: &[&str]) -> Result<Entry, String> {
    let work = Work::Kind { name: "noop".to_owned(), input: Vec::new() };
    let mut spec = job(work, Expansion::Array { first: 1, last: parse_number(tasks)? });
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("once", "") => spec.is_once = true,
            ("retries", retries) => spec.retries = parse_number(retries)?,
            ("cpus", cpus) => spec.cpus = parse_number(cpus)?,
            _ => return Err(format!("there is no option {option} here")),
        }
    }
    Ok(Entry::Submit { spec, key: None })
}

/// A job, or a task if there is a point in it.
fn parse_target(id: &str) -> Result<Target, String> {
    let wrong = || format!("{id} is neither a job nor a task");
    if id.contains('.') {
        return id.parse().map(Target::Task).map_err(|_| wrong());
    }
    id.parse().map(|job| Target::Job(JobId(job))).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use crate::story::Story;

    fn play(cluster: &str, command: &str) -> String {
        let story = Story::parse("a.txt", &format!("cluster {cluster}\n{command}\n----\n"));
        story.play().unwrap_err().to_string()
    }

    #[test]
    fn a_bad_command_is_named() {
        for (command, reason) in [
            ("fly w1", "no such command"),
            ("end w1 1.1", "w1 does not run 1.1"),
            ("end w9 1.1", "there is no node w9"),
            ("end w1 first", "first is not a task"),
            ("cancel all", "all is neither a job nor a task"),
            ("submit many", "many is no number"),
            ("submit 1 twice", "there is no option twice here"),
            ("restart w1", "node w1 is alive"),
            ("agree", "there is nothing to agree on"),
            ("wait soon", "soon is no time: 250ms or 2s"),
            ("cluster farm 1 w1 slots=few", "few is no number"),
            ("cluster farm 1 boss", "boss is no id"),
            ("cluster farm 1 w1 leader=2", "there is no node 2"),
        ] {
            assert_eq!(play("farm 1 w1 leader=1", command), format!("a.txt:2: {reason}\n    {command}"));
        }
    }

    #[test]
    fn where_there_are_several_farms_they_are_named() {
        for (command, reason) in [
            ("submit 1", "say which farm"),
            ("lend w1 south", "w1 is not a farm"),
            ("lead north", "there is no node north"),
            ("unlink w2 south", "there is no node w2"),
            ("cluster farms north:w1 w2", "w2 cannot be a farm"),
            ("cluster farms north:w1 south:w1", "node w1 is named twice"),
        ] {
            assert_eq!(play("farms north:1,2:w1 south", command), format!("a.txt:2: {reason}\n    {command}"));
        }
    }

    #[test]
    fn nobody_hears_a_client_without_a_leader() {
        assert_eq!(play("farm 1 w1\ncrash 1", "submit 1"), "a.txt:3: nobody leads\n    submit 1");
    }
}
