//! One cell of the matrix: the first client acquires, the second conflicts, and all effects are recorded.

use std::time::{Duration, Instant};

use client::Error;
use client::nfs4::Recall;
use client::smb::Break;
use smb_proto::smb2::create::oplock;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::kinds::{H, Kind, R, W, letters, level};
use crate::markers::{Markers, TOLD_MAX};
use crate::side::{Hold, Side, Taken};

/// Initial content of a file, and the data written by the first and the second client.
pub(crate) const BASE: &[u8] = b"base!";
pub(crate) const FIRST: &[u8] = b"first";
pub(crate) const SECOND: &[u8] = b"secnd";

/// The recorded results of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Notices to the first client, in order.
    pub(crate) told: String,
    /// The result of the second client.
    pub(crate) got: String,
    /// Violations of the rules for every cell.
    pub(crate) faults: Vec<String>,
}

/// Times after the second client's request. They depend on the machine, so they are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Took {
    /// The second client had its result.
    pub(crate) answered: Duration,
    /// The first client was notified, if it was.
    pub(crate) told: Option<Duration>,
}

/// How long the first client delays its answer to a recall, to see which requests wait for it. A run with unexpected results is
/// repeated with a longer time, so that a busy machine causes no failure.
#[derive(Clone, Copy)]
pub(crate) struct Pace(Duration);

impl Pace {
    pub(crate) const BRISK: Self = Self(Duration::from_millis(60));
    /// The first client answers at once.
    pub(crate) const PROMPT: Self = Self(Duration::ZERO);
    pub(crate) const CALM: Self = Self(Duration::from_millis(600));
}

/// The first client, which answers breaks and recalls.
struct Holder<'a> {
    side: &'a mut Side,
    hold: Hold,
    told: Vec<String>,
    /// When the second client made its request, and when the first was notified after that.
    came_at: Instant,
    told_after: Option<Duration>,
    pace: Pace,
    second_done: watch::Receiver<bool>,
    /// Changes outside the gateway after the second client, if it bypassed the gateway.
    markers: Option<Markers>,
}

