//! The service of this host, which knows the users of its domain: one for all shares and protocols.
//!
//! *Operation.* A thread asks every [`ASK_AGAIN`] whether the service answers, and so learns the names of the machine and of all
//! domains. Questions run on separate threads with a time limit, because the library may wait for minutes. Numbers are kept for
//! [`kept::KEPT`], names for [`kept::KEPT_NAME`], negative answers for [`kept::KEPT_NONE`]; while the service does not answer, they
//! stay valid. A second thread asks again about names that were used within [`kept::KEPT`], before they are too old, so that
//! listings do not wait for them. Answers about passwords are not kept. The library connects again when the service is back.
//!
//! *Memory.* At most [`CALLS_MAX`] questions in time and as many idle connections to the service. A question that takes longer
//! keeps its thread and connection: at most [`HELD_MAX`] for passwords and as many for all else, half of them for one client, and
//! [`WATCH_MAX`] of the watch. [`NUMBERS_MAX`] numbers and [`NAMES_MAX`] names of domains.
//!
//! *Errors.* [`Why::Away`] if the service does not answer and nothing is kept; status, log and `check` have the reason.

mod callers;
mod directory;
mod groups;
mod kept;
mod names;
pub(crate) mod twins;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use config::{DomainBy, Settings};
use domain_sys::{Context, Details, DomainNames, Error, Member, Number, Response, Source};
use mutex::locked;
use rdma_transport::parts::{Limit, Part, Parts};
use smb_auth::Identity;
use smb_auth::relay::{Question, Refused, Why};
use smbd_core::domain_engine::{Confirmed, Engine, Lookup, Numbers, Verdict};
use vfs::acl::Sid;
use vfs::{ANONYMOUS, Domain, DomainIdentity};

pub(crate) use directory::NfsNames;
pub(crate) use groups::{Group, Groups};
use kept::Kept;
pub(crate) use names::{LIMIT as NAMES_LIMIT, LIMIT_OF_ADDRESS as NAMES_LIMIT_OF_ADDRESS};
use names::{Names, Whose};

use crate::host_name;

/// Time between two questions whether the service answers.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// The same while it does not.
const ASK_SOON: Duration = Duration::from_secs(2);
/// Time between two questions in the background about answers that are used.
const RENEW_AGAIN: Duration = Duration::from_secs(10);
/// Time limit of a question about names and numbers.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Time limit of many questions, of which each may take a little longer: less than [`ANSWER_MAX`], so that all is kept that was
/// answered.
const QUESTIONS_TIME: Duration = Duration::from_secs(2);
/// The least time for the question whether a controller answers.
const PING_MIN: Duration = Duration::from_millis(200);
/// Time limit of a question about a password, which a controller far away may answer.
const PASSWORD_MAX: Duration = Duration::from_secs(9);
/// No question about names of a configuration begins after this time.
const RESOLVE_MAX: Duration = Duration::from_secs(6);
/// Most questions at the same time, over all clients.
const CALLS_MAX: usize = 16;
/// Most threads of questions about passwords, in time or late, and most of other questions; some calls may not return. One client
/// has half of them.
const HELD_MAX: usize = 32;
/// Most threads of the watch.
const WATCH_MAX: usize = 4;
pub(crate) const PASSWORDS_LIMIT: &str = "domain-passwords";
pub(crate) const PASSWORDS_LIMIT_OF_ADDRESS: &str = "domain-passwords-of-address";
pub(crate) const QUESTIONS_LIMIT: &str = "domain-questions";
pub(crate) const QUESTIONS_LIMIT_OF_ADDRESS: &str = "domain-questions-of-address";
const WATCH_LIMIT: &str = "domain-watch";
/// While the last question of the watch has not returned, it asks again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Most SIDs whose numbers are kept.
const NUMBERS_MAX: usize = 65_536;
/// Most names of domains that are kept; clients invent them.
const NAMES_MAX: usize = 1024;
/// Most groups about which one question asks.
const SIDS_MAX: usize = 4096;

/// Bytes of a NetBIOS name.
const NETBIOS_MAX: usize = 15;

/// The services that configurations have named: few, since an administrator writes them. Each has separate answers.
static ALL: Mutex<Vec<Arc<DomainService>>> = Mutex::new(Vec::new());

/// The reason for a question about numbers.
#[derive(Clone, Copy)]
enum Asker {
    /// A logon or the configuration.
    Logon,
    /// An owner of a file, which a client names.
    Owner,
}

