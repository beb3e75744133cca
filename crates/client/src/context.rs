//! Established RPCSEC_GSS contexts (RFC 2203) with Kerberos, client side. Pure except for the window.
//!
//! *Operation.* [`Context::number`] assigns a sequence number to a call, once the window has room. [`NumberedCall::protect`] adds
//! number and verifier and protects the arguments; [`NumberedCall::open`] verifies the reply and converts it to the form of an
//! unprotected reply.
//!
//! *Memory.* Protected arguments and results are copied into one piece: this client is used to measure the server, not itself.
//!
//! *Errors.* A reply that fails verification is an error, whatever its contents.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gss_krb5::Enctype;
use iobuf::Buf;
use nfs_proto::oncrpc::{AcceptStat, CallHead, OpaqueAuth, ReplyBody, ReplyHead};
use nfs_proto::rpcsec_gss::{
    GssCred, GssInteg, GssMic, GssPriv, GssProc, GssService, MAXSEQ, RPCSEC_GSS, VERSION_1,
};
use nfs_proto::xdr::{self, Xdr};
use rdma_transport::caller::Answer;
use rdma_transport::channel::Reply;
use rdma_transport::xdr::Writer;
use tokio::sync::{Semaphore, SemaphorePermit};
use wire::pad;

use crate::error::{Error, Result};

/// Maximum number of calls of one context in progress, whatever the server's window.
const WINDOW_MAX: u32 = 4096;

/// An established context.
pub(crate) struct Context {
    keys: gss_krb5::Context,
    handle: Vec<u8>,
    service: GssService,
    /// Sequence number of the last call.
    number: AtomicU32,
    /// Sequence number of the next token.
    token: AtomicU64,
    window: Semaphore,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Serializes the body of a credential.
pub(crate) fn cred(gss_proc: GssProc, seq_num: u32, service: GssService, handle: &[u8]) -> Vec<u8> {
    xdr::encode(&GssCred { vers: VERSION_1, gss_proc, seq_num, service, handle })
}

impl Context {
    /// Builds the context after a complete exchange: the keys, the number of the next token, the server's handle and window.
    pub(crate) fn new(
        (keys, token): (gss_krb5::Context, u64),
        (handle, window): (&[u8], u32),
        service: GssService,
    ) -> Self {
        let window = Semaphore::new(usize::try_from(window.clamp(1, WINDOW_MAX)).unwrap_or(1));
        let (number, token) = (AtomicU32::new(0), AtomicU64::new(token));
        Self { keys, handle: handle.to_vec(), service, number, token, window }
    }
}

/// A call in progress and its place in the window.
pub(crate) struct NumberedCall<'a> {
    context: &'a Context,
    number: u32,
    _turn: Option<SemaphorePermit<'a>>,
}

impl Context {
    /// Assigns the number of the next call, once the window has room (RFC 2203 section 5.3.3.1).
    pub(crate) async fn number(&self) -> Result<NumberedCall<'_>> {
        // The semaphore is never closed.
        let turn = self.window.acquire().await.ok();
        let number = self.number.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if number >= MAXSEQ {
            return Err(Error::Kerberos("the context has no more numbers for calls".into()));
        }
        Ok(NumberedCall { context: self, number, _turn: turn })
    }

    pub(crate) fn enctype(&self) -> Enctype {
        self.keys.enctype()
    }

    /// Checks whether results are protected; they then arrive in one piece inside the message.
    pub(crate) fn protects_results(&self) -> bool {
        self.service != GssService::None
    }

    fn mic(&self, message: &[&[u8]]) -> gss_krb5::Tag {
        self.keys.mic(self.token.fetch_add(1, Ordering::Relaxed), message)
    }
}

