//! The head of a call (RFC 5531 section 9, `call_body`).

use super::auth::AuthStat;
use super::{AUTH_BODY_MAX, RPC_VERSION};
use crate::xdr::{Reader, XdrError};

/// A call up to its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHead<'a> {
    /// Chosen by the caller; the reply repeats it.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// Flavor of the credential.
    pub flavor: u32,
    /// Body of the credential.
    pub cred: &'a [u8],
}

/// Why a message is not a call that can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Not a call at all; there is nothing to answer.
    NotACall,
    /// Another version of RPC: RPC_MISMATCH.
    RpcMismatch {
        /// Of the call.
        xid: u32,
    },
    /// The credential or verifier cannot be read: AUTH_ERROR.
    Auth {
        /// Of the call.
        xid: u32,
        /// Which of them.
        stat: AuthStat,
    },
    /// It ends before the credential: GARBAGE_ARGS.
    Short {
        /// Of the call.
        xid: u32,
    },
}

/// Reads the head of a call; what is left in `r` are the arguments.
pub fn decode_call<'a>(r: &mut Reader<'a>) -> Result<CallHead<'a>, CallError> {
    const CALL: u32 = 0;
    let xid = r.u32().map_err(|_| CallError::NotACall)?;
    if r.u32() != Ok(CALL) {
        return Err(CallError::NotACall);
    }
    let short = |_: XdrError| CallError::Short { xid };
    if r.u32().map_err(short)? != RPC_VERSION {
        return Err(CallError::RpcMismatch { xid });
    }
    let program = r.u32().map_err(short)?;
    let version = r.u32().map_err(short)?;
    let procedure = r.u32().map_err(short)?;
    let bad_cred = |_: XdrError| CallError::Auth { xid, stat: AuthStat::BadCred };
    let flavor = r.u32().map_err(bad_cred)?;
    let cred = r.opaque(AUTH_BODY_MAX).map_err(bad_cred)?;
    let bad_verf = |_: XdrError| CallError::Auth { xid, stat: AuthStat::BadVerf };
    r.u32().map_err(bad_verf)?;
    r.opaque(AUTH_BODY_MAX).map_err(bad_verf)?;
    Ok(CallHead { xid, program, version, procedure, flavor, cred })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iobuf::Buf;

    fn words(w: &[u32]) -> Buf {
        Buf::from(w.iter().flat_map(|v| v.to_be_bytes()).collect::<Vec<_>>())
    }

    #[test]
    fn a_call_is_read_up_to_its_arguments() {
        let b = words(&[9, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, 77]);
        let mut r = Reader::new(&b, &[]);
        let head =
            CallHead { xid: 9, program: 100_003, version: 3, procedure: 1, flavor: 0, cred: &[] };
        assert_eq!(decode_call(&mut r), Ok(head));
        assert_eq!(r.u32(), Ok(77));
    }

    #[test]
    fn each_broken_head_has_its_own_error() {
        let of = |w: &[u32]| decode_call(&mut Reader::new(&words(w), &[])).map(|h| h.xid);
        assert_eq!(of(&[9]), Err(CallError::NotACall));
        assert_eq!(of(&[9, 1, 0, 0, 0, 0]), Err(CallError::NotACall));
        assert_eq!(of(&[9, 0, 3, 1, 1, 1]), Err(CallError::RpcMismatch { xid: 9 }));
        assert_eq!(of(&[9, 0, 2, 1, 1]), Err(CallError::Short { xid: 9 }));
        let cred = Err(CallError::Auth { xid: 9, stat: AuthStat::BadCred });
        assert_eq!(of(&[9, 0, 2, 1, 1, 1, 0, 401]), cred);
        assert_eq!(of(&[9, 0, 2, 1, 1, 1, 0, 8, 0]), cred);
        let verf = Err(CallError::Auth { xid: 9, stat: AuthStat::BadVerf });
        assert_eq!(of(&[9, 0, 2, 1, 1, 1, 0, 0, 0, 4]), verf);
    }
}
