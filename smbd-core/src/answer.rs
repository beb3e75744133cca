//! Turns the answers of commands into the bytes to send: chains, signatures, encryption.
//!
//! *Operation.* A command returns an [`Answer`]. [`Out`] gathers the answers of one message. [`Out::finish`] joins them, signs
//! each, and encrypts the whole if the request was encrypted (MS-SMB2 section 3.3.4.1).
//!
//! *Memory.* Bulk data is not copied; it is encrypted in place unless its buffer is shared.
//!
//! *Errors.* If a message cannot be signed or encrypted it is not sent, and its connection ends.

use std::sync::Arc;

use iobuf::{Buf, BufMut, Pages};
use rdma_transport::channel::{Payload, Place, Reply, UntilLeft};

use crate::conn::Conn;
use crate::crypto::Failed;
use crate::crypto::sign::{Sender, Signer};
use crate::in_flight::Guard;
use crate::session::{Channel, Session};
use crate::status::Status;
use crate::wire::file_id::FileId;
use crate::wire::transform::{self, Transform};
use crate::wire::{Flags, HEADER_LEN, Header};

/// The body of an error answer without data (MS-SMB2 section 2.2.2).
pub(crate) const ERROR_BODY: [u8; 9] = [9, 0, 0, 0, 0, 0, 0, 0, 0];

/// Bulk data of an answer.
#[derive(Debug)]
pub(crate) struct Bulk {
    /// Offset in the body for data that is sent inline: so far always the end of the body.
    pub(crate) at: usize,
    pub(crate) data: Vec<Buf>,
    /// Bytes after `data`; only if the server [does not access them](crate::request_context::RequestContext::unseen).
    pub(crate) pages: Option<Pages>,
    /// How they are sent.
    pub(crate) place: Place,
    /// True if they are signed or encrypted separately, as described in the body: then they may be sent outside an encrypted
    /// message.
    pub(crate) is_protected: bool,
}

/// The answer of a command.
#[derive(Default)]
pub(crate) struct Answer {
    /// Status of the header; an error only if `body` has more information than the error response without data.
    pub(crate) status: Status,
    /// The body, as returned by `emit`.
    pub(crate) body: Vec<u8>,
    pub(crate) bulk: Option<Bulk>,
    /// Token of the peer's memory to invalidate with the answer.
    pub(crate) invalidate: Option<u32>,
    /// The file for the next command of a related chain.
    pub(crate) opened: Option<FileId>,
    /// The session that the command made.
    pub(crate) session_id: Option<u64>,
    /// The tree that the command made.
    pub(crate) tree_id: Option<u32>,
    /// The signer, if it is not the connection's own key.
    pub(crate) seal: Option<Seal>,
    /// The preauthentication hash that it continues.
    pub(crate) hash: Option<Hash>,
}

impl Answer {
    /// Builds a success with this body.
    pub(crate) fn ok(body: Vec<u8>) -> Self {
        Self { body, ..Self::default() }
    }

    /// Builds an answer with another status and its own body: STATUS_BUFFER_OVERFLOW with the data that fitted,
    /// STATUS_STOPPED_ON_SYMLINK with its error data.
    pub(crate) fn with_status(status: Status, body: Vec<u8>) -> Self {
        Self { status, body, ..Self::default() }
    }
}

/// The signer of an answer.
pub(crate) enum Seal {
    /// The answer is not signed.
    None,
    /// The connection's own key.
    Channel(Arc<Channel>),
    /// The session's key, before the connection has its own.
    Session(Arc<Session>),
}

impl Seal {
    fn signer(&self) -> Option<&Signer> {
        match self {
            Self::None => None,
            Self::Channel(c) => c.signer.as_ref(),
            Self::Session(s) => s.secrets.get().map(|s| &s.signer),
        }
    }
}

/// The preauthentication hash that an answer continues.
pub(crate) enum Hash {
    /// The connection's hash.
    Connection,
    /// The hash of a logon to this session.
    Logon(u64),
}

/// One answer of a chain.
pub(crate) struct Message {
    /// Header and body.
    pub(crate) head: Vec<u8>,
    pub(crate) bulk: Option<Bulk>,
    pub(crate) invalidate: Option<u32>,
    pub(crate) seal: Seal,
    pub(crate) hash: Option<Hash>,
    /// True if the message with this answer should be compressed.
    pub(crate) compresses: bool,
}

