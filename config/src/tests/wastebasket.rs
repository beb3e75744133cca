//! The wastebasket of a share.

use std::time::Duration;

use super::{read, told};
use crate::{Age, Excluded, Size, Wastebasket};

fn of(text: &str) -> Wastebasket {
    let share = format!("shares: [{{name: a, path: /usr, wastebasket: {text}}}]\n");
    read(&share).unwrap().shares.remove(0).wastebasket.unwrap()
}

#[test]
fn wastebasket_is_read_with_its_defaults() {
    let days = |days: u64| Age(Duration::from_secs(days * 86_400));
    assert_eq!(of("{}"), Wastebasket::default());
    assert_eq!(of("{}").keep, days(30));
    let all = Wastebasket {
        keep: days(7),
        most: Some(Size(50 << 30)),
        exclude: vec![Excluded("tmp".into()), Excluded("a/b".into()), Excluded("*.bak".into())],
    };
    assert_eq!(of("{keep: 7d, most: 50GiB, exclude: [tmp, /a/b/, '*.bak']}"), all);
    assert_eq!(of("{exclude: tmp}").exclude, [Excluded("tmp".into())]);
    let none = read("shares: [{name: a, path: /usr}]\n").unwrap();
    assert_eq!(none.shares[0].wastebasket, None);
    for (text, shown) in [("90m", "90m"), ("24h", "1d"), ("60s", "1m"), ("3650d", "3650d")] {
        assert_eq!(text.parse::<Age>().unwrap().to_string(), shown);
    }
    for bad in [
        "",
        "d",
        "30",
        "0d",
        "3651d",
        "-1d",
        "+1d",
        "1w",
        "1.5d",
        "99999999999999999999d",
        "\u{e4}",
    ] {
        assert!(bad.parse::<Age>().is_err(), "{bad}");
    }
}

#[test]
fn wrong_wastebaskets_are_explained() {
    for (text, what) in [
        (
            "{name: a, memory: true, wastebasket: {}}",
            "the share `a` has a wastebasket, and no folder on this host",
        ),
        (
            "{name: a, path: /usr, read_only: true, wastebasket: {}}",
            "the share `a` is read-only and has a wastebasket",
        ),
        (
            "{name: a, path: /usr, wastebasket: {keep: ever}}",
            "`ever` is not a time for which files are kept; write days",
        ),
        ("{name: a, path: /usr, wastebasket: {most: much}}", "`much` is not a size"),
        (
            "{name: a, path: /usr, wastebasket: {exclude: [a/../b]}}",
            "`a/../b` selects no files of the share",
        ),
        ("{name: a, path: /usr, wastebasket: {exclude: '/'}}", "`/` selects no files of the share"),
        ("{name: a, path: /usr, wastebasket: {kep: 1d}}", "did you mean `keep`?"),
    ] {
        let told = told(&format!("shares: [{text}]\n"));
        assert!(told.contains(what), "{text}: {told}");
    }
    let many: Vec<String> = (0..65).map(|n| format!("f{n}")).collect();
    let told = told(&format!(
        "shares: [{{name: a, path: /usr, wastebasket: {{exclude: [{}]}}}}]\n",
        many.join(",")
    ));
    assert!(told.contains("at most 64 exceptions"), "{told}");
}
