//! Values as they are configured: read from text, whichever way it came, and written as text again.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use primus_core::ServerId;
use primus_node::load::Source;
use primus_terminal::amounts::{length, quoted};
use primus_terminal::names::check_name;
use serde_json::{Value as Json, json};

use super::groups::{self, GroupEntry};
use super::neighbours::{self, NeighbourEntry};

/// What is wrong, and what to do.
pub(super) type Complaint = (String, String);

/// What kind of value a key has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Number {
        least: u64,
        most: u64,
    },
    Truth,
    Choice(&'static [&'static str]),
    /// At least a millisecond and at most a day.
    Time,
    /// A time, or two with dots between them, from which one is drawn.
    TimeRange,
    Address,
    Name,
    Folder,
    /// A file; nothing at all is none.
    File,
    /// Names and addresses of a host.
    Hosts,
    Source,
    Servers,
    /// A number of bytes.
    Size,
    /// A list of programs.
    Programs,
    /// A list of names of variables; a star at the end stands for anything.
    Variables,
    /// A user of the host; nothing at all is the own one.
    User,
    /// A program and its arguments; nothing at all is no command.
    Command,
    /// A list of groups that elect a leader each.
    Groups,
    /// A list of farms, with their servers.
    Neighbours,
}

/// A value that is right by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    Truth(bool),
    Text(String),
    Time(Duration),
    TimeRange(Duration, Duration),
    Address(SocketAddr),
    Source(Source),
    Servers(Vec<Listed>),
    Size(u64),
    Programs(Vec<String>),
    Command(Vec<String>),
    Groups(Vec<GroupEntry>),
    Neighbours(Vec<NeighbourEntry>),
}

/// A server in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) id: ServerId,
    pub(crate) address: SocketAddr,
    pub(crate) api: Option<SocketAddr>,
}

impl Kind {
    /// Reads a value of this kind.
    pub(super) fn read(self, text: &str) -> Result<Value, Complaint> {
        let wrong = |hint: String| (format!("is {}", quoted(text)), hint);
        match self {
            Self::Number { least, most } => {
                let number = text.trim().parse().ok().filter(|number| (least..=most).contains(number));
                number.map(Value::Number).ok_or_else(|| wrong(self.rule()))
            }
            Self::Truth => text.trim().parse().map(Value::Truth).map_err(|_| wrong(self.rule())),
            Self::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Self::Choice(_) => Err(wrong(self.rule())),
            Self::Time => time(text).map(Value::Time).ok_or_else(|| wrong(self.rule())),
            Self::TimeRange => time_range(text).ok_or_else(|| wrong(self.rule())),
            Self::Address => address(text).map(Value::Address),
            Self::Name => check_name(text).map(|()| Value::Text(text.to_owned())).map_err(wrong),
            Self::Folder if text.is_empty() => Err(("is empty".to_owned(), self.rule())),
            Self::Folder => Ok(Value::Text(text.to_owned())),
            Self::File => Ok(Value::Text(text.to_owned())),
            Self::Hosts => hosts(text.split(',')),
            Self::Source => text.parse().map(Value::Source).map_err(|_| wrong(self.rule())),
            Self::Servers => servers(text).map(Value::Servers),
            Self::Size => size(text).map(Value::Size).ok_or_else(|| wrong(self.rule())),
            Self::Programs => Ok(Value::Programs(programs(text.split(',')))),
            Self::Variables => variables(programs(text.split(','))),
            Self::User => user(text.trim()),
            Self::Command if text.trim().is_empty() => Ok(Value::Command(Vec::new())),
            Self::Command => command(text.split_whitespace().map(str::to_owned).collect()),
            Self::Groups => groups::of_text(text).map(Value::Groups),
            Self::Neighbours => neighbours::of_text(text).map(Value::Neighbours),
        }
    }

