//! SMB with our own client: every dialect over TCP, SMB Direct over iWARP, signed and encrypted.

#![allow(clippy::unwrap_used)]
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use client::connect::Local;
use client::smb::{Options, Smb, User};
use client::{Error, Result};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf, pattern};
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use smb_proto::NtStatus;
use smb_proto::smb2::negotiate::Dialect;

/// Sizes around the thresholds: one SMB Direct message, the smallest RDMA transfer, pages, buffers, the largest READ and WRITE.
const SIZES: [usize; 17] = [
    0,
    1,
    127,
    1340,
    4055,
    4095,
    4096,
    4097,
    8193,
    65_535,
    65_537,
    1 << 20,
    (1 << 20) + 1,
    3 << 20,
    8 << 20,
    (8 << 20) + 1,
    9_654_321,
];

async fn connect(world: &World, rdma: bool, user: &User, options: Options) -> Result<Smb> {
    let provider = Arc::new(Iwarp::new(IwarpConfig::default()));
    let local = Local { rdma: Some(provider), ..Local::default() };
    let at = if rdma { world.running.smb_direct[0] } else { world.running.smb[0] };
    Smb::connect(at, rdma, ("127.0.0.1", "data"), user, options, &local).await
}

async fn write_all(smb: &Smb, name: &str, data: &[u8]) -> Result<()> {
    let file = smb.create(name).await?;
    let taken = smb.write(&file, 0, vec![buf(data)]).await?;
    assert_eq!(taken as usize, data.len());
    smb.flush(&file).await?;
    assert_eq!(smb.size(&file).await?, data.len() as u64);
    smb.close(file).await
}

async fn read_all(smb: &Smb, name: &str, count: u32) -> Result<Vec<u8>> {
    let file = smb.find(name).await?;
    let data = smb.read(&file, 0, count).await?;
    smb.close(file).await?;
    Ok(data.iter().flat_map(|b| b.to_vec()).collect())
}

