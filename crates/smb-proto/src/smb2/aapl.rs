//! The create context `AAPL`, in which macOS asks a server for its extensions. Apple describes it in `smb_2.h` of its client smbfs.
//!
//! *Operation.* A [`Query`] says which parts of the answer a client wants, and what the client can do; a [`Told`] has these
//! parts, in the order of their bits. The second command of the context, which asks for the path of a file number, is refused: a
//! server that announces no RESOLVE_ID does not get it.

use wire::{Parser, le_u32, le_u64, take};

use super::create::Context;
use crate::parse::{constant, put_utf16, size, text};

/// Name of the context.
pub const NAME: &[u8] = b"AAPL";
/// kAAPL_SERVER_QUERY
const SERVER_QUERY: u32 = 1;

/// Parts of an answer: the bits of the request's and the reply's bitmap.
pub mod part {
    /// The server's capabilities.
    pub const SERVER_CAPS: u64 = 1;
    /// The capabilities of the share's volume.
    pub const VOLUME_CAPS: u64 = 2;
    /// The model of the server.
    pub const MODEL_INFO: u64 = 4;
}

/// Capabilities of client and server.
pub mod caps {
    /// Directory entries have what Finder shows of a file ([`crate::fscc::mac::Entry`]).
    pub const READ_DIR_ATTR: u64 = 1;
    /// FSCTL_SRV_COPYCHUNK without chunks copies a whole file.
    pub const OSX_COPYFILE: u64 = 2;
    /// Files have a mode.
    pub const UNIX_BASED: u64 = 4;
    /// Security descriptors have entries for mode, owner and group.
    pub const NFS_ACE: u64 = 8;
    /// Version 2 of [`READ_DIR_ATTR`], which has flags.
    pub const READ_DIR_ATTR_V2: u64 = 0x10;
}

/// Capabilities of a volume.
pub mod volume {
    /// Answers the context's second command.
    pub const RESOLVE_ID: u64 = 1;
    /// Names differ by case.
    pub const CASE_SENSITIVE: u64 = 2;
    /// FLUSH can make data durable beyond a loss of power.
    pub const FULL_SYNC: u64 = 4;
}

/// The context of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Bits of [`part`].
    pub parts: u64,
    /// Bits of [`caps`].
    pub client: u64,
}

impl Query {
    /// Length in bytes.
    pub const LEN: usize = 24;

    pub(super) fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, ((), _)) =
            (constant("CommandCode", le_u32("CommandCode"), SERVER_QUERY), le_u32("Reserved"))
                .parse(i)?;
        let (i, (parts, client)) = (le_u64("RequestBitmap"), le_u64("ClientCaps")).parse(i)?;
        Ok((i, Self { parts, client }))
    }

    /// Converts it to a context of a request.
    pub fn context(&self) -> Context<'static> {
        let mut out = Vec::with_capacity(Self::LEN);
        out.extend(SERVER_QUERY.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.parts.to_le_bytes());
        out.extend(self.client.to_le_bytes());
        Context::new(NAME, out)
    }
}

/// The context of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Bits of [`caps`].
    pub server: Option<u64>,
    /// Bits of [`volume`].
    pub volume: Option<u64>,
    /// The model, by which macOS chooses an icon.
    pub model: Option<String>,
}

impl Told {
    pub(super) fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, ((), _, parts)) = (
            constant("CommandCode", le_u32("CommandCode"), SERVER_QUERY),
            le_u32("Reserved"),
            le_u64("ReplyBitmap"),
        )
            .parse(i)?;
        let number = |i, bit: u64, field| match parts & bit {
            0 => Ok((i, None)),
            _ => le_u64(field)(i).map(|(i, n)| (i, Some(n))),
        };
        let (i, server) = number(i, part::SERVER_CAPS, "ServerCaps")?;
        let (i, volume) = number(i, part::VOLUME_CAPS, "VolumeCaps")?;
        if parts & part::MODEL_INFO == 0 {
            return Ok((i, Self { server, volume, model: None }));
        }
        let (i, (_, len)) = (le_u32("Pad"), le_u32("ModelStringLength")).parse(i)?;
        let (i, model) = take(size(len), "ModelString")(i)?;
        let model = Some(text(model, "ModelString")?);
        Ok((i, Self { server, volume, model }))
    }

    /// Converts it to a context of a response.
    pub fn context(&self) -> Context<'static> {
        let bit = |is: bool, bit: u64| if is { bit } else { 0 };
        let parts = bit(self.server.is_some(), part::SERVER_CAPS)
            | bit(self.volume.is_some(), part::VOLUME_CAPS)
            | bit(self.model.is_some(), part::MODEL_INFO);
        let mut out = SERVER_QUERY.to_le_bytes().to_vec();
        out.extend([0; 4]);
        out.extend(parts.to_le_bytes());
        for number in [self.server, self.volume].into_iter().flatten() {
            out.extend(number.to_le_bytes());
        }
        if let Some(model) = &self.model {
            out.extend([0; 4]);
            let mut utf16 = Vec::with_capacity(2 * model.len());
            put_utf16(&mut utf16, model);
            out.extend(u32::try_from(utf16.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend(utf16);
        }
        Context::new(NAME, out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::context;
    use super::*;

    /// What Apple's client sends with its first open of a share, by its source.
    const OF_MACOS: [u8; 24] = [
        1, 0, 0, 0, 0, 0, 0, 0, // CommandCode, Reserved
        7, 0, 0, 0, 0, 0, 0, 0, // RequestBitmap
        0x3f, 0, 0, 0, 0, 0, 0, 0, // ClientCaps
    ];

    fn asked(data: &[u8]) -> super::super::Parsed<Option<Query>> {
        let contexts = [Context::new(NAME, data.to_vec())];
        context::Asked::parse(&contexts).map(|asked| asked.aapl)
    }

    #[test]
    fn query_of_macos_is_parsed() {
        let query = Query { parts: 7, client: 0x3f };
        assert_eq!(asked(&OF_MACOS), Ok(Some(query)));
        assert_eq!(query.context().data[..], OF_MACOS);
    }

    #[test]
    fn other_lengths_and_commands_are_refused() {
        let longer = [&OF_MACOS[..], &[0]].concat();
        for wrong in [&[][..], &[1], &OF_MACOS[..23], &longer] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
        for command in [0, 2, 3, 255] {
            let mut wrong = OF_MACOS;
            wrong[0] = command;
            assert!(asked(&wrong).is_err(), "{command}");
        }
    }

    #[test]
    fn answers_round_trip() {
        let model = |text: &str| Some(text.to_owned());
        for told in [
            Told::default(),
            Told { server: Some(15), ..Told::default() },
            Told { volume: Some(4), model: model("RackMac"), ..Told::default() },
            Told { server: Some(15), volume: Some(0), model: model("MacSamba") },
        ] {
            let context = told.context();
            let all = context::Told { aapl: Some(told.clone()), ..context::Told::default() };
            assert_eq!(context::Told::parse(std::slice::from_ref(&context)), Ok(all));
            for cut in 0..context.data.len() {
                let less = [Context::new(NAME, context.data[..cut].to_vec())];
                assert!(context::Told::parse(&less).is_err(), "{told:?} {cut}");
            }
        }
    }

    #[test]
    fn answer_has_the_layout_that_macos_reads() {
        let told = Told { server: Some(15), volume: Some(4), model: Some("ab".into()) };
        let wanted = [
            1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, b'a', 0, b'b', 0,
        ];
        assert_eq!(told.context().data[..], wanted);
    }
}
