//! Clients by name: host names, patterns of names and netgroups, as in exports(5).
//!
//! *Operation.* A call asks the table [`ClientNames`], and never the name service: the listener that accepts connections has asked
//! the service before ([`crate::hosts`]). A host name is matched by its addresses; a pattern and a netgroup are matched by those
//! names of a client's address that resolve back to it.
//!
//! *Memory.* [`CLIENTS_MAX`] clients; the one with the oldest answer makes room, and clients without a name go first, because
//! senders of datagrams may be invented.
//!
//! *Errors.* An answer is valid for [`AGE_MAX`]. Answers that are older or missing count as unknown (`None`), so that a share can
//! refuse access which the missing name might have forbidden.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use mutex::{reading, writing};

/// Largest number of clients whose names are stored.
pub const CLIENTS_MAX: usize = 16_384;
/// How long an answer of the name service is valid.
pub const AGE_MAX: Duration = Duration::from_secs(900);

/// How an entry of `clients` names hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// One host: every client with an address of this name.
    Host,
    /// Hosts whose name matches the pattern; `*`, `?` and `[...]` match any characters, including dots.
    Pattern,
    /// Hosts of this netgroup (innetgr(3)).
    Netgroup,
}

/// A name for hosts, and the table with the answers about it.
#[derive(Clone, Debug)]
pub struct HostName {
    /// The name, the pattern, or the netgroup without its `@`.
    pub name: Arc<str>,
    pub kind: NameKind,
    /// The answers of the name service.
    pub known: Arc<ClientNames>,
}

/// Two entries are equal if they name the same hosts, whatever the table contains.
impl PartialEq for HostName {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.kind) == (&other.name, other.kind)
    }
}

impl Eq for HostName {}

impl HostName {
    /// Returns whether this address matches; `None` if that is unknown.
    pub fn has(&self, ip: IpAddr, now: Instant) -> Option<bool> {
        self.known.has(self.kind, &self.name, ip.to_canonical(), now)
    }
}

impl std::fmt::Display for HostName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.kind == NameKind::Netgroup { "@" } else { "" };
        write!(f, "{sign}{}", self.name)
    }
}

/// The answers of the name service about one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFacts {
    /// The names that resolve back to its address.
    pub names: Vec<String>,
    /// The requested netgroups, and whether the client is in each; `None` if the name service did not answer.
    pub netgroups: Vec<(Arc<str>, Option<bool>)>,
}

#[derive(Clone, Debug)]
struct Answer<T> {
    of: T,
    at: Instant,
}

impl<T> Answer<T> {
    fn believed(&self, now: Instant) -> Option<&T> {
        (now.saturating_duration_since(self.at) < AGE_MAX).then_some(&self.of)
    }
}

/// The stored answers about a client. Each netgroup has a separate age: an unavailable one keeps its earlier answer.
#[derive(Debug)]
struct Client {
    names: Answer<Vec<String>>,
    /// `None`: it was asked for, without an answer.
    netgroups: Vec<(Arc<str>, Option<Answer<bool>>)>,
    /// True if the last look-up found a name, and every netgroup answered.
    is_whole: bool,
}

impl Client {
    fn netgroup(&self, name: &str) -> Option<&Answer<bool>> {
        self.netgroups.iter().find(|(group, _)| **group == *name)?.1.as_ref()
    }

    /// Returns the names and answers, without their ages.
    fn facts(&self) -> (&[String], Vec<(&str, Option<bool>)>) {
        let groups =
            self.netgroups.iter().map(|(name, is_in)| (&**name, is_in.as_ref().map(|a| a.of)));
        (&self.names.of, groups.collect())
    }
}

#[derive(Debug, Default)]
struct Table {
    hosts: HashMap<Arc<str>, Answer<Vec<IpAddr>>>,
    clients: HashMap<IpAddr, Client>,
}

/// The answers of the name service about hosts and clients.
#[derive(Debug, Default)]
pub struct ClientNames(RwLock<Table>);

