//! The rules of assignment compared: tasks arrive at random and go to workers by what the leader knows.
//!
//! It knows what it handed out and what came back, and each worker's score as old as its last heartbeat. A worker runs its
//! tasks in the order in which they came. No faults, no log: those are in [`crate::farm`]. Who gets a task, how many are handed
//! out in advance, and what counts in a score is decided by the real leader's functions; only that tasks are taken back from
//! workers that have some in advance is left out.

use std::collections::VecDeque;

use primus_core::WorkerId;
use primus_core::farm::assign::{self, Candidate, Rule};
use primus_core::farm::foreman::Rules;
use primus_core::load::{Load, Score, Usage};

use crate::chance::Chance;
use crate::queue::Queue;

/// What to compare the rules by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// How many workers.
    pub workers: u64,
    /// How much each can run at once.
    pub slots: u32,
    /// How many tasks.
    pub tasks: u64,
    /// How long a task takes on average; most take less.
    pub task_us: u64,
    /// Which share of all slots the tasks keep busy, in hundredths.
    pub load_percent: u64,
    /// How often a worker says how loaded it is.
    pub heartbeat_us: u64,
}

/// What a rule came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// From submission to end, on average.
    pub mean_us: u64,
    /// And of the hundredth part that waited longest, at least.
    pub p99_us: u64,
    /// From the first submission to the last end.
    pub makespan_us: u64,
}

/// All rules, with their names.
pub const RULES: [(&str, Rule); 4] = [
    ("balanced", Rule::Balanced),
    ("score", Rule::Score),
    ("round-robin", Rule::RoundRobin),
    ("random", Rule::Random),
];

impl Default for Comparison {
    fn default() -> Self {
        Self { workers: 10, slots: 1, tasks: 20_000, task_us: 1_000_000, load_percent: 75, heartbeat_us: 2_000_000 }
    }
}

impl Comparison {
    /// How this rule does with the tasks of this seed; they are the same for every rule.
    #[must_use]
    pub fn run(&self, rule: Rule, seed: u64) -> Outcome {
        Run::new(self, rule, seed).finish()
    }
}

enum Event {
    Submit,
    End { worker: usize, submitted_us: u64 },
    Heartbeat { worker: usize },
}

/// A worker, and what the leader knows of it.
struct Worker {
    running: u32,
    /// When each of those that wait was submitted, and how long it takes.
    waiting: VecDeque<(u64, u64)>,
    known: Candidate,
}

struct Run<'a> {
    setup: &'a Comparison,
    rules: Rules,
    chance: Chance,
    queue: Queue<Event>,
    now_us: u64,
    workers: Vec<Worker>,
    submitted: u64,
    responses_us: Vec<u64>,
    /// What no worker has been given yet: when it was submitted, and how long it takes.
    waiting: VecDeque<(u64, u64)>,
    handed_out: u64,
}

impl<'a> Run<'a> {
    fn new(setup: &'a Comparison, rule: Rule, seed: u64) -> Self {
        let rules = Rules { assignment: rule, ..Rules::default() };
        let ahead = assign::ahead(setup.slots, Some(setup.task_us), rules.ahead_us, rules.ahead_max);
        let worker = |id| {
            let (busy, tasks, load) = (0, 0, Load::IDLE);
            let known = Candidate { worker: WorkerId(id), busy, slots: setup.slots, ahead, tasks, load };
            Worker { running: 0, waiting: VecDeque::new(), known }
        };
        Self {
            setup,
            rules,
            chance: Chance::new(seed),
            queue: Queue::new(),
            now_us: 0,
            workers: (0..setup.workers).map(worker).collect(),
            submitted: 0,
            responses_us: Vec::new(),
            waiting: VecDeque::new(),
            handed_out: 0,
        }
    }

