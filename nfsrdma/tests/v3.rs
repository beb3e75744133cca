//! NFS version 3, procedure by procedure, with whole calls on a memory volume.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

mod common;

use std::collections::BTreeMap;

use common::nfs3::{Client, OK, Results, fattr, made, place, post, sattr, share, wcc};
use common::{NFS, call, flat, head, session_from, words};
use iobuf::Buf;
use nfsrdma::v3::procedure as p;
use rdma_transport::channel::{ReadChunkData, Transport};
use rdma_transport::xdr::Writer;
use vfs::namespace::{Cidr, Squash};

const NOENT: u32 = 2;
const ACCES: u32 = 13;
const EXIST: u32 = 17;
const XDEV: u32 = 18;
const NOTDIR: u32 = 20;
const ISDIR: u32 = 21;
const INVAL: u32 = 22;
const ROFS: u32 = 30;
const NAMETOOLONG: u32 = 63;
const NOTEMPTY: u32 = 66;
const STALE: u32 = 70;
const NOT_SYNC: u32 = 10002;
const TOOSMALL: u32 = 10005;
const JUKEBOX: u32 = 10008;
const BADTYPE: u32 = 10007;

/// The status of a reply whose results are one `wcc_data`.
fn wcc_only(res: &Results) -> u32 {
    let (status, mut r) = res.status();
    wcc(&mut r);
    assert!(r.is_at_end());
    status
}

#[test]
fn created_file_is_written_and_read() {
    let c = Client::new();
    let root = c.root();
    assert_eq!(c.getattr(&root).unwrap().ftype, 2);
    let fh = c.create(&root, "file", 0o640).unwrap();
    assert_eq!(c.lookup(&root, "file").unwrap(), fh);
    let attr = c.getattr(&fh).unwrap();
    assert_eq!((attr.ftype, attr.mode, attr.nlink, attr.size), (1, 0o640, 1, 0));

    let data: Vec<u8> = (0..10_001).map(|i| (i % 251) as u8).collect();
    let res = c.write(&fh, 5, &data, 2);
    let (status, mut r) = res.status();
    assert_eq!(status, OK);
    let (_, after) = wcc(&mut r);
    assert_eq!(after.unwrap().size, 10_006);
    assert_eq!(r.u32(), Ok(10_001));
    assert_eq!(r.u32(), Ok(2));
    assert_eq!(r.u64(), Ok(0x0102_0304_0506_0708));
    assert!(r.is_at_end());

    let (back, eof) = c.read(&fh, 0, 20_000).unwrap();
    assert!(eof && back[..5] == [0; 5] && back[5..] == data);
    let (back, eof) = c.read(&fh, 6, 10).unwrap();
    assert!(!eof && back == data[1..11]);
    assert_eq!(c.read(&fh, 10_006, 10).unwrap(), (vec![], true));
    assert_eq!(c.read(&fh, u64::MAX, 10).unwrap(), (vec![], true));
    assert_eq!(c.read(&root, 0, 10), Err(ISDIR));
}

#[test]
fn chunk_data_is_written_without_copy() {
    let c = Client::new();
    let fh = c.create(&c.root(), "file", 0o600).unwrap();
    let mut w = head(77, NFS, 3, p::WRITE, 0);
    w.opaque(&fh);
    w.u64(0);
    w.u32(7);
    w.u32(0);
    w.u32(7);
    let read_chunks = ReadChunkData {
        at: w.len(),
        data: vec![Buf::from(b"abc".to_vec()), Buf::from(b"defg".to_vec())],
    };
    let reply = flat(call(&c.session, w.into_reply().head, vec![read_chunks]).unwrap());
    assert_eq!(reply[24..28], [0; 4]);
    assert_eq!(c.read(&fh, 0, 100).unwrap(), (b"abcdefg".to_vec(), true));
}

/// The transport had no memory for the data: the file is unchanged, and the client must retry.
#[test]
fn missing_data_is_answered_jukebox() {
    let c = Client::new();
    let (root, fh) = (c.root(), c.create(&c.root(), "file", 0o600).unwrap());
    let write = |w: &mut Writer| {
        w.opaque(&fh);
        w.u64(0);
        [7, 0, 7].into_iter().for_each(|v| w.u32(v));
    };
    let symlink = |w: &mut Writer| {
        w.opaque(&root);
        w.opaque(b"link");
        sattr(w, None, None);
        w.u32(7);
    };
    for number in [p::WRITE, p::SYMLINK] {
        let mut w = head(77, NFS, 3, number, 0);
        if number == p::WRITE {
            write(&mut w)
        } else {
            symlink(&mut w)
        }
        let missing = ReadChunkData { at: w.len(), data: Vec::new() };
        assert!(missing.is_missing());
        let reply = flat(call(&c.session, w.into_reply().head, vec![missing]).unwrap());
        // The status, with no attributes before or after.
        assert_eq!(words(&reply[24..]), [JUKEBOX, 0, 0]);
    }
    assert_eq!(c.read(&fh, 0, 100).unwrap(), (vec![], true));
    assert_eq!(c.lookup(&root, "link"), Err(NOENT));
}

