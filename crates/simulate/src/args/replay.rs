//! The command that runs one seed of an experiment again: the arguments, written as somebody would type them.

use clap::ValueEnum;

use super::{
    Algorithm, BullyArgs, ClusterArgs, Conditions, FarmArgs, LeasesArgs, LendingArgs, RingArgs, Runs, Servers,
};

impl Algorithm {
    /// The command line that gives the run of this seed.
    pub(crate) fn replay(&self, seed: u64) -> String {
        let mut line = Line(String::from("primus simulate"));
        match self {
            Self::Ring(args) => args.write(&mut line),
            Self::Bully(args) => args.write(&mut line),
        }
        line.flag("--seed", &seed.to_string());
        line.0
    }
}

impl Servers {
    /// The command line that gives the run of this seed.
    pub(crate) fn replay(&self, seed: u64) -> String {
        let mut line = Line(format!("primus simulate {}", self.name()));
        let numbers: &[(&str, &Option<String>)] = match self {
            Self::Cluster(args) => &[("--servers", &args.servers)],
            Self::Farm(args) => &[("--servers", &args.servers), ("--workers", &args.workers)],
            Self::Lending(args) => {
                &[("--farms", &args.farms), ("--servers", &args.servers), ("--workers", &args.workers)]
            }
            Self::Leases(args) => {
                &[("--servers", &args.servers), ("--guards", &args.guards), ("--groups", &args.groups)]
            }
        };
        numbers.iter().for_each(|(flag, number)| line.flags(flag, number.as_slice()));
        let names = self.runs().faults.iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
        if !names.is_empty() {
            line.flag("--faults", &names.join(","));
        }
        line.flag("--seed", &seed.to_string());
        line.0
    }

    /// What it is called on the command line.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Cluster(_) => "cluster",
            Self::Farm(_) => "farm",
            Self::Lending(_) => "lending",
            Self::Leases(_) => "leases",
        }
    }

    /// The flags that all share.
    pub(crate) const fn runs(&self) -> &Runs {
        match self {
            Self::Cluster(ClusterArgs { runs, .. })
            | Self::Farm(FarmArgs { runs, .. })
            | Self::Lending(LendingArgs { runs, .. })
            | Self::Leases(LeasesArgs { runs, .. }) => runs,
        }
    }
}

impl RingArgs {
    fn write(&self, line: &mut Line) {
        line.word("ring");
        line.flag("--ids", &self.ids);
        line.choice("--winner", self.winner);
        line.flags("--start", &self.start);
        line.flags("--crash", &self.crash);
        line.flags("--partition", &self.partition);
        self.conditions.write(line);
    }
}

impl BullyArgs {
    fn write(&self, line: &mut Line) {
        line.word("bully");
        line.flag("--nodes", &self.nodes);
        line.choice("--rank", self.rank);
        line.flags("--loads", self.loads.as_slice());
        line.flags("--start", &self.start);
        line.flags("--crash", &self.crash);
        if self.unnoticed {
            line.word("--unnoticed");
        }
        line.flags("--partition", &self.partition);
        line.flags("--preempt", self.preempt.map(|preempt| preempt.to_string()).as_slice());
        line.choice("--asking", self.asking);
        self.conditions.write(line);
    }
}

impl Conditions {
    fn write(&self, line: &mut Line) {
        line.flags("--loss", self.loss.as_slice());
        line.flags("--delay", self.delay.as_slice());
        line.choice("--faults", self.faults);
    }
}

struct Line(String);

impl Line {
    fn word(&mut self, word: &str) {
        self.0.push(' ');
        self.0.push_str(&quoted(word));
    }

    fn flag(&mut self, flag: &str, value: &str) {
        self.word(flag);
        self.word(value);
    }

    fn flags(&mut self, flag: &str, values: &[String]) {
        values.iter().for_each(|value| self.flag(flag, value));
    }

    /// What is the default anyway is left out.
    fn choice<T: ValueEnum + Default + PartialEq>(&mut self, flag: &str, value: T) {
        if value != T::default()
            && let Some(name) = value.to_possible_value()
        {
            self.flag(flag, name.get_name());
        }
    }
}

/// The word as a shell must see it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:@%+/=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{SimulateArgs, Simulated};

    fn simulated(words: &[&str]) -> Simulated {
        SimulateArgs::read(words).expect("the words make sense").what
    }

    fn algorithm(words: &[&str]) -> Algorithm {
        match simulated(words) {
            Simulated::Election(algorithm) => algorithm,
            other => panic!("{other:?}"),
        }
    }

    /// As a shell would split it, with quotes around whole words only.
    fn split(line: &str) -> Vec<&str> {
        line.split(' ').map(|word| word.trim_matches('\'')).collect()
    }

    #[test]
    fn the_replay_means_what_was_typed() {
        for line in [
            "primus simulate ring --ids 5,3,7 --winner highest --start 1,3 --start 2 --crash 1@2s --loss 0.1",
            "primus simulate ring --ids 5,3 --partition 1|2@1s..2s --partition 2|1 --delay 1..5ms --faults all",
            "primus simulate bully --nodes a,b --rank load --loads 3,4 --crash a --preempt false --asking one-by-one",
            "primus simulate bully --nodes 1,2,3 --crash 3 --unnoticed --start 1",
        ] {
            let mut typed = algorithm(&split(line));
            let replayed = algorithm(&split(&typed.replay(17)));
            let (Algorithm::Ring(RingArgs { conditions, .. }) | Algorithm::Bully(BullyArgs { conditions, .. })) =
                &mut typed;
            conditions.seed = Some("17".to_string());
            assert_eq!(replayed, typed);
        }
    }

    #[test]
    fn the_replay_of_whole_servers_means_what_was_typed() {
        for line in [
            "primus simulate cluster",
            "primus simulate cluster --servers 5 --faults crashes,disks --seeds 100",
            "primus simulate farm --servers 5 --workers 7 --faults all",
            "primus simulate lending --farms 4 --servers 1 --workers 2 --faults partitions",
            "primus simulate leases --servers 3 --guards 6 --groups 2 --seed 3",
        ] {
            let Simulated::Servers(typed) = simulated(&split(line)) else { panic!("{line}") };
            let Simulated::Servers(replayed) = simulated(&split(&typed.replay(17))) else { panic!("{line}") };
            assert_eq!(replayed.replay(17), typed.replay(17));
            let expected = Runs { seed: Some("17".to_owned()), seeds: None, ..typed.runs().clone() };
            assert_eq!((replayed.name(), replayed.runs()), (typed.name(), &expected));
            let numbers = |line: &str| line.split("--").filter(|part| !part.starts_with("seed")).count();
            assert_eq!(numbers(&replayed.replay(17)), numbers(line), "{line}");
        }
    }

    #[test]
    fn what_a_shell_would_misread_is_quoted() {
        assert_eq!(quoted("1,2|3@2s..5s"), "'1,2|3@2s..5s'");
        assert_eq!(quoted("1, 2"), "'1, 2'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("172.18.0.9:80"), "172.18.0.9:80");
    }
}
