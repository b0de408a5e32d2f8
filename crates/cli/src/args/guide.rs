//! The texts that explain the command line: the short guide, the list of commands, and examples.

/// What primus is, in one line.
pub(super) const ABOUT: &str = "a task farm that governs itself, with elections you can watch, attack and trust";

/// The layout of the main help text: commands under headings, which clap itself cannot do.
pub(super) const TEMPLATE: &str = "{about}\n\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}";

/// All commands, by what people want to do.
pub(super) const COMMANDS: &str = "\
try:
  demo        a tour of elections that checks what it shows
  simulate    run elections, servers and farms in virtual time, and judge them
  up          start a farm of real processes on this host
  chaos       kill, freeze, cut off and overload its servers and workers

use:
  run         run a command somewhere in the farm, and show what it prints
  submit      submit a command, once or many times
  jobs        list jobs
  job         show jobs
  tasks       list tasks
  task        show tasks
  explain     say why a task waits, why a server leads, or where a lent worker is
  logs        show what tasks printed
  wait        wait until jobs or tasks have ended
  cancel      end jobs or tasks that are not wanted any more
  retry       run tasks again that ended badly
  lead        run a command on exactly one host at a time
  kv          keep small values that all servers agree on

run:
  init        make the file with which a farm begins
  server      run one server of a cluster
  worker      run one worker of a farm
  ring        run a ring through RabbitMQ or over sockets
  config      show or check a server's configuration
  completions print a script that completes commands in your shell
  man         write the manual pages

operate:
  status      show who leads, and how all servers are
  leader      say who leads
  groups      show who leads further groups
  events      show what has happened
  elect       hold an election
  resign      let the leader step down
  transfer    let another server lead
  workers     list workers, or show some
  drain       give workers nothing new
  farms       show the farm and its neighbours
  loans       show which workers are away from home
  lend        lend idle workers to a neighbour
  recall      call workers home that are lent
  token       make, list and revoke tokens with which others may join
  cert        show and rotate the farm's authority, and revoke certificates
  neighbours  trust other farms
  bench       measure how fast primus is here

`primus COMMAND --help` explains a command and ends with examples.";

pub(super) const DEMO: &str = "\
It simulates elections, then starts three real servers on this host, kills, freezes and cuts off their leader, and
ends them. Then it starts two farms and floods one, which borrows the workers of the other and gives them back. It ends
with exit code 0 only if everything that it claims was so.

Examples:
  primus demo
  primus demo -o json";

pub(super) const UP: &str = "\
It prints who leads and stays until it is interrupted; then it stops all servers and workers. None of them survives it.
Two servers tolerate no loss: neither is a majority. The workers run whatever they are given. Several farms are neighbours:
each borrows idle workers of the others when it has too much to do; --farm NAME says which one a command means.
Only you can use its API: the servers ask for a secret, new at every start, which your commands find by themselves. Other programs
show the file that it prints: curl -H @DIR/api.token http://127.0.0.1:PORT/v1/status.

Examples:
  primus up
  primus up --workers 4 --slots 2
  primus up --servers 5 --rank id
  primus up --farms 2 --servers 3 --workers 4
  primus up --algorithm ring
  primus up --config docs/presets/load-aware.toml
  primus up --group router=bully:address --group scrapper=ring
  primus up --dir ./farm
  primus up --for 10s -o json";

pub(super) const RUN: &str = "\
It ends with the command's own exit code, with 128+n if signal n ended it, and with 125 if primus itself could not do
it. Ctrl-C cancels the command. A leader that dies meanwhile is nothing but a pause.

Examples:
  primus run -- echo hello
  primus run --timeout 10s --retries 3 -- ./job.sh input.csv
  primus run --stdin words.txt -- sort";

pub(super) const SUBMIT: &str = "\
{} in an argument becomes the number or the line; nothing else is expanded, and no shell is involved. A task finds
PRIMUS_TASK, PRIMUS_INDEX, PRIMUS_ATTEMPT and PRIMUS_TERM in its environment.

Examples:
  primus submit -- ./job.sh
  primus submit --array 1-1000 --wait -- ./render.sh {}
  job=$(primus submit --quiet -- ./job.sh)
  ls *.png | primus submit --each-line - --retries 2 -- convert {} {}.jpg
  primus submit --no-rerun --key invoice-2026-01 -- ./charge.sh";

