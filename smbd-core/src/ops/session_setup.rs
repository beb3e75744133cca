//! SESSION_SETUP (MS-SMB2 section 3.3.5.5): creates a session, reauthenticates a user, or binds a connection to a session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mutex::locked;
use rdma_transport::channel::Facts;
use rdma_transport::refused::{self, Refused};
use state::Millis;

use crate::answer::{Answer, Hash, Seal};
use crate::auth::ticket::{self, Why};
use crate::auth::{
    self, Acceptor, Fresh, Look, LookedUp, NtHash, Policy, Refusal, SessionKey, Step, Who, relay,
};
use crate::conn::{Conn, Logon, Negotiated, Purpose};
use crate::crypto::kdf::{self, Context, Keys};
use crate::crypto::preauth::Preauth;
use crate::crypto::seal::{Cipher, Opener, Sealer};
use crate::crypto::sign::{Algorithm, Sender, Signer};
use crate::directory_logon;
use crate::domain_logon;
use crate::kerberos::{self, User as Ticketed};
use crate::limits::{
    AUTH_ROUNDS_MAX, CHANNELS_MAX, LOGONS_PER_CONNECTION_MAX, SESSION_IDLE,
    SESSIONS_PER_CONNECTION_MAX,
};
use crate::logons::Ticket;
use crate::membership;
use crate::reauthorize::{denied_from, end_fallen_trees, session_stands};
use crate::refusal::Rule;
use crate::request_context::RequestContext;
use crate::server_state::ServerState;
use crate::session::{Channel, Kind, LogonWay, Secrets, Session, SessionState, Terms, User};
use crate::settings::Encryption;
use crate::status::Status;
use crate::teardown::{TeardownReason, end_session};
use crate::users::Users;
use crate::users::accounts::{self, LogonDelay};
use crate::violation::Violation;
use crate::wire::Flags;
use crate::wire::negotiate::{Dialect, SIGNING_REQUIRED};
use crate::wire::session_setup::{BINDING, ENCRYPT_DATA, IS_GUEST, IS_NULL, Request, Response};

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let request = cx.parse(Request::parse)?;
    let n = cx.conn.negotiated().ok_or(Status::INVALID_PARAMETER)?;
    if cx.server.settings().encryption == Encryption::Required && n.cipher.is_none() {
        Rule::Encryption.note(&cx.conn, "", "");
        return Err(Status::ACCESS_DENIED);
    }
    slow_down(cx).await;
    let mut logon = begin(cx, n, &request)?;
    logon.rounds += 1;
    if n.dialect == Dialect::V311 {
        cx.with_pieces(|pieces| logon.preauth.update(pieces));
    }
    let mut step = match logon.rounds {
        0..=AUTH_ROUNDS_MAX => logon.acceptor.step(request.token, &Passwords(&*cx.server.users)),
        _ => Step::Refused(Refusal::OutOfTurn),
    };
    // It ends: a token proves one ticket, asks one controller, and has two look-ups at most.
    let step = loop {
        step = match step {
            Step::Prove(token) => prove(cx, &mut logon, token).await?,
            Step::Ask(question) => ask(cx, &mut logon, *question).await?,
            Step::LookUp(account, _) => look_up(cx, &mut logon, &account.user).await,
            step => break step,
        };
    };
    let made = (logon.purpose == Purpose::New).then(|| logon.session.clone());
    let step = in_turn(cx, made.clone(), step).await;
    let step = look_again(cx, made.clone(), step).await;
    learn_numbers(cx, made, &step).await;
    let step = refuse_unfit(&*cx.server.users, step);
    match step {
        Step::Prove(_) | Step::Ask(_) | Step::LookUp(..) => {
            Err(refused(cx, of(&logon), &Refusal::OutOfTurn).await)
        }
        Step::Continue(token) => Ok(go_on(cx, logon, &token)),
        Step::Done { token, who, key } => {
            let previous = request.previous_session;
            done(cx, n, logon, &request, who, key, &token, previous).await
        }
        Step::Refused(why) => Err(refused(cx, of(&logon), &why).await),
    }
}

/// Delays logons from an address with too many wrong passwords, whether this password is right or not. Holds no lock meanwhile.
pub(super) async fn slow_down(cx: &RequestContext) {
    let from = cx.conn.info.peer.ip();
    let wait = locked(&cx.server.logon_throttle).delay(from, cx.server.since_start());
    if let Some(wait) = wait {
        rdma_transport::count::broken_again(crate::violation::LOGON_SLOWED);
        tokio::time::sleep(wait).await;
    }
}