/// The last answer.
#[derive(Default)]
struct State {
    machine: Option<(Details, Option<DomainIdentity>)>,
    /// All domains, if the library can list them.
    domains: Option<Vec<DomainNames>>,
    /// Why there was no answer to the last question; `None` before the first question and after an answer.
    away: Option<String>,
    /// The domain of this gateway, which gets the identity.
    domain: Option<Arc<Domain>>,
}

/// What a question is about; each has threads of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Password,
    Other,
    /// Whether the service answers. It needs no place among the questions in time.
    Watch,
}

/// Questions whose threads run: those that are in time, and the others by what they are about.
#[derive(Default)]
struct Calls {
    in_time: usize,
    late: [usize; 3],
}

/// The threads of questions.
struct Held([Arc<Parts>; 3]);

impl Default for Held {
    fn default() -> Self {
        let half = |total, of_address| {
            Parts::new([Limit::new(total, HELD_MAX), Limit::new(of_address, HELD_MAX / 2)])
        };
        let watch = Limit::new(WATCH_LIMIT, WATCH_MAX);
        Self([
            half(PASSWORDS_LIMIT, PASSWORDS_LIMIT_OF_ADDRESS),
            half(QUESTIONS_LIMIT, QUESTIONS_LIMIT_OF_ADDRESS),
            Parts::new([watch, watch]),
        ])
    }
}

/// A question, until its thread ends.
struct Call {
    of: Arc<DomainService>,
    about: About,
    is_late: AtomicBool,
    _held: Part,
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut calls = locked(&self.of.calls);
        match self.is_late.load(Ordering::SeqCst) {
            true => calls.late[self.about as usize] -= 1,
            false => calls.in_time -= usize::from(self.about != About::Watch),
        }
    }
}

impl Call {
    /// # Errors
    /// [`Error::Busy`].
    fn begin(of: &Arc<DomainService>, about: About) -> Result<Arc<Self>, Error> {
        let from = iobuf::current_client().unwrap_or(names::OWN);
        let held = of.held.0[about as usize].take(from).map_err(|limit| {
            // Clients do not fill the places of the watch.
            if about != About::Watch {
                rdma_transport::count::limit_met(limit.name);
            }
            Error::Busy
        })?;
        if about != About::Watch {
            let mut calls = locked(&of.calls);
            if calls.in_time >= CALLS_MAX {
                return Err(Error::Busy);
            }
            calls.in_time += 1;
        }
        Ok(Arc::new(Self { of: of.clone(), about, is_late: AtomicBool::new(false), _held: held }))
    }

    /// Leaves its place to others: its time is over.
    fn is_over(&self) {
        let mut calls = locked(&self.of.calls);
        if !self.is_late.swap(true, Ordering::SeqCst) {
            calls.in_time -= usize::from(self.about != About::Watch);
            calls.late[self.about as usize] += 1;
        }
    }
}

/// The service of this host.
#[derive(Default)]
pub(crate) struct DomainService {
    source: Source,
    state: Mutex<State>,
    contexts: Mutex<Vec<Context>>,
    calls: Mutex<Calls>,
    held: Held,
    /// The last question of the watch, and its time.
    looking: Mutex<Option<(Weak<Call>, Instant)>>,
    numbers: Mutex<Kept<Sid, Number>>,
    domains: Mutex<Kept<String, ()>>,
    names: Names,
    has_watch: AtomicBool,
    has_renewal: AtomicBool,
    /// The configuration names the service.
    is_wanted: AtomicBool,
}

/// The state for `check` and status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its name in the configuration.
    pub(crate) by: &'static str,
    pub(crate) checks_passwords: bool,
    /// Names of the machine and its domain, from the last answer.
    pub(crate) machine: Option<Details>,
    pub(crate) away: Option<String>,
}

/// Returns the service that these settings name, the same one at each call.
pub(crate) fn of(settings: &Settings) -> Option<Arc<DomainService>> {
    let source = match settings.domain_by? {
        DomainBy::Rid => return None,
        DomainBy::Winbind => Source::Winbind,
        DomainBy::Sssd => {
            let realm = settings.kerberos.as_ref()?.realm.as_ref()?;
            let host = host_name::kernels();
            let label = host.split('.').next().unwrap_or_default();
            let machine = label.chars().take(NETBIOS_MAX).collect::<String>().to_uppercase();
            Source::Sssd(Member { machine, domain: realm.as_str().to_lowercase() })
        }
    };
    let mut all = locked(&ALL);
    if let Some(known) = all.iter().find(|one| one.source == source) {
        return Some(known.clone());
    }
    let made = Arc::new(DomainService { source, ..DomainService::default() });
    all.push(made.clone());
    Some(made)
}

