//! Tokens of Kerberos, as MIT's library takes them, and who a principal is on this host.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gss_krb5::{Enctype, Role};
use gss_sys::{Acceptor, Cause, Error, Established, Pool, Step};
use rdma_transport::channel::{BoxFuture, host_of};
use vfs::{Cred, accounts};

use super::{Accept, Accepted, NotAccepted};
use crate::rpc::auth::nobody;

/// The limit that a token meets which nobody takes in time.
pub const LIMIT: &str = "kerberos-nfs";
/// How long a token waits for its turn, and as long again for its answer, in seconds.
pub(super) const WAIT_S: usize = 5;
/// Tokens that are looked at at once: the library reads the keytab and its replay cache for each.
const THREADS: usize = 4;

static POOL: Pool = Pool::new(THREADS, Duration::from_secs(WAIT_S as u64));

/// GSS_S_DEFECTIVE_TOKEN, GSS_S_CREDENTIALS_EXPIRED, GSS_S_FAILURE (RFC 2744 section 3.9.1).
const DEFECTIVE: u32 = 9 << 16;
const EXPIRED: u32 = 11 << 16;
const FAILURE: u32 = 13 << 16;

/// The service of NFS (RFC 2623 section 3.1): tickets for others of the keytab are not for this server.
const SERVICE: &str = "nfs/";

const RUN_OUT: &str = "the client's ticket has run out; `kinit` gets a new one";

/// Takes tickets by the keys of a keytab.
#[derive(Clone, Debug)]
pub struct Kerberos {
    keytab: PathBuf,
    realm: Option<String>,
}

impl Kerberos {
    /// By this keytab, which is read at each token. Principals of one component of this realm are users of that name, also where
    /// krb5.conf does not say so.
    pub fn new(keytab: &Path, realm: Option<&str>) -> Self {
        Self { keytab: keytab.to_owned(), realm: realm.map(str::to_owned) }
    }

    /// May wait for files and for the name service.
    fn take(&self, token: &[u8]) -> Result<Accepted, NotAccepted> {
        let refuse = |error: Error| refused(error, String::new());
        match Acceptor::new(&self.keytab).map_err(refuse)?.step(token).map_err(refuse)? {
            Step::Done { token, established } => self.established(token, *established),
            // Only DCE_STYLE takes more than one token, and nobody does NFS with it.
            Step::Continue(_) => Err(NotAccepted::Refused {
                major: FAILURE,
                token: Vec::new(),
                principal: String::new(),
                remedy: "the client wants an exchange of three messages, which is not served",
            }),
        }
    }