#[test]
fn inconsistent_write_is_refused() {
    let c = Client::new();
    let root = c.root();
    let fh = c.create(&root, "file", 0o600).unwrap();
    let res = c.nfs(p::WRITE, |w| {
        w.opaque(&fh);
        w.u64(0);
        w.u32(5);
        w.u32(0);
        w.opaque(b"four");
    });
    assert_eq!(wcc_only(&res), INVAL);
    let status = wcc_only(&c.write(&root, 0, b"x", 0));
    assert!(status == ISDIR || status == INVAL);
}

/// RFC 1813 section 3.3.7: the server may write less than requested, and returns the count.
#[test]
fn long_write_is_cut_off() {
    let c = Client::new();
    let fh = c.create(&c.root(), "file", 0o600).unwrap();
    let data: Vec<u8> = (0..(1 << 20) + 5).map(|i| (i % 251) as u8).collect();
    let res = c.write(&fh, 0, &data, 2);
    let (status, mut r) = res.status();
    let (_, after) = wcc(&mut r);
    assert_eq!((status, after.unwrap().size, r.u32()), (OK, 1 << 20, Ok(1 << 20)));
    assert!(c.read(&fh, 0, 1 << 20).unwrap() == (data[..1 << 20].to_vec(), true));
}

#[test]
fn attributes_are_set_guarded_and_seen() {
    let c = Client::new();
    let fh = c.create(&c.root(), "file", 0o600).unwrap();
    let set = |guard: Option<(u32, u32)>, size| {
        let res = c.nfs(p::SETATTR, |w| {
            w.opaque(&fh);
            sattr(w, Some(0o4711), Some(size));
            w.bool(guard.is_some());
            guard.into_iter().for_each(|(s, n)| [s, n].into_iter().for_each(|v| w.u32(v)));
        });
        wcc_only(&res)
    };
    assert_eq!(set(None, 100), OK);
    let attr = c.getattr(&fh).unwrap();
    assert_eq!((attr.mode, attr.size), (0o4711, 100));
    assert_eq!(set(Some((1, 1)), 200), NOT_SYNC);
    assert_eq!(c.getattr(&fh).unwrap().size, 100);
    assert_eq!(set(Some(attr.ctime), 50), OK);
    assert_eq!(c.getattr(&fh).unwrap().size, 50);
}

#[test]
fn access_returns_caller_rights() {
    let mut c = Client::new();
    let fh = c.create(&c.root(), "file", 0o604).unwrap();
    let access = |c: &Client, fh: &[u8], wanted: u32| {
        let res = c.nfs(p::ACCESS, |w| {
            w.opaque(fh);
            w.u32(wanted);
        });
        let (status, mut r) = res.status();
        assert_eq!(status, OK);
        assert!(post(&mut r).is_some());
        r.u32().unwrap()
    };
    c.uid = 1000;
    assert_eq!(access(&c, &fh, 0x3f), 1);
    assert_eq!(access(&c, &fh, 0xffff_ffc0), 0);
    assert_eq!(c.read(&fh, 0, 1).unwrap(), (vec![], true));
    assert_eq!(wcc_only(&c.write(&fh, 0, b"x", 0)), ACCES);
}

#[test]
fn owner_may_use_read_only_file() {
    let mut c = Client::new();
    let root = c.root();
    let res = c.nfs(p::SETATTR, |w| {
        w.opaque(&root);
        sattr(w, Some(0o777), None);
        w.bool(false);
    });
    assert_eq!(wcc_only(&res), OK);
    c.uid = 1000;
    let fh = c.create(&root, "mine", 0).unwrap();
    assert_eq!(c.write(&fh, 0, b"data", 0).status().0, OK);
    assert_eq!(c.read(&fh, 0, 10).unwrap().0, b"data");
    let res = c.nfs(p::SETATTR, |w| {
        w.opaque(&fh);
        sattr(w, None, Some(1));
        w.bool(false);
    });
    assert_eq!(wcc_only(&res), OK);
    c.uid = 1001;
    assert_eq!(c.read(&fh, 0, 10), Err(ACCES));
    assert_eq!(c.write(&fh, 0, b"data", 0).status().0, ACCES);
}

