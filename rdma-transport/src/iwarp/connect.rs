//! MPA start-up: requests, replies, and the negotiated parameters (RFC 5044 section 7.1, RFC 6581). No I/O.

use bytes::Bytes;

use super::IwarpConfig;
use super::tx::Framing;
use super::violation::Violation;
use super::wire::{field, mpa};
use crate::verbs::ConnectParams;

/// The frame with which the initiator lets the responder send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RtrKind {
    Send,
    Write,
    Read,
}

impl RtrKind {
    /// The cheapest kind that both sides support: a Write has no effect, a Read needs a response, a Send uses a message number.
    fn choose(rtr: mpa::Rtr) -> Option<Self> {
        [(rtr.write, Self::Write), (rtr.read, Self::Read), (rtr.send, Self::Send)]
            .into_iter()
            .find_map(|(offered, kind)| offered.then_some(kind))
    }

    fn flags(self) -> mpa::Rtr {
        mpa::Rtr { send: self == Self::Send, write: self == Self::Write, read: self == Self::Read }
    }
}

/// Parameters that both sides have agreed on while connecting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) crc: bool,
    /// The peer wants markers in the FPDUs of this side; this side never wants any.
    pub(crate) markers: bool,
    /// FPDUs may exceed the path's MSS.
    pub(crate) large_fpdus: bool,
    /// Maximum outstanding RDMA Reads of the peer.
    pub(crate) ird: usize,
    /// Maximum outstanding RDMA Reads of this side.
    pub(crate) ord: usize,
    /// The frame that the initiator sends first.
    pub(crate) rtr: Option<RtrKind>,
    /// The peer's private data.
    pub(crate) private_data: Bytes,
}

impl Agreed {
    /// How this side frames its messages.
    pub(crate) fn framing(&self) -> Framing {
        Framing { crc: self.crc, markers: self.markers, aligns: !self.large_fpdus }
    }
}

/// The peer's start frame.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) start: mpa::Start,
    enhanced: Option<mpa::Enhanced>,
    pub(crate) private_data: Bytes,
}

/// Checks the fixed part of a start frame; returns the length of the private data that follows.
pub(crate) fn check_start(b: &[u8; mpa::START_LEN], reply: bool) -> Result<mpa::Start, Violation> {
    let start = mpa::Start::parse(b).filter(|s| s.reply == reply).ok_or(Violation::MpaKey)?;
    if !(1..=2).contains(&start.revision) {
        return Err(Violation::MpaRevision);
    }
    if usize::from(start.private_len) > mpa::PRIVATE_DATA_MAX {
        return Err(Violation::MpaPrivateData);
    }
    Ok(start)
}

/// Parses the private data of a start frame.
pub(crate) fn hear(start: mpa::Start, mut private_data: Bytes) -> Result<Heard, Violation> {
    let mut enhanced = None;
    // Revision 1 has no S bit.
    if start.enhanced && start.revision == 2 {
        if private_data.len() < mpa::ENHANCED_LEN {
            return Err(Violation::MpaPrivateData);
        }
        enhanced = Some(mpa::Enhanced::parse(&field(&private_data.split_to(mpa::ENHANCED_LEN), 0)));
    }
    Ok(Heard { start, enhanced, private_data })
}

/// The private data is too long for a start frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

fn emit(
    mut start: mpa::Start,
    enhanced: Option<mpa::Enhanced>,
    private_data: &[u8],
) -> Result<Vec<u8>, TooLong> {
    let words = enhanced.map(|e| e.emit());
    let words = words.as_ref().map_or(&[][..], |w| &w[..]);
    let len = words.len() + private_data.len();
    start.private_len = u16::try_from(len).map_err(|_| TooLong)?;
    if len > mpa::PRIVATE_DATA_MAX {
        return Err(TooLong);
    }
    Ok([&start.emit(), words, private_data].concat())
}

fn depth(reads: u16) -> u16 {
    reads.min(mpa::DEPTH_MAX)
}

