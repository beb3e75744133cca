//! Shares with configured paths, and the pseudo folders above them.

use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{attr, op};

use crate::client::{Client, R, open_head};
use crate::harness::{Args, Harness};

/// `data` and `more` are below one folder; `unlisted`, which is hidden, and `hidden`, which is for other clients, are below two
/// more.
fn harness() -> Harness {
    let harness = Harness::new();
    for (name, path) in [
        ("data", "srv/nfs/public"),
        ("more", "srv/nfs/more"),
        ("unlisted", "srv/secret/unlisted"),
        ("hidden", "vault/hidden"),
    ] {
        harness.reload(name, |share| share.rules.export = Some(path.into()));
    }
    harness
}

fn to(args: Args, path: &str) -> Args {
    let names = path.split('/').filter(|name| !name.is_empty());
    names.fold(args.root(), |args, name| args.lookup(name.as_bytes()))
}

/// Looks up a path and returns its handle or the error.
async fn handle(harness: &Harness, path: &str) -> Result<Vec<u8>, Status> {
    let mut r = harness.run(|c| to(c, path).getfh()).await;
    if r.status != Status::Ok {
        return Err(r.status);
    }
    r.ok(&[op::PUTROOTFH]);
    for _ in path.split('/').filter(|name| !name.is_empty()) {
        r.ok(&[op::LOOKUP]);
    }
    Ok(r.expect(op::GETFH, Status::Ok).opaque())
}

/// Lists a folder, with each entry's file id from its attributes.
async fn names(harness: &Harness, path: &str) -> Vec<String> {
    let fh = handle(harness, path).await.unwrap();
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        // The size limit allows one entry.
        let mut r = harness.run(|c| c.putfh(&fh).readdir(cookie, 1, 4096, &[attr::FILEID])).await;
        r.ok(&[op::PUTFH]).expect(op::READDIR, Status::Ok);
        r.fixed(8);
        while r.bool() {
            cookie = r.u64();
            names.push(String::from_utf8(r.opaque()).unwrap());
            r.bitmap();
            r.opaque();
        }
        if r.bool() {
            return names;
        }
    }
}

#[tokio::test]
async fn share_is_found_at_path() {
    let harness = harness();
    let sorted = async |path| {
        let mut names = names(&harness, path).await;
        names.sort();
        names
    };
    assert_eq!(sorted("").await, ["frozen", "srv"]);
    assert_eq!(sorted("srv").await, ["nfs"], "what is hidden is in no list");
    assert_eq!(sorted("srv/nfs").await, ["more", "public"]);
    for path in ["data", "public", "srv/data", "srv/nfs/none", "srv/nf", "vault", "vault/hidden"] {
        assert_eq!(handle(&harness, path).await, Err(Status::NoEnt), "{path}");
    }
    handle(&harness, "srv/secret/unlisted").await.expect("whoever knows its name finds it");
    let (_, file) = harness.with_file(b"f", b"content").await;
    assert_eq!(handle(&harness, "srv/nfs/public/f").await, Ok(file));
    let rows = rdma_transport::refused::list();
    let told = |share: &str| rows.iter().any(|row| row.refused.share == share);
    assert!(told("srv/nfs/none"), "the path that was asked for: {rows:?}");
}

#[tokio::test]
async fn pseudo_folders_have_separate_identity() {
    let harness = harness();
    let paths = ["", "srv", "srv/nfs", "srv/secret"];
    let (mut handles, mut numbers) = (Vec::new(), Vec::new());
    for path in paths {
        handles.push(handle(&harness, path).await.unwrap());
        let mut r =
            harness.run(|c| c.putfh(handles.last().unwrap()).getattr(&[attr::FILEID])).await;
        r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok).bitmap();
        r.u32();
        numbers.push(r.u64());
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), paths.len());
    for (path, parent) in [("srv", ""), ("srv/nfs", "srv"), ("srv/nfs/public", "srv/nfs")] {
        let mut r = harness.run(|c| to(c, path).op(op::LOOKUPP, |_| {}).getfh()).await;
        r.ok(&[op::PUTROOTFH]);
        path.split('/').for_each(|_| {
            r.ok(&[op::LOOKUP]);
        });
        let fh = r.ok(&[op::LOOKUPP]).expect(op::GETFH, Status::Ok).opaque();
        assert_eq!(Ok(fh), handle(&harness, parent).await, "{path}");
    }
    let r = harness.run(|c| c.root().op(op::LOOKUPP, |_| {})).await;
    assert_eq!(r.status, Status::NoEnt);
    // Files can be neither created nor opened there.
    assert_eq!(harness.run(|c| to(c, "srv").mkdir(b"d")).await.status, Status::RoFs);
    let c = Client::new(&harness, b"x").await;
    for (name, status) in [(b"public", Status::IsDir), (b"nobody", Status::NoEnt)] {
        let open = |w: &mut rdma_transport::xdr::Writer| {
            open_head(w, 0, 0, b"o", R);
            w.u32(0);
            w.u32(0);
            w.opaque(name);
        };
        assert_eq!(c.run(|a| to(a, "srv/nfs").op(op::OPEN, open)).await.status, status);
    }
}

#[tokio::test]
async fn folder_without_shares_is_stale() {
    let harness = harness();
    let (nfs, secret) =
        (handle(&harness, "srv/nfs").await.unwrap(), handle(&harness, "srv/secret").await.unwrap());
    let public = handle(&harness, "srv/nfs/public").await.unwrap();
    harness.reload("unlisted", |share| share.clients = Some(vec![]));
    assert_eq!(
        harness.run(|c| c.putfh(&secret)).await.status,
        Status::Stale,
        "not for this client"
    );
    harness.reload("more", |share| share.rules.export = None);
    assert_eq!(harness.run(|c| c.putfh(&nfs)).await.status, Status::Ok);
    harness.reload("data", |share| share.rules.export = None);
    assert_eq!(harness.run(|c| c.putfh(&nfs)).await.status, Status::Stale);
    assert_eq!(
        handle(&harness, "data").await,
        Ok(public),
        "a file's handle has nothing of its path"
    );
}
