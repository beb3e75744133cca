//! The answers of the domain's service about numbers of callers.
//!
//! *Operation.* A caller without a ticket has numbers only. The gateway asks the service about them when the caller comes,
//! before its first access check ([`crate::Domain::learn`]). Numbers of users and groups of a domain go to [`crate::Domain`].
//! This module keeps the others, which are unmapped: no identity of a domain has them. An answer counts for [`KEPT`], or for as
//! long as the service is silent. The gateway asks again in the background after [`RENEWED`] while checks use the answer, and
//! about numbers whose answer a check misses, such as the uid of squashed callers ([`Callers::due`]).
//!
//! *Memory.* [`ANSWERS_MAX`] answers, and twice [`MISSED_MAX`] and [`ASKED_MAX`] numbers without one. A full table forgets answers
//! that are old or that no check used, then the older half; those about accounts stay, since callers by AUTH_SYS invent numbers.
//!
//! *Errors.* Without an answer the caller may be any user of the domain.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use mutex::{locked, reading, writing};

use crate::types::Cred;

/// A question to the service.
pub type Asking = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Most answers that are kept; callers by AUTH_SYS invent numbers.
pub const ANSWERS_MAX: usize = 65_536;
/// Most numbers without an answer that wait for the next question.
const MISSED_MAX: usize = 1024;
/// Most numbers that stay without an answer and are not asked about again at once.
const ASKED_MAX: usize = 8192;
/// How long callers do not wait again for an answer that did not come.
const ASKED_FOR: Duration = Duration::from_secs(10);
/// Time after which the gateway asks again about an answer that checks use.
pub const RENEWED: Duration = Duration::from_secs(240);
/// How long an answer counts while the service answers.
pub const KEPT: Duration = Duration::from_secs(3600);
/// How long older answers count after a silence, until they are renewed.
const AFTER_SILENCE: Duration = Duration::from_secs(120);

/// A number of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallerNumber {
    User(u32),
    Group(u32),
}

impl CallerNumber {
    /// Returns all numbers of a caller.
    pub fn all_of(cred: &Cred) -> impl Iterator<Item = Self> {
        let groups = cred.groups.iter().copied().map(Self::Group);
        [Self::User(cred.uid), Self::Group(cred.gid)].into_iter().chain(groups)
    }
}

/// Asks the service of the domain.
pub trait AskService: Send + Sync {
    /// Asks about these numbers for a client at this address, and stores the answers in the domain. Ends after some seconds at
    /// most.
    fn ask(&self, from: IpAddr, numbers: Vec<CallerNumber>) -> Asking;
}

/// The answer that a number is unmapped.
struct Answer {
    at: Instant,
    /// A controller answered at the same time, so that the answer is sure.
    is_sure: bool,
    /// A check used the answer after it came.
    is_used: AtomicBool,
    /// It is about an account of the gateway, which asks once, when it logs on.
    of_account: AtomicBool,
}

impl Answer {
    fn is_of_account(&self) -> bool {
        self.of_account.load(Ordering::Relaxed)
    }
}

/// Numbers without an answer, in the order in which checks missed them.
#[derive(Default)]
struct Missed {
    order: VecDeque<CallerNumber>,
    all: HashSet<CallerNumber>,
}

impl Missed {
    fn note(&mut self, number: CallerNumber) {
        if self.all.len() < MISSED_MAX && self.all.insert(number) {
            self.order.push_back(number);
        }
    }

    fn take(&mut self, most: usize) -> Vec<CallerNumber> {
        let taken: Vec<_> = self.order.drain(..most.min(self.order.len())).collect();
        for number in &taken {
            self.all.remove(number);
        }
        taken
    }
}

/// Answers about numbers of callers.
#[derive(Default)]
pub struct Callers {
    answers: RwLock<HashMap<CallerNumber, Answer>>,
    /// Numbers of accounts, and of other callers, without an answer that a check missed.
    missed: [Mutex<Missed>; 2],
    /// Numbers that stayed without an answer, and when the question about them ended.
    asked: Mutex<HashMap<CallerNumber, Instant>>,
    /// The service does not answer, so that all answers count.
    is_silent: AtomicBool,
    /// The end of the last silence.
    back_at: RwLock<Option<Instant>>,
    asker: RwLock<Option<Arc<dyn AskService>>>,
}

impl Callers {
    /// Stores that a number is unmapped. `is_sure`: a controller answered meanwhile. Without a controller an earlier, sure answer
    /// stays.
    pub fn keep_unmapped(&self, number: CallerNumber, is_sure: bool, now: Instant) {
        let mut answers = writing(&self.answers);
        let before = answers.get(&number);
        if !is_sure && before.is_some_and(|one| one.is_sure && self.counts(one, now)) {
            return;
        }
        let of_account = AtomicBool::new(before.is_some_and(Answer::is_of_account));
        if before.is_none() && answers.len() >= ANSWERS_MAX {
            answers.retain(|_, one| {
                one.is_of_account() || *one.is_used.get_mut() && now < one.at + KEPT
            });
            // A few free places would not save the next number the same look at all.
            if answers.len() > ANSWERS_MAX / 2 {
                let mut times: Vec<Instant> = answers.values().map(|one| one.at).collect();
                let half = *times.select_nth_unstable(ANSWERS_MAX / 4).1;
                answers.retain(|_, one| one.is_of_account() || one.at > half);
            }
            if answers.len() >= ANSWERS_MAX {
                answers.clear();
            }
        }
        answers.insert(number, Answer { at: now, is_sure, is_used: false.into(), of_account });
    }

