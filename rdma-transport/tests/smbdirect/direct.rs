//! Payload transferred by RDMA Write and Read, and invalidation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rdma_transport::channel::{ChannelError, PullError, RemoteSeg};
use rdma_transport::limits;

use crate::common::{exhausted, run_by_virtual_time};
use crate::harness::*;

const BOTH: [Over; 2] = [Over::Loopback, Over::Iwarp];

async fn ready(over: Over) -> (Raw, Served) {
    let (mut raw, served) = server(over).await;
    raw.negotiate(REQUEST).await.unwrap();
    raw.grant(9).await;
    (raw, served)
}

async fn ask(raw: &mut Raw, ask: Ask) -> Option<Vec<u8>> {
    let message = ask.emit();
    raw.fragments(&message, &[1000]).await;
    raw.answer().await
}

/// The transport's part of BVT_Smb2OverRdmaChannel_ReadLargeFile and Smb2OverRdmaChannel_ReadMultipleOperation.
#[test]
fn answers_fill_named_regions() {
    for over in BOTH {
        run(async {
            let (mut raw, served) = ready(over).await;
            for len in [1, 4095, 4096, 4097, (1 << 20) - 1, (1 << 20) + 1, 8 << 20] {
                let seg = raw.writable(len);
                let answer = ask(&mut raw, Ask::read(len, vec![seg])).await.unwrap();
                assert_eq!(answer, b"read");
                assert!(raw.written(seg) == content(len), "{len}");
            }
            let t = &served.info.traffic;
            let written = 1 + 4095 + 4096 + 4097 + (1 << 20) - 1 + (1 << 20) + 1 + (8 << 20);
            assert_eq!(t.rdma_write.load(Ordering::Relaxed), written);
            assert!(t.inline_out.load(Ordering::Relaxed) < 4096);
        });
    }
}

/// A short answer leaves the rest of the regions unchanged.
#[test]
fn short_answer_fills_front_of_regions() {
    run(async {
        let (mut raw, _served) = ready(Over::Iwarp).await;
        let segs = [raw.writable(1000), raw.writable(1000), raw.writable(1000)];
        ask(&mut raw, Ask::read(1500, segs.to_vec())).await.unwrap();
        let whole: Vec<u8> = segs.iter().flat_map(|s| raw.written(*s)).collect();
        assert_eq!(whole[..1500], content(1500));
        assert!(whole[1500..].iter().all(|b| *b == 0));
    });
}

/// The transport's part of BVT_Smb2OverRdmaChannel_WriteLargeFile and Smb2OverRdmaChannel_WriteMultipleOperation.
#[test]
fn named_regions_are_read() {
    for over in BOTH {
        run(async {
            let (mut raw, served) = ready(over).await;
            let mut read = 0;
            for len in [1, 4096, 100_000, 131_072] {
                let seg = raw.readable(&content(len));
                assert!(ask(&mut raw, Ask::pull(vec![seg])).await.unwrap() == content(len));
                read += len as u64;
            }
            assert_eq!(served.info.traffic.rdma_read.load(Ordering::Relaxed), read);
            assert!(served.handle.pull(vec![]).await.unwrap().is_empty());
        });
    }
}

/// A pull may exceed the largest buffer.
#[test]
fn large_pull_uses_several_buffers() {
    for over in BOTH {
        run(async {
            let (mut raw, served) = ready(over).await;
            let data = content(8 << 20);
            let segs: Vec<RemoteSeg> =
                data.chunks(3_000_001).map(|part| raw.readable(part)).collect();
            let handle = served.handle.clone();
            let read_chunks = tokio::spawn(async move { handle.pull(segs).await });
            let quiet = async {
                raw.recv().await;
            };
            let read_chunks =
                tokio::select! { p = read_chunks => p.unwrap().unwrap(), () = quiet => panic!() };
            assert_eq!(read_chunks.len(), 8);
            let whole: Vec<u8> = read_chunks.iter().flat_map(|b| b.to_vec()).collect();
            assert!(whole == data);
            drop(read_chunks);
            crate::common::nobody_holds(&served.payload);
            let seg = RemoteSeg { handle: 1, len: 1 << 30, offset: 0 };
            assert!(served.handle.pull(vec![seg]).await.is_err(), "that is too much");
        });
    }
}

/// Pulls without memory fail, together with those queued after them, and the connection continues.
#[test]
fn pull_without_memory_fails_in_time() {
    run_by_virtual_time(async {
        let (mut raw, served) = ready(Over::Loopback).await;
        let (held, waiting) = exhausted(&served.payload);
        let data = content(100_000);
        let seg = raw.readable(&data);
        let began = tokio::time::Instant::now();
        let pull = |segs| {
            let handle = served.handle.clone();
            tokio::spawn(async move { handle.pull(segs).await })
        };
        for pulled in [pull(vec![seg]), pull(vec![seg, seg])] {
            assert_eq!(pulled.await.unwrap().unwrap_err(), PullError::NoMemory);
        }
        let took = began.elapsed();
        let most = limits::MEMORY_WAIT_MAX + Duration::from_secs(1);
        assert!((limits::MEMORY_WAIT_MAX..most).contains(&took), "{took:?}");
        drop(held);
        waiting.await.unwrap();
        assert!(ask(&mut raw, Ask::pull(vec![seg])).await.unwrap() == data);
    });
}

