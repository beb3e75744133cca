//! Measures parsing and encoding of READ, WRITE and CREATE of version 3, of a COMPOUND of SEQUENCE, PUTFH, READ and GETATTR, and of
//! the attributes of a file, in nanoseconds each.
use std::hint::black_box;
use std::time::Instant;

use nfs_proto::nfs3::{
    Args, Create3args, Createhow3, Diropargs3, Read3args, Sattr3, StableHow, Write3args, procedure,
};
use nfs_proto::nfs4::attrs::{Bitmap4, Fattr4, NfsFtype4, Value};
use nfs_proto::nfs4::{Compound, Fsid4, Nfstime4, Stateid4, attr, op, ops};
use nfs_proto::oncrpc::{AUTH_SYS, CallHead, OpaqueAuth, program};
use nfs_proto::wire;
use nfs_proto::xdr::{Bulk, Xdr};

/// Runs 20 rounds and prints the best.
fn measure(name: &str, mut run: impl FnMut()) {
    const TIMES: u32 = 200_000;
    let best = (0..20).map(|_| {
        let start = Instant::now();
        (0..TIMES).for_each(|_| run());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES)
    });
    println!("{name}: {:.1} ns", best.fold(f64::INFINITY, f64::min));
}

/// Encodes the header of a call and its arguments.
fn call(version: u32, procedure: u32, emit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let cred = OpaqueAuth { flavor: AUTH_SYS, body: &[0; 24] };
    let (xid, program, verf) = (5, program::NFS, OpaqueAuth::NONE);
    let mut out = Vec::new();
    CallHead { xid, program, version, procedure, cred, verf }.emit(&mut out);
    emit(&mut out);
    out
}

/// Parses the arguments for the procedure number, like a server.
fn arguments(message: &[u8]) -> wire::Parsed<'_, Option<Args<'_>>> {
    let (rest, head) = CallHead::parse(message)?;
    Args::parse(head.procedure, rest)
}

fn version_3<'a>(name: &str, number: u32, args: &impl Xdr<'a>) {
    let message = call(3, number, |out| args.emit(out));
    measure(&format!("parse, {name}"), || {
        let _ = black_box(arguments(black_box(&message)));
    });
    let mut out = Vec::with_capacity(1024);
    measure(&format!("emit, {name}"), || {
        out.clear();
        black_box(args).emit(black_box(&mut out));
    });
}

/// Returns the remaining input; keeps the compiler from optimizing the value away.
fn kept<T>((rest, value): (&[u8], T)) -> &[u8] {
    black_box(value);
    rest
}

/// Parses each operation with its parser.
fn parse(message: &[u8]) -> wire::Parsed<'_, ()> {
    let (rest, _) = CallHead::parse(message)?;
    let (mut rest, compound) = Compound::parse(rest)?;
    for _ in 0..compound.argarray {
        let (arguments, number) = u32::field("argop", rest)?;
        rest = match number {
            op::SEQUENCE => ops::Sequence::parse(arguments).map(kept)?,
            op::PUTFH => ops::NfsFh4::parse(arguments).map(kept)?,
            op::READ => ops::Read::parse(arguments).map(kept)?,
            _ => Bitmap4::parse(arguments).map(kept)?,
        };
    }
    Ok((rest, ()))
}

fn version_4() {
    let fh = [7; 40];
    let sequence = ops::Sequence {
        sessionid: [1; 16],
        sequenceid: 9,
        slotid: 0,
        highest_slotid: 0,
        cachethis: false,
    };
    let read = ops::Read { stateid: Stateid4::ANONYMOUS, offset: 4096, count: 1 << 20 };
    let wanted = Bitmap4::of(&[attr::CHANGE, attr::SIZE, attr::TIME_MODIFY]);
    let emit = |out: &mut Vec<u8>| {
        Compound { tag: &[], minorversion: 1, argarray: 4 }.emit(out);
        op::SEQUENCE.emit(out);
        sequence.emit(out);
        op::PUTFH.emit(out);
        ops::NfsFh4 { object: &fh }.emit(out);
        op::READ.emit(out);
        read.emit(out);
        op::GETATTR.emit(out);
        wanted.emit(out);
    };
    let message = call(4, 1, emit);
    measure("parse, COMPOUND", || {
        let _ = black_box(parse(black_box(&message)));
    });
    let mut out = Vec::with_capacity(1024);
    measure("emit, COMPOUND", || {
        out.clear();
        emit(black_box(&mut out));
    });
}

/// Returns a typical value of a file attribute, selected by its number.
fn value(number: u32, time: Nfstime4) -> Option<Value<'static>> {
    Some(match number {
        attr::TYPE => Value::Type(NfsFtype4::Reg),
        attr::CHANGE => Value::Change(7),
        attr::SIZE => Value::Size(4096),
        attr::FSID => Value::Fsid(Fsid4 { major: 1, minor: 2 }),
        attr::FILEID => Value::Fileid(12),
        attr::MODE => Value::Mode(0o644),
        attr::NUMLINKS => Value::Numlinks(1),
        attr::OWNER => Value::Owner(ops::Component4 { name: b"1000" }),
        attr::OWNER_GROUP => Value::OwnerGroup(ops::Component4 { name: b"1000" }),
        attr::SPACE_USED => Value::SpaceUsed(4096),
        attr::TIME_ACCESS => Value::TimeAccess(time),
        attr::TIME_METADATA => Value::TimeMetadata(time),
        attr::TIME_MODIFY => Value::TimeModify(time),
        _ => return None,
    })
}

fn attributes() {
    let asked = Bitmap4::of(&[1, 3, 4, 8, 20, 33, 35, 36, 37, 45, 47, 52, 53]);
    let time = Nfstime4 { seconds: 5, nseconds: 6 };
    let mut out = Vec::with_capacity(1024);
    let emit = |out: &mut Vec<u8>| {
        for number in black_box(&asked).iter() {
            let Some(value) = value(number, black_box(time)) else { continue };
            value.emit(out);
        }
    };
    measure("emit, 13 attributes", || {
        out.clear();
        emit(black_box(&mut out));
    });
    let message = out.clone();
    let fattr = Fattr4 { attrmask: asked, attr_vals: &message };
    measure("parse, 13 attributes", || {
        let mut rest = black_box(&fattr).attr_vals;
        for number in fattr.attrmask.iter() {
            let Ok((behind, value)) = wire::decode(rest, |i| Value::parse(number, i)) else {
                return;
            };
            black_box(&value);
            rest = behind;
        }
    });
}

fn main() {
    let fh = [7; 40];
    let read = Read3args { file: &fh, offset: 4096, count: 1 << 20 };
    version_3("READ", procedure::READ, &read);
    let (stable, data) = (StableHow::Unstable, Bulk { len: 1 << 20 });
    let write = Write3args { file: &fh, offset: 4096, count: 1 << 20, stable, data };
    version_3("WRITE", procedure::WRITE, &write);
    let place = Diropargs3 { dir: &fh, name: b"a file" };
    let how = Createhow3::Guarded(Sattr3 { mode: Some(0o644), ..Sattr3::default() });
    version_3("CREATE", procedure::CREATE, &Create3args { place, how });
    version_4();
    attributes();
}