impl Message {
    /// Returns the number of bytes after `head` in the message.
    fn inline(&self) -> usize {
        match &self.bulk {
            Some(Bulk { place: Place::Remote(_), .. }) | None => 0,
            Some(bulk) => {
                let pages = bulk.pages.as_ref().map_or(0, Pages::len);
                bulk.data.iter().map(Buf::len).sum::<usize>() + pages
            }
        }
    }

    /// Returns whether its data would be sent unencrypted outside the message.
    fn bares_data(&self) -> bool {
        self.bulk.as_ref().is_some_and(|b| {
            b.pages.is_some() || matches!(b.place, Place::Remote(_)) && !b.is_protected
        })
    }

    fn sign(&mut self) -> Result<(), Failed> {
        let Some(signer) = self.seal.signer() else { return Ok(()) };
        let flags =
            u32::from_le_bytes([self.head[16], self.head[17], self.head[18], self.head[19]]);
        self.head[16..20].copy_from_slice(&(flags | Flags::SIGNED).to_le_bytes());
        let signature = match &self.bulk {
            Some(Bulk { pages: Some(_), .. }) => return Err(Failed),
            Some(Bulk { at, data, place: Place::Inline | Place::Eligible, .. }) => {
                let at = (HEADER_LEN + at).min(self.head.len());
                let mut pieces = Vec::with_capacity(data.len() + 2);
                pieces.push(&self.head[..at]);
                pieces.extend(data.iter().map(Buf::as_slice));
                pieces.push(&self.head[at..]);
                signer.sign(Sender::Server, &pieces)?
            }
            _ => signer.sign(Sender::Server, &[&self.head])?,
        };
        self.head[Header::SIGNATURE].copy_from_slice(&signature);
        Ok(())
    }
}

/// The answers of a message that were not sent yet.
#[derive(Default)]
pub(crate) struct Out {
    first: Option<Message>,
    more: Vec<Message>,
    /// Guards to drop once the answers have left.
    pub(crate) until_left: Vec<Guard>,
    /// True if one of the answers should be compressed.
    compresses: bool,
    /// The session whose keys encrypt them.
    pub(crate) sealed_for: Option<Arc<Session>>,
}

impl Out {
    pub(crate) fn push(&mut self, message: Message) {
        self.compresses |= message.compresses;
        if self.first.is_none() && self.more.is_empty() {
            self.first = Some(message);
        } else {
            self.more.push(message);
        }
    }

    /// Joins all answers to one message without compression.
    pub(crate) fn finish(&mut self, conn: &Conn) -> Result<Option<Reply>, Failed> {
        self.join(conn)?.map(Joined::seal).transpose()
    }

    /// Joins all answers to one message: answers of a chain are padded to 8 bytes and give the offset of the next.
    pub(crate) fn join(&mut self, conn: &Conn) -> Result<Option<Joined>, Failed> {
        let Some(first) = self.first.take() else { return Ok(None) };
        let more = std::mem::take(&mut self.more);
        let is_chain = !more.is_empty();
        let mut left = more.len();
        let mut reply = Reply::default();
        if !self.until_left.is_empty() {
            reply.until_left = Some(UntilLeft::new(std::mem::take(&mut self.until_left)));
        }
        for mut m in std::iter::once(first).chain(more) {
            let len = m.head.len() + m.inline();
            let next = len.next_multiple_of(8);
            if is_chain {
                // Pad the last one too, as Windows does.
                m.head.resize(m.head.len() + next - len, 0);
            }
            if left > 0 {
                // A chain is far shorter than 4 GiB.
                let next = u32::try_from(next).map_err(|_| Failed)?;
                m.head[Header::NEXT].copy_from_slice(&next.to_le_bytes());
                left -= 1;
            }
            match &self.sealed_for {
                None => m.sign()?,
                Some(_) if m.bares_data() => return Err(Failed),
                Some(_) => {}
            }
            match m.hash {
                Some(Hash::Connection) => conn.hash(&[&m.head]),
                Some(Hash::Logon(session)) => conn.hash_logon(session, &[&m.head]),
                None => {}
            }
            let from = reply.head.len();
            if from == 0 && reply.payloads.is_empty() {
                reply.head = m.head;
            } else {
                reply.head.append(&mut m.head);
            }
            if let Some(Bulk { at, data, pages, place, .. }) = m.bulk {
                let at = from + HEADER_LEN + at;
                reply.payloads.push(Payload { at, data, pages, pad: 0, place });
            }
            reply.invalidate = reply.invalidate.or(m.invalidate);
        }
        let compresses = std::mem::take(&mut self.compresses);
        Ok(Some(Joined { reply, compresses, sealed_for: self.sealed_for.clone() }))
    }
}

