//! MOUNT version 3: translates a path to a handle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

mod common;

use common::nfs3::{Client, OK, place, sattr, share};
use common::{MOUNT, call, flat, head, session_from};
use nfsrdma::v3::procedure;
use rdma_transport::channel::Transport;
use rdma_transport::xdr::Writer;
use vfs::namespace::{Cidr, Protocols, Share, Squash};

const NOENT: u32 = 2;
const ACCES: u32 = 13;
const NOTDIR: u32 = 20;
const INVAL: u32 = 22;

#[test]
fn share_and_subfolders_are_mountable() {
    let c = Client::new();
    let root = c.root();
    let dir = c.mkdir(&root, "dir").unwrap();
    let deep = c.mkdir(&dir, "deep").unwrap();
    c.create(&dir, "file", 0o600).unwrap();
    assert_eq!(c.mount("/data/").unwrap(), root);
    assert_eq!(c.mount("//data/./dir/deep/").unwrap(), deep);
    assert_eq!(c.mount("/data/dir/file"), Err(NOTDIR));
    assert_eq!(c.mount("/data/../etc"), Err(INVAL));
    for nothing in ["/", "", "/other", "/data/none"] {
        assert_eq!(c.mount(nothing), Err(NOENT), "{nothing}");
    }
}

#[test]
fn symlinks_are_followed_within_share() {
    let c = Client::new();
    let root = c.root();
    let dir = c.mkdir(&root, "dir").unwrap();
    let deep = c.mkdir(&dir, "deep").unwrap();
    for (at, name, target) in [
        (&root, "near", "dir/deep"),
        (&dir, "up", "../near/."),
        (&dir, "out", "../../etc"),
        (&root, "absolute", "/data/dir"),
        (&root, "circle", "circle"),
    ] {
        let res = c.nfs(procedure::SYMLINK, |w| {
            place(w, at, name);
            sattr(w, None, None);
            w.opaque(target.as_bytes());
        });
        assert_eq!(res.status().0, OK);
    }
    assert_eq!(c.mount("/data/near").unwrap(), deep);
    assert_eq!(c.mount("/data/dir/up").unwrap(), deep);
    assert_eq!(c.mount("/data/dir/up/..").unwrap(), dir);
    assert_eq!(c.mount("/data/dir/out"), Err(INVAL));
    assert_eq!(c.mount("/data/absolute"), Err(NOENT));
    assert_eq!(c.mount("/data/circle"), Err(NOENT));
}

/// Sets the mode of the file of this handle.
fn chmod(c: &Client, fh: &[u8], mode: u32) {
    let res = c.nfs(procedure::SETATTR, |w| {
        w.opaque(fh);
        sattr(w, Some(mode), None);
        w.bool(false);
    });
    assert_eq!(res.status().0, OK);
}

/// A handle gives access by the file's own mode, so MOUNT must check search permission on the folders above.
#[test]
fn path_is_walked_as_caller() {
    let (data, squashed) = (share("data"), share("squashed"));
    let squashed = Share { squash: Squash::Root, backend: data.backend.clone(), ..squashed };
    let mut c = Client::of(vec![data, squashed]);
    let root = c.root();
    let private = c.mkdir(&root, "private").unwrap();
    let sub = c.mkdir(&private, "sub").unwrap();
    let res = c.nfs(procedure::SYMLINK, |w| {
        place(w, &root, "link");
        sattr(w, None, None);
        w.opaque(b"private/sub");
    });
    assert_eq!(res.status().0, OK);
    // The mode of the folder itself only matters for access to it.
    chmod(&c, &sub, 0o700);
    for share in ["data", "squashed"] {
        for (uid, mode) in [(0, 0o700), (1000, 0o700), (0, 0o711), (1000, 0o711)] {
            c.uid = 0;
            chmod(&c, &private, mode);
            c.uid = uid;
            let may = mode == 0o711 || uid == 0 && share == "data";
            for (path, there) in [
                ("private/sub", Ok(())),
                ("private/sub/..", Ok(())),
                ("link", Ok(())),
                ("private/none", Err(NOENT)),
            ] {
                let got = c.mount(&format!("/{share}/{path}")).map(drop);
                let want = if may { there } else { Err(ACCES) };
                assert_eq!(got, want, "{uid} {mode:o} {share}/{path}");
            }
            c.mount(&format!("/{share}/private")).unwrap();
        }
    }
    // Access to the root is decided by the share.
    c.uid = 0;
    chmod(&c, &root, 0o700);
    c.uid = 1000;
    assert_eq!((c.mount("/data").unwrap(), c.mount("/data/private")), (root, Err(ACCES)));
}

