//! Data, attributes, storage and extended attributes.

use super::*;

pub(crate) async fn read_and_write_at_every_size(b: Bench) {
    let f = b.file("f").await;
    let sizes = [
        0,
        1,
        511,
        4095,
        4096,
        4097,
        65535,
        65536,
        65537,
        262_143,
        262_145,
        (1 << 20) - 1,
        1 << 20,
        (1 << 20) + 1,
        (3 << 20) + 7,
    ];
    for (i, n) in sizes.into_iter().enumerate() {
        let data = pattern(i as u8, n);
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        f.setattr(&root(), cut, false).await.unwrap();
        if n > 0 {
            let w = b.write(&f, 0, &data).await;
            assert_eq!((w.count, w.after.size), (n, n as u64));
        }
        assert!(b.contents(&f).await == data, "size {n}");
        // One byte before the end, at the end, and after it.
        if n > 0 {
            let (last, eof) = b.read(&f, n as u64 - 1, 100).await;
            assert_eq!((last, eof), (vec![data[n - 1]], true));
            let (exact, eof) = b.read(&f, 0, n.min(1 << 20)).await;
            assert_eq!((exact.len(), eof), (n.min(1 << 20), n <= 1 << 20));
            if n > 1 {
                assert!(!b.read(&f, 0, (n - 1).min(1 << 20)).await.1);
            }
        }
        assert_eq!(b.read(&f, n as u64, 100).await, (vec![], true));
        assert_eq!(b.read(&f, n as u64 + 1000, 100).await, (vec![], true));
    }
}

pub(crate) async fn large_reads_take_several_buffers(b: Bench) {
    let f = b.file("f").await;
    let data = pattern(9, 5 << 20);
    b.write(&f, 0, &data).await;
    let r = f.read(Some(&root()), 1000, 4 << 20, &b.into).await.unwrap();
    assert_eq!(r.len(), 4 << 20);
    let bytes: Vec<u8> = r.data.iter().flat_map(|x| x.iter().copied()).collect();
    assert!(bytes == data[1000..1000 + (4 << 20)]);
    drop(r);
    assert!(b.into.pool.stats().iter().all(|s| s.in_use == 0));
}

pub(crate) async fn writes_come_in_pieces(b: Bench) {
    let f = b.file("f").await;
    let data = pattern(3, 300_000);
    let mut pieces = Vec::new();
    let mut rest = Buf::from(data.clone());
    for n in [1, 2, 4093, 0, 70_000, 100_001] {
        pieces.push(rest.split_to(n));
    }
    pieces.push(rest);
    let w = f.write(WriteBy::Caller(&root()), 5, pieces, Stable::File).await.unwrap();
    assert_eq!((w.count, w.stable, w.after.size), (300_000, Stable::File, 300_005));
    assert!(w.before.is_some_and(|a| a.size == 0));
    let read = b.contents(&f).await;
    assert_eq!(read[..5], [0; 5]);
    assert!(read[5..] == data);
    // Many small ones: more than one system call takes.
    let many: Vec<Buf> = data.chunks(100).map(|c| Buf::from(c.to_vec())).collect();
    let w = f.write(WriteBy::Open(None), 0, many, Stable::Data).await.unwrap();
    assert_eq!(w.count, 300_000);
    assert!(b.contents(&f).await[..300_000] == data);
    f.commit(0, 0).await.unwrap();
    let many: Vec<Buf> = data[..20_000].chunks(10).map(|c| Buf::from(c.to_vec())).collect();
    f.write(WriteBy::Open(None), 300_000, many, Stable::Unstable).await.unwrap();
    assert!(b.contents(&f).await[300_000..] == data[..20_000]);
}

pub(crate) async fn offsets_at_the_largest_size(b: Bench) {
    let f = b.file("f").await;
    b.write(&f, 0, b"x").await;
    for at in [u64::MAX, u64::MAX - 10, 1 << 63, (1 << 63) - 1] {
        let r = f.read(Some(&root()), at, 4096, &b.into).await.unwrap();
        assert!(r.is_empty() && r.eof);
        let data = vec![Buf::from(vec![1, 2, 3])];
        let w = f.write(WriteBy::Caller(&root()), at, data, Stable::Unstable).await;
        assert!(matches!(w, Err(VfsError::TooBig | VfsError::NoSpace)), "{w:?}");
        let set = SetAttr { size: Some(at), ..SetAttr::default() };
        if at > i64::MAX as u64 {
            assert!(f.setattr(&root(), set, false).await.is_err());
        }
        assert!(f.allocate(None, at, 10).await.is_err());
        refused(f.seek(at, Seek::Data), VfsError::NoMoreData).await;
    }
    assert_eq!(f.getattr().await.unwrap().size, 1);
    let (some, eof) = b.read(&f, 0, 0).await;
    assert!(some.is_empty() && !eof);
}

