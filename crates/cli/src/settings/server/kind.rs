//! Kinds of values: how each is read from text or from a file, within which bounds, and how it is written again.
//!
//! A kind is a type that has no values. What it reads is its [`Kind::Value`], which is the type of a key's field.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use primus_core::election::Algorithm;
use primus_core::election::bully::Asking;
use primus_core::farm::assign::Rule;
use primus_core::loan::lending::Order;
use primus_core::place::PlaceError;
use primus_core::rank::RankBy;
use primus_core::{Place, ServerId};
use primus_node::load;
use primus_terminal::amounts::{length, quoted};
use primus_terminal::names::check_name;
use serde::Serialize;
use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::file::{self, kind_of, plain};
use super::mistakes::Complaint;

/// What kind of value a key has.
pub(crate) trait Kind {
    /// A value that is right by itself.
    type Value: Clone;
    /// What stands for such a value in help texts.
    const WORD: &'static str;

    /// How a good value looks in a file.
    fn example() -> String;

    /// Reads a value.
    fn read(text: &str) -> Result<Self::Value, Complaint>;

    /// As people see it.
    fn show(value: &Self::Value) -> String;

    /// As scripts see it.
    fn json(value: &Self::Value) -> Json {
        Json::from(Self::show(value))
    }

    /// Can this be such a value, in a file?
    fn fits(value: &DeValue<'_>) -> bool {
        value.is_str()
    }

    /// What a file says of the key of this name.
    fn of_toml(value: &DeValue<'_>, name: &str) -> Result<Self::Value, Complaint> {
        let misfit = || misfit::<Self>(&format!("is {}", kind_of(value)), name);
        if Self::fits(value) { Self::read(&plain(value)) } else { Err(misfit()) }
    }
}

/// The complaint that a file says something else of the key of this name.
pub(super) fn misfit<K: Kind + ?Sized>(what: &str, name: &str) -> Complaint {
    (what.to_owned(), format!("write it like {name} = {}", K::example()))
}

/// The complaint that a text is not such a value.
fn wrong(text: &str, hint: impl Into<String>) -> Complaint {
    (format!("is {}", quoted(text)), hint.into())
}

/// A whole number within bounds.
pub(crate) struct Number<T, const LEAST: u64, const MOST: u64>(PhantomData<T>);

impl<T, const LEAST: u64, const MOST: u64> Kind for Number<T, LEAST, MOST>
where
    T: TryFrom<u64> + Copy + Display + Serialize,
{
    type Value = T;
    const WORD: &'static str = "N";

    fn example() -> String {
        LEAST.to_string()
    }

    fn read(text: &str) -> Result<T, Complaint> {
        let number = text.trim().parse().ok().filter(|number| (LEAST..=MOST).contains(number));
        let most = if MOST == u64::MAX { String::new() } else { format!(" to {MOST}") };
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| wrong(text, format!("give a whole number from {LEAST}{most}")))
    }

    fn show(number: &T) -> String {
        number.to_string()
    }

    fn json(number: &T) -> Json {
        json!(number)
    }

    fn fits(value: &DeValue<'_>) -> bool {
        value.is_integer()
    }
}

/// One of a few words.
pub(crate) struct Choice<T>(PhantomData<T>);

/// What a word can choose.
pub(crate) trait Choose: Copy + PartialEq + 'static {
    /// The words, and what each means.
    const WORDS: &'static [(&'static str, Self)];

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, choice)| *choice == self).map_or("", |(word, _)| word)
    }

    fn choose(text: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice)
    }

    /// The advice for other words.
    fn rule() -> String {
        let words: Vec<&str> = Self::WORDS.iter().map(|(word, _)| *word).collect();
        format!("choose one of {}", words.join(", "))
    }
}

impl<T: Choose> Kind for Choice<T> {
    type Value = T;
    const WORD: &'static str = "WHICH";

    fn example() -> String {
        format!("\"{}\"", T::WORDS[0].0)
    }

    fn read(text: &str) -> Result<T, Complaint> {
        T::choose(text).ok_or_else(|| wrong(text, T::rule()))
    }

    fn show(choice: &T) -> String {
        choice.word().to_owned()
    }
}

impl Choose for Algorithm {
    const WORDS: &'static [(&'static str, Self)] = &[("bully", Self::Bully), ("ring", Self::Ring)];
}

