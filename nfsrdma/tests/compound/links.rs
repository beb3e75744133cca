//! Folders of a share that are on other servers: absent file systems inside a share (RFC 8881 section 11.3).

use std::sync::Arc;

use nfs_proto::nfs4::attrs::{Fattr4, Value};
use nfs_proto::nfs4::ops::Component4;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{attr, op};
use rdma_transport::channel::Handle;
use vfs::links::{Link, Links};
use vfs::refer::{Referral, Server};
use vfs::{Acting, Cred, SetAttr};

use crate::client::Client;
use crate::harness::{Args, Harness, Results, fattr};

/// The folders and links of the share, by path.
const FOLDERS: [&str; 3] = ["projects", "projects/plain", "other"];
const LINKS: [&str; 3] = ["projects/old", "away", "deep/er/est"];
const MSDFS: &str = "other/samba";
const FILE: &str = "projects/file";

fn to(server: &str, path: &str) -> Referral {
    Referral {
        server: Server::Name(server.into()),
        nfs_path: path.into(),
        smb_path: "archive".into(),
        rdma: false,
        namespace: false,
    }
}

fn targets() -> Arc<[Referral]> {
    [to("gw2.example.org", "archive"), to("gw3.example.org", "srv/archive")].into()
}

async fn harness() -> Harness {
    let harness = Harness::new();
    let share = harness.nfs.core.namespace.share_named(b"data").unwrap();
    let (top, root) = (share.backend.root(), Cred::root());
    let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    let mut made = std::collections::BTreeMap::from([(String::new(), top.clone())]);
    for path in FOLDERS {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let node = made[dir].mkdir(Acting::caller(&root), name.as_bytes(), set).await.unwrap().node;
        made.insert(path.to_owned(), node);
    }
    let how = vfs::CreateHow::Guarded;
    made["projects"].create(Acting::caller(&root), b"file", how, set).await.unwrap();
    let text = br"msdfs:gw4.example.org\samba";
    made["other"].symlink(&root, b"samba", text, SetAttr::default()).await.unwrap();
    let links = Links::new(LINKS.iter().map(|path| Link::new(path, targets())).collect(), true);
    let placed = Arc::new(links.place(&top, Arc::default()).await.unwrap());
    harness.reload("data", |share| share.rules.links = placed.clone());
    harness
}

/// The slow model: the number of names up to the first link of a path.
fn away(path: &str) -> Option<usize> {
    let names: Vec<&str> = path.split('/').filter(|n| !n.is_empty()).collect();
    (1..=names.len()).find(|n| {
        let start = names[..*n].join("/");
        LINKS.contains(&&*start) || start == MSDFS
    })
}

fn paths() -> Vec<String> {
    let mut all: Vec<String> = FOLDERS.iter().map(|p| (*p).to_owned()).collect();
    all.extend([FILE.to_owned(), "deep".into(), "deep/er".into()]);
    for link in LINKS.iter().chain([&MSDFS]) {
        for tail in ["", "/x", "/x/y"] {
            all.push(format!("{link}{tail}"));
        }
        // NFS keeps case apart.
        all.push(link.to_uppercase());
    }
    all
}

fn walk(c: Args, path: &str) -> Args {
    path.split('/').fold(c.root().lookup(b"data"), |c, name| c.lookup(name.as_bytes()))
}

/// Skips the results of a walk that reached its end.
fn walked(r: &mut Results, path: &str) {
    let lookups = vec![op::LOOKUP; path.split('/').count() + 1];
    r.ok(&[&[op::PUTROOTFH][..], &lookups].concat());
}

fn next_fattr(r: &mut Results) -> (Vec<u32>, Vec<u8>) {
    (r.bitmap(), r.opaque())
}

fn values<'a>(mask: &[u32], bytes: &'a [u8]) -> Vec<Value<'a>> {
    let fattr = Fattr4 { attrmask: nfsrdma::v4::attrs::Bitmap::of(mask), attr_vals: bytes };
    fattr.values().unwrap_or_else(|e| panic!("{e:?}")).1
}

