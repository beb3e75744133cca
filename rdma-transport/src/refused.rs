//! What clients were refused, for `headgate status` and the log: who, which share, by which rule, and what to change.
//!
//! *Operation.* The same refusals are one row with a count. The log has one line in a minute for each row, and [`LINES_MAX`] for
//! all rows together; what it was not told of then comes when it is refused again.
//!
//! *Memory.* [`ROWS_MAX`] rows. A host has at most [`ROWS_OF_HOST_MAX`], of which its next one replaces the oldest; IPv6 counts
//! by /64. When all rows are taken, the oldest row of the host with most rows goes. So a host that is refused without end pushes
//! out its own rows, and its lines in the log are no more than its rows in a minute. Texts of clients are cut at [`TEXT_MAX`]
//! characters.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use audit::PeerText;
use mutex::locked;

use crate::channel::host_of;

/// The rule by which a name that is no share's, or one of another protocol's, is refused.
pub const SHARE_NAME: &str = "share-name";
/// What to change then.
const SHARE_NAME_REMEDY: &str =
    "name a share that `headgate check` lists and this protocol serves (`protocols` of the share)";

/// Rows that are kept.
pub const ROWS_MAX: usize = 256;
/// Of these, rows of one host.
pub const ROWS_OF_HOST_MAX: usize = 32;
/// Characters of a user or share that are kept.
const TEXT_MAX: usize = 80;
/// For how long the same refusal is not told again.
const SILENCE: Duration = Duration::from_secs(60);
/// Lines of all hosts that the log has in this time.
pub const LINES_MAX: u32 = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The client.
    pub peer: IpAddr,
    /// The user, by number or name as its protocol has it; empty where none is known.
    pub user: PeerText,
    /// The share; empty where it was none in particular.
    pub share: PeerText,
    /// The rule that refused it.
    pub rule: &'static str,
    /// What to change where the client is to be let in.
    pub remedy: Cow<'static, str>,
}

impl Refused {
    /// As it is kept and logged: texts cut and harmless. A listener gives IPv4 as IPv4; not all who call this have it from there.
    fn shown(self) -> Self {
        let (user, share) = (shown(&self.user), shown(&self.share));
        Self { peer: self.peer.to_canonical(), user, share, ..self }
    }
}

/// The same refusals of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was refused.
    pub refused: Refused,
    /// How often.
    pub count: u64,
    /// When it was refused last.
    pub last: SystemTime,
}

static TABLE: Mutex<Table> = Mutex::new(Table::new());
/// Bounded by the number of rules: every name is a constant of this program.
static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Counts a refusal by its rule, and no more: of whom it was is not known, since the sender of a datagram can say to be another.
pub fn count(rule: &'static str) {
    *locked(&COUNTS).entry(rule).or_default() += 1;
}

/// Counts it by its rule, keeps it, and tells the log and the audit trail of it unless that was told within the last minute.
pub fn note(one: Refused) {
    count(one.rule);
    let one = one.shown();
    if keep(&one) {
        tell(&one);
    }
}

/// As [`note`], of a logon that was refused for this reason: the audit trail has each of them.
pub fn note_logon(one: Refused, reason: &'static str) {
    count(one.rule);
    let one = one.shown();
    let (peer, user) = (one.peer, one.user.to_string());
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

/// True: it is news for the log, and the audit trail has it.
fn keep(one: &Refused) -> bool {
    let is_news = table().add(one, Instant::now(), SystemTime::now());
    if is_news {
        let Refused { peer, user, share, rule, .. } = one;
        audit::record(|| audit::Event::Refused {
            peer: *peer,
            user: user.to_string(),
            share: share.to_string(),
            rule,
        });
    }
    is_news
}

/// Notes that a client named a share which its protocol does not serve.
pub fn unknown_share(peer: IpAddr, user: PeerText, share: PeerText) {
    note(Refused { peer, user, share, rule: SHARE_NAME, remedy: SHARE_NAME_REMEDY.into() });
}

/// Keeps it, for a caller that counts and logs by itself. True: it is to be logged, because it was not within the last minute.
pub fn record(one: Refused) -> bool {
    keep(&one.shown())
}

/// What is kept, the newest first.
pub fn list() -> Vec<Row> {
    let mut rows = table().rows.clone();
    rows.sort_by_key(|kept| std::cmp::Reverse(kept.last));
    rows.into_iter().map(|kept| kept.row).collect()
}

/// How often each rule refused somebody since the process began.
pub fn counts() -> Vec<(&'static str, u64)> {
    let counts = locked(&COUNTS);
    counts.iter().map(|(rule, n)| (*rule, *n)).collect()
}

fn table() -> MutexGuard<'static, Table> {
    locked(&TABLE)
}

