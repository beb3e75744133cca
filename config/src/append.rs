//! Appends a share to the text of a configuration and keeps all other text, including comments.
//!
//! *Operation.* Pure. The new share follows the last entry of a `shares` list that has one entry per line; if the key is missing,
//! it is added at the end. YAML has other forms that this code does not recognize, so the caller parses the result and compares it
//! with the intended one ([`crate::Settings`]).
//!
//! *Errors.* One line for the user: `shares` is not written in lines, or a value is not valid in a configuration.

use std::fmt::Write;

use crate::settings::share_name;

/// Words that YAML does not read as strings.
const NOT_TEXT: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"];

/// A share to append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewShare {
    /// Clients see `/NAME`.
    pub name: String,
    /// Absolute path of the folder.
    pub path: String,
    pub read_only: bool,
    /// Address ranges of allowed clients; empty: omit the key.
    pub clients: Vec<String>,
}

impl NewShare {
    /// Returns the text of the configuration with this share appended.
    pub fn append_to(&self, text: &str) -> Result<String, String> {
        share_name(&self.name)?;
        let texts = [&self.name, &self.path].into_iter().chain(&self.clients);
        if texts.into_iter().any(|t| t.chars().any(char::is_control)) {
            return Err("name, path or clients of the share contain a control character".into());
        }
        let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let Some(key) = lines.iter().position(|line| line.starts_with("shares:")) else {
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { end };
            return Ok(format!("{text}{gap}shares:{end}{}", self.lines(2, end)));
        };
        if !is_blank(&lines[key]["shares:".len()..]) {
            return Err("`shares` is not a list whose lines begin with `- name:`".into());
        }
        let (at, indent) = place(&lines, key)?;
        let (before, after) = (lines[..at].concat(), lines[at..].concat());
        let gap = if before.ends_with('\n') { "" } else { end };
        Ok(format!("{before}{gap}{}{after}", self.lines(indent, end)))
    }

    fn lines(&self, indent: usize, end: &str) -> String {
        let mut keys = vec![format!("name: {}", scalar(&self.name))];
        keys.push(format!("path: {}", scalar(&self.path)));
        if self.read_only {
            keys.push("read_only: true".into());
        }
        if !self.clients.is_empty() {
            let ranges: Vec<String> = self.clients.iter().map(|range| quoted(range)).collect();
            keys.push(format!("clients: [{}]", ranges.join(", ")));
        }
        let mut out = String::new();
        for (n, key) in keys.iter().enumerate() {
            let mark = if n == 0 { "- " } else { "  " };
            // Writing to a String cannot fail.
            let _ = write!(out, "{:indent$}{mark}{key}{end}", "");
        }
        out
    }
}

/// Returns the line number before which the new share belongs, and the indentation of the list.
fn place(lines: &[&str], key: usize) -> Result<(usize, usize), String> {
    let (mut at, mut indent) = (key + 1, None);
    for (n, line) in lines.iter().enumerate().skip(key + 1) {
        let depth = line.len() - line.trim_start_matches(' ').len();
        if is_blank(line) {
            // An indented comment after an entry belongs to that share.
            if at == n && line.trim_start().starts_with('#') && indent.is_some_and(|i| depth > i) {
                at = n + 1;
            }
            continue;
        }
        let begins = line[depth..].starts_with("- ") || line[depth..].trim_end() == "-";
        if depth == 0 && !begins {
            break;
        }
        match indent {
            None if begins => indent = Some(depth),
            None => return Err("`shares` is not a list whose lines begin with `- name:`".into()),
            Some(_) => {}
        }
        at = n + 1;
    }
    Ok((at, indent.unwrap_or(2)))
}

/// Checks for a line with only white space and a comment.
fn is_blank(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || text.starts_with('#')
}

/// Formats a YAML scalar, with quotes only if necessary.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c))
        && !NOT_TEXT.contains(&&*text.to_ascii_lowercase());
    if is_plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str, path: &str) -> NewShare {
        NewShare { name: name.into(), path: path.into(), ..NewShare::default() }
    }

    #[test]
    fn new_share_follows_last_keeping_comments() {
        let text = "# ours\nshares: # all of them\n  - name: a\n    path: /a # old\n    # read_only: true\n\n\
                    # how\nsmb:\n  port: 0\n";
        let one = NewShare {
            read_only: true,
            clients: vec!["10.0.0.0/8".into(), "::1/128".into()],
            ..new("b", "/srv/b")
        };
        let with = one.append_to(text).unwrap();
        let added = "  - name: b\n    path: /srv/b\n    read_only: true\n    clients: [\"10.0.0.0/8\", \"::1/128\"]\n";
        let mark = "    # read_only: true\n";
        assert_eq!(with, text.replace(mark, &format!("{mark}{added}")));
    }

    #[test]
    fn share_is_added_to_any_list() {
        let b = new("b", "/b");
        assert_eq!(
            b.append_to("shares:\n- name: a\n  path: /a\nbind: ::1\n").unwrap(),
            "shares:\n- name: a\n  path: /a\n- name: b\n  path: /b\nbind: ::1\n"
        );
        assert_eq!(
            b.append_to("bind: ::1").unwrap(),
            "bind: ::1\nshares:\n  - name: b\n    path: /b\n"
        );
        assert_eq!(
            b.append_to("shares:\r\n").unwrap(),
            "shares:\r\n  - name: b\r\n    path: /b\r\n"
        );
        assert_eq!(
            b.append_to("shares:\n    -\n      name: a\n      path: /a").unwrap(),
            "shares:\n    -\n      name: a\n      path: /a\n    - name: b\n      path: /b\n"
        );
    }

    #[test]
    fn ambiguous_values_are_quoted() {
        for (name, path) in
            [("no", "/srv/a b"), ("1e3", "/srv/#x: y"), ("ä ö", "/srv/\"q\"\\"), ("x'", "/{user}")]
        {
            let text = new(name, path).append_to("").unwrap();
            let read: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
            let share = &read["shares"][0];
            assert_eq!((share["name"].as_str(), share["path"].as_str()), (Some(name), Some(path)));
        }
    }

    #[test]
    fn unwritable_share_reports_error() {
        let b = new("b", "/b");
        for text in ["shares: [{name: a, path: /a}]\n", "shares: *x\n", "shares:\n  a: b\n"] {
            assert!(b.append_to(text).unwrap_err().contains("`- name:`"), "{text}");
        }
        assert!(new("a/b", "/b").append_to("").unwrap_err().contains("share name"));
        assert!(new("b", "/b\n").append_to("").is_err());
    }
}
