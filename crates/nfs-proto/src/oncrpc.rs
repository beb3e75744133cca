//! ONC RPC version 2 (RFC 5531): headers of calls and replies, and AUTH_SYS. Arguments and results follow their header.

use wire::{Malformed, Parsed, Rule, decode, reject};

use crate::xdr::{Bounded, Xdr, numbers, structs};

/// The only version of the RPC protocol (RFC 5531 section 9).
pub const RPC_VERSION: u32 = 2;
/// Maximum length of the body of a credential or verifier, in bytes (RFC 5531 section 8.2).
pub const AUTH_BODY_MAX: usize = 400;
/// AUTH_NONE (RFC 5531 section 10.1).
pub const AUTH_NONE: u32 = 0;
/// AUTH_SYS (RFC 5531 appendix A).
pub const AUTH_SYS: u32 = 1;
/// AUTH_TLS (RFC 9289 section 4.1): a client proposes TLS with a NULL call.
pub const AUTH_TLS: u32 = 7;
/// Verifier body of flavor AUTH_NONE with which a server agrees to start TLS.
pub const STARTTLS: &[u8] = b"STARTTLS";
/// Maximum length of a machine name, in bytes (RFC 5531 appendix A).
pub const MACHINE_NAME_MAX: usize = 255;
/// Maximum number of supplementary groups (RFC 5531 appendix A).
pub const GIDS_MAX: usize = 16;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;

/// Program numbers.
pub mod program {
    /// The port mapper, and rpcbind (RFC 1833).
    pub const PORTMAP: u32 = 100_000;
    /// NFS (RFC 1813, RFC 8881).
    pub const NFS: u32 = 100_003;
    /// MOUNT (RFC 1813 section 5).
    pub const MOUNT: u32 = 100_005;
    /// Quotas of users, RQUOTA.
    pub const RQUOTA: u32 = 100_011;
    /// The lock manager, NLM (RFC 1813 appendix II).
    pub const NLM: u32 = 100_021;
    /// The status monitor, NSM.
    pub const NSM: u32 = 100_024;
    /// NFSACL: POSIX.1e access lists for NFS version 3.
    pub const NFSACL: u32 = 100_227;
}

structs! {
    /// `opaque_auth`: a credential or verifier (RFC 5531 section 8.2).
    #[derive(Copy)]
    pub struct OpaqueAuth<'a> {
        flavor: u32,
        body: &'a [u8] as AUTH_BODY_MAX,
    }

    /// `authsys_parms`: the body of an AUTH_SYS credential (RFC 5531 appendix A).
    pub struct AuthSys<'a> {
        stamp: u32,
        machinename: &'a [u8] as MACHINE_NAME_MAX,
        uid: u32,
        gid: u32,
        gids: Vec<u32> as GIDS_MAX,
    }
}

impl OpaqueAuth<'_> {
    /// AUTH_NONE with an empty body.
    pub const NONE: Self = Self { flavor: AUTH_NONE, body: &[] };
}

numbers! {
    /// The reason why a credential or verifier is refused (RFC 5531 section 9, `auth_stat`).
    pub enum AuthStat {
        /// No reason.
        Ok = 0,
        /// The credential cannot be read.
        BadCred = 1,
        /// The client must begin a new session.
        RejectedCred = 2,
        /// The verifier cannot be read.
        BadVerf = 3,
        /// The verifier expired or was replayed.
        RejectedVerf = 4,
        /// The flavor is not supported, or too weak for the request.
        TooWeak = 5,
        /// The response verifier is bogus.
        InvalidResp = 6,
        /// Another reason.
        Failed = 7,
        /// Kerberos version 4: generic error.
        KerbGeneric = 8,
        /// The credential expired.
        TimeExpire = 9,
        /// A problem with the ticket file.
        TktFile = 10,
        /// The authenticator cannot be decoded.
        Decode = 11,
        /// A wrong network address in the ticket.
        NetAddr = 12,
        /// No credentials for the user.
        RpcsecGssCredproblem = 13,
        /// A problem with the context.
        RpcsecGssCtxproblem = 14,
    }
}

/// The header of a call (RFC 5531 section 9, `call_body`). Arguments follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHead<'a> {
    /// Chosen by the caller; the reply repeats it.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the RPC program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// Credential of the caller.
    pub cred: OpaqueAuth<'a>,
    /// Verifier of the credential.
    pub verf: OpaqueAuth<'a>,
}