pub(crate) async fn sizes_change_up_and_down(b: Bench) {
    let f = b.file("f").await;
    let data = pattern(1, 200_000);
    b.write(&f, 0, &data).await;
    let size = |n| SetAttr { size: Some(n), ..SetAttr::default() };
    let (before, after) = f.setattr(&root(), size(100_001), false).await.unwrap();
    assert_eq!((before.size, after.size), (200_000, 100_001));
    assert_ne!(before.change, after.change);
    f.setattr(&root(), size(150_000), true).await.unwrap();
    let read = b.contents(&f).await;
    assert_eq!(read.len(), 150_000);
    assert!(read[..100_001] == data[..100_001]);
    assert!(read[100_001..].iter().all(|b| *b == 0));
    refused(b.dir("d").await.setattr(&root(), size(0), false), VfsError::IsDir).await;
}

pub(crate) async fn attributes_are_set_and_kept(b: Bench) {
    let f = b.file("f").await;
    let c = root();
    let t = |sec, nsec| SetTime::At(Time { sec, nsec });
    let set = SetAttr { atime: Some(t(1000, 5)), mtime: Some(t(2000, 7)), ..mode(0o751) };
    let (_, a) = f.setattr(&c, set, false).await.unwrap();
    assert_eq!((a.mode, a.atime.sec, a.mtime), (0o751, 1000, Time { sec: 2000, nsec: 7 }));
    let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    let (_, a) = f.setattr(&c, now, false).await.unwrap();
    assert!(a.mtime.sec > 1_600_000_000);
    assert_eq!(a.atime.sec, 1000);
    let bad = SetAttr { mtime: Some(t(0, 1_000_000_000)), ..SetAttr::default() };
    refused(f.setattr(&c, bad, false), VfsError::Invalid).await;
    assert!(a.btime.is_none_or(|b| b.sec > 1_600_000_000));
    assert_eq!(a.fsid, b.root.getattr().await.unwrap().fsid);
    let s = b.backend.statfs().await.unwrap();
    assert!(s.total_bytes >= s.free_bytes && s.free_bytes >= s.avail_bytes && s.total_bytes > 0);
}

/// Every change moves the change attribute, however fast the changes follow each other.
pub(crate) async fn change_attribute_always_moves(b: Bench) {
    let c = root();
    let f = b.file("f").await;
    let mut seen = vec![f.getattr().await.unwrap().change];
    for i in 0..200_u64 {
        b.write(&f, i, b"x").await;
        seen.push(f.getattr().await.unwrap().change);
        f.setattr(&c, mode(0o600 + (i as u32 & 0o77)), false).await.unwrap();
        seen.push(f.getattr().await.unwrap().change);
    }
    assert!(seen.windows(2).all(|w| w[0] < w[1]));
    assert_eq!(f.getattr().await.unwrap().change, f.getattr().await.unwrap().change);
    let mut seen = Vec::new();
    for i in 0..100 {
        let made = b.create(&format!("n{i}"), CreateHow::Guarded).await.unwrap();
        seen.push(made.dir.before.change);
        seen.push(made.dir.after.change);
    }
    assert!(seen.windows(2).all(|w| w[0] <= w[1]));
    assert!(seen.chunks(2).all(|w| w[0] < w[1]));
}

pub(crate) async fn holes_and_storage(b: Bench) {
    let f = b.file("f").await;
    let m = 1 << 20;
    b.write(&f, 4 * m, &pattern(0, 65536)).await;
    let a = f.getattr().await.unwrap();
    assert_eq!(a.size, 4 * m + 65536);
    assert!(a.used < m, "{}", a.used);
    assert_eq!(f.seek(0, Seek::Data).await, Ok(4 * m));
    assert_eq!(f.seek(0, Seek::Hole).await, Ok(0));
    assert_eq!(f.seek(4 * m, Seek::Hole).await, Ok(4 * m + 65536));
    refused(f.seek(4 * m + 65536, Seek::Data), VfsError::NoMoreData).await;
    refused(f.seek(4 * m + 65536, Seek::Hole), VfsError::NoMoreData).await;
    let (zeros, _) = b.read(&f, 1000, 100_000).await;
    assert!(zeros.len() == 100_000 && zeros.iter().all(|b| *b == 0));
    // A new hole in data; the size stays, also beyond the end.
    f.deallocate(None, 4 * m + 100, 65536).await.unwrap();
    let a = f.getattr().await.unwrap();
    assert_eq!(a.size, 4 * m + 65536);
    let (some, _) = b.read(&f, 4 * m, 65536).await;
    assert!(some[..100] == pattern(0, 65536)[..100] && some[100..].iter().all(|b| *b == 0));
    // Reserved storage reads as zeros and may extend the file.
    f.allocate(None, 8 * m, m).await.unwrap();
    let a = f.getattr().await.unwrap();
    assert_eq!(a.size, 9 * m);
    assert!(a.used >= m);
    let (some, eof) = b.read(&f, 9 * m - 10, 100).await;
    assert_eq!((some, eof), (vec![0; 10], true));
    refused(f.allocate(None, 0, 0), VfsError::Invalid).await;
    refused(f.deallocate(None, 0, 0), VfsError::Invalid).await;
    refused(b.root.allocate(None, 0, 1), VfsError::IsDir).await;
}

