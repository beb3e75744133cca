//! Gives the RPC interfaces on pipes access to information about this server.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vfs::accounts::Directory;
use vfs::namespace::Share;
use vfs::{Cred, Domain};

use super::password::{self, Client};
use crate::auth::ntlm::{Acceptor, Protection};
use crate::auth::password::Change;
use crate::domain_engine::Engine;
use crate::dtyp::Sid;
use crate::links;
use crate::pipe::{Guard, Host, NotChanged};
use crate::server_state::ServerState;
use crate::session::{Kind, User};
use crate::share_access::{grant, is_told};
use crate::share_descriptor;
use crate::status::Status;

/// The server as seen by one user.
pub(crate) struct CoreHost {
    pub(crate) core: Arc<ServerState>,
    /// `None` before the logon.
    pub(crate) user: Option<Arc<User>>,
    /// The client's address.
    pub(crate) peer: IpAddr,
    /// What the request has tried already.
    pub(crate) tried: Tried,
}

/// The passwords that one request has tried. A request may have thousands of calls, and waits only once for the wrong passwords
/// before it.
#[derive(Default)]
pub(crate) struct Tried {
    logon: AtomicBool,
    change: AtomicBool,
}

impl Tried {
    /// Returns true at the first logon.
    fn first_logon(&self) -> bool {
        !self.logon.swap(true, Ordering::Relaxed)
    }

    /// Returns true at the first change of a password.
    fn first_change(&self) -> bool {
        !self.change.swap(true, Ordering::Relaxed)
    }
}

impl CoreHost {
    /// Returns whether the caller may see this share, which requires the right to connect to it.
    fn opens(&self, share: &Arc<Share>) -> bool {
        let settings = self.core.settings().share(&share.name);
        // Whether the client can encrypt is checked when it connects.
        let may = |user: &Arc<User>| grant(share, &settings, user, self.peer, true).is_ok();
        let tells = || is_told(share, self.peer) && self.user.is_some();
        share.protocols.smb()
            && if share.is_elsewhere() { tells() } else { self.user.as_ref().is_some_and(may) }
    }

    fn client(&self) -> Client<'_> {
        Client { core: &self.core, user: self.user.as_ref(), peer: self.peer }
    }

    fn told(&self, share: &Share) -> (String, String) {
        (share.name.clone(), self.core.settings().share(&share.name).comment)
    }
}

/// 1970-01-01 as FILETIME, in units of 100 ns since 1601.
const UNIX_EPOCH: u64 = 116_444_736_000_000_000;

impl Host for CoreHost {
    fn computer(&self) -> String {
        self.core.identity().computer
    }

    fn shares(&self) -> Vec<(String, String)> {
        let shares = self.core.namespace.shares();
        let shown = shares.iter().filter(|s| !s.rules.hidden && self.opens(s));
        shown.map(|s| self.told(s)).collect()
    }

    fn share(&self, name: &str) -> Option<(String, String)> {
        let shares = self.core.namespace.shares();
        let named = |s: &&Arc<Share>| s.name.to_lowercase() == name.to_lowercase();
        shares.iter().find(named).filter(|s| self.opens(s)).map(|s| self.told(s))
    }

    fn shares_size(&self) -> (usize, usize) {
        let settings = self.core.settings();
        let shares = self.core.namespace.shares();
        let bytes = |s: &Arc<Share>| s.name.len() + settings.share(&s.name).comment.len();
        (shares.iter().map(bytes).sum(), shares.len())
    }

    fn is_dfs_root(&self, name: &str) -> bool {
        let is_root = |s: &Share| s.is_elsewhere() || links::is_root(s);
        let named = |s: &Arc<Share>| s.name == name && is_root(s);
        self.core.namespace.shares().iter().any(named)
    }

    fn share_descriptor(&self, name: &str) -> Option<Vec<u8>> {
        let shares = self.core.namespace.shares();
        let share = shares.iter().find(|s| s.name == name && self.knows_caller())?;
        share_descriptor::of(share, self.domain().as_deref())
    }

    fn machine(&self) -> Sid {
        machine(&self.core.settings().server_guid)
    }

    fn account(&self, name: &str) -> Option<(String, u32)> {
        self.core.users.find(name).map(|a| (a.name, a.cred.uid))
    }

    fn account_of_uid(&self, uid: u32) -> Option<String> {
        self.core.users.by_uid(uid).map(|a| a.name)
    }

    fn each_account(&self, each: &mut dyn FnMut(&str, &Cred)) {
        self.core.users.each(each);
    }

    fn knows_caller(&self) -> bool {
        self.user.as_ref().is_some_and(|user| user.kind == Kind::User)
    }

    fn domain(&self) -> Option<Arc<Domain>> {
        self.core.users.domain()
    }

    fn engine(&self) -> Option<Arc<dyn Engine>> {
        // Only users who have logged on may make the service ask a controller.
        self.core.users.engine().filter(|_| self.knows_caller())
    }