/// `own` reads, limited by the peer's number if it sent one.
fn bounded(own: u16, peer: u16) -> u16 {
    if peer == mpa::DEPTH_UNSAID { depth(own) } else { depth(own).min(peer) }
}

/// Builds the initiator's request.
pub(crate) fn request(c: &IwarpConfig, p: &ConnectParams) -> Result<Vec<u8>, TooLong> {
    let start = mpa::Start {
        reply: false,
        markers: false,
        crc: c.crc,
        reject: false,
        enhanced: c.enhanced,
        large_fpdus: c.enhanced && c.large_fpdus,
        revision: if c.enhanced { 2 } else { 1 },
        private_len: 0,
    };
    let rtr = mpa::Rtr { send: c.peer_to_peer, write: c.peer_to_peer, read: c.peer_to_peer };
    let enhanced = mpa::Enhanced {
        ird: depth(p.reads_in),
        ord: depth(p.reads_out),
        peer_to_peer: c.peer_to_peer,
        rtr,
    };
    emit(start, c.enhanced.then_some(enhanced), &p.private_data)
}

/// Builds the responder's reply, and returns the negotiated parameters.
pub(crate) fn accept(
    c: &IwarpConfig,
    p: &ConnectParams,
    heard: &Heard,
) -> Result<Result<(Vec<u8>, Agreed), TooLong>, Violation> {
    let asked = &heard.start;
    let mut rtr = None;
    let mut answer = None;
    if let Some(e) = heard.enhanced {
        if e.peer_to_peer {
            rtr = Some(RtrKind::choose(e.rtr).ok_or(Violation::MpaRtrUnmatched)?);
        }
        answer = Some(mpa::Enhanced {
            ird: bounded(p.reads_in, e.ord),
            // Exceeding the peer's IRD would end the connection.
            ord: bounded(p.reads_out, e.ird),
            peer_to_peer: rtr.is_some(),
            rtr: rtr.map_or(mpa::Rtr::default(), RtrKind::flags),
        });
    }
    let crc = c.crc || asked.crc;
    let large_fpdus = c.large_fpdus && asked.large_fpdus;
    // The request's flag of a refusal has no meaning (RFC 5044 section 7.1.1).
    let start = mpa::Start {
        reply: true,
        markers: false,
        crc,
        reject: false,
        enhanced: answer.is_some(),
        large_fpdus,
        ..*asked
    };
    let (ird, ord) = answer.map_or((p.reads_in, p.reads_out), |a| (a.ird, a.ord));
    let agreed = Agreed {
        crc,
        markers: asked.markers,
        large_fpdus,
        ird: usize::from(ird),
        ord: usize::from(ord),
        rtr,
        private_data: heard.private_data.clone(),
    };
    Ok(emit(start, answer, &p.private_data).map(|reply| (reply, agreed)))
}

/// Builds a reply that refuses the connection, in the revision of the request; its enhanced fields are zero.
pub(crate) fn reject(heard: &Heard, private_data: &[u8]) -> Vec<u8> {
    let start = mpa::Start {
        reply: true,
        markers: false,
        reject: true,
        large_fpdus: false,
        enhanced: heard.enhanced.is_some(),
        ..heard.start
    };
    let words = heard.enhanced.map(|_| mpa::Enhanced::default());
    let room = mpa::PRIVATE_DATA_MAX - mpa::ENHANCED_LEN;
    emit(start, words, &private_data[..private_data.len().min(room)]).unwrap_or_default()
}

