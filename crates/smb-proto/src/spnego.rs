//! The tokens of SPNEGO (RFC 4178, MS-SPNG), without the mechanisms inside them.
//!
//! *Errors.* [`wire::Fault`], whose offset counts from the start of the token. Field `mechTypes` may also be over its limit of
//! [`MECHS_MAX`].

use nom::combinator::consumed;
use wire::{Rule, reject};

use crate::der::{self, contents, element, inside, optional};
use crate::parse::{Parsed, whole};

/// Maximum number of mechanisms that a client may list.
pub const MECHS_MAX: usize = 32;

/// Object identifiers of mechanisms, without tag and length.
pub mod mech {
    /// 1.3.6.1.5.5.2
    pub const SPNEGO: [u8; 6] = [0x2b, 6, 1, 5, 5, 2];
    /// 1.2.840.113554.1.2.2
    pub const KRB5: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
    /// 1.2.840.48018.1.2.2: the same identifier with one number truncated to 16 bits, as in Windows 2000 and all later versions
    /// (MS-SPNG section 3.1.5.2).
    pub const MS_KRB5: [u8; 9] = [0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 1, 2, 2];
    /// 1.3.6.1.4.1.311.2.2.10
    pub const NTLMSSP: [u8; 10] = [0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 0x0a];
}

/// `negState` (RFC 4178 section 4.2.2).
pub mod state {
    #![allow(missing_docs)] // The names are the specification's.
    pub const ACCEPT_COMPLETED: u8 = 0;
    pub const ACCEPT_INCOMPLETE: u8 = 1;
    pub const REJECT: u8 = 2;
    pub const REQUEST_MIC: u8 = 3;
}

/// `InitialContextToken` (RFC 2743 section 3.1): the frame of an initial token of any mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialContext<'a> {
    /// `thisMech`
    pub mech: &'a [u8],
    /// The token of the mechanism, to the end of the frame.
    pub inner: &'a [u8],
}

impl<'a> InitialContext<'a> {
    /// Parses it.
    pub fn parse(token: &'a [u8]) -> Parsed<Self> {
        whole(token, |i| {
            let (rest, frame) = contents(der::APPLICATION_0, "InitialContextToken")(i)?;
            let (inner, mech) = contents(der::OID, "thisMech")(frame)?;
            Ok((rest, Self { mech, inner }))
        })
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        element(der::APPLICATION_0, &[&element(der::OID, self.mech), self.inner].concat())
    }
}

/// Serializes `mechTypes` with tag and length, which the MICs of both sides cover.
pub fn mech_types<'a>(mechs: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let oids: Vec<u8> = mechs.into_iter().flat_map(|mech| element(der::OID, mech)).collect();
    element(der::SEQUENCE, &oids)
}

/// `NegTokenInit`, the inner part of an [`InitialContext`] of [`mech::SPNEGO`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init<'a> {
    /// `mechTypes` with tag and length ([`mech_types`]).
    pub list: &'a [u8],
    /// The mechanisms in `list`, in order of preference.
    pub mechs: Vec<&'a [u8]>,
    /// `mechToken` of the first mechanism.
    pub token: Option<&'a [u8]>,
    /// `mechListMIC`, by the context that `mechToken` makes.
    pub mic: Option<&'a [u8]>,
}

impl<'a> Init<'a> {
    /// Parses it.
    pub fn parse(inner: &'a [u8]) -> Parsed<Self> {
        whole(
            inner,
            inside(
                der::context(0),
                "NegTokenInit",
                inside(der::SEQUENCE, "NegTokenInit", Self::fields),
            ),
        )
    }

