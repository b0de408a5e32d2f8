//! How much a ledger holds, in bytes.

use super::Ledger;

impl Ledger {
    /// How many bytes the content takes in memory, about: jobs with all that was submitted, two bytes for each of their tasks, keys,
    /// results with what they printed, attempts, and the names of workers. Groups, loans and the roll are few, and are not counted.
    ///
    /// It is the same on all servers that have applied the same entries, and costs nothing to ask for. A process needs more than
    /// this: memory has gaps, and for a snapshot there is a second copy for a while.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.jobs.bytes()
            + self.keys.bytes()
            + self.starts.bytes()
            + self.spent.bytes()
            + self.workers.bytes()
            + self.results.len_bytes()
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;
    use crate::Term;
    use crate::ledger::{
        Attempt, Batch, CommandLine, Entry, Expansion, JobId, Limits, Outcome, Report, Spec, Tail, Target, TaskId,
        Verdict, Work,
    };

    fn spec(work: Work, expansion: Expansion) -> Spec {
        let name = "a name".into();
        Spec { name, work, expansion, retries: 1, timeout_ms: None, is_once: false, priority: 0, cpus: 1 }
    }

    fn command(length: usize) -> Work {
        let text = |fill: &str| fill.repeat(length);
        Work::Command(CommandLine {
            arguments: alloc::vec!["run".into(), text("a")],
            environment: alloc::vec![("NAME".into(), text("e"))],
            directory: (length > 3).then(|| text("d")),
            stdin: alloc::vec![7; length],
            nice: 0,
        })
    }

    fn report(task: TaskId, sequence: u64, code: u8, length: usize) -> Report {
        let outcome = Outcome {
            attempt: Attempt { term: Term(1), sequence },
            worker: "w1".into(),
            verdict: Verdict::Exited(code),
            started_us: 0,
            took_us: 0,
            stdout: Tail { total: length as u64, bytes: alloc::vec![b'x'; length] },
            stderr: Tail::default(),
        };
        Report { task, outcome }
    }

    fn apply(ledger: &mut Ledger, time_ms: u64, entry: Entry) {
        ledger.apply(Batch { time_ms, entries: alloc::vec![entry] });
    }

    #[test]
    fn what_is_forgotten_takes_no_room() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.len_bytes(), 0);
        let key = Some(String::from("key"));
        apply(&mut ledger, 0, Entry::Submit { spec: spec(command(1 << 20), Expansion::One), key });
        let submitted = ledger.len_bytes();
        let four = 4 << 20;
        assert!((four..four + 1000).contains(&submitted), "{submitted}: argument, environment, folder and input");
        let task = TaskId { job: JobId(1), index: 1 };
        apply(&mut ledger, 0, Entry::Finish(report(task, 1, 1, 4096)));
        apply(&mut ledger, 0, Entry::Finish(report(task, 2, 1, 4096)));
        assert!((4096..4400).contains(&(ledger.len_bytes() - submitted)), "only the last result is kept");
        apply(&mut ledger, Limits::default().age_ms, Entry::Limit(Limits::default()));
        assert_eq!((ledger.len_bytes(), ledger.jobs(JobId(0)).count()), (0, 0));
    }

    #[test]
    fn a_task_of_an_array_takes_little() {
        let mut ledger = Ledger::default();
        let array = |last| spec(command(1), Expansion::Array { first: 1, last });
        apply(&mut ledger, 0, Entry::Submit { spec: array(1_000_000), key: None });
        let bytes = ledger.len_bytes();
        assert!((2_000_000..2_001_000).contains(&bytes), "{bytes}");
        apply(&mut ledger, 1, Entry::Cancel(Target::Job(JobId(1))));
        assert_eq!(ledger.len_bytes(), bytes, "and no more when it is cancelled");
        let names: Vec<u64> = ["w", "worker"]
            .map(|worker| {
                let before = ledger.len_bytes();
                apply(&mut ledger, 1, Entry::Join { worker: worker.into(), slots: 1 });
                ledger.len_bytes() - before
            })
            .to_vec();
        assert_eq!(names[1] - names[0], 5);
    }
}
