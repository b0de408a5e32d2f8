//! Sentences, ids and bounds; what happens between servers is told in the stories and explored.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::*;
use crate::machine::Output;
use crate::planted::Planted;

const ME: ServerId = ServerId(1);

/// Mixes enough to tell a few clusters apart.
fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0_u8; 32];
    for (place, byte) in bytes.iter().enumerate() {
        digest[place % 16] = digest[place % 16].wrapping_mul(31).wrapping_add(*byte);
    }
    digest
}

fn rules() -> Rules {
    Rules { farm: "north".to_string(), authority: [7; 4].into(), digest: Digest(digest), planted: Planted::NONE }
}

fn ids(ids: impl IntoIterator<Item = u64>) -> BTreeSet<ServerId> {
    ids.into_iter().map(ServerId).collect()
}

fn disks(disks: impl IntoIterator<Item = (u64, u8)>) -> Disks {
    disks.into_iter().map(|(id, disk)| (ServerId(id), StoreId([disk; 16]))).collect()
}

/// Server 1 with disk 1.
fn founding(list: impl IntoIterator<Item = u64>, phase: Phase) -> Founding {
    let list = list.into_iter().map(|id| (ServerId(id), format!("10.0.0.{id}:7460"))).collect();
    Founding::new(Server { id: ME, store: StoreId([1; 16]), list, remembers: None }, phase, Arc::new(rules()))
}

fn claim(phase: Phase, list: impl IntoIterator<Item = u64>, disk: u8) -> Claim {
    Claim { phase, list: ids(list), store: StoreId([disk; 16]), remembers: None }
}

fn step(machine: &mut Founding, input: Input<Founding>) -> Vec<String> {
    let mut out = Outbox::new();
    machine.step(Moment::START, input, &mut out);
    out.drain().map(|output: Output<Founding>| output.to_string()).collect()
}

fn hear(machine: &mut Founding, from: u64, message: Claim) -> Vec<String> {
    step(machine, Input::Message { from: ServerId(from), message })
}

#[test]
fn a_cluster_id_is_made_of_farm_authority_and_disks() {
    let record = |rules: &Rules, members| rules.record(disks(members)).cluster;
    let id = record(&rules(), [(1, 1), (2, 2)]);
    assert_eq!(id, record(&rules(), [(2, 2), (1, 1)]), "the order makes no difference");
    let other_farm = Rules { farm: "south".to_string(), ..rules() };
    let other_authority = Rules { authority: [8; 4].into(), ..rules() };
    let moved = Rules { farm: "nort".to_string(), authority: [b'h', 7, 7, 7, 7].into(), ..rules() };
    for other in [other_farm, other_authority, moved] {
        assert_ne!(id, record(&other, [(1, 1), (2, 2)]), "{other:?}");
    }
    for members in [[(1, 1), (2, 3)], [(1, 2), (2, 1)], [(1, 1), (3, 2)]] {
        assert_ne!(id, record(&rules(), members), "{members:?}");
    }
}

#[test]
fn the_first_half_of_the_hash_is_the_id() {
    let numbers = |_: &[u8]| core::array::from_fn(|place| u8::try_from(place).expect("there are 32"));
    let record = Rules { digest: Digest(numbers), ..rules() }.record(disks([(1, 1)]));
    assert_eq!(record.cluster, ClusterId(core::array::from_fn(|place| u8::try_from(place).expect("there are 16"))));
    assert_eq!(record.cluster.to_string(), "0001-0203");
}

