//! Kerberos asked about a client's ticket: by MIT's library, beside the runtime's own threads.
//!
//! *Operation.* One call takes the token, finds out whose it is, which user of this host that is, and what both ends share. It may
//! read the keytab and krb5.conf and ask this host's name service, so it has one of [`TURNS_MAX`] turns, for which others wait.
//!
//! *Errors.* [`Refused`] with what can be done about it, for the log. [`Busy`] where there was no turn or no answer in time, which
//! the caller counts as the limit [`LIMIT`].

use std::sync::Arc;
use std::time::Duration;

use gss_sys::{Busy, Cause, Established, Pool, Step};

use crate::auth::ticket::{Context, Principal, Proof, Refused, Why};
use crate::settings::Kerberos;
use crate::users::Users;

/// Tickets that are looked at together.
pub(crate) const TURNS_MAX: usize = 4;
/// The name of that limit.
pub(crate) const LIMIT: &str = "kerberos";
/// How long one waits for a turn, and as long again for the answer.
const WAIT_MAX: Duration = Duration::from_secs(5);

static TURNS: Pool = Pool::new(TURNS_MAX, WAIT_MAX);

/// Asks about the token of a client.
pub(crate) async fn prove(
    kerberos: Kerberos,
    token: Vec<u8>,
    users: Arc<dyn Users>,
) -> Result<Result<Proof, Refused>, Busy> {
    TURNS.run(move || accept(&kerberos, &token, &*users)).await
}

fn accept(kerberos: &Kerberos, token: &[u8], users: &dyn Users) -> Result<Proof, Refused> {
    let step = gss_sys::Acceptor::new(&kerberos.keytab).and_then(|mut a| a.step(token));
    let (token, established) = match step.map_err(of_library)? {
        Step::Done { token, established } => (token, *established),
        // DCE_STYLE, which no client of SMB uses.
        Step::Continue(_) => return Err(Refused::unread(Why::Other, "an exchange of three legs")),
    };
    let (principal, service) =
        (established.principal().to_owned(), established.service().to_owned());
    let refused = |why: Why, detail: String| Refused { why, principal: principal.clone(), detail };
    if !is_of_files(&service) {
        return Err(refused(Why::Service, service));
    }
    let user = established.local_name().or_else(|| by_realm(kerberos, &principal));
    let Some(user) = user else { return Err(refused(Why::NoUser, String::new())) };
    let found = users.by_ticket(&user).map_err(|why| refused(Why::NameService, why))?;
    let Some(found) = found else { return Err(refused(Why::NoUser, format!("no user `{user}`"))) };
    if found.cred.uid == 0 && !found.named {
        return Err(refused(Why::Superuser, found.name));
    }
    let of_it = |e: gss_sys::Error| refused(Why::Other, e.text);
    let key = established.session_key().map_err(of_it)?;
    let (name, cred, rid) = (found.name, found.cred, found.rid);
    let principal = Principal { principal, user: name, cred, rid, service };
    Ok(Proof { principal, key, token, context: Box::new(Shared(established)) })
}

/// Clients ask for `cifs`, and Active Directory gives tickets for it by the keys of `host` and of the computer itself.
fn is_of_files(service: &str) -> bool {
    let first = service.split(['/', '@']).next().unwrap_or_default();
    first.eq_ignore_ascii_case("cifs") || first.eq_ignore_ascii_case("host") || first.ends_with('$')
}

/// The first component of a principal that has one only, in the realm of the configuration.
fn by_realm(kerberos: &Kerberos, principal: &str) -> Option<String> {
    let (name, realm) = principal.rsplit_once('@')?;
    let is_ours = kerberos.realm.as_deref() == Some(realm);
    let is_plain = !name.is_empty() && !name.contains(['/', '@', '\\']);
    (is_ours && is_plain).then(|| name.to_owned())
}

fn of_library(error: gss_sys::Error) -> Refused {
    let why = match error.cause {
        Cause::NoLibrary | Cause::Keytab => Why::Keytab,
        Cause::NoKey => Why::NoKey,
        Cause::WrongKey => Why::WrongKey,
        Cause::Clock => Why::Clock,
        Cause::Expired => Why::Expired,
        Cause::Replay => Why::Replay,
        Cause::Malformed | Cause::Mic | Cause::Other => Why::Other,
    };
    Refused::unread(why, error.text)
}

/// A context of the library, for the MICs over the list of mechanisms: they are made in memory alone.
struct Shared(Established);

impl Context for Shared {
    fn sign(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        self.0.mic(message).ok()
    }

    fn verify(&mut self, message: &[u8], mic: &[u8]) -> bool {
        self.0.verify(message, mic).is_ok()
    }

    fn ends(self: Box<Self>) -> Option<u64> {
        self.0.end_time().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_files() {
        for ours in ["cifs/gw.lab@LAB", "CIFS/gw@LAB", "host/gw@LAB", "GW$@LAB"] {
            assert!(is_of_files(ours), "{ours}");
        }
        for other in ["nfs/gw@LAB", "HTTP/gw@LAB", "cifsx/gw@LAB", "alice@LAB", ""] {
            assert!(!is_of_files(other), "{other}");
        }
    }

    #[test]
    fn only_plain_principals_of_the_realm_are_users_by_it() {
        let kerberos =
            |realm: Option<&str>| Kerberos { keytab: "k".into(), realm: realm.map(str::to_owned) };
        let of = |realm, principal| by_realm(&kerberos(realm), principal);
        assert_eq!(of(Some("LAB"), "alice@LAB").as_deref(), Some("alice"));
        for principal in ["alice@lab", "alice@X.LAB", "alice/admin@LAB", "a@b@LAB", "@LAB", "LAB"] {
            assert_eq!(of(Some("LAB"), principal), None, "{principal}");
        }
        assert_eq!(of(None, "alice@LAB"), None);
    }
}
