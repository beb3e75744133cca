//! Changes of passwords by clients that know the present ones, and the passwords of clients that want encrypted calls.
//!
//! *Operation.* Every logged-on user may try an account: the change itself proves the present password. Wrong passwords count as
//! failed logons do, by address and by account. An account under attack can be changed only from addresses that it was used from
//! ([`crate::users::accounts`]).
//!
//! *Errors.* A record in the audit trail for each attempt; without room for it the change is refused.

use std::net::IpAddr;
use std::sync::Arc;

use mutex::locked;
use rdma_transport::turns::Turn;
use tokio::runtime::Handle;
use zeroize::Zeroizing;

use super::session_setup::{Passwords, fresh};
use crate::auth::ntlm::{Acceptor, Protection};
use crate::auth::password::{Change, Wrong};
use crate::auth::{NtHash, Policy, Secrets};
use crate::limits::DERIVING_WAIT_MAX;
use crate::pipe::NotChanged;
use crate::refusal::Rule;
use crate::server_state::ServerState;
use crate::session::{Kind, LogonWay, User};
use crate::status::Status;
use crate::users::Unchanged;

/// Longest name in the audit trail, in characters.
const NAME_MAX: usize = 80;

/// The client of a pipe.
#[derive(Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) core: &'a ServerState,
    /// The user of its session.
    pub(super) user: Option<&'a Arc<User>>,
    /// Its address.
    pub(super) peer: IpAddr,
}

impl Client<'_> {
    fn name(&self) -> &str {
        self.user.map_or("", |user| &user.name)
    }
}

/// The reason why a password was not changed.
#[derive(Debug, PartialEq, Eq)]
enum Why {
    /// Other addresses guess it.
    Slowed,
    UnknownUser,
    WrongPassword,
    /// The caller is a user of the domain, and no account has the name.
    OfDomain,
    /// The new password is no text.
    NoText,
    /// No thread to derive a key was free in time.
    Busy,
    Unchanged(Unchanged),
}

impl Why {
    /// Returns the word for log and audit trail.
    fn reason(&self) -> &'static str {
        match self {
            Self::Slowed => "too many wrong passwords",
            Self::UnknownUser => "no such user",
            Self::WrongPassword => "wrong password",
            Self::OfDomain | Self::Unchanged(Unchanged::Elsewhere(_)) => "not kept here",
            Self::Unchanged(Unchanged::Short) => "too short",
            Self::NoText | Self::Unchanged(Unchanged::Weak(_)) => "too weak",
            Self::Unchanged(Unchanged::Replaced) => "changed meanwhile",
            Self::Busy | Self::Unchanged(Unchanged::Failed(_)) => "failed",
        }
    }

    fn detail(&self) -> &str {
        match self {
            Self::Unchanged(
                Unchanged::Weak(what) | Unchanged::Elsewhere(what) | Unchanged::Failed(what),
            ) => what,
            _ => "",
        }
    }

    fn status(&self) -> NotChanged {
        /// `samPwdChangeReason`, which MS-SAMR does not list: too short, and too simple.
        const TOO_SHORT: u32 = 1;
        const NOT_COMPLEX: u32 = 5;
        let (status, reason) = match self {
            Self::Slowed => (Status::ACCOUNT_LOCKED_OUT, 0),
            // MS-SAMR section 3.1.5.10.4: also without such an account.
            Self::UnknownUser | Self::WrongPassword | Self::Unchanged(Unchanged::Replaced) => {
                (Status::WRONG_PASSWORD, 0)
            }
            Self::OfDomain | Self::Unchanged(Unchanged::Elsewhere(_)) => {
                (Status::ACCOUNT_RESTRICTION, 0)
            }
            Self::Unchanged(Unchanged::Short) => (Status::PASSWORD_RESTRICTION, TOO_SHORT),
            Self::NoText | Self::Unchanged(Unchanged::Weak(_)) => {
                (Status::PASSWORD_RESTRICTION, NOT_COMPLEX)
            }
            Self::Busy => (Status::INSUFFICIENT_RESOURCES, 0),
            Self::Unchanged(Unchanged::Failed(_)) => (Status::UNSUCCESSFUL, 0),
        };
        NotChanged { status, reason }
    }

    fn is_guess(&self) -> bool {
        matches!(self, Self::UnknownUser | Self::WrongPassword)
    }

    /// Returns the rule that refuses the client, unless the client only has to choose another password.
    fn rule(&self) -> Option<Rule> {
        let remedy = match self {
            Self::Slowed => {
                "change the password at a host that this user has logged on from before, or wait until the wrong passwords for it \
                 stop"
            }
            Self::UnknownUser | Self::WrongPassword => {
                "give the present password of the account; `headgate user add` sets another"
            }
            Self::OfDomain => "change the password of a user of the domain at a controller",
            Self::Unchanged(Unchanged::Elsewhere(_)) => {
                "change the password where it is kept: the log line `password change refused` says where"
            }
            _ => return None,
        };
        Some(Rule::PasswordChange(remedy))
    }
}