#[test]
fn create_knows_three_ways() {
    let c = Client::new();
    let root = c.root();
    let create = |how: &dyn Fn(&mut Writer)| {
        made(&c.nfs(p::CREATE, |w| {
            place(w, &root, "file");
            how(w);
        }))
    };
    let exclusive = |verifier: u64| {
        create(&move |w: &mut Writer| {
            w.u32(2);
            w.u64(verifier);
        })
    };
    let (fh, _) = exclusive(7).unwrap();
    assert_eq!(exclusive(7).unwrap().0, fh, "the same verifier finds the same file");
    assert_eq!(exclusive(8).unwrap_err(), EXIST);
    let guarded = |w: &mut Writer| {
        w.u32(1);
        sattr(w, None, None);
    };
    assert_eq!(create(&guarded).unwrap_err(), EXIST);
    c.write(&fh, 0, b"content", 0);
    let unchecked = |size| {
        create(&move |w: &mut Writer| {
            w.u32(0);
            sattr(w, None, size);
        })
    };
    let (same, attr) = unchecked(None).unwrap();
    assert_eq!((same, attr.size), (fh.clone(), 7));
    assert_eq!(unchecked(Some(0)).unwrap().1.size, 0);
}

#[test]
fn names_are_created_renamed_and_removed() {
    let c = Client::new();
    let root = c.root();
    let dir = c.mkdir(&root, "dir").unwrap();
    assert_eq!(c.mkdir(&root, "dir"), Err(EXIST));
    let fh = c.create(&dir, "a", 0o600).unwrap();
    assert_eq!(c.create(&fh, "b", 0o600), Err(NOTDIR));
    assert_eq!(c.lookup(&dir, "..").unwrap(), root);
    assert_eq!(c.lookup(&root, "..").unwrap(), root);
    assert_eq!(c.lookup(&dir, ".").unwrap(), dir);
    for long in [300, 5000, 60_000, 70_000, 1 << 20] {
        assert_eq!(c.lookup(&dir, &"n".repeat(long)), Err(NAMETOOLONG));
    }

    let rename = |from: &[u8], a: &str, to: &[u8], b: &str| {
        let res = c.nfs(p::RENAME, |w| {
            place(w, from, a);
            place(w, to, b);
        });
        let (status, mut r) = res.status();
        wcc(&mut r);
        wcc(&mut r);
        assert!(r.is_at_end());
        status
    };
    assert_eq!(rename(&dir, "a", &root, "b"), OK);
    assert_eq!(c.lookup(&root, "b").unwrap(), fh);
    assert_eq!(rename(&dir, "a", &root, "c"), NOENT);

    let res = c.nfs(p::LINK, |w| {
        w.opaque(&fh);
        place(w, &dir, "second");
    });
    let (status, mut r) = res.status();
    assert_eq!((status, post(&mut r).unwrap().nlink), (OK, 2));
    wcc(&mut r);
    assert!(r.is_at_end());

    let remove =
        |procedure, dir: &[u8], name: &str| wcc_only(&c.nfs(procedure, |w| place(w, dir, name)));
    assert_eq!(remove(p::RMDIR, &root, "dir"), NOTEMPTY);
    assert_eq!(remove(p::RMDIR, &root, "."), INVAL);
    assert_eq!(remove(p::RMDIR, &root, ".."), EXIST);
    assert_eq!(remove(p::RMDIR, &root, "b"), NOTDIR);
    assert_eq!(remove(p::REMOVE, &root, "dir"), ISDIR);
    assert_eq!(remove(p::REMOVE, &dir, "second"), OK);
    assert_eq!(remove(p::REMOVE, &dir, "second"), NOENT);
    assert_eq!(remove(p::RMDIR, &root, "dir"), OK);
    assert_eq!(c.getattr(&dir), Err(STALE));
}

