//! Answers of the directory, and the rules by which they are valid. Pure: times are arguments.
//!
//! *Operation.* An answer is fresh for [`FRESH`]. Then the next logon queries the directory again. While it is silent, the
//! last answer stays valid for `keep`, and for sessions as long as the directory answers. That a name is no user is valid for
//! [`FRESH_NONE`], and ends an earlier answer.
//!
//! *Memory.* [`USERS_MAX`] users, and [`DISPLACED_MAX`] whose sessions go on, each with at most
//! [`super::entry::GROUPS_MAX`] groups, as many users and groups of configurations, and [`NONE_MAX`] names that are no users, which
//! clients invent.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};

use smb_auth::Look;
use smbd_core::users::database::key;
use vfs::{Cred, Token};

use super::entry::User;

/// How long an answer needs no other one.
pub(super) const FRESH: Duration = Duration::from_secs(60);
/// The same for a name that is no user.
pub(super) const FRESH_NONE: Duration = Duration::from_secs(10);
/// A wrong password, and groups of a right one, are not asked about within this time.
pub(super) const FRESH_PROOF: Duration = Duration::from_secs(5);
/// Most users, and most groups with names, that are kept.
pub(super) const USERS_MAX: usize = 8192;
/// Most users whose sessions go on though others have taken their place: as many as sessions.
const DISPLACED_MAX: usize = 65_536;
/// Most names that are no users.
pub(super) const NONE_MAX: usize = 1024;

/// An answer with the times of it: on the clock of this process, if this process has asked, and of the day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept<T> {
    pub(super) value: T,
    asked: Option<Instant>,
    pub(super) answered: SystemTime,
    /// The time of a later question, which had no answer.
    tried: Option<SystemTime>,
}

impl<T> Kept<T> {
    /// Returns an answer of an earlier process.
    pub(super) fn earlier(value: T, answered: SystemTime) -> Self {
        Self { value, asked: None, answered, tried: None }
    }

    fn now(value: T, now: Now) -> Self {
        Self { value, asked: Some(now.instant), answered: now.time, tried: None }
    }

    fn is_younger(&self, than: Duration, now: Now) -> bool {
        self.asked.is_some_and(|asked| now.instant.saturating_duration_since(asked) < than)
    }

    /// Returns whether the answer serves while the directory does not answer. One of an earlier process from a time to come has an
    /// unknown age: the clock was wrong then, or is now.
    fn serves(&self, keep: Duration, now: Now) -> bool {
        let by_day = now.time.duration_since(self.answered);
        let age = match (self.asked, by_day) {
            (Some(asked), by_day) => {
                now.instant.saturating_duration_since(asked).max(by_day.unwrap_or_default())
            }
            (None, Ok(age)) => age,
            (None, Err(_)) => return false,
        };
        age < keep
    }

    /// Returns the value for sessions, which may go on with it.
    fn for_sessions(&self, (is_away, keep): (bool, Duration), now: Now) -> Option<&T> {
        // Sessions may last longer than `keep` without a query while the directory answers.
        let is_valid = self.serves(keep, now) || self.asked.is_some() && !is_away;
        // An answer serves its first minute even if `keep` is zero.
        (is_valid || self.is_younger(FRESH, now)).then_some(&self.value)
    }

    /// Returns the time of the last question, to order questions; a time to come comes first.
    fn turn(&self, now: Now) -> SystemTime {
        let at = self.tried.unwrap_or(self.answered);
        if at > now.time { SystemTime::UNIX_EPOCH } else { at }
    }
}

/// Users, and the numbers of groups with their names.
pub(super) type Answers = (Vec<Kept<User>>, Vec<(String, Kept<u32>)>);

/// The present time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    pub(super) time: SystemTime,
}

impl Now {
    pub(super) fn real() -> Self {
        Self { instant: Instant::now(), time: SystemTime::now() }
    }
}

