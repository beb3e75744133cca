//! OPEN, CLOSE, OPEN_DOWNGRADE and access through their stateids (RFC 8881 sections 8.2, 9.7, 18.2, 18.16, 18.18).

use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, attr, op};
use rdma_transport::channel::Handle;
use rdma_transport::xdr::Writer;
use vfs::Cred;
use vfs::namespace::{Cidr, Protocols};

use crate::client::{
    Client, R, READ_LT, RW, W, WRITE_LT, close, locku, next_lock, open_head, read, read_open,
    unchecked, write,
};
use crate::delegations::give_back;
use crate::harness::{Harness, Results, fattr};
use crate::locks::lock;

/// OPEN of an existing file by name.
fn found(owner: &[u8], name: &[u8], share: (u32, u32)) -> impl FnOnce(&mut Writer) {
    move |w| {
        open_head(w, 0, 0, owner, share);
        w.u32(0);
        w.u32(0);
        w.opaque(name);
    }
}

/// OPEN that creates the file with this mode: 1 GUARDED4, 2 EXCLUSIVE4, 3 EXCLUSIVE4_1.
fn made(how: u32, verifier: u64, name: &[u8], mode: u32) -> impl FnOnce(&mut Writer) {
    move |w| {
        open_head(w, 0, 0, b"o", RW);
        w.u32(1);
        w.u32(how);
        if how > 1 {
            w.u64(verifier);
        }
        if how != 2 {
            fattr(w, &[attr::MODE], |v| v.u32(mode));
        }
        w.u32(0);
        w.opaque(name);
    }
}

async fn open_status(c: &Client<'_>, args: impl FnOnce(&mut Writer)) -> Status {
    let mut r = c.run(|a| a.data().op(op::OPEN, args)).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
    let status = r.status;
    r.expect(op::OPEN, status);
    status
}

async fn size_of(c: &Client<'_>, fh: &[u8]) -> u64 {
    let mut r = c.run(|a| a.putfh(fh).getattr(&[attr::SIZE])).await;
    r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok).bitmap();
    r.opaque().try_into().map(u64::from_be_bytes).unwrap()
}

#[tokio::test]
async fn open_result_reports_its_effects() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let o = c.open(b"o", b"f", RW).await.unwrap();
    assert_eq!((o.stateid.seqid, o.rflags), (1, 4), "POSIX locks, no confirmation");
    assert_ne!(o.change.0, o.change.1, "a name was made");
    assert_eq!(o.set, [attr::MODE]);
    assert_eq!(o.delegation, (0, None));
    let again = c.open(b"o", b"f", R).await.unwrap();
    assert_eq!(again.stateid.other, o.stateid.other, "one state per owner and file");
    assert_eq!(again.stateid.seqid, 2);
    assert_eq!(again.change.0, again.change.1);
    assert_eq!(again.set, [] as [u32; 0], "nothing was set on what was there");
    let other = c.open(b"p", b"f", R).await.unwrap();
    assert_ne!(other.stateid.other, o.stateid.other);
}