#[test]
fn links_and_special_files_are_made() {
    let c = Client::new();
    let root = c.root();
    let link = |name: &str, target: &[u8]| {
        made(&c.nfs(p::SYMLINK, |w| {
            place(w, &root, name);
            sattr(w, None, None);
            w.opaque(target);
        }))
    };
    let (fh, attr) = link("link", b"some/where").unwrap();
    assert_eq!(attr.ftype, 5);
    for long in [4096, 5000, 70_000] {
        assert_eq!(link("long", &vec![b'a'; long]), Err(NAMETOOLONG));
    }
    for other in [c.lookup(&fh, "x"), c.lookup(&fh, "."), c.mkdir(&fh, "d")] {
        assert_eq!(other, Err(NOTDIR), "a link is no directory, wherever it leads");
    }
    for plus in [false, true] {
        assert_eq!(listing(&c, &fh, 0, 4096, plus), Err(NOTDIR));
    }
    let cut = c.nfs(p::SETATTR, |w| {
        w.opaque(&fh);
        sattr(w, None, Some(0));
        w.bool(false);
    });
    assert_eq!(wcc_only(&cut), INVAL, "and has no data");
    let ranges = |number| {
        c.nfs(number, |w| {
            w.opaque(&fh);
            w.u64(0);
            w.u32(1);
        })
    };
    assert_eq!(ranges(p::READ).status().0, INVAL);
    assert_eq!(wcc_only(&ranges(p::COMMIT)), INVAL);
    let res = c.nfs(p::READLINK, |w| w.opaque(&fh));
    let (status, mut r) = res.status();
    assert!(status == OK && post(&mut r).is_some());
    assert_eq!(r.opaque(100), Ok(&b"some/where"[..]));
    let res = c.nfs(p::READLINK, |w| w.opaque(&root));
    assert_eq!(res.status().0, INVAL);

    let mknod = |name: &str, ftype: u32, device: Option<(u32, u32)>| {
        made(&c.nfs(p::MKNOD, |w| {
            place(w, &root, name);
            w.u32(ftype);
            if ftype > 2 {
                sattr(w, Some(0o600), None);
            }
            device.into_iter().for_each(|(a, b)| [a, b].into_iter().for_each(|v| w.u32(v)));
        }))
    };
    assert_eq!(mknod("fifo", 7, None).unwrap().1.ftype, 7);
    assert_eq!(mknod("socket", 6, None).unwrap().1.ftype, 6);
    let (_, attr) = mknod("device", 4, Some((1, 3))).unwrap();
    assert_eq!((attr.ftype, attr.rdev), (4, (1, 3)));
    assert_eq!(mknod("file", 1, None).unwrap_err(), BADTYPE);
}

/// One READDIR or READDIRPLUS; returns names with cookies, and eof.
fn listing(
    c: &Client,
    dir: &[u8],
    cookie: u64,
    room: u32,
    plus: bool,
) -> Result<(Vec<(String, u64)>, bool), u32> {
    let procedure = if plus { p::READDIRPLUS } else { p::READDIR };
    let res = c.nfs(procedure, |w| {
        w.opaque(dir);
        w.u64(cookie);
        w.u64(0);
        w.u32(room);
        if plus {
            w.u32(room);
        }
    });
    assert!(res.0.len() <= room as usize + 4, "{} bytes for {room}", res.0.len());
    let (status, mut r) = res.status();
    assert!(post(&mut r).is_some());
    if status != OK {
        assert!(r.is_at_end());
        return Err(status);
    }
    assert_eq!(r.u64(), Ok(0));
    let mut names = Vec::new();
    while r.bool().unwrap() {
        let fileid = r.u64().unwrap();
        let name = String::from_utf8(r.opaque(255).unwrap().to_vec()).unwrap();
        names.push((name, r.u64().unwrap()));
        if plus {
            assert!(r.bool().unwrap());
            assert_eq!(fattr(&mut r).fileid, fileid);
            assert!(r.bool().unwrap());
            assert_eq!(c.getattr(r.opaque(64).unwrap()).unwrap().fileid, fileid);
        }
    }
    let eof = r.bool().unwrap();
    assert!(r.is_at_end());
    Ok((names, eof))
}

#[test]
fn listing_is_complete_for_any_size() {
    let c = Client::new();
    let root = c.root();
    let dir = c.mkdir(&root, "dir").unwrap();
    for i in 0..700 {
        c.create(&dir, &format!("file{i:04}"), 0o600).unwrap();
    }
    for (plus, room) in [(false, 200), (false, 4096), (false, 1 << 20), (true, 512), (true, 65536)]
    {
        let mut seen = BTreeMap::new();
        let mut cookie = 0;
        loop {
            let (names, eof) = listing(&c, &dir, cookie, room, plus).unwrap();
            for (name, at) in names {
                assert!(seen.insert(name, at).is_none());
                cookie = at;
            }
            if eof {
                break;
            }
        }
        assert_eq!(seen.len(), 702, "plus {plus}, {room} bytes");
        assert_eq!((seen["."], seen[".."]), (1, 2));
    }
    assert_eq!(listing(&c, &dir, 0, 100, false), Err(TOOSMALL));
    assert_eq!(listing(&c, &dir, 0, 150, true), Err(TOOSMALL));
}

