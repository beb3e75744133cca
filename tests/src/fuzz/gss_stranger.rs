//! RPCSEC_GSS calls from an untrusted sender: requests contexts from a server in this process, and takes every part of the calls
//! from the input: credential, sequence number, verifier, program, protected body. A model computes the correct result (RFC 2203
//! section 5.3.3): a call with an invalid header is never executed, no sequence number is accepted twice, and a context is unusable
//! before its creation and after its end.

use std::collections::BTreeSet;

use gss_krb5::Context;
use nfs_proto::oncrpc::{AuthStat, CallHead, OpaqueAuth, ReplyBody, ReplyHead, program};
use nfs_proto::rpcsec_gss::{
    GssCred, GssInitArg, GssInitRes, GssProc, GssService, MAXSEQ, RPCSEC_GSS, VERSION_1,
};
use nfs_proto::xdr::{self, Xdr};
use nfsrdma::server::Session;

use super::gss::{call, ends, session_of};

/// Calls made from one input.
const CALLS_MAX: usize = 24;
/// Size of the sequence window, as the server announces it.
const WINDOW: u32 = 128;

/// A context from the client's point of view.
struct Known {
    handle: Vec<u8>,
    taken: BTreeSet<u32>,
    has_ended: bool,
}

impl Known {
    /// True if this call's sequence number must be accepted.
    fn takes(&mut self, number: u32) -> bool {
        let highest = self.taken.last().copied().unwrap_or(0).max(number);
        let is_first = highest - number < WINDOW && !self.taken.contains(&number);
        // A number below the window is never accepted again.
        self.taken.insert(number);
        is_first
    }
}

/// One call of the input: nine bytes, then its arguments.
struct Chosen<'a> {
    what: u8,
    context: u8,
    number: u32,
    verifier: u8,
    procedure: u8,
    args: &'a [u8],
}

