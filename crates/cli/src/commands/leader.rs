//! `primus leader`: who leads, in which term, since when and why.

use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};

use crate::args::Place;
use crate::client::{Client, Leader};

/// Asks all servers and prints the latest answer.
pub(super) fn run(place: &Place, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let (leader, view) = Client::find(place)?.leader()?;
    format.show(|| format!("{}\n", leader.sentence()), &view)?;
    Ok(if leader.leader.is_some() { Verdict::Held } else { Verdict::NoLeader })
}

impl Leader {
    /// In words.
    pub(super) fn sentence(&self) -> String {
        let Self { farm, leader, term, since, reason } = self;
        match leader {
            Some(leader) => format!("server {leader} leads {farm} in term {term} since {since} ({reason})"),
            None => format!("no server leads {farm}; the last term was {term}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leads_is_one_sentence() {
        let leader = Leader {
            farm: "north".to_string(),
            leader: Some(3),
            term: 7,
            since: "2026-01-01T00:00:00.000Z".to_string(),
            reason: "link_lost".to_string(),
        };
        assert_eq!(leader.sentence(), "server 3 leads north in term 7 since 2026-01-01T00:00:00.000Z (link_lost)");
        let none = Leader { leader: None, ..leader };
        assert_eq!(none.sentence(), "no server leads north; the last term was 7");
    }
}
