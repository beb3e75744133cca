//! Tokens of Kerberos, as MIT's library takes them. Who a principal is here, [`Principals`] says for every protocol.

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

/// The limit that a token meets which nobody takes in time.
pub const LIMIT: &str = "kerberos-nfs";
/// How long a token waits for its turn, and as long again for its answer, in seconds.
pub(super) const WAIT_S: usize = 5;
/// Tokens that are looked at at once: the library reads the keytab and its replay cache for each.
const THREADS: usize = 4;

static POOL: Pool = Pool::new(THREADS, Duration::from_secs(WAIT_S as u64));

/// The service of NFS (RFC 2623 section 3.1): tickets for others of the keytab are not for this server.
const SERVICE: &str = "nfs";

/// Says as whom a client acts on files who has proved which principal it is.
pub trait Principals: Send + Sync + 'static {
    /// The user that it is here. May wait for the name service.
    ///
    /// # Errors
    /// It is none, or that is not known.
    fn cred(&self, who: &Established) -> Result<Cred, NoUser>;
}

/// Why a principal is no user. The words are for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoUser {
    /// Here is no such user, or it may not come by a ticket: to files it is the anonymous user.
    Anonymous(String),
    /// The name service does not say who it is.
    NotKnown(String),
}

/// Takes tickets by the keys of a keytab.
#[derive(Clone)]
pub struct Kerberos {
    keytab: PathBuf,
    principals: Arc<dyn Principals>,
}

impl Kerberos {
    /// By this keytab, which is read at each token.
    pub fn new(keytab: &Path, principals: Arc<dyn Principals>) -> Self {
        Self { keytab: keytab.to_owned(), principals }
    }

    /// May wait for files and for the name service.
    fn take(&self, token: &[u8]) -> Result<Accepted, NotAccepted> {
        let refuse = |error: Error| refused(error, String::new());
        match gss_sys::accept(&self.keytab, &[SERVICE], token).map_err(refuse)? {
            Step::Done { token, established } => self.established(token, *established),
            // Only DCE_STYLE takes more than one token, and nobody does NFS with it.
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
        // The library takes it for as long as clocks may differ, and every call by the context would be refused.
        if lifetime.is_zero() {
            return Err(no(Why::Kerberos(Cause::Expired), String::new()));
        }
        Ok(Accepted { token, keys, sequence: lucid.send_seq, principal, cred, lifetime })
    }

    /// As whom a principal acts on files. Machines, and principals who are no user here, are nobody; as owners of what they hold
    /// they are themselves.
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

/// A host, not a user: the names that Linux' gssd has keys of (rpc.gssd(8)), and the accounts of computers in Active Directory.
fn is_machine(principal: &str) -> bool {
    let name = principal.rsplit_once('@').map_or(principal, |(name, _)| name);
    let of_host = ["host/", "nfs/", "root/"].iter().any(|service| name.starts_with(service));
    of_host || name.ends_with('$')
}

fn refused_because(why: Why, principal: String, detail: String) -> NotAccepted {
    NotAccepted::Refused { why, token: Vec::new(), principal, detail }
}

fn refused(error: Error, principal: String) -> NotAccepted {
    let Error { cause, text: detail, token } = error;
    NotAccepted::Refused { why: Why::Kerberos(cause), token, principal, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_told_from_users() {
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
