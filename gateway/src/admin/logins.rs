//! Logins to the status page: the tokens that are handed out, and the sessions that they begin.
//!
//! *Operation.* Pure; time is an argument. `headgate admin-token` gets a token over the control socket, which only accepts root and
//! the gateway's user. A token begins one session, within [`TOKEN_LIFE`]. A session has two secrets: the browser's cookie, and one
//! that the page keeps and repeats in a header with each action. A page on another port of this host gets the cookie from the
//! browser, but cannot read the header's secret. A session belongs to the user of this host that began it, and lasts
//! [`SESSION_LIFE`].
//!
//! *Memory.* At most [`TOKENS_MAX`] tokens and [`SESSIONS_MAX`] sessions; a new one replaces the oldest, counted as the limits
//! `admin-tokens` and `admin-sessions`. They are lost when the process ends.
//!
//! *Errors.* If the system provides no random numbers, the error is one line and no secret is handed out.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mutex::locked;
use rdma_transport::count;

/// Time within which a token can begin a session.
pub const TOKEN_LIFE: Duration = Duration::from_secs(600);
pub const SESSION_LIFE: Duration = Duration::from_secs(3600);
/// Unused tokens at the same time.
pub const TOKENS_MAX: usize = 8;
/// Sessions at the same time.
pub const SESSIONS_MAX: usize = 16;
/// Random bytes of a secret.
const SECRET_LEN: usize = 32;

/// Random bytes in hexadecimal digits. The comparison takes the same time however many digits match.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    fn new() -> Result<Self, String> {
        let mut bytes = [0; SECRET_LEN];
        getrandom::fill(&mut bytes)
            .map_err(|e| format!("the system has no random numbers: {e}"))?;
        let mut text = String::with_capacity(2 * SECRET_LEN);
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self(text))
    }

    /// Wraps a secret that was made elsewhere.
    pub(crate) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Compares with `text`, in a time that depends only on its length.
    pub(crate) fn is(&self, text: &str) -> bool {
        let pairs = self.0.bytes().zip(text.bytes());
        self.0.len() == text.len() && pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

struct Session {
    cookie: Secret,
    header: Secret,
    /// The user on this host.
    user: u32,
    begun: Instant,
}

/// The two secrets of a new session.
pub(crate) struct Begun {
    pub(crate) cookie: Secret,
    pub(crate) header: Secret,
}

#[derive(Default)]
struct Inner {
    tokens: VecDeque<(Secret, Instant)>,
    sessions: VecDeque<Session>,
}

impl Inner {
    fn forget_old(&mut self, now: Instant) {
        let lives = |since: Instant, life| now.saturating_duration_since(since) < life;
        self.tokens.retain(|(_, given)| lives(*given, TOKEN_LIFE));
        self.sessions.retain(|session| lives(session.begun, SESSION_LIFE));
    }
}

#[derive(Default)]
pub struct Logins(Mutex<Inner>);

impl std::fmt::Debug for Logins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inner = self.lock();
        write!(f, "Logins({} tokens, {} sessions)", inner.tokens.len(), inner.sessions.len())
    }
}

