//! The other farms. The leader of a farm has a link to every server of each neighbour and says there what its lending has to say;
//! only the server that leads over there listens. Answers come on links of their own, because over there it is the same.
//!
//! What is said while there is no link is not kept: lending sides say everything that matters again and again.

mod authority;
mod known;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use primus_core::ledger::Roll;
use primus_core::loan::{Content, Message};
use primus_core::{FarmId, ServerId, place};
use primus_identity::authority::AuthorityCertificate;
use primus_identity::hash::AuthorityHash;
use primus_identity::refusal::Refusal;
use primus_server::plan;
use primus_wire::native::{Answer, FarmHello};
use primus_wire::work::{self, FARM_WORD_LEN_MAX, Reader};
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

pub use self::authority::{NotFetched, fetch};
pub use self::known::{Neighbour, Neighbourhood, Origin};
use crate::credentials::Security;
use crate::dialling::{Dialler, Pace, REFUSED_TIME, say};
use crate::line::{Line, Parted};
use crate::link_faults::LinkFaults;
use crate::links::Identity;
use crate::outgoing::{self, All, Outgoing, WRITE_TIME};

/// How many words of all neighbours may wait for the farm.
const WORDS_MAX: usize = 64;

/// A server of another farm that has introduced itself, is known, and waits for an answer.
#[derive(Debug)]
pub(crate) struct Envoy {
    pub(crate) line: Parted,
    /// What it said already.
    pub(crate) arrived: BytesMut,
    pub(crate) hello: FarmHello,
}

/// What happens on the links of other farms.
#[derive(Debug)]
pub(crate) enum NeighbourEvent {
    /// A server of a neighbour can be written to, here.
    Up(Place, Outgoing),
    /// It cannot any more.
    Down(Place),
    /// A neighbour said something.
    WorkerMessage(FarmId, Message),
    /// A link was refused or closed, and this is why.
    Refused(String),
    /// The authority of a neighbour was fetched.
    Fetched(Box<AuthorityCertificate>),
}

/// Which server of which neighbour, by the number that the lending side has given to it.
pub(crate) type Place = (FarmId, ServerId);

/// All links of other farms, and to them.
#[derive(Debug)]
pub(crate) struct Neighbours {
    identity: Identity,
    /// Those that the configuration names.
    configured: BTreeMap<String, Neighbour>,
    known: BTreeMap<FarmId, (String, Neighbour)>,
    /// Certificates of authorities of which only the hash was known, and who is fetching more of them.
    fetched: BTreeMap<AuthorityHash, Bytes>,
    fetching: BTreeMap<AuthorityHash, Task>,
    is_leading: bool,
    /// To them, while this server leads.
    dialled: BTreeMap<Place, Task>,
    up: BTreeMap<Place, Outgoing>,
    /// What each was last told of how things are: whoever can be written to from now on hears it at once.
    beats: BTreeMap<FarmId, Bytes>,
    /// From them.
    accepted: BTreeMap<Place, ([u8; 16], Task)>,
    events: mpsc::Sender<NeighbourEvent>,
    cuts: watch::Receiver<LinkFaults>,
    security: Security,
    told: watch::Sender<Arc<Neighbourhood>>,
}

