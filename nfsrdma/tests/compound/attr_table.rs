//! Checks that every supported attribute can be read, set, or both, on every type of object.

use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, attr, op};
use rdma_transport::channel::Handle;
use rdma_transport::xdr::Writer;

use crate::client::{Client, W, open_head, read_open};
use crate::harness::{Args, Harness, fattr};

/// Attributes that can be set but not read.
const WRITE_ONLY: [u32; 6] = [
    attr::TIME_ACCESS_SET,
    attr::TIME_MODIFY_SET,
    attr::MODE_SET_MASKED,
    attr::MODE_UMASK,
    attr::TIME_DELEG_ACCESS,
    attr::TIME_DELEG_MODIFY,
];

/// Attributes that can be set on an existing object.
const SETTABLE: [u32; 10] = [
    attr::SIZE,
    attr::ACL,
    attr::MODE,
    attr::OWNER,
    attr::OWNER_GROUP,
    attr::TIME_ACCESS_SET,
    attr::TIME_CREATE,
    attr::TIME_MODIFY_SET,
    attr::DACL,
    attr::MODE_SET_MASKED,
];

/// The types of CREATE (`nfs_ftype4`), and regular files, which OPEN creates.
const KINDS: [(u32, &str); 6] =
    [(1, "file"), (2, "dir"), (4, "char"), (5, "link"), (6, "sock"), (7, "fifo")];

/// A creation time that no clock returns.
const CREATED: (u64, u32) = (77, 5);

fn value(number: u32, w: &mut Writer) {
    match number {
        attr::SIZE => w.u64(0),
        attr::MODE => w.u32(0o640),
        attr::OWNER | attr::OWNER_GROUP => w.opaque(b"0"),
        attr::TIME_ACCESS_SET | attr::TIME_MODIFY_SET => w.u32(0),
        attr::TIME_CREATE => {
            w.u64(CREATED.0);
            w.u32(CREATED.1);
        }
        attr::MODE_SET_MASKED | attr::MODE_UMASK => {
            w.u32(0o040);
            w.u32(0o060);
        }
        attr::ACL | attr::DACL => {
            if number == attr::DACL {
                w.u32(0);
            }
            w.count(1);
            [0, 0, 1].into_iter().for_each(|n| w.u32(n));
            w.opaque(b"EVERYONE@");
        }
        _ => w.u32(0),
    }
}

/// Creates an object of this type with this attribute.
fn make(args: Args, kind: u32, name: &[u8], numbers: &[u32]) -> Args {
    let attrs = |w: &mut Writer| {
        fattr(w, numbers, |w| numbers.iter().for_each(|number| value(*number, w)));
    };
    if kind == 1 {
        return args.op(op::OPEN, |w| {
            open_head(w, 0, 0, b"o", W);
            w.u32(1);
            w.u32(1);
            attrs(w);
            w.u32(0);
            w.opaque(name);
        });
    }
    args.op(op::CREATE, |w| {
        w.u32(kind);
        match kind {
            4 => [1, 7].into_iter().for_each(|n| w.u32(n)),
            5 => w.opaque(b"target"),
            _ => {}
        }
        w.opaque(name);
        attrs(w);
    })
}

async fn supported(c: &Client<'_>, at: impl FnOnce(Args) -> Args, heads: &[u32]) -> Vec<u32> {
    let mut r = c.run(|a| at(a).getattr(&[attr::SUPPORTED_ATTRS])).await;
    r.ok(heads).expect(op::GETATTR, Status::Ok).bitmap();
    r.u32();
    r.bitmap()
}

#[tokio::test]
async fn supported_attributes_are_read_everywhere() {
    let harness = Harness::new();
    let c = Client::of_minor_2(&harness, b"x", Handle::detached()).await;
    for (kind, name) in KINDS {
        let name = name.as_bytes();
        let r = c.run(|a| make(a.data(), kind, name, &[])).await;
        assert_eq!(r.status, Status::Ok, "{name:?}");
    }
    let within = [op::PUTROOTFH, op::LOOKUP, op::LOOKUP];
    let mut places = vec![(vec![], 1), (vec![&b"data"[..]], 2)];
    places.extend(KINDS.map(|(_, name)| (vec![&b"data"[..], name.as_bytes()], 3)));
    for (path, operations) in places {
        let at = |a: Args| path.iter().fold(a.root(), |a, name| a.lookup(name));
        let heads = &within[..operations];
        let all = supported(&c, at, heads).await;
        let readable: Vec<u32> = all.into_iter().filter(|a| !WRITE_ONLY.contains(a)).collect();
        let mut r = c.run(|a| at(a).getattr(&readable)).await;
        r.ok(heads).expect(op::GETATTR, Status::Ok);
        assert_eq!(r.bitmap(), readable, "{path:?}");
    }
}

