//! Messages of connection-oriented RPC (C706 chapter 12, MS-RPCE section 2.2.2), little-endian, as sent over named pipes.
//!
//! *Operation.* A byte stream is split into [`Pdu`]s; [`Pdu::kind`] selects the type of the body.
//!
//! *Errors.* [`wire::Fault`], whose offset counts from the start of the PDU or of the body.

use wire::{Fault, Parser, Rule, bytes, known, le_u8, le_u16, le_u32, reject, take, times};

use crate::parse::{Parsed, whole};

/// Length of the header of every PDU, in bytes.
pub const HEADER_LEN: usize = 16;
/// Length of a [`Response`] before its stub, including the PDU header.
pub const RESPONSE_HEADER_LEN: usize = 24;
/// The supported protocol versions; replies use the first.
pub const VERSIONS: [(u8, u8); 2] = [(5, 0), (5, 1)];
/// Maximum number of contexts in one [`Bind`].
pub const CONTEXTS_MAX: u8 = 32;
/// Fragment size that every implementation must accept, in bytes (C706 section 12.6.3.1).
pub const FRAGMENT_MIN: u16 = 1432;

/// `PTYPE`.
#[allow(missing_docs)] // The names are the specification's.
pub mod kind {
    pub const REQUEST: u8 = 0;
    pub const RESPONSE: u8 = 2;
    pub const FAULT: u8 = 3;
    pub const BIND: u8 = 11;
    pub const BIND_ACK: u8 = 12;
    pub const BIND_NAK: u8 = 13;
    pub const ALTER_CONTEXT: u8 = 14;
    pub const ALTER_CONTEXT_RESP: u8 = 15;
    pub const AUTH_3: u8 = 16;
    pub const CO_CANCEL: u8 = 18;
    pub const ORPHANED: u8 = 19;
}

/// `pfc_flags`.
#[allow(missing_docs)] // The names are the specification's.
pub mod flag {
    pub const FIRST_FRAG: u8 = 0x01;
    pub const LAST_FRAG: u8 = 0x02;
    /// In a bind and its answer (MS-RPCE section 2.2.2.3).
    pub const SUPPORT_HEADER_SIGN: u8 = 0x04;
    pub const DID_NOT_EXECUTE: u8 = 0x20;
    pub const OBJECT_UUID: u8 = 0x80;
}

/// An interface or a transfer syntax: identifier and version (`p_syntax_id_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syntax {
    /// The identifier in wire format.
    pub uuid: [u8; 16],
    /// Major version in the low half, minor in the high one.
    pub version: u32,
}

/// NDR, version 2: 8a885d04-1ceb-11c9-9fe8-08002b104860.
pub const NDR: Syntax = Syntax {
    uuid: [
        0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48,
        0x60,
    ],
    version: 2,
};
/// Prefix of the identifier of bind time feature negotiation (MS-RPCE section 3.3.1.5.3).
pub const FEATURES: [u8; 8] = [0x2c, 0x1c, 0xb7, 0x6c, 0x12, 0x98, 0x40, 0x45];

impl Syntax {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (uuid, version)) = (bytes("uuid"), le_u32("version")).parse(i)?;
        Ok((i, Self { uuid, version }))
    }

    fn put(self, out: &mut Vec<u8>) {
        out.extend(self.uuid);
        out.extend(self.version.to_le_bytes());
    }
}

/// A fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// rpc_vers and rpc_vers_minor: one of [`VERSIONS`], except in a bind, where a client may request any.
    pub version: (u8, u8),
    /// One of [`kind`].
    pub kind: u8,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Number of the call.
    pub call_id: u32,
    /// Length of the authentication verifier at the end of the body, in bytes.
    pub auth_len: u16,
    /// The bytes after the header.
    pub body: &'a [u8],
}

