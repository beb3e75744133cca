//! Values of ONC RPC and of the programs used with NFS: parsed values survive encoding, and errors are located inside the input.

use ::wire::{Fault, Malformed, Parsed, decode};
use nfs_proto::nfs4::attrs::{Fattr4, Value};
use nfs_proto::nfs4::{self, cb, ops};
use nfs_proto::oncrpc::{AuthSys, CallHead, OpaqueAuth, ReplyHead};
use nfs_proto::rpcsec_gss::{GssCred, GssInitArg, GssInitRes, GssInteg, GssMic, GssPriv};
use nfs_proto::xdr::Xdr;
use nfs_proto::{mount, nfs3, nlm, nsm, rpcbind, rquota};

/// Parses, encodes and parses again.
fn again<'a, T: PartialEq + std::fmt::Debug>(
    data: &'a [u8],
    out: &'a mut Vec<u8>,
    parse: impl Fn(&'a [u8]) -> Parsed<'a, T>,
    emit: impl FnOnce(&T, &mut Vec<u8>),
) {
    match decode(data, &parse) {
        Ok((rest, value)) => {
            emit(&value, out);
            // Bitmaps may have had trailing zero words.
            assert!(out.len() <= data.len() - rest.len(), "{value:?}");
            assert_eq!(decode(out, &parse), Ok((&[][..], value)));
        }
        Err(why) => faulty(data, why),
    }
}

fn faulty(data: &[u8], why: Malformed<'_>) {
    let fault: Fault = why.at(data);
    assert!(fault.offset <= data.len(), "{fault}");
    assert_ne!(fault.field, "message", "a field has a name");
}

/// Seeds for each of these types, with the byte that selects it.
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

/// Like `types!`, for types that a procedure number selects further.
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

/// Input: kind (a byte), procedure (a byte), then heads of RPC, RPCSEC_GSS wrappers, or values of MOUNT, rpcbind, NLM, NSM
/// and RQUOTA.
pub fn side_values(data: &[u8]) {
    let [choice, procedure, data @ ..] = data else { return };
    let procedure = u32::from(*procedure % 25);
    types! { choice % 23, data;
        0 => CallHead<'_>,
        1 => ReplyHead<'_>,
        2 => OpaqueAuth<'_>,
        3 => AuthSys<'_>,
        14 => GssCred<'_>,
        15 => GssInitArg<'_>,
        16 => GssInitRes<'_>,
        17 => GssInteg,
        18 => GssMic<'_>,
        19 => GssPriv,
    }
    choices! { choice % 23, procedure, data;
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
        20 => rquota::Args1<'_>,
        21 => rquota::Args2<'_>,
        22 => rquota::Results,
    }
}

/// Input: kind (a byte), procedure (a byte), then arguments or results of NFS version 3 and NFSACL.
pub fn nfs3_values(data: &[u8]) {
    let [choice, procedure, data @ ..] = data else { return };
    let procedure = u32::from(*procedure % 23);
    choices! { choice % 4, procedure, data;
        0 => nfs3::Args<'_>,
        1 => nfs3::Results<'_>,
        2 => nfs3::acl::Args<'_>,
        3 => nfs3::acl::Results,
    }
}

/// Input: kind (a byte), operation or attribute (a byte), then arguments or results of NFS version 4, or its attributes.
pub fn nfs4_values(data: &[u8]) {
    let [choice, number, data @ ..] = data else { return };
    let number = u32::from(*number % 88);
    choices! { choice % 8, number, data;
        0 => ops::Args<'_>,
        1 => ops::Results<'_>,
        2 => cb::Args<'_>,
        3 => cb::Results<'_>,
        4 => Value<'_>,
    }
    types! { choice % 8, data;
        5 => nfs4::Compound<'_>,
        6 => nfs4::Compounded<'_>,
        7 => Fattr4<'_>,
    }
    if let Ok((_, fattr)) = nfs_proto::xdr::decode::<Fattr4<'_>>(data) {
        let _ = fattr.values();
    }
}