#[tokio::test]
async fn stateid_allows_opened_access_only() {
    let harness = Harness::new();
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let r = c.open(b"r", b"f", R).await.unwrap();
    let w = c.open(b"w", b"f", W).await.unwrap();
    let g = c.open(b"w", b"g", W).await.unwrap();
    let fh = &r.fh;
    assert_eq!(c.read(fh, r.stateid).await, Status::Ok);
    assert_eq!(c.write(fh, r.stateid, b"x").await, Status::OpenMode);
    assert_eq!(c.write(fh, w.stateid, b"x").await, Status::Ok);
    assert_eq!(c.read(fh, w.stateid).await, Status::Ok, "as clients need it for parts of pages");
    assert_eq!(c.read(fh, g.stateid).await, Status::BadStateId, "another file's");
    assert_eq!(d.read(fh, r.stateid).await, Status::BadStateId, "another client's");
    let with = |seqid| Stateid { seqid, ..r.stateid };
    assert_eq!(c.read(fh, with(0)).await, Status::Ok, "the newest");
    assert_eq!(c.read(fh, with(2)).await, Status::BadStateId, "from the future");
    c.open(b"r", b"f", R).await.unwrap();
    assert_eq!(c.read(fh, r.stateid).await, Status::OldStateId);
    assert_eq!(c.read(fh, Stateid::INVALID).await, Status::BadStateId);
    assert_eq!(c.read(fh, Stateid::CURRENT).await, Status::BadStateId, "there is none");
    let mut bent = r.stateid;
    bent.other[11] ^= 0x55;
    assert_eq!(c.read(fh, bent).await, Status::BadStateId);
    assert_eq!(c.close(&r).await, Status::OldStateId);
    assert_eq!(c.on(fh, op::CLOSE, close(0, with(2))).await.0, Status::Ok);
    assert_eq!(c.read(fh, with(2)).await, Status::BadStateId, "closed");
}

#[tokio::test]
async fn truncating_open_needs_write_access() {
    let harness = Harness::new();
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let o = c.open(b"o", b"f", RW).await.unwrap();
    assert_eq!(c.write(&o.fh, o.stateid, b"data").await, Status::Ok);
    assert_eq!(c.close(&o).await, Status::Ok);
    let cut = |share| unchecked(0, b"p", b"f", share, &[0]);
    let o = c.open(b"o", b"f", (1, 2)).await.unwrap();
    for who in [&c, &d] {
        assert_eq!(open_status(who, cut(R)).await, Status::ShareDenied);
        assert_eq!(size_of(who, &o.fh).await, 4);
    }
    assert_eq!(c.close(&o).await, Status::Ok);
    assert_eq!(open_status(&d, cut((1, 2))).await, Status::Ok);
    assert_eq!(size_of(&d, &o.fh).await, 0);
    // After the truncation it is an open for reading.
    assert_eq!(c.open(b"o", b"f", W).await.unwrap_err(), Status::ShareDenied);
    c.open(b"o", b"f", R).await.unwrap();
    d.open(b"q", b"g", R).await.unwrap();
    assert_eq!(open_status(&d, unchecked(0, b"q", b"g", R, &[0])).await, Status::Ok);
    c.open(b"o", b"g", (1, 2)).await.unwrap();
}

#[tokio::test]
async fn current_stateid_is_from_previous_open() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let args = unchecked(0, b"o", b"f", RW, &[]);
    let mut r = c
        .run(|a| {
            a.data()
                .op(op::OPEN, args)
                .op(op::WRITE, write(Stateid::CURRENT, b"abc"))
                .op(op::READ, read(Stateid::CURRENT))
                .op(op::CLOSE, close(0, Stateid::CURRENT))
        })
        .await;
    assert_eq!(r.status, Status::Ok);
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
    read_open(&mut r);
    r.expect(op::WRITE, Status::Ok).fixed(16);
    r.expect(op::READ, Status::Ok).bool();
    assert_eq!(r.opaque(), b"abc");
    r.expect(op::CLOSE, Status::Ok);
    assert_eq!((r.u32(), r.fixed(12)), (u32::MAX, vec![0; 12]), "never usable again");
    r.end(Status::Ok);
}

