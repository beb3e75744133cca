//! The queue of the trail and the thread that empties it.
//!
//! *Operation.* The thread takes queued records, formats them as lines and writes them. While the sink accepts no data, it reopens
//! the sink and retries every second, and continues in the middle of a line where it stopped; in a different file it starts the
//! line again.
//!
//! *Memory.* At most [`QUEUE_MAX`] records, one of which is the line being written, and [`QUEUE_OF_ADDRESS_MAX`] of one address, so
//! that its operations never make those of others go unrecorded, or be refused.
//!
//! *Errors.* Logs when the sink fails and when it works again.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use mutex::locked;
use serde::Serialize;

use crate::event::{Event, Party};
use crate::sink::Open;
use crate::{
    Host, LIMIT, LIMIT_OF_ADDRESS, NotRecorded, Options, QUEUE_MAX, QUEUE_OF_ADDRESS_MAX,
    QUEUE_OF_STRANGERS_MAX, STRANGERS_PER_MINUTE, TrailStatus,
};

/// Pause before a failed sink is retried.
const RETRY: Duration = Duration::from_secs(1);
/// Time limit for an ending trail to write its queue.
const END: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);

/// The client that caused a record; `None`: no client did.
pub(crate) type Client = Option<IpAddr>;

/// A record as written.
#[derive(Serialize)]
struct Record<'a> {
    time: String,
    seq: u64,
    #[serde(flatten)]
    event: &'a Event,
}

struct QueuedRecord {
    at: SystemTime,
    seq: u64,
    event: Event,
    client: Client,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<QueuedRecord>,
    /// Records that the thread is processing.
    in_work: usize,
    /// Number of permits in use.
    permits: usize,
    /// Queued records and permits of each client. Bounded, because a client without any has no entry.
    of_clients: HashMap<IpAddr, usize>,
    /// Number of queued records that unauthenticated clients caused.
    of_strangers: usize,
    /// Records that unauthenticated clients caused since this time.
    minute: Option<(Instant, u32)>,
    /// Number of the next record.
    seq: u64,
    written: u64,
    lost: u64,
    /// Lost records not yet reported in the trail.
    untold: u64,
    broken: Option<String>,
    reopen: bool,
    ending: bool,
    ended: bool,
}

impl Queue {
    fn taken(&self) -> usize {
        self.waiting.len() + self.in_work + self.permits
    }

    /// Returns the name of the limit that a further record of this client would exceed.
    fn is_full_for(&self, client: Client) -> Option<&'static str> {
        let own = client.and_then(|client| self.of_clients.get(&client));
        if own.is_some_and(|own| *own >= QUEUE_OF_ADDRESS_MAX) {
            return Some(LIMIT_OF_ADDRESS);
        }
        (self.taken() >= QUEUE_MAX).then_some(LIMIT)
    }

    fn count(&mut self, client: Client) {
        if let Some(client) = client {
            *self.of_clients.entry(client).or_default() += 1;
        }
    }

    fn uncount(&mut self, client: Client) {
        let Some(client) = client else { return };
        if let Some(own) = self.of_clients.get_mut(&client) {
            *own -= 1;
            if *own == 0 {
                self.of_clients.remove(&client);
            }
        }
    }

    /// Counts a record of an unauthenticated client; returns false if the limit of this minute is reached.
    fn admits_stranger(&mut self, now: Instant) -> bool {
        let (_, count) = match &mut self.minute {
            Some(of) if now.duration_since(of.0) < MINUTE => of,
            of => of.insert((now, 0)),
        };
        *count = count.saturating_add(1);
        *count <= STRANGERS_PER_MINUTE && self.of_strangers < QUEUE_OF_STRANGERS_MAX
    }

    /// Assigns a number even if the record is then lost, so that readers of the trail notice the gap.
    fn number(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn lose(&mut self) {
        self.number();
        self.lost += 1;
        self.untold += 1;
    }

    /// Reports the number of lost records before the next record.
    fn tell_lost(&mut self) {
        let count = std::mem::take(&mut self.untold);
        self.push(Event::RecordsLost { count }, None);
    }

    fn push(&mut self, event: Event, client: Client) {
        if self.untold > 0 {
            self.tell_lost();
        }
        let seq = self.number();
        self.of_strangers += usize::from(event.is_of_stranger());
        self.count(client);
        self.waiting.push_back(QueuedRecord { at: SystemTime::now(), seq, event, client });
    }
}