#[tokio::test]
async fn supported_attributes_are_set_or_refused() {
    let harness = Harness::new();
    let c = Client::of_minor_2(&harness, b"x", Handle::detached()).await;
    for (kind, name) in KINDS {
        let at = |a: Args| a.data().lookup(name.as_bytes());
        let r = c.run(|a| make(a.data(), kind, name.as_bytes(), &[])).await;
        assert_eq!(r.status, Status::Ok, "{name}");
        let heads = [op::PUTROOTFH, op::LOOKUP, op::LOOKUP];
        let delegated = [attr::TIME_DELEG_ACCESS, attr::TIME_DELEG_MODIFY];
        for number in supported(&c, at, &heads).await {
            if delegated.contains(&number) {
                continue;
            }
            let set = |w: &mut Writer| {
                w.value(&Stateid::ANONYMOUS);
                fattr(w, &[number], |w| value(number, w));
            };
            let mut r = c.run(|a| at(a).op(op::SETATTR, set)).await;
            r.ok(&heads);
            let status = match number {
                attr::SIZE if kind == 2 => Status::IsDir,
                attr::SIZE if kind == 5 => Status::Symlink,
                attr::SIZE if kind != 1 => Status::WrongType,
                _ if SETTABLE.contains(&number) => Status::Ok,
                _ => Status::Inval,
            };
            let found = r.status;
            assert_eq!(found, status, "attribute {number} of a {name}");
            let is_permission = [attr::MODE, attr::MODE_SET_MASKED].contains(&number);
            let is_set = status == Status::Ok && !(kind == 5 && is_permission);
            let shown = r.expect(op::SETATTR, status).bitmap();
            assert_eq!(shown, if is_set { vec![number] } else { vec![] }, "{number} of a {name}");
        }
    }
    let mut r = c
        .run(|a| {
            a.root().op(op::SETATTR, |w| {
                w.value(&Stateid::ANONYMOUS);
                fattr(w, &[attr::TIME_CREATE], |w| value(attr::TIME_CREATE, w));
            })
        })
        .await;
    r.ok(&[op::PUTROOTFH]).expect(op::SETATTR, Status::RoFs).bitmap();
    r.end(Status::RoFs);
}

#[tokio::test]
async fn new_objects_take_settable_attributes() {
    let harness = Harness::new();
    let c = Client::of_minor_2(&harness, b"x", Handle::detached()).await;
    let all = supported(&c, Args::data, &[op::PUTROOTFH, op::LOOKUP]).await;
    for (kind, what) in KINDS {
        for &number in &all {
            let name = format!("{what}-{number}");
            let opcode = if kind == 1 { op::OPEN } else { op::CREATE };
            let mut r = c.run(|a| make(a.data(), kind, name.as_bytes(), &[number])).await;
            r.ok(&[op::PUTROOTFH, op::LOOKUP]);
            let is_settable = SETTABLE.contains(&number) || number == attr::MODE_UMASK;
            let status = if !is_settable || number == attr::SIZE && kind != 1 {
                Status::Inval
            } else {
                Status::Ok
            };
            let found = r.status;
            assert_eq!(found, status, "attribute {number} of a new {what}");
            if status != Status::Ok {
                continue;
            }
            let set = if kind == 1 {
                read_open(&mut r).set
            } else {
                r.expect(opcode, Status::Ok);
                r.bool();
                let _change = (r.u64(), r.u64());
                r.bitmap()
            };
            let permission =
                [attr::MODE, attr::MODE_SET_MASKED, attr::MODE_UMASK, attr::ACL, attr::DACL];
            let is_left_out = kind == 5 && permission.contains(&number);
            let expected = if is_left_out { vec![] } else { vec![number] };
            assert_eq!(set, expected, "attribute {number} of a new {what}");
        }
    }
}

