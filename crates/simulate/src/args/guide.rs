//! The texts that explain `primus simulate`, with examples.

/// What `primus simulate` does, by example.
pub const SIMULATE: &str = "\
Examples:
  primus simulate ring --ids 5,3,7,1,4 --start 1
  primus simulate bully --nodes 1,2,3,4,5 --crash 5
  primus simulate cluster --servers 5 --faults all --seeds 1000
  primus simulate farm --faults crashes --seed 7
  primus simulate lending --farms 2 --faults all --seeds 100
  primus simulate leases --faults all --seed 7
  primus simulate assignment --heartbeat 2s
  primus simulate day --farms 5 --load bursts --day 1h";

pub(super) const RING: &str = "\
Times are written 250ms, 2s or 1h. A run that violates a property ends with exit code 1.

Examples:
  primus simulate ring --ids 5,3,7,1,4 --start 1
  primus simulate ring --ids 5,3,7,1,4 --start all --winner highest -o mermaid
  primus simulate ring --ids 5,3,7,1,4 --start 1,3 --crash 4@30ms
  primus simulate ring --ids 5,3,7,1,4 --faults all --seeds 10000";

pub(super) const BULLY: &str = "\
Times are written 250ms, 2s or 1h. A run that violates a property ends with exit code 1.

Examples:
  primus simulate bully --nodes 1,2,3,4,5 --crash 5 --start 2
  primus simulate bully --nodes 1,2,3 --rank load --loads 20,43,7
  primus simulate bully --nodes 172.18.0.9,172.18.0.10 --rank address
  primus simulate bully --nodes 1,2,3 --asking one-by-one --crash 3 --unnoticed --start 1
  primus simulate bully --nodes 1,2,3 --partition '1,2|3@2s..5s' -o mermaid
  primus simulate bully --nodes 1,2,3,4,5 --crash 5 --seeds 10000";

pub(super) const CLUSTER: &str = "\
Servers run as in reality, Raft engine and all; hosts, links, disks and time are simulated. Clients write keys, read them, and \
submit jobs that nothing runs. A run that violates a property ends with exit code 1, and the same seed gives it again.

Examples:
  primus simulate cluster --servers 3
  primus simulate cluster --servers 5 --faults all --seed 7
  primus simulate cluster --servers 3 --faults crashes --seed 7 -o mermaid
  primus simulate cluster --servers 5 --faults crashes,disks,partitions --seeds 1000
  primus simulate cluster --servers 5 --faults all --seeds 10000 -o json";

pub(super) const FARM: &str = "\
Servers and workers run as in reality; hosts, links, disks and time are simulated. Jobs are submitted, and some of them are \
cancelled or wanted again. When the faults have ended, every task must come to its end. A run that violates a property ends \
with exit code 1, and the same seed gives it again.

Examples:
  primus simulate farm
  primus simulate farm --workers 2 --faults crashes --seed 7
  primus simulate farm --servers 5 --workers 6 --faults all --seeds 300
  primus simulate farm --seed 7 -o mermaid";

pub(super) const LENDING: &str = "\
Servers and workers run as in reality; hosts, links, disks and time are simulated. Bursts of tasks move from farm to farm, and \
operators lend and recall. When the faults have ended, every task and every loan must come to its end, and a farm that is \
flooded then must get help. A run that violates a property ends with exit code 1, and the same seed gives it again.

Examples:
  primus simulate lending --farms 2
  primus simulate lending --farms 2 --faults partitions,crashes --seed 7
  primus simulate lending --farms 3 --faults all --seeds 100
  primus simulate lending --farms 2 --seed 7 -o mermaid";

pub(super) const LEASES: &str = "\
Servers run as in reality, and so do guards, which run something only while they hold a group; hosts, links, disks and time are \
simulated, and every clock runs wrong. No group may be held by more guards at once than its rules allow. A run that violates a \
property ends with exit code 1, and the same seed gives it again.

Examples:
  primus simulate leases
  primus simulate leases --guards 3 --groups 1 --faults pauses --seed 7
  primus simulate leases --servers 5 --faults all --seeds 1000
  primus simulate leases --faults crashes --seed 7 -o mermaid";

pub(super) const ASSIGNMENT: &str = "\
Tasks arrive at random and go to workers by the rules that a leader can be configured with (farm.assignment): to one that has \
room for them, at once or in advance. It knows what it handed out; of the workers' loads it knows what their last heartbeats \
said. Every rule gets the same tasks.

Examples:
  primus simulate assignment
  primus simulate assignment --heartbeat 50ms --load 90
  primus simulate assignment --workers 4 --slots 8 --tasks 100000 --seed 7 -o json";

pub(super) const DAY: &str = "\
Farms lend by the rules of the real leader; [lending] of a server's file and --set change them. Nothing goes wrong. A queue is \
what waits for a slot, as an average over the day, in all but the worst twentieth of it, and at most; a farm's utilisation is how \
much of its own workers' slots was in use, wherever they worked. If a worker changes farms more than once within lending.stay, it \
ends with exit code 1.

Examples:
  primus simulate day
  primus simulate day --farms 5 --load bursts --turn 10s --task 500ms --day 1h
  primus simulate day --load one --busy 80 --set lending.order=idle
  primus simulate day --config server.toml --seed 7 -o json";