/// Ends with whoever has it.
#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Neighbours {
    /// Nobody is known before [`Neighbours::know`].
    pub(crate) fn new(
        identity: Identity,
        configured: &[plan::Neighbour],
        cuts: watch::Receiver<LinkFaults>,
        security: Security,
    ) -> (Self, mpsc::Receiver<NeighbourEvent>) {
        let (events, received) = mpsc::channel(WORDS_MAX);
        let of_file = |known: &plan::Neighbour| {
            let authority = security.authority_of(&known.name);
            (known.name.clone(), Neighbour::of_file(known, authority.as_ref()))
        };
        let configured = configured.iter().map(of_file).collect();
        let own = security.authority_of(&identity.cluster).map(|own| own.hash());
        let told = watch::Sender::new(Arc::new(Neighbourhood { own, ..Neighbourhood::default() }));
        let (known, fetched, fetching, dialled, up, beats, accepted) = <_>::default();
        let neighbours = Self {
            identity,
            configured,
            known,
            fetched,
            fetching,
            is_leading: false,
            dialled,
            up,
            beats,
            accepted,
            events,
            cuts,
            security,
            told,
        };
        (neighbours, received)
    }

    /// Who they are; changes are announced.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Neighbourhood>> {
        self.told.subscribe()
    }

    /// These farms are neighbours, as the configuration and the roll say, under the numbers that the lending side gave them.
    /// Links of those that are not, or are others now, end. Must be called inside a runtime.
    pub(crate) fn know(&mut self, roll: &Roll, number_of: impl Fn(&str) -> Option<FarmId>) {
        let farms = known::all(&self.configured, roll, &self.fetched);
        let number = |(name, farm): (&String, &Neighbour)| Some((number_of(name)?, (name.clone(), farm.clone())));
        let known: BTreeMap<FarmId, (String, Neighbour)> = farms.iter().filter_map(number).collect();
        if known == self.known {
            return;
        }
        let before = std::mem::replace(&mut self.known, known);
        let gone: Vec<FarmId> = before
            .into_iter()
            .filter(|(number, farm)| self.known.get(number) != Some(farm))
            .map(|(n, _)| n)
            .collect();
        gone.into_iter().for_each(|number| self.part_with(number));
        let authorities = self.known.values().filter_map(|(_, farm)| farm.authority()).collect();
        // The API and the reader of the configuration let no authority pass that claims to be the own farm's.
        if let Err(error) = self.security.set_neighbours(authorities) {
            _ = self.events.try_send(NeighbourEvent::Refused(error.to_string()));
        }
        self.told.send_modify(|told| *told = Arc::new(Neighbourhood { own: told.own, farms }));
        self.fetch_missing();
        self.dial();
    }

    /// All links with this farm end, whoever dialled.
    fn part_with(&mut self, number: FarmId) {
        self.dialled.retain(|(farm, _), _| *farm != number);
        self.up.retain(|(farm, _), _| *farm != number);
        self.accepted.retain(|(farm, _), _| *farm != number);
        self.beats.remove(&number);
    }

    /// Fetches the certificates of authorities of which only the hash is known.
    fn fetch_missing(&mut self) {
        if matches!(self.security, Security::None) {
            return;
        }
        let missing = self.known.values().filter(|(_, farm)| farm.certificate.is_none());
        let missing: BTreeMap<AuthorityHash, _> =
            missing.filter_map(|(name, farm)| Some((farm.hash?, (name.clone(), farm.servers.clone())))).collect();
        self.fetching.retain(|hash, _| missing.contains_key(hash));
        for (hash, (farm, servers)) in missing {
            let events = self.events.clone();
            let fetch = || Task(tokio::spawn(fetch_again(farm, hash, servers, events)).abort_handle());
            self.fetching.entry(hash).or_insert_with(fetch);
        }
    }

    /// An authority was fetched: [`Neighbours::know`] is to be called again.
    pub(crate) fn on_fetched(&mut self, authority: &AuthorityCertificate) {
        self.fetching.remove(&authority.hash());
        self.fetched.insert(authority.hash(), Bytes::copy_from_slice(authority.der()));
    }

    /// Where the servers of this farm are.
    pub(crate) fn servers_of(&self, name: &str) -> BTreeMap<ServerId, place::Place> {
        let known = self.known.values().find(|(known, _)| known == name);
        known.map(|(_, farm)| farm.servers.clone()).unwrap_or_default()
    }

    /// Who names the nodes of this farm, if links are encrypted.
    pub(crate) fn authority_of(&self, name: &str) -> Option<Bytes> {
        self.security.authority_of(name).map(|authority| Bytes::copy_from_slice(authority.der()))
    }

    /// Starts dialling. Must be called inside a runtime.
    pub(crate) fn lead(&mut self) {
        self.follow();
        self.is_leading = true;
        self.dial();
    }

    /// Dials those to whom there is no link yet, if this server leads.
    fn dial(&mut self) {
        if !self.is_leading {
            return;
        }
        let links: Vec<NeighbourLink> = self.known.iter().flat_map(|known| self.links(known)).collect();
        for link in links {
            let place = link.place;
            self.dialled.entry(place).or_insert_with(|| Task(tokio::spawn(link.run()).abort_handle()));
        }
    }

    /// Links to all servers of a neighbour. Without its authority none of them could be believed.
    fn links(&self, (number, (name, farm)): (&FarmId, &(String, Neighbour))) -> Vec<NeighbourLink> {
        let is_plain = matches!(self.security, Security::None);
        let link = |(server, address): (&ServerId, &place::Place)| {
            let Identity { cluster, server: own, store, .. } = self.identity.clone();
            let hello = FarmHello::new(cluster, name.clone(), own, store);
            let callee = self.security.towards(name, *server);
            let dialler = Dialler::new(address.clone(), callee, Pace::CALLERS);
            NeighbourLink { place: (*number, *server), dialler, hello, events: self.events.clone() }
        };
        let can_dial = is_plain || farm.certificate.is_some();
        farm.servers.iter().filter(|_| can_dial).map(link).collect()
    }

    /// Whoever does not lead has nothing to say.
    pub(crate) fn follow(&mut self) {
        self.is_leading = false;
        self.dialled.clear();
        self.up.clear();
        self.beats.clear();
    }

    /// A server can be written to. It hears at once how things are.
    pub(crate) fn opened(&mut self, place: Place, outgoing: Outgoing) {
        if !self.dialled.contains_key(&place) {
            return;
        }
        let beat = self.beats.get(&place.0).filter(|_| !self.is_cut(place.0));
        beat.into_iter().for_each(|beat| _ = outgoing.send(beat.clone()));
        self.up.insert(place, outgoing);
    }

    /// Are the links of this neighbour cut on purpose?
    pub(crate) fn is_cut(&self, neighbour: FarmId) -> bool {
        let cuts = self.cuts.borrow();
        self.known.get(&neighbour).is_some_and(|(name, _)| cuts.farms.contains(name))
    }

    pub(crate) fn closed(&mut self, place: Place) {
        self.up.remove(&place);
    }

    /// Says something to all servers of a neighbour.
    pub(crate) fn say(&mut self, to: FarmId, message: &Message) {
        let mut buffer = BytesMut::new();
        work::put(&mut buffer, message);
        let bytes = buffer.freeze();
        if !self.is_cut(to) {
            // Whoever does not read is dialled again.
            self.up.retain(|(neighbour, _), outgoing| *neighbour != to || outgoing.send(bytes.clone()));
        }
        if matches!(message.content, Content::Beat(_)) {
            self.beats.insert(to, bytes);
        }
    }

    /// Answers a server of a neighbour that calls. Must be called inside a runtime.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn meet(&mut self, envoy: Envoy) -> Result<(), String> {
        let Envoy { line, arrived, hello } = envoy;
        let FarmHello { farm, server, store, .. } = hello;
        let number = self.known.iter().find(|(_, (name, _))| *name == farm).map(|(number, _)| *number);
        let number = number.ok_or_else(|| format!("farm '{farm}' is not a neighbour"))?;
        let line = line.join().map_err(|error| format!("a link of farm '{farm}': {error}"))?;
        let place = (number, server);
        let twin = self.accepted.get(&place).filter(|(known, task)| *known != store && !task.0.is_finished());
        if twin.is_some() {
            let reason = format!("farm '{farm}' has two servers {server}: give each farm a name of its own");
            tokio::spawn(answer(line, Answer::Refused(reason.clone())));
            return Err(reason);
        }
        let listening = listen(line, arrived, (number, farm), self.events.clone());
        // An older link of the same server ends with this.
        self.accepted.insert(place, (store, Task(tokio::spawn(listening).abort_handle())));
        Ok(())
    }
}

