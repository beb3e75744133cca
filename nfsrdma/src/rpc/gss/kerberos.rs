//! Accepts Kerberos tokens with MIT's library. [`Principals`] maps principals to local users for every protocol.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gss_krb5::{Cause, Enctype, Role};
use gss_sys::{Error, Established, Pool, Step};
use iobuf::Buf;
use rdma_transport::channel::{BoxFuture, host_of};
use vfs::Cred;

use super::{Accept, Accepted, NotAccepted, Why};
use crate::rpc::auth::nobody;

/// The limit reported when no thread takes a token in time.
pub const LIMIT: &str = "kerberos-nfs";
/// Seconds that a token waits for a thread, and again for the answer.
pub(super) const WAIT_S: usize = 5;
/// Tokens processed concurrently: the library reads the keytab and its replay cache for each.
const THREADS: usize = 4;

static POOL: Pool = Pool::new(THREADS, Duration::from_secs(WAIT_S as u64));

/// The service name of NFS (RFC 2623 section 3.1): tickets for other keytab entries are refused.
const SERVICE: &str = "nfs";

/// Maps an authenticated principal to the user for file access.
pub trait Principals: Send + Sync + 'static {
    /// Returns the user of the principal. May block on the name service.
    ///
    /// # Errors
    /// *Errors.* The principal is not a user, or the name service cannot tell.
    fn cred(&self, who: &Established) -> Result<Cred, NoUser>;
}

/// The reason why a principal has no user. The texts go to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoUser {
    /// The principal is unknown here, or may not use Kerberos: it accesses files as the anonymous user.
    Anonymous(String),
    /// The name service, or that of the domain, does not answer or has no number for it: the ticket is refused.
    NotKnown(String),
}

/// Accepts tickets with the keys of a keytab.
#[derive(Clone)]
pub struct Kerberos {
    keytab: PathBuf,
    principals: Arc<dyn Principals>,
}

impl Kerberos {
    /// Uses this keytab, which is read for each token.
    pub fn new(keytab: &Path, principals: Arc<dyn Principals>) -> Self {
        Self { keytab: keytab.to_owned(), principals }
    }

    /// May block on files and on the name service.
    fn take(&self, token: &[u8]) -> Result<Accepted, NotAccepted> {
        let refuse = |error: Error| refused(error, String::new());
        match gss_sys::accept(&self.keytab, &[SERVICE], token).map_err(refuse)? {
            Step::Done { token, established } => self.established(token, *established),
            // Only DCE_STYLE needs more than one token, and NFS clients do not use it.
            Step::Continue(_) => Err(refused_because(Why::Exchange, String::new(), String::new())),
        }
    }

    fn established(&self, token: Vec<u8>, who: Established) -> Result<Accepted, NotAccepted> {
        let principal = who.principal().to_owned();
        let no = |why, detail: String| refused_because(why, principal.clone(), detail);
        if who.service().split_once('/').is_none_or(|(service, _)| service != SERVICE) {
            return Err(no(Why::Service, who.service().to_owned()));
        }
        let cred = self.cred_of(&who).map_err(|detail| no(Why::NameService, detail))?;
        let lucid = who.lucid().map_err(|error| refused(error, principal.clone()))?;
        let has_subkey = lucid.acceptor_key.is_some();
        let key = lucid.acceptor_key.unwrap_or(lucid.initiator_key);
        let enctype = i32::try_from(key.enctype).ok().and_then(Enctype::from_number);
        let keys = enctype.and_then(|enctype| {
            gss_krb5::Context::new(enctype, &key.key, Role::Acceptor, has_subkey).ok()
        });
        let keys = keys.ok_or_else(|| no(Why::Enctype, format!("number {}", key.enctype)))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let lifetime = Duration::from_secs(lucid.end_time.into()).saturating_sub(now);
        // The library accepts expired tickets within the allowed clock skew, but every call in the context would be refused.
        if lifetime.is_zero() {
            return Err(no(Why::Kerberos(Cause::Expired), String::new()));
        }
        Ok(Accepted { token, keys, sequence: lucid.send_seq, principal, cred, lifetime })
    }

    /// The identity for file access. Machines and principals without a local user access files as the anonymous user, but own their
    /// state under their own name.
    fn cred_of(&self, who: &Established) -> Result<Cred, String> {
        let principal = who.principal();
        if is_machine(principal) {
            return Ok(nobody());
        }
        match self.principals.cred(who) {
            Ok(cred) => Ok(cred),
            Err(NoUser::Anonymous(why)) => {
                tracing::info!(%principal, why, "to files a principal is the anonymous user");
                Ok(nobody())
            }
            Err(NoUser::NotKnown(why)) => Err(why),
        }
    }
}

impl Accept for Kerberos {
    fn accept(
        &self,
        token: Buf,
        from: IpAddr,
    ) -> BoxFuture<'static, Result<Accepted, NotAccepted>> {
        let this = self.clone();
        Box::pin(async move {
            let keytab = this.keytab.clone();
            let done = POOL.run(host_of(from), move || this.take(&token)).await;
            done.unwrap_or_else(|busy| {
                let keytab = keytab.display();
                tracing::warn!(%keytab, %from, why = %busy, "a ticket of NFS is not looked at");
                Err(NotAccepted::Busy)
            })
        })
    }
}

/// True for a host principal: the names that Linux' gssd has keys for (rpc.gssd(8)), and computer accounts of Active Directory.
fn is_machine(principal: &str) -> bool {
    let name = principal.rsplit_once('@').map_or(principal, |(name, _)| name);
    let of_host = ["host/", "nfs/", "root/"].iter().any(|service| name.starts_with(service));
    of_host || name.ends_with('$')
}

fn refused_because(why: Why, principal: String, detail: String) -> NotAccepted {
    NotAccepted::Refused { why, token: Vec::new(), principal, detail }
}

fn refused(error: Error, principal: String) -> NotAccepted {
    let Error { cause, text: detail, token, .. } = error;
    NotAccepted::Refused { why: Why::Kerberos(cause), token, principal, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_distinguished_from_users() {
        for machine in
            ["host/a.lab.test@LAB.TEST", "nfs/a@LAB.TEST", "root/a@LAB.TEST", "A$@LAB.TEST"]
        {
            assert!(is_machine(machine), "{machine}");
        }
        for user in ["root@LAB.TEST", "alice@LAB.TEST", "root@OTHER.TEST", "alice/admin@LAB.TEST"] {
            assert!(!is_machine(user), "{user}");
        }
    }
}