#[test]
fn listing_survives_changes() {
    let c = Client::new();
    let root = c.root();
    (0..100).for_each(|i| {
        c.create(&root, &format!("stay{i}"), 0o600).unwrap();
        c.create(&root, &format!("go{i}"), 0o600).unwrap();
    });
    let mut seen = Vec::new();
    let mut cookie = 0;
    let mut round = 0;
    loop {
        let (names, eof) = listing(&c, &root, cookie, 400, false).unwrap();
        for (name, at) in names {
            cookie = at;
            seen.push(name);
        }
        c.nfs(p::REMOVE, |w| place(w, &root, &format!("go{round}")));
        c.create(&root, &format!("new{round}"), 0o600).unwrap();
        round += 1;
        if eof {
            break;
        }
    }
    for i in 0..100 {
        let n = seen.iter().filter(|s| **s == format!("stay{i}")).count();
        assert_eq!(n, 1, "stay{i}");
    }
}

#[test]
fn foreign_cookie_verifier_is_accepted() {
    let c = Client::new();
    let root = c.root();
    let fh = c.create(&root, "file", 0o600).unwrap();
    for verifier in [0, 99, u64::MAX] {
        let res = c.nfs(p::READDIR, |w| {
            w.opaque(&root);
            w.u64(1);
            w.u64(verifier);
            w.u32(4096);
        });
        assert_eq!(res.status().0, OK);
    }
    assert_eq!(listing(&c, &fh, 0, 4096, false), Err(NOTDIR));
    assert_eq!(listing(&c, &fh, 0, 4096, true), Err(NOTDIR));
}

#[test]
fn volume_attributes_are_reported() {
    let c = Client::new();
    let root = c.root();
    let res = c.nfs(p::FSINFO, |w| w.opaque(&root));
    let (status, mut r) = res.status();
    assert!(status == OK && post(&mut r).is_some());
    let mib = Ok(1 << 20);
    assert_eq!((r.u32(), r.u32()), (mib, mib));
    r.u32().unwrap();
    assert_eq!((r.u32(), r.u32()), (mib, mib));
    r.u32().unwrap();
    assert!(r.u32().unwrap() >= 4096);
    assert!(r.u64().unwrap() > 1 << 40);
    assert_eq!((r.u32(), r.u32()), (Ok(0), Ok(1)));
    assert_eq!(r.u32(), Ok(0x1b));
    assert!(r.is_at_end());

    let res = c.nfs(p::FSSTAT, |w| w.opaque(&root));
    let (status, mut r) = res.status();
    assert!(status == OK && post(&mut r).is_some());
    let figures: Vec<u64> = (0..6).map(|_| r.u64().unwrap()).collect();
    assert!(figures[0] >= figures[1] && figures[1] >= figures[2]);
    assert!(r.u32().is_ok() && r.is_at_end());

    let res = c.nfs(p::PATHCONF, |w| w.opaque(&root));
    let (status, mut r) = res.status();
    assert!(status == OK && post(&mut r).is_some());
    assert!(r.u32().unwrap() > 1);
    assert_eq!(r.u32(), Ok(255));
    let flags: Vec<bool> = (0..4).map(|_| r.bool().unwrap()).collect();
    assert_eq!(flags, [true, true, false, true]);
    assert!(r.is_at_end());
}

#[test]
fn commit_returns_run_verifier() {
    let c = Client::new();
    let fh = c.create(&c.root(), "file", 0o600).unwrap();
    let commit = || {
        let res = c.nfs(p::COMMIT, |w| {
            w.opaque(&fh);
            w.u64(0);
            w.u32(0);
        });
        let (status, mut r) = res.status();
        assert_eq!(status, OK);
        assert!(wcc(&mut r).1.is_some());
        r.u64().unwrap()
    };
    let first = commit();
    assert_eq!(first, 0x0102_0304_0506_0708);
    assert_eq!(commit(), first);
}

#[test]
fn repeated_call_is_not_reexecuted() {
    let c = Client::new();
    let root = c.root();
    let remove = |w: &mut Writer| place(w, &root, "file");
    c.create(&root, "file", 0o600).unwrap();
    let first = c.repeat(1000, NFS, p::REMOVE, remove).unwrap();
    assert_eq!(wcc_only(&first), OK);
    let again = c.repeat(1000, NFS, p::REMOVE, remove).unwrap();
    assert_eq!(first.0, again.0);
    assert_eq!(wcc_only(&c.repeat(1001, NFS, p::REMOVE, remove).unwrap()), NOENT);
    // The same xid for a different call is a new call.
    let other = c.repeat(1000, NFS, p::REMOVE, |w| place(w, &root, "else")).unwrap();
    assert_eq!(wcc_only(&other), NOENT);
}