impl Choose for RankBy {
    const WORDS: &'static [(&'static str, Self)] =
        &[("load", Self::Load), ("id", Self::Id), ("address", Self::Address)];
}

impl Choose for Asking {
    const WORDS: &'static [(&'static str, Self)] = &[("at-once", Self::AllAtOnce), ("one-by-one", Self::OneByOne)];
}

impl Choose for Rule {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("balanced", Self::Balanced),
        ("score", Self::Score),
        ("round-robin", Self::RoundRobin),
        ("random", Self::Random),
    ];
}

impl Choose for Order {
    const WORDS: &'static [(&'static str, Self)] = &[("listed", Self::Listed), ("idle", Self::Idle)];
}

/// Makes kinds that are not generic, a row for each: its type, its word, an example, how it is read and how it is shown to
/// people. Where that differs from a text in quotes, the row goes on with how scripts see it, which values of a file are like
/// a text of it, or how such a value is read.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($value:ty), $word:literal, $example:literal, $read:expr, $show:expr
        $(, json $json:expr)? $(, fits $fits:expr)? $(, toml $toml:expr)?;)+) => {$(
        $(#[$doc])*
        pub(crate) enum $kind {}

        impl $crate::settings::server::kind::Kind for $kind {
            type Value = $value;
            const WORD: &'static str = $word;

            fn example() -> String {
                $example.to_owned()
            }

            fn read(text: &str) -> Result<$value, Complaint> {
                $read(text)
            }

            fn show(value: &$value) -> String {
                $show(value)
            }

            $(fn json(value: &$value) -> Json {
                $json(value)
            })?

            $(fn fits(value: &DeValue<'_>) -> bool {
                $fits(value)
            })?

            $(fn of_toml(value: &DeValue<'_>, name: &str) -> Result<$value, Complaint> {
                $toml(value, name)
            })?
        }
    )+};
}

pub(super) use kinds;

kinds! {
    Id(ServerId), "N", "1", id, ServerId::to_string, json as_is, fits DeValue::is_integer;
    /// The server beside a worker. That there is none cannot be written.
    Beside(Option<ServerId>), "N", "1", |text| id(text).map(Some), shown, json as_is, fits DeValue::is_integer;
    Truth(bool), "true|false", "true", truth, bool::to_string, json as_is, fits DeValue::is_bool;
    /// At least a millisecond and at most a day.
    Time(Duration), "TIME", r#""25ms""#, time, time_text;
    /// A time, or two with dots between them, from which one is drawn.
    TimeRange((Duration, Duration)), "TIME[..TIME]", r#""50ms..100ms""#, time_range, time_range_text;
    /// Where a process of this host listens.
    Address(SocketAddr), "ADDRESS", r#""127.0.0.1:7460""#, address, SocketAddr::to_string;
    /// Where others reach a process.
    Reached(Place), "HOST:PORT", r#""127.0.0.1:7460""#, place, Place::to_string;
    Name(String), "NAME", r#""north""#, name, String::clone;
    Folder(PathBuf), "DIR", r#""/var/lib/primus""#, folder, |dir: &PathBuf| dir.display().to_string();
    /// A file; nothing at all is none.
    File(Option<PathBuf>), "FILE", r#""/etc/primus/token""#, |text| Ok(unless_empty(text).map(PathBuf::from)),
        |file: &Option<PathBuf>| shown(&file.as_ref().map(|file| file.display()));
    Source(load::Source), "SOURCE", r#""system""#, source, load::Source::to_string;
    /// A number of bytes.
    Size(u64), "SIZE", r#""10MiB""#, size, size_text;
    /// A user of the host; nothing at all is the own one.
    User(Option<String>), "USER", r#""batch""#, user, shown;
    /// Programs, as they are submitted.
    Programs(Vec<String>), "PROGRAM,…", r#"["make", "/usr/bin/env"]"#, |text: &str| programs(by_commas(text)),
        with_commas, json as_is, toml |value, name| programs(file::texts::<Programs>(value, name)?);
    /// Names of variables; a star at the end stands for anything.
    Variables(Vec<String>), "VARIABLE,…", r#"["LC_*", "EDITION"]"#, |text: &str| variables(by_commas(text)),
        with_commas, json as_is, toml |value, name| variables(file::texts::<Variables>(value, name)?);
    /// Names and addresses of a host.
    Hosts(Vec<String>), "HOST,…", r#"["farm.example", "10.0.0.1"]"#, |text: &str| hosts(by_commas(text)),
        with_commas, json as_is, toml |value, name| hosts(file::texts::<Hosts>(value, name)?);
    /// A program and its arguments. An empty list is not a command.
    Command(Vec<String>), "COMMAND", r#"["/usr/local/bin/notify", "--all"]"#, command_of_text,
        |words: &Vec<String>| words.join(" "), json as_is,
        toml |value, name| command(file::texts::<Command>(value, name)?);
    /// Servers, each with its places: `1@127.0.0.1:7460,2@127.0.0.1:7470/127.0.0.1:7471`.
    Servers(Vec<Listed>), "ID@ADDRESS[/API],…", r#"[{ id = 1, address = "127.0.0.1:7460" }]"#,
        |text: &str| parts(text, ',').map(listed).collect(), with_commas, json as_is, toml |value, _| file::servers(value);
}

