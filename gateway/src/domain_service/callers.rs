//! Numbers of callers without a ticket: accounts of the gateway, and calls with AUTH_SYS.
//!
//! *Operation.* The service says which numbers users and groups of a domain have. That a number is unmapped is sure only if a
//! controller of the machine's domain answers afterwards: numbers may be in the directory. SSSD does not say that, so its
//! answer is not sure, and counts for accounts only. The gateway asks when a caller comes, and again in the background; access
//! checks do not ask.
//!
//! *Errors.* Without an answer a caller may be any user of the domain.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use domain_sys::{Error, Number};
use mutex::locked;
use smbd_core::owners;
use vfs::acl::Sid;
use vfs::callers::Asking;
use vfs::{AskService, CallerNumber, Cred, Domain};

use super::kept::KEPT_UNSURE;
use super::{ANSWER_MAX, DomainService, PING_MIN, QUESTIONS_TIME};

/// The longest wait of a caller, which may not need the domain at all.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Most numbers of one question in the background.
const BATCH: usize = 512;

/// Asks the service for the domain.
pub(super) struct OfService(pub(super) Weak<DomainService>);

impl AskService for OfService {
    fn ask(&self, from: IpAddr, numbers: Vec<CallerNumber>) -> Asking {
        let (service, its) = (self.0.clone(), self.0.clone());
        let asked = numbers.clone();
        let asking = owners::ask_for(from, move || {
            if let Some(service) = service.upgrade() {
                service.learn_callers(&numbers);
            }
        });
        Box::pin(async move {
            // A later answer is kept, too.
            drop(tokio::time::timeout(WAIT_MAX, asking).await);
            let domain = its.upgrade().and_then(|its| locked(&its.state).domain.clone());
            if let Some(domain) = domain {
                domain.callers().note_asked(&asked, Instant::now());
            }
        })
    }
}

fn number(number: &CallerNumber) -> Number {
    match number {
        CallerNumber::User(uid) => Number::Uid(*uid),
        CallerNumber::Group(gid) => Number::Gid(*gid),
    }
}

fn is_of_domain(sid: &Sid) -> bool {
    sid.authority() == 5 && sid.subs().first() == Some(&21)
}

/// What the service said about a number: an identity of a domain, and whether that is of the number's kind, if the service has said
/// so.
type Answer = Option<(Sid, Option<bool>)>;

/// Stores what the service said about numbers. `is_sure`: a controller answered afterwards.
pub(super) fn keep(
    domain: &Domain,
    numbers: &[CallerNumber],
    answers: Vec<Answer>,
    is_sure: bool,
    now: Instant,
) {
    for (number, answer) in numbers.iter().zip(answers) {
        match answer {
            None => domain.callers().keep_unmapped(*number, is_sure, now),
            Some((sid, Some(is_of_kind))) => domain.know_caller(*number, &sid, is_of_kind),
            Some((_, None)) => domain.callers().forget(*number),
        }
    }
}

impl DomainService {
    /// Asks about the numbers among these that are still unknown.
    fn learn_callers(self: &Arc<Self>, numbers: &[CallerNumber]) {
        let Some(domain) = locked(&self.state).domain.clone() else { return };
        // Another call of the same caller may have asked.
        let asked = domain.unanswered(numbers.iter().copied());
        if !asked.is_empty() {
            self.ask_callers(&domain, asked);
        }
    }

    /// Asks about the numbers of a caller, for a command. Blocks for some seconds at most.
    pub(crate) fn learn_now(self: &Arc<Self>, domain: &Domain, cred: &Cred) {
        self.look_first();
        let asked = domain.unanswered(CallerNumber::all_of(cred));
        if !asked.is_empty() {
            self.ask_callers(domain, asked);
        }
    }

    /// Asks again about numbers whose answers are used.
    pub(super) fn renew_callers(self: &Arc<Self>) {
        let Some(domain) = locked(&self.state).domain.clone() else { return };
        let due = domain.callers().due(Instant::now(), KEPT_UNSURE, BATCH);
        if !due.is_empty() {
            self.ask_callers(&domain, due);
        }
    }

