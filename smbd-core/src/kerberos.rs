//! Checks clients' tickets with MIT's Kerberos library, outside the runtime's own threads.
//!
//! *Operation.* One call accepts the token and finds its principal, the user of this host and the session key. It may read the
//! keytab and krb5.conf and query this host's name service, so it needs one of [`TURNS_MAX`] slots, for which other calls wait.
//!
//! *Errors.* [`Refused`] with advice for the log. [`Busy`] if no slot or no answer came in time, which the caller counts under the
//! limit [`LIMIT`].

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gss_sys::{Busy, Cause, Established, Pool, Step};
use rdma_transport::channel::host_of;
use smb_proto::pac::LogonInfo;
use vfs::{ANONYMOUS, Cred, Domain, DomainIdentity, Token};

use crate::auth::relay;
use crate::auth::ticket::{Context, Proof, Refused, Why};
use crate::domain_user;
use crate::settings::{Kerberos, Map};
use crate::users::{Ticketed, Users, rid_of_uid};

/// Tickets that are checked at the same time.
pub(crate) const TURNS_MAX: usize = 4;
pub(crate) const LIMIT: &str = "kerberos";
/// The longest wait for a slot, and again for the answer.
const WAIT_MAX: Duration = Duration::from_secs(5);

static TURNS: Pool = Pool::new(TURNS_MAX, WAIT_MAX);

/// The user of this host for a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) cred: Cred,
    /// Last part of its SID.
    pub(crate) rid: u32,
}

/// Checks the token of a client at this address.
pub(crate) async fn prove(
    from: IpAddr,
    kerberos: Kerberos,
    token: Vec<u8>,
    users: Arc<dyn Users>,
) -> Result<Result<Proof<User>, Refused>, Busy> {
    TURNS.run(host_of(from), move || accept(&kerberos, &token, &*users)).await
}

fn accept(kerberos: &Kerberos, token: &[u8], users: &dyn Users) -> Result<Proof<User>, Refused> {
    // The keytab may have a key for the computer's own name as well: `accept` tries it last.
    let step = gss_sys::accept(&kerberos.keytab, &["cifs", "host"], token);
    let (token, established) = match step.map_err(of_library)? {
        Step::Done { token, established } => (token, *established),
        // DCE_STYLE, which no SMB client uses.
        Step::Continue(_) => {
            return Err(Refused::unread(Why::Kerberos(Cause::Other), "an exchange of three legs"));
        }
    };
    let (principal, service) =
        (established.principal().to_owned(), established.service().to_owned());
    let refused = |why: Why, detail: String| Refused { why, principal: principal.clone(), detail };
    if !is_of_files(&service) {
        return Err(refused(Why::Service, service));
    }
    let found = user_of(kerberos, &established, users);
    let found = found.map_err(|(why, detail)| refused(why, detail))?;
    let of_it = |e: gss_sys::Error| refused(Why::Kerberos(Cause::Other), e.text);
    let key = established.session_key().map_err(of_it)?;
    let user = User { name: found.name, cred: found.cred, rid: found.rid };
    Ok(Proof { principal, service, user, key, token, context: Box::new(Shared(established)) })
}

/// Why a principal maps to no user here, with details for the log.
pub type Unknown = (Why, String);

/// Returns the user for an authenticated principal: the same one for each protocol, so that its files have one owner. A principal
/// is the superuser only through an account. May wait for the name service.
///
/// # Errors
/// [`Why::NoUser`], [`Why::Pac`], [`Why::Superuser`] or [`Why::NoIdentity`]: the principal has no user here. [`Why::NameService`]:
/// the name service cannot answer now.
pub fn user_of(
    kerberos: &Kerberos,
    established: &Established,
    users: &dyn Users,
) -> Result<Ticketed, Unknown> {
    let info = established.logon_info().map(|info| LogonInfo::parse(&info));
    let info = match (kerberos.map, info.transpose()) {
        (_, Ok(info)) => info,
        // The name is the identity. Without the identifiers of the ticket the caller is one of the host.
        (Map::Names, Err(fault)) => {
            tracing::warn!(principal = established.principal(), %fault, "the PAC of a ticket is not read");
            None
        }
        (Map::Rid { .. } | Map::Engine, Err(fault)) => return Err((Why::Pac, fault.to_string())),
    };
    let found = match (kerberos.map, &info) {
        (Map::Names, info) => by_name(kerberos, (established, info.as_ref()), users),
        (Map::Rid { base }, Some(info)) => by_rid(kerberos, base, (established, info), users),
        (Map::Engine, Some(info)) => return by_engine(info, users),
        (Map::Rid { .. } | Map::Engine, None) => Err((Why::Pac, "no PAC".to_owned())),
    }?;
    let mut found = check_identity(found, kerberos.map)?;
    if let (Some(info), Some(domain)) = (&info, users.domain()) {
        if let (true, Some(realm)) = (is_ours(kerberos, established.principal()), &kerberos.realm) {
            know_domain(&domain, (info, realm), users);
        }
        let (token, is_new) = token(&domain, info, found.cred.uid);
        found.cred.token = token;
        if is_new {
            users.keep_identities();
        }
    }
    if !found.named {
        users.remember(&found);
    }
    Ok(found)
}

