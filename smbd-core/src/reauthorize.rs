//! What a changed configuration takes from those who are there already.
//!
//! *Operation.* [`reauthorize`] asks of every session, tree connect and waiting durable open whether it would be granted again, by
//! the same rules that grant it to a newcomer. What would not be is ended as if its client had given it up: a session answers
//! STATUS_USER_SESSION_DELETED from then on, a tree connect STATUS_NETWORK_NAME_DELETED (MS-SMB2 sections 3.3.4.5, 3.3.4.12), and
//! clients log on or connect again by themselves. Whatever would be granted again keeps all that it holds, and so does a tree
//! connect of which that depends on a name that is not known now ([`Unknown`]).
//!
//! A logon or a tree connect that is under way while the configuration changes is judged once more when it is done
//! ([`session_stands`], [`tree_stands`]), so none slips through between the change and the review. What a share says of listings
//! and of new files takes nothing from anybody: commands ask for it as it is ([`Tree::share_now`]).
//!
//! *Memory.* A list of the sessions while it runs.
//!
//! *Errors.* None: what is gone meanwhile is passed over.

use std::net::IpAddr;
use std::sync::Arc;

use vfs::Cred;
use vfs::namespace::{By, Entered, Refusal, Share};

use crate::open::{Open, Target as Opened};
use crate::server_state::ServerState;
use crate::session::{Kind, Session, SessionState};
use crate::settings::Encryption;
use crate::share_access::{Denial, grant, is_told, is_within, most};
use crate::teardown::{TeardownReason, end_open, end_session, lose};
use crate::tree::{Target, Tree};

/// How much a review ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Sessions.
    pub sessions: usize,
    /// Tree connects of sessions that go on.
    pub trees: usize,
    /// Durable opens that waited for their client.
    pub opens: usize,
}

/// Asks of everything whether it would be granted again.
pub(crate) async fn reauthorize(core: &Arc<ServerState>) -> Taken {
    let mut taken = Taken::default();
    let now = core.now();
    let mut all = core.sessions.all(|s| s.state(now) != SessionState::InProgress);
    let gone: Vec<_> = all.extract_if(.., |session| !session_stands(core, session)).collect();
    // All trees go before the first open is closed: who waits for a lock in one does not get it because its holder went first.
    let mut trees = Vec::new();
    for session in &all {
        let falls = |tree: &Arc<Tree>| !tree_stands(core, session, tree, Unknown::Keeps);
        for tree in session.trees().into_iter().filter(falls) {
            session.remove_tree(tree.id);
            session.tell_tree_end(&tree, "configuration");
            trees.push((session.id, tree.id));
        }
    }
    for session in gone {
        end_session(core, &session, TeardownReason::GivenUp, "configuration").await;
        taken.sessions += 1;
    }
    for (session, tree) in trees {
        lose(core, session, Some(tree), TeardownReason::GivenUp).await;
        taken.trees += 1;
    }
    let waiting = core.opens.of_session(0, None).into_iter();
    for open in waiting.filter(|o| !open_stands(core, o)) {
        end_open(core, &open).await;
        taken.opens += 1;
    }
    taken
}

/// The user may still log on, as the same one, and the session protects its messages as it would have to now.
pub(crate) fn session_stands(core: &ServerState, session: &Session) -> bool {
    let settings = core.settings();
    let Some(user) = session.user() else { return true };
    let may_log_on = match user.kind {
        Kind::User if user.by_ticket && settings.kerberos.is_none() => false,
        Kind::User if !user.by_ticket && !settings.ntlm => false,
        Kind::User if user.by_ticket => {
            core.users.cred(&user.name).is_some_and(|c| c.has_numbers_of(&user.cred))
        }
        Kind::User => core.users.find(&user.name).is_some_and(|a| a.cred == user.cred),
        Kind::Guest | Kind::Anonymous => settings.has_guests(),
    };
    let signs = user.kind != Kind::User || session.signing_required() || !settings.signing_required;
    let seals = session.encrypts() || settings.encryption != Encryption::Required;
    may_log_on && signs && seals
}

fn stands(granted: u32, cred: &Cred, now: &Entered) -> bool {
    is_within(granted, cred, (most(&now.share), &now.cred))
}

/// What becomes of a tree while it is not known whether a name in `clients` of its share is the client's
/// ([`Refusal::NameUnknown`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// It stays as it is, if the rest of what the share says still gives it. It was granted while more was known, and that the
    /// name service is away, or has not been asked yet, is no news about the client.
    Keeps,
    /// It ends, as a new one would be refused.
    Ends,
}