pub(crate) async fn copies_and_clones(b: Bench) {
    let (f, g) = (b.file("f").await, b.file("g").await);
    let data = pattern(7, 300_000);
    b.write(&f, 0, &data).await;
    assert_eq!(g.copy_range(None, f.as_ref(), 1000, 5, 100_000).await, Ok(100_000));
    let read = b.contents(&g).await;
    assert!(read[..5] == [0; 5] && read[5..] == data[1000..101_000]);
    // To the end, and a range that exceeds it.
    assert_eq!(g.copy_range(None, f.as_ref(), 299_000, 0, 0).await, Ok(1000));
    assert_eq!(g.copy_range(None, f.as_ref(), 299_000, 0, 5000).await, Ok(1000));
    refused(g.copy_range(None, f.as_ref(), 300_001, 0, 1), VfsError::Invalid).await;
    refused(g.copy_range(None, b.root.as_ref(), 0, 0, 1), VfsError::IsDir).await;
    refused(f.copy_range(None, f.as_ref(), 0, 100, 1000), VfsError::Invalid).await;
    if !b.backend.capabilities().reflink {
        refused(g.clone_range(None, f.as_ref(), 0, 0, 0), VfsError::NotSupported).await;
        return;
    }
    let h = b.file("h").await;
    h.clone_range(None, f.as_ref(), 0, 0, 0).await.unwrap();
    assert!(b.contents(&h).await == data);
    // Afterwards, writes to one do not change the other.
    b.write(&h, 100, b"HHHH").await;
    b.write(&f, 200_000, b"FFFF").await;
    let (hh, ff) = (b.contents(&h).await, b.contents(&f).await);
    assert!(hh[100..104] == *b"HHHH" && ff[100..104] == data[100..104]);
    assert!(ff[200_000..200_004] == *b"FFFF" && hh[200_000..200_004] == data[200_000..200_004]);
    let block = u64::from(b.backend.capabilities().clone_block);
    h.clone_range(None, f.as_ref(), block, 10 * block, block).await.unwrap();
    refused(h.clone_range(None, f.as_ref(), 1 << 40, 0, block), VfsError::Invalid).await;
}

async fn sizes(node: &NodeRef) -> XattrSizes {
    node.xattr_sizes(&node.getattr().await.unwrap()).await.unwrap()
}

pub(crate) async fn extended_attributes(b: Bench) {
    let c = root();
    if !b.backend.capabilities().xattr {
        println!("skipped: this volume has no extended attributes");
        return;
    }
    let f = b.file("f").await;
    let d = b.dir("d").await;
    for node in [&f, &d] {
        refused(node.xattr_get(&c, b"a"), VfsError::NoXattr).await;
        refused(node.xattr_remove(&c, b"a"), VfsError::NoXattr).await;
        refused(node.xattr_set(&c, b"a", b"1", XattrHow::Replace), VfsError::NoXattr).await;
        let (x, y) = node.xattr_set(&c, b"a", b"1", XattrHow::Create).await.unwrap();
        assert_ne!(x.change, y.change);
        refused(node.xattr_set(&c, b"a", b"2", XattrHow::Create), VfsError::Exists).await;
        node.xattr_set(&c, b"a", b"22", XattrHow::Replace).await.unwrap();
        node.xattr_set(&c, b"user.b", b"", XattrHow::Either).await.unwrap();
        assert_eq!(node.xattr_get(&c, b"a").await.unwrap(), b"22");
        assert_eq!(node.xattr_get(&c, b"user.b").await.unwrap(), b"");
        let mut names = node.xattr_list(&c).await.unwrap();
        names.sort();
        assert_eq!(names, [b"a".to_vec(), b"user.b".to_vec()]);
        assert_eq!(sizes(node).await, XattrSizes { count: 2, bytes: 1 + 2 + 6 });
        let (x, y) = node.xattr_remove(&c, b"a").await.unwrap();
        assert_ne!(x.change, y.change);
        assert_eq!(node.xattr_list(&c).await.unwrap(), [b"user.b".to_vec()]);
        let long = vec![b'n'; 251];
        let set = node.xattr_set(&c, &long, b"", XattrHow::Either);
        refused(set, VfsError::NameTooLong).await;
        refused(node.xattr_set(&c, b"", b"", XattrHow::Either), VfsError::Invalid).await;
        let huge = vec![0; 65537];
        let set = node.xattr_set(&c, b"h", &huge, XattrHow::Either);
        refused(set, VfsError::XattrTooBig).await;
        node.xattr_set(&c, b"p", &pattern(1, 2000), XattrHow::Either).await.unwrap();
        assert_eq!(node.xattr_get(&c, b"p").await.unwrap(), pattern(1, 2000));
        assert_eq!(sizes(node).await, XattrSizes { count: 2, bytes: 6 + 1 + 2000 });
        // Attributes hidden from clients are not counted.
        node.dos_set(Dos { attributes: Some(Dos::HIDDEN), ..Dos::default() }).await.unwrap();
        assert_eq!(sizes(node).await.count, 2);
    }
    let s = b.root.symlink(&c, b"s", b"f", SetAttr::default()).await.unwrap().node;
    assert!(s.xattr_list(&c).await.unwrap().is_empty());
    assert_eq!(sizes(&s).await, XattrSizes::default());
    refused(s.xattr_set(&c, b"a", b"", XattrHow::Either), VfsError::NotSupported).await;
}