impl<'a> Pdu<'a> {
    /// Parses the first fragment of a stream, of at most `len_max` bytes, and returns the remaining bytes; `None` while the
    /// fragment is incomplete.
    pub fn parse(stream: &'a [u8], len_max: u16) -> Parsed<Option<(Self, &'a [u8])>> {
        if stream.len() < HEADER_LEN {
            return Ok(None);
        }
        whole(stream, |start| {
            let (i, version) = (le_u8("rpc_vers"), le_u8("rpc_vers_minor")).parse(start)?;
            let (i, (kind, flags)) = (le_u8("PTYPE"), le_u8("pfc_flags")).parse(i)?;
            if kind != kind::BIND && !VERSIONS.contains(&version) {
                return Err(reject("rpc_vers", Rule::Value, start));
            }
            // Little-endian integers and ASCII; the floating-point format is irrelevant.
            let ours = |drep: u32| (drep & 0xff == 0x10).then_some(());
            let (i, ()) = known("packed_drep", le_u32("packed_drep"), ours)(i)?;
            let fits = |len: u16| {
                (len <= len_max && usize::from(len) >= HEADER_LEN).then_some(usize::from(len))
            };
            let (i, len) = known("frag_length", le_u16("frag_length"), fits)(i)?;
            let (_, (auth_len, call_id)) = (le_u16("auth_length"), le_u32("call_id")).parse(i)?;
            let Some((pdu, rest)) = start.split_at_checked(len) else { return Ok((start, None)) };
            let body = &pdu[HEADER_LEN..];
            let pdu = Self { version, kind, flags, call_id, auth_len, body };
            Ok((rest, Some((pdu, rest))))
        })
    }

    /// Serializes it. The caller has split the body into fragments.
    pub fn emit(&self) -> Vec<u8> {
        let len = HEADER_LEN + self.body.len();
        let mut out = Vec::with_capacity(len);
        out.extend([self.version.0, self.version.1, self.kind, self.flags, 0x10, 0, 0, 0]);
        out.extend(u16::try_from(len).unwrap_or(u16::MAX).to_le_bytes());
        out.extend(self.auth_len.to_le_bytes());
        out.extend(self.call_id.to_le_bytes());
        out.extend_from_slice(self.body);
        out
    }
}

/// Length of a [`Verifier`] before its value, in bytes.
pub const VERIFIER_HEADER_LEN: usize = 8;

/// `auth_type` of NTLM (MS-RPCE section 2.2.1.1.7).
pub const AUTH_TYPE_NTLM: u8 = 10;
/// `auth_level` of calls whose stubs are signed and encrypted (MS-RPCE section 2.2.1.1.8).
pub const AUTH_LEVEL_PRIVACY: u8 = 6;

/// The authentication verifier at the end of a PDU (`sec_trailer`, MS-RPCE section 2.2.2.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verifier<'a> {
    /// Number of the security provider.
    pub kind: u8,
    /// Level of protection.
    pub level: u8,
    /// Bytes of padding before the verifier.
    pub pad: u8,
    /// Number of the security context.
    pub context: u32,
    /// Token or signature.
    pub value: &'a [u8],
}

impl<'a> Verifier<'a> {
    fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        whole(bytes, |i| {
            let (i, (kind, level, pad, _)) = (
                le_u8("auth_type"),
                le_u8("auth_level"),
                le_u8("auth_pad_length"),
                le_u8("auth_reserved"),
            )
                .parse(i)?;
            let (value, context) = le_u32("auth_context_id")(i)?;
            Ok((&[], Self { kind, level, pad, context, value }))
        })
    }

    /// Appends the padding and the verifier.
    pub fn put(&self, body: &mut Vec<u8>) {
        body.resize(body.len() + usize::from(self.pad), 0);
        body.extend([self.kind, self.level, self.pad, 0]);
        body.extend(self.context.to_le_bytes());
        body.extend(self.value);
    }
}

impl<'a> Pdu<'a> {
    /// Splits the body into what comes before padding and verifier, and the verifier; `None` without a verifier.
    pub fn split_verifier(&self) -> Parsed<Option<(&'a [u8], Verifier<'a>)>> {
        if self.auth_len == 0 {
            return Ok(None);
        }
        // Offset of auth_length in the header.
        let too_long = || Fault { field: "auth_length", rule: Rule::Value, offset: 10 };
        let len = VERIFIER_HEADER_LEN + usize::from(self.auth_len);
        let start = self.body.len().checked_sub(len).ok_or_else(too_long)?;
        let (before, verifier) = self.body.split_at(start);
        let verifier = Verifier::parse(verifier)?;
        let end = before.len().checked_sub(verifier.pad.into()).ok_or_else(too_long)?;
        Ok(Some((&before[..end], verifier)))
    }
}

/// The body of a bind or of an alter_context (C706 section 12.6.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// max_xmit_frag
    pub xmit_max: u16,
    /// max_recv_frag
    pub recv_max: u16,
    /// assoc_group_id; 0 requests a new one.
    pub group: u32,
    /// 1 to [`CONTEXTS_MAX`].
    pub contexts: Vec<Context>,
}