/// Delays and orders the logons of an account under attack, whether they succeed or not. `made`: the new session, which is removed
/// if the connection ends during the wait.
async fn in_turn(
    cx: &RequestContext,
    made: Option<Arc<Session>>,
    step: Step<Ticketed>,
) -> Step<Ticketed> {
    let account = match &step {
        Step::Done { who: Who::User(account) | Who::OfDomain { account, .. }, .. } => account,
        Step::Refused(Refusal::UnknownUser(account) | Refusal::WrongPassword(account)) => account,
        Step::Refused(Refusal::OfDomain(account, _) | Refusal::DirectoryAway(account)) => account,
        Step::Refused(Refusal::DirectoryBusy(account)) => account,
        _ => return step,
    };
    let (from, now) = (cx.conn.info.peer.ip(), cx.server.since_start());
    let turn = locked(&cx.server.accounts).turn(&account.user, from, now);
    match turn {
        LogonDelay::Free => step,
        LogonDelay::Wait(wait) => {
            rdma_transport::count::broken_again(crate::violation::LOGON_SLOWED);
            // The connection, and this task with it, may end during the wait.
            let mut unproved = Unproved { cx, session: made };
            tokio::time::sleep(wait).await;
            unproved.session = None;
            step
        }
        LogonDelay::None => {
            rdma_transport::count::limit_met(accounts::LIMIT);
            Step::Refused(Refusal::NoTurn(account.clone()))
        }
    }
}

/// Looks up the groups of an account whose user has proved the password. Refuses it if the directory could not be asked in time and
/// has last answered too long ago. `made`: as for [`in_turn`].
async fn look_again(
    cx: &RequestContext,
    made: Option<Arc<Session>>,
    step: Step<Ticketed>,
) -> Step<Ticketed> {
    let Step::Done { who: Who::User(account), .. } = &step else { return step };
    let (from, users) = (cx.conn.info.peer.ip(), cx.server.users.clone());
    let is_of_directory = users.must_look_up(&account.user, Look::Proved);
    if !is_of_directory && !users.has_groups_of_host(&account.user) {
        return step;
    }
    let mut unproved = Unproved { cx, session: made };
    let mut is_busy = false;
    if is_of_directory {
        let found = directory_logon::look_up(from, users.clone(), account.user.clone()).await;
        is_busy = found == LookedUp::Busy && users.must_look_up(&account.user, Look::Unknown);
    } else {
        membership::look_again(from, users, account.user.clone()).await;
    }
    unproved.session = None;
    if is_busy { Step::Refused(Refusal::DirectoryBusy(account.clone())) } else { step }
}

/// Lets the service of the domain say whether the numbers of an account are those of identities of the domain. `made`: as for
/// [`in_turn`].
async fn learn_numbers(cx: &RequestContext, made: Option<Arc<Session>>, step: &Step<Ticketed>) {
    let Step::Done { who: Who::User(account), .. } = step else { return };
    let users = &cx.server.users;
    let (Some(domain), Some(found)) = (users.domain(), users.find(&account.user)) else { return };
    if let Some(learned) = domain.learn(cx.conn.info.peer.ip(), &found.cred) {
        let mut unproved = Unproved { cx, session: made };
        learned.await;
        unproved.session = None;
    }
}

/// Refuses users whose account has ended since the proof, or has the uid shared by guests and squashed NFS users, because they
/// could access each other's files.
fn refuse_unfit(users: &dyn Users, step: Step<Ticketed>) -> Step<Ticketed> {
    let Step::Done { who: Who::User(account), .. } = &step else { return step };
    match users.find(&account.user) {
        None => Step::Refused(Refusal::UnknownUser(account.clone())),
        Some(found) if found.cred.uid == vfs::ANONYMOUS => {
            Step::Refused(Refusal::NoIdentity(account.clone()))
        }
        Some(_) => step,
    }
}

/// Sessions considered when one must be evicted.
const CANDIDATES: usize = 64;

/// Removes an unauthenticated session on drop, unless its logon continues.
struct Unproved<'a> {
    cx: &'a RequestContext,
    session: Option<Arc<Session>>,
}

impl Drop for Unproved<'_> {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            forget(self.cx, session);
        }
    }
}

