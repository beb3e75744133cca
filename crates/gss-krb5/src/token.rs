//! MIC and Wrap tokens (RFC 4121 section 4.2).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::rand;

use crate::enctype::{BLOCK, TAG_MAX, UsageKeys};
use crate::tag::{HEADER, Tag};
use crate::{Enctype, Failed, cts, pieces};

const TOK_MIC: [u8; 2] = [4, 4];
const TOK_WRAP: [u8; 2] = [5, 4];
const SENT_BY_ACCEPTOR: u8 = 1;
const SEALED: u8 = 2;
const ACCEPTOR_SUBKEY: u8 = 4;

/// The side of the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server.
    Acceptor,
    /// The client.
    Initiator,
}

/// The bytes before and after a wrapped message, which was encrypted in place.
#[derive(Clone, Copy, Debug)]
pub struct Wrapped {
    head: [u8; HEADER + BLOCK],
    head_len: usize,
    tail: Tag,
}

impl Wrapped {
    /// Returns the bytes before the message.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// Returns the bytes after the message.
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }
}

/// The position of the plaintext in a token that was unwrapped in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwrapped {
    /// SND_SEQ of the token. RPCSEC_GSS has its own sequence numbers and ignores it (RFC 2203 section 5.3.3.1).
    pub sequence: u64,
    /// Whether the message was encrypted. Callers must refuse unencrypted messages if confidentiality is required.
    pub is_sealed: bool,
    /// Offset of the plaintext.
    pub start: usize,
    /// Length of the plaintext, in bytes.
    pub len: usize,
}

/// The keys of an established context for both directions. Threads may share it, because it has no state.
pub struct Context {
    enctype: Enctype,
    role: Role,
    has_acceptor_subkey: bool,
    own_seal: UsageKeys,
    own_sign: UsageKeys,
    peer_seal: UsageKeys,
    peer_sign: UsageKeys,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Context");
        out.field("enctype", &self.enctype).field("role", &self.role).finish_non_exhaustive()
    }
}

impl Context {
    /// Builds a context from a protocol key: the acceptor's subkey if it asserted one, as all acceptors with these encryption types
    /// do (RFC 4121 section 2).
    ///
    /// # Errors
    ///
    /// The key has the wrong length for the encryption type.
    pub fn new(
        enctype: Enctype,
        key: &[u8],
        role: Role,
        has_acceptor_subkey: bool,
    ) -> Result<Self, Failed> {
        // RFC 4121 section 2: KG-USAGE-ACCEPTOR-SEAL, -ACCEPTOR-SIGN, -INITIATOR-SEAL, -INITIATOR-SIGN.
        let [acceptor, initiator] = [[22, 23], [24, 25]];
        let (own, peer) = match role {
            Role::Acceptor => (acceptor, initiator),
            Role::Initiator => (initiator, acceptor),
        };
        let keys = |usage| UsageKeys::derive(enctype, key, usage);
        let ([own_seal, own_sign], [peer_seal, peer_sign]) = (own.map(keys), peer.map(keys));
        Ok(Self {
            enctype,
            role,
            has_acceptor_subkey,
            own_seal: own_seal?,
            own_sign: own_sign?,
            peer_seal: peer_seal?,
            peer_sign: peer_sign?,
        })
    }

    /// Returns the encryption type of the keys.
    #[must_use]
    pub fn enctype(&self) -> Enctype {
        self.enctype
    }

    /// Returns the length of a MIC token, in bytes.
    #[must_use]
    pub fn mic_len(&self) -> usize {
        HEADER + self.enctype.tag_len()
    }

    /// Returns the number of bytes that sealing adds before and after the message.
    #[must_use]
    pub fn seal_overhead(&self) -> (usize, usize) {
        (HEADER + BLOCK, HEADER + self.enctype.tag_len())
    }

    fn flags(&self, sender: Role) -> u8 {
        let subkey = if self.has_acceptor_subkey { ACCEPTOR_SUBKEY } else { 0 };
        subkey | if sender == Role::Acceptor { SENT_BY_ACCEPTOR } else { 0 }
    }

    fn peer(&self) -> Role {
        match self.role {
            Role::Acceptor => Role::Initiator,
            Role::Initiator => Role::Acceptor,
        }
    }

    /// Computes the MIC token of a message (RFC 4121 section 4.2.6.1).
    #[must_use]
    pub fn mic(&self, sequence: u64, message: &[&[u8]]) -> Tag {
        let mut header = [0xff; HEADER];
        header[..2].copy_from_slice(&TOK_MIC);
        header[2] = self.flags(self.role);
        header[8..].copy_from_slice(&sequence.to_be_bytes());
        let whole = message.iter().copied().chain([&header[..]]);
        Tag::joined(&header, &cts::checksum(&self.own_sign, whole))
    }

    /// Verifies the peer's MIC token of a message and returns its SND_SEQ.
    ///
    /// # Errors
    ///
    /// The token does not match context and message.
    pub fn verify_mic(&self, token: &[u8], message: &[&[u8]]) -> Result<u64, Failed> {
        let (header, tag) = token.split_first_chunk::<HEADER>().ok_or(Failed)?;
        let [a, b, flags, filler @ ..] = header;
        let has_filler = filler.starts_with(&[0xff; 5]);
        if [*a, *b] != TOK_MIC || *flags != self.flags(self.peer()) || !has_filler {
            return Err(Failed);
        }
        let whole = message.iter().copied().chain([&header[..]]);
        verify_slices_are_equal(&cts::checksum(&self.peer_sign, whole), tag)?;
        Ok(sequence(header))
    }

