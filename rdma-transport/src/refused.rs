//! Records refusals for `headgate status` and the log: client, share, rule and remedy.
//!
//! *Operation.* Equal refusals share a row with a count. The log gets at most one line in a minute for each row, and [`LINES_MAX`]
//! for all rows together; a suppressed line follows at the next refusal.
//!
//! *Memory.* [`ROWS_MAX`] rows. A host has at most [`ROWS_OF_HOST_MAX`], and its next row replaces its oldest; IPv6 counts by /64.
//! When all rows are in use, the host with most rows loses its oldest. So a host with endless refusals evicts its own rows, and
//! gets at most as many log lines in a minute as rows. Texts of clients are cut at [`TEXT_MAX`] characters.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use audit::PeerText;
use mutex::locked;

use crate::channel::host_of;

/// The rule that refuses an unknown share name, or a share of another protocol.
pub const SHARE_NAME: &str = "share-name";
/// Advice for a client that asks for a share by a wrong name.
const SHARE_NAME_REMEDY: &str =
    "name a share that `headgate check` lists and this protocol serves (`protocols` of the share)";

pub const ROWS_MAX: usize = 256;
/// Rows of one host.
pub const ROWS_OF_HOST_MAX: usize = 32;
/// Longest user or share name kept, in characters.
const TEXT_MAX: usize = 80;
/// The same refusal is logged at most once in this time.
const SILENCE: Duration = Duration::from_secs(60);
/// Log lines of all hosts in that time.
pub const LINES_MAX: u32 = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Address of the refused client.
    pub peer: IpAddr,
    /// The user, by number or name depending on the protocol; empty if unknown.
    pub user: PeerText,
    /// The share; empty if the refusal is not about a particular one.
    pub share: PeerText,
    /// The rule that refused it.
    pub rule: &'static str,
    /// The change that would admit the client.
    pub remedy: Cow<'static, str>,
}

impl Refused {
    /// Cuts and escapes texts, and normalizes the address, because not all callers pass IPv4 addresses as IPv4.
    fn shown(self) -> Self {
        let (user, share) = (shown(&self.user), shown(&self.share));
        Self { peer: self.peer.to_canonical(), user, share, ..self }
    }
}

/// Equal refusals of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub refused: Refused,
    /// How often the request was refused.
    pub count: u64,
    /// When it was refused last.
    pub last: SystemTime,
}

static TABLE: Mutex<Table> = Mutex::new(Table::new());
/// Bounded, because all rules are constants of this program.
static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Only counts a refusal: the client is unknown, since a datagram's sender address may be forged.
pub fn count(rule: &'static str) {
    *locked(&COUNTS).entry(rule).or_default() += 1;
}

/// Counts a refusal, keeps it, and writes it to the log and the audit trail unless that happened within the last minute.
pub fn note(one: Refused) {
    count(one.rule);
    let one = one.shown();
    if keep(&one) {
        tell(&one);
    }
}

/// Like [`note`], for a refused logon with this reason, each of which is audited.
pub fn note_logon(one: Refused, reason: &'static str) {
    count(one.rule);
    let one = one.shown();
    let (peer, user) = (one.peer, (&one.user).into());
    audit::record(|| audit::Event::LogonRefused { peer, user, reason });
    if table().add(&one, Instant::now(), SystemTime::now()) {
        tell(&one);
    }
}

fn tell(one: &Refused) {
    let Refused { peer, user, share, rule, remedy } = one;
    let (user, share) = (user.as_str(), share.as_str());
    tracing::warn!(%peer, user, share, rule, "refused; to let this client in, {remedy}");
}

/// Keeps a refusal. True if it must be logged and audited.
fn keep(one: &Refused) -> bool {
    let is_news = table().add(one, Instant::now(), SystemTime::now());
    if is_news {
        let Refused { peer, user, share, rule, .. } = one;
        audit::record(|| audit::Event::Refused {
            peer: *peer,
            user: user.into(),
            share: share.into(),
            rule,
        });
    }
    is_news
}

/// Records that a client named a share that its protocol does not serve.
pub fn unknown_share(peer: IpAddr, user: PeerText, share: PeerText) {
    note(Refused { peer, user, share, rule: SHARE_NAME, remedy: SHARE_NAME_REMEDY.into() });
}

/// Keeps a refusal for a caller that counts and logs itself. True if it was not logged within the last minute.
pub fn record(one: Refused) -> bool {
    keep(&one.shown())
}