/// Evaluates the reply to an initiator's request.
pub(crate) fn conclude(
    c: &IwarpConfig,
    p: &ConnectParams,
    heard: &Heard,
) -> Result<Agreed, Violation> {
    let s = &heard.start;
    // A responder that knows only revision 1 mistook our IRD and ORD for private data.
    if c.enhanced != heard.enhanced.is_some() {
        return Err(Violation::MpaRevision);
    }
    let (mut ird, mut ord, mut rtr) = (p.reads_in, p.reads_out, None);
    if let Some(e) = heard.enhanced {
        if e.ord != mpa::DEPTH_UNSAID && e.ord > depth(p.reads_in) {
            return Err(Violation::MpaIrdInsufficient);
        }
        ird = bounded(p.reads_in, e.ord);
        ord = bounded(p.reads_out, e.ird);
        if e.peer_to_peer {
            rtr = Some(RtrKind::choose(e.rtr).ok_or(Violation::MpaRtrUnmatched)?);
        }
    }
    Ok(Agreed {
        crc: c.crc || s.crc,
        markers: s.markers,
        large_fpdus: c.large_fpdus && s.large_fpdus,
        ird: usize::from(ird),
        ord: usize::from(ord),
        rtr,
        private_data: heard.private_data.clone(),
    })
}

