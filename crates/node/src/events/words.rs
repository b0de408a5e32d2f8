//! What an event says to people: the one text of each, for logs, `primus events` and answers of the API.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use primus_core::amounts;

use super::{Guest, Kind, Loan, ServerScore};

impl<S: Display> Display for Kind<S> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaderChanged { leader, previous, term, reason, took_ms } => {
                let after = after(*previous);
                write!(f, "server {leader} leads in term {term} ({reason}){after}, in {took_ms:.1} ms")
            }
            Self::LeaderLost { term, reason, .. } => {
                write!(f, "no server leads any more in term {term} ({reason})")
            }
            Self::GroupLeaderChanged { group, leader, previous, reason } => {
                write!(f, "server {leader} leads group {group} ({reason}){}", after(*previous))
            }
            Self::LeaderConfirmed { leader, term, asked, scores, .. } => {
                write!(f, "an election was held, asked for at server {asked}: ")?;
                write!(f, "server {leader} leads on in term {term}{}", shown(scores))
            }
            Self::GroupLeaderConfirmed { group, leader, scores, .. } => {
                write!(f, "an election of group {group} was held: server {leader} leads on{}", shown(scores))
            }
            Self::FoundingWaits { reason } => f.write_str(reason),
            Self::Founded { cluster, members } => founded(f, cluster, members),
            Self::ListDiffers { listed, members } => list_differs(f, listed, members),
            Self::Suspected { peer, reason } => write!(f, "server {peer} is suspected ({reason})"),
            Self::LinkRefused { reason, left_out } => {
                write!(f, "a link was refused: {reason}{}", others(*left_out))
            }
            Self::Saturated { queued: 1 } => f.write_str("the farm is saturated: 1 task waits and no slot is free"),
            Self::Saturated { queued } => {
                write!(f, "the farm is saturated: {queued} tasks wait and no slot is free")
            }
            Self::Calm => f.write_str("the farm is calm"),
            Self::LoanAsked { farm, count } => write!(f, "{farm} is asked for {}", workers(*count)),
            Self::LoanPromised { farm, count } => write!(f, "{farm} lends {}", workers(*count)),
            Self::LoanRefused { farm, reason } => write!(f, "{farm} lends no worker ({reason})"),
            Self::NeighbourSilent { farm } => write!(f, "{farm} did not answer"),
            Self::LoanNotSent { farm, loan } => {
                write!(f, "{farm} promised a worker under loan {loan}, which did not come")
            }
            Self::LoanUnknown { farm, loan } => write!(f, "{farm} speaks of loan {loan}, which does not exist"),
            Self::WorkerUnknown { farm, worker } => {
                write!(f, "{worker} has come from {farm}, which has not lent it")
            }
            Self::WorkerCannotGo { farm, worker } => {
                write!(f, "{worker} cannot go to {farm}: its own diagnostics say why")
            }
            Self::Lent(loan) => lent(f, loan),
            Self::Recalled(loan) => whereabouts(f, loan, "is called home from"),
            Self::LoanHome(loan) => whereabouts(f, loan, "is home again from"),
            Self::LoanDead(loan) => whereabouts(f, loan, "is dead; it was lent to"),
            Self::Overdue(loan) => {
                write!(f, "{} should be back from {} by now (loan {})", loan.worker, loan.to, loan.loan)
            }
            Self::Borrowed(Guest { loan, worker, from, why, .. }) => {
                write!(f, "{worker} works here (loan {loan} of {from}, {why})")
            }
            Self::GivenBack(Guest { loan, worker, from, .. }) => {
                write!(f, "{worker} does not work here any more (loan {loan} of {from})")
            }
            Self::ClockOff { server, ahead_ms } => clock(f, *server, *ahead_ms),
            Self::ClockRight { server } => write!(f, "the clock of server {server} is right again"),
            Self::LateTurn { took_ms, worked_ms, cause, left_out } => {
                let others = others(*left_out);
                write!(f, "control was late: {cause}, {took_ms:.0} ms, {worked_ms:.0} ms of work{others}")
            }
            Self::HookEnded { hook, outcome, code, signal, error, took_ms, output, .. } => {
                let how = ending(&outcome.to_string(), (*code, *signal), error.as_deref(), *took_ms);
                let last_line = output.lines().last().map(|line| format!(": {line}")).unwrap_or_default();
                write!(f, "hook {hook} {how}{last_line}")
            }
        }
    }
}

