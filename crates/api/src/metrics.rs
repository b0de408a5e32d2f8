//! `/metrics`: what a server counts, as Prometheus reads it.
//!
//! Written by hand: there are a dozen numbers and they all lie in two places, which is less than a recorder and an exporter
//! would have to be told.

use std::fmt::Write;

use axum::extract::State;
use primus_core::farm::foreman::Foreman;
use primus_node::handle::View;
use primus_node::meters::{Histogram, Meters, Tally};

use crate::context::Context;
use crate::values::score;

/// A page of figures.
#[derive(Debug, Default)]
struct Page(String);

pub(crate) async fn metrics(State(context): State<Context>) -> String {
    let view = context.handle.view.borrow().clone();
    let mut page = Page::default();
    page.state(&view);
    page.links(&view);
    let look = |foreman: &Foreman| (foreman.waiting(), foreman.under_way());
    if view.leader == Some(view.id)
        && let Ok((waiting, running)) = context.handle.farm.look_here(look).await
    {
        page.tasks(waiting, running);
    }
    page.counts(&view, &context.handle.meters);
    page.0
}

impl Page {
    fn state(&mut self, view: &View) {
        let leads = f64::from(u8::from(view.leader == Some(view.id)));
        self.gauge("primus_term", "The newest term that this server knows.", view.term.0 as f64);
        self.gauge("primus_leading", "1 if this server leads.", leads);
        self.gauge("primus_log_last_index", "How far the log reaches.", view.last as f64);
        self.gauge("primus_log_applied_index", "How far the log is applied.", view.applied as f64);
        let score = score(view.load.score);
        self.gauge("primus_load_score", "How loaded this server is, from 0 to 100.", score);
        let what = "How many tasks run beside this server and count in its score.";
        self.gauge("primus_load_tasks", what, f64::from(view.load.tasks));
        let longest = view.longest_turn.as_secs_f64();
        self.gauge("primus_loop_turn_longest_seconds", "The longest turn of the control loop.", longest);
    }

    /// Only the leader knows.
    fn tasks(&mut self, waiting: u64, running: u64) {
        let what = "How many tasks wait for a slot, those handed out in advance included; at the leader.";
        self.gauge("primus_tasks_waiting", what, waiting as f64);
        let what = "How many tasks run, or are being written down; at the leader.";
        self.gauge("primus_tasks_running", what, running as f64);
    }

    fn links(&mut self, view: &View) {
        let up = view.peers.values().filter(|peer| peer.is_up).count();
        self.gauge("primus_links_up", "How many peers can be written to.", up as f64);
        self.head("primus_link_up", "gauge", "1 if this peer can be written to.");
        for (peer, state) in &view.peers {
            self.line(&format!("primus_link_up{{peer=\"{}\"}}", peer.0), f64::from(u8::from(state.is_up)));
        }
        self.head("primus_round_trip_seconds", "gauge", "How long a message to this peer and back takes.");
        for (peer, state) in &view.peers {
            if let Some(us) = state.round_trip_us {
                self.line(&format!("primus_round_trip_seconds{{peer=\"{}\"}}", peer.0), us as f64 / 1e6);
            }
        }
        let silence = view.silence_us as f64 / 1e6;
        self.gauge("primus_silence_seconds", "How long the leader may be silent: T.", silence);
    }

    fn counts(&mut self, view: &View, meters: &Meters) {
        let old_terms = meters.old_terms.get();
        self.counter("primus_old_terms_total", "How often somebody showed a term that was over.", old_terms);
        self.counter("primus_suspicions_total", "How often a peer was suspected.", view.suspicions);
        let what = "How often a server began to lead, by reason.";
        self.tally("primus_leader_changes_total", "reason", what, &meters.changes);
        self.tally("primus_hooks_total", "outcome", "How many hooks ended, by how they did.", &meters.hooks);
        self.tally(
            "primus_loans_total",
            "step",
            "What the leader has seen of loans, by what it was.",
            &meters.loans,
        );
        let (lent, borrowed) = (meters.lent.get() as f64, meters.borrowed.get() as f64);
        self.gauge("primus_loans_lent", "How many workers are lent, at the leader.", lent);
        self.gauge("primus_loans_borrowed", "How many workers are borrowed, at the leader.", borrowed);
        self.counter("primus_messages_sent_total", "Messages to peers.", meters.sent.get());
        self.counter("primus_messages_received_total", "Messages from peers.", meters.received.get());
        self.counter(
            "primus_messages_refused_total",
            "Messages of peers that no server says.",
            meters.strange.get(),
        );
        let what = "How many bytes of keys, jobs and results are agreed on, about.";
        self.gauge("primus_state_bytes", what, meters.state_len.get() as f64);
        let one_if = |is_so: bool| f64::from(u8::from(is_so));
        let what = "1 if this server's disk has no room for new work.";
        self.gauge("primus_disk_full", what, one_if(meters.disk_full.get()));
        let what = "1 if nothing fits on this server's disk, so that writes wait for room.";
        self.gauge("primus_disk_stuck", what, one_if(meters.disk_stuck.get()));
        let what = "How long writes took until they were durable.";
        self.histogram("primus_fsync_seconds", what, &meters.syncs);
        let what = "How long proposals took until a majority had them on disk.";
        self.histogram("primus_commit_seconds", what, &meters.commits);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.line(name, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, value as f64);
    }

    fn tally(&mut self, name: &str, label: &str, help: &str, tally: &Tally) {
        self.head(name, "counter", help);
        for (what, count) in tally.all() {
            self.line(&format!("{name}{{{label}=\"{what}\"}}"), count as f64);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        for (bound_us, count) in histogram.cumulative() {
            let bound = bound_us as f64 / 1e6;
            self.line(&format!("{name}_bucket{{le=\"{bound}\"}}"), count as f64);
        }
        self.line(&format!("{name}_bucket{{le=\"+Inf\"}}"), histogram.count() as f64);
        self.line(&format!("{name}_sum"), histogram.sum().as_secs_f64());
        self.line(&format!("{name}_count"), histogram.count() as f64);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, value: f64) {
        _ = writeln!(self.0, "{name} {value}");
    }
}
