//! Delegations of directories (RFC 8881 sections 10.9 and 18.39).

use nfsrdma::v4::attrs::Bitmap;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, op};
use rdma_transport::channel::{Command, Handle};
use rdma_transport::xdr::Writer;
use tokio::sync::mpsc::Receiver;
use vfs::Acting;
use vfs::{CreateHow, Cred, SetAttr, VfsError};

use crate::client::{Client, R, RW, read_stateid};
use crate::delegations::{Callback, give_back};
use crate::harness::Harness;

/// `gddrnf4_status`
const UNAVAILABLE: u32 = 1;

/// Requests a delegation with all notifications.
fn wants(w: &mut Writer) {
    w.bool(true);
    w.value(&Bitmap::of(&[0, 1, 2, 3, 4, 5]));
    for _ in 0..2 {
        w.i64(1);
        w.u32(0);
    }
    w.value(&Bitmap::of(&[3, 4]));
    w.value(&Bitmap::of(&[3, 4]));
}

async fn ask(c: &Client<'_>, fh: &[u8]) -> Result<Stateid, u32> {
    let (status, mut r) = c.on(fh, op::GET_DIR_DELEGATION, wants).await;
    assert_eq!(status, Status::Ok);
    match r.u32() {
        0 => {
            r.fixed(8);
            let stateid = read_stateid(&mut r);
            for _ in 0..3 {
                assert!(r.bitmap().is_empty(), "nothing is promised");
            }
            Ok(stateid)
        }
        other => {
            assert!(!r.bool(), "nobody is told when there is one");
            Err(other)
        }
    }
}

async fn top(c: &Client<'_>) -> Vec<u8> {
    let mut r = c.run(|a| a.data().getfh()).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
    r.expect(op::GETFH, Status::Ok).opaque()
}

/// A client with a delegation of the root of the share, which contains `f`.
async fn holder<'k>(harness: &'k Harness) -> (Client<'k>, Receiver<Command>, Vec<u8>, Stateid) {
    let (_, _) = harness.with_file(b"f", b"content").await;
    let (handle, asked) = Handle::played();
    let c = Client::called_by(harness, b"holder", handle).await;
    let dir = top(&c).await;
    let deleg = ask(&c, &dir).await.unwrap();
    (c, asked, dir, deleg)
}

#[tokio::test]
async fn directory_delegation_needs_backchannel() {
    let harness = Harness::new();
    let (c, _asked, dir, deleg) = holder(&harness).await;
    assert_eq!(ask(&c, &dir).await, Err(UNAVAILABLE), "once per client");
    let (handle, _other_asked) = Handle::played();
    let d = Client::called_by(&harness, b"other", handle).await;
    assert!(ask(&d, &dir).await.is_ok(), "readers share");
    let deaf = Client::new(&harness, b"deaf").await;
    assert_eq!(ask(&deaf, &dir).await, Err(UNAVAILABLE));
    let file = c.open(b"o", b"f", R).await.unwrap().fh;
    assert_eq!(c.on(&file, op::GET_DIR_DELEGATION, wants).await.0, Status::NotDir);
    let mut r = c.run(|a| a.root().op(op::GET_DIR_DELEGATION, wants)).await;
    r.ok(&[op::PUTROOTFH]).expect(op::GET_DIR_DELEGATION, Status::Ok);
    assert_eq!(r.u32(), UNAVAILABLE, "above the shares");
    assert_eq!(c.on(&dir, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    assert!(ask(&c, &dir).await.is_ok(), "anew");
}

/// A directory delegation blocks other clients until it is returned, so a user who may not list the directory must not get one.
/// Permission to search is not enough, as for READDIR.
#[tokio::test]
async fn directory_delegation_needs_list_permission() {
    const OWNER: u32 = 1000;
    let harness = Harness::new();
    let (ns, root) = (&harness.nfs.core.namespace, Cred::root());
    let share = &ns.share_named(b"data").unwrap();
    let top = share.backend.root();
    let of = |mode| {
        let (uid, gid) = (Some(OWNER), Some(OWNER));
        SetAttr { mode: Some(mode), uid, gid, ..SetAttr::default() }
    };
    let d = ns.by(None).mkdir(share, &top, &root, b"d", of(0o700)).await.unwrap().node;
    let mut clients = Vec::new();
    for uid in [OWNER, OWNER + 1] {
        let (handle, asked) = Handle::played();
        let mut c = Client::called_by(&harness, format!("of {uid}").as_bytes(), handle).await;
        let mut r = c.run(|a| a.data().lookup(b"d").getfh()).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP, op::LOOKUP]);
        let fh = r.expect(op::GETFH, Status::Ok).opaque();
        c.cred = Cred { uid, gid: uid, groups: [].into(), token: vfs::Token::NONE };
        clients.push((c, fh, asked));
    }
    let [(owner, fh, _), (other, ..)] = &clients[..] else { panic!() };
    for mode in [0o700, 0o733, 0o711] {
        d.setattr(&root, of(mode), false).await.unwrap();
        let mut r = other.run(|a| a.putfh(fh).readdir(0, 4096, 4096, &[])).await;
        r.ok(&[op::PUTFH]).expect(op::READDIR, Status::Access);
        assert_eq!(ask(other, fh).await, Err(UNAVAILABLE), "{mode:o}");
    }
    let given = ask(owner, fh).await.unwrap();
    assert_eq!(owner.on(fh, op::DELEGRETURN, give_back(given)).await.0, Status::Ok);
    d.setattr(&root, of(0o744), false).await.unwrap();
    assert!(ask(other, fh).await.is_ok(), "who may list it");
}