fn founded(f: &mut Formatter<'_>, cluster: &str, members: &[u64]) -> fmt::Result {
    write!(f, "cluster {cluster} is founded with the servers {}", counted(members))
}

fn list_differs(f: &mut Formatter<'_>, listed: &[u64], members: &[u64]) -> fmt::Result {
    write!(f, "the file lists {}; the cluster has {}: correct the file", counted(listed), counted(members))
}

/// Numbers as people write them: `1, 2, 3`.
fn counted(ids: &[u64]) -> String {
    ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

fn lent<S: Display>(f: &mut Formatter<'_>, loan: &Loan<S>) -> fmt::Result {
    let Loan { loan, worker, to, for_ms, why } = loan;
    let length = amounts::time(Duration::from_millis(*for_ms)).replace(".0 ", " ");
    write!(f, "{worker} is lent to {to} for {length} (loan {loan}, {why})")
}

/// Where a worker is that is lent, or was.
fn whereabouts<S>(f: &mut Formatter<'_>, loan: &Loan<S>, words: &str) -> fmt::Result {
    let Loan { loan, worker, to, .. } = loan;
    write!(f, "{worker} {words} {to} (loan {loan})")
}

/// How a hook has ended.
fn ending(outcome: &str, code_and_signal: (Option<i32>, Option<i32>), error: Option<&str>, took_ms: f64) -> String {
    match (outcome, code_and_signal) {
        ("done", _) => format!("is done after {took_ms:.1} ms"),
        ("failed", (Some(code), _)) => format!("failed with exit code {code} after {took_ms:.1} ms"),
        ("failed", (None, Some(signal))) => format!("was ended by signal {signal}"),
        ("timed_out", _) => format!("was ended after {took_ms:.1} ms: it took too long"),
        _ => format!("did not run: {}", error.unwrap_or("the reason is unknown")),
    }
}

fn after(previous: Option<u64>) -> String {
    previous.map(|previous| format!(", after server {previous}")).unwrap_or_default()
}

/// How loaded the servers were, in the order of ids.
fn shown(scores: &[ServerScore]) -> String {
    let all: Vec<String> = scores.iter().map(|score| format!("{} at {:?}", score.id, score.score)).collect();
    if all.is_empty() { String::new() } else { format!(" (scores: {})", all.join(", ")) }
}

/// How many such events were not told one by one.
fn others(left_out: u64) -> String {
    if left_out == 0 { String::new() } else { format!(" ({left_out} more before it)") }
}

fn workers(count: u32) -> String {
    if count == 1 { "1 worker".to_owned() } else { format!("{count} workers") }
}

/// In the greatest unit that fits.
fn clock(f: &mut Formatter<'_>, server: u64, ahead_ms: i64) -> fmt::Result {
    // The two readings that are compared are rarely made in the same millisecond.
    let seconds = (ahead_ms.unsigned_abs() + 500) / 1000;
    let units = [("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1)];
    let (unit, length) = units.into_iter().find(|(_, length)| seconds >= 2 * length).unwrap_or(("seconds", 1));
    let side = if ahead_ms > 0 { "ahead" } else { "behind" };
    write!(f, "the clock of server {server} is {} {unit} {side}", seconds / length)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::events::Event;

    /// The text of an event as scripts see it.
    fn text(event: Value) -> String {
        Kind::read(&event).expect("it is an event").to_string()
    }

    #[test]
    fn events_are_told_in_sentences() {
        let change = json!({"index": 41, "time": "T", "kind": "leader_changed", "leader": 2, "previous": 3, "term": 8,
            "reason": "link_lost", "took_ms": 4.14});
        assert_eq!(text(change), "server 2 leads in term 8 (link_lost), after server 3, in 4.1 ms");
        let lost = json!({"kind": "leader_lost", "previous": 3, "term": 8, "reason": "lost_quorum"});
        assert_eq!(text(lost), "no server leads any more in term 8 (lost_quorum)");
        let group = json!({"kind": "group_leader_changed", "group": "router", "leader": 2, "previous": 3, "reason": "rank"});
        assert_eq!(text(group), "server 2 leads group router (rank), after server 3");
        let confirmed = json!({"kind": "leader_confirmed", "leader": 3, "term": 8, "asked": 1, "held_by": 3,
            "scores": [{"id": 1, "score": 2.5}, {"id": 3, "score": 0.0}]});
        assert_eq!(
            text(confirmed),
            "an election was held, asked for at server 1: server 3 leads on in term 8 (scores: 1 at 2.5, 3 at 0.0)"
        );
        let suspected = json!({"kind": "suspected", "peer": 3, "reason": "silence"});
        assert_eq!(text(suspected), "server 3 is suspected (silence)");
        let refused = json!({"kind": "link_refused", "reason": "who?", "left_out": 7});
        assert_eq!(text(refused), "a link was refused: who? (7 more before it)");
        let late = Kind::LateTurn { took_ms: 80.4, worked_ms: 2.0, cause: "the host", left_out: 0 };
        assert_eq!(late.to_string(), "control was late: the host, 80 ms, 2 ms of work");
    }

    #[test]
    fn what_happens_between_farms_is_told_in_sentences() {
        let loan =
            json!({"kind": "lent", "loan": 3, "worker": "n1", "to": "south", "for_ms": 60_000, "why": "asked"});
        assert_eq!(text(loan), "n1 is lent to south for 60 s (loan 3, asked)");
        let guest = json!({"kind": "given_back", "loan": 3, "worker": "n1@north", "from": "north", "for_ms": 1, "why": "asked"});
        assert_eq!(text(guest), "n1@north does not work here any more (loan 3 of north)");
        let asked = json!({"kind": "loan_asked", "farm": "south", "count": 5});
        assert_eq!(text(asked), "south is asked for 5 workers");
        let promised = json!({"kind": "loan_promised", "farm": "south", "count": 1});
        assert_eq!(text(promised), "south lends 1 worker");
        let saturated = json!({"kind": "saturated", "queued": 1});
        assert_eq!(text(saturated), "the farm is saturated: 1 task waits and no slot is free");
        let strange = json!({"kind": "worker_unknown", "farm": "south", "worker": "s1@south"});
        assert_eq!(text(strange), "s1@south has come from south, which has not lent it");
    }

    #[test]
    fn hooks_are_told_in_a_sentence_with_their_last_line() {
        let common = json!({"kind": "hook_ended", "hook": "leader_changed", "event": 7, "took_ms": 12.0, "output": "one\ntwo\n"});
        for (facts, expected) in [
            (json!({"outcome": "done", "code": 0}), "is done after 12.0 ms: two"),
            (json!({"outcome": "failed", "code": 3}), "failed with exit code 3 after 12.0 ms: two"),
            (json!({"outcome": "failed", "code": null, "signal": 9}), "was ended by signal 9: two"),
            (json!({"outcome": "timed_out"}), "was ended after 12.0 ms: it took too long: two"),
            (json!({"outcome": "not_started", "error": "x", "output": ""}), "did not run: x"),
        ] {
            let mut event = common.clone();
            facts.as_object().into_iter().flatten().for_each(|(name, value)| event[name] = value.clone());
            assert_eq!(text(event), format!("hook leader_changed {expected}"));
        }
    }

    #[test]
    fn a_clock_that_is_off_is_told_in_the_greatest_unit_that_fits() {
        for (ahead_ms, expected) in [
            (3 * 86_400_000, "3 days ahead"),
            (3 * 86_400_000 - 1, "3 days ahead"),
            (-30 * 86_400_000, "30 days behind"),
            (86_400_000, "24 hours ahead"),
            (-90_000, "90 seconds behind"),
        ] {
            let kind: Kind = Kind::ClockOff { server: 3, ahead_ms };
            assert_eq!(kind.to_string(), format!("the clock of server 3 is {expected}"));
        }
        let right: Kind = Kind::ClockRight { server: 3 };
        assert_eq!(right.to_string(), "the clock of server 3 is right again");
    }

    #[test]
    fn an_event_that_was_written_down_says_the_same() {
        let guest =
            Guest { loan: 3, worker: "n1@north".to_owned(), from: "north".to_owned(), for_ms: 5, why: "operator" };
        let kinds = [
            Kind::Calm,
            Kind::LeaderChanged { leader: 2, previous: None, term: 8, reason: "start", took_ms: 4.1 },
            Kind::Borrowed(guest),
        ];
        for kind in kinds {
            let event = Event { index: 1, time: std::time::SystemTime::UNIX_EPOCH, kind };
            let read = Kind::read(&event.object()).map(|read| read.to_string());
            assert_eq!(read, Some(event.kind.to_string()));
        }
        assert!(Kind::read(&json!({"index": 1, "kind": "eclipse", "depth": 2})).is_none());
    }
}
