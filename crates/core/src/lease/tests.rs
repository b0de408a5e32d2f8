//! A lessor, some guards and a log that agrees at once, on one clock that the test moves.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::guard::Leader;
use super::{Candidacy, Guard, Lessor, Message, guard, lessor, stretched};
use crate::ledger::groups::GROUPS_MAX;
use crate::ledger::{Batch, Effect, Entry, GroupRank, GroupRules, Ledger};
use crate::load::Score;
use crate::machine::{Input, Machine, Moment, Outbox, Output};
use crate::planted::Planted;
use crate::{ServerId, SessionId};

const LEASE_US: u64 = 1_000_000;
const TICK_US: u64 = 50_000;
const ME: ServerId = ServerId(1);

/// Everything on one stage; what guards say arrives at once, unless they are mute.
struct Stage {
    now_us: u64,
    ledger: Ledger,
    lessor: Lessor,
    guards: BTreeMap<u64, Guard>,
    /// Guards that are dead or cut off.
    mute: Vec<u64>,
    /// Can the lessor reach a majority?
    is_confirmed: bool,
    said: Vec<String>,
    timers: BTreeMap<(u64, guard::Timer), u64>,
    tick_us: Option<u64>,
    work: VecDeque<Work>,
}

enum Work {
    Lessor(Input<Lessor>),
    Guard(u64, Input<Guard>),
}

impl Stage {
    fn new() -> Self {
        let rules = lessor::Rules { lease_us: LEASE_US, planted: Planted::NONE };
        let mut stage = Self {
            now_us: 0,
            ledger: Ledger::default(),
            lessor: Lessor::new(ME, rules),
            guards: BTreeMap::new(),
            mute: Vec::new(),
            is_confirmed: true,
            said: Vec::new(),
            timers: BTreeMap::new(),
            tick_us: None,
            work: VecDeque::new(),
        };
        stage.lead();
        stage
    }

    fn lead(&mut self) {
        let groups = self.ledger.groups().clone();
        self.tell_lessor(lessor::Command::Lead(groups));
    }

    fn tell_lessor(&mut self, command: lessor::Command) {
        self.work.push_back(Work::Lessor(Input::Command(command)));
        self.settle();
    }

    fn tell(&mut self, guard: u64, command: guard::Command) {
        self.work.push_back(Work::Guard(guard, Input::Command(command)));
        self.settle();
    }

    fn join(&mut self, guard: u64, at: u64, rules: GroupRules) {
        let rules_of_guard = guard::Rules { lease_us: LEASE_US, planted: Planted::NONE };
        self.guards.insert(guard, Guard::new(SessionId(guard), rules_of_guard));
        self.tell(guard, guard::Command::At(ServerId(at)));
        self.want(guard, "cron", rules);
    }

    fn want(&mut self, guard: u64, group: &str, rules: GroupRules) {
        let candidacy = Candidacy { group: group.into(), rules, name: format!("c{guard}"), id: guard };
        self.tell(guard, guard::Command::Want(vec![candidacy]));
    }

    fn settle(&mut self) {
        while let Some(work) = self.work.pop_front() {
            match work {
                Work::Lessor(input) => self.step_lessor(input),
                Work::Guard(guard, input) => self.step_guard(guard, input),
            }
        }
    }

    fn step_lessor(&mut self, input: Input<Lessor>) {
        let mut out = Outbox::new();
        self.lessor.step(Moment(self.now_us), input, &mut out);
        for output in out.drain() {
            match output {
                Output::Send { to, message } if !self.mute.contains(&to.0) => {
                    self.work.push_back(Work::Guard(to.0, Input::Message { from: Leader, message }));
                }
                Output::Set { delay, .. } => self.tick_us = Some(self.now_us + delay.min_us),
                Output::Cancel(_) => self.tick_us = None,
                Output::Notify(lessor::Notice::Propose(entries)) => self.commit(entries),
                Output::Notify(lessor::Notice::Confirm(question)) if self.is_confirmed => {
                    self.work.push_back(Work::Lessor(Input::Command(lessor::Command::Confirmed(question))));
                }
                Output::Notify(lessor::Notice::Confirm(_)) => {}
                Output::Notify(notice) => self.said.push(format!("lessor: {notice}")),
                _ => {}
            }
        }
    }

