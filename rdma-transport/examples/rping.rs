//! The peer of `rping` (rdmacm-utils), to test this iWARP against a kernel's.
//!
//! Usage: `cargo run -p rdma-transport --example rping -- ADDR:PORT [crc] [dial]`: serves `rping -c -a ADDR -p PORT -C N`; with
//! `dial` it connects to `rping -s -a ADDR -p PORT -C 100` and checks the returned data.
// Panics are acceptable in an example.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use iobuf::{Buf, BufMut};
use rdma_transport::iwarp::{Iwarp, IwarpConfig, violations};
use rdma_transport::verbs::{
    Completion, ConnectParams, Connected, Provider, QueuePair, Region, RemoteSeg, Work, WorkId,
    WorkKind,
};

/// Waits for one completion of this kind.
async fn wait(
    qp: &mut Box<dyn QueuePair>,
    seen: &mut Vec<Completion>,
    kind: WorkKind,
) -> Result<Completion, String> {
    loop {
        if let Some(i) = seen.iter().position(|c| c.kind == kind) {
            let c = seen.remove(i);
            if c.result.is_ok() {
                return Ok(c);
            }
            // All completions arrive before the reason of the end.
            loop {
                poll_fn(|cx| qp.poll(cx, seen)).await.map_err(|down| format!("{c:?}: {down}"))?;
            }
        }
        poll_fn(|cx| qp.poll(cx, seen)).await.map_err(|down| down.reason)?;
    }
}

fn advert(c: &Completion) -> RemoteSeg {
    let b = c.buf.as_ref().unwrap().filled();
    RemoteSeg {
        offset: u64::from_be_bytes(*b.first_chunk().unwrap()),
        handle: u32::from_be_bytes(*b[8..].first_chunk().unwrap()),
        len: u32::from_be_bytes(*b[12..].first_chunk().unwrap()),
    }
}

async fn serve(connected: Connected) -> Result<(), String> {
    let Connected { mut qp, .. } = connected;
    let mut seen = Vec::new();
    let recv = |id| Work::Recv { id: WorkId(id), into: BufMut::heap(64) };
    let go = || Work::Send { id: WorkId(0), from: vec![Buf::from(vec![0; 16])], invalidate: None };
    qp.post((0..4).map(recv).collect()).unwrap();
    for round in 0.. {
        // Reads the client's source buffer, then lets the client continue.
        let Ok(c) = wait(&mut qp, &mut seen, WorkKind::Recv).await else {
            let copied = iobuf::copied_bytes();
            println!("{round} rounds, {:?}, {copied} bytes copied so far", qp.counters());
            return Ok(());
        };
        let from = advert(&c);
        let into = BufMut::heap(from.len as usize);
        let read = Work::Read { id: WorkId(9), from: vec![from], into };
        qp.post(vec![read, recv(1), go()]).unwrap();
        let data = wait(&mut qp, &mut seen, WorkKind::Read).await?.buf.unwrap();
        assert_eq!(data.len(), from.len as usize);
        wait(&mut qp, &mut seen, WorkKind::Send).await?;
        // Writes the data back to the client's sink buffer.
        let to = advert(&wait(&mut qp, &mut seen, WorkKind::Recv).await?);
        let write = Work::Write { id: WorkId(8), from: data.freeze(), to };
        qp.post(vec![write, recv(2), go()]).unwrap();
        wait(&mut qp, &mut seen, WorkKind::Write).await?;
        wait(&mut qp, &mut seen, WorkKind::Send).await?;
    }
    Ok(())
}

/// Acts as `rping -c`: the peer reads our source buffer and writes the data to our sink buffer.
async fn dial(connected: Connected, size: usize) -> Result<(), String> {
    let Connected { mut qp, .. } = connected;
    let mut seen = Vec::new();
    for round in 0..100u8 {
        // rping treats it as a C string.
        let letters = (b'A'..b'z').cycle().skip(usize::from(round)).take(size - 1);
        let text: Vec<u8> = letters.chain([0]).collect();
        let source = qp.register(Region::Readable(Buf::from(text.clone()))).unwrap();
        let sink = qp.register(Region::Writable(BufMut::heap(size))).unwrap();
        for at in [source, sink] {
            let mut advert = at.offset.to_be_bytes().to_vec();
            advert.extend(at.handle.to_be_bytes());
            advert.extend(at.len.to_be_bytes());
            let from = vec![Buf::from(advert)];
            qp.post(vec![
                Work::Recv { id: WorkId(1), into: BufMut::heap(64) },
                Work::Send { id: WorkId(0), from, invalidate: None },
            ])
            .unwrap();
            wait(&mut qp, &mut seen, WorkKind::Send).await?;
            wait(&mut qp, &mut seen, WorkKind::Recv).await?;
        }
        qp.release(source.handle);
        let Some(Region::Writable(mut got)) = qp.release(sink.handle) else { panic!("no sink") };
        assert!(got.whole_mut() == text, "round {round}");
    }
    println!("100 rounds of {size} bytes, {:?}", qp.counters());
    qp.disconnect();
    while poll_fn(|cx| qp.poll(cx, &mut seen)).await.is_ok() {}
    Ok(())
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let at = args.first().expect("ADDR:PORT").parse().expect("ADDR:PORT");
    let is = |word: &str| args.iter().any(|a| a == word);
    let config = IwarpConfig {
        crc: is("crc"),
        // Linux siw needs this delay.
        first_fpdu_delay: Duration::from_millis(500),
        ..IwarpConfig::default()
    };
    let params = ConnectParams {
        private_data: Bytes::new(),
        recvs: 8,
        sends: 8,
        reads_out: 8,
        reads_in: 8,
        recv_size: 64,
    };
    if is("dial") {
        let c = Iwarp::new(config).connect(at, params).await.expect("start-up");
        println!("{:?}", dial(c, 1000).await);
        return;
    }
    let mut listener = Iwarp::new(config).listen(at).await.expect("listen");
    loop {
        let incoming = listener.accept().await.expect("accept");
        let connected = incoming.accept(params.clone()).await.expect("start-up");
        println!("connected: {}", connected.peer);
        println!("{:?}", serve(connected).await);
        println!("{:?}", violations().into_iter().filter(|v| v.1 > 0).collect::<Vec<_>>());
    }
}