#[tokio::test]
async fn share_modes_bind_all_clients() {
    let harness = Harness::new();
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let o = c.open(b"o", b"f", (1, 2)).await.unwrap();
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::ShareDenied);
    assert_eq!(d.open(b"o", b"f", (1, 1)).await.unwrap_err(), Status::ShareDenied);
    assert_eq!(c.open(b"p", b"f", W).await.unwrap_err(), Status::ShareDenied, "another owner");
    let r = d.open(b"o", b"f", R).await.unwrap();
    assert_eq!(d.write(&o.fh, Stateid::ANONYMOUS, b"x").await, Status::Locked);
    assert_eq!(d.read(&o.fh, Stateid::ANONYMOUS).await, Status::Ok);
    // RFC 8881 section 9.7.
    assert_eq!(c.open(b"o", b"f", RW).await.unwrap_err(), Status::ShareDenied, "its own denial");
    assert_eq!(
        c.open(b"o", b"f", (1, 1)).await.unwrap_err(),
        Status::ShareDenied,
        "its own access"
    );
    assert_eq!(d.close(&r).await, Status::Ok);
    assert_eq!(c.close(&o).await, Status::Ok);
    assert_eq!(d.write(&o.fh, Stateid::ANONYMOUS, b"x").await, Status::Ok);
    assert_eq!(harness.nfs.core.namespace.arbiter().state().nodes(), 0);
}

#[tokio::test]
async fn refused_open_keeps_file_unchanged() {
    let harness = Harness::new();
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    let o = c.open(b"o", b"f", (3, 2)).await.unwrap();
    assert_eq!(c.write(&o.fh, o.stateid, b"precious").await, Status::Ok);
    let truncating = unchecked(0, b"o", b"f", W, &[0]);
    assert_eq!(open_status(&d, truncating).await, Status::ShareDenied);
    assert_eq!(size_of(&c, &o.fh).await, 8);
    c.close(&o).await;
    let mut r = d.run(|a| a.data().op(op::OPEN, unchecked(0, b"o", b"f", W, &[0]))).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
    assert_eq!(read_open(&mut r).set, [attr::SIZE]);
    assert_eq!(size_of(&d, &o.fh).await, 0);
}

#[tokio::test]
async fn downgrade_releases_access() {
    let harness = Harness::new();
    let (c, d) = (Client::new(&harness, b"x").await, Client::new(&harness, b"y").await);
    c.open(b"o", b"f", R).await.unwrap();
    let o = c.open(b"o", b"f", (2, 2)).await.unwrap();
    let down = |stateid: Stateid, share: (u32, u32)| {
        move |w: &mut Writer| {
            w.value(&stateid);
            w.u32(0);
            w.u32(share.0);
            w.u32(share.1);
        }
    };
    for share in [(1, 2), (2, 0), (3, 0), (0, 0), (4, 0), (1, 4)] {
        let (status, _) = c.on(&o.fh, op::OPEN_DOWNGRADE, down(o.stateid, share)).await;
        assert_eq!(status, Status::Inval, "{share:?} was never opened");
    }
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::ShareDenied);
    let (status, mut r) = c.on(&o.fh, op::OPEN_DOWNGRADE, down(o.stateid, (1, 0))).await;
    assert_eq!((status, r.u32()), (Status::Ok, 3));
    let narrow = Stateid { seqid: 3, ..o.stateid };
    assert_eq!(c.write(&o.fh, narrow, b"x").await, Status::OpenMode);
    d.open(b"o", b"f", W).await.unwrap();
}

#[tokio::test]
async fn files_are_made_guarded_and_exclusively() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    assert_eq!(open_status(&c, made(1, 0, b"g", 0o600)).await, Status::Ok);
    assert_eq!(open_status(&c, made(1, 0, b"g", 0o600)).await, Status::Exist);
    for (how, name) in [(2, b"e"), (3, b"h")] {
        assert_eq!(open_status(&c, made(how, 77, name, 0o600)).await, Status::Ok);
        assert_eq!(open_status(&c, made(how, 77, name, 0o600)).await, Status::Ok, "a repetition");
        assert_eq!(open_status(&c, made(how, 78, name, 0o600)).await, Status::Exist);
    }
    // The creator may use its file whatever the mode; for other users the mode is checked.
    let c = Client {
        cred: Cred { uid: 7, gid: 7, groups: [].into(), token: vfs::Token::NONE },
        ..Client::new(&harness, b"z").await
    };
    let root = harness.nfs.core.namespace.share_named(b"data").unwrap().backend.root();
    let open_to_all = vfs::SetAttr { mode: Some(0o777), ..Default::default() };
    root.setattr(&Cred::root(), open_to_all, false).await.unwrap();
    assert_eq!(open_status(&c, made(1, 0, b"closed", 0)).await, Status::Ok);
    assert_eq!(open_status(&c, found(b"p", b"closed", R)).await, Status::Access);
}

