//! Connection-oriented RPC (C706 chapter 12, MS-RPCE): binding, fragments, faults. Pure.

use super::Interface;
use crate::wire::Fields;

/// Bytes of one fragment, both ways.
pub(crate) const FRAGMENT_MAX: u16 = 4280;
/// Bytes of the arguments of one call, put together.
pub(crate) const STUB_MAX: usize = 256 << 10;
/// Contexts of one bind.
const CONTEXTS_MAX: u8 = 32;

const HEADER: usize = 16;
/// Header, `alloc_hint`, context, cancel count.
const RESPONSE_HEADER: usize = 24;

const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;
const FAULT: u8 = 3;
const BIND: u8 = 11;
const BIND_ACK: u8 = 12;
const BIND_NAK: u8 = 13;
const ALTER_CONTEXT: u8 = 14;
const ALTER_CONTEXT_RESP: u8 = 15;
const AUTH_3: u8 = 16;
const CO_CANCEL: u8 = 18;
const ORPHANED: u8 = 19;

const FIRST: u8 = 1;
const LAST: u8 = 2;
const DID_NOT_EXECUTE: u8 = 0x20;
const OBJECT: u8 = 0x80;

/// An interface or a way of writing values: identifier and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Syntax {
    pub(crate) uuid: [u8; 16],
    pub(crate) version: u32,
}

/// NDR, version 2: 8a885d04-1ceb-11c9-9fe8-08002b104860.
pub(crate) const NDR: Syntax = Syntax {
    uuid: [
        0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 0x08, 0x00, 0x2b, 0x10, 0x48,
        0x60,
    ],
    version: 2,
};
/// How the identifier of bind time feature negotiation begins (MS-RPCE section 3.3.1.5.3).
const FEATURES: [u8; 8] = [0x2c, 0x1c, 0xb7, 0x6c, 0x12, 0x98, 0x40, 0x45];

/// Why a call was not answered (C706 appendix E).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) u32);

impl Fault {
    /// ERROR_ACCESS_DENIED, which clients take as it is (MS-RPCE sections 3.3.3.5.1 and 3.1.1.5.5): the operation is not for the
    /// one who calls.
    pub(crate) const ACCESS_DENIED: Self = Self(0x0000_0005);
    /// nca_s_op_rng_error: there is no such operation.
    pub(crate) const NO_OPERATION: Self = Self(0x1c01_0002);
    /// nca_s_unk_if: the context was not accepted.
    pub(crate) const NO_INTERFACE: Self = Self(0x1c01_0003);
    /// RPC_X_BAD_STUB_DATA
    pub(crate) const BAD_STUB: Self = Self(0x0000_06f7);
}

/// The framing is broken: the connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) &'static str);

impl From<crate::wire::Malformed> for Broken {
    fn from(e: crate::wire::Malformed) -> Self {
        Self(e.0)
    }
}

struct Call {
    id: u32,
    context: u16,
    op: u16,
    stub: Vec<u8>,
}

/// One client's association.
pub(crate) struct Association {
    interface: Interface,
    /// Contexts that were accepted.
    contexts: Vec<u16>,
    /// Bytes of one fragment to the client.
    send_max: usize,
    /// Bytes of a fragment that is not whole yet.
    partial: Vec<u8>,
    /// A call whose last fragment has not come.
    call: Option<Call>,
}

struct Pdu<'a> {
    kind: u8,
    flags: u8,
    id: u32,
    /// Behind the header.
    body: &'a [u8],
    authenticated: bool,
}

impl Association {
    pub(crate) fn new(interface: Interface) -> Self {
        Self {
            interface,
            contexts: Vec::new(),
            send_max: usize::from(FRAGMENT_MAX),
            partial: Vec::new(),
            call: None,
        }
    }

    pub(crate) fn interface(&self) -> Interface {
        self.interface
    }

