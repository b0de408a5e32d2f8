//! Further groups of servers that elect a leader each, without a quorum: one `[[groups]]` for each in a file, and
//! `NAME=ALGORITHM:RANK:ASKING@ID+ID` where they have to fit into a line. Without members all servers take part.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use primus_api::Places;
use primus_core::election::Algorithm;
use primus_core::election::bully::Asking;
use primus_core::ledger::groups::{GROUP_NAME_LEN_MAX, GroupName};
use primus_core::rank::RankBy;
use primus_core::{Place, ServerId};
use primus_server::groups::{GROUPS_MAX, GroupPlan};
use primus_shapes::objects::shown;
use primus_terminal::amounts::quoted;
use primus_terminal::failure::Failure;
use serde_json::{Value as Json, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{Tables, kind_of, plain};
use super::kind::{Choose, kinds, parts, with_commas};
use super::layers::Layers;
use super::mistakes::Complaint;

/// Groups as a file lists them.
const TABLES: Tables = Tables {
    what: "a group",
    fields: &["name", "authority", "algorithm", "rank", "asking", "members"],
    otherwise: "a group has name, algorithm, rank, asking and members",
    hint: "write [[groups]] above each group",
};
/// The only authority that is configured: leases, which a quorum grants, need no configuration.
const AUTHORITY: &str = "none";

/// A group as somebody configured it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupEntry {
    name: String,
    algorithm: Algorithm,
    rank: RankBy,
    /// None stands for what `election.asking` says.
    asking: Option<Asking>,
    /// None stands for all servers.
    members: Option<BTreeSet<ServerId>>,
}

/// What somebody wrote of a group, each part as text.
#[derive(Default)]
struct Written {
    name: String,
    algorithm: Option<String>,
    rank: Option<String>,
    asking: Option<String>,
    members: Option<Vec<String>>,
}

/// What these flags of `primus up` mean, in a farm of so many servers.
pub(crate) fn typed(texts: &[String], servers: u64) -> Result<Vec<GroupEntry>, Failure> {
    let refuse = |(what, hint): Complaint| Failure::usage(format!("--group {what}"), hint);
    let groups = texts.iter().map(|text| written(text).entry()).collect::<Result<_, _>>();
    let groups = groups.and_then(distinct).map_err(refuse)?;
    let servers = (1..=servers).map(ServerId).collect();
    stranger(&groups, &servers).map_or(Ok(groups), |complaint| Err(refuse(complaint)))
}

kinds! {
    /// A list of groups that elect a leader each.
    Groups(Vec<GroupEntry>), "NAME=ALGORITHM:RANK:ASKING@ID+ID,…",
        r#"[{ name = "router", algorithm = "bully", rank = "address" }]"#, of_text, with_commas,
        json |groups: &Vec<GroupEntry>| groups.iter().map(GroupEntry::json).collect(),
        toml |value, _| distinct(TABLES.read(value, |table| of_table(table)?.entry())?);
}

fn of_text(text: &str) -> Result<Vec<GroupEntry>, Complaint> {
    distinct(parts(text, ',').map(|part| written(part).entry()).collect::<Result<_, _>>()?)
}

fn written(text: &str) -> Written {
    let (head, members) = text.split_once('@').map_or((text, None), |(head, members)| (head, Some(members)));
    let (name, how) = head.split_once('=').map_or((head, None), |(name, how)| (name, Some(how)));
    let mut how = how.map(|how| how.splitn(3, ':')).into_iter().flatten().map(str::to_owned);
    Written {
        name: name.to_owned(),
        algorithm: how.next(),
        rank: how.next(),
        asking: how.next(),
        members: members.map(|members| members.split('+').map(str::to_owned).collect()),
    }
}

