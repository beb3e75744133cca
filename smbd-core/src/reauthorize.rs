//! Applies a changed configuration to existing sessions, tree connects and opens.
//!
//! *Operation.* [`reauthorize`] checks whether every session, tree connect and waiting durable open would be granted again, by the
//! same rules as a new one. It ends those that would not, as if the client had given them up: the session then answers
//! STATUS_USER_SESSION_DELETED, the tree connect STATUS_NETWORK_NAME_DELETED (MS-SMB2 sections 3.3.4.5, 3.3.4.12), and clients log
//! on or connect again automatically. All others keep their state, and so does a tree connect whose grant depends on a host name
//! that cannot be resolved at the moment ([`Unknown`]).
//!
//! A logon or tree connect that is in progress during the change is checked again when it is done ([`session_stands`],
//! [`tree_stands`]), so that it cannot escape the review. Settings for listings and new files revoke no grant: commands read the
//! current ones ([`Tree::share_now`]).
//!
//! *Memory.* A list of the sessions while it runs.
//!
//! *Errors.* None: objects that end in the meantime are skipped.

use std::net::IpAddr;
use std::sync::Arc;

use vfs::Cred;
use vfs::namespace::{By, Entered, Refusal, Share};

use crate::open::{Open, Target as Opened};
use crate::server_state::ServerState;
use crate::session::{Kind, LogonWay, Session, SessionState};
use crate::settings::Encryption;
use crate::share_access::{Denial, grant, is_told, is_within, most};
use crate::teardown::{TeardownReason, end_open, end_session, lose};
use crate::tree::{Target, Tree};

/// Counts of what a review ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub sessions: usize,
    /// Tree connects of sessions that continue.
    pub trees: usize,
    /// Durable opens that waited for their client.
    pub opens: usize,
}

/// Ends everything that would not be granted again.
pub(crate) async fn reauthorize(core: &Arc<ServerState>) -> Taken {
    let mut taken = Taken::default();
    let now = core.now();
    let mut all = core.sessions.all(|s| s.state(now) != SessionState::InProgress);
    let gone: Vec<_> = all.extract_if(.., |session| !session_stands(core, session)).collect();
    // End all trees before closing the first open: a request in an ending tree that waits for a lock must not get it because the
    // holder's open was closed first.
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

/// Returns whether the user may still log on with the same identity, and the session has the protection that is now required.
pub(crate) fn session_stands(core: &ServerState, session: &Session) -> bool {
    let settings = core.settings();
    let Some(user) = session.user() else { return true };
    let may_log_on = match user.kind {
        Kind::User if user.way == LogonWay::Ticket && settings.kerberos.is_none() => false,
        Kind::User if user.way != LogonWay::Ticket && !settings.ntlm => false,
        Kind::User if user.way == LogonWay::Domain && core.users.engine().is_none() => false,
        Kind::User if user.way != LogonWay::Account => {
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

/// How to treat a tree while it is unknown whether a name in its share's `clients` belongs to the client
/// ([`Refusal::NameUnknown`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Keep it if the rest of the share's rules still grants it. It was granted when more was known, and the client has not changed
    /// because the name service is unreachable or was not queried yet.
    Keeps,
    /// End it, as a new one would be refused.
    Ends,
}

/// Returns whether a TREE_CONNECT over any connection of the session would grant no less than this one did.
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
    // If encryption is now required, the tree either encrypts already or the client must connect again.
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
            // A right that one connection lacks is lost for the whole session.
            false => peers.into_iter().all(granted),
            // The client's address is unknown until it reconnects.
            true => now.enter_smb(None, &user.cred).is_ok_and(stands),
        }
}

/// Returns whether a share on other servers still exists, and may be known to each of the session's addresses.
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

/// Returns a tree of this session that would not be granted unchanged to a client at this address; `None` if all would.
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
        // If the share is gone, the review ends its trees.
        now.is_some_and(|now| {
            let settings = settings.share(&now.name);
            !grant(&now, &settings, &user, ip, true).is_ok_and(stands)
        })
    })
}

/// Ends the tree connects that the session's user would not be granted unchanged after a new logon: a new ticket may name other
/// groups.
pub(crate) async fn end_fallen_trees(core: &Arc<ServerState>, session: &Session) {
    let falls = |tree: &Arc<Tree>| !tree_stands(core, session, tree, Unknown::Keeps);
    for tree in session.trees().into_iter().filter(falls) {
        end_tree(core, session, &tree).await;
    }
}

pub(crate) async fn end_tree(core: &Arc<ServerState>, session: &Session, tree: &Tree) {
    if session.remove_tree(tree.id).is_some() {
        session.tell_tree_end(tree, "configuration");
    }
    lose(core, session.id, Some(tree.id), TeardownReason::GivenUp).await;
}

/// Returns whether a waiting durable open may continue: its share is served, and its owner may log on, would get there the access
/// it has and act as the same user. [`crate::durable`] checks the client's address when the client reconnects.
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