#[tokio::test]
async fn execute_permission_allows_reading() {
    let harness = Harness::new();
    let root = Client::new(&harness, b"x").await;
    assert_eq!(open_status(&root, made(1, 0, b"program", 0o711)).await, Status::Ok);
    let user = Cred { uid: 7, gid: 7, groups: [].into(), token: vfs::Token::NONE };
    let c = Client { cred: user, ..Client::new(&harness, b"y").await };
    let mut r = c.run(|a| a.data().op(op::OPEN, found(b"p", b"program", R)).getfh()).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
    let o = read_open(&mut r);
    let fh = r.expect(op::GETFH, Status::Ok).opaque();
    assert_eq!(c.read(&fh, o.stateid).await, Status::Ok);
    assert_eq!(open_status(&c, found(b"p", b"program", W)).await, Status::Access);
    assert_eq!(open_status(&c, found(b"p", b"program", RW)).await, Status::Access);
}

#[tokio::test]
async fn only_regular_files_are_opened() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    c.run(|a| a.data().mkdir(b"d")).await;
    let link = |w: &mut Writer| {
        w.u32(5);
        w.opaque(b"target");
        w.opaque(b"l");
        fattr(w, &[], |_| {});
    };
    c.run(|a| a.data().op(op::CREATE, link)).await;
    assert_eq!(open_status(&c, found(b"o", b"d", R)).await, Status::IsDir);
    assert_eq!(open_status(&c, found(b"o", b"l", R)).await, Status::Symlink);
    assert_eq!(open_status(&c, found(b"o", b"nothing", R)).await, Status::NoEnt);
    assert_eq!(open_status(&c, found(b"o", b"", R)).await, Status::Inval);
    assert_eq!(open_status(&c, found(b"o", b"..", R)).await, Status::BadName);
    assert_eq!(open_status(&c, found(b"o", b"a/b", R)).await, Status::BadChar);
    assert_eq!(open_status(&c, found(b"o", b"f", (0, 0))).await, Status::Inval);
    assert_eq!(open_status(&c, found(b"o", b"f", (1, 4))).await, Status::Inval);
    assert_eq!(open_status(&c, found(b"o", b"f", (1 << 30 | 1, 0))).await, Status::Inval);
    let above = |r: &mut Results| {
        let status = r.status;
        r.ok(&[op::PUTROOTFH]).expect(op::OPEN, status);
        status
    };
    let mut r = c.run(|a| a.root().op(op::OPEN, found(b"o", b"data", R))).await;
    assert_eq!(above(&mut r), Status::IsDir);
    harness.reload("more", |share| share.protocols = Protocols::Smb);
    for name in [&b"hidden"[..], b"more"] {
        // Shares for other addresses, and SMB shares, do not exist for the client.
        let mut r = c.run(|a| a.root().op(op::OPEN, found(b"o", name, R))).await;
        assert_eq!(above(&mut r), Status::NoEnt);
    }
    let mut r = c.run(|a| a.root().op(op::OPEN, unchecked(0, b"o", b"new", R, &[]))).await;
    assert_eq!(above(&mut r), Status::RoFs);
    let mut r =
        c.run(|a| a.root().lookup(b"frozen").op(op::OPEN, unchecked(0, b"o", b"n", R, &[]))).await;
    assert_eq!(r.status, Status::RoFs);
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::OPEN, Status::RoFs);
}