    fn established(&self, token: Vec<u8>, who: Established) -> Result<Accepted, NotAccepted> {
        let principal = who.principal().to_owned();
        let no = |remedy| {
            let (token, principal) = (Vec::new(), principal.clone());
            NotAccepted::Refused { major: FAILURE, token, principal, remedy }
        };
        if !who.service().starts_with(SERVICE) {
            return Err(no(
                "the ticket is for another service: mount by the name that `nfs/NAME` of the keytab has",
            ));
        }
        let cred = self.cred_of(&principal, who.local_name()).map_err(|_| {
            no("the name service did not say who the user is; look whether its directory server answers")
        })?;
        let lucid = who.lucid().map_err(|error| refused(error, principal.clone()))?;
        let has_subkey = lucid.acceptor_key.is_some();
        let key = lucid.acceptor_key.unwrap_or(lucid.initiator_key);
        let enctype = i32::try_from(key.enctype).ok().and_then(Enctype::from_number);
        let keys = enctype.and_then(|enctype| {
            gss_krb5::Context::new(enctype, &key.key, Role::Acceptor, has_subkey).ok()
        });
        let keys = keys.ok_or_else(|| {
            no("the encryption type of the session is too old; give client and keytab keys of AES")
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let lifetime = Duration::from_secs(lucid.end_time.into()).saturating_sub(now);
        // The library takes it for as long as clocks may differ, and every call by the context would be refused.
        if lifetime.is_zero() {
            let (major, token, remedy) = (EXPIRED, Vec::new(), RUN_OUT);
            return Err(NotAccepted::Refused { major, token, principal, remedy });
        }
        Ok(Accepted { token, keys, sequence: lucid.send_seq, principal, cred, lifetime })
    }

    /// As whom a principal acts on files. Machines, and users whom this host does not know, are nobody; as owners of what they
    /// hold they are themselves.
    fn cred_of(&self, principal: &str, local: Option<String>) -> std::io::Result<Cred> {
        if is_machine(principal) {
            return Ok(nobody());
        }
        let Some(name) = local.or_else(|| self.by_realm(principal)) else { return Ok(nobody()) };
        Ok(accounts::by_name(&name)?.unwrap_or_else(nobody))
    }

    fn by_realm(&self, principal: &str) -> Option<String> {
        let (name, realm) = principal.rsplit_once('@')?;
        let is_user = !name.is_empty() && !name.contains(['/', '@', '\\']);
        (is_user && Some(realm) == self.realm.as_deref()).then(|| name.to_owned())
    }
}

impl Accept for Kerberos {
    fn accept(
        &self,
        token: Vec<u8>,
        from: IpAddr,
    ) -> BoxFuture<'static, Result<Accepted, NotAccepted>> {
        let this = self.clone();
        Box::pin(async move {
            let done = POOL.run(host_of(from), move || this.take(&token)).await;
            done.map_err(|_| NotAccepted::Busy)?
        })
    }
}

/// A host, not a user: the names that Linux' gssd has keys of (rpc.gssd(8)), and the accounts of computers in Active Directory.
fn is_machine(principal: &str) -> bool {
    let name = principal.rsplit_once('@').map_or(principal, |(name, _)| name);
    let of_host = ["host/", "nfs/", "root/"].iter().any(|service| name.starts_with(service));
    of_host || name.ends_with('$')
}

fn refused(error: Error, principal: String) -> NotAccepted {
    let (major, remedy) = match error.cause {
        Cause::NoLibrary => (FAILURE, "install MIT's Kerberos library (Debian: libgssapi-krb5-2)"),
        Cause::Keytab => (FAILURE, "look at the keytab: `headgate check` says what it lacks"),
        Cause::NoKey => (
            FAILURE,
            "put the key of `nfs/NAME` into the keytab; after a new key the client logs on again",
        ),
        Cause::WrongKey => {
            (FAILURE, "make the keytab anew: its key is not the one that the KDC has")
        }
        Cause::Clock => (FAILURE, "set the clocks of client and server: they differ by minutes"),
        Cause::Expired => (EXPIRED, RUN_OUT),
        Cause::Replay => {
            (FAILURE, "nothing, unless it comes often: the same ticket was sent twice")
        }
        Cause::Malformed => (DEFECTIVE, "nothing: no client of NFS sends such a token"),
        Cause::Mic | Cause::Other => (FAILURE, "look at krb5.conf of client and server"),
    };
    tracing::debug!(%principal, why = %error, "a token of Kerberos is refused");
    NotAccepted::Refused { major, token: error.token, principal, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_nobody_and_users_are_found_by_name() {
        let kerberos = Kerberos::new(Path::new("/dev/null"), Some("LAB.TEST"));
        let uid = |principal: &str, local: Option<&str>| {
            kerberos.cred_of(principal, local.map(str::to_owned)).unwrap().uid
        };
        let anonymous = nobody().uid;
        for machine in
            ["host/a.lab.test@LAB.TEST", "nfs/a@LAB.TEST", "root/a@LAB.TEST", "A$@LAB.TEST"]
        {
            assert!(is_machine(machine));
            assert_eq!(uid(machine, Some("root")), anonymous, "{machine}");
        }
        assert_eq!(uid("somebody@OTHER.TEST", Some("root")), 0, "as krb5.conf says");
        assert_eq!(uid("root@LAB.TEST", None), 0, "by the realm of the configuration");
        assert_eq!(uid("root@OTHER.TEST", None), anonymous);
        assert_eq!(uid("root/admin@LAB.TEST", None), anonymous);
        assert_eq!(uid("a\\root@LAB.TEST", None), anonymous);
        assert_eq!(uid("nobody-has-this-name@LAB.TEST", None), anonymous);
    }
}