/// Returns one message of each kind.
pub(super) fn nfs4_seeds() -> Vec<Vec<u8>> {
    let of = |choice: u8, number: u8, words: &[u32]| {
        [&[choice, number][..], &crate::raw::words(words)].concat()
    };
    let (id, attrs) = ([1, 2, 3, 4], [1, 0x10, 8, 0, 7]);
    let owner = [0, 1, 4, 0x6f77_6e65];
    let channel = [0, 4096, 4096, 1024, 8, 16, 0];
    let open = [&[0, 3, 0][..], &owner, &[1, 0], &attrs, &[0, 1, 0x6600_0000]].concat();
    let opened =
        [&id[..], &[1, 0, 1, 0, 2, 4, 1, 0x10, 2], &id, &[0, 1, 0, 9, 0, 0, 3, 0]].concat();
    let session = [&[0, 7, 1, 0][..], &channel, &channel, &[0x4000_0000, 2, 0, 1, 1, 0, 5, 6, 0]];
    let copy = [&id[..], &id, &[0, 1, 0, 2, 0, 3, 1, 1, 1, 3, 0, 0]].concat();
    vec![
        of(0, 6, &[&[5, 4, 0x6c69_6e6b, 1, 0x6600_0000][..], &attrs].concat()),
        of(0, 12, &[&[2, 0, 0, 5, 0, 6, 1, 1][..], &id, &[2], &owner].concat()),
        of(0, 18, &open),
        of(0, 26, &[0, 3, 0, 0, 512, 4096, 1, 0x12]),
        of(0, 34, &[&id[..], &attrs].concat()),
        of(0, 38, &[&id[..], &[0, 5, 2, 5, 6, 7]].concat()),
        of(0, 42, &[1, 2, 4, 0x6f77_6e65, 0, 1, 1, 1, 1, 2, 1, 0, 0, 0, 0, 5, 6]),
        of(0, 43, &session.concat()),
        of(0, 51, &[&[0, 1, 2, 1, 0, 5, 0, 6][..], &id, &[0]].concat()),
        of(0, 53, &[1, 2, 3, 4, 9, 0, 0, 1]),
        of(0, 55, &[&[2][..], &id, &id].concat()),
        of(0, 60, &copy),
        of(0, 73, &[0, 1, 0x6b00_0000, 2, 0x7676_0000]),
        of(1, 9, &[&[0][..], &attrs].concat()),
        of(1, 12, &[&[10010, 0, 5, 0, 6, 2][..], &owner].concat()),
        of(1, 18, &[&[0][..], &opened].concat()),
        of(1, 25, &[0, 1, 3]),
        of(1, 26, &[&[0, 0, 0, 1, 0, 9, 1, 0x6600_0000][..], &attrs, &[0, 1]].concat()),
        of(1, 46, &[0, 1, 1]),
        of(1, 68, &[0, 1, 2, 0, 0, 5, 1, 0x6100_0000, 1, 0, 6, 0, 7]),
        of(2, 11, &[1, 2, 3, 4, 9, 0, 0, 1, 1, 1, 2, 3, 4, 1, 5, 6]),
        of(3, 3, &[&[0][..], &attrs].concat()),
        of(4, 12, &[1, 0, 0, 7, 4, 0x6f77_6e65]),
        of(4, 24, &[1, 1, 0x6100_0000, 1, 1, 1, 0x6200_0000, 0]),
        of(4, 54, &[1, 0, 5, 6]),
        of(5, 0, &[0, 1, 3]),
        of(6, 0, &[0, 0, 3]),
        of(7, 0, &attrs),
    ]
}

/// The arguments of calls, and results with and without attributes.
pub(super) fn nfs3_seeds(args: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let results =
        |procedure: u8, words: &[u32]| [&[1, procedure][..], &crate::raw::words(words)].concat();
    let attr = [1, 1, 0o644, 1, 0, 0, 0, 9, 0, 9, 0, 0, 0, 7, 0, 8, 1, 2, 3, 4, 5, 6];
    let wcc = [1, 0, 9, 3, 4, 5, 6, 0];
    let calls = args.iter().map(|args| [&[0][..], args].concat());
    let made = [
        results(1, &[&[0][..], &attr[1..]].concat()),
        results(2, &[&[0][..], &wcc].concat()),
        results(3, &[&[0, 4, 9][..], &attr, &[0]].concat()),
        results(4, &[13, 0]),
        results(6, &[&[0][..], &attr, &[5, 1, 5]].concat()),
        results(7, &[&[0][..], &wcc, &[5, 2, 1, 2]].concat()),
        results(8, &[&[0, 1, 4, 9][..], &attr, &wcc].concat()),
        results(14, &[0, 0, 0, 0, 0]),
        results(16, &[0, 0, 0, 0, 1, 0, 7, 1, 0x6100_0000, 0, 3, 0, 1]),
        results(17, &[0, 0, 0, 0, 1, 0, 7, 1, 0x6100_0000, 0, 3, 0, 1, 4, 9, 0, 1]),
        results(18, &[0; 16]),
        results(19, &[0; 14]),
        results(20, &[0; 8]),
        results(21, &[0; 5]),
    ];
    let list = [1, 4, 1, 1, 1000, 6, 0, 0];
    let lists = [
        [&[2, 2][..], &crate::raw::words(&[&[4, 9][..], &list].concat())].concat(),
        [&[3, 1][..], &crate::raw::words(&[&[0, 0][..], &list].concat())].concat(),
    ];
    calls.chain(made).chain(lists).collect()
}

/// Returns one message of each side protocol.
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
        of(14, 0, &[1, 0, 7, 2, 4, 9]),
        of(15, 0, &[4, 0x6000_0000]),
        of(16, 0, &[4, 9, 0, 0, 128, 4, 0x6000_0000]),
        of(17, 0, &[8, 7]),
        of(18, 0, &[4, 0x0404_05ff]),
        of(19, 0, &[60]),
    ]
}
