//! Compressed messages (MS-SMB2 sections 3.1.4.4 and 3.3.5.2.1.2).
//!
//! *Operation.* [`open`] expands a compressed message. [`shrink`] compresses an answer on request of its command, after signing and
//! before encryption. A small sample decides whether data is worth the work; other data is sent unchanged. Messages of more than
//! [`IN_PLACE_MAX`] are processed by threads of the engine, one for each processor at once, of which one address may use half.
//!
//! *Memory.* A message waits for heap memory ([`iobuf::Pool::pay`], which has a total, a part of each client and an order) for its
//! copy and for the length in its header, before either is allocated. Before a logon a message may expand to [`IN_PLACE_MAX`].
//!
//! *Errors.* A message that breaks a rule, and any compressed message without agreed compression, ends the connection. So does one
//! that gets no memory or thread for [`MESSAGE_WAIT_MAX`]: its message id may be compressed, so no answer fits. That is counted as
//! a limit and not as the client's fault, and the log says which of both was missing. An answer without a thread is sent unchanged.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use audit::PeerText;
use iobuf::{Buf, BufMut};
use rdma_transport::channel::{Payload, Place, ReadChunkData, Reply};
use rdma_transport::count;
use rdma_transport::limits::MESSAGE_WAIT_MAX;
use rdma_transport::parts::Limit;
use rdma_transport::refused::{self, Refused};
use smb_compress::message::{self, Agreed, BESIDE_PAYLOAD, Expansion};
use vfs::engine::threads::Engine;
use vfs::{VfsError, VfsResult};

use crate::conn::Conn;
use crate::limits::{self, COMPRESSED_ANSWER_MIN};
use crate::locate;
use crate::server_state::ServerState;
use crate::wire::HEADER_LEN;
use crate::wire::compression::Compression;
use crate::wire::header::PROTOCOL_ID;

/// Messages of up to this many bytes are processed in place: a fraction of a millisecond.
const IN_PLACE_MAX: usize = 64 << 10;
/// An answer that waits longer than this for compression is sent unchanged.
const ANSWER_WAIT_MAX: Duration = Duration::from_millis(100);

/// Byte counts of messages since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Answers before compression.
    pub sent_plain: u64,
    /// The same answers as sent.
    pub sent_compressed: u64,
    /// Requests as received.
    pub received_compressed: u64,
    /// The same requests expanded.
    pub received_plain: u64,
}

static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

fn count([plain, small]: [usize; 2], of: [usize; 2]) {
    COUNTS[of[0]].fetch_add(plain as u64, Ordering::Relaxed);
    COUNTS[of[1]].fetch_add(small as u64, Ordering::Relaxed);
}

/// Returns the counts so far.
pub fn bytes() -> Bytes {
    let [sent_plain, sent_compressed, received_plain, received_compressed] =
        [0, 1, 2, 3].map(|n| COUNTS[n].load(Ordering::Relaxed));
    Bytes { sent_plain, sent_compressed, received_compressed, received_plain }
}

/// Returns the agreed compression of the connection; `None` without one.
fn agreed(conn: &Conn) -> Option<(&Agreed, usize)> {
    let n = conn.negotiated()?;
    let largest = n.read_max.max(n.write_max).max(n.transact_max);
    let largest = usize::try_from(largest).ok()?;
    (!n.compression.algorithms.is_empty()).then_some((&n.compression, largest))
}

/// Returns whether answers of this connection may be compressed.
pub(crate) fn is_agreed(conn: &Conn) -> bool {
    agreed(conn).is_some()
}

/// Why a message was not expanded. Either ends the connection.
pub(crate) enum NotOpened {
    /// The client broke this rule.
    Broken(Cow<'static, str>),
    /// The gateway had no memory for it in time, which is not the client's fault.
    NoMemory,
    /// The gateway had no thread for it, which is not the client's fault.
    NoThread(NoThread),
}

/// Why no thread expanded a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoThread {
    /// All were busy for [`MESSAGE_WAIT_MAX`].
    Busy,
    /// The host starts none, or the work on it failed.
    Failed,
}

