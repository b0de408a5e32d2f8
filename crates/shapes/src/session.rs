//! What a candidate of groups asks, and what it is told. Both sides read and write the same objects.
//!
//! A session is one process, or one part of it, under a number of its own. It asks again and again; the answer comes when there
//! is something new, or after the time that it may wait. `rest_ms` counts from the moment at which it asked.

use primus_core::ServerId;
use primus_core::lease::{Answer, Candidacy, Claim, Objection, Poll, Promise};
use primus_core::ledger::groups::{
    GROUP_NAME_LEN_MAX, GroupName, HOLDER_NAME_LEN_MAX, HOLDERS_MAX, is_holder_count,
};
use primus_core::ledger::{GroupRank, GroupRules};
use primus_core::load::Score;
use serde::{Deserialize, Serialize};

use crate::objects::Object;
use crate::schema::{Text, Within};
use crate::{described, words};

/// What is wrong, and what to do.
pub type Mistake = (String, &'static str);

described! {
    /// What a candidate asks.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct QuestionBody {
        /// A number of the candidate's own, which the answer repeats.
        number: u64,
        /// The groups that it wants to hold; what is left out stays as it was, an empty list ends its candidacies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wants: Option<Vec<Object<WantBody>>>,
        /// The leases that it believes to hold.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        holds: Vec<Object<ClaimBody>>,
        /// The leases that it gives back.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ended: Vec<Object<ClaimBody>>,
        /// How loaded the candidate's host is: 0 to 100.
        #[serde(default)]
        score: f64,
        /// How long the answer may wait for news.
        #[serde(default)]
        wait_ms: f64,
    }
}

described! {
    /// A group that a candidate wants to hold.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct WantBody {
        /// The group.
        group: String as Text<1, GROUP_NAME_LEN_MAX>,
        /// Who comes first among its candidates; all must say the same.
        rank: Rank as RankName,
        /// How many can hold it at once, 1 to 1000; all must say the same.
        #[serde(default = "one")]
        holders: u16 as Within<1, { HOLDERS_MAX as i64 }>,
        /// The candidate's name, up to 100 bytes.
        #[serde(default)]
        name: String as Text<0, HOLDER_NAME_LEN_MAX>,
        /// The candidate's number, which counts where the rank is id.
        #[serde(default)]
        id: u64,
    }
}

described! {
    /// A lease that a candidate has, or gives back.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ClaimBody {
        /// The group.
        group: String,
        /// The term under which it was granted.
        term: u64,
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rank {
    Leader,
    Load,
    Id,
    Name,
}

words! {
    /// Who comes first.
    RankName: [GroupRank::Leader.name(), GroupRank::Load.name(), GroupRank::Id.name(), GroupRank::Name.name()];
    /// Why a candidate cannot have a group.
    RefusalCode: ["other_rules", "too_many_groups", "too_many_candidates", "old_term"];
}

const fn one() -> u16 {
    1
}

described! {
    /// What a candidate is told.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct AnswerBody {
        /// The number of the question.
        number: u64,
        /// False if the farm does not know the session: the candidate says again what it wants.
        known: bool,
        /// The leases that the candidate holds.
        holds: Vec<HoldBody>,
        /// The groups that it must give back as soon as it can.
        recalled: Vec<String>,
        /// What it cannot have.
        refused: Vec<RefusedBody>,
        /// The server that the candidate spoke to.
        server: u64,
        /// How long leases last.
        lease_ms: f64,
    }
}

described! {
    /// A lease that a candidate holds.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    struct HoldBody {
        /// The group.
        group: String,
        /// The term: each grant has a greater one.
        term: u64,
        /// How much longer the holder may run, counted from when it asked.
        rest_ms: f64,
    }
}

described! {
    /// A group that a candidate cannot have.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    struct RefusedBody {
        /// The group.
        group: String,
        /// Why, in one word.
        code: String as RefusalCode,
        /// Why, in a sentence.
        message: String,
        /// The rank that the group has, if that is the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<Rank> as Option<RankName>,
        /// How many can hold the group, if that is the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holders: Option<u16>,
    }
}

impl QuestionBody {
    /// As it is sent.
    pub fn new(poll: Poll) -> Self {
        let claims = |claims: Vec<Claim>| claims.into_iter().map(|claim| Object(ClaimBody::from(claim))).collect();
        Self {
            number: poll.number,
            wants: poll.wants.map(|wants| wants.into_iter().map(|want| Object(WantBody::from(want))).collect()),
            holds: claims(poll.holds),
            ended: claims(poll.ended),
            score: f64::from(poll.score.hundredths()) / 100.0,
            wait_ms: in_ms(poll.wait_us),
        }
    }

