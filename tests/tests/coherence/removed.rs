//! A file removed by a program on the host: a bare file handle is stale from the next call on, and clients that have the file open
//! keep it.

use std::fs;
use std::process::Command;

use client::nfs3::{Fh, SetAttr, Stable};
use client::nfs4::{OpenHow, Results, StableHow4, Stateid, op};
use client::smb::OpenHow as SmbHow;
use client::{Error, Result};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf};

use crate::side::{Side, Way, patiently};

/// `NFS3ERR_STALE` (RFC 1813 section 2.6).
const STALE: u32 = 70;
const FILE_SYNC: StableHow4 = StableHow4::FileSync;
const DATA: &[u8] = b"data of a file";

async fn sides() -> (World, tempfile::TempDir, Side, Side) {
    let (world, dir) = with_alice(|_| ()).await;
    let a = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    let b = Side::connect(&world, &alice(), Way::Tcp).await.unwrap();
    (world, dir, a, b)
}

/// Creates a file with data that a version 3 client has looked up and read.
async fn known(side: &Side, name: &str) -> Fh {
    fs::write(side.folder.join(name), DATA).unwrap();
    let (fh, _) = side.nfs3.lookup(&side.root3, name.as_bytes()).await.unwrap();
    assert_eq!(getattr(side, &fh).await.unwrap(), DATA.len() as u64);
    assert_eq!(read(side, &fh).await.unwrap(), DATA);
    fh
}

/// Removes it in a separate process: actions of this process count as the gateway's.
fn remove(side: &Side, name: &str) {
    let done = Command::new("rm").arg(side.folder.join(name)).status().unwrap();
    assert!(done.success(), "rm {name}: {done}");
}

async fn getattr(side: &Side, fh: &Fh) -> Result<u64> {
    patiently(|| side.nfs3.getattr(fh)).await.map(|attr| attr.size)
}

async fn read(side: &Side, fh: &Fh) -> Result<Vec<u8>> {
    let read = patiently(|| side.nfs3.read(fh, 0, 100)).await?;
    Ok(read.data.iter().flat_map(|piece| piece.to_vec()).collect())
}

async fn is_gone(side: &Side, fh: &Fh) {
    let (attr, data) = (getattr(side, fh).await, read(side, fh).await);
    assert!(matches!(attr, Err(Error::Nfs3(STALE))), "GETATTR: {attr:?}");
    assert!(matches!(data, Err(Error::Nfs3(STALE))), "READ: {data:?}");
}

async fn is_there(side: &Side, fh: &Fh) {
    assert_eq!(getattr(side, fh).await.unwrap(), DATA.len() as u64);
    assert_eq!(read(side, fh).await.unwrap(), DATA);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_file_makes_handle_stale() {
    let (world, _dir, a, _b) = sides().await;
    for round in 0..20 {
        let (looked_at, read_first) = (format!("looked-at-{round}"), format!("read-{round}"));
        let (first, second) = (known(&a, &looked_at).await, known(&a, &read_first).await);
        remove(&a, &looked_at);
        remove(&a, &read_first);
        is_gone(&a, &first).await;
        let data = read(&a, &second).await;
        assert!(matches!(data, Err(Error::Nfs3(STALE))), "READ: {data:?}");
        is_gone(&a, &second).await;
    }
    world.running.stop().await;
}

/// Each operation of both versions that takes a bare file handle, as the first one after the removal.
#[tokio::test(flavor = "multi_thread")]
async fn removed_file_is_stale_for_operations() {
    let (world, _dir, a, _b) = sides().await;
    for operation in 0..8 {
        let name = format!("f{operation}");
        let fh = known(&a, &name).await;
        let (fh4, _) = a.nfs4.lookup(&a.root4, name.as_bytes()).await.unwrap();
        a.nfs4.getattr(&fh4).await.unwrap();
        remove(&a, &name);
        let data = vec![buf(b"to nobody")];
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let done = match operation {
            0 => patiently(|| a.nfs3.access(&fh, 0x3f)).await.map(drop),
            1 => patiently(|| a.nfs3.setattr(&fh, &set)).await,
            2 => a.nfs3.write(&fh, 0, data, Stable::File).await.map(drop),
            3 => a.nfs3.commit(&fh, 0, 0).await.map(drop),
            4 => a.nfs4.getattr(&fh4).await.map(drop),
            5 => patiently(|| a.nfs4.read(&fh4, Stateid::ANONYMOUS, 0, 5)).await.map(drop),
            6 => a.nfs4.write(&fh4, Stateid::ANONYMOUS, 0, data, FILE_SYNC).await.map(drop),
            _ => a.nfs4.call(a.nfs4.compound().putfh(&fh4).access(0x3f)).await.and_then(|answer| {
                let mut results = Results::new(&answer)?;
                results.sequence()?;
                results.next::<()>(op::PUTFH)?;
                results.next::<()>(op::ACCESS)
            }),
        };
        let stale = matches!(done, Err(Error::Nfs3(STALE) | Error::Nfs4(_, STALE)));
        assert!(stale, "operation {operation}: {done:?}");
        is_gone(&a, &fh).await;
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_open_keeps_no_client_handle() {
    let (world, _dir, a, _b) = sides().await;
    let fh = known(&a, "f").await;
    let open = fs::File::open(a.folder.join("f")).unwrap();
    remove(&a, "f");
    is_gone(&a, &fh).await;
    assert_eq!(open.metadata().unwrap().len(), DATA.len() as u64);
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_name_keeps_it() {
    let (world, _dir, a, _b) = sides().await;
    let fh = known(&a, "f").await;
    fs::hard_link(a.folder.join("f"), a.folder.join("g")).unwrap();
    remove(&a, "f");
    is_there(&a, &fh).await;
    remove(&a, "g");
    is_gone(&a, &fh).await;
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v4_open_keeps_removed_file() {
    let (world, _dir, a, b) = sides().await;
    let fh = known(&a, "f").await;
    let how = OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::READ };
    let open = b.nfs4.open(&b.root4, b"f", b"owner", how).await.unwrap();
    remove(&a, "f");
    is_there(&a, &fh).await;
    b.nfs4.close(&open).await.unwrap();
    is_gone(&a, &fh).await;
    world.running.stop().await;
}

/// The gateway watches files that a client caches, and holds them open for that, which must not revive the handle.
#[tokio::test(flavor = "multi_thread")]
async fn delegation_keeps_removed_file() {
    let (world, _dir, a, mut b) = sides().await;
    let fh = known(&a, "f").await;
    let open = b.nfs4.open(&b.root4, b"f", b"owner", OpenHow::READ).await.unwrap();
    let delegation = open.delegation.expect("a delegation");
    remove(&a, "f");
    is_there(&a, &fh).await;
    let recall = b.recalls.recv().await.expect("a recall");
    assert_eq!(recall.stateid, delegation.stateid);
    b.nfs4.delegreturn(&open.fh, delegation.stateid).await.unwrap();
    is_there(&a, &fh).await;
    b.nfs4.close(&open).await.unwrap();
    is_gone(&a, &fh).await;
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn smb_open_keeps_removed_file() {
    let (world, _dir, a, b) = sides().await;
    let fh = known(&a, "f").await;
    let (file, _) = b.smb.open_cached("f", &SmbHow::READ).await.unwrap();
    remove(&a, "f");
    is_there(&a, &fh).await;
    b.smb.close(file).await.unwrap();
    is_gone(&a, &fh).await;
    world.running.stop().await;
}
