//! Arguments and results of NLM version 4 as values (RFC 1813 appendix II; X/Open XNFS chapter 10 for what is as in version 3).
//! Decoding takes no memory by a number of the peer.

use state::{LockKind, Range, Rights, Share};

use super::procedure as p;
use crate::fh::FH_MAX;
use crate::xdr::{Reader, Writer, XdrError, XdrResult};

/// Bytes of a caller's name, and of an opaque owner or cookie (`LM_MAXSTRLEN`, `MAXNETOBJ_SZ`).
pub const STRING_MAX: usize = 1024;

/// `nlm4_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // The names are the specification's own, without NLM4_.
pub enum Stat {
    Granted = 0,
    Denied = 1,
    DeniedNolocks = 2,
    Blocked = 3,
    DeniedGracePeriod = 4,
    Deadlck = 5,
    Rofs = 6,
    StaleFh = 7,
    Fbig = 8,
    Failed = 9,
}

impl Stat {
    const ALL: [Self; 10] = [
        Self::Granted,
        Self::Denied,
        Self::DeniedNolocks,
        Self::Blocked,
        Self::DeniedGracePeriod,
        Self::Deadlck,
        Self::Rofs,
        Self::StaleFh,
        Self::Fbig,
        Self::Failed,
    ];

    /// The status of this number.
    pub fn decode(r: &mut Reader<'_>) -> XdrResult<Self> {
        let number = usize::try_from(r.u32()?).map_err(|_| XdrError::BadValue)?;
        Self::ALL.get(number).copied().ok_or(XdrError::BadValue)
    }
}

/// `nlm4_lock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock<'a> {
    /// The client's host, by its own name for itself.
    pub caller: &'a [u8],
    /// File handle in wire form.
    pub fh: &'a [u8],
    /// The owner on that host.
    pub oh: &'a [u8],
    /// The process there.
    pub svid: i32,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 means to the end.
    pub length: u64,
}

impl<'a> Lock<'a> {
    fn decode(r: &mut Reader<'a>) -> XdrResult<Self> {
        Ok(Self {
            caller: r.opaque(STRING_MAX)?,
            fh: r.opaque(FH_MAX)?,
            oh: r.opaque(STRING_MAX)?,
            svid: r.i32()?,
            offset: r.u64()?,
            length: r.u64()?,
        })
    }

    /// Writes it.
    pub fn encode(&self, w: &mut Writer) {
        w.opaque(self.caller);
        w.opaque(self.fh);
        w.opaque(self.oh);
        w.i32(self.svid);
        w.u64(self.offset);
        w.u64(self.length);
    }

    /// The bytes; [`Stat::Fbig`] when they would end beyond 64 bits.
    pub fn range(&self) -> Result<Range, Stat> {
        match self.length {
            0 => Ok(Range { first: self.offset, last: u64::MAX }),
            _ => Range::new(self.offset, self.length).ok_or(Stat::Fbig),
        }
    }
}

/// `nlm4_share` without what the reclaim flag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareOf<'a> {
    /// The client's host.
    pub caller: &'a [u8],
    /// File handle in wire form.
    pub fh: &'a [u8],
    /// The owner on that host.
    pub oh: &'a [u8],
    /// What it does and forbids.
    pub share: Share,
}

impl<'a> ShareOf<'a> {
    fn decode(r: &mut Reader<'a>) -> XdrResult<Self> {
        let (caller, fh) = (r.opaque(STRING_MAX)?, r.opaque(FH_MAX)?);
        let oh = r.opaque(STRING_MAX)?;
        // `fsh4_mode` and `fsh4_access` count as NFSv4's deny and access bits do: none, read, write, both.
        let mut rights = || Rights::from_bits(r.u32()?).ok_or(XdrError::BadValue);
        let (deny, access) = (rights()?, rights()?);
        Ok(Self { caller, fh, oh, share: Share::new(access, deny) })
    }
}

