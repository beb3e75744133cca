//! A user of the domain, for `check`: the caller that its logons make.
//!
//! *Operation.* The service has the user and its groups, where it knows the domain. Otherwise earlier tickets show the user.

use std::sync::Arc;

use config::{Settings, Who};
use domain_sys::Number;
use smbd_core::domain_engine::Numbers;
use vfs::acl::Sid;
use vfs::namespace::OfDomain;
use vfs::{Cred, Domain, Token};

use super::by_service::Meaning;
use super::{Accounts, in_domain_with, of_domain, user_of};
use crate::domain;
use crate::domain_service::{self, Groups};

/// Returns the caller that a ticket of this user makes, without its groups where only the ticket has them; `None` if a ticket does
/// not make it a caller, or the user is unknown. Where the service knows the domain, a name without a domain is an account, or else
/// a user of the domain. Blocks for a limited time.
pub(crate) fn by_ticket(settings: &Settings, name: &str, accounts: Accounts<'_>) -> Option<Cred> {
    let domain = domain::of(settings)?;
    let service = domain_service::of(settings);
    let mut who = Who::User(name.to_owned());
    let is_plain = who.sid().is_none() && who.number().is_none() && who.in_domain().is_none();
    if let Some(service) = service.as_ref().filter(|_| is_plain) {
        let of = if accounts(name).is_none() { service.domain(&domain) } else { None };
        who = Who::User(format!(r"{}\{name}", of?));
    }
    let its = in_domain_with(settings, Some(&who))?;
    let token = |sid: Sid| Token::of_ticket(&domain, sid, []);
    let of_sid = |uid, sid| Cred { uid, gid: uid, groups: Arc::new([]), token: token(sid) };
    match its.by_service.meaning(&who) {
        Ok(Meaning::Identity(sid, Some(Number::Uid(uid) | Number::Both(uid)))) => {
            return Some(of_sid(uid, sid));
        }
        Ok(Meaning::Identity(..) | Meaning::Missing) => return None,
        // The service does not answer. The user may have logged on before.
        Err(_) => {
            let (plain, of) = who.in_domain()?;
            let identity = domain.identity()?;
            let is = |name: &str| name.eq_ignore_ascii_case(of);
            let sid = domain.user_named(plain).filter(|_| is(&identity.name) || is(&identity.dns));
            let sid = sid?;
            return Some(of_sid(domain.uid(&sid)?, sid));
        }
        Ok(Meaning::Nothing) => {}
    }
    let ours = of_domain(&who, Some(&its));
    let plain = match (&ours, who.in_domain()) {
        (Some(_), Some((plain, _))) => plain,
        // `OTHER\alice` and `alice@other.example` name users of another domain.
        (None, Some(_)) => return None,
        _ => name,
    };
    let sid = match (who.sid(), &ours) {
        (Some(text), _) => text.parse::<Sid>().ok(),
        (None, Some(OfDomain::User(user))) => domain.user_named(user),
        _ => None,
    };
    // A user of a domain that the service knows is never the account of the same name.
    if who.sid().is_none() && service.is_none() && (its.by_names || accounts(plain).is_some()) {
        let cred = user_of(plain, settings, accounts).ok()?;
        return Some(Cred { token: sid.map(token).unwrap_or_default(), ..cred });
    }
    let uid = domain.uid(sid.as_ref()?)?;
    Some(of_sid(uid, sid?))
}

/// Asks the service whether identities of the domain have the numbers of a caller. Blocks for some seconds at most.
pub(crate) fn learn_numbers(settings: &Settings, cred: &Cred) {
    if let (Some(domain), Some(service)) = (domain::of(settings), domain_service::of(settings)) {
        service.learn_now(&domain, cred);
    }
}

/// Returns the caller that a password of the gateway makes of an account.
pub(crate) fn by_password(settings: &Settings, account: Option<(Cred, bool)>) -> Option<Cred> {
    let token = Token::of_account(domain::of(settings).as_ref());
    account.map(|(cred, _)| Cred { token, ..cred })
}

/// A user of the domain that the service knows, as its logons are callers.
pub(crate) struct DomainUser {
    /// The caller; it has no groups if these are unknown.
    pub(crate) cred: Cred,
    /// The groups, or why they are unknown.
    pub(crate) groups: Result<Groups, String>,
}

/// Asks the service for the groups of a caller from [`by_ticket`]; `None` if the caller is not of such a domain. Blocks for some
/// seconds at most.
pub(crate) fn domain_user(settings: &Settings, caller: &Cred) -> Option<DomainUser> {
    let service = domain_service::of(settings)?;
    let domain = domain::of(settings)?;
    let user = caller.token.user()?;
    Some(domain_user_with(&domain, caller, service.groups_of(user)))
}

pub(crate) fn domain_user_with(
    domain: &Arc<Domain>,
    caller: &Cred,
    groups: Result<Groups, String>,
) -> DomainUser {
    let with = |its: &Groups| {
        let user = caller.token.user()?.clone();
        let sids = its.all.iter().map(|group| group.sid.clone());
        let Numbers { uid, gid, groups } = &its.numbers;
        let groups = groups.iter().copied().filter(|group| group != gid).collect();
        let token = Token::of_ticket(domain, user, sids);
        Some(Cred { uid: *uid, gid: *gid, groups, token })
    };
    let cred = groups.as_ref().ok().and_then(with).unwrap_or_else(|| caller.clone());
    DomainUser { cred, groups }
}
