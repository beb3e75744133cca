//! Passwords of domain users, about which a controller is asked.
//!
//! *Operation.* A service of this host ([`Engine`]) asks a controller, on one of [`TURNS_MAX`] threads. The user that a controller
//! confirms is the identity of its SID, never an account of the same name. Whether a name is that of a domain is mostly known and
//! otherwise asked on other threads, so that users of this server never wait for passwords of a domain. Winbind may list a trusted
//! domain only after the first logon of one of its users, so a controller decides about any name where no account does.
//!
//! *Errors.* A refusal with a reason for the log; [`Why::Away`] if no thread or no answer came in time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gss_sys::Pool;
use iobuf::ClientWork;
use rdma_transport::channel::host_of;

use crate::auth::relay::{AccountHere, Answer, Question, Refused, Why};
use crate::domain_engine::{Confirmed, Engine, Verdict};
use crate::domain_user::known;
use crate::dtyp::Sid;
use crate::kerberos::User;
use crate::users::{Ticketed, Users};

/// Questions to the domain at the same time; one address has half of them.
pub const TURNS_MAX: usize = 8;
pub const LIMIT: &str = "domain-logons";
/// The longest wait for a slot, and again for the answer.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

static TURNS: Pool = Pool::new(TURNS_MAX, WAIT_MAX);

/// Questions whether a name is that of a domain at the same time; one address has half of them.
pub const NAME_TURNS_MAX: usize = 4;
pub const NAME_LIMIT: &str = "domain-name-questions";
/// The longest wait for a slot, and again for the answer.
pub const NAME_WAIT_MAX: Duration = Duration::from_secs(5);

static NAME_TURNS: Pool = Pool::new(NAME_TURNS_MAX, NAME_WAIT_MAX);

fn late<U>(limit: &'static str) -> Answer<U> {
    rdma_transport::count::limit_met(limit);
    Answer::Refused(Refused { why: Why::Away, detail: "no answer in time".to_owned() })
}

/// Lets a controller decide about a response from this address.
pub(crate) async fn relay(
    from: IpAddr,
    engine: Arc<dyn Engine>,
    question: Question,
    users: Arc<dyn Users>,
) -> Answer<User> {
    let domain = &question.account.domain;
    // A user without a domain may be one of any.
    let known = if domain.is_empty() { Some(true) } else { engine.knows_domain(domain) };
    let is_known = match known {
        Some(is_known) => is_known,
        None => {
            let (engine, domain) = (engine.clone(), domain.clone());
            let asked = NAME_TURNS
                .run(host_of(from), move || {
                    let _client = ClientWork::begin(from);
                    engine.is_domain(&domain)
                })
                .await;
            match asked {
                Ok(Ok(is_known)) => is_known,
                Ok(Err(refused)) => return Answer::Refused(refused),
                Err(_busy) => return late(NAME_LIMIT),
            }
        }
    };
    let account_here = question.account_here;
    if !is_known && account_here == AccountHere::Proved {
        return Answer::Local;
    }
    let ask = move || {
        let _client = ClientWork::begin(from);
        ask(&*engine, &question, &*users)
    };
    let asked = TURNS.run(host_of(from), ask).await;
    let answer = asked.unwrap_or_else(|_busy| late(LIMIT));
    if is_known { answer } else { of_unknown_domain(answer, account_here) }
}

/// Lets the accounts of this server refuse, so that a wrong password of theirs counts as a guess whatever a controller says about
/// the name, and guests do not need the domain.
fn of_unknown_domain<U>(answer: Answer<U>, account_here: AccountHere) -> Answer<U> {
    match answer {
        // The password is right.
        Answer::Refused(refused) if matches!(refused.why, Why::NoNumber | Why::Number) => {
            Answer::Refused(refused)
        }
        Answer::Refused(refused)
            if account_here != AccountHere::Unknown || refused.why == Why::Away =>
        {
            Answer::Local
        }
        answer => answer,
    }
}

