//! Connection-oriented RPC (C706 chapter 12, MS-RPCE): binding, fragments, faults. Pure.
//!
//! *Operation.* The session below a pipe authenticates its client. Clients that change passwords also want calls that NTLM encrypts
//! ([`secure`]); [`Guard`] then verifies the password.

mod secure;

use smb_proto::rpce::{
    Bind, BindAck, CONTEXTS_MAX, FEATURES, FRAGMENT_MIN, FaultBody, Outcome, Pdu,
    RESPONSE_HEADER_LEN, Request, Response, VERSIONS, flag, kind,
};
pub(crate) use smb_proto::rpce::{NDR, Syntax};
use smb_proto::wire;

use super::Interface;
pub use secure::Guard;
use secure::Security;

/// Bytes of one fragment, both ways.
pub(crate) const FRAGMENT_MAX: u16 = 4280;
/// Bytes of the joined arguments of one call.
pub(crate) const STUB_MAX: usize = 256 << 10;

/// The reason for not answering a call (C706 appendix E).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) u32);

impl Fault {
    /// ERROR_ACCESS_DENIED, which clients accept unchanged (MS-RPCE sections 3.3.3.5.1 and 3.1.1.5.5): the caller may not use the
    /// operation.
    pub(crate) const ACCESS_DENIED: Self = Self(0x0000_0005);
    /// nca_s_op_rng_error: the operation does not exist.
    pub(crate) const NO_OPERATION: Self = Self(0x1c01_0002);
    /// nca_s_unk_if: the context was not accepted.
    pub(crate) const NO_INTERFACE: Self = Self(0x1c01_0003);
    /// nca_s_fault_remote_no_memory: no memory for the answer.
    pub(crate) const NO_MEMORY: Self = Self(0x1c00_001b);
    /// RPC_X_BAD_STUB_DATA
    pub(crate) const BAD_STUB: Self = Self(0x0000_06f7);
}

/// The framing is broken and the connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) &'static str);

impl From<wire::Fault> for Broken {
    fn from(fault: wire::Fault) -> Self {
        Self(fault.field)
    }
}

/// Malformed arguments are a fault.
impl From<wire::Fault> for Fault {
    fn from(_: wire::Fault) -> Self {
        Self::BAD_STUB
    }
}

/// The result of reading arguments.
pub(super) type Read<T> = Result<T, Fault>;

struct Call {
    id: u32,
    context: u16,
    op: u16,
    stub: Vec<u8>,
}

/// One client's association.
pub(crate) struct Association {
    interface: Interface,
    /// Accepted presentation contexts.
    contexts: Vec<u16>,
    /// Bytes of one fragment to the client.
    send_max: usize,
    /// Bytes of an incomplete fragment.
    partial: Vec<u8>,
    /// A call without its last fragment.
    call: Option<Call>,
    security: Security,
}

impl Association {
    pub(crate) fn new(interface: Interface) -> Self {
        Self {
            interface,
            contexts: Vec::new(),
            send_max: usize::from(FRAGMENT_MAX),
            partial: Vec::new(),
            call: None,
            security: Security::default(),
        }
    }

    pub(crate) fn interface(&self) -> Interface {
        self.interface
    }

    /// Returns the bytes kept for incomplete calls.
    pub(crate) fn begun(&self) -> usize {
        self.partial.capacity() + self.call.as_ref().map_or(0, |call| call.stub.capacity())
    }

    /// Drops incomplete calls.
    pub(crate) fn forget(&mut self) {
        (self.partial, self.call) = (Vec::new(), None);
    }

