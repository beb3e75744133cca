//! The displayed data, computed without side effects.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use rdma_transport::meter::Histogram;

use crate::admin::operations::OperationStatus;
use crate::admin::snapshot::{
    ConnectionStatus, Moved, PoolStatus, RateStatus, RefusedStatus, Snapshot,
};

/// Rates of the time between two snapshots.
pub(super) struct View {
    pub(super) version: String,
    pub(super) ready: bool,
    /// Reason why the state folder cannot be written.
    pub(super) store: Option<String>,
    pub(super) uptime_seconds: u64,
    /// Bytes per second by path, and requests per second.
    pub(super) moved: Rates,
    pub(super) latency: Histogram,
    pub(super) errors: f64,
    pub(super) pool: Vec<PoolStatus>,
    /// Messages that wait for a credit of their client.
    pub(super) credits_waiting: u64,
    pub(super) refused: u64,
    /// The newest refusal.
    pub(super) refused_last: Option<RefusedStatus>,
    /// The rates of `limits`: what passed a second, and the rest of their state.
    pub(super) limits: Vec<(f64, RateStatus)>,
    pub(super) clients: Vec<Client>,
    pub(super) operations: Vec<Operation>,
    pub(super) shares: Vec<Operation>,
}

/// Amounts per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) requests: f64,
    pub(super) rdma_write: f64,
    pub(super) rdma_read: f64,
    pub(super) inline_in: f64,
    pub(super) inline_out: f64,
}

#[allow(clippy::cast_precision_loss)] // Rates are for reading.
impl Rates {
    fn of(now: Moved, before: Moved, seconds: f64) -> Self {
        let m = now.minus(before);
        let per = |n: u64| n as f64 / seconds;
        Self {
            requests: per(m.requests),
            rdma_write: per(m.rdma_write),
            rdma_read: per(m.rdma_read),
            inline_in: per(m.inline_in),
            inline_out: per(m.inline_out),
        }
    }

    pub(super) fn bytes(&self) -> f64 {
        self.rdma_write + self.rdma_read + self.inline_in + self.inline_out
    }
}

/// A connection with its rates.
pub(super) struct Client {
    pub(super) status: ConnectionStatus,
    pub(super) rates: Rates,
}

/// An operation, or all operations of a share.
pub(super) struct Operation {
    pub(super) share: String,
    pub(super) way: String,
    pub(super) name: String,
    pub(super) rate: f64,
    pub(super) errors: f64,
    pub(super) bytes: f64,
    /// Latency in the interval.
    pub(super) took: Histogram,
}

#[allow(clippy::cast_precision_loss)] // As above.
impl Operation {
    fn new(now: &OperationStatus, before: Option<&OperationStatus>, seconds: f64) -> Self {
        let took = before
            .map_or_else(|| now.histogram(), |before| now.histogram().since(&before.histogram()));
        let earlier = before.map_or((0, 0), |b| (b.errors, b.bytes));
        let per = |n: u64| n as f64 / seconds;
        Self {
            share: now.share.clone(),
            way: format!("{}/{}", now.protocol.name(), now.transport),
            name: now.operation.clone(),
            rate: per(took.count()),
            errors: per(now.errors.saturating_sub(earlier.0)),
            bytes: per(now.bytes.saturating_sub(earlier.1)),
            took,
        }
    }

    fn add(&mut self, other: &Self) {
        self.rate += other.rate;
        self.errors += other.errors;
        self.bytes += other.bytes;
        self.took.add(&other.took);
    }
}

impl View {
    /// Computes the view of two snapshots taken `seconds` apart.
    pub(super) fn new(before: &Snapshot, now: &Snapshot, seconds: f64) -> Self {
        let seconds = seconds.max(0.001);
        let sum = |s: &Snapshot| s.moved.values().fold(Moved::default(), |sum, m| sum.plus(*m));
        let known: HashMap<u64, Moved> =
            before.connections.iter().map(|c| (c.id, c.moved)).collect();
        let client = |c: &ConnectionStatus| {
            let earlier = known.get(&c.id).copied().unwrap_or_default();
            Client { status: c.clone(), rates: Rates::of(c.moved, earlier, seconds) }
        };
        let earlier: HashMap<_, _> = before.operations.iter().map(|o| (o.key(), o)).collect();
        let of = |o: &OperationStatus| Operation::new(o, earlier.get(&o.key()).copied(), seconds);
        let operations: Vec<Operation> = now.operations.iter().map(of).collect();
        let mut latency = Histogram::default();
        operations.iter().for_each(|o| latency.add(&o.took));
        Self {
            version: now.version.clone(),
            ready: now.ready,
            store: now.store.as_ref().map(|store| store.what.clone()),
            uptime_seconds: now.uptime_seconds,
            moved: Rates::of(sum(now), sum(before), seconds),
            latency,
            // The sum of an empty list would be -0.
            errors: operations.iter().fold(0.0, |sum, o| sum + o.errors),
            pool: now.pool.clone(),
            credits_waiting: now.connections.iter().map(|c| c.credits_waiting).sum(),
            refused: now.connections_refused,
            refused_last: now.refused.first().cloned(),
            limits: limits(before, now, seconds),
            clients: now.connections.iter().map(client).collect(),
            shares: by_share(&operations),
            operations,
        }
    }
}