    fn others(&self) -> &dyn Directory {
        self.core.users.others()
    }

    fn caller(&self) -> String {
        self.user.as_ref().map(|u| u.name.clone()).unwrap_or_default()
    }

    fn times(&self) -> (u64, u64) {
        let (now, began) = (self.core.filetime(), self.core.started());
        (now.saturating_sub(UNIX_EPOCH) / 10_000, now.saturating_sub(began) / 10_000)
    }

    fn sessions(&self) -> u32 {
        u32::try_from(self.core.sessions.count()).unwrap_or(u32::MAX)
    }

    fn password_length(&self) -> u16 {
        self.core.users.password_length()
    }

    fn change_password(&self, name: &str, change: &Change) -> Result<(), NotChanged> {
        if !self.tried.first_change() {
            return Err(NotChanged { status: Status::ACCOUNT_LOCKED_OUT, reason: 0 });
        }
        password::change(self.client(), name, change)
    }
}

impl Guard for CoreHost {
    fn acceptor(&self) -> Option<Acceptor> {
        password::acceptor(self.client())
    }

    fn prove(&self, acceptor: &mut Acceptor, message: &[u8]) -> Option<Protection> {
        if !self.tried.first_logon() {
            return None;
        }
        password::prove(self.client(), acceptor, message)
    }
}

/// Returns the SID of the machine's accounts and groups: S-1-5-21 and three numbers derived from the server's GUID.
pub(crate) fn machine(guid: &[u8; 16]) -> Sid {
    let (words, _) = guid.as_chunks::<4>();
    let word = |n: usize| words.get(n).map_or(0, |w| u32::from_le_bytes(*w));
    // Cannot fail: a one-digit authority and four numbers form a valid SID.
    Sid::new(5, &[21, word(0), word(1) ^ word(3), word(2)]).unwrap_or_else(Sid::everyone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Harness;
    use crate::session::LogonWay;
    use crate::settings::{Settings, ShareSettings};
    use vfs::namespace::{PrincipalSet, Protocols, Rules, ShareAccess};

    fn asked_by(core: &Arc<ServerState>, kind: Kind, uid: u32) -> CoreHost {
        let cred = Cred { uid, gid: uid, groups: Arc::new([]), token: vfs::Token::NONE };
        let user =
            Arc::new(User { name: "alice".into(), kind, cred, rid: 1000, way: LogonWay::Account });
        let peer = [192, 0, 2, 1].into();
        CoreHost { core: core.clone(), user: Some(user), peer, tried: Tried::default() }
    }

    #[test]
    fn everybody_is_shown_what_they_may_open_and_nobody_what_is_hidden() {
        let core = Harness::new().core;
        let data = core.namespace.shares()[0].clone();
        let share = |name: &str, rules| {
            let (name, backend) = (name.to_owned(), data.backend.clone());
            let id = Share::id_of(&name);
            Arc::new(Share { name, id, backend, clients: None, rules, ..*data })
        };
        let of_five =
            ShareAccess { read: PrincipalSet::new(vec![5], Vec::new()), ..ShareAccess::default() };
        let shares = [
            share("all", Rules::default()),
            share("five", Rules { access: Some(of_five), ..Rules::default() }),
            share("secret", Rules { hidden: true, ..Rules::default() }),
        ];
        core.namespace.set_shares(shares.into());
        let guests = ShareSettings { guest: true, ..ShareSettings::default() };
        let of_guests = [("five".into(), guests.clone()), ("secret".into(), guests)];
        core.set_settings(Settings { shares: of_guests.into(), ..Settings::default() });
        let shown = |kind, uid| {
            let host = asked_by(&core, kind, uid);
            let names: Vec<String> = host.shares().into_iter().map(|(name, _)| name).collect();
            (names.join(" "), host.share("SECRET").is_some(), host.share("five").is_some())
        };
        assert_eq!(shown(Kind::User, 5), ("all five".into(), true, true));
        assert_eq!(shown(Kind::User, 6), ("all".into(), true, false));
        assert_eq!(shown(Kind::Guest, 5), ("five".into(), true, true));
        assert_eq!(shown(Kind::Guest, 65_534), (String::new(), true, false));
    }

    #[test]
    fn a_share_of_nfs_is_not_in_the_list() {
        let core = Harness::new().core;
        let host = asked_by(&core, Kind::User, 1000);
        assert_eq!(host.shares(), [("data".to_owned(), String::new())]);
        let data = core.namespace.shares()[0].clone();
        let share = Share {
            name: data.name.clone(),
            backend: data.backend.clone(),
            clients: None,
            rules: data.rules.clone(),
            protocols: Protocols::Nfs,
            ..*data
        };
        core.namespace.set_shares([Arc::new(share)].into());
        assert_eq!(host.shares(), []);
    }
}
