//! Credentials: AUTH_NONE and AUTH_SYS (RFC 5531 sections 8.1, 10.1 and appendix A).

use std::sync::Arc;

use nfs_proto::oncrpc::{AUTH_NONE, AUTH_SYS, AuthStat, AuthSys, OpaqueAuth};
use nfs_proto::rpcsec_gss::GssService;
use nfs_proto::xdr;
use vfs::ANONYMOUS;
use vfs::Cred;

/// How a caller says who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// It does not.
    None,
    /// By numbers, believed because the address is.
    Sys,
    /// By a ticket, and its calls are protected so.
    Gss(GssService),
}

impl Flavor {
    /// As shares name it.
    pub fn of_share(self) -> vfs::namespace::Flavor {
        use vfs::namespace::Flavor as Of;
        match self {
            Self::None | Self::Sys => Of::Sys,
            Self::Gss(GssService::None) => Of::Krb5,
            Self::Gss(GssService::Integrity) => Of::Krb5i,
            Self::Gss(GssService::Privacy) => Of::Krb5p,
        }
    }

    /// What is sent must be looked at, or changed, before it leaves.
    pub fn is_protected(self) -> bool {
        matches!(self, Self::Gss(GssService::Integrity | GssService::Privacy))
    }
}

/// The caller that the credential of a call names, before any share squashes it.
pub fn decode_cred(cred: OpaqueAuth<'_>) -> Result<(Flavor, Cred), AuthStat> {
    match cred.flavor {
        AUTH_NONE if cred.body.is_empty() => Ok((Flavor::None, nobody())),
        AUTH_SYS => match xdr::decode::<AuthSys<'_>>(cred.body) {
            Ok(([], AuthSys { uid, gid, gids, .. })) => {
                Ok((Flavor::Sys, Cred { uid, gid, groups: gids.into() }))
            }
            _ => Err(AuthStat::BadCred),
        },
        AUTH_NONE => Err(AuthStat::BadCred),
        _ => Err(AuthStat::TooWeak),
    }
}

/// The anonymous user.
pub fn nobody() -> Cred {
    Cred { uid: ANONYMOUS, gid: ANONYMOUS, groups: Arc::new([]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(flavor: u32, body: &[u8]) -> Result<(Flavor, Cred), AuthStat> {
        decode_cred(OpaqueAuth { flavor, body })
    }

    fn body(gids: Vec<u32>) -> Vec<u8> {
        xdr::encode(&AuthSys { stamp: 7, machinename: b"host", uid: 1000, gid: 100, gids })
    }

    #[test]
    fn the_numbers_of_auth_sys_become_the_caller() {
        let (flavor, cred) = decoded(AUTH_SYS, &body(vec![0, 1])).unwrap();
        assert_eq!(flavor, Flavor::Sys);
        assert_eq!(cred, Cred { uid: 1000, gid: 100, groups: Arc::new([0, 1]) });
    }

    #[test]
    fn a_body_that_is_too_long_or_cut_is_refused() {
        let mut long = body(vec![]);
        assert_eq!(decoded(AUTH_SYS, &long[..long.len() - 4]), Err(AuthStat::BadCred));
        long.extend([0; 4]);
        assert_eq!(decoded(AUTH_SYS, &long), Err(AuthStat::BadCred));
        assert_eq!(decoded(AUTH_SYS, &body(vec![0; 17])), Err(AuthStat::BadCred));
    }

    #[test]
    fn other_flavors_are_refused_and_none_is_nobody() {
        assert_eq!(decoded(6, &[]), Err(AuthStat::TooWeak));
        assert_eq!(decoded(AUTH_NONE, &[0; 4]), Err(AuthStat::BadCred));
        assert_eq!(decoded(AUTH_NONE, &[]).unwrap(), (Flavor::None, nobody()));
    }
}
