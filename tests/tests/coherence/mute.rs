//! A client that never answers: its holdings are revoked, it is informed, and other clients continue according to their protocol.

use std::time::{Duration, Instant};

use client::Error;
use client::nfs3;
use client::smb::{Caching, OpenHow};
use headgate_tests::world::World;
use headgate_tests::world::buf;
use headgate_tests::world::smb::{alice, with_alice};
use smb_proto::smb2::create::oplock;

use crate::kinds::{Kind, R, W};
use crate::side::{Hold, Side, Way, patiently};

/// The time limit for recalls in these tests.
const RECALL: Duration = Duration::from_millis(700);
/// A limit that is never reached.
const NEVER: Duration = Duration::from_secs(60);
/// A limit above all waits, including delays of a busy machine.
const ENOUGH: Duration = Duration::from_secs(30);

async fn world(recall: Duration) -> (World, tempfile::TempDir, Side, Side) {
    let (world, dir) = with_alice(|s| s.recall = recall).await;
    let a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    (world, dir, a, b)
}

async fn held(a: &Side, kind: Kind, name: &str) -> Hold {
    std::fs::write(a.folder.join(name), b"base!").unwrap();
    let taken = a.take(kind, name, b"first").await;
    assert_eq!(taken.hold.caches, kind.caches(), "{kind:?}: {}", taken.outcome);
    taken.hold
}

#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_holder_is_revoked() {
    let holders = [
        Kind::Lease(7),
        Kind::Lease(R | W),
        Kind::Oplock(oplock::BATCH),
        Kind::Oplock(oplock::EXCLUSIVE),
        Kind::ReadDelegation,
        Kind::WriteDelegation,
    ];
    for (at, first) in holders.into_iter().enumerate() {
        for second in [Kind::V3Write, Kind::V4Lock, Kind::RangeLock] {
            // A holder that was silent before has less time.
            let (world, _dir, a, b) = world(RECALL).await;
            let name = format!("mute {at} {second:?}");
            let hold = held(&a, first, &name).await;
            if let Some(file) = &hold.v4 {
                a.nfs4.close(file).await.unwrap();
            }
            let began = Instant::now();
            let interims = b.smb.interims();
            let mut came = b.take(second, &name, b"secnd").await;
            let took = began.elapsed();
            assert!(came.good, "{first:?}, {second:?}: {}", came.outcome);
            assert!(took >= RECALL - Duration::from_millis(100), "{first:?}, {second:?}: {took:?}");
            assert!(took < ENOUGH, "{first:?}, {second:?}: {took:?}");
            // A waiting SMB client got an interim response.
            assert_eq!(b.smb.interims() > interims, second == Kind::RangeLock, "{first:?}");
            b.leave(&mut came.hold).await.unwrap();
            is_told(&a, first, &hold).await;
            world.running.stop().await;
        }
    }
}

/// A holder that answers nothing costs others its time once, not for each of its files.
#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_holder_of_many_files_costs_its_time_once() {
    const FILES: u32 = 10;
    const LONG: Duration = Duration::from_millis(3_200);
    for first in [Kind::Lease(R | W), Kind::Oplock(oplock::BATCH), Kind::WriteDelegation] {
        let (world, _dir, a, b) = world(LONG).await;
        let mut holds = Vec::new();
        for n in 0..FILES {
            let key = u8::try_from(n).unwrap();
            holds.push(held(&a, first, &format!("mute {key}")).await);
        }
        let began = Instant::now();
        for n in 0..FILES {
            let mut came = b.take(Kind::V3Write, &format!("mute {n}"), b"secnd").await;
            assert!(came.good, "{first:?}: {}", came.outcome);
            b.leave(&mut came.hold).await.unwrap();
        }
        let took = began.elapsed();
        assert!(took >= LONG - Duration::from_millis(100), "{first:?}: {took:?}");
        assert!(took < LONG * FILES / 2, "{first:?}: {took:?}");
        world.running.stop().await;
    }
}

/// Checks that the holder learns of the revocation.
async fn is_told(a: &Side, first: Kind, hold: &Hold) {
    const NFS4ERR_DELEG_REVOKED: u32 = 10087;
    match first {
        Kind::Lease(_) => {
            // MS-SMB2 section 3.3.5.22.2: this acknowledgement is too late.
            let late = a.smb.acknowledge_lease(hold.key, 0).await;
            assert!(matches!(late, Err(Error::Smb(..))), "{late:?}");
        }
        Kind::Oplock(_) => {
            let file = hold.smb.unwrap();
            let late = a.smb.acknowledge_oplock(&file, oplock::NONE).await;
            assert!(matches!(late, Err(Error::Smb(..))), "{late:?}");
        }
        _ => {
            let (fh, d) = hold.delegation.clone().unwrap();
            let read = patiently(|| a.nfs4.read(&fh, d.stateid, 0, 5)).await;
            assert!(matches!(read, Err(Error::Nfs4(_, NFS4ERR_DELEG_REVOKED))), "{read:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_clients_get_delay_or_interim() {
    const NFS3ERR_JUKEBOX: u32 = 10008;
    let (world, _dir, a, b) = world(NEVER).await;
    let hold = held(&a, Kind::Lease(7), "busy").await;
    let (fh, _) = b.nfs3.lookup(&b.root3, b"busy").await.unwrap();
    let began = Instant::now();
    let told = b.nfs3.write(&fh, 0, vec![buf(b"x")], nfs3::Stable::File).await;
    assert!(matches!(told, Err(Error::Nfs3(NFS3ERR_JUKEBOX))), "{told:?}");
    assert!(began.elapsed() < NEVER, "a short wait");
    let how = OpenHow::READ.cached(Caching::Oplock(oplock::II));
    // The holder disconnects after the other client got its interim response.
    let goes = async {
        while b.smb.interims() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        a.smb.close(hold.smb.unwrap()).await.unwrap();
    };
    let (opened, ()) = tokio::join!(b.smb.open_cached("busy", &how), goes);
    b.smb.close(opened.unwrap().0).await.unwrap();
    world.running.stop().await;
}