/// Verifies a Kerberos token. The connection, and this task with it, may end meanwhile.
async fn prove(
    cx: &RequestContext,
    logon: &mut Logon,
    token: Vec<u8>,
) -> Result<Step<Ticketed>, Status> {
    let session = (logon.purpose == Purpose::New).then(|| logon.session.clone());
    let mut unproved = Unproved { cx, session };
    // A reload may have removed the Kerberos settings since the first token.
    let kerberos = cx.server.settings().kerberos.clone().ok_or(Status::LOGON_FAILURE)?;
    let from = cx.conn.info.peer.ip();
    let outcome = kerberos::prove(from, kerberos, token, cx.server.users.clone()).await;
    let outcome = outcome.map_err(|_| cx.limited(kerberos::LIMIT, kerberos::TURNS_MAX))?;
    unproved.session = None;
    Ok(logon.acceptor.proved(outcome))
}

/// Lets a controller of the domain decide about a password. The connection, and this task with it, may end meanwhile.
async fn ask(
    cx: &RequestContext,
    logon: &mut Logon,
    question: relay::Question,
) -> Result<Step<Ticketed>, Status> {
    let session = (logon.purpose == Purpose::New).then(|| logon.session.clone());
    let mut unproved = Unproved { cx, session };
    // A reload may have removed the domain since the challenge.
    let engine = cx.server.users.engine().ok_or(Status::LOGON_FAILURE)?;
    let from = cx.conn.info.peer.ip();
    let answer = domain_logon::relay(from, engine, question, cx.server.users.clone()).await;
    unproved.session = None;
    Ok(logon.acceptor.answered(answer, &Passwords(&*cx.server.users)))
}

/// Looks an account up in the directory. The connection, and this task with it, may end meanwhile.
async fn look_up(cx: &RequestContext, logon: &mut Logon, name: &str) -> Step<Ticketed> {
    let session = (logon.purpose == Purpose::New).then(|| logon.session.clone());
    let mut unproved = Unproved { cx, session };
    let (from, users) = (cx.conn.info.peer.ip(), cx.server.users.clone());
    let found = directory_logon::look_up(from, users, name.to_owned()).await;
    unproved.session = None;
    logon.acceptor.looked_up(found, &Passwords(&*cx.server.users))
}

/// Looks up the NT hashes of accounts.
pub(super) struct Passwords<'a>(pub(super) &'a dyn Users);

impl auth::Secrets for Passwords<'_> {
    fn nt_hash(&self, _domain: &str, user: &str) -> Option<NtHash> {
        self.0.find_for_logon(user).map(|a| NtHash(a.nt_hash))
    }

    fn must_look_up(&self, user: &str, why: Look) -> bool {
        self.0.must_look_up(user, why)
    }
}

/// Takes the logon that this request continues out of the connection, or starts a new one.
fn begin(cx: &RequestContext, n: &Negotiated, request: &Request<'_>) -> Result<Logon, Status> {
    let id = cx.header.session_id;
    let binding = request.flags & BINDING != 0;
    let under_way = locked(&cx.conn.logons).remove(&id);
    if let Some(logon) = under_way {
        if binding == (logon.purpose == Purpose::Bind) {
            return Ok(logon);
        }
        // A logon cannot change between binding and authenticating; it must finish first.
        locked(&cx.conn.logons).insert(id, logon);
        return Err(Status::REQUEST_NOT_ACCEPTED);
    }
    let (purpose, session) = if binding {
        (Purpose::Bind, session_to_bind(cx, n)?)
    } else if id == 0 && cx.header.flags.has(Flags::SIGNED) && !cx.encrypted {
        // A signature requires a session, but this request has no session identifier (MS-SMB2 section 3.3.5.2.4).
        return Err(Status::USER_SESSION_DELETED);
    } else if id == 0 {
        if cx.conn.sessions() >= SESSIONS_PER_CONNECTION_MAX {
            return Err(cx.limited("sessions-of-connection", SESSIONS_PER_CONNECTION_MAX));
        }
        (Purpose::New, cx.server.sessions.begin(Terms::of(n))?)
    } else {
        (Purpose::Again, cx.session()?.clone())
    };
    let ticket = place_for_logon(cx, session.id);
    let made = fresh(&cx.server).map(|fresh| {
        let acceptor =
            Acceptor::new(cx.server.identity(), fresh, policy(cx), cx.server.settings().mechs());
        let (session, preauth) = (session.clone(), cx.conn.preauth());
        Logon { purpose, session, acceptor, preauth, rounds: 0, ticket }
    });
    if made.is_err() && purpose == Purpose::New {
        forget(cx, &session);
    }
    made
}

