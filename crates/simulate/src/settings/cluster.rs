//! What the arguments of `primus simulate cluster` mean.

use primus_lab::cluster::Cluster;
use primus_lab::faults::{Kind, Kinds};
use primus_terminal::amounts::number;
use primus_terminal::failure::Failure;

use super::Seeds;
use crate::args::{ClusterArgs, ClusterFault};

const SERVERS_DEFAULT: u64 = 3;
const SERVERS_MAX: u64 = 25;

/// A cluster to simulate, with one seed or many.
#[derive(Debug)]
pub(crate) struct ClusterSimulation {
    pub(crate) cluster: Cluster,
    pub(crate) seeds: Seeds,
}

impl ClusterSimulation {
    /// What these arguments ask for.
    pub(crate) fn new(args: &ClusterArgs) -> Result<Self, Failure> {
        let servers = args.servers.as_deref().map(|text| number("--servers", text, 1, SERVERS_MAX));
        let servers = servers.transpose()?.unwrap_or(SERVERS_DEFAULT);
        let cluster = Cluster::new(servers, kinds(&args.faults)?);
        Ok(Self { cluster, seeds: Seeds::read(args.seed.as_deref(), args.seeds.as_deref())? })
    }
}

fn kinds(typed: &[ClusterFault]) -> Result<Kinds, Failure> {
    match typed {
        [] | [ClusterFault::None] => Ok(Kinds::NONE),
        [ClusterFault::All] => Ok(Kinds::All),
        some => some.iter().map(|fault| kind(*fault)).collect::<Option<_>>().map(Kinds::These).ok_or_else(|| {
            Failure::usage("--faults names all or none among others", "name all, none, or the kinds that you want")
        }),
    }
}

const fn kind(fault: ClusterFault) -> Option<Kind> {
    Some(match fault {
        ClusterFault::None | ClusterFault::All => return None,
        ClusterFault::Loss => Kind::Loss,
        ClusterFault::Duplication => Kind::Duplication,
        ClusterFault::Lateness => Kind::Lateness,
        ClusterFault::Partitions => Kind::Partitions,
        ClusterFault::Crashes => Kind::Crashes,
        ClusterFault::Pauses => Kind::Pauses,
        ClusterFault::Disks => Kind::Disks,
        ClusterFault::Clocks => Kind::Clocks,
        ClusterFault::Commands => Kind::Commands,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(faults: &[ClusterFault]) -> Result<Kinds, Failure> {
        kinds(faults)
    }

    #[test]
    fn faults_are_all_or_none_or_those_that_are_named() {
        assert_eq!(faults(&[]), Ok(Kinds::NONE));
        assert_eq!(faults(&[ClusterFault::All]), Ok(Kinds::All));
        let both = faults(&[ClusterFault::Loss, ClusterFault::Clocks]);
        assert_eq!(both, Ok(Kinds::These([Kind::Loss, Kind::Clocks].into())));
        assert!(faults(&[ClusterFault::All, ClusterFault::Loss]).is_err());
        assert!(faults(&[ClusterFault::Loss, ClusterFault::None]).is_err());
    }

    #[test]
    fn a_cluster_has_servers_but_not_any_number_of_them() {
        let args = |servers: &str| ClusterArgs {
            servers: Some(servers.to_owned()),
            seed: None,
            seeds: None,
            faults: Vec::new(),
        };
        assert!(ClusterSimulation::new(&args("5")).is_ok());
        for wrong in ["0", "26", "-1", "five"] {
            let failure = ClusterSimulation::new(&args(wrong)).expect_err("no cluster");
            assert_eq!(failure.words(), format!("--servers is '{wrong}'; give a whole number from 1 to 25"));
        }
    }
}