/// Gives the account of this name another password.
pub(super) fn change(client: Client<'_>, name: &str, change: &Change) -> Result<(), NotChanged> {
    let Ok(permit) = audit::permit() else {
        return Err(NotChanged { status: Status::AUDIT_FAILED, reason: 0 });
    };
    let changed = try_change(client, name, change);
    if let Err(why) = &changed {
        note_refused(client, name, why);
    } else {
        tracing::info!(peer = %client.peer, caller = client.name(), user = name, "a user has changed a password");
    }
    permit.record(|| {
        let caller = client.user;
        let party = caller.map(|user| audit::Party::named(&*user.name, user.cred.uid));
        audit::Event::PasswordChange {
            peer: client.peer,
            party: party.unwrap_or_default(),
            account: cut(name).into(),
            result: changed.as_ref().err().map_or("ok", Why::reason),
        }
    });
    changed.map_err(|why| why.status())
}

fn cut(name: &str) -> String {
    name.chars().take(NAME_MAX).collect()
}

fn try_change(client: Client<'_>, name: &str, change: &Change) -> Result<(), Why> {
    let core = client.core;
    let now = core.since_start();
    if locked(&core.accounts).is_slowed(name, client.peer, now) {
        return Err(Why::Slowed);
    }
    let _turn = match change.is_slow() {
        true => Some(turn(client).ok_or(Why::Busy)?),
        false => None,
    };
    let account = core.users.find(name);
    // An unknown name must take as long as a wrong password.
    let hash = account.as_ref().map_or(Zeroizing::new([0; 16]), |a| a.nt_hash.clone());
    let old = NtHash(hash);
    let opened = change.open(&old);
    let Some(account) = account else {
        let of_domain = client.user.is_some_and(|user| user.way != LogonWay::Account);
        return Err(if of_domain { Why::OfDomain } else { Why::UnknownUser });
    };
    let new = opened.map_err(|wrong| match wrong {
        Wrong::Proof => Why::WrongPassword,
        Wrong::Text => Why::NoText,
    })?;
    core.users.change_password(&account.name, &old, &new).map_err(Why::Unchanged)
}

/// Waits for a thread that may derive a key. Only for threads that may block.
fn turn(client: Client<'_>) -> Option<Turn> {
    let runtime = Handle::try_current().ok()?;
    runtime.block_on(client.core.deriving.take(client.peer, 1, DERIVING_WAIT_MAX))
}

fn note_refused(client: Client<'_>, name: &str, why: &Why) {
    let mut wrong = 0;
    if why.is_guess() {
        wrong = count_guess(client, name);
    }
    tracing::info!(
        peer = %client.peer, caller = client.name(), user = name, reason = why.reason(), detail = why.detail(),
        wrong_in_a_minute = wrong, "password change refused"
    );
    if let Some(rule) = why.rule() {
        rule.note_at(client.peer, name);
    }
}

/// Counts a wrong password. Returns the number of the last minute, of all accounts from this address.
fn count_guess(client: Client<'_>, name: &str) -> u32 {
    let now = client.core.since_start();
    locked(&client.core.accounts).wrong(name, now);
    locked(&client.core.logon_throttle).wrong(client.peer, now)
}