    fn finish(mut self) -> Outcome {
        for worker in 0..self.workers.len() {
            // They do not all speak at the same moment; no chance is drawn, so that all rules see the same tasks.
            let at_us = self.setup.heartbeat_us * worker as u64 / self.setup.workers.max(1);
            self.queue.push(at_us, Event::Heartbeat { worker });
        }
        self.queue.push(0, Event::Submit);
        while (self.responses_us.len() as u64) < self.setup.tasks {
            let Some((at_us, event)) = self.queue.pop() else { break };
            self.now_us = at_us;
            self.on_event(event);
        }
        self.outcome()
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Submit if self.submitted < self.setup.tasks => self.submit(),
            Event::Submit => {}
            Event::End { worker, submitted_us } => self.end(worker, submitted_us),
            Event::Heartbeat { worker } => self.heartbeat(worker),
        }
    }

    fn submit(&mut self) {
        let slots = self.setup.workers * u64::from(self.setup.slots);
        let every_us = self.setup.task_us * 100 / (self.setup.load_percent * slots).max(1);
        let [next_us, takes_us] = [every_us, self.setup.task_us].map(|mean_us| self.chance.length(mean_us as f64));
        self.queue.push(self.now_us + next_us, Event::Submit);
        self.submitted += 1;
        self.waiting.push_back((self.now_us, takes_us));
        self.hand_out();
    }

    fn hand_out(&mut self) {
        while let Some(task) = self.waiting.front().copied() {
            let known = self.workers.iter().map(|worker| worker.known);
            let Rules { assignment, weights, .. } = self.rules;
            let Some(WorkerId(chosen)) = assignment.choose(weights, 1, known, self.handed_out + 1) else { return };
            self.waiting.pop_front();
            self.handed_out += 1;
            let worker = usize::try_from(chosen).expect("an index fits");
            let Worker { known, waiting, .. } = &mut self.workers[worker];
            (known.busy, known.tasks) = (known.busy + 1, known.tasks + 1);
            waiting.push_back(task);
            self.begin(worker);
        }
    }

    fn begin(&mut self, worker: usize) {
        let there = &mut self.workers[worker];
        if there.running < self.setup.slots
            && let Some((submitted_us, takes_us)) = there.waiting.pop_front()
        {
            there.running += 1;
            self.queue.push(self.now_us + takes_us, Event::End { worker, submitted_us });
        }
    }

    fn end(&mut self, worker: usize, submitted_us: u64) {
        self.responses_us.push(self.now_us - submitted_us);
        self.workers[worker].running -= 1;
        let known = &mut self.workers[worker].known;
        (known.busy, known.tasks) = (known.busy - 1, known.tasks - 1);
        self.begin(worker);
        self.hand_out();
    }

    /// The score is the one of the load-aware election; nothing is known of memory here.
    fn heartbeat(&mut self, worker: usize) {
        let there = &mut self.workers[worker];
        let cpu = f64::from(there.running) * 100.0 / f64::from(self.setup.slots.max(1));
        let usage = Usage::Parts { cpu: Score::from_percent(cpu), memory: Score::default() };
        there.known.load = self.rules.weights.load(usage, there.running);
        self.queue.push(self.now_us + self.setup.heartbeat_us.max(1), Event::Heartbeat { worker });
    }

    fn outcome(mut self) -> Outcome {
        self.responses_us.sort_unstable();
        let count = self.responses_us.len().max(1);
        Outcome {
            mean_us: self.responses_us.iter().sum::<u64>() / count as u64,
            p99_us: self.responses_us.get(count * 99 / 100).copied().unwrap_or(0),
            makespan_us: self.now_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_us(comparison: Comparison, rule: Rule) -> u64 {
        comparison.run(rule, 1).mean_us
    }

    #[test]
    fn with_scores_of_two_seconds_ago_rules_that_count_beat_chance() {
        let comparison = Comparison::default();
        let [balanced, score, round_robin, random] = RULES.map(|(_, rule)| mean_us(comparison, rule));
        let all = format!("{balanced} {score} {round_robin} {random}");
        assert!(balanced <= score && score < round_robin && round_robin < random, "{all}");
        assert!(balanced < 3 * comparison.task_us / 2);
    }

    /// While a slot is free, nothing waits: so for as many tasks as there are slots, none takes longer than it lasts.
    #[test]
    fn the_lowest_score_does_not_starve() {
        let comparison =
            Comparison { workers: 3, slots: 10, tasks: 30, load_percent: 100_000, ..Comparison::default() };
        assert_eq!(mean_us(comparison, Rule::Score), mean_us(comparison, Rule::Balanced));
        assert!(mean_us(comparison, Rule::Score) < mean_us(comparison, Rule::Random));
    }

    #[test]
    fn with_fresh_scores_the_lowest_score_is_better_than_chance() {
        let comparison = Comparison { heartbeat_us: 50_000, ..Comparison::default() };
        assert!(mean_us(comparison, Rule::Score) < mean_us(comparison, Rule::Random));
    }

    #[test]
    fn chance_does_as_the_theory_of_queues_says() {
        // M/M/1: the mean response is the mean task divided by the share of free time.
        let comparison = Comparison { workers: 1, tasks: 200_000, ..Comparison::default() };
        let mean_us = mean_us(comparison, Rule::Random);
        assert!((3_600_000..4_400_000).contains(&mean_us), "{mean_us}");
    }

    #[test]
    fn the_same_seed_gives_the_same_outcome() {
        let comparison = Comparison { tasks: 1000, ..Comparison::default() };
        assert_eq!(comparison.run(Rule::Random, 7), comparison.run(Rule::Random, 7));
        assert_ne!(comparison.run(Rule::Random, 7), comparison.run(Rule::Random, 8));
    }
}