    /// As the farm understands it, asked through this server.
    ///
    /// # Errors
    /// If a name or a number is not within its limits.
    pub fn into_poll(self, at: ServerId) -> Result<Poll, Mistake> {
        let claims = |claims: Vec<Object<ClaimBody>>| {
            claims.into_iter().map(|Object(claim)| claim.into_claim()).collect::<Result<Vec<_>, _>>()
        };
        let candidacies = |wants: Vec<Object<WantBody>>| {
            wants.into_iter().map(|Object(want)| want.into_candidacy()).collect::<Result<Vec<_>, _>>()
        };
        let wants = self.wants.map(candidacies);
        Ok(Poll {
            number: self.number,
            wants: wants.transpose()?,
            holds: claims(self.holds)?,
            ended: claims(self.ended)?,
            score: Score::from_percent(self.score),
            at,
            wait_us: in_us(self.wait_ms),
        })
    }
}

impl WantBody {
    fn into_candidacy(self) -> Result<Candidacy, Mistake> {
        let Self { group, rank, holders, name, id } = self;
        let group = named(group)?;
        if !is_holder_count(holders) {
            return Err((format!("holders is {holders}"), "choose 1 to 1000"));
        }
        if name.len() > HOLDER_NAME_LEN_MAX {
            return Err((format!("a name has more than {HOLDER_NAME_LEN_MAX} bytes"), "shorten it"));
        }
        Ok(Candidacy { group, rules: GroupRules { rank: rank.into(), holders }, name, id })
    }
}

/// Every name of a group passes this, whatever is said of the group.
fn named(group: String) -> Result<String, Mistake> {
    let name = GroupName::parse(group);
    name.map(String::from).map_err(|wrong| (wrong.to_string(), "use letters, digits, and . _ - between slashes"))
}

impl AnswerBody {
    /// As it is sent.
    #[must_use]
    pub fn new(answer: Answer, at: ServerId, lease_us: u64) -> Self {
        let hold = |Promise { group, token, rest_us }| HoldBody { group, term: token, rest_ms: in_ms(rest_us) };
        Self {
            number: answer.number,
            known: answer.is_known,
            holds: answer.promises.into_iter().map(hold).collect(),
            recalled: answer.recalled,
            refused: answer.refused.into_iter().map(RefusedBody::from).collect(),
            server: at.0,
            lease_ms: in_ms(lease_us),
        }
    }

    /// How long leases last there.
    pub fn lease_us(&self) -> u64 {
        in_us(self.lease_ms)
    }

    /// As the guard understands it.
    pub fn into_answer(self) -> Answer {
        let promise = |HoldBody { group, term, rest_ms }| Promise { group, token: term, rest_us: in_us(rest_ms) };
        Answer {
            number: self.number,
            is_known: self.known,
            promises: self.holds.into_iter().map(promise).collect(),
            recalled: self.recalled,
            refused: self.refused.into_iter().map(RefusedBody::into_objection).collect(),
        }
    }
}

impl From<(String, Objection)> for RefusedBody {
    fn from((group, objection): (String, Objection)) -> Self {
        let rules = if let Objection::OtherRules(rules) = objection { Some(rules) } else { None };
        let code = match objection {
            Objection::OtherRules(_) => "other_rules",
            Objection::TooManyGroups => "too_many_groups",
            Objection::TooManyCandidates => "too_many_candidates",
            Objection::OldToken => "old_term",
        };
        Self {
            group,
            code: code.to_owned(),
            message: objection.to_string(),
            rank: rules.map(|rules| rules.rank.into()),
            holders: rules.map(|rules| rules.holders),
        }
    }
}

impl RefusedBody {
    fn into_objection(self) -> (String, Objection) {
        let objection = match (self.code.as_str(), self.rank, self.holders) {
            ("other_rules", Some(rank), Some(holders)) => {
                Objection::OtherRules(GroupRules { rank: rank.into(), holders })
            }
            ("too_many_groups", ..) => Objection::TooManyGroups,
            ("old_term", ..) => Objection::OldToken,
            _ => Objection::TooManyCandidates,
        };
        (self.group, objection)
    }
}

impl From<Candidacy> for WantBody {
    fn from(Candidacy { group, rules, name, id }: Candidacy) -> Self {
        Self { group, rank: rules.rank.into(), holders: rules.holders, name, id }
    }
}

impl From<Claim> for ClaimBody {
    fn from(Claim { group, token }: Claim) -> Self {
        Self { group, term: token }
    }
}

impl ClaimBody {
    fn into_claim(self) -> Result<Claim, Mistake> {
        Ok(Claim { group: named(self.group)?, token: self.term })
    }
}

impl From<GroupRank> for Rank {
    fn from(rank: GroupRank) -> Self {
        match rank {
            GroupRank::Leader => Self::Leader,
            GroupRank::Load => Self::Load,
            GroupRank::Id => Self::Id,
            GroupRank::Name => Self::Name,
        }
    }
}

impl From<Rank> for GroupRank {
    fn from(rank: Rank) -> Self {
        match rank {
            Rank::Leader => Self::Leader,
            Rank::Load => Self::Load,
            Rank::Id => Self::Id,
            Rank::Name => Self::Name,
        }
    }
}

fn in_ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// Never more than was said, and nothing for what is no length of time.
fn in_us(ms: f64) -> u64 {
    (ms * 1000.0).clamp(0.0, 3_600_000_000.0) as u64
}
