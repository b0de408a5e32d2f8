//! What the arguments of runs of whole servers mean: each names a setup of the laboratory.

use primus_lab::cluster::Cluster;
use primus_lab::farm::Farm;
use primus_lab::faults::{Kind, Kinds};
use primus_lab::leases::Leases;
use primus_lab::loans::{FARMS_MAX, Loans};
use primus_terminal::failure::Failure;

use super::amount;
use crate::args::{ClusterArgs, FarmArgs, LeasesArgs, LendingArgs, ServerFault};

const SERVERS_DEFAULT: u64 = 3;
const SERVERS_MAX: u64 = 25;
const WORKERS_DEFAULT: u64 = 4;
const WORKERS_MAX: u64 = 100;
const FARMS_DEFAULT: u64 = 3;
const GUARDS_MAX: u64 = 20;
const GROUPS_MAX: u64 = 10;

impl ClusterArgs {
    /// What these arguments ask for.
    pub(crate) fn setup(&self) -> Result<Cluster, Failure> {
        Ok(Cluster::new(servers(self.servers.as_deref())?, kinds(&self.runs.faults)?))
    }
}

impl FarmArgs {
    /// What these arguments ask for.
    pub(crate) fn setup(&self) -> Result<Farm, Failure> {
        let workers = amount("--workers", self.workers.as_deref(), 1, WORKERS_MAX)?.unwrap_or(WORKERS_DEFAULT);
        Ok(Farm::new(servers(self.servers.as_deref())?, workers, kinds(&self.runs.faults)?))
    }
}

impl LendingArgs {
    /// What these arguments ask for.
    pub(crate) fn setup(&self) -> Result<Loans, Failure> {
        let farms = amount("--farms", self.farms.as_deref(), 2, FARMS_MAX as u64)?.unwrap_or(FARMS_DEFAULT);
        let farms = usize::try_from(farms).unwrap_or(FARMS_MAX);
        let servers = servers(self.servers.as_deref())?;
        let workers = amount("--workers", self.workers.as_deref(), 1, WORKERS_MAX)?;
        Ok(Loans { servers, workers, ..Loans::new(farms, kinds(&self.runs.faults)?) })
    }
}

impl LeasesArgs {
    /// What these arguments ask for.
    pub(crate) fn setup(&self) -> Result<Leases, Failure> {
        let guards = amount("--guards", self.guards.as_deref(), 1, GUARDS_MAX)?;
        let groups = amount("--groups", self.groups.as_deref(), 1, GROUPS_MAX)?;
        Ok(Leases { guards, groups, ..Leases::new(servers(self.servers.as_deref())?, kinds(&self.runs.faults)?) })
    }
}

fn servers(typed: Option<&str>) -> Result<u64, Failure> {
    Ok(amount("--servers", typed, 1, SERVERS_MAX)?.unwrap_or(SERVERS_DEFAULT))
}

fn kinds(typed: &[ServerFault]) -> Result<Kinds, Failure> {
    match typed {
        [] | [ServerFault::None] => Ok(Kinds::NONE),
        [ServerFault::All] => Ok(Kinds::All),
        some => some.iter().map(|fault| kind(*fault)).collect::<Option<_>>().map(Kinds::These).ok_or_else(|| {
            Failure::usage("--faults names all or none among others", "name all, none, or the kinds that you want")
        }),
    }
}

const fn kind(fault: ServerFault) -> Option<Kind> {
    Some(match fault {
        ServerFault::None | ServerFault::All => return None,
        ServerFault::Loss => Kind::Loss,
        ServerFault::Duplication => Kind::Duplication,
        ServerFault::Lateness => Kind::Lateness,
        ServerFault::Partitions => Kind::Partitions,
        ServerFault::Crashes => Kind::Crashes,
        ServerFault::Pauses => Kind::Pauses,
        ServerFault::Disks => Kind::Disks,
        ServerFault::Clocks => Kind::Clocks,
        ServerFault::Commands => Kind::Commands,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(faults: &[ServerFault]) -> Result<Kinds, Failure> {
        kinds(faults)
    }

    #[test]
    fn faults_are_all_or_none_or_those_that_are_named() {
        assert_eq!(faults(&[]), Ok(Kinds::NONE));
        assert_eq!(faults(&[ServerFault::All]), Ok(Kinds::All));
        let both = faults(&[ServerFault::Loss, ServerFault::Clocks]);
        assert_eq!(both, Ok(Kinds::These([Kind::Loss, Kind::Clocks].into())));
        assert!(faults(&[ServerFault::All, ServerFault::Loss]).is_err());
        assert!(faults(&[ServerFault::Loss, ServerFault::None]).is_err());
    }

    #[test]
    fn a_cluster_has_servers_but_not_any_number_of_them() {
        let args = |servers: &str| ClusterArgs { servers: Some(servers.to_owned()), ..ClusterArgs::default() };
        assert!(args("5").setup().is_ok());
        for wrong in ["0", "26", "-1", "five"] {
            let failure = args(wrong).setup().expect_err("no cluster");
            assert_eq!(failure.words(), format!("--servers is '{wrong}'; give a whole number from 1 to 25"));
        }
    }

    #[test]
    fn a_farm_lends_to_another_one() {
        let args = |farms: &str| LendingArgs { farms: Some(farms.to_owned()), ..LendingArgs::default() };
        assert!(args("2").setup().is_ok() && args("5").setup().is_ok());
        assert!(args("1").setup().is_err() && args("6").setup().is_err());
    }
}