#[test]
fn rdma_repetition_ignores_port() {
    let c = Client::new();
    let root = c.root();
    c.mkdir(&root, "dir").unwrap();
    let rmdir = |transport, peer: &str| {
        let session = session_from(&c.server, peer, transport);
        let mut w = head(5000, NFS, 3, p::RMDIR, 0);
        place(&mut w, &root, "dir");
        let reply = flat(call(&session, w.into_reply().head, vec![]).unwrap());
        u32::from_be_bytes(reply[24..28].try_into().unwrap())
    };
    let rdma = Transport::Rdma("loopback");
    assert_eq!(rmdir(rdma, "127.0.0.1:1111"), OK);
    assert_eq!(rmdir(rdma, "127.0.0.1:2222"), OK);
    assert_eq!(rmdir(Transport::Tcp, "127.0.0.1:711"), NOENT);
}

#[test]
fn read_only_share_refuses_changes() {
    let mut data = share("data");
    data.read_only = true;
    let c = Client::of(vec![data]);
    let root = c.root();
    assert_eq!(c.create(&root, "file", 0o600), Err(ROFS));
    assert_eq!(c.mkdir(&root, "dir"), Err(ROFS));
    let named = |procedure| wcc_only(&c.nfs(procedure, |w| place(w, &root, "x")));
    assert_eq!((named(p::REMOVE), named(p::RMDIR)), (ROFS, ROFS));
    let res = c.nfs(p::ACCESS, |w| {
        w.opaque(&root);
        w.u32(0x3f);
    });
    let (_, mut r) = res.status();
    post(&mut r);
    assert_eq!(r.u32().unwrap() & 0x1c, 0);
}

#[test]
fn shares_are_separate_and_squash_root() {
    let mut squashed = share("squashed");
    squashed.squash = Squash::Root;
    let c = Client::of(vec![share("data"), squashed]);
    let (data, other) = (c.root(), c.mount("/squashed").unwrap());
    let theirs = c.create(&other, "file", 0o600).unwrap();
    assert_eq!(c.getattr(&theirs).unwrap().uid, 65534);
    let fh = c.create(&data, "file", 0o600).unwrap();
    let res = c.nfs(p::RENAME, |w| {
        place(w, &data, "file");
        place(w, &other, "file");
    });
    assert_eq!(res.status().0, XDEV);
    let res = c.nfs(p::LINK, |w| {
        w.opaque(&fh);
        place(w, &other, "file");
    });
    assert_eq!(res.status().0, XDEV);
}

#[test]
fn share_refuses_other_clients() {
    let mut near = share("near");
    near.clients = Some(vec![Cidr { addr: "10.0.0.0".parse().unwrap(), bits: 8 }.into()]);
    let c = Client::of(vec![share("data"), near]);
    let root = c.root();
    assert_eq!(c.mount("/near"), Err(ACCES));
    let status = |peer: &str| {
        let session = session_from(&c.server, peer, Transport::Tcp);
        let mut w = head(1, NFS, 3, p::GETATTR, 0);
        w.opaque(&root);
        flat(call(&session, w.into_reply().head, vec![]).unwrap())[27]
    };
    assert_eq!(status("198.51.100.1:800"), 13, "not a neighbour");
    assert_eq!(status("192.0.2.1:800"), 0, "this host itself");
    assert_eq!(status("[::1]:800"), 0);
}

/// The names in a listing without attributes.
fn names(c: &Client, dir: &[u8]) -> Vec<String> {
    let res = c.nfs(p::READDIR, |w| {
        w.opaque(dir);
        w.u64(0);
        w.fixed(&[0; 8]);
        w.u32(4096);
    });
    let (status, mut r) = res.status();
    assert_eq!(status, OK);
    post(&mut r);
    r.u64().unwrap();
    let mut names = Vec::new();
    while r.bool().unwrap() {
        r.u64().unwrap();
        names.push(String::from_utf8(r.opaque(255).unwrap().to_vec()).unwrap());
        r.u64().unwrap();
    }
    assert!(r.bool().unwrap(), "the end");
    names
}

