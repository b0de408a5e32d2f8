//! `/v1/leader/explain`: who leads and why, and what would change it, in a sentence or two.

use std::time::SystemTime;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use primus_core::ServerId;
use primus_core::election::Algorithm;
use primus_core::handover::Progress;
use primus_core::rank::RankBy;
use primus_node::events::{Event, Kind};
use primus_node::handle::{Request as ControlRequest, View};
use primus_server::Reason;
use primus_server::control::{Outlook, Way};
use primus_shapes::described;
use primus_shapes::values::time;
use serde::Serialize;

use super::LeaderAnswer;
use crate::context::Context;
use crate::words::{AlgorithmName, RankName};

described! {
    /// Which server leads and why, and what would change that.
    #[derive(Serialize)]
    pub(crate) struct LeaderExplanation {
        #[serde(flatten)]
        leader: LeaderAnswer,
        /// How servers elect.
        algorithm: &'static str as AlgorithmName,
        /// What servers compare.
        rank: &'static str as RankName,
        /// The best of the servers that would be better leaders.
        best: Option<u64>,
        /// By how many points that server is less loaded, where loads count.
        difference: Option<f64>,
        /// By how many points it must be less loaded for a handover.
        margin: Option<f64>,
        /// For how long it has been less loaded by that much.
        worse_for_ms: Option<u64>,
        /// For how long it must have been.
        dwell_ms: Option<u64>,
        /// How long it takes at least until leadership can be handed over.
        not_before_ms: Option<u64>,
        /// Servers that do not stand in elections, because they resigned or an operator moved leadership away from them.
        gave_way: Vec<GaveWay>,
        /// All of it for people.
        sentence: String,
    }
}

described! {
    /// A server that does not stand in elections.
    #[derive(Serialize)]
    struct GaveWay {
        /// The server that does not stand.
        server: u64,
        /// The leader that it gave way to.
        to: u64,
    }
}

/// The leader knows most: what it waits for. Whoever cannot ask it tells what it knows.
pub(crate) async fn explain(State(context): State<Context>, request: Request<Body>) -> Response {
    if let Some(leader) = context.elsewhere(&request).await {
        let answer = context.pass_on(request, leader).await;
        if answer.status().is_success() {
            return answer;
        }
    }
    let outlook = context.ask(ControlRequest::Outlook).await.ok();
    let view = context.handle.view.borrow().clone();
    let outlook = outlook.filter(|_| view.leader == Some(view.id));
    Json(LeaderExplanation::new(&context, &view, outlook)).into_response()
}

impl LeaderExplanation {
    fn new(context: &Context, view: &View, outlook: Option<Outlook>) -> Self {
        let progress = outlook.and_then(|outlook| match outlook.way {
            Way::Load(progress) => Some(progress),
            Way::Rank { .. } | Way::Chosen | Way::Never => None,
        });
        let by_load = outlook.filter(|_| context.rank == RankBy::Load);
        let previous = previous(&context.handle.history.after(0), view.term.0);
        Self {
            leader: LeaderAnswer::new(context, view),
            algorithm: algorithm_name(context.algorithm),
            rank: rank_name(context.rank),
            best: outlook.and_then(|outlook| outlook.best).map(|best| best.0),
            difference: by_load.and_then(|outlook| outlook.less_loaded_by).map(points),
            margin: progress.map(|progress| points(progress.rules.margin.hundredths().into())),
            worse_for_ms: progress.and_then(|progress| progress.worse_for_us).map(|us| us / 1000),
            dwell_ms: progress.map(|progress| progress.rules.dwell_us / 1000),
            not_before_ms: outlook.and_then(|outlook| rest_us(outlook.way)).map(|us| us / 1000),
            gave_way: view.gave_way.iter().map(|(server, to)| GaveWay { server: server.0, to: to.0 }).collect(),
            sentence: format!(
                "{} {}{}",
                so_far(view, previous, SystemTime::now()),
                prospect(view, outlook),
                gave_way(view)
            ),
        }
    }
}