impl NoThread {
    /// Returns what to do about it.
    fn remedy(self) -> &'static str {
        match self {
            Self::Busy => "let the client compress less at once, or set `smb: {compression: off}`",
            Self::Failed => {
                "see the log before; raise the limit of threads of the gateway's process (`TasksMax` of its unit)"
            }
        }
    }

    /// Logs that a client's connection ends for this reason.
    pub(crate) fn note(self, peer: SocketAddr) {
        let [Limit { name: rule, .. }, _] = limits::compressing();
        let remedy = self.remedy();
        if self == Self::Failed {
            // A limit that is met counts itself.
            count::limit_met(rule);
        }
        let (user, share) = (PeerText::default(), PeerText::default());
        if refused::record(Refused { peer: peer.ip(), user, share, rule, remedy: remedy.into() }) {
            tracing::warn!(%peer, rule, "the gateway had no thread to expand a compressed message; {remedy}");
        }
    }
}

/// Runs work of several milliseconds on a thread of the engine, one of those that never wait for a disk.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, NoThread> {
    let done: VfsResult<T> = Engine::common().run_cached(move || Ok(work())).await;
    done.map_err(|e| match e {
        VfsError::Delay => NoThread::Busy,
        _ => NoThread::Failed,
    })
}

impl From<&'static str> for NotOpened {
    fn from(why: &'static str) -> Self {
        Self::Broken(why.into())
    }
}

impl From<message::Broken> for NotOpened {
    fn from(why: message::Broken) -> Self {
        Self::Broken(why.to_string().into())
    }
}

/// Expands a message. Returns it as if it had not been compressed, or the reason to end the connection.
pub(crate) async fn open(
    core: &ServerState,
    conn: &Conn,
    body: Buf,
    read_chunks: Vec<ReadChunkData>,
) -> Result<(Buf, Vec<ReadChunkData>), NotOpened> {
    let (agreed, largest) = agreed(conn).ok_or("compression was not agreed on")?;
    if read_chunks.iter().any(|chunk| chunk.at != body.len()) {
        return Err("its data is elsewhere".into());
    }
    let mut pieces = vec![body];
    pieces.extend(read_chunks.into_iter().flat_map(|chunk| chunk.data));
    let came: usize = pieces.iter().map(Buf::len).sum();
    let copied = if pieces.len() > 1 { came } else { 0 };
    // The part of an unchained message before its stream is not in the length of the header, and not longer than the message.
    let named = Compression::original_len(&pieces[0]);
    let named = named.map_err(|e| NotOpened::Broken(e.to_string().into()))?;
    let named = usize::try_from(named).unwrap_or(usize::MAX);
    let most = named.min(largest.saturating_add(BESIDE_PAYLOAD));
    let is_small = most.max(came) <= IN_PLACE_MAX;
    if !is_small && !conn.is_used() {
        return Err("it is too large before a logon".into());
    }
    let pay = conn.info.pool.pay(most + came + copied);
    let paid =
        tokio::time::timeout(MESSAGE_WAIT_MAX, pay).await.map_err(|_| NotOpened::NoMemory)?;
    let message = match <[Buf; 1]>::try_from(pieces) {
        Ok([one]) => one,
        Err(several) => joined(&several),
    };
    let len = Expansion::begin(&message, agreed, largest)?.len();
    count([len, message.len()], [2, 3]);
    let work = {
        let agreed = agreed.clone();
        move || {
            let mut out = vec![0; len];
            let expansion = Expansion::begin(&message, &agreed, largest)?;
            expansion.expand(&mut out).map(|()| out)
        }
    };
    let plain = if is_small {
        work()
    } else {
        let thread = core.compressing.take(conn.info.peer.ip(), 1, MESSAGE_WAIT_MAX).await;
        let _thread = thread.ok_or(NotOpened::NoThread(NoThread::Busy))?;
        let plain = tokio::time::timeout(MESSAGE_WAIT_MAX, on_thread(work)).await;
        plain.unwrap_or(Err(NoThread::Busy)).map_err(NotOpened::NoThread)?
    }?;
    if !plain.starts_with(&PROTOCOL_ID) {
        return Err("what it expands to is no message".into());
    }
    Ok(split(BufMut::kept(plain, Box::new(paid)).freeze()))
}

/// Copies the pieces of a message to new memory.
fn joined(pieces: &[Buf]) -> Buf {
    let mut whole = Vec::with_capacity(pieces.iter().map(Buf::len).sum());
    pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
    iobuf::copied_note(whole.len());
    Buf::from(whole)
}

/// Splits the data of a WRITE from the bytes before it.
fn split(mut message: Buf) -> (Buf, Vec<ReadChunkData>) {
    let total = message.len();
    match locate::write(&message, total) {
        Some((at, len)) if len > 0 && at < total => {
            let head = message.split_to(at);
            (head, vec![ReadChunkData { at, data: vec![message] }])
        }
        _ => (message, Vec::new()),
    }
}