    /// What stands for such a value in help texts.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Number { .. } => "N",
            Self::Truth => "true|false",
            Self::Choice(_) => "WHICH",
            Self::Time => "TIME",
            Self::TimeRange => "TIME[..TIME]",
            Self::Address => "ADDRESS",
            Self::Name => "NAME",
            Self::Folder => "DIR",
            Self::File => "FILE",
            Self::Hosts => "HOST,…",
            Self::Source => "SOURCE",
            Self::Servers => "ID@ADDRESS[/API],…",
            Self::Size => "SIZE",
            Self::Programs => "PROGRAM,…",
            Self::Variables => "VARIABLE,…",
            Self::User => "USER",
            Self::Command => "COMMAND",
            Self::Groups => "NAME=ALGORITHM:RANK:ASKING@ID+ID,…",
            Self::Neighbours => "NAME=ID@ADDRESS+ID@ADDRESS,…",
        }
    }

    /// What a good value looks like, as advice.
    pub(crate) fn rule(self) -> String {
        match self {
            Self::Number { least, most: u64::MAX } => format!("give a whole number from {least}"),
            Self::Number { least, most } => format!("give a whole number from {least} to {most}"),
            Self::Truth => "choose true or false".to_owned(),
            Self::Choice(words) => format!("choose one of {}", words.join(", ")),
            Self::Time => "write it like 25ms or 2s, from 1ms to 24h".to_owned(),
            Self::TimeRange => "write it like 2s or 3100ms..3500ms, from 1ms to 24h".to_owned(),
            Self::Address => "write it like 127.0.0.1:7460".to_owned(),
            Self::Name => "give a name".to_owned(),
            Self::Folder => "name a folder".to_owned(),
            Self::File => "name a file".to_owned(),
            Self::Hosts => "write names and addresses without ports, like farm.example or 10.0.0.1".to_owned(),
            Self::Source => "choose system, cgroup, process or file:PATH".to_owned(),
            Self::Servers => "write it like 1@127.0.0.1:7460,2@127.0.0.1:7470".to_owned(),
            Self::Size => "write it like 64KiB, 10MiB or 1GiB".to_owned(),
            Self::Programs => "write programs as they are submitted, or * for all".to_owned(),
            Self::Variables => "write names of variables; NAME* stands for all that begin so".to_owned(),
            Self::User => "give a user's name, or UID:GID".to_owned(),
            Self::Command => "give a program, by name or path, and then its arguments one by one".to_owned(),
            Self::Groups => "write it like router=bully:address,bd=ring@1+3".to_owned(),
            Self::Neighbours => "write it like south=1@127.0.0.1:7560+2@127.0.0.1:7570".to_owned(),
        }
    }

    /// How a good value looks in a file.
    pub(crate) fn example(self) -> String {
        let text = match self {
            Self::Number { least, .. } => return least.to_string(),
            Self::Truth => return "true".to_owned(),
            Self::Servers => return "[{ id = 1, address = \"127.0.0.1:7460\" }]".to_owned(),
            Self::Programs => return "[\"make\", \"/usr/bin/env\"]".to_owned(),
            Self::Hosts => return "[\"farm.example\", \"10.0.0.1\"]".to_owned(),
            Self::Variables => return "[\"LC_*\", \"EDITION\"]".to_owned(),
            Self::Command => return "[\"/usr/local/bin/notify\", \"--all\"]".to_owned(),
            Self::Groups => return "[{ name = \"router\", algorithm = \"bully\", rank = \"address\" }]".to_owned(),
            Self::Neighbours => {
                return "[{ name = \"south\", servers = [{ id = 1, address = \"127.0.0.1:7560\" }] }]".to_owned();
            }
            Self::Choice(words) => words[0],
            Self::Time => "25ms",
            Self::TimeRange => "50ms..100ms",
            Self::Address => "127.0.0.1:7460",
            Self::Name => "north",
            Self::Folder => "/var/lib/primus",
            Self::File => "/etc/primus/token",
            Self::Source => "system",
            Self::Size => "10MiB",
            Self::User => "batch",
        };
        format!("\"{text}\"")
    }
}

/// A length of time that a setting can have.
fn time(text: &str) -> Option<Duration> {
    length("", text).ok().filter(|time| *time >= Duration::from_millis(1))
}

