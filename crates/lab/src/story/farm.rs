//! Stories of farms: the foremen of all servers and the workers, as they run in reality, on a log that is only told of.
//!
//! | command | does |
//! |---|---|
//! | `submit TASKS [once] [retries=N] [cpus=N]` `cancel ID` `retry ID` `drain W` `undrain W` | a client's wish goes to the log |
//! | `lead N` `follow N` | N leads in a new term; N hears that it does not lead any more |
//! | `serve W N` | W has a new link to N and takes it for the leader |
//! | `unlink W N` | their link breaks, with what is on its way, and whoever is awake notices |
//! | `end W TASK [CODE]` `abandon W TASK` | what W runs ends, or is killed through no fault of its own |
//! | `restart X` | a new process starts: a server with an empty ledger, a worker with what is on its disk |
//! | `agree` | one more thing is agreed on, and every server hears of it; no message arrives |
//! | `settle` `settle quietly` | messages arrive, writes become durable, the log grows, until nothing is left to do |
//! | `table` | what is agreed about each task, and what each worker has |
//!
//! and everything about links, disks and processes that [`super::stage`] lists. No timer runs out unless somebody says so:
//! `fire 1 silence w1`. What the leader proposes is committed while the leader is alive and awake; a new leader begins with what
//! was committed, and what was under way is gone.

pub(super) mod member;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use primus_core::farm::foreman::{self, Foreman, Rules};
use primus_core::farm::worker::{self, Worker};
use primus_core::ledger::{
    Batch, Entry, Fan, Held, JobId, Ledger, Outcome, Report, Spec, State, Tail, Target, TaskId, Verdict, Work,
};
use primus_core::{Delay, Term};

use self::member::{Command, Member, name_of, tell, worker_of};
use super::cluster;
use super::scenery::{Manner, Scenery};
use super::stage::Stage;
use crate::node::NodeId;
use crate::world::World;

const BEAT: Delay = Delay::exactly_ms(500);
/// How long every task takes: long enough that a worker has only one in advance.
const TASK_US: u64 = 100_000;
/// A story that takes longer than this will not end.
const SETTLE_STEPS_MAX: usize = 10_000;

/// What the line says that opens a story.
#[derive(Debug, Clone)]
pub struct Description {
    names: BTreeMap<String, NodeId>,
    slots: u16,
    leader: Option<NodeId>,
}

/// The log as far as farms see it.
#[derive(Default)]
struct Log {
    term: u64,
    leader: Option<NodeId>,
    committed: Vec<Batch>,
    under_way: VecDeque<Vec<Entry>>,
    /// How much of it each server has applied.
    applied: BTreeMap<NodeId, usize>,
}

/// The servers and workers of a story.
pub(super) struct Farm {
    scenery: Scenery<Member>,
    slots: u16,
    log: Log,
}

impl Description {
    /// Reads what follows `cluster farm`.
    pub(super) fn parse(words: &[&str], options: &[&str]) -> Result<Self, String> {
        let node = |word: &&str| worker_of(word).map_or_else(|| cluster::parse_id(word).map(NodeId::from), Ok);
        let nodes = words.iter().map(node).collect::<Result<Vec<_>, _>>()?;
        let names = cluster::name_nodes(&nodes, words)?;
        let mut description = Self { names, slots: 1, leader: None };
        options.iter().try_for_each(|option| description.set(option))?;
        Ok(description)
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        match option.split_once('=').unwrap_or((option, "")) {
            ("slots", slots) => self.slots = parse(slots)?,
            ("leader", name) => self.leader = Some(cluster::find(&self.names, name)?),
            _ => return Err(format!("there is no option {option} here")),
        }
        Ok(())
    }
}

