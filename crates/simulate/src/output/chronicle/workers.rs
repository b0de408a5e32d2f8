//! What workers do: tasks, and the way to another farm and back.

use primus_core::farm::Message as Work;
use primus_core::ledger::{Report, Verdict};
use primus_core::machine::{Input, Output};
use primus_lab::node::NodeId;
use primus_lab::observer::Observer;
use primus_server::Worker;
use primus_server::worker::{Command, Happening, Message, Notice};
use primus_terminal::values::listed;

use super::{Chronicle, Weight};

impl Observer<Worker> for Chronicle {
    fn on_step(&mut self, at_us: u64, node: NodeId, input: &Input<Worker>, outputs: &[Output<Worker>]) {
        match input {
            Input::Message { from, message } => {
                if let Some(what) = self.order(message) {
                    self.says(at_us, NodeId::from(from.server), node, what);
                }
            }
            Input::Command(Command::Ended(_, report)) if self.interest.tasks => {
                self.does(at_us, node, Weight::Plain, ended(report));
            }
            _ => {}
        }
        for output in outputs {
            match output {
                Output::Notify(notice) => self.on_worker_notice(at_us, node, notice),
                Output::Send { to, message: Message::Work(Work::Ended(reports)) } if self.interest.tasks => {
                    let what = format!("done: {}", listed(reports.iter().map(|report| report.task)));
                    self.says(at_us, node, NodeId::from(to.server), what);
                }
                _ => {}
            }
        }
    }
}

impl Chronicle {
    fn on_worker_notice(&mut self, at_us: u64, node: NodeId, notice: &Notice) {
        let what = match notice {
            Notice::Start(_, assignment) if self.interest.tasks => format!("starts task {}", assignment.held.task),
            Notice::Kill(_, held) if self.interest.tasks => format!("stops task {}", held.task),
            Notice::Happened(Happening::Lent(farm, loan)) => format!("works for {farm} now, under loan {loan}"),
            Notice::Happened(Happening::Home(loan)) => format!("is home again after loan {loan}"),
            Notice::Happened(Happening::CannotGo(farm, reason)) => {
                return self.does(at_us, node, Weight::Warning, format!("cannot work for {farm}: {reason}"));
            }
            _ => return,
        };
        self.does(at_us, node, Weight::Plain, what);
    }

    /// What a server wants of a worker, if that is worth telling.
    fn order(&self, message: &Message) -> Option<String> {
        match message {
            Message::Call(word, _) => Some(word.to_string()),
            Message::Work(Work::Run(_, assignments)) if self.interest.tasks => {
                Some(format!("run {}", listed(assignments.iter().map(|assignment| assignment.held.task))))
            }
            Message::Work(Work::Stop(_, held)) if self.interest.tasks => {
                Some(format!("stop {}", listed(held.iter().map(|held| held.task))))
            }
            _ => None,
        }
    }
}

fn ended(report: &Report) -> String {
    let task = report.task;
    match &report.outcome.verdict {
        Verdict::Exited(0) => format!("has done task {task}"),
        Verdict::Exited(code) => format!("has done task {task}, which failed with {code}"),
        Verdict::Signalled(signal) => format!("has done task {task}, which signal {signal} ended"),
        Verdict::TimedOut => format!("has ended task {task}, which took too long"),
        Verdict::Refused(reason) => format!("cannot start task {task}: {reason}"),
        Verdict::Lost => format!("has lost task {task}"),
    }
}
