//! What the arguments of `primus simulate bully` mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use primus_core::ServerId;
use primus_core::election::bully::{Asking, Rules};
use primus_core::load::Score;
use primus_core::rank::{Address, RankBy};
use primus_lab::experiment::{Contest, Experiment, Starts, tuned_bully};
use primus_lab::oracle;
use primus_terminal::amounts::quoted;
use primus_terminal::failure::Failure;

use super::{BULLY_MAX, Cast, Events, Happenings, Simulation};
use crate::args::{BullyArgs, HowToAsk, RankedBy};

pub(super) fn simulation(args: &BullyArgs) -> Result<Simulation, Failure> {
    let cast = Cast::bully(&args.nodes, args.rank, BULLY_MAX)?;
    let scores = scores(args, &cast)?;
    let delay = args.conditions.delay()?;
    let rules = tuned_bully(rules(args, &cast)?, delay);
    let events = Events { start: &args.start, crash: &args.crash, partition: &args.partition };
    let mut happenings = events.read(&cast)?;
    happenings.let_survivors_start(&args.start);
    check_first_leader(&happenings, &rules, &scores, &cast)?;
    let contest = Contest::Bully { rules: Arc::new(rules), scores };
    check_unnoticed(args)?;
    let experiment = args.conditions.experiment(contest, happenings, delay)?;
    let experiment = Experiment { unnoticed: args.unnoticed, ..experiment };
    Ok(Simulation { experiment, cast, seeds: args.conditions.seeds.read()? })
}

impl Happenings {
    /// Where all are to notice a death, the dead one is not meant.
    fn let_survivors_start(&mut self, typed: &[String]) {
        if let (Starts::These(nodes), Some((leader, _)), ["all"]) = (
            &mut self.starts,
            self.crashes.first(),
            typed.iter().map(String::as_str).collect::<Vec<_>>().as_slice(),
        ) {
            nodes.retain(|node| node != leader);
        }
    }
}

fn rules(args: &BullyArgs, cast: &Cast) -> Result<Rules, Failure> {
    let mut rules = match args.rank {
        RankedBy::Id => Rules::by_id(cast.ids()),
        RankedBy::Load => Rules::by_load(cast.ids()),
        RankedBy::Address => Rules::by_address(addresses(cast)?),
    };
    rules.preempt = args.preempt.unwrap_or(rules.preempt);
    rules.asking = match args.asking {
        HowToAsk::All => Asking::AllAtOnce,
        HowToAsk::OneByOne => Asking::OneByOne,
    };
    Ok(rules)
}

fn addresses(cast: &Cast) -> Result<Vec<(ServerId, Address)>, Failure> {
    let mut found: BTreeMap<Address, &str> = BTreeMap::new();
    let mut addresses = Vec::new();
    for (id, name) in cast.nodes() {
        let address = name.parse().map_err(|_| {
            let hint = "with --rank address write IP addresses, such as 172.18.0.9 or [::1]:80";
            Failure::usage(format!("{} is not an address", quoted(name)), hint)
        })?;
        if let Some(other) = found.insert(address, name) {
            let message = format!("{} and {} are one address", quoted(other), quoted(name));
            return Err(Failure::usage(message, "every node needs an address of its own"));
        }
        addresses.push((*id, address));
    }
    Ok(addresses)
}

fn scores(args: &BullyArgs, cast: &Cast) -> Result<BTreeMap<ServerId, Score>, Failure> {
    let Some(loads) = args.loads.as_deref() else { return Ok(BTreeMap::new()) };
    if args.rank != RankedBy::Load {
        return Err(Failure::usage("--loads count only where nodes are ranked by them", "add --rank load"));
    }
    let loads = loads.split(',').map(load).collect::<Result<Vec<_>, _>>()?;
    let nodes = cast.ids().len();
    if loads.len() != nodes {
        let message = format!("{} loads do not match {nodes} nodes", loads.len());
        return Err(Failure::usage(message, "give one load for each node, in the order of --nodes"));
    }
    Ok(cast.ids().zip(loads).collect())
}

fn load(text: &str) -> Result<Score, Failure> {
    let percent = text.trim().parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(Score::from_percent).ok_or_else(|| {
        Failure::usage(
            format!("{} in --loads is not a load", quoted(text)),
            "give numbers from 0 to 100, such as 25.3",
        )
    })
}

/// A death that nobody notices starts nothing by itself.
fn check_unnoticed(args: &BullyArgs) -> Result<(), Failure> {
    match args.unnoticed && (args.crash.is_empty() || args.start.is_empty()) {
        true => Err(Failure::usage(
            "--unnoticed is about a death after which somebody starts",
            "add --crash and --start",
        )),
        false => Ok(()),
    }
}

/// The first that dies leads until then: it must be able to, and somebody else must notice.
fn check_first_leader(
    happenings: &Happenings,
    rules: &Rules,
    scores: &BTreeMap<ServerId, Score>,
    cast: &Cast,
) -> Result<(), Failure> {
    let Some((leader, _)) = happenings.crashes.first() else { return Ok(()) };
    let name = cast.name(*leader);
    if matches!(&happenings.starts, Starts::These(nodes) if nodes.contains(leader)) {
        let message = format!("node {name} cannot notice its own death");
        return Err(Failure::usage(message, "name somebody else in --start"));
    }
    if !rules.preempt {
        return Ok(());
    }
    if rules.rank_by() == RankBy::Load && scores.is_empty() {
        let message = format!("whether node {name} may lead first depends on loads that are not known");
        return Err(Failure::usage(message, "give --loads, or --preempt false"));
    }
    let ids: Vec<ServerId> = cast.ids().collect();
    match oracle::best_by_rank(rules, scores, &ids) {
        Some(best) if best != *leader => {
            let best = cast.name(best);
            let message = format!("node {name} cannot lead before it dies, because node {best} ranks better");
            Err(Failure::usage(message, format!("crash {best} first, or add --preempt false")))
        }
        _ => Ok(()),
    }
}
