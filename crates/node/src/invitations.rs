//! How a server lets others join. A process without a certificate may say one short request at the door; the leader decides.
//!
//! A request that would be refused is not written down: only a look at the leader's roll is made for it. So those who guess at
//! tokens cannot fill the log. Few requests are heard at once, and the oldest that is still silent gives way.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::BytesMut;
use primus_core::ledger::roll::{self, Change, Consume, Denial, Done, Fingerprint, Role, TokenId};
use primus_identity::UnixTime;
use primus_identity::authority::{Authority, AuthorityCertificate, Request};
use primus_identity::certificate::Validity;
use primus_identity::keys::{Keys, PublicKey};
use primus_identity::name::Name;
use primus_identity::token::Secret;
use primus_identity::verify::Clock;
use primus_wire::join::{Invitation, JoinAnswer, JoinRequest, REQUEST_LEN_MAX};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::credentials::{DAYS, Issued};
use crate::dialling::{HELLO_TIME, say};
use crate::handle::{Handle, Unable};
use crate::leader_search::Patience;
use crate::line::{Line, Parted};
use crate::questions::{LeaderReply, LeaderRequest};
use crate::unidentified::Unidentified;

/// How many joiners may be silent at once, or half-way through their request.
const SILENT_MAX: usize = 16;
/// How many requests may wait, and as many may be under way.
const ASKED_MAX: usize = 16;

/// Where those go who ask to join.
#[derive(Debug, Clone)]
pub(crate) struct Joiners(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    silent: Unidentified,
    asked: OnceLock<mpsc::Sender<Joiner>>,
}

/// One that has asked.
#[derive(Debug)]
pub(crate) struct Joiner {
    line: Parted,
    request: JoinRequest,
}

/// What the leader says to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Admission {
    /// This is its certificate, and these are the farm's authorities; the first one has issued it.
    Issued(Issued, Vec<Vec<u8>>),
    /// It is not let in, for this reason: a code and a sentence.
    Denied(String, String),
    /// It cannot be let in at the moment, for this reason.
    NotNow(String),
}

impl Default for Joiners {
    fn default() -> Self {
        Self(Arc::new(Inner { silent: Unidentified::joiners(SILENT_MAX), asked: OnceLock::new() }))
    }
}

impl Joiners {
    /// Those who have asked, from now on; nothing comes if somebody serves them already.
    pub(crate) fn serve(&self) -> mpsc::Receiver<Joiner> {
        let (asked, queue) = mpsc::channel(ASKED_MAX);
        // The second one has no sender, and so it ends.
        _ = self.0.asked.set(asked);
        queue
    }

    /// Hears the request of a joiner, and passes it on.
    pub(crate) fn hear(&self, mut line: Line) {
        let joiners = self.clone();
        tokio::spawn(async move {
            let Some(request) = joiners.request(&mut line).await else { return };
            let turn = joiners.0.asked.get().and_then(|asked| asked.try_reserve().ok());
            match (turn, line) {
                (Some(turn), line) => {
                    if let Ok(line) = line.part() {
                        turn.send(Joiner { line, request });
                    }
                }
                (None, line) => answer(line, &JoinAnswer::NotNow("too many ask to join at once".to_owned())).await,
            }
        });
    }

    /// What it asks for, if it says so in time.
    async fn request(&self, line: &mut Line) -> Option<JoinRequest> {
        let mut place = self.0.silent.enter().await;
        let heard = async {
            let (mut line, mut arrived) = (line.take(REQUEST_LEN_MAX), BytesMut::new());
            loop {
                if let Some(request) = JoinRequest::take(&mut arrived).ok()? {
                    return Some(request);
                }
                if line.read_buf(&mut arrived).await.ok()? == 0 {
                    return None;
                }
            }
        };
        tokio::select! {
            request = timeout(HELLO_TIME, heard) => request.ok()?,
            () = place.lost() => None,
        }
    }
}

/// Answers all who ask, a few at once.
pub(crate) async fn answer_all(mut joiners: mpsc::Receiver<Joiner>, handle: Handle) {
    let room = Arc::new(Semaphore::new(ASKED_MAX));
    while let Some(Joiner { line, request }) = joiners.recv().await {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let handle = handle.clone();
        tokio::spawn(async move {
            let said = invite(&handle, &request).await;
            if let JoinAnswer::Refused(_, reason) = &said {
                handle.history.refused(format!("refused to let {} join: {reason}", called(&request)));
            }
            if let Ok(line) = line.join() {
                answer(line, &said).await;
            }
            drop(place);
        });
    }
}