/// A server in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Listed {
    pub(crate) id: ServerId,
    pub(crate) address: Place,
    pub(crate) api: Option<Place>,
}

impl Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.id, self.address)?;
        self.api.as_ref().map_or(Ok(()), |api| write!(f, "/{api}"))
    }
}

/// The same for scripts as in here.
pub(super) fn as_is<T: Serialize>(value: &T) -> Json {
    json!(value)
}

/// Parts of a list, as they fit into a line.
pub(super) fn with_commas<T: Display>(parts: &[T]) -> String {
    parts.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// The parts of a line, without what people put around them.
pub(super) fn parts(text: &str, between: char) -> impl Iterator<Item = &str> {
    text.split(between).map(str::trim).filter(|part| !part.is_empty())
}

fn by_commas(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn shown<T: Display>(value: &Option<T>) -> String {
    value.as_ref().map(T::to_string).unwrap_or_default()
}

fn unless_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn id(text: &str) -> Result<ServerId, Complaint> {
    Number::<u64, 1, { u64::MAX }>::read(text).map(ServerId)
}

fn truth(text: &str) -> Result<bool, Complaint> {
    text.trim().parse().map_err(|_| wrong(text, "choose true or false"))
}

pub(super) fn listed(text: &str) -> Result<Listed, Complaint> {
    let hint = "write it like 1@127.0.0.1:7460,2@127.0.0.1:7470";
    let wrong = || (format!("holds {}", quoted(text)), hint.to_owned());
    let (id, places) = text.split_once('@').ok_or_else(wrong)?;
    let id = id.parse().ok().filter(|id| *id > 0).ok_or_else(wrong)?;
    let (at, api) = places.split_once('/').map_or((places, None), |(at, api)| (at, Some(api)));
    let place = |text: &str| place(text).map_err(|_| wrong());
    Ok(Listed { id: ServerId(id), address: place(at)?, api: api.map(place).transpose()? })
}

fn a_length(text: &str) -> Option<Duration> {
    length("", text).ok().filter(|time| *time >= Duration::from_millis(1))
}

fn time(text: &str) -> Result<Duration, Complaint> {
    a_length(text).ok_or_else(|| wrong(text, "write it like 25ms or 2s, from 1ms to 24h"))
}

fn time_range(text: &str) -> Result<(Duration, Duration), Complaint> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let range = a_length(least.trim()).zip(a_length(most.trim())).filter(|(least, most)| least <= most);
    range.ok_or_else(|| wrong(text, "write it like 2s or 3100ms..3500ms, from 1ms to 24h"))
}

fn time_range_text((least, most): &(Duration, Duration)) -> String {
    if least == most { time_text(least) } else { format!("{}..{}", time_text(least), time_text(most)) }
}

/// A place that others can dial.
pub(super) fn place(text: &str) -> Result<Place, Complaint> {
    let wrong =
        |error: PlaceError| (format!("is {}, which {}", quoted(text), error.what()), error.hint().to_owned());
    text.trim().parse().map_err(wrong)
}

/// An address to listen at.
fn address(text: &str) -> Result<SocketAddr, Complaint> {
    let address: Result<SocketAddr, _> = text.trim().parse();
    match address {
        Ok(address) if address.port() == 0 => Err((
            format!("is {}, whose port would not be known", quoted(text)),
            "give a port from 1 to 65535".to_owned(),
        )),
        Ok(address) => Ok(address),
        Err(_) if text.trim().parse::<Place>().is_ok() => {
            let what = format!("is {}, and a process listens at a number", quoted(text));
            Err((what, "write it like 127.0.0.1:7460, 0.0.0.0:7460 or [::]:7460".to_owned()))
        }
        Err(_) => Err(wrong(text, "write it like 127.0.0.1:7460 or [::1]:7460")),
    }
}

fn name(text: &str) -> Result<String, Complaint> {
    check_name(text).map(|()| text.to_owned()).map_err(|hint| wrong(text, hint))
}

fn folder(text: &str) -> Result<PathBuf, Complaint> {
    if text.is_empty() { Err(("is empty".to_owned(), "name a folder".to_owned())) } else { Ok(text.into()) }
}

fn source(text: &str) -> Result<load::Source, Complaint> {
    text.parse().map_err(|_| wrong(text, "choose system, cgroup, process or file:PATH"))
}

/// Units of sizes, the greatest first.
const UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes, such as `10MiB`.
fn size(text: &str) -> Result<u64, Complaint> {
    let unit = UNITS.iter().find_map(|(name, unit)| Some((text.trim().strip_suffix(name)?, unit)));
    let bytes = unit.and_then(|(number, unit)| number.trim().parse::<u64>().ok()?.checked_mul(*unit));
    bytes.ok_or_else(|| wrong(text, "write it like 64KiB, 10MiB or 1GiB"))
}

/// In the greatest unit that leaves a whole number.
fn size_text(bytes: &u64) -> String {
    let fits = |(_, unit): &&(&str, u64)| bytes >= unit && bytes.is_multiple_of(*unit);
    let (name, unit) = UNITS.iter().find(fits).unwrap_or(&("B", 1));
    format!("{}{name}", bytes / unit)
}

/// In the greatest unit that leaves a whole number, minutes and hours left out: nobody wants to see `60000ms`.
pub(super) fn time_text(time: &Duration) -> String {
    match time.as_micros() {
        us if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        us if us.is_multiple_of(1_000) => format!("{}ms", us / 1_000),
        us => format!("{us}us"),
    }
}

/// Names without what people put around them.
fn tidy(names: Vec<String>) -> Vec<String> {
    names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn programs(names: Vec<String>) -> Result<Vec<String>, Complaint> {
    Ok(tidy(names))
}

/// Names as a `Host` field can say them.
fn hosts(names: Vec<String>) -> Result<Vec<String>, Complaint> {
    let names = tidy(names);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_host = |name: &&String| name.parse::<IpAddr>().is_ok() || name.chars().all(is_plain);
    let hint = "write names and addresses without ports, like farm.example or 10.0.0.1";
    match names.iter().find(|name| !is_host(name)) {
        Some(strange) => Err((format!("holds {}", quoted(strange)), hint.to_owned())),
        None => Ok(names),
    }
}

/// Names of variables. Those of primus itself are never passed on, so naming one is a mistake.
fn variables(names: Vec<String>) -> Result<Vec<String>, Complaint> {
    let names = tidy(names);
    let is_name = |name: &String| !name.trim_end_matches('*').contains(['=', '\0', '*']);
    if let Some(strange) = names.iter().find(|name| !is_name(name)) {
        let hint = "write names of variables; NAME* stands for all that begin so".to_owned();
        return Err((format!("holds {}", quoted(strange)), hint));
    }
    if let Some(own) = names.iter().find(|name| name.starts_with("PRIMUS_")) {
        let hint = "leave it out: tasks get their own variables, and no secrets".to_owned();
        return Err((format!("holds {}, which belongs to primus", quoted(own)), hint));
    }
    Ok(names)
}

fn user(text: &str) -> Result<Option<String>, Complaint> {
    let text = text.trim();
    let is_number = |part: &str| part.parse::<u32>().is_ok();
    let is_right = match text.split_once(':') {
        Some((uid, gid)) => is_number(uid) && is_number(gid),
        None => !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/'),
    };
    if is_right {
        Ok(unless_empty(text).map(str::to_owned))
    } else {
        Err(wrong(text, "give a user's name, or UID:GID"))
    }
}

fn command_of_text(text: &str) -> Result<Vec<String>, Complaint> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() { Ok(words) } else { command(words) }
}

/// A program that can be one, and its arguments. Whether it is there shows when it runs.
fn command(words: Vec<String>) -> Result<Vec<String>, Complaint> {
    let hint = "give a program, by name or path, and then its arguments one by one";
    let wrong = |what: String| Err((what, hint.to_owned()));
    let Some(program) = words.first() else { return wrong("is empty".to_owned()) };
    let is_path = program.contains('/') && !program.ends_with('/');
    let is_name = !program.is_empty() && !program.contains(|c: char| c == '/' || c.is_whitespace());
    if !is_path && !is_name {
        return wrong(format!("begins with {}, which is not a program's name or path", quoted(program)));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return wrong("holds a zero byte".to_owned());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::super::groups::Groups;
    use super::super::neighbours::Neighbours;
    use super::*;

    /// Is each text of the first list read, and written as it says after the arrow, and each of the second refused?
    fn check<K: Kind>(good: &str, bad: &str) {
        for case in good.split("; ") {
            let (text, expected) = case.split_once(" ->").expect("a case has an arrow");
            let read = K::read(text).map(|value| K::show(&value));
            assert_eq!(read.as_deref(), Ok(expected.trim_start()), "{} {text}", K::WORD);
        }
        for text in bad.split("; ").filter(|_| !bad.is_empty()) {
            assert!(K::read(text).is_err(), "{} {text}", K::WORD);
        }
    }

    #[test]
    fn values_are_read_and_written_as_people_write_them() {
        check::<Number<u64, 1, 9>>("7 -> 7", "0; -1");
        check::<Truth>("true -> true", "yes");
        check::<Choice<Order>>("idle -> idle", "none");
        check::<Time>("25ms -> 25ms; 0.025s -> 25ms; 2min -> 120s; 1.5ms -> 1500us", "0s; 25; 25h");
        check::<TimeRange>(
            "3s -> 3s; 3.1s .. 3500ms -> 3100ms..3500ms; 50ms..50ms -> 50ms",
            "2s..1s; ..1s; 1s..; 0s..1s",
        );
        check::<Address>("[::1]:7460 -> [::1]:7460", "127.0.0.1:0; 127.0.0.1:70000; localhost:7460");
        check::<Name>("north -> north", "../north");
        check::<Source>("cgroup -> cgroup; file:/tmp/load -> file:/tmp/load", "moon");
        check::<Servers>(
            " -> ; 1@[::1]:1, 2@[::1]:2/[::1]:3 -> 1@[::1]:1,2@[::1]:2/[::1]:3",
            "0@[::1]:1; 1@[::1]; [::1]:1",
        );
        check::<Size>("10MiB -> 10MiB; 2048 KiB -> 2MiB; 1000B -> 1000B; 0B -> 0B", "10; 99999999999GiB");
        check::<Programs>("make, /bin/true, -> make,/bin/true", "");
        check::<File>(" -> ; /etc/primus/token -> /etc/primus/token", "");
        check::<Hosts>(
            "farm.example, fd00::7,10.0.0.1 -> farm.example,fd00::7,10.0.0.1",
            "farm.example:80; http://farm.example",
        );
        check::<Command>(" -> ;  notify  --all -> notify --all; ./hooks/notify -> ./hooks/notify", "hooks/ all");
        assert!(Folder::read("").is_err());
    }

    #[test]
    fn lists_of_groups_and_farms_are_read_and_written_as_people_write_them() {
        check::<Groups>(
            "router, bd=ring@3+1 -> router=bully:load,bd=ring:id@1+3",
            "router=moon; a,a; a b; a@0; a@",
        );
        check::<Groups>("router=bully:address -> router=bully:address", "router=ring:id:one-by-one");
        let asking = "router=bully:id:one-by-one@1 -> router=bully:id:one-by-one@1";
        check::<Groups>(asking, "router=bully:id:politely");
        let two = "south=1@[::1]:1 + 2@[::1]:2, w=1@[::1]:3 -> south=1@[::1]:1+2@[::1]:2,w=1@[::1]:3";
        check::<Neighbours>(two, "south; south=; south=[::1]:1; so@uth=1@[::1]:1");
        let twice = "s=1@[::1]:1,s=1@[::1]:2; s=1@[::1]:1+1@[::1]:2; s=1@[::1]:1,w=1@[::1]:1";
        check::<Neighbours>(" -> ; south=1@[::1]:1/[::1]:2 -> south=1@[::1]:1", twice);
    }
}
