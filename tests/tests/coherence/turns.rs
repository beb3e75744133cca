//! An SMB client that reopens a file immediately after each break, and an NFS client that wants to change it.

use std::time::{Duration, Instant};

use client::nfs3::{SetAttr, Stable};
use client::nfs4::Stateid;
use client::smb::{Break, Caching, OpenHow, Smb};
use client::{Error, Result};
use headgate_tests::world::buf;
use headgate_tests::world::smb::{alice, with_alice};
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;

use crate::side::{Side, Way};

/// READ, WRITE and HANDLE caching of a lease.
const RWH: u32 = 7;
/// Longer than an NFS request waits in the server, so that the client gets a delay status each time.
const HOLDS_ON: Duration = Duration::from_millis(150);
/// A client retries after this time, as Linux does first for version 4.
const COMES_BACK: Duration = Duration::from_millis(200);
const JUKEBOX: u32 = 10008;

/// Opens with a new key each time: after every break it delays, closes, and opens again at once.
async fn hoard(smb: &Smb, breaks: &mut Receiver<Break>, name: &str, has_it: &Notify) {
    for number in 1_u64.. {
        let mut key = [0xA5; 16];
        key[..8].copy_from_slice(&number.to_be_bytes());
        let how = OpenHow::WRITE.cached(Caching::Lease(key, RWH));
        let Ok((file, granted)) = smb.open_cached(name, &how).await else { return };
        has_it.notify_one();
        if granted & !1 != 0 && breaks.recv().await.is_none() {
            return;
        }
        tokio::time::sleep(HOLDS_ON).await;
        if smb.close(file).await.is_err() {
            return;
        }
    }
}

/// Number of delay statuses before a request succeeds.
async fn until_served<F: Future<Output = Result<()>>>(mut ask: impl FnMut() -> F) -> usize {
    let until = Instant::now() + Duration::from_secs(30);
    let mut sent_away = 0;
    loop {
        match ask().await {
            Ok(()) => return sent_away,
            Err(Error::Nfs3(JUKEBOX) | Error::Nfs4(_, JUKEBOX)) if Instant::now() < until => {
                sent_away += 1;
                tokio::time::sleep(COMES_BACK).await;
            }
            Err(e) => panic!("sent away {sent_away} times, then: {e}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reopening_client_does_not_starve_writer() {
    let (world, _dir) = with_alice(|_| ()).await;
    for way in ["write", "truncate", "truncate by version 4"] {
        let mut a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
        let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
        std::fs::write(a.folder.join(way), b"base!").unwrap();
        let (fh, _) = b.nfs3.lookup(&b.root3, way.as_bytes()).await.unwrap();
        let (fh4, _) = b.nfs4.lookup(&b.root4, way.as_bytes()).await.unwrap();
        let cut = SetAttr { size: Some(1), ..SetAttr::default() };
        let has_it = Notify::new();
        let serve = async {
            has_it.notified().await;
            let mut sent_away = Vec::new();
            for _ in 0..3 {
                sent_away.push(match way {
                    "write" => {
                        let ask = || async {
                            let data = vec![buf(b"x")];
                            b.nfs3.write(&fh, 0, data, Stable::File).await.map(drop)
                        };
                        until_served(ask).await
                    }
                    "truncate" => until_served(|| b.nfs3.setattr(&fh, &cut)).await,
                    _ => {
                        until_served(|| b.nfs4.setattr(&fh4, Stateid::ANONYMOUS, None, Some(1)))
                            .await
                    }
                });
            }
            sent_away
        };
        let sent_away = tokio::select! {
            sent_away = serve => sent_away,
            () = hoard(&a.smb, &mut a.breaks, way, &has_it) => panic!("{way}: the hoarder has ended"),
        };
        // Once while the lease is returned, and once more if a busy machine is late.
        assert!(sent_away.iter().all(|n| *n <= 2), "{way}: {sent_away:?}");
        assert!(sent_away[0] > 0, "{way}: nobody was in the way: {sent_away:?}");
    }
    world.running.stop().await;
}