/// A TREE_CONNECT by any connection of the session would give no less than this one did.
pub(crate) fn tree_stands(
    core: &ServerState,
    session: &Session,
    tree: &Tree,
    unknown: Unknown,
) -> bool {
    if let Some(share) = tree.elsewhere() {
        return elsewhere_stands(core, session, share, unknown);
    }
    let (Target::Files(share), Some(user)) = (&tree.target, session.user()) else { return true };
    let now = core.namespace.share(share.id).filter(|s| s.protocols.smb());
    let Some(now) = now else { return false };
    let settings = core.settings().share(&now.name);
    let stands = |entered: Entered| stands(tree.maximal_access, &tree.cred, &entered);
    // Where encryption is asked for, the tree either does it already or has to be connected anew.
    let granted = |ip: IpAddr| match grant(&now, &settings, &user, ip, true) {
        Err(Denial::Rule(Refusal::NameUnknown)) if unknown == Unknown::Keeps => {
            now.enter_smb(None, &user.cred).is_ok_and(stands)
        }
        granted => granted.is_ok_and(stands),
    };
    let peers = session.addresses();
    Arc::ptr_eq(&now.backend, &share.backend)
        && now.rules.homes == tree.home.is_some()
        && (tree.settings.encrypt || !settings.encrypt)
        && match peers.is_empty() {
            // What one connection may not do, nobody does by another.
            false => peers.into_iter().all(granted),
            // Its address is not known until its client is back.
            true => now.enter_smb(None, &user.cred).is_ok_and(stands),
        }
}

/// A share that is on other servers still is, and each of the session's addresses may know of it.
fn elsewhere_stands(
    core: &ServerState,
    session: &Session,
    share: &Share,
    unknown: Unknown,
) -> bool {
    let now = core.namespace.share(share.id).filter(|s| s.protocols.smb() && s.is_elsewhere());
    let may = |now: &Share, ip| match now.client(ip, By::Smb) {
        Err(Refusal::NameUnknown) => unknown == Unknown::Keeps,
        rule => rule.is_ok(),
    };
    now.is_some_and(|now| session.addresses().into_iter().all(|ip| may(&now, ip)))
}

/// A tree of this session that would not be granted as it is to who comes from this address; `None` when all would.
pub(crate) fn denied_from(core: &ServerState, session: &Session, ip: IpAddr) -> Option<Arc<Tree>> {
    let user = session.user()?;
    let settings = core.settings();
    session.trees().into_iter().find(|tree| {
        if let Some(share) = tree.elsewhere() {
            let now = core.namespace.share(share.id);
            return now.is_some_and(|now| !is_told(&now, ip));
        }
        let now = tree.share().and_then(|share| core.namespace.share(share.id));
        let stands = |entered: Entered| stands(tree.maximal_access, &tree.cred, &entered);
        // A share that is gone ends its trees by the review.
        now.is_some_and(|now| {
            let settings = settings.share(&now.name);
            !grant(&now, &settings, &user, ip, true).is_ok_and(stands)
        })
    })
}

/// Ends the tree connects of this session that its user, who has logged on again, would not be granted as they are: a ticket may
/// name other groups than the one before.
pub(crate) async fn end_fallen_trees(core: &Arc<ServerState>, session: &Session) {
    let falls = |tree: &Arc<Tree>| !tree_stands(core, session, tree, Unknown::Keeps);
    for tree in session.trees().into_iter().filter(falls) {
        end_tree(core, session, &tree).await;
    }
}

/// Ends a tree connect.
pub(crate) async fn end_tree(core: &Arc<ServerState>, session: &Session, tree: &Tree) {
    if session.remove_tree(tree.id).is_some() {
        session.tell_tree_end(tree, "configuration");
    }
    lose(core, session.id, Some(tree.id), TeardownReason::GivenUp).await;
}

/// A durable open that waits: its share is served, and its owner may log on, have there what it was granted and act as the same
/// user. The address of its client is known when that is back: see [`crate::durable`].
fn open_stands(core: &ServerState, open: &Open) -> bool {
    let Opened::File(file) = &open.target else { return true };
    let share = core.namespace.share(file.share.id).filter(|s| s.protocols.smb());
    let is_same = |s: &Arc<Share>| {
        Arc::ptr_eq(&s.backend, &file.share.backend) && s.rules.homes == file.share.rules.homes
    };
    let Some(share) = share.filter(is_same) else { return false };
    let owner = core.users.cred(&open.durable.owner());
    let entered = owner.and_then(|owner| share.enter_smb(None, &owner).ok());
    entered.is_some_and(|now| stands(open.granted, &open.cred, &now))
}
