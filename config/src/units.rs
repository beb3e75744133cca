//! Values with units: sizes (`64MiB`), time spans (`30s`), ports.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes, written `4096`, `64KiB`, `256MiB`, `2GiB` or `1TiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const SIZES: [(&str, u64); 5] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("B", 1)];

/// Splits `12abc` into `12` and `abc`; `None` if the text does not begin with a digit.
fn number_and_unit(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if end == 0 { None } else { Some((&text[..end], text[end..].trim_start())) }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a size; write a number with KiB, MiB, GiB or TiB, like `256MiB`"
            )
        };
        let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
        let factor = if unit.is_empty() {
            1
        } else {
            SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1
        };
        let number: u64 = number.parse().map_err(|_| format!("`{text}` is too large a size"))?;
        number.checked_mul(factor).map(Size).ok_or_else(|| format!("`{text}` is too large a size"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, factor) in SIZES[..4].iter().rev() {
            if self.0 >= *factor && self.0.is_multiple_of(*factor) {
                return write!(f, "{}{name}", self.0 / factor);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A span of time, written `20us`, `500ms`, `30s`, `2m` or `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

const SPANS: [(&str, u64); 5] =
    [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000)];

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not a span of time; write a number with ms, s, m or h, like `30s`")
        };
        let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
        let factor = SPANS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
        let number: u64 = number.parse().map_err(|_| format!("`{text}` is too long a time"))?;
        let us =
            number.checked_mul(factor).ok_or_else(|| format!("`{text}` is too long a time"))?;
        Ok(Span(Duration::from_micros(us)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.0.as_micros();
        for (name, factor) in SPANS.iter().rev() {
            let factor = u128::from(*factor);
            if us >= factor && us.is_multiple_of(factor) {
                return write!(f, "{}{name}", us / factor);
            }
        }
        write!(f, "{us}us")
    }
}

/// Maximum time to poll for completions of an RDMA device; `None`: depends on the number of processors. Written `auto` or as a
/// span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin(pub Option<Duration>);

/// A polling thread can do no other work.
const SPIN_MAX: Duration = Duration::from_millis(1);

impl FromStr for Spin {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Spin(None));
        }
        match text.parse() {
            Ok(Span(time)) if time <= SPIN_MAX => Ok(Spin(Some(time))),
            _ => Err(format!("`{text}` is neither `auto` nor a time of at most 1ms, like `20us`")),
        }
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("auto"),
            Some(time) => Span(time).fmt(f),
        }
    }
}

/// A TCP port; 0 lets the system choose one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(pub u16);

impl FromStr for Port {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Port).map_err(|_| {
            format!("`{text}` is not a port; write a number from 1 to 65535, or 0 for any free one")
        })
    }
}

/// The fewest characters of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordLength(pub u16);

impl PasswordLength {
    /// Shorter passwords are found from their hash in minutes; longer ones than the most are not typed.
    const RANGE: std::ops::RangeInclusive<u16> = 8..=64;
}

impl Default for PasswordLength {
    fn default() -> Self {
        Self(12)
    }
}

impl FromStr for PasswordLength {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().ok().filter(|n| Self::RANGE.contains(n)).map(Self).ok_or_else(|| {
            let (least, most) = (Self::RANGE.start(), Self::RANGE.end());
            format!("`{text}` is not a length of passwords; write a number from {least} to {most}")
        })
    }
}

impl fmt::Display for PasswordLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A differentiated services code point (RFC 2474 section 3): six bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(pub u8);

impl FromStr for Dscp {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().ok().filter(|n| *n < 64).map(Dscp).ok_or_else(|| {
            format!("`{text}` is not a DSCP; write a number from 0 to 63, the traffic class divided by four")
        })
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("7B", 7),
            ("64KiB", 65536),
            ("2 GiB", 2 << 30),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        assert_eq!(Size(3 << 20).to_string(), "3MiB");
        assert_eq!(Size(2 << 40).to_string(), "2TiB");
        assert_eq!(Size(1025).to_string(), "1025");
        assert_eq!(Size(0).to_string(), "0");
        for text in ["", "MiB", "64MB", "-1", "1.5GiB", "99999999999999999999", "99999999999999GiB"]
        {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn password_lengths_outside_their_range_are_refused() {
        for (text, length) in
            [("8", Some(8)), ("64", Some(64)), ("7", None), ("65", None), ("x", None)]
        {
            assert_eq!(text.parse().ok(), length.map(PasswordLength), "{text}");
        }
        assert_eq!(PasswordLength::default().to_string().parse(), Ok(PasswordLength(12)));
    }

    #[test]
    fn spans_round_trip() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(ms))), "{text}");
            assert_eq!(Span(Duration::from_millis(ms)).to_string(), text);
        }
        assert_eq!("1500us".parse(), Ok(Span(Duration::from_micros(1500))));
        assert_eq!(Span(Duration::from_micros(1500)).to_string(), "1500us");
        for text in ["", "30", "s", "1 week", "99999999999999999999s", "9999999999999999999h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn spins_are_bounded() {
        for (text, us) in
            [("auto", None), ("0us", Some(0)), ("20us", Some(20)), ("1ms", Some(1000))]
        {
            let spin = Spin(us.map(Duration::from_micros));
            assert_eq!(text.parse(), Ok(spin), "{text}");
        }
        assert_eq!(Spin(None).to_string(), "auto");
        assert_eq!(Spin(Some(Duration::from_micros(20))).to_string(), "20us");
        for text in ["", "20", "1001us", "1s", "never"] {
            let why = text.parse::<Spin>().unwrap_err();
            assert!(why.contains("at most 1ms"), "{why}");
        }
    }

    #[test]
    fn ports_are_sixteen_bit() {
        assert_eq!("2049".parse(), Ok(Port(2049)));
        assert!("65536".parse::<Port>().is_err());
        assert!("nfs".parse::<Port>().is_err());
    }
}
