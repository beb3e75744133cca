//! Shares on other servers: absent file systems and their locations (RFC 8881 sections 11.3 to 11.18, RFC 7530 section 8).

use nfs_proto::nfs4::Fsid4;
use nfs_proto::nfs4::attrs::{Fattr4, Fs4StatusType, FsLocation4, Value, fsli4bx};
use nfs_proto::nfs4::ops::Component4;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{attr, op};
use rdma_transport::channel::Handle;
use vfs::refer::{Referral, Server};

use crate::client::{Client, R};
use crate::harness::{Args, Harness, Results, fattr};

/// `more` is on two other servers, the second with RDMA.
fn harness() -> Harness {
    let harness = Harness::new();
    refer(&harness, "more");
    harness
}

fn refer(harness: &Harness, name: &str) {
    let at = |server, path: &str, rdma| Referral {
        server,
        nfs_path: path.into(),
        smb_path: "archive".into(),
        rdma,
        namespace: false,
    };
    let targets = [
        at(Server::Name("gw2.example.org".into()), "archive", false),
        at(Server::Ip("2001:db8::3".parse().unwrap()), "srv/archive", true),
    ];
    harness.reload(name, |share| share.rules.refers_to = targets.into());
}

/// Decodes the next `fattr4`, copying its bytes.
fn next_fattr(r: &mut Results) -> (Vec<u32>, Vec<u8>) {
    (r.bitmap(), r.opaque())
}

fn values<'a>(mask: &[u32], bytes: &'a [u8]) -> Vec<Value<'a>> {
    let fattr = Fattr4 { attrmask: nfsrdma::v4::attrs::Bitmap::of(mask), attr_vals: bytes };
    fattr.values().unwrap_or_else(|e| panic!("{e:?}")).1
}

fn names<'a>(path: &[Component4<'a>]) -> Vec<&'a str> {
    path.iter().map(|c| std::str::from_utf8(c.name).unwrap()).collect()
}

#[tokio::test]
async fn referral_refuses_operations() {
    let harness = harness();
    let first = Client::new(&harness, b"one").await;
    let second = Client::of_minor_2(&harness, b"two", Handle::detached()).await;
    let to = |c: Args| c.root().lookup(b"more").getfh();
    for mut r in [harness.run(to).await, first.run(to).await, second.run(to).await] {
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETFH, Status::Moved);
        r.end(Status::Moved);
    }
    let mut r = harness.run(|c| c.root().lookup(b"more").lookup(b"x")).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::LOOKUP, Status::Moved);
    let mut r = harness.run(|c| c.root().lookup(b"more").op(op::LOOKUPP, |_| {})).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::LOOKUPP, Status::Moved);
    let mut r =
        harness.run(|c| c.root().lookup(b"more").readdir(0, 4096, 4096, &[attr::FILEID])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::READDIR, Status::Moved);
    let mut r = harness.run(|c| c.root().lookup(b"more").op(op::ACCESS, |w| w.u32(0x3f))).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::ACCESS, Status::Moved);
    let rows = rdma_transport::refused::list();
    assert!(
        rows.iter().all(|row| row.refused.rule != "share-elsewhere"),
        "nobody was refused: {rows:?}"
    );
}

#[tokio::test]
async fn referral_attributes_show_location() {
    let harness = harness();
    let want = [attr::FSID, attr::SIZE, attr::FILEID, attr::FS_LOCATIONS, attr::MOUNTED_ON_FILEID];
    let mut r = harness.run(|c| c.root().lookup(b"more").getattr(&want)).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    let (mask, bytes) = next_fattr(&mut r);
    r.end(Status::Ok);
    assert_eq!(mask, [attr::FSID, attr::FS_LOCATIONS, attr::MOUNTED_ON_FILEID]);
    let all = values(&mask, &bytes);
    let [Value::Fsid(fsid), Value::FsLocations(locations), Value::MountedOnFileid(id)] = &all[..]
    else {
        panic!("{all:?}");
    };
    assert_ne!(*fsid, Fsid4 { major: 0, minor: 0 }, "the root's");
    assert!(*id > 1);
    assert_eq!(names(&locations.fs_root.components), ["more"]);
    let told =
        |l: &FsLocation4<'_>| (names(&l.server).join("|"), names(&l.rootpath.components).join("/"));
    let told: Vec<_> = locations.locations.iter().map(told).collect();
    let wanted = [("gw2.example.org", "archive"), ("2001:db8::3", "srv/archive")];
    assert_eq!(told, wanted.map(|(server, path)| (server.to_owned(), path.to_owned())));
}

