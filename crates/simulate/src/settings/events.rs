//! Who starts, who dies and who is cut off, as people write it: `1,3`, `5@2s`, `1,2|3@2s..5s`.

use std::collections::BTreeSet;

use primus_core::ServerId;
use primus_lab::experiment::{Partition, Starts};
use primus_terminal::amounts::{moment_us, quoted};
use primus_terminal::failure::Failure;

use super::cast::Cast;

const PARTITION_HINT: &str = "write groups with | between them and when, such as '1,2|3@2s..5s'";

/// Nobody named means a cold start.
pub(super) fn starts(words: &[String], cast: &Cast) -> Result<Starts, Failure> {
    let words: Vec<&str> = items(words).collect();
    if words.is_empty() {
        return Ok(Starts::Cold);
    }
    if words == ["all"] {
        return Ok(Starts::These(cast.ids().collect()));
    }
    let nodes: Vec<ServerId> = words.iter().map(|word| cast.find("--start", word)).collect::<Result<_, _>>()?;
    no_repetition("--start", &nodes, cast)?;
    Ok(Starts::These(nodes))
}

/// Whoever dies first comes first.
pub(super) fn crashes(words: &[String], cast: &Cast) -> Result<Vec<(ServerId, u64)>, Failure> {
    let mut crashes = items(words).map(|word| crash(word, cast)).collect::<Result<Vec<_>, _>>()?;
    let nodes: Vec<ServerId> = crashes.iter().map(|(node, _)| *node).collect();
    no_repetition("--crash", &nodes, cast)?;
    if nodes.len() == cast.ids().len() {
        return Err(Failure::usage("--crash leaves no node alive", "name fewer nodes"));
    }
    crashes.sort_by_key(|(_, at_us)| *at_us);
    Ok(crashes)
}

fn crash(word: &str, cast: &Cast) -> Result<(ServerId, u64), Failure> {
    let (node, at_us) = match word.split_once('@') {
        Some((node, at)) => (node, moment_us(at)?),
        None => (word, 0),
    };
    Ok((cast.find("--crash", node.trim())?, at_us))
}

/// Groups that cannot talk to each other: `1,2|3`, `1,2|3@2s..`, `1,2|3@2s..5s`.
pub(super) fn partition(text: &str, cast: &Cast) -> Result<Partition, Failure> {
    let malformed = || Failure::usage(format!("--partition {} is malformed", quoted(text)), PARTITION_HINT);
    let (groups, span) = match text.split_once('@') {
        Some((groups, span)) => (groups, Some(span.split_once("..").ok_or_else(malformed)?)),
        None => (text, None),
    };
    let groups: Vec<Vec<&str>> = groups.split('|').map(|group| group.split(',').map(str::trim).collect()).collect();
    if groups.len() < 2 || groups.iter().flatten().any(|word| word.is_empty()) {
        return Err(malformed());
    }
    let find = |word: &&str| cast.find("--partition", word);
    let read = groups.iter().map(|group| group.iter().map(find).collect::<Result<Vec<_>, _>>());
    let groups = read.collect::<Result<Vec<_>, _>>()?;
    no_repetition("--partition", &groups.concat(), cast)?;
    let (from_us, until_us) = span.map_or(Ok((0, None)), |(from, until)| read_span(text, from, until))?;
    Ok(Partition { groups, from_us, until_us })
}

fn read_span(text: &str, from: &str, until: &str) -> Result<(u64, Option<u64>), Failure> {
    let is_open = |word: &str| word.trim().is_empty();
    let from_us = if is_open(from) { 0 } else { moment_us(from)? };
    let until_us = if is_open(until) { None } else { Some(moment_us(until)?) };
    if until_us.is_some_and(|until_us| until_us <= from_us) {
        let message = format!("--partition {} ends before it begins", quoted(text));
        return Err(Failure::usage(message, "put the earlier moment first: @2s..5s"));
    }
    Ok((from_us, until_us))
}

/// The parts of comma lists, however many flags they came in.
fn items(words: &[String]) -> impl Iterator<Item = &str> {
    words.iter().flat_map(|word| word.split(',').map(str::trim))
}

fn no_repetition(flag: &str, nodes: &[ServerId], cast: &Cast) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    match nodes.iter().find(|node| !seen.insert(**node)) {
        None => Ok(()),
        Some(node) => {
            Err(Failure::usage(format!("{flag} names {} twice", cast.short(*node)), "name every node once at most"))
        }
    }
}