    fn ask_callers(self: &Arc<Self>, domain: &Domain, numbers: Vec<CallerNumber>) {
        let all: Vec<Number> = numbers.iter().map(number).collect();
        let (asked, began) = (all.clone(), Instant::now());
        let answer = self
            .ask_owners(ANSWER_MAX, move |context| context.sids_of(&asked, began + QUESTIONS_TIME));
        let Ok(sids) = answer else { return };
        // A silent controller is no reason for a pause, and the answers are good for accounts without it.
        let rest = ANSWER_MAX.saturating_sub(began.elapsed());
        let needs_controller = !sids.iter().all(|sid| sid.as_ref().is_some_and(is_of_domain))
            && self.source.tells_of_controllers();
        let is_sure = match needs_controller && rest > PING_MIN {
            true => match self.ask_names(rest, |context| context.reach_controller(None)) {
                // The client has too many questions, which says nothing of the controller.
                Err(Error::Busy) => return,
                answer => answer.is_ok(),
            },
            false => !needs_controller && self.source.tells_of_controllers(),
        };
        // The service of a controller gives users of the host SIDs of their numbers.
        let sids: Vec<_> = sids.into_iter().map(|sid| sid.filter(is_of_domain)).collect();
        let kinds = self.kinds(&all, &sids);
        let answers = sids.into_iter().zip(kinds).map(|(sid, kind)| Some((sid?, kind))).collect();
        keep(domain, &numbers, answers, is_sure, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use vfs::Token;

    use super::*;

    fn sid(text: &str) -> Sid {
        text.parse().unwrap()
    }

    #[test]
    fn answers_about_numbers_become_known_to_the_domain() {
        use CallerNumber::{Group, User};
        let domain = Domain::by_service();
        let numbers = [User(1), User(2), User(3), Group(1), Group(2), User(0)];
        let alice = sid("S-1-5-21-1-2-3-1103");
        let group = sid("S-1-5-21-1-2-3-1200");
        let answers = || {
            vec![
                Some((alice.clone(), Some(true))),
                None,
                None,
                Some((group.clone(), Some(true))),
                None,
                Some((alice.clone(), Some(true))),
            ]
        };
        assert_eq!(domain.unanswered(numbers), numbers);
        // Without its kind an identity stays unknown, also where the number had none before.
        domain.callers().keep_unmapped(User(1), true, Instant::now());
        let open = answers().into_iter().map(|answer| answer.map(|(sid, _)| (sid, None)));
        keep(&domain, &numbers, open.collect(), true, Instant::now());
        assert_eq!(domain.unanswered(numbers), [User(1), Group(1), User(0)]);
        keep(&domain, &numbers, answers(), true, Instant::now());
        assert_eq!(domain.sid_of_user(1), Some(alice));
        assert_eq!(domain.sid_of_group(1), Some(group));
        // The superuser is no user of a domain, whatever the service says: it stays uncertain.
        assert_eq!(domain.unanswered(numbers), [User(0)]);
    }

    /// The numbers stay unknown.
    #[tokio::test]
    async fn silent_service_says_nothing_about_callers() {
        let service = Arc::<DomainService>::default();
        let domain = Domain::by_service();
        {
            let mut state = locked(&service.state);
            state.away = Some("silent".into());
            state.domain = Some(domain.clone());
        }
        domain.set_asker(Arc::new(OfService(Arc::downgrade(&service))));
        let of = |uid, token| Cred { uid, gid: 50, groups: [60].into(), token };
        let cred = |token| of(1000, token);
        let from = [192, 0, 2, 1].into();
        let tokens = [Token::of_account(Some(&domain)), Token::of_host(&domain), Token::NONE];
        for (uid, token) in (1000..).zip(tokens) {
            domain.learn(from, &of(uid, token.clone())).expect("it is asked about").await;
            // Other callers on the connection come in between.
            for uid in 1000..=uid {
                assert!(domain.learn(from, &of(uid, token.clone())).is_none(), "{uid} again");
            }
        }
        assert_eq!(domain.unanswered(CallerNumber::all_of(&cred(Token::NONE))).len(), 3);
        // Callers with a ticket, and guests, need no answer.
        let ticket = Token::of_ticket(&domain, sid("S-1-5-21-1-2-3-1103"), []);
        assert!(domain.learn(from, &cred(ticket)).is_none());
        let guest = Cred { uid: vfs::ANONYMOUS, ..cred(Token::NONE) };
        assert!(domain.learn(from, &guest).is_none());
        let by_names = Domain::new(None);
        by_names.set_asker(Arc::new(OfService(Arc::downgrade(&service))));
        assert!(by_names.learn(from, &cred(Token::NONE)).is_none(), "no service has its numbers");
    }
}
