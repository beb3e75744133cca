//! The identifier of an open (MS-SMB2 section 2.2.14.1).

use wire::bytes;

/// An SMB2_FILEID: 16 bytes that a client gets from CREATE and sends with every use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Unchanged when a durable open is reconnected.
    pub persistent: u64,
    /// Identifies the open in the server's table.
    pub volatile: u64,
}

impl FileId {
    /// In a related command: the file of the previous command in the chain (MS-SMB2 section 3.3.5.2.7.2).
    pub const PREVIOUS: Self = Self { persistent: u64::MAX, volatile: u64::MAX };

    /// Length on the wire, in bytes.
    pub const LEN: usize = 16;

    /// Parses the next 16 bytes.
    ///
    /// # Errors
    ///
    /// The input is too short.
    #[inline]
    pub fn parse(input: &[u8]) -> wire::Parsed<'_, Self> {
        let (rest, id) = bytes::<{ Self::LEN }>("FileId")(input)?;
        let both = u128::from_le_bytes(id);
        // Invariant: half of 128 bits each.
        #[allow(clippy::cast_possible_truncation)]
        let (persistent, volatile) = (both as u64, (both >> 64) as u64);
        Ok((rest, Self { persistent, volatile }))
    }

    /// Serializes it.
    pub fn emit(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.persistent.to_le_bytes());
        out[8..].copy_from_slice(&self.volatile.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_round_trips() {
        let id = FileId { persistent: 0x0102_0304_0506_0708, volatile: 9 };
        let bytes = id.emit();
        assert_eq!(bytes[..2], [8, 7]);
        assert_eq!(FileId::parse(&bytes), Ok((&[][..], id)));
        assert!(FileId::parse(&bytes[..15]).is_err());
    }
}