    /// Takes bytes and returns the fragments of the answers to completed calls. `run` gets the number of answer bytes so far, the
    /// operation, and its arguments.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        guard: &dyn Guard,
        mut run: impl FnMut(usize, u16, &[u8]) -> Result<Vec<u8>, Fault>,
    ) -> Result<Vec<Vec<u8>>, Broken> {
        let mut partial = std::mem::take(&mut self.partial);
        partial.extend_from_slice(bytes);
        let mut rest = &partial[..];
        let mut out = Vec::new();
        while let Some((pdu, after)) = Pdu::parse(rest, FRAGMENT_MAX)? {
            let message = &rest[..rest.len() - after.len()];
            rest = after;
            self.one((&pdu, message), guard, &mut run, &mut out)?;
            if bytes_of(&out) > super::UNREAD_MAX {
                return Err(Broken("more calls than answers fit"));
            }
        }
        self.partial = rest.to_vec();
        Ok(out)
    }

    /// Takes a fragment, which `message` is with its header.
    fn one(
        &mut self,
        (pdu, message): (&Pdu<'_>, &[u8]),
        guard: &dyn Guard,
        run: &mut impl FnMut(usize, u16, &[u8]) -> Result<Vec<u8>, Fault>,
        out: &mut Vec<Vec<u8>>,
    ) -> Result<(), Broken> {
        match pdu.kind {
            kind::BIND | kind::ALTER_CONTEXT => out.push(self.bind(pdu, guard)?),
            kind::AUTH_3 => self.security.prove(pdu, guard)?,
            // No call of a client without the password is read.
            kind::REQUEST if self.security.is_refused() => {
                if pdu.flags & flag::LAST_FRAG != 0 {
                    let call = Call { id: pdu.call_id, context: 0, op: 0, stub: Vec::new() };
                    out.push(fault_of(&call, Fault::ACCESS_DENIED));
                }
            }
            kind::REQUEST => {
                let body = self.security.open(pdu, message)?;
                if let Some(call) = self.gather(pdu, &body)? {
                    let result = if self.contexts.contains(&call.context) {
                        run(bytes_of(out), call.op, &call.stub)
                    } else {
                        Err(Fault::NO_INTERFACE)
                    };
                    match result {
                        Ok(stub) => self.respond(&call, &stub, out),
                        Err(fault) => out.push(fault_of(&call, fault)),
                    }
                }
            }
            // The cancelled call has been answered already.
            kind::CO_CANCEL => {}
            kind::ORPHANED => self.call = None,
            _ => return Err(Broken("PTYPE")),
        }
        Ok(())
    }

    /// C706 section 12.6.4.3 and 4.
    fn bind(&mut self, pdu: &Pdu<'_>, guard: &dyn Guard) -> Result<Vec<u8>, Broken> {
        if !VERSIONS.contains(&pdu.version) {
            // protocol_version_not_supported, followed by the supported version.
            return Ok(whole(kind::BIND_NAK, pdu.call_id, &[4, 0, 1, 5, 0, 0, 0, 0]));
        }
        let takes_passwords = pdu.kind == kind::BIND && self.interface.takes_passwords();
        let verifier = if takes_passwords { pdu.split_verifier()? } else { None };
        let token = match &verifier {
            Some((_, verifier)) => self.security.begin(verifier, guard)?,
            None => None,
        };
        if pdu.auth_len != 0 && token.is_none() {
            // authentication_type_not_recognized: the session under the pipe provides authentication.
            return Ok(whole(kind::BIND_NAK, pdu.call_id, &[8, 0, 1, 5, 0, 0, 0, 0]));
        }
        let bind = Bind::parse(verifier.map_or(pdu.body, |(body, _)| body))?;
        let mut results = Vec::with_capacity(bind.contexts.len());
        for context in &bind.contexts {
            let ndr = context.transfer.contains(&NDR);
            let features = context.transfer.iter().any(|one| one.uuid.starts_with(&FEATURES));
            let known = context.interface == self.interface.syntax();
            let (result, reason, syntax) = match (known, ndr) {
                (true, true) => (0, 0, NDR),
                // Neither kept connections nor orphaned calls are supported.
                _ if features => (3, 0, Syntax::default()),
                (false, _) => (2, 1, Syntax::default()),
                (true, false) => (2, 2, Syntax::default()),
            };
            if result == 0 && !self.contexts.contains(&context.id) {
                if self.contexts.len() >= usize::from(CONTEXTS_MAX) {
                    return Err(Broken("more contexts than are possible"));
                }
                self.contexts.push(context.id);
            }
            results.push(Outcome { result, reason, syntax });
        }
        let send = bind.recv_max.clamp(FRAGMENT_MIN, FRAGMENT_MAX);
        self.send_max = usize::from(send);
        let (answer, address): (u8, &[u8]) = match pdu.kind {
            kind::BIND => (kind::BIND_ACK, self.interface.address()),
            _ => (kind::ALTER_CONTEXT_RESP, &[]),
        };
        let group = if bind.group == 0 { 1 } else { bind.group };
        let ack = BindAck { xmit_max: send, recv_max: FRAGMENT_MAX, group, address, results };
        let flags = flag::FIRST_FRAG | flag::LAST_FRAG | pdu.flags & flag::SUPPORT_HEADER_SIGN;
        Ok(match (token, verifier) {
            (Some(token), Some((_, verifier))) => {
                let body = (ack.emit(), verifier.context);
                secure::with_token((answer, flags), pdu.call_id, body, &token)
            }
            _ => whole(answer, pdu.call_id, &ack.emit()),
        })
    }

    /// Joins the fragments of a call. `body`: that of the fragment, decrypted and without its verifier.
    fn gather(&mut self, pdu: &Pdu<'_>, body: &[u8]) -> Result<Option<Call>, Broken> {
        let Request { context, op, stub, .. } = Request::parse(pdu.flags, body)?;
        let (id, is_first) = (pdu.call_id, pdu.flags & flag::FIRST_FRAG != 0);
        let mut call = match self.call.take() {
            None if is_first => Call { id, context, op, stub: Vec::new() },
            Some(call) if !is_first && call.id == id => call,
            _ => return Err(Broken("fragments out of order")),
        };
        if call.stub.len() + stub.len() > STUB_MAX {
            return Err(Broken("more arguments than are possible"));
        }
        call.stub.extend_from_slice(stub);
        if pdu.flags & flag::LAST_FRAG != 0 {
            return Ok(Some(call));
        }
        self.call = Some(call);
        Ok(None)
    }

    fn respond(&mut self, call: &Call, stub: &[u8], out: &mut Vec<Vec<u8>>) {
        // All fragments but the last hold a multiple of eight bytes, and of the alignment of a verifier.
        let room = (self.send_max - RESPONSE_HEADER_LEN - self.security.overhead()) / 16 * 16;
        let count = stub.len().div_ceil(room).max(1);
        for n in 0..count {
            let from = n * room;
            let part = &stub[from..stub.len().min(from + room)];
            let alloc_hint = u32::try_from(stub.len() - from).unwrap_or_default();
            let body = Response { alloc_hint, context: call.context, stub: part }.emit();
            let first = if n == 0 { flag::FIRST_FRAG } else { 0 };
            let last = if n + 1 == count { flag::LAST_FRAG } else { 0 };
            out.push(self.security.close((kind::RESPONSE, first | last), call.id, body));
        }
    }
}

fn bytes_of(fragments: &[Vec<u8>]) -> usize {
    fragments.iter().map(Vec::len).sum()
}

/// Builds a PDU in one fragment.
fn whole(kind: u8, call_id: u32, body: &[u8]) -> Vec<u8> {
    pdu_of(kind, flag::FIRST_FRAG | flag::LAST_FRAG, call_id, body)
}

fn fault_of(call: &Call, fault: Fault) -> Vec<u8> {
    let body = FaultBody { context: call.context, status: fault.0 }.emit();
    let flags = flag::FIRST_FRAG | flag::LAST_FRAG | flag::DID_NOT_EXECUTE;
    pdu_of(kind::FAULT, flags, call.id, &body)
}

fn pdu_of(kind: u8, flags: u8, call_id: u32, body: &[u8]) -> Vec<u8> {
    Pdu { version: VERSIONS[0], kind, flags, call_id, auth_len: 0, body }.emit()
}
