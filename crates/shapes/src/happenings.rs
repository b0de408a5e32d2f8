//! What happens between farms, as people read it.

use std::time::Duration;

use serde_json::Value;

use crate::values::{number, plain, time};

/// What has happened, in a sentence; nothing if the event is about something else.
pub fn happening(event: &Value) -> Option<String> {
    let [farm, worker, loan, to, from] = ["farm", "worker", "loan", "to", "from"].map(|key| plain(&event[key]));
    let (workers, why) = (workers(number(&event["count"])), plain(&event["why"]));
    let length = time(Duration::from_millis(number(&event["for_ms"]))).replace(".0 ", " ");
    Some(match event["kind"].as_str()? {
        "saturated" => format!("the farm is saturated: {} tasks wait and no slot is free", event["queued"]),
        "calm" => "the farm is calm".to_owned(),
        "loan_asked" => format!("{farm} is asked for {workers}"),
        "loan_promised" => format!("{farm} lends {workers}"),
        "loan_refused" => format!("{farm} lends nobody ({})", plain(&event["reason"])),
        "neighbour_silent" => format!("{farm} did not answer"),
        "loan_not_sent" => format!("{farm} promised a worker under loan {loan}, which did not come"),
        "loan_unknown" => format!("{farm} speaks of loan {loan}, which there is not"),
        "worker_unknown" => format!("{worker} has come from {farm}, which has not lent it"),
        "worker_cannot_go" => format!("{worker} cannot go to {farm}: see what it says itself"),
        "lent" => format!("{worker} is lent to {to} for {length} (loan {loan}, {why})"),
        "recalled" => format!("{worker} is called home from {to} (loan {loan})"),
        "loan_home" => format!("{worker} is home again from {to} (loan {loan})"),
        "loan_dead" => format!("{worker} is dead; it was lent to {to} (loan {loan})"),
        "overdue" => format!("{worker} should be back from {to} by now (loan {loan})"),
        "borrowed" => format!("{worker} works here (loan {loan} of {from}, {why})"),
        "given_back" => format!("{worker} does not work here any more (loan {loan} of {from})"),
        _ => return None,
    })
}

fn workers(count: u64) -> String {
    if count == 1 { "1 worker".to_owned() } else { format!("{count} workers") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_happens_between_farms_is_told_in_sentences() {
        let loan =
            json!({"kind": "lent", "loan": 3, "worker": "n1", "to": "south", "for_ms": 60_000, "why": "asked"});
        assert_eq!(happening(&loan).unwrap(), "n1 is lent to south for 60 s (loan 3, asked)");
        let guest = json!({"kind": "given_back", "loan": 3, "worker": "n1@north", "from": "north"});
        assert_eq!(happening(&guest).unwrap(), "n1@north does not work here any more (loan 3 of north)");
        let asked = json!({"kind": "loan_asked", "farm": "south", "count": 5});
        assert_eq!(happening(&asked).unwrap(), "south is asked for 5 workers");
        let promised = json!({"kind": "loan_promised", "farm": "south", "count": 1});
        assert_eq!(happening(&promised).unwrap(), "south lends 1 worker");
        assert_eq!(happening(&json!({"kind": "suspected"})), None);
    }
}
