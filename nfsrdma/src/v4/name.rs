//! How clients name themselves, and how that is shown.

use audit::PeerText;

/// How a client names itself. The families of 4.0 and of sessions are apart: one host may use both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(Box<[u8]>);

impl Name {
    pub(super) fn new(sessions: bool, owner: &[u8]) -> Self {
        let mut name = vec![u8::from(sessions)];
        name.extend_from_slice(owner);
        Self(name.into())
    }

    /// As a record has it.
    pub(super) fn of_bytes(name: Box<[u8]>) -> Self {
        Self(name)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As the client has it.
    pub(super) fn shown(&self) -> &[u8] {
        self.0.get(1..).unwrap_or_default()
    }
}

/// A client's name for itself may be any bytes. Linux puts its host's name in it; one that is hardly text is shown by its first
/// bytes in hexadecimal digits.
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

/// Bytes that are shown of a name that is no text.
const BYTES_SHOWN: usize = 16;
/// Characters of a client's name that are shown.
const NAME_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_bytes_is_one_short_line() {
        assert_eq!(shown(b"Linux NFSv4.2 host"), "Linux NFSv4.2 host");
        assert_eq!(shown(b"a\nb\xff"), "a b\u{fffd}");
        assert_eq!(shown(b""), "");
        assert_eq!(shown(b"\x9aX.\\\xff\xfe\xfd"), "0x9a582e5cfffefd");
        assert_eq!(shown(&[0xff; 100]).len(), 2 + 2 * BYTES_SHOWN);
        assert_eq!(shown(&[b'x'; 1000]).len(), NAME_CHARS_MAX);
    }
}