/// The arguments of one call. A procedure and its asynchronous form have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the specification's own.
pub enum Args<'a> {
    Null,
    Test {
        cookie: &'a [u8],
        exclusive: bool,
        lock: Lock<'a>,
    },
    /// LOCK and NM_LOCK. `state` is the number of the caller's status monitor.
    Lock {
        cookie: &'a [u8],
        block: bool,
        exclusive: bool,
        lock: Lock<'a>,
        reclaim: bool,
        state: i32,
    },
    Cancel {
        cookie: &'a [u8],
        block: bool,
        exclusive: bool,
        lock: Lock<'a>,
    },
    Unlock {
        cookie: &'a [u8],
        lock: Lock<'a>,
    },
    Granted {
        cookie: &'a [u8],
        exclusive: bool,
        lock: Lock<'a>,
    },
    /// The answer to an asynchronous call. This server makes none.
    Result {
        cookie: &'a [u8],
        stat: Stat,
    },
    Share {
        cookie: &'a [u8],
        share: ShareOf<'a>,
        reclaim: bool,
    },
    Unshare {
        cookie: &'a [u8],
        share: ShareOf<'a>,
        reclaim: bool,
    },
    FreeAll {
        name: &'a [u8],
        state: i32,
    },
}

/// Reads the arguments of a procedure; `None` when there is no such procedure.
pub fn decode_args<'a>(number: u32, r: &mut Reader<'a>) -> XdrResult<Option<Args<'a>>> {
    let args = match number {
        p::NULL => Args::Null,
        p::TEST | p::TEST_MSG => {
            Args::Test { cookie: cookie(r)?, exclusive: r.bool()?, lock: Lock::decode(r)? }
        }
        p::LOCK | p::LOCK_MSG | p::NM_LOCK => Args::Lock {
            cookie: cookie(r)?,
            block: r.bool()?,
            exclusive: r.bool()?,
            lock: Lock::decode(r)?,
            reclaim: r.bool()?,
            state: r.i32()?,
        },
        p::CANCEL | p::CANCEL_MSG => Args::Cancel {
            cookie: cookie(r)?,
            block: r.bool()?,
            exclusive: r.bool()?,
            lock: Lock::decode(r)?,
        },
        p::UNLOCK | p::UNLOCK_MSG => Args::Unlock { cookie: cookie(r)?, lock: Lock::decode(r)? },
        p::GRANTED | p::GRANTED_MSG => {
            Args::Granted { cookie: cookie(r)?, exclusive: r.bool()?, lock: Lock::decode(r)? }
        }
        p::TEST_RES..=p::GRANTED_RES => Args::Result { cookie: cookie(r)?, stat: Stat::decode(r)? },
        p::SHARE => {
            Args::Share { cookie: cookie(r)?, share: ShareOf::decode(r)?, reclaim: r.bool()? }
        }
        p::UNSHARE => {
            Args::Unshare { cookie: cookie(r)?, share: ShareOf::decode(r)?, reclaim: r.bool()? }
        }
        p::FREE_ALL => Args::FreeAll { name: r.opaque(STRING_MAX)?, state: r.i32()? },
        _ => return Ok(None),
    };
    Ok(Some(args))
}

fn cookie<'a>(r: &mut Reader<'a>) -> XdrResult<&'a [u8]> {
    r.opaque(STRING_MAX)
}

/// `nlm4_testargs`, the arguments of GRANTED.
pub fn encode_granted(w: &mut Writer, cookie: &[u8], exclusive: bool, lock: &Lock<'_>) {
    w.opaque(cookie);
    w.bool(exclusive);
    lock.encode(w);
}

/// `nlm4_holder`: the lock that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// How it is held.
    pub kind: LockKind,
    /// The process that holds it, 0 when that is not a client of this protocol.
    pub svid: i32,
    /// Its owner, empty when that is not a client of this protocol.
    pub oh: Box<[u8]>,
    /// Where.
    pub range: Range,
}

/// What a procedure answers, behind the cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `nlm4_res`, and `nlm4_testres` without a holder.
    Stat(Stat),
    /// `nlm4_testres`: NLM4_DENIED by this lock.
    Held(Holder),
    /// `nlm4_shareres`.
    Share(Stat),
}