/// Begins the authentication of a client that wants encrypted calls. `None` if passwords are not accepted.
pub(super) fn acceptor(client: Client<'_>) -> Option<Acceptor> {
    let is_user = client.user.is_some_and(|user| user.kind == Kind::User);
    if !client.core.settings().ntlm || !is_user {
        return None;
    }
    let fresh = fresh(client.core).ok()?;
    Some(Acceptor::new(client.core.identity(), fresh, Policy::default(), None))
}

/// The password of the user of a session, if that is an account. No other account exists here, so that no client looks for the
/// passwords of others.
struct OfCaller<'a> {
    core: &'a ServerState,
    caller: Option<&'a str>,
}

impl Secrets for OfCaller<'_> {
    fn nt_hash(&self, domain: &str, user: &str) -> Option<NtHash> {
        let account = self.core.users.find(user)?;
        let is_caller = self.caller == Some(&*account.name);
        Passwords(&*self.core.users).nt_hash(domain, user).filter(|_| is_caller)
    }
}

/// Verifies the last message of such a client. Accepts only the user of the session.
pub(super) fn prove(
    client: Client<'_>,
    acceptor: &mut Acceptor,
    message: &[u8],
) -> Option<Protection> {
    let caller = client.user.filter(|user| user.way == LogonWay::Account);
    let caller = caller.map(|user| &*user.name);
    let now = client.core.since_start();
    if caller.is_some_and(|name| locked(&client.core.accounts).is_slowed(name, client.peer, now)) {
        return None;
    }
    match acceptor.authenticate_sealed(message, &OfCaller { core: client.core, caller }) {
        Ok((_, protection)) => Some(protection),
        Err(why) => {
            if why.is_guess() {
                count_guess(client, why.user());
            }
            tracing::info!(peer = %client.peer, user = why.user(), reason = why.reason(), "logon to a pipe refused");
            Rule::from(&why).note_logon_at(client.peer, why.user(), why.reason());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use vfs::Cred;

    use super::*;
    use crate::auth::ntlm::{Credentials, Initiator};
    use crate::auth::password::Aes;
    use crate::auth::{Account as Named, Fresh};
    use crate::harness::Harness;
    use crate::limits::{ACCOUNT_GUESSES_FREE, DERIVING_PER_ADDRESS_MAX, GUESSES_FREE};
    use crate::ops::pipe_host::{CoreHost, Tried};
    use crate::pipe::{Guard, Host};
    use crate::settings::Settings;
    use crate::users::{Account, Users};

    const OLD: &str = "old password";
    const NEW: &str = "new password";

    /// The accounts `alice`, whose password can change, and `bob`, whose password is in a file.
    struct Book(Mutex<String>);

    fn cred(uid: u32) -> Cred {
        Cred { uid, gid: uid, groups: Arc::new([]), token: vfs::Token::NONE }
    }

    impl Users for Book {
        fn find(&self, name: &str) -> Option<Account> {
            let (name, password) = match name {
                "alice" | "ALICE" => ("alice", locked(&self.0).clone()),
                "bob" => ("bob", OLD.to_owned()),
                _ => return None,
            };
            let (nt_hash, cred) = (NtHash::of(&password).0, cred(7));
            Some(Account { name: name.to_owned(), nt_hash, rid: 1014, cred })
        }

        fn password_length(&self) -> u16 {
            8
        }

        fn change_password(&self, name: &str, old: &NtHash, new: &str) -> Result<(), Unchanged> {
            let mut password = locked(&self.0);
            match new {
                _ if name == "bob" => Err(Unchanged::Elsewhere("a file".into())),
                "short" => Err(Unchanged::Short),
                "weak" => Err(Unchanged::Weak("is a word".into())),
                "late" => Err(Unchanged::Replaced),
                "full" => Err(Unchanged::Failed("no space".into())),
                _ => {
                    assert_eq!(*old, NtHash::of(&password));
                    new.clone_into(&mut password);
                    Ok(())
                }
            }
        }

        fn guest(&self) -> Cred {
            cred(65_534)
        }
    }

    /// Returns a server, and its host for the user of this name.
    fn host(name: &str) -> CoreHost {
        let namespace = Harness::new().core.namespace.clone();
        let book = Arc::new(Book(Mutex::new(OLD.to_owned())));
        let core = Arc::new(ServerState::new(namespace, Settings::default(), book));
        let user = Some(user(name, LogonWay::Account));
        CoreHost { core, user, peer: [192, 0, 2, 1].into(), tried: Tried::default() }
    }

    fn user(name: &str, way: LogonWay) -> Arc<User> {
        Arc::new(User { name: name.into(), kind: Kind::User, cred: cred(7), rid: 1014, way })
    }

    fn rc4(old: &str, new: &str) -> Change {
        Change::seal_rc4(&NtHash::of(old), new, [7; 512]).unwrap()
    }

    fn client(host: &CoreHost) -> Client<'_> {
        Client { core: &host.core, user: host.user.as_ref(), peer: host.peer }
    }

    fn status(changed: Result<(), NotChanged>) -> Status {
        changed.err().map_or(Status::SUCCESS, |why| why.status)
    }

    #[test]
    fn change_needs_the_present_password_and_no_more() {
        let host = host("bob");
        let change = |name, old, new| status(super::change(client(&host), name, &rc4(old, new)));
        assert_eq!(change("alice", "other", NEW), Status::WRONG_PASSWORD);
        assert_eq!(change("ALICE", OLD, NEW), Status::SUCCESS, "by another user who knows it");
        assert_eq!(change("alice", OLD, NEW), Status::WRONG_PASSWORD);
        assert_eq!(change("nobody", OLD, NEW), Status::WRONG_PASSWORD);
        assert_eq!(change("bob", "other", NEW), Status::WRONG_PASSWORD);
        assert_eq!(change("bob", OLD, NEW), Status::ACCOUNT_RESTRICTION);
        for (new, expected) in [
            ("short", Status::PASSWORD_RESTRICTION),
            ("weak", Status::PASSWORD_RESTRICTION),
            ("late", Status::WRONG_PASSWORD),
            ("full", Status::UNSUCCESSFUL),
        ] {
            assert_eq!(change("alice", NEW, new), expected, "{new}");
        }
        let of_domain = CoreHost { user: Some(user("DOM\\carol", LogonWay::Domain)), ..host };
        let refused = super::change(client(&of_domain), "carol", &rc4(OLD, NEW));
        assert_eq!(status(refused), Status::ACCOUNT_RESTRICTION, "the domain keeps it");
    }

    /// A request may have thousands of calls, and only the request waits for wrong passwords before it.
    #[test]
    fn one_request_tries_one_change_and_one_logon() {
        let alice = host("alice");
        assert_eq!(status(alice.change_password("alice", &rc4("x", NEW))), Status::WRONG_PASSWORD);
        let again = alice.change_password("alice", &rc4(OLD, NEW));
        assert_eq!(status(again), Status::ACCOUNT_LOCKED_OUT);
        let mut acceptor = alice.acceptor().unwrap();
        assert!(alice.prove(&mut acceptor, b"no message").is_none());
        let credentials = proof(&alice, "alice", OLD);
        assert!(alice.prove(&mut { credentials.0 }, &credentials.1).is_none());
        let next = CoreHost { tried: Tried::default(), ..alice };
        assert_eq!(status(next.change_password("alice", &rc4(OLD, NEW))), Status::SUCCESS);
        let (mut acceptor, proof) = proof(&next, "alice", NEW);
        assert!(next.prove(&mut acceptor, &proof).is_some());
    }

    #[test]
    fn wrong_passwords_count_like_those_of_logons() {
        let host = host("alice");
        let (peer, now) = (host.peer, host.core.since_start());
        for n in 1..=ACCOUNT_GUESSES_FREE {
            assert_eq!(
                status(change(client(&host), "alice", &rc4("x", NEW))),
                Status::WRONG_PASSWORD
            );
            let slow = locked(&host.core.logon_throttle).delay(peer, now).is_some();
            assert_eq!(slow, n >= GUESSES_FREE, "{n}");
        }
        let right = || status(change(client(&host), "alice", &rc4(OLD, NEW)));
        assert_eq!(right(), Status::ACCOUNT_LOCKED_OUT, "from where alice never logged on");
        locked(&host.core.accounts).right("alice", peer, now);
        assert_eq!(right(), Status::SUCCESS, "an attack does not lock alice out");
        // A new password that breaks a rule is no guess and does not count.
        let before = locked(&host.core.logon_throttle).wrong(peer, now);
        assert_eq!(
            status(change(client(&host), "alice", &rc4(NEW, "short"))),
            Status::PASSWORD_RESTRICTION
        );
        assert_eq!(locked(&host.core.logon_throttle).wrong(peer, now), before + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn derivations_of_an_address_leave_threads_to_others() {
        let host = Arc::new(host("alice"));
        let aes = |old: &str, new: &str| {
            let aes = Aes::seal(&NtHash::of(old), new, [7; 16], 5000).unwrap();
            Change::Aes(Box::new(aes))
        };
        let run = async |change_to: Change| {
            let host = host.clone();
            let work = move || status(change(client(&host), "alice", &change_to));
            tokio::task::spawn_blocking(work).await.unwrap()
        };
        let mut held = Vec::new();
        let deriving = &host.core.deriving;
        while let Some(turn) = deriving.take(host.peer, 1, std::time::Duration::ZERO).await {
            held.push(turn);
        }
        assert_eq!(held.len(), DERIVING_PER_ADDRESS_MAX);
        let waits = run(aes(OLD, NEW));
        let passes = async {
            loop {
                tokio::time::advance(std::time::Duration::from_secs(1)).await;
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::select! { ended = waits => ended, () = passes => Status::SUCCESS };
        assert_eq!(ended, Status::INSUFFICIENT_RESOURCES);
        let other = [198, 51, 100, 1].into();
        assert!(deriving.take(other, 1, std::time::Duration::ZERO).await.is_some());
        drop(held);
        assert_eq!(run(aes("other", NEW)).await, Status::WRONG_PASSWORD);
        assert_eq!(run(aes(OLD, NEW)).await, Status::SUCCESS);
        assert_eq!(run(aes(NEW, OLD)).await, Status::SUCCESS);
    }

    /// Returns whether a client that logs on to a pipe with this name and password is accepted.
    fn proves(host: &CoreHost, name: &str, password: &str) -> bool {
        let (mut acceptor, proof) = proof(host, name, password);
        prove(client(host), &mut acceptor, &proof).is_some()
    }

    /// Returns the last message of such a client, and the acceptor that expects it.
    fn proof(host: &CoreHost, name: &str, password: &str) -> (Acceptor, Vec<u8>) {
        let fresh = Fresh { challenge: [1; 8], key: [1; 16], time: 0 };
        let account =
            Named { user: name.into(), domain: String::new(), workstation: String::new() };
        let hash = NtHash::of(password);
        let credentials = Credentials { account, hash, target_name: "host/gate".into() };
        let initiator = Initiator::new(credentials, fresh);
        let mut acceptor = host.acceptor().unwrap();
        let challenge = acceptor.negotiate(&initiator.negotiate()).unwrap();
        let (proof, _) = initiator.authenticate_sealed(&challenge).unwrap();
        (acceptor, proof)
    }

    #[test]
    fn pipe_accepts_the_user_of_its_session_only() {
        let alice = host("alice");
        assert!(proves(&alice, "alice", OLD));
        let peer = alice.peer;
        let count = || locked(&alice.core.logon_throttle).wrong(peer, alice.core.since_start());
        let before = count();
        assert!(!proves(&alice, "bob", OLD), "with the right password of another user");
        assert_eq!(count(), before + 2, "which counts like a wrong one");
        let before = count();
        assert!(!proves(&alice, "alice", "other"));
        assert_eq!(count(), before + 2, "the wrong password counts");
        let by_ticket = CoreHost { user: Some(user("alice", LogonWay::Ticket)), ..alice };
        assert!(!proves(&by_ticket, "alice", OLD), "another user of this name");
        by_ticket.core.set_settings(Settings { ntlm: false, ..Settings::default() });
        assert!(by_ticket.acceptor().is_none());
        let guest = CoreHost { user: None, ..host("alice") };
        assert!(guest.acceptor().is_none());
    }
}
