//! Reads the formats of this crate, which are not in [`smb_proto`] yet, field by field.

/// A message that does not follow its format; names the field. Answered with `STATUS_INVALID_PARAMETER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// What reading gives.
pub type Parsed<T> = Result<T, Malformed>;

/// Reads little-endian fields one after the other; every short read names the field that was cut.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    whole: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// From `at` in `whole`.
    pub fn new(whole: &'a [u8], at: usize) -> Self {
        Self { whole, at }
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Parsed<[u8; N]> {
        let rest = self.whole.get(self.at..).ok_or(Malformed(field))?;
        let found = rest.first_chunk::<N>().ok_or(Malformed(field))?;
        self.at += N;
        Ok(*found)
    }

    /// The next byte.
    pub fn u8(&mut self, field: &'static str) -> Parsed<u8> {
        self.array::<1>(field).map(|b| b[0])
    }

    /// The next 16 bits.
    pub fn u16(&mut self, field: &'static str) -> Parsed<u16> {
        self.array(field).map(u16::from_le_bytes)
    }

    /// The next 32 bits.
    pub fn u32(&mut self, field: &'static str) -> Parsed<u32> {
        self.array(field).map(u32::from_le_bytes)
    }

    /// The next 64 bits.
    pub fn u64(&mut self, field: &'static str) -> Parsed<u64> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// The next `len` bytes.
    pub fn bytes(&mut self, len: usize, field: &'static str) -> Parsed<&'a [u8]> {
        let found = range(self.whole, self.at, len, field)?;
        self.at += len;
        Ok(found)
    }

    /// Passes over bytes that mean nothing here.
    pub fn skip(&mut self, len: usize) {
        self.at = self.at.saturating_add(len);
    }

    /// Offset of the next field from the start of the message.
    pub fn at(&self) -> usize {
        self.at
    }

    /// What follows.
    pub fn rest(&self) -> &'a [u8] {
        self.whole.get(self.at..).unwrap_or_default()
    }
}

/// `len` bytes at an offset that the peer gave, counted from the start of `whole`. Nothing at all may stand anywhere.
pub fn range<'a>(
    whole: &'a [u8],
    offset: usize,
    len: usize,
    field: &'static str,
) -> Parsed<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    let end = offset.checked_add(len).ok_or(Malformed(field))?;
    whole.get(offset..end).ok_or(Malformed(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_field_is_named() {
        let mut f = Fields::new(&[1, 2, 3], 0);
        assert_eq!(f.u16("First"), Ok(0x0201));
        assert_eq!(f.u16("Second"), Err(Malformed("Second")));
        assert_eq!(f.u8("Second"), Ok(3));
        assert_eq!(Fields::new(&[], 9).u8("Beyond"), Err(Malformed("Beyond")));
    }

    #[test]
    fn ranges_are_checked_without_overflow() {
        let whole = [0_u8; 8];
        assert_eq!(range(&whole, usize::MAX, 2, "Buffer"), Err(Malformed("Buffer")));
        assert_eq!(range(&whole, 7, 2, "Buffer"), Err(Malformed("Buffer")));
        assert_eq!(range(&whole, 6, 2, "Buffer"), Ok(&whole[6..]));
        assert_eq!(range(&whole, 999, 0, "Buffer"), Ok(&[][..]), "nothing may stand anywhere");
    }
}
