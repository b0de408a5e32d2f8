//! The texts that explain `primus ring`, with examples.

/// What the file of a ring looks like, and `primus ring` by example.
pub const RING: &str = "\
A ring's file is YAML:
  rabbitmq:
    host: localhost
    port: 5672
  ring:
    size: 5
    node_ids: [5, 3, 7, 1, 4]
  election:
    initiator_index: 1
rabbitmq may also have user, password or password_file, vhost, tls and ca_file; election a timeout. The lowest id leads.

Examples:
  primus ring setup --config ring.yaml
  primus ring node --config ring.yaml --index 2
  primus ring run --config ring.yaml --transport tcp";

pub(crate) const RING_SETUP: &str = "\
Doing it twice changes nothing.

Examples:
  primus ring setup --config ring.yaml
  primus ring setup --config ring.yaml --delete";

pub(crate) const RING_NODE: &str = "\
It tells what it does, line by line, and runs until it is interrupted. The initiator starts an election at once, the others
when they have heard of no leader for the time of a round. Without a broker it waits for it to come back.

Examples:
  primus ring node --config ring.yaml --index 2
  primus ring node --config ring.yaml --index 2 -o json";

pub(crate) const RING_RUN: &str = "\
An election that violates a property ends with exit code 1.

Examples:
  primus ring run --config ring.yaml
  primus ring run --config ring.yaml --transport tcp --start all
  primus ring run --config ring.yaml --without 4 --elections 10 -o json";

pub(crate) const RING_STATUS: &str = "\
Without a leader it ends with exit code 4.

Examples:
  primus ring status --config ring.yaml
  primus ring status --config ring.yaml -o json";

pub(crate) const RING_START: &str = "\
A node that is asleep starts; one that knows a leader starts the next round; one that stands in an election goes on with it.

Examples:
  primus ring start --config ring.yaml --index 1";