/// All rows, newest first.
pub fn list() -> Vec<Row> {
    let mut rows = table().rows.clone();
    rows.sort_by_key(|kept| std::cmp::Reverse(kept.last));
    rows.into_iter().map(|kept| kept.row).collect()
}

/// The number of refusals by each rule since the process began.
pub fn counts() -> Vec<(&'static str, u64)> {
    let counts = locked(&COUNTS);
    counts.iter().map(|(rule, n)| (*rule, *n)).collect()
}

fn table() -> MutexGuard<'static, Table> {
    locked(&TABLE)
}

/// Cuts a text of a client.
fn shown(text: &PeerText) -> PeerText {
    let text = text.to_string();
    text.chars().take(TEXT_MAX).collect::<String>().into()
}

#[derive(Clone, Debug)]
struct Kept {
    row: Row,
    host: IpAddr,
    last: Instant,
    /// When it was logged; `None` if the log had reached its limit.
    told: Option<Instant>,
}

impl Kept {
    /// True if it was not logged recently.
    fn is_news(&self, now: Instant) -> bool {
        self.told.is_none_or(|told| now.duration_since(told) >= SILENCE)
    }
}

#[derive(Debug)]
struct Table {
    rows: Vec<Kept>,
    /// Number of rows of each host.
    hosts: BTreeMap<IpAddr, usize>,
    /// Start of the current minute, and the log lines in it.
    lines: Option<(Instant, u32)>,
}

impl Table {
    const fn new() -> Self {
        Self { rows: Vec::new(), hosts: BTreeMap::new(), lines: None }
    }

    /// Counts a log line. False if the limit is reached.
    fn has_line(&mut self, now: Instant) -> bool {
        let (_, lines) = match &mut self.lines {
            Some(of) if now.duration_since(of.0) < SILENCE => of,
            of => of.insert((now, 0)),
        };
        *lines = lines.saturating_add(1);
        *lines <= LINES_MAX
    }

    /// Adds a refusal. True if it must be logged.
    fn add(&mut self, refused: &Refused, now: Instant, at: SystemTime) -> bool {
        if let Some(n) = self.rows.iter().position(|kept| kept.row.refused == *refused) {
            let is_told = self.rows[n].is_news(now) && self.has_line(now);
            let kept = &mut self.rows[n];
            kept.row.count += 1;
            (kept.row.last, kept.last) = (at, now);
            if is_told {
                kept.told = Some(now);
            }
            return is_told;
        }
        let host = host_of(refused.peer);
        let mut told = None;
        if self.hosts.get(&host).is_some_and(|rows| *rows >= ROWS_OF_HOST_MAX) {
            // The new row inherits the silence of the row that it replaces, so that a host has at most as many lines as rows in a
            // minute.
            told =
                self.remove_oldest_of(host).filter(|gone| !gone.is_news(now)).and_then(|g| g.told);
        } else if self.rows.len() >= ROWS_MAX {
            let most = self.hosts.values().copied().max();
            let with_most = |kept: &&Kept| self.hosts.get(&kept.host).copied() == most;
            let host = self.rows.iter().filter(with_most).min_by_key(|k| k.last).map(|k| k.host);
            host.and_then(|host| self.remove_oldest_of(host));
        }
        *self.hosts.entry(host).or_default() += 1;
        let is_told = told.is_none() && self.has_line(now);
        let told = if is_told { Some(now) } else { told };
        let row = Row { refused: refused.clone(), count: 1, last: at };
        self.rows.push(Kept { row, host, last: now, told });
        is_told
    }