fn time_range(text: &str) -> Option<Value> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least, most) = (time(least.trim())?, time(most.trim())?);
    (least <= most).then_some(Value::TimeRange(least, most))
}

/// Units of sizes, the greatest first.
const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes, such as `10MiB`.
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit) = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    number.trim().parse::<u64>().ok()?.checked_mul(*unit)
}

/// Names without what people put around them.
pub(super) fn programs<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    names.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Names as a `Host` field can say them.
pub(super) fn hosts<'a>(names: impl Iterator<Item = &'a str>) -> Result<Value, Complaint> {
    let names = programs(names);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_host = |name: &&String| name.parse::<IpAddr>().is_ok() || name.chars().all(is_plain);
    match names.iter().find(|name| !is_host(name)) {
        Some(strange) => Err((format!("holds {}", quoted(strange)), Kind::Hosts.rule())),
        None => Ok(Value::Programs(names)),
    }
}

/// Names of variables. Those of primus itself are never passed on, so naming one is a mistake.
pub(super) fn variables(names: Vec<String>) -> Result<Value, Complaint> {
    let is_name = |name: &String| !name.trim_end_matches('*').contains(['=', '\0', '*']);
    if let Some(strange) = names.iter().find(|name| !is_name(name)) {
        return Err((format!("holds {}", quoted(strange)), Kind::Variables.rule()));
    }
    if let Some(own) = names.iter().find(|name| name.starts_with("PRIMUS_")) {
        let hint = "leave it out: tasks get their own variables, and no secrets".to_owned();
        return Err((format!("holds {}, which belongs to primus", quoted(own)), hint));
    }
    Ok(Value::Programs(names))
}

fn user(text: &str) -> Result<Value, Complaint> {
    let is_number = |part: &str| part.parse::<u32>().is_ok();
    let is_right = match text.split_once(':') {
        Some((uid, gid)) => is_number(uid) && is_number(gid),
        None => !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/'),
    };
    if is_right {
        Ok(Value::Text(text.to_owned()))
    } else {
        Err((format!("is {}", quoted(text)), Kind::User.rule()))
    }
}

/// A program that can be one, and its arguments. Whether it is there shows when it runs.
pub(super) fn command(words: Vec<String>) -> Result<Value, Complaint> {
    let wrong = |what: String| Err((what, Kind::Command.rule()));
    let Some(program) = words.first() else { return wrong("is empty".to_owned()) };
    let is_path = program.contains('/') && !program.ends_with('/');
    let is_name = !program.is_empty() && !program.contains(|c: char| c == '/' || c.is_whitespace());
    if !is_path && !is_name {
        return wrong(format!("begins with {}, which is not a program's name or path", quoted(program)));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return wrong("holds a zero byte".to_owned());
    }
    Ok(Value::Command(words))
}

/// An address that others can dial.
pub(super) fn address(text: &str) -> Result<SocketAddr, Complaint> {
    let address: Result<SocketAddr, _> = text.trim().parse();
    match address {
        Ok(address) if address.port() == 0 => Err((
            format!("is {}, whose port would not be known", quoted(text)),
            "give a port from 1 to 65535".to_owned(),
        )),
        Ok(address) => Ok(address),
        Err(_) => Err((format!("is {}", quoted(text)), Kind::Address.rule())),
    }
}

/// `1@127.0.0.1:7460,2@127.0.0.1:7470/127.0.0.1:7471`: id, address and, after a slash, where the API is.
fn servers(text: &str) -> Result<Vec<Listed>, Complaint> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(listed).collect()
}

pub(super) fn listed(text: &str) -> Result<Listed, Complaint> {
    let wrong = || (format!("holds {}", quoted(text)), Kind::Servers.rule());
    let (id, places) = text.split_once('@').ok_or_else(wrong)?;
    let id = id.parse().ok().filter(|id| *id > 0).ok_or_else(wrong)?;
    let (at, api) = places.split_once('/').map_or((places, None), |(at, api)| (at, Some(api)));
    let place = |text: &str| address(text).map_err(|_| wrong());
    Ok(Listed { id: ServerId(id), address: place(at)?, api: api.map(place).transpose()? })
}