/// Starts to ask the service that these settings name, for the gateway of this domain, and ends the questions to another. Blocks
/// for some seconds at most.
pub(crate) fn start(
    settings: &Settings,
    domain: Option<Arc<Domain>>,
) -> Option<Arc<DomainService>> {
    let service = of(settings);
    for one in &*locked(&ALL) {
        let is_wanted = service.as_ref().is_some_and(|wanted| Arc::ptr_eq(one, wanted));
        one.is_wanted.store(is_wanted, Ordering::SeqCst);
    }
    let service = service?;
    if let Some(domain) = &domain {
        domain.set_asker(Arc::new(callers::OfService(Arc::downgrade(&service))));
    }
    locked(&service.state).domain = domain;
    service.look();
    service.watch();
    Some(service)
}

/// Returns the last answer of the service that the configuration names. Does not wait.
pub(crate) fn seen() -> Option<Seen> {
    let wanted = |one: &&Arc<DomainService>| one.is_wanted.load(Ordering::SeqCst);
    let service = locked(&ALL).iter().find(wanted).cloned();
    service.map(|service| service.seen())
}

/// Says what is not possible while the service does not answer.
pub(crate) fn what_fails(checks_passwords: bool) -> &'static str {
    match checks_passwords {
        true => "users of the domain cannot log on with passwords",
        false => "users of the domain log on only where their numbers are known",
    }
}

/// Gives the domain the names that an earlier answer or a ticket had: SSSD tells no NetBIOS name but the usual one.
fn with_names(
    mut details: Details,
    found: Option<DomainNames>,
    kept: Option<&DomainIdentity>,
) -> (Details, Option<DomainIdentity>) {
    let is_same = |kept: &&DomainIdentity| {
        kept.dns.eq_ignore_ascii_case(&details.dns_domain)
            && found.as_ref().is_none_or(|found| found.sid == kept.sid)
    };
    let kept = kept.filter(is_same).filter(|_| details.domain.is_empty());
    if let Some(kept) = kept {
        details.domain.clone_from(&kept.name);
        return (details, Some(kept.clone()));
    }
    let identity = found.filter(|found| !found.name.is_empty()).map(|found| DomainIdentity {
        sid: found.sid,
        name: found.name,
        dns: found.dns.to_lowercase(),
    });
    (details, identity)
}