impl ClientNames {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        reading(&self.0)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        writing(&self.0)
    }

    fn has(&self, kind: NameKind, name: &str, ip: IpAddr, now: Instant) -> Option<bool> {
        let table = self.read();
        if kind == NameKind::Host {
            return Some(table.hosts.get(name)?.believed(now)?.contains(&ip));
        }
        let client = table.clients.get(&ip)?;
        match kind {
            NameKind::Netgroup => client.netgroup(name)?.believed(now).copied(),
            _ => Some(client.names.believed(now)?.iter().any(|own| is_like(own, name))),
        }
    }

    /// Stores the current addresses of a host name.
    pub fn set_host(&self, name: Arc<str>, addresses: Vec<IpAddr>, now: Instant) {
        self.write().hosts.insert(name, Answer { of: addresses, at: now });
    }

    /// Stores the current answers about a client. A netgroup that did not answer keeps its earlier answer while that is valid. True
    /// if the answers differ from before.
    pub fn set_client(&self, ip: IpAddr, facts: ClientFacts, now: Instant) -> bool {
        let mut table = self.write();
        let before = table.clients.remove(&ip);
        let is_whole =
            !facts.names.is_empty() && facts.netgroups.iter().all(|(_, is_in)| is_in.is_some());
        let answer = |name: &str, is_in: Option<bool>| match is_in {
            Some(of) => Some(Answer { of, at: now }),
            None => before.as_ref()?.netgroup(name).filter(|a| a.believed(now).is_some()).cloned(),
        };
        let netgroups = facts.netgroups.into_iter().map(|(name, is_in)| {
            let answer = answer(&name, is_in);
            (name, answer)
        });
        let netgroups = netgroups.collect();
        let client = Client { names: Answer { of: facts.names, at: now }, netgroups, is_whole };
        let is_new = before.is_none_or(|before| before.facts() != client.facts());
        if table.clients.len() >= CLIENTS_MAX {
            // A sender that invents addresses must not displace clients with names.
            let age = |client: &Client| (!client.names.of.is_empty(), client.names.at);
            let first = table.clients.iter().min_by_key(|(_, known)| age(known));
            let first = first.map(|(ip, _)| *ip);
            first.and_then(|first| table.clients.remove(&first));
        }
        table.clients.insert(ip, client);
        is_new
    }

    /// Returns the time of the last answer about this client, and whether the answer was complete: a name, and each netgroup.
    pub fn of_client(&self, ip: IpAddr) -> Option<(Instant, bool)> {
        self.read().clients.get(&ip).map(|known| (known.names.at, known.is_whole))
    }

    /// Returns true if the last look-up of the client asked for this netgroup.
    pub fn has_asked(&self, ip: IpAddr, netgroup: &str) -> bool {
        let table = self.read();
        let known = table.clients.get(&ip);
        known.is_some_and(|known| known.netgroups.iter().any(|(name, _)| **name == *netgroup))
    }

    /// Returns the time of the last answer about this host name, and its addresses.
    pub fn of_host(&self, name: &str) -> Option<(Instant, Vec<IpAddr>)> {
        self.read().hosts.get(name).map(|known| (known.at, known.of.clone()))
    }

    /// Returns every client with a stored answer.
    pub fn clients(&self) -> Vec<IpAddr> {
        self.read().clients.keys().copied().collect()
    }

    /// Removes the hosts for which `host` returns false, and the clients whose answers have all expired.
    pub fn retain(&self, host: impl Fn(&str) -> bool, now: Instant) {
        let mut table = self.write();
        table.hosts.retain(|name, _| host(name));
        table.clients.retain(|_, known| known.names.believed(now).is_some());
    }
}

