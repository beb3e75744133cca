//! Runs clients of all protocols on a few files at random and compares what each one sees with the one true history.
//!
//! The model uses no tables and no breaks. For each file it stores the last value written, the opens and the locks. The clients
//! cache as their grants allow and delay writes where they may; some acknowledge slowly, some never. After every step the test
//! checks that each read returned the last value written, that no write was lost except a revoked client's, that no two clients
//! hold conflicting opens or locks, that every refusal has a reason, and that no request waits past the deadline.

use std::sync::Arc;

use crate::access::{Rights, Share};
use crate::caching::{CacheRequest, Caching, Kind, Operation};
use crate::expiry::Lease;
use crate::holder::{Holder, Requester};
use crate::id::{ClientId, Millis, NodeId};
use crate::node::{Limits, LockVerdict, Verdict};
use crate::range::{Enforce, LockKind, Range};
use crate::recall::{Break, Deadlines, Stage};
use crate::smb_lock::SmbLockRange;
use crate::table::Table;

const FILES: usize = 2;
const ACKNOWLEDGE: Millis = 100;
/// `ACKNOWLEDGE / 2`.
const HALF: usize = 50;
const WAIT: Millis = 3 * ACKNOWLEDGE + 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    /// An SMB client that caches through leases or oplocks.
    Smb(Kind),
    Nfs4,
    /// A client without opens, locks or caches.
    Nfs3,
    /// An NFSv3 client with NLM locks: NLM opens the file for the lock owner, and reads and writes do not refer to that open.
    Nlm,
}

/// One client's own view of a file.
#[derive(Clone, Debug, Default)]
struct FileView {
    open: Option<Share>,
    locked: Option<LockKind>,
    caches: Caching,
    cached: Option<u32>,
    kept_back: Option<u32>,
    /// The pending recall: the rights to keep, and the time at which the client answers.
    told: Option<(Caching, Millis)>,
}

struct Client {
    speaks: Speaks,
    mute: bool,
    /// For each file, the holder of the open and the holder of the caching grant.
    parties: Vec<(Holder, Holder)>,
    mine: Vec<FileView>,
}

/// A request that must wait and be retried.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    client: usize,
    file: usize,
    what: ClientAction,
    since: Millis,
}

#[derive(Clone, Copy, Debug)]
enum ClientAction {
    Open(Share),
    Read,
    Write,
    Lock(LockKind),
}

struct World {
    table: Table,
    clients: Vec<Client>,
    /// The value on the server and the last value written, for each file.
    stored: [u32; FILES],
    truth: [u32; FILES],
    waiting: Vec<Waiting>,
    now: Millis,
    next: u32,
    random: u64,
    /// Counters that prove the interesting cases occurred.
    waits: u32,
    overruled: u32,
    asked: u32,
}

fn node(file: usize) -> NodeId {
    NodeId(1 + file as u64)
}