/// AUTH_NONE is the anonymous user, whatever the source port.
#[test]
fn anonymous_mount_needs_search_permission() {
    let c = Client::new();
    let root = c.root();
    let private = c.mkdir(&root, "private").unwrap();
    c.mkdir(&private, "sub").unwrap();
    let session = session_from(&c.server, "127.0.0.1:50000", Transport::Tcp);
    for (mode, status) in [(0o700, ACCES), (0o755, OK)] {
        chmod(&c, &private, mode);
        let mut w = Writer::new();
        [7, 0, 2, MOUNT, 3, 1, 0, 0, 0, 0].into_iter().for_each(|v| w.u32(v));
        w.opaque(b"/data/private/sub");
        let reply = flat(call(&session, flat(w.into_reply()), vec![]).unwrap());
        assert_eq!(reply[24..28], status.to_be_bytes(), "{mode:o}");
    }
}

#[test]
fn mount_reply_lists_flavors() {
    let c = Client::new();
    let res = c.call(MOUNT, 1, |w| w.opaque(b"/data"));
    let (_, mut r) = res.status();
    r.opaque(64).unwrap();
    assert_eq!((r.u32(), r.u32(), r.u32()), (Ok(2), Ok(1), Ok(0)));
    assert!(r.is_at_end());
}

#[test]
fn smb_share_is_not_mountable() {
    let smb = Share { protocols: Protocols::Smb, ..share("smb") };
    let c = Client::of(vec![smb, share("data")]);
    assert_eq!(c.mount("/smb"), Err(NOENT));
    let res = c.call(MOUNT, 5, |_| {});
    let mut r = res.reader();
    assert_eq!((r.bool(), r.opaque(99), r.bool()), (Ok(true), Ok(&b"/data"[..]), Ok(false)));
    assert_eq!(r.bool(), Ok(false));
}

/// A client refused by a share has not violated the protocol.
#[test]
fn refused_mount_is_no_violation() {
    let c = Client::of(vec![Share { clients: Some(vec![]), ..share("closed") }]);
    assert_eq!(c.mount("/closed"), Err(13));
    let of = |counts: Vec<(&str, u64)>| counts.iter().any(|(rule, _)| *rule == "share-clients");
    assert!(of(rdma_transport::refused::counts()));
    assert!(!of(rdma_transport::count::broken_rules()));
}

#[test]
fn mounts_are_listed_until_unmounted() {
    let c = Client::of(vec![share("data"), share("more")]);
    let dump = || {
        let res = c.call(MOUNT, 2, |_| {});
        let mut r = res.reader();
        let mut list = Vec::new();
        while r.bool().unwrap() {
            let host = String::from_utf8(r.opaque(255).unwrap().to_vec()).unwrap();
            let path = String::from_utf8(r.opaque(1024).unwrap().to_vec()).unwrap();
            list.push((host, path));
        }
        assert!(r.is_at_end());
        list
    };
    let at = |path: &str| ("127.0.0.1".to_owned(), path.to_owned());
    c.root();
    c.root();
    c.mount("/more").unwrap();
    assert_eq!(dump(), [at("/data"), at("/more")]);
    c.call(MOUNT, 3, |w| w.opaque(b"/data"));
    assert_eq!(dump(), [at("/more")]);
    c.call(MOUNT, 4, |_| {});
    assert_eq!(dump(), []);
}

/// A client that may not mount a share, or does not know its name, does not see other clients' mounts of it.
#[test]
fn hidden_mounts_are_not_listed() {
    let mut hidden = share("hidden");
    hidden.rules.hidden = true;
    let of = |addr: [u8; 4]| Some(vec![Cidr { addr: addr.into(), bits: 32 }.into()]);
    let theirs = Share { clients: of([10, 0, 0, 9]), ..share("theirs") };
    let mine = Share { clients: of([127, 0, 0, 1]), ..share("mine") };
    let c = Client::of(vec![hidden, theirs, mine]);
    let call_of = |peer: &str, number: u32, path: &str| {
        let mut w = head(7, MOUNT, 3, number, 0);
        if number == 1 {
            w.opaque(path.as_bytes());
        }
        let session = session_from(&c.server, peer, Transport::Tcp);
        flat(call(&session, flat(w.into_reply()), vec![]).unwrap())[24..].to_vec()
    };
    let (me, they) = ("127.0.0.1:700", "10.0.0.9:700");
    for (peer, path) in [(me, "/hidden"), (me, "/mine"), (they, "/theirs")] {
        assert_eq!(call_of(peer, 1, path)[..4], [0; 4], "{path}");
    }
    let told = |peer| {
        let reply = call_of(peer, 2, "");
        let names = ["hidden", "mine", "theirs"];
        names.into_iter().filter(|n| reply.windows(n.len()).any(|w| w == n.as_bytes())).collect()
    };
    let (to_me, to_them): (Vec<&str>, Vec<&str>) = (told(me), told(they));
    assert_eq!((to_me, to_them), (vec!["mine"], vec!["theirs"]));
}

