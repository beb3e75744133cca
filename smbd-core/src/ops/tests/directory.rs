//! SESSION_SETUP of users in a directory, which a logon queries before it checks the password.

use std::sync::{Arc, Mutex};

use mutex::locked;
use vfs::Cred;
use vfs::mem::MemBackend;

use super::logon::log_on;
use crate::auth::{Look, LookedUp, NtHash};
use crate::harness::Harness;
use crate::status::Status;
use crate::users::{Account, Users, rid_of_uid};

/// A user of the directory: password and groups.
type Entry = (&'static str, Vec<u32>);

/// A directory with one user, `dana`.
#[derive(Default)]
struct State {
    /// The entry in the directory; `None`: no such user.
    has: Option<Entry>,
    /// The last answer.
    known: Option<Entry>,
    is_away: bool,
    /// From this query on, no turn is free.
    busy_from: Option<usize>,
    /// Names in queries.
    asked: Vec<String>,
    /// The last answer is fresh.
    is_fresh: bool,
}

struct Book(Arc<Mutex<State>>);

fn is_dana(name: &str) -> bool {
    name.eq_ignore_ascii_case("dana")
}

impl Users for Book {
    fn find(&self, name: &str) -> Option<Account> {
        let (password, groups) = locked(&self.0).known.clone().filter(|_| is_dana(name))?;
        let token = vfs::Token::NONE;
        Some(Account {
            name: "dana".into(),
            nt_hash: NtHash::of(password).0,
            cred: Cred { uid: 5001, gid: 5000, groups: groups.into(), token },
            rid: rid_of_uid(5001),
        })
    }

    fn has_directory(&self) -> bool {
        true
    }

    fn must_look_up(&self, name: &str, why: Look) -> bool {
        let state = locked(&self.0);
        let is_known = state.known.is_some() && is_dana(name);
        !state.is_fresh && (is_known || why == Look::Unknown)
    }

    fn look_up(&self, name: &str) -> LookedUp {
        let mut state = locked(&self.0);
        state.asked.push(name.to_owned());
        if state.busy_from.is_some_and(|first| state.asked.len() > first) {
            return LookedUp::Busy;
        }
        if state.is_away {
            return LookedUp::Away;
        }
        if is_dana(name) {
            state.known = state.has.clone();
            state.is_fresh = state.has.is_some();
        }
        LookedUp::Answered
    }

    fn guest(&self) -> Cred {
        Cred::root()
    }
}

fn served(has: Option<Entry>) -> (Harness, Arc<Mutex<State>>) {
    let state = Arc::new(Mutex::new(State { has, ..State::default() }));
    let backend = MemBackend::new(64 << 20).unwrap();
    (Harness::with_users(backend, None, Arc::new(Book(state.clone()))), state)
}

async fn logs_on(harness: &Harness, password: &str) -> Result<Vec<u32>, Status> {
    let mut client = harness.client();
    (client.session_id, client.tree_id) = (0, 0);
    match log_on(&mut client, "dana", password).await {
        Status::SUCCESS => {
            let session = harness.core.sessions.get(client.session_id).unwrap();
            Ok(session.user().unwrap().cred.groups.to_vec())
        }
        refused => Err(refused),
    }
}

fn asked(state: &Mutex<State>) -> usize {
    std::mem::take(&mut locked(state).asked).len()
}

#[tokio::test]
async fn user_of_directory_logs_on_and_is_asked_about_only_when_needed() {
    let (harness, state) = served(Some(("one", vec![7])));
    assert_eq!(logs_on(&harness, "one").await, Ok(vec![7]));
    assert_eq!(asked(&state), 1);
    assert_eq!(logs_on(&harness, "one").await, Ok(vec![7]));
    assert_eq!(asked(&state), 0, "the answer is fresh");
    assert_eq!(logs_on(&harness, "two").await, Err(Status::LOGON_FAILURE));
    assert_eq!(asked(&state), 0);
    // The password has been changed since.
    locked(&state).is_fresh = false;
    locked(&state).has = Some(("two", vec![7, 8]));
    assert_eq!(logs_on(&harness, "two").await, Ok(vec![7, 8]));
    assert_eq!(asked(&state), 1);
    locked(&state).has = None;
    locked(&state).is_fresh = false;
    assert_eq!(logs_on(&harness, "two").await, Err(Status::LOGON_FAILURE), "it is gone");
}

#[tokio::test]
async fn last_answer_decides_while_directory_is_away() {
    let (harness, state) = served(Some(("one", vec![7])));
    locked(&state).is_away = true;
    assert_eq!(logs_on(&harness, "one").await, Err(Status::LOGON_FAILURE), "nothing is known");
    locked(&state).known = Some(("one", vec![7]));
    assert_eq!(logs_on(&harness, "one").await, Ok(vec![7]));
    assert_eq!(logs_on(&harness, "two").await, Err(Status::LOGON_FAILURE));
    // A logon asks before the proof, and after it once more.
    assert_eq!(asked(&state), 1 + 2 + 2);
}

#[tokio::test]
async fn old_answer_does_not_decide_while_no_turn_is_free() {
    let (harness, state) = served(Some(("new", vec![])));
    locked(&state).known = Some(("stolen", vec![7]));
    // Before the proof, and where the directory falls silent, after it.
    for (is_away, first) in [(false, 0), (true, 1)] {
        locked(&state).is_away = is_away;
        locked(&state).busy_from = Some(first);
        assert_eq!(logs_on(&harness, "stolen").await, Err(Status::LOGON_FAILURE));
        assert_eq!(asked(&state), first + 1);
    }
    locked(&state).is_fresh = true;
    assert_eq!(logs_on(&harness, "stolen").await, Ok(vec![7]), "it is right for a minute");
}
