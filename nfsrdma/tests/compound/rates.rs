//! Which operations of a COMPOUND the rates count.

use nfsrdma::v4::wire::op;
use rates::{Most, Plan};

use crate::harness::{Args, Harness};

/// Builds operations on this file.
type Ops = fn(Args, &[u8]) -> Args;

fn access(c: Args) -> Args {
    c.op(op::ACCESS, |w| w.u32(1))
}

#[tokio::test]
async fn operations_are_counted_once_on_each_file() {
    let harness = Harness::new();
    let (_, file) = harness.with_file(b"f", b"hello").await;
    let limits = &harness.nfs.core.namespace.limits;
    let mut plan = Plan::default();
    plan.all.operations = Some(1_000_000);
    limits.set(plan, Most::of_memory(256 << 20));
    let table: [(&str, u64, Ops); 8] = [
        ("GETATTR", 1, |c, f| c.putfh(f).getattr(&[1])),
        ("GETATTR before another one", 1, |c, f| c.putfh(f).getattr(&[1]).getfh()),
        ("GETATTR before DELEGRETURN", 0, |c, f| {
            c.putfh(f).getattr(&[1]).op(op::DELEGRETURN, |w| (0..4).for_each(|_| w.u32(0)))
        }),
        ("ACCESS with attributes", 1, |c, f| access(c.putfh(f)).getattr(&[1])),
        ("many after one", 2, |c, f| {
            access(c.putfh(f)).getattr(&[1]).getattr(&[1]).getattr(&[1]).getattr(&[1])
        }),
        ("files after each other", 2, |c, f| access(c.putfh(f)).putfh(f).getattr(&[1])),
        ("a read with attributes", 1, |c, f| c.putfh(f).read(0, 5).getattr(&[1])),
        ("handles alone", 0, |c, f| c.putfh(f).savefh().getfh()),
    ];
    for (what, counted, ops) in table {
        let before: u64 = limits.read().iter().map(|reading| reading.passed).sum();
        harness.run(|c| ops(c, &file)).await;
        let after: u64 = limits.read().iter().map(|reading| reading.passed).sum();
        assert_eq!(after - before, counted, "{what}");
    }
}