#[tokio::test]
async fn open_by_handle_works() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let (_, file) = harness.with_file(b"f", b"content").await;
    let by_handle = |claim: u32| {
        move |w: &mut Writer| {
            open_head(w, 0, 0, b"o", R);
            w.u32(0);
            w.u32(claim);
        }
    };
    let (status, _) = c.on(&file, op::OPEN, by_handle(4)).await;
    assert_eq!(status, Status::Ok);
    // Delegations of a client's previous run are not kept.
    assert_eq!(c.on(&file, op::OPEN, by_handle(6)).await.0, Status::NotSupp);
    assert_eq!(c.on(&file, op::OPEN, by_handle(7)).await.0, Status::BadXdr);
    let reclaim = |w: &mut Writer| {
        open_head(w, 0, 0, b"o", R);
        w.u32(0);
        w.u32(1);
        w.u32(0);
    };
    assert_eq!(c.on(&file, op::OPEN, reclaim).await.0, Status::NoGrace);
}

#[tokio::test]
async fn removed_file_stays_open() {
    let harness = Harness::new();
    let c = Client::new(&harness, b"x").await;
    let o = c.open(b"o", b"f", RW).await.unwrap();
    assert_eq!(c.write(&o.fh, o.stateid, b"still here").await, Status::Ok);
    let r = c.run(|a| a.data().op(op::REMOVE, |w| w.opaque(b"f"))).await;
    assert_eq!(r.status, Status::Ok);
    assert_eq!(c.read(&o.fh, o.stateid).await, Status::Ok);
    assert_eq!(c.close(&o).await, Status::Ok);
}

/// Records the permission bits of files when they are synced: at that time the name exists and watchers were notified.
#[derive(Debug, Default)]
struct Modes(std::sync::Mutex<Vec<(u64, u32)>>);

impl vfs::local::SyncCalls for Modes {
    fn fsync(&self, fd: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        let seen = std::fs::File::from(fd.try_clone_to_owned()?).metadata()?;
        self.0.lock().unwrap().push((seen.ino(), seen.mode() & 0o777));
        Ok(())
    }
}

/// Creates a file (OPEN) or a folder (CREATE) with a list that grants this right to everyone.
fn listed(opcode: u32, name: &[u8], rights: u32) -> impl FnOnce(&mut Writer) + use<'_> {
    with_entry(opcode, name, (0, rights, b"EVERYONE@"))
}

/// Creates a file (OPEN) or a folder (CREATE) with a list of this entry: type, rights and name.
fn with_entry<'a>(
    opcode: u32,
    name: &'a [u8],
    (kind, rights, who): (u32, u32, &'a [u8]),
) -> impl FnOnce(&mut Writer) + use<'a> {
    move |w| {
        let values = |v: &mut Writer| {
            v.count(1);
            [kind, 0, rights].into_iter().for_each(|n| v.u32(n));
            v.opaque(who);
            v.u32(0o666);
        };
        if opcode == op::CREATE {
            w.u32(2);
            w.opaque(name);
            fattr(w, &[attr::ACL, attr::MODE], values);
        } else {
            open_head(w, 0, 0, b"o", RW);
            w.u32(1);
            w.u32(1);
            fattr(w, &[attr::ACL, attr::MODE], values);
            w.u32(0);
            w.opaque(name);
        }
    }
}