/// RFC 7530 section 2.2.7, byte for byte.
#[tokio::test]
async fn fs_locations_are_encoded() {
    let harness = harness();
    let mut r = harness.run(|c| c.root().lookup(b"more").getattr(&[attr::FS_LOCATIONS])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    let (mask, bytes) = next_fattr(&mut r);
    assert_eq!(mask, [attr::FS_LOCATIONS]);
    let mut wanted = Vec::new();
    wanted.extend([1u32.to_be_bytes(), 4u32.to_be_bytes()].concat());
    wanted.extend(b"more");
    wanted.extend(2u32.to_be_bytes());
    wanted.extend([1u32.to_be_bytes(), 15u32.to_be_bytes()].concat());
    wanted.extend(b"gw2.example.org\0");
    wanted.extend([1u32.to_be_bytes(), 7u32.to_be_bytes()].concat());
    wanted.extend(b"archive\0");
    wanted.extend([1u32.to_be_bytes(), 11u32.to_be_bytes()].concat());
    wanted.extend(b"2001:db8::3\0");
    wanted.extend([2u32.to_be_bytes(), 3u32.to_be_bytes()].concat());
    wanted.extend(b"srv\0");
    wanted.extend(7u32.to_be_bytes());
    wanted.extend(b"archive\0");
    assert_eq!(bytes, wanted);
}

#[tokio::test]
async fn minor_version_1_gets_transports() {
    let harness = harness();
    let want = [attr::FS_STATUS, attr::FS_LOCATIONS_INFO, attr::TYPE];
    let client = Client::new(&harness, b"one").await;
    let mut r = client.run(|c| c.root().lookup(b"more").getattr(&want)).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    let (mask, bytes) = next_fattr(&mut r);
    assert_eq!(mask, [attr::FS_STATUS, attr::FS_LOCATIONS_INFO]);
    let all = values(&mask, &bytes);
    let [Value::FsStatus(status), Value::FsLocationsInfo(info)] = &all[..] else {
        panic!("{all:?}");
    };
    assert!(status.fss_absent && status.fss_type == Fs4StatusType::Referral);
    assert_eq!((info.fli_flags, info.fli_valid_for > 0), (0, true));
    assert_eq!(names(&info.fli_fs_root.components), ["more"]);
    let told: Vec<_> = info
        .fli_items
        .iter()
        .map(|item| {
            let [entry] = &item.fli_entries[..] else { panic!("{item:?}") };
            assert_eq!((entry.fls_info.len(), entry.fls_currency), (fsli4bx::LEN, 0));
            let rdma = entry.fls_info[fsli4bx::TFLAGS] == fsli4bx::TF_RDMA;
            let rank = entry.fls_info[fsli4bx::READRANK];
            (
                names(&[entry.fls_server])[0],
                names(&item.fli_rootpath.components).join("/"),
                rdma,
                rank,
            )
        })
        .collect();
    let path = "srv/archive".to_owned();
    assert_eq!(
        told,
        [
            ("gw2.example.org", "archive".into(), false, 0),
            ("2001:db8::3", path.clone(), true, 1),
            ("2001:db8::3", path, false, 2),
        ]
    );
    // Minor version 0 has neither attribute, so the request is for none.
    let mut r = harness.run(|c| c.root().lookup(b"more").getattr(&want)).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Moved);
}

#[tokio::test]
async fn attributes_without_a_place_are_moved() {
    let harness = harness();
    for want in [&[attr::TYPE][..], &[attr::FSID, attr::MOUNTED_ON_FILEID], &[]] {
        let mut r = harness.run(|c| c.root().lookup(b"more").getattr(want)).await;
        r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Moved);
    }
    // VERIFY accepts only attributes that the object has.
    let verify = async |named: &[u32], value: &[u8], opcode| {
        let r = harness
            .run(|c| c.root().lookup(b"more").op(opcode, |w| fattr(w, named, |v| v.fixed(value))));
        r.await.status
    };
    let mut r = harness.run(|c| c.root().lookup(b"more").getattr(&[attr::FS_LOCATIONS])).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::GETATTR, Status::Ok);
    let (_, locations) = next_fattr(&mut r);
    assert_eq!(verify(&[attr::FS_LOCATIONS], &locations, op::VERIFY).await, Status::Ok);
    assert_eq!(verify(&[attr::FS_LOCATIONS], &locations, op::NVERIFY).await, Status::Same);
    assert_eq!(verify(&[attr::TYPE], &[0, 0, 0, 2], op::VERIFY).await, Status::Moved);
    let both = [&[0, 0, 0, 2][..], &locations].concat();
    assert_eq!(verify(&[attr::TYPE, attr::FS_LOCATIONS], &both, op::VERIFY).await, Status::Moved);
}