/// Reads a creation time.
async fn created(c: &Client<'_>, name: &str) -> (u64, u32) {
    let at = |a: Args| a.data().lookup(name.as_bytes());
    let mut r = c.run(|a| at(a).getattr(&[attr::TIME_CREATE])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    assert_eq!((r.bitmap(), r.u32()), (vec![attr::TIME_CREATE], 12));
    (r.u64(), r.u32())
}

#[tokio::test]
async fn creation_times_last_with_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    for harness in [Harness::new(), Harness::over_folder(folder.path())] {
        let c = Client::of_minor_2(&harness, b"x", Handle::detached()).await;
        for (kind, name) in KINDS {
            // The host stores the record only for files and folders.
            let keeps = matches!(kind, 1 | 2);
            let r = c.run(|a| make(a.data(), kind, name.as_bytes(), &[attr::TIME_CREATE])).await;
            assert_eq!(r.status, Status::Ok, "{name}");
            let shown = created(&c, name).await;
            assert!(!keeps || shown == CREATED, "{name}: {shown:?}");
            let born = format!("{name}-born");
            let r = c.run(|a| make(a.data(), kind, born.as_bytes(), &[])).await;
            assert_eq!(r.status, Status::Ok, "{born}");
            assert!(created(&c, &born).await.0 > 1_000_000_000, "the host's own");
        }
        // Windows clients see and set the same record.
        let share = harness.nfs.core.namespace.share_named(b"data").unwrap();
        let cred = vfs::Cred::root();
        let (node, attr) = share.backend.root().lookup(&cred, b"file").await.unwrap();
        let kept = node.dos(&attr).await.unwrap().created.unwrap();
        assert_eq!((kept.sec, kept.nsec), (77, 5));
        let later = vfs::Time { sec: 99, nsec: 1 };
        let dos = vfs::Dos { created: Some(later), attributes: Some(2), ..vfs::Dos::default() };
        node.dos_set(dos).await.unwrap();
        assert_eq!(created(&c, "file").await, (99, 1));
        let set = |w: &mut Writer| {
            w.value(&Stateid::ANONYMOUS);
            fattr(w, &[attr::TIME_CREATE], |w| value(attr::TIME_CREATE, w));
        };
        let r = c.run(|a| a.data().lookup(b"file").op(op::SETATTR, set)).await;
        assert_eq!(r.status, Status::Ok);
        assert_eq!(created(&c, "file").await, CREATED);
        let attr = node.getattr().await.unwrap();
        assert_eq!(node.dos(&attr).await.unwrap().attributes, Some(2), "the rest stays");
        // Write permission on the file does not suffice to change its creation time.
        let mut stranger = Client::of_minor_2(&harness, b"y", Handle::detached()).await;
        stranger.cred = vfs::Cred { uid: 7, gid: 7, ..vfs::Cred::root() };
        let r = stranger.run(|a| a.data().lookup(b"file").op(op::SETATTR, set)).await;
        assert_eq!(r.status, Status::Perm);
    }
}