/// Reserves a slot for a new logon. At a limit, drops the oldest unfinished logon of the connection, the address or the server.
fn place_for_logon(cx: &RequestContext, session: u64) -> Ticket {
    if let Some(oldest) = cx.conn.oldest_logon(LOGONS_PER_CONNECTION_MAX) {
        drop_logon(
            cx,
            &cx.conn,
            oldest,
            ("unfinished-logons-of-connection", LOGONS_PER_CONNECTION_MAX),
        );
    }
    let from = cx.conn.info.peer.ip();
    let (ticket, evicted) = cx.server.logons.begin(from, Arc::downgrade(&cx.conn), session);
    if let Some(evicted) = evicted
        && let Some(conn) = evicted.conn.upgrade()
    {
        drop_logon(cx, &conn, evicted.session, evicted.limit);
    }
    ticket
}

/// Drops an unfinished logon. Removes the session that it was creating; an existing session is unchanged.
fn drop_logon(
    cx: &RequestContext,
    conn: &Conn,
    session: u64,
    (limit, most): (&'static str, usize),
) {
    rdma_transport::count::limit_met(limit);
    tracing::debug!(peer = %conn.info.peer, limit, most, "an unfinished logon was dropped for a newer one");
    if let Some(logon) = conn.take_logon(session)
        && logon.purpose == Purpose::New
    {
        forget(cx, &logon.session);
    }
}

/// Removes an unauthenticated session.
fn forget(cx: &RequestContext, session: &Session) {
    session.end();
    cx.server.sessions.remove(session.id);
}

impl Terms {
    fn of(n: &Negotiated) -> Self {
        Self {
            dialect: n.dialect,
            client_guid: n.client_guid,
            signing: n.signing,
            cipher: n.cipher,
        }
    }
}

pub(super) fn fresh(core: &ServerState) -> Result<Fresh, Status> {
    let (mut challenge, mut key) = ([0; 8], [0; 16]);
    let random = getrandom::fill(&mut challenge).and_then(|()| getrandom::fill(&mut key));
    random.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
    Ok(Fresh { challenge, key, time: core.filetime() })
}

/// Allows guests if at least one share admits guests.
fn policy(cx: &RequestContext) -> Policy {
    let guest = cx.server.settings().has_guests();
    let users = &cx.server.users;
    let (domain, look_up) = (users.engine().is_some(), users.has_directory());
    Policy { guest, anonymous: guest, domain, look_up }
}

/// Finds the session to bind (MS-SMB2 section 3.3.5.5, step 4).
fn session_to_bind(cx: &RequestContext, n: &Negotiated) -> Result<Arc<Session>, Status> {
    let sessions = &cx.server.sessions;
    let session = sessions.get(cx.header.session_id).ok_or(Status::USER_SESSION_DELETED)?;
    let terms = session.terms;
    // AES-GMAC can be combined only with AES-GMAC. Windows checks this first.
    match (terms.signing == Algorithm::AesGmac, n.signing == Algorithm::AesGmac) {
        (true, false) => return Err(Status::REQUEST_OUT_OF_SEQUENCE),
        (false, true) => return Err(Status::NOT_SUPPORTED),
        _ => {}
    }
    if !n.dialect.is_3() {
        return Err(Status::REQUEST_NOT_ACCEPTED);
    }
    if n.dialect != terms.dialect || !cx.header.flags.has(Flags::SIGNED) {
        return Err(Status::INVALID_PARAMETER);
    }
    match session.state(cx.server.now()) {
        SessionState::Valid => {}
        SessionState::InProgress => return Err(Status::REQUEST_NOT_ACCEPTED),
        SessionState::Expired => return Err(Status::NETWORK_SESSION_EXPIRED),
        SessionState::Gone => return Err(Status::USER_SESSION_DELETED),
    }
    if cx.channel.is_some() {
        return Err(Status::REQUEST_NOT_ACCEPTED);
    }
    verify_with_session(cx, &session)?;
    if n.cipher != terms.cipher {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(session)
}

/// Verifies a binding request with the session's key, because the connection has no key for the session yet.
fn verify_with_session(cx: &RequestContext, session: &Session) -> Result<(), Status> {
    // Guests have no key, and every client knows the key of anonymous users.
    let is_user = session.user().is_some_and(|u| u.kind == Kind::User);
    let secrets = session.secrets.get().filter(|_| is_user).ok_or(Status::NOT_SUPPORTED)?;
    let verified = cx.with_pieces(|pieces| secrets.signer.verify(Sender::Client, pieces));
    verified.map_err(|_| {
        Violation::Signature.note(&cx.conn, "of a binding");
        Status::ACCESS_DENIED
    })
}

/// Builds the response for another authentication round.
fn go_on(cx: &RequestContext, logon: Logon, token: &[u8]) -> Answer {
    let session = logon.session.clone();
    if let Some(client) = logon.acceptor.client() {
        cx.conn.info.facts.note(Facts::CLIENT, client);
    }
    let seal = match logon.purpose {
        Purpose::Bind => Some(Seal::Session(session.clone())),
        _ => None,
    };
    let is_311 = cx.conn.dialect() == Dialect::V311;
    locked(&cx.conn.logons).insert(session.id, logon);
    Answer {
        session_id: Some(session.id),
        seal,
        hash: is_311.then_some(Hash::Logon(session.id)),
        ..Answer::with_status(Status::MORE_PROCESSING_REQUIRED, Response { flags: 0, token }.emit())
    }
}

/// The purpose and session of a logon.
type Of<'a> = (Purpose, &'a Arc<Session>);

fn of(logon: &Logon) -> Of<'_> {
    (logon.purpose, &logon.session)
}