fn of_table(table: &DeTable<'_>) -> Result<Written, Complaint> {
    let field = |name: &str| table.get(name).map(Spanned::get_ref);
    let nameless =
        || ("holds a group without a name".to_owned(), "write name = \"router\", for example".to_owned());
    let name = field("name").ok_or_else(nameless)?;
    let name = name.as_str().ok_or_else(|| wrong_name(kind_of(name)))?.to_owned();
    let text = |what: &'static str| {
        let text = |value: &DeValue<'_>| value.as_str().map(str::to_owned).ok_or_else(|| kind_of(value));
        let wrong = |found: &str| wrong(&name, what, found, "write it as a text in quotes");
        field(what).map(text).transpose().map_err(wrong)
    };
    if let Some(authority) = text("authority")?.filter(|authority| authority != AUTHORITY) {
        let hint = "write none, or leave the group out: a lease, granted by a quorum, needs no configuration";
        return Err(wrong(&name, "authority", &quoted(&authority), hint));
    }
    let members = field("members").map(|members| member_list(&name, members)).transpose()?;
    let (algorithm, rank, asking) = (text("algorithm")?, text("rank")?, text("asking")?);
    Ok(Written { algorithm, rank, asking, members, name })
}

fn member_list(name: &str, value: &DeValue<'_>) -> Result<Vec<String>, Complaint> {
    let hint = "list ids of servers, such as members = [1, 3]";
    let list = value.as_array().ok_or_else(|| wrong(name, "members", kind_of(value), hint))?;
    Ok(list.iter().map(|member| plain(member.get_ref())).collect())
}

impl Written {
    /// What it means, if it means anything.
    fn entry(self) -> Result<GroupEntry, Complaint> {
        // A lease's name may have parts; what servers elect among themselves has a plain one.
        if GroupName::parse(&self.name).map_or(true, |name| name.has_parts()) {
            return Err(wrong_name(&quoted(&shown(&self.name))));
        }
        let name = self.name.as_str();
        let algorithm = choice(name, "algorithm", self.algorithm.as_deref())?;
        let algorithm = algorithm.unwrap_or(Algorithm::Bully);
        let rank = choice(name, "rank", self.rank.as_deref())?;
        if let (Algorithm::Ring, Some(RankBy::Load | RankBy::Address)) = (algorithm, rank) {
            let what = format!("holds {}, a ring with a rank: a ring compares ids and nothing else", quoted(name));
            return Err((what, "leave the rank out, or choose bully".to_owned()));
        }
        let asking = choice(name, "asking", self.asking.as_deref())?;
        if algorithm == Algorithm::Ring && asking.is_some() {
            let what = format!("holds {}, a ring with asking: a ring asks only the next member", quoted(name));
            return Err((what, "leave asking out, or choose bully".to_owned()));
        }
        let default = if algorithm == Algorithm::Ring { RankBy::Id } else { RankBy::Load };
        let members = self.members.map(|members| ids(name, &members)).transpose()?;
        Ok(GroupEntry { algorithm, rank: rank.unwrap_or(default), asking, members, name: self.name })
    }
}

fn wrong_name(found: &str) -> Complaint {
    let hint = format!("use 1 to {GROUP_NAME_LEN_MAX} letters, digits, ., _ and -");
    (format!("holds a group whose name is {found}"), hint)
}

fn wrong(name: &str, what: &str, found: &str, hint: &str) -> Complaint {
    (format!("holds {}, whose {what} is {found}", quoted(name)), hint.to_owned())
}

fn choice<T: Choose>(name: &str, what: &str, text: Option<&str>) -> Result<Option<T>, Complaint> {
    let choose = |text| T::choose(text).ok_or_else(|| wrong(name, what, &quoted(text), &T::rule()));
    text.map(choose).transpose()
}