/// The reason why a message is not a valid call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Not a call, so no reply is possible.
    NotACall,
    /// Another version of RPC: reply with RPC_MISMATCH.
    RpcMismatch {
        /// xid of the call.
        xid: u32,
    },
    /// The credential or verifier is malformed: reply with AUTH_ERROR.
    Auth {
        /// xid of the call.
        xid: u32,
        /// The reason for the reply.
        stat: AuthStat,
    },
    /// The call ends before the credential: reply with GARBAGE_ARGS.
    Short {
        /// xid of the call.
        xid: u32,
    },
}

type HeaderError<'a> = (CallError, Malformed<'a>);

impl<'a> CallHead<'a> {
    /// Parses the header of a call; returns the remaining bytes and the header.
    ///
    /// # Errors
    ///
    /// The kind of reply to send, and the invalid field.
    #[inline]
    pub fn decode(message: &'a [u8]) -> Result<(&'a [u8], Self), HeaderError<'a>> {
        let not_a_call = |e| (CallError::NotACall, e);
        let (rest, xid) = decode(message, |i| u32::field("xid", i)).map_err(not_a_call)?;
        let (rest, ()) = decode(rest, |i| constant("mtype", CALL, i)).map_err(not_a_call)?;
        let short = |e| (CallError::Short { xid }, e);
        let (behind, version) = decode(rest, |i| u32::field("rpcvers", i)).map_err(short)?;
        if version != RPC_VERSION {
            let why = Malformed { field: "rpcvers", rule: Rule::Value, rest };
            return Err((CallError::RpcMismatch { xid }, why));
        }
        let (rest, [program, version, procedure]) = decode(behind, callee).map_err(short)?;
        let auth = |stat| move |e| (CallError::Auth { xid, stat }, e);
        let (rest, cred) = decode(rest, |i| auth_of(["cred.flavor", "cred.body"], i))
            .map_err(auth(AuthStat::BadCred))?;
        let (rest, verf) = decode(rest, |i| auth_of(["verf.flavor", "verf.body"], i))
            .map_err(auth(AuthStat::BadVerf))?;
        Ok((rest, Self { xid, program, version, procedure, cred, verf }))
    }

    /// Like `decode`, as a parser.
    ///
    /// # Errors
    ///
    /// The first field that breaks a rule.
    pub fn parse(input: &'a [u8]) -> Parsed<'a, Self> {
        Self::decode(input).map_err(|(_, why)| nom::Err::Error(why))
    }

    /// Appends its encoding.
    pub fn emit(&self, out: &mut Vec<u8>) {
        for word in [self.xid, CALL, RPC_VERSION, self.program, self.version, self.procedure] {
            word.emit(out);
        }
        self.cred.emit(out);
        self.verf.emit(out);
    }
}

#[inline]
fn callee(input: &[u8]) -> Parsed<'_, [u32; 3]> {
    let (rest, program) = u32::field("prog", input)?;
    let (rest, version) = u32::field("vers", rest)?;
    let (rest, procedure) = u32::field("proc", rest)?;
    Ok((rest, [program, version, procedure]))
}

#[inline]
fn constant<'a>(name: &'static str, value: u32, input: &'a [u8]) -> Parsed<'a, ()> {
    match u32::field(name, input)? {
        (rest, word) if word == value => Ok((rest, ())),
        _ => Err(reject(name, Rule::Value, input)),
    }
}

#[inline]
fn auth_of<'a>([flavor, body]: [&'static str; 2], input: &'a [u8]) -> Parsed<'a, OpaqueAuth<'a>> {
    let (rest, flavor) = u32::field(flavor, input)?;
    let (rest, body) = Bounded::bounded(AUTH_BODY_MAX, body, rest)?;
    Ok((rest, OpaqueAuth { flavor, body }))
}

/// The status of an accepted call (RFC 5531 section 9, `accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStat {
    /// Results follow.
    Success,
    /// The server does not have the program.
    ProgUnavail,
    /// The server has only the versions in this range.
    ProgMismatch(u32, u32),
    /// The version has no such procedure.
    ProcUnavail,
    /// The arguments cannot be read.
    GarbageArgs,
    /// The server failed.
    SystemErr,
}

