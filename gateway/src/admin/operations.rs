//! Counters of operations, as data.

use std::time::Duration;

use rdma_transport::meter::{BUCKETS, Histogram, Meters, Reading};
use serde::{Deserialize, Serialize};

use super::protocol::Protocol;

/// One operation for a share on a protocol and transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationStatus {
    /// Name of the share; empty for operations outside of shares.
    pub share: String,
    /// The protocol.
    pub protocol: Protocol,
    /// `tcp`, or the RDMA provider.
    pub transport: String,
    /// The specification's name.
    pub operation: String,
    /// How many were done.
    pub count: u64,
    /// Answered with an error.
    pub errors: u64,
    /// Bytes of file data.
    pub bytes: u64,
    /// Time that all of them took.
    pub nanoseconds: u64,
    /// How many took how long: number of the bucket ([`rdma_transport::meter`]), and how many are in it.
    pub buckets: Vec<(u8, u64)>,
}

impl OperationStatus {
    fn new(r: Reading) -> Self {
        let (protocol, operation) = match r.way.protocol {
            "smb" => (Protocol::Smb, smb_proto::smb2::Command::name_of(r.operation)),
            _ => (Protocol::Nfs, nfsrdma::operation::name(r.operation)),
        };
        let filled = (0u8..).zip(&r.took.buckets).filter(|(_, n)| **n > 0);
        Self {
            share: r.share,
            protocol,
            transport: r.way.transport.to_owned(),
            operation: operation.to_owned(),
            count: r.took.count(),
            errors: r.errors,
            bytes: r.bytes,
            nanoseconds: u64::try_from(r.took.sum.as_nanos()).unwrap_or(u64::MAX),
            buckets: filled.map(|(at, n)| (at, *n)).collect(),
        }
    }

    /// Returns the latency histogram.
    pub fn histogram(&self) -> Histogram {
        let mut buckets = vec![0; BUCKETS];
        for (at, n) in &self.buckets {
            if let Some(place) = buckets.get_mut(usize::from(*at)) {
                *place += n;
            }
        }
        Histogram { sum: Duration::from_nanos(self.nanoseconds), buckets }
    }

    /// Returns the key under which it is counted: share, protocol, transport and operation.
    pub fn key(&self) -> (&str, Protocol, &str, &str) {
        (&self.share, self.protocol, &self.transport, &self.operation)
    }
}

/// Returns all counters, sorted by share, protocol, transport and name.
pub fn list(meters: &Meters) -> Vec<OperationStatus> {
    let mut all: Vec<_> = meters.read().into_iter().map(OperationStatus::new).collect();
    all.sort_by(|a, b| a.key().cmp(&b.key()));
    all
}