/// Returns a name's entry in a listing of the root, or the status of READDIR.
async fn listed(
    harness: &Harness,
    name: &str,
    want: &[u32],
) -> Result<(Vec<u32>, Vec<u8>), Status> {
    let mut r = harness.run(|c| c.root().readdir(0, 0, 8192, want)).await;
    if r.status != Status::Ok {
        return Err(r.status);
    }
    r.ok(&[op::PUTROOTFH]).expect(op::READDIR, Status::Ok);
    r.fixed(8);
    let mut found = None;
    while r.bool() {
        r.u64();
        let is_it = r.opaque() == name.as_bytes();
        let entry = next_fattr(&mut r);
        found = found.or(is_it.then_some(entry));
    }
    Ok(found.expect("it is listed"))
}

#[tokio::test]
async fn listing_includes_referrals() {
    let harness = harness();
    let few = [attr::FSID, attr::RDATTR_ERROR, attr::MOUNTED_ON_FILEID];
    let (mask, bytes) =
        listed(&harness, "more", &[&few[..], &[attr::SIZE]].concat()).await.unwrap();
    assert_eq!(mask, few);
    let Value::RdattrError(error) = values(&mask, &bytes)[1] else { panic!() };
    assert_eq!(Status::from(error), Status::Moved);
    let (mask, bytes) = listed(&harness, "data", &few).await.unwrap();
    let Value::RdattrError(error) = values(&mask, &bytes)[1] else { panic!() };
    assert_eq!(Status::from(error), Status::Ok, "only of the one");
    let with = [attr::RDATTR_ERROR, attr::SIZE, attr::FS_LOCATIONS];
    let (mask, bytes) = listed(&harness, "more", &with).await.unwrap();
    assert_eq!(mask, [attr::RDATTR_ERROR, attr::FS_LOCATIONS]);
    let Value::RdattrError(error) = values(&mask, &bytes)[0] else { panic!() };
    assert_eq!(Status::from(error), Status::Ok);
    assert_eq!(listed(&harness, "more", &[attr::SIZE]).await, Err(Status::Moved));
    assert!(listed(&harness, "more", &[attr::MOUNTED_ON_FILEID]).await.is_ok());
}

#[tokio::test]
async fn handles_of_before_are_moved() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"content").await;
    let client = Client::new(&harness, b"one").await;
    let opened = client.open(b"owner", b"f", R).await.unwrap();
    refer(&harness, "data");
    let mut r = harness.run(|c| c.putfh(&file).read(0, 7)).await;
    r.ok(&[op::PUTFH]).expect(op::READ, Status::Moved);
    assert_eq!(client.close(&opened).await, Status::Moved);
    let mut r = harness.run(|c| c.putfh(&file).getattr(&[attr::FS_LOCATIONS])).await;
    r.ok(&[op::PUTFH]).expect(op::GETATTR, Status::Ok);
    assert_eq!(next_fattr(&mut r).0, [attr::FS_LOCATIONS]);
}

/// Attributes of the root itself, from which a client learns that the server supports referrals.
#[tokio::test]
async fn root_reports_own_location() {
    let harness = harness();
    let mut r =
        harness.run(|c| c.root().getattr(&[attr::SUPPORTED_ATTRS, attr::FS_LOCATIONS])).await;
    r.ok(&[op::PUTROOTFH]).expect(op::GETATTR, Status::Ok);
    let (mask, bytes) = next_fattr(&mut r);
    let all = values(&mask, &bytes);
    let [Value::SupportedAttrs(supported), Value::FsLocations(here)] = &all[..] else { panic!() };
    assert!(supported.has(attr::FS_LOCATIONS));
    assert!(here.fs_root.components.is_empty() && here.locations.is_empty());
}

#[tokio::test]
async fn referral_needs_admitted_address() {
    let harness = harness();
    harness.reload("more", |share| share.clients = Some(Vec::new()));
    let mut r = harness.run(|c| c.root().lookup(b"more").getattr(&[attr::FS_LOCATIONS])).await;
    r.ok(&[op::PUTROOTFH]).expect(op::LOOKUP, Status::NoEnt);
    let mut r = harness.run(|c| c.root().readdir(0, 0, 8192, &[attr::TYPE])).await;
    r.ok(&[op::PUTROOTFH]).expect(op::READDIR, Status::Ok);
}