const fn algorithm_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Bully => "bully",
        Algorithm::Ring => "ring",
    }
}

const fn rank_name(rank: RankBy) -> &'static str {
    match rank {
        RankBy::Id => "id",
        RankBy::Address => "address",
        RankBy::Load => "load",
    }
}

/// Who led before this term, as far as this server remembers.
fn previous(events: &[Event], now: u64) -> Option<u64> {
    events.iter().rev().find_map(|event| match event.kind {
        Kind::LeaderChanged { previous, term, .. } if term == now => previous,
        _ => None,
    })
}

const fn rest_us(way: Way) -> Option<u64> {
    match way {
        Way::Rank { rest_us } | Way::Load(Progress { rest_us, .. }) => Some(rest_us),
        Way::Chosen | Way::Never => None,
    }
}

/// Who leads, since when and why.
fn so_far(view: &View, previous: Option<u64>, now: SystemTime) -> String {
    let age = now.duration_since(view.since).unwrap_or_default();
    let (term, age) = (view.term.0, length(u64::try_from(age.as_micros()).unwrap_or(u64::MAX)));
    match view.leader {
        Some(leader) => {
            let why = cause(view.reason, previous, leader.0);
            format!("Server {leader} leads in term {term} since {age} ago because {why}.")
        }
        None => format!("No server leads since {age} ago; the last term was {term}."),
    }
}

fn cause(reason: Reason, previous: Option<u64>, leader: u64) -> String {
    let who = match previous {
        Some(previous) if previous == leader => "it".to_owned(),
        Some(previous) => format!("server {previous}"),
        None => "its predecessor".to_owned(),
    };
    match reason {
        Reason::Start => "the cluster started".to_owned(),
        Reason::LinkLost => format!("the link to {who} was lost"),
        Reason::Silence => format!("{who} was silent for too long"),
        Reason::Operator => "an operator wanted it".to_owned(),
        Reason::Elected => "an operator had an election held".to_owned(),
        Reason::Left => format!("{who} ended"),
        Reason::Resigned => format!("{who} resigned"),
        Reason::Rank => format!("it ranks better than {who}"),
        Reason::Load => format!("{who} was too loaded"),
        Reason::LostQuorum => format!("{who} could no longer reach a majority"),
    }
}

/// What would change it.
fn prospect(view: &View, outlook: Option<Outlook>) -> String {
    match (view.leader, outlook) {
        (None, _) => {
            let (up, all) = (view.peers.values().filter(|peer| peer.is_up).count() + 1, view.peers.len() + 1);
            format!(
                "Server {} reaches {up} of {all} servers, itself included; {} must agree.",
                view.id,
                all / 2 + 1
            )
        }
        (Some(_), _) if view.peers.is_empty() => {
            "It is the only server, so it leads as long as it runs.".to_owned()
        }
        (Some(leader), None) => format!("Only server {leader} knows what would change that."),
        (Some(_), Some(outlook)) => {
            let obstacle = outlook.obstacle.map(|obstacle| format!("; at the moment {obstacle}"));
            format!("{}{}.", change(outlook), obstacle.unwrap_or_default())
        }
    }
}

/// Who does not stand, and until when.
fn gave_way(view: &View) -> String {
    let sentence = |(server, to): (&ServerId, &ServerId)| format!(" Server {server} gave way to server {to}.");
    let all: String = view.gave_way.iter().map(sentence).collect();
    let until =
        "stands again when the leader is lost, after primus elect, or once leadership is transferred to it.";
    if all.is_empty() { all } else { format!("{all} A server that gave way {until}") }
}