impl Stage for Farm {
    fn perform(&mut self, words: &[&str], printed: &mut Vec<String>) -> Result<(), String> {
        match words {
            ["submit", tasks, options @ ..] => self.wish(submission(tasks, options)?)?,
            ["cancel", id] => self.wish(Entry::Cancel(parse_target(id)?))?,
            ["retry", id] => self.wish(Entry::Retry(parse_target(id)?))?,
            ["drain", worker] => self.wish(Entry::Drain { worker: (*worker).to_owned(), is_draining: true })?,
            ["undrain", worker] => self.wish(Entry::Drain { worker: (*worker).to_owned(), is_draining: false })?,
            ["lead", server] => self.lead(self.scenery.alive(server)?, printed)?,
            ["follow", server] => self.command(server, Command::Server(foreman::Command::Follow), printed)?,
            ["serve", worker, server] => {
                let command = worker::Command::Serve(self.scenery.node(server)?.server());
                self.command(worker, Command::Worker(command), printed)?;
            }
            ["unlink", worker, server] => self.unlink(worker, server, printed)?,
            ["end", worker, task] => self.end(worker, task, 0, printed)?,
            ["end", worker, task, code] => self.end(worker, task, parse(code)?, printed)?,
            ["abandon", worker, task] => {
                let command = worker::Command::Abandoned(self.running(worker, task)?);
                self.command(worker, Command::Worker(command), printed)?;
            }
            ["restart", node] => self.restart(node)?,
            ["agree"] => self.agree(printed)?,
            ["settle"] => self.settle(printed)?,
            ["settle", "quietly"] => self.settle(&mut Vec::new())?,
            ["table"] => self.print_table(printed)?,
            words => self.scenery.perform(words, printed)?,
        }
        self.collect();
        Ok(())
    }
}

impl Farm {
    pub(super) fn new(description: Description) -> Result<Self, String> {
        let Description { names, slots, leader } = description;
        let nodes: BTreeSet<NodeId> = names.values().copied().collect();
        let world = World::new(nodes.into_iter().map(|node| (node, make(node, slots, Vec::new()))));
        let manner = Manner { is_told: |_| true, tell };
        let mut farm = Self { scenery: Scenery::new(names, world, manner), slots, log: Log::default() };
        leader.map_or(Ok(()), |leader| farm.crown(leader))?;
        Ok(farm)
    }

    /// Lets a server lead and all workers serve it, out of sight.
    fn crown(&mut self, leader: NodeId) -> Result<(), String> {
        let mut unseen = Vec::new();
        self.lead(leader, &mut unseen)?;
        let workers: Vec<NodeId> = self.scenery.world.nodes().filter(|node| is_worker(*node)).collect();
        for worker in workers {
            self.act(worker, Command::Worker(worker::Command::Serve(leader.server())), &mut unseen)?;
        }
        self.settle(&mut unseen)
    }

    fn command(&mut self, node: &str, command: Command, printed: &mut Vec<String>) -> Result<(), String> {
        self.act(self.scenery.alive(node)?, command, printed)
    }

    fn act(&mut self, node: NodeId, command: Command, printed: &mut Vec<String>) -> Result<(), String> {
        self.scenery.act(node, printed, |world| world.command(node, command))
    }

    /// A client is heard by the leader alone.
    fn wish(&mut self, entry: Entry) -> Result<(), String> {
        self.log.leader.filter(|leader| self.is_able(*leader)).ok_or("nobody leads")?;
        self.log.under_way.push_back(vec![entry]);
        Ok(())
    }

    /// A new leader has applied everything that was ever committed before it is told that it leads.
    fn lead(&mut self, leader: NodeId, printed: &mut Vec<String>) -> Result<(), String> {
        self.log.under_way.clear();
        while self.apply_next(leader, printed)? {}
        self.log.term += 1;
        self.log.leader = Some(leader);
        self.act(leader, Command::Server(foreman::Command::Lead(Term(self.log.term))), printed)
    }

    fn unlink(&mut self, worker: &str, server: &str, printed: &mut Vec<String>) -> Result<(), String> {
        let (worker, server) = (self.scenery.node(worker)?, self.scenery.node(server)?);
        for (node, peer) in [(server, worker), (worker, server)] {
            self.scenery.lose(node, peer);
            if self.is_able(node) {
                self.scenery.act(node, printed, |world| world.link_down(node, peer))?;
            }
        }
        Ok(())
    }

    fn end(&mut self, worker: &str, task: &str, code: u8, printed: &mut Vec<String>) -> Result<(), String> {
        let Held { task, attempt } = self.running(worker, task)?;
        let outcome = Outcome {
            attempt,
            worker: worker.to_owned(),
            verdict: Verdict::Exited(code),
            started_us: 0,
            took_us: TASK_US,
            stdout: Tail::default(),
            stderr: Tail::default(),
        };
        let command = worker::Command::Ended(Report { task, outcome });
        self.command(worker, Command::Worker(command), printed)
    }