fn ids(name: &str, texts: &[String]) -> Result<BTreeSet<ServerId>, Complaint> {
    let wrong = |what: String| {
        (format!("holds {}, {what}", quoted(name)), "name servers by their ids, each once".to_owned())
    };
    let mut members = BTreeSet::new();
    for text in texts {
        let id = text.trim().parse().ok().filter(|id| *id > 0);
        let id = id.ok_or_else(|| wrong(format!("whose members are not all ids: {}", quoted(text))))?;
        if !members.insert(ServerId(id)) {
            return Err(wrong(format!("which has server {id} twice")));
        }
    }
    if members.is_empty() { Err(wrong("which has no members".to_owned())) } else { Ok(members) }
}

fn distinct(groups: Vec<GroupEntry>) -> Result<Vec<GroupEntry>, Complaint> {
    if groups.len() > GROUPS_MAX {
        return Err((format!("holds {} groups", groups.len()), format!("leave it at {GROUPS_MAX}")));
    }
    let mut names = BTreeSet::new();
    match groups.iter().find(|group| !names.insert(group.name.as_str())) {
        Some(group) => {
            Err((format!("holds two groups called {}", quoted(&group.name)), "give each its own name".to_owned()))
        }
        None => Ok(groups),
    }
}

/// A member that is none of these servers.
fn stranger(groups: &[GroupEntry], servers: &BTreeSet<ServerId>) -> Option<Complaint> {
    let strange = |group: &GroupEntry| group.members.iter().flatten().find(|id| !servers.contains(id)).copied();
    let (group, id) = groups.iter().find_map(|group| Some((group, strange(group)?)))?;
    let what = format!("holds {}, which has server {id}, and there is none", quoted(&group.name));
    Some((what, format!("add server {id} to the cluster, or leave it out of the group")))
}

/// Are all members servers of the cluster?
pub(super) fn check(layers: &mut Layers, servers: Option<&BTreeMap<ServerId, Places>>) {
    let slot = &layers.values.elections.groups;
    let (Some(groups), Some(servers)) = (slot.get(), servers) else { return };
    if let Some((what, hint)) = stranger(&groups, &servers.keys().copied().collect()) {
        layers.mistakes.about(slot, format!("groups {what}"), hint);
    }
}

impl GroupEntry {
    /// The group, as a server among these runs it.
    pub(super) fn plan(self, servers: &BTreeMap<ServerId, Place>) -> GroupPlan {
        let Self { name, algorithm, rank, asking, members } = self;
        let members = members.unwrap_or_else(|| servers.keys().copied().collect());
        GroupPlan { name, algorithm, rank, asking, members }
    }

    /// As scripts see it.
    pub(super) fn json(&self) -> Json {
        let members: Option<Vec<u64>> =
            self.members.as_ref().map(|members| members.iter().map(|id| id.0).collect());
        json!({
            "name": self.name, "authority": AUTHORITY, "algorithm": self.algorithm.word(), "rank": self.rank.word(),
            "asking": self.asking.map(Asking::word), "members": members,
        })
    }

    /// As a file says it.
    pub(crate) fn toml(&self) -> String {
        let asking = self.asking.map(|asking| format!("asking = \"{}\"\n", asking.word()));
        let members = self.members.as_ref().map(|members| format!("members = [{}]\n", joined(members, ", ")));
        format!(
            "\n[[groups]]\nname = \"{}\"\nauthority = \"{AUTHORITY}\"\nalgorithm = \"{}\"\nrank = \"{}\"\n{}{}",
            self.name,
            self.algorithm.word(),
            self.rank.word(),
            asking.unwrap_or_default(),
            members.unwrap_or_default()
        )
    }
}

impl fmt::Display for GroupEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}:{}", self.name, self.algorithm.word(), self.rank.word())?;
        self.asking.map_or(Ok(()), |asking| write!(f, ":{}", asking.word()))?;
        self.members.as_ref().map_or(Ok(()), |members| write!(f, "@{}", joined(members, "+")))
    }
}

fn joined(members: &BTreeSet<ServerId>, by: &str) -> String {
    members.iter().map(ToString::to_string).collect::<Vec<_>>().join(by)
}