/// The handle that a READDIRPLUS gives for a name.
fn handle_in_listing(c: &Client, dir: &[u8], wanted: &str) -> Option<Vec<u8>> {
    let res = c.nfs(p::READDIRPLUS, |w| {
        w.opaque(dir);
        w.u64(0);
        w.fixed(&[0; 8]);
        w.u32(4096);
        w.u32(8192);
    });
    let (status, mut r) = res.status();
    assert_eq!(status, OK);
    post(&mut r);
    r.u64().unwrap();
    while r.bool().unwrap() {
        r.u64().unwrap();
        let name = r.opaque(255).unwrap().to_vec();
        r.u64().unwrap();
        post(&mut r);
        let handle = r.bool().unwrap().then(|| r.opaque(64).unwrap().to_vec());
        if name == wanted.as_bytes() {
            return handle;
        }
    }
    None
}

/// Replaces the folder of the link `d/old`, or `d` with it, as a process of the host does.
async fn make_again(top: &vfs::NodeRef, above: bool, away: &str) {
    let root = vfs::Cred::root();
    let by = || vfs::Acting::caller(&root);
    let set = vfs::SetAttr { mode: Some(0o755), ..Default::default() };
    let mut dir = top.lookup(&root, b"d").await.unwrap().0;
    let away = away.as_bytes();
    if above {
        top.rename(by(), b"d", &**top, away, false).await.unwrap();
        dir = top.mkdir(by(), b"d", set).await.unwrap().node;
    } else {
        dir.rename(by(), b"old", &**top, away, false).await.unwrap();
    }
    let old = dir.mkdir(by(), b"old", set).await.unwrap().node;
    old.mkdir(by(), b"below", set).await.unwrap();
}

/// A process of the host makes the folder of the link again, then that above it: the client finds another node each time.
fn made_again_is_not_entered(c: &Client, top: &vfs::NodeRef, host: &tokio::runtime::Runtime) {
    let root = c.root();
    for above in [false, true] {
        host.block_on(make_again(top, above, &format!("listed{above}")));
        let dir = c.lookup(&root, "d").unwrap();
        let old = handle_in_listing(c, &dir, "old").unwrap();
        assert_eq!(names(c, &old), [".", ".."], "listed, above: {above}");
        assert_eq!(c.create(&old, "f", 0o644), Err(ROFS));
        host.block_on(make_again(top, above, &format!("found{above}")));
        let dir = c.lookup(&root, "d").unwrap();
        let old = c.lookup(&dir, "old").unwrap();
        assert_eq!(names(c, &old), [".", ".."], "looked up, above: {above}");
        assert_eq!(c.lookup(&old, "below"), Err(NOENT));
        let removed = c.nfs(p::RMDIR, |w| place(w, &dir, "old"));
        assert_eq!(wcc_only(&removed), ACCES);
    }
}

/// NFS 3 has no referrals: a folder that is on another server is empty, and nothing can be made in it.
#[test]
fn link_to_another_server_is_an_empty_folder() {
    use vfs::Acting;
    use vfs::links::{Link, Links};
    let refer = vfs::refer::Referral {
        server: vfs::refer::Server::Name("gw2.example.org".into()),
        nfs_path: "archive".into(),
        smb_path: "archive".into(),
        rdma: false,
        namespace: false,
    };
    let mut data = share("data");
    let top = data.backend.root();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let root = vfs::Cred::root();
        let set = vfs::SetAttr { mode: Some(0o755), ..Default::default() };
        let dir = top.mkdir(Acting::caller(&root), b"d", set).await.unwrap().node;
        let covered = dir.mkdir(Acting::caller(&root), b"old", set).await.unwrap().node;
        covered.mkdir(Acting::caller(&root), b"below", set).await.unwrap();
        let links = Links::new(vec![Link::new("d/old", [refer].into())], false);
        data.rules.links = links.place(&top, Default::default()).await.unwrap().into();
    });
    let c = Client::of(vec![data]);
    let root = c.root();
    let dir = c.lookup(&root, "d").unwrap();
    assert!(names(&c, &dir).contains(&"old".to_owned()));
    let old = c.lookup(&dir, "old").unwrap();
    assert_eq!(c.getattr(&old).unwrap().ftype, 2);
    assert_eq!(names(&c, &old), [".", ".."]);
    assert_eq!(c.lookup(&old, "below"), Err(NOENT));
    assert_eq!(c.lookup(&old, "."), Ok(old.clone()));
    assert_eq!(c.lookup(&old, ".."), Ok(dir.clone()));
    // Nothing can be made in it, and it stays where it is.
    assert_eq!(c.create(&old, "f", 0o644), Err(ROFS));
    assert_eq!(c.mkdir(&old, "f"), Err(ROFS));
    assert_eq!(c.mkdir(&dir, "old"), Err(EXIST));
    let remove = |procedure, dir: &[u8], name| wcc_only(&c.nfs(procedure, |w| place(w, dir, name)));
    assert_eq!(remove(p::RMDIR, &old, "below"), ROFS);
    assert_eq!(remove(p::RMDIR, &dir, "old"), ACCES);
    assert_eq!(remove(p::REMOVE, &dir, "old"), ACCES);
    assert_eq!(remove(p::RMDIR, &root, "d"), ACCES);
    let rename = |from: (&[u8], &str), to: (&[u8], &str)| {
        let res = c.nfs(p::RENAME, |w| {
            place(w, from.0, from.1);
            place(w, to.0, to.1);
        });
        res.status().0
    };
    let f = c.create(&dir, "f", 0o644).unwrap();
    assert_eq!(rename((&dir, "f"), (&old, "f")), ROFS);
    assert_eq!(rename((&dir, "f"), (&dir, "old")), ACCES);
    assert_eq!(rename((&dir, "old"), (&root, "old")), ACCES);
    assert_eq!(rename((&root, "d"), (&root, "e")), ACCES);
    let link = |dir: &[u8], name| {
        let res = c.nfs(p::LINK, |w| {
            w.opaque(&f);
            place(w, dir, name);
        });
        res.status().0
    };
    assert_eq!((link(&old, "f"), link(&dir, "old"), link(&dir, "g")), (ROFS, EXIST, OK));
    let chmod = c.nfs(p::SETATTR, |w| {
        w.opaque(&old);
        sattr(w, Some(0o777), None);
        w.bool(false);
    });
    assert_eq!(wcc_only(&chmod), ROFS);
    made_again_is_not_entered(&c, &top, &runtime);
    // A mount would show an empty folder for ever.
    assert_eq!(c.mount("/data/d/old"), Err(ACCES));
    assert_eq!(c.mount("/data/d/old/below"), Err(ACCES));
    assert!(c.mount("/data/d").is_ok());
}