    fn fields(i: &'a [u8]) -> wire::Parsed<'a, Self> {
        let types = consumed(inside(der::SEQUENCE, "mechTypes", mechs));
        let (i, (list, mechs)) = inside(der::context(0), "mechTypes", types)(i)?;
        let (i, _) = optional(der::context(1), "reqFlags", |flags| Ok((flags, ())))(i)?;
        let token = contents(der::OCTETS, "mechToken");
        let (i, token) = optional(der::context(2), "mechToken", token)(i)?;
        let (i, early) = optional(der::context(3), "mechListMIC", mic)(i)?;
        // In the form of MS-SPNG section 2.2.1 hints stand before it.
        let (i, late) = optional(der::context(4), "mechListMIC", mic)(i)?;
        Ok((i, Self { list, mechs, token, mic: early.flatten().or(late.flatten()) }))
    }

    /// Serializes it with the mechanisms of `list`.
    pub fn emit(&self) -> Vec<u8> {
        let mut fields = element(der::context(0), self.list);
        if let Some(token) = self.token {
            fields.extend(element(der::context(2), &element(der::OCTETS, token)));
        }
        if let Some(mic) = self.mic {
            fields.extend(element(der::context(3), &element(der::OCTETS, mic)));
        }
        element(der::context(0), &element(der::SEQUENCE, &fields))
    }
}

/// A MIC, or hints of a server in its place.
fn mic(i: &[u8]) -> wire::Parsed<'_, Option<&[u8]>> {
    match i.first() {
        Some(&der::OCTETS) => {
            contents(der::OCTETS, "mechListMIC")(i).map(|(i, mic)| (i, Some(mic)))
        }
        _ => Ok((i, None)),
    }
}

fn mechs(mut i: &[u8]) -> wire::Parsed<'_, Vec<&[u8]>> {
    let mut found = Vec::new();
    while !i.is_empty() {
        if found.len() == MECHS_MAX {
            return Err(reject("mechTypes", Rule::OverLimit { max: MECHS_MAX }, i));
        }
        let mech;
        (i, mech) = contents(der::OID, "mechTypes")(i)?;
        found.push(mech);
    }
    Ok((i, found))
}

/// Builds a server's offer, sent before the first token of a client: `NegTokenInit2` with the text that MS-SPNG section 2.2.1
/// defines for clients that look for a name there. `list` is [`mech_types`].
pub fn emit_offer(list: &[u8]) -> Vec<u8> {
    let words = element(der::GENERAL_STRING, b"not_defined_in_RFC4178@please_ignore");
    let hints = element(der::SEQUENCE, &element(der::context(0), &words));
    let fields = [element(der::context(0), list), element(der::context(3), &hints)];
    let inner = element(der::context(0), &element(der::SEQUENCE, &fields.concat()));
    InitialContext { mech: &mech::SPNEGO, inner: &inner }.emit()
}

/// `NegTokenResp`: every later token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resp<'a> {
    /// `negState`, of [`state`].
    pub state: Option<u8>,
    /// `supportedMech`
    pub mech: Option<&'a [u8]>,
    /// `responseToken`
    pub token: Option<&'a [u8]>,
    /// `mechListMIC`
    pub mic: Option<&'a [u8]>,
}

impl<'a> Resp<'a> {
    /// Parses it.
    pub fn parse(token: &'a [u8]) -> Parsed<Self> {
        whole(
            token,
            inside(
                der::context(1),
                "NegTokenResp",
                inside(der::SEQUENCE, "NegTokenResp", Self::fields),
            ),
        )
    }

