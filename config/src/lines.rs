//! Finds the line of a file in which a share has a setting, for commands that explain why access is allowed.

use std::path::Path;

use crate::text::read_text;
use crate::tree::{self, Node, Value};

/// A step from a share towards a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A key of a group.
    Key(&'static str),
    /// An entry of a list, from 0.
    Entry(usize),
}

/// The parsed text of a configuration file.
#[derive(Debug)]
pub struct Lines {
    text: String,
    root: Node,
}

impl Lines {
    /// Reads a file; `None` if it cannot be read or is not YAML any more.
    pub fn of(file: &Path) -> Option<Self> {
        Self::of_text(read_text(file).ok()?)
    }

    fn of_text(text: String) -> Option<Self> {
        let root = tree::read(&text).ok()?;
        Some(Self { text, root })
    }

    /// Returns the line, from 1, of a share's setting. If the share lacks the setting, returns the line of the nearest enclosing
    /// step. `None` if the file has no such share.
    pub fn of_share(&self, share: &str, steps: &[Step]) -> Option<usize> {
        let shares = key(&self.root, "shares")?.1;
        let all = match &shares.value {
            Value::List(all) => all.as_slice(),
            _ => std::slice::from_ref(shares),
        };
        let is_it = |node: &&Node| {
            let name = key(node, "name").map(|(_, name)| &name.value);
            matches!(name, Some(Value::Scalar(name)) if name == share)
        };
        let mut at = all.iter().find(is_it)?;
        let mut number = at.number;
        for step in steps {
            match step {
                Step::Key(name) => {
                    let Some((word, value)) = key(at, name) else { break };
                    (number, at) = (word.number, value);
                }
                Step::Entry(n) => {
                    // A list of one may be written as a single value.
                    let Value::List(list) = &at.value else { break };
                    let Some(entry) = list.get(*n) else { break };
                    (number, at) = (entry.number, entry);
                }
            }
        }
        Some(tree::locate(&self.text, number).0)
    }
}

/// Returns a key of a group and its value.
fn key<'a>(node: &'a Node, name: &str) -> Option<(&'a Node, &'a Node)> {
    let Value::Map(map) = &node.value else { return None };
    let is_it = |(key, _): &&(Node, Node)| matches!(&key.value, Value::Scalar(k) if k == name);
    map.iter().find(is_it).map(|(key, value)| (key, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::{Entry, Key};

    #[test]
    fn share_setting_is_found_by_line() {
        let text = "\
recall: 10s
shares:
  - name: data
    path: /srv
  - name: team
    access:
      read: [alice, bob]
      write:
        - carol
        - dave
    clients: 10.0.0.0/8
    read_only: true
";
        let lines = Lines::of_text(text.to_owned()).unwrap();
        for (steps, line) in [
            (&[][..], 5),
            (&[Key("read_only")][..], 12),
            (&[Key("access"), Key("read"), Entry(1)][..], 7),
            (&[Key("access"), Key("write"), Entry(1)][..], 10),
            (&[Key("access"), Key("deny"), Entry(0)][..], 6),
            (&[Key("clients"), Entry(0)][..], 11),
            (&[Key("squash")][..], 5),
        ] {
            assert_eq!(lines.of_share("team", steps), Some(line), "{steps:?}");
        }
        assert_eq!(lines.of_share("other", &[]), None);
    }
}