/// Parses hostile bytes in place of either start frame: for the fuzz target.
#[doc(hidden)]
pub fn fuzz_start(data: &[u8]) {
    let Some((fixed, rest)) = data.split_first_chunk::<{ mpa::START_LEN }>() else { return };
    let params = ConnectParams {
        private_data: Bytes::new(),
        recvs: 1,
        sends: 1,
        reads_out: 8,
        reads_in: 8,
        recv_size: 64,
    };
    let config = IwarpConfig::default();
    for reply in [false, true] {
        let Ok(start) = check_start(fixed, reply) else { continue };
        let len = usize::from(start.private_len).min(rest.len());
        let Ok(heard) = hear(start, Bytes::copy_from_slice(&rest[..len])) else { continue };
        assert!(reject(&heard, rest).len() <= mpa::START_LEN + mpa::PRIVATE_DATA_MAX);
        if reply {
            let _ = conclude(&config, &params, &heard);
        } else if let Ok(Ok((_, agreed))) = accept(&config, &params, &heard) {
            assert!(agreed.ird <= 8 && agreed.ord <= 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(reads_in: u16, reads_out: u16, private_data: &'static [u8]) -> ConnectParams {
        let private_data = Bytes::from_static(private_data);
        ConnectParams { private_data, recvs: 4, sends: 4, reads_out, reads_in, recv_size: 4096 }
    }

    fn hear_bytes(b: &[u8], reply: bool) -> Result<Heard, Violation> {
        let start = check_start(&field(b, 0), reply)?;
        hear(start, Bytes::copy_from_slice(&b[mpa::START_LEN..]))
    }

    fn plain() -> IwarpConfig {
        IwarpConfig { crc: false, large_fpdus: false, ..IwarpConfig::default() }
    }

    const RPC: &[u8] = &[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];

    /// Private data of RFC 8797, IRD 128, ORD 0: byte for byte as sent by a Linux 6.12 client.
    #[test]
    fn request_matches_linux() {
        let b = request(&plain(), &params(128, 0, RPC)).unwrap();
        assert_eq!(b[..16], *mpa::REQUEST_KEY);
        assert_eq!(b[16..], [&[0x10, 2, 0, 12, 0, 0x80, 0, 0], RPC].concat());
    }

    #[test]
    fn linux_client_answered_within_its_ird() {
        let heard = hear_bytes(&request(&plain(), &params(128, 0, RPC)).unwrap(), false).unwrap();
        assert_eq!(heard.private_data, RPC);
        let (b, agreed) = accept(&plain(), &params(16, 200, &[7; 8]), &heard).unwrap().unwrap();
        assert_eq!(b[..16], *mpa::REPLY_KEY);
        assert_eq!(b[16..], [0x10, 2, 0, 12, 0, 0, 0, 128, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert_eq!((agreed.ird, agreed.ord), (0, 128));
        assert!(!agreed.crc && !agreed.large_fpdus);
        let crc = IwarpConfig { crc: true, ..plain() };
        let (b, agreed) = accept(&crc, &params(16, 200, &[]), &heard).unwrap().unwrap();
        assert_eq!(b[16], 0x50);
        assert!(agreed.crc);
    }

    #[test]
    fn both_ends_agree() {
        for (ic, rc) in [(false, false), (false, true), (true, false), (true, true)] {
            let i = IwarpConfig { crc: ic, large_fpdus: ic, ..plain() };
            let r = IwarpConfig { crc: rc, large_fpdus: rc, ..plain() };
            let (ip, rp) = (params(10, 20, b"hello"), params(7, 30, b"welcome"));
            let heard = hear_bytes(&request(&i, &ip).unwrap(), false).unwrap();
            let (b, at_r) = accept(&r, &rp, &heard).unwrap().unwrap();
            let at_i = conclude(&i, &ip, &hear_bytes(&b, true).unwrap()).unwrap();
            assert_eq!((at_r.ird, at_r.ord), (7, 10));
            assert_eq!((at_i.ird, at_i.ord), (10, 7));
            assert_eq!((at_i.crc, at_i.large_fpdus), (ic || rc, ic && rc));
            assert_eq!((at_r.crc, at_r.large_fpdus), (ic || rc, ic && rc));
            assert_eq!(
                (&at_i.private_data[..], &at_r.private_data[..]),
                (&b"welcome"[..], &b"hello"[..])
            );
        }
    }

    #[test]
    fn peers_without_enhanced_mode_are_served() {
        let i = IwarpConfig { enhanced: false, ..plain() };
        let b = request(&i, &params(10, 20, b"hello")).unwrap();
        assert_eq!(b[16..], *b"\x00\x01\x00\x05hello");
        let heard = hear_bytes(&b, false).unwrap();
        let (b, agreed) = accept(&plain(), &params(4, 5, b"w"), &heard).unwrap().unwrap();
        assert_eq!(b[16..], *b"\x00\x01\x00\x01w");
        assert_eq!((agreed.ird, agreed.ord), (4, 5));
        assert!(conclude(&i, &params(1, 1, &[]), &hear_bytes(&b, true).unwrap()).is_ok());
        assert_eq!(
            conclude(&plain(), &params(1, 1, &[]), &hear_bytes(&b, true).unwrap()),
            Err(Violation::MpaRevision)
        );
    }

    #[test]
    fn peer_to_peer_agrees_on_rtr() {
        let i = IwarpConfig { peer_to_peer: true, ..plain() };
        let b = request(&i, &params(1, 1, &[])).unwrap();
        assert_eq!(b[20..], [0xc0, 1, 0xc0, 1]);
        let (b, agreed) =
            accept(&plain(), &params(1, 1, &[]), &hear_bytes(&b, false).unwrap()).unwrap().unwrap();
        assert_eq!(b[20..], [0x80, 1, 0x80, 1]);
        assert_eq!(agreed.rtr, Some(RtrKind::Write));
        let at_i = conclude(&i, &params(1, 1, &[]), &hear_bytes(&b, true).unwrap()).unwrap();
        assert_eq!(at_i.rtr, Some(RtrKind::Write));
        let mut none = b.clone();
        none[22] = 0;
        let heard = hear_bytes(&none, true).unwrap();
        assert_eq!(conclude(&i, &params(1, 1, &[]), &heard), Err(Violation::MpaRtrUnmatched));
    }

    #[test]
    fn broken_start_frames() {
        let good = request(&plain(), &params(1, 1, &[])).unwrap();
        let with = |at: usize, byte: u8| {
            let mut b = good.clone();
            b[at] = byte;
            hear_bytes(&b, false)
        };
        assert_eq!(with(0, b'X').unwrap_err(), Violation::MpaKey);
        assert_eq!(hear_bytes(&good, true).unwrap_err(), Violation::MpaKey);
        assert_eq!(with(17, 0).unwrap_err(), Violation::MpaRevision);
        assert_eq!(with(17, 3).unwrap_err(), Violation::MpaRevision);
        assert_eq!(with(18, 3).unwrap_err(), Violation::MpaPrivateData);
        let short = check_start(&field(&good, 0), false).unwrap();
        assert_eq!(hear(short, Bytes::from_static(b"123")).unwrap_err(), Violation::MpaPrivateData);
        let rtr = with(20, 0x80).unwrap();
        assert_eq!(
            accept(&plain(), &params(1, 1, &[]), &rtr).unwrap_err(),
            Violation::MpaRtrUnmatched
        );
    }

    /// RFC 5044 section 7.1.1: each side declares the markers that it wants to receive, the CRC is in use if one side wants it, and
    /// the flag of a refusal has no meaning in a request.
    #[test]
    fn flags_of_request_are_answered_as_specified() {
        for flags in 0..=0x1f_u8 {
            let (flags, revision) = (flags << 3, if flags & 2 == 0 { 1 } else { 2 });
            let mut b = [mpa::REQUEST_KEY, &[flags, revision, 0, 4][..], &[0, 1, 0, 1]].concat();
            for own_crc in [false, true] {
                let config = IwarpConfig { crc: own_crc, ..plain() };
                let heard = hear_bytes(&b, false).unwrap();
                let (reply, agreed) = accept(&config, &params(1, 1, &[]), &heard).unwrap().unwrap();
                let crc = own_crc || flags & 0x40 != 0;
                let enhanced = revision == 2 && flags & 0x10 != 0;
                assert_eq!((agreed.crc, agreed.markers), (crc, flags & 0x80 != 0), "{flags:x}");
                let want = if crc { 0x40 } else { 0 } | if enhanced { 0x10 } else { 0 };
                assert_eq!((reply[16], reply[17]), (want, revision), "{flags:x}");
            }
            // As a reply, the same flags without the refusal.
            b[..16].copy_from_slice(mpa::REPLY_KEY);
            b[16] &= !0x20;
            let config = IwarpConfig { enhanced: revision == 2 && flags & 0x10 != 0, ..plain() };
            let agreed =
                conclude(&config, &params(1, 1, &[]), &hear_bytes(&b, true).unwrap()).unwrap();
            assert_eq!((agreed.crc, agreed.markers), (flags & 0x40 != 0, flags & 0x80 != 0));
        }
    }

    #[test]
    fn reply_beyond_own_ird_is_refused() {
        let heard = hear_bytes(&request(&plain(), &params(9, 9, &[])).unwrap(), false).unwrap();
        let (b, _) = accept(&plain(), &params(9, 9, &[]), &heard).unwrap().unwrap();
        let heard = hear_bytes(&b, true).unwrap();
        let less = conclude(&plain(), &params(8, 8, &[]), &heard);
        assert_eq!(less, Err(Violation::MpaIrdInsufficient));
    }

    #[test]
    fn refusal_is_reported() {
        let heard = hear_bytes(&request(&plain(), &params(9, 9, &[])).unwrap(), false).unwrap();
        let b = reject(&heard, b"no");
        assert_eq!(b[16..], [0x30, 2, 0, 6, 0, 0, 0, 0, b'n', b'o']);
        assert_eq!(hear_bytes(&b, true).unwrap().private_data, &b"no"[..]);
    }

    proptest::proptest! {
        #[test]
        fn hostile_start_frames(
            flags: u8,
            revision in 0u8..4,
            len in 0u8..20,
            reply: bool,
            rest: [u8; 20],
        ) {
            let key = if reply { mpa::REPLY_KEY } else { mpa::REQUEST_KEY };
            fuzz_start(&[&key[..], &[flags, revision, 0, len], &rest].concat());
        }
    }

    #[test]
    fn private_data_has_a_limit() {
        static LONG: [u8; 509] = [0; 509];
        assert_eq!(request(&plain(), &params(1, 1, &LONG)), Err(TooLong));
        assert!(request(&plain(), &params(1, 1, &LONG[..508])).is_ok());
    }
}