/// How a joiner calls itself, if that can be repeated.
fn called(request: &JoinRequest) -> String {
    let is_name = primus_core::names::is_name(&request.name);
    if is_name { format!("worker {}", request.name) } else { "a process".to_owned() }
}

/// Says it, and that nothing follows.
async fn answer(mut line: Line, said: &JoinAnswer) {
    let saying = async {
        say(&mut line, said).await?;
        line.shutdown().await
    };
    // It asks again if it has not heard the answer.
    _ = timeout(HELLO_TIME, saying).await;
}

/// Asks the leader about a request.
async fn invite(handle: &Handle, request: &JoinRequest) -> JoinAnswer {
    if let Some(objection) = request.objection() {
        return JoinAnswer::Refused("protocol".to_owned(), objection);
    }
    let question = match consume(request) {
        Some(consume) => LeaderRequest::Join(Box::new(consume), request.key.clone()),
        None => return refused(&Denial::Malformed),
    };
    match handle.ask_patiently(question, Patience::LONG).await {
        Ok(LeaderReply::Joined(Admission::Issued(issued, authorities))) => {
            let Issued { certificate, voucher, .. } = issued;
            let (farm, servers) = (handle.asker.links.farm().to_owned(), handle.asker.places.clone());
            JoinAnswer::Joined(Invitation { farm, certificate, voucher, authorities, servers })
        }
        Ok(LeaderReply::Joined(Admission::Denied(code, reason))) => JoinAnswer::Refused(code, reason),
        Ok(LeaderReply::Joined(Admission::NotNow(reason))) => JoinAnswer::NotNow(reason),
        Ok(_) => JoinAnswer::NotNow(Unable::Unknown.to_string()),
        Err(unable) => JoinAnswer::NotNow(unable.to_string()),
    }
}

/// The request as the ledger has it; nothing if it makes no sense. The secret itself goes no further.
fn consume(request: &JoinRequest) -> Option<Consume> {
    let key = PublicKey::from_der(&request.key).ok()?;
    Some(Consume {
        token: TokenId(request.token),
        secret: Fingerprint(*Secret::from_bytes(request.secret).hash().bytes()),
        role: Role::of(&request.role)?,
        store: request.store,
        name: request.name.clone(),
        key: Fingerprint(*key.fingerprint().bytes()),
    })
}

/// Lets a joiner in, as the leader.
pub(crate) async fn admit_here(handle: &Handle, consume: Consume, key: &[u8]) -> Result<Admission, Unable> {
    let Some(key) = PublicKey::from_der(key).ok().filter(|key| *key.fingerprint().bytes() == consume.key.0) else {
        return Ok(denied(&Denial::Malformed));
    };
    // As yet others than workers have nothing to do here, whatever their tokens say.
    if consume.role != Role::Worker {
        let reason = "only workers join with a token as yet: primus token create --role worker";
        return Ok(Admission::Denied("token_role".to_owned(), reason.to_owned()));
    }
    let now_ms = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let now_ms = u64::try_from(now_ms.as_millis()).unwrap_or(u64::MAX);
    let asked = consume.clone();
    let judged = handle.farm.look(move |foreman| {
        let ledger = foreman.ledger();
        let judged = ledger.roll().judge(&asked, now_ms.max(ledger.newest_ms()));
        judged.map(|_| ledger.roll().authorities().to_vec())
    });
    let authorities = match judged.await? {
        Ok(authorities) => authorities,
        Err(denial) => return Ok(denied(&denial)),
    };
    let name = consume.name.clone();
    match handle.farm.change_roll(Change::Consume(consume)).await? {
        Ok(Done::Consumed { serial, .. }) => {
            let now = handle.live.as_ref().map_or_else(UnixTime::now, |live| live.clock().now());
            let name = Name::worker(handle.asker.links.farm(), &name).ok();
            let issued = name.and_then(|name| issue(&authorities, &name, &key, (serial, now)));
            Ok(issued.unwrap_or_else(|| {
                Admission::NotNow("the farm's authority cannot issue certificates: see primus cert show".to_owned())
            }))
        }
        Ok(_) => Err(Unable::Unknown),
        Err(denial) => Ok(denied(&denial)),
    }
}

