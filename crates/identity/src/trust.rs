//! The authorities that a node believes, each for the nodes of its own farm: the authority of south cannot name a server
//! of north.
//!
//! A farm has several authorities while it changes from one to the next. The farms of neighbours are trusted beside one's
//! own, and no neighbour's authority may bear the own farm's name.
//!
//! ```
//! use primus_identity::{CertificateDer, UnixTime, authority::Authority, trust::Trust};
//!
//! let now = UnixTime::now();
//! let [north, south] = ["north", "south"].map(|farm| Authority::create(farm, now).unwrap().certificate().clone());
//! let trust = Trust::new("north", vec![north.clone()], vec![south]).unwrap();
//! assert!(trust.judge(&CertificateDer::from(vec![0]), now).is_err());
//! assert!(Trust::new("north", vec![], vec![north]).is_err());
//! ```

use primus_core::ServerId;
use rustls::pki_types::CertificateDer;

use crate::authority::{AuthorityCertificate, AuthorityError};
use crate::certificate::{self, Certificate, Present, Validity};
use crate::hash::{AuthorityHash, Fingerprint, ShortHash};
use crate::name::{Name, Node};
use crate::refusal::{Refusal, Time};

/// How many certificates beside its own a peer may show: its authority, and a voucher for that.
const SHOWN_MAX: usize = 2;

/// Who is at the other end, proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// Its name.
    pub name: Name,
    /// The number of its certificate.
    pub serial: u64,
    /// Its key.
    pub key: Fingerprint,
    /// The authority that gave it the name.
    pub authority: AuthorityHash,
    /// When its certificate is good.
    pub validity: Validity,
}

impl Identified {
    /// The number of a server of this farm; anything else is refused.
    pub fn server_of(&self, farm: &str) -> Result<ServerId, Refusal> {
        self.must_be_of(farm)?;
        self.name.server_id().ok_or_else(|| Refusal::WrongRole { name: self.name.clone(), wanted: "server" })
    }

    /// The name of a worker of this farm; anything else is refused.
    pub fn worker_of(&self, farm: &str) -> Result<&str, Refusal> {
        self.must_be_of(farm)?;
        self.name.worker_name().ok_or_else(|| Refusal::WrongRole { name: self.name.clone(), wanted: "worker" })
    }

    /// Refuses a hello that names another node than the certificate does.
    pub fn must_say(&self, hello: &Name) -> Result<(), Refusal> {
        match hello.node() {
            Node::Server(_) => self.server_of(hello.farm()).map(drop)?,
            Node::Worker(_) => self.worker_of(hello.farm()).map(drop)?,
        }
        if self.name == *hello {
            return Ok(());
        }
        Err(Refusal::HelloDiffers { certificate: self.name.clone(), hello: hello.clone() })
    }

    fn must_be_of(&self, farm: &str) -> Result<(), Refusal> {
        if self.name.farm() == farm {
            return Ok(());
        }
        Err(Refusal::OtherFarm { name: self.name.clone(), wanted: farm.to_owned() })
    }
}

/// The authorities of the own farm and of neighbours.
#[derive(Debug, Clone)]
pub struct Trust {
    farm: String,
    authorities: Vec<AuthorityCertificate>,
    former: Vec<ShortHash>,
}

impl Trust {
    /// Trusts the authorities of the own farm, and of other farms.
    pub fn new(
        farm: &str,
        own: Vec<AuthorityCertificate>,
        neighbours: Vec<AuthorityCertificate>,
    ) -> Result<Self, AuthorityError> {
        if let Some(stray) = own.iter().find(|authority| authority.farm() != farm) {
            return Err(AuthorityError::OtherFarm { there: stray.farm().to_owned(), wanted: farm.to_owned() });
        }
        if neighbours.iter().any(|authority| authority.farm() == farm) {
            return Err(AuthorityError::OwnFarm(farm.to_owned()));
        }
        Ok(Self { farm: farm.to_owned(), authorities: [own, neighbours].concat(), former: Vec::new() })
    }