/// A list sent by the client is set before the file becomes durable, whatever the folder's list would pass on.
#[tokio::test]
async fn list_is_set_before_sync() {
    use vfs::acl::{Ace, Acl, Who, flag, mask};
    let (dir, modes) = (tempfile::tempdir().unwrap(), std::sync::Arc::new(Modes::default()));
    let config = vfs::local::LocalConfig {
        calls: Some(modes.clone()),
        ..vfs::local::LocalConfig::new(dir.path())
    };
    let harness = Harness::over(config);
    let share = harness.nfs.core.namespace.shares()[0].clone();
    share.backend.set_strict(true, false);
    let c = Client::new(&harness, b"x").await;
    let top = share.backend.root();
    for name in [b"f", b"g"] {
        for (opcode, made) in [(op::OPEN, 0), (op::CREATE, 1)] {
            modes.0.lock().unwrap().clear();
            let name = [&name[..], if made == 0 { b"ile" } else { b"older" }].concat();
            // The list allows all users to read.
            let mut r = c.run(|a| a.data().op(opcode, listed(opcode, &name, 1))).await;
            r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(opcode, Status::Ok);
            let (_, attr) = top.lookup(&Cred::root(), &name).await.unwrap();
            let seen = modes.0.lock().unwrap();
            let first = seen.iter().find(|(ino, _)| *ino == attr.fileid).unwrap().1;
            assert_eq!((first, attr.mode & 0o077), (attr.mode & 0o777, 0o044), "{first:o}");
        }
        // From now on the folder passes on full rights for everyone.
        let all = flag::OBJECT_INHERIT | flag::CONTAINER_INHERIT;
        let all = Acl::new(vec![Ace::allow(Who::Everyone, mask::FILE_ALL, all)]);
        top.acl_set(&all, 0o777).await.unwrap();
    }
}

/// All operations that set lists. A gateway without a domain has no callers with such identities.
#[tokio::test]
async fn denied_aliases_without_members_are_refused() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"there", b"hello").await;
    let c = Client::new(&harness, b"x").await;
    let cases = [
        (1, &b"S-1-5-32-551"[..], false),
        (0, b"S-1-5-32-551", true),
        (1, b"S-1-5-21-1-2-3-1114", true),
        (1, b"S-1-5-32-545", true),
        (1, b"AUTHENTICATED@", true),
        (1, b"1000", true),
    ];
    for has_domain in [false, true] {
        let host = vfs::Token::of_host(&vfs::Domain::new(None));
        let host = if has_domain { host } else { vfs::Token::NONE };
        harness.reload("data", |share| share.rules.host = host);
        for (n, (kind, who, is_obeyed)) in cases.into_iter().enumerate() {
            let (status, rights) = (
                if is_obeyed || !has_domain { Status::Ok } else { Status::BadOwner },
                vfs::acl::mask::READ_DATA,
            );
            for opcode in [op::OPEN, op::CREATE] {
                let name = format!("{has_domain}{opcode}{n}");
                let entry = with_entry(opcode, name.as_bytes(), (kind, rights, who));
                let got = c.run(|a| a.data().op(opcode, entry)).await.status;
                assert_eq!(got, status, "{opcode} {name}");
            }
            let set = |w: &mut Writer| {
                w.value(&Stateid::ANONYMOUS);
                fattr(w, &[attr::ACL], |v| {
                    v.count(1);
                    [kind, 0, rights].into_iter().for_each(|n| v.u32(n));
                    v.opaque(who);
                });
            };
            let got = harness.run(|c| c.putfh(&file).op(op::SETATTR, set)).await.status;
            assert_eq!(got, status, "SETATTR {n}");
        }
    }
}

/// The masks of a share limit new files even if they come with a list.
#[tokio::test]
async fn list_of_new_file_obeys_masks() {
    let harness = Harness::new();
    harness.reload("data", |share| {
        share.rules.masks = vfs::namespace::Masks { file: Some(0o640), folder: Some(0o2750) };
    });
    let top = harness.nfs.core.namespace.share_named(b"data").unwrap().backend.root();
    let c = Client::new(&harness, b"x").await;
    let stranger = Cred { uid: 5, gid: 5, ..Cred::root() };
    for (opcode, name, mode) in [(op::OPEN, b"file", 0o640), (op::CREATE, b"fold", 0o750)] {
        let all = listed(opcode, name, vfs::acl::mask::FILE_ALL);
        assert_eq!(c.run(|a| a.data().op(opcode, all)).await.status, Status::Ok);
        let (node, attr) = top.lookup(&Cred::root(), name).await.unwrap();
        assert_eq!(attr.mode & 0o777, mode, "{:o}", attr.mode);
        let acl = node.acl(&attr).await.unwrap().unwrap();
        let may = acl.allowed(&stranger, vfs::acl::Owner::of(&attr));
        assert_eq!(may & (vfs::acl::mask::READ_DATA | vfs::acl::mask::WRITE_DATA), 0);
    }
}