    /// Seals a message in place in one pass (RFC 4121 section 4.2.6.2). The confounder is random.
    ///
    /// # Errors
    ///
    /// The system has no random numbers. The message may have been modified.
    pub fn wrap(&self, sequence: u64, message: &mut [&mut [u8]]) -> Result<Wrapped, Failed> {
        let mut confounder = [0; BLOCK];
        rand::fill(&mut confounder)?;
        self.wrap_with(sequence, confounder, message)
    }

    fn wrap_with(
        &self,
        sequence: u64,
        confounder: [u8; BLOCK],
        message: &mut [&mut [u8]],
    ) -> Result<Wrapped, Failed> {
        let header = self.wrap_header(sequence, SEALED, 0);
        let (mut first, mut last) = (confounder, header);
        let mut all: Vec<&mut [u8]> = Vec::with_capacity(message.len() + 2);
        all.push(&mut first);
        all.extend(message.iter_mut().map(|piece| &mut **piece));
        all.push(&mut last);
        let tag = cts::encrypt(&self.own_seal, &mut all)?;
        let mut head = [0; HEADER + BLOCK];
        head[..HEADER].copy_from_slice(&header);
        head[HEADER..].copy_from_slice(&first);
        Ok(Wrapped { head, head_len: head.len(), tail: Tag::joined(&last, &tag) })
    }

    /// Wraps a message with a checksum but without encryption (RFC 4121 section 4.2.4). Leaves its bytes unchanged.
    #[must_use]
    pub fn wrap_unsealed(&self, sequence: u64, message: &[&[u8]]) -> Wrapped {
        let checked = self.wrap_header(sequence, 0, 0);
        let whole = message.iter().copied().chain([&checked[..]]);
        let tail = cts::checksum(&self.own_seal, whole);
        let length = u16::try_from(tail.len()).unwrap_or(0);
        let mut head = [0; HEADER + BLOCK];
        head[..HEADER].copy_from_slice(&self.wrap_header(sequence, 0, length));
        Wrapped { head, head_len: HEADER, tail }
    }

    fn wrap_header(&self, sequence: u64, sealed: u8, extra: u16) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&TOK_WRAP);
        header[2] = self.flags(self.role) | sealed;
        header[3] = 0xff;
        header[4..6].copy_from_slice(&extra.to_be_bytes());
        header[8..].copy_from_slice(&sequence.to_be_bytes());
        header
    }

    /// Unwraps the peer's Wrap token in place and returns the position of the plaintext.
    ///
    /// # Errors
    ///
    /// The token does not belong to this context. Its bytes may have been modified and must not be used.
    pub fn unwrap(&self, token: &mut [&mut [u8]]) -> Result<Unwrapped, Failed> {
        let whole = pieces::len(token);
        if whole < HEADER {
            return Err(Failed);
        }
        let mut header = [0; HEADER];
        pieces::copy_out(token, 0, &mut header);
        let [a, b, flags, filler, e0, e1, r0, r1, ..] = header;
        let is_sealed = flags & SEALED != 0;
        if [a, b] != TOK_WRAP || filler != 0xff || flags & !SEALED != self.flags(self.peer()) {
            return Err(Failed);
        }
        let (extra, rotated) = (usize::from(u16::from_be_bytes([e0, e1])), [r0, r1]);
        if rotated != [0, 0] {
            let mut rest = pieces::range(token, HEADER, whole);
            pieces::rotate_left(&mut rest, u16::from_be_bytes(rotated));
        }
        header[6..8].fill(0);
        let tag_len = self.enctype.tag_len();
        let mut tag = [0; TAG_MAX];
        let tag = &mut tag[..tag_len];
        let end = whole.checked_sub(tag_len).filter(|end| *end >= HEADER).ok_or(Failed)?;
        pieces::copy_out(token, end, tag);
        if !is_sealed {
            // RFC 4121 section 4.2.4: EC is the length of the checksum, which is computed with EC and RRC as zero.
            header[4..6].fill(0);
            let plain = pieces::range(token, HEADER, end);
            let message = plain.iter().map(|piece| &**piece).chain([&header[..]]);
            verify_slices_are_equal(&cts::checksum(&self.peer_seal, message), tag)?;
            let is_its = extra == tag_len;
            let sequence = sequence(&header);
            let done = Unwrapped { sequence, is_sealed, start: HEADER, len: end - HEADER };
            return is_its.then_some(done).ok_or(Failed);
        }
        let start = HEADER + BLOCK;
        let copy_at = end.checked_sub(HEADER).filter(|at| *at >= start).ok_or(Failed)?;
        let len = (copy_at - start).checked_sub(extra).ok_or(Failed)?;
        cts::decrypt(&self.peer_seal, &mut pieces::range(token, HEADER, end), tag)?;
        let mut copy = [0; HEADER];
        pieces::copy_out(token, copy_at, &mut copy);
        verify_slices_are_equal(&copy, &header)?;
        Ok(Unwrapped { sequence: sequence(&header), is_sealed, start, len })
    }
}

fn sequence(header: &[u8; HEADER]) -> u64 {
    header.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod mit;
#[cfg(test)]
mod tests;