/// Starts a thread of this name.
type Spawn<'a> = &'a dyn Fn(&'static str, Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Starts a thread unless it runs. After a failure the next call tries again.
fn once(has: &AtomicBool, start: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if has.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    start().inspect_err(|_| has.store(false, Ordering::SeqCst))
}

impl DomainService {
    /// Starts the threads that ask whether the service answers, and again about known names, unless they run.
    fn watch(self: &Arc<Self>) {
        self.watch_by(&|name, work| thread::Builder::new().name(name.into()).spawn(work).map(drop));
    }

    /// Like [`Self::watch`], with a function that starts a thread.
    fn watch_by(self: &Arc<Self>, spawn: Spawn<'_>) {
        let by = self.name();
        let its = self.clone();
        let watch = move || {
            loop {
                let is_away = locked(&its.state).away.is_some();
                thread::sleep(if is_away { ASK_SOON } else { ASK_AGAIN });
                if its.is_wanted.load(Ordering::SeqCst) {
                    its.look();
                }
            }
        };
        if let Err(error) = once(&self.has_watch, || spawn("domain-watch", Box::new(watch))) {
            tracing::warn!(%error, by, "the service of the domain is not watched");
        }
        let its = self.clone();
        let renew = move || {
            loop {
                thread::sleep(RENEW_AGAIN);
                let is_away = locked(&its.state).away.is_some();
                if its.is_wanted.load(Ordering::SeqCst) && !is_away {
                    its.renew_names();
                    its.renew_callers();
                }
            }
        };
        if let Err(error) = once(&self.has_renewal, || spawn("domain-renew", Box::new(renew))) {
            tracing::warn!(%error, by, "answers of the service are asked again only when they are old");
        }
    }

    /// Returns the name of the service in the configuration.
    pub(crate) fn name(&self) -> &'static str {
        self.source.name()
    }

    /// Asks once. Blocks for some seconds at most.
    pub(crate) fn seen_now(self: &Arc<Self>) -> Seen {
        self.look();
        self.seen()
    }

    /// Returns the name of the machine's domain, from the service or from an earlier answer. Blocks for some seconds at most.
    pub(crate) fn domain(self: &Arc<Self>, domain: &Domain) -> Option<String> {
        self.look_first();
        let told = self.seen().machine.map(|machine| match machine.domain.is_empty() {
            true => machine.dns_domain,
            false => machine.domain,
        });
        told.or_else(|| domain.identity().map(|kept| kept.name.clone()))
    }

    /// Asks about these names with their domains, and the numbers of those found, for a configuration. Earlier answers count only
    /// while the service is silent, and negative ones never. Blocks for some seconds at most.
    pub(crate) fn resolve(
        self: &Arc<Self>,
        names: &[(&str, &str)],
    ) -> Vec<(Lookup, Option<Number>)> {
        if names.is_empty() {
            return Vec::new();
        }
        self.look_first();
        self.resolve_now(names)
    }

    /// Asks whether the service answers, if that was never asked: in a command that reads the configuration.
    fn look_first(self: &Arc<Self>) {
        let has_looked = {
            let state = locked(&self.state);
            state.machine.is_some() || state.away.is_some()
        };
        if !has_looked {
            self.look();
        }
    }

    fn resolve_now(self: &Arc<Self>, names: &[(&str, &str)]) -> Vec<(Lookup, Option<Number>)> {
        names.iter().for_each(|(domain, name)| self.age_name(domain, name));
        let found = self.ask_all(names);
        let sids: Vec<Sid> =
            found.iter().flatten().flatten().map(|named| named.sid.clone()).collect();
        sids.iter().for_each(|sid| locked(&self.numbers).age(sid));
        let numbers = self.numbers_of(&sids).unwrap_or_default();
        let mut numbers = sids.iter().zip(numbers).collect::<Vec<_>>().into_iter();
        let number = |found: &Lookup| match found {
            Ok(Some(_)) => numbers.next().and_then(|(_, number)| number),
            _ => None,
        };
        let numbers: Vec<Option<Number>> = found.iter().map(number).collect();
        found.into_iter().zip(numbers).collect()
    }

    /// Asks until all is answered that the service answers: a question ends early, and a configuration may have many names.
    fn ask_all(self: &Arc<Self>, names: &[(&str, &str)]) -> Vec<Lookup> {
        let until = Instant::now() + RESOLVE_MAX;
        let mut missing = names.len();
        loop {
            let found = self.identities_of(names);
            let still = self.count_unanswered(names);
            if still == 0 || still >= missing || Instant::now() >= until {
                return found;
            }
            missing = still;
        }
    }

    /// Returns the last answer. Does not wait.
    fn seen(&self) -> Seen {
        let state = locked(&self.state);
        let machine = state.machine.as_ref().map(|(details, _)| details.clone());
        let away = state.away.clone().or_else(|| self.stuck());
        Seen { by: self.name(), checks_passwords: self.source.checks_passwords(), machine, away }
    }

    /// Returns why no further question may begin, although the service answers the watch.
    fn stuck(&self) -> Option<String> {
        let late = locked(&self.calls).late;
        [(About::Password, "about passwords"), (About::Other, "about names and numbers")]
            .into_iter()
            .find(|(about, _)| late[*about as usize] >= HELD_MAX)
            .map(|(_, what)| format!("{HELD_MAX} questions {what} have not returned"))
    }

    /// Asks for the names of machine and domain, and logs a change.
    fn look(self: &Arc<Self>) {
        let ask = |context: &mut Context| {
            let (details, domain) = context.own()?;
            // Only a list that is too new for this program is no reason to fail.
            let domains = context.domains().ok().flatten();
            Ok((details, domain, domains))
        };
        let answer = self.call_of_watch(ask);
        let mut state = locked(&self.state);
        let was_away = state.away.is_some();
        match answer {
            Ok((details, found, domains)) => {
                let kept = state.domain.as_ref().and_then(|domain| domain.identity());
                let machine = with_names(details, found, kept);
                state.away = None;
                if was_away {
                    self.names.end_rests();
                }
                state.domains = domains.or(state.domains.take());
                let is_new = state.machine.as_ref() != Some(&machine);
                let (details, identity) = &machine;
                if let (Some(domain), Some(identity)) = (&state.domain, identity) {
                    domain.know(identity.clone());
                }
                let is_machine =
                    |one: &&DomainNames| one.name.eq_ignore_ascii_case(&details.machine);
                let listed = state.domains.iter().flatten().find(is_machine);
                if let (Some(domain), Some(machine)) = (&state.domain, listed) {
                    domain.know_machine(&machine.sid);
                }
                if is_new || was_away {
                    let Details { machine, domain, dns_domain, .. } = details;
                    let by = self.name();
                    tracing::info!(
                        by,
                        machine,
                        domain,
                        dns_domain,
                        "the service of the domain answers"
                    );
                }
                state.machine = Some(machine);
                if let Some(domain) = &state.domain {
                    domain.callers().set_silent(false);
                }
            }
            Err(error) => {
                let why = match error {
                    // Its places are its own.
                    Error::Busy => format!("{WATCH_MAX} questions have not returned"),
                    error => error.to_string(),
                };
                if state.away.as_ref() != Some(&why) {
                    let by = self.name();
                    let what = what_fails(self.source.checks_passwords());
                    tracing::warn!(
                        by,
                        error = why,
                        "the service of the domain does not answer: {what}"
                    );
                }
                state.away = Some(why);
                if let Some(domain) = &state.domain {
                    domain.callers().set_silent(true);
                }
            }
        }
    }

    /// As [`Self::begin`], but while the service is known not to answer, it fails at once.
    fn call<T: Send + 'static>(
        self: &Arc<Self>,
        about: About,
        limit: Duration,
        ask: impl FnOnce(&mut Context) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        // The question must not hold the lock.
        let is_away = locked(&self.state).away.is_some();
        if is_away {
            return Err(Error::NotAvailable);
        }
        let call = Call::begin(self, about)?;
        self.begin(call, limit, ask)
    }

    /// Runs a question on a separate thread, for at most this time. A question that takes longer keeps its thread until it ends.
    fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        call: Arc<Call>,
        limit: Duration,
        ask: impl FnOnce(&mut Context) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = mpsc::channel();
        let running = Arc::downgrade(&call);
        let work = move || {
            let done = call.of.ask(ask);
            drop(call);
            // The caller may have gone.
            let _ = answer.send(done);
        };
        if thread::Builder::new().name("domain-call".into()).spawn(work).is_err() {
            return Err(Error::Busy);
        }
        answered.recv_timeout(limit).unwrap_or_else(|_| {
            if let Some(call) = running.upgrade() {
                call.is_over();
            }
            Err(Error::NotAvailable)
        })
    }

    /// As [`Self::begin`], for the watch: while the service is silent, its questions would soon hold all threads.
    fn call_of_watch<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(&mut Context) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let mut looking = locked(&self.looking);
        let is_asked = |(last, since): &(Weak<Call>, Instant)| {
            last.strong_count() > 0 && since.elapsed() < LOOK_AGAIN
        };
        if looking.as_ref().is_some_and(is_asked) {
            return Err(Error::NotAvailable);
        }
        let call = Call::begin(self, About::Watch)?;
        *looking = Some((Arc::downgrade(&call), Instant::now()));
        drop(looking);
        self.begin(call, ANSWER_MAX, ask)
    }

    fn ask<T>(&self, ask: impl FnOnce(&mut Context) -> Result<T, Error>) -> Result<T, Error> {
        let idle = locked(&self.contexts).pop();
        let mut context = idle.map_or_else(|| self.source.connect(), Ok)?;
        let answer = ask(&mut context);
        let mut idle = locked(&self.contexts);
        // Late questions give theirs back after others have got new ones.
        if answer.is_ok() && idle.len() < CALLS_MAX {
            idle.push(context);
        }
        drop(idle);
        answer
    }

    /// Returns whether this is the name of a domain, if that is known.
    fn knows_domain(&self, name: &str) -> Option<bool> {
        let state = locked(&self.state);
        let is = |one: &str| !one.is_empty() && one.eq_ignore_ascii_case(name);
        let own = state.machine.as_ref().map(|(details, _)| details);
        // The service may not know all names of its domain while it starts.
        if own.is_some_and(|own| is(&own.domain) || is(&own.dns_domain)) {
            return Some(true);
        }
        let kept = state.domain.as_ref().and_then(|domain| domain.identity());
        if own.is_none() && kept.is_some_and(|kept| is(&kept.name) || is(&kept.dns)) {
            return Some(true);
        }
        // The list has the machine's own names as well.
        let is_computer = own.is_some_and(|own| is(&own.machine));
        let of =
            |one: &DomainNames| one.sid.authority() == 5 && one.sid.subs().first() == Some(&21);
        let Some(listed) = state.domains.as_ref() else {
            // SSSD has no list. Where no password of a domain is checked, only names of the machine's domain matter.
            let is_known = own.is_some_and(|own| !own.domain.is_empty());
            return (is_known && !self.source.checks_passwords()).then_some(false);
        };
        Some(!is_computer && listed.iter().any(|one| of(one) && (is(&one.name) || is(&one.dns))))
    }

    /// Returns whether the service knows a domain of this name.
    fn is_domain(self: &Arc<Self>, name: &str) -> Result<bool, Error> {
        let key = name.to_lowercase();
        if let Some(known) = locked(&self.domains).fresh(&key) {
            return Ok(known.is_some());
        }
        let asked = key.clone();
        let answer = self.call(About::Other, ANSWER_MAX, move |context| context.domain(&asked));
        let mut domains = locked(&self.domains);
        match answer {
            Ok(found) => {
                match found {
                    None if !self.source.tells_of_controllers() => {
                        domains.keep_unsure(key, NAMES_MAX);
                    }
                    _ => domains.keep(key, found.is_some().then_some(()), NAMES_MAX),
                }
                Ok(domains.fresh(&name.to_lowercase()).is_some_and(|known| known.is_some()))
            }
            Err(error) => domains.any(&key).map(|known| known.is_some()).ok_or(error),
        }
    }

    /// Checks that a controller of the machine's domain answers the service, if that says so. Blocks for some seconds at most.
    pub(crate) fn reach_controller(self: &Arc<Self>) -> Result<(), Error> {
        let ask = |context: &mut Context| context.reach_controller(None);
        match self.call(About::Other, ANSWER_MAX, ask) {
            Err(Error::NotTold) => Ok(()),
            answer => answer,
        }
    }

    /// Checks that the domain accepts the account of the machine, if the service says so. Blocks for some seconds at most.
    pub(crate) fn check_trust(self: &Arc<Self>) -> Result<(), Error> {
        match self.call(About::Other, ANSWER_MAX, Context::check_trust) {
            Err(Error::NotTold) => Ok(()),
            answer => answer,
        }
    }

    /// Returns the numbers of these SIDs in their order.
    fn numbers_of(self: &Arc<Self>, sids: &[Sid]) -> Result<Vec<Option<Number>>, Error> {
        self.numbers_for(Asker::Logon, sids)
    }

    /// Returns whether one of these SIDs of the machine's domain may have a number, which a silent controller did not tell.
    fn has_open_number(&self, sids: &[Sid], numbers: &[Option<Number>]) -> bool {
        let none = sids.iter().zip(numbers).filter(|(_, number)| number.is_none());
        let mut own =
            none.map(|(sid, _)| sid).filter(|sid| matches!(self.whose_sid(sid), Whose::Own));
        self.source.tells_of_controllers() && own.any(|sid| locked(&self.numbers).is_open(sid))
    }

    /// Returns whether a controller of the machine's domain answers. An error says nothing about it.
    fn is_controller_there(self: &Arc<Self>, asker: Asker, rest: Duration) -> Result<bool, Error> {
        let ping = |context: &mut Context| context.reach_controller(None);
        let answer = match asker {
            _ if rest <= PING_MIN => Err(Error::Unfinished),
            Asker::Logon => self.call(About::Other, rest, ping),
            // A silent controller is no reason for a pause: the service answers other questions itself.
            Asker::Owner => self.ask_names(rest, ping),
        };
        match answer {
            Err(error @ (Error::Busy | Error::Unfinished)) => Err(error),
            answer => Ok(answer.is_ok()),
        }
    }

    /// Keeps what was answered about a SID before the answer is whole. An earlier number stays.
    fn keep_number(&self, sid: &Sid, number: Option<Number>) {
        let mut numbers = locked(&self.numbers);
        match number.or_else(|| numbers.any(sid).flatten()) {
            None => numbers.keep_unsure(sid.clone(), NUMBERS_MAX),
            number => numbers.keep(sid.clone(), number, NUMBERS_MAX),
        }
    }

    fn numbers_for(
        self: &Arc<Self>,
        asker: Asker,
        sids: &[Sid],
    ) -> Result<Vec<Option<Number>>, Error> {
        let mut found: Vec<_> = {
            let numbers = locked(&self.numbers);
            sids.iter().map(|sid| numbers.fresh(sid)).collect()
        };
        let missing = sids.iter().zip(&found).filter(|(_, found)| found.is_none());
        let asked: Vec<Sid> = missing.map(|(sid, _)| sid.clone()).collect();
        if asked.is_empty() {
            return Ok(found.into_iter().map(Option::flatten).collect());
        }
        let (its, all, began) = (self.clone(), asked.clone(), Instant::now());
        let numbers = move |context: &mut Context| {
            // The next logon of a user with many groups continues after the last answer.
            context
                .numbers(&all, began + QUESTIONS_TIME, |sid, number| its.keep_number(sid, number))
        };
        let answer = match asker {
            Asker::Logon => self.call(About::Other, ANSWER_MAX, numbers),
            Asker::Owner => self.ask_owners(ANSWER_MAX, numbers),
        };
        // The numbers may come from the directory, and then need a controller. The others are good without its answer.
        let answer = answer.and_then(|numbers| {
            let rest = ANSWER_MAX.saturating_sub(began.elapsed());
            let is_sure = !numbers.contains(&None)
                || self.source.tells_of_controllers() && self.is_controller_there(asker, rest)?;
            Ok((numbers, is_sure))
        });
        let are_own: Vec<bool> =
            asked.iter().map(|sid| matches!(self.whose_sid(sid), Whose::Own)).collect();
        let mut numbers = locked(&self.numbers);
        let answered: Vec<Option<Number>> = match answer {
            Ok((mut answered, is_sure)) => {
                for ((sid, is_own), number) in asked.iter().zip(are_own).zip(&mut answered) {
                    *number = number.or_else(|| numbers.any(sid).flatten());
                    match number {
                        None if !is_sure || !is_own => {
                            numbers.keep_unsure(sid.clone(), NUMBERS_MAX);
                        }
                        _ => numbers.keep(sid.clone(), *number, NUMBERS_MAX),
                    }
                }
                answered
            }
            Err(error) => {
                let tells = self.source.tells_of_controllers();
                let kept = asked.iter().zip(are_own).map(|(sid, is_own)| {
                    numbers.any(sid).filter(|_| !(tells && is_own && numbers.is_open(sid)))
                });
                kept.collect::<Option<_>>().ok_or(error)?
            }
        };
        let mut answered = answered.into_iter();
        for place in found.iter_mut().filter(|place| place.is_none()) {
            *place = answered.next();
        }
        Ok(found.into_iter().map(Option::flatten).collect())
    }
}