/// The effect of an answer on sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The answer is the same.
    None,
    /// The user was not known, or has another password.
    New,
    /// It has other numbers.
    Other,
    /// It is no user any more.
    Gone,
}

/// Why a name is no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The directory has no such entry.
    NoEntry,
    /// The entry makes no user who may log on.
    Unusable,
}

/// The answers. Keys are names in lower case.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    users: HashMap<String, Kept<User>>,
    /// Users for whom there was no room, for their sessions alone.
    displaced: HashMap<String, Kept<User>>,
    groups: HashMap<String, Kept<u32>>,
    /// Identities of users in configurations, who may be such as cannot log on.
    named: HashMap<String, Kept<Cred>>,
    none: HashMap<String, (Instant, Lack)>,
    /// The identity that names of configurations were said to mean; `None`: the directory had no such user, so that the name means
    /// that of the host.
    meant: HashMap<String, Option<Cred>>,
}

/// Returns the identity of a user.
pub(super) fn cred(user: &User) -> Cred {
    let groups = user.groups.iter().copied().filter(|gid| *gid != user.gid).collect();
    Cred { uid: user.uid, gid: user.gid, groups, token: Token::NONE }
}

/// Removes the oldest answer if there is no room for that about this name.
fn make_room<T>(
    all: &mut HashMap<String, Kept<T>>,
    name: &str,
    most: usize,
) -> Option<(String, Kept<T>)> {
    if all.len() < most || all.contains_key(name) {
        return None;
    }
    let oldest = all.iter().min_by_key(|(_, kept)| kept.answered).map(|(name, _)| name.clone());
    all.remove_entry(&oldest?)
}

impl Cache {
    /// Returns whether a logon must query the directory about a name for this reason.
    pub(super) fn must_look_up(&self, name: &str, why: Look, now: Now) -> bool {
        let name = key(name);
        let known = self.users.get(&name);
        match why {
            Look::Unknown => match known {
                Some(known) => !known.is_younger(FRESH, now),
                None => self.lack(&name, now).is_none(),
            },
            Look::Wrong | Look::Proved => known.is_some_and(|k| !k.is_younger(FRESH_PROOF, now)),
        }
    }

    /// Returns why a name is no user, by an answer that needs no other one.
    pub(super) fn lack(&self, name: &str, now: Now) -> Option<Lack> {
        let (at, lack) = self.none.get(&key(name))?;
        (now.instant.saturating_duration_since(*at) < FRESH_NONE).then_some(*lack)
    }

    /// Returns a user by an answer that needs no other one.
    pub(super) fn fresh(&self, name: &str, now: Now) -> Option<&User> {
        let known = self.users.get(&key(name)).filter(|kept| kept.is_younger(FRESH, now));
        known.map(|kept| &kept.value)
    }

    /// Returns a user who may log on now.
    pub(super) fn find_for_logon(&self, name: &str, keep: Duration, now: Now) -> Option<&User> {
        let known = self.users.get(&key(name))?;
        (known.serves(keep, now) || known.is_younger(FRESH, now)).then_some(&known.value)
    }

    /// Returns a user whose sessions may go on. `is_away`: the directory does not answer.
    pub(super) fn find(&self, name: &str, how: (bool, Duration), now: Now) -> Option<&User> {
        let name = key(name);
        if let Some(known) = self.users.get(&name) {
            return known.for_sessions(how, now);
        }
        // They may wait long for their turn, so that `keep` is also the end of their sessions.
        let displaced = self.displaced.get(&name).filter(|kept| kept.serves(how.1, now));
        displaced.map(|kept| &kept.value)
    }

    /// Returns all users, as [`Self::find`] does.
    pub(super) fn all(&self, how: (bool, Duration), now: Now) -> impl Iterator<Item = &User> {
        self.users.values().filter_map(move |known| known.for_sessions(how, now))
    }