    fn commit(&mut self, entries: Vec<Entry>) {
        let effects: Vec<Effect> = self.ledger.apply(Batch { time_ms: 0, entries });
        self.work.push_back(Work::Lessor(Input::Command(lessor::Command::Applied(effects))));
    }

    fn step_guard(&mut self, number: u64, input: Input<Guard>) {
        let mut out = Outbox::new();
        let guard = self.guards.get_mut(&number).expect("guards stay");
        guard.step(Moment(self.now_us), input, &mut out);
        for output in out.drain() {
            match output {
                Output::Send { message, .. } if !self.mute.contains(&number) => {
                    self.work.push_back(Work::Lessor(Input::Message { from: SessionId(number), message }));
                }
                Output::Set { timer, delay } => _ = self.timers.insert((number, timer), self.now_us + delay.max_us),
                Output::Cancel(timer) => _ = self.timers.remove(&(number, timer)),
                Output::Notify(guard::Notice::Renewed(..)) => {}
                Output::Notify(notice) => self.said.push(format!("{number}: {notice}")),
                _ => {}
            }
        }
    }

    /// Lets time pass, timer by timer.
    fn pass(&mut self, us: u64) {
        let end_us = self.now_us + us;
        loop {
            let guards = self.timers.iter().map(|((guard, timer), due)| (*due, Some((*guard, *timer))));
            let next = guards.chain(self.tick_us.map(|due| (due, None))).min();
            let Some((due, timer)) = next.filter(|(due, _)| *due <= end_us) else { break };
            self.now_us = self.now_us.max(due);
            match timer {
                Some((guard, timer)) => {
                    self.timers.remove(&(guard, timer));
                    self.work.push_back(Work::Guard(guard, Input::Timer(timer)));
                }
                None => {
                    self.tick_us = None;
                    self.work.push_back(Work::Lessor(Input::Timer(lessor::Tick)));
                }
            }
            self.settle();
        }
        self.now_us = end_us;
    }

    /// What was said since the last time.
    fn heard(&mut self) -> Vec<String> {
        core::mem::take(&mut self.said)
    }

    fn until_us(&self, guard: u64) -> Option<u64> {
        self.guards[&guard].until_us("cron")
    }
}

const ONE: GroupRules = GroupRules { rank: GroupRank::Name, holders: 1 };
const BESIDE: GroupRules = GroupRules { rank: GroupRank::Leader, holders: 1 };

#[test]
fn one_holds_it_and_the_next_has_it_at_once_when_that_one_has_ended() {
    let mut stage = Stage::new();
    stage.join(1, 1, ONE);
    stage.join(2, 1, ONE);
    stage.pass(5 * LEASE_US);
    assert_eq!(stage.heard(), ["1: granted cron #1"]);
    stage.tell(1, guard::Command::Leave("cron".into()));
    assert_eq!(stage.heard(), ["1: recalled cron"], "it may not let go of it before what runs has ended");
    stage.tell(1, guard::Command::Ended("cron".into()));
    assert_eq!(stage.heard(), ["2: granted cron #2"]);
    assert!(stage.guards[&1].is_idle());
}

