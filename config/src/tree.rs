//! A YAML document as a tree of nodes with known positions.
//!
//! *Operation.* The YAML library reports positions only in errors. Nodes are therefore numbered in reading order, and [`locate`]
//! reads the same text again, fails on purpose at the node with the given number, and takes the position from the error. The second
//! pass is needed only for faulty configurations.
//!
//! *Memory.* The text has at most [`TEXT_MAX`] bytes; the library bounds depth and repetition (aliases of aliases).
//!
//! *Errors.* Invalid YAML, with the library's message and position.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Maximum size of a configuration file, in bytes.
pub(crate) const TEXT_MAX: usize = 1 << 20;

/// A node and its number.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: usize,
    pub(crate) value: Value,
}

/// The content of a node.
#[derive(Debug)]
pub(crate) enum Value {
    /// An empty value, `~` or `null`.
    Null,
    /// Text, number or boolean, as text.
    Scalar(String),
    /// `- a`
    List(Vec<Node>),
    /// `a: b`, in the order of the text, including repeated keys.
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// Returns the name of the type for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar(_) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a group of keys",
        }
    }
}

/// A position (line and column from 1) and the library's message.
#[derive(Debug)]
pub(crate) struct Syntax {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) message: String,
}

struct Seed<'a> {
    next: &'a Cell<usize>,
    stop_at: Option<usize>,
}

impl Seed<'_> {
    fn again(&self) -> Self {
        Seed { next: self.next, stop_at: self.stop_at }
    }
}

struct Build<'a> {
    seed: Seed<'a>,
    number: usize,
}

impl Build<'_> {
    fn done<E: Error>(&self, value: Value) -> Result<Node, E> {
        self.may_go_on()?;
        Ok(Node { number: self.number, value })
    }

    fn may_go_on<E: Error>(&self) -> Result<(), E> {
        if self.seed.stop_at == Some(self.number) { Err(E::custom("here")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Node;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Node, D::Error> {
        let number = self.next.get();
        self.next.set(number + 1);
        d.deserialize_any(Build { seed: self, number })
    }
}

impl<'de> Visitor<'de> for Build<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value, a list or a group of keys")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        self.done(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        self.done(Value::Null)
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Node, E> {
        self.done(Value::Scalar(v.to_string()))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Node, E> {
        self.done(Value::Scalar(v.to_string()))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Node, E> {
        self.done(Value::Scalar(v.to_string()))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Node, E> {
        self.done(Value::Scalar(v.to_string()))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Node, E> {
        self.done(Value::Scalar(v.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        self.may_go_on()?;
        let mut list = Vec::new();
        while let Some(node) = seq.next_element_seed(self.seed.again())? {
            list.push(node);
        }
        self.done(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        self.may_go_on()?;
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key_seed(self.seed.again())? {
            pairs.push((key, map.next_value_seed(self.seed.again())?));
        }
        self.done(Value::Map(pairs))
    }
}

fn read_until(text: &str, stop_at: Option<usize>) -> Result<Node, serde_yaml::Error> {
    let next = Cell::new(0);
    Seed { next: &next, stop_at }.deserialize(serde_yaml::Deserializer::from_str(text))
}

/// Parses a document.
pub(crate) fn read(text: &str) -> Result<Node, Syntax> {
    read_until(text, None).map_err(|e| {
        let (line, column) = e.location().map_or((1, 1), |l| (l.line(), l.column()));
        Syntax { line, column, message: e.to_string() }
    })
}

/// Returns line and column, from 1, of the node with this number.
pub(crate) fn locate(text: &str, number: usize) -> (usize, usize) {
    match read_until(text, Some(number)) {
        Err(e) => e.location().map_or((1, 1), |l| (l.line(), l.column())),
        Ok(_) => (1, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(node: &'a Node, want: &str) -> Option<&'a Node> {
        match &node.value {
            Value::Scalar(s) if s == want => Some(node),
            Value::List(l) => l.iter().find_map(|n| find(n, want)),
            Value::Map(m) => m.iter().find_map(|(k, v)| find(k, want).or_else(|| find(v, want))),
            _ => None,
        }
    }

    #[test]
    fn every_node_can_be_located() {
        let text = "a: 1\nlist:\n  - x: {p: here, q: [5, 6]}\n  - |\n    block\nempty:\nlast: no\n";
        let tree = read(text).unwrap();
        for (want, at) in [
            ("a", (1, 1)),
            ("1", (1, 4)),
            ("list", (2, 1)),
            ("x", (3, 5)),
            ("here", (3, 12)),
            ("6", (3, 25)),
            ("block\n", (4, 5)),
            ("last", (7, 1)),
            ("no", (7, 7)),
        ] {
            let node = find(&tree, want).unwrap_or_else(|| panic!("{want}"));
            assert_eq!(locate(text, node.number), at, "{want}");
        }
    }

    #[test]
    fn syntax_error_has_position() {
        let e = read("a: [1, 2\nb: 3\n").unwrap_err();
        assert_eq!((e.line, e.column), (2, 2));
        assert!(read("a: !tag 1").is_err());
        assert!(read(&"[".repeat(100_000)).is_err());
    }
}