    /// Returns the users with this uid, as [`Self::find`] does.
    pub(super) fn of_uid(
        &self,
        uid: u32,
        how: (bool, Duration),
        now: Now,
    ) -> impl Iterator<Item = &User> {
        let known = self.users.values().filter(move |known| known.value.uid == uid);
        known.filter_map(move |known| known.for_sessions(how, now))
    }

    /// Returns the users whose answers, or the last questions without one, are the oldest, and no longer fresh.
    pub(super) fn oldest(&self, most: usize, now: Now) -> Vec<String> {
        let is_old = |kept: &&Kept<User>| !kept.is_younger(FRESH, now);
        let all = self.users.values().chain(self.displaced.values());
        let mut old: Vec<&Kept<User>> = all.filter(is_old).collect();
        // A user without an answer keeps no other one from its turn.
        old.sort_unstable_by_key(|kept| kept.turn(now));
        old.into_iter().take(most).map(|kept| kept.value.name.clone()).collect()
    }

    /// Notes a question about a user, until its answer is kept.
    pub(super) fn note_try(&mut self, name: &str, now: Now) {
        let name = key(name);
        let kept = self.users.get_mut(&name).or_else(|| self.displaced.get_mut(&name));
        if let Some(kept) = kept {
            kept.tried = Some(now.time);
        }
    }

    /// Returns whether the answer to a question of this time comes after that to a later one.
    fn is_overtaken(&self, name: &str, now: Now) -> bool {
        let known = self.users.get(name).or_else(|| self.displaced.get(name));
        let of_user = known.and_then(|kept| kept.asked);
        let of_none = self.none.get(name).map(|(at, _)| *at);
        of_user.max(of_none).is_some_and(|at| at > now.instant)
    }

    /// Keeps a user that the directory has. `now`: the begin of the question.
    pub(super) fn keep(&mut self, name: &str, user: User, now: Now) -> Change {
        let name = key(name);
        if self.is_overtaken(&name, now) {
            return Change::None;
        }
        self.none.remove(&name);
        if let Some((other, kept)) = make_room(&mut self.users, &name, USERS_MAX) {
            self.displace(other, kept);
        }
        let numbers = |user: &User| (user.uid, user.gid, user.groups.clone());
        let displaced = self.displaced.remove(&name);
        let change = match self.users.get(&name).or(displaced.as_ref()).map(|known| &known.value) {
            Some(known) if *known == user => Change::None,
            Some(known) if numbers(known) != numbers(&user) => Change::Other,
            _ => Change::New,
        };
        self.users.insert(name, Kept::now(user, now));
        change
    }

    /// Keeps a user for whom there is no room, for its sessions.
    fn displace(&mut self, name: String, kept: Kept<User>) {
        if self.displaced.len() >= DISPLACED_MAX
            && let Some(any) = self.displaced.keys().next().cloned()
        {
            self.displaced.remove(&any);
        }
        self.displaced.insert(name, kept);
    }

    /// Keeps that a name is no user of the directory. `now`: the begin of the question.
    pub(super) fn keep_none(&mut self, name: &str, lack: Lack, now: Now) -> Change {
        let name = key(name);
        if self.is_overtaken(&name, now) {
            return Change::None;
        }
        let was_displaced = self.displaced.remove(&name).is_some();
        let was_known = self.users.remove(&name).is_some() || was_displaced;
        if lack == Lack::NoEntry {
            self.named.remove(&name);
        }
        if self.none.len() >= NONE_MAX && !self.none.contains_key(&name) {
            let since = |at: &Instant| now.instant.saturating_duration_since(*at);
            self.none.retain(|_, (at, _)| since(at) < FRESH_NONE);
            if self.none.len() >= NONE_MAX {
                self.none.clear();
            }
        }
        self.none.insert(name, (now.instant, lack));
        if was_known { Change::Gone } else { Change::None }
    }

    /// Keeps the number of a group, or that it does not exist.
    pub(super) fn keep_group(&mut self, name: &str, gid: Option<u32>, now: Now) {
        let name = key(name);
        let Some(value) = gid else {
            self.groups.remove(&name);
            return;
        };
        make_room(&mut self.groups, &name, USERS_MAX);
        self.groups.insert(name, Kept::now(value, now));
    }