fn joined(path: &[Component4<'_>]) -> String {
    let names = path.iter().map(|c| std::str::from_utf8(c.name).unwrap());
    names.collect::<Vec<_>>().join("/")
}

type Build<'a> = Box<dyn Fn(Args) -> Args + 'a>;

/// Each path in each minor version, with operations of each kind on it.
#[tokio::test]
async fn operations_on_a_link_are_moved() {
    let harness = harness().await;
    let sessions = [
        None,
        Some(Client::new(&harness, b"one").await),
        Some(Client::of_minor_2(&harness, b"two", Handle::detached()).await),
    ];
    let operations: [(u32, Build<'_>); 9] = [
        (op::GETFH, Box::new(|c: Args| c.getfh())),
        (op::LOOKUP, Box::new(|c: Args| c.lookup(b"x"))),
        (op::LOOKUPP, Box::new(|c: Args| c.op(op::LOOKUPP, |_| {}))),
        (op::READDIR, Box::new(|c: Args| c.readdir(0, 4096, 4096, &[attr::FILEID]))),
        (op::ACCESS, Box::new(|c: Args| c.op(op::ACCESS, |w| w.u32(0x3f)))),
        (op::CREATE, Box::new(|c: Args| c.mkdir(b"x"))),
        (op::REMOVE, Box::new(|c: Args| c.op(op::REMOVE, |w| w.opaque(b"x")))),
        (op::GETATTR, Box::new(|c: Args| c.getattr(&[attr::TYPE]))),
        (op::READLINK, Box::new(|c: Args| c.op(op::READLINK, |_| {}))),
    ];
    let mut count = 0;
    for path in paths() {
        let names = path.split('/').count();
        for client in &sessions {
            let run = async |build: &dyn Fn(Args) -> Args| match client {
                None => harness.run(|c| build(walk(c, &path))).await,
                Some(client) => client.run(|c| build(walk(c, &path))).await,
            };
            match away(&path) {
                Some(at) if at == names => {
                    for (opcode, build) in &operations {
                        let mut r = run(build).await;
                        walked(&mut r, &path);
                        r.expect(*opcode, Status::Moved);
                        count += 1;
                    }
                }
                Some(at) => {
                    let r = run(&|c| c).await;
                    assert_eq!(
                        (r.status, r.left),
                        (Status::Moved, u32::try_from(at + 3).unwrap()),
                        "{path}"
                    );
                }
                None => {
                    let r = run(&|c| c.getfh()).await;
                    let wanted = if path.contains("OLD")
                        || path.contains("AWAY")
                        || path.contains("DEEP")
                        || path.contains("OTHER")
                    {
                        Status::NoEnt
                    } else {
                        Status::Ok
                    };
                    assert_eq!(r.status, wanted, "{path}");
                }
            }
        }
    }
    assert_eq!(count, 4 * 3 * operations.len());
}

#[tokio::test]
async fn location_of_a_link_can_be_read() {
    let harness = harness().await;
    let want = [attr::FSID, attr::SIZE, attr::FILEID, attr::FS_LOCATIONS, attr::MOUNTED_ON_FILEID];
    let mut seen = std::collections::BTreeSet::new();
    for path in LINKS.iter().chain([&MSDFS]) {
        let mut r = harness.run(|c| walk(c, path).getattr(&want)).await;
        walked(&mut r, path);
        r.expect(op::GETATTR, Status::Ok);
        let (mask, bytes) = next_fattr(&mut r);
        assert_eq!(mask, [attr::FSID, attr::FS_LOCATIONS, attr::MOUNTED_ON_FILEID]);
        let all = values(&mask, &bytes);
        let [Value::Fsid(fsid), Value::FsLocations(told), Value::MountedOnFileid(_)] = &all[..]
        else {
            panic!("{all:?}");
        };
        assert!(seen.insert((fsid.major, fsid.minor)), "each is a file system of its own");
        assert_eq!(joined(&told.fs_root.components), format!("data/{path}"));
        let to: Vec<_> = told
            .locations
            .iter()
            .map(|l| format!("{}:/{}", joined(&l.server), joined(&l.rootpath.components)))
            .collect();
        let wanted = match *path == MSDFS {
            true => vec!["gw4.example.org:/samba".to_owned()],
            false => vec!["gw2.example.org:/archive".into(), "gw3.example.org:/srv/archive".into()],
        };
        assert_eq!(to, wanted);
    }
    // The share itself is here.
    let mut r = harness.run(|c| c.root().lookup(b"data").getattr(&[attr::FSID])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    let (mask, bytes) = next_fattr(&mut r);
    let [Value::Fsid(fsid)] = &values(&mask, &bytes)[..] else { panic!() };
    assert!(!seen.contains(&(fsid.major, fsid.minor)));
    let links = harness.nfs.core.namespace.share_named(b"data").unwrap().rules.links.clone();
    assert_eq!(links.referred.nfs.load(std::sync::atomic::Ordering::Relaxed), 4);
    let client = Client::new(&harness, b"one").await;
    let want = [attr::FS_STATUS, attr::FS_LOCATIONS_INFO];
    let mut r = client.run(|c| walk(c, "away").getattr(&want)).await;
    walked(&mut r, "away");
    r.expect(op::GETATTR, Status::Ok);
    let (mask, bytes) = next_fattr(&mut r);
    let all = values(&mask, &bytes);
    let [Value::FsStatus(status), Value::FsLocationsInfo(info)] = &all[..] else {
        panic!("{all:?}")
    };
    assert!(status.fss_absent);
    assert_eq!(joined(&info.fli_fs_root.components), "data/away");
    assert_eq!(info.fli_items.len(), 2);
}

/// Lists a folder: the names, with the entry's attributes. `Err`: the status of READDIR.
async fn listed(
    harness: &Harness,
    path: &str,
    want: &[u32],
) -> Result<Vec<(String, Vec<u32>, Vec<u8>)>, Status> {
    let mut r = harness.run(|c| walk(c, path).readdir(0, 0, 8192, want)).await;
    if r.status != Status::Ok {
        return Err(r.status);
    }
    walked(&mut r, path);
    r.expect(op::READDIR, Status::Ok);
    r.fixed(8);
    let mut all = Vec::new();
    while r.bool() {
        r.u64();
        let name = String::from_utf8(r.opaque()).unwrap();
        let (mask, bytes) = next_fattr(&mut r);
        all.push((name, mask, bytes));
    }
    Ok(all)
}

/// RFC 8881 section 11.4.2, with the attributes that a listing has by itself and with others.
#[tokio::test]
async fn listings_show_links() {
    let harness = harness().await;
    for (dir, name, other) in
        [("projects", "old", "plain"), ("other", "samba", ""), ("deep/er", "est", "")]
    {
        for want in [
            &[attr::RDATTR_ERROR, attr::MOUNTED_ON_FILEID][..],
            &[attr::TYPE, attr::RDATTR_ERROR, attr::FILEID],
            &[attr::TYPE, attr::SIZE, attr::FSID, attr::RDATTR_ERROR, attr::MOUNTED_ON_FILEID],
        ] {
            let all = listed(&harness, dir, want).await.unwrap();
            let (_, mask, bytes) = all.iter().find(|(n, ..)| n == name).expect("it is listed");
            let own: Vec<u32> = [attr::FSID, attr::RDATTR_ERROR, attr::MOUNTED_ON_FILEID].into();
            assert!(mask.iter().all(|n| own.contains(n)), "{dir} {mask:?}");
            let error = values(mask, bytes).into_iter().find_map(|v| match v {
                Value::RdattrError(error) => Some(Status::from(error)),
                _ => None,
            });
            assert_eq!(error, Some(Status::Moved), "{dir} {want:?}");
            if let Some((_, mask, bytes)) = all.iter().find(|(n, ..)| n == other) {
                assert!(mask.len() == want.len(), "{mask:?}");
                let Some(Value::RdattrError(error)) =
                    values(mask, bytes).into_iter().find(|v| matches!(v, Value::RdattrError(_)))
                else {
                    panic!()
                };
                assert_eq!(Status::from(error), Status::Ok);
            }
        }
        // Without the attribute for errors, only what an absent file system has can be listed.
        assert_eq!(listed(&harness, dir, &[attr::SIZE]).await, Err(Status::Moved));
        assert_eq!(listed(&harness, dir, &[attr::TYPE]).await, Err(Status::Moved));
        let with =
            listed(&harness, dir, &[attr::SIZE, attr::FS_LOCATIONS, attr::RDATTR_ERROR]).await;
        let all = with.unwrap();
        let (_, mask, _) = all.iter().find(|(n, ..)| n == name).unwrap();
        assert_eq!(mask, &[attr::RDATTR_ERROR, attr::FS_LOCATIONS]);
    }
}

/// What a client may not do to the name of a link, or of a folder above one.
#[tokio::test]
async fn names_of_links_stay() {
    let harness = harness().await;
    let remove = async |dir: &str, name: &str| {
        harness.run(|c| walk(c, dir).op(op::REMOVE, |w| w.opaque(name.as_bytes()))).await.status
    };
    assert_eq!(remove("projects", "old").await, Status::Access);
    assert_eq!(remove("deep", "er").await, Status::Access);
    let mkdir = async |dir: &str, name: &str| {
        harness.run(|c| walk(c, dir).mkdir(name.as_bytes())).await.status
    };
    assert_eq!(mkdir("projects", "old").await, Status::Exist);
    assert_eq!(mkdir("projects", "OLD").await, Status::Ok, "another name");
    let rename = async |from: (&str, &str), to: (&str, &str)| {
        let build = |c| {
            let c = walk(walk(c, from.0).savefh(), to.0);
            c.op(op::RENAME, |w| {
                w.opaque(from.1.as_bytes());
                w.opaque(to.1.as_bytes());
            })
        };
        harness.run(build).await.status
    };
    assert_eq!(rename(("projects", "old"), ("other", "x")).await, Status::Access);
    assert_eq!(rename(("projects", "plain"), ("projects", "old")).await, Status::Access);
    assert_eq!(rename(("projects", "file"), ("projects", "old")).await, Status::Access);
    assert_eq!(rename(("deep", "er"), ("other", "x")).await, Status::Access);
    let link = harness
        .run(|c| {
            let c = walk(walk(c, FILE).savefh(), "projects");
            c.op(op::LINK, |w| w.opaque(b"old"))
        })
        .await;
    assert_eq!(link.status, Status::Exist);
    // Into a link nothing can be moved.
    let build = |c| {
        walk(walk(c, "projects").savefh(), "away").op(op::RENAME, |w| {
            w.opaque(b"file");
            w.opaque(b"file");
        })
    };
    assert_eq!(harness.run(build).await.status, Status::Moved);
    // Only processes of the host make links in the style of Samba.
    let symlink = async |text: &[u8]| {
        let build = |c| {
            walk(c, "other").op(op::CREATE, |w| {
                w.u32(5);
                w.opaque(text);
                w.opaque(b"new");
                fattr(w, &[], |_| {});
            })
        };
        harness.run(build).await.status
    };
    assert_eq!(symlink(br"MSDFS:evil\share").await, Status::Access);
    assert_eq!(symlink(b"msdfs.txt").await, Status::Ok);
    assert_eq!(rename(("other", "samba"), ("other", "moved")).await, Status::Ok);
    assert_eq!(remove("other", "moved").await, Status::Ok);
}

/// A handle from before, one of a folder that a process of the host made again, and one of after.
#[tokio::test]
async fn handles_of_links_are_moved() {
    let harness = harness().await;
    let share = harness.nfs.core.namespace.share_named(b"data").unwrap();
    let links = share.rules.links.clone();
    let none = Arc::new(Links::default());
    let fh = async |path: &str| {
        harness.reload("data", |share| share.rules.links = none.clone());
        let mut r = harness.run(|c| walk(c, path).getfh()).await;
        walked(&mut r, path);
        r.expect(op::GETFH, Status::Ok);
        let fh = r.opaque();
        harness.reload("data", |share| share.rules.links = links.clone());
        fh
    };
    for path in LINKS {
        let fh = fh(path).await;
        let mut r = harness.run(|c| c.putfh(&fh).getattr(&[attr::TYPE])).await;
        r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Moved);
        let mut r = harness.run(|c| c.putfh(&fh).getattr(&[attr::FS_LOCATIONS])).await;
        r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
    }
    let top = share.backend.root();
    let root = Cred::root();
    top.rmdir(Acting::caller(&root), b"away").await.unwrap();
    let r = harness.run(|c| walk(c, "away").getfh()).await;
    assert_eq!(r.status, Status::NoEnt);
    assert_eq!(
        harness.run(|c| c.root().lookup(b"data").mkdir(b"away")).await.status,
        Status::Exist
    );
    let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    let node = top.mkdir(Acting::caller(&root), b"away", set).await.unwrap().node;
    let mut r = harness.run(|c| walk(c, "away").getfh()).await;
    walked(&mut r, "away");
    r.expect(op::GETFH, Status::Moved);
    let fh = harness.nfs.core.handles.of_node(&share, &node.handle());
    let mut r = harness.run(|c| c.putfh(fh.as_bytes()).getfh()).await;
    r.ok(&[op::PUTFH]).expect(op::GETFH, Status::Moved);
}