/// Engine that questions of logons share.
pub(crate) struct OfHost(pub(crate) Arc<DomainService>);

impl OfHost {
    /// Refuses a password that no service checks, unless its user may be an account of the gateway.
    fn refuse(&self, Question { account, .. }: &Question) -> Verdict {
        let is_local = match (&*account.domain, account.user.rsplit_once('@')) {
            ("", None) => true,
            ("", Some((_, domain))) => self.0.knows_domain(domain) != Some(true),
            (domain, _) => self.0.knows_domain(domain) == Some(false),
        };
        if is_local {
            return Verdict::NoDomain;
        }
        let detail = format!("`domain: {{by: {}}}`", self.0.name());
        Verdict::Refused(Refused { why: Why::NoPasswords, detail })
    }
}

fn away(error: &Error) -> Refused {
    Refused { why: Why::Away, detail: error.to_string() }
}

fn numbers(users: &[u32], groups: &[u32]) -> Vec<Number> {
    let users = users.iter().map(|uid| Number::Uid(*uid));
    users.chain(groups.iter().map(|gid| Number::Gid(*gid))).collect()
}

impl Engine for OfHost {
    fn machine(&self) -> Option<Identity> {
        let state = locked(&self.0.state);
        let (Details { machine, domain, dns_domain, .. }, _) = state.machine.as_ref()?;
        if domain.is_empty() {
            return None;
        }
        let (computer, dns_domain) = (machine.to_uppercase(), dns_domain.to_lowercase());
        let dns_computer = match dns_domain.as_str() {
            "" => machine.to_lowercase(),
            of => format!("{}.{of}", machine.to_lowercase()),
        };
        Some(Identity { computer, domain: domain.clone(), dns_computer, dns_domain })
    }

