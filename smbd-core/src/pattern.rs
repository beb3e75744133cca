//! Names with wildcards (MS-FSA section 2.1.4.4).
//!
//! *Operation.* The pattern is an automaton with a state for each of its characters; all states that the name so far can have led
//! to are kept, so the time is at most the product of both lengths, whatever the pattern.

use vfs::names::upcase;

/// DOS_STAR: any characters, up to the last period, and that one too.
const DOS_STAR: char = '<';
/// DOS_QM: one character, or none before a period and at the end.
const DOS_QM: char = '>';
/// DOS_DOT: a period, or nothing at the end.
const DOS_DOT: char = '"';

/// The character stands for others.
pub fn is_wildcard(c: char) -> bool {
    matches!(c, '*' | '?' | DOS_STAR | DOS_QM | DOS_DOT)
}

/// The pattern has wildcards; otherwise it is a name.
pub fn has_wildcards(pattern: &str) -> bool {
    pattern.contains(is_wildcard)
}

/// A pattern, ready to be compared with many names without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    chars: Vec<char>,
    all: bool,
}

impl Pattern {
    /// Of what a client sent.
    pub fn new(pattern: &str) -> Self {
        Self { chars: pattern.chars().map(upcase).collect(), all: matches!(pattern, "*" | "*.*") }
    }

    /// Every name matches.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// The name matches.
    pub fn matches(&self, name: &str) -> bool {
        if self.all {
            return true;
        }
        let n = self.chars.len();
        let name: Vec<char> = name.chars().map(upcase).collect();
        let last_dot = name.iter().rposition(|c| *c == '.');
        let (mut states, mut next) = (vec![false; n + 1], vec![false; n + 1]);
        states[0] = true;
        for (i, c) in name.iter().enumerate() {
            let is_last_dot = last_dot == Some(i);
            next.fill(false);
            for at in 0..n {
                if !states[at] {
                    continue;
                }
                match self.chars[at] {
                    '*' => {
                        states[at + 1] = true;
                        next[at] = true;
                    }
                    DOS_STAR => {
                        states[at + 1] = true;
                        next[if is_last_dot { at + 1 } else { at }] = true;
                    }
                    DOS_QM if *c == '.' => states[at + 1] = true,
                    DOS_QM | '?' => next[at + 1] = true,
                    DOS_DOT => next[at + 1] |= *c == '.',
                    literal => next[at + 1] |= literal == *c,
                }
            }
            std::mem::swap(&mut states, &mut next);
        }
        // At the end of the name only what matches nothing may be left.
        let rest = |at: usize| {
            self.chars[at..].iter().all(|c| matches!(*c, '*' | DOS_STAR | DOS_QM | DOS_DOT))
        };
        (0..=n).any(|at| states[at] && rest(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rules as they are told, tried out one way after the other.
    fn slow(pattern: &[char], name: &[char], whole: &[char]) -> bool {
        let at = whole.len() - name.len();
        let is_last_dot = |i: usize| whole[i] == '.' && !whole[i + 1..].contains(&'.');
        let Some((p, rest)) = pattern.split_first() else { return name.is_empty() };
        let none = || slow(rest, name, whole);
        let one = || !name.is_empty() && slow(rest, &name[1..], whole);
        let more = || !name.is_empty() && slow(pattern, &name[1..], whole);
        match p {
            '*' => none() || more(),
            '<' if !name.is_empty() && is_last_dot(at) => none() || one(),
            '<' => none() || more(),
            '?' => one(),
            '>' if name.is_empty() || name[0] == '.' => none(),
            '>' => one(),
            '"' if name.is_empty() => none(),
            '"' => name[0] == '.' && one(),
            c => name.first() == Some(c) && one(),
        }
    }

    #[test]
    fn known_patterns() {
        let m = |p: &str, n: &str| Pattern::new(p).matches(n);
        assert!(m("*", "") && m("*", "a.b") && m("<", "abc") && !m("<", "a.b"));
        assert!(m("<.txt", "a.b.TXT") && !m("<.b", "a.b.txt"));
        assert!(
            m("<txt", "Fine.txt") && m("<txt", "a.b.txt") && !m("<txt", "a.txt.b") && m("<", "a.")
        );
        assert!(m("*.*", "noext") && !m("*.**", "noext") && m("<\"*", "noext") && m("<\"*", "a.b"));
        assert!(m("a??", "abc") && !m("a??", "ab") && m("a>>", "ab") && m("a>>", "a"));
        assert!(m(">>>>>>>>\">>>", "readme.txt") && m(">>>>>>>>\">>>", "readme"));
        assert!(!m(">>>>\">>>", "readme.txt"));
        assert!(m("ÄÖ*", "äöx") && m("straße", "STRAßE"));
        assert!(has_wildcards("a\"") && !has_wildcards("a.b"));
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_slow_one(p in "[ab.*?<>\"]{0,8}", n in "[ab.]{0,8}") {
            let (pc, nc) = (p.to_uppercase().chars().collect::<Vec<_>>(), n.to_uppercase().chars().collect::<Vec<_>>());
            prop_assert_eq!(Pattern::new(&p).matches(&n), p == "*.*" || slow(&pc, &nc, &nc), "{} {}", p, n);
        }
    }

    #[test]
    fn hostile_patterns_take_no_time() {
        let p = Pattern::new(&"*a".repeat(200));
        assert!(!p.matches(&"a".repeat(199)));
    }
}