/// One trail.
pub(crate) struct Trail {
    queue: Mutex<Queue>,
    /// The thread has work.
    work: Condvar,
    /// The thread has made progress.
    done: Condvar,
    options: Options,
    host: Arc<dyn Host>,
}

impl std::fmt::Debug for Trail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trail({})", self.options.sink)
    }
}

impl Trail {
    /// Starts a trail. If the thread cannot be started, the trail is broken and writes no records.
    pub(crate) fn start(options: Options, host: Arc<dyn Host>) -> Arc<Self> {
        let (queue, work, done) = (Mutex::default(), Condvar::new(), Condvar::new());
        let trail = Arc::new(Self { queue, work, done, options, host });
        let own = trail.clone();
        let thread = thread::Builder::new().name("audit".into()).spawn(move || own.run());
        if let Err(e) = thread {
            tracing::error!(error = %e, "no thread for the audit trail");
            let mut queue = trail.lock();
            (queue.broken, queue.ended) = (Some(e.to_string()), true);
        }
        trail
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        locked(&self.queue)
    }

    /// Records an event; returns it if the trail has ended. The record is lost if the queue is full.
    pub(crate) fn add(&self, event: Event) -> Option<Event> {
        let mut queue = self.lock();
        if queue.ending {
            return Some(event);
        }
        let client = self.host.client();
        let full = queue.is_full_for(client).or_else(|| {
            let has_room = !event.is_of_stranger() || queue.admits_stranger(Instant::now());
            (!has_room).then_some(LIMIT)
        });
        if let Some(limit) = full {
            queue.lose();
            drop(queue);
            self.host.limit_met(limit);
            return None;
        }
        queue.push(event, client);
        drop(queue);
        self.work.notify_one();
        None
    }

    /// Reserves space for one record if the trail is required. Returns the client for which it is.
    pub(crate) fn permit(&self) -> Result<Client, NotRecorded> {
        let client = self.host.client();
        if !self.options.required {
            return Ok(client);
        }
        let mut queue = self.lock();
        let full = queue.is_full_for(client).or(queue.broken.is_some().then_some(LIMIT));
        let Some(limit) = full else {
            queue.permits += 1;
            queue.count(client);
            return Ok(client);
        };
        drop(queue);
        self.host.limit_met(limit);
        Err(NotRecorded)
    }

    /// Releases an unused permit.
    pub(crate) fn give_back(&self, client: Client) {
        if self.options.required {
            let mut queue = self.lock();
            queue.permits = queue.permits.saturating_sub(1);
            queue.uncount(client);
        }
    }

    /// Records an event with reserved space; returns it if the trail has ended meanwhile.
    pub(crate) fn add_permitted(&self, event: Event, client: Client) -> Option<Event> {
        if !self.options.required {
            return self.add(event);
        }
        let mut queue = self.lock();
        queue.permits = queue.permits.saturating_sub(1);
        queue.uncount(client);
        if queue.ending {
            return Some(event);
        }
        queue.push(event, client);
        drop(queue);
        self.work.notify_one();
        None
    }

    pub(crate) fn reopen(&self) {
        self.lock().reopen = true;
        self.work.notify_one();
    }

