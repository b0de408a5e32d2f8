//! How a worker gets into a farm: with a token, once. Later it knows its farm by itself.

use std::io::{self, Read};
use std::time::SystemTime;

use primus_identity::token::{JoinToken, TOKEN_LEN_MAX};
use primus_node::credentials::{self, CredentialsError};
use primus_node::joining::{self, JoinError, JoinedFarm};
use primus_terminal::failure::Failure;
use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::diagnostics::{Level, Log, Note};
use super::worker::own_folder;
use crate::args::WorkerArgs;
use crate::settings::server::WorkerSettings;

/// Where a token can be, so that other users of the host do not see it in the list of processes.
const VARIABLE: &str = "PRIMUS_JOIN";
const STDIN: &str = "-";
const AGAIN: &str = "primus token create --role worker makes a token";

/// Joins, if there is a token and the worker has not joined yet, and says to the settings which farm that is.
pub(super) fn join(args: &WorkerArgs, settings: &mut WorkerSettings, diary: Log) -> Result<(), Failure> {
    let given = args.join.clone().or_else(|| std::env::var(VARIABLE).ok()).filter(|text| !text.is_empty());
    if given.is_some() && args.insecure {
        let message = "--insecure is for farms without encryption, and they need no token";
        return Err(Failure::usage(message, "leave one out"));
    }
    let joined = match given {
        Some(_) if joining::has_joined(&settings.dir) => {
            let words = "has joined already, so the token is not used; to join anew, begin with an empty directory";
            diary.add(note(settings, words.to_owned(), json!({ "kind": "token_not_used" })));
            kept(settings)?
        }
        Some(text) => Some(join_with(&token(&text)?, settings, diary)?),
        None if credentials::is_named(&settings.dir) => kept(settings)?,
        None => None,
    };
    match joined {
        Some(joined) if settings.servers.is_empty() && args.api.is_none() => belong(settings, joined),
        _ => Ok(()),
    }
}

/// From now on this is the worker's farm.
fn belong(settings: &mut WorkerSettings, joined: JoinedFarm) -> Result<(), Failure> {
    settings.servers = joined.servers();
    settings.farm = joined.farm;
    if settings.servers.is_empty() {
        let message = format!("no name of a server of farm {} can be resolved", settings.farm);
        return Err(Failure::unreachable(message, "look at this host's DNS, or name the servers with --servers"));
    }
    settings.check_beside()
}

fn kept(settings: &WorkerSettings) -> Result<Option<JoinedFarm>, Failure> {
    JoinedFarm::read(&settings.dir).map_err(|error| {
        let dir = settings.dir.display();
        Failure::server(format!("{dir} cannot be used: {error}"), "choose another worker.dir")
    })
}

/// The token of this text, or of what comes in.
fn token(text: &str) -> Result<JoinToken, Failure> {
    let mut read = String::new();
    let text = if text == STDIN {
        // A token is one line; what is longer than any is refused below.
        let taken = io::stdin().take(TOKEN_LEN_MAX as u64 + 1).read_to_string(&mut read);
        taken.map_err(|error| Failure::usage(format!("--join - cannot read stdin: {error}"), AGAIN))?;
        &read
    } else {
        text
    };
    JoinToken::parse(text).map_err(|error| Failure::usage(format!("the token cannot be used: {error}"), AGAIN))
}

fn join_with(token: &JoinToken, settings: &mut WorkerSettings, diary: Log) -> Result<JoinedFarm, Failure> {
    own_folder(settings)?;
    // The token is what it begins with, whatever the file says.
    settings.founding = None;
    let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
    let joined = runtime.block_on(joining::join(&settings.dir, &settings.name, token)).map_err(failure)?;
    let words = format!("joined farm {} with token {}", joined.farm, token.id);
    diary.add(note(settings, words, json!({ "kind": "joined", "farm": joined.farm, "token": token.id })));
    Ok(joined)
}

fn note(settings: &WorkerSettings, words: String, facts: Value) -> Note {
    let who = ("worker", settings.name.clone().into());
    Note { time: SystemTime::now(), level: Level::Info, who, words, facts }
}

/// Only what another moment may mend is not a refusal.
fn failure(error: JoinError) -> Failure {
    let words = error.to_string();
    match error {
        JoinError::Name(_) => Failure::usage(words, "--name says what it is called"),
        JoinError::Directory { .. } | JoinError::Credentials(CredentialsError::Folder { .. }) => {
            Failure::server(words, "choose another worker.dir")
        }
        JoinError::NotNow(_) => Failure::not_now("not_now", words, "try again when the farm has a leader"),
        JoinError::Unreachable(_) => {
            Failure::unreachable(words, "start the farm, or look at what is between it and this host")
        }
        JoinError::Refused { code, .. } => Failure::not_allowed(words, hint(&code)),
        JoinError::Credentials(_) => Failure::not_allowed(words, "begin with an empty directory"),
        JoinError::Role(_) | JoinError::Impostor { .. } | JoinError::Plain(_) => Failure::not_allowed(words, AGAIN),
    }
}

fn hint(code: &str) -> &'static str {
    match code {
        "token_name" => "give it that name with --name, or make another token",
        "another_key" => "--name says what it is called",
        "revoked" => "make another token, and begin with an empty directory",
        "protocol" => "run the same version on all hosts",
        _ => AGAIN,
    }
}
