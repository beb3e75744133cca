//! The rates of a share, of a user, of each client, and of all: `limits`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use policy::{Measure, Rates};

use crate::keys;
use crate::reader::{Group, Origin, Report, shown};
use crate::tree::Node;
use crate::units::{Size, Span};

/// The slowest rates: below, the largest request would take longer than clients wait.
const BYTES_MIN: u64 = 64 << 10;
const OPERATIONS_MIN: u64 = 10;
/// No host is faster.
const BYTES_MAX: u64 = 1 << 40;
const OPERATIONS_MAX: u64 = 1_000_000_000;
const BURST_MIN: Duration = Duration::from_millis(10);
const BURST_MAX: Duration = Duration::from_secs(60);

/// Returns a value that is in range. `what`: the word for such a value.
fn within<T: Copy + PartialOrd + fmt::Display>(
    value: T,
    (least, most): (T, T),
    what: &str,
    text: &str,
) -> Result<T, String> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(format!("`{}` is out of range; write a {what} from {least} to {most}", shown(text)))
}

/// Bytes for each second, written `500MiB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRate(pub u64);

impl FromStr for ByteRate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let size = text.strip_suffix("/s").and_then(|size| size.trim_end().parse::<Size>().ok());
        let Some(Size(bytes)) = size else {
            return Err(format!(
                "`{}` is not a rate of bytes; write a size for each second, like `500MiB/s`",
                shown(text)
            ));
        };
        within(Self(bytes), (Self(BYTES_MIN), Self(BYTES_MAX)), "rate", text)
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Size(self.0))
    }
}

/// Operations for each second, written `20000/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationRate(pub u64);

impl FromStr for OperationRate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let is_number = |number: &&str| number.bytes().all(|b| b.is_ascii_digit());
        let number = text.strip_suffix("/s").map(str::trim_end).filter(is_number);
        let Some(number) = number.and_then(|number| number.parse().ok()) else {
            return Err(format!(
                "`{}` is not a rate of operations; write a number for each second, like `20000/s`",
                shown(text)
            ));
        };
        within(Self(number), (Self(OPERATIONS_MIN), Self(OPERATIONS_MAX)), "rate", text)
    }
}

impl fmt::Display for OperationRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.0)
    }
}

/// The time whose worth an idle scope may pass at once.
struct Burst(Duration);

impl FromStr for Burst {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Span(burst) = within(text.parse()?, (Span(BURST_MIN), Span(BURST_MAX)), "time", text)?;
        Ok(Self(burst))
    }
}

/// Describes rates in a line.
pub fn rates_text(rates: &Rates) -> String {
    let of = |measure: Measure| {
        let rate = rates.of(measure)?;
        let rate = match measure.is_bytes() {
            true => ByteRate(rate).to_string(),
            false => OperationRate(rate).to_string(),
        };
        Some(format!("{measure} {rate}"))
    };
    let mut told: Vec<String> = Measure::ALL.into_iter().filter_map(of).collect();
    told.push(format!("burst {}", Span(rates.burst)));
    told.join(", ")
}

/// Reads the group `limits` of a share, a user or a client. A group with a fault gives no rates.
pub(crate) fn rates_in(node: &Node, whose: &str, report: &mut Report) -> Option<Rates> {
    let group = Group::read(node, &format!("`limits` of {whose}"), &keys::RATES, report)?;
    let faults = report.0.len();
    let rates = rates_of(&group, report);
    if rates.is_empty() && group.all_known && report.0.len() == faults {
        report.add_help(
            Origin::Node(node.number),
            format!("`limits` of {whose} limits nothing"),
            "write a rate, as in `limits: {read: 500MiB/s, operations: 20000/s}`, or remove `limits`",
        );
    }
    Some(rates)
}

/// Reads the rates among the keys of a group.
pub(crate) fn rates_of(group: &Group<'_>, report: &mut Report) -> Rates {
    let faults = report.0.len();
    let mut bytes = |key| group.parse::<ByteRate>(key, report).map(|set| set.value.0);
    let (read, write) = (bytes("read"), bytes("write"));
    let mut number = |key| group.parse::<OperationRate>(key, report).map(|set| set.value.0);
    let operations = number("operations");
    let (read_operations, write_operations) =
        (number("read_operations"), number("write_operations"));
    let burst = group.parse::<Burst>("burst", report);
    let default = Rates::default();
    let rates = Rates {
        read,
        write,
        operations,
        read_operations,
        write_operations,
        burst: burst.as_ref().map_or(default.burst, |set| set.value.0),
    };
    for (key, part) in
        [("read_operations", read_operations), ("write_operations", write_operations)]
    {
        if let (Some(all), Some(part), Some(node)) = (operations, part, group.get(key))
            && part >= all
        {
            let (part, all) = (OperationRate(part), OperationRate(all));
            report.add_help(
                Origin::Node(node.number),
                format!(
                    "`{key}: {part}` is never reached, because `operations: {all}` counts them too"
                ),
                format!("write a rate below {all}, or remove one of the two"),
            );
        }
    }
    if let Some(burst) = burst
        && rates.is_empty()
        && report.0.len() == faults
        && group.all_known
    {
        report.add_help(
            burst.origin,
            "`burst` has no effect without a rate",
            "add a rate, like `read: 500MiB/s`, or remove `burst`",
        );
    }
    rates
}
