//! Names: look-up, creation, renaming and removal.

use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, attr, op};
use rdma_transport::xdr::Writer;

use crate::harness::{Args, Harness, fattr};

fn create(c: Args, name: &[u8], kind: impl FnOnce(&mut Writer)) -> Args {
    c.op(op::CREATE, |w| {
        kind(w);
        w.opaque(name);
        fattr(w, &[attr::MODE], |v| v.u32(0o640));
    })
}

#[tokio::test]
async fn invalid_names_are_refused() {
    let harness = Harness::new();
    let long = [b'a'; 300];
    let longer = [b'a'; 5000];
    for (name, status) in [
        (&b""[..], Status::Inval),
        (b".", Status::BadName),
        (b"..", Status::BadName),
        (b"a/b", Status::BadChar),
        (b"a\0b", Status::BadChar),
        (&long, Status::NameTooLong),
        (&longer, Status::NameTooLong),
    ] {
        let mut r = harness.run(|c| c.data().lookup(name)).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::LOOKUP, status).end(status);
        let mut r = harness.run(|c| c.data().mkdir(name)).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, status).end(status);
        let mut r = harness.run(|c| c.data().op(op::REMOVE, |w| w.opaque(name))).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::REMOVE, status).end(status);
    }
}

#[tokio::test]
async fn names_are_bytes() {
    let harness = Harness::new();
    for name in ["Grüße.txt".as_bytes(), b"\xff\xfe", b"a b\n"] {
        let mut r = harness.run(|c| c.data().mkdir(name).data().lookup(name)).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, Status::Ok);
        r.fixed(20);
        assert_eq!(r.bitmap(), [attr::MODE]);
        r.ok(&[op::PUTROOTFH, op::LOOKUP, op::LOOKUP]).end(Status::Ok);
    }
}

#[tokio::test]
async fn lookupp_ends_at_root() {
    let harness = Harness::new();
    let up = |c: Args| c.op(op::LOOKUPP, |_| {});
    let mut r = harness.run(|c| up(up(c.data().mkdir(b"d"))).getfh()).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, Status::Ok);
    r.fixed(20);
    r.bitmap();
    r.ok(&[op::LOOKUPP, op::LOOKUPP]).expect(op::GETFH, Status::Ok);
    assert_eq!(r.opaque(), harness.nfs.core.handles.above(0).as_bytes());
    r.end(Status::Ok);
    let mut r = harness.run(|c| up(c.root())).await;
    r.ok(&[op::PUTROOTFH]).expect(op::LOOKUPP, Status::NoEnt).end(Status::NoEnt);
}

#[tokio::test]
async fn lookup_in_file_reports_type() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"").await;
    let mut r = harness.run(|c| c.putfh(&file).lookup(b"x")).await;
    r.ok(&[op::PUTFH]).expect(op::LOOKUP, Status::NotDir).end(Status::NotDir);
    let link = |w: &mut Writer| {
        w.u32(5);
        w.opaque(b"target");
    };
    let mut r = harness.run(|c| create(c.data(), b"l", link).lookup(b"x")).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, Status::Ok);
    r.fixed(20);
    r.bitmap();
    r.expect(op::LOOKUP, Status::Symlink).end(Status::Symlink);
}

/// RFC 8881 section 15.1.2.9: a client that gets SYMLINK follows the link. libnfs does so for every creation below one.
#[tokio::test]
async fn names_below_symlink_return_symlink() {
    let harness = Harness::new();
    let link = |w: &mut Writer| {
        w.u32(5);
        w.opaque(b"target");
    };
    for below in [op::CREATE, op::REMOVE] {
        let name = [b'a' + u8::try_from(below).unwrap()];
        let mut r = harness
            .run(|c| {
                let c = create(c.data(), &name, link);
                if below == op::CREATE {
                    create(c, b"x", link)
                } else {
                    c.op(op::REMOVE, |w| w.opaque(b"x"))
                }
            })
            .await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, Status::Ok);
        r.fixed(20);
        r.bitmap();
        r.expect(below, Status::Symlink).end(Status::Symlink);
    }
}

#[tokio::test]
async fn create_makes_all_special_types() {
    let harness = Harness::new();
    let device = |w: &mut Writer| {
        w.u32(8);
        w.u32(1);
    };
    for kind in 2..=7u32 {
        let name = [b'a' + u8::try_from(kind).unwrap()];
        let what = |w: &mut Writer| {
            w.u32(kind);
            match kind {
                3 | 4 => device(w),
                5 => w.opaque(b"over/there"),
                _ => {}
            }
        };
        let mut r = harness.run(|c| create(c.data(), &name, what).getattr(&[attr::TYPE])).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, Status::Ok);
        r.fixed(20);
        r.bitmap();
        r.expect(op::GETATTR, Status::Ok);
        r.bitmap();
        assert_eq!((r.u32(), r.u32()), (4, kind));
        r.end(Status::Ok);
    }
    for kind in [0, 1, 8, 9, 10] {
        let mut r = harness.run(|c| create(c.data(), b"x", |w| w.u32(kind))).await;
        let status = Status::BadType;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, status).end(status);
    }
}

