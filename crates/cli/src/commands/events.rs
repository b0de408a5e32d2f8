//! `primus events`: what has happened, as one server saw it.
//!
//! Every server numbers its own history. The leader's is shown, because only a leader knows of loans. When the one that is
//! followed ends, the next one takes over, and what it saw earlier than the last event shown is left out.
//!
//! An election takes place at several servers, so its steps are gathered from all that answer, in the order of their clocks.

use std::time::Duration;

use primus_client::http::Response;
use primus_client::{Client, persist};
use primus_core::retry::{Fate, Retry};
use primus_node::events::Kind;
use primus_terminal::amounts::number;
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::{Format, Verdict, screen};
use serde_json::Value;

use crate::args::EventsArgs;

/// A server that lives shows itself more often than this.
const SILENCE_MAX: Duration = Duration::from_secs(40);
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long to look for another server to follow.
const SEARCH_TIME: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// Shows what there is, or stays and shows what happens.
pub(super) fn run(args: &EventsArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let after = args.after.as_deref().map_or(Ok(0), |text| number("--after", text, 0, u64::MAX))?;
    let mut client = args.place.client()?;
    client.prefer_leader();
    let mut reader = Reader { format, last_time: String::new(), known_until: String::new(), is_read: true };
    if args.follow {
        reader.follow(client, after, args.steps)?;
    } else if args.steps {
        reader.gather(&client, after)?;
    } else {
        let response = client.open(&format!("/v1/events?after={after}&follow=false"), ANSWER_TIME)?;
        reader.take(response)?;
    }
    Ok(Verdict::Held)
}

struct Reader {
    format: Format,
    /// When the last event was that was shown; times as they are written sort like times.
    last_time: String,
    /// What happened before has been told, by another server. Within one history clocks may be set back.
    known_until: String,
    is_read: bool,
}

impl Reader {
    /// The steps of all servers that answer.
    fn gather(&mut self, client: &Client, after: u64) -> Result<(), Failure> {
        let path = format!("/v1/events?after={after}&follow=false&steps=true");
        let (mut steps, mut answers) = (Vec::new(), 0);
        let mut trouble = None;
        for server in client.each() {
            match server.open(&path, ANSWER_TIME) {
                Ok(response) => {
                    answers += 1;
                    steps.extend(response.lines().map_while(Result::ok).filter_map(|line| object(&line)));
                }
                Err(failure) => trouble = Some(failure),
            }
        }
        if let Some(failure) = trouble.filter(|_| answers == 0) {
            return Err(failure.into());
        }
        let time = |step: &Value| step["time"].as_str().unwrap_or_default().to_owned();
        steps.sort_by_key(|step| (time(step), step["server"].as_u64(), step["index"].as_u64()));
        for step in &steps {
            self.show(step)?;
            if !self.is_read {
                break;
            }
        }
        Ok(())
    }

    fn follow(&mut self, mut client: Client, mut after: u64, steps: bool) -> Result<(), Failure> {
        loop {
            let path = format!("/v1/events?after={after}&steps={steps}");
            let response = persist(Retry::steady(SEARCH_TIME, PAUSE), true, || {
                let opened = client.open(&path, SILENCE_MAX);
                (if opened.is_ok() { Fate::Taken } else { Fate::NotTaken }, opened)
            });
            self.take(response?)?;
            if !self.is_read {
                return Ok(());
            }
            screen::complain("the server that was followed has ended; another one takes over");
            client.rotate();
            client.prefer_leader();
            // Its own numbers mean nothing to the next one.
            after = 0;
            self.known_until.clone_from(&self.last_time);
        }
    }

    /// Shows all events of a stream until it ends or nobody reads any more.
    fn take(&mut self, response: Response) -> Result<(), Failure> {
        for line in response.lines() {
            let Ok(line) = line else { return Ok(()) };
            if let Some(event) = object(&line) {
                self.show(&event)?;
            }
            if !self.is_read {
                return Ok(());
            }
        }
        Ok(())
    }

    fn show(&mut self, event: &Value) -> Result<(), Failure> {
        let time = event["time"].as_str().unwrap_or_default();
        // Another server's history begins with what has been told already.
        if time < self.known_until.as_str() {
            return Ok(());
        }
        self.last_time = time.to_string();
        self.is_read = self.format.show(|| text(event), event)?;
        Ok(())
    }
}

/// What a line of a stream says, if it says something.
fn object(line: &str) -> Option<Value> {
    line.strip_prefix("data:").and_then(|data| serde_json::from_str(data).ok())
}

fn text(event: &Value) -> String {
    let index = event["index"].to_string();
    let time = event["time"].as_str().unwrap_or("-");
    format!("{index:>4}  {time}  {}\n", on_one_line(&sentence(event)))
}

fn sentence(event: &Value) -> String {
    match (Kind::read(event), event["step"].as_str()) {
        (Some(kind), _) => kind.to_string(),
        (None, Some(step)) => step.to_owned(),
        (None, None) => other(event),
    }
}

/// How loaded everybody was, in the order of ids.
pub(super) fn scores(object: &Value) -> String {
    let scores = object["scores"].as_array().map(Vec::as_slice).unwrap_or_default();
    let one = |of: &Value| format!("{} at {}", of["id"], of["score"]);
    let all: Vec<String> = scores.iter().map(one).collect();
    if all.is_empty() { String::new() } else { format!(" (scores: {})", all.join(", ")) }
}

/// A kind that this version does not know: its fields, as they are.
fn other(event: &Value) -> String {
    let fields = event
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !["index", "time", "kind"].contains(&name.as_str()));
    let fields: Vec<String> = fields.map(|(name, value)| format!("{name}={value}")).collect();
    format!("{} {}", event["kind"].as_str().unwrap_or("event"), fields.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_told_in_sentences() {
        let change = json!({"index": 41, "time": "T", "kind": "leader_changed", "leader": 2, "previous": 3, "term": 8,
            "reason": "link_lost", "took_ms": 4.1});
        assert_eq!(text(&change), "  41  T  server 2 leads in term 8 (link_lost), after server 3, in 4.1 ms\n");
        let step =
            json!({"index": 7, "time": "T", "kind": "election_step", "server": 1, "step": "1: gone 3 -> nothing"});
        assert_eq!(text(&step), "   7  T  1: gone 3 -> nothing\n");
        assert_eq!(sentence(&json!({"index": 1, "kind": "eclipse", "depth": 2})), "eclipse depth=2");
    }
}