    /// Keeps the identity of a user of a configuration, or that the name means none.
    pub(super) fn keep_named(&mut self, name: &str, cred: Option<Cred>, now: Now) {
        let name = key(name);
        if self.is_overtaken(&name, now) {
            return;
        }
        let Some(value) = cred else {
            self.named.remove(&name);
            return;
        };
        make_room(&mut self.named, &name, USERS_MAX);
        self.named.insert(name, Kept::now(value, now));
    }

    /// Returns the identity of a user of a configuration by an earlier answer, while the directory does not answer.
    pub(super) fn named(&self, name: &str, keep: Duration, now: Now) -> Option<Cred> {
        let kept = self.named.get(&key(name)).filter(|kept| kept.serves(keep, now));
        kept.map(|kept| kept.value.clone())
    }

    /// Notes the identity that a configuration is told for a name. Returns whether an earlier one was told another.
    pub(super) fn note_meant(&mut self, name: &str, cred: Option<&Cred>) -> bool {
        let name = key(name);
        if self.meant.len() >= USERS_MAX && !self.meant.contains_key(&name) {
            self.meant.clear();
        }
        let before = self.meant.insert(name, cred.cloned());
        before.is_some_and(|before| before.as_ref() != cred)
    }

    /// Returns whether the answer about a name that a configuration has is another than it was told, once for each such answer.
    pub(super) fn means_other(&mut self, name: &str) -> bool {
        let name = key(name);
        let Some(meant) = self.meant.get_mut(&name) else { return false };
        let now = match (self.users.get(&name), self.none.get(&name)) {
            (Some(user), _) => Some(cred(&user.value)),
            (None, Some((_, Lack::NoEntry))) => None,
            // The entry may have numbers.
            (None, _) => return false,
        };
        let is_other = *meant != now;
        *meant = now;
        is_other
    }

    /// Returns the number of a group by an answer that needs no other one.
    pub(super) fn fresh_group(&self, name: &str, now: Now) -> Option<u32> {
        let known = self.groups.get(&key(name)).filter(|kept| kept.is_younger(FRESH, now));
        known.map(|kept| kept.value)
    }

    /// Returns the number of a group by an earlier answer, while the directory does not answer.
    pub(super) fn group(&self, name: &str, keep: Duration, now: Now) -> Option<u32> {
        self.groups.get(&key(name)).filter(|kept| kept.serves(keep, now)).map(|kept| kept.value)
    }

    /// Adds answers of an earlier process.
    pub(super) fn add_earlier(&mut self, (users, groups): Answers) {
        for user in users.into_iter().take(USERS_MAX) {
            self.users.entry(key(&user.value.name)).or_insert(user);
        }
        for (name, group) in groups.into_iter().take(USERS_MAX) {
            self.groups.entry(key(&name)).or_insert(group);
        }
    }

    /// Removes answers that serve no more, and returns the others, users and groups, for a later process.
    pub(super) fn kept_for_later(&mut self, keep: Duration, now: Now) -> Answers {
        self.users.retain(|_, kept| kept.asked.is_some() || kept.serves(keep, now));
        self.displaced.retain(|_, kept| kept.serves(keep, now));
        self.groups.retain(|_, kept| kept.serves(keep, now));
        self.named.retain(|_, kept| kept.serves(keep, now));
        let users = self.users.values().filter(|kept| kept.serves(keep, now)).cloned().collect();
        (users, self.groups.iter().map(|(name, kept)| (name.clone(), kept.clone())).collect())
    }