/// Stateids are not secret (RFC 8881 section 9.1.2 binds them to owners, not to users): a caller has only its own user's
/// permissions, as with the kernel's server.
#[tokio::test]
async fn stateid_grants_no_foreign_rights() {
    let harness = Harness::new();
    let mut c = Client::of_minor_2(&harness, b"x", Handle::detached()).await;
    let o = c.open(b"o", b"f", RW).await.unwrap();
    let held = lock(&c, &o, b"a", WRITE_LT, (0, 10)).await.unwrap();
    assert_eq!(c.write(&o.fh, held, b"data").await, Status::Ok);
    let private = |w: &mut Writer| {
        w.value(&Stateid::ANONYMOUS);
        fattr(w, &[attr::MODE], |v| v.u32(0o600));
    };
    assert_eq!(c.on(&o.fh, op::SETATTR, private).await.0, Status::Ok);
    let seek = |stateid: Stateid| {
        move |w: &mut Writer| {
            w.value(&stateid);
            w.u64(0);
            w.u32(0);
        }
    };
    let size = |stateid: Stateid| {
        move |w: &mut Writer| {
            w.value(&stateid);
            fattr(w, &[attr::SIZE], |v| v.u64(1));
        }
    };
    for stateid in [o.stateid, held] {
        c.cred = Cred { uid: 5, gid: 5, ..Cred::root() };
        assert_eq!(c.read(&o.fh, stateid).await, Status::Access);
        assert_eq!(c.write(&o.fh, stateid, b"mine").await, Status::Access);
        assert_eq!(c.on(&o.fh, op::SETATTR, size(stateid)).await.0, Status::Access);
        assert_eq!(
            c.on(&o.fh, op::SEEK, seek(stateid)).await.0,
            Status::Access,
            "where its data is"
        );
        c.cred = Cred::root();
        assert_eq!(c.read(&o.fh, stateid).await, Status::Ok);
        assert_eq!(c.on(&o.fh, op::SEEK, seek(stateid)).await.0, Status::Ok);
    }
    c.cred = Cred { uid: 5, gid: 5, ..Cred::root() };
    assert_eq!(lock(&c, &o, b"b", READ_LT, (20, 10)).await.unwrap_err().0, Status::Access);
    let (status, _) = c.on(&o.fh, op::LOCK, next_lock(WRITE_LT, (20, 10), held)).await;
    assert_eq!(status, Status::Access, "what it may not read it does not keep from others");
}

/// A reload excludes the client's address. Its state blocks other clients, so it must still be able to release it.
#[tokio::test]
async fn excluded_address_can_release_state() {
    let harness = Harness::new();
    harness.with_file(b"f", b"content").await;
    let (handle, _asked) = Handle::played();
    let c = Client::called_by(&harness, b"x", handle).await;
    let d = c.open(b"reader", b"f", R).await.unwrap();
    let o = c.open(b"o", b"g", RW).await.unwrap();
    assert_eq!((d.delegation.0, o.delegation.0), (1, 2), "one to read, one to write");
    let held = lock(&c, &o, b"a", WRITE_LT, (0, 10)).await.unwrap();
    harness.reload("data", |share| share.clients = Some(vec![]));
    assert_eq!(c.read(&o.fh, o.stateid).await, Status::Access);
    assert_eq!(c.write(&o.fh, held, b"data").await, Status::Access);
    assert_eq!(lock(&c, &o, b"b", READ_LT, (20, 10)).await.unwrap_err().0, Status::Access);
    assert_eq!(c.on(&o.fh, op::LOCKU, locku((0, 10), held)).await.0, Status::Ok);
    for opened in [&o, &d] {
        assert_eq!(c.close(opened).await, Status::Ok);
        let returned = give_back(opened.delegation.1.unwrap());
        assert_eq!(c.on(&opened.fh, op::DELEGRETURN, returned).await.0, Status::Ok);
    }
    let everybody = Cidr { addr: [0, 0, 0, 0].into(), bits: 0 };
    harness.reload("data", |share| share.clients = Some(vec![everybody.into()]));
    let other = Client::new(&harness, b"y").await;
    for name in [b"f", b"g"] {
        other.open(b"o", name, (3, 3)).await.expect("nothing is left of it");
    }
}