fn everything() -> SmbLockRange {
    SmbLockRange::new(0, u64::MAX).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let table = Table::new(Deadlines::new(ACKNOWLEDGE, WAIT).unwrap(), Limits::default(), 0);
        let mut world = Self {
            table,
            clients: Vec::new(),
            stored: [0; FILES],
            truth: [0; FILES],
            waiting: Vec::new(),
            now: 0,
            next: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            waits: 0,
            overruled: 0,
            asked: 0,
        };
        for n in 0..2 + world.roll(3) {
            let kinds = [Speaks::Smb(Kind::Lease), Speaks::Smb(Kind::Oplock), Speaks::Nfs4];
            let speaks = match world.roll(8) {
                k @ 0..6 => kinds[k / 2],
                6 => Speaks::Nlm,
                _ => Speaks::Nfs3,
            };
            let mute = world.roll(8) == 0;
            let client = world.client(n as u64, speaks, mute);
            world.clients.push(client);
        }
        world
    }

    fn client(&self, n: u64, speaks: Speaks, mute: bool) -> Client {
        let party = |client| Holder {
            holder: self.table.holder(),
            lease: Arc::new(Lease::held(client)),
            via: 0,
        };
        let parties = (0..FILES).map(|_| {
            // Each SMB open or lease has its own key; an NFS client has one identifier for all its files.
            let id = match speaks {
                Speaks::Smb(_) => self.table.key(),
                Speaks::Nlm => ClientId::host(u32::try_from(n).unwrap()),
                _ => ClientId(100 + n),
            };
            let open = party(id);
            let caching = match speaks {
                Speaks::Smb(Kind::Oplock) => open.clone(),
                _ => party(id),
            };
            (open, caching)
        });
        Client { speaks, mute, parties: parties.collect(), mine: vec![FileView::default(); FILES] }
    }

    /// Returns a number below `n` (xorshift).
    fn roll(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % n
    }

    fn who(&self, c: usize, f: usize) -> Option<Requester> {
        let client = &self.clients[c];
        match client.speaks {
            Speaks::Nfs3 | Speaks::Nlm => None,
            _ if client.mine[f].open.is_none() => {
                Some(Requester { client: client.parties[f].0.client(), via: 0, holder: None })
            }
            _ => Some(client.parties[f].0.requester()),
        }
    }

    /// Checks, directly from the rules, whether another client's open or lock conflicts with an open or an access.
    fn is_denied(&self, c: usize, f: usize, what: ClientAction) -> bool {
        let me = &self.clients[c];
        let is_smb = matches!(me.speaks, Speaks::Smb(_));
        // MS-FSA section 2.1.4.10: a shared lock also forbids writes through its own open.
        if is_smb
            && matches!(what, ClientAction::Write)
            && me.mine[f].locked == Some(LockKind::Shared)
        {
            return true;
        }
        self.clients.iter().enumerate().filter(|(o, _)| *o != c).any(|(_, other)| {
            let theirs = &other.mine[f];
            let smb_lock = matches!(other.speaks, Speaks::Smb(_));
            let both_bind = |mine: LockKind| {
                theirs
                    .locked
                    .is_some_and(|l| l == LockKind::Exclusive || mine == LockKind::Exclusive)
            };
            let denies = |right| theirs.open.is_some_and(|s| s.deny.has(right));
            let unopened = me.mine[f].open.is_none() || me.speaks == Speaks::Nlm;
            match what {
                ClientAction::Open(share) => theirs.open.is_some_and(|s| s.conflicts(share)),
                ClientAction::Lock(kind) => both_bind(kind),
                ClientAction::Read => {
                    unopened && denies(Rights::READ)
                        || (smb_lock || is_smb) && both_bind(LockKind::Shared)
                }
                ClientAction::Write => {
                    unopened && denies(Rights::WRITE)
                        || (smb_lock || is_smb) && both_bind(LockKind::Exclusive)
                }
            }
        })
    }

    /// Delivers notices to their clients at once, as the wire does. Each client answers later.
    fn tell(&mut self, breaks: &[Break]) {
        for b in breaks {
            let find = |c: &Client| c.parties.iter().position(|p| p.1.holder == b.holder);
            let found = self.clients.iter().enumerate().find_map(|(c, x)| Some((c, find(x)?)));
            let Some((c, f)) = found else { panic!("nobody holds {b:?}") };
            match b.stage {
                Stage::Started => {
                    let after = self.now + self.roll(HALF) as Millis;
                    self.clients[c].mine[f].told = Some((b.to, after));
                }
                Stage::Done => {
                    let mine = &mut self.clients[c].mine[f];
                    assert!(
                        !mine.caches.has(Caching::WRITE),
                        "what is kept back must be asked for"
                    );
                    mine.caches = b.to;
                }
                Stage::UnderWay => {}
                Stage::Overdue => self.overrule(c, f),
            }
        }
    }

    /// Revokes the rights of a client that did not answer; its unsent write is lost.
    fn overrule(&mut self, c: usize, f: usize) {
        assert!(self.clients[c].mute, "who answers in time is not overruled");
        self.overruled += 1;
        let holder = self.clients[c].parties[f].1.holder;
        let mine = &mut self.clients[c].mine[f];
        (mine.caches, mine.told, mine.cached) = (Caching::NONE, None, None);
        if mine.kept_back.take().is_some() {
            self.truth[f] = self.stored[f];
        }
        self.table.acknowledge(node(f), holder, Caching::NONE, self.now);
    }

    fn flush(&mut self, c: usize, f: usize) {
        if let Some(value) = self.clients[c].mine[f].kept_back.take() {
            self.stored[f] = value;
        }
    }

    /// Lets clients answer their pending notices.
    fn answers(&mut self) {
        for c in 0..self.clients.len() {
            for f in 0..FILES {
                let told = self.clients[c].mine[f].told;
                let Some((to, _)) = told.filter(|t| t.1 <= self.now && !self.clients[c].mute)
                else {
                    continue;
                };
                if !to.has(Caching::WRITE) {
                    self.flush(c, f);
                }
                let mine = &mut self.clients[c].mine[f];
                (mine.caches, mine.told) = (to, None);
                let holder = self.clients[c].parties[f].1.holder;
                let done = self.table.acknowledge(node(f), holder, to, self.now);
                self.tell(done.next.as_slice());
            }
        }
    }

    /// Sends a request; returns false if it has to wait.
    fn ask(&mut self, c: usize, f: usize, what: ClientAction) -> bool {
        let (now, who) = (self.now, self.who(c, f));
        let party = self.clients[c].parties[f].0.clone();
        let who = match what {
            ClientAction::Lock(_) => Some(party.requester()),
            _ => who,
        };
        let op = match what {
            ClientAction::Open(share) => {
                let verdict = self.table.open(node(f), &party, share, now);
                return self.settle(c, f, what, verdict);
            }
            ClientAction::Read => Operation::Read,
            ClientAction::Write => Operation::Write,
            ClientAction::Lock(_) if matches!(self.clients[c].speaks, Speaks::Smb(_)) => {
                Operation::Lock
            }
            ClientAction::Lock(_) => Operation::Advise,
        };
        let free = self.table.is_free(node(f), who, op, Range::ALL);
        let verdict = self.table.check_conflicts(node(f), who, op, Range::ALL, now);
        assert!(!free || verdict == Verdict::Go, "{op:?} of {who:?}: {verdict:?}");
        self.settle(c, f, what, verdict)
    }

    fn settle(&mut self, c: usize, f: usize, what: ClientAction, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Go => {}
            Verdict::Tell(breaks) => self.tell(&breaks),
            Verdict::WaitFor(breaks) => {
                self.tell(&breaks);
                return false;
            }
            Verdict::Denied { .. } => {
                assert!(self.is_denied(c, f, what), "refused without a reason: {what:?}");
                return true;
            }
            other => panic!("{other:?}"),
        }
        if !matches!(what, ClientAction::Lock(_)) {
            assert!(!self.is_denied(c, f, what), "let through against somebody: {what:?}");
        }
        self.done(c, f, what);
        true
    }

    /// Applies a request that was allowed.
    fn done(&mut self, c: usize, f: usize, what: ClientAction) {
        match what {
            ClientAction::Open(share) => {
                let mine = &mut self.clients[c].mine[f];
                mine.open = Some(mine.open.map_or(share, |s| s.union(share)));
                self.ask_for_caching(c, f);
            }
            ClientAction::Read => {
                assert_eq!(self.stored[f], self.truth[f], "a stale read by {c}");
                self.clients[c].mine[f].cached = Some(self.stored[f]);
            }
            ClientAction::Write => {
                let keepers = self.clients.iter().enumerate();
                let other =
                    keepers.filter(|(o, _)| *o != c).any(|(_, x)| x.mine[f].kept_back.is_some());
                assert!(!other, "a write beside one that is kept back");
                self.next += 1;
                (self.stored[f], self.truth[f]) = (self.next, self.next);
                let mine = &mut self.clients[c].mine[f];
                (mine.cached, mine.kept_back) = (Some(self.next), None);
            }
            ClientAction::Lock(kind) => self.lock(c, f, kind),
        }
    }

    fn lock(&mut self, c: usize, f: usize, kind: LockKind) {
        let party = self.clients[c].parties[f].0.clone();
        let verdict = match self.clients[c].speaks {
            Speaks::Smb(_) => self.table.lock_smb(node(f), &party, everything(), kind, self.now),
            _ => {
                let advice = Enforce::Smb;
                self.table.lock(node(f), &party, Range::ALL, kind, advice, self.now)
            }
        };
        let denied = self.is_denied(c, f, ClientAction::Lock(kind));
        match verdict {
            LockVerdict::Go => {
                assert!(!denied, "two hold one lock");
                self.clients[c].mine[f].locked = Some(kind);
            }
            LockVerdict::Denied(_) => assert!(denied, "a lock refused without a reason"),
            other => panic!("{other:?}"),
        }
    }

    fn ask_for_caching(&mut self, c: usize, f: usize) {
        let wants = [Caching::READ, Caching::READ_HANDLE, Caching::READ_WRITE, Caching::ALL];
        let party = self.clients[c].parties[f].1.clone();
        if self.clients[c].mine[f].caches.is_none() {
            // A value read without a grant may be stale, so drop it.
            self.clients[c].mine[f].cached = None;
        }
        let (speaks, pick, now) = (self.clients[c].speaks, self.roll(4), self.now);
        match speaks {
            Speaks::Smb(kind) => {
                let oplocks = [Caching::READ, Caching::READ, Caching::READ_WRITE, Caching::ALL];
                let want = if kind == Kind::Oplock { oplocks[pick] } else { wants[pick] };
                let held = self.table.cache(node(f), &party, CacheRequest::new(kind, want), now);
                if held.breaking_to.is_none() {
                    self.clients[c].mine[f].caches = held.rights;
                }
            }
            Speaks::Nfs4 => {
                let write = pick == 3;
                let want = if write { Caching::ALL } else { Caching::READ_HANDLE };
                if self.table.delegate(node(f), &party, want, now) {
                    self.clients[c].mine[f].caches = want;
                }
            }
            Speaks::Nfs3 | Speaks::Nlm => {}
        }
        let caches = self.clients[c].mine[f].caches;
        let others = self.clients.iter().enumerate().filter(|(o, _)| *o != c);
        for (o, other) in others {
            let theirs = other.mine[f].caches;
            let lonely = |a: Caching, b: Caching| a.has(Caching::WRITE) && !b.is_none();
            assert!(!lonely(caches, theirs) && !lonely(theirs, caches), "{c} and {o} cache {f}");
        }
    }

    /// Uses the client's cache where its rights allow, otherwise the server.
    fn use_file(&mut self, c: usize, f: usize, write: bool) -> Option<ClientAction> {
        let mine = &self.clients[c].mine[f];
        let may = mine.told.map_or(mine.caches, |(to, _)| mine.caches.and(to));
        if write
            && may.has(Caching::WRITE)
            && mine.open.is_some_and(|s| s.access.has(Rights::WRITE))
        {
            self.next += 1;
            self.truth[f] = self.next;
            let mine = &mut self.clients[c].mine[f];
            (mine.kept_back, mine.cached) = (Some(self.next), Some(self.next));
            return None;
        }
        if !write && may.has(Caching::READ) && mine.cached.is_some() {
            assert_eq!(mine.cached, Some(self.truth[f]), "client {c} reads a stale cache of {f}");
            return None;
        }
        // A client flushes its delayed writes before it accesses the server.
        self.flush(c, f);
        Some(if write { ClientAction::Write } else { ClientAction::Read })
    }

    /// Checks the size and times that a client sees: the server queries the holder of a write delegation (CB_GETATTR).
    fn look(&mut self, c: usize, f: usize) {
        let client = match self.clients[c].speaks {
            Speaks::Nfs3 | Speaks::Nlm => None,
            _ => Some(self.clients[c].parties[f].0.client()),
        };
        let smb_keeps = |x: &Client| x.speaks != Speaks::Nfs4 && x.mine[f].kept_back.is_some();
        // Skip clients that have unsent data, which they know without asking, and files with unsent data under an SMB lease,
        // because SMB has no CB_GETATTR.
        if self.clients[c].mine[f].kept_back.is_some() || self.clients.iter().any(smb_keeps) {
            return;
        }
        let kept = self.table.keeps_back(node(f), client.map(Into::into)).map(|(_, holder)| {
            let mut others = self.clients.iter();
            let holder = others.find(|x| x.parties[f].1.holder == holder).expect("a holder");
            assert!(holder.mine[f].caches.has(Caching::WRITE), "asked in vain");
            holder.mine[f].kept_back
        });
        let kept = kept.flatten();
        self.asked += u32::from(kept.is_some());
        let seen = kept.unwrap_or(self.stored[f]);
        assert_eq!(seen, self.truth[f], "{c} is told of {f} what was");
    }

    fn close(&mut self, c: usize, f: usize) {
        self.flush(c, f);
        let (open, caching) = self.clients[c].parties[f].clone();
        self.table.release(node(f), open.holder);
        self.table.release(node(f), caching.holder);
        self.clients[c].mine[f] = FileView::default();
    }

    fn step(&mut self) {
        self.now += self.roll(20) as Millis;
        self.answers();
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|w| {
            assert!(self.now < w.since + WAIT, "client {} is stuck: {w:?}", w.client);
            !self.ask(w.client, w.file, w.what)
        });
        self.waiting = waiting;
        let (c, f) = (self.roll(self.clients.len()), self.roll(FILES));
        if self.waiting.iter().any(|w| w.client == c) {
            return;
        }
        self.look(c, f);
        let nfs3 = self.clients[c].speaks == Speaks::Nfs3;
        let v3 = nfs3 || self.clients[c].speaks == Speaks::Nlm;
        let mine = self.clients[c].mine[f].clone();
        let ask = match self.roll(10) {
            0 | 1 if !nfs3 && mine.told.is_none() => Some(ClientAction::Open(self.share(c))),
            2 if !nfs3 => {
                self.close(c, f);
                None
            }
            3 if mine.open.is_some() && mine.locked.is_none() => {
                let kinds = [LockKind::Shared, LockKind::Exclusive];
                Some(ClientAction::Lock(kinds[self.roll(2)]))
            }
            n if mine.open.is_some() || v3 => self.use_file(c, f, n > 7),
            _ => None,
        };
        if let Some(what) = ask
            && !self.ask(c, f, what)
        {
            self.waits += 1;
            self.waiting.push(Waiting { client: c, file: f, what, since: self.now });
        }
    }

    fn share(&mut self, c: usize) -> Share {
        let access = [Rights::READ, Rights::BOTH, Rights::BOTH][self.roll(3)];
        let deny = match self.roll(8) {
            0 => Rights::WRITE,
            1 => Rights::BOTH,
            _ => Rights::NONE,
        };
        match self.clients[c].speaks {
            Speaks::Smb(_) => Share::new(access | Rights::DELETE, deny),
            Speaks::Nlm => Share::new(access, Rights::NONE),
            _ => Share::new(access, deny),
        }
    }
}

/// Runs thousands of histories. After every client has closed its files, the table is empty except for revoked holders.
#[test]
fn clients_of_all_protocols_see_one_history() {
    let (mut waits, mut overruled, mut asked) = (0, 0, 0);
    for seed in 1..=4_000 {
        let caught = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..150 {
                world.step();
            }
            for c in 0..world.clients.len() {
                (0..FILES).for_each(|f| world.close(c, f));
            }
            assert_eq!((world.table.nodes(), world.table.grants()), (0, 0));
            assert_eq!(world.stored, world.truth, "a lost update");
            (world.waits, world.overruled, world.asked)
        });
        let Ok(seen) = caught else { panic!("seed {seed}") };
        waits += seen.0;
        overruled += seen.1;
        asked += seen.2;
    }
    let wild = waits > 1_000 && overruled > 100 && asked > 100;
    assert!(wild, "{waits} waits, {overruled} overruled, {asked} asked: too tame");
}
