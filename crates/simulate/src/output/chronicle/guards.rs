//! What guards do: which groups they hold, and what the leader says about that.

use primus_core::SessionId;
use primus_core::lease::guard::{Command, Notice};
use primus_core::lease::{Answer, Guard, Message, Poll};
use primus_core::machine::{Input, Output};
use primus_lab::node::NodeId;
use primus_lab::observer::Observer;
use primus_lab::setup::{Host, HostKind};
use primus_server::leases::Leases;

use super::{Chronicle, Weight};

impl Observer<Guard> for Chronicle {
    fn on_step(&mut self, at_us: u64, node: NodeId, input: &Input<Guard>, outputs: &[Output<Guard>]) {
        match input {
            Input::Command(Command::Ended(group)) => {
                self.does(at_us, node, Weight::Plain, format!("has ended what ran under {group}"));
            }
            Input::Command(Command::Leave(group)) => {
                self.does(at_us, node, Weight::Plain, format!("does not want {group} any more"));
            }
            _ => {}
        }
        for output in outputs {
            let Output::Notify(notice) = output else { continue };
            let (weight, what) = match notice {
                Notice::Granted(group, token, _) => (Weight::Strong, format!("holds {group} with token {token}")),
                Notice::Recalled(group) => (Weight::Plain, format!("is to let go of {group}")),
                Notice::Lost(group) => (Weight::Warning, format!("does not hold {group} any more")),
                Notice::Renewed(..) | Notice::Refused(..) => continue,
            };
            self.does(at_us, node, weight, what);
        }
    }
}

impl Observer<Leases> for Chronicle {
    fn on_step(&mut self, at_us: u64, node: NodeId, input: &Input<Leases>, outputs: &[Output<Leases>]) {
        if let Input::Message { from, message: Message::Poll(poll) } = input {
            self.on_poll(at_us, node, *from, poll);
        }
        for output in outputs {
            if let Output::Send { to, message: Message::Answer(answer) } = output {
                self.on_answer(at_us, node, *to, answer);
            }
        }
    }
}

impl Chronicle {
    /// Candidates are numbered like the guards that they stand for.
    fn on_poll(&mut self, at_us: u64, server: NodeId, session: SessionId, poll: &Poll) {
        if let Some(candidacy) = poll.wants.iter().flatten().next() {
            let host = Host { kind: HostKind::Guard, number: candidacy.id, ..Host::of(server) };
            self.sessions.insert(session, host.id());
        }
        let Some(guard) = self.sessions.get(&session).copied() else { return };
        for claim in &poll.ended {
            self.says(at_us, guard, server, format!("done with {}", claim.group));
        }
    }

    /// Most answers say what was said before.
    fn on_answer(&mut self, at_us: u64, server: NodeId, session: SessionId, answer: &Answer) {
        let Some(guard) = self.sessions.get(&session).copied() else { return };
        for promise in &answer.promises {
            if self.granted.insert((promise.group.clone(), promise.token)) {
                self.says(at_us, server, guard, format!("{} is yours, token {}", promise.group, promise.token));
            }
        }
        for group in &answer.recalled {
            if self.recalled.insert((session, group.clone())) {
                self.says(at_us, server, guard, format!("let go of {group}"));
            }
        }
    }
}