/// Returns what passed under each rate in a second of the interval.
#[allow(clippy::cast_precision_loss)] // As above.
fn limits(before: &Snapshot, now: &Snapshot, seconds: f64) -> Vec<(f64, RateStatus)> {
    let of = |r: &RateStatus| {
        let same =
            |b: &&RateStatus| (&b.scope, &b.name, &b.measure) == (&r.scope, &r.name, &r.measure);
        let earlier = before.rates.iter().find(same).map_or(0, |b| b.passed);
        (r.passed.saturating_sub(earlier) as f64 / seconds, r.clone())
    };
    now.rates.iter().map(of).collect()
}

/// Sums the operations of each share; operations without a share are left out.
fn by_share(operations: &[Operation]) -> Vec<Operation> {
    let mut shares: BTreeMap<&str, Operation> = BTreeMap::new();
    for o in operations.iter().filter(|o| !o.share.is_empty()) {
        let empty = || Operation {
            share: o.share.clone(),
            way: String::new(),
            name: String::new(),
            rate: 0.0,
            errors: 0.0,
            bytes: 0.0,
            took: Histogram::default(),
        };
        shares.entry(&o.share).or_insert_with(empty).add(o);
    }
    shares.into_values().collect()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Clients,
    Operations,
    Shares,
}

impl Pane {
    pub(super) const ALL: [Self; 3] = [Self::Clients, Self::Operations, Self::Shares];

    pub(super) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|p| *p == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Operations => "operations",
            Self::Shares => "shares",
        }
    }

    /// Returns the columns by which it can be sorted; the first is the default.
    pub(super) fn sorts(self) -> &'static [&'static str] {
        match self {
            Self::Clients => &["bytes", "requests", "client", "age", "reason"],
            Self::Operations => &["rate", "99 %", "bytes", "errors", "operation"],
            Self::Shares => &["rate", "99 %", "bytes", "errors", "share"],
        }
    }
}

/// Choices of the user.
#[derive(Debug, Default)]
pub(super) struct Screen {
    pub(super) pane: Pane,
    pub(super) sort: usize,
    pub(super) reverse: bool,
    pub(super) selected: usize,
    /// Whether the details of the selected connection are shown.
    pub(super) inside: bool,
    pub(super) help: bool,
    /// The selected connection, which stays selected when the order changes.
    pub(super) chosen: Option<u64>,
}

impl Screen {
    pub(super) fn show(&mut self, pane: Pane) {
        *self = Self { pane, help: self.help, ..Self::default() };
    }

    pub(super) fn sort_next(&mut self) {
        self.sort = (self.sort + 1) % self.pane.sorts().len();
    }

    pub(super) fn step(&mut self, by: isize) {
        self.selected = self.selected.saturating_add_signed(by);
        self.chosen = None;
    }

    /// Moves the selection to an entry that still exists.
    pub(super) fn settle(&mut self, view: &View) {
        if self.pane != Pane::Clients {
            let len =
                if self.pane == Pane::Shares { view.shares.len() } else { view.operations.len() };
            self.selected = self.selected.min(len.saturating_sub(1));
            return;
        }
        let clients = self.clients(view);
        let stays = self.chosen.and_then(|id| clients.iter().position(|c| c.status.id == id));
        if self.chosen.is_some() && stays.is_none() {
            self.inside = false;
        }
        self.selected = stays.unwrap_or(self.selected).min(clients.len().saturating_sub(1));
        self.chosen = clients.get(self.selected).map(|c| c.status.id);
        self.inside &= self.chosen.is_some();
    }

    /// Returns the connections in the chosen order.
    pub(super) fn clients<'a>(&self, view: &'a View) -> Vec<&'a Client> {
        let mut all: Vec<&Client> = view.clients.iter().collect();
        let reason = |c: &Client| c.status.why_not.as_ref().map(|w| w.reason.clone());
        all.sort_by(|a, b| {
            let order = match self.pane.sorts()[self.sort] {
                "requests" => b.rates.requests.total_cmp(&a.rates.requests),
                "client" => a.status.peer.cmp(&b.status.peer),
                "age" => b.status.age_seconds.cmp(&a.status.age_seconds),
                "reason" => reason(b).cmp(&reason(a)),
                _ => b.rates.bytes().total_cmp(&a.rates.bytes()),
            };
            self.directed(order).then(a.status.id.cmp(&b.status.id))
        });
        all
    }

    /// Returns operations or shares in the chosen order.
    pub(super) fn operations<'a>(&self, all: &'a [Operation]) -> Vec<&'a Operation> {
        let mut all: Vec<&Operation> = all.iter().collect();
        let name = |o: &Operation| (o.share.clone(), o.name.clone(), o.way.clone());
        all.sort_by(|a, b| {
            let order = match self.pane.sorts()[self.sort] {
                "99 %" => b.took.quantile(990).cmp(&a.took.quantile(990)),
                "bytes" => b.bytes.total_cmp(&a.bytes),
                "errors" => b.errors.total_cmp(&a.errors),
                "operation" => a.name.cmp(&b.name),
                "share" => a.share.cmp(&b.share),
                _ => b.rate.total_cmp(&a.rate),
            };
            self.directed(order).then_with(|| name(a).cmp(&name(b)))
        });
        all
    }

    fn directed(&self, order: Ordering) -> Ordering {
        if self.reverse { order.reverse() } else { order }
    }
}