#[test]
fn what_a_dead_holder_had_is_given_away_after_its_time_and_soon_then() {
    let mut stage = Stage::new();
    stage.join(1, 1, ONE);
    stage.join(2, 1, ONE);
    stage.pass(LEASE_US);
    stage.heard();
    stage.mute.push(1);
    let until_us = stage.until_us(1).unwrap();
    stage.pass(until_us - stage.now_us - 1);
    assert_eq!(stage.heard(), Vec::<String>::new());
    stage.pass(1);
    assert_eq!(stage.heard(), ["1: lost cron"], "its own clock tells it");
    let end_us = stage.now_us;
    while stage.until_us(2).is_none() {
        stage.pass(1000);
    }
    let gap_us = stage.now_us - end_us;
    // The last question of the dead one may have arrived a quarter of a lease later than the one that it had an answer to.
    let longest_us = LEASE_US / 4 + (stretched(LEASE_US) - LEASE_US) + 2 * TICK_US;
    assert!((50_000..longest_us).contains(&gap_us), "after {gap_us} µs");
}

#[test]
fn a_lessor_that_nobody_confirms_promises_nothing_more() {
    let mut stage = Stage::new();
    stage.join(1, 1, ONE);
    stage.pass(LEASE_US);
    let until_us = stage.until_us(1).unwrap();
    stage.is_confirmed = false;
    stage.pass(LEASE_US);
    assert_eq!(stage.heard().last().map(String::as_str), Some("1: lost cron"));
    // It may have been promised a little more once, since the last confirmation, but never beyond a lease from that.
    assert!(stage.now_us <= until_us + LEASE_US);
}

#[test]
fn a_new_leader_lets_a_holder_go_on_and_gives_others_nothing_before_one_lease() {
    for is_alive in [true, false] {
        let mut stage = Stage::new();
        stage.join(1, 1, ONE);
        stage.pass(LEASE_US);
        stage.heard();
        if !is_alive {
            stage.mute.push(1);
        }
        stage.tell_lessor(lessor::Command::Follow);
        stage.lead();
        stage.join(2, 1, ONE);
        stage.pass(stretched(LEASE_US) - 1);
        let early = stage.heard();
        assert!(!early.iter().any(|word| word.starts_with("2:")), "{early:?}");
        assert_eq!(early.is_empty(), is_alive, "a live holder notices nothing");
        stage.pass(2 * TICK_US);
        assert_eq!(stage.heard(), if is_alive { vec![] } else { vec!["2: granted cron #2".to_string()] });
    }
}

#[test]
fn candidates_are_ranked() {
    let score = |points: u32| guard::Command::Score(Score::from_hundredths(points * 100));
    for (rank, first) in [(GroupRank::Name, 1), (GroupRank::Id, 3), (GroupRank::Load, 2), (GroupRank::Leader, 3)] {
        let mut stage = Stage::new();
        let rules = GroupRules { rank, holders: 1 };
        stage.join(9, 9, rules);
        // Time enough to get it, though it is not beside the leader.
        stage.pass(LEASE_US);
        for (guard, at, points) in [(1, 2, 50), (2, 2, 10), (3, 1, 90)] {
            stage.join(guard, at, rules);
            stage.tell(guard, score(points));
        }
        stage.pass(LEASE_US);
        stage.heard();
        stage.tell(9, guard::Command::Leave("cron".into()));
        stage.tell(9, guard::Command::Ended("cron".into()));
        let heard = stage.heard();
        assert!(heard.iter().any(|word| word.starts_with(&format!("{first}: granted"))), "{rank:?}: {heard:?}");
    }
}

#[test]
fn what_follows_leadership_is_asked_back_for_whoever_is_beside_the_leader() {
    let mut stage = Stage::new();
    stage.join(1, 2, BESIDE);
    stage.pass(LEASE_US);
    assert_eq!(stage.heard(), ["1: granted cron #1"], "better elsewhere than nowhere");
    stage.join(2, 1, BESIDE);
    stage.pass(TICK_US);
    assert_eq!(stage.heard(), ["1: recalled cron"]);
    stage.tell(1, guard::Command::Ended("cron".into()));
    assert_eq!(stage.heard(), ["2: granted cron #2"]);
    stage.pass(3 * LEASE_US);
    assert_eq!(stage.heard(), Vec::<String>::new());
}

