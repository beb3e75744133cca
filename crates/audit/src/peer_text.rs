//! Displays text that peers choose (names of hosts, users, shares and files) without letting it control a terminal or forge lines.
//!
//! Terminals obey control characters, and direction marks reorder the surrounding text, so a name could forge log lines.
//! [`PeerText`] replaces these characters and gives no access to the original bytes; [`RecordText`] keeps them for the trail.
//! [`Escaped`] and [`json`] do the same for whole lines.

use std::fmt::{self, Write};
use std::io;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Returns whether a terminal obeys the character, or shows the text around it in another order or as another text.
pub fn is_obeyed(c: char) -> bool {
    let is_order = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
    let is_format =
        matches!(c, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    let is_blank = matches!(
        c,
        '\u{ad}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
    );
    c.is_control() || is_order || is_format || is_blank
}

/// Text from a peer, with U+FFFD in place of characters that a terminal obeys. The original cannot be recovered.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerText(String);

impl PeerText {
    /// Converts bytes from a peer; invalid UTF-8 also becomes U+FFFD.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the cleaned text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the cleaned text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl From<&str> for PeerText {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl From<String> for PeerText {
    fn from(text: String) -> Self {
        match text.contains(is_obeyed) {
            true => Self(text.replace(is_obeyed, "\u{fffd}")),
            false => Self(text),
        }
    }
}

/// The cleaned text, never the original.
impl Deref for PeerText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<&str> for PeerText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for PeerText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PeerText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// Text in a record of the trail, exactly as a peer or the configuration gave it: programs find files by it. It can be written only
/// as JSON, which [`JsonLines`] escapes, or displayed with escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct RecordText(String);

impl RecordText {
    /// Converts bytes from a peer; invalid UTF-8 becomes U+FFFD.
    pub fn of(bytes: &[u8]) -> Self {
        Self(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns true if it has no characters.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for RecordText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for RecordText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&PeerText> for RecordText {
    fn from(text: &PeerText) -> Self {
        Self(text.0.clone())
    }
}

impl fmt::Display for RecordText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(&self.0))
    }
}

/// Displays a value with escapes.
#[derive(Debug)]
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// Escapes all text written through it.
struct Escaping<'a, W>(&'a mut W);

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_obeyed) {
            let (before, after) = rest.split_at(at);
            self.0.write_str(before)?;
            let mut chars = after.chars();
            if let Some(c) = chars.next() {
                write!(self.0, "{}", c.escape_default())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Returns a JSON line in which the characters of [`is_obeyed`] are escaped (`\u202e`). Line breaks between tokens remain.
pub fn json(line: Vec<u8>) -> Vec<u8> {
    if line.is_ascii() && !line.contains(&0x7f) {
        return line;
    }
    let Ok(text) = std::str::from_utf8(&line) else { return line };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_obeyed(c) && !matches!(c, '\n' | '\r' | '\t') {
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            false => out.push(c),
        }
    }
    out.into_bytes()
}

/// Escapes JSON lines on their way to another writer. Each write must be a whole line.
#[derive(Debug)]
pub struct JsonLines<W>(pub W);

impl<W: io::Write> io::Write for JsonLines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(&json(line.to_vec()))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that forge lines, ring the bell, move the cursor, change the text direction, or are not text.
    const HOSTILE: [&[u8]; 8] = [
        b"a\nWARN forged",
        b"\x1b[2J\x07",
        b"\r\x08\x7f",
        "\u{9b}31m".as_bytes(),
        "gpj\u{202e}exe.".as_bytes(),
        "\u{2066}x\u{2069}\u{200f}\u{61c}".as_bytes(),
        "\u{2028}\u{2029}\u{85}\u{feff}\u{e0041}".as_bytes(),
        b"\xff\xfe\x1b",
    ];

    #[test]
    fn peer_text_contains_no_controls() {
        for name in HOSTILE {
            let shown = PeerText::of(name).to_string();
            assert!(!shown.chars().any(is_obeyed), "{shown:?}");
            assert!(!shown.is_empty());
            let lossy = String::from_utf8_lossy(name).into_owned();
            assert!(!format!("{}", Escaped(&lossy)).chars().any(is_obeyed));
            assert!(!RecordText::of(name).to_string().chars().any(is_obeyed));
            assert!(!PeerText::from(lossy).to_string().chars().any(is_obeyed));
        }
        for name in ["", "host", "Müller 日本 \\x", "名前.txt"] {
            assert_eq!(PeerText::from(name).to_string(), name);
        }
        assert_eq!(PeerText::of(b"a\nb\x1b\xff").to_string(), "a\u{fffd}b\u{fffd}\u{fffd}");
    }

    #[test]
    fn escaped_json_keeps_its_values() {
        for name in HOSTILE {
            let text = String::from_utf8_lossy(name).into_owned();
            let line = serde_json::json!({ "name": RecordText::from(&*text) });
            let line = serde_json::to_vec(&line).unwrap();
            let mut written = Vec::new();
            io::Write::write_all(&mut JsonLines(&mut written), &line).unwrap();
            let shown = String::from_utf8(written.clone()).unwrap();
            assert!(!shown.chars().any(is_obeyed), "{shown:?}");
            let read: serde_json::Value = serde_json::from_slice(&written).unwrap();
            assert_eq!(read["name"].as_str(), Some(&*text));
        }
    }
}
