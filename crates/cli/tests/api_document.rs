//! End to end: a server tells what its API is like, and what it answers is held to that.

mod common;

use std::panic::catch_unwind;

use common::http::{ask, hold_to_the_document};
use common::place::Place;

#[test]
fn every_server_has_the_document_and_answers_as_it_says() {
    let place = Place::new();
    let farm = place.up("--servers 3 --workers 2");
    for api in &farm.api {
        let (status, document) = ask(*api, "GET", "/v1/openapi.json", "").expect("it answers");
        assert_eq!((status, &document), (200, &primus_api::document()));
        for path in
            document["paths"].as_object().expect("there are paths").keys().filter(|path| !path.contains('{'))
        {
            let is_read = document["paths"][path]["get"].is_object() && !["/v1/events"].contains(&path.as_str());
            // Whatever is JSON is checked where it is read.
            if is_read && path.starts_with("/v1") {
                let (status, answer) = ask(*api, "GET", path, "").expect("it answers");
                assert_eq!(status, 200, "{path}: {answer}");
            }
        }
    }
}

#[test]
fn an_answer_that_the_document_does_not_have_stops_a_test() {
    let request = b"GET /v1/leader HTTP/1.1\r\n\r\n";
    let answer = |more: &str| {
        let body = format!("{{\"farm\":\"n\",\"leader\":1,\"term\":1,\"since\":\"x\",\"reason\":\"start\"{more}}}");
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    hold_to_the_document(request, &answer(""));
    assert!(catch_unwind(|| hold_to_the_document(request, &answer(",\"colour\":\"red\""))).is_err());
}