impl NumberedCall<'_> {
    /// Serializes the header of a call to this program, version and procedure.
    pub(crate) fn head(&self, xid: u32, numbers: (u32, u32, u32), gss_proc: GssProc) -> Vec<u8> {
        let (program, version, procedure) = numbers;
        let Context { service, handle, .. } = self.context;
        let cred = cred(gss_proc, self.number, *service, handle);
        let (cred, verf) = (OpaqueAuth { flavor: RPCSEC_GSS, body: &cred }, OpaqueAuth::NONE);
        let mut out = Vec::with_capacity(256);
        CallHead { xid, program, version, procedure, cred, verf }.emit(&mut out);
        // RFC 2203 section 5.3.1: the MIC covers everything up to here.
        out.truncate(out.len() - xdr::encode(&verf).len());
        let mic = self.context.mic(&[&out]);
        OpaqueAuth { flavor: RPCSEC_GSS, body: &mic }.emit(&mut out);
        out
    }

    /// Serializes a call with protected arguments (RFC 2203 section 5.3.2).
    pub(crate) fn protect(
        &self,
        xid: u32,
        numbers: (u32, u32, u32),
        args: Writer,
    ) -> Result<Reply> {
        let head = self.head(xid, numbers, GssProc::Data);
        let Context { service, keys, token, .. } = self.context;
        if *service == GssService::None {
            let mut call = args.into_reply();
            call.payloads.iter_mut().for_each(|payload| payload.at += head.len());
            call.head.splice(0..0, head);
            return Ok(call);
        }
        let mut out = Writer::new();
        out.head().extend(head);
        let mut plain = self.number.to_be_bytes().to_vec();
        plain.extend(args.copy_from(0));
        if *service == GssService::Integrity {
            out.opaque(&plain);
            out.opaque(&self.context.mic(&[&plain]));
            return Ok(out.into_reply());
        }
        let wrapped = keys
            .wrap(token.fetch_add(1, Ordering::Relaxed), &mut [&mut plain])
            .map_err(|_| Error::Kerberos("this host has no random numbers".into()))?;
        out.opaque(&[wrapped.head(), &plain, wrapped.tail()].concat());
        Ok(out.into_reply())
    }

    /// Verifies the reply and returns it with unprotected results.
    pub(crate) fn open(&self, answer: Answer) -> Result<Answer> {
        self.open_as(answer, self.context.service)
    }

    pub(crate) fn open_as(&self, answer: Answer, service: GssService) -> Result<Answer> {
        let body = &answer.body;
        let (rest, head) = wire::decode(body, ReplyHead::parse).map_err(|e| e.at(&body[..]))?;
        let ReplyBody::Accepted(verf, stat) = head.body else { return Ok(answer) };
        let number = self.number.to_be_bytes();
        let verifies = verf.flavor == RPCSEC_GSS
            && self.context.keys.verify_mic(verf.body, &[&number]).is_ok();
        if !verifies {
            return Err(Error::Kerberos("a reply that does not verify".into()));
        }
        let is_protected = stat == AcceptStat::Success && service != GssService::None;
        if !is_protected {
            return Ok(answer);
        }
        let at = body.len() - rest.len();
        let opened = match service {
            GssService::Integrity => self.verified(body, at),
            _ => self.unsealed(body, at),
        };
        let plain = opened.ok_or_else(|| Error::Kerberos("results that do not verify".into()))?;
        let mut out = Vec::with_capacity(plain.len() + 32);
        ReplyHead::accepted(head.xid, stat).emit(&mut out);
        out.extend_from_slice(&plain);
        Ok(Answer { body: Buf::from(out), read_chunks: Vec::new() })
    }

    /// Verifies results with a MIC, which begin at `at` (RFC 2203 section 5.3.2.2).
    fn verified(&self, body: &[u8], at: usize) -> Option<Vec<u8>> {
        let (rest, GssInteg { databody_integ, seq_num }) =
            xdr::decode::<GssInteg>(body.get(at..)?).ok()?;
        let start = body.len() - rest.len();
        let end = (start - 4).checked_add(usize::try_from(databody_integ).ok()?)?;
        let (signed, mic) = (body.get(start - 4..end)?, body.get(end..)?);
        let Ok(([], GssMic { checksum })) = xdr::decode::<GssMic<'_>>(mic) else { return None };
        self.context.keys.verify_mic(checksum, &[signed]).ok()?;
        let results = signed.get(4..).filter(|_| seq_num == self.number)?;
        Some(results.to_vec())
    }

    /// Decrypts results, which begin at `at` (RFC 2203 section 5.3.2.3).
    fn unsealed(&self, body: &[u8], at: usize) -> Option<Vec<u8>> {
        let (rest, GssPriv { databody_priv }) = xdr::decode::<GssPriv>(body.get(at..)?).ok()?;
        let len = databody_priv.len;
        if rest.len() != len.checked_add(pad(len))? {
            return None;
        }
        let mut token = rest.get(..len)?.to_vec();
        let plain = self.context.keys.unwrap(&mut [&mut token]).ok()?;
        let plain_text = token.get(plain.start..plain.start.checked_add(plain.len)?)?;
        let (results, number) = xdr::decode::<u32>(plain_text).ok()?;
        (plain.is_sealed && number == self.number).then(|| results.to_vec())
    }
}
