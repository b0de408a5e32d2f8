//! `primus init`: makes the file with which a farm begins, or tells a server how to begin.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use primus_core::ServerId;
use primus_identity::authority::AuthorityCertificate;
use primus_node::founding::Order;
use primus_node::founding_file::FoundingFile;
use primus_terminal::failure::Failure;
use primus_terminal::names::check_name;
use primus_terminal::{Format, Verdict};
use serde::Serialize;

use crate::args::InitArgs;

/// What was made.
#[derive(Serialize)]
struct Made {
    farm: String,
    file: String,
    security: &'static str,
    /// What the authority is recognised by.
    authority: Option<String>,
}

/// Makes the file, and says by what the farm is recognised from now on.
pub(super) fn run(args: &InitArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    match (&args.alone, &args.secure) {
        (Some(dir), _) => return order(dir, Order::Alone, format),
        (_, Some(dir)) => return order(dir, Order::Secure, format),
        (None, None) => {}
    }
    let farm = &args.farm;
    check_name(farm).map_err(|wrong| {
        Failure::usage(format!("'{farm}' cannot be a farm's name: {wrong}"), "choose another --farm")
    })?;
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{farm}.founding")));
    let failed = |error: &dyn std::error::Error| Failure::server(error.to_string(), "choose another --out");
    let file =
        FoundingFile::create(farm, servers(&args.servers)?, !args.insecure).map_err(|error| failed(&error))?;
    file.write(&out).map_err(|error| failed(&error))?;
    let made = Made {
        farm: farm.clone(),
        file: out.display().to_string(),
        security: if args.insecure { "none" } else { "tls" },
        authority: file.certificate().map(AuthorityCertificate::hash).map(|hash| hash.to_string()),
    };
    format.show(|| words(&made), &made)?;
    Ok(Verdict::Held)
}

/// What a server is told about its founding.
#[derive(Serialize)]
struct Told {
    dir: String,
    order: &'static str,
}

/// Tells the server of this directory what to do, whether it runs or not.
fn order(dir: &Path, order: Order, format: Format) -> Result<Verdict, Failure> {
    order.give(dir).map_err(|error| {
        Failure::usage(format!("{} cannot be written: {error}", dir.display()), "name the directory of a server")
    })?;
    let (name, then) = match order {
        Order::Alone => ("alone", "founds its farm alone: within a second if it runs, else when it starts"),
        Order::Secure => ("secure", "encrypts its links when it is started with a founding file"),
    };
    let told = Told { dir: dir.display().to_string(), order: name };
    format.show(|| format!("the server of {} {then}\n", told.dir), &told)?;
    Ok(Verdict::Held)
}

fn words(made: &Made) -> String {
    let Made { farm, file, authority, .. } = made;
    match authority {
        Some(hash) => format!(
            "farm {farm}, authority {hash}\n{file} makes servers and workers of this farm: keep it secret\n"
        ),
        None => {
            format!(
                "farm {farm}, whose links are not encrypted: a process that reaches them can run commands\n{file}\n"
            )
        }
    }
}

/// `1=10.0.0.1:7460,2=north-2:7460`
fn servers(text: &str) -> Result<BTreeMap<ServerId, String>, Failure> {
    let wrong = |part: &str| {
        Failure::usage(format!("--servers: '{part}' is not ID=HOST:PORT"), "write 1=10.0.0.1:7460,2=10.0.0.2:7460")
    };
    let mut servers = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (id, address) = part.split_once('=').ok_or_else(|| wrong(part))?;
        let id = id.parse().ok().filter(|id| *id > 0).map(ServerId).ok_or_else(|| wrong(part))?;
        if !is_place(address) || servers.insert(id, address.to_owned()).is_some() {
            return Err(wrong(part));
        }
    }
    Ok(servers)
}

/// A host's name or address, and a port.
fn is_place(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    !host.is_empty() && host.bytes().all(is_host) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_people_write_them() {
        let read = servers("1=10.0.0.1:7460, 2=north-2.example:7460,12=[fd00::2]:1").unwrap();
        assert_eq!(read.keys().map(|id| id.0).collect::<Vec<_>>(), [1, 2, 12]);
        assert!(servers("").unwrap().is_empty());
        for wrong in
            ["1", "0=a:1", "x=a:1", "1=a", "1=a:0", "1=a:70000", "1=:1", "1=a b:1", "1=\":1", "1=a:1,1=b:1"]
        {
            assert!(servers(wrong).is_err(), "{wrong}");
        }
    }
}