impl Value {
    /// As scripts see it.
    pub(crate) fn json(&self) -> Json {
        match self {
            Self::Number(number) => json!(number),
            Self::Truth(truth) => json!(truth),
            Self::Servers(servers) => servers.iter().map(Listed::json).collect(),
            Self::Programs(words) | Self::Command(words) => json!(words),
            Self::Groups(groups) => groups.iter().map(GroupEntry::json).collect(),
            Self::Neighbours(neighbours) => neighbours.iter().map(NeighbourEntry::json).collect(),
            _ => Json::from(self.to_string()),
        }
    }
}

impl Listed {
    fn json(&self) -> Json {
        json!({ "id": self.id.0, "address": self.address.to_string(), "api": self.api.map(|api| api.to_string()) })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Truth(truth) => truth.fmt(f),
            Self::Text(text) => text.fmt(f),
            Self::Time(time) => f.write_str(&time_text(*time)),
            Self::TimeRange(least, most) if least == most => f.write_str(&time_text(*least)),
            Self::TimeRange(least, most) => write!(f, "{}..{}", time_text(*least), time_text(*most)),
            Self::Address(address) => address.fmt(f),
            Self::Source(source) => source.fmt(f),
            Self::Servers(servers) => f.write_str(&joined(servers)),
            Self::Size(bytes) => f.write_str(&size_text(*bytes)),
            Self::Programs(programs) => f.write_str(&programs.join(",")),
            Self::Command(words) => f.write_str(&words.join(" ")),
            Self::Groups(groups) => f.write_str(&joined(groups)),
            Self::Neighbours(neighbours) => f.write_str(&joined(neighbours)),
        }
    }
}

fn joined(parts: &[impl ToString]) -> String {
    parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.id, self.address)?;
        self.api.map_or(Ok(()), |api| write!(f, "/{api}"))
    }
}

/// In the greatest unit that leaves a whole number.
fn size_text(bytes: u64) -> String {
    let fits = |(_, unit): &&(&str, u64)| bytes >= *unit && bytes.is_multiple_of(*unit);
    let (name, unit) = UNITS.iter().find(fits).unwrap_or(&("B", 1));
    format!("{}{name}", bytes / unit)
}