    fn remove_oldest_of(&mut self, host: IpAddr) -> Option<Kept> {
        let of_host = self.rows.iter().enumerate().filter(|(_, kept)| kept.host == host);
        let (at, _) = of_host.min_by_key(|(_, kept)| kept.last)?;
        if let Some(rows) = self.hosts.get_mut(&host) {
            *rows -= 1;
            if *rows == 0 {
                self.hosts.remove(&host);
            }
        }
        Some(self.rows.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: u32, user: usize, rule: &'static str) -> Refused {
        let (user, share) = (user.to_string().into(), "team".into());
        Refused {
            peer: std::net::Ipv4Addr::from(host).into(),
            user,
            share,
            rule,
            remedy: "".into(),
        }
    }

    struct Clock(Table, Instant);

    impl Clock {
        fn new() -> Self {
            Self(Table::new(), Instant::now())
        }

        /// Adds a refusal a microsecond after the previous one, or this much later.
        fn add(&mut self, one: Refused, later: Duration) -> bool {
            self.1 += later + Duration::from_micros(1);
            self.0.add(&one, self.1, SystemTime::now())
        }

        fn rows_of(&self, host: u32) -> Vec<&Row> {
            let peer = IpAddr::from(std::net::Ipv4Addr::from(host));
            self.0.rows.iter().map(|kept| &kept.row).filter(|r| r.refused.peer == peer).collect()
        }
    }

    const AT_ONCE: Duration = Duration::ZERO;

    #[test]
    fn repeated_refusal_logged_once_per_minute() {
        let mut c = Clock::new();
        assert!(c.add(refused(1, 1, "a"), AT_ONCE));
        assert!(!c.add(refused(1, 1, "a"), SILENCE / 2));
        assert!(c.add(refused(1, 2, "a"), AT_ONCE) && c.add(refused(1, 1, "b"), AT_ONCE));
        assert!(c.add(refused(1, 1, "a"), SILENCE / 2));
        assert_eq!(c.rows_of(1).iter().map(|r| r.count).collect::<Vec<_>>(), [3, 1, 1]);
    }

    #[test]
    fn flooding_host_evicts_own_rows() {
        let mut c = Clock::new();
        c.add(refused(7, 0, "a"), AT_ONCE);
        let told = (0..10_000).filter(|user| c.add(refused(1, *user, "a"), AT_ONCE)).count();
        assert_eq!(told, ROWS_OF_HOST_MAX);
        assert_eq!((c.rows_of(1).len(), c.rows_of(7).len()), (ROWS_OF_HOST_MAX, 1));
        assert_eq!(c.rows_of(1).last().unwrap().refused.user, "9999", "the newest is there");
        assert!(c.add(refused(1, 10_000, "a"), SILENCE), "a minute later it is told again");
    }

    #[test]
    fn host_with_most_rows_loses_one() {
        let mut c = Clock::new();
        (100..120).for_each(|host| assert!(c.add(refused(host, 0, "a"), AT_ONCE)));
        let flood = |c: &mut Clock| {
            for (host, user) in (1..=32).flat_map(|host| (0..40).map(move |user| (host, user))) {
                c.add(refused(host, user, "a"), AT_ONCE);
            }
        };
        flood(&mut c);
        flood(&mut c);
        assert_eq!(c.0.rows.len(), ROWS_MAX);
        assert!((100..120).all(|host| c.rows_of(host).len() == 1), "who had one row keeps it");
        assert_eq!(c.0.hosts.values().sum::<usize>(), ROWS_MAX);
    }

    #[test]
    fn log_lines_are_limited_over_hosts() {
        let mut c = Clock::new();
        let told = (0..2000).filter(|host| c.add(refused(*host, 0, "a"), AT_ONCE)).count();
        assert_eq!(told, 256);
        assert!(!c.add(refused(1999, 0, "a"), AT_ONCE), "the log has enough");
        assert!(c.add(refused(1999, 0, "a"), SILENCE), "it was not told of this one yet");
        assert!(!c.add(refused(1999, 0, "a"), AT_ONCE));
        assert_eq!(c.rows_of(1999)[0].count, 4);
    }

    #[test]
    fn ipv6_network_counts_as_host() {
        let mut c = Clock::new();
        for n in 0..100_u128 {
            let peer = std::net::Ipv6Addr::from((0x2001_0db8 << 96) | n).into();
            c.add(Refused { peer, ..refused(0, 0, "a") }, AT_ONCE);
        }
        assert_eq!(c.0.rows.len(), ROWS_OF_HOST_MAX);
        let of = |s: &str| host_of(s.parse().unwrap()).to_string();
        assert_eq!(of("192.0.2.7"), "192.0.2.7");
        assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }

    #[test]
    fn client_texts_are_cut_and_escaped() {
        assert_eq!(
            shown(&"a\u{1b}[2J\n\u{202e}\u{e9}".into()),
            "a\u{fffd}[2J\u{fffd}\u{fffd}\u{e9}"
        );
        let long = shown(&"\u{e9}".repeat(1000).into()).to_string();
        assert_eq!(long.chars().count(), TEXT_MAX);
    }

    #[test]
    fn refusals_use_canonical_address() {
        let peer: IpAddr = "::ffff:192.0.2.77".parse().unwrap();
        for _ in 0..2 {
            note(Refused { peer, ..refused(0, 1, "refused-test") });
        }
        assert!(counts().contains(&("refused-test", 2)));
        let row = list().into_iter().find(|r| r.refused.rule == "refused-test").unwrap();
        assert_eq!((row.refused.peer.to_string().as_str(), row.count), ("192.0.2.77", 2));
    }
}
