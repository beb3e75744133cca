//! Owners of files whose SIDs or numbers the gateway does not know yet.
//!
//! *Operation.* Users and groups of a domain have numbers by a service of this host, and become known by their logons. The service
//! is asked, on one of [`TURNS_MAX`] threads, about other numbers in a descriptor before it is shown, and about the number of an
//! owner or group before it is set by a caller that may set it. No access check asks. The wait may be cancelled; its caller must
//! read again what may have changed meanwhile.
//!
//! *Errors.* The status of a request that is given up. Without an answer in time the number is shown as a user or group of this
//! host, and the SID is stored with the list.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gss_sys::Pool;
use iobuf::ClientWork;
use rdma_transport::channel::host_of;
use vfs::acl::{Ace, Acl, Owner, Sid, Who};
use vfs::{ANONYMOUS, Attr, CallerNumber, Cred, Domain, NodeRef};

use crate::domain_engine::Engine;
use crate::dtyp::SecurityDescriptor;
use crate::privilege_use::Asked;
use crate::privileges::Privileges;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::wire::query_info::security_information as part;

/// Questions about owners at the same time; one address has half of them.
pub const TURNS_MAX: usize = 8;
pub const LIMIT: &str = "owner-questions";
/// The longest wait for a slot, and again for the answer.
pub const WAIT_MAX: Duration = Duration::from_secs(4);

static TURNS: Pool = Pool::new(TURNS_MAX, WAIT_MAX);

/// Users and groups by number.
type Numbers = (Vec<u32>, Vec<u32>);

/// Returns the owner and the group of a file, and the users and groups in its list.
fn numbers(owner: Owner, list: Option<&Acl>) -> Numbers {
    let (mut users, mut groups) = (vec![owner.uid], vec![owner.gid]);
    for ace in list.into_iter().flat_map(Acl::entries) {
        match ace {
            Ace::Simple { who: Who::User(uid), .. } => users.push(*uid),
            Ace::Simple { who: Who::Members(gid), .. } => groups.push(*gid),
            _ => {}
        }
    }
    (users, groups)
}

/// Learns the SIDs of the owners of a file and of the users and groups in its list, where winbind knows them.
///
/// # Errors
/// Those of reading the list.
pub(crate) async fn learn(cx: &RequestContext, node: &NodeRef, attr: &Attr) -> Result<(), Status> {
    let users = &cx.server.users;
    let (Some(engine), Some(domain)) = (users.engine(), users.domain()) else { return Ok(()) };
    let list = node.acl(attr).await?;
    learn_numbers(cx, (&*domain, engine), numbers(Owner::of(attr), list.as_deref())).await
}

/// Learns the SIDs of users, where winbind knows them.
pub(crate) async fn learn_users(cx: &RequestContext, uids: Vec<u32>) -> Result<(), Status> {
    let users = &cx.server.users;
    let (Some(engine), Some(domain)) = (users.engine(), users.domain()) else { return Ok(()) };
    learn_numbers(cx, (&*domain, engine), (uids, Vec::new())).await
}

/// Learns the numbers of the owner and the group that a client sets, where winbind knows them, so that the file has them on the
/// host, also before their first logon. A caller with a ticket sets no other owner without the restore privilege. Returns false
/// if winbind has not said whether the owner or the group has a number.
pub(crate) async fn learn_new(
    cx: &RequestContext,
    (cred, asked): (&Cred, &Asked),
    parts: u32,
    new: &SecurityDescriptor,
) -> Result<bool, Status> {
    let users = &cx.server.users;
    let (Some(engine), Some(domain)) = (users.engine(), users.domain()) else { return Ok(true) };
    let is_of_domain = |sid: &&Sid| sid.authority() == 5 && sid.subs().first() == Some(&21);
    let set = |bit: u32, sid: &Option<Sid>| {
        sid.as_ref().filter(is_of_domain).filter(|_| parts & bit != 0).cloned()
    };
    let may_own = cred.uid == 0 || !cred.token.is_by_ticket() || asked.may(Privileges::RESTORE);
    let user = set(part::OWNER, &new.owner).filter(|sid| may_own && domain.uid(sid).is_none());
    let group = set(part::GROUP, &new.group).filter(|sid| domain.gid(sid).is_none());
    if user.is_none() && group.is_none() {
        return Ok(true);
    }
    let is_answered = Arc::new(AtomicBool::new(false));
    let its = is_answered.clone();
    let question = move || {
        its.store(engine.learn_numbers(user.as_ref(), group.as_ref()), Ordering::Relaxed);
    };
    ask(cx, question).await?;
    Ok(is_answered.load(Ordering::Relaxed))
}

async fn learn_numbers(
    cx: &RequestContext,
    (domain, engine): (&Domain, Arc<dyn Engine>),
    (mut uids, mut gids): Numbers,
) -> Result<(), Status> {
    let is_open = |n: u32, number| ![0, ANONYMOUS].contains(&n) && !domain.is_settled(number);
    uids.retain(|uid| is_open(*uid, CallerNumber::User(*uid)));
    gids.retain(|gid| is_open(*gid, CallerNumber::Group(*gid)));
    if engine.knows_owners(&uids, &gids) {
        return Ok(());
    }
    ask(cx, move || engine.learn_owners(&uids, &gids)).await
}

/// Asks on a thread, for this client.
async fn ask(cx: &RequestContext, question: impl FnOnce() + Send + 'static) -> Result<(), Status> {
    cx.by_storage(ask_for(cx.conn.info.peer.ip(), question)).await
}

/// Asks the service of the domain on a thread, for a client at this address. Gives up after some seconds.
pub async fn ask_for(from: IpAddr, question: impl FnOnce() + Send + 'static) {
    let ask = move || {
        let _client = ClientWork::begin(from);
        question();
    };
    if TURNS.run(host_of(from), ask).await.is_err() {
        rdma_transport::count::limit_met(LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use vfs::acl::mask;

    use super::*;

    #[test]
    fn all_numbers_of_descriptor_are_asked_about() {
        let owner = Owner { uid: 7, gid: 8 };
        let allow = |who| Ace::allow(who, mask::READ_DATA, 0);
        let list = Acl::new(vec![allow(Who::User(9)), allow(Who::Owner), allow(Who::Members(10))]);
        assert_eq!(numbers(owner, Some(&list)), (vec![7, 9], vec![8, 10]));
        assert_eq!(numbers(owner, None), (vec![7], vec![8]));
    }
}