/// An interface that the client wants to call (`p_cont_elem_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Identifier that the client assigns.
    pub id: u16,
    /// The interface.
    pub interface: Syntax,
    /// Transfer syntaxes to choose from; at most 255.
    pub transfer: Vec<Syntax>,
}

impl Context {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (id, count, _)) =
            (le_u16("p_cont_id"), le_u8("n_transfer_syn"), le_u8("reserved")).parse(i)?;
        let (i, interface) = Syntax::parse(i)?;
        let (i, transfer) = times(count.into(), Syntax::parse)(i)?;
        Ok((i, Self { id, interface, transfer }))
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_le_bytes());
        out.extend([u8::try_from(self.transfer.len()).unwrap_or(u8::MAX), 0]);
        self.interface.put(out);
        self.transfer.iter().for_each(|syntax| syntax.put(out));
    }
}

/// Parses a count of contexts or results, and three reserved bytes.
fn count<'a>(field: &'static str) -> impl FnMut(&'a [u8]) -> wire::Parsed<'a, usize> {
    move |input| {
        let (i, (count, _)) = (le_u8(field), take(3, "reserved")).parse(input)?;
        let max = usize::from(CONTEXTS_MAX);
        match usize::from(count) {
            0 => Err(reject(field, Rule::Value, input)),
            count if count > max => Err(reject(field, Rule::OverLimit { max }, input)),
            count => Ok((i, count)),
        }
    }
}

impl Bind {
    /// Parses a body.
    pub fn parse(body: &[u8]) -> Parsed<Self> {
        whole(body, |i| {
            let (i, (xmit_max, recv_max, group)) =
                (le_u16("max_xmit_frag"), le_u16("max_recv_frag"), le_u32("assoc_group_id"))
                    .parse(i)?;
            let (i, count) = count("n_context_elem")(i)?;
            let (i, contexts) = times(count, Context::parse)(i)?;
            Ok((i, Self { xmit_max, recv_max, group, contexts }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.xmit_max.to_le_bytes());
        out.extend(self.recv_max.to_le_bytes());
        out.extend(self.group.to_le_bytes());
        out.extend([u8::try_from(self.contexts.len()).unwrap_or(u8::MAX), 0, 0, 0]);
        self.contexts.iter().for_each(|context| context.put(&mut out));
        out
    }
}

/// The result for a context (`p_result_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// acceptance 0, provider_rejection 2, negotiate_ack 3.
    pub result: u16,
    /// Reason of a rejection: abstract_syntax_not_supported 1, proposed_transfer_syntaxes_not_supported 2.
    pub reason: u16,
    /// The chosen transfer syntax; zeros if rejected.
    pub syntax: Syntax,
}

impl Outcome {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (result, reason, syntax)) =
            (le_u16("result"), le_u16("reason"), Syntax::parse).parse(i)?;
        Ok((i, Self { result, reason, syntax }))
    }
}

/// The body of a bind_ack or of an alter_context_resp (C706 section 12.6.4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindAck<'a> {
    /// max_xmit_frag
    pub xmit_max: u16,
    /// max_recv_frag
    pub recv_max: u16,
    /// assoc_group_id
    pub group: u32,
    /// sec_addr with its terminating zero; empty in an alter_context_resp.
    pub address: &'a [u8],
    /// One for each context.
    pub results: Vec<Outcome>,
}

impl<'a> BindAck<'a> {
    /// Length before the address, including the address length, in bytes.
    const FIXED: usize = 10;