async fn refused(cx: &RequestContext, (purpose, session): Of<'_>, why: &Refusal) -> Status {
    let (user, detail) = (why.user(), why.detail());
    let mut wrong = 0;
    if why.is_guess() {
        let (from, now) = (cx.conn.info.peer.ip(), cx.server.since_start());
        wrong = locked(&cx.server.logon_throttle).wrong(from, now);
        if let Some(account) = why.account() {
            locked(&cx.server.accounts).wrong(&account.user, now);
        }
    }
    tracing::info!(
        peer = %cx.conn.info.peer, user, reason = why.reason(), detail, remedy = Rule::from(why).remedy(),
        wrong_in_a_minute = wrong, "logon refused"
    );
    cx.server.sessions.logons.refused.fetch_add(1, Ordering::Relaxed);
    Rule::from(why).note_logon(&cx.conn, user, why.reason());
    // As on Windows, a failed reauthentication ends the session; a failed binding has no effect.
    if purpose != Purpose::Bind {
        end_session(&cx.server, session, TeardownReason::GivenUp, "refused").await;
    }
    why.status().into()
}

/// Maps an authenticated client to a user of this server.
fn user(cx: &RequestContext, who: &Who<Ticketed>) -> Result<User, Status> {
    let users = &cx.server.users;
    Ok(match who {
        Who::User(account) => {
            let found = users.find(&account.user).ok_or(Status::LOGON_FAILURE)?;
            let (cred, rid, way) = (found.cred, found.rid, LogonWay::Account);
            User { name: found.name, kind: Kind::User, cred, rid, way }
        }
        Who::OfDomain { user, .. } => {
            let Ticketed { name, cred, rid } = (**user).clone();
            User { name, kind: Kind::User, cred, rid, way: LogonWay::Domain }
        }
        Who::Ticket(ticket) => {
            let Ticketed { name, cred, rid } = ticket.user.clone();
            User { name, kind: Kind::User, cred, rid, way: LogonWay::Ticket }
        }
        // RIDs 501 and 7 come from the well-known SIDs (MS-DTYP section 2.4.2.4).
        Who::Guest(_) => {
            let (cred, rid, way) = (users.guest(), 501, LogonWay::Account);
            User { name: "Guest".into(), kind: Kind::Guest, cred, rid, way }
        }
        Who::Anonymous => {
            let (cred, rid, way) = (users.guest(), 7, LogonWay::Account);
            User { name: String::new(), kind: Kind::Anonymous, cred, rid, way }
        }
    })
}

/// Computes `Session.ExpirationTime`: the end of the ticket on the server's clock. The Kerberos library accepts expired tickets to
/// allow for clock skew, but their session would be unusable from the start, and the client would retry with the same ticket.
async fn expires(
    cx: &RequestContext,
    of: Of<'_>,
    ticket: &ticket::Ticket<Ticketed>,
) -> Result<Millis, Status> {
    // FILETIME counts units of 100 ns since 1601.
    let now = (cx.server.filetime() / 10_000).saturating_sub(11_644_473_600_000);
    let left = ticket.ends.saturating_mul(1000).saturating_sub(now);
    if left > 0 {
        return Ok(cx.server.now().saturating_add(left));
    }
    let principal = ticket.principal.clone();
    let why = ticket::Refused {
        why: Why::Kerberos(gss_sys::Cause::Expired),
        principal,
        detail: String::new(),
    };
    Err(refused(cx, of, &Refusal::Ticket(Box::new(why))).await)
}