#[test]
fn what_follows_leadership_does_not_begin_elsewhere_only_because_somebody_there_asked_first() {
    let mut stage = Stage::new();
    stage.join(1, 2, BESIDE);
    stage.want(1, "other", ONE);
    stage.pass(TICK_US);
    assert_eq!(stage.heard(), ["1: granted other #1"], "only what follows leadership is kept");
    stage.join(2, 1, BESIDE);
    assert_eq!(stage.heard(), ["2: granted cron #2"]);
}

#[test]
fn before_another_server_leads_what_is_held_beside_this_one_ends() {
    let mut stage = Stage::new();
    stage.tell_lessor(lessor::Command::Vacate(true));
    assert_eq!(stage.heard(), ["lessor: vacant"], "nothing is held");
    stage.tell_lessor(lessor::Command::Vacate(false));
    stage.join(1, 1, BESIDE);
    stage.want(1, "other", ONE);
    stage.pass(LEASE_US);
    stage.heard();
    stage.tell_lessor(lessor::Command::Vacate(true));
    assert_eq!(stage.heard(), ["1: recalled cron"], "the other one stays");
    stage.tell(1, guard::Command::Ended("cron".into()));
    assert_eq!(stage.heard(), ["lessor: vacant"]);
    stage.pass(LEASE_US);
    assert_eq!(stage.heard(), Vec::<String>::new(), "nobody gets it meanwhile");
    stage.tell_lessor(lessor::Command::Vacate(false));
    assert_eq!(stage.heard(), ["1: granted cron #3"]);
}

#[test]
fn so_many_hold_a_group_as_it_has_room_for() {
    let mut stage = Stage::new();
    let rules = GroupRules { rank: GroupRank::Name, holders: 3 };
    (1..=5).for_each(|guard| stage.join(guard, 1, rules));
    stage.pass(LEASE_US);
    assert_eq!(stage.heard(), ["1: granted cron #1", "2: granted cron #2", "3: granted cron #3"]);
    stage.mute.push(2);
    stage.pass(2 * LEASE_US);
    assert_eq!(stage.heard(), ["2: lost cron", "4: granted cron #4"]);
    assert_eq!(stage.lessor.candidates("cron"), ["c1", "c2", "c3", "c4", "c5"]);
}

#[test]
fn whoever_was_away_too_long_is_told_that_its_token_is_old() {
    let mut stage = Stage::new();
    stage.join(1, 1, ONE);
    stage.join(2, 1, ONE);
    stage.pass(LEASE_US);
    stage.mute.push(1);
    // Frozen: it does not even notice that its time is over.
    let frozen: Vec<_> = stage.timers.extract_if(.., |(guard, _), _| *guard == 1).collect();
    stage.pass(3 * LEASE_US);
    stage.heard();
    stage.mute.clear();
    for ((guard, timer), _) in frozen {
        stage.work.push_back(Work::Guard(guard, Input::Timer(timer)));
    }
    stage.settle();
    let heard = stage.heard();
    assert!(heard.contains(&"1: lost cron".to_string()), "{heard:?}");
    stage.tell(1, guard::Command::Ended("cron".into()));
    assert!(stage.heard().contains(&"lessor: old token".to_string()));
    assert!(stage.until_us(2).is_some());
}

#[test]
fn what_cannot_be_had_is_refused_with_a_reason() {
    let mut stage = Stage::new();
    stage.join(1, 1, ONE);
    stage.join(2, 1, GroupRules { holders: 2, ..ONE });
    stage.pass(LEASE_US);
    let refusal = "2: refused cron: the other candidates have agreed on rank name and 1 at once";
    assert_eq!(stage.heard(), ["1: granted cron #1", refusal]);
    let many = (0..GROUPS_MAX).map(|number| Candidacy {
        group: format!("g{number}"),
        rules: ONE,
        name: "c1".into(),
        id: 1,
    });
    stage.tell(1, guard::Command::Want(many.collect()));
    let heard = stage.heard();
    assert_eq!(heard.iter().filter(|word| word.contains("granted")).count(), GROUPS_MAX - 1);
    assert_eq!(heard.iter().filter(|word| word.contains("there are 10000 groups already")).count(), 1);
}