    /// Parses a body.
    pub fn parse(body: &'a [u8]) -> Parsed<Self> {
        whole(body, |i| {
            let (i, (xmit_max, recv_max, group, len)) = (
                le_u16("max_xmit_frag"),
                le_u16("max_recv_frag"),
                le_u32("assoc_group_id"),
                le_u16("sec_addr.length"),
            )
                .parse(i)?;
            let len = usize::from(len);
            let pad = (Self::FIXED + len).next_multiple_of(4) - Self::FIXED - len;
            let (i, (address, _)) = (take(len, "sec_addr"), take(pad, "pad2")).parse(i)?;
            let (i, count) = count("n_results")(i)?;
            let (i, results) = times(count, Outcome::parse)(i)?;
            Ok((i, Self { xmit_max, recv_max, group, address, results }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.xmit_max.to_le_bytes());
        out.extend(self.recv_max.to_le_bytes());
        out.extend(self.group.to_le_bytes());
        out.extend(u16::try_from(self.address.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend(self.address);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend([u8::try_from(self.results.len()).unwrap_or(u8::MAX), 0, 0, 0]);
        for one in &self.results {
            out.extend(one.result.to_le_bytes());
            out.extend(one.reason.to_le_bytes());
            one.syntax.put(&mut out);
        }
        out
    }
}

/// The body of a request, or of a fragment of one (C706 section 12.6.4.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Hint: number of stub bytes from here on.
    pub alloc_hint: u32,
    /// p_cont_id
    pub context: u16,
    /// Number of the operation.
    pub op: u16,
    /// The object, present exactly if [`flag::OBJECT_UUID`] is set.
    pub object: Option<[u8; 16]>,
    /// Arguments.
    pub stub: &'a [u8],
}

impl<'a> Request<'a> {
    /// Parses the body of a PDU with these flags.
    pub fn parse(flags: u8, body: &'a [u8]) -> Parsed<Self> {
        whole(body, |i| {
            let (i, (alloc_hint, context, op)) =
                (le_u32("alloc_hint"), le_u16("p_cont_id"), le_u16("opnum")).parse(i)?;
            let (stub, object) = if flags & flag::OBJECT_UUID == 0 {
                (i, None)
            } else {
                bytes("object").map(Some).parse(i)?
            };
            Ok((&[], Self { alloc_hint, context, op, object, stub }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = self.alloc_hint.to_le_bytes().to_vec();
        out.extend(self.context.to_le_bytes());
        out.extend(self.op.to_le_bytes());
        out.extend(self.object.iter().flatten());
        out.extend(self.stub);
        out
    }
}

/// The body of a response, or of a fragment of one (C706 section 12.6.4.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// Number of stub bytes from here on.
    pub alloc_hint: u32,
    /// p_cont_id
    pub context: u16,
    /// Results.
    pub stub: &'a [u8],
}

/// Parses the start of a response or fault: alloc_hint, p_cont_id, cancel_count and a reserved byte.
fn answered(i: &[u8]) -> wire::Parsed<'_, (u32, u16)> {
    let (i, (alloc_hint, context, _)) =
        (le_u32("alloc_hint"), le_u16("p_cont_id"), le_u16("cancel_count")).parse(i)?;
    Ok((i, (alloc_hint, context)))
}

impl<'a> Response<'a> {
    /// Parses a body.
    pub fn parse(body: &'a [u8]) -> Parsed<Self> {
        whole(body, |i| {
            let (stub, (alloc_hint, context)) = answered(i)?;
            Ok((&[], Self { alloc_hint, context, stub }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RESPONSE_HEADER_LEN - HEADER_LEN + self.stub.len());
        out.extend(self.alloc_hint.to_le_bytes());
        out.extend(self.context.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.stub);
        out
    }
}

/// The body of a fault (C706 section 12.6.4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultBody {
    /// p_cont_id
    pub context: u16,
    /// The reason: a status of C706 appendix E, or a Windows error.
    pub status: u32,
}

impl FaultBody {
    /// Parses a body.
    pub fn parse(body: &[u8]) -> Parsed<Self> {
        whole(body, |i| {
            let (i, ((_, context), status, _)) =
                (answered, le_u32("status"), le_u32("reserved2")).parse(i)?;
            Ok((i, Self { context, status }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        out.extend(self.context.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.status.to_le_bytes());
        out.extend([0; 4]);
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::smb2::test_harness::named;

    fn syntax() -> impl Strategy<Value = Syntax> {
        any::<([u8; 16], u32)>().prop_map(|(uuid, version)| Syntax { uuid, version })
    }

    fn context() -> impl Strategy<Value = Context> {
        (any::<u16>(), syntax(), prop::collection::vec(syntax(), 0..4))
            .prop_map(|(id, interface, transfer)| Context { id, interface, transfer })
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        (any::<u16>(), any::<u16>(), syntax()).prop_map(|(result, reason, syntax)| Outcome {
            result,
            reason,
            syntax,
        })
    }

    proptest! {
        #[test]
        fn all_values_round_trip(
            (xmit_max, recv_max, group) in any::<(u16, u16, u32)>(),
            contexts in prop::collection::vec(context(), 1..5),
            results in prop::collection::vec(outcome(), 1..5),
            address in prop::collection::vec(any::<u8>(), 0..9),
            (context, op, alloc_hint) in any::<(u16, u16, u32)>(), object: Option<[u8; 16]>,
            stub in prop::collection::vec(any::<u8>(), 0..60),
            cut: prop::sample::Index,
        ) {
            let bind = Bind { xmit_max, recv_max, group, contexts };
            let bytes = bind.emit();
            prop_assert!(Bind::parse(&bytes[..cut.index(bytes.len())]).is_err());
            prop_assert_eq!(Bind::parse(&bytes), Ok(bind));
            let ack = BindAck { xmit_max, recv_max, group, address: &address, results };
            let bytes = ack.emit();
            prop_assert!(BindAck::parse(&bytes[..cut.index(bytes.len())]).is_err());
            prop_assert_eq!(BindAck::parse(&bytes), Ok(ack));
            let flags = if object.is_some() { flag::OBJECT_UUID } else { 0 };
            let request = Request { alloc_hint, context, op, object, stub: &stub };
            let bytes = request.emit();
            prop_assert_eq!(Request::parse(flags, &bytes), Ok(request));
            let response = Response { alloc_hint, context, stub: &stub };
            let bytes = response.emit();
            prop_assert_eq!(Response::parse(&bytes), Ok(response));
            let fault = FaultBody { context, status: alloc_hint };
            prop_assert_eq!(FaultBody::parse(&fault.emit()), Ok(fault));
        }

        #[test]
        fn verifier_is_split_from_the_body(
            (kind, level, pad, context) in any::<(u8, u8, u8, u32)>(),
            before in prop::collection::vec(any::<u8>(), 0..40), value in prop::collection::vec(any::<u8>(), 1..40),
        ) {
            let verifier = Verifier { kind, level, pad, context, value: &value };
            let mut body = before.clone();
            verifier.put(&mut body);
            let auth_len = u16::try_from(value.len()).unwrap();
            let pdu = Pdu { version: (5, 0), kind: 0, flags: 3, call_id: 1, auth_len, body: &body };
            prop_assert_eq!(pdu.split_verifier(), Ok(Some((&before[..], verifier))));
            prop_assert_eq!(Pdu { auth_len: 0, ..pdu }.split_verifier(), Ok(None));
            let longer = u16::try_from(body.len()).unwrap();
            prop_assert_eq!(named(Pdu { auth_len: longer, ..pdu }.split_verifier()), Err("auth_length"));
        }

        #[test]
        fn stream_is_split_into_fragments(
            (kind, flags, call_id) in any::<(u8, u8, u32)>(), body in prop::collection::vec(any::<u8>(), 0..60),
            more in prop::collection::vec(any::<u8>(), 0..20), cut: prop::sample::Index,
        ) {
            let pdu = Pdu { version: (5, 0), kind, flags, call_id, auth_len: 0, body: &body };
            let bytes = pdu.emit();
            let stream = [&bytes[..], &more].concat();
            prop_assert_eq!(Pdu::parse(&stream, 4280), Ok(Some((pdu, &more[..]))));
            prop_assert_eq!(Pdu::parse(&stream[..cut.index(bytes.len())], 4280), Ok(None));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = Pdu::parse(&bytes, 4280);
            let _ = Bind::parse(&bytes);
            let _ = BindAck::parse(&bytes);
            let _ = Request::parse(flag::OBJECT_UUID, &bytes);
            let _ = FaultBody::parse(&bytes);
        }
    }

    #[test]
    fn invalid_header_names_field() {
        let good =
            Pdu { version: (5, 0), kind: 0, flags: 3, call_id: 1, auth_len: 0, body: &[] }.emit();
        for (at, value, field) in [
            (0, 4, "rpc_vers"),
            (1, 2, "rpc_vers"),
            (4, 0, "packed_drep"),
            (8, 15, "frag_length"),
            (9, 0xff, "frag_length"),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(named(Pdu::parse(&bad, 4280)), Err(field));
        }
    }

    #[test]
    fn context_count_is_checked() {
        let none = Bind { xmit_max: 0, recv_max: 0, group: 0, contexts: Vec::new() };
        assert_eq!(named(Bind::parse(&none.emit())), Err("n_context_elem"));
        let one = Context { id: 0, interface: NDR, transfer: Vec::new() };
        let many = Bind { contexts: vec![one; 33], ..none };
        let fault = Bind::parse(&many.emit()).unwrap_err();
        assert_eq!(fault.to_string(), "n_context_elem over its limit of 32 at 8");
    }
}