    /// The same for a farm that had these authorities before. They are not trusted; callers that know only one of them are shown
    /// what it has vouched for.
    #[must_use]
    pub fn after(self, former: Vec<ShortHash>) -> Self {
        Self { former, ..self }
    }

    pub(crate) fn former(&self) -> &[ShortHash] {
        &self.former
    }

    /// The own farm.
    #[must_use]
    pub fn farm(&self) -> &str {
        &self.farm
    }

    /// All authorities, those of the own farm first.
    #[must_use]
    pub fn authorities(&self) -> &[AuthorityCertificate] {
        &self.authorities
    }

    /// Who the bearer of this certificate is, if an authority of the farm that it names has signed it, and now is its time.
    pub fn judge(&self, der: &CertificateDer<'_>, now: impl Into<Present>) -> Result<Identified, Refusal> {
        self.judge_with(der, &[], now)
    }

    /// The same, where an authority may have vouched for the one that has signed it: the bearer shows that beside its own.
    pub fn judge_with(
        &self,
        der: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        now: impl Into<Present>,
    ) -> Result<Identified, Refusal> {
        let Certificate { name, serial, key, validity } = Certificate::read(der)?;
        let (leaf, now) = (certificate::parse(der)?, now.into());
        let authorities = || self.authorities.iter().filter(|authority| authority.farm() == name.farm());
        let signer = authorities().find(|authority| authority.has_signed(&leaf, &[], validity));
        let vouched = || authorities().find(|authority| authority.has_signed(&leaf, vouchers(shown), validity));
        let signer = signer.or_else(vouched).ok_or(Refusal::ForeignAuthority)?;
        validity.judge(now)?;
        if now.earliest > signer.validity().until {
            let (farm, until) = (signer.farm().to_owned(), Time(signer.validity().until));
            return Err(Refusal::AuthorityExpired { farm, until, now: Time(now.earliest) });
        }
        Ok(Identified { name, serial, key: key.fingerprint(), authority: signer.hash(), validity })
    }
}

