//! Opens encrypted messages (MS-SMB2 section 3.3.5.2.1.1).
//!
//! *Memory.* A message in its own buffers is decrypted in place; a small message, which shares its buffer with others, is decrypted
//! into new memory.
//!
//! *Errors.* Returns the reason for the log and ends the connection, because the sender does not have the keys.

use std::borrow::Cow;
use std::sync::Arc;

use iobuf::{Buf, BufMut};
use rdma_transport::channel::ReadChunkData;

use crate::conn::Conn;
use crate::locate;
use crate::session::Session;
use crate::wire::transform::{self, Transform};
use crate::wire::{Header, compression};

type Opened = (Arc<Session>, Buf, Vec<ReadChunkData>);

/// Decrypts a message. Returns the session of its keys, and the message as if it had come unencrypted.
pub(crate) fn open(
    conn: &Conn,
    body: Buf,
    read_chunks: Vec<ReadChunkData>,
) -> Result<Opened, Cow<'static, str>> {
    let header = Transform::parse(&body).map_err(|fault| fault.to_string())?;
    let channel = conn.channel(header.session_id).ok_or("no such session")?;
    let session = channel.session.clone();
    let opener = session.secrets.get().and_then(|s| s.opener.as_ref()).ok_or("no keys")?;
    let aad = &body[transform::AAD];
    let mut pieces = ciphertext(conn, &body, read_chunks)?;
    let total: usize = pieces.iter().map(BufMut::len).sum();
    if usize::try_from(header.original_len) != Ok(total) {
        return Err("OriginalMessageSize".into());
    }
    {
        let mut pieces: Vec<&mut [u8]> = pieces.iter_mut().map(BufMut::filled_mut).collect();
        opener
            .open_in_place(&header.nonce, aad, &mut pieces, &header.signature)
            .map_err(|_| "it cannot be decrypted")?;
    }
    let mut pieces: Vec<Buf> = pieces.into_iter().map(BufMut::freeze).collect();
    if pieces.first().is_some_and(|piece| piece.starts_with(&compression::PROTOCOL_ID)) {
        // The code that expands the message checks its session.
        let body = pieces.remove(0);
        let bulk = ReadChunkData { at: body.len(), data: pieces };
        return Ok((session, body, vec![bulk]));
    }
    let (message, read_chunks) = join(conn, &mut pieces, total);
    let inner = Header::parse(&message).map_err(|fault| fault.to_string())?;
    if inner.session_id != header.session_id {
        return Err("a message of another session".into());
    }
    Ok((session, message, read_chunks))
}

/// Returns the ciphertext in writable memory.
fn ciphertext(
    conn: &Conn,
    body: &Buf,
    read_chunks: Vec<ReadChunkData>,
) -> Result<Vec<BufMut>, &'static str> {
    let inside = &body[transform::LEN..];
    let copy = |bytes: &[u8]| {
        iobuf::copied_note(bytes.len());
        counted(conn, bytes.to_vec())
    };
    match read_chunks.into_iter().next() {
        None if inside.is_empty() => Err("empty"),
        None => Ok(vec![copy(inside)]),
        Some(bulk) if bulk.at == transform::LEN && inside.is_empty() => {
            let own = |data: Buf| data.try_mut().unwrap_or_else(|shared| copy(&shared));
            Ok(bulk.data.into_iter().map(own).collect())
        }
        Some(_) => Err("its ciphertext stands elsewhere"),
    }
}

/// Bytes of a decrypted message on the heap that are not counted.
const FREE_MAX: usize = 8 << 10;

/// Puts decrypted bytes in memory that is counted until the command is done. This cannot wait, because the ciphertext holds pool
/// buffers; an excess delays the connection's next large message instead.
fn counted(conn: &Conn, bytes: Vec<u8>) -> BufMut {
    match bytes.len() {
        0..=FREE_MAX => BufMut::kept(bytes, Box::new(())),
        n => conn.info.pool.pay_now(n).hold(bytes),
    }
}

/// Builds the message from its pieces: the data of a WRITE, the only large command, remains in pieces.
fn join(conn: &Conn, pieces: &mut Vec<Buf>, total: usize) -> (Buf, Vec<ReadChunkData>) {
    if pieces.len() == 1 {
        return (pieces.remove(0), Vec::new());
    }
    if let Some(first) = pieces.first()
        && let Some((at, _)) = locate::write(first, total)
        && at <= first.len()
    {
        let mut data = std::mem::take(pieces);
        let message = data[0].split_to(at);
        data.retain(|d| !d.is_empty());
        return (message, vec![ReadChunkData { at, data }]);
    }
    let mut whole = Vec::with_capacity(total);
    pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
    iobuf::copied_note(total);
    (counted(conn, whole).freeze(), Vec::new())
}
