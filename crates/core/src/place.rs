//! A place: where others reach a node, as a number or a name, and a port. It says what to dial, and nothing about where a
//! process listens.
//!
//! A name is only text here: the shell looks it up whenever it dials. So a host may move, and the list of servers stays
//! as it is.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::fmt;
use core::net::{Ipv6Addr, SocketAddr};
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// No name of a host is longer.
pub const HOST_LEN_MAX: usize = 253;
/// No part of it between two dots is longer.
const LABEL_LEN_MAX: usize = 63;

/// Where a node is reached: `10.0.0.1:7460`, `[::1]:7460` or `host.example:7460`. Names are in small letters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Place(At);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum At {
    Number(SocketAddr),
    Name(Arc<str>, u16),
}

impl Place {
    /// The address, if the host is a number.
    #[must_use]
    pub const fn number(&self) -> Option<SocketAddr> {
        match &self.0 {
            At::Number(address) => Some(*address),
            At::Name(..) => None,
        }
    }

    /// The host, if it is a name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            At::Number(_) => None,
            At::Name(name, _) => Some(name),
        }
    }

    /// The host alone, a number of version 6 without brackets.
    #[must_use]
    pub fn host(&self) -> String {
        match &self.0 {
            At::Number(address) => address.ip().to_string(),
            At::Name(name, _) => name.to_string(),
        }
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        match &self.0 {
            At::Number(address) => address.port(),
            At::Name(_, port) => *port,
        }
    }

    /// Another port of the same host.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        match self.0.clone() {
            At::Number(mut address) => {
                address.set_port(port);
                Self(At::Number(address))
            }
            At::Name(name, _) => Self(At::Name(name, port)),
        }
    }

    /// True if no other host can be meant: a number of loopback, or `localhost`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match &self.0 {
            At::Number(address) => address.ip().is_loopback(),
            At::Name(name, _) => name.strip_suffix('.').unwrap_or(name) == "localhost",
        }
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self(At::Number(address))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            At::Number(address) => address.fmt(f),
            At::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        place.to_string()
    }
}

impl TryFrom<String> for Place {
    type Error = PlaceError;

    fn try_from(text: String) -> Result<Self, PlaceError> {
        text.parse()
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => return Err(PlaceError::NoSuchPort),
            Ok(address) => return Ok(Self(At::Number(address))),
            Err(_) => {}
        }
        if text.parse::<Ipv6Addr>().is_ok() && text.matches(':').count() > 1 {
            return Err(PlaceError::NoBrackets);
        }
        let (host, port) = text.rsplit_once(':').ok_or(PlaceError::NoPort)?;
        if host.contains(['[', ']']) {
            return Err(PlaceError::WrongNumber);
        }
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| is_number && *port != 0).ok_or(PlaceError::NoSuchPort)?;
        check_name(host)?;
        Ok(Self(At::Name(host.to_ascii_lowercase().into(), port)))
    }
}

/// Is this the name of a host? What a resolver could take for a number is none: it would be a slip of the pen.
fn check_name(host: &str) -> Result<(), PlaceError> {
    if host.contains(':') {
        return Err(PlaceError::NoBrackets);
    }
    let labels = || host.strip_suffix('.').unwrap_or(host).split('.');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_label = |label: &str| {
        (1..=LABEL_LEN_MAX).contains(&label.len()) && !label.starts_with('-') && label.bytes().all(is_plain)
    };
    if host.len() > HOST_LEN_MAX || !labels().all(is_label) {
        return Err(PlaceError::WrongName);
    }
    let last = labels().next_back().unwrap_or_default().to_ascii_lowercase();
    let is_digits = last.bytes().all(|byte| byte.is_ascii_digit());
    let is_hex = last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if is_digits || is_hex { Err(PlaceError::WrongNumber) } else { Ok(()) }
}

/// Why a text is not a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceError {
    /// It ends with the host.
    NoPort,
    /// The port cannot be dialled.
    NoSuchPort,
    /// A number of version 6 stands bare, so it cannot be seen where its port begins.
    NoBrackets,
    /// The host looks like a number, and is none.
    WrongNumber,
    /// The host cannot be a name.
    WrongName,
}

impl PlaceError {
    /// What is wrong, said of the text: `has no port`.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::NoPort => "has no port",
            Self::NoSuchPort => "has a port that cannot be dialled",
            Self::NoBrackets => "has an IPv6 address without brackets",
            Self::WrongNumber => "looks like a number and is not an address",
            Self::WrongName => "has a host that is neither a name nor a number",
        }
    }

    /// What to write.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::NoPort => "write it like 127.0.0.1:7460, [::1]:7460 or host.example:7460",
            Self::NoSuchPort => "give a port from 1 to 65535",
            Self::NoBrackets => "write it like [::1]:7460",
            Self::WrongNumber => "write it like 127.0.0.1:7460 or [::1]:7460",
            Self::WrongName => "write it like host.example:7460, with letters, digits, -, _ and dots",
        }
    }
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the place {}: {}", self.what(), self.hint())
    }
}

