//! Tests that want a cluster of Ceph.
//!
//! *Operation.* `tests/ceph/cluster` starts one of a single node, of ordinary processes, and ends it whatever the tests say.

use crate::programs::one_test;
use crate::sh::{Result, Tally, run};

const CLUSTER: &str = "tests/ceph/cluster";

/// Everything that is tested on a cluster.
pub(crate) fn tier() -> Result<Tally> {
    let mut tally = Tally::default();
    tally.add(one_test("ceph-sys", "layout", &[])?);
    run(&[CLUSTER, "up"])?;
    let tested = ["vfs", "gateway"].map(|of| one_test(of, "ceph", &[]));
    run(&[CLUSTER, "down"])?;
    for part in tested {
        tally.add(part?);
    }
    Ok(tally)
}