#[test]
fn strange_words_change_nothing() {
    let mut stage = Stage::new();
    stage.join(1, 1, ONE);
    let before = (stage.lessor.clone(), stage.guards[&1].clone());
    let answer = super::Answer {
        number: 99,
        is_known: true,
        promises: vec![super::Promise { group: "cron".into(), token: 9, rest_us: 9 }],
        recalled: Vec::new(),
        refused: Vec::new(),
    };
    let message = Message::Answer(answer);
    stage.work.push_back(Work::Lessor(Input::Message { from: SessionId(1), message: message.clone() }));
    stage.work.push_back(Work::Guard(1, Input::Message { from: Leader, message }));
    stage.settle();
    assert!(before == (stage.lessor.clone(), stage.guards[&1].clone()));
}

/// What a guard says when it is told this.
fn told(guard: &mut Guard, input: Input<Guard>) -> (Option<super::Poll>, Vec<guard::Notice>) {
    told_at(0, guard, input)
}

fn told_at(now_us: u64, guard: &mut Guard, input: Input<Guard>) -> (Option<super::Poll>, Vec<guard::Notice>) {
    let mut out = Outbox::new();
    guard.step(Moment(now_us), input, &mut out);
    let (mut polls, mut notices) = (Vec::new(), Vec::new());
    for output in out.drain() {
        match output {
            Output::Send { message: Message::Poll(poll), .. } => polls.push(poll),
            Output::Notify(notice) => notices.push(notice),
            _ => {}
        }
    }
    (polls.pop(), notices)
}

fn answer(number: u64, tokens: &[u64]) -> Input<Guard> {
    let promise = |token: &u64| super::Promise { group: "cron".into(), token: *token, rest_us: LEASE_US };
    let promises = tokens.iter().map(promise).collect();
    let answer = super::Answer { number, is_known: true, promises, recalled: Vec::new(), refused: Vec::new() };
    Input::Message { from: Leader, message: Message::Answer(answer) }
}

#[test]
fn a_holder_whose_last_answer_was_late_asks_again_sooner() {
    let mut guard = Guard::new(SessionId(1), guard::Rules { lease_us: LEASE_US, planted: Planted::NONE });
    let candidacy = Candidacy { group: "cron".into(), rules: ONE, name: "c1".into(), id: 1 };
    let (poll, _) = told(&mut guard, Input::Command(guard::Command::Want(vec![candidacy])));
    assert_eq!(poll.unwrap().wait_us, LEASE_US / 2, "it holds nothing");
    // When each answer comes, and how long the next one may wait.
    let mut now_us = 0;
    for (number, (took_us, wait_us)) in (1..).zip([(300, 250), (250, 250), (400, 150), (500, 62), (700, 62)]) {
        now_us += took_us * 1000;
        let (poll, _) = told_at(now_us, &mut guard, answer(number, &[2]));
        assert_eq!(poll.unwrap().wait_us / 1000, wait_us, "after {took_us} ms");
    }
}

