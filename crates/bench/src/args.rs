//! The arguments of the benches.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use primus_local::Algorithm;
use primus_ring::args::Transport;

use crate::help;

/// What is to be measured, as typed.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: Bench,
}

#[derive(Debug, Clone, PartialEq, Subcommand)]
pub(crate) enum Bench {
    /// The simulator: a ring of a million nodes, and a Bully election of a thousand
    #[command(after_help = help::SIMULATE)]
    Simulate(SimulateArgs),
    /// From the leader's death, or its silence, to the first write that another one accepts
    #[command(after_help = help::FAILOVER)]
    Failover(FailoverArgs),
    /// How long no server accepts a write while leadership is handed over on request
    #[command(after_help = help::TRANSFER)]
    Transfer(TransferArgs),
    /// How long no server accepts a write while a leader hands over because it is too loaded
    #[command(after_help = help::HANDOVER)]
    Handover(HandoverArgs),
    /// What servers cost that have nothing to do: processor, memory, messages
    #[command(after_help = help::IDLE)]
    Idle(IdleArgs),
    /// How many small records a farm acknowledges per second
    #[command(after_help = help::LOG)]
    Log(LogArgs),
    /// Whether the leader stays where nothing happens, even on a busy host
    #[command(after_help = help::STABILITY)]
    Stability(StabilityArgs),
    /// How fast tasks get done, beside what only starts processes or never idles
    #[command(after_help = help::TASKS)]
    Tasks(TasksArgs),
    /// From the death of a worker or the leader to the next start of a task
    #[command(after_help = help::RESCUE)]
    Rescue(RescueArgs),
    /// What many waiting tasks cost the leader: memory, and time
    #[command(after_help = help::QUEUE)]
    Queue(QueueArgs),
    /// How much sooner a flooded farm is done when its neighbour lends it workers
    #[command(after_help = help::LENDING)]
    Lending(LendingArgs),
    /// How fast a ring of real nodes elects, through a broker or over sockets
    #[command(after_help = help::RING)]
    Ring(RingArgs),
    /// From a fault to the next start of a guarded command, and whether two ever ran at once
    #[command(after_help = help::LEAD)]
    Lead(LeadArgs),
    /// What many groups with several candidates cost, and how soon a dead holder is replaced
    #[command(after_help = help::GROUPS)]
    Groups(GroupsArgs),
    /// What others notice while a farm is asked for far more than usual, and the memory that it takes
    #[command(after_help = help::PRESSURE)]
    Pressure(PressureArgs),
    /// What encrypted links cost, beside plain ones in the same run
    #[command(after_help = help::ENCRYPTION)]
    Encryption(EncryptionArgs),
    /// Be a candidate for many groups
    #[command(hide = true, after_help = help::HOLD)]
    Hold(HoldArgs),
    /// Keep one processor busy
    #[command(hide = true, after_help = help::BURN)]
    Burn(BurnArgs),
    /// Write down every millisecond that this is alive
    #[command(hide = true, after_help = help::BEAT)]
    Beat(BeatArgs),
    /// Guard a command that does nothing
    #[command(hide = true, after_help = help::GUARD)]
    Guard(GuardArgs),
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct PressureArgs {
    /// Which load, or several with commas [default: all, one after the other]
    #[arg(long = "load", value_enum, value_delimiter = ',', value_name = "LOAD")]
    pub(crate) loads: Vec<PressureLoad>,
    /// How long each load lasts [default: 10]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) seconds: Option<String>,
    /// How many processes keep processors busy beside it, as compilers do [default: 2]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) beside: Option<String>,
    /// How many keys the register has that is listed [default: 1000000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) keys: Option<String>,
    /// How many tasks the job has that is cancelled [default: 4000000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) tasks: Option<String>,
    /// How many bodies, workers, followers or slow bodies there are [default: 250, 24, 6144, 900]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) clients: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum PressureLoad {
    /// Two clients list a large register, page by page, again and again
    Lists,
    /// A job of millions of tasks is submitted and cancelled, again and again
    Cancels,
    /// Both at once
    ListsAndCancels,
    /// Bodies of lines, as long as they may be, at once
    Bulk,
    /// Workers that say as much as they may, and more
    Workers,
    /// Followers of events, who come back when they are sent away
    Followers,
    /// Bodies that arrive byte by byte
    Slow,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct EncryptionArgs {
    /// What is measured, or several with commas [default: all, one after the other]
    #[arg(long = "part", value_enum, value_delimiter = ',', value_name = "PART")]
    pub(crate) parts: Vec<EncryptionPart>,
    /// How often to measure each [default: 5 log and tasks, 20 failovers, 10 seconds of idleness]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
    /// How many records each run writes [default: 200000]
    #[arg(short = 'n', long = "records", value_name = "N", allow_hyphen_values = true)]
    pub(crate) records: Option<String>,
    /// How many times each run starts /bin/true [default: 5000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) tasks: Option<String>,
    /// How many tasks of half a second the farm gets that may borrow [default: 160]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) sleeps: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum EncryptionPart {
    /// Records per second
    Log,
    /// Times /bin/true per second
    Tasks,
    /// The processor time of five servers that have nothing to do
    Idle,
    /// From the leader's death, and from its silence, to the first write that another one accepts
    Failover,
    /// How much sooner a flooded farm is done that borrows workers
    Lending,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct GuardArgs {
    /// End when this process ends
    #[arg(long, value_name = "PID")]
    pub(crate) parent: i32,
    /// The farm that grants the lease
    #[arg(long, value_name = "NAME")]
    pub(crate) farm: String,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct GroupsArgs {
    /// How many groups [default: 1000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) groups: Option<String>,
    /// How many candidates each has [default: 5]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) candidates: Option<String>,
    /// How long a lease lasts, from 300ms
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) lease: String,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct HoldArgs {
    /// Servers' APIs
    #[arg(long, value_name = "URL,…")]
    pub(crate) api: String,
    /// End when this process ends
    #[arg(long, value_name = "PID")]
    pub(crate) parent: i32,
    /// Which candidate this is, from 0
    #[arg(long, value_name = "N")]
    pub(crate) candidate: u64,
    /// Of how many
    #[arg(long, value_name = "N")]
    pub(crate) candidates: u64,
    /// For how many groups
    #[arg(long, value_name = "N")]
    pub(crate) groups: u64,
    /// Where to write down what was granted
    #[arg(long, value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct LeadArgs {
    /// What happens to the host that runs the command
    #[arg(long, value_enum, default_value_t, value_name = "FAULT")]
    pub(crate) fault: LeadFault,
    /// Whom it hits there [default: the server, primus lead and both, in turn]
    #[arg(long, value_enum, value_name = "WHO")]
    pub(crate) victim: Option<LeadVictim>,
    /// How the command behaves
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub(crate) manner: Manner,
    /// How long a lease lasts, from 300ms
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(crate) lease: String,
    /// How often to measure [default: 10, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LeadFault {
    #[default]
    /// Processes die
    Kill,
    /// Processes are stopped, and go on later
    Freeze,
    /// The leader is cut off from the other servers
    Partition,
    /// The leader steps down in good order
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LeadVictim {
    /// The leader
    Server,
    /// The primus lead beside it
    Lead,
    /// Both
    Both,
    /// The companion, which owns the command
    Companion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Manner {
    #[default]
    /// It ends when it is told to
    Plain,
    /// It does not
    Stubborn,
    /// It has a child that does not
    Forks,
    /// It has a child in another session that does not
    Setsid,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BeatArgs {
    /// Where to write it down
    #[arg(long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The server beside which this runs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) server: u64,
    /// How to behave
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub(crate) manner: Manner,
    /// This is a child of another one
    #[arg(long = "child")]
    pub(crate) is_child: bool,
    /// Leave the session
    #[arg(long = "apart")]
    pub(crate) is_apart: bool,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct TransferArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How often to measure [default: 20, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct HandoverArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How often to measure [default: 20, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct IdleArgs {
    /// How many servers [default: 5]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How many workers, which have nothing to do either [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) workers: Option<String>,
    /// For how many seconds to measure the processor [default: 10]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct LogArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How many records each run writes in batches; one by one it writes a fifth of them [default: 500000]
    #[arg(short = 'n', long = "records", value_name = "N", allow_hyphen_values = true)]
    pub(crate) records: Option<String>,
    /// How many records are proposed together [default: 100]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) batch: Option<String>,
    /// How often to measure [default: 5, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct StabilityArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// For how long to watch [default: half a minute]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) minutes: Option<String>,
    /// Keep all processors busy meanwhile
    #[arg(long)]
    pub(crate) busy: bool,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct TasksArgs {
    /// What the tasks are
    #[arg(long, value_enum, default_value_t, value_name = "KIND")]
    pub(crate) kind: TaskKind,
    /// How many [default: 10000 true, 100000 noop, 1000 sleep, 200 bag]
    #[arg(short, value_name = "N", allow_hyphen_values = true)]
    pub(crate) n: Option<String>,
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How many workers [default: 2]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) workers: Option<String>,
    /// How many slots each of them has [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) slots: Option<String>,
    /// How many processes xargs runs at once, with which it is compared [default: as many as all slots]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) xargs: Option<String>,
    /// How often to measure [default: 3, 50 if there are few tasks, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum TaskKind {
    /// Nothing, inside the workers; each task is submitted as a job of its own
    Noop,
    /// The program /bin/true, as a process
    #[default]
    True,
    /// Sleeps of 20 ms
    Sleep,
    /// Sleeps of very different lengths, always the same ones
    Bag,
}

impl TaskKind {
    /// As people write it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::True => "true",
            Self::Sleep => "sleep",
            Self::Bag => "bag",
        }
    }

    /// How many of them say something.
    pub(crate) const fn usual_count(self) -> u64 {
        match self {
            Self::Noop => 100_000,
            Self::True => 10_000,
            Self::Sleep => 1000,
            Self::Bag => 200,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RescueArgs {
    /// What happens
    #[arg(long, value_enum, default_value_t, value_name = "FAULT")]
    pub(crate) fault: RescueFault,
    /// How often to measure [default: 10, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum RescueFault {
    /// A worker dies that has a task
    #[default]
    WorkerKill,
    /// It keeps its connections and says nothing
    WorkerFreeze,
    /// The leader dies, and all workers live
    LeaderKill,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct QueueArgs {
    /// How many tasks [default: 100000]
    #[arg(short, value_name = "N", allow_hyphen_values = true)]
    pub(crate) n: Option<String>,
    /// A line of 40 bytes for each task, instead of a number
    #[arg(long)]
    pub(crate) each_line: bool,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct LendingArgs {
    /// How many tasks [default: 160]
    #[arg(short, value_name = "N", allow_hyphen_values = true)]
    pub(crate) n: Option<String>,
    /// How long each takes [default: 500]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) task_ms: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct RingArgs {
    /// How many nodes [default: 100, or as many as the file says]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) nodes: Option<String>,
    /// What carries the messages: a broker, or sockets of this host
    #[arg(long, value_enum, default_value_t = Transport::Tcp, value_name = "WHICH")]
    pub(crate) transport: Transport,
    /// A ring's configuration, a YAML file, which says where the broker is [default: guest at localhost:5672]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How often to measure [default: 20, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct BurnArgs {
    /// End when this process ends
    #[arg(long, value_name = "PID")]
    pub(crate) parent: i32,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct FailoverArgs {
    /// How many servers [default: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) servers: Option<String>,
    /// How a leader is named
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub(crate) algorithm: Algorithm,
    /// What happens to the leader: it dies, or it keeps its connections and says nothing
    #[arg(long, value_enum, default_value_t, value_name = "FAULT")]
    pub(crate) fault: Fault,
    /// Make the links between servers this slow, one way [default: as fast as this host is]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) delay: Option<String>,
    /// How often to measure [default: 20, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Fault {
    #[default]
    Kill,
    Freeze,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct SimulateArgs {
    /// Let every node of the ring start, not just one
    #[arg(long)]
    pub(crate) all_initiators: bool,
    /// How many nodes the ring has [default: 1000000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) nodes: Option<String>,
    /// How often to measure [default: 3, fewer if they take too long]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) runs: Option<String>,
}