impl Holder<'_> {
    /// Answers notices until the second client is done and all notices that it caused have arrived.
    async fn answer_all(&mut self) {
        while !*self.second_done.borrow() {
            tokio::select! {
                Some(told) = self.side.breaks.recv() => self.on_break(told).await,
                Some(recall) = self.side.recalls.recv() => self.on_recall(recall).await,
                _ = self.second_done.changed() => {}
            }
        }
        self.pass_markers().await;
        // A break caused by the second client is queued on the connection before the second gets its answer, so the first client's
        // next request is answered after it. A break queued only after another answer was sent precedes the answer after that.
        loop {
            let before = self.told.len();
            for _ in 0..2 {
                // The content of the answer does not matter.
                let answer = self.side.smb.interfaces().await;
                assert!(matches!(answer, Ok(_) | Err(Error::Smb(..))), "{answer:?}");
                self.answer_what_came().await;
            }
            if self.told.len() == before {
                return;
            }
        }
    }

    async fn answer_what_came(&mut self) {
        while let Ok(told) = self.side.breaks.try_recv() {
            self.on_break(told).await;
        }
        while let Ok(recall) = self.side.recalls.try_recv() {
            self.on_recall(recall).await;
        }
    }

    /// The kernel reports changes in order: a notice of a later change follows the notice of the second client's change.
    async fn pass_markers(&mut self) {
        while let Some(mut markers) = self.markers.take() {
            let Some(next) = markers.change_next(self.side).await else { return };
            let told = async {
                loop {
                    tokio::select! {
                        Some(told) = self.side.breaks.recv() => {
                            if next.is_told_by_break(&told) {
                                return;
                            }
                            self.on_break(told).await;
                        }
                        Some(recall) = self.side.recalls.recv() => {
                            if next.is_told_by_recall(&recall) {
                                return;
                            }
                            self.on_recall(recall).await;
                        }
                    }
                }
            };
            assert!(timeout(TOLD_MAX, told).await.is_ok(), "nobody was told of a marker");
            next.leave(self.side).await;
            self.markers = Some(markers);
        }
    }

    async fn on_recall(&mut self, recall: Recall) {
        let mine = self.hold.delegation.as_ref();
        if mine.is_none_or(|(_, d)| d.stateid != recall.stateid) {
            return;
        }
        self.told_after.get_or_insert(self.came_at.elapsed());
        let waits = self.second_waits().await;
        self.told.push(format!("delegation recalled{waits}"));
        if let Err(e) = self.side.flush(&mut self.hold).await {
            self.told.push(format!("WRITE: {e}"));
        }
        self.hold.caches = 0;
        let Some((fh, d)) = self.hold.delegation.take() else { return };
        if let Err(e) = self.side.nfs4.delegreturn(&fh, d.stateid).await {
            self.told.push(format!("DELEGRETURN: {e}"));
        }
    }

    /// Whether the second client waits for the answer.
    async fn second_waits(&self) -> &'static str {
        let mut done = self.second_done.clone();
        let waits = timeout(self.pace.0, done.wait_for(|done| *done)).await.is_err();
        if waits { "" } else { ", but the second does not wait" }
    }

    async fn on_break(&mut self, told: Break) {
        let (from, to, acknowledge, text) = match told {
            Break::LeaseNotice(n) if n.key == self.hold.key => {
                let text = format!("lease {} to {}", letters(n.from), letters(n.to));
                (n.from, n.to, n.acknowledge, text)
            }
            Break::Oplock(o) if self.hold.smb.is_some_and(|f| f.is(o.file)) => {
                let from = self.hold.caches;
                let to = if o.level == oplock::NONE { 0 } else { R };
                (from, to, from & W != 0, format!("oplock to {}", level(o.level)))
            }
            // A notice of an earlier cell.
            _ => return,
        };
        self.told_after.get_or_insert(self.came_at.elapsed());
        let waits = if acknowledge { self.second_waits().await } else { "" };
        let how = if acknowledge { "" } else { ", no acknowledgment" };
        self.told.push(format!("{text}{how}{waits}"));
        let done = self.give_back(from, to, acknowledge, told).await;
        if let Err(e) = done {
            self.told.push(format!("the answer was refused: {e}"));
        }
    }

    async fn give_back(
        &mut self,
        from: u32,
        to: u32,
        acknowledge: bool,
        told: Break,
    ) -> client::Result<()> {
        if from & W != 0 && to & W == 0 {
            self.side.flush(&mut self.hold).await?;
        }
        self.hold.caches = to;
        // The application has closed the file already; the handle was kept for reuse.
        if from & H != 0 && to & H == 0 {
            self.side.flush(&mut self.hold).await?;
            self.hold.caches = 0;
            return match self.hold.smb.take() {
                Some(file) => self.side.smb.close(file).await,
                None => Ok(()),
            };
        }
        match told {
            Break::LeaseNotice(n) if acknowledge => {
                self.side.smb.acknowledge_lease(n.key, n.to).await
            }
            Break::Oplock(o) if acknowledge => match &self.hold.smb {
                Some(file) => self.side.smb.acknowledge_oplock(file, o.level).await,
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// Creates the file, lets the first client acquire it, and runs the second.
pub(crate) async fn run(
    (a, b): (&mut Side, &Side),
    (first, second): (Kind, Kind),
    name: &str,
    pace: Pace,
) -> (Seen, Took) {
    let path = a.folder.join(name);
    std::fs::write(&path, BASE).unwrap();
    let taken = a.take(first, name, FIRST).await;
    let mut faults = Vec::new();
    let mut hold = taken.hold;
    if !taken.good || hold.caches != first.caches() {
        faults.push(format!("the first did not get it: {}", taken.outcome));
    }
    if hold.caches & W != 0 {
        hold.delegated_attrs = Some(FIRST.to_vec());
    }
    if matches!(first, Kind::ReadDelegation | Kind::WriteDelegation)
        && let Some(file) = hold.v4.take()
        && let Err(e) = a.nfs4.close(&file).await
    {
        faults.push(format!("CLOSE beside a delegation: {e}"));
    }
    let markers = match second.is_local() {
        true => Some(Markers::set(a, first, name).await),
        false => None,
    };
    let (done, second_done) = watch::channel(false);
    let came_at = Instant::now();
    let mut holder = Holder {
        side: a,
        hold,
        told: Vec::new(),
        came_at,
        told_after: None,
        pace,
        second_done,
        markers,
    };
    let coming = async {
        let came = b.take(second, name, SECOND).await;
        done.send_replace(true);
        (came, came_at.elapsed())
    };
    let ((mut came, answered), ()) = tokio::join!(coming, holder.answer_all());
    let took = Took { answered, told: holder.told_after };
    let told = holder.told.join("; ");
    let mut hold = holder.hold;
    faults.extend(judge(a, &hold, (first, second), &came, &path, name).await);
    faults.extend(end((a, b), &mut hold, &mut came, (first, second), &path).await);
    let got = sees(&came);
    let told = if told.is_empty() { "no notice".into() } else { told };
    let _ = std::fs::remove_file(&path);
    (Seen { told, got, faults }, took)
}

fn sees(came: &Taken) -> String {
    let data = match &came.hold.seen[..] {
        BASE => "the old data",
        FIRST => "the first's data",
        _ => return came.outcome.clone(),
    };
    format!("{}, reads {data}", came.outcome)
}

/// Checks the rules for every cell while both clients are active.
async fn judge(
    a: &Side,
    hold: &Hold,
    (first, second): (Kind, Kind),
    came: &Taken,
    path: &std::path::Path,
    name: &str,
) -> Vec<String> {
    let mut faults = Vec::new();
    let now = std::fs::read(path).unwrap();
    if hold.caches & (R | W) == R && hold.seen != now {
        faults.push("the first may read from a cache that is stale".to_owned());
    }
    if hold.caches & W != 0 && !second.is_local() && came.good {
        faults.push("the first may write into its cache beside another".to_owned());
    }
    let cached = hold.delegated_attrs.is_some() && second.is_local();
    let read = !came.hold.seen.is_empty();
    if read && !second.writes() && !cached && came.hold.seen != now {
        faults.push("the second read what was not there".to_owned());
    }
    if came.good && came.hold.caches & W != 0 && hold.caches != 0 {
        faults.push("two cache, one of them for writing".to_owned());
    }
    let locks = |k| matches!(k, Kind::RangeLock | Kind::V4Lock | Kind::NlmLock);
    if locks(first) && locks(second) && came.good {
        faults.push("two hold one lock".to_owned());
    }
    if first == Kind::RangeLock && read && !second.is_local() {
        faults.push("a mandatory lock did not bind".to_owned());
    }
    // A holder that lost its cache must read the current data. If the second client has exclusive access, reading would conflict.
    if hold.caches == 0
        && came.hold.caches & W == 0
        && let Some(seen) = a.look(hold, name).await
        && seen != now
    {
        faults.push("the first does not see the file as it is".to_owned());
    }
    faults
}

/// Ends both clients; written data must not be lost.
async fn end(
    (a, b): (&Side, &Side),
    hold: &mut Hold,
    came: &mut Taken,
    (first, second): (Kind, Kind),
    path: &std::path::Path,
) -> Vec<String> {
    let mut faults = Vec::new();
    // Data that a client wrote back later overwrites data written outside the gateway meanwhile.
    let goes_over = second.is_local() && first.caches() & W != 0;
    for (who, left) in [("first", a.leave(hold).await), ("second", b.leave(&mut came.hold).await)] {
        if let Err(e) = left {
            faults.push(format!("the {who} could not leave: {e}"));
        }
    }
    if hold.delegated_attrs.is_some() {
        faults.push("what the first wrote was never asked for".to_owned());
    }
    let now = std::fs::read(path).unwrap();
    if second.writes() && came.good && !goes_over && now != SECOND {
        faults.push("what the second wrote is lost".to_owned());
    }
    if goes_over && now != FIRST {
        faults.push("what the first wrote is lost".to_owned());
    }
    faults
}