#[test]
fn every_reason_is_one_sentence() {
    let (farm, server) = ("north".to_string(), ServerId(3));
    let missing = |absence, need| Reason::Missing {
        farm: farm.clone(),
        server,
        address: "10.0.0.3:7460".to_string(),
        absence,
        need,
    };
    let mut id = [0; 16];
    id[..4].copy_from_slice(&[0x3f, 0x9c, 0x27, 0xb1]);
    let belongs = |remedy| Reason::Belongs { server: ME, cluster: ClusterId(id), remedy };
    for (reason, sentence) in [
        (
            missing(Absence::Refuses, Need::All),
            "waits to found farm north: server 3 (10.0.0.3:7460) refuses connections. All must run once; to begin \
             without it, see primus init",
        ),
        (
            missing(Absence::Silent, Need::Agreed),
            "waits to found farm north: server 3 (10.0.0.3:7460) is silent. All must run once more, because this \
             server has agreed with it",
        ),
        (
            missing(Absence::NotDialled, Need::Majority),
            "waits to found farm north: server 3 (10.0.0.3:7460) is not dialled yet. A majority must run with its \
             old data",
        ),
        (
            Reason::Undecided { farm: farm.clone(), server },
            "waits to found farm north: server 3 has not agreed on the same disks yet",
        ),
        (
            Reason::Alone { farm: farm.clone() },
            "waits to found farm north with one server: say so once, with primus init --alone",
        ),
        (
            Reason::ListsDiffer { server: ServerId(2), theirs: ids([1, 2]), ours: ids([1, 2, 3]) },
            "server 2 lists 1, 2; here are 1, 2, 3: make the lists equal",
        ),
        (
            Reason::ListEdited { agreed: ids([1, 2, 3]), ours: ids([1, 4]) },
            "this disk has agreed to found a cluster of 1, 2, 3; here are 1, 4: make the list as it was, or begin \
             with an empty directory",
        ),
        (
            belongs(Remedy::Add),
            "server 1 belongs to cluster 3f9c-27b1 already: an empty server founds nothing beside it. A cluster \
             keeps the members that it began with: stop this server, or give it a farm of its own",
        ),
        (
            belongs(Remedy::Replace(server)),
            "server 1 belongs to cluster 3f9c-27b1 already: an empty server founds nothing beside it. Bring back \
             the data of server 3; until then the others go on without it",
        ),
        (
            Reason::OldDataElsewhere { server: ME },
            "server 1 has the data of an older release: an empty server founds nothing beside them. Bring back the \
             data of this server",
        ),
        (
            Reason::OldDataTooFew { farm: farm.clone(), ours: ids([1, 2, 3]) },
            "waits to take over the data of farm north: a majority of 1, 2, 3 must have them, and remember the same \
             disks of all",
        ),
    ] {
        assert_eq!(reason.to_string(), sentence);
    }
}

#[test]
fn a_disk_put_back_from_before_its_founding_is_not_founded_again() {
    let record = rules().record(disks([(1, 1), (2, 2)]));
    let mut machine = founding([1, 2], Phase::Empty);
    let said = hear(&mut machine, 2, claim(Phase::Founded(record), [1, 2], 2));
    assert!(said.len() == 1 && said[0].contains("Bring back the data of server 1"), "{said:?}");
}

#[test]
fn what_the_founded_said_is_kept_when_they_leave() {
    let mut machine = founding([1, 2], Phase::Empty);
    step(&mut machine, Input::LinkUp(ServerId(9)));
    hear(&mut machine, 9, claim(Phase::Founded(rules().record(disks([(1, 7), (9, 9)]))), [1, 9], 9));
    step(&mut machine, Input::LinkDown(ServerId(9)));
    let said = hear(&mut machine, 2, claim(Phase::Empty, [1, 2], 2));
    assert_eq!(said, Vec::<String>::new(), "it founds nothing beside server 9");
    assert_eq!(step(&mut machine, Input::Command(Command::Alone)), ["ignore alone: a peer is founded"]);
}

#[test]
fn another_list_is_forgotten_with_a_server_that_is_not_listed() {
    let mut machine = founding([1, 2], Phase::Empty);
    hear(&mut machine, 2, claim(Phase::Empty, [1, 2, 3], 2));
    step(&mut machine, Input::LinkUp(ServerId(9)));
    hear(&mut machine, 9, claim(Phase::Empty, [1, 9], 9));
    step(&mut machine, Input::LinkDown(ServerId(9)));
    let said = hear(&mut machine, 2, claim(Phase::Empty, [1, 2], 2));
    assert!(said[0].starts_with("persist 1 agreed"), "{said:?}");
}