/// A certificate of this number, from the newest authority.
fn issue(
    authorities: &[roll::Authority],
    name: &Name,
    key: &PublicKey,
    (serial, now): (u64, UnixTime),
) -> Option<Admission> {
    let newest = authorities.first()?;
    let certificate = AuthorityCertificate::from_der(&newest.certificate).ok()?;
    let authority = Authority::new(certificate, Keys::from_der(&newest.key.0).ok()?).ok()?;
    let request = Request { name, key, api: &[], serial };
    let certificate = authority.issue(&request, Validity::since_yesterday(now, DAYS)).ok()?.to_vec();
    let (authority, voucher) = (newest.certificate.clone(), newest.voucher.clone());
    let all = authorities.iter().map(|authority| authority.certificate.clone()).collect();
    Some(Admission::Issued(Issued { certificate, authority, voucher }, all))
}

fn refused(denial: &Denial) -> JoinAnswer {
    JoinAnswer::Refused(code(denial).to_owned(), denial.to_string())
}

fn denied(denial: &Denial) -> Admission {
    match denial {
        Denial::Full(_) => Admission::NotNow(denial.to_string()),
        denial => Admission::Denied(code(denial).to_owned(), denial.to_string()),
    }
}

/// A refusal as scripts know it.
const fn code(denial: &Denial) -> &'static str {
    match denial {
        Denial::NoSuchToken => "token_unknown",
        Denial::OtherRole(_) => "token_role",
        Denial::Expired => "token_expired",
        Denial::UsedUp => "token_used_up",
        Denial::OtherName(_) => "token_name",
        Denial::OtherKey(_) => "another_key",
        Denial::Revoked => "revoked",
        _ => "malformed",
    }
}

#[cfg(test)]
mod tests {
    use primus_identity::certificate::Certificate;

    use super::*;
    use crate::credentials::entry_of;

    fn authority() -> roll::Authority {
        let authority = Authority::create("north", UnixTime::now()).unwrap();
        entry_of(&authority, Vec::new())
    }

    fn request(key: &PublicKey) -> JoinRequest {
        JoinRequest::new(("worker", 7, [3; 16]), [1; 16], key.der().to_vec(), "w1".to_owned())
    }

    #[test]
    fn the_newest_authority_names_the_worker_and_all_are_told() {
        let (authorities, key) = ([authority(), authority()], Keys::generate().unwrap().public_key());
        let (name, at) = (Name::worker("north", "w1").unwrap(), (9, UnixTime::now()));
        let Some(Admission::Issued(Issued { certificate, .. }, told)) = issue(&authorities, &name, &key, at) else {
            panic!("it is issued")
        };
        let read = Certificate::read(&certificate.clone().into()).unwrap();
        assert_eq!((read.name, read.serial, read.key), (name.clone(), 9, key.clone()));
        assert_eq!(told, authorities.clone().map(|authority| authority.certificate));
        let trust = |authority: &roll::Authority| {
            let authority = AuthorityCertificate::from_der(&authority.certificate).unwrap();
            primus_identity::trust::Trust::new("north", vec![authority], Vec::new()).unwrap()
        };
        let judged =
            authorities.map(|known| trust(&known).judge(&certificate.clone().into(), UnixTime::now()).is_ok());
        assert_eq!(judged, [true, false]);
        assert_eq!(issue(&[], &name, &key, at), None);
    }

    #[test]
    fn the_secret_goes_no_further_and_what_makes_no_sense_is_no_question() {
        let key = Keys::generate().unwrap().public_key();
        let asked = consume(&request(&key)).unwrap();
        assert_eq!(asked.secret, Fingerprint(*Secret::from_bytes([3; 16]).hash().bytes()));
        assert_eq!(asked.key, Fingerprint(*key.fingerprint().bytes()));
        let (mut strange, mut damaged) = (request(&key), request(&key));
        strange.role = "boss".to_owned();
        damaged.key = vec![4; 91];
        assert_eq!([strange, damaged].map(|request| consume(&request)), [None, None]);
    }

    #[test]
    fn one_that_finds_the_roll_full_may_ask_again() {
        assert!(matches!(denied(&Denial::Full(roll::List::Workers)), Admission::NotNow(_)));
        let denial = Denial::OtherKey("w1".to_owned());
        let words = "w1 is another worker: primus workers forget w1, or choose a name".to_owned();
        assert_eq!(denied(&denial), Admission::Denied("another_key".to_owned(), words));
    }
}