/// Compresses an answer if that makes it shorter.
pub(crate) async fn shrink(core: &ServerState, conn: &Conn, reply: Reply) -> Reply {
    let Some((agreed, _)) = agreed(conn) else { return reply };
    let is_inside = |p: &Payload| p.pages.is_none() && !matches!(p.place, Place::Remote(_));
    let plain = reply.inline_len();
    if !reply.payloads.iter().all(is_inside) {
        return reply;
    }
    let (head, data) = pieces(&reply);
    if plain - head.len() < COMPRESSED_ANSWER_MIN || !message::is_worthwhile(&data) {
        return reply;
    }
    let (reply, shrunk) = if plain <= IN_PLACE_MAX {
        let shrunk = compress(&reply, agreed);
        (reply, shrunk)
    } else {
        let ip = conn.info.peer.ip();
        let Some(_turn) = core.compressing.take(ip, 1, ANSWER_WAIT_MAX).await else {
            return reply;
        };
        let agreed = agreed.clone();
        let (reply, shrunk) = elsewhere(reply, move |reply| compress(reply, &agreed)).await;
        let shrunk = shrunk.unwrap_or_else(|why| {
            tracing::debug!(peer = %conn.info.peer, ?why, "an answer is sent as it is");
            None
        });
        (reply, shrunk)
    };
    let Some(shrunk) = shrunk else { return reply };
    count([plain, shrunk.len()], [0, 1]);
    let all = conn.info.pool.pay_now(shrunk.len()).hold(shrunk).freeze();
    let at = all.len().min(HEADER_LEN);
    let data = vec![all.slice(at..all.len())];
    let payload = Payload { at, data, pages: None, pad: 0, place: Place::Inline };
    Reply { head: all[..at].to_vec(), payloads: vec![payload], ..reply }
}

/// Runs work on an answer on a thread. Returns the answer whole whatever becomes of the work, and its result.
async fn elsewhere<T: Send + 'static>(
    reply: Reply,
    work: impl FnOnce(&Arc<Reply>) -> T + Send + 'static,
) -> (Reply, Result<T, NoThread>) {
    let reply = Arc::new(reply);
    let its = reply.clone();
    let done = on_thread(move || {
        let done = work(&its);
        // The caller takes the answer back when this is done.
        drop(its);
        done
    });
    let done = done.await;
    // A thread that broke down may still hold it: then only its head is copied.
    (Arc::unwrap_or_clone(reply), done)
}

fn compress(reply: &Reply, agreed: &Agreed) -> Option<Vec<u8>> {
    let (head, pieces) = pieces(reply);
    message::shrink(head, &pieces, agreed)
}

/// Splits an answer into the part that is never compressed, its header and the bytes before its data, and the rest.
fn pieces(reply: &Reply) -> (&[u8], Vec<&[u8]>) {
    let mut at = reply.payloads.first().map_or(HEADER_LEN, |p| p.at).min(reply.head.len());
    let head = &reply.head[..at];
    let mut pieces = Vec::with_capacity(reply.payloads.len() + 1);
    for payload in &reply.payloads {
        pieces.push(&reply.head[at..payload.at]);
        pieces.extend(payload.data.iter().map(Buf::as_slice));
        at = payload.at;
    }
    pieces.push(&reply.head[at..]);
    pieces.retain(|piece| !piece.is_empty());
    (head, pieces)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn answer_whose_compression_breaks_down_is_whole() {
        let payload = Payload {
            at: HEADER_LEN,
            data: vec![Buf::from(vec![7; IN_PLACE_MAX])],
            pages: None,
            pad: 0,
            place: Place::Inline,
        };
        let reply = Reply { payloads: vec![payload], ..Reply::of(vec![1; HEADER_LEN + 16]) };
        let plain: Vec<u8> = reply.pieces().flatten().copied().collect();
        let (hold, held) = mpsc::channel();
        let (whole, done) = elsewhere(reply, move |its| {
            hold.send(its.clone()).unwrap();
            panic!("the compressor breaks down");
        })
        .await;
        let _held = held.recv().unwrap();
        let done: Result<(), NoThread> = done;
        assert_eq!(done, Err(NoThread::Failed));
        assert_eq!(whole.pieces().flatten().copied().collect::<Vec<u8>>(), plain);
    }
}