pub(super) const LEAD: &str = "\
Start it on every host that could run the command: one of them does, the others wait. Should that one die, freeze or be cut
off, its command is killed in time, and only then another host starts it. PRIMUS_TERM in the command's environment grows
with every start, so a program that is shown an older number can refuse it.

It ends with the command's own exit code, with 128+n if signal n ended it, and with 125 if primus itself could not do it.
SIGTERM ends the command first, then lets the next host begin, at once.

Examples:
  primus lead -- ./scheduler
  primus lead --config server.toml -- ./scheduler --port 8080
  primus lead --group cron --rank load --restart on-failure -- /usr/local/bin/cron -f
  primus lead --group license --holders 3 --api http://10.0.0.5:7461 -- ./render.sh";

pub(super) const JOBS: &str = "\
Examples:
  primus jobs
  primus jobs --state queued,running --watch
  primus jobs --name render --all
  primus jobs --limit 100 -o json
  primus jobs --state failed --quiet";

pub(super) const JOB: &str = "\
Examples:
  primus job 12
  primus job last
  primus job 12 -o json
  primus job 3-5,12";

pub(super) const TASKS: &str = "\
Examples:
  primus tasks 12
  primus tasks last --watch
  primus tasks --state failed
  primus tasks 12 --state failed --quiet
  primus tasks 12 --limit 1000 -o json";

pub(super) const WORKERS: &str = "\
A worker that another farm has lent stands under the farm that lent it. ALIVE is what the leader sees.

Examples:
  primus workers
  primus workers w1
  primus workers --watch
  primus workers --quiet
  primus workers -o json
  primus workers forget w1";

pub(super) const WORKERS_FORGET: &str = "\
What it runs is run elsewhere, its certificates are void, and another worker may have its name. In a farm without TLS it may
come back.

Examples:
  primus workers forget w1";

pub(super) const TOKEN: &str = "\
A token names the farm's authority, so that a joiner notices an impostor before it shows the secret.

Examples:
  primus token create --role worker
  primus token list
  primus token revoke 3";

pub(super) const TOKEN_CREATE: &str = "\
The farm keeps only a hash of the secret: the token is printed this once, with the places of the servers, and with the command for
the new host. As yet tokens are for workers only. In a farm that was founded without TLS there is nothing to join with a token, and it
ends with exit code 4.

Examples:
  primus token create --role worker
  primus token create --role worker --ttl 10m --uses 20
  primus token create --role worker --name w1 -o json";

pub(super) const TOKEN_LIST: &str = "\
Examples:
  primus token list
  primus token list -o json";

pub(super) const TOKEN_REVOKE: &str = "\
Who has joined with it stays: primus workers forget and primus cert revoke are for that.

Examples:
  primus token revoke 3";

pub(super) const CERT: &str = "\
Examples:
  primus cert show
  primus cert rotate
  primus cert finish
  primus cert revoke w1";

pub(super) const CERT_SHOW: &str = "\
Examples:
  primus cert show
  primus cert show -o json";

pub(super) const CERT_ROTATE: &str = "\
Nodes renew their certificates by themselves; the authority before is trusted until primus cert finish.

Examples:
  primus cert rotate";

pub(super) const CERT_FINISH: &str = "\
It is refused as long as a server, or a worker that has a link, shows a certificate of the authority before; it names them. A
worker that is away, and has not renewed its certificate by then, must join again.

Examples:
  primus cert finish";

pub(super) const CERT_REVOKE: &str = "\
Links that show such a certificate are closed. The node may get a new one; primus workers forget frees its name, too.

Examples:
  primus cert revoke 7
  primus cert revoke w1
  primus cert revoke server/2";

pub(super) const NEIGHBOURS: &str = "\
A farm that is trusted vouches for its own servers and workers, and for nothing here. Both farms must trust each other.

Examples:
  primus neighbours trust south --authority sha256:1f3a… --servers 1=10.0.1.1:7460
  primus neighbours list
  primus neighbours forget south";

pub(super) const NEIGHBOURS_TRUST: &str = "\
On the other farm, primus neighbours list says the hash of its authority. One of its servers has to show the certificate
with that hash now; otherwise nothing is stored, and the exit code is 5. From then on both farms can lend each other workers,
if the other one trusts this one, too.