/// The reply after its xid (RFC 5531 section 9, `reply_body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBody<'a> {
    /// MSG_ACCEPTED, with the server's verifier.
    Accepted(OpaqueAuth<'a>, AcceptStat),
    /// RPC_MISMATCH: the supported versions of RPC, lowest and highest.
    RpcMismatch(u32, u32),
    /// AUTH_ERROR.
    AuthError(AuthStat),
}

/// The header of a reply. Results follow [`AcceptStat::Success`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHead<'a> {
    /// xid of the call.
    pub xid: u32,
    /// The status of the call.
    pub body: ReplyBody<'a>,
}

impl<'a> ReplyHead<'a> {
    /// Builds the header of an accepted call with the empty verifier of AUTH_NONE.
    pub fn accepted(xid: u32, stat: AcceptStat) -> Self {
        Self { xid, body: ReplyBody::Accepted(OpaqueAuth::NONE, stat) }
    }

    /// Parses the header of a reply.
    ///
    /// # Errors
    ///
    /// The first field that breaks a rule.
    #[inline]
    pub fn parse(input: &'a [u8]) -> Parsed<'a, Self> {
        let (rest, xid) = u32::field("xid", input)?;
        let (rest, ()) = constant("mtype", REPLY, rest)?;
        let (rest, body) = match u32::field("reply_stat", rest)? {
            (rest, MSG_ACCEPTED) => {
                let (rest, verf) = auth_of(["verf.flavor", "verf.body"], rest)?;
                let (rest, stat) = AcceptStat::parse(rest)?;
                (rest, ReplyBody::Accepted(verf, stat))
            }
            (rest, MSG_DENIED) => ReplyBody::denied(rest)?,
            _ => return Err(reject("reply_stat", Rule::Value, rest)),
        };
        Ok((rest, Self { xid, body }))
    }

    /// Appends its encoding.
    #[inline]
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.xid.emit(out);
        REPLY.emit(out);
        match &self.body {
            ReplyBody::Accepted(verf, stat) => {
                MSG_ACCEPTED.emit(out);
                verf.emit(out);
                stat.emit(out);
            }
            ReplyBody::RpcMismatch(low, high) => {
                [MSG_DENIED, 0, *low, *high].iter().for_each(|w| w.emit(out));
            }
            ReplyBody::AuthError(stat) => {
                [MSG_DENIED, 1, *stat as u32].iter().for_each(|w| w.emit(out));
            }
        }
    }
}

impl ReplyBody<'_> {
    fn denied(input: &[u8]) -> Parsed<'_, Self> {
        match u32::field("reject_stat", input)? {
            (rest, 0) => {
                let (rest, low) = u32::field("mismatch_info.low", rest)?;
                let (rest, high) = u32::field("mismatch_info.high", rest)?;
                Ok((rest, Self::RpcMismatch(low, high)))
            }
            (rest, 1) => {
                let (rest, stat) = AuthStat::field("auth_stat", rest)?;
                Ok((rest, Self::AuthError(stat)))
            }
            _ => Err(reject("reject_stat", Rule::Value, input)),
        }
    }
}

impl AcceptStat {
    #[inline]
    fn parse(input: &[u8]) -> Parsed<'_, Self> {
        let (rest, number) = u32::field("accept_stat", input)?;
        let stat = match number {
            0 => Self::Success,
            1 => Self::ProgUnavail,
            2 => {
                let (rest, low) = u32::field("mismatch_info.low", rest)?;
                let (rest, high) = u32::field("mismatch_info.high", rest)?;
                return Ok((rest, Self::ProgMismatch(low, high)));
            }
            3 => Self::ProcUnavail,
            4 => Self::GarbageArgs,
            5 => Self::SystemErr,
            _ => return Err(reject("accept_stat", Rule::Value, input)),
        };
        Ok((rest, stat))
    }

    #[inline]
    fn emit(self, out: &mut Vec<u8>) {
        match self {
            Self::Success => 0u32.emit(out),
            Self::ProgUnavail => 1u32.emit(out),
            Self::ProgMismatch(low, high) => [2, low, high].iter().for_each(|w| w.emit(out)),
            Self::ProcUnavail => 3u32.emit(out),
            Self::GarbageArgs => 4u32.emit(out),
            Self::SystemErr => 5u32.emit(out),
        }
    }
}

#[cfg(test)]
mod tests;
