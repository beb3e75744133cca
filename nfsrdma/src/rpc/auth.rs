//! Credentials: AUTH_NONE and AUTH_SYS (RFC 5531 sections 8.1, 10.1 and appendix A).

use std::sync::Arc;

use iobuf::Buf;
use vfs::Cred;
use vfs::namespace::ANONYMOUS;

use crate::xdr::{Reader, XdrResult};

/// AUTH_NONE.
pub const AUTH_NONE: u32 = 0;
/// AUTH_SYS.
pub const AUTH_SYS: u32 = 1;
/// Longest machine name, in bytes (RFC 5531 appendix A).
pub const MACHINE_NAME_MAX: usize = 255;
/// Most supplementary groups (RFC 5531 appendix A).
pub const GIDS_MAX: usize = 16;

/// How a caller says who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// It does not.
    None,
    /// By numbers, believed because the address is.
    Sys,
}

/// Why a credential is refused (RFC 5531 section 9, `auth_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AuthStat {
    /// The credential cannot be read.
    BadCred = 1,
    /// The verifier cannot be read.
    BadVerf = 3,
    /// The flavor is not served, or too weak for what was asked.
    TooWeak = 5,
}

/// The caller that the credential of a call names, before any share squashes it. `body` is the credential's body.
pub fn decode_cred(flavor: u32, body: &[u8]) -> Result<(Flavor, Cred), AuthStat> {
    match flavor {
        AUTH_NONE if body.is_empty() => Ok((Flavor::None, nobody())),
        AUTH_SYS => {
            // The body is at most 400 bytes; the copy lets the one reader of the crate check it.
            let body = Buf::from(body.to_vec());
            let cred = auth_sys(&mut Reader::new(&body, &[])).map_err(|_| AuthStat::BadCred)?;
            Ok((Flavor::Sys, cred))
        }
        AUTH_NONE => Err(AuthStat::BadCred),
        _ => Err(AuthStat::TooWeak),
    }
}

/// The anonymous user.
pub fn nobody() -> Cred {
    Cred { uid: ANONYMOUS, gid: ANONYMOUS, groups: Arc::new([]) }
}

fn auth_sys(r: &mut Reader<'_>) -> XdrResult<Cred> {
    let _stamp = r.u32()?;
    let _machine = r.opaque(MACHINE_NAME_MAX)?;
    let (uid, gid) = (r.u32()?, r.u32()?);
    let n = r.count(GIDS_MAX)?;
    let mut groups = Vec::with_capacity(n);
    for _ in 0..n {
        groups.push(r.u32()?);
    }
    if r.remaining() != 0 {
        return Err(crate::xdr::XdrError::TooLong);
    }
    Ok(Cred { uid, gid, groups: groups.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Writer;

    fn body(machine: &[u8], gids: usize) -> Vec<u8> {
        let mut w = Writer::new();
        w.u32(7);
        w.opaque(machine);
        w.u32(1000);
        w.u32(100);
        w.count(gids);
        (0..gids).for_each(|g| w.count(g));
        w.into_reply().head
    }

    #[test]
    fn the_numbers_of_auth_sys_become_the_caller() {
        let (flavor, cred) = decode_cred(AUTH_SYS, &body(b"host", 2)).unwrap();
        assert_eq!(flavor, Flavor::Sys);
        assert_eq!(cred, Cred { uid: 1000, gid: 100, groups: Arc::new([0, 1]) });
    }

    #[test]
    fn auth_sys_is_held_to_255_name_bytes_and_16_groups() {
        assert!(decode_cred(AUTH_SYS, &body(&[b'a'; 255], 16)).is_ok());
        assert_eq!(decode_cred(AUTH_SYS, &body(&[b'a'; 256], 0)), Err(AuthStat::BadCred));
        assert_eq!(decode_cred(AUTH_SYS, &body(b"", 17)), Err(AuthStat::BadCred));
        let mut long = body(b"", 0);
        long.extend([0; 4]);
        assert_eq!(decode_cred(AUTH_SYS, &long), Err(AuthStat::BadCred));
    }

    #[test]
    fn other_flavors_are_refused_and_none_is_nobody() {
        assert_eq!(decode_cred(6, &[]), Err(AuthStat::TooWeak));
        assert_eq!(decode_cred(AUTH_NONE, &[0; 4]), Err(AuthStat::BadCred));
        assert_eq!(decode_cred(AUTH_NONE, &[]).unwrap(), (Flavor::None, nobody()));
    }
}
