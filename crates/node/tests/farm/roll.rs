//! Who is who, as all servers know it.

use primus_core::ledger::roll::{
    Authority, Change, Consume, Denial, Done, Fingerprint, NewToken, Node, Role, SecretKey, TokenId, Unwelcome,
};

use tokio::time::timeout;

use super::stage::Farm;
use crate::common::{PATIENCE, eventually_async};

const KEY: Fingerprint = Fingerprint([3; 32]);

fn joiner(token: TokenId, secret: u8) -> Consume {
    let (secret, name) = (Fingerprint([secret; 32]), "w9".to_owned());
    Consume { token, secret, role: Role::Worker, store: [1; 16], name, key: KEY }
}

#[tokio::test]
async fn a_joiner_is_known_to_all_servers_until_it_is_forgotten() {
    let farm = Farm::started().await;
    let leader = farm.farm().await;
    let authority = Authority {
        certificate: vec![1; 400],
        hash: Fingerprint([1; 32]),
        key: SecretKey(vec![2; 138]),
        voucher: Vec::new(),
    };
    let added = leader.change_roll(Change::AddAuthority(authority)).await;
    assert_eq!(added, Ok(Ok(Done::AuthorityAdded(Fingerprint([1; 32])))));
    let new = NewToken {
        role: Role::Worker,
        secret: Fingerprint([7; 32]),
        ttl_ms: 3_600_000,
        uses: 1,
        name: None,
        by: "ann".to_owned(),
    };
    let Ok(Ok(Done::TokenCreated { token, .. })) = leader.change_roll(Change::CreateToken(new)).await else {
        panic!("a token is made")
    };
    let wrong = leader.change_roll(Change::Consume(joiner(token, 8))).await;
    assert_eq!(wrong, Ok(Err(Denial::NoSuchToken)));
    for is_new in [true, false] {
        let joined = leader.change_roll(Change::Consume(joiner(token, 7))).await;
        assert_eq!(joined, Ok(Ok(Done::Consumed { serial: 1, is_new })));
    }
    let node = Node::Worker("w9".to_owned());
    for id in 1..=3 {
        let here = farm.farm_of(id);
        eventually_async("the joiner", async || here.roll().object_to(&node, &KEY, 1).ok()).await;
        let other = here.roll().object_to(&node, &Fingerprint([4; 32]), 2);
        assert_eq!((other, here.roll().authorities().len()), (Err(Unwelcome::OtherKey), 1));
    }
    let mut watched: Vec<_> = (1..=3).map(|id| farm.farm_of(id).watch_roll()).collect();
    leader.change_roll(Change::ForgetWorker("w9".to_owned())).await.expect("it is taken").expect("it is known");
    for watched in &mut watched {
        let hears = watched.wait_for(|roll| roll.object_to(&node, &KEY, 1) == Err(Unwelcome::Revoked));
        timeout(PATIENCE, hears).await.expect("every server hears of it").expect("the server lives");
    }
}
