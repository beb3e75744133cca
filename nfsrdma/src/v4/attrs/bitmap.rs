//! `bitmap4` as a set of attribute numbers.

use crate::v4::limits::BITMAP_WORDS_MAX;
use crate::xdr::{Reader, Writer, XdrResult};

/// Words that hold every attribute this server knows.
const WORDS: usize = 3;

/// A set of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: [u32; WORDS],
    /// The client named attributes above all that this server knows.
    beyond: bool,
}

impl Bitmap {
    /// No attribute.
    pub const EMPTY: Self = Self { words: [0; WORDS], beyond: false };

    /// The attributes of these numbers, all below 96.
    pub const fn of(numbers: &[u32]) -> Self {
        let mut words = [0; WORDS];
        let mut i = 0;
        while i < numbers.len() {
            words[(numbers[i] / 32) as usize] |= 1 << (numbers[i] % 32);
            i += 1;
        }
        Self { words, beyond: false }
    }

    /// From the stream.
    pub fn decode(r: &mut Reader<'_>) -> XdrResult<Self> {
        let n = r.count(BITMAP_WORDS_MAX)?;
        let mut set = Self::EMPTY;
        for i in 0..n {
            let word = r.u32()?;
            match set.words.get_mut(i) {
                Some(place) => *place = word,
                None => set.beyond |= word != 0,
            }
        }
        Ok(set)
    }

    /// To the stream, without trailing words of zeros.
    pub fn encode(&self, w: &mut Writer) {
        let n = self.words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
        w.count(n);
        self.words[..n].iter().for_each(|&word| w.u32(word));
    }

    /// The attribute is in the set.
    pub fn has(&self, number: u32) -> bool {
        let word = usize::try_from(number / 32).ok().and_then(|i| self.words.get(i));
        word.is_some_and(|word| word & (1 << (number % 32)) != 0)
    }

    /// Adds an attribute below 96.
    pub fn add(&mut self, number: u32) {
        *self = self.or(&Self::of(&[number]));
    }

    /// No attribute is in the set.
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS] && !self.beyond
    }

    /// What is in both.
    pub const fn and(&self, other: &Self) -> Self {
        let (a, b) = (&self.words, &other.words);
        Self { words: [a[0] & b[0], a[1] & b[1], a[2] & b[2]], beyond: false }
    }

    /// What is in one of them or in both.
    pub const fn or(&self, other: &Self) -> Self {
        let (a, b) = (&self.words, &other.words);
        let beyond = self.beyond || other.beyond;
        Self { words: [a[0] | b[0], a[1] | b[1], a[2] | b[2]], beyond }
    }

    /// What is in this one and not in the other.
    pub const fn without(&self, other: &Self) -> Self {
        let (a, b) = (&self.words, &other.words);
        Self { words: [a[0] & !b[0], a[1] & !b[1], a[2] & !b[2]], beyond: self.beyond }
    }

    /// Everything here is in the other, too.
    pub fn is_within(&self, other: &Self) -> bool {
        self.without(other).is_empty()
    }

    /// The numbers, ascending: the order in which values stand in `attrlist4`.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..).step_by(32).zip(self.words).flat_map(|(first, mut word)| {
            std::iter::from_fn(move || {
                let number = (word != 0).then(|| first + word.trailing_zeros());
                word &= word.wrapping_sub(1);
                number
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iobuf::Buf;
    use proptest::prelude::*;

    fn decode(words: &[u32]) -> XdrResult<Bitmap> {
        let mut w = Writer::new();
        w.count(words.len());
        words.iter().for_each(|&v| w.u32(v));
        let body = Buf::from(w.into_reply().head);
        Bitmap::decode(&mut Reader::new(&body, &[]))
    }

    #[test]
    fn trailing_zero_words_are_not_sent() {
        let of = |set: Bitmap| {
            let mut w = Writer::new();
            set.encode(&mut w);
            w.into_reply().head
        };
        assert_eq!(of(Bitmap::EMPTY), [0, 0, 0, 0]);
        assert_eq!(of(Bitmap::of(&[1])), [0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(of(Bitmap::of(&[33])), [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn attributes_above_all_known_ones_are_noticed() {
        let set = decode(&[0, 0, 0, 1]).unwrap();
        assert!(!set.is_empty());
        assert!(!set.is_within(&Bitmap::of(&[1])));
        assert_eq!(decode(&[0, 0, 0, 0]).unwrap(), Bitmap::EMPTY);
        assert!(decode(&[0; BITMAP_WORDS_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn a_set_survives_the_wire(words: [u32; 3]) {
            let set = decode(&words).unwrap();
            let mut w = Writer::new();
            set.encode(&mut w);
            let body = Buf::from(w.into_reply().head);
            let mut r = Reader::new(&body, &[]);
            prop_assert_eq!(Bitmap::decode(&mut r).unwrap(), set);
            prop_assert!(r.is_at_end());
            for n in 0..96 {
                prop_assert_eq!(set.has(n), set.iter().any(|m| m == n));
            }
        }

        #[test]
        fn sets_obey_their_algebra(a: [u32; 3], b: [u32; 3]) {
            let (a, b) = (decode(&a).unwrap(), decode(&b).unwrap());
            prop_assert!(a.and(&b).is_within(&a));
            prop_assert!(a.is_within(&a.or(&b)));
            prop_assert_eq!(a.without(&b).or(&a.and(&b)), a);
        }
    }
}
