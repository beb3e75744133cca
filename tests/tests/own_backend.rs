//! Serves and mounts the backend of `vfs/examples/backend.rs`, which implements only the mandatory methods.

#![allow(clippy::unwrap_used)]

#[path = "../../vfs/examples/backend.rs"]
#[allow(dead_code)]
mod backend;

use std::sync::Arc;

use client::Error;
use client::connect::Local;
use client::smb::{Options, Smb};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{WAYS, buf, pattern, read_all, write_all};
use smb_proto::smb2::create::{Disposition, access};
use smb_proto::smb2::query_info::security_information as part;
use smbd_core::dtyp::SecurityDescriptor;
use vfs::namespace::{Enforce, Protocols, Rules, Share, Squash};

/// Sizes below, at and above the limits of inline data and of a single call.
const SIZES: [usize; 4] = [0, 1000, 70_000, 3 << 20];

#[tokio::test(flavor = "multi_thread")]
async fn clients_use_minimal_backend() {
    let (world, _dir) = with_alice(|_| ()).await;
    let share = Share {
        name: "own".into(),
        id: Share::id_of("own"),
        backend: backend::Own::new(),
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: Rules::default(),
    };
    world.running.namespace().set_shares(Arc::new([Arc::new(share)]));
    for way in WAYS {
        let client = world.client("own", way).await.unwrap_or_else(|e| panic!("{way:?}: {e}"));
        for size in SIZES {
            let name = format!("{}-{}-{size}", way.0, way.1);
            write_all(&client, &name, &pattern(&name, size)).await.unwrap();
        }
        client.leave().await.unwrap();
    }
    let (local, user) = (Local::default(), alice());
    let at = world.running.smb[0];
    let smb = Smb::connect(at, false, ("127.0.0.1", "own"), &user, Options::default(), &local);
    let smb = smb.await.unwrap();
    let mut names: Vec<String> = smb.list("").await.unwrap().into_iter().map(|e| e.name).collect();
    names.sort();
    assert_eq!(names.len(), WAYS.len() * SIZES.len());
    for name in &names {
        let size: usize = name.rsplit('-').next().unwrap().parse().unwrap();
        let file = smb.find(name).await.unwrap();
        let data = smb.read(&file, 0, u32::try_from(size + 1).unwrap()).await.unwrap();
        let found: Vec<u8> = data.iter().flat_map(|b| b.to_vec()).collect();
        assert!(found == pattern(name, size), "{name}");
        smb.close(file).await.unwrap();
    }
    // Each protocol reads data written over the other; a list is stored and returned.
    let file = smb.create("by-smb").await.unwrap();
    smb.write(&file, 0, vec![buf(b"from Windows")]).await.unwrap();
    smb.close(file).await.unwrap();
    let of_lists = access::READ_CONTROL | access::WRITE_DAC;
    let file = smb.open("by-smb", of_lists, Disposition::Open, 0).await.unwrap();
    let before = smb.security(&file, part::DACL).await.unwrap();
    smb.set_security(&file, part::DACL, before.clone()).await.unwrap();
    let kept = smb.security(&file, part::DACL).await.unwrap();
    let list = |sd: &[u8]| SecurityDescriptor::parse(sd).unwrap().dacl;
    assert_eq!(list(&kept), list(&before));
    smb.close(file).await.unwrap();
    let client = world.client("own", WAYS[2]).await.unwrap();
    assert_eq!(read_all(&client, "by-smb").await.unwrap(), b"from Windows");
    client.remove("by-smb").await.unwrap();
    assert!(matches!(smb.find("by-smb").await, Err(Error::Smb(..))));
    smb.unlink(&names[0]).await.unwrap();
    assert_eq!(client.list().await.unwrap().len(), names.len() - 1);
    smb.leave().await.unwrap();
    client.leave().await.unwrap();
    assert!(world.running.stop().await);
}
