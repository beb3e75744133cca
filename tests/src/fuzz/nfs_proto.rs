//! The values of ONC RPC and of the programs around NFS: what is read can be written and is the same, and a fault is inside.

use ::wire::{Fault, Malformed, Parsed, decode};
use nfs_proto::oncrpc::{AuthSys, CallHead, OpaqueAuth, ReplyHead};
use nfs_proto::xdr::Xdr;
use nfs_proto::{mount, nlm, nsm, rpcbind};

/// What was read, written, and read again.
fn again<'a, T: PartialEq + std::fmt::Debug>(
    data: &'a [u8],
    out: &'a mut Vec<u8>,
    parse: impl Fn(&'a [u8]) -> Parsed<'a, T>,
    emit: impl FnOnce(&T, &mut Vec<u8>),
) {
    match decode(data, &parse) {
        Ok((rest, value)) => {
            emit(&value, out);
            assert_eq!(out.len(), data.len() - rest.len(), "{value:?}");
            assert_eq!(decode(out, &parse), Ok((&[][..], value)));
        }
        Err(why) => faulty(data, why),
    }
}

fn faulty(data: &[u8], why: Malformed<'_>) {
    let fault: Fault = why.at(data);
    assert!(fault.offset <= data.len(), "{fault}");
    assert!(!["message", "value"].contains(&fault.field), "a field has a name");
}

/// A call of each of these with the byte that chooses among them.
macro_rules! types {
    ($choice:expr, $data:expr; $($number:literal => $ty:ty),* $(,)?) => {
        match $choice {
            $($number => {
                again($data, &mut Vec::new(), <$ty>::parse, |value: &$ty, out| value.emit(out));
            })*
            _ => {}
        }
    };
}

/// The same where a procedure's number chooses, too.
macro_rules! choices {
    ($choice:expr, $procedure:expr, $data:expr; $($number:literal => $ty:ty),* $(,)?) => {
        match $choice {
            $($number => {
                let parse = |i| <$ty>::parse($procedure, i);
                let emit = |value: &Option<$ty>, out: &mut Vec<u8>| {
                    value.iter().for_each(|value| value.emit(out));
                };
                again($data, &mut Vec::new(), parse, emit);
            })*
            _ => {}
        }
    };
}

/// Heads of RPC, and values of MOUNT, rpcbind, NLM and NSM: what (a byte), the procedure (a byte), the value.
pub fn side_values(data: &[u8]) {
    let [choice, procedure, data @ ..] = data else { return };
    let procedure = u32::from(*procedure % 25);
    types! { choice % 16, data;
        0 => CallHead<'_>,
        1 => ReplyHead<'_>,
        2 => OpaqueAuth<'_>,
        3 => AuthSys<'_>,
    }
    choices! { choice % 16, procedure, data;
        4 => mount::Args<'_>,
        5 => mount::Results<'_>,
        6 => rpcbind::Args2<'_>,
        7 => rpcbind::Results2<'_>,
        8 => rpcbind::Args4<'_>,
        9 => rpcbind::Results4<'_>,
        10 => nlm::Args<'_>,
        11 => nlm::Results<'_>,
        12 => nsm::Args<'_>,
        13 => nsm::Results,
    }
}

/// One of each.
pub(super) fn side_seeds() -> Vec<Vec<u8>> {
    let of = |choice: u8, procedure: u8, words: &[u32]| {
        [&[choice, procedure][..], &crate::raw::words(words)].concat()
    };
    let lock = [4, 0x686f_7374, 4, 9, 2, 0x6d65_0000, 1, 0, 5, 0, 9];
    let rpcb = [100_003, 3, 3, 0x7463_7000, 3, 0x3a3a_3100, 0];
    vec![
        of(0, 0, &[5, 0, 2, 100_003, 3, 0, 1, 20, 7, 0, 1, 2, 0, 0, 0]),
        of(1, 0, &[5, 1, 0, 0, 0, 2, 3, 4]),
        of(1, 0, &[5, 1, 1, 1, 5]),
        of(2, 0, &[1, 5, 1, 2]),
        of(3, 0, &[1, 4, 0x686f_7374, 1000, 100, 2, 7, 8]),
        of(4, 1, &[4, 0x2f64_6174]),
        of(5, 1, &[0, 8, 1, 2, 2, 1, 0]),
        of(5, 2, &[1, 4, 0x686f_7374, 4, 0x2f64_6174, 0]),
        of(5, 5, &[1, 4, 0x2f64_6174, 1, 4, 0x686f_7374, 0, 0]),
        of(6, 3, &[100_003, 3, 6, 0]),
        of(7, 4, &[1, 100_003, 3, 6, 2049, 0]),
        of(8, 3, &rpcb),
        of(9, 4, &[&[1][..], &rpcb, &[0]].concat()),
        of(9, 11, &[1, 0, 0, 1, 0, 0, 0]),
        of(10, 2, &[&[4, 1, 0, 1][..], &lock, &[0, 3]].concat()),
        of(10, 20, &[4, 1, 4, 0x686f_7374, 4, 9, 0, 1, 2, 0]),
        of(11, 1, &[4, 1, 1, 1, 7, 0, 0, 5, 0, 9]),
        of(12, 2, &[4, 0x686f_7374, 0, 1, 2, 3, 1, 2, 3, 4]),
        of(13, 1, &[0, 3]),
    ]
}