fn ask(engine: &dyn Engine, question: &Question, users: &dyn Users) -> Answer<User> {
    let confirmed = match engine.ask(question) {
        Verdict::NoDomain => return Answer::Local,
        Verdict::Refused(refused) => return Answer::Refused(refused),
        Verdict::Confirmed(confirmed) => confirmed,
    };
    let Confirmed { name, domain, user, primary_group, mut groups, key } = *confirmed;
    // A server adds it to the token of such a logon (MS-DTYP section 2.4.2.4).
    groups.push(Sid::ntlm());
    match known(engine, (&domain, &name), user, (primary_group, groups), users) {
        Ok(Ticketed { name, cred, rid, .. }) => {
            Answer::Proved { user: User { name, cred, rid }, key }
        }
        Err(refused) => Answer::Refused(refused),
    }
}

#[cfg(test)]
mod tests {
    use vfs::{ANONYMOUS, Cred, Domain};
    use zeroize::Zeroizing;

    use std::sync::Mutex;

    use mutex::locked;

    use super::*;
    use crate::auth::{Account, Identity};
    use crate::domain_engine::{Lookup, Numbers};
    use crate::users::Account as Local;

    struct Lab(u32);

    /// While it is held, the controller does not answer about the user `silent`.
    static SILENCE: Mutex<()> = Mutex::new(());

    impl Engine for Lab {
        fn machine(&self) -> Option<Identity> {
            None
        }

        fn knows_domain(&self, name: &str) -> Option<bool> {
            match name {
                "LAB" => Some(true),
                "WORKGROUP" | "UNLISTED" | "SILENT" | "LOCKED" => Some(false),
                _ => None,
            }
        }

        fn is_domain(&self, name: &str) -> Result<bool, Refused> {
            match name {
                "OTHER" => Ok(false),
                _ => Err(Refused { why: Why::Away, detail: "before the first answer".into() }),
            }
        }

        fn names(&self, _: &[Sid]) -> Vec<Lookup> {
            panic!("no name is asked about")
        }

        fn knows_owners(&self, _: &[u32], _: &[u32]) -> bool {
            panic!("no owner is asked about")
        }

        fn learn_numbers(&self, _: Option<&Sid>, _: Option<&Sid>) -> bool {
            panic!("no owner is set")
        }

        fn learn_owners(&self, _: &[u32], _: &[u32]) {
            panic!("no owner is asked about")
        }

        fn identities(&self, _: &[(&str, &str)]) -> Vec<Lookup> {
            panic!("no name is asked about")
        }

        fn ask(&self, question: &Question) -> Verdict {
            match question.account.domain.as_str() {
                "LAB" if question.account.user == "silent" => {
                    let _released = locked(&SILENCE);
                    Verdict::NoDomain
                }
                "SILENT" => Verdict::Refused(Refused { why: Why::Away, detail: "silent".into() }),
                "LOCKED" => {
                    Verdict::Refused(Refused { why: Why::Account, detail: "locked".into() })
                }
                "LAB" | "UNLISTED" => Verdict::Confirmed(Box::new(Confirmed {
                    name: "Alice".into(),
                    domain: "LAB".into(),
                    user: sid(1103),
                    primary_group: sid(513),
                    groups: vec![sid(513), sid(1200), "S-1-18-1".parse().unwrap()],
                    key: Zeroizing::new([7; 16]),
                })),
                _ => Verdict::NoDomain,
            }
        }

        fn numbers(&self, _: &Sid, _: &Sid, groups: &[Sid]) -> Result<Numbers, Refused> {
            assert!(!groups.contains(&sid(513)), "the primary group is asked about once");
            Ok(Numbers { uid: self.0, gid: 100, groups: vec![2001, 100] })
        }
    }

    struct Book(Arc<Domain>);

    impl Users for Book {
        fn find(&self, _: &str) -> Option<Local> {
            panic!("no account is looked at")
        }

        fn domain(&self) -> Option<Arc<Domain>> {
            Some(self.0.clone())
        }

        fn guest(&self) -> Cred {
            panic!("nobody is a guest")
        }
    }