    /// The attempt at this task that the worker runs.
    fn running(&self, worker: &str, task: &str) -> Result<Held, String> {
        let id: TaskId = task.parse().map_err(|_| format!("{task} is no task"))?;
        let held = match self.scenery.world.machine(self.scenery.alive(worker)?) {
            Some(Member::Worker(machine)) => machine.running().find(|held| held.task == id),
            _ => None,
        };
        held.ok_or_else(|| format!("{worker} does not run {task}"))
    }

    fn restart(&mut self, name: &str) -> Result<(), String> {
        let node = self.scenery.node(name)?;
        if self.scenery.world.machine(node).is_some() {
            return Err(format!("node {name} is alive"));
        }
        let disk = self.scenery.world.disk(node).to_vec();
        self.scenery.world.restart(node, make(node, self.slots, disk));
        self.log.applied.remove(&node);
        Ok(())
    }

    fn settle(&mut self, printed: &mut Vec<String>) -> Result<(), String> {
        for _ in 0..SETTLE_STEPS_MAX {
            self.collect();
            if !self.scenery.deliver_next(printed) && !self.hear_next(printed)? && !self.commit_next() {
                return Ok(());
            }
        }
        Err(format!("nothing settled within {SETTLE_STEPS_MAX} steps"))
    }

    /// The log takes what its leader proposes, and nothing from anybody else.
    fn collect(&mut self) {
        let nodes: Vec<NodeId> = self.scenery.world.nodes().collect();
        for node in nodes {
            if let Some(Member::Server { proposed, .. }) = self.scenery.world.machine_mut(node) {
                let taken = std::mem::take(proposed);
                if self.log.leader == Some(node) {
                    self.log.under_way.extend(taken);
                }
            }
        }
    }

    fn agree(&mut self, printed: &mut Vec<String>) -> Result<(), String> {
        if !self.commit_next() {
            return Err("there is nothing to agree on".to_owned());
        }
        while self.hear_next(printed)? {}
        Ok(())
    }