/// Keeps the link to one server of a neighbour.
struct NeighbourLink {
    place: Place,
    dialler: Dialler,
    hello: FarmHello,
    events: mpsc::Sender<NeighbourEvent>,
}

impl NeighbourLink {
    async fn run(mut self) {
        let mut told = String::new();
        loop {
            match self.dialler.dial(&self.hello).await {
                Ok((line, _, Answer::Admitted)) => self.talk(line).await,
                Ok((.., Answer::Refused(reason) | Answer::Barred(reason))) => {
                    self.tell_refusal(reason, &mut told).await;
                    sleep(REFUSED_TIME).await;
                }
                // Servers of one cluster are welcome, those of another farm are admitted.
                Ok((.., Answer::Welcome(_))) => {}
                Err(error) => self.on_failure(&error, &mut told).await,
            }
            sleep(self.dialler.next_pause()).await;
        }
    }

    /// Most failures pass by themselves.
    async fn on_failure(&mut self, error: &io::Error, told: &mut String) {
        if let Some(Some(sentence)) = self.dialler.news_of_name(Some(error)) {
            let event = format!("no link to server {} of farm '{}': {sentence}", self.place.1, self.hello.to);
            _ = self.events.send(NeighbourEvent::Refused(event)).await;
        }
        if let Some(refusal) = Refusal::of_io(error) {
            self.tell_refusal(refusal.to_string(), told).await;
            sleep(REFUSED_TIME).await;
        }
    }

    /// The same again and again would only fill the history.
    async fn tell_refusal(&self, reason: String, told: &mut String) {
        if *told != reason {
            let event = format!("server {} of farm '{}' refuses: {reason}", self.place.1, self.hello.to);
            _ = self.events.send(NeighbourEvent::Refused(event)).await;
            *told = reason;
        }
    }

    /// Writes until the link is lost.
    async fn talk(&self, line: Line) {
        let (outgoing, leaving) = outgoing::queue(&All::default());
        _ = self.events.send(NeighbourEvent::Up(self.place, outgoing)).await;
        let (mut reading, writing) = tokio::io::split(line);
        let mut ignored = [0; 64];
        tokio::select! {
            // Nothing comes on this link but its end.
            _ = reading.read(&mut ignored) => {}
            () = leaving.write_to(writing, None) => {}
        }
        _ = self.events.send(NeighbourEvent::Down(self.place)).await;
    }
}

