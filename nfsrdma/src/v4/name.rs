//! Names that clients give themselves, and their form in messages.

use audit::PeerText;

/// A client's name for itself. Names of 4.0 and of sessions are distinct: one host may use both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(Box<[u8]>);

impl Name {
    pub(super) fn new(sessions: bool, owner: &[u8]) -> Self {
        let mut name = vec![u8::from(sessions)];
        name.extend_from_slice(owner);
        Self(name.into())
    }

    /// Wraps a name from a record.
    pub(super) fn of_bytes(name: Box<[u8]>) -> Self {
        Self(name)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as the client sent it.
    pub(super) fn shown(&self) -> &[u8] {
        self.0.get(1..).unwrap_or_default()
    }
}

/// Formats a client's name for display. It may contain any bytes; Linux includes its host's name. If it is mostly not text, the
/// first bytes are shown in hexadecimal.
pub(crate) fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let is_odd = |c: &char| c.is_control() || *c == char::REPLACEMENT_CHARACTER;
    if 2 * text.chars().filter(is_odd).count() > text.chars().count() {
        let digits = name.iter().take(BYTES_SHOWN).map(|byte| format!("{byte:02x}"));
        return ["0x".to_owned()].into_iter().chain(digits).collect();
    }
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let text: String = shown.take(NAME_CHARS_MAX).collect();
    PeerText::from(text).into_string()
}

/// Bytes shown of a name that is not text.
const BYTES_SHOWN: usize = 16;
/// Longest name shown, in characters.
const NAME_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_shown_as_short_line() {
        assert_eq!(shown(b"Linux NFSv4.2 host"), "Linux NFSv4.2 host");
        assert_eq!(shown(b"a\nb\xff"), "a b\u{fffd}");
        assert_eq!(shown(b""), "");
        assert_eq!(shown(b"\x9aX.\\\xff\xfe\xfd"), "0x9a582e5cfffefd");
        assert_eq!(shown(&[0xff; 100]).len(), 2 + 2 * BYTES_SHOWN);
        assert_eq!(shown(&[b'x'; 1000]).len(), NAME_CHARS_MAX);
    }
}