    /// Takes bytes; gives the fragments that answer what they complete.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        run: impl Fn(u16, &[u8]) -> Result<Vec<u8>, Fault>,
    ) -> Result<Vec<Vec<u8>>, Broken> {
        let mut partial = std::mem::take(&mut self.partial);
        partial.extend_from_slice(bytes);
        let mut rest = &partial[..];
        let mut out = Vec::new();
        while let Some((pdu, after)) = next(rest)? {
            rest = after;
            self.one(&pdu, &run, &mut out)?;
            if out.iter().map(Vec::len).sum::<usize>() > super::UNREAD_MAX {
                return Err(Broken("more calls than answers fit"));
            }
        }
        self.partial = rest.to_vec();
        Ok(out)
    }

    fn one(
        &mut self,
        pdu: &Pdu<'_>,
        run: &impl Fn(u16, &[u8]) -> Result<Vec<u8>, Fault>,
        out: &mut Vec<Vec<u8>>,
    ) -> Result<(), Broken> {
        match pdu.kind {
            BIND | ALTER_CONTEXT => out.push(self.bind(pdu)?),
            REQUEST => {
                if let Some(call) = self.gather(pdu)? {
                    let result = if self.contexts.contains(&call.context) {
                        run(call.op, &call.stub)
                    } else {
                        Err(Fault::NO_INTERFACE)
                    };
                    match result {
                        Ok(stub) => self.respond(&call, &stub, out),
                        Err(fault) => out.push(fault_of(&call, fault)),
                    }
                }
            }
            // What was cancelled has been answered already.
            CO_CANCEL | AUTH_3 => {}
            ORPHANED => self.call = None,
            _ => return Err(Broken("PTYPE")),
        }
        Ok(())
    }

    /// C706 section 12.6.4.3 and 4.
    fn bind(&mut self, pdu: &Pdu<'_>) -> Result<Vec<u8>, Broken> {
        let mut f = Fields::new(pdu.body, 0);
        f.skip(2);
        let theirs = f.u16("max_recv_frag")?;
        let group = f.u32("assoc_group_id")?;
        if pdu.authenticated {
            // authentication_type_not_recognized: the session under the pipe is what authenticates.
            return Ok(finish(BIND_NAK, pdu.id, &[8, 0, 1, 5, 0, 0, 0, 0]));
        }
        let count = f.u8("n_context_elem")?;
        if count == 0 || count > CONTEXTS_MAX {
            return Err(Broken("n_context_elem"));
        }
        f.skip(3);
        let mut results = vec![count, 0, 0, 0];
        for _ in 0..count {
            let id = f.u16("p_cont_id")?;
            let transfers = f.u8("n_transfer_syn")?;
            f.skip(1);
            let wanted =
                Syntax { uuid: f.array("abstract_syntax")?, version: f.u32("if_version")? };
            let mut ndr = false;
            let mut features = false;
            for _ in 0..transfers {
                let one = Syntax { uuid: f.array("transfer_syntax")?, version: f.u32("version")? };
                ndr |= one == NDR;
                features |= one.uuid[..8] == FEATURES;
            }
            let known = wanted == self.interface.syntax();
            let (result, reason, syntax) = match (known, ndr) {
                (true, true) => (0_u16, 0_u16, NDR),
                // Neither keeping connections nor orphans are done here.
                _ if features => (3, 0, Syntax { uuid: [0; 16], version: 0 }),
                (false, _) => (2, 1, Syntax { uuid: [0; 16], version: 0 }),
                (true, false) => (2, 2, Syntax { uuid: [0; 16], version: 0 }),
            };
            if result == 0 && !self.contexts.contains(&id) {
                if self.contexts.len() >= usize::from(CONTEXTS_MAX) {
                    return Err(Broken("more contexts than are possible"));
                }
                self.contexts.push(id);
            }
            results.extend(result.to_le_bytes());
            results.extend(reason.to_le_bytes());
            results.extend(syntax.uuid);
            results.extend(syntax.version.to_le_bytes());
        }
        // C706: every implementation takes fragments of 1,432 bytes.
        let send = theirs.clamp(1432, FRAGMENT_MAX);
        self.send_max = usize::from(send);
        Ok(self.acknowledge(pdu, group, send, &results))
    }

    fn acknowledge(&self, pdu: &Pdu<'_>, group: u32, send: u16, results: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(send.to_le_bytes());
        body.extend(FRAGMENT_MAX.to_le_bytes());
        body.extend(if group == 0 { 1_u32 } else { group }.to_le_bytes());
        let (kind, address): (u8, &[u8]) = match pdu.kind {
            BIND => (BIND_ACK, self.interface.address()),
            _ => (ALTER_CONTEXT_RESP, &[]),
        };
        body.extend(u16::try_from(address.len()).unwrap_or_default().to_le_bytes());
        body.extend(address);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(results);
        finish(kind, pdu.id, &body)
    }

    /// Puts the fragments of a call together.
    fn gather(&mut self, pdu: &Pdu<'_>) -> Result<Option<Call>, Broken> {
        if pdu.authenticated {
            return Err(Broken("an authenticated call without an authenticated bind"));
        }
        let mut f = Fields::new(pdu.body, 0);
        f.skip(4);
        let (context, op) = (f.u16("p_cont_id")?, f.u16("opnum")?);
        if pdu.flags & OBJECT != 0 {
            f.skip(16);
        }
        let mut call = match self.call.take() {
            None if pdu.flags & FIRST != 0 => Call { id: pdu.id, context, op, stub: Vec::new() },
            Some(call) if pdu.flags & FIRST == 0 && call.id == pdu.id => call,
            _ => return Err(Broken("fragments out of order")),
        };
        if call.stub.len() + f.rest().len() > STUB_MAX {
            return Err(Broken("more arguments than are possible"));
        }
        call.stub.extend_from_slice(f.rest());
        if pdu.flags & LAST != 0 {
            return Ok(Some(call));
        }
        self.call = Some(call);
        Ok(None)
    }

    fn respond(&self, call: &Call, stub: &[u8], out: &mut Vec<Vec<u8>>) {
        // All fragments but the last hold a multiple of eight bytes.
        let room = (self.send_max - RESPONSE_HEADER) / 8 * 8;
        let count = stub.len().div_ceil(room).max(1);
        for n in 0..count {
            let from = n * room;
            let part = &stub[from..stub.len().min(from + room)];
            let mut body = Vec::with_capacity(8 + part.len());
            body.extend(u32::try_from(stub.len() - from).unwrap_or_default().to_le_bytes());
            body.extend(call.context.to_le_bytes());
            body.extend([0, 0]);
            body.extend_from_slice(part);
            let first = if n == 0 { FIRST } else { 0 };
            let last = if n + 1 == count { LAST } else { 0 };
            out.push(pdu_of(RESPONSE, first | last, call.id, &body));
        }
    }
}