fn change(Outlook { best, less_loaded_by, way, .. }: Outlook) -> String {
    match (way, best) {
        (Way::Rank { rest_us }, Some(best)) => {
            format!("Server {best} ranks better and takes over once it has caught up{}", not_before(rest_us))
        }
        (Way::Rank { .. }, None) => {
            "No live server ranks better; one that does takes over once it has caught up".to_owned()
        }
        (Way::Chosen, Some(best)) => format!(
            "Server {best} ranks better, but an operator chose this leader, so it leads until it is lost, hands over or an \
             election is held"
        ),
        (Way::Never, Some(best)) => {
            format!("Server {best} ranks better, but election.preempt is false, so this one leads while it lives")
        }
        (Way::Chosen | Way::Never, None) => "No live server ranks better".to_owned(),
        (Way::Load(progress), best) => {
            let less_loaded = best.zip(less_loaded_by.filter(|hundredths| *hundredths > 0));
            handover(progress, less_loaded.map(|(best, by)| (best.0, points(by))))
        }
    }
}

/// How near a handover by load is, to this server, which is less loaded by so many points.
fn handover(progress: Progress, best: Option<(u64, f64)>) -> String {
    let Progress { rules, worse_for_us, rest_us } = progress;
    let (margin, dwell) = (points(rules.margin.hundredths().into()), length(rules.dwell_us));
    let left_us = rules.dwell_us.saturating_sub(worse_for_us.unwrap_or(0));
    match (best, worse_for_us) {
        (None, _) => {
            format!("No live server is less loaded; handover at {margin} points for {dwell}{}", not_before(rest_us))
        }
        (Some((best, by)), None) => {
            let rest = not_before(rest_us);
            format!("Server {best} is {by} points less loaded; handover at {margin} points for {dwell}{rest}")
        }
        (Some((best, by)), Some(worse_for_us)) => {
            // What ends before the dwell time holds nothing up.
            let (lasted, rest) = (length(worse_for_us), not_before(if rest_us > left_us { rest_us } else { 0 }));
            format!(
                "Server {best} is {by} points less loaded, for {lasted} of {dwell}; handover at {margin} points{rest}"
            )
        }
    }
}

fn not_before(rest_us: u64) -> String {
    if rest_us == 0 { String::new() } else { format!(", not before {} from now", length(rest_us)) }
}

fn points(hundredths: i64) -> f64 {
    hundredths as f64 / 100.0
}