impl core::error::Error for PlaceError {}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec::Vec;
    use core::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    fn place(text: &str) -> Place {
        text.parse().unwrap()
    }

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for text in [
            "10.0.0.1:7460",
            "[::1]:7460",
            "[fd00::7]:1",
            "[fe80::1%2]:7460",
            "[::ffff:10.0.0.1]:7460",
            "localhost:65535",
            "host.example:7460",
            "host.example.:7460",
            "north_1:1",
            "1.example:80",
            "xn--bcher-kva.example:7460",
        ] {
            assert_eq!(place(text).to_string(), text);
        }
        assert_eq!(place("Host.EXAMPLE:7460"), place("host.example:7460"));
        assert_eq!(place("[0:0::1]:7460").to_string(), "[::1]:7460");
    }

    #[test]
    fn what_is_not_a_place_is_told_apart() {
        use PlaceError::{NoBrackets, NoPort, NoSuchPort, WrongName, WrongNumber};
        for (text, error) in [
            ("", NoPort),
            ("host", NoPort),
            ("10.0.0.1", NoPort),
            ("[::1]", WrongNumber),
            ("host:", NoSuchPort),
            ("host:0", NoSuchPort),
            ("host:+1", NoSuchPort),
            ("host:65536", NoSuchPort),
            ("host:http", NoSuchPort),
            ("10.0.0.1:0", NoSuchPort),
            ("[::1]:0", NoSuchPort),
            ("::1", NoBrackets),
            ("::1:7460", NoBrackets),
            ("fd00::7:7460", NoBrackets),
            ("a:b:1", NoBrackets),
            ("[host]:1", WrongNumber),
            ("[10.0.0.1]:1", WrongNumber),
            ("10.0.0.256:1", WrongNumber),
            ("10.0.1:1", WrongNumber),
            ("2130706433:1", WrongNumber),
            ("0x7f000001:1", WrongNumber),
            ("0x:1", WrongNumber),
            ("127.0.0.1.:1", WrongNumber),
            (":1", WrongName),
            (".:1", WrongName),
            ("a..b:1", WrongName),
            ("-a:1", WrongName),
            ("a b:1", WrongName),
            ("a/b:1", WrongName),
            ("u@h:1", WrongName),
            ("grüße:1", WrongName),
            ("a\n:1", WrongName),
        ] {
            assert_eq!(text.parse::<Place>(), Err(error), "{text}");
        }
        assert!(format!("{}:1", "a".repeat(64)).parse::<Place>().is_err());
        assert!(format!("{}:1", "a.".repeat(127)).parse::<Place>().is_err());
        assert!(format!("{}a:1", "a.".repeat(126)).parse::<Place>().is_ok());
    }

    #[test]
    fn numbers_stand_before_names_and_in_their_own_order() {
        let sorted = ["9.0.0.1:1", "10.0.0.1:1", "10.0.0.1:2", "[::1]:1", "a:1", "a:2", "b:1"].map(place);
        assert!(sorted.is_sorted());
    }

    #[test]
    fn its_parts_are_known() {
        let [number, name] = ["[::1]:7460", "Host.example:7460"].map(place);
        assert_eq!((number.number(), number.name()), ("[::1]:7460".parse().ok(), None));
        assert_eq!((name.number(), name.name()), (None, Some("host.example")));
        assert_eq!((number.host().as_str(), number.port()), ("::1", 7460));
        assert_eq!(number.with_port(1).to_string(), "[::1]:1");
        assert_eq!(name.with_port(1).to_string(), "host.example:1");
        let near = ["127.0.0.2:1", "[::1]:1", "localhost:1", "LocalHost.:1"].map(|text| place(text).is_loopback());
        assert_eq!(near, [true; 4]);
        let far = ["10.0.0.1:1", "0.0.0.0:1", "[::]:1", "a.localhost.example:1", "localhost.example:1"];
        assert_eq!(far.map(|text| place(text).is_loopback()), [false; 5]);
    }

    #[test]
    fn on_links_it_is_checked_like_any_text() {
        for text in ["10.0.0.1:7460", "[::1]:7460", "host.example:7460"] {
            let bytes = postcard::to_allocvec(&place(text)).unwrap();
            assert_eq!(postcard::from_bytes::<Place>(&bytes), Ok(place(text)));
        }
        let bytes = postcard::to_allocvec("host.example; rm -rf /:1").unwrap();
        assert!(postcard::from_bytes::<Place>(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_read_has_one_text(text in "\\PC{0,40}(:[0-9]{1,6})?") {
            if let Ok(place) = text.parse::<Place>() {
                prop_assert_eq!(place.to_string().parse(), Ok(place));
            }
        }

        #[test]
        fn every_address_is_a_place(ip: [u8; 16], is_short: bool, port in 1_u16..) {
            let ip: IpAddr = if is_short { [ip[0], ip[1], ip[2], ip[3]].into() } else { ip.into() };
            let place = Place::from(SocketAddr::new(ip, port));
            prop_assert_eq!(place.to_string().parse(), Ok(place));
        }
    }

    #[test]
    fn all_errors_say_what_to_write() {
        use PlaceError::{NoBrackets, NoPort, NoSuchPort, WrongName, WrongNumber};
        let all = [NoPort, NoSuchPort, NoBrackets, WrongNumber, WrongName].map(|error| error.to_string());
        assert!(all.iter().all(|error| error.starts_with("the place ") && error.contains(": ")));
        let distinct: Vec<_> =
            all.iter().filter(|error| all.iter().filter(|other| other == error).count() == 1).collect();
        assert_eq!(distinct.len(), all.len());
    }
}
