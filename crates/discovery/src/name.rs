//! The name under which this gateway is found.

use std::fmt;

/// Most characters of a name: it stays a label of DNS (63 bytes) if a number is added after a conflict.
const NAME_MAX: usize = 52;

/// A label of DNS: letters, digits and hyphens, not empty.
#[derive(Clone, PartialEq, Eq)]
pub struct HostName(String);

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl HostName {
    /// Makes a label of a name: its first part, with hyphens for what labels cannot have.
    pub fn of(text: &str) -> Self {
        let first = text.split('.').next().unwrap_or_default();
        let label = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let mut label: String = first.chars().map(label).take(NAME_MAX).collect();
        label = label.trim_matches('-').to_owned();
        Self(if label.is_empty() { "headgate".into() } else { label })
    }

    /// Returns the label for the `n`th try: after a conflict, a number is added.
    pub(crate) fn numbered(&self, n: u32) -> String {
        if n < 2 { self.0.clone() } else { format!("{}-{n}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_labels() {
        let of = |text: &str| HostName::of(text).to_string();
        assert_eq!(of("gw1.example.test"), "gw1");
        assert_eq!(of("Files_01"), "Files-01");
        assert_eq!(of("bücher"), "b-cher");
        assert_eq!(of(""), "headgate");
        assert_eq!(of("__"), "headgate");
        assert_eq!(of(&"x".repeat(300)).len(), NAME_MAX);
        assert!(HostName::of(&"x".repeat(300)).numbered(u32::MAX).len() <= 63);
        assert_eq!(HostName::of("gw").numbered(1), "gw");
        assert_eq!(HostName::of("gw").numbered(2), "gw-2");
    }
}