    /// Waits until all records are written.
    pub(crate) fn flush(&self, until: Instant) -> bool {
        let mut queue = self.lock();
        loop {
            if queue.waiting.is_empty() && queue.in_work == 0 && queue.untold == 0 {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || queue.ended {
                return false;
            }
            let waited = self.done.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes as many remaining records as possible within a short time, and ends the thread.
    pub(crate) fn end(&self) {
        let until = Instant::now() + END;
        loop {
            let is_written = self.flush(until);
            let mut queue = self.lock();
            let left = queue.waiting.len() + queue.in_work;
            if is_written && left > 0 {
                // A record was added meanwhile.
                continue;
            }
            if left > 0 {
                tracing::error!(sink = %self.options.sink, left, "records of the audit trail are lost: they cannot be written");
            }
            // No record is accepted from here on.
            queue.ending = true;
            break;
        }
        self.work.notify_one();
    }

    pub(crate) fn status(&self) -> TrailStatus {
        let queue = self.lock();
        TrailStatus {
            sink: self.options.sink.to_string(),
            written: queue.written,
            lost: queue.lost,
            waiting: queue.waiting.len() + queue.in_work,
            broken: queue.broken.clone(),
            required: self.options.required,
        }
    }
}

/// Methods of the writer thread.
impl Trail {
    fn run(&self) {
        let mut out = OpenSink { open: None, path_changed: false };
        while let Some(mut next) = self.next(&mut out) {
            if let Some(party) = next.event.party() {
                self.name(party);
            }
            let line = line(&next);
            let is_written = self.write(&mut out, &line);
            let mut queue = self.lock();
            queue.in_work = 0;
            queue.uncount(next.client);
            if is_written {
                queue.written += 1;
            }
            let is_idle = queue.waiting.is_empty();
            drop(queue);
            if is_idle {
                self.done.notify_all();
            }
        }
        self.lock().ended = true;
        self.done.notify_all();
    }

    /// Waits for a record; `None` when the trail has ended. Also opens the sink, so that a sink that cannot be written is detected
    /// before the first record.
    fn next(&self, out: &mut OpenSink) -> Option<QueuedRecord> {
        let mut queue = self.lock();
        loop {
            if std::mem::take(&mut queue.reopen) {
                out.open = None;
            }
            if queue.ending {
                return None;
            }
            if out.open.is_none() {
                drop(queue);
                self.open(out);
                queue = self.lock();
            }
            if queue.waiting.is_empty() && queue.untold > 0 {
                queue.tell_lost();
            }
            if let Some(next) = queue.waiting.pop_front() {
                queue.of_strangers -= usize::from(next.event.is_of_stranger());
                queue.in_work = 1;
                return Some(next);
            }
            if queue.reopen || queue.ending {
                continue;
            }
            // Retry a sink that could not be opened even if no record is queued.
            queue = match out.open.is_none() {
                true => {
                    let waited = self.work.wait_timeout(queue, RETRY);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                false => self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Looks up the name of a user that has only a number; falls back to the number.
    fn name(&self, party: &mut Party) {
        if let Some(uid) = party.uid.filter(|_| party.user.is_empty()) {
            let name = self.host.user(uid).unwrap_or_else(|| uid.to_string());
            party.user = name.into();
        }
    }

    /// Writes a whole line, however long the sink takes. Returns false if the trail ended first.
    fn write(&self, out: &mut OpenSink, line: &[u8]) -> bool {
        let mut done = 0;
        loop {
            if std::mem::take(&mut self.lock().reopen) {
                out.open = None;
            }
            if out.open.is_none() {
                self.open(out);
            }
            if std::mem::take(&mut out.path_changed) {
                done = 0;
            }
            if let Some(open) = &mut out.open {
                match open.write(&line[done..], done == 0) {
                    Ok(n) => done += n,
                    Err(e) => {
                        self.broken(Some(e.to_string()));
                        // A line that was started must continue in the same file.
                        out.open = out.open.take().filter(|_| done > 0);
                    }
                }
            }
            if done == line.len() {
                self.broken(None);
                return true;
            }
            let queue = self.lock();
            if queue.broken.is_none() {
                continue;
            }
            if queue.ending {
                return false;
            }
            drop(self.work.wait_timeout_while(queue, RETRY, |q| !q.reopen && !q.ending));
        }
    }

    fn open(&self, out: &mut OpenSink) {
        match self.options.sink.open() {
            Ok(open) => {
                (out.open, out.path_changed) = (Some(open), true);
                // Opening also succeeds on a full disk, so with queued records the next write decides whether the sink works.
                if self.lock().waiting.is_empty() && self.lock().in_work == 0 {
                    self.broken(None);
                }
            }
            Err(e) => self.broken(Some(e.to_string())),
        }
    }

    fn broken(&self, why: Option<String>) {
        let mut queue = self.lock();
        if queue.broken == why {
            return;
        }
        let (sink, required) = (&self.options.sink, self.options.required);
        match &why {
            Some(error) => {
                let consequence = match required {
                    true => "what must be recorded is refused",
                    false => "records wait, and are lost when too many do",
                };
                tracing::error!(%sink, error, "the audit trail cannot be written: {consequence}");
            }
            None => {
                tracing::warn!(%sink, lost = queue.lost, "the audit trail is written again");
            }
        }
        queue.broken = why;
    }
}

/// The sink that the thread has open.
struct OpenSink {
    open: Option<Open>,
    /// The sink was reopened since the line was started.
    path_changed: bool,
}

fn line(waiting: &QueuedRecord) -> Vec<u8> {
    let time = crate::time::rfc3339(waiting.at);
    let record = Record { time, seq: waiting.seq, event: &waiting.event };
    // The record has only strings and numbers, so serialization cannot fail.
    let mut line = crate::peer_text::json(serde_json::to_vec(&record).unwrap_or_default());
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use serde_json::Value;

    use super::*;
    use crate::Sink;
    use crate::event::FileEvent;
    use crate::peer_text::RecordText;

    const SOON: Duration = Duration::from_secs(30);

    #[derive(Default)]
    struct TestHost(AtomicU64);

    thread_local! {
        static CLIENT: std::cell::Cell<Client> = const { std::cell::Cell::new(None) };
    }

    impl Host for TestHost {
        fn user(&self, uid: u32) -> Option<String> {
            (uid == 7).then(|| "alice".into())
        }

        fn client(&self) -> Option<IpAddr> {
            CLIENT.get()
        }

        fn limit_met(&self, _limit: &'static str) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn to(sink: Sink, required: bool) -> (Arc<Trail>, Arc<TestHost>) {
        let host = Arc::new(TestHost::default());
        (Trail::start(Options { sink, required }, host.clone()), host)
    }

    fn flushed(trail: &Trail) {
        assert!(trail.flush(Instant::now() + SOON), "{:?}", trail.status());
    }

    fn removed(uid: u32) -> Event {
        let (peer, share, path) = ([192, 0, 2, 1].into(), "team".into(), "f".into());
        let party = Party::numbered(uid);
        let of = FileEvent { peer, protocol: "nfs", party, share, path, result: "ok" };
        Event::Delete { of, kept: None }
    }

    fn records(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[test]
    fn records_are_ordered_with_user_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let (trail, _) = to(Sink::File(path.clone()), false);
        assert!(trail.add(removed(7)).is_none());
        assert!(trail.add(removed(8)).is_none());
        flushed(&trail);
        let all = records(&path);
        let keys: Vec<&str> = all[0].as_object().unwrap().keys().map(String::as_str).collect();
        assert!(["time", "seq", "event", "user"].iter().all(|k| keys.contains(k)), "{keys:?}");
        assert_eq!((&all[0]["user"], &all[1]["user"]), (&"alice".into(), &"8".into()));
        assert_eq!((&all[0]["seq"], &all[1]["seq"]), (&1.into(), &2.into()));
        trail.end();
        assert_eq!(trail.status().written, 2);
    }

    #[test]
    fn renamed_file_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("a.jsonl"), dir.path().join("a.jsonl.1"));
        let (trail, _) = to(Sink::File(path.clone()), false);
        assert!(trail.add(removed(7)).is_none());
        flushed(&trail);
        fs::rename(&path, &old).unwrap();
        trail.reopen();
        assert!(trail.add(removed(7)).is_none());
        flushed(&trail);
        assert_eq!((records(&old).len(), records(&path).len()), (1, 1));
        trail.end();
    }

    /// A journal that accepts one record and then blocks until it is read.
    fn stuck(dir: &Path) -> (UnixDatagram, Sink) {
        let at = dir.join("journal");
        (UnixDatagram::bind(&at).unwrap(), Sink::Journal(at))
    }

    #[test]
    fn overflowing_records_are_counted_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("no/a.jsonl");
        let (trail, host) = to(Sink::File(path.clone()), false);
        for _ in 0..QUEUE_MAX + 5 {
            assert!(trail.add(removed(7)).is_none());
            trail.permit().unwrap();
        }
        assert_eq!((trail.status().lost, host.0.load(Ordering::Relaxed)), (5, 5));
        fs::create_dir(dir.path().join("no")).unwrap();
        flushed(&trail);
        let all = records(&path);
        assert_eq!(all.len(), QUEUE_MAX + 1);
        let last = all.last().unwrap();
        assert_eq!((&last["event"], &last["count"]), (&"records-lost".into(), &5.into()));
        assert!(trail.status().broken.is_none());
        trail.end();
    }

    #[test]
    fn broken_required_trail_refuses_permits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("no/a.jsonl");
        let (trail, host) = to(Sink::File(path.clone()), true);
        let broken = |is: bool| {
            let until = Instant::now() + SOON;
            while trail.status().broken.is_some() != is {
                assert!(Instant::now() < until);
                thread::yield_now();
            }
        };
        broken(true);
        assert_eq!(trail.permit(), Err(NotRecorded));
        assert_eq!(host.0.load(Ordering::Relaxed), 1);
        fs::create_dir(dir.path().join("no")).unwrap();
        broken(false);
        for _ in 0..QUEUE_MAX {
            trail.permit().unwrap();
        }
        assert_eq!(trail.permit(), Err(NotRecorded), "all room is given");
        assert!(trail.add(removed(7)).is_none());
        assert!(trail.add_permitted(removed(7), None).is_none());
        trail.give_back(None);
        flushed(&trail);
        trail.permit().unwrap();
        let told: Vec<Value> = records(&path);
        assert_eq!(told.iter().filter(|r| r["event"] == "delete").count(), 1, "{told:?}");
        assert_eq!(trail.status().lost, 1, "what had no permit found no room");
        trail.end();
    }

    /// One address leaves room to others, with records and with permits.
    #[test]
    fn records_of_address_leave_room_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let (greedy, other) = (Some([192, 0, 2, 1].into()), Some([192, 0, 2, 2].into()));
        let (trail, host) = to(Sink::File(dir.path().join("no/a.jsonl")), false);
        CLIENT.set(greedy);
        for _ in 0..QUEUE_OF_ADDRESS_MAX + 3 {
            assert!(trail.add(removed(7)).is_none());
        }
        CLIENT.set(other);
        assert!(trail.add(removed(8)).is_none());
        assert_eq!((trail.status().lost, host.0.load(Ordering::Relaxed)), (3, 3));
        trail.end();

        let (trail, _) = to(Sink::File(dir.path().join("a.jsonl")), true);
        CLIENT.set(greedy);
        for _ in 0..QUEUE_OF_ADDRESS_MAX {
            assert_eq!(trail.permit(), Ok(greedy));
        }
        assert_eq!(trail.permit(), Err(NotRecorded));
        CLIENT.set(other);
        assert_eq!(trail.permit(), Ok(other));
        // Another thread may end the operation.
        CLIENT.set(None);
        trail.give_back(greedy);
        assert!(trail.add_permitted(removed(7), greedy).is_none());
        flushed(&trail);
        CLIENT.set(greedy);
        assert_eq!((trail.permit(), trail.permit()), (Ok(greedy), Ok(greedy)));
        assert_eq!(trail.permit(), Err(NotRecorded));
        trail.end();
    }

    #[test]
    fn unauthenticated_clients_have_limited_records() {
        let dir = tempfile::tempdir().unwrap();
        let (trail, _) = to(Sink::File(dir.path().join("no/a.jsonl")), false);
        let refused = || Event::LogonRefused {
            peer: [192, 0, 2, 1].into(),
            user: RecordText::default(),
            reason: "no such user",
        };
        let most = u64::from(STRANGERS_PER_MINUTE).min(QUEUE_OF_STRANGERS_MAX as u64);
        for _ in 0..most + 3 {
            assert!(trail.add(refused()).is_none());
        }
        assert_eq!(trail.status().lost, 3);
        assert!(trail.add(removed(7)).is_none());
        assert_eq!(trail.status().lost, 3, "others have room");
        let mut queue = Queue::default();
        let now = Instant::now();
        assert!((0..STRANGERS_PER_MINUTE).all(|_| queue.admits_stranger(now)));
        assert!(!queue.admits_stranger(now) && queue.admits_stranger(now + MINUTE));
        trail.end();
    }

    #[test]
    fn recovered_journal_gets_queued_records() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, sink) = stuck(dir.path());
        let (trail, _) = to(sink, false);
        assert!(trail.add(removed(7)).is_none());
        let mut entry = [0; 4096];
        let len = journal.recv(&mut entry).unwrap();
        assert!(std::str::from_utf8(&entry[..len]).unwrap().contains("\"event\":\"delete\""));
        flushed(&trail);
        drop(journal);
        fs::remove_file(dir.path().join("journal")).unwrap();
        assert!(trail.add(removed(8)).is_none());
        let until = Instant::now() + SOON;
        while trail.status().broken.is_none() {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
        let (journal, _) = stuck(dir.path());
        journal.recv(&mut entry).unwrap();
        flushed(&trail);
        assert_eq!(trail.status().lost, 0);
        trail.end();
    }
}
