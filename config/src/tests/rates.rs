//! The rates of shares, users, each client and all.

use std::time::Duration;

use policy::Measure;

use super::{read, told};
use crate::{ByteRate, Identity, Limits, OperationRate, Rates, Settings, User};

/// The users of [`super::EVERYTHING`].
pub(super) fn users() -> Vec<User> {
    let identity = Identity { uid: Some(1000), gid: Some(100), groups: Some(vec![7, 8]) };
    let bob = User {
        name: "bob".into(),
        password_file: None,
        identity: Identity::default(),
        limits: Rates::default(),
    };
    let limits = Rates { read: Some(10 << 20), ..Rates::default() };
    let password_file = Some("/etc/passwd".into());
    vec![User { name: "alice".into(), password_file, identity, limits }, bob]
}

/// The rates of its share `data`.
pub(super) fn of_share() -> Rates {
    Rates { read: Some(500 << 20), burst: Duration::from_secs(2), ..Rates::default() }
}

/// Its limits with its rates.
pub(super) fn with(limits: Limits) -> Limits {
    let all = Rates { write: Some(1 << 30), ..Rates::default() };
    let client = Rates { operations: Some(100), ..Rates::default() };
    Limits { all, client, ..limits }
}

/// The rates of each place where a file may have them.
fn places(settings: &Settings) -> [Rates; 4] {
    let limits = settings.limits;
    [limits.all, limits.client, settings.shares[0].limits, settings.users[0].limits]
}

/// Writes these keys in one of the places.
fn at(place: usize, keys: &str) -> String {
    let group = |n: usize| if n == place { format!(", limits: {{{keys}}}") } else { String::new() };
    let top = match place {
        0 => format!("limits: {{{keys}}}\n"),
        1 => format!("limits: {{client: {{{keys}}}}}\n"),
        _ => String::new(),
    };
    let (share, user) = (group(2), group(3));
    format!(
        "shares: [{{name: a, path: /usr{share}}}]\nusers: [{{name: ann, password_file: /etc/passwd{user}}}]\n{top}"
    )
}

/// Sets each rate in each place, and reads it there only.
#[test]
fn each_rate_can_be_set_in_each_place() {
    for place in 0..4 {
        for measure in Measure::ALL {
            let rate = if measure.is_bytes() { "500MiB/s" } else { "20000/s" };
            let settings = read(&at(place, &format!("{measure}: {rate}"))).unwrap();
            for (n, rates) in places(&settings).iter().enumerate() {
                let expected = if measure.is_bytes() { 500 << 20 } else { 20_000 };
                for other in Measure::ALL {
                    let is_set = n == place && other == measure;
                    assert_eq!(rates.of(other), is_set.then_some(expected), "{place} {measure}");
                }
                assert_eq!(rates.burst, Duration::from_secs(1));
            }
        }
        let all = "read: 500MiB/s, write: 200MiB/s, operations: 20000/s, burst: 2s";
        let rates = places(&read(&at(place, all)).unwrap())[place];
        let expected = Rates {
            read: Some(500 << 20),
            write: Some(200 << 20),
            operations: Some(20_000),
            burst: Duration::from_secs(2),
            ..Rates::default()
        };
        assert_eq!(rates, expected);
        assert_eq!(crate::rates_text(&rates), all.replace(": ", " "));
    }
    assert_eq!(read("shares: [{name: a, path: /usr}]\n").unwrap().rates(), "none");
    let told = read(&at(2, "read: 1MiB/s")).unwrap().rates();
    assert_eq!(told, "share a: read 1MiB/s, burst 1s");
}

#[test]
fn senseless_rates_are_explained() {
    for (keys, what) in [
        ("read: 0/s", "`0/s` is out of range; write a rate from 64KiB/s to 1TiB/s"),
        ("read: 1KiB/s", "`1KiB/s` is out of range"),
        ("write: 2TiB/s", "`2TiB/s` is out of range"),
        (
            "read: 500MiB",
            "`500MiB` is not a rate of bytes; write a size for each second, like `500MiB/s`",
        ),
        ("read: 500MB/s", "`500MB/s` is not a rate of bytes"),
        ("read: -1MiB/s", "is not a rate of bytes"),
        ("operations: 0/s", "`0/s` is out of range; write a rate from 10/s to 1000000000/s"),
        (
            "operations: 100",
            "`100` is not a rate of operations; write a number for each second, like `20000/s`",
        ),
        ("operations: 1MiB/s", "`1MiB/s` is not a rate of operations"),
        ("operations: +100/s", "`+100/s` is not a rate of operations"),
        ("read: 1MiB/s, burst: 1ms", "`1ms` is out of range; write a time from 10ms to 1m"),
        ("read: 1MiB/s, burst: 2m", "`2m` is out of range"),
        ("burst: 2s", "`burst` has no effect without a rate"),
        (
            "operations: 100/s, read_operations: 100/s",
            "`read_operations: 100/s` is never reached, because `operations: 100/s` counts them too",
        ),
        (
            "operations: 100/s, write_operations: 200/s",
            "`write_operations: 200/s` is never reached",
        ),
        ("reed: 1MiB/s", "did you mean `read`?"),
    ] {
        for place in 0..4 {
            let told = told(&at(place, keys));
            assert!(told.contains(what), "{place} {keys}: {told}");
        }
    }
    for place in 1..4 {
        assert!(told(&at(place, "")).contains("limits nothing"), "{place}");
    }
    assert!(read(&at(2, "operations: 100/s, read_operations: 99/s")).is_ok());
    for text in ["64KiB/s", "500MiB/s", "1TiB/s"] {
        assert_eq!(text.parse::<ByteRate>().unwrap().to_string(), text);
    }
    assert_eq!("10/s".parse::<OperationRate>().unwrap().to_string(), "10/s");
}