    fn knows_domain(&self, name: &str) -> Option<bool> {
        self.0.knows_domain(name)
    }

    fn is_domain(&self, name: &str) -> Result<bool, Refused> {
        match self.0.knows_domain(name) {
            Some(known) => Ok(known),
            None => match self.0.is_domain(name) {
                // Only an account of the gateway has a password here: SSSD cannot check one of the domain, whatever it is called.
                Err(_) if !self.0.source.checks_passwords() => Ok(false),
                answer => answer.map_err(|error| away(&error)),
            },
        }
    }

    fn names(&self, sids: &[Sid]) -> Vec<Lookup> {
        self.0.names_of(sids)
    }

    fn identities(&self, names: &[(&str, &str)]) -> Vec<Lookup> {
        self.0.identities_of(names)
    }

    fn knows_owners(&self, users: &[u32], groups: &[u32]) -> bool {
        self.0.knows_owners(&numbers(users, groups))
    }

    fn learn_owners(&self, users: &[u32], groups: &[u32]) {
        self.0.sids_of(&numbers(users, groups));
    }

    fn learn_numbers(&self, user: Option<&Sid>, group: Option<&Sid>) -> bool {
        self.0.learn_numbers(user, group)
    }

    fn ask(&self, question: &Question) -> Verdict {
        let domain = &question.account.domain;
        if !self.0.source.checks_passwords() {
            return self.refuse(question);
        }
        let its = question.clone();
        let answer = self.0.call(About::Password, PASSWORD_MAX, move |context| {
            let Question { account, challenge, nt, .. } = &its;
            context.authenticate(&Response {
                user: &account.user,
                domain: &account.domain,
                workstation: &account.workstation,
                challenge: *challenge,
                nt,
            })
        });
        match answer {
            Err(error) => Verdict::Refused(away(&error)),
            Ok(Err(refused))
                if refused.status == NO_SUCH_USER && self.knows_domain(domain) != Some(true) =>
            {
                Verdict::NoDomain
            }
            Ok(Err(refused)) => {
                Verdict::Refused(Refused { why: why(refused.status), detail: refused.name })
            }
            Ok(Ok(user)) => Verdict::Confirmed(Box::new(Confirmed {
                name: user.name,
                domain: user.domain,
                user: user.user,
                primary_group: user.primary_group,
                groups: user.groups,
                key: user.key,
            })),
        }
    }