    /// Returns the number of users.
    pub(super) fn len(&self) -> usize {
        self.users.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smb_auth::NtHash;

    use super::*;

    const KEEP: Duration = Duration::from_secs(3600);
    const UP: (bool, Duration) = (false, KEEP);
    const AWAY: (bool, Duration) = (true, KEEP);

    fn dana(password: &str, groups: &[u32]) -> User {
        let (name, hash, groups) = ("Dana".into(), NtHash::of(password), groups.to_vec());
        User { name, hash, uid: 5001, gid: 5000, groups }
    }

    fn start() -> Now {
        Now::real()
    }

    fn after(now: Now, seconds: u64) -> Now {
        let more = Duration::from_secs(seconds);
        Now { instant: now.instant + more, time: now.time + more }
    }

    fn looks(cache: &Cache, now: Now) -> [bool; 3] {
        [Look::Unknown, Look::Wrong, Look::Proved].map(|why| cache.must_look_up("DANA", why, now))
    }

    /// The age of an answer decides about queries and logons.
    #[test]
    fn answers_age() {
        let (t, mut cache) = (start(), Cache::default());
        assert_eq!((looks(&cache, t), cache.find("dana", UP, t)), ([true, false, false], None));
        assert_eq!(cache.keep("dana", dana("one", &[]), t), Change::New);
        for (seconds, asked, up, away) in [
            (0, [false, false, false], true, true),
            (4, [false, false, false], true, true),
            (5, [false, true, true], true, true),
            (59, [false, true, true], true, true),
            (60, [true, true, true], true, true),
            (3599, [true, true, true], true, true),
            (3600, [true, true, true], true, false),
            (1_000_000, [true, true, true], true, false),
        ] {
            let now = after(t, seconds);
            let is_found = |how| cache.find("DANA", how, now).is_some();
            assert_eq!((looks(&cache, now), is_found(UP), is_found(AWAY)), (asked, up, away));
            // A logon takes no older answer, also while the directory answers other questions.
            assert_eq!(cache.find_for_logon("DANA", KEEP, now).is_some(), away, "{seconds}");
        }
        let none = (true, Duration::ZERO);
        assert!(cache.find("dana", none, after(t, 59)).is_some());
        assert!(cache.find("dana", none, after(t, 60)).is_none(), "nothing is kept");
        let logon = |seconds| cache.find_for_logon("dana", Duration::ZERO, after(t, seconds));
        assert!(logon(59).is_some() && logon(60).is_none());
    }

    #[test]
    fn users_are_found_by_uid_while_their_answers_serve() {
        let (t, mut cache) = (start(), Cache::default());
        for (name, uid) in [("dana", 5001), ("bob", 5002), ("alice", 5001)] {
            cache.keep(name, User { name: name.into(), uid, ..dana("one", &[]) }, t);
        }
        let names = |uid, how, now| {
            let mut all: Vec<&str> = cache.of_uid(uid, how, now).map(|user| &*user.name).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(names(5001, UP, t), ["alice", "dana"]);
        assert_eq!(names(5002, UP, after(t, 3600)), ["bob"]);
        assert!(names(5002, AWAY, after(t, 3600)).is_empty() && names(5003, UP, t).is_empty());
    }

    #[test]
    fn user_that_is_gone_loses_access_at_once() {
        let (t, mut cache) = (start(), Cache::default());
        cache.keep("dana", dana("one", &[]), t);
        assert_eq!(cache.keep_none("DANA", Lack::NoEntry, after(t, 1)), Change::Gone);
        for how in [UP, AWAY] {
            assert_eq!(cache.find("dana", how, after(t, 1)), None);
        }
        assert_eq!(looks(&cache, after(t, 10)), [false; 3]);
        assert_eq!(looks(&cache, after(t, 11)), [true, false, false]);
        assert_eq!(cache.keep_none("dana", Lack::NoEntry, after(t, 11)), Change::None);
        assert_eq!(cache.keep("dana", dana("one", &[]), after(t, 12)), Change::New);
        assert!(cache.find("dana", UP, after(t, 12)).is_some());
    }

    #[test]
    fn only_other_numbers_change_sessions() {
        let (t, mut cache) = (start(), Cache::default());
        cache.keep("dana", dana("one", &[7]), t);
        assert_eq!(cache.keep("dana", dana("one", &[7]), t), Change::None);
        assert_eq!(cache.keep("dana", dana("two", &[7]), t), Change::New);
        assert_eq!(cache.find("dana", UP, t).unwrap().hash, NtHash::of("two"));
        assert_eq!(cache.keep("dana", dana("two", &[7, 8]), t), Change::Other);
    }

    #[test]
    fn oldest_answers_are_asked_about_first() {
        let (t, mut cache) = (start(), Cache::default());
        for (n, name) in ["carol", "alice", "bob", "dora"].into_iter().enumerate() {
            let user = User { name: name.to_owned(), ..dana("one", &[]) };
            cache.keep(name, user, after(t, n as u64));
        }
        let now = after(t, 62);
        assert_eq!(cache.oldest(2, now), ["carol", "alice"]);
        assert_eq!(cache.oldest(9, now), ["carol", "alice", "bob"]);
        assert!(cache.oldest(9, after(t, 59)).is_empty());
        // One without an answer is the last, until the others have had their turn.
        cache.note_try("Carol", now);
        assert_eq!(cache.oldest(9, now), ["alice", "bob", "carol"]);
        assert_eq!(cache.oldest(9, after(t, 70)), ["alice", "bob", "dora", "carol"]);
        cache.keep("alice", User { name: "alice".into(), ..dana("one", &[]) }, after(t, 70));
        assert_eq!(cache.oldest(9, after(t, 140)), ["bob", "dora", "carol", "alice"]);
    }

    #[test]
    fn reasons_and_numbers_of_names_are_kept_for_their_time() {
        let (t, mut cache) = (start(), Cache::default());
        let cred = Cred { uid: 5001, gid: 5000, groups: [7].into(), token: vfs::Token::NONE };
        cache.keep_named("Dana", Some(cred.clone()), t);
        assert_eq!(cache.keep_none("dana", Lack::Unusable, t), Change::None);
        assert_eq!(cache.lack("DANA", after(t, 9)), Some(Lack::Unusable));
        assert_eq!(cache.lack("DANA", after(t, 10)), None);
        assert_eq!(cache.named("dana", KEEP, after(t, 3599)), Some(cred.clone()));
        assert_eq!(cache.named("dana", KEEP, after(t, 3600)), None);
        cache.keep_none("dana", Lack::NoEntry, t);
        assert_eq!(cache.lack("dana", t), Some(Lack::NoEntry));
        assert_eq!(cache.named("dana", KEEP, t), None, "the entry is gone");
        for n in 0..=USERS_MAX as u64 {
            cache.keep_named(&format!("user-{n}"), Some(cred.clone()), after(t, n));
        }
        assert_eq!(cache.named.len(), USERS_MAX);
    }

    #[test]
    fn earlier_answers_serve_only_within_their_time() {
        let (t, mut cache) = (start(), Cache::default());
        let groups = vec![("crew".to_owned(), Kept::earlier(7, t.time))];
        cache.add_earlier((vec![Kept::earlier(dana("one", &[]), t.time)], groups));
        assert_eq!(looks(&cache, t), [true; 3]);
        for (seconds, serves) in [(3599, true), (3600, false)] {
            let now = after(t, seconds);
            let is_found = |how| cache.find("dana", how, now).is_some();
            assert_eq!([is_found(UP), is_found(AWAY)], [serves; 2]);
            assert_eq!(cache.group("CREW", KEEP, now).is_some(), serves);
        }
        let (users, groups) = cache.clone().kept_for_later(KEEP, after(t, 3599));
        assert_eq!((users.len(), groups.len()), (1, 1));
        let (users, groups) = cache.kept_for_later(KEEP, after(t, 3600));
        assert_eq!((users.len(), groups.len(), cache.len()), (0, 0, 0));
    }

    #[test]
    fn answer_to_an_earlier_question_replaces_none_to_a_later_one() {
        let (t, mut cache) = (start(), Cache::default());
        cache.keep("dana", dana("one", &[]), t);
        assert_eq!(cache.keep_none("dana", Lack::NoEntry, after(t, 2)), Change::Gone);
        assert_eq!(cache.keep("dana", dana("one", &[]), after(t, 1)), Change::None);
        assert_eq!(cache.find("dana", UP, after(t, 2)), None, "it is gone");
        assert_eq!(cache.keep("dana", dana("two", &[]), after(t, 4)), Change::New);
        assert_eq!(cache.keep_none("dana", Lack::NoEntry, after(t, 3)), Change::None);
        assert_eq!(cache.keep("dana", dana("one", &[]), after(t, 3)), Change::None);
        assert_eq!(cache.find("dana", UP, after(t, 4)).unwrap().hash, NtHash::of("two"));
    }

    /// The clock was ahead, and was set back since.
    #[test]
    fn answers_from_a_time_to_come_age() {
        let (t, mut cache) = (start(), Cache::default());
        let ahead = after(t, 1_000_000);
        cache.add_earlier((vec![Kept::earlier(dana("one", &[]), ahead.time)], vec![]));
        for how in [UP, AWAY] {
            assert_eq!(cache.find("dana", how, t), None, "its age is unknown");
        }
        assert!(cache.find_for_logon("dana", KEEP, t).is_none());
        cache.keep("dana", dana("one", &[]), Now { instant: t.instant, time: ahead.time });
        let serves = |seconds| cache.find_for_logon("dana", KEEP, after(t, seconds)).is_some();
        assert_eq!([serves(0), serves(3599), serves(3600)], [true, true, false]);
        // It is asked about before all others.
        let bob = User { name: "bob".into(), ..dana("one", &[]) };
        cache.keep("bob", bob, t);
        assert_eq!(cache.oldest(1, after(t, 60)), ["Dana"]);
    }

    #[test]
    fn full_tables_forget_and_never_grow() {
        let (t, mut cache) = (start(), Cache::default());
        for n in 0..=NONE_MAX {
            cache.keep_none(&format!("invented-{n}"), Lack::NoEntry, t);
        }
        assert!(cache.none.len() <= NONE_MAX);
        assert!(!cache.must_look_up(&format!("invented-{NONE_MAX}"), Look::Unknown, t));
        for n in 0..=USERS_MAX as u64 {
            cache.keep(&format!("user-{n}"), dana("one", &[]), after(t, n));
            cache.keep_group(&format!("group-{n}"), Some(7), after(t, n));
        }
        assert_eq!((cache.len(), cache.groups.len()), (USERS_MAX, USERS_MAX));
        let logs_on = |name: &str| cache.find_for_logon(name, KEEP, t).is_some();
        assert!(!logs_on("user-0") && logs_on("user-1"));
        for n in 0..=DISPLACED_MAX {
            cache.displace(format!("displaced-{n}"), Kept::now(dana("one", &[]), t));
        }
        assert_eq!(cache.displaced.len(), DISPLACED_MAX);
    }

    #[test]
    fn session_goes_on_though_others_have_taken_the_place_of_its_user() {
        let (t, mut full) = (start(), Cache::default());
        for n in 0..=USERS_MAX as u64 {
            full.keep(&format!("user-{n}"), dana("one", &[7]), after(t, n));
        }
        let now = after(t, 600);
        for how in [UP, AWAY] {
            assert!(full.find("USER-0", how, now).is_some());
            assert!(full.find("user-0", how, after(t, 3600)).is_none(), "it may be gone since");
        }
        assert!(full.find_for_logon("user-0", KEEP, now).is_none());
        assert!(full.must_look_up("user-0", Look::Unknown, now));
        let later = after(t, 1_000_000);
        assert_eq!(
            full.oldest(2 * USERS_MAX, later).len(),
            USERS_MAX + 1,
            "it is asked about, too"
        );
        // Its next answer is compared with the last one.
        for (user, change) in [
            (Some(dana("one", &[7])), Change::None),
            (Some(dana("one", &[8])), Change::Other),
            (None, Change::Gone),
        ] {
            let mut cache = full.clone();
            let now = after(t, 1_000_000);
            let told = match user {
                Some(user) => cache.keep("user-0", user, now),
                None => cache.keep_none("user-0", Lack::NoEntry, now),
            };
            assert_eq!(told, change);
            assert_eq!(cache.find("user-0", UP, now).is_some(), change != Change::Gone);
        }
    }

    /// Events in the directory and here.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Seconds pass.
        Wait(u64),
        /// The directory has this password now, or no such user.
        Change(Option<u8>),
        /// It stops to answer, or answers again.
        Away(bool),
        /// A logon with this password.
        Logon(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            prop_oneof![Just(1_u64), Just(6), Just(61), Just(4000)].prop_map(Step::Wait),
            prop::option::of(0..3_u8).prop_map(Step::Change),
            any::<bool>().prop_map(Step::Away),
            (0..3_u8).prop_map(Step::Logon),
        ];
        prop::collection::vec(step, 1..60)
    }

    /// Runs a logon as the server does: looks up, checks the password, and looks up again after a wrong or right one.
    fn logon(cache: &mut Cache, away: bool, has: Option<u8>, password: u8, now: Now) -> bool {
        let look_up = |cache: &mut Cache| {
            match has {
                _ if away => Change::None,
                Some(its) => cache.keep("dana", dana(&its.to_string(), &[]), now),
                None => cache.keep_none("dana", Lack::NoEntry, now),
            };
        };
        if cache.must_look_up("dana", Look::Unknown, now) {
            look_up(cache);
        }
        let is_right = |cache: &Cache| {
            let found = cache.find_for_logon("dana", KEEP, now);
            found.is_some_and(|user| user.hash == NtHash::of(&password.to_string()))
        };
        if !is_right(cache) && cache.must_look_up("dana", Look::Wrong, now) {
            look_up(cache);
        }
        let was_right = is_right(cache);
        if was_right && cache.must_look_up("dana", Look::Proved, now) {
            look_up(cache);
        }
        was_right && cache.find("dana", (away, KEEP), now).is_some()
    }

    proptest! {
        #[test]
        fn logons_follow_the_directory(steps in steps()) {
            let (mut now, mut cache) = (start(), Cache::default());
            let (mut has, mut away) = (Some(0_u8), false);
            // The password at the last answer, and its time.
            let mut last: Option<(Option<u8>, Now)> = None;
            for step in steps {
                match step {
                    Step::Wait(seconds) => now = after(now, seconds),
                    Step::Change(other) => has = other,
                    Step::Away(is) => away = is,
                    Step::Logon(password) => {
                        let age = last.map(|(_, at)| now.instant - at.instant);
                        let is_in = logon(&mut cache, away, has, password, now);
                        let was = last.and_then(|(was, _)| was);
                        if away {
                            // The last answer decides, while it is kept.
                            let serves = age.is_some_and(|age| age < KEEP);
                            prop_assert_eq!(is_in, serves && was == Some(password));
                            continue;
                        }
                        // An answer of a few seconds decides without a query.
                        let may_be_old = age.is_some_and(|age| match was {
                            Some(_) => age < FRESH_PROOF,
                            None => age < FRESH_NONE,
                        });
                        let by_last = was == Some(password);
                        if may_be_old {
                            prop_assert_eq!(is_in, by_last);
                            continue;
                        }
                        // A password that was right within the last minute stays right, if the user still exists.
                        let is_kept = age.is_some_and(|age| age < FRESH) && by_last;
                        let is_right = has == Some(password) || is_kept && has.is_some();
                        prop_assert_eq!(is_in, is_right);
                        last = Some((has, now));
                    }
                }
            }
        }
    }
}