/// macOS creates exclusively and then sets mode, times and creation time, if these are supported.
#[tokio::test]
async fn exclusive_creates_end_with_set_times() {
    let harness = Harness::new();
    let c = Client::of_minor_2(&harness, b"x", Handle::detached()).await;
    let create = |how: u32, name: &'static [u8], attrs: &'static [u32]| {
        move |w: &mut Writer| {
            open_head(w, 0, 0, b"o", W);
            w.u32(1);
            w.u32(how);
            w.u64(0x1234_5678_9abc_def0);
            if how == 3 {
                fattr(w, attrs, |w| attrs.iter().for_each(|number| value(*number, w)));
            }
            w.u32(0);
            w.opaque(name);
        }
    };
    let after = [attr::MODE, attr::TIME_ACCESS_SET, attr::TIME_CREATE, attr::TIME_MODIFY_SET];
    let mut r = c
        .run(|a| {
            a.data().op(op::OPEN, create(2, b"mac", &[])).op(op::SETATTR, |w| {
                w.value(&Stateid::CURRENT);
                fattr(w, &after, |w| after.iter().for_each(|number| value(*number, w)));
            })
        })
        .await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
    read_open(&mut r);
    assert_eq!(r.expect(op::SETATTR, Status::Ok).bitmap(), after);
    r.end(Status::Ok);
    assert_eq!(created(&c, "mac").await, CREATED);
    let mut r = c.run(|a| a.data().lookup(b"mac").getattr(&[attr::MODE])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    assert_eq!((r.bitmap(), r.u32(), r.u32()), (vec![attr::MODE], 4, 0o640));
    let with = [attr::MODE, attr::TIME_CREATE];
    let mut r = c.run(|a| a.data().op(op::OPEN, create(3, b"new", &[33, 50]))).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
    let set = read_open(&mut r).set;
    assert!(with.iter().all(|number| set.contains(number)), "{set:?}");
    assert_eq!(created(&c, "new").await, CREATED);
}

/// Linux' server returns the same (`nfsd4_acl_to_attr`).
#[tokio::test]
async fn files_refuse_flags_of_inheritance() {
    use vfs::acl::{Ace, Acl, Who, flag, mask};

    let harness = Harness::new();
    let c = Client::of_minor_2(&harness, b"x", Handle::detached()).await;
    let flags = [1, 2, 4, 8, 0xb];
    for number in [attr::ACL, attr::DACL] {
        let list = |bits: u32| {
            move |w: &mut Writer| {
                if number == attr::DACL {
                    w.u32(0);
                }
                w.count(1);
                [0, bits, 1].into_iter().for_each(|n| w.u32(n));
                w.opaque(b"OWNER@");
            }
        };
        for bits in flags {
            for (kind, what) in KINDS {
                let name = format!("{what}-{number}-{bits}");
                let status = if matches!(kind, 2 | 5) { Status::Ok } else { Status::AttrNotSupp };
                let attrs = |w: &mut Writer| fattr(w, &[number], list(bits));
                let made = |w: &mut Writer| {
                    if kind == 1 {
                        open_head(w, 0, 0, b"o", W);
                        w.u32(1);
                        w.u32(1);
                        attrs(w);
                        w.u32(0);
                        w.opaque(name.as_bytes());
                        return;
                    }
                    w.u32(kind);
                    match kind {
                        4 => [1, 7].into_iter().for_each(|n| w.u32(n)),
                        5 => w.opaque(b"target"),
                        _ => {}
                    }
                    w.opaque(name.as_bytes());
                    attrs(w);
                };
                let opcode = if kind == 1 { op::OPEN } else { op::CREATE };
                let r = c.run(|a| a.data().op(opcode, made)).await;
                let found = r.status;
                assert_eq!(found, status, "{name}");
            }
            let r = c
                .run(|a| {
                    make(a.data(), 7, b"fifo", &[]).op(op::SETATTR, |w| {
                        w.value(&Stateid::ANONYMOUS);
                        fattr(w, &[number], list(bits));
                    })
                })
                .await;
            assert_eq!(r.status, Status::AttrNotSupp);
            c.run(|a| a.data().op(op::REMOVE, |w| w.opaque(b"fifo"))).await;
        }
    }
    // SMB clients can store such a list. Flags without effect are omitted, so that it can be written back.
    let (_, file) = harness.with_file(b"windows", b"").await;
    let share = harness.nfs.core.namespace.share_named(b"data").unwrap();
    let (node, _) = share.backend.root().lookup(&vfs::Cred::root(), b"windows").await.unwrap();
    let kept = vec![
        Ace::allow(Who::Owner, mask::FILE_ALL, flag::OBJECT_INHERIT | flag::INHERIT_ONLY),
        Ace::allow(Who::Everyone, mask::READ_DATA, flag::OBJECT_INHERIT | flag::NO_PROPAGATE),
    ];
    node.acl_set(&Acl::new(kept), 0o444).await.unwrap();
    let mut r = c.run(|a| a.putfh(&file).getattr(&[attr::ACL])).await;
    r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok).bitmap();
    let shown = r.opaque();
    assert_eq!(shown[..16], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    let set = |w: &mut Writer| {
        w.value(&Stateid::ANONYMOUS);
        fattr(w, &[attr::ACL], |w| w.fixed(&shown));
    };
    assert_eq!(c.run(|a| a.putfh(&file).op(op::SETATTR, set)).await.status, Status::Ok);
}
