//! Decides which calls claim an identity that only a source port below 1024 can support, and refuses them: see
//! [`crate::source_port`].

use nfs_proto::mount::{Dirpath, Mountres3, Mountstat3, procedure};
use nfs_proto::nfs3::NfsFh3;
use nfs_proto::oncrpc::{AcceptStat, AuthStat, CallHead, ReplyBody, ReplyHead, program};
use nfs_proto::{nlm, nsm};
use rdma_transport::channel::Reply;
use rdma_transport::refused::Refused;
use rdma_transport::xdr::{Reader, Writer};

use crate::context::Conn;
use crate::fh::Named;
use crate::mount;
use crate::rpc::Flavor;
use crate::server_state::ServerState;
use crate::source_port::RULE;

/// The identity that a call claims without proof, other than the word of the client's superuser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// The call needs no rights, or only the anonymous user's.
    None,
    /// The call acts as a user, or on behalf of the owner of state that a client or host holds.
    Made,
    /// The call mounts a share as a user.
    Mount,
}

/// Returns the claim of this call.
fn claim(head: &CallHead<'_>, flavor: Flavor) -> Claim {
    match (head.program, head.procedure, flavor) {
        (_, 0, _) => Claim::None,
        // These procedures name the host and the owner in their arguments, whatever the credential.
        (program::NLM, number, _) if number <= nlm::procedure::FREE_ALL => Claim::Made,
        (program::NSM, nsm::procedure::NOTIFY, _) => Claim::Made,
        // A Kerberos ticket proves the identity, so the source port does not matter.
        (_, _, Flavor::Gss(_)) => Claim::None,
        // Version 4 names clients and stateids, which an attacker can guess.
        (program::NFS, _, _) if head.version == 4 => Claim::Made,
        (program::NFS | program::NFSACL, _, Flavor::Sys) => Claim::Made,
        (program::MOUNT, procedure::MNT, Flavor::Sys) => Claim::Mount,
        _ => Claim::None,
    }
}

/// Returns the refusal of a call that claims an identity from an untrusted port, `None` for other calls. `args` is positioned at
/// the arguments.
pub(crate) fn refuse(
    core: &ServerState,
    conn: &Conn,
    head: &CallHead<'_>,
    flavor: Flavor,
    args: &Reader<'_>,
) -> Option<Reply> {
    let mut out = Writer::new();
    match claim(head, flavor) {
        Claim::None => return None,
        Claim::Made => {
            let body = ReplyBody::AuthError(AuthStat::TooWeak);
            ReplyHead { xid: head.xid, body }.emit(out.head());
        }
        Claim::Mount => {
            ReplyHead::accepted(head.xid, AcceptStat::Success).emit(out.head());
            out.value(&Mountres3::Err(Mountstat3::Acces));
        }
    }
    conn.refused(Refused {
        peer: conn.info.peer.ip(),
        // The user in the credential is the unproven claim, so the record must not name it.
        user: Default::default(),
        share: share(core, head, args.clone()).unwrap_or_default().into(),
        rule: RULE,
        remedy: "mount as root: its port is not below 1024, so that any user may have sent the call; or say \
                 `privileged_ports: off`"
            .into(),
    });
    Some(out.into_reply())
}

/// Returns the share that the first argument names, for procedures whose arguments begin with a handle or path.
fn share(core: &ServerState, head: &CallHead<'_>, mut args: Reader<'_>) -> Option<String> {
    match (head.program, head.version) {
        (program::NFS, 3) | (program::NFSACL, _) => {
            match core.handles.open(&core.namespace, args.value::<NfsFh3<'_>>().ok()?.data) {
                Ok(Named::Node(share, _)) => Some(share.name.clone()),
                _ => None,
            }
        }
        (program::MOUNT, _) => {
            let Dirpath { dirpath: path } = args.value().ok()?;
            mount::share_at(core, path).map(|share| share.name.clone())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use nfs_proto::oncrpc::OpaqueAuth;
    use nfs_proto::rpcsec_gss::GssService;

    use super::*;

    #[test]
    fn anonymous_calls_name_no_caller() {
        let said = OpaqueAuth { flavor: 1, body: &[] };
        let call = |program, version, procedure| CallHead {
            xid: 1,
            program,
            version,
            procedure,
            cred: said,
            verf: said,
        };
        let claimed = |program, procedure, flavor| claim(&call(program, 3, procedure), flavor);
        use Flavor::{None as Anonymous, Sys};
        assert_eq!(claim(&call(program::NFS, 4, 1), Anonymous), Claim::Made);
        for program in [program::NFS, program::NFSACL] {
            assert_eq!(claimed(program, 0, Sys), Claim::None);
            assert_eq!(claimed(program, 1, Sys), Claim::Made);
            assert_eq!(claimed(program, 1, Anonymous), Claim::None);
        }
        assert_eq!(claimed(program::MOUNT, procedure::MNT, Sys), Claim::Mount);
        assert_eq!(claimed(program::MOUNT, procedure::EXPORT, Sys), Claim::None);
        for flavor in [Anonymous, Sys, Flavor::Gss(GssService::None)] {
            assert_eq!(claimed(program::NLM, nlm::procedure::UNLOCK, flavor), Claim::Made);
            assert_eq!(claimed(program::NLM, nlm::procedure::FREE_ALL, flavor), Claim::Made);
            assert_eq!(claimed(program::NSM, nsm::procedure::NOTIFY, flavor), Claim::Made);
            assert_eq!(claimed(program::NSM, nsm::procedure::STAT, flavor), Claim::None);
            assert_eq!(claimed(program::PORTMAP, 3, flavor), Claim::None);
        }
        assert_eq!(claimed(program::NFS, 1, Flavor::Gss(GssService::None)), Claim::None);
    }
}
