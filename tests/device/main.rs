//! Transfers files of every size over SMB Direct between our client and our server over an RDMA device, in clear, signed and
//! encrypted with every algorithm. `VERBS_AT` is an address that the device serves. The lab runs this in its guests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::IpAddr;

use client::connect::Local;
use client::smb::{Options, Smb};
use config::Rdma;
use headgate_tests::sizes::{every_size, ways};
use headgate_tests::world::smb::{alice, with_alice};

#[tokio::test(flavor = "multi_thread")]
async fn device_transfers_all_sizes() {
    let at = std::env::var("VERBS_AT").expect("VERBS_AT: an address that an RDMA device serves");
    let at: IpAddr = at.parse().expect("VERBS_AT is an IP address");
    let (world, _dir) = with_alice(|settings| {
        settings.bind = vec![at];
        settings.rdma = Rdma::Verbs;
    })
    .await;
    let served = world.running.smb_direct[0];
    let all = ways().into_iter().map(|(options, _)| options);
    for (nth, options) in std::iter::once(Options::default()).chain(all).enumerate() {
        let by_device = Local::by_device();
        let names = (&*at.to_string(), "data");
        let smb = Smb::connect(served, true, names, &alice(), options, &by_device).await.unwrap();
        every_size(smb, &world.folder(), nth).await;
    }
    world.running.stop().await;
}
