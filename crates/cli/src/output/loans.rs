//! Farms and loans as people see them.

use primus_terminal::table::table;
use primus_terminal::values::{number, plain};
use serde_json::Value;

const FARM_COLUMNS: [&str; 6] = ["FARM", "HEARD", "IDLE", "QUEUED", "LENT", "BORROWED"];
const LOAN_COLUMNS: [&str; 8] = ["LOAN", "WORKER", "HOME", "FARM", "SINCE", "UNTIL", "WHY", "STATE"];
const ALL_HOME: &str = "everybody is at home\n";

/// A table of farms, the one that is asked first.
pub(crate) fn farms(items: &[Value]) -> String {
    let rows: Vec<[String; 6]> = items.iter().map(farm_row).collect();
    table(&FARM_COLUMNS, &rows)
}

fn farm_row(farm: &Value) -> [String; 6] {
    let heard = match (farm["own"] == true, farm["heard"] == true) {
        (true, _) => "itself",
        (false, true) => "yes",
        (false, false) => "no",
    };
    let [name, idle, queued, lent, borrowed] =
        ["farm", "idle", "queued", "lent", "borrowed"].map(|key| plain(&farm[key]));
    [name, heard.to_owned(), idle, queued, lent, borrowed]
}

/// A table of loans.
pub(crate) fn loans(items: &[Value]) -> String {
    let row = |loan: &Value| {
        ["id", "worker", "home", "farm", "since", "until", "why", "state"].map(|key| plain(&loan[key]))
    };
    let rows: Vec<[String; 8]> = items.iter().map(row).collect();
    if rows.is_empty() { ALL_HOME.to_owned() } else { table(&LOAN_COLUMNS, &rows) }
}

/// Who has been lent.
pub(crate) fn lent(answer: &Value) -> String {
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |loan: &Value| {
        let [id, worker, farm, until] = ["id", "worker", "farm", "until"].map(|key| plain(&loan[key]));
        format!("loan {id}: {worker} goes to {farm} until {until}\n")
    };
    let lines: String = items.iter().map(line).collect();
    let asked = number(&answer["asked"]);
    let missing = asked.saturating_sub(items.len() as u64);
    let rest = if missing == 0 { String::new() } else { format!("{missing} of {asked} stay: no more are idle\n") };
    lines + &rest
}

/// Who has been called home.
pub(crate) fn recalled(answer: &Value) -> String {
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |loan: &Value| {
        let [id, worker, farm] = ["id", "worker", "farm"].map(|key| plain(&loan[key]));
        format!("loan {id}: {worker} is called home from {farm}\n")
    };
    match number(&answer["recalled"]) {
        0 => "no worker is away\n".to_owned(),
        _ => items.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn farms_stand_in_a_table() {
        let own =
            json!({"farm": "north", "own": true, "heard": true, "idle": 2, "queued": 0, "lent": 2, "borrowed": 0});
        let other = json!({"farm": "south", "own": false, "heard": false, "idle": null, "queued": null, "lent": 2, "borrowed": 0});
        let expected = "\
FARM   HEARD   IDLE  QUEUED  LENT  BORROWED
north  itself  2     0       2     0
south  no      -     -       2     0
";
        assert_eq!(farms(&[own, other]), expected);
    }

    #[test]
    fn loans_stand_in_a_table_and_begin_and_end_in_a_sentence() {
        let loan = json!({"id": "3", "worker": "n1", "home": "north", "farm": "south", "since": "S", "until": "U",
            "why": "asked", "state": "away"});
        let expected = "\
LOAN  WORKER  HOME   FARM   SINCE  UNTIL  WHY    STATE
3     n1      north  south  S      U      asked  away
";
        assert_eq!(loans(std::slice::from_ref(&loan)), expected);
        assert_eq!(loans(&[]), "everybody is at home\n");
        let begun = json!({"asked": 2, "items": [loan]});
        assert_eq!(lent(&begun), "loan 3: n1 goes to south until U\n1 of 2 stay: no more are idle\n");
        let called = json!({"recalled": 1, "items": [loan]});
        assert_eq!(recalled(&called), "loan 3: n1 is called home from south\n");
        assert_eq!(recalled(&json!({"recalled": 0, "items": []})), "no worker is away\n");
    }
}