/// In the greatest unit that leaves a whole number, minutes and hours left out: nobody wants to see `60000ms`.
pub(super) fn time_text(time: Duration) -> String {
    match time.as_micros() {
        us if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        us if us.is_multiple_of(1_000) => format!("{}ms", us / 1_000),
        us => format!("{us}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Is each text read, and written as the third says, or refused?
    fn check(cases: &[(Kind, &str, Option<&str>)]) {
        for (kind, text, expected) in cases {
            let read = kind.read(text).ok().map(|value| value.to_string());
            assert_eq!(read.as_deref(), *expected, "{kind:?} {text}");
        }
    }

    #[test]
    fn values_are_read_and_written_as_people_write_them() {
        check(&[
            (Kind::Number { least: 1, most: 9 }, "7", Some("7")),
            (Kind::Number { least: 1, most: 9 }, "0", None),
            (Kind::Number { least: 1, most: 9 }, "-1", None),
            (Kind::Truth, "true", Some("true")),
            (Kind::Truth, "yes", None),
            (Kind::Choice(&["a", "b"]), "b", Some("b")),
            (Kind::Choice(&["a", "b"]), "c", None),
            (Kind::Time, "25ms", Some("25ms")),
            (Kind::Time, "0.025s", Some("25ms")),
            (Kind::Time, "2min", Some("120s")),
            (Kind::Time, "1.5ms", Some("1500us")),
            (Kind::Time, "0s", None),
            (Kind::Time, "25", None),
            (Kind::Time, "25h", None),
            (Kind::TimeRange, "3s", Some("3s")),
            (Kind::TimeRange, "3.1s .. 3500ms", Some("3100ms..3500ms")),
            (Kind::TimeRange, "50ms..50ms", Some("50ms")),
            (Kind::TimeRange, "2s..1s", None),
            (Kind::TimeRange, "..1s", None),
            (Kind::TimeRange, "1s..", None),
            (Kind::TimeRange, "0s..1s", None),
            (Kind::Address, "[::1]:7460", Some("[::1]:7460")),
            (Kind::Address, "127.0.0.1:0", None),
            (Kind::Address, "127.0.0.1:70000", None),
            (Kind::Address, "localhost:7460", None),
            (Kind::Name, "north", Some("north")),
            (Kind::Name, "../north", None),
            (Kind::Folder, "", None),
            (Kind::Source, "cgroup", Some("cgroup")),
            (Kind::Source, "file:/tmp/load", Some("file:/tmp/load")),
            (Kind::Source, "moon", None),
            (Kind::Servers, "", Some("")),
            (Kind::Servers, "1@[::1]:1, 2@[::1]:2/[::1]:3", Some("1@[::1]:1,2@[::1]:2/[::1]:3")),
            (Kind::Servers, "0@[::1]:1", None),
            (Kind::Servers, "1@[::1]", None),
            (Kind::Servers, "[::1]:1", None),
            (Kind::Size, "10MiB", Some("10MiB")),
            (Kind::Size, "2048 KiB", Some("2MiB")),
            (Kind::Size, "1000B", Some("1000B")),
            (Kind::Size, "0B", Some("0B")),
            (Kind::Size, "10", None),
            (Kind::Size, "99999999999GiB", None),
            (Kind::Programs, "make, /bin/true,", Some("make,/bin/true")),
            (Kind::File, "", Some("")),
            (Kind::File, "/etc/primus/token", Some("/etc/primus/token")),
            (Kind::Hosts, "farm.example, fd00::7,10.0.0.1", Some("farm.example,fd00::7,10.0.0.1")),
            (Kind::Hosts, "farm.example:80", None),
            (Kind::Hosts, "http://farm.example", None),
            (Kind::Command, "", Some("")),
            (Kind::Command, " notify  --all", Some("notify --all")),
            (Kind::Command, "./hooks/notify", Some("./hooks/notify")),
            (Kind::Command, "hooks/ all", None),
        ]);
    }

    #[test]
    fn lists_of_groups_and_farms_are_read_and_written_as_people_write_them() {
        check(&[
            (Kind::Groups, "router, bd=ring@3+1", Some("router=bully:load,bd=ring:id@1+3")),
            (Kind::Groups, "router=bully:address", Some("router=bully:address")),
            (Kind::Groups, "router=bully:id:one-by-one@1", Some("router=bully:id:one-by-one@1")),
            (Kind::Groups, "router=bully:id:politely", None),
            (Kind::Groups, "router=ring:id:one-by-one", None),
            (Kind::Groups, "router=moon", None),
            (Kind::Groups, "a,a", None),
            (Kind::Groups, "a b", None),
            (Kind::Groups, "a@0", None),
            (Kind::Groups, "a@", None),
            (Kind::Neighbours, "", Some("")),
            (
                Kind::Neighbours,
                "south=1@[::1]:1 + 2@[::1]:2, w=1@[::1]:3",
                Some("south=1@[::1]:1+2@[::1]:2,w=1@[::1]:3"),
            ),
            (Kind::Neighbours, "south=1@[::1]:1/[::1]:2", Some("south=1@[::1]:1")),
            (Kind::Neighbours, "south", None),
            (Kind::Neighbours, "south=", None),
            (Kind::Neighbours, "south=[::1]:1", None),
            (Kind::Neighbours, "so@uth=1@[::1]:1", None),
            (Kind::Neighbours, "s=1@[::1]:1,s=1@[::1]:2", None),
            (Kind::Neighbours, "s=1@[::1]:1+1@[::1]:2", None),
            (Kind::Neighbours, "s=1@[::1]:1,w=1@[::1]:1", None),
        ]);
    }
}
