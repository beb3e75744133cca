//! SMB2 SET_INFO (MS-SMB2 sections 2.2.39 and 2.2.40).

use super::file_id::FileId;
use super::{Fields, HEADER_LEN, Parsed, range};

/// What a client asks. The types and parts of descriptors are those of [`super::query_info`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// InfoType
    pub info_type: u8,
    /// FileInfoClass
    pub class: u8,
    /// Parts of a descriptor.
    pub additional: u32,
    /// The file.
    pub file: FileId,
    /// The information.
    pub buffer: Vec<u8>,
}

impl Request {
    /// Fixed bytes of the body.
    const FIXED: usize = 32;

    /// Reads one. The buffer is bounded by the message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let mut f = Fields::body(message, 33)?;
        let info_type = f.u8("InfoType")?;
        let class = f.u8("FileInfoClass")?;
        let len = usize::try_from(f.u32("BufferLength")?).unwrap_or(usize::MAX);
        let at = usize::from(f.u16("BufferOffset")?);
        f.skip(2);
        let additional = f.u32("AdditionalInformation")?;
        let file = FileId::parse(&mut f)?;
        let buffer = range(message, at, len, "Buffer")?.to_vec();
        Ok(Self { info_type, class, additional, file, buffer })
    }

    /// The body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.buffer.len().max(1));
        out.extend(33_u16.to_le_bytes());
        out.extend([self.info_type, self.class]);
        out.extend(u32::try_from(self.buffer.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(u16::try_from(HEADER_LEN + Self::FIXED).unwrap_or_default().to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.additional.to_le_bytes());
        out.extend(self.file.emit());
        out.extend(&self.buffer);
        if self.buffer.is_empty() {
            out.push(0);
        }
        out
    }
}

/// The server's answer, which says nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response;

impl Response {
    /// Reads one.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        Fields::body(message, 2).map(|_| Self)
    }

    /// The body.
    pub fn emit(&self) -> Vec<u8> {
        2_u16.to_le_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Malformed;
    use super::*;
    use proptest::prelude::*;

    fn message(body: &[u8]) -> Vec<u8> {
        [&[0; HEADER_LEN], body].concat()
    }

    #[test]
    fn a_hostile_buffer_is_refused() {
        let file = FileId::default();
        let r = Request { info_type: 1, class: 4, additional: 0, file, buffer: vec![0; 40] };
        let good = message(&r.emit());
        assert_eq!(Request::parse(&good), Ok(r));
        assert_eq!(Request::parse(&good[..good.len() - 1]), Err(Malformed("Buffer")));
        let mut bad = good.clone();
        bad[64 + 8] += 1;
        assert_eq!(Request::parse(&bad), Err(Malformed("Buffer")));
        assert_eq!(Response::parse(&message(&Response.emit())), Ok(Response));
        assert_eq!(Response::parse(&message(&[3, 0])), Err(Malformed("StructureSize")));
    }

    proptest! {
        #[test]
        fn requests_round_trip(
            info_type: u8, class: u8, additional: u32, persistent: u64, volatile: u64,
            buffer in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let file = FileId { persistent, volatile };
            let r = Request { info_type, class, additional, file, buffer };
            prop_assert_eq!(Request::parse(&message(&r.emit())).unwrap(), r);
        }
    }
}