#[tokio::test]
async fn symlink_target_is_returned_unchanged() {
    let harness = Harness::new();
    let what = |w: &mut Writer| {
        w.u32(5);
        w.opaque(b"../else where/");
    };
    let mut r = harness.run(|c| create(c.data(), b"l", what).op(op::READLINK, |_| {})).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, Status::Ok);
    r.fixed(20);
    r.bitmap();
    r.expect(op::READLINK, Status::Ok);
    assert_eq!(r.opaque(), b"../else where/");
    assert_eq!(r.payloads, 1, "the transport may move it");
    r.end(Status::Ok);
    let set = |w: &mut Writer| {
        w.value(&Stateid::ANONYMOUS);
        fattr(w, &[attr::MODE, attr::OWNER_GROUP], |w| {
            w.u32(0o700);
            w.opaque(b"5");
        });
    };
    let mut r = harness.run(|c| c.data().lookup(b"l").op(op::SETATTR, set)).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP, op::LOOKUP]).expect(op::SETATTR, Status::Ok);
    assert_eq!(r.bitmap(), [attr::OWNER_GROUP], "a link has no mode");
    r.end(Status::Ok);
    let mut r = harness.run(|c| c.data().op(op::READLINK, |_| {})).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::READLINK, Status::Inval).end(Status::Inval);
}

#[tokio::test]
async fn change_info_is_contiguous() {
    let harness = Harness::new();
    let mut r =
        harness.run(|c| c.data().getattr(&[attr::CHANGE]).mkdir(b"a").data().mkdir(b"b")).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    r.bitmap();
    r.u32();
    let start = r.u64();
    r.expect(op::CREATE, Status::Ok);
    let (_, before, after) = (r.bool(), r.u64(), r.u64());
    r.bitmap();
    assert_eq!(before, start);
    assert_ne!(before, after);
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::CREATE, Status::Ok);
    assert_eq!((r.bool(), r.u64()).1, after);
    assert_ne!(r.u64(), after);
    r.bitmap();
    r.end(Status::Ok);
}

#[tokio::test]
async fn remove_takes_files_and_empty_directories() {
    let harness = Harness::new();
    harness.with_file(b"f", b"").await;
    let remove = |c: Args, name: &'static [u8]| c.op(op::REMOVE, |w| w.opaque(name));
    let mut r = harness.run(|c| remove(c.data().mkdir(b"d").mkdir(b"e").data(), b"d")).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
    for _ in 0..2 {
        r.expect(op::CREATE, Status::Ok).fixed(20);
        r.bitmap();
    }
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::REMOVE, Status::NotEmpty).end(Status::NotEmpty);
    let mut r = harness.run(|c| remove(remove(c.data().lookup(b"d"), b"e").data(), b"d")).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP, op::LOOKUP]).expect(op::REMOVE, Status::Ok).fixed(20);
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::REMOVE, Status::Ok).fixed(20);
    r.end(Status::Ok);
    let mut r = harness.run(|c| remove(remove(c.data(), b"f"), b"f")).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::REMOVE, Status::Ok).fixed(20);
    r.expect(op::REMOVE, Status::NoEnt).end(Status::NoEnt);
}

#[tokio::test]
async fn rename_and_link_stay_in_share() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"x").await;
    let rename = |c: Args| {
        c.op(op::RENAME, |w| {
            w.opaque(b"f");
            w.opaque(b"g");
        })
    };
    let link = |c: Args| c.op(op::LINK, |w| w.opaque(b"h"));
    let mut r = harness.run(|c| rename(c.data().savefh().root().lookup(b"more"))).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP, op::SAVEFH, op::PUTROOTFH, op::LOOKUP]);
    r.expect(op::RENAME, Status::Xdev).end(Status::Xdev);
    let mut r = harness.run(|c| link(c.putfh(&file).savefh().root().lookup(b"more"))).await;
    r.ok(&[op::PUTFH, op::SAVEFH, op::PUTROOTFH, op::LOOKUP]);
    r.expect(op::LINK, Status::Xdev).end(Status::Xdev);

    let mut r = harness.run(|c| rename(c.data().savefh()).data().lookup(b"g").getfh()).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP, op::SAVEFH]).expect(op::RENAME, Status::Ok).fixed(40);
    r.ok(&[op::PUTROOTFH, op::LOOKUP, op::LOOKUP]).expect(op::GETFH, Status::Ok);
    assert_eq!(r.opaque(), file, "a handle survives a rename");
    r.end(Status::Ok);
    let mut r = harness
        .run(|c| link(c.putfh(&file).savefh().data()).lookup(b"h").getattr(&[attr::NUMLINKS]))
        .await;
    r.ok(&[op::PUTFH, op::SAVEFH, op::PUTROOTFH, op::LOOKUP])
        .expect(op::LINK, Status::Ok)
        .fixed(20);
    r.ok(&[op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    r.bitmap();
    assert_eq!((r.u32(), r.u32()), (4, 2));
    r.end(Status::Ok);
    let mut r = harness.run(|c| link(c.data().savefh())).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP, op::SAVEFH]).expect(op::LINK, Status::IsDir);
    r.end(Status::IsDir);
}

#[tokio::test]
async fn secinfo_names_the_flavors_best_first() {
    let harness = Harness::new();
    let ask = |c: Args, name: &'static [u8]| c.op(op::SECINFO, |w| w.opaque(name));
    let mut r = harness.run(|c| ask(c.root(), b"data")).await;
    r.ok(&[op::PUTROOTFH]).expect(op::SECINFO, Status::Ok);
    assert_eq!((r.u32(), r.u32(), r.u32()), (2, 1, 0));
    r.end(Status::Ok);
    let mut r = harness.run(|c| ask(c.root(), b"hidden")).await;
    r.ok(&[op::PUTROOTFH]).expect(op::SECINFO, Status::NoEnt).end(Status::NoEnt);
}
