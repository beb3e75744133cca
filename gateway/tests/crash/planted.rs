//! Plants faults between a kill and the next start; the rounds must detect each of them.

use std::path::Path;

use recovery::{Change, Kind, Store};

use crate::records::{RECORD, RECORDS_AT};
use crate::{Dice, Load, Times, TooLate, ports, world};

/// Maximum number of rounds, most of which may prove nothing on a machine that is too busy.
const TRIES: usize = 4;

/// Removes the first record of this kind that contains these bytes.
fn lose(home: &Path, kind: Kind, what: &[u8]) {
    let store = Store::open(&home.join("state")).unwrap();
    let has = |bytes: &[u8]| bytes.windows(what.len()).any(|w| w == what);
    let records = store.read(kind).unwrap();
    let found = records.into_iter().find(|(key, value)| has(key) || has(value));
    let (key, _) = found.expect("a record to lose");
    store.commit_blocking(vec![Change::Remove(kind, key)]).unwrap();
}

/// Runs a round with a fault between the kill and the start; returns the round's error.
async fn found(plant: impl Fn(&Path, &Path, &Load)) -> String {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for _ in 0..TRIES {
        let (home, data, load, daemon) = world(&mut dice).await;
        let ports = ports(&daemon);
        let mut load = load.until_killed(daemon, &mut dice).await;
        plant(home.path(), &data, &load);
        let folder = home.path().to_owned();
        let round = tokio::spawn(async move {
            load.recover(&folder, &data, ports, &mut Times::default()).await.map(drop)
        });
        match round.await {
            Ok(Ok(())) => panic!("the fault was not found"),
            Ok(Err(TooLate)) => {}
            Err(why) => return *why.into_panic().downcast::<String>().expect("a reason"),
        }
    }
    panic!("no client of NFS comes back within the grace period");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_handle_is_found() {
    let why = found(|home, _, _| lose(home, Kind::SmbOpen, b"smb-0")).await;
    assert!(why.contains("smb-0"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_client_of_nfs_4_is_found() {
    let why = found(|home, _, _| lose(home, Kind::NfsClient, b"crash")).await;
    assert!(why.contains("reclaim of nfs4-locked"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_host_of_nlm_is_found() {
    let why = found(|home, _, _| lose(home, Kind::NlmMonitor, b"crash")).await;
    assert!(why.contains("reclaim of nlm-locked"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_data_is_found() {
    let why = found(|_, data, load| {
        let held = load.held.iter().max_by_key(|h| h.records).unwrap();
        assert!(held.records > 0, "no record to lose");
        let file = std::fs::OpenOptions::new().write(true).open(data.join(&held.name)).unwrap();
        file.set_len(RECORDS_AT + held.records * RECORD - 1).unwrap();
    })
    .await;
    assert!(why.contains("record ") && why.contains(" of smb-"), "{why}");
}
