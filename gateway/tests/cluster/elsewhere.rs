//! Tests of two services, each of which refers its clients to the other.

use client::Volume;

use crate::load::connect;
use crate::until_ok;
use crate::world::{Setup, World};

#[tokio::test]
async fn the_shares_of_each_service_are_in_the_tree_of_the_others() {
    let world = World::of(Setup { has_second: true, ..Setup::default() }).await;
    let (first, second) = (world.vip(), world.second_vip());
    let nfs = |ip: &str, share: &str| format!("nfs://{ip}/{share}?version=4.1");
    let data = until_ok("the first serves", || connect_to(nfs(&first, "data"))).await;
    let archive = until_ok("the second serves", || connect_to(nfs(&second, "archive"))).await;
    let (Volume::V4(data, _), Volume::V4(archive, _)) = (data, archive) else { panic!() };
    let at = |server: &str, path: &str| (server.to_owned(), path.to_owned());
    for (nfs, name, wanted) in
        [(&data, "/archive", at(&second, "/archive")), (&archive, "/data", at(&first, "/data"))]
    {
        let told = nfs.locations(name).await.unwrap();
        let told: Vec<_> = told.into_iter().map(|one| (one.server, one.path)).collect();
        assert_eq!(told, [wanted]);
    }
    let smb = format!("smb://alice:moves-with-it@{first}/data");
    let Volume::Smb(smb) = connect(&smb).await.unwrap() else { panic!() };
    let told = smb.referrals(&format!(r"\{first}\archive")).await.unwrap();
    assert_eq!(told.targets, [format!(r"\{second}\archive")]);
    // The referral leads to the share.
    let there = connect(&format!("smb://alice:moves-with-it@{second}/archive")).await.unwrap();
    let file = there.create("made-there").await.unwrap();
    there.close(file).await.unwrap();
}

async fn connect_to(target: String) -> client::Result<Volume> {
    connect(&target).await
}