/// A message in fragments for which no memory comes is refused, and the connection goes on.
#[test]
fn fragments_without_memory_are_refused_in_time() {
    run_by_virtual_time(async {
        let (mut raw, served) = ready(Over::Loopback).await;
        let (held, waiting) = exhausted(&served.payload);
        let data = content(100_000);
        let began = tokio::time::Instant::now();
        assert!(ask(&mut raw, Ask::echo(data.clone())).await.unwrap() == b"missing");
        let took = began.elapsed();
        let most = limits::MEMORY_WAIT_MAX + Duration::from_secs(1);
        assert!((limits::MEMORY_WAIT_MAX..most).contains(&took), "{took:?}");
        drop(held);
        waiting.await.unwrap();
        assert!(ask(&mut raw, Ask::echo(data.clone())).await.unwrap() == data);
        crate::common::nobody_holds(&served.payload);
    });
}

/// Smb2OverRdmaChannel_ReadWriteMultipleBufferDescriptorList: the maximum of one request.
#[test]
fn many_descriptors_keep_order() {
    for over in BOTH {
        run(async {
            let (mut raw, _served) = ready(over).await;
            let data = content(4095 * 16);
            let segs: Vec<RemoteSeg> = data.chunks(16).map(|part| raw.readable(part)).collect();
            let answer = ask(&mut raw, Ask::pull(segs.clone())).await.unwrap();
            assert!(answer == data);
            for seg in segs {
                raw.qp.release(seg.handle).unwrap();
            }
            let segs: Vec<RemoteSeg> = (0..4095).map(|_| raw.writable(16)).collect();
            ask(&mut raw, Ask::read(4095 * 16, segs.clone())).await.unwrap();
            let whole: Vec<u8> = segs.iter().flat_map(|s| raw.written(*s)).collect();
            assert!(whole == data);
        });
    }
}

/// Smb2OverRdmaChannel_InvalidBufferDescriptor_Offset, _Length, _Token, _DeregisteredBuffer
#[test]
fn unknown_region_ends_own_connection() {
    type Spoil = fn(&mut Raw, &mut RemoteSeg);
    let spoils: [Spoil; 4] = [
        |_, seg| seg.offset += 1,
        |_, seg| seg.offset = seg.offset.wrapping_sub(1),
        |_, seg| seg.handle ^= 0x5555,
        |raw, seg| drop(raw.qp.release(seg.handle)),
    ];
    for over in BOTH {
        for spoil in spoils {
            for pull in [false, true] {
                run(async {
                    let (mut raw, served) = ready(over).await;
                    let mut seg =
                        if pull { raw.readable(&content(5000)) } else { raw.writable(5000) };
                    spoil(&mut raw, &mut seg);
                    let request =
                        if pull { Ask::pull(vec![seg]) } else { Ask::read(5000, vec![seg]) };
                    assert_eq!(ask(&mut raw, request).await, None, "{over:?} {pull}");
                    assert!(matches!(served.end.await.unwrap(), ChannelError::Closed(_)));
                    crate::common::nobody_holds(&served.recvs);
                    crate::common::nobody_holds(&served.payload);
                });
            }
        }
    }
}

/// The transport's part of BVT_SMB2OverRdma_SMB302_Read_RemoteInvalidation and its siblings: an invalidated token cannot be used
/// again, any other can.
#[test]
fn last_fragment_invalidates_token() {
    for over in BOTH {
        run(async {
            for rest in [10, 3000] {
                let (mut raw, served) = ready(over).await;
                let seg = raw.writable(100);
                let echo = Ask::echo(bytes(rest, 1));
                let request = Ask { invalidate: Some(seg.handle), ..echo };
                raw.fragments(&request.emit(), &[1000]).await;
                let mut fragments = 0;
                loop {
                    let d = raw.data().await.unwrap();
                    fragments += u32::from(!d.data.is_empty());
                    let last = !d.data.is_empty() && d.header.remaining == 0;
                    assert_eq!(raw.invalidated.len(), usize::from(last), "once, and at the end");
                    if last {
                        break;
                    }
                }
                assert_eq!(fragments, if rest == 10 { 1 } else { 3 });
                assert_eq!(raw.invalidated, [seg.handle]);
                assert_eq!(served.info.traffic.invalidations.load(Ordering::Relaxed), 1);
                assert_eq!(ask(&mut raw, Ask::read(100, vec![seg])).await, None);
            }
            let (mut raw, _served) = ready(over).await;
            let seg = raw.writable(100);
            for _ in 0..3 {
                ask(&mut raw, Ask::read(100, vec![seg])).await.unwrap();
            }
        });
    }
}