#[test]
fn exports_are_listed_to_their_clients() {
    let range = |addr: [u8; 4]| Cidr { addr: addr.into(), bits: 8 }.into();
    let more =
        Share { clients: Some(vec![range([10, 0, 0, 0]), range([127, 0, 0, 0])]), ..share("more") };
    let theirs = Share { clients: Some(vec![range([10, 0, 0, 0])]), ..share("theirs") };
    let c = Client::of(vec![share("data"), more, theirs]);
    let res = c.call(MOUNT, 5, |_| {});
    let mut r = res.reader();
    assert_eq!((r.bool(), r.opaque(99), r.bool()), (Ok(true), Ok(&b"/data"[..]), Ok(false)));
    assert_eq!((r.bool(), r.opaque(99)), (Ok(true), Ok(&b"/more"[..])));
    for range in ["10.0.0.0/8", "127.0.0.0/8"] {
        assert_eq!((r.bool(), r.opaque(99)), (Ok(true), Ok(range.as_bytes())));
    }
    assert_eq!((r.bool(), r.bool()), (Ok(false), Ok(false)));
    assert!(r.is_at_end());
    let session = session_from(&c.server, "10.0.0.9:700", Transport::Tcp);
    let asked = head(7, MOUNT, 3, 5, 0).into_reply();
    let told = flat(call(&session, flat(asked), vec![]).unwrap());
    assert!(told.windows(6).any(|w| w == b"theirs"), "they are shown what is theirs");
}

#[test]
fn share_is_mounted_by_path() {
    let mut data = share("data");
    data.rules.export = Some("srv/nfs/public".into());
    let c = Client::of(vec![share("srv-2"), data]);
    let root = c.mount("/srv/nfs/public").unwrap();
    let dir = c.mkdir(&root, "dir").unwrap();
    assert_eq!(c.mount("/srv//nfs/./public/dir/").unwrap(), dir);
    assert_eq!(c.mount("/srv/nfs/public/../x"), Err(INVAL));
    for nothing in ["/data", "/srv", "/srv/nfs", "/srv/nfs/public2", "/public", "/nfs/public"] {
        assert_eq!(c.mount(nothing), Err(NOENT), "{nothing}");
    }
    let res = c.call(MOUNT, 5, |_| {});
    let mut r = res.reader();
    let mut paths = Vec::new();
    while r.bool().unwrap() {
        paths.push(String::from_utf8(r.opaque(99).unwrap().to_vec()).unwrap());
        assert_eq!(r.bool(), Ok(false));
    }
    assert_eq!(paths, ["/srv-2", "/srv/nfs/public"]);
    let rows = rdma_transport::refused::list();
    assert!(rows.iter().any(|row| row.refused.share == "srv/nfs/public2"), "{rows:?}");
}

#[test]
fn hidden_share_is_mounted_by_name() {
    let mut more = share("more");
    more.rules.hidden = true;
    let c = Client::of(vec![share("data"), more]);
    let res = c.call(MOUNT, 5, |_| {});
    let mut r = res.reader();
    assert_eq!((r.bool(), r.opaque(99), r.bool()), (Ok(true), Ok(&b"/data"[..]), Ok(false)));
    assert_eq!(r.bool(), Ok(false));
    assert!(r.is_at_end());
    c.mount("/more").unwrap();
}

#[test]
fn mount_list_drops_oldest() {
    let c = Client::new();
    let root = c.root();
    for i in 0..nfsrdma::limits::MOUNTS_OF_ADDRESS_MAX + 10 {
        c.mkdir(&root, &format!("d{i}")).unwrap();
        c.mount(&format!("/data/d{i}")).unwrap();
    }
    let res = c.call(MOUNT, 2, |_| {});
    let mut r = res.reader();
    let mut n = 0;
    while r.bool().unwrap() {
        r.opaque(255).unwrap();
        let path = r.opaque(1024).unwrap();
        assert!(n > 0 || path == b"/data/d10");
        n += 1;
    }
    assert_eq!(n, nfsrdma::limits::MOUNTS_OF_ADDRESS_MAX);
}

#[test]
fn referral_is_not_mountable() {
    let refer = vfs::refer::Referral {
        server: vfs::refer::Server::Name("gw2.example.org".into()),
        nfs_path: "archive".into(),
        smb_path: "archive".into(),
        rdma: false,
        namespace: false,
    };
    let mut archive = share("archive");
    archive.rules.refers_to = [refer].into();
    let c = Client::of(vec![share("data"), archive]);
    assert_eq!(c.mount("/archive"), Err(ACCES));
    assert_eq!(c.mount("/archive/below"), Err(ACCES));
    let rows = rdma_transport::refused::list();
    let row = rows.iter().find(|row| row.refused.rule == "share-elsewhere").expect("it is told");
    assert!(row.refused.share == "archive" && row.refused.remedy.contains("`refer`"), "{row:?}");
    assert!(c.mount("/data").is_ok());
    let told = c.call(MOUNT, nfsrdma::mount::procedure::EXPORT, |_| {});
    let has = |name: &[u8]| told.0.windows(name.len()).any(|w| w == name);
    assert!(has(b"/data") && !has(b"/archive"));
}
