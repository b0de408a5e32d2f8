//! The secrets that this process knows, by the server that asks for each: so no request needs to be given one, and none
//! reaches a server that it is not meant for.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use primus_shapes::token::Token;

/// How many servers are remembered: more than any command talks to.
const KNOWN_MAX: usize = 10_000;

static KNOWN: Mutex<BTreeMap<String, Token>> = Mutex::new(BTreeMap::new());

/// From now on the server at this address, `host:port` or a URL, is shown this.
pub fn know(address: &str, token: &Token) {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() < KNOWN_MAX {
        known.insert(canonical(address), token.clone());
    }
}

/// What the server at this address is shown.
pub fn of(address: &str) -> Option<Token> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&canonical(address)).cloned()
}

/// A server that was asked knows where another one of its farm is: that one gets the same.
pub fn share(from: &str, to: &str) {
    if let (Some(token), None) = (of(from), of(to)) {
        know(to, &token);
    }
}

/// One spelling for each address.
fn canonical(address: &str) -> String {
    let place = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    match place.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => place.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_shown_its_own_secret_and_no_other() {
        let token = Token::fresh().unwrap();
        know("http://127.0.0.1:1", &token);
        assert_eq!(of("127.0.0.1:1"), Some(token.clone()));
        assert_eq!(of("localhost:1"), Some(token.clone()));
        assert_eq!(of("127.0.0.1:2"), None);
        share("127.0.0.1:1", "127.0.0.1:3");
        assert_eq!(of("127.0.0.1:3"), Some(token));
        share("127.0.0.1:2", "127.0.0.1:4");
        assert_eq!(of("127.0.0.1:4"), None);
    }
}