/// Signed answers of one message.
pub(crate) struct Joined {
    pub(crate) reply: Reply,
    /// True if it should be compressed, which comes before encryption.
    pub(crate) compresses: bool,
    sealed_for: Option<Arc<Session>>,
}

impl Joined {
    /// Encrypts the message if the request was encrypted.
    pub(crate) fn seal(self) -> Result<Reply, Failed> {
        match &self.sealed_for {
            Some(session) => seal(session, self.reply),
            None => Ok(self.reply),
        }
    }
}

/// Builds a message that answers no request, encrypted with the keys of `session` if given.
pub(crate) fn notice(head: Vec<u8>, session: Option<&Session>) -> Result<Reply, Status> {
    let reply = Reply { head, ..Reply::default() };
    match session {
        Some(session) => seal(session, reply).map_err(|Failed| Status::INTERNAL_ERROR),
        None => Ok(reply),
    }
}

/// Returns writable memory with this data: the buffer itself if it is not shared, otherwise a copy.
pub(crate) fn writable(data: Buf) -> BufMut {
    data.try_mut().unwrap_or_else(|shared| {
        let mut own = BufMut::heap(shared.len());
        own.append(&shared);
        own
    })
}

/// Encrypts a message (MS-SMB2 section 3.1.4.3). Data for the peer's memory was encrypted separately and does not change.
fn seal(session: &Session, reply: Reply) -> Result<Reply, Failed> {
    let sealer = session.secrets.get().and_then(|s| s.sealer.as_ref()).ok_or(Failed)?;
    let mut reply = reply;
    let is_remote = |p: &mut Payload| matches!(p.place, Place::Remote(_));
    let remote: Vec<_> = reply.payloads.extract_if(.., is_remote).collect();
    let mut header = Transform {
        signature: [0; 16],
        nonce: sealer.nonce(),
        original_len: u32::try_from(reply.inline_len()).map_err(|_| Failed)?,
        session_id: session.id,
    };
    let aad = header.emit();
    let aad = &aad[transform::AAD];
    let Reply { head, payloads, invalidate, until_left, starts_tls: _ } = reply;
    let mut out = Vec::with_capacity(transform::LEN + head.len());
    out.extend_from_slice(&[0; transform::LEN]);
    out.extend_from_slice(&head);
    let mut data: Vec<(usize, Vec<BufMut>)> =
        payloads.into_iter().map(|p| (p.at, p.data.into_iter().map(writable).collect())).collect();
    {
        let mut pieces: Vec<&mut [u8]> = Vec::new();
        let mut rest = &mut out[transform::LEN..];
        let mut from = 0;
        for (at, bufs) in &mut data {
            let (before, after) = std::mem::take(&mut rest).split_at_mut(*at - from);
            pieces.push(before);
            pieces.extend(bufs.iter_mut().map(BufMut::filled_mut));
            (rest, from) = (after, *at);
        }
        pieces.push(rest);
        header.signature = sealer.seal_in_place(&header.nonce, aad, &mut pieces)?;
    }
    out[..transform::LEN].copy_from_slice(&header.emit());
    let inside = data.into_iter().map(|(at, bufs)| Payload {
        at: at + transform::LEN,
        data: bufs.into_iter().map(BufMut::freeze).collect(),
        pages: None,
        pad: 0,
        place: Place::Inline,
    });
    let remote = remote.into_iter().map(|p| Payload { at: p.at + transform::LEN, ..p });
    Ok(Reply {
        head: out,
        payloads: inside.chain(remote).collect(),
        invalidate,
        until_left,
        starts_tls: false,
    })
}
