//! Calls that NTLM encrypts and signs (MS-RPCE section 3.3.1.5.2, RPC_C_AUTHN_LEVEL_PKT_PRIVACY).
//!
//! *Operation.* A bind has the first message of NTLM, its answer the challenge, and a fragment without an answer (rpc_auth_3) the
//! proof. From then on each fragment ends with a verifier: the signature of everything before it. Other levels and providers are
//! not offered.
//!
//! *Errors.* A client that does not prove a password gets ACCESS_DENIED for each call, as MS-RPCE section 3.3.1.5.2.2 wants. A
//! wrong signature ends the association.

use std::borrow::Cow;
use std::ops::Range;

use smb_proto::rpce::{
    AUTH_LEVEL_PRIVACY, AUTH_TYPE_NTLM, HEADER_LEN, Pdu, RESPONSE_HEADER_LEN, VERIFIER_HEADER_LEN,
    VERSIONS, Verifier, flag,
};

use super::Broken;
use crate::auth::ntlm::{Acceptor, Protection, SIGNATURE_LEN};

/// Stubs are padded to a multiple of this (MS-RPCE section 2.2.2.11).
const ALIGN: usize = 16;
/// Bytes of a request between header and stub, without and with an object.
const REQUEST_LEN: usize = 8;
const OBJECT_LEN: usize = 16;

/// Verifies the passwords of clients.
pub trait Guard {
    /// Begins an authentication. `None` if passwords are not accepted.
    fn acceptor(&self) -> Option<Acceptor> {
        None
    }

    /// Verifies the last message of a client. `None` if it is refused.
    fn prove(&self, _: &mut Acceptor, _: &[u8]) -> Option<Protection> {
        None
    }
}

/// The progress of an authentication.
#[derive(Default)]
pub(super) enum Security {
    /// The client has not asked for it.
    #[default]
    None,
    /// The client has the challenge. With the number of the security context.
    Begun(Box<Acceptor>, u32),
    Sealed(Box<Protection>, u32),
    /// The client has not proved a password.
    Refused,
}

impl Security {
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Refused)
    }

    /// Begins with the verifier of a bind, and returns the token for the answer. `None` if the provider, its level or its first
    /// message is not accepted.
    pub(super) fn begin(
        &mut self,
        verifier: &Verifier<'_>,
        guard: &dyn Guard,
    ) -> Result<Option<Vec<u8>>, Broken> {
        if !matches!(self, Self::None) {
            return Err(Broken("a second authentication"));
        }
        if (verifier.kind, verifier.level) != (AUTH_TYPE_NTLM, AUTH_LEVEL_PRIVACY) {
            return Ok(None);
        }
        let Some(mut acceptor) = guard.acceptor() else { return Ok(None) };
        let Ok(challenge) = acceptor.negotiate(verifier.value) else { return Ok(None) };
        *self = Self::Begun(Box::new(acceptor), verifier.context);
        Ok(Some(challenge))
    }

    /// Takes the client's proof. It has no answer.
    pub(super) fn prove(&mut self, pdu: &Pdu<'_>, guard: &dyn Guard) -> Result<(), Broken> {
        let Self::Begun(acceptor, context) = self else { return Ok(()) };
        let Some((_, verifier)) = pdu.split_verifier()? else {
            return Err(Broken("rpc_auth_3 without a token"));
        };
        let proved = guard.prove(acceptor, verifier.value);
        *self =
            proved.map_or(Self::Refused, |protection| Self::Sealed(protection.into(), *context));
        Ok(())
    }

    /// Returns the body of a request without its verifier. `message` is the fragment with its header.
    pub(super) fn open<'a>(
        &mut self,
        pdu: &Pdu<'a>,
        message: &[u8],
    ) -> Result<Cow<'a, [u8]>, Broken> {
        let (protection, context) = match self {
            Self::None if pdu.auth_len == 0 => return Ok(Cow::Borrowed(pdu.body)),
            Self::Sealed(protection, context) => (protection, *context),
            _ => return Err(Broken("a call without the authentication of its bind")),
        };
        let Some((_, verifier)) = pdu.split_verifier()? else {
            return Err(Broken("a call without a signature"));
        };
        let Verifier { kind, level, pad, value, .. } = verifier;
        if (kind, level, verifier.context) != (AUTH_TYPE_NTLM, AUTH_LEVEL_PRIVACY, context) {
            return Err(Broken("a call with another security context"));
        }
        let object = if pdu.flags & flag::OBJECT_UUID == 0 { 0 } else { OBJECT_LEN };
        let signed = message.len() - value.len();
        let stub = HEADER_LEN + REQUEST_LEN + object..signed - VERIFIER_HEADER_LEN;
        let end = stub.end - usize::from(pad);
        if end < stub.start {
            return Err(Broken("auth_pad_length"));
        }
        let mut plain = message[..signed].to_vec();
        if !protection.unseal(&mut plain, stub, value) {
            return Err(Broken("the signature of a call"));
        }
        plain.truncate(end);
        plain.drain(..HEADER_LEN);
        Ok(Cow::Owned(plain))
    }

    /// Returns how many bytes of a fragment a verifier and its padding take.
    pub(super) fn overhead(&self) -> usize {
        match self {
            Self::Sealed(..) => ALIGN + VERIFIER_HEADER_LEN + SIGNATURE_LEN,
            _ => 0,
        }
    }

    /// Builds a fragment of a response.
    pub(super) fn close(
        &mut self,
        (kind, flags): (u8, u8),
        call_id: u32,
        body: Vec<u8>,
    ) -> Vec<u8> {
        let version = VERSIONS[0];
        let Self::Sealed(protection, context) = self else {
            return Pdu { version, kind, flags, call_id, auth_len: 0, body: &body }.emit();
        };
        let stub = body.len().saturating_sub(RESPONSE_HEADER_LEN - HEADER_LEN);
        let pad = stub.next_multiple_of(ALIGN) - stub;
        let encrypted: Range<usize> = RESPONSE_HEADER_LEN..RESPONSE_HEADER_LEN + stub + pad;
        let verifier = Verifier { pad: u8::try_from(pad).unwrap_or_default(), ..of_ours(*context) };
        let mut out = emit((kind, flags), call_id, (body, SIGNATURE_LEN), verifier);
        let signed = out.len() - SIGNATURE_LEN;
        let (message, signature) = out.split_at_mut(signed);
        signature.copy_from_slice(&protection.seal(message, encrypted));
        out
    }
}

/// Returns a verifier without padding and value.
fn of_ours(context: u32) -> Verifier<'static> {
    Verifier { kind: AUTH_TYPE_NTLM, level: AUTH_LEVEL_PRIVACY, pad: 0, context, value: &[] }
}

/// Builds a fragment with this verifier and zeros for the rest of its value.
fn emit(
    (kind, flags): (u8, u8),
    call_id: u32,
    (mut body, rest): (Vec<u8>, usize),
    verifier: Verifier<'_>,
) -> Vec<u8> {
    verifier.put(&mut body);
    body.resize(body.len() + rest, 0);
    let auth_len = u16::try_from(verifier.value.len() + rest).unwrap_or(u16::MAX);
    Pdu { version: VERSIONS[0], kind, flags, call_id, auth_len, body: &body }.emit()
}

/// Builds the answer to a bind with the challenge.
pub(super) fn with_token(
    kind: (u8, u8),
    call_id: u32,
    (body, context): (Vec<u8>, u32),
    token: &[u8],
) -> Vec<u8> {
    emit(kind, call_id, (body, 0), Verifier { value: token, ..of_ours(context) })
}