    /// A server hears of the next thing that is agreed on. False if all know everything.
    fn hear_next(&mut self, printed: &mut Vec<String>) -> Result<bool, String> {
        let servers: Vec<NodeId> = self.scenery.world.nodes().filter(|node| !is_worker(*node)).collect();
        for server in servers {
            if self.is_able(server) && self.apply_next(server, printed)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One more thing is agreed on. False if there is none, or nobody who could see to it.
    fn commit_next(&mut self) -> bool {
        if !self.log.leader.is_some_and(|leader| self.is_able(leader)) {
            return false;
        }
        let Some(entries) = self.log.under_way.pop_front() else { return false };
        self.log.committed.push(Batch { time_ms: 0, entries });
        true
    }

    fn apply_next(&mut self, server: NodeId, printed: &mut Vec<String>) -> Result<bool, String> {
        let applied = self.log.applied.entry(server).or_default();
        let Some(batch) = self.log.committed.get(*applied).cloned() else { return Ok(false) };
        *applied += 1;
        self.act(server, Command::Server(foreman::Command::Apply(batch)), printed)?;
        Ok(true)
    }

    fn is_able(&self, node: NodeId) -> bool {
        self.scenery.world.machine(node).is_some() && !self.scenery.is_frozen(node)
    }

    fn print_table(&self, printed: &mut Vec<String>) -> Result<(), String> {
        let leader = self.log.leader.and_then(|leader| self.scenery.world.machine(leader));
        let Some(Member::Server { foreman, .. }) = leader else { return Err("nobody leads".to_owned()) };
        for (id, job) in foreman.ledger().jobs(JobId(0)) {
            let tasks = (1..).zip(job.states()).map(|(index, state)| (TaskId { job: id, index }, state));
            printed.extend(tasks.map(|(task, state)| task_words(foreman, task, state)));
        }
        let workers = self.scenery.world.nodes().filter(|node| is_worker(*node));
        printed.extend(workers.map(|node| match self.scenery.world.machine(node) {
            Some(Member::Worker(worker)) => format!("{} {}", name_of(node), worker_words(worker)),
            _ => format!("{} crashed", name_of(node)),
        }));
        Ok(())
    }
}

fn is_worker(node: NodeId) -> bool {
    worker_of(&name_of(node)) == Some(node)
}

fn make(node: NodeId, slots: u16, disk: Vec<worker::Record>) -> Member {
    if is_worker(node) {
        Member::Worker(Box::new(Worker::new(name_of(node), slots, BEAT, disk)))
    } else {
        let foreman = Box::new(Foreman::new(Rules::default(), Ledger::default()));
        Member::Server { foreman, proposed: Vec::new() }
    }
}

/// `1.1 done by w1 (1-1)`, `1.2 queued, with w2 (1-2)`.
fn task_words(foreman: &Foreman, task: TaskId, state: State) -> String {
    let name = state.name();
    match (foreman.ledger().outcome(task), foreman.whereabouts(task)) {
        (Some(outcome), _) if state.is_final() => {
            format!("{task} {name} by {} ({})", outcome.worker, outcome.attempt)
        }
        (_, Some((worker, attempt))) => format!("{task} {name}, with {worker} ({attempt})"),
        _ => format!("{task} {name}"),
    }
}

/// `serves 1 in term 1: runs 1.1 (1-1), has 1.2 (1-2)`.
fn worker_words(worker: &Worker) -> String {
    let serves = worker.serves().map(|(leader, term)| format!("serves {leader} in term {term}"));
    let running: Vec<Held> = worker.running().collect();
    let begun: Vec<Held> = worker.has_begun().collect();
    let words = worker.has().map(|held| match () {
        () if running.contains(&held) => format!("runs {held}"),
        () if begun.contains(&held) => format!("keeps {held}"),
        () => format!("has {held}"),
    });
    let words: Vec<String> = words.collect();
    let words = if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
    format!("{}: {words}", serves.unwrap_or_else(|| "serves nobody".to_owned()))
}

fn submission(tasks: &str, options: &[&str]) -> Result<Entry, String> {
    let mut spec = Spec {
        name: String::new(),
        work: Work::Kind { name: "noop".to_owned(), input: Vec::new() },
        fan: Fan::Array { first: 1, last: parse(tasks)? },
        retries: 0,
        timeout_ms: None,
        is_once: false,
        priority: 0,
        cpus: 1,
    };
    for option in options {
        match option.split_once('=').unwrap_or((option, "")) {
            ("once", "") => spec.is_once = true,
            ("retries", retries) => spec.retries = parse(retries)?,
            ("cpus", cpus) => spec.cpus = parse(cpus)?,
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

fn parse<T: std::str::FromStr>(number: &str) -> Result<T, String> {
    number.parse().map_err(|_| format!("{number} is no number"))
}

#[cfg(test)]
mod tests {
    use crate::story::Story;

    #[test]
    fn a_bad_command_is_named() {
        for (command, reason) in [
            ("fly w1", "no such command"),
            ("end w1 1.1", "w1 does not run 1.1"),
            ("end w9 1.1", "there is no node w9"),
            ("end w1 first", "first is no task"),
            ("cancel all", "all is neither a job nor a task"),
            ("submit many", "many is no number"),
            ("submit 1 twice", "there is no option twice here"),
            ("restart w1", "node w1 is alive"),
            ("agree", "there is nothing to agree on"),
            ("cluster farm 1 w1 slots=few", "few is no number"),
            ("cluster farm 1 boss", "boss is no id"),
            ("cluster farm 1 w1 leader=2", "there is no node 2"),
        ] {
            let story = Story::parse("a.txt", &format!("cluster farm 1 w1 leader=1\n{command}\n----\n"));
            let error = story.play().unwrap_err().to_string();
            assert_eq!(error, format!("a.txt:2: {reason}\n    {command}"));
        }
    }

    #[test]
    fn nobody_hears_a_client_without_a_leader() {
        let story = Story::parse("a.txt", "cluster farm 1 w1 leader=1\ncrash 1\nsubmit 1\n----\n");
        assert_eq!(story.play().unwrap_err().to_string(), "a.txt:3: nobody leads\n    submit 1");
    }
}