/// Completes an authentication (MS-SMB2 section 3.3.5.5.3).
#[allow(clippy::too_many_arguments)] // What the request and its authentication gave, used once.
async fn done(
    cx: &RequestContext,
    n: &Negotiated,
    logon: Logon,
    request: &Request<'_>,
    who: Who<Ticketed>,
    key: Option<SessionKey>,
    token: &[u8],
    previous: u64,
) -> Result<Answer, Status> {
    let user = user(cx, &who)?;
    let kind = user.kind;
    let expires = match &who {
        Who::Ticket(ticket) => Some(expires(cx, of(&logon), ticket).await?),
        _ => None,
    };
    let Logon { purpose, session, preauth, .. } = logon;
    // Fails if the logon must be audited and the record cannot be written.
    let permit = audit::permit();
    let finished = match purpose {
        _ if permit.is_err() => Err(Status::AUDIT_FAILED),
        Purpose::New => new(cx, n, request, &session, (user, expires), key, &preauth).await,
        Purpose::Again => {
            let done = again(cx, &session, user, expires);
            if done.is_ok() {
                end_fallen_trees(&cx.server, &session).await;
            }
            done
        }
        Purpose::Bind => bind(cx, n, &session, &user, key, &preauth),
    };
    if let Err(status) = finished {
        if purpose == Purpose::New {
            end_session(&cx.server, &session, TeardownReason::GivenUp, "refused").await;
        }
        return Err(status);
    }
    // A reload that ran meanwhile has checked the other sessions, but not this one.
    let stands = session_stands(&cx.server, &session);
    if !stands || purpose == Purpose::New && changes_dialect(cx, &session) {
        end_session(&cx.server, &session, TeardownReason::GivenUp, "configuration").await;
        return Err(Status::USER_SESSION_DELETED);
    }
    if purpose == Purpose::New && previous != 0 && previous != session.id {
        end_previous(cx, &session, previous).await;
    }
    cx.server.sessions.logons.granted(kind);
    if let Who::User(account) | Who::OfDomain { account, .. } = &who {
        let (from, now) = (cx.conn.info.peer.ip(), cx.server.since_start());
        locked(&cx.server.accounts).right(&account.user, from, now);
    }
    if let Ok(permit) = permit {
        session.tell_logon(|| permit.record(|| logged_on(cx, &session, purpose)));
    }
    let flags = match kind {
        Kind::User => 0,
        Kind::Guest => IS_GUEST,
        Kind::Anonymous => IS_NULL,
    } | if session.encrypts() { ENCRYPT_DATA } else { 0 };
    let seal = cx.conn.channel(session.id).map(Seal::Channel);
    Ok(Answer {
        session_id: Some(session.id),
        seal,
        ..Answer::ok(Response { flags, token }.emit())
    })
}

async fn new(
    cx: &RequestContext,
    n: &Negotiated,
    request: &Request<'_>,
    session: &Arc<Session>,
    (user, expires): (User, Option<Millis>),
    key: Option<SessionKey>,
    preauth: &Preauth,
) -> Result<(), Status> {
    let settings = cx.server.settings();
    let encrypt = settings.encryption == Encryption::Required;
    // Guests have no key, and every client knows the key of anonymous sessions, so neither can be encrypted.
    if encrypt && user.kind != Kind::User {
        Rule::Encryption.note(&cx.conn, &user.name, "");
        return Err(Status::ACCESS_DENIED);
    }
    let signer = match &key {
        Some(key) => {
            let (signer, secrets) = secrets(n, key, preauth)?;
            // Cannot fail: the session is new, so no other task sets its secrets.
            let _ = session.secrets.set(secrets);
            Some(signer)
        }
        None => None,
    };
    let asked = n.client_security_mode & SIGNING_REQUIRED != 0
        || u16::from(request.security_mode) & SIGNING_REQUIRED != 0;
    // Every client knows the key of an anonymous session, so its client does not sign (section 3.2.5.3.1).
    let signing = user.kind == Kind::User && (settings.signing_required || asked);
    session.require(signing, encrypt);
    make_room(cx).await;
    let admitted = cx.server.sessions.admit(session, cx.conn.info.peer.ip());
    admitted.map_err(|limit| cx.limited(limit.name, limit.most))?;
    session.note_used(cx.server.now());
    session.log_on(user, expires);
    join(cx, session, signer)
}