#[tokio::test]
async fn directory_change_waits_for_holder() {
    let root = Cred::root();
    for change in 0..8 {
        let harness = Harness::new();
        let (c, mut asked, dir, deleg) = holder(&harness).await;
        let ns = &harness.nfs.core.namespace;
        let share = &ns.share_named(b"data").unwrap();
        let top = share.backend.root();
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let file = top.lookup(&root, b"f").await.unwrap().0;
        // Bypasses `FileOps`, so no recall happens.
        top.mkdir(Acting::caller(&root), b"d", set).await.unwrap();
        let file_ops = ns.by(None);
        let come = async || match change {
            0 => file_ops.create(share, &top, &root, b"g", CreateHow::Guarded, set).await.map(drop),
            1 => file_ops.unlink(share, &top, &root, b"f").await.map(drop),
            2 => file_ops.rename(share, &top, &root, b"f", &top, b"g").await.map(drop),
            3 => file_ops.link(share, &file, &root, &top, b"g").await.map(drop),
            4 => file_ops.mkdir(share, &top, &root, b"g", set).await.map(drop),
            5 => file_ops.rmdir(share, &top, &root, b"d").await.map(drop),
            6 => file_ops.symlink(share, &top, &root, b"g", b"f", set).await.map(drop),
            _ => file_ops.setattr(share, &top, &root, set, false).await.map(drop),
        };
        assert_eq!(come().await, Err(VfsError::Delay), "change {change}");
        let call = Callback::next(&mut asked).await;
        assert_eq!((call.stateid(), &call.fh), (deleg, &dir));
        call.reply(Status::Ok);
        assert_eq!(c.on(&dir, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
        assert_eq!(come().await, Ok(()), "change {change}");
    }
}

#[tokio::test]
async fn unrelated_change_recalls_no_directory() {
    let harness = Harness::new();
    let (c, mut asked, _, _) = holder(&harness).await;
    let d = Client::new(&harness, b"other").await;
    let o = d.open(b"o", b"f", RW).await.expect("it is there, so it is not made");
    assert_eq!(d.write(&o.fh, o.stateid, b"new").await, Status::Ok);
    let own = c.open(b"o", b"mine", RW).await.unwrap();
    assert_eq!(c.close(&own).await, Status::Ok);
    let r = c.run(|a| a.data().op(op::REMOVE, |w| w.opaque(b"mine"))).await;
    assert_eq!(r.status, Status::Ok);
    assert!(asked.try_recv().is_err(), "nobody was called");
    assert_eq!(d.open(b"o", b"g", RW).await.unwrap_err(), Status::Delay);
    Callback::next(&mut asked).await.reply(Status::Ok);
}

#[tokio::test]
async fn removing_directory_recalls_delegation() {
    let harness = Harness::new();
    let (handle, mut asked) = Handle::played();
    let c = Client::called_by(&harness, b"holder", handle).await;
    let ns = &harness.nfs.core.namespace;
    let (share, root) = (&ns.share_named(b"data").unwrap(), Cred::root());
    let top = share.backend.root();
    let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    ns.by(None).mkdir(share, &top, &root, b"d", set).await.unwrap();
    let mut r = c.run(|a| a.data().op(op::LOOKUP, |w| w.opaque(b"d")).getfh()).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP, op::LOOKUP]);
    let dir = r.expect(op::GETFH, Status::Ok).opaque();
    let deleg = ask(&c, &dir).await.unwrap();
    let gone = ns.by(None).rmdir(share, &top, &root, b"d").await;
    assert_eq!(gone.map(drop), Err(VfsError::Delay));
    assert_eq!(Callback::next(&mut asked).await.stateid(), deleg);
}

#[tokio::test]
async fn foreign_change_recalls_directory_delegation() {
    let harness = Harness::new();
    let (_c, mut asked, _, deleg) = holder(&harness).await;
    harness.nfs.clients.tick().await;
    assert!(asked.try_recv().is_err(), "nothing has changed");
    let share = &harness.nfs.core.namespace.share_named(b"data").unwrap();
    let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    share.backend.root().mkdir(Acting::caller(&Cred::root()), b"d", set).await.unwrap();
    harness.nfs.clients.tick().await;
    assert_eq!(Callback::next(&mut asked).await.stateid(), deleg);
}