    fn fields(i: &'a [u8]) -> wire::Parsed<'a, Self> {
        let one = |n, tag, field| optional(der::context(n), field, contents(tag, field));
        let (i, state) = one(0, der::ENUMERATED, "negState")(i)?;
        let (i, mech) = one(1, der::OID, "supportedMech")(i)?;
        let (i, token) = one(2, der::OCTETS, "responseToken")(i)?;
        let (i, mic) = one(3, der::OCTETS, "mechListMIC")(i)?;
        let state = state.and_then(|s| s.first().copied());
        Ok((i, Self { state, mech, token, mic }))
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        let mut put = |n, tag, value: Option<&[u8]>| {
            if let Some(value) = value {
                fields.extend(element(der::context(n), &element(tag, value)));
            }
        };
        put(0, der::ENUMERATED, self.state.as_ref().map(std::slice::from_ref));
        put(1, der::OID, self.mech);
        put(2, der::OCTETS, self.token);
        put(3, der::OCTETS, self.mic);
        element(der::context(1), &element(der::SEQUENCE, &fields))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first token of a Linux kernel client: only NTLM, with the NEGOTIATE_MESSAGE.
    #[test]
    fn client_token_is_parsed() {
        let mut token =
            b"\x60\x48\x06\x06\x2b\x06\x01\x05\x05\x02\xa0\x3e\x30\x3c\xa0\x0e\x30\x0c\x06\x0a"
                .to_vec();
        token
            .extend(b"\x2b\x06\x01\x04\x01\x82\x37\x02\x02\x0a\xa2\x2a\x04\x28NTLMSSP\0\x01\0\0\0");
        token.extend(b"\x05\x02\x88\xa0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x06\x0c\0\0\0\0\0\x0f");
        let frame = InitialContext::parse(&token).unwrap();
        let init = Init::parse(frame.inner).unwrap();
        assert_eq!((frame.mech, &init.mechs[..]), (&mech::SPNEGO[..], &[&mech::NTLMSSP[..]][..]));
        let inner = init.token.unwrap();
        assert!(inner.len() == 40 && inner.starts_with(b"NTLMSSP\0"));
        assert_eq!(InitialContext { mech: frame.mech, inner: &init.emit() }.emit(), token);
        // The server's reply: accept-incomplete, the mechanism, its token.
        let answer = b"\xa1\x19\x30\x17\xa0\x03\x0a\x01\x01\xa1\x0c\x06\x0a\x2b\x06\x01\x04\x01\x82\x37\x02\x02\x0a\xa2\x02\x04\0";
        let (mech, token) = (Some(&mech::NTLMSSP[..]), Some(&[][..]));
        let resp = Resp { state: Some(state::ACCEPT_INCOMPLETE), mech, token, mic: None };
        assert_eq!((Resp::parse(answer), resp.emit()), (Ok(resp), answer.to_vec()));
    }

    #[test]
    fn initial_token_lists_mechanisms() {
        let list = mech_types([&mech::MS_KRB5[..], &mech::KRB5, &mech::NTLMSSP]);
        let inner =
            Init { list: &list, mechs: Vec::new(), token: Some(b"AP-REQ"), mic: None }.emit();
        let token = InitialContext { mech: &mech::SPNEGO, inner: &inner }.emit();
        let frame = InitialContext::parse(&token).unwrap();
        assert_eq!(frame.mech, mech::SPNEGO);
        let init = Init::parse(frame.inner).unwrap();
        assert_eq!(init.mechs, [&mech::MS_KRB5[..], &mech::KRB5, &mech::NTLMSSP]);
        assert_eq!((init.list, init.token), (&list[..], Some(&b"AP-REQ"[..])));
        let said = |token: &[u8]| InitialContext::parse(token).unwrap_err().to_string();
        assert_eq!(said(&token[..9]), "InitialContextToken truncated at 2");
        assert_eq!(said(&[0x60, 2, 4, 0]), "thisMech invalid at 2");
    }

    #[test]
    fn number_of_mechanisms_is_limited() {
        let read = |n: usize| {
            let list = mech_types(vec![&mech::KRB5[..]; n]);
            let inner = Init { list: &list, mechs: Vec::new(), token: None, mic: None }.emit();
            Init::parse(&inner).map(|init| init.mechs.len())
        };
        assert_eq!(read(MECHS_MAX), Ok(MECHS_MAX));
        let fault = read(MECHS_MAX + 1).unwrap_err();
        assert_eq!((fault.field, fault.rule), ("mechTypes", Rule::OverLimit { max: MECHS_MAX }));
    }

    #[test]
    fn offer_parses_as_initial_token() {
        let list = mech_types([&mech::NTLMSSP[..]]);
        let offer = emit_offer(&list);
        let init = Init::parse(InitialContext::parse(&offer).unwrap().inner).unwrap();
        assert_eq!((init.list, init.token), (&list[..], None));
        assert!(offer.ends_with(b"not_defined_in_RFC4178@please_ignore"));
    }

    fn part() -> impl Strategy<Value = Option<Vec<u8>>> {
        prop::option::of(prop::collection::vec(any::<u8>(), 0..200))
    }

    proptest! {
        #[test]
        fn tokens_round_trip(
            state in any::<Option<u8>>(), mech in part(), token in part(), mic in part(),
            mechs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..MECHS_MAX),
        ) {
            let (mech, mic) = (mech.as_deref(), mic.as_deref());
            let resp = Resp { state, mech, token: token.as_deref(), mic };
            let bytes = resp.emit();
            prop_assert_eq!(Resp::parse(&bytes), Ok(resp));
            let list = mech_types(mechs.iter().map(|mech| &mech[..]));
            let mechs = mechs.iter().map(|mech| &mech[..]).collect();
            let init = Init { list: &list, mechs, token: token.as_deref(), mic };
            let bytes = init.emit();
            prop_assert_eq!(Init::parse(&bytes), Ok(init));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (InitialContext::parse(&bytes), Init::parse(&bytes), Resp::parse(&bytes));
        }
    }
}
