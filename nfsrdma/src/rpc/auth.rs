//! Credentials: AUTH_NONE and AUTH_SYS (RFC 5531 sections 8.1, 10.1 and appendix A).

use std::sync::Arc;

use nfs_proto::oncrpc::{AUTH_NONE, AUTH_SYS, AuthStat, AuthSys, OpaqueAuth};
use nfs_proto::rpcsec_gss::GssService;
use nfs_proto::xdr;
use vfs::ANONYMOUS;
use vfs::Cred;

/// The authentication flavor of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// The caller sends no identity.
    None,
    /// AUTH_SYS: numeric ids, trusted because the address is.
    Sys,
    /// RPCSEC_GSS: a Kerberos ticket, with this protection of calls.
    Gss(GssService),
}

impl Flavor {
    /// Converts to the flavor names of share configurations.
    pub fn of_share(self) -> vfs::namespace::Flavor {
        use vfs::namespace::Flavor as Of;
        match self {
            Self::None | Self::Sys => Of::Sys,
            Self::Gss(GssService::None) => Of::Krb5,
            Self::Gss(GssService::Integrity) => Of::Krb5i,
            Self::Gss(GssService::Privacy) => Of::Krb5p,
        }
    }

    /// True if replies are checksummed or encrypted before they leave.
    pub fn is_protected(self) -> bool {
        matches!(self, Self::Gss(GssService::Integrity | GssService::Privacy))
    }
}

/// Decodes the caller's identity from a credential, before any share squashes it.
pub fn decode_cred(cred: OpaqueAuth<'_>) -> Result<(Flavor, Cred), AuthStat> {
    match cred.flavor {
        AUTH_NONE if cred.body.is_empty() => Ok((Flavor::None, nobody())),
        AUTH_SYS => match xdr::decode::<AuthSys<'_>>(cred.body) {
            Ok(([], AuthSys { uid, gid, gids, .. })) => {
                Ok((Flavor::Sys, Cred { uid, gid, groups: gids.into(), token: vfs::Token::NONE }))
            }
            _ => Err(AuthStat::BadCred),
        },
        AUTH_NONE => Err(AuthStat::BadCred),
        _ => Err(AuthStat::TooWeak),
    }
}

pub fn nobody() -> Cred {
    Cred { uid: ANONYMOUS, gid: ANONYMOUS, groups: Arc::new([]), token: vfs::Token::NONE }
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
    fn auth_sys_ids_become_credentials() {
        let (flavor, cred) = decoded(AUTH_SYS, &body(vec![0, 1])).unwrap();
        assert_eq!(flavor, Flavor::Sys);
        assert_eq!(
            cred,
            Cred { uid: 1000, gid: 100, groups: Arc::new([0, 1]), token: vfs::Token::NONE }
        );
    }

    #[test]
    fn oversized_or_truncated_body_is_refused() {
        let mut long = body(vec![]);
        assert_eq!(decoded(AUTH_SYS, &long[..long.len() - 4]), Err(AuthStat::BadCred));
        long.extend([0; 4]);
        assert_eq!(decoded(AUTH_SYS, &long), Err(AuthStat::BadCred));
        assert_eq!(decoded(AUTH_SYS, &body(vec![0; 17])), Err(AuthStat::BadCred));
    }

    #[test]
    fn auth_none_is_anonymous() {
        assert_eq!(decoded(6, &[]), Err(AuthStat::TooWeak));
        assert_eq!(decoded(AUTH_NONE, &[0; 4]), Err(AuthStat::BadCred));
        assert_eq!(decoded(AUTH_NONE, &[]).unwrap(), (Flavor::None, nobody()));
    }
}
