//! Matches names against wildcards (MS-FSA section 2.1.4.4).
//!
//! *Operation.* The pattern is an automaton with one state before each of its characters and one after the last. The states that
//! the name so far can reach are the bits of a [`Set`], and each character of the name advances all of them at once: the cost is a
//! few words per character of the name, whatever the pattern.

use std::ops::{BitAnd, BitOr};

use vfs::names::upcase;

/// DOS_STAR: any characters up to and including the last period.
const DOS_STAR: char = '<';
/// DOS_QM: one character, or the empty string before a period and at the end.
const DOS_QM: char = '>';
/// DOS_DOT: a period, or the empty string at the end.
const DOS_DOT: char = '"';

/// Returns whether the character is a wildcard.
pub fn is_wildcard(c: char) -> bool {
    matches!(c, '*' | '?' | DOS_STAR | DOS_QM | DOS_DOT)
}

/// Returns whether the pattern has wildcards; without them it is a plain name.
pub fn has_wildcards(pattern: &str) -> bool {
    pattern.contains(is_wildcard)
}

/// Longest pattern in characters: as long as the longest name.
pub const CHARS_MAX: usize = 255;

/// A compiled pattern, compared with names without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    all: bool,
    /// For each literal character, the states before it.
    literals: Vec<(char, Set)>,
    stars: Set,
    dos_stars: Set,
    dos_dots: Set,
    dos_marks: Set,
    marks: Set,
    /// The states that match with the rest of the pattern empty.
    ends: Set,
}

impl Pattern {
    /// Compiles a client's pattern; `None` if it is longer than [`CHARS_MAX`].
    pub fn new(pattern: &str) -> Option<Self> {
        let chars: Vec<char> = pattern.chars().take(CHARS_MAX + 1).map(upcase).collect();
        if chars.len() > CHARS_MAX {
            return None;
        }
        let at = |wanted| Set::of((0..chars.len()).filter(|i| chars[*i] == wanted));
        let mut literals: Vec<char> = chars.iter().copied().filter(|c| !is_wildcard(*c)).collect();
        literals.sort_unstable();
        literals.dedup();
        let is_left = |c: &char| matches!(*c, '*' | DOS_STAR | DOS_QM | DOS_DOT);
        let left = chars.iter().rev().take_while(|c| is_left(c)).count();
        Some(Self {
            all: matches!(pattern, "*" | "*.*"),
            literals: literals.into_iter().map(|c| (c, at(c))).collect(),
            stars: at('*'),
            dos_stars: at(DOS_STAR),
            dos_dots: at(DOS_DOT),
            dos_marks: at(DOS_QM),
            marks: at('?'),
            ends: Set::of(chars.len() - left..=chars.len()),
        })
    }

    /// Returns whether every name matches.
    pub fn is_all(&self) -> bool {
        self.all
    }

    pub fn matches(&self, name: &str) -> bool {
        if self.all {
            return true;
        }
        let last_dot = name.rfind('.');
        let skipped = self.stars | self.dos_stars;
        let mut states = Set::of([0]);
        for (i, c) in name.char_indices() {
            let c = upcase(c);
            let is_dot = c == '.';
            states = states.with_skipped(if is_dot { skipped | self.dos_marks } else { skipped });
            let literal = self.literals.binary_search_by_key(&c, |(literal, _)| *literal);
            let literal = literal.map_or(Set::default(), |found| self.literals[found].1);
            let of_dot = if is_dot { self.dos_dots } else { self.dos_marks };
            let (mut stay, mut step) = (self.stars, literal | self.marks | of_dot);
            if last_dot == Some(i) {
                step = step | self.dos_stars;
            } else {
                stay = stay | self.dos_stars;
            }
            states = states & stay | (states & step).stepped();
            if states == Set::default() {
                return false;
            }
        }
        states & self.ends != Set::default()
    }
}

/// Words of 64 states each; a pattern has one more state than characters.
const WORDS: usize = (CHARS_MAX + 1) / 64;

/// A set of states of a pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set([u64; WORDS]);

impl Set {
    /// Builds a set of states, each below 256.
    fn of(states: impl IntoIterator<Item = usize>) -> Self {
        let mut words = [0; WORDS];
        states.into_iter().for_each(|at| words[at / 64] |= 1 << (at % 64));
        Self(words)
    }