impl Answer {
    /// Writes the results.
    pub fn encode(&self, w: &mut Writer, cookie: &[u8]) {
        w.opaque(cookie);
        match self {
            Self::Stat(stat) => w.u32(*stat as u32),
            Self::Share(stat) => {
                w.u32(*stat as u32);
                // `sequence` is of no use to anybody.
                w.u32(0);
            }
            Self::Held(holder) => {
                w.u32(Stat::Denied as u32);
                w.bool(holder.kind == LockKind::Exclusive);
                w.i32(holder.svid);
                w.opaque(&holder.oh);
                w.u64(holder.range.first);
                let length = holder.range.length();
                w.u64(if length == u64::MAX { 0 } else { length });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use iobuf::Buf;
    use proptest::prelude::*;

    use super::*;

    fn words(w: &[u32]) -> Buf {
        Buf::from(w.iter().flat_map(|v| v.to_be_bytes()).collect::<Vec<_>>())
    }

    fn written(f: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::new();
        f(&mut w);
        w.into_reply().head
    }

    const LOCK: Lock<'_> = Lock {
        caller: b"host",
        fh: b"\x01\x02\x03\x04\x05",
        oh: b"7@host",
        svid: -2,
        offset: 0x1_0000_0002,
        length: 9,
    };

    /// Its words: name, handle, owner, svid, offset, length.
    const LOCK_WORDS: [u32; 13] = [
        4,
        0x686f_7374,
        5,
        0x0102_0304,
        0x0500_0000,
        6,
        0x3740_686f,
        0x7374_0000,
        0xffff_fffe,
        1,
        2,
        0,
        9,
    ];

    #[test]
    fn every_procedure_has_the_words_of_the_specification() {
        let cookie: &[u8] = b"abcd";
        let (c, l) = ([4, 0x6162_6364], LOCK_WORDS);
        let lock = LOCK;
        let full =
            Args::Lock { cookie, block: true, exclusive: false, lock, reclaim: true, state: 5 };
        let share_words = [&c[..], &l[..8], &[2, 1, 0]].concat();
        let share = ShareOf {
            caller: b"host",
            fh: LOCK.fh,
            oh: LOCK.oh,
            share: Share::new(Rights::READ, Rights::WRITE),
        };
        let cases: Vec<(Vec<u32>, Vec<u32>, Args<'_>)> = vec![
            (vec![0], vec![], Args::Null),
            (vec![1, 6], [&c[..], &[1], &l].concat(), Args::Test { cookie, exclusive: true, lock }),
            (vec![2, 7, 22], [&c[..], &[1, 0], &l, &[1, 5]].concat(), full),
            (
                vec![3, 8],
                [&c[..], &[0, 1], &l].concat(),
                Args::Cancel { cookie, block: false, exclusive: true, lock },
            ),
            (vec![4, 9], [&c[..], &l].concat(), Args::Unlock { cookie, lock }),
            (
                vec![5, 10],
                [&c[..], &[0], &l].concat(),
                Args::Granted { cookie, exclusive: false, lock },
            ),
            (
                vec![11, 12, 13, 14, 15],
                [&c[..], &[4]].concat(),
                Args::Result { cookie, stat: Stat::DeniedGracePeriod },
            ),
            (vec![20], share_words.clone(), Args::Share { cookie, share, reclaim: false }),
            (vec![21], share_words, Args::Unshare { cookie, share, reclaim: false }),
            (vec![23], vec![4, 0x686f_7374, 7], Args::FreeAll { name: b"host", state: 7 }),
        ];
        for (numbers, body, wanted) in cases {
            let body = words(&body);
            for number in numbers {
                let mut r = Reader::new(&body, &[]);
                assert_eq!(decode_args(number, &mut r), Ok(Some(wanted)), "procedure {number}");
                assert!(r.is_at_end(), "procedure {number}");
                if !body.is_empty() {
                    let short = body.slice(0..body.len() - 4);
                    let mut r = Reader::new(&short, &[]);
                    assert!(decode_args(number, &mut r).is_err(), "procedure {number} cut short");
                }
            }
        }
        for number in [16, 17, 18, 19, 24, u32::MAX] {
            let body = words(&[0; 64]);
            assert_eq!(decode_args(number, &mut Reader::new(&body, &[])), Ok(None));
        }
    }

    #[test]
    fn what_is_too_long_or_no_value_of_its_type_is_refused() {
        let of = |number, w: &[u32]| {
            let body = words(w);
            decode_args(number, &mut Reader::new(&body, &[])).map(|args| args.is_some())
        };
        let long = |before: &[u32], length| [before, &[length], &[0; 300]].concat();
        assert_eq!(of(p::UNLOCK, &long(&[], 1025)), Err(XdrError::TooLong));
        assert_eq!(of(p::UNLOCK, &long(&[0], 1025)), Err(XdrError::TooLong));
        assert_eq!(of(p::UNLOCK, &long(&[0, 0], 65)), Err(XdrError::TooLong));
        assert_eq!(of(p::UNLOCK, &[0, 0, 0, u32::MAX]), Err(XdrError::Short));
        assert_eq!(of(p::TEST, &[0, 2]), Err(XdrError::BadValue));
        assert_eq!(of(p::LOCK_RES, &[0, 10]), Err(XdrError::BadValue));
        assert_eq!(of(p::SHARE, &[0, 0, 0, 0, 4, 0, 0]), Err(XdrError::BadValue));
        assert_eq!(of(p::SHARE, &[0, 0, 0, 0, 0, 4, 0]), Err(XdrError::BadValue));
    }

    #[test]
    fn answers_have_the_words_of_the_specification() {
        let as_words = |a: Answer| {
            let bytes = written(|w| a.encode(w, b"abcd"));
            let words = bytes.chunks(4).map(|c| u32::from_be_bytes(c.try_into().unwrap()));
            words.skip(2).collect::<Vec<_>>()
        };
        assert_eq!(as_words(Answer::Stat(Stat::Fbig)), [8]);
        assert_eq!(as_words(Answer::Share(Stat::Granted)), [0, 0]);
        let oh = Box::from(&b"me"[..]);
        let range = Range { first: 3, last: 12 };
        let held = Holder { kind: LockKind::Exclusive, svid: 9, oh, range };
        let wanted = [1, 1, 9, 2, 0x6d65_0000, 0, 3, 0, 10];
        assert_eq!(as_words(Answer::Held(held.clone())), wanted);
        let range = Range { first: 3, last: u64::MAX };
        let held = Holder { kind: LockKind::Shared, range, ..held };
        let wanted = [1, 0, 9, 2, 0x6d65_0000, 0, 3, 0, 0];
        assert_eq!(as_words(Answer::Held(held)), wanted);
    }

    #[test]
    fn a_length_of_nothing_is_everything_and_a_range_ends_within_64_bits() {
        let range = |offset, length| Lock { offset, length, ..LOCK }.range();
        assert_eq!(range(5, 0), Ok(Range { first: 5, last: u64::MAX }));
        assert_eq!(range(5, 1), Ok(Range { first: 5, last: 5 }));
        assert_eq!(range(u64::MAX, 2), Err(Stat::Fbig));
        assert_eq!(range(0, u64::MAX), Ok(Range::ALL));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            caller in proptest::collection::vec(any::<u8>(), 0..40),
            fh in proptest::collection::vec(any::<u8>(), 0..64),
            oh in proptest::collection::vec(any::<u8>(), 0..40),
            (svid, offset, length, exclusive) in any::<(i32, u64, u64, bool)>(),
        ) {
            let lock = Lock { caller: &caller, fh: &fh, oh: &oh, svid, offset, length };
            let body = Buf::from(written(|w| encode_granted(w, b"c", exclusive, &lock)));
            let mut r = Reader::new(&body, &[]);
            let read = decode_args(p::GRANTED, &mut r);
            prop_assert_eq!(read, Ok(Some(Args::Granted { cookie: b"c", exclusive, lock })));
            prop_assert!(r.is_at_end());
        }
    }
}