/// Checks whether the name matches the pattern, ignoring case. As in exports(5): `*` matches any number of characters, including
/// dots, `?` one character, `[a-c]` one of these and `[^a-c]` any other.
pub fn is_like(name: &str, pattern: &str) -> bool {
    let lower = |text: &str| text.trim_end_matches('.').to_ascii_lowercase().into_bytes();
    let (name, pattern) = (lower(name), lower(pattern));
    // The position of the last `*`, and how much of the name it matches: the only place to backtrack to.
    let (mut n, mut p, mut star) = (0, 0, None);
    while n < name.len() {
        match part(&pattern[p..]) {
            Some((Part::Any, length)) => {
                p += length;
                star = Some((p, n));
                continue;
            }
            Some((one, length)) if one.is(name[n]) => {
                (n, p) = (n + 1, p + length);
                continue;
            }
            _ => {}
        }
        let Some((after, from)) = star else { return false };
        (n, p) = (from + 1, after);
        star = Some((after, n));
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// A part of a pattern.
enum Part<'a> {
    Any,
    One,
    Of(&'a [u8]),
    Literal(u8),
}

impl Part<'_> {
    fn is(&self, c: u8) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Literal(own) => *own == c,
            Self::Of(set) => {
                let (not, set) = match set {
                    [b'^' | b'!', rest @ ..] => (true, rest),
                    all => (false, *all),
                };
                let mut at = set;
                let mut found = false;
                while let [first, rest @ ..] = at {
                    at = match rest {
                        [b'-', last, rest @ ..] => {
                            found |= (*first..=*last).contains(&c);
                            rest
                        }
                        _ => {
                            found |= *first == c;
                            rest
                        }
                    };
                }
                found != not
            }
        }
    }
}

