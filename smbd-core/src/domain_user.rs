//! Users of a domain whose numbers a service of this host knows.
//!
//! *Operation.* A ticket and a password give the same user the same name, `DOMAIN\user`, and the same numbers, so that its files
//! have one owner.
//!
//! *Errors.* While the service does not answer, a user is refused if the number of one of its SIDs is not known from before: mode
//! bits for that group would neither allow nor deny. A group without a number has only entries of lists, by its SID.

use smb_proto::pac::LogonInfo;
use vfs::{ANONYMOUS, Cred, Token};

use crate::auth::relay::{Refused, Why};
use crate::domain_engine::{Engine, Numbers};
use crate::dtyp::Sid;
use crate::users::{Ticketed, Users, rid_of_uid};

/// Returns the user of a ticket's PAC. May wait.
pub(crate) fn by_ticket(
    engine: &dyn Engine,
    info: &LogonInfo,
    users: &dyn Users,
) -> Result<Ticketed, Refused> {
    let no_number = || Refused { why: Why::NoNumber, detail: "a ticket without a SID".to_owned() };
    let user = info.user_sid().ok_or_else(no_number)?;
    let primary = info.domain_id.child(info.primary_group).ok_or_else(no_number)?;
    let groups = info.group_sids().collect();
    known(engine, (&info.domain, &info.name), user, (primary, groups), users)
}

/// Builds the user's identity for the file system, and remembers it.
pub(crate) fn known(
    engine: &dyn Engine,
    (domain, name): (&str, &str),
    user: Sid,
    (primary, groups): (Sid, Vec<Sid>),
    users: &dyn Users,
) -> Result<Ticketed, Refused> {
    let others: Vec<Sid> = groups.into_iter().filter(|sid| *sid != primary).collect();
    let numbers = engine.numbers(&user, &primary, &others)?;
    if [0, ANONYMOUS].contains(&numbers.uid) {
        return Err(Refused { why: Why::Number, detail: format!("uid {}", numbers.uid) });
    }
    let token = users.domain().map_or(Token::NONE, |of| {
        if of.know_user(numbers.uid, &user, name) {
            users.keep_identities();
        }
        of.know_group(numbers.gid, &primary);
        Token::of_ticket(&of, user, std::iter::once(primary).chain(others))
    });
    let Numbers { uid, gid, groups } = numbers;
    let groups: Vec<u32> = groups.into_iter().filter(|group| *group != gid).collect();
    let cred = Cred { uid, gid, groups: groups.into(), token };
    let user =
        Ticketed { name: format!("{domain}\\{name}"), rid: rid_of_uid(uid), cred, named: false };
    users.remember(&user);
    Ok(user)
}
