//! Backups of Time Machine, and the model.

use super::{read, told};
use crate::{Model, Size, TimeMachine};

fn of(share: &str) -> Option<TimeMachine> {
    read(&format!("shares: [{{name: a, memory: true, {share}}}]\n")).unwrap().shares[0].time_machine
}

#[test]
fn time_machine_is_read_with_its_default() {
    assert_eq!(of("hidden: true"), None);
    assert_eq!(of("time_machine: {}"), Some(TimeMachine { size: None }));
    let size = Some(Size(1 << 40));
    assert_eq!(of("time_machine: {size: 1TiB}"), Some(TimeMachine { size }));
}

#[test]
fn wrong_time_machines_are_explained() {
    for (share, what) in [
        ("read_only: true, time_machine: {}", "the share `a` has `time_machine`, and is read-only"),
        ("protocols: nfs, time_machine: {}", "has `time_machine`, and is not served over SMB"),
        ("time_machine: {size: 0}", "backups need space"),
        ("time_machine: {size: 1TB}", "`1TB` is not a size"),
        ("time_machine: {siz: 1TiB}", "did you mean `size`?"),
    ] {
        let told = told(&format!("shares: [{{name: a, memory: true, {share}}}]\n"));
        assert!(told.contains(what), "{share}: {told}");
    }
}

#[test]
fn models_are_short_plain_words() {
    for good in ["RackMac", "MacSamba", "Xserve", "TimeCapsule8,119", "Macmini"] {
        assert_eq!(good.parse::<Model>().unwrap().to_string(), good);
    }
    for bad in ["", "a b", "a=b", "\u{e4}", &"x".repeat(32)] {
        assert!(bad.parse::<Model>().is_err(), "{bad}");
    }
}