/// The first whole fragment and what follows it.
fn next(bytes: &[u8]) -> Result<Option<(Pdu<'_>, &[u8])>, Broken> {
    if bytes.len() < HEADER {
        return Ok(None);
    }
    let mut f = Fields::new(bytes, 0);
    if f.u8("rpc_vers")? != 5 || f.u8("rpc_vers_minor")? > 1 {
        return Err(Broken("rpc_vers"));
    }
    let (kind, flags) = (f.u8("PTYPE")?, f.u8("pfc_flags")?);
    // Little-endian integers, ASCII; the format of floats does not matter.
    if f.u32("packed_drep")? & 0xff != 0x10 {
        return Err(Broken("packed_drep"));
    }
    let (len, auth) = (f.u16("frag_length")?, f.u16("auth_length")?);
    let id = f.u32("call_id")?;
    if len > FRAGMENT_MAX || usize::from(len) < HEADER {
        return Err(Broken("frag_length"));
    }
    let Some((whole, rest)) = bytes.split_at_checked(usize::from(len)) else { return Ok(None) };
    Ok(Some((Pdu { kind, flags, id, body: &whole[HEADER..], authenticated: auth != 0 }, rest)))
}

fn finish(kind: u8, id: u32, body: &[u8]) -> Vec<u8> {
    pdu_of(kind, FIRST | LAST, id, body)
}

fn fault_of(call: &Call, fault: Fault) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(call.context.to_le_bytes());
    body.extend([0, 0]);
    body.extend(fault.0.to_le_bytes());
    body.extend([0; 4]);
    pdu_of(FAULT, FIRST | LAST | DID_NOT_EXECUTE, call.id, &body)
}

fn pdu_of(kind: u8, flags: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let mut out = vec![5, 0, kind, flags, 0x10, 0, 0, 0];
    // Bodies are cut to the size of a fragment before.
    out.extend(u16::try_from(HEADER + body.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend([0, 0]);
    out.extend(id.to_le_bytes());
    out.extend_from_slice(body);
    out
}