/// A text of a client as it is kept: cut.
fn shown(text: &PeerText) -> PeerText {
    let text = text.to_string();
    text.chars().take(TEXT_MAX).collect::<String>().into()
}

#[derive(Clone, Debug)]
struct Kept {
    row: Row,
    host: IpAddr,
    last: Instant,
    /// When the log was told; `None`: it had enough lines then.
    told: Option<Instant>,
}

impl Kept {
    /// It is not known from the log, or no longer.
    fn is_news(&self, now: Instant) -> bool {
        self.told.is_none_or(|told| now.duration_since(told) >= SILENCE)
    }
}

#[derive(Debug)]
struct Table {
    rows: Vec<Kept>,
    /// How many rows each host has.
    hosts: BTreeMap<IpAddr, usize>,
    /// Lines of the log since then.
    lines: Option<(Instant, u32)>,
}

impl Table {
    const fn new() -> Self {
        Self { rows: Vec::new(), hosts: BTreeMap::new(), lines: None }
    }

    /// Room for one more line in the log.
    fn has_line(&mut self, now: Instant) -> bool {
        let (_, lines) = match &mut self.lines {
            Some(of) if now.duration_since(of.0) < SILENCE => of,
            of => of.insert((now, 0)),
        };
        *lines = lines.saturating_add(1);
        *lines <= LINES_MAX
    }

    /// True when the log is to be told.
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
            // The new row is silent for as long as the one in whose place it is: a host has no more lines than rows in a minute.
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

        /// A refusal a microsecond after the one before, or so much later.
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
    fn the_same_caller_is_told_of_once_in_a_minute_and_counted_in_one_row() {
        let mut c = Clock::new();
        assert!(c.add(refused(1, 1, "a"), AT_ONCE));
        assert!(!c.add(refused(1, 1, "a"), SILENCE / 2));
        assert!(c.add(refused(1, 2, "a"), AT_ONCE) && c.add(refused(1, 1, "b"), AT_ONCE));
        assert!(c.add(refused(1, 1, "a"), SILENCE / 2));
        assert_eq!(c.rows_of(1).iter().map(|r| r.count).collect::<Vec<_>>(), [3, 1, 1]);
    }

    #[test]
    fn a_flood_of_one_host_pushes_out_its_own_rows_and_has_no_more_lines_than_rows() {
        let mut c = Clock::new();
        c.add(refused(7, 0, "a"), AT_ONCE);
        let told = (0..10_000).filter(|user| c.add(refused(1, *user, "a"), AT_ONCE)).count();
        assert_eq!(told, ROWS_OF_HOST_MAX);
        assert_eq!((c.rows_of(1).len(), c.rows_of(7).len()), (ROWS_OF_HOST_MAX, 1));
        assert_eq!(c.rows_of(1).last().unwrap().refused.user, "9999", "the newest is there");
        assert!(c.add(refused(1, 10_000, "a"), SILENCE), "a minute later it is told again");
    }

    #[test]
    fn when_all_rows_are_taken_a_host_with_most_of_them_gives_one() {
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
    fn many_hosts_together_have_no_more_lines_than_the_log_takes() {
        let mut c = Clock::new();
        let told = (0..2000).filter(|host| c.add(refused(*host, 0, "a"), AT_ONCE)).count();
        assert_eq!(told, 256);
        assert!(!c.add(refused(1999, 0, "a"), AT_ONCE), "the log has enough");
        assert!(c.add(refused(1999, 0, "a"), SILENCE), "it was not told of this one yet");
        assert!(!c.add(refused(1999, 0, "a"), AT_ONCE));
        assert_eq!(c.rows_of(1999)[0].count, 4);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_host() {
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
    fn texts_of_clients_are_cut_and_cannot_move_a_cursor() {
        assert_eq!(
            shown(&"a\u{1b}[2J\n\u{202e}\u{e9}".into()),
            "a\u{fffd}[2J\u{fffd}\u{fffd}\u{e9}"
        );
        let long = shown(&"\u{e9}".repeat(1000).into()).to_string();
        assert_eq!(long.chars().count(), TEXT_MAX);
    }

    #[test]
    fn each_refusal_is_counted_and_listed_by_the_canonical_address() {
        let peer: IpAddr = "::ffff:192.0.2.77".parse().unwrap();
        for _ in 0..2 {
            note(Refused { peer, ..refused(0, 1, "refused-test") });
        }
        assert!(counts().contains(&("refused-test", 2)));
        let row = list().into_iter().find(|r| r.refused.rule == "refused-test").unwrap();
        assert_eq!((row.refused.peer.to_string().as_str(), row.count), ("192.0.2.77", 2));
    }
}
