//! The error type of every parser.

use std::fmt;

use nom::IResult;
use nom::error::{ErrorKind, ParseError};

/// The result of a parser: the remaining input and the value.
pub type Parsed<'a, T> = IResult<&'a [u8], T, Malformed<'a>>;

/// The rule that a field breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The message ends inside the field.
    Truncated,
    /// A count or length is above its limit.
    OverLimit {
        /// The limit: elements of a list, or bytes of opaque data.
        max: usize,
    },
    /// The value is not valid for the field's type.
    Value,
    /// The field points outside the message.
    OutOfBounds,
}

/// A message that a parser rejects. It borrows from the message; [`Malformed::at`] converts it to an owned error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed<'a> {
    /// The field's name in its specification.
    pub field: &'static str,
    /// The rule that it breaks.
    pub rule: Rule,
    /// The message from the invalid field on.
    pub rest: &'a [u8],
}

/// An owned error with the offset of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field's name in its specification.
    pub field: &'static str,
    /// The rule that it breaks.
    pub rule: Rule,
    /// Number of bytes before the field.
    pub offset: usize,
}

impl Malformed<'_> {
    /// Converts to a fault in `message`, which the parser was given completely or in part.
    pub fn at(&self, message: &[u8]) -> Fault {
        let distance = self.rest.as_ptr().addr().checked_sub(message.as_ptr().addr());
        // An empty part may point outside of the message.
        let offset = distance.filter(|&d| d <= message.len()).unwrap_or(message.len());
        Fault { field: self.field, rule: self.rule, offset }
    }
}

/// Rejects the field that starts at `rest`.
#[cold]
pub fn reject<'a>(field: &'static str, rule: Rule, rest: &'a [u8]) -> nom::Err<Malformed<'a>> {
    nom::Err::Error(Malformed { field, rule, rest })
}

/// Runs a parser on a message; returns the remaining bytes and the value.
///
/// # Errors
///
/// The field that the parser rejects.
#[inline]
pub fn decode<'a, T>(
    message: &'a [u8],
    parser: impl FnOnce(&'a [u8]) -> Parsed<'a, T>,
) -> Result<(&'a [u8], T), Malformed<'a>> {
    parser(message).map_err(|e| match e {
        nom::Err::Error(why) | nom::Err::Failure(why) => why,
        // Only streaming parsers return this.
        nom::Err::Incomplete(_) => Malformed::from_error_kind(message, ErrorKind::Eof),
    })
}

impl<'a> ParseError<&'a [u8]> for Malformed<'a> {
    /// Converts errors of nom's own primitives, which have no field name.
    fn from_error_kind(rest: &'a [u8], kind: ErrorKind) -> Self {
        let rule = match kind {
            ErrorKind::Eof | ErrorKind::Complete => Rule::Truncated,
            _ => Rule::Value,
        };
        Self { field: "message", rule, rest }
    }

    fn append(_: &'a [u8], _: ErrorKind, other: Self) -> Self {
        other
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("truncated"),
            Self::OverLimit { max } => write!(f, "over its limit of {max}"),
            Self::Value => f.write_str("invalid"),
            Self::OutOfBounds => f.write_str("out of bounds"),
        }
    }
}

impl fmt::Display for Malformed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, {} bytes before the end", self.field, self.rule, self.rest.len())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {}", self.field, self.rule, self.offset)
    }
}

impl std::error::Error for Malformed<'_> {}
impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_shows_field_rule_and_offset() {
        let at = |field, rule, offset| Fault { field, rule, offset }.to_string();
        assert_eq!(at("FileId.Volatile", Rule::Truncated, 24), "FileId.Volatile truncated at 24");
        let over = Rule::OverLimit { max: 1 << 20 };
        assert_eq!(at("data", over, 128), "data over its limit of 1048576 at 128");
        assert_eq!(at("vers", Rule::Value, 4), "vers invalid at 4");
        assert_eq!(at("DataOffset", Rule::OutOfBounds, 2), "DataOffset out of bounds at 2");
        let malformed = Malformed { field: "vers", rule: Rule::Value, rest: &[0; 3] };
        assert_eq!(malformed.to_string(), "vers invalid, 3 bytes before the end");
    }

    #[test]
    fn offset_in_part_counts_from_message() {
        let message = [0; 16];
        let at = |rest| Malformed { field: "f", rule: Rule::Value, rest }.at(&message).offset;
        assert_eq!(at(&message), 0);
        assert_eq!(at(&message[16..]), 16);
        assert_eq!(at(&message[4..8]), 4);
        assert_eq!(at(&[]), 16);
    }

    #[test]
    fn nom_errors_convert_to_malformed() {
        let parsed = decode(&[1], nom::number::complete::be_u16);
        assert_eq!(parsed.map_err(|e| e.rule), Err(Rule::Truncated));
        let parsed = decode(&[1], nom::bytes::complete::tag(&[2][..]));
        assert_eq!(parsed.map_err(|e| e.rule), Err(Rule::Value));
        let parsed = decode(&[1], nom::number::streaming::be_u16);
        assert_eq!(parsed.map_err(|e| e.rule), Err(Rule::Truncated));
    }
}
