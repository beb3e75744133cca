//! Reads the gateway's own counters after a run, to see how its bytes were transferred.

use std::collections::HashMap;

use crate::sh::Result;

/// The log has a line with this text for each connection that ended, with `name=value` fields.
const MARK: &str = "connection end";

/// The sum over all connections that ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) connections: u64,
    sums: HashMap<String, u64>,
}

impl Counters {
    /// Reads a log; only the lines of this transport, if one is named.
    pub(super) fn of_log(log: &str, transport: &str) -> Counters {
        let mut counters = Counters::default();
        let named = format!("transport=\"{transport}\"");
        let ours = |l: &String| l.contains(MARK) && (transport.is_empty() || l.contains(&named));
        for line in log.lines().map(without_colour).filter(ours) {
            counters.connections += 1;
            for (name, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
                if let Ok(n) = value.parse::<u64>() {
                    *counters.sums.entry(name.to_owned()).or_default() += n;
                }
            }
        }
        counters
    }

    fn get(&self, name: &str) -> Result<u64> {
        self.sums.get(name).copied().ok_or_else(|| format!("no {name} in the gateway's log"))
    }

    /// Checks that bulk data went by RDMA, and the rest by Sends below the inline threshold. `bulk` is the least number of bytes
    /// that clients read, and wrote.
    pub(super) fn bulk_by_rdma(&self, bulk: u64) -> Result<()> {
        let (write, read) = (self.get("rdma_write")?, self.get("rdma_read")?);
        if write < bulk || read < bulk {
            return Err(format!(
                "{write} bytes by RDMA Write and {read} by RDMA Read, at least {bulk} wanted"
            ));
        }
        let (requests, small) = (self.get("requests")?.max(1), self.get("inline_in")?);
        if small / requests > INLINE_MAX {
            return Err(format!("{small} bytes in {requests} requests: bulk went by Send"));
        }
        Ok(())
    }

    /// Checks that no data went by RDMA.
    pub(super) fn nothing_by_rdma(&self) -> Result<()> {
        match (self.get("rdma_write")?, self.get("rdma_read")?) {
            (0, 0) => Ok(()),
            (write, read) => {
                Err(format!("{write} bytes by RDMA Write, {read} by RDMA Read, over TCP"))
            }
        }
    }
}

/// The kernel's client sends at most this many bytes by a Send.
const INLINE_MAX: u64 = 4096;

/// Returns the line without terminal colours.
fn without_colour(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().unwrap_or("").to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
        2026 INFO connection end peer=10.77.0.2:777 rdma_write=900 rdma_read=800 inline_in=50 requests=2\n\
        2026 INFO something else rdma_write=5\n\
        2026 \u{1b}[32mINFO\u{1b}[0m connection end \u{1b}[3mrdma_write\u{1b}[0m\u{1b}[2m=\u{1b}[0m100 \
        rdma_read=200 inline_in=0 requests=1\n";

    #[test]
    fn connections_are_added_up() {
        let counters = Counters::of_log(LOG, "");
        assert_eq!(counters.connections, 2);
        assert_eq!((counters.get("rdma_write"), counters.get("rdma_read")), (Ok(1000), Ok(1000)));
        assert_eq!(counters.bulk_by_rdma(1000), Ok(()));
        assert!(counters.bulk_by_rdma(1001).is_err());
        assert!(counters.nothing_by_rdma().is_err());
    }

    #[test]
    fn bulk_by_send_is_found() {
        let log = "connection end rdma_write=9 rdma_read=9 inline_in=1000000 requests=10";
        assert!(Counters::of_log(log, "").bulk_by_rdma(9).is_err());
    }

    #[test]
    fn transport_is_counted_separately() {
        let log = "connection end transport=\"verbs\" rdma_write=1\n\
                   connection end transport=\"tcp\" rdma_write=2";
        let counters = Counters::of_log(log, "verbs");
        assert_eq!((counters.connections, counters.get("rdma_write")), (1, Ok(1)));
        assert_eq!(Counters::of_log(log, "iwarp").connections, 0);
    }

    #[test]
    fn log_without_counters_is_no_proof() {
        assert!(Counters::of_log("connection end", "").nothing_by_rdma().is_err());
    }
}