/// If a limit is reached, evicts a session to admit the new one, if any may be evicted.
async fn make_room(cx: &RequestContext) {
    let core = &cx.server;
    let Some(full) = core.sessions.full(cx.conn.info.peer.ip()) else { return };
    let some = core.sessions.next_of(full.host, CANDIDATES);
    let Some(session) = giving_way(core, &some, full.has_more, core.now()) else { return };
    rdma_transport::count::limit_met(full.limit.name);
    tracing::debug!(session = session.id, host = %full.host, limit = full.limit.name, "a session ended for a new one");
    end_session(core, session, TeardownReason::Connection, "gave way").await;
}

/// Selects the session to evict: one without opens and waiting requests that has been idle for [`SESSION_IDLE`]. If its address
/// `has_more` sessions than the address of the new one, idle time does not matter: the least recently used session is evicted, and
/// sessions with opens or waiting requests only if all have some.
pub(super) fn giving_way<'a>(
    core: &ServerState,
    some: &'a [Arc<Session>],
    has_more: bool,
    now: Millis,
) -> Option<&'a Arc<Session>> {
    let waits = |s: &Session| {
        let conns = s.channels().into_iter().filter_map(|channel| channel.conn.upgrade());
        conns.into_iter().any(|conn| conn.has_wait_of(s.id))
    };
    let free = |s: &Session| core.opens.count_of(s.id) == 0 && !waits(s);
    let judged = some.iter().map(|s| ((free(s), s.idle(now)), s));
    let ready = judged.filter(|((free, idle), _)| has_more || *free && *idle >= SESSION_IDLE);
    ready.max_by_key(|(order, _)| *order).map(|(_, session)| session)
}

/// Reauthenticates a session. The user must be the first user: the session keeps the keys from that logon, and another user's
/// messages must not be signed with them. A refusal does not change the session (MS-SMB2 section 3.3.5.5.3).
fn again(
    cx: &RequestContext,
    session: &Session,
    user: User,
    expires: Option<Millis>,
) -> Result<(), Status> {
    if let Err(status) = check_owner(session, &user) {
        tracing::warn!(
            peer = %cx.conn.info.peer, session = session.id, user = user.name,
            "logon refused: the session belongs to another user"
        );
        let remedy = "log off first: a session stays that of the user who logged on to it";
        Rule::Logon(remedy).note_logon(&cx.conn, &user.name, "the session belongs to another user");
        return Err(status);
    }
    session.log_on(user, expires);
    Ok(())
}

/// Returns STATUS_ACCESS_DENIED unless this user was the first to log on to the session.
fn check_owner(session: &Session, user: &User) -> Result<(), Status> {
    let owner = session.user().ok_or(Status::USER_SESSION_DELETED)?;
    if owner.is_same(user) { Ok(()) } else { Err(Status::ACCESS_DENIED) }
}

fn bind(
    cx: &RequestContext,
    n: &Negotiated,
    session: &Arc<Session>,
    user: &User,
    key: Option<SessionKey>,
    preauth: &Preauth,
) -> Result<(), Status> {
    verify_with_session(cx, session)?;
    check_owner(session, user)?;
    let key = key.ok_or(Status::NOT_SUPPORTED)?;
    let key = kdf::signing_key(&key, context(n.dialect, preauth));
    let signer = Signer::new(n.signing, &key).map_err(|_| Status::INTERNAL_ERROR)?;
    check_address(cx, session, user)?;
    join(cx, session, Some(signer))?;
    // A tree connected meanwhile did not check this connection, unless `join` had already added it.
    check_address(cx, session, user).inspect_err(|_| {
        cx.conn.remove_channel(session.id);
        session.remove_channel(&cx.conn);
    })
}

/// Returns STATUS_ACCESS_DENIED if a connected share grants less access to this address: the `clients` list of a share applies to
/// every connection.
fn check_address(cx: &RequestContext, session: &Session, user: &User) -> Result<(), Status> {
    let peer = cx.conn.info.peer.ip();
    let Some(tree) = denied_from(&cx.server, session, peer) else { return Ok(()) };
    let rule = vfs::namespace::Refusal::Address.name();
    let remedy = "let `clients` of the share give all addresses of a client the same, or let it use one connection";
    let (user, share) = (user.name.as_str().into(), tree.name.as_str().into());
    refused::note(Refused { peer, user, share, rule, remedy: remedy.into() });
    Err(Status::ACCESS_DENIED)
}

