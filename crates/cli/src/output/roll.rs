//! Who is who as people see it: join tokens, authorities, revocations, neighbours.

use primus_terminal::failure::on_one_line;
use primus_terminal::table::table;
use primus_terminal::values::plain;
use serde_json::Value;

const TOKEN_COLUMNS: [&str; 7] = ["TOKEN", "ROLE", "STATE", "NAME", "LEFT", "UNTIL", "BY"];
const NEIGHBOUR_COLUMNS: [&str; 5] = ["FARM", "ORIGIN", "AUTHORITY", "CERTIFIED", "SERVERS"];

/// A token, once, and what to do with it.
pub(crate) fn token_created(answer: &Value, name: Option<&str>) -> String {
    let [token, until] = ["token", "until"].map(|key| plain(&answer[key]));
    let name = name.map(|name| format!(" --name {name}")).unwrap_or_default();
    format!(
        "{token}\n\nit is shown this once, and good until {until}; on the new host, in an empty directory:\n  primus worker \
         --join {token}{name}\n--allow says which programs its tasks may run\n"
    )
}

/// A table of tokens.
pub(crate) fn tokens(items: &[Value]) -> String {
    let row = |token: &Value| {
        let left = format!("{} of {}", plain(&token["left"]), plain(&token["uses"]));
        let [id, role, state, name, until, by] =
            ["id", "role", "state", "name", "until", "by"].map(|key| plain(&token[key]));
        [id, role, state, name, left, until, by]
    };
    let rows: Vec<[String; 7]> = items.iter().map(row).collect();
    match rows.is_empty() {
        true => "no join tokens; primus token create --role worker makes one\n".to_owned(),
        false => table(&TOKEN_COLUMNS, &rows),
    }
}

pub(crate) fn token_revoked(id: u64) -> String {
    format!("token {id} is void; who joined with it stays\n")
}

/// Authorities, then revocations.
pub(crate) fn certs(answer: &Value) -> String {
    let list = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    let authority = |known: &Value| {
        let role = if known["signs"] == true { "signs" } else { "trusted until primus cert finish" };
        format!("authority {} {role}, good until {}\n", plain(&known["authority"]), plain(&known["until"]))
    };
    let revoked = |known: &Value| match plain(&known["what"]) {
        what if what.starts_with("certificate") => format!("revoked {what}\n"),
        what => format!("revoked {what}, certificates up to {}\n", plain(&known["up_to"])),
    };
    let authorities: String = list("authorities").iter().map(authority).collect();
    let revoked: String = list("revoked").iter().map(revoked).collect();
    let none = "this farm has no authority: it was founded without TLS\n";
    if authorities.is_empty() { none.to_owned() + &revoked } else { authorities + &revoked }
}

pub(crate) fn rotated(answer: &Value) -> String {
    let authority = plain(&answer["authority"]);
    format!("authority {authority} signs from now on; when all nodes have renewed: primus cert finish\n")
}

pub(crate) fn finished(answer: &Value) -> String {
    format!("the rotation is over: {} authority is trusted no more\n", plain(&answer["dropped"]))
}

pub(crate) fn revoked(answer: &Value) -> String {
    format!("{} is trusted no more\n", plain(&answer["revoked"]))
}

/// A table of farms that are trusted, and the one that is asked.
pub(crate) fn neighbours(items: &[Value]) -> String {
    table(&NEIGHBOUR_COLUMNS, &items.iter().map(neighbour).collect::<Vec<[String; 5]>>())
}

fn neighbour(known: &Value) -> [String; 5] {
    let certified = if known["certified"] == true { "yes" } else { "no" };
    let servers = known["servers"].as_array().into_iter().flatten().map(plain).collect::<Vec<_>>();
    let [name, origin, authority] = ["name", "origin", "authority"].map(|key| plain(&known[key]));
    let servers = if servers.is_empty() { "-".to_owned() } else { servers.join(",") };
    [name, origin, authority, certified.to_owned(), servers]
}

pub(crate) fn trusted(answer: &Value) -> String {
    let name = plain(&answer["name"]);
    format!("{name} is trusted to name its own servers and workers; {name} must trust this farm, too\n")
}

pub(crate) fn neighbour_forgotten(answer: &Value) -> String {
    let name = plain(&answer["name"]);
    match answer["configured"] == true {
        true => format!("{name} is trusted no more, but stays a neighbour: the configuration names it\n"),
        false => format!("{name} is trusted no more\n"),
    }
}

pub(crate) fn worker_forgotten(name: &str) -> String {
    format!("{} is forgotten: another worker may have its name\n", on_one_line(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_stand_in_a_table_and_a_new_one_on_a_line_of_its_own() {
        let token = json!({"id": 3, "role": "worker", "state": "good", "name": null, "uses": 5, "left": 4, "until": "U",
            "since": "S", "by": "api"});
        let expected = "\
TOKEN  ROLE    STATE  NAME  LEFT    UNTIL  BY
3      worker  good   -     4 of 5  U      api
";
        assert_eq!(tokens(&[token]), expected);
        assert!(tokens(&[]).starts_with("no join tokens"));
        let made = |name| token_created(&json!({"token": "primus-worker-…", "until": "U"}), name);
        assert!(made(None).starts_with("primus-worker-…\n\nit is shown this once, and good until U; "));
        assert!(made(None).contains("\n  primus worker --join primus-worker-…\n"));
        assert!(made(Some("w1")).contains("\n  primus worker --join primus-worker-… --name w1\n"));
    }

    #[test]
    fn authorities_and_revocations_are_sentences() {
        let answer = json!({
            "authorities": [
                {"authority": "sha256:22", "signs": true, "until": "U2"},
                {"authority": "sha256:11", "signs": false, "until": "U1"},
            ],
            "revoked": [{"what": "certificate 7", "up_to": 7}, {"what": "worker w1", "up_to": 9}],
        });
        let expected = "\
authority sha256:22 signs, good until U2
authority sha256:11 trusted until primus cert finish, good until U1
revoked certificate 7
revoked worker w1, certificates up to 9
";
        assert_eq!(certs(&answer), expected);
        let none = certs(&json!({"authorities": [], "revoked": []}));
        assert_eq!(none, "this farm has no authority: it was founded without TLS\n");
    }

    #[test]
    fn neighbours_stand_in_a_table() {
        let north =
            json!({"name": "north", "origin": "itself", "authority": null, "certified": false, "servers": []});
        let south = json!({"name": "south", "origin": "trusted", "authority": "sha256:33", "certified": true,
            "servers": ["1=a:1", "2=b:2"]});
        let expected = "\
FARM   ORIGIN   AUTHORITY  CERTIFIED  SERVERS
north  itself   -          no         -
south  trusted  sha256:33  yes        1=a:1,2=b:2
";
        assert_eq!(neighbours(&[north, south]), expected);
        let forgotten = |configured| neighbour_forgotten(&json!({"name": "south", "configured": configured}));
        assert_eq!(forgotten(false), "south is trusted no more\n");
        assert!(forgotten(true).contains("stays a neighbour"));
    }
}