    /// Notes that a question about these numbers has ended.
    pub fn note_asked(&self, numbers: &[CallerNumber], now: Instant) {
        let mut asked = locked(&self.asked);
        if asked.len() + numbers.len() > ASKED_MAX {
            asked.retain(|_, at| now < *at + ASKED_FOR);
        }
        let places = ASKED_MAX.saturating_sub(asked.len());
        asked.extend(numbers.iter().take(places).map(|number| (*number, now)));
    }

    /// Returns whether a question about the number has just ended: an answer that did not come will come in the background.
    pub(crate) fn is_asked(&self, number: CallerNumber, now: Instant) -> bool {
        locked(&self.asked).get(&number).is_some_and(|at| now < *at + ASKED_FOR)
    }

    /// Forgets an answer: an identity of a domain has the number.
    pub fn forget(&self, number: CallerNumber) {
        if reading(&self.answers).contains_key(&number) {
            writing(&self.answers).remove(&number);
        }
    }

    /// Notes whether the service is silent.
    pub fn set_silent(&self, is_silent: bool) {
        if self.is_silent.swap(is_silent, Ordering::Relaxed) && !is_silent {
            *writing(&self.back_at) = Some(Instant::now());
        }
    }

    /// Returns whether the service is silent.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    pub(crate) fn set_asker(&self, asker: Arc<dyn AskService>) {
        *writing(&self.asker) = Some(asker);
    }

    pub(crate) fn ask(&self, from: IpAddr, numbers: Vec<CallerNumber>) -> Option<Asking> {
        reading(&self.asker).as_ref().map(|asker| asker.ask(from, numbers))
    }

    fn counts(&self, answer: &Answer, now: Instant) -> bool {
        let is_renewed_soon = || reading(&self.back_at).is_some_and(|at| now < at + AFTER_SILENCE);
        now < answer.at + KEPT || self.is_silent() || is_renewed_soon()
    }

    /// Returns whether an answer about the number counts, sure or not.
    pub(crate) fn has(&self, number: CallerNumber, now: Instant) -> bool {
        let answers = reading(&self.answers);
        answers.get(&number).is_some_and(|answer| self.counts(answer, now))
    }

    /// Returns whether the service has said that the number is unmapped. `may_be_unsure`: also while controllers were silent.
    pub(crate) fn is_unmapped(
        &self,
        number: CallerNumber,
        may_be_unsure: bool,
        now: Instant,
    ) -> bool {
        let answers = reading(&self.answers);
        let Some(answer) = answers.get(&number) else {
            locked(&self.missed[usize::from(!may_be_unsure)]).note(number);
            return false;
        };
        answer.is_used.store(true, Ordering::Relaxed);
        if may_be_unsure {
            answer.of_account.store(true, Ordering::Relaxed);
        }
        self.counts(answer, now) && (answer.is_sure || may_be_unsure)
    }

    /// Returns the numbers to ask about, as many as `most`: first each number whose answer checks missed, then numbers with answers
    /// that checks used or that are about accounts, the oldest first. An answer that is not sure is due after `unsure`.
    pub fn due(&self, now: Instant, unsure: Duration, most: usize) -> Vec<CallerNumber> {
        let [of_accounts, others] = &self.missed;
        let mut missed = locked(of_accounts).take(most);
        missed.extend(locked(others).take(most - missed.len()));
        let answers = reading(&self.answers);
        let is_due = |answer: &Answer| {
            let after = if answer.is_sure { RENEWED } else { unsure };
            let is_used = answer.is_used.load(Ordering::Relaxed) || answer.is_of_account();
            now >= answer.at + after && is_used
        };
        let mut due: Vec<(Instant, CallerNumber)> = answers
            .iter()
            .filter(|(_, answer)| is_due(answer))
            .map(|(number, answer)| (answer.at, *number))
            .collect();
        due.sort_unstable();
        let due = due.into_iter().map(|(_, number)| number);
        missed.into_iter().chain(due).take(most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: CallerNumber = CallerNumber::User(1);

    #[test]
    fn answers_count_for_their_time_and_through_silence() {
        let (callers, began) = (Callers::default(), Instant::now());
        callers.keep_unmapped(ONE, true, began);
        for (after, is_silent, counts) in [
            (Duration::ZERO, false, true),
            (KEPT - Duration::from_secs(1), false, true),
            (KEPT, false, false),
            (KEPT, true, true),
            (2 * KEPT, true, true),
        ] {
            callers.set_silent(is_silent);
            let now = began + after;
            let told = (callers.has(ONE, now), callers.is_unmapped(ONE, false, now));
            assert_eq!(told, (counts, counts), "{after:?} {is_silent}");
        }
        // After a silence the answer counts until it is renewed.
        callers.set_silent(false);
        let back = reading(&callers.back_at).unwrap();
        let old = |after| callers.has(ONE, back + after);
        assert!(old(Duration::ZERO) && old(AFTER_SILENCE - Duration::from_secs(1)));
        assert!(!callers.has(ONE, back + 2 * KEPT));
        callers.forget(ONE);
        assert!(!callers.has(ONE, began) && !callers.is_unmapped(ONE, true, began));
    }

    /// A controller that is silent for a time takes no answer that one has given.
    #[test]
    fn sure_answers_stay_sure() {
        let (callers, began) = (Callers::default(), Instant::now());
        callers.keep_unmapped(ONE, true, began);
        callers.keep_unmapped(ONE, false, began + RENEWED);
        assert!(callers.is_unmapped(ONE, false, began + RENEWED));
        // It still ends in time, and then the unsure one counts for accounts.
        callers.keep_unmapped(ONE, false, began + KEPT);
        let told = [false, true].map(|account| callers.is_unmapped(ONE, account, began + KEPT));
        assert_eq!(told, [false, true]);
    }

    #[test]
    fn used_answers_are_asked_again() {
        let (callers, began) = (Callers::default(), Instant::now());
        let unsure = Duration::from_secs(10);
        let (used, idle, open) = (ONE, CallerNumber::Group(1), CallerNumber::User(2));
        callers.keep_unmapped(used, true, began);
        callers.keep_unmapped(idle, true, began);
        callers.keep_unmapped(open, false, began + Duration::from_secs(1));
        assert!(callers.is_unmapped(used, false, began));
        assert!(!callers.is_unmapped(open, false, began));
        let due = |seconds| callers.due(began + Duration::from_secs(seconds), unsure, 9);
        assert_eq!((due(5), due(20)), (vec![], vec![open]));
        assert_eq!((due(240), due(9999)), (vec![used, open], vec![used, open]));
        assert_eq!(callers.due(began + RENEWED, unsure, 1), [used]);
        // The new answer is not due before a check uses it.
        callers.keep_unmapped(used, true, began + RENEWED);
        assert_eq!(due(9999), [open]);
        let missed = CallerNumber::User(3);
        assert!(!callers.is_unmapped(missed, true, began));
        assert_eq!((due(9999), due(9999)), (vec![missed, open], vec![open]));
        // Accounts come first, in the order of their questions, and what is left over stays.
        let [account, low] = [9, 4].map(CallerNumber::User);
        for (number, of_account) in [(missed, false), (account, true), (low, true)] {
            assert!(!callers.is_unmapped(number, of_account, began));
        }
        let two = callers.due(began, unsure, 2);
        assert_eq!((two, due(0)), (vec![account, low], vec![missed]));
        // An answer about an account is due without a check that used it.
        callers.keep_unmapped(account, true, began);
        assert!(callers.is_unmapped(account, true, began));
        callers.keep_unmapped(account, true, began);
        assert!(due(240).contains(&account));
    }

    #[test]
    fn full_table_never_grows() {
        let (callers, now) = (Callers::default(), Instant::now());
        callers.keep_unmapped(CallerNumber::Group(7), true, now);
        assert!(callers.is_unmapped(CallerNumber::Group(7), true, now));
        for uid in 0..u32::try_from(2 * ANSWERS_MAX).unwrap() {
            callers.keep_unmapped(CallerNumber::User(uid), true, now);
            // Callers that invent numbers use the answers, too.
            assert!(callers.is_unmapped(CallerNumber::User(uid), false, now));
        }
        let kept = reading(&callers.answers).len();
        assert!(kept <= ANSWERS_MAX && callers.has(CallerNumber::Group(7), now), "{kept}");
    }

    #[test]
    fn questions_without_answer_are_not_repeated_at_once() {
        let (callers, now) = (Callers::default(), Instant::now());
        let (alice, bob) = (CallerNumber::User(1), CallerNumber::User(2));
        assert!(!callers.is_asked(alice, now));
        callers.note_asked(&[alice, bob], now);
        assert!(callers.is_asked(alice, now) && callers.is_asked(bob, now));
        assert!(!callers.is_asked(CallerNumber::Group(1), now));
        let later = now + ASKED_FOR;
        assert!(!callers.is_asked(alice, later));
        // A full table forgets what has ended, and takes no more.
        let many: Vec<_> = (0..).map(CallerNumber::Group).take(ASKED_MAX).collect();
        callers.note_asked(&many, later);
        assert!(callers.is_asked(many[ASKED_MAX - 1], later));
        callers.note_asked(&[alice], later);
        assert_eq!(locked(&callers.asked).len(), ASKED_MAX);
    }
}