/// A service that knows numbers below 2000 to be of no user of a domain, 3000 to be of one, and says nothing of others.
struct Service {
    domain: std::sync::Weak<vfs::Domain>,
    questions: std::sync::atomic::AtomicUsize,
}

impl vfs::AskService for Service {
    fn ask(
        &self,
        _from: std::net::IpAddr,
        numbers: Vec<vfs::CallerNumber>,
    ) -> vfs::BoxFuture<'static, ()> {
        self.questions.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let domain = self.domain.clone();
        Box::pin(async move {
            // The answer comes later than the question.
            tokio::task::yield_now().await;
            let domain = domain.upgrade().unwrap();
            for number in numbers {
                let now = std::time::Instant::now();
                match number {
                    vfs::CallerNumber::User(3000) => {
                        domain.know_uid(3000, &"S-1-5-21-1-2-3-1103".parse().unwrap());
                    }
                    vfs::CallerNumber::User(0..2000) | vfs::CallerNumber::Group(0..2000) => {
                        domain.callers().keep_unmapped(number, true, now);
                    }
                    _ => {}
                }
            }
        })
    }
}

/// The first call of a caller waits for what the service says about its numbers.
#[test]
fn callers_outside_the_domain_are_not_denied_for_its_groups() {
    use vfs::namespace::{PrincipalSet, Rules, ShareAccess};
    let domain = vfs::Domain::by_service();
    let questions = std::sync::atomic::AtomicUsize::new(0);
    let service =
        std::sync::Arc::new(Service { domain: std::sync::Arc::downgrade(&domain), questions });
    domain.set_asker(service.clone());
    let group = vec!["S-1-5-21-1-2-3-1200".parse().unwrap()];
    let access = ShareAccess {
        write: PrincipalSet::everyone(),
        deny: PrincipalSet::default().with_identities(group, vec![]),
        ..ShareAccess::default()
    };
    let host = vfs::Token::of_host(&domain);
    let rules = Rules { host, access: Some(access), ..Rules::default() };
    let mut c = Client::of(vec![vfs::namespace::Share { rules, ..share("data") }]);
    let root = c.root();
    for (uid, told) in [(1000, NOENT), (2000, ACCES), (3000, ACCES), (1000, NOENT), (0, NOENT)] {
        c.uid = uid;
        assert_eq!(c.lookup(&root, "none").err(), Some(told), "{uid}");
        let asked = service.questions.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(c.lookup(&root, "none").err(), Some(told), "{uid} again");
        let again = service.questions.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(asked, again, "{uid}: the answer is kept for its connection");
    }
    let all = service.questions.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(all, 4, "of each caller once");
}
