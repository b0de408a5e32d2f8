//! Words and numbers that answers use, as the document describes them.

use primus_core::ledger::GroupRank;
use primus_node::handle::Outcome;
use primus_server::Reason as Why;
use primus_server::peers::State;
use primus_shapes::schema::{Described, Schemas};
use primus_shapes::words;
use serde_json::{Value, json};

words! {
    /// Why leadership changed.
    pub(crate) Reason: [
        Why::Start.name(), Why::LinkLost.name(), Why::Silence.name(), Why::Load.name(), Why::Rank.name(),
        Why::Operator.name(), Why::Resigned.name(), Why::LostQuorum.name(),
    ];
    /// The role of a server.
    pub(crate) ServerRole: ["leader", "candidate", "follower"];
    /// How another server sees a server.
    pub(crate) LinkState: [State::Up.name(), State::Suspected.name(), State::Dead.name(), State::Unknown.name()];
    /// How servers elect.
    pub(crate) AlgorithmName: ["bully", "ring"];
    /// What servers compare.
    pub(crate) RankName: ["id", "address", "load"];
    /// What came of an election.
    pub(crate) ElectionOutcome: [
        Outcome::Confirmed.name(), Outcome::Transferred.name(), Outcome::Elected.name(),
    ];
    /// What makes the leader of a group the leader.
    pub(crate) Authority: ["none", "quorum"];
    /// What candidates of a lease compare.
    pub(crate) LeaseRank: [
        GroupRank::Leader.name(), GroupRank::Load.name(), GroupRank::Id.name(), GroupRank::Name.name(),
    ];
    /// Which way a worker went.
    pub(crate) LoanDirection: ["lent", "borrowed"];
    /// How far a loan is.
    pub(crate) LoanState: ["going", "away", "returning", "recalled", "overdue", "missing"];
    /// Why a worker was lent.
    pub(crate) LoanReason: ["asked", "operator"];
    /// The state of a task.
    pub(crate) TaskState: ["queued", "running", "done", "failed", "lost", "cancelled"];
    /// How an attempt ended.
    pub(crate) TaskVerdict: ["exited", "signalled", "timed_out", "refused", "lost"];
    /// Why a task is as it is.
    pub(crate) TaskCode: [
        "done", "failed", "lost", "cancelled", "running", "assigned", "starting", "ending", "no_leader", "settling",
        "no_worker", "draining", "disk_full", "too_large", "no_slot",
    ];
    /// What a join token is good for.
    pub(crate) TokenRole: ["server", "worker", "viewer", "client", "operator", "admin"];
    /// Whether a join token is still good.
    pub(crate) TokenState: ["good", "used_up", "expired"];
    /// The method of a request.
    pub(crate) Method: ["GET", "POST", "PUT", "DELETE"];
}

macro_rules! texts {
    ($($(#[$note:meta])* $name:ident: $pattern:literal, $example:literal;)*) => {$(
        $(#[$note])*
        #[derive(Debug)]
        pub(crate) struct $name;

        impl Described for $name {
            fn schema(_: &mut Schemas) -> Value {
                json!({ "type": "string", "pattern": $pattern, "examples": [$example] })
            }
        }
    )*};
}

texts! {
    /// The number of a job, as a text.
    JobNumber: "^[1-9][0-9]*$", "12";
    /// A task: its job, and its place in that.
    TaskNumber: "^[1-9][0-9]*\\.[1-9][0-9]*$", "12.7";
    /// An attempt at a task.
    AttemptNumber: "^[0-9]+-[0-9]+$", "7-3";
    /// A loan: the lender's number, and another lender's name.
    LoanNumber: "^[1-9][0-9]*(@.+)?$", "3";
}

/// The name of a program, or the id of a server.
#[derive(Debug)]
pub(crate) struct NameOrId;

impl Described for NameOrId {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "oneOf": [{ "type": "string" }, { "type": "integer", "minimum": 1 }] })
    }
}
