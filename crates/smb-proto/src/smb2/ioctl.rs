//! IOCTL (MS-SMB2 sections 2.2.31 and 2.2.32). [`super::fsctl`] has the formats of its buffers.

use wire::{Parser, Rule, le_u16, le_u32, le_u64, reject};

use super::{FileId, HEADER_LEN, Parsed};
use crate::parse::{body, buffer, longs, range};

/// SMB2_0_IOCTL_IS_FSCTL
pub const IS_FSCTL: u32 = 1;

/// An IOCTL request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The control code: one of [`super::fsctl::code`].
    pub code: u32,
    /// The open file, or [`FileId::PREVIOUS`] (all ones) for codes without a file.
    pub file: FileId,
    /// The input.
    pub input: &'a [u8],
    /// MaxInputResponse
    pub input_max: u32,
    /// MaxOutputResponse: maximum output that the client accepts, in bytes.
    pub output_max: u32,
    /// Flags
    pub flags: u32,
}

impl<'a> Request<'a> {
    const FIXED: usize = 56;

    /// Parses a message that starts at its header.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        body(message, 57, |i| {
            let (i, (_, code, file)) =
                (le_u16("Reserved"), le_u32("CtlCode"), FileId::parse).parse(i)?;
            let place = i;
            let (i, (at, len)) = longs("Input")(i)?;
            // OutputOffset and OutputCount are zero in every request.
            let (i, (input_max, _, output_max, flags, _)) = (
                le_u32("MaxInputResponse"),
                le_u64("OutputOffset"),
                le_u32("MaxOutputResponse"),
                le_u32("Flags"),
                le_u32("Reserved2"),
            )
                .parse(i)?;
            if len > 0 && (at < HEADER_LEN + Self::FIXED || !at.is_multiple_of(8)) {
                return Err(reject("InputOffset", Rule::Value, place));
            }
            let input = range(message, (at, len), "Input", place)?;
            Ok((i, Self { code, file, input, input_max, output_max, flags }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.input.len());
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        out.extend([57, 0, 0, 0]);
        out.extend(self.code.to_le_bytes());
        out.extend(self.file.emit());
        out.extend(number(HEADER_LEN + Self::FIXED));
        out.extend(number(self.input.len()));
        out.extend(self.input_max.to_le_bytes());
        out.extend([0; 8]);
        out.extend(self.output_max.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.input);
        out
    }
}

/// An IOCTL response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The control code of the request.
    pub code: u32,
    /// The open file.
    pub file: FileId,
    /// The output.
    pub output: &'a [u8],
}

impl<'a> Response<'a> {
    const FIXED: usize = 48;

    /// Parses a message that starts at its header.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        body(message, 49, |i| {
            let (i, (_, code, file, _)) =
                (le_u16("Reserved"), le_u32("CtlCode"), FileId::parse, le_u64("InputOffset"))
                    .parse(i)?;
            let (i, output) = buffer(message, "Output", longs("Output"))(i)?;
            Ok((i, Self { code, file, output }))
        })
    }

    /// Serializes the body.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.output.len());
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        let buffer = number(HEADER_LEN + Self::FIXED);
        out.extend([49, 0, 0, 0]);
        out.extend(self.code.to_le_bytes());
        out.extend(self.file.emit());
        out.extend(buffer);
        out.extend([0; 4]);
        out.extend(buffer);
        out.extend(number(self.output.len()));
        out.extend([0; 8]);
        out.extend(self.output);
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::{message, named};

    proptest! {
        #[test]
        fn request_and_response_round_trip(
            code: u32, ids: (u64, u64), input in prop::collection::vec(any::<u8>(), 0..50),
            maxima: (u32, u32), flags: u32, cut in 1_usize..50,
        ) {
            let file = FileId { persistent: ids.0, volatile: ids.1 };
            let (input_max, output_max) = maxima;
            let r = Request { code, file, input: &input, input_max, output_max, flags };
            let m = message(Command::Ioctl, &r.emit());
            prop_assert_eq!(Request::parse(&m), Ok(r));
            if cut <= m.len() - HEADER_LEN {
                prop_assert!(Request::parse(&m[..m.len() - cut]).is_err());
            }
            let r = Response { code, file, output: &input };
            let m = message(Command::Ioctl, &r.emit());
            prop_assert_eq!(Response::parse(&m), Ok(r));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut body in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(size) = body.first_chunk_mut::<2>() {
                *size = [57, 0];
            }
            let m = message(Command::Ioctl, &body);
            let _ = Request::parse(&m);
        }
    }

    #[test]
    fn input_before_buffer_is_refused() {
        let file = FileId::PREVIOUS;
        let r = Request { code: 1, file, input: b"x", input_max: 0, output_max: 0, flags: 1 };
        let mut m = message(Command::Ioctl, &r.emit());
        m[64 + 24] = 0;
        assert_eq!(named(Request::parse(&m)), Err("InputOffset"));
    }
}