/// One open owner may act for several users: access checked for one does not apply to the other.
#[tokio::test]
async fn shared_owner_keeps_rights_apart() {
    let harness = Harness::new();
    let mut c = Client::new(&harness, b"x").await;
    // root creates the file, everyone may read it.
    c.open(b"root", b"f", RW).await.unwrap();
    let (other, root) = (Cred { uid: 5, gid: 5, ..Cred::root() }, Cred::root());
    c.cred = other.clone();
    c.open(b"o", b"f", R).await.unwrap();
    c.cred = root.clone();
    let o = c.open(b"o", b"f", RW).await.unwrap();
    c.cred = other.clone();
    assert_eq!(c.write(&o.fh, o.stateid, b"mine").await, Status::Access);
    assert_eq!(c.read(&o.fh, o.stateid).await, Status::Ok, "by its own permission");
    // The two users in reverse order.
    c.cred = root.clone();
    c.open(b"p", b"f", W).await.unwrap();
    c.cred = other;
    let o = c.open(b"p", b"f", R).await.unwrap();
    assert_eq!(c.write(&o.fh, o.stateid, b"mine").await, Status::Access);
    c.cred = root;
    assert_eq!(c.write(&o.fh, o.stateid, b"mine").await, Status::Ok);
}

#[tokio::test]
async fn read_only_shares_open_existing_files() {
    let harness = Harness::new();
    let frozen = harness.nfs.core.namespace.share_named(b"frozen").unwrap();
    let set = vfs::SetAttr { mode: Some(0o666), ..Default::default() };
    let by = vfs::Acting::caller(&harness.cred);
    frozen.backend.root().create(by, b"f", vfs::CreateHow::Guarded, set).await.unwrap();
    let c = Client::of_minor_2(&harness, b"x", Handle::detached()).await;
    let how = |how: u32, name: &'static [u8]| {
        move |w: &mut Writer| {
            open_head(w, 0, 0, b"o", R);
            w.u32(1);
            w.u32(how);
            if how >= 2 {
                w.u64(1);
            }
            if how != 2 {
                fattr(w, &[], |_| {});
            }
            w.u32(0);
            w.opaque(name);
        }
    };
    let status = |r: Results| r.status;
    let frozen = |a: crate::harness::Args| a.root().lookup(b"frozen");
    for (name, size, share, expected) in [
        (&b"f"[..], &[][..], R, Status::Ok),
        (b"f", &[0], R, Status::RoFs),
        (b"f", &[9], R, Status::RoFs),
        (b"f", &[], W, Status::RoFs),
        (b"new", &[], R, Status::RoFs),
    ] {
        let open = unchecked(0, b"o", name, share, size);
        let found = status(c.run(|a| frozen(a).op(op::OPEN, open)).await);
        assert_eq!(found, expected, "{name:?} {size:?} {share:?}");
    }
    for (kind, name, expected) in [
        (1, &b"f"[..], Status::Exist),
        (2, b"f", Status::Exist),
        (3, b"f", Status::Exist),
        (1, b"new", Status::RoFs),
        (2, b"new", Status::RoFs),
        (3, b"new", Status::RoFs),
    ] {
        let found = status(c.run(|a| frozen(a).op(op::OPEN, how(kind, name))).await);
        assert_eq!(found, expected, "{kind} {name:?}");
    }
}