/// What may be a voucher among what a peer shows: it is the last of a few.
fn vouchers<'a, 'b>(shown: &'a [CertificateDer<'b>]) -> &'a [CertificateDer<'b>] {
    shown.get(..SHOWN_MAX).unwrap_or(shown)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::*;
    use crate::authority::{Authority, Request};
    use crate::certificate::DAY;
    use crate::keys::Keys;

    const YEAR: Duration = DAY.saturating_mul(365);

    fn after(time: Duration) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000) + time)
    }

    fn now() -> UnixTime {
        after(Duration::ZERO)
    }

    fn authority(farm: &str) -> Authority {
        Authority::create(farm, now()).unwrap()
    }

    fn certificate(authority: &Authority, name: &Name, days: u32) -> CertificateDer<'static> {
        let key = Keys::generate().unwrap().public_key();
        let request = Request { name, key: &key, api: &[], serial: 7 };
        authority.issue(&request, Validity::since_yesterday(now(), days)).unwrap()
    }

    fn public(authorities: &[&Authority]) -> Vec<AuthorityCertificate> {
        authorities.iter().map(|authority| authority.certificate().clone()).collect()
    }

    fn code<T: std::fmt::Debug>(refused: Result<T, Refusal>) -> &'static str {
        refused.unwrap_err().code()
    }

    #[test]
    fn each_authority_is_believed_about_its_own_farm() {
        let [north, south, other] = ["north", "south", "north"].map(authority);
        let trust = Trust::new("north", public(&[&north]), public(&[&south])).unwrap();
        let server = Name::server("north", ServerId(2)).unwrap();
        let guest = Name::worker("south", "w1").unwrap();
        for (signer, name) in [(&north, &server), (&south, &guest)] {
            let who = trust.judge(&certificate(signer, name, 365), now()).unwrap();
            assert_eq!((&who.name, who.serial, who.authority), (name, 7, signer.certificate().hash()));
        }
        assert_eq!(code(trust.judge(&certificate(&other, &server, 365), now())), "foreign_authority");
        assert!(matches!(Trust::new("north", vec![], public(&[&other])), Err(AuthorityError::OwnFarm(_))));
        assert!(matches!(Trust::new("north", public(&[&south]), vec![]), Err(AuthorityError::OtherFarm { .. })));
    }

    #[test]
    fn a_certificate_outlives_neither_its_time_nor_its_authority() {
        let north = authority("north");
        let trust = Trust::new("north", public(&[&north]), vec![]).unwrap();
        let name = Name::server("north", ServerId(2)).unwrap();
        let (short, long) = (certificate(&north, &name, 365), certificate(&north, &name, 4000));
        assert!(trust.judge(&short, after(YEAR - DAY)).is_ok());
        assert_eq!(code(trust.judge(&short, after(DAY * 400))), "expired");
        assert_eq!(code(trust.judge(&short, UnixTime::since_unix_epoch(Duration::ZERO))), "not_yet_valid");
        assert!(trust.judge(&long, after(DAY * 3650)).is_ok());
        assert_eq!(code(trust.judge(&long, after(DAY * 3660))), "authority_expired");
    }

    #[test]
    fn a_new_authority_is_believed_if_the_one_before_vouches_for_it() {
        let [old, new, other] = ["north"; 3].map(authority);
        let trust = Trust::new("north", public(&[&old]), vec![]).unwrap();
        let (name, new_der) = (Name::server("north", ServerId(2)).unwrap(), new.certificate().der().clone());
        let der = certificate(&new, &name, 365);
        let voucher = old.vouch_for(new.certificate()).unwrap();
        assert_eq!(code(trust.judge(&der, now())), "foreign_authority");
        let who = trust.judge_with(&der, &[new_der.clone(), voucher.clone()], now()).unwrap();
        assert_eq!((who.name, who.authority), (name.clone(), old.certificate().hash()));
        let forged = other.vouch_for(new.certificate()).unwrap();
        for shown in [vec![new_der.clone()], vec![new_der.clone(), forged], vec![certificate(&old, &name, 365)]] {
            assert_eq!(code(trust.judge_with(&der, &shown, now())), "foreign_authority");
        }
        // A certificate does not make its owner an authority.
        let of_other = certificate(&other, &name, 365);
        assert_eq!(code(trust.judge_with(&of_other, &[new_der, voucher], now())), "foreign_authority");
        assert!(old.vouch_for(authority("south").certificate()).is_err());
    }

    #[test]
    fn a_hello_says_what_the_certificate_says() {
        let north = authority("north");
        let trust = Trust::new("north", public(&[&north]), vec![]).unwrap();
        let server = |farm, id| Name::server(farm, ServerId(id)).unwrap();
        let worker = |farm, name| Name::worker(farm, name).unwrap();
        let judge = |name| trust.judge(&certificate(&north, &name, 365), now()).unwrap();
        let (two, w1) = (judge(server("north", 2)), judge(worker("north", "w1")));
        assert_eq!(two.must_say(&server("north", 2)), Ok(()));
        assert_eq!(w1.must_say(&worker("north", "w1")), Ok(()));
        for (who, hello, expected) in [
            (&two, server("north", 3), "hello_differs"),
            (&w1, worker("north", "w2"), "hello_differs"),
            (&two, worker("north", "w1"), "wrong_role"),
            (&w1, server("north", 2), "wrong_role"),
            (&two, server("south", 2), "other_farm"),
            (&w1, worker("south", "w1"), "other_farm"),
        ] {
            assert_eq!(code(who.must_say(&hello)), expected, "{who:?} {hello}");
        }
        assert_eq!((two.server_of("north"), w1.worker_of("north")), (Ok(ServerId(2)), Ok("w1")));
    }
}