/// Returns the user whom the host's service knows by the SIDs of a PAC.
fn by_engine(info: &LogonInfo, users: &dyn Users) -> Result<Ticketed, Unknown> {
    let engine = users.engine().ok_or((Why::Domain, "no service is configured".to_owned()))?;
    domain_user::by_ticket(&*engine, info, users).map_err(|refused| match refused.why {
        relay::Why::Number if refused.detail == "uid 0" => (Why::Superuser, refused.detail),
        relay::Why::Number => (Why::NoIdentity, refused.detail),
        relay::Why::NoNumber => (Why::NoNumber, refused.detail),
        _ => (Why::Domain, refused.detail),
    })
}

/// Builds the identities of a PAC (MS-KILE section 3.4.5.3) for a user with this uid. Returns also whether the user was unknown.
fn token(domain: &Arc<Domain>, info: &LogonInfo, uid: u32) -> (Token, bool) {
    let Some(user) = info.user_sid() else { return (Token::of_host(domain), false) };
    let is_new = domain.know_user(uid, &user, &info.name);
    (Token::of_ticket(domain, user, info.group_sids()), is_new)
}

/// Stores the SID of the domain whose realm has the users of this gateway, when it is first seen.
fn know_domain(domain: &Domain, (info, realm): (&LogonInfo, &str), users: &dyn Users) {
    let sid = &info.domain_id;
    if domain.sid().is_none() {
        let (name, dns) = (info.domain.clone(), realm.to_lowercase());
        domain.know(DomainIdentity { sid: sid.clone(), name, dns });
        domain.identity().into_iter().for_each(|identity| users.keep_domain(identity));
    }
    if let Some(before) = domain.sid().filter(|before| *before != sid) {
        let (before, now) = (before.to_string(), sid.to_string());
        tracing::warn!(
            before,
            now,
            "the domain has another identifier than before: entries of lists for its old one are about no user of it; if it was \
             made anew, remove the file `domain` in the state folder and start again"
        );
    }
}

/// Refuses a user with uid 0 but no account, or with the uid of guests and squashed NFS users, because both would share files. The
/// host's own user of that uid is accepted by name.
fn check_identity(found: Ticketed, map: Map) -> Result<Ticketed, Unknown> {
    let is_hosts = map == Map::Names && !found.named;
    match found.cred.uid {
        0 if !found.named => Err((Why::Superuser, found.name)),
        ANONYMOUS if !is_hosts => Err((Why::NoIdentity, found.name)),
        _ => Ok(found),
    }
}

/// Returns the user of this name.
fn by_name(
    kerberos: &Kerberos,
    (established, info): (&Established, Option<&LogonInfo>),
    users: &dyn Users,
) -> Result<Ticketed, Unknown> {
    let principal = established.principal();
    let user = established.local_name().or_else(|| by_realm(kerberos, principal));
    // The controller says whose name another name of the user is.
    let user =
        user.or_else(|| Some(info?.name.to_lowercase()).filter(|_| is_ours(kerberos, principal)));
    let user = user.ok_or((Why::NoUser, String::new()))?;
    let found = users.by_ticket(&user).map_err(|why| (Why::NameService, why))?;
    found.ok_or_else(|| (Why::NoUser, format!("no user `{user}`")))
}

/// Returns the user by the RIDs of its PAC, unless an account has its name. Other domains use the same RIDs for other users, so
/// only principals of the one realm are accepted.
fn by_rid(
    kerberos: &Kerberos,
    base: u32,
    (established, info): (&Established, &LogonInfo),
    users: &dyn Users,
) -> Result<Ticketed, Unknown> {
    if !is_ours(kerberos, established.principal()) {
        return Err((Why::NoUser, "not of the realm whose numbers are mapped".into()));
    }
    // Active Directory ignores case.
    let name = info.name.to_lowercase();
    if let Some(own) = own_account(&name, users) {
        return Ok(own);
    }
    let cred = cred_of(base, info).ok_or((Why::Pac, "a number that is too large".to_owned()))?;
    Ok(Ticketed { name, rid: rid_of_uid(cred.uid), cred, named: false })
}