/// As people say it: whole seconds without a point.
fn length(us: u64) -> String {
    time(std::time::Duration::from_micros(us)).replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use primus_core::Term;
    use primus_core::handover::Rules;
    use primus_core::load::Load;
    use primus_node::handle::PeerView;
    use primus_replica::Role;
    use primus_server::transfer::Obstacle;

    use super::*;

    /// Server 3 of so many, which leads since the beginning of 1970.
    fn view(servers: u64, reason: Reason) -> View {
        let peers: BTreeMap<ServerId, PeerView> =
            (1..=servers).filter(|id| *id != 3).map(|id| (ServerId(id), PeerView::default())).collect();
        View {
            id: ServerId(3),
            role: Role::Leader,
            leader: Some(ServerId(3)),
            term: Term(7),
            since: SystemTime::UNIX_EPOCH,
            reason,
            applied: 0,
            last: 0,
            load: Load::default(),
            peers,
            gave_way: BTreeMap::new(),
            suspicions: 0,
            silence_us: 80_000,
            longest_turn: Duration::ZERO,
        }
    }

    #[test]
    fn who_leads_is_told_with_the_reason() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(12);
        for (reason, previous, why) in [
            (Reason::Start, None, "the cluster started"),
            (Reason::LinkLost, Some(1), "the link to server 1 was lost"),
            (Reason::Silence, None, "its predecessor was silent for too long"),
            (Reason::LostQuorum, Some(3), "it could no longer reach a majority"),
            (Reason::Rank, Some(2), "it ranks better than server 2"),
            (Reason::Load, Some(2), "server 2 was too loaded"),
        ] {
            let expected = format!("Server 3 leads in term 7 since 12 s ago because {why}.");
            assert_eq!(so_far(&view(3, reason), previous, now), expected);
        }
        let lost = View { leader: None, ..view(3, Reason::Silence) };
        assert_eq!(so_far(&lost, None, now), "No server leads since 12 s ago; the last term was 7.");
        assert_eq!(prospect(&lost, None), "Server 3 reaches 1 of 3 servers, itself included; 2 must agree.");
    }

    fn told(way: Way, best: Option<u64>, less_loaded_by: Option<i64>) -> String {
        let outlook = Outlook { best: best.map(ServerId), less_loaded_by, obstacle: None, way };
        prospect(&view(3, Reason::Start), Some(outlook))
    }

    #[test]
    fn how_near_a_handover_is_is_told() {
        const NOBODY: &str = "No live server is less loaded; handover at 15 points for 10 s.";
        for (worse_for_s, rest_s, best, less_loaded_by, expected) in [
            (None, 0, None, None, NOBODY),
            (None, 0, Some(4), Some(-200), NOBODY),
            (None, 0, Some(2), Some(1400), "Server 2 is 14 points less loaded; handover at 15 points for 10 s."),
            (
                None,
                25,
                Some(2),
                Some(1450),
                "Server 2 is 14.5 points less loaded; handover at 15 points for 10 s, not before 25 s from now.",
            ),
            (
                Some(4),
                6,
                Some(2),
                Some(2000),
                "Server 2 is 20 points less loaded, for 4 s of 10 s; handover at 15 points.",
            ),
            (
                Some(4),
                7,
                Some(2),
                Some(2000),
                "Server 2 is 20 points less loaded, for 4 s of 10 s; handover at 15 points, not before 7 s from now.",
            ),
        ] {
            let worse_for_us = worse_for_s.map(|seconds: u64| seconds * 1_000_000);
            let progress = Progress { rules: Rules::DEFAULT, worse_for_us, rest_us: rest_s * 1_000_000 };
            assert_eq!(told(Way::Load(progress), best, less_loaded_by), expected);
        }
    }

    #[test]
    fn who_ranks_better_is_told() {
        for (way, best, expected) in [
            (
                Way::Rank { rest_us: 0 },
                None,
                "No live server ranks better; one that does takes over once it has caught up.",
            ),
            (
                Way::Rank { rest_us: 500_000 },
                Some(4),
                "Server 4 ranks better and takes over once it has caught up, not before 500 ms from now.",
            ),
            (
                Way::Never,
                Some(4),
                "Server 4 ranks better, but election.preempt is false, so this one leads while it lives.",
            ),
            (Way::Never, None, "No live server ranks better."),
        ] {
            assert_eq!(told(way, best, None), expected);
        }
    }

    #[test]
    fn who_gave_way_is_told() {
        let mut view = view(3, Reason::Resigned);
        assert_eq!(gave_way(&view), "");
        view.gave_way = BTreeMap::from([(ServerId(2), ServerId(3))]);
        let expected = " Server 2 gave way to server 3. A server that gave way stands again when the leader is lost, after primus \
                        elect, or once leadership is transferred to it.";
        assert_eq!(gave_way(&view), expected);
    }

    #[test]
    fn what_is_in_the_way_is_told() {
        let silent = Some(Obstacle::Silent(ServerId(2)));
        let way = Way::Rank { rest_us: 0 };
        let outlook = Outlook { best: Some(ServerId(2)), less_loaded_by: None, obstacle: silent, way };
        let expected = "Server 2 ranks better and takes over once it has caught up; at the moment server 2 is dead, \
                        frozen or cut off.";
        assert_eq!(prospect(&view(3, Reason::Start), Some(outlook)), expected);
        let alone = prospect(&view(0, Reason::Start), Some(Outlook { obstacle: None, best: None, ..outlook }));
        assert_eq!(alone, "It is the only server, so it leads as long as it runs.");
        assert_eq!(prospect(&view(3, Reason::Start), None), "Only server 3 knows what would change that.");
    }
}