/// Writes and reads files of every size, and compares them with the folder.
async fn both_ways(world: &World, smb: &Smb, sizes: &[usize]) {
    for &size in sizes {
        let name = format!("file-{size}");
        let wanted = pattern(&name, size);
        write_all(smb, &name, &wanted).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(fs::read(world.folder().join(&name)).unwrap() == wanted, "{name} in the folder");
        for count in [size, size + 1000] {
            let count = u32::try_from(count).unwrap();
            let found = read_all(smb, &name, count).await;
            let found = found.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(found == wanted, "{name} read back, {count}");
        }
    }
    let mut names: Vec<String> = smb.list("").await.unwrap().into_iter().map(|e| e.name).collect();
    names.sort();
    let mut expected: Vec<String> = sizes.iter().map(|s| format!("file-{s}")).collect();
    expected.sort();
    assert_eq!(names, expected);
    for name in names {
        smb.unlink(&name).await.unwrap();
    }
    assert_eq!(fs::read_dir(world.folder()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dialects_transfer_all_sizes() {
    let (world, _dir) = with_alice(|_| ()).await;
    for dialect in Dialect::ALL {
        for (sign, seal) in [(false, false), (true, false), (false, true)] {
            if seal && !dialect.is_3() {
                continue;
            }
            let options = Options { dialect, sign, seal, ..Options::default() };
            let smb = connect(&world, false, &alice(), options).await;
            let smb = smb.unwrap_or_else(|e| panic!("{options:?}: {e}"));
            assert_eq!(smb.agreed().dialect, dialect);
            let all = dialect == Dialect::V311 && !sign && !seal;
            let some = if all { &SIZES[..] } else { &SIZES[..12] };
            both_ways(&world, &smb, some).await;
            smb.leave().await.unwrap();
        }
    }
    world.running.stop().await;
}

/// Signed or encrypted data cannot use pages: those cases are above.
#[tokio::test(flavor = "multi_thread")]
async fn unprotected_bulk_is_sent_as_pages() {
    let (world, _dir) = with_alice(|_| ()).await;
    let smb = connect(&world, false, &alice(), Options::default()).await.unwrap();
    let wanted = pattern("paged", 8 << 20);
    write_all(&smb, "paged", &wanted).await.unwrap();
    let before = iobuf::paged_bytes();
    assert!(read_all(&smb, "paged", 8 << 20).await.unwrap() == wanted);
    // Other tests of this process may add to it.
    assert!(iobuf::paged_bytes() - before >= 8 << 20);
    smb.leave().await.unwrap();
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn smb_direct_moves_payload_by_rdma() {
    let (world, _dir) = with_alice(|_| ()).await;
    for dialect in [Dialect::V300, Dialect::V302, Dialect::V311] {
        let options = Options { dialect, ..Options::default() };
        let smb = connect(&world, true, &alice(), options).await.unwrap();
        both_ways(&world, &smb, &SIZES).await;
        let size = 8 << 20;
        let traffic = |c: &rdma_transport::channel::Traffic| {
            (c.rdma_write.load(Relaxed), c.rdma_read.load(Relaxed), c.inline_in.load(Relaxed))
        };
        let before = traffic(&smb.info().traffic);
        write_all(&smb, "bulk", &pattern("bulk", size)).await.unwrap();
        assert!(read_all(&smb, "bulk", 8 << 20).await.unwrap() == pattern("bulk", size));
        let after = traffic(&smb.info().traffic);
        assert_eq!(after.0 - before.0, size as u64, "by RDMA Write");
        assert_eq!(after.1 - before.1, size as u64, "by RDMA Read");
        assert!(after.2 - before.2 < 16 << 10, "{} bytes in line", after.2 - before.2);
        // Dialect 3.0 has no remote invalidation; later ones request it with every READ and WRITE.
        let invalidated = smb.info().traffic.invalidations.load(Relaxed);
        assert_eq!(invalidated > 0, dialect >= Dialect::V302, "{invalidated} invalidated");
        smb.unlink("bulk").await.unwrap();
        smb.leave().await.unwrap();
    }
    world.running.stop().await;
}

/// Data that is signed or encrypted separately uses RDMA like plain data.
#[tokio::test(flavor = "multi_thread")]
async fn protected_smb_direct_uses_rdma() {
    let (world, _dir) = with_alice(|_| ()).await;
    for (sign, seal) in [(true, false), (false, true)] {
        let options = Options { sign, seal, ..Options::default() };
        let smb = connect(&world, true, &alice(), options).await.unwrap();
        both_ways(&world, &smb, &SIZES).await;
        let t = &smb.info().traffic;
        // Less than a page is sent inline, and so is the remainder of the largest WRITE.
        let direct = |size: &usize| {
            let rest = size % (8 << 20);
            size - if rest < 4096 { rest } else { 0 }
        };
        let by_rdma = SIZES.iter().map(direct).sum::<usize>() as u64;
        assert_eq!(t.rdma_read.load(Relaxed), by_rdma, "written");
        // Each file is read twice.
        assert!(t.rdma_write.load(Relaxed) >= 2 * by_rdma, "read");
        smb.leave().await.unwrap();
    }
    world.running.stop().await;
}

/// If either side lacks transforms, protected data is sent inline, so that none is transferred unprotected.
#[tokio::test(flavor = "multi_thread")]
async fn missing_transforms_keep_data_inline() {
    for (server_can, client_can) in [(true, false), (false, true)] {
        let off = |s: &mut config::Settings| s.smb.rdma_transforms = config::RdmaTransforms::Off;
        let (world, _dir) = with_alice(|s| {
            if !server_can {
                off(s)
            }
        })
        .await;
        for (sign, seal) in [(true, false), (false, true)] {
            let options = Options { sign, seal, rdma_transforms: client_can, ..Options::default() };
            let smb = connect(&world, true, &alice(), options).await.unwrap();
            both_ways(&world, &smb, &SIZES[..14]).await;
            let t = &smb.info().traffic;
            assert_eq!((t.rdma_write.load(Relaxed), t.rdma_read.load(Relaxed)), (0, 0));
            smb.leave().await.unwrap();
        }
        world.running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_run_concurrently() {
    let (world, _dir) = with_alice(|_| ()).await;
    for rdma in [false, true] {
        let smb = connect(&world, rdma, &alice(), Options::default()).await.unwrap();
        let file = smb.create("many").await.unwrap();
        let data = pattern("many", 32 << 20);
        let piece = |i: usize| buf(&data[i << 18..(i + 1) << 18]);
        let writes = (0..128).map(|i| smb.write(&file, (i as u64) << 18, vec![piece(i)]));
        for taken in futures_util::future::join_all(writes).await {
            assert_eq!(taken.unwrap(), 1 << 18);
        }
        assert!(fs::read(world.folder().join("many")).unwrap() == data);
        let reads = (0..128).map(|i| smb.read(&file, (i as u64) << 18, 1 << 18));
        for (i, found) in futures_util::future::join_all(reads).await.into_iter().enumerate() {
            let found: Vec<u8> = found.unwrap().iter().flat_map(|b| b.to_vec()).collect();
            assert!(found == data[i << 18..(i + 1) << 18], "piece {i}");
        }
        smb.close(file).await.unwrap();
        smb.unlink("many").await.unwrap();
    }
    world.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_password_is_refused() {
    let (world, _dir) = with_alice(|_| ()).await;
    for rdma in [false, true] {
        for (name, password) in [("alice", "wrong"), ("nobody", "correct horse")] {
            let user = User { name: name.into(), password: password.into(), ..User::default() };
            match connect(&world, rdma, &user, Options::default()).await.err().unwrap() {
                Error::Smb(_, status) => assert_eq!(status, NtStatus::LOGON_FAILURE),
                other => panic!("{other}"),
            }
        }
    }
    world.running.stop().await;
}