/// Returns the first part of a pattern, and its length. A class without an end is a literal bracket.
fn part(pattern: &[u8]) -> Option<(Part<'_>, usize)> {
    let (first, rest) = pattern.split_first()?;
    Some(match first {
        b'*' => (Part::Any, 1),
        b'?' => (Part::One, 1),
        // A bracket directly after the opening one belongs to the class.
        b'[' => match rest.iter().skip(1).position(|c| *c == b']') {
            Some(end) => (Part::Of(&rest[..end + 1]), end + 3),
            None => (Part::Literal(b'['), 1),
        },
        c => (Part::Literal(*c), 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_names() {
        for (pattern, names, others) in [
            (
                "*.example.org",
                &["a.example.org", "A.Example.ORG", "a.b.example.org", "a.example.org."][..],
                &["example.org", "a.example.org.evil.test", "axexample.org", ""][..],
            ),
            ("ws?.lab", &["ws1.lab", "wsX.lab"], &["ws.lab", "ws12.lab"]),
            ("ws[1-3a].lab", &["ws1.lab", "ws3.lab", "wsa.lab"], &["ws4.lab", "ws-.lab"]),
            ("ws[^1-3].lab", &["ws4.lab"], &["ws2.lab", "ws.lab"]),
            ("*-*.lab", &["a-b.lab", "-.lab", "a-b-c.lab"], &["ab.lab"]),
            ("*", &["a", "a.b", ""], &[]),
            ("a*b*c", &["abc", "axxbxxc", "abcbc"], &["abcb", "ab"]),
            ("host[", &["host["], &["host", "hostx"]),
        ] {
            names.iter().for_each(|name| assert!(is_like(name, pattern), "{name} {pattern}"));
            others.iter().for_each(|name| assert!(!is_like(name, pattern), "{name} {pattern}"));
        }
    }

    #[test]
    fn many_stars_match_in_linear_time() {
        let (name, pattern) = ("a".repeat(250), "*a".repeat(100) + "b");
        let began = Instant::now();
        assert!(!is_like(&name, &pattern));
        assert!(began.elapsed() < Duration::from_secs(5), "it was tried in every way");
    }

    #[test]
    fn missing_or_expired_answer_is_unknown() {
        let known = Arc::new(ClientNames::default());
        let (ip, began) = (IpAddr::from([192, 0, 2, 7]), Instant::now());
        let named = |kind, name: &str| HostName { name: name.into(), kind, known: known.clone() };
        let ws = named(NameKind::Host, "ws.lab");
        let lab = named(NameKind::Pattern, "*.lab");
        let group = named(NameKind::Netgroup, "hosts");
        for name in [&ws, &lab, &group] {
            assert_eq!(name.has(ip, began), None);
        }
        let facts = ClientFacts {
            names: vec!["ws.lab".into()],
            netgroups: vec![("hosts".into(), Some(true)), ("others".into(), Some(false))],
        };
        known.set_host("ws.lab".into(), vec![ip], began);
        assert!(known.set_client(ip, facts.clone(), began));
        assert!(!known.set_client(ip, facts, began), "nothing is different");
        let mapped: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        for name in [&ws, &lab, &group] {
            assert_eq!(name.has(mapped, began), Some(true), "{name}");
            assert_eq!(name.has(ip, began + AGE_MAX), None, "{name}");
        }
        assert_eq!(named(NameKind::Netgroup, "others").has(ip, began), Some(false));
        assert_eq!(named(NameKind::Netgroup, "new").has(ip, began), None, "it was not asked for");
        assert_eq!(named(NameKind::Pattern, "*.org").has(ip, began), Some(false));
        assert_eq!(ws.has([192, 0, 2, 8].into(), began), Some(false));
    }

    #[test]
    fn unanswered_netgroup_keeps_then_expires() {
        let (known, began) = (Arc::new(ClientNames::default()), Instant::now());
        let ip = IpAddr::from([192, 0, 2, 7]);
        let is_in = |name: &str, now| {
            HostName { name: name.into(), kind: NameKind::Netgroup, known: known.clone() }
                .has(ip, now)
        };
        let facts = |group: Option<bool>, new: Option<bool>| ClientFacts {
            names: vec!["ws.lab".into()],
            netgroups: vec![("group".into(), group), ("new".into(), new)],
        };
        known.set_client(ip, facts(Some(true), None), began);
        assert_eq!((is_in("group", began), is_in("new", began)), (Some(true), None));
        assert_eq!(known.of_client(ip), Some((began, false)), "it is asked again soon");
        assert!(known.has_asked(ip, "new") && !known.has_asked(ip, "other"));
        let later = began + AGE_MAX / 2;
        assert!(!known.set_client(ip, facts(None, None), later), "nothing else is known");
        assert_eq!(is_in("group", later), Some(true));
        assert_eq!(is_in("group", began + AGE_MAX), None, "its age counts from its own answer");
        assert!(known.set_client(ip, facts(None, Some(false)), began + AGE_MAX));
        assert_eq!(is_in("group", began + AGE_MAX), None);
        assert_eq!(is_in("new", began + AGE_MAX), Some(false));
    }

    #[test]
    fn unnamed_client_evicted_before_named() {
        let (known, began) = (ClientNames::default(), Instant::now());
        let ip = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        let named = ClientFacts { names: vec!["ws.lab".into()], netgroups: Vec::new() };
        known.set_client(ip(0), named, began);
        for n in 1..=CLIENTS_MAX {
            let later = Duration::from_micros(n as u64);
            known.set_client(ip(n), ClientFacts::default(), began + later);
        }
        assert!(known.of_client(ip(0)).is_some());
        assert_eq!(known.of_client(ip(1)), None);
    }

    #[test]
    fn client_with_oldest_answer_evicted() {
        let (known, began) = (ClientNames::default(), Instant::now());
        let ip = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        for n in 0..=CLIENTS_MAX {
            let later = Duration::from_micros(n as u64);
            known.set_client(ip(n), ClientFacts::default(), began + later);
        }
        assert_eq!(known.clients().len(), CLIENTS_MAX);
        assert_eq!((known.of_client(ip(0)), known.of_client(ip(1)).is_some()), (None, true));
        let last = Duration::from_micros(CLIENTS_MAX as u64);
        known.retain(|_| true, began + AGE_MAX + last - Duration::from_nanos(1));
        assert_eq!(known.clients(), [ip(CLIENTS_MAX)]);
    }
}