Examples:
  primus neighbours trust south --authority sha256:1f3a… --servers 1=10.0.1.1:7460,2=10.0.1.2:7460
  primus neighbours trust south --authority sha256:1f3a… --servers 1=10.0.1.1:7460 --certificate south.pem";

pub(super) const NEIGHBOURS_LIST: &str = "\
A farm is trusted because of primus neighbours trust, or because the configuration of the leader names it (file).

Examples:
  primus neighbours list
  primus neighbours list --quiet";

pub(super) const NEIGHBOURS_FORGET: &str = "\
Its workers go home, and those that it has are called back.

Examples:
  primus neighbours forget south";

pub(super) const COMPLETIONS: &str = "\
Examples:
  primus completions bash > /etc/bash_completion.d/primus
  primus completions zsh > ~/.zfunc/_primus
  primus completions fish > ~/.config/fish/completions/primus.fish";

pub(super) const MAN: &str = "\
Examples:
  primus man --dir ./man
  primus man | man -l -";

pub(super) const TASK: &str = "\
Examples:
  primus task 12.7
  primus task last
  primus task 12.2-9
  primus task 12 -o json";

pub(super) const EXPLAIN: &str = "\
Of the leader it says who that is, since when and why, and what would change it. Without one it ends with exit code 4.

Examples:
  primus explain 12.7
  primus explain last
  primus explain leader
  primus explain leader -o json
  primus explain loan 3";

pub(super) const LOGS: &str = "\
Of a job it shows all tasks, one after the other.

Examples:
  primus logs 12.7
  primus logs 12
  primus logs last --follow
  primus logs 12.2-9 --tail 10
  primus logs 12.7 --stderr";

pub(super) const WAIT: &str = "\
It ends with exit code 1 if a task did not end well, and with 124 if it waited too long. all names the jobs that have not ended.

Examples:
  primus wait 12
  primus wait last
  primus wait all
  primus wait 12 13.2 --timeout 10s";

pub(super) const CANCEL: &str = "\
What runs is ended at once, with all its processes. all names the jobs that have not ended.

Examples:
  primus cancel 12
  primus cancel last
  primus cancel 3-5
  primus cancel 12.7 12.8
  primus cancel all";

pub(super) const RETRY: &str = "\
Examples:
  primus retry 12.7
  primus retry last
  primus retry --failed 12";

pub(super) const DRAIN: &str = "\
What a worker runs goes on; it gets nothing new, also after a restart. Once it has ended what it runs, its host can be stopped.

Examples:
  primus drain w1
  primus drain w1 w2 --wait
  primus drain w1 --undo";