    fn numbers(&self, user: &Sid, primary: &Sid, groups: &[Sid]) -> Result<Numbers, Refused> {
        // Well-known identifiers and aliases of a computer are no users or groups of a domain.
        let is_of_domain = |sid: &&Sid| sid.authority() == 5 && sid.subs().first() == Some(&21);
        let others = groups.iter().filter(is_of_domain).take(SIDS_MAX);
        let all: Vec<Sid> = [user, primary].into_iter().chain(others).cloned().collect();
        let numbers = self.0.numbers_of(&all).map_err(|error| away(&error))?;
        if self.0.has_open_number(&all, &numbers) {
            return Err(away(&Error::NoController));
        }
        let mut numbers = numbers.into_iter();
        let none = |sid: &Sid| Refused { why: Why::NoNumber, detail: sid.to_string() };
        let gid = |number: Option<Number>| match number {
            // Groups of the superuser and of guests are no groups of a domain.
            Some(Number::Gid(gid) | Number::Both(gid)) if ![0, ANONYMOUS].contains(&gid) => {
                Some(gid)
            }
            _ => None,
        };
        let uid = match numbers.next().flatten() {
            Some(Number::Uid(uid) | Number::Both(uid)) => uid,
            _ => return Err(none(user)),
        };
        let primary = gid(numbers.next().flatten()).ok_or_else(|| none(primary))?;
        Ok(Numbers { uid, gid: primary, groups: numbers.filter_map(gid).collect() })
    }
}

/// STATUS_NO_SUCH_USER.
const NO_SUCH_USER: u32 = 0xc000_0064;

/// Returns what a controller's status means (MS-ERREF section 2.3.1).
fn why(status: u32) -> Why {
    match status {
        // STATUS_WRONG_PASSWORD, STATUS_LOGON_FAILURE
        NO_SUCH_USER | 0xc000_006a | 0xc000_006d => Why::WrongPassword,
        // STATUS_ACCESS_DENIED, NO_LOGON_SERVERS, IO_TIMEOUT, NO_SUCH_DOMAIN, INVALID_COMPUTER_NAME, NO_TRUST_LSA_SECRET,
        // NO_TRUST_SAM_ACCOUNT, TRUSTED_DOMAIN_FAILURE, TRUSTED_RELATIONSHIP_FAILURE, DOMAIN_CONTROLLER_NOT_FOUND
        0xc000_0022 | 0xc000_005e | 0xc000_00b5 | 0xc000_00df | 0xc000_0122 | 0xc000_018a
        | 0xc000_018b | 0xc000_018c | 0xc000_018d | 0xc000_0233 => Why::Away,
        _ => Why::Account,
    }
}

#[cfg(test)]
mod tests;
