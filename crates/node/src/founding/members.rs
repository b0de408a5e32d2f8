//! Who the servers of a founded cluster are: the members of its record. The list of a configuration file says only where to look.

use primus_core::founding::Record;
use primus_core::{Place, ServerId};
use primus_server::Plan;

use crate::events::Kind;
use crate::node::EndError;
use crate::store::Origin;

/// Makes the members of a founded disk the servers of this plan. If they are others than those of the list, there is something to say
/// about that.
///
/// # Errors
/// If it is not known where one of them is.
pub(crate) fn adopt(plan: &mut Plan, origin: &Origin) -> Result<Option<Kind>, EndError> {
    let Some(record) = origin.founded() else { return Ok(None) };
    if record.members.keys().eq(plan.servers.keys()) {
        return Ok(None);
    }
    let note = Kind::ListDiffers { listed: listed(plan.servers.keys()), members: listed(record.members.keys()) };
    let place = |id: &ServerId| {
        let address = plan.servers.get(id).cloned().or_else(|| remembered(origin, *id));
        address.map(|address| (*id, address)).ok_or(EndError::NoAddress { server: *id, cluster: record.cluster })
    };
    plan.servers = record.members.keys().map(place).collect::<Result<_, _>>()?;
    let is_member = |id: &ServerId| record.members.contains_key(id);
    plan.groups.iter_mut().for_each(|group| group.members.retain(is_member));
    plan.groups.retain(|group| !group.members.is_empty());
    Ok(Some(note))
}

fn remembered(origin: &Origin, id: ServerId) -> Option<Place> {
    origin.addresses.get(&id)?.parse().ok()
}

/// The same disk with the addresses that are in force, as far as they are those of members.
pub(crate) fn with_addresses<'a>(
    origin: &Origin,
    record: &Record,
    list: impl Iterator<Item = (&'a ServerId, &'a Place)>,
) -> Origin {
    let mut origin = origin.clone();
    origin.addresses.extend(list.map(|(id, address)| (*id, address.to_string())));
    origin.addresses.retain(|id, _| record.members.contains_key(id));
    origin
}

/// Ids as programs write them.
pub(super) fn listed<'a>(ids: impl Iterator<Item = &'a ServerId>) -> Vec<u64> {
    ids.map(|id| id.0).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use std::collections::{BTreeMap, BTreeSet};

    use primus_core::election::Algorithm;
    use primus_core::founding::{ClusterId, Phase, StoreId};
    use primus_core::rank::RankBy;
    use primus_server::groups::GroupPlan;

    use super::*;

    fn address(port: u16) -> Place {
        Place::from(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn plan(list: &[u64]) -> Plan {
        let servers: BTreeMap<ServerId, Place> = list.iter().map(|id| (ServerId(*id), address(1))).collect();
        let mut plan = Plan::new(ServerId(1), servers);
        let group = |name: &str, members: &[u64]| GroupPlan {
            name: name.to_owned(),
            algorithm: Algorithm::Bully,
            rank: RankBy::Id,
            asking: None,
            members: members.iter().copied().map(ServerId).collect::<BTreeSet<_>>(),
        };
        plan.groups = vec![group("all", list), group("others", &[2])];
        plan
    }

    /// A disk of a cluster of these servers.
    fn founded(members: &[u64]) -> Origin {
        let disks = members.iter().map(|id| (ServerId(*id), StoreId([*id as u8; 16]))).collect();
        let record = Record { cluster: ClusterId([7; 16]), members: disks };
        Origin { phase: Phase::Founded(record), ..Origin::default() }
    }

    #[test]
    fn members_count_and_the_list_says_where_they_are() {
        let (mut plan, mut origin) = (plan(&[1, 2, 3]), founded(&[1, 3, 4]));
        let missing = adopt(&mut plan.clone(), &origin).unwrap_err();
        assert!(matches!(missing, EndError::NoAddress { server: ServerId(4), .. }), "{missing}");
        origin.addresses =
            BTreeMap::from([(3, 7), (4, 8)].map(|(id, port)| (ServerId(id), address(port).to_string())));
        let note = adopt(&mut plan, &origin).unwrap();
        assert_eq!(note, Some(Kind::ListDiffers { listed: vec![1, 2, 3], members: vec![1, 3, 4] }));
        assert_eq!(
            note.map(|note| note.to_string()).as_deref(),
            Some("the file lists 1, 2, 3; the cluster has 1, 3, 4: correct the file")
        );
        let expected = [(1, 1), (3, 1), (4, 8)].map(|(id, port)| (ServerId(id), address(port)));
        assert_eq!(plan.servers, BTreeMap::from(expected));
        assert_eq!(plan.groups.len(), 1);
        assert_eq!(plan.groups[0].members, BTreeSet::from([1, 3].map(ServerId)));
        let record = origin.founded().unwrap();
        let kept = with_addresses(&origin, record, plan.servers.iter()).addresses;
        assert_eq!(kept[&ServerId(3)], address(1).to_string());
    }

    #[test]
    fn a_list_that_names_the_members_is_right_and_so_is_any_before_the_founding() {
        let mut same = plan(&[1, 2]);
        assert_eq!(adopt(&mut same, &founded(&[1, 2])).unwrap(), None);
        assert_eq!(adopt(&mut same, &Origin::default()).unwrap(), None);
        assert_eq!(same, plan(&[1, 2]));
    }
}
