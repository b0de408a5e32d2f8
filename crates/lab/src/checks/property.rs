//! The names of all properties, and what each says.

use crate::properties::properties;

properties! {
    /// A property of runs.
    ElectionSafety "election_safety" "at most one server led in a term";
    LogMatching "log_matching" "logs with an entry in common are the same up to there";
    LeaderCompleteness "leader_completeness" "every leader had everything that was committed before";
    CommitsStay "commits_stay" "what was committed stayed on a majority, and was never overwritten";
    StateMachineSafety "state_machine_safety" "all applied the same entry at the same place";
    Durability "durability" "nothing that was acknowledged got lost, and every later read saw it";
    Order "order" "what clients asked a farm for took place in their order";
    GaveWay "gave_way" "leadership was not handed back to a server that gave way";
    Liveness "liveness" "after the faults one leads, and everybody got what was written";
    Assertions "assertions" "no machine broke an assertion of its own";
    FewTerms "few_terms" "another one led two terms later at most";
    Agreement "agreement" "farms that knew equally much agreed";
    Endings "endings" "every task and every loan came to its end, and every task once";
    Handouts "handouts" "nothing was handed out whose end the leader knew";
    Attempts "attempts" "no two attempts had the same name";
    Once "once" "no task that must not start twice did";
    Reruns "reruns" "what a worker had that the leader knew was not run again";
    Authors "authors" "every result was that of the worker that ran the attempt";
    Counts "counts" "the counts of the ledger added up";
    Allegiance "allegiance" "each worker took tasks of the one farm that it worked for";
    Conservation "conservation" "each worker was counted once, and none was borrowed that was not lent";
    Homecoming "homecoming" "a lender took a worker for its own only when it was back";
    Deaths "deaths" "no worker was taken for dead that either farm saw";
    Stay "stay" "each worker changed its place once per stay time at most";
    Help "help" "a farm that had too much to do got help";
    Holders "holders" "no group was held by more at once than may hold it";
    Tokens "tokens" "every later holder of a group had a greater token";
    HeldAgain "held_again" "after the faults every group was held by as many as wanted it and might";
}

impl Property {
    /// Is it about tasks, or about who works where?
    pub(super) fn is_about_tasks(self) -> bool {
        (Self::Agreement..=Self::Allegiance).contains(&self)
    }

    /// Is it about workers that farms lend each other?
    pub(super) fn is_about_loans(self) -> bool {
        (Self::Conservation..=Self::Help).contains(&self)
    }
}
