//! The texts that explain `primus bench`, and examples.

/// Examples of `primus bench`.
pub const BENCH: &str = "\
Examples:
  primus bench simulate
  primus bench failover
  primus bench failover --servers 5 --fault freeze -o json
  primus bench log
  primus bench lending
  primus bench stability --minutes 10 --busy";

pub(crate) const FAILOVER: &str = "\
It starts a farm of its own, real processes on this host that write to its disk, and ends it. A run's figure is the
time from the signal to the first write that a surviving server acknowledges. After a freeze it is also measured how
long the old leader, once it goes on, still believes that it leads.
After a kill, runs above 30 ms are listed: how long this host paused meanwhile, and how long the disks took to sync.
With --delay everything on the servers' links takes this much longer, one way: messages, the handshake, and the news that the
leader is gone. It is also printed how many terms each failover took, T and the round trip as the servers measure them.
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench failover
  primus bench failover --delay 75ms
  primus bench failover --servers 5
  primus bench failover --algorithm ring --servers 5
  primus bench failover --fault freeze --runs 50 -o json";

pub(crate) const TRANSFER: &str = "\
It starts a farm of its own and writes to it without pause. A run's figure is the time between the last write that the
old leader acknowledged and the first of the new one, as clients see it. Then leadership is offered to a dead server
and to a frozen one: that must fail, and the leader must stay.
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench transfer
  primus bench transfer --servers 5 --runs 50 -o json";

pub(crate) const HANDOVER: &str = "\
It starts a farm of its own, whose servers pretend to have a load, and writes to it without pause. In every run the
leader's load is raised, and it hands over by itself. A run's figure is the time between the last write that the old
leader acknowledged and the first of the new one, as clients see it. It ends with exit code 1 if leadership moved more
often than it should.
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench handover
  primus bench handover --servers 5 --runs 50 -o json";

pub(crate) const IDLE: &str = "\
It starts farms of its own and leaves them alone. A run is one second, its figure the processor time that all servers
took in it together: 10 ms are 1 % of one processor. Messages are counted for 3, 5, 9 and 25 servers without workers.
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench idle
  primus bench idle --servers 3 --workers 300
  primus bench idle --servers 5 -o json";

pub(crate) const LOG: &str = "\
It starts a farm of its own and writes records of 100 bytes as primus kv import does, in batches and one by one. A run's
figure is the time that all records of that run took. How often the disk itself can sync is measured beside it.
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench log
  primus bench log -n 2000000 --runs 10 -o json";

pub(crate) const STABILITY: &str = "\
It starts a farm of its own and leaves it alone. There must be no other leader meanwhile; if there is, it ends with exit
code 1. The figures are the longest turns of the servers' control loops.

Examples:
  primus bench stability
  primus bench stability --minutes 10 --busy -o json";

pub(crate) const TASKS: &str = "\
It starts a farm of its own, submits tasks and waits for the last result; everything is replicated and on disk as always. The
ratio tells how it compares: for processes with xargs, measured before, between and after; for sleeps with slots that are
never idle; for the bag with a perfect list scheduler, for which more than 1 is worse.

Examples:
  primus bench tasks
  primus bench tasks --kind true --workers 1 --slots 2 -o json
  primus bench tasks --kind true -n 1
  primus bench tasks --kind noop -n 100000
  primus bench tasks --workers 300 -n 20000 --xargs 2";

pub(crate) const RESCUE: &str = "\
It starts a farm of its own with two workers. A worker that has a task is killed or frozen, and the task must begin on the
other one; or the leader is killed while many short tasks run, and the next leader must hand out another one.

Examples:
  primus bench rescue
  primus bench rescue --fault leader-kill --runs 20 -o json";

pub(crate) const QUEUE: &str = "\
It starts a farm of its own, submits one job of many tasks, lets half of them run and reads how much memory the leader has
taken for each that waits. Then it writes until every server takes a snapshot, and tells the longest turn of a control loop.

Examples:
  primus bench queue
  primus bench queue -n 1000000 --each-line -o json";

pub(crate) const LENDING: &str = "\
It floods a farm with tasks that sleep, first one that is alone, then one with an idle neighbour; each has three servers and
four workers with one slot. Told is how much sooner the second is done, how long it takes from saturated to the first task on
a borrowed worker, and from calm until everybody is home, as both farms' ledgers and histories say. It ends with exit code 1 if
a task was lost or began twice.
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench lending
  primus bench lending -n 400 --task-ms 200 -o json";

pub(crate) const RING: &str = "\
All nodes run in this process, each with a connection or a socket of its own; a run's figure is the time that an election
took. It must take exactly as many messages as the simulator counts for the same ids.
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench ring
  primus bench ring --nodes 100 --transport amqp --config ring.yaml
  primus bench ring --nodes 1000 --runs 5 -o json";

pub(crate) const LEAD: &str = "\
Three servers, a primus lead beside each, and a command that writes down every millisecond that it is alive. Everything is
computed from those lines. It ends with exit code 1 if two ran at once.
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench lead
  primus bench lead --fault freeze --victim both --manner setsid --runs 20 -o json
  primus bench lead --fault release --lease 300ms";

pub(crate) const GROUPS: &str = "\
Three servers and real candidates, each of which wants every group; one of them is killed. A run is a group that it held.
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench groups
  primus bench groups --groups 5000 --candidates 3 -o json";

pub(crate) const HOLD: &str = "\
Examples:
  primus bench hold --help";

pub(crate) const PRESSURE: &str = "\
For each load it starts a farm of its own with three servers and two workers, and a guarded command (primus lead --group). Beside
the load it asks every server again and again, over a new connection each time: a put, a get, the leader, the jobs. A row tells
how often the leader changed, whether the guarded command ended, how slow those other answers were and how many failed, the
longest turn of a control loop, and how much memory each server took above what it had before the load.
The last column tells whether the aims are met: no other leader, the guarded command runs on, every other request is answered;
for lists and cancels each within 200 ms; for the others at most 256 MiB above.
All loads together take about two minutes. Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench pressure
  primus bench pressure --load lists,cancels --seconds 25
  primus bench pressure --load followers --clients 600 --beside 0 -o json";

pub(crate) const ENCRYPTION: &str = "\
Two farms at the same time, one with encrypted links and one with plain ones, are measured in turn, so that a busy host slows
both. A row tells both figures, what the encrypted one is beside the plain one, and whether the aim is met.
All parts together take about three minutes. Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench encryption
  primus bench encryption --part log,tasks --runs 10
  primus bench encryption --part failover --runs 100 -o json";

pub(crate) const GUARD: &str = "\
Examples:
  primus bench guard --help";

pub(crate) const BEAT: &str = "\
Examples:
  primus bench beat --file beats";

pub(crate) const BURN: &str = "\
Examples:
  primus bench burn --parent $$";

pub(crate) const SIMULATE: &str = "\
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench simulate
  primus bench simulate --all-initiators
  primus bench simulate --nodes 10000 --runs 10 -o json";