/// Returns the account of this name. A user of an LDAP directory is another user than that of the domain, and no ticket is one.
fn own_account(name: &str, users: &dyn Users) -> Option<Ticketed> {
    let a = users.find_own(name)?;
    // The token of the account is that of a logon with its password.
    let cred = Cred { token: Token::NONE, ..a.cred };
    Some(Ticketed { name: a.name, cred, rid: a.rid, named: true })
}

/// Returns the uid and gids of a user and its groups of the domain; groups of other domains have none. `None` if a number is out of
/// range.
fn cred_of(base: u32, info: &LogonInfo) -> Option<Cred> {
    // For chown(2) and setfsuid(2), all ones means "no change".
    let number = |rid: u32| base.checked_add(rid).filter(|n| *n != u32::MAX);
    let groups: Vec<u32> = info.rids().into_iter().map(number).collect::<Option<_>>()?;
    let gid = number(info.primary_group)?;
    let others = groups.into_iter().filter(|group| *group != gid).collect::<Vec<_>>();
    Some(Cred { uid: number(info.user)?, gid, groups: others.into(), token: vfs::Token::NONE })
}

/// Accepts `cifs`, which clients request, `host` and the computer itself, with whose keys Active Directory may issue the ticket.
fn is_of_files(service: &str) -> bool {
    let first = service.split(['/', '@']).next().unwrap_or_default();
    first.eq_ignore_ascii_case("cifs") || first.eq_ignore_ascii_case("host") || first.ends_with('$')
}

/// Returns whether this is a user of the configured realm: a principal of one component, or an enterprise name, in which Kerberos
/// writes `alice\@corp.example@LAB` (RFC 6806 section 5). Its PAC says which user it is.
fn is_ours(kerberos: &Kerberos, principal: &str) -> bool {
    if by_realm(kerberos, principal).is_some() {
        return true;
    }
    let Some((name, realm)) = principal.rsplit_once('@') else { return false };
    let parts =
        name.split_once("\\@").filter(|(user, suffix)| !user.is_empty() && !suffix.is_empty());
    let is_plain = |part: &str| !part.contains(['/', '@', '\\']);
    kerberos.realm.as_deref() == Some(realm)
        && parts.is_some_and(|(user, suffix)| is_plain(user) && is_plain(suffix))
}

/// Returns the name of a one-component principal in the configured realm.
fn by_realm(kerberos: &Kerberos, principal: &str) -> Option<String> {
    let (name, realm) = principal.rsplit_once('@')?;
    let is_ours = kerberos.realm.as_deref() == Some(realm);
    let is_plain = !name.is_empty() && !name.contains(['/', '@', '\\']);
    (is_ours && is_plain).then(|| name.to_owned())
}

fn of_library(error: gss_sys::Error) -> Refused {
    Refused::unread(Why::Kerberos(error.cause), error.text)
}