impl<'a> Chosen<'a> {
    fn next(data: &mut &'a [u8]) -> Option<Self> {
        let [what, context, n0, n1, n2, n3, verifier, procedure, len, rest @ ..] = *data else {
            return None;
        };
        let number = u32::from_be_bytes([*n0, *n1, *n2, *n3]);
        let (args, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        *data = rest;
        let (what, context, verifier) = (*what, *context, *verifier);
        Some(Self { what, context, number, verifier, procedure: *procedure, args })
    }

    fn service(&self) -> GssService {
        GssService::ALL[usize::from(self.what >> 2) % 3]
    }

    fn gss_proc(&self) -> GssProc {
        GssProc::ALL[usize::from(self.what) % 4]
    }

    /// Program, version and procedure.
    fn numbers(&self) -> (u32, u32, u32) {
        let procedure = u32::from(self.procedure % 32);
        match self.procedure >> 5 {
            0..=3 => (program::NFS, 3, procedure),
            4 | 5 => (program::NFS, 4, procedure % 2),
            6 => (program::MOUNT, 3, procedure),
            _ => (program::NLM, 4, procedure),
        }
    }

    /// The protected arguments: valid, with a wrong number inside, or unprotected.
    fn body(&self, client: &Context) -> Vec<u8> {
        let number = self.number ^ u32::from(self.verifier >> 4 & 1);
        let mut plain = [&number.to_be_bytes()[..], self.args].concat();
        let mut out = Vec::new();
        match self.service() {
            _ if self.verifier & 0x80 != 0 => return self.args.to_vec(),
            GssService::None => return self.args.to_vec(),
            GssService::Integrity => {
                ::wire::emit::opaque(&mut out, &plain);
                ::wire::emit::opaque(&mut out, &client.mic(2, &[&plain]));
            }
            GssService::Privacy => {
                let Ok(wrapped) = client.wrap(3, &mut [&mut plain]) else { return out };
                let token = [wrapped.head(), &plain, wrapped.tail()].concat();
                ::wire::emit::opaque(&mut out, &token);
            }
        }
        out
    }
}

/// The whole call, and whether its verifier is valid.
fn message(chosen: &Chosen<'_>, cred: &[u8], client: &Context, body: &[u8]) -> (Vec<u8>, bool) {
    let (program, version, procedure) = chosen.numbers();
    let cred = OpaqueAuth { flavor: RPCSEC_GSS, body: cred };
    let mut out = Vec::new();
    let head = CallHead { xid: 9, program, version, procedure, cred, verf: OpaqueAuth::NONE };
    head.emit(&mut out);
    out.truncate(out.len() - xdr::encode(&OpaqueAuth::NONE).len());
    let mut mic = client.mic(u64::from(chosen.number), &[&out]).to_vec();
    let (flavor, body_of) = match chosen.verifier % 8 {
        0..=3 => (RPCSEC_GSS, &mic[..]),
        4 => (0, &[][..]),
        5 => (RPCSEC_GSS, &chosen.args[..chosen.args.len().min(40)]),
        6 => (1, &mic[..]),
        _ => {
            let at = usize::from(chosen.verifier >> 3) % mic.len();
            mic[at] ^= 1;
            (RPCSEC_GSS, &mic[..])
        }
    };
    let is_good = chosen.verifier % 8 < 4;
    OpaqueAuth { flavor, body: body_of }.emit(&mut out);
    out.extend_from_slice(body);
    (out, is_good)
}

/// Requests a context, correctly or not; a created context is kept.
fn ask(session: &Session, chosen: &Chosen<'_>, client: &Context, contexts: &mut Vec<Known>) {
    let (gss_proc, service) = (chosen.gss_proc(), chosen.service());
    // The handle is ignored here.
    let handle = &chosen.args[..chosen.args.len().min(8)];
    let seq_num = chosen.number;
    let cred = GssCred { vers: VERSION_1, gss_proc, seq_num, service, handle };
    let cred = xdr::encode(&cred);
    let token = match chosen.verifier & 0x80 {
        0 => xdr::encode(&GssInitArg { gss_token: chosen.args }),
        _ => chosen.args.to_vec(),
    };
    let (message, _) = message(chosen, &cred, client, &token);
    let Some(reply) = call(session, message) else { return };
    let Ok((results, head)) = ::wire::decode(&reply, ReplyHead::parse) else { panic!("a reply") };
    let ReplyBody::Accepted(verf, _) = head.body else { return };
    let Ok(([], made)) = xdr::decode::<GssInitRes<'_>>(results) else { return };
    let is_asked = gss_proc == GssProc::Init && chosen.numbers().2 == 0;
    assert!(is_asked && chosen.verifier % 8 == 4, "a context that was not asked for");
    let window = made.seq_window.to_be_bytes();
    assert!(client.verify_mic(verf.body, &[&window]).is_ok(), "a window without its verifier");
    let handle = made.handle.to_vec();
    contexts.push(Known { handle, taken: BTreeSet::new(), has_ended: false });
}

/// Makes a call in a context, or destroys the context.
fn by(session: &Session, chosen: &Chosen<'_>, client: &Context, contexts: &mut [Known]) {
    let (gss_proc, service, seq_num) = (chosen.gss_proc(), chosen.service(), chosen.number);
    let which = usize::from(chosen.context % 8);
    let known = contexts.get_mut(which);
    let handle = known.as_ref().map_or(chosen.args, |known| &known.handle[..]);
    let handle = handle[..handle.len().min(200)].to_vec();
    let cred = GssCred { vers: VERSION_1, gss_proc, seq_num, service, handle: &handle };
    let mut cred = xdr::encode(&cred);
    // An invalid credential: of another version, too short, or with trailing bytes.
    let is_whole = chosen.context < 0xf0;
    match chosen.context {
        0xf0..0xf5 => cred[3] = chosen.context,
        0xf5..0xfa => cred.truncate(usize::from(chosen.context - 0xf5) * 4),
        0xfa.. => cred.extend([0; 4]),
        _ => {}
    }
    let (message, verifies) = message(chosen, &cred, client, &chosen.body(client));
    let reply = call(session, message);
    let body = reply.as_deref().map(|reply| {
        let Ok((_, head)) = ::wire::decode(reply, ReplyHead::parse) else { panic!("a reply") };
        head.body
    });
    let refused = |stat| assert_eq!(body, Some(ReplyBody::AuthError(stat)), "{cred:x?}");
    if !is_whole {
        return refused(AuthStat::BadCred);
    }
    let Some(known) = known.filter(|known| !known.has_ended && verifies) else {
        return refused(AuthStat::RpcsecGssCredproblem);
    };
    if seq_num > MAXSEQ {
        return refused(AuthStat::RpcsecGssCtxproblem);
    }
    if !known.takes(seq_num) {
        assert_eq!(body, None, "number {seq_num} was taken");
        return;
    }
    let ends = gss_proc == GssProc::Destroy;
    if ends && chosen.numbers().2 != 0 {
        return refused(AuthStat::BadCred);
    }
    known.has_ended = ends;
    match body {
        Some(ReplyBody::Accepted(verf, _)) => {
            let verifies = client.verify_mic(verf.body, &[&seq_num.to_be_bytes()]).is_ok();
            assert!(verifies && verf.flavor == RPCSEC_GSS, "a reply without its verifier");
        }
        Some(ReplyBody::AuthError(AuthStat::TooWeak)) | None => {}
        Some(ReplyBody::RpcMismatch(..) | ReplyBody::AuthError(_)) => panic!("refused: {body:?}"),
    }
}

/// Input: encryption type (a byte), then calls.
pub fn gss_stranger(data: &[u8]) {
    let [kind, data @ ..] = data else { return };
    let kind = kind % 8;
    let Some([client, _]) = ends(kind) else { return };
    let session = session_of(kind);
    let (mut data, mut contexts) = (data, Vec::new());
    for _ in 0..CALLS_MAX {
        let Some(chosen) = Chosen::next(&mut data) else { return };
        match chosen.gss_proc() {
            GssProc::Init | GssProc::ContinueInit => {
                ask(&session, &chosen, &client, &mut contexts);
            }
            GssProc::Data | GssProc::Destroy => by(&session, &chosen, &client, &mut contexts),
        }
    }
}

/// A context, calls of each service with valid and invalid verifiers, a repeated number, the context's end, and a call after it.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let one = |what: u8, number: u8, verifier: u8, procedure: u8, args: &[u8]| {
        // Arguments of a seed are short.
        let len = args.len().to_le_bytes()[0];
        [&[what, 0, 0, 0, 0, number, verifier, procedure, len][..], args].concat()
    };
    let lookup = crate::raw::words(&[4, 9, 1, 0x6600_0000]);
    let mut seeds = Vec::new();
    for kind in 0..4 {
        let init = one(1, 0, 4, 0, b"a ticket");
        let again = one(2, 0, 4, 0, b"a ticket");
        let calls: Vec<u8> = (0..3u8)
            .flat_map(|service| {
                let good = one(service << 2, service + 1, 0, 3, &lookup);
                let changed = one(service << 2, service + 9, 7, 3, &lookup);
                let unprotected = one(service << 2, service + 20, 0x80, 3, &lookup);
                [good.clone(), good, changed, unprotected].concat()
            })
            .collect();
        let end = [one(3, 60, 0, 0, &[]), one(0, 61, 0, 0, &[])].concat();
        seeds.push([&[kind][..], &init, &again, &calls, &end].concat());
    }
    seeds
}