pub(super) const WORKER: &str = "\
A server's file says where the servers are; a worker finds its own values under [worker]:
  [worker]
  name = \"w1\"
  slots = 4
  allow = [\"./job.sh\", \"make\"]

On another host a worker joins with a token, from primus token create, and needs no file. It needs the token once, and a refusal ends
it with exit code 5. Arguments are seen by other users of the host: --join - and PRIMUS_JOIN are not.

Examples:
  primus worker --join - --name w1 --allow make
  primus worker --config cluster.toml --name w1 --slots 4
  primus worker --config cluster.toml --name w1 --beside 2   # on the host of server 2: its tasks count in that server's load
  primus worker --api http://127.0.0.1:7461 --name w2 --allow '*'
  primus worker --servers 1@10.0.0.1:7460,2@10.0.0.2:7460 --farm north --dir /var/lib/primus";

pub(super) const STATUS: &str = "\
Examples:
  primus status
  primus status --watch
  primus status -o json";

pub(super) const LEADER: &str = "\
Without a leader it ends with exit code 4.

Examples:
  primus leader
  primus leader -o json";

pub(super) const KV: &str = "\
A value is acknowledged when a majority of servers has it on disk. If no answer comes back, the outcome is unknown,
and that is said; nothing is written twice.

Examples:
  primus kv put colour blue
  primus kv get colour
  primus kv list";

pub(super) const KV_PUT: &str = "\
Examples:
  primus kv put colour blue
  primus kv put paint/colour 'light blue' --timeout 10s";

pub(super) const KV_GET: &str = "\
Examples:
  primus kv get colour
  primus kv get colour -o json";

pub(super) const KV_DELETE: &str = "\
Examples:
  primus kv delete colour";

pub(super) const KV_IMPORT: &str = "\
Lines are acknowledged in their order. If something goes wrong, it is said how many were.

Examples:
  primus kv import values.ndjson
  primus kv import values.ndjson --batch 100
  producer | primus kv import - -o json";

pub(super) const KV_LIST: &str = "\
Examples:
  primus kv list
  primus kv list paint/ -o json";

pub(super) const GROUPS: &str = "\
A group with authority none elects its leader among servers, by Bully or in a ring, without a quorum: two sides of a
partition have a leader each. Shown is what the server knows that answers; --api asks another one.

Examples:
  primus groups
  primus groups --watch
  primus groups -o json";

pub(super) const FARMS: &str = "\
Of a neighbour that has not been heard lately nothing is known. LENT and BORROWED are workers: those that this farm has lent to
it and borrowed from it; in the first line, altogether.

Examples:
  primus farms
  primus farms --watch
  primus farms --farm north -o json";

pub(super) const LOANS: &str = "\
A loan is named by the number that its lender gave it: 3 is one of this farm's own workers, 3@south is one of south's. Its
state is going, away, returning, recalled, overdue (it should be back by now) or missing (neither farm has seen it lately).

Examples:
  primus loans
  primus loans --watch
  primus loans -o json";

pub(super) const LEND: &str = "\
A worker that an operator has lent stays although the other farm is calm: until its time is over, or somebody recalls it. If no
worker is idle, or the neighbour is not heard, it ends with exit code 4.

Examples:
  primus lend --to south 2
  primus lend --to south 1 --for 10s --farm north";

pub(super) const RECALL: &str = "\
What a worker runs may take as long to end as lending.recall says; then it is stopped, and runs again. Only the farm that has
lent a worker can recall it.

Examples:
  primus recall 3
  primus recall --worker n1
  primus recall --from south
  primus recall --all";

pub(super) const EVENTS: &str = "\
Every server has its own history, with its own numbers. The steps of elections are gathered from all servers that answer, in the
order of their clocks, as stories and PRIMUS_LOG=debug tell them; with --follow from the leader alone.

Examples:
  primus events
  primus events --follow
  primus events --steps
  primus events --after 12 -o json";

pub(super) const ELECT: &str = "\
The configured algorithm runs now, whichever server is asked. If the leader ranks best, it is confirmed and leads on in its
term. If another server ranks better, leadership is transferred to it (reason operator). Servers that resigned, or from which
leadership was transferred away, stand again.

Examples:
  primus elect
  primus elect -o json
  primus elect --group router";

pub(super) const RESIGN: &str = "\
A resignation lasts: the server does not lead again because of its rank or load, nor after a restart, until the leader that
it gave way to is lost, an operator says primus elect, or leadership is transferred to it.

Examples:
  primus resign";

pub(super) const TRANSFER: &str = "\
A transfer to a server that is dead or too far behind fails, and the leader stays. A transfer lasts: the new leader is not
replaced because of its rank, and the old one stays out of elections, as after primus resign.

Examples:
  primus transfer 2";

pub(super) const CHAOS: &str = "\
It works only against a farm that primus up runs for you on this host.

Examples:
  primus chaos kill leader
  primus chaos kill w1
  primus chaos restart 3
  primus chaos partition '1,2|3'
  primus chaos delay all 75ms";

pub(super) const CHAOS_KILL: &str = "\
Examples:
  primus chaos kill leader
  primus chaos kill 2";

pub(super) const CHAOS_FREEZE: &str = "\
Examples:
  primus chaos freeze leader";

pub(super) const CHAOS_THAW: &str = "\
Examples:
  primus chaos thaw 3";

pub(super) const CHAOS_RESTART: &str = "\
Examples:
  primus chaos restart 3";

pub(super) const CHAOS_PARTITION: &str = "\
Servers and workers that are not named keep all links. Between two servers packets are dropped; on a worker's link everything waits until it
is mended, or with --close the link is closed, and the worker is turned away whenever it calls. With --from-farm the servers
neither hear nor answer those of a neighbour; its workers that are here, such as n1@north, are cut off like others.

Examples:
  primus chaos partition '1,2|3'
  primus chaos partition 'w1|1,2,3'
  primus chaos partition --close '1,w1|2,3'
  primus chaos partition --farm south --from-farm north 'n1@north|1,2,3'";

pub(super) const CHAOS_DELAY: &str = "\
Everything on these links takes longer, in order: messages, the handshake, and the news that a process is gone. A round trip
takes twice the time. Servers measure it and wait accordingly; primus status shows what is delayed, and round_trip_ms in
primus status -o json what they measure. A server that starts again is as fast as before until it is told again.

Examples:
  primus chaos delay 1,2 75ms
  primus chaos delay all 25ms
  primus chaos delay all 0ms";

pub(super) const CHAOS_HEAL: &str = "\
Links that were cut are mended, and links that were delayed are as fast as before.

Examples:
  primus chaos heal";

pub(super) const CHAOS_LOAD: &str = "\
Examples:
  primus chaos load 2 85
  primus chaos load leader 95
  primus chaos load 2 none";

pub(super) const INIT: &str = "\
The file holds the authority that names servers and workers of the farm, with its key. A person who has it can make
servers, so it is for its owner alone. Copy it to all hosts of the farm over a safe way, and name it in cluster.founding. Each node makes
a key and a certificate of its own from it, in tls in its directory, and needs the file no more.

A farm is founded once, as soon as all servers of cluster.servers run. Until then each says on stderr what it waits for, and answers
/readyz with the same sentence. With --alone one server founds the farm without the others, for good: they cannot become members
later. If it waits for others of its list, it ends then and is to be started again. A list of one server on loopback needs no such
word. With --secure the links of an old farm are encrypted from its next start
on: stop all its servers, say so for the directory of each, and start all with one founding file.

Examples:
  primus init --farm north
  primus init --farm north --servers 1=10.0.0.1:7460,2=10.0.0.2:7460,3=10.0.0.3:7460 --out north.founding
  primus server --config north-1.toml --founding north.founding
  primus init --alone /var/lib/primus/north-1
  primus init --secure /var/lib/primus/north-1";

pub(super) const SERVER: &str = "\
A file looks like this; the servers of a cluster differ only in id:
  [server]
  id = 1
  farm = \"north\"
  [cluster]
  servers = [
    { id = 1, address = \"127.0.0.1:7460\", api = \"127.0.0.1:7461\" },
    { id = 2, address = \"127.0.0.1:7470\", api = \"127.0.0.1:7471\" },
    { id = 3, address = \"127.0.0.1:7480\", api = \"127.0.0.1:7481\" },
  ]
Without api.token_file (a file with a secret that only you can read) every user of this host can run commands through its API.
The servers found their farm when all of them run for the first time; see primus init. Later the members of that founding count,
and the list says where they are.
It ends with exit code 6 if it must not be started again as it is: its data are damaged or older than they were, or a part of
it has failed.

Examples:
  primus server --config server-1.toml
  primus server --config server-1.toml --token-file /etc/primus/token
  primus server --config cluster.toml --id 2 --heartbeat 50ms
  PRIMUS_SERVER_ID=3 primus server --config cluster.toml";

pub(super) const CONFIG: &str = "\
Flags come before PRIMUS_… variables, those before the file, that before defaults.

Examples:
  primus config show
  primus config check --config server-1.toml";

pub(super) const CONFIG_SHOW: &str = "\
Examples:
  primus config show
  primus config show --config server-1.toml --heartbeat 50ms
  primus config show --config server-1.toml -o json";

pub(super) const CONFIG_CHECK: &str = "\
With mistakes it ends with exit code 2. Nothing is started.

Examples:
  primus config check --config server-1.toml
  primus config check --config server-1.toml -o json";

pub(super) const COMPANION: &str = "\
Every worker starts one, with a socket as its standard input. It kills the worker's tasks when the worker dies or hangs.

Examples:
  primus companion --help";

/// What somebody sees who types `primus` and nothing else.
pub(crate) fn guide() -> String {
    format!(
        "primus {}: {ABOUT}

  primus demo                                       a tour that checks what it shows
  primus simulate ring --ids 5,3,7,1,4 --start 1    one election, line by line
  primus simulate bully --nodes 1,2,3,4,5 --crash 5 --seeds 10000
                                                    ten thousand elections, judged
  primus up                                         a farm of real processes, here
  primus up --farms 2                               two, which lend each other workers
  primus run -- echo hello                          a command, somewhere in it
  primus chaos kill leader                          and what it is good for
  primus --help                                     all commands
",
        env!("CARGO_PKG_VERSION"),
    )
}