/// A context of the library, for MICs over the list of mechanisms, which are computed in memory.
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
    use smb_proto::dtyp::Sid;

    use super::*;
    use crate::auth::NtHash;
    use crate::users::Account;

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
        let kerberos = |realm: Option<&str>| Kerberos {
            keytab: "k".into(),
            realm: realm.map(str::to_owned),
            map: Map::Names,
        };
        let of = |realm, principal| by_realm(&kerberos(realm), principal);
        assert_eq!(of(Some("LAB"), "alice@LAB").as_deref(), Some("alice"));
        for principal in ["alice@lab", "alice@X.LAB", "alice/admin@LAB", "a@b@LAB", "@LAB", "LAB"] {
            assert_eq!(of(Some("LAB"), principal), None, "{principal}");
        }
        assert_eq!(of(None, "alice@LAB"), None);
    }

    #[test]
    fn enterprise_names_are_users_of_the_realm() {
        let kerberos = |realm: &str| Kerberos {
            keytab: "k".into(),
            realm: Some(realm.to_owned()),
            map: Map::Names,
        };
        for (principal, is) in [
            ("alice@LAB", true),
            (r"alice\@corp.example@LAB", true),
            (r"alice\@corp.example@OTHER", false),
            (r"alice\@corp.example", false),
            (r"\@corp.example@LAB", false),
            (r"alice\@@LAB", false),
            (r"alice/admin\@corp.example@LAB", false),
            (r"alice\@corp\@example@LAB", false),
            ("alice@corp.example@LAB", false),
            ("LAB", false),
        ] {
            assert_eq!(is_ours(&kerberos("LAB"), principal), is, "{principal}");
        }
    }

    /// Has the account `alice`, and `dana` in a directory.
    struct Book;

    impl Users for Book {
        fn find(&self, name: &str) -> Option<Account> {
            let uid = ["alice", "dana"].iter().position(|known| *known == name)?;
            let uid = 5000 + u32::try_from(uid).unwrap();
            let cred = Cred { uid, gid: uid, groups: [].into(), token: vfs::Token::NONE };
            let (name, nt_hash) = (name.to_owned(), NtHash::of("one").0);
            Some(Account { name, nt_hash, cred, rid: rid_of_uid(uid) })
        }

        fn find_own(&self, name: &str) -> Option<Account> {
            self.find(name).filter(|account| account.name == "alice")
        }

        fn guest(&self) -> Cred {
            Cred::root()
        }
    }

    #[test]
    fn ticket_of_domain_is_no_user_of_the_directory() {
        assert_eq!(own_account("alice", &Book).map(|own| own.cred.uid), Some(5000));
        assert!(Book.find("dana").is_some());
        assert!(own_account("dana", &Book).is_none());
    }

    #[test]
    fn numbers_are_those_of_the_domain_from_the_base_on() {
        let domain_id = Sid::new(5, &[21, 1, 2, 3]).unwrap();
        let other = |subs: &[u32]| Sid::new(5, subs).unwrap();
        let info = LogonInfo {
            name: "Alice".into(),
            domain: "AD".into(),
            domain_id,
            user: 1103,
            primary_group: 513,
            groups: vec![513, 1104],
            others: vec![
                other(&[21, 1, 2, 3, 1200]),
                other(&[21, 9, 9, 9, 512]),
                other(&[32, 544]),
            ],
        };
        let cred = cred_of(100_000, &info).unwrap();
        assert_eq!(
            (cred.uid, cred.gid, &cred.groups[..]),
            (101_103, 100_513, &[101_104, 101_200][..])
        );
        assert!(cred_of(u32::MAX - 1103, &info).is_none(), "all ones are no user");
        assert!(cred_of(u32::MAX - 600, &info).is_none());
    }

    /// MS-PAC section 2.5: the groups and extra SIDs in addition to the user.
    #[test]
    fn tickets_name_all_identities() {
        let sid = |text: &str| text.parse::<Sid>().unwrap();
        let info = LogonInfo {
            name: "Alice".into(),
            domain: "AD".into(),
            domain_id: sid("S-1-5-21-1-2-3"),
            user: 1103,
            primary_group: 513,
            groups: vec![513, 1104],
            others: vec![sid("S-1-5-21-9-9-9-512"), sid("S-1-18-1"), sid("S-1-5-32-544")],
        };
        let domain = Domain::new(None);
        let (named, is_new) = token(&domain, &info, 1001);
        assert!(is_new && !token(&domain, &info, 1001).1);
        assert_eq!(named.user(), Some(&sid("S-1-5-21-1-2-3-1103")));
        let mut all = [
            "S-1-5-21-1-2-3-1103",
            "S-1-5-21-1-2-3-513",
            "S-1-5-21-1-2-3-1104",
            "S-1-5-21-9-9-9-512",
            "S-1-18-1",
        ]
        .map(sid);
        all.sort();
        assert_eq!(named.sids(), all, "aliases are of the computer that names them");
        assert_eq!(domain.sid_of_user(1001), Some(sid("S-1-5-21-1-2-3-1103")));
        let foreign = LogonInfo { user: 0, ..info };
        assert_eq!(token(&domain, &foreign, 1002).0.user(), Some(&sid("S-1-5-21-9-9-9-512")));
        let unnamed = LogonInfo { others: vec![], ..foreign };
        assert!(!token(&domain, &unnamed, 1003).0.is_by_ticket(), "all may be its own");
    }

    #[test]
    fn nobody_by_number_or_account_is_refused() {
        let rid = Map::Rid { base: ANONYMOUS - 1103 };
        for (uid, named, map, wanted) in [
            (1000, false, Map::Names, None),
            (1000, true, rid, None),
            (0, true, Map::Names, None),
            (0, false, Map::Names, Some(Why::Superuser)),
            (0, false, rid, Some(Why::Superuser)),
            (ANONYMOUS, true, Map::Names, Some(Why::NoIdentity)),
            (ANONYMOUS, true, rid, Some(Why::NoIdentity)),
            (ANONYMOUS, false, rid, Some(Why::NoIdentity)),
            // The host's own user of this uid.
            (ANONYMOUS, false, Map::Names, None),
        ] {
            let cred = Cred { uid, gid: uid, groups: [].into(), token: vfs::Token::NONE };
            let user = Ticketed { name: "kim".into(), rid: rid_of_uid(uid), cred, named };
            let refused = check_identity(user, map).err().map(|(why, _)| why);
            assert_eq!(refused, wanted, "{uid} {named} {map:?}");
        }
    }
}