    fn sid(rid: u32) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
    }

    fn asked(domain: &str, uid: u32) -> (Answer<User>, Arc<Domain>) {
        let account =
            Account { user: "alice".into(), domain: domain.into(), workstation: String::new() };
        let account_here = AccountHere::Unknown;
        let question = Question { account, challenge: [1; 8], nt: vec![0; 48], account_here };
        let of = Domain::new(None);
        (ask(&Lab(uid), &question, &Book(of.clone())), of)
    }

    #[test]
    fn confirmed_user_is_the_identity_of_its_sid() {
        let (Answer::Proved { user, key }, domain) = asked("LAB", 3001) else { panic!("refused") };
        assert_eq!((&*user.name, user.cred.uid, user.cred.gid), ("LAB\\Alice", 3001, 100));
        assert_eq!((&user.cred.groups[..], *key), (&[2001][..], [7; 16]));
        let token = &user.cred.token;
        assert!(token.is_by_ticket(), "the list of its groups is complete");
        assert!(token.is_by_ntlm() && token.has(&Sid::ntlm()));
        assert!(token.has(&sid(1200)) && token.has(&"S-1-18-1".parse().unwrap()));
        assert_eq!(domain.sid_of_user(3001), Some(sid(1103)));
        assert_eq!((domain.sid_of_group(100), domain.gid(&sid(513))), (Some(sid(513)), Some(100)));
    }

    #[test]
    fn superuser_and_guests_are_no_users_of_a_domain() {
        for uid in [0, ANONYMOUS] {
            let (Answer::Refused(refused), _) = asked("LAB", uid) else {
                panic!("{uid} is accepted")
            };
            assert_eq!(refused.why, Why::Number);
        }
        assert!(matches!(asked("WORKGROUP", 3001).0, Answer::Local));
    }

    /// Asks from one of two addresses, which have turns of their own.
    async fn relayed(
        (user, domain): (&str, &str),
        account_here: AccountHere,
        host: u8,
    ) -> Answer<User> {
        let account =
            Account { user: user.into(), domain: domain.into(), workstation: String::new() };
        let question = Question { account, challenge: [1; 8], nt: vec![0; 48], account_here };
        let book = Arc::new(Book(Domain::new(None)));
        relay([192, 0, 2, host].into(), Arc::new(Lab(3001)), question, book).await
    }

    /// A domain that winbind does not list may be a trusted one.
    #[tokio::test]
    async fn unlisted_domain_is_asked_about_where_no_account_decides() {
        use AccountHere::{Proved, Unknown, WrongPassword};
        for (domain, account_here, wanted) in [
            ("UNLISTED", Unknown, "proved"),
            ("UNLISTED", WrongPassword, "proved"),
            ("UNLISTED", Proved, "local"),
            ("WORKGROUP", Unknown, "local"),
            ("WORKGROUP", WrongPassword, "local"),
            ("SILENT", Unknown, "local"),
            ("LOCKED", Unknown, "refused"),
            // It counts as a guess.
            ("LOCKED", WrongPassword, "local"),
            ("LAB", Proved, "proved"),
        ] {
            let told = match relayed(("alice", domain), account_here, 2).await {
                Answer::Local => "local",
                Answer::Proved { .. } => "proved",
                Answer::Refused(_) => "refused",
            };
            assert_eq!(told, wanted, "{domain} {account_here:?}");
        }
    }

    #[tokio::test]
    async fn users_of_this_server_wait_for_no_password_of_domain() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (hold, held) = std::sync::mpsc::channel();
        let holder = std::thread::spawn(move || {
            let _silence = locked(&SILENCE);
            hold.send(()).unwrap();
            let _ = released.recv();
        });
        held.recv().unwrap();
        let waiting: Vec<_> = (0..2 * TURNS_MAX)
            .map(|_| tokio::spawn(relayed(("silent", "LAB"), AccountHere::Unknown, 1)))
            .collect();
        // All slots of the address are taken, and others wait for them.
        let soon = |domain| {
            let answer = relayed(("alice", domain), AccountHere::Proved, 1);
            tokio::time::timeout(Duration::from_secs(2), answer)
        };
        tokio::task::yield_now().await;
        assert!(soon("LAB").await.is_err(), "a user of the domain waits");
        for domain in ["WORKGROUP", "OTHER"] {
            assert!(matches!(soon(domain).await, Ok(Answer::Local)), "{domain}");
        }
        let Ok(Answer::Refused(refused)) = soon("UNKNOWN").await else { panic!("not refused") };
        assert_eq!(
            refused.why,
            Why::Away,
            "a domain that cannot be asked about is not this server"
        );
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        drop(release);
        holder.join().unwrap();
    }
}
