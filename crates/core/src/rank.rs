//! What a Bully election compares: the better [`Rank`] wins.
//!
//! A rank is total and strict: two nodes never share one, because the id settles every tie. (The load-aware
//! document leaves ties to chance, and its implementation then elects nobody in three of ten starts.)

use core::cmp::Ordering;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::ServerId;
use crate::load::Score;
use crate::place::Place;

/// Scores are compared in buckets this wide (in hundredths), so that noise decides nothing.
pub const BUCKET_HUNDREDTHS: u32 = 500;

/// What the nodes of an election are ranked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RankBy {
    /// The higher id is better (election theory).
    Id,
    /// The greater address is better, compared as a number (Bully by address).
    Address,
    /// The lower score is better, then the higher id (load-aware Bully).
    Load,
}

/// How good a node is in one round. Greater is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rank {
    /// What is compared first.
    pub standing: Standing,
    /// Settles ties; also says whose rank this is.
    pub id: ServerId,
}

/// The part of a rank that is compared first. The derived order serves collections only: elections compare ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Standing {
    /// It gave up leadership in this round: worse than everybody else.
    Resigned,
    /// Nothing but the id counts.
    Id,
    /// The address, as a number.
    Address(Address),
    /// The load score.
    Load(Score),
}

/// An address as an election sees it: a number, then the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    ip: IpAddr,
    port: Option<u16>,
}

impl Rank {
    /// The rank of a node by its id alone.
    #[must_use]
    pub const fn by_id(id: ServerId) -> Self {
        Self { standing: Standing::Id, id }
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_standing = self.standing.cmp_better(&other.standing);
        by_standing.then(self.id.cmp(&other.id)).then_with(|| self.standing.cmp_within_bucket(&other.standing))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Standing {
    /// `Greater` means better. Standings of different kinds never meet in one election, save `Resigned`, which
    /// is worse than all; the order among the other kinds only has to be some total order.
    fn cmp_better(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Address(mine), Self::Address(theirs)) => mine.number().cmp(&theirs.number()),
            (Self::Load(mine), Self::Load(theirs)) => theirs.bucket().cmp(&mine.bucket()),
            _ => self.kind().cmp(&other.kind()),
        }
    }

    /// Two scores of one node in one bucket are different ranks, although no election tells them apart.
    fn cmp_within_bucket(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Load(mine), Self::Load(theirs)) => theirs.cmp(mine),
            _ => Ordering::Equal,
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Resigned => 0,
            Self::Id => 1,
            Self::Address(_) => 2,
            Self::Load(_) => 3,
        }
    }
}

impl Address {
    /// An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) becomes the plain one, so that both are one number.
    const fn new(ip: IpAddr, port: Option<u16>) -> Self {
        Self { ip: ip.to_canonical(), port }
    }

    fn number(&self) -> (u128, Option<u16>) {
        let number = match self.ip {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        (number, self.port)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::new(address.ip(), Some(address.port()))
    }
}

/// A name has no number to compare, so all names are worse than all numbers, and equal among themselves.
impl From<&Place> for Address {
    fn from(place: &Place) -> Self {
        place.number().map_or_else(|| Self::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), None), Self::from)
    }
}

impl FromStr for Address {
    type Err = core::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<SocketAddr>() {
            Ok(address) => Ok(address.into()),
            Err(_) => text.parse().map(|ip| Self::new(ip, None)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.ip, port).fmt(f),
            None => self.ip.fmt(f),
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resigned => f.write_str("resigned"),
            Self::Id => Ok(()),
            Self::Address(address) => address.fmt(f),
            Self::Load(score) => score.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::string::ToString;

    use super::*;

    fn by_address(text: &str) -> Rank {
        Rank { standing: Standing::Address(text.parse().unwrap()), id: ServerId(1) }
    }

    fn by_load(hundredths: u32, id: u64) -> Rank {
        Rank { standing: Standing::Load(Score::from_hundredths(hundredths)), id: ServerId(id) }
    }

    #[test]
    fn addresses_compare_as_numbers() {
        for (better, worse) in [
            ("172.18.0.10", "172.18.0.9"),
            ("172.18.1.1", "172.18.0.255"),
            ("10.0.0.1:900", "10.0.0.1:80"),
            ("10.0.0.2:80", "10.0.0.1:900"),
            ("fe80::1", "255.255.255.255"),
            ("fe80::10", "fe80::9"),
            ("[::1]:10", "[::1]:9"),
        ] {
            assert!(by_address(better) > by_address(worse), "{better} must beat {worse}");
        }
    }

    #[test]
    fn a_mapped_address_is_the_same_number_as_the_plain_one() {
        assert_eq!(by_address("::ffff:10.0.0.1").cmp(&by_address("10.0.0.1")), Ordering::Equal);
    }

    #[test]
    fn addresses_read_back_as_written() {
        for text in ["172.18.0.10", "10.0.0.1:80", "fe80::1", "[::1]:9"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn loads_compare_in_buckets_then_by_id() {
        assert!(by_load(700, 1) > by_load(2000, 9), "the lower score is better");
        assert!(by_load(2001, 2) > by_load(2499, 1), "one bucket: the higher id is better");
        assert!(by_load(1999, 1) > by_load(2000, 2), "two buckets: the lower is better");
    }

    #[test]
    fn a_resigned_node_is_worse_than_everybody() {
        let resigned = Rank { standing: Standing::Resigned, id: ServerId(9) };
        assert!(resigned < Rank::by_id(ServerId(1)));
        assert!(resigned < by_load(10_000, 1));
    }

    fn any_rank() -> impl Strategy<Value = Rank> {
        let standing = prop_oneof![
            Just(Standing::Resigned),
            Just(Standing::Id),
            (0u32..12_000).prop_map(|s| Standing::Load(Score::from_hundredths(s))),
            any::<(u32, Option<u16>)>()
                .prop_map(|(ip, port)| Standing::Address(Address::new(IpAddr::V4(ip.into()), port))),
        ];
        (standing, 0u64..5).prop_map(|(standing, id)| Rank { standing, id: ServerId(id) })
    }

    proptest! {
        #[test]
        fn the_order_is_total_and_never_ties_two_nodes(a in any_rank(), b in any_rank(), c in any_rank()) {
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
            prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
            if a.id != b.id {
                prop_assert_ne!(a.cmp(&b), Ordering::Equal);
            }
        }
    }
}
