//! End to end: join tokens, certificates, neighbours and forgotten workers, on a farm that was founded without TLS.

mod common;

use common::eventually;
use common::place::Place;
use serde_json::json;

const HASH: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[test]
fn a_farm_without_an_authority_makes_no_tokens_and_says_why() {
    let place = Place::new();
    let _farm = place.up("--insecure --servers 1 --workers 0");
    for line in ["token create --role worker", "cert rotate", "cert finish"] {
        let output = place.primus(line);
        let said = &output.stderr;
        assert_eq!(output.code, Some(4), "{line}: {said}");
        assert!(said.contains("this farm has no authority: it was founded without TLS"), "{line}: {said}");
    }
    assert_eq!(place.json("token list"), json!({"items": [], "next": null}));
    assert_eq!(place.json("cert show"), json!({"authorities": [], "revoked": []}));
    for (line, code, words) in [
        ("token revoke 3", 1, "the token does not exist"),
        ("token create --role worker --ttl 0s", 2, "--ttl is '0s'"),
        ("token create --role worker --uses 0", 2, "--uses"),
        ("token create --role worker --uses 2 --name w1", 2, "a name is for one worker"),
        ("token create --role server", 2, "tokens are for workers only as yet, and the role is server"),
        ("token create --role boss", 2, "the role is \"boss\""),
        ("cert revoke w9", 1, "worker 'w9' does not exist"),
        ("cert revoke server/9", 1, "server 9 does not exist"),
        ("workers forget w9", 1, "worker 'w9' does not exist"),
        ("neighbours forget south", 1, "farm 'south' is not trusted"),
    ] {
        let output = place.primus(line);
        let said = &output.stderr;
        assert_eq!(output.code, Some(code), "{line}: {said}");
        assert!(said.contains(words), "{line}: {said}");
    }
}

#[test]
fn a_certificate_is_revoked_and_a_neighbour_is_trusted_until_it_is_forgotten() {
    let place = Place::new();
    let _farm = place.up("--insecure --servers 1 --workers 0");
    assert_eq!(place.json("cert revoke 7"), json!({"revoked": "certificate 7"}));
    assert_eq!(place.json("cert revoke server/1"), json!({"revoked": "server 1"}));
    let revoked = json!([{"what": "certificate 7", "up_to": 7}, {"what": "server 1", "up_to": 0}]);
    assert_eq!(place.json("cert show")["revoked"], revoked);
    let servers = "1=10.0.1.1:7460,2=south-2.example:7460";
    let trusted = place.json(&format!("neighbours trust south --authority {HASH} --servers {servers}"));
    let expected = json!({"name": "south", "origin": "trusted", "authority": HASH, "certified": false,
        "servers": ["1=10.0.1.1:7460", "2=south-2.example:7460"]});
    assert_eq!(trusted, expected);
    let listed = place.json("neighbours list")["items"].as_array().cloned().expect("it is a list");
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(listed[0]["origin"] == "itself" && listed[1] == expected, "{listed:?}");
    assert_eq!(place.json("neighbours forget south"), json!({"name": "south", "configured": false}));
    assert_eq!(place.json("neighbours list")["items"].as_array().map(Vec::len), Some(1));
    let wrong = place.primus(&format!("neighbours trust south --authority {HASH} --servers nowhere"));
    assert_eq!(wrong.code, Some(2));
}

#[test]
fn what_a_forgotten_worker_ran_runs_elsewhere_at_once() {
    let place = Place::new();
    let _farm = place.up("--insecure --servers 3 --workers 2 --slots 1");
    place.primus("submit -- sleep 300");
    let worker = || {
        let task = place.json("task 1.1");
        task["worker"].as_str().filter(|_| task["state"] == "running").map(str::to_owned)
    };
    let first = eventually("a worker that runs the task", worker);
    assert_eq!(place.json(&format!("workers forget {first}")), json!({"worker": first}));
    eventually("another worker that runs it", || worker().filter(|now| *now != first));
    // Without a certificate nothing keeps it from coming back, with nothing in its hands.
    eventually("the worker, idle", || {
        let workers = place.json("workers");
        let found =
            workers["items"].as_array().and_then(|all| all.iter().find(|one| one["name"] == *first).cloned());
        found.filter(|found| found["alive"] == true && found["running"] == 0 && found["key"].is_null())
    });
    place.primus("cancel 1");
}