impl Logins {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        locked(&self.0)
    }

    /// Creates a token that begins one session. The error is one line.
    pub(crate) fn token(&self, now: Instant) -> Result<Secret, String> {
        let token = Secret::new()?;
        let mut inner = self.lock();
        inner.forget_old(now);
        if inner.tokens.len() >= TOKENS_MAX {
            count::limit_met("admin-tokens");
            inner.tokens.pop_front();
        }
        inner.tokens.push_back((token.clone(), now));
        Ok(token)
    }

    /// Begins a session for this user if the token is valid; a token works once.
    pub(crate) fn begin(
        &self,
        token: &str,
        user: u32,
        now: Instant,
    ) -> Result<Option<Begun>, String> {
        let begun = Begun { cookie: Secret::new()?, header: Secret::new()? };
        let mut inner = self.lock();
        inner.forget_old(now);
        let Some(at) = inner.tokens.iter().position(|(known, _)| known.is(token)) else {
            return Ok(None);
        };
        inner.tokens.remove(at);
        if inner.sessions.len() >= SESSIONS_MAX {
            count::limit_met("admin-sessions");
            inner.sessions.pop_front();
        }
        let (cookie, header) = (begun.cookie.clone(), begun.header.clone());
        inner.sessions.push_back(Session { cookie, header, user, begun: now });
        Ok(Some(begun))
    }

    /// Returns whether these are the secrets of one live session of this user.
    pub(crate) fn holds(&self, cookie: &str, header: &str, user: u32, now: Instant) -> bool {
        let mut inner = self.lock();
        inner.forget_old(now);
        let is = |s: &Session| s.cookie.is(cookie) && s.header.is(header) && s.user == user;
        inner.sessions.iter().any(is)
    }

    /// Ends the session with this header secret.
    pub(crate) fn end(&self, header: &str) {
        self.lock().sessions.retain(|session| !session.header.is(header));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(logins: &Logins, now: Instant) -> Begun {
        let token = logins.token(now).unwrap();
        logins.begin(token.as_str(), 7, now).unwrap().unwrap()
    }

    #[test]
    fn a_token_begins_one_session_in_its_time() {
        let (logins, now) = (Logins::default(), Instant::now());
        let token = logins.token(now).unwrap();
        assert_eq!(token.as_str().len(), 64);
        assert!(logins.begin("", 7, now).unwrap().is_none());
        assert!(logins.begin(&token.as_str()[1..], 7, now).unwrap().is_none());
        assert!(logins.begin(token.as_str(), 7, now).unwrap().is_some());
        assert!(logins.begin(token.as_str(), 7, now).unwrap().is_none(), "a second time");
        let late = logins.token(now).unwrap();
        assert!(logins.begin(late.as_str(), 7, now + TOKEN_LIFE).unwrap().is_none());
    }

    #[test]
    fn a_session_takes_both_secrets_and_its_user_and_ends() {
        let (logins, now) = (Logins::default(), Instant::now());
        let (one, other) = (begin(&logins, now), begin(&logins, now));
        let holds = |cookie: &Secret, header: &Secret, user, now| {
            logins.holds(cookie.as_str(), header.as_str(), user, now)
        };
        assert!(holds(&one.cookie, &one.header, 7, now));
        assert!(!holds(&one.cookie, &other.header, 7, now), "the other session's header");
        assert!(!holds(&one.header, &one.cookie, 7, now));
        assert!(!holds(&one.cookie, &one.header, 0, now), "another user");
        assert!(holds(&one.cookie, &one.header, 7, now + SESSION_LIFE - Duration::from_millis(1)));
        assert!(!holds(&one.cookie, &one.header, 7, now + SESSION_LIFE));
        let third = begin(&logins, now);
        logins.end(third.header.as_str());
        assert!(!holds(&third.cookie, &third.header, 7, now));
    }

    #[test]
    fn the_oldest_one_goes_for_a_new_one() {
        let (logins, now) = (Logins::default(), Instant::now());
        let first = begin(&logins, now);
        let others: Vec<Begun> = (0..SESSIONS_MAX).map(|_| begin(&logins, now)).collect();
        let holds = |b: &Begun| logins.holds(b.cookie.as_str(), b.header.as_str(), 7, now);
        assert!(!holds(&first) && others.iter().all(holds));
        let token = logins.token(now).unwrap();
        let tokens: Vec<Secret> = (0..TOKENS_MAX).map(|_| logins.token(now).unwrap()).collect();
        assert!(logins.begin(token.as_str(), 7, now).unwrap().is_none());
        assert!(logins.begin(tokens[0].as_str(), 7, now).unwrap().is_some());
    }
}
