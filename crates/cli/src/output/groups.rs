//! Groups as people see them.

use primus_terminal::table::table;
use primus_terminal::values::plain;
use serde_json::Value;

const COLUMNS: [&str; 5] = ["GROUP", "AUTHORITY", "LEADER", "TERM", "CANDIDATES"];
const NONE: &str =
    "no groups yet; primus lead --group NAME -- COMMAND makes one, or [[groups]] in the servers' files\n";

/// A table of groups.
pub(crate) fn text(items: &[Value]) -> String {
    let rows: Vec<[String; 5]> = items.iter().map(row).collect();
    if rows.is_empty() { NONE.to_owned() } else { table(&COLUMNS, &rows) }
}

fn row(group: &Value) -> [String; 5] {
    let candidates = group["candidates"].as_array().into_iter().flatten().map(plain).collect::<Vec<_>>();
    let [name, authority, leader, term] = ["group", "authority", "leader", "term"].map(|key| plain(&group[key]));
    let holders = group["holders"].as_array().filter(|holders| holders.len() > 1);
    let listed =
        |key: &str| holders.map(|all| all.iter().map(|one| plain(&one[key])).collect::<Vec<_>>().join(", "));
    [name, authority, listed("name").unwrap_or(leader), listed("term").unwrap_or(term), candidates.join(", ")]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_is_a_line_and_no_group_is_a_sentence() {
        let group =
            json!({"group": "router", "authority": "none", "leader": 3, "term": null, "candidates": [1, 3]});
        assert_eq!(
            text(&[group]),
            "GROUP   AUTHORITY  LEADER  TERM  CANDIDATES\nrouter  none       3       -     1, 3\n"
        );
        assert!(text(&[]).starts_with("no groups yet; "));
    }
}
