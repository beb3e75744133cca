//! Compressed messages, from the client's side (MS-SMB2 sections 3.1.4.4 and 3.2.5.1.1.2).

use iobuf::Buf;
use smb_compress::message::{self, Agreed, Expansion};
use smb_proto::smb2::HEADER_LEN;
use smb_proto::smb2::header::PROTOCOL_ID;

use crate::error::{Error, Result};

/// Data of a WRITE that is worth compressing.
const DATA_MIN: usize = 4097;

/// What a connection agreed on.
pub(super) struct Compressing {
    pub(super) agreed: Agreed,
    /// Bytes of the largest payload.
    pub(super) largest: u32,
}

impl Compressing {
    /// Compresses a message with this data where that makes it shorter.
    pub(super) fn shrink(&self, head: Vec<u8>, data: Vec<Buf>) -> (Vec<u8>, Vec<Buf>) {
        let pieces: Vec<&[u8]> = data.iter().map(Buf::as_slice).collect();
        let len: usize = data.iter().map(Buf::len).sum();
        if len < DATA_MIN || !message::is_worthwhile(&pieces) {
            return (head, data);
        }
        match message::shrink(&head, &pieces, &self.agreed) {
            Some(shrunk) => (shrunk, Vec::new()),
            None => (head, data),
        }
    }

    /// Expands a message that came compressed.
    pub(super) fn expand(&self, message: &[u8]) -> Result<Buf> {
        let bad = |why: message::Broken| Error::Protocol(format!("a compressed answer: {why}"));
        let largest = usize::try_from(self.largest).unwrap_or(usize::MAX);
        let expansion = Expansion::begin(message, &self.agreed, largest).map_err(bad)?;
        let mut plain = vec![0; expansion.len()];
        expansion.expand(&mut plain).map_err(bad)?;
        if plain.len() < HEADER_LEN || !plain.starts_with(&PROTOCOL_ID) {
            return Err(Error::Protocol("a compressed answer is no message".into()));
        }
        Ok(Buf::from(plain))
    }
}