    /// Advances each state by one character of the pattern.
    fn stepped(self) -> Self {
        let mut carry = 0;
        Self(self.0.map(|word| word << 1 | std::mem::replace(&mut carry, word >> 63)))
    }

    /// Adds the states reached by skipping characters of the pattern that may match the empty string (`skipped`). In the sum of
    /// both sets a carry runs from each state through the run of skippable ones and stops after the last.
    fn with_skipped(self, skipped: Self) -> Self {
        let (mut words, mut carry) = ([0; WORDS], false);
        for (i, word) in words.iter_mut().enumerate() {
            let (sum, over) = skipped.0[i].overflowing_add(self.0[i] & skipped.0[i]);
            let (sum, over_again) = sum.overflowing_add(u64::from(carry));
            carry = over || over_again;
            *word = self.0[i] | sum ^ skipped.0[i];
        }
        Self(words)
    }
}

impl BitAnd for Set {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

impl BitOr for Set {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rules of the specification, by exhaustive search.
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
        let m = |p: &str, n: &str| Pattern::new(p).unwrap().matches(n);
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
            prop_assert_eq!(Pattern::new(&p).unwrap().matches(&n), p == "*.*" || slow(&pc, &nc, &nc), "{} {}", p, n);
        }
    }

    proptest! {
        /// Patterns longer than one word of a set, with skippable runs in the middle of names.
        #[test]
        fn long_ones_agree_too(
            p in "([ab]{1,40}|[>]{1,70}|[?]{1,9}|[*<]|\\.|\"){0,9}",
            n in "([ab]{1,40}|\\.){0,9}",
        ) {
            let (pc, nc) = (p.to_uppercase().chars().collect::<Vec<_>>(), n.to_uppercase().chars().collect::<Vec<_>>());
            prop_assume!(pc.len() <= CHARS_MAX);
            let want = matches!(&p[..], "*" | "*.*") || known(&pc, &nc);
            prop_assert_eq!(Pattern::new(&p).unwrap().matches(&n), want, "{} {}", p, n);
        }
    }

    /// The rules of the specification, with memoized results for each pair of rests.
    fn known(pattern: &[char], name: &[char]) -> bool {
        let (m, n) = (pattern.len(), name.len());
        let last_dot = name.iter().rposition(|c| *c == '.');
        let mut rest = vec![vec![false; n + 1]; m + 1];
        rest[m][n] = true;
        for p in (0..m).rev() {
            for i in (0..=n).rev() {
                let (none, c) = (rest[p + 1][i], name.get(i));
                let (one, more) =
                    c.map_or((false, false), |_| (rest[p + 1][i + 1], rest[p][i + 1]));
                rest[p][i] = match pattern[p] {
                    '*' => none || more,
                    '<' => none || if last_dot == Some(i) { one } else { more },
                    '?' => one,
                    '>' if c.is_none_or(|c| *c == '.') => none,
                    '>' => one,
                    '"' if c.is_none() => none,
                    '"' => c == Some(&'.') && one,
                    literal => c == Some(&literal) && one,
                };
            }
        }
        rest[0][0]
    }

    #[test]
    fn the_longest_pattern_is_as_long_as_the_longest_name() {
        let long = "a".repeat(CHARS_MAX);
        for (pattern, name, matches) in [
            (long.clone(), long.clone(), true),
            (long.clone(), long[1..].to_owned(), false),
            ("?".repeat(CHARS_MAX), long.clone(), true),
            (">".repeat(CHARS_MAX), String::new(), true),
            (">".repeat(CHARS_MAX), format!("{}.", &long[1..]), false),
            ("*a".repeat(127) + "b", long.clone(), false),
            ("*".repeat(CHARS_MAX), long.clone(), true),
        ] {
            assert_eq!(Pattern::new(&pattern).unwrap().matches(&name), matches, "{pattern} {name}");
        }
        assert_eq!(Pattern::new(&"*".repeat(CHARS_MAX + 1)), None);
        assert_eq!(Pattern::new(&"ä".repeat(CHARS_MAX)).map(|p| p.matches("ä")), Some(false));
    }
}
