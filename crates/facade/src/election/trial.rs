//! The laboratory: the same election, in runs in virtual time whose chance comes from a seed.

use std::fmt;
use std::ops::Range;

use primus_core::ServerId;
use primus_core::election::Command;
use primus_core::machine::Delay;
use primus_lab::chance::Chance;
use primus_lab::invariants::{Evidence, judge};
use primus_lab::network::Network;
use primus_lab::simulate::{self, Happening, Setup};

use super::{Adapted, Election};

/// When faults happen at the latest, in microseconds, and how long a run may take after the last of them.
const FAULTS_US: u64 = 2_000_000;
const PATIENCE_US: u64 = 10_000_000;
const REPAIR_US: u64 = 100_000;

/// Runs of an election in virtual time, each with another seed: servers die and are cut off at moments that chance chooses,
/// messages overtake each other, and in the end exactly one server must lead, and all must agree on it.
///
/// ```
/// # use primus_farm::ServerId;
/// # use primus_farm::election::{Actions, Election, Event, Trial};
/// # #[derive(Debug, Clone, PartialEq, Eq, Hash)]
/// # struct First;
/// # impl Election for First {
/// #     type Message = ();
/// #     fn on(&mut self, event: Event<()>, actions: &mut Actions<()>) {
/// #         if !matches!(event, Event::Resign) { actions.elect(Some(ServerId(1))); }
/// #     }
/// #     fn better(&self) -> Vec<ServerId> { Vec::new() }
/// # }
/// // It names server 1 in any case: good, as long as server 1 lives.
/// assert_eq!(Trial::new(1..=3, |_| First).run(0..20), Ok(()));
/// let failure = Trial::new(1..=3, |_| First).crash(1).run(0..20).unwrap_err();
/// assert_eq!(failure.property, "uniqueness");
/// ```
pub struct Trial<E> {
    make: Box<dyn Fn(ServerId) -> E>,
    servers: Vec<ServerId>,
    crashes: Vec<ServerId>,
    isolated: Vec<ServerId>,
    winner: Option<ServerId>,
}

/// A run in which something did not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("with seed {seed} this does not hold: {property}")]
#[non_exhaustive]
pub struct TrialFailure {
    /// The seed of the run. The same seed gives the same run.
    pub seed: u64,
    /// What did not hold: `termination`, `uniqueness`, `agreement` or `correctness`.
    pub property: &'static str,
}

impl<E: Election> Trial<E> {
    /// These servers; `make` gets the number of each.
    pub fn new(servers: impl IntoIterator<Item = u64>, make: impl Fn(ServerId) -> E + 'static) -> Self {
        let servers = servers.into_iter().map(ServerId).collect();
        Self { make: Box::new(make), servers, crashes: Vec::new(), isolated: Vec::new(), winner: None }
    }

    /// Lets this server die at some moment.
    #[must_use]
    pub fn crash(mut self, server: u64) -> Self {
        self.crashes.push(ServerId(server));
        self
    }

    /// Cuts this server off from all others for a while.
    #[must_use]
    pub fn isolate(mut self, server: u64) -> Self {
        self.isolated.push(ServerId(server));
        self
    }

    /// Demands that this server leads in the end.
    #[must_use]
    pub fn winner(mut self, server: u64) -> Self {
        self.winner = Some(ServerId(server));
        self
    }

    /// Makes a run with each of these seeds.
    ///
    /// # Errors
    /// The first run in which something did not hold.
    pub fn run(&self, seeds: Range<u64>) -> Result<(), TrialFailure> {
        seeds.into_iter().try_for_each(|seed| self.run_one(seed))
    }

    fn run_one(&self, seed: u64) -> Result<(), TrialFailure> {
        let setup = Setup {
            nodes: self.servers.iter().map(|id| Adapted::new(*id, (self.make)(*id))).collect(),
            leader: None,
            network: Network::reliable(Delay::between_ms(1, 20)),
            schedule: self.schedule(&mut Chance::new(seed)),
            clock_skew_ppm: Vec::new(),
            detection: Some(Delay::between_ms(0, 50)),
            repair_us: REPAIR_US,
            patience_us: PATIENCE_US,
            seed,
        };
        let outcome = simulate::run(setup, &mut ());
        let best = self.winner;
        let evidence = Evidence { outcome: &outcome, faults_ended: true, best, bound: None, changed_ranks: None };
        match judge(&evidence).into_iter().find(|(_, holds)| !holds) {
            Some((property, _)) => Err(TrialFailure { seed, property: property.name() }),
            None => Ok(()),
        }
    }

    fn schedule(&self, chance: &mut Chance) -> Vec<(u64, Happening)> {
        let boot = |id: &ServerId| (0, Happening::Command((*id).into(), Command::Boot));
        let mut schedule: Vec<_> = self.servers.iter().map(boot).collect();
        for server in &self.crashes {
            schedule.push((chance.below(FAULTS_US), Happening::Crash((*server).into())));
        }
        for server in &self.isolated {
            let (from_us, until_us) = (chance.below(FAULTS_US / 2), FAULTS_US / 2 + chance.below(FAULTS_US));
            for peer in self.servers.iter().filter(|peer| *peer != server) {
                for (one, other) in [(server, peer), (peer, server)] {
                    let (one, other) = ((*one).into(), (*other).into());
                    schedule.push((from_us, Happening::Cut(one, other)));
                    schedule.push((until_us, Happening::Mend(one, other)));
                }
            }
        }
        schedule
    }
}

impl<E> fmt::Debug for Trial<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial").field("servers", &self.servers).finish_non_exhaustive()
    }
}