#[test]
fn a_server_that_has_agreed_hears_all_anew_before_it_agrees_again() {
    let agreed = rules().record(disks([(1, 1), (2, 2), (3, 3)]));
    let mut machine = founding([1, 2, 3], Phase::Agreed(agreed.clone()));
    step(&mut machine, Input::LinkUp(ServerId(2)));
    step(&mut machine, Input::LinkUp(ServerId(3)));
    hear(&mut machine, 2, claim(Phase::Empty, [1, 2, 3], 2));
    step(&mut machine, Input::LinkDown(ServerId(2)));
    hear(&mut machine, 3, claim(Phase::Empty, [1, 2, 3], 4));
    assert_eq!(machine.phase(), &Phase::Agreed(agreed));
    assert!(
        machine
            .reason()
            .is_some_and(|reason| reason.to_string().contains("server 2 (10.0.0.2:7460) is not dialled"))
    );
    step(&mut machine, Input::LinkUp(ServerId(2)));
    let said = hear(&mut machine, 2, claim(Phase::Empty, [1, 2, 3], 2));
    assert!(said[0].starts_with("persist 1 agreed"), "{said:?}");
}

#[test]
fn a_link_that_comes_up_during_a_write_hears_the_old_word_and_then_the_new_one() {
    let mut machine = founding([1, 2], Phase::Empty);
    hear(&mut machine, 2, claim(Phase::Empty, [1, 2], 2));
    let said = step(&mut machine, Input::LinkUp(ServerId(2)));
    assert!(said.len() == 2 && said[0].starts_with("send 2 empty") && said[1].starts_with("after 1 send 2 agreed"));
    assert_eq!(machine.claim().phase, Phase::Empty);
    step(&mut machine, Input::Persisted(Token(1)));
    assert!(machine.claim().phase.agreed().is_some());
}

#[test]
fn what_cannot_be_is_ignored() {
    let mut machine = founding([1, 2], Phase::Empty);
    for (from, message) in [
        (1, claim(Phase::Empty, [1, 2], 2)),
        (2, claim(Phase::Empty, 1..=SERVERS_MAX as u64 + 1, 2)),
        (9, claim(Phase::Empty, [1, 9], 9)),
    ] {
        let said = hear(&mut machine, from, message);
        assert!(said[0].starts_with("ignore"), "{from}: {said:?}");
    }
    assert_eq!(step(&mut machine, Input::Persisted(Token(7))), ["ignore a write of another process"]);
    let outsiders = (10..).take(OUTSIDERS_MAX + 1).map(|outsider| {
        step(&mut machine, Input::LinkUp(ServerId(outsider)));
        hear(&mut machine, outsider, claim(Phase::Empty, [1, outsider], 9))
    });
    let last = outsiders.last();
    assert_eq!(last, Some(["ignore too many servers that are not on the list".to_string()].into()));
}

#[test]
fn old_data_are_taken_over_only_by_a_majority_that_remembers_the_same() {
    let list: BTreeMap<_, _> = (1..=3).map(|id| (ServerId(id), String::new())).collect();
    for (own, peer, is_enough) in [
        (disks([(2, 2), (3, 3)]), Some(disks([(1, 1), (3, 3)])), true),
        (disks([(2, 2), (3, 3), (8, 8)]), Some(disks([(1, 1), (3, 3), (9, 9)])), true),
        (disks([(2, 2), (3, 3)]), Some(disks([(1, 1), (3, 4)])), false),
        (disks([(2, 2), (3, 3)]), Some(disks([(1, 1)])), false),
        (disks([(2, 2)]), Some(disks([(1, 1), (3, 3)])), false),
        (disks([(2, 5), (3, 3)]), Some(disks([(1, 1), (3, 3)])), false),
        (disks([(2, 2), (3, 3)]), None, false),
    ] {
        let server = Server { id: ME, store: StoreId([1; 16]), list: list.clone(), remembers: Some(own) };
        let mut machine = Founding::new(server, Phase::Empty, Arc::new(rules()));
        let said = hear(&mut machine, 2, Claim { remembers: peer.clone(), ..claim(Phase::Empty, 1..=3, 2) });
        let has_agreed = said.iter().any(|line| line.starts_with("persist"));
        assert_eq!(has_agreed, is_enough, "{peer:?}: {said:?}");
    }
}