/// Data that other callers append to a file is read by the next call, to the last requested byte.
pub(crate) async fn reads_are_short_only_at_end(b: Bench) {
    let (f, g) = (b.file("f").await, b.file("g").await);
    let data = pattern(9, 300_000);
    b.write(&f, 0, &data).await;
    assert!(b.contents(&g).await.is_empty());
    g.copy_range(None, f.as_ref(), 0, 0, 0).await.unwrap();
    let (read, eof) = b.read(&g, 0, 200_000).await;
    assert!(!eof && read == data[..200_000]);
}

/// Each append is complete at its offset, and no two appends overlap.
pub(crate) async fn appends_never_overlap(b: Bench) {
    const THREADS: u8 = 4;
    const EACH: usize = 100;
    const BYTES: usize = 5000;
    let f = b.file("f").await;
    let add = |at, data: Vec<u8>| f.append(None, at, vec![Buf::from(data)], Stable::Unstable);
    refused(
        b.dir("d").await.append(None, AppendAt::End, vec![], Stable::Unstable),
        VfsError::IsDir,
    )
    .await;
    assert_eq!(add(AppendAt::End, vec![0xff; 10]).await.unwrap().at, 0);
    refused(add(AppendAt::Offset(9), vec![0xff]), VfsError::Access).await;
    for beside in [9, 11] {
        refused(add(AppendAt::Exactly(beside), vec![0xff]), VfsError::Delay).await;
    }
    assert_eq!(add(AppendAt::Exactly(10), vec![0xff; 2]).await.unwrap().at, 10);
    assert_eq!(add(AppendAt::Offset(12), vec![0xff; 3]).await.unwrap().at, 12);
    assert_eq!(add(AppendAt::Offset(20), vec![0xff; 5]).await.unwrap().at, 20, "behind a hole");
    let added = |who: u8| {
        let f = f.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let mut places = Vec::new();
            for round in 0..EACH {
                let at = match round % 3 {
                    0 => AppendAt::Offset(f.getattr().await.unwrap().size),
                    1 => AppendAt::Offset(f.getattr().await.unwrap().size + 7),
                    _ => AppendAt::End,
                };
                let stable = if round % 10 == 0 { Stable::Data } else { Stable::Unstable };
                let data = vec![Buf::from(vec![who; BYTES / 2]), Buf::from(vec![who; BYTES / 2])];
                match f.append(None, at, data, stable).await {
                    Ok(done) => {
                        assert_eq!(done.written.count, BYTES);
                        places.push((done.at, who));
                    }
                    // Another append was faster.
                    Err(e) => assert_eq!(e, VfsError::Access),
                }
            }
            places
        })
    };
    let mut places: Vec<_> = std::thread::scope(|s| {
        let threads: Vec<_> = (1..=THREADS).map(|who| s.spawn(move || added(who))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    places.sort_unstable();
    assert!(places.len() > EACH);
    let bytes = b.contents(&f).await;
    let mut end = 25;
    for (at, who) in places {
        let at = usize::try_from(at).unwrap();
        assert!(at >= end, "{at} is in front of {end}");
        assert!(bytes[end..at].iter().all(|x| *x == 0), "nobody wrote here");
        end = at + BYTES;
        assert!(bytes[at..end].iter().all(|x| *x == who), "{at}");
    }
    assert_eq!(end, bytes.len());
}