/// Adds this connection to the session.
fn join(cx: &RequestContext, session: &Arc<Session>, signer: Option<Signer>) -> Result<(), Status> {
    let channel =
        Arc::new(Channel { session: session.clone(), conn: Arc::downgrade(&cx.conn), signer });
    if !session.add_channel(channel.clone()) {
        return Err(cx.limited("connections-of-session", CHANNELS_MAX));
    }
    cx.conn.add_channel(channel);
    note(cx, session);
    Ok(())
}

/// Records the session for `status`.
fn note(cx: &RequestContext, session: &Session) {
    let info = &cx.conn.info;
    let user = session.user().map_or_else(String::new, |u| u.name.clone());
    info.facts.note("user", user);
    info.facts.note(Facts::PROTECTION, protection(session));
}

fn protection(session: &Session) -> &'static str {
    match (session.encrypts(), session.signing_required()) {
        (true, _) => "encrypted",
        (false, true) => "signed",
        (false, false) => "none",
    }
}

/// Builds the audit event.
fn logged_on(cx: &RequestContext, session: &Session, purpose: Purpose) -> audit::Event {
    let info = &cx.conn.info;
    let how = session.user().map_or(audit::Way::Anonymous, |user| match user.kind {
        Kind::User if user.way == LogonWay::Ticket => audit::Way::Ticket,
        Kind::User => audit::Way::Password,
        Kind::Guest => audit::Way::Guest,
        Kind::Anonymous => audit::Way::Anonymous,
    });
    audit::Event::Logon(audit::Logon {
        peer: info.peer.ip(),
        party: session.party(),
        session: session.id,
        how,
        purpose: match purpose {
            Purpose::New => "new",
            Purpose::Again => "again",
            Purpose::Bind => "connection",
        },
        dialect: session.dialect().name(),
        transport: if info.transport.is_rdma() { "rdma" } else { "tcp" },
        protection: protection(session),
    })
}

fn context(dialect: Dialect, preauth: &Preauth) -> Context<'_> {
    match dialect {
        Dialect::V311 => Context::V311(preauth.value()),
        _ => Context::V30,
    }
}

/// Derives the keys of a new session. Returns the signer for its first connection separately.
fn secrets(
    n: &Negotiated,
    full: &SessionKey,
    preauth: &Preauth,
) -> Result<(Signer, Secrets), Status> {
    let broken = |_| Status::INTERNAL_ERROR;
    let signers = |key: &[u8; 16]| {
        let one = || Signer::new(n.signing, key).map_err(broken);
        Ok::<_, Status>((one()?, one()?))
    };
    if !n.dialect.is_3() {
        let key = kdf::session_key(full);
        let (ours, signer) = signers(&key)?;
        let secrets = Secrets { signer, sealer: None, opener: None };
        return Ok((ours, secrets));
    }
    let keys =
        Keys::derive(full, context(n.dialect, preauth), n.cipher.unwrap_or(Cipher::Aes128Ccm));
    let (ours, signer) = signers(&keys.signing)?;
    let (mut sealer, mut opener) = (None, None);
    if let Some(cipher) = n.cipher {
        let start = getrandom::u64().map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        sealer = Some(Sealer::new(cipher, &keys.server_to_client, start).map_err(broken)?);
        opener = Some(Opener::new(cipher, &keys.client_to_server).map_err(broken)?);
    }
    Ok((ours, Secrets { signer, sealer, opener }))
}

/// Returns whether a client with an existing connection uses another dialect (MS-SMB2 section 3.3.5.5.3). Only sessions of the same
/// user count: client identifiers are self-assigned and must not let one user lock out another.
fn changes_dialect(cx: &RequestContext, session: &Session) -> bool {
    let Terms { dialect, client_guid, .. } = session.terms;
    let own = session.owner();
    let other = |old: &Session| {
        old.terms.dialect != dialect && old.id != session.id && *old.owner() == *own
    };
    let has_other = || cx.server.sessions.of_client(client_guid).iter().any(|old| other(old));
    client_guid != [0; 16] && has_other()
}

/// Ends the previous session of a client that lost its connection, so that its opens cannot conflict with the new session (MS-SMB2
/// section 3.3.5.5.3).
async fn end_previous(cx: &RequestContext, session: &Session, previous: u64) {
    let Some(old) = cx.server.sessions.get(previous) else { return };
    let name = |s: &Session| s.user().map(|u| (u.name.clone(), u.kind));
    if name(&old) == name(session) {
        end_session(&cx.server, &old, TeardownReason::Connection, "replaced").await;
    }
}
