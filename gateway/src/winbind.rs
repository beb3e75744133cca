//! The winbindd of this host, which knows the users of its domain: one for all shares and protocols.
//!
//! *Operation.* A thread asks every [`ASK_AGAIN`] whether winbindd answers, and so learns the names of the machine and of all
//! domains. Questions run on separate threads with a time limit, because the library may wait for minutes. Numbers and names are
//! kept for [`kept::KEPT`], negative answers for [`kept::KEPT_NONE`]; while winbindd does not answer, they stay valid. Answers
//! about passwords are not kept. The library connects again when winbindd is back.
//!
//! *Memory.* At most [`CALLS_MAX`] questions in time and as many idle connections to winbindd. A question that takes longer keeps
//! its thread and connection: at most [`HELD_MAX`] for passwords and as many for all else, half of them for one client, and
//! [`WATCH_MAX`] of the watch. [`NUMBERS_MAX`] numbers and [`NAMES_MAX`] names of domains.
//!
//! *Errors.* [`Why::Away`] if winbindd does not answer and nothing is kept; status, log and `check` have the reason.

mod directory;
mod groups;
mod kept;
mod names;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use mutex::locked;
use rdma_transport::parts::{Limit, Part, Parts};
use smb_auth::Identity;
use smb_auth::relay::{Question, Refused, Why};
use smbd_core::domain_engine::{Confirmed, Engine, Lookup, Numbers, Verdict};
use vfs::acl::Sid;
use vfs::{ANONYMOUS, Domain, DomainIdentity};
use wbclient_sys::{Context, Details, DomainNames, Error, Number, Response};

pub(crate) use directory::NfsNames;
pub(crate) use groups::{Group, Groups, groups_of};
use kept::Kept;
pub(crate) use names::{LIMIT as NAMES_LIMIT, LIMIT_OF_ADDRESS as NAMES_LIMIT_OF_ADDRESS};
use names::{Names, Whose};

/// Time between two questions whether winbindd answers.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// The same while it does not.
const ASK_SOON: Duration = Duration::from_secs(2);
/// Time limit of a question about names and numbers.
const ANSWER_MAX: Duration = Duration::from_secs(3);
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
pub(crate) const PASSWORDS_LIMIT: &str = "winbind-passwords";
pub(crate) const PASSWORDS_LIMIT_OF_ADDRESS: &str = "winbind-passwords-of-address";
pub(crate) const QUESTIONS_LIMIT: &str = "winbind-questions";
pub(crate) const QUESTIONS_LIMIT_OF_ADDRESS: &str = "winbind-questions-of-address";
const WATCH_LIMIT: &str = "winbind-watch";
/// While the last question of the watch has not returned, it asks again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Most SIDs whose numbers are kept.
const NUMBERS_MAX: usize = 65_536;
/// Most names of domains that are kept; clients invent them.
const NAMES_MAX: usize = 1024;
/// Most groups about which one question asks.
const SIDS_MAX: usize = 4096;

static OF_HOST: LazyLock<Arc<Winbind>> = LazyLock::new(Arc::default);

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
    /// Whether winbindd answers. It needs no place among the questions in time.
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
    of: Arc<Winbind>,
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
    fn begin(of: &Arc<Winbind>, about: About) -> Result<Arc<Self>, Error> {
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

/// The winbindd of this host.
#[derive(Default)]
pub(crate) struct Winbind {
    state: Mutex<State>,
    contexts: Mutex<Vec<Context>>,
    calls: Mutex<Calls>,
    held: Held,
    /// The last question of the watch, and its time.
    looking: Mutex<Option<(Weak<Call>, Instant)>>,
    numbers: Mutex<Kept<Sid, Number>>,
    domains: Mutex<Kept<String, ()>>,
    names: Names,
    has_thread: AtomicBool,
    /// The configuration names winbind.
    is_wanted: AtomicBool,
}

/// The state for `check` and status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Names of the machine and its domain, from the last answer.
    pub(crate) machine: Option<Details>,
    pub(crate) away: Option<String>,
}