async fn answer(mut line: Line, answer: Answer) -> Option<Line> {
    timeout(WRITE_TIME, say(&mut line, &answer)).await.ok()?.ok()?;
    Some(line)
}

/// Fetches the authority of a farm, however long that takes.
async fn fetch_again(
    farm: String,
    hash: AuthorityHash,
    servers: BTreeMap<ServerId, place::Place>,
    events: mpsc::Sender<NeighbourEvent>,
) {
    let mut told = String::new();
    loop {
        match fetch(&farm, hash, &servers).await {
            Ok(authority) => {
                _ = events.send(NeighbourEvent::Fetched(Box::new(authority))).await;
                return;
            }
            Err(error) if error.is_refusal() && error.to_string() != told => {
                told = error.to_string();
                _ = events.send(NeighbourEvent::Refused(told.clone())).await;
            }
            Err(_) => {}
        }
        sleep(REFUSED_TIME).await;
    }
}

/// Hears what a neighbour says until the link is lost. Whoever says what nobody understands is not listened to any longer, nor
/// whoever changes its term: a leader that is elected again calls again.
async fn listen(
    line: Line,
    mut arrived: BytesMut,
    (number, farm): (FarmId, String),
    events: mpsc::Sender<NeighbourEvent>,
) {
    let Some(mut line) = answer(line, Answer::Admitted).await else { return };
    let mut reader = Reader::up_to(FARM_WORD_LEN_MAX);
    let mut term = None;
    loop {
        match reader.take::<Message>(&mut arrived) {
            Ok(Some(message)) if *term.get_or_insert(message.term) != message.term => {
                let reason = format!("closed a link from farm '{farm}': it speaks for two leaders");
                _ = events.send(NeighbourEvent::Refused(reason)).await;
                return;
            }
            Ok(Some(message)) => _ = events.send(NeighbourEvent::WorkerMessage(number, message)).await,
            Ok(None) => match line.read_buf(&mut arrived).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            },
            Err(error) => {
                let reason = format!("closed a link from farm '{farm}': {error}");
                _ = events.send(NeighbourEvent::Refused(reason)).await;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use primus_core::Term;
    use primus_core::ledger::LoanId;
    use primus_core::loan::Beat;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);
    const MANY: u64 = 1000;

    fn word(number: u64) -> Message {
        let beat = Beat { borrowed: vec![LoanId(number)], ..Beat::default() };
        Message { term: Term(1), content: Content::Beat(beat) }
    }

    /// A server of east has a link to this one, of north.
    async fn met() -> (Neighbours, mpsc::Receiver<NeighbourEvent>, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let there = TcpStream::connect(address).await.expect("it listens");
        let (here, _) = listener.accept().await.expect("it called");
        let identity =
            Identity { cluster: "north".to_owned(), server: ServerId(1), store: [1; 16], incarnation: 1 };
        let servers = [(ServerId(1), address.into())].into();
        let east = plan::Neighbour { name: "east".to_owned(), servers, authority: None };
        let (mut neighbours, events) =
            Neighbours::new(identity, &[east], watch::channel(LinkFaults::default()).1, Security::None);
        neighbours.know(&Roll::default(), |_| Some(FarmId(1)));
        let hello = FarmHello::new("east".to_owned(), "north".to_owned(), ServerId(1), [7; 16]);
        let line = Line::plain(here).part().expect("a socket");
        neighbours.meet(Envoy { line, arrived: BytesMut::new(), hello }).expect("it is a neighbour");
        (neighbours, events, there)
    }

    #[tokio::test]
    async fn a_neighbour_that_says_more_than_is_heard_has_to_wait_and_nothing_is_lost() {
        let (_neighbours, mut events, mut there) = met().await;
        let mut said = BytesMut::new();
        (0..MANY).for_each(|number| work::put(&mut said, &word(number)));
        timeout(PATIENCE, there.write_all(&said)).await.expect("it is short").expect("the link holds");
        let filled = async {
            while events.len() < WORDS_MAX {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, filled).await.expect("it is heard");
        for _ in 0..1000 {
            tokio::task::yield_now().await;
            assert!(events.len() <= WORDS_MAX, "{} wait", events.len());
        }
        for number in 0..MANY {
            let event = timeout(PATIENCE, events.recv()).await.expect("it arrives in time");
            assert!(
                matches!(&event, Some(NeighbourEvent::WorkerMessage(FarmId(1), said)) if *said == word(number)),
                "{event:?}"
            );
        }
    }
}