#[test]
fn what_is_over_stays_over_and_goes_back_again_if_the_log_still_has_it() {
    let mut guard = Guard::new(SessionId(1), guard::Rules { lease_us: LEASE_US, planted: Planted::NONE });
    let candidacy = || Candidacy { group: "cron".into(), rules: ONE, name: "c1".into(), id: 1 };
    let want = || Input::Command(guard::Command::Want(vec![candidacy()]));
    told(&mut guard, want());
    let granted = guard::Notice::Granted("cron".into(), 2, LEASE_US);
    assert_eq!(told(&mut guard, answer(1, &[2])).1, [granted]);
    told(&mut guard, Input::Command(guard::Command::Leave("cron".into())));
    let (poll, _) = told(&mut guard, Input::Command(guard::Command::Ended("cron".into())));
    // Says a leader that has only proposed it, and is none any more.
    told(&mut guard, answer(poll.unwrap().number, &[]));
    assert!(guard.is_idle());
    let (poll, _) = told(&mut guard, want());
    let (poll, notices) = told(&mut guard, answer(poll.unwrap().number, &[2]));
    assert_eq!(notices, [], "somebody else may hold it by now");
    let poll = poll.unwrap();
    assert_eq!(poll.ended, [super::Claim { group: "cron".into(), token: 2 }]);
    let (poll, _) = told(&mut guard, answer(poll.number, &[]));
    let granted = guard::Notice::Granted("cron".into(), 3, LEASE_US);
    assert_eq!(told(&mut guard, answer(poll.unwrap().number, &[3])).1, [granted]);
}

#[test]
fn what_a_guard_has_never_wanted_or_forgotten_goes_back() {
    let mut guard = Guard::new(SessionId(1), guard::Rules { lease_us: LEASE_US, planted: Planted::NONE });
    let other = Candidacy { group: "other".into(), rules: ONE, name: "c1".into(), id: 1 };
    told(&mut guard, Input::Command(guard::Command::Want(vec![other])));
    let (poll, notices) = told(&mut guard, answer(1, &[7]));
    assert_eq!(notices, []);
    assert_eq!(poll.unwrap().ended, [super::Claim { group: "cron".into(), token: 7 }]);
}

#[test]
fn a_question_that_was_overtaken_does_not_say_what_is_wanted() {
    let mut stage = Stage::new();
    stage.join(1, 1, ONE);
    stage.join(2, 1, ONE);
    let poll = |number| super::Poll {
        number,
        wants: Some(Vec::new()),
        holds: Vec::new(),
        ended: Vec::new(),
        score: Score::default(),
        at: ME,
        wait_us: 0,
    };
    for (number, candidates) in [(0, vec!["c1", "c2"]), (99, vec!["c1"])] {
        let message = Message::Poll(poll(number));
        stage.step_lessor(Input::Message { from: SessionId(2), message });
        assert_eq!(stage.lessor.candidates("cron"), candidates);
    }
}

#[test]
fn no_two_questions_to_the_servers_bear_the_same_number() {
    let mut stage = Stage::new();
    stage.join(1, 1, ONE);
    let groups = stage.ledger.groups().clone();
    let mut asked = Vec::new();
    for command in [lessor::Command::Lead(groups.clone()), lessor::Command::Follow, lessor::Command::Lead(groups)] {
        let mut out = Outbox::new();
        stage.lessor.step(Moment(stage.now_us), Input::Command(command), &mut out);
        asked.extend(out.drain().filter_map(|output| match output {
            Output::Notify(lessor::Notice::Confirm(question)) => Some(question),
            _ => None,
        }));
    }
    assert_eq!(asked, [2, 3], "the first was asked when the guard joined");
}

#[test]
fn a_guard_that_waits_says_now_and_then_what_it_wants() {
    let mut guard = Guard::new(SessionId(1), guard::Rules { lease_us: LEASE_US, planted: Planted::NONE });
    let candidacy = Candidacy { group: "cron".into(), rules: ONE, name: "c1".into(), id: 1 };
    let (mut poll, _) = told(&mut guard, Input::Command(guard::Command::Want(vec![candidacy])));
    let mut said = Vec::new();
    for _ in 0..16 {
        let asked = poll.unwrap();
        said.push(asked.wants.is_some());
        (poll, _) = told(&mut guard, answer(asked.number, &[]));
    }
    let repeated: Vec<usize> = (0..16).filter(|place| said[*place]).collect();
    assert_eq!(repeated, [0, 7, 15]);
}
