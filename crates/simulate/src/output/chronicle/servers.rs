//! What servers do: who leads, what is said about that, and what a farm agrees on.

use primus_core::ServerId;
use primus_core::ledger::{Effect, Ending};
use primus_core::machine::{Input, Output};
use primus_lab::node::NodeId;
use primus_lab::observer::Observer;
use primus_lab::simulate::Happening;
use primus_replica::message::Kind;
use primus_server::Server;
use primus_server::any_election::Message as Words;
use primus_server::control::{Message, Notice};
use primus_server::farm::{self, Answer, Farm};

use super::{Chronicle, Weight};
use crate::output::narration::Spoken;

impl Observer<Server> for Chronicle {
    fn on_step(&mut self, at_us: u64, node: NodeId, input: &Input<Server>, outputs: &[Output<Server>]) {
        if let Input::Message { from, message } = input
            && let Some(what) = label(message)
        {
            self.says(at_us, NodeId::from(*from), node, what);
        }
        for output in outputs {
            if let Output::Notify(notice) = output {
                self.on_control_notice(at_us, node, notice);
            }
        }
    }

    fn on_happening(&mut self, at_us: u64, happening: &Happening) {
        self.happens(at_us, happening);
    }

    fn on_loss(
        &mut self,
        at_us: u64,
        from: NodeId,
        to: NodeId,
        message: &<Server as primus_core::Machine>::Message,
    ) {
        if let Some(what) = label(message) {
            self.loses(at_us, from, to, what);
        }
    }
}

impl Observer<Farm> for Chronicle {
    fn on_step(&mut self, at_us: u64, node: NodeId, _: &Input<Farm>, outputs: &[Output<Farm>]) {
        if !self.interest.jobs {
            return;
        }
        for output in outputs {
            match output {
                Output::Notify(farm::Notice::Answer(_, Ok(Answer::Entered(effects)))) => {
                    effects.iter().for_each(|effect| self.on_entered(at_us, node, effect));
                }
                // All servers of a farm learn of loans; one tells of them.
                Output::Notify(farm::Notice::Loans(effects)) if self.leading.contains(&node) => {
                    effects.iter().for_each(|effect| self.on_loan(at_us, node, effect));
                }
                Output::Notify(farm::Notice::Happened(happening)) => {
                    let what = format!("speaks for {}: {happening}", self.names.farm_of(node));
                    self.does(at_us, node, Weight::Plain, what);
                }
                _ => {}
            }
        }
    }
}

impl Chronicle {
    fn on_control_notice(&mut self, at_us: u64, node: NodeId, notice: &Notice) {
        let host = |server: &ServerId| self.names.host(NodeId::from(*server));
        let (weight, what) = match notice {
            Notice::Leader(Some(leader), term, reason) if *leader == node.server() => {
                self.leading.insert(node);
                (Weight::Strong, format!("leads in term {} ({reason})", term.0))
            }
            Notice::Leader(..) => {
                self.leading.remove(&node);
                return;
            }
            Notice::Suspected(peer, reason) => (Weight::Plain, format!("suspects {} ({reason})", host(peer))),
            Notice::HandOver(to, reason) => (Weight::Plain, format!("is to hand over to {} ({reason})", host(to))),
            Notice::Restored(snapshot) => {
                (Weight::Plain, format!("gets the whole state up to entry {}", snapshot.index))
            }
            _ => return,
        };
        self.does(at_us, node, weight, what);
    }

    fn on_entered(&mut self, at_us: u64, node: NodeId, effect: &Effect) {
        if let Effect::Submitted { job, is_new: true } = effect {
            self.does(at_us, node, Weight::Plain, format!("takes job {job}"));
        }
    }

    fn on_loan(&mut self, at_us: u64, node: NodeId, effect: &Effect) {
        let what = match effect {
            Effect::Lent(loan) => format!("lends a worker: loan {loan} of {}", self.names.farm_of(node)),
            Effect::Recalled(loan) => format!("recalls loan {loan} of {}", self.names.farm_of(node)),
            Effect::LoanEnded { loan, lent, ending: Ending::Home } => {
                format!("has {} back from {} after loan {loan}", lent.worker, lent.to)
            }
            Effect::LoanEnded { loan, lent, ending: Ending::Dead } => {
                format!("gives {} up, which {} had under loan {loan}", lent.worker, lent.to)
            }
            Effect::Borrowed(worker) => format!("borrows {worker}"),
            Effect::GivenBack(worker, _) => format!("gives {worker} back"),
            _ => return,
        };
        self.does(at_us, node, Weight::Plain, what);
    }
}

/// How a story names what servers say about who should lead; nothing for all the rest.
fn label(message: &Message<Words>) -> Option<String> {
    match message {
        Message::Election(Words::Bully(message)) => Some(message.label()),
        Message::Election(Words::Ring(message)) if message.is_repetition() => None,
        Message::Election(Words::Ring(message)) => Some(message.label()),
        Message::Replica(message) => match (message.kind, message.reject) {
            (Kind::RequestVote, _) => Some(format!("asks for a vote in term {}", message.term)),
            (Kind::RequestVoteResponse, false) => Some(format!("votes for it in term {}", message.term)),
            (Kind::RequestVoteResponse, true) => Some(format!("refuses in term {}", message.term)),
            (Kind::TimeoutNow, _) => Some("take over now".to_owned()),
            _ => None,
        },
        Message::Change(reason) => Some(format!("another one will lead ({reason})")),
        _ => None,
    }
}