/// Starts to ask the winbindd of this host, for the gateway of this domain. Blocks for some seconds at most.
pub(crate) fn start(domain: Option<Arc<Domain>>) -> Arc<Winbind> {
    let winbind = OF_HOST.clone();
    winbind.is_wanted.store(true, Ordering::SeqCst);
    locked(&winbind.state).domain = domain;
    winbind.look();
    if !winbind.has_thread.swap(true, Ordering::SeqCst) {
        let its = winbind.clone();
        let watch = move || {
            loop {
                let is_away = locked(&its.state).away.is_some();
                thread::sleep(if is_away { ASK_SOON } else { ASK_AGAIN });
                if its.is_wanted.load(Ordering::SeqCst) {
                    its.look();
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("winbind".into()).spawn(watch) {
            winbind.has_thread.store(false, Ordering::SeqCst);
            tracing::warn!(%error, "winbind is not watched");
        }
    }
    winbind
}

/// Ends the questions: the configuration names winbind no more.
pub(crate) fn stop() {
    OF_HOST.is_wanted.store(false, Ordering::SeqCst);
}

/// Returns what winbind answered last; `None` if the configuration does not name it. Does not wait.
pub(crate) fn seen() -> Option<Seen> {
    OF_HOST.is_wanted.load(Ordering::SeqCst).then(|| OF_HOST.seen())
}

/// Asks the winbindd of this host once. Blocks for some seconds at most.
pub(crate) fn seen_now() -> Seen {
    OF_HOST.look();
    OF_HOST.seen()
}

/// Returns the name of the machine's domain, from winbind or from an earlier answer. Blocks for some seconds at most.
pub(crate) fn domain(domain: &Domain) -> Option<String> {
    OF_HOST.look_first();
    let told = OF_HOST.seen().machine.map(|machine| machine.domain);
    told.or_else(|| domain.identity().map(|kept| kept.name.clone()))
}

/// Asks the winbindd of this host about these names with their domains, and the numbers of those found, for a configuration.
/// Earlier answers count only while winbindd is silent, and negative ones never. Blocks for some seconds at most.
pub(crate) fn resolve(names: &[(&str, &str)]) -> Vec<(Lookup, Option<Number>)> {
    if names.is_empty() {
        return Vec::new();
    }
    OF_HOST.look_first();
    OF_HOST.resolve(names)
}

impl Winbind {
    /// Asks whether winbindd answers, if that was never asked: in a command that reads the configuration.
    fn look_first(self: &Arc<Self>) {
        let has_looked = {
            let state = locked(&self.state);
            state.machine.is_some() || state.away.is_some()
        };
        if !has_looked {
            self.look();
        }
    }

    fn resolve(self: &Arc<Self>, names: &[(&str, &str)]) -> Vec<(Lookup, Option<Number>)> {
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

    /// Asks until all is answered that winbindd answers: a question ends early, and a configuration may have many names.
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
        Seen { machine, away: state.away.clone().or_else(|| self.stuck()) }
    }

    /// Returns why no further question may begin, although winbindd answers the watch.
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
            let details = context.details()?;
            let domain = context.domain(&details.domain)?;
            let identity = domain.map(|found| DomainIdentity {
                sid: found.sid,
                name: found.name,
                dns: found.dns.to_lowercase(),
            });
            // Only a list that is too new for this program is no reason to fail.
            let domains = context.domains().ok().flatten();
            Ok((details, identity, domains))
        };
        let answer = self.call_of_watch(ask);
        let mut state = locked(&self.state);
        let was_away = state.away.is_some();
        match answer {
            Ok((details, identity, domains)) => {
                let machine = (details, identity);
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
                if is_new || was_away {
                    let Details { machine, domain, dns_domain, .. } = details;
                    tracing::info!(machine, domain, dns_domain, "winbind answers");
                }
                state.machine = Some(machine);
            }
            Err(error) => {
                let why = match error {
                    // Its places are its own.
                    Error::Busy => format!("{WATCH_MAX} questions have not returned"),
                    error => error.to_string(),
                };
                if state.away.as_ref() != Some(&why) {
                    tracing::warn!(
                        error = why,
                        "winbind does not answer: passwords of the domain cannot be checked"
                    );
                }
                state.away = Some(why);
            }
        }
    }

    /// As [`Self::begin`], but while winbindd is known not to answer, it fails at once.
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
        if thread::Builder::new().name("winbind-call".into()).spawn(work).is_err() {
            return Err(Error::Busy);
        }
        answered.recv_timeout(limit).unwrap_or_else(|_| {
            if let Some(call) = running.upgrade() {
                call.is_over();
            }
            Err(Error::NotAvailable)
        })
    }

    /// As [`Self::begin`], for the watch: with a silent winbindd its questions would soon hold all threads.
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
        let mut context = idle.map_or_else(Context::new, Ok)?;
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
        // winbindd may not know all names of its domain while it starts.
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
        let listed = state.domains.as_ref()?;
        Some(!is_computer && listed.iter().any(|one| of(one) && (is(&one.name) || is(&one.dns))))
    }

    /// Returns whether winbindd knows a domain of this name.
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
                domains.keep(key, found.is_some().then_some(()), NAMES_MAX);
                Ok(domains.fresh(&name.to_lowercase()).is_some_and(|known| known.is_some()))
            }
            Err(error) => domains.any(&key).map(|known| known.is_some()).ok_or(error),
        }
    }

    /// Returns the numbers of these SIDs in their order.
    fn numbers_of(self: &Arc<Self>, sids: &[Sid]) -> Result<Vec<Option<Number>>, Error> {
        self.numbers_for(Asker::Logon, sids)
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
        let (its, began) = (asked.clone(), Instant::now());
        let numbers = move |context: &mut Context| context.numbers(&its);
        let answer = match asker {
            Asker::Logon => self.call(About::Other, ANSWER_MAX, numbers),
            Asker::Owner => self.ask_owners(ANSWER_MAX, numbers),
        };
        // The numbers may come from the directory, and then need a controller. The others are good without its answer.
        let answer = answer.map(|numbers| {
            let rest = ANSWER_MAX.saturating_sub(began.elapsed());
            let ping = |context: &mut Context| context.reach_controller(None);
            let is_sure = !numbers.contains(&None)
                || rest > PING_MIN
                    && match asker {
                        Asker::Logon => self.call(About::Other, rest, ping),
                        // A silent controller is no reason for a pause: winbindd answers other questions itself.
                        Asker::Owner => self.ask_names(rest, ping),
                    }
                    .is_ok();
            (numbers, is_sure)
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
                let kept = asked.iter().map(|sid| numbers.any(sid));
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
pub(crate) struct OfHost(pub(crate) Arc<Winbind>);

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
            None => self.0.is_domain(name).map_err(|error| away(&error)),
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

    fn learn_numbers(&self, user: Option<&Sid>, group: Option<&Sid>) {
        self.0.learn_numbers(user, group);
    }

    fn ask(&self, question: &Question) -> Verdict {
        let domain = &question.account.domain;
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
mod tests {
    use super::*;

    /// MS-ERREF section 2.3.1.
    #[test]
    fn status_of_controller_is_told_apart() {
        for (status, wanted) in [
            (0xc000_006a, Why::WrongPassword),
            (0xc000_0064, Why::WrongPassword),
            // STATUS_ACCOUNT_DISABLED, STATUS_ACCOUNT_LOCKED_OUT, STATUS_PASSWORD_EXPIRED
            (0xc000_0072, Why::Account),
            (0xc000_0234, Why::Account),
            (0xc000_0071, Why::Account),
            // STATUS_NO_LOGON_SERVERS
            (0xc000_005e, Why::Away),
        ] {
            assert_eq!(why(status), wanted, "{status:#x}");
        }
    }

    #[test]
    fn own_names_are_those_of_the_account() {
        let of = OfHost(Arc::default());
        assert!(of.machine().is_none());
        assert_eq!(of.knows_domain("LAB"), None, "before the first answer");
        let details = Details {
            machine: "GW".into(),
            domain: "LAB".into(),
            dns_domain: "lab.test".into(),
            version: String::new(),
        };
        locked(&of.0.state).machine = Some((details, None));
        let identity = of.machine().unwrap();
        assert_eq!((&*identity.computer, &*identity.domain), ("GW", "LAB"));
        assert_eq!((&*identity.dns_computer, &*identity.dns_domain), ("gw.lab.test", "lab.test"));
        let knows = |name: &str| of.knows_domain(name);
        assert_eq!(
            [knows("lab"), knows("LAB.TEST"), knows("OTHER")],
            [Some(true), Some(true), None]
        );
        let listed = |name: &str, sid: &str| DomainNames {
            name: name.into(),
            dns: format!("{}.test", name.to_lowercase()),
            sid: sid.parse().unwrap(),
        };
        locked(&of.0.state).domains = Some(vec![
            listed("BUILTIN", "S-1-5-32"),
            listed("GW", "S-1-5-21-9-9-9"),
            listed("OTHER", "S-1-5-21-4-5-6"),
        ]);
        let told = ["OTHER", "other.test", "BUILTIN", "GW", "WORKGROUP"].map(knows);
        assert_eq!(told, [true, true, false, false, false].map(Some));
        // The list stays valid during silence.
        locked(&of.0.state).away = Some("silent".into());
        assert_eq!([knows("OTHER"), knows("WORKGROUP")], [Some(true), Some(false)]);
        assert_eq!(of.is_domain("WORKGROUP"), Ok(false));
    }

    /// A logon that names no domain, and the watch, do not wait for the questions of others.
    #[test]
    fn questions_hold_no_lock() {
        let of = OfHost(Arc::default());
        let its = of.0.clone();
        let ask = move |_: &mut Context| Ok(locked(&its.state).away.is_none());
        match of.0.call(About::Other, ANSWER_MAX, ask) {
            Ok(is_read) => assert!(is_read),
            // The library is not installed.
            Err(error) => assert!(matches!(error, Error::NoLibrary(_)), "{error}"),
        }
    }

    /// A reload asks about all names of the configuration again.
    #[test]
    fn kept_names_resolve_only_in_silence() {
        let winbind = Arc::<Winbind>::default();
        locked(&winbind.state).away = Some("silent".into());
        let sid = Sid::new(5, &[21, 1, 2, 3, 1103]).unwrap();
        let (domain, name) = ("LAB".to_owned(), "alice".to_owned());
        let kind = smbd_core::domain_engine::NamedKind::User;
        let alice = smbd_core::domain_engine::Named { sid: sid.clone(), kind, domain, name };
        winbind.say(("LAB", "alice"), alice.clone(), Number::Uid(3001));
        assert_eq!(winbind.knows_afresh(("LAB", "alice"), &sid), [true; 2]);
        let told = winbind.resolve(&[("LAB", "alice")]);
        assert_eq!(told, [(Ok(Some(alice.clone())), Some(Number::Uid(3001)))]);
        assert_eq!(winbind.knows_afresh(("LAB", "alice"), &sid), [false; 2], "it is asked again");
        winbind.say(("LAB", "alice"), alice, Number::Uid(3001));
        assert_eq!(winbind.count_unanswered(&[("lab", "ALICE"), ("LAB", "bob")]), 1);
    }

    /// Questions that never return take no place of others, and their threads have limits as well.
    #[test]
    fn late_questions_leave_their_places() {
        let winbind = Arc::<Winbind>::default();
        let begin = |about, at: u8| {
            let _client = iobuf::ClientWork::begin([192, 0, 2, at].into());
            Call::begin(&winbind, about)
        };
        let all: Vec<_> = (0..CALLS_MAX).map(|_| begin(About::Password, 1).unwrap()).collect();
        assert!(begin(About::Password, 2).is_err() && begin(About::Other, 2).is_err());
        // The watch has places of its own.
        drop(begin(About::Watch, 1).unwrap());
        all.iter().for_each(|call| call.is_over());
        all[0].is_over();
        let counts = || {
            let calls = locked(&winbind.calls);
            (calls.in_time, calls.late)
        };
        assert_eq!(counts(), (0, [CALLS_MAX, 0, 0]));
        // This client has its part; others have theirs.
        assert_eq!(all.len(), HELD_MAX / 2);
        assert!(begin(About::Password, 1).is_err());
        drop(begin(About::Other, 1).unwrap());
        let mut late = all;
        while let Ok(call) = begin(About::Password, 2) {
            assert_eq!(winbind.seen().away, None);
            call.is_over();
            late.push(call);
        }
        assert_eq!(late.len(), HELD_MAX);
        let why = winbind.seen().away.unwrap();
        assert_eq!(why, "32 questions about passwords have not returned");
        drop(begin(About::Other, 3).unwrap());
        drop(late);
        assert_eq!((counts(), winbind.seen().away), ((0, [0; 3]), None));
        // The watch does not ask again at once.
        let asked = begin(About::Watch, 1).unwrap();
        *locked(&winbind.looking) = Some((Arc::downgrade(&asked), Instant::now()));
        let none = |_: &mut Context| -> Result<(), Error> { panic!("it has asked") };
        assert_eq!(winbind.call_of_watch(none), Err(Error::NotAvailable));
        // It says so if none of its questions returns.
        *locked(&winbind.looking) = None;
        let stuck: Vec<_> = (1..WATCH_MAX).map(|_| begin(About::Watch, 1).unwrap()).collect();
        winbind.look();
        assert_eq!(winbind.seen().away.unwrap(), "4 questions have not returned");
        drop(stuck);
    }

    /// While winbindd is silent, no thread waits for it, and kept numbers serve.
    #[test]
    fn silence_fails_at_once() {
        let of = OfHost(Arc::default());
        locked(&of.0.state).away = Some("silent".into());
        let sid = |rid| Sid::new(5, &[21, 1, 2, 3, rid]).unwrap();
        let (user, group) = (sid(1103), sid(513));
        let refused = of.numbers(&user, &group, &[]).unwrap_err();
        assert_eq!(refused.why, Why::Away);
        locked(&of.0.numbers).keep(user.clone(), Some(Number::Both(1001)), 10);
        locked(&of.0.numbers).keep(group.clone(), Some(Number::Gid(100)), 10);
        let numbers = of.numbers(&user, &group, &[]).unwrap();
        assert_eq!((numbers.uid, numbers.gid), (1001, 100));
        let unknown = of.numbers(&user, &group, &[sid(1200)]).unwrap_err();
        assert_eq!(unknown.why, Why::Away, "mode bits would decide without this group");
        assert_eq!(locked(&of.0.calls).in_time, 0);
    }
}
