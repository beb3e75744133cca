//! Formats of SMB: messages and the values inside them.

use gss_krb5::Cause;
use smb_auth::ntlm::Credentials;
use smb_auth::relay::Answer;
use smb_auth::ticket::{Refused, Why};
use smb_auth::{
    Acceptor, Account, Fresh, Identity, Initiator, Look, LookedUp, Mechs, NtHash, Policy, Secrets,
    Step,
};
use smb_proto::fscc::{dir, ea, mac, notify, quota, set, stream};
use smb_proto::smb2::reparse::{Buffer, Reparse};
use smb_proto::smb2::{self, HEADER_LEN, Header, context, transform};
use smb_proto::wire::Fault;
use smb_proto::{ndr, rpce};
use smbd_core::dtyp::{SecurityDescriptor, Sid};

/// Parses, encodes and parses again. True if the input was valid.
macro_rules! again {
    ($message:expr, $module:ident :: $kind:ident) => {{
        let read = smb2::$module::$kind::parse($message);
        if let Err(fault) = &read {
            inside($message, fault);
        }
        if let Ok(read) = &read {
            let written = [&$message[..HEADER_LEN], &read.emit()].concat();
            let again = smb2::$module::$kind::parse(&written);
            assert_eq!(
                again.as_ref(),
                Ok(read),
                concat!(stringify!($module), "::", stringify!($kind))
            );
        }
        read.is_ok()
    }};
}

/// Checks that an error names a field inside the input.
fn inside(bytes: &[u8], fault: &Fault) {
    assert!(fault.offset <= bytes.len(), "{fault}");
    assert_ne!(fault.field, "message", "a field has a name");
}

/// Input: a command and whether it is a response (the first byte), then its body, which follows a minimal header.
pub fn smb2_message(data: &[u8]) {
    let Some((kind, body)) = data.split_first() else { return };
    let message = behind_header(body);
    if kind & 0x80 == 0 {
        request(kind & 0x1f, &message);
    } else {
        response(kind & 0x1f, &message);
    }
    header(body);
}

fn behind_header(body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN];
    message[..4].copy_from_slice(b"\xfeSMB");
    message.extend_from_slice(body);
    message
}

/// Headers precede every message, so they are parsed from any bytes.
fn header(bytes: &[u8]) {
    match Header::parse(bytes) {
        Ok(header) => assert_eq!(Header::parse(&header.emit()), Ok(header)),
        Err(fault) => inside(bytes, &fault),
    }
    if let Ok(transform) = transform::Transform::parse(bytes) {
        assert_eq!(transform::Transform::parse(&transform.emit()), Ok(transform));
    }
    if let Err(fault) = smb2::smb1::parse(bytes) {
        inside(bytes, &fault);
    }
}

fn request(command: u8, message: &[u8]) -> bool {
    match command {
        0 => again!(message, negotiate::Request),
        1 => again!(message, session_setup::Request),
        3 => again!(message, tree_connect::Request),
        5 => {
            let asked = smb2::create::Request::parse(message);
            let known = asked.is_ok_and(|asked| context::Asked::parse(&asked.contexts).is_ok());
            again!(message, create::Request) && known
        }
        6 => again!(message, close::Request),
        7 => again!(message, flush::Request),
        8 => again!(message, read::Request),
        9 => again!(message, write::Request),
        10 => again!(message, lock::Request),
        11 => again!(message, ioctl::Request),
        14 => again!(message, query_directory::Request),
        15 => again!(message, change_notify::Request),
        16 => again!(message, query_info::Request),
        17 => again!(message, set_info::Request),
        18 => again!(message, oplock_break::Request),
        _ => smb2::simple::parse(message).is_ok(),
    }
}

fn response(command: u8, message: &[u8]) -> bool {
    match command {
        0 => again!(message, negotiate::Response),
        1 => again!(message, session_setup::Response),
        3 => again!(message, tree_connect::Response),
        5 => {
            let told = smb2::create::Response::parse(message);
            let known = told.is_ok_and(|told| context::Told::parse(&told.contexts).is_ok());
            again!(message, create::Response) && known
        }
        6 => again!(message, close::Response),
        7 => again!(message, flush::Response),
        8 => {
            let data = smb2::read::Response::parse(message).and_then(|read| read.data(message));
            again!(message, read::Response) && data.is_ok()
        }
        9 => again!(message, write::Response),
        10 => again!(message, lock::Response),
        11 => again!(message, ioctl::Response),
        14 => again!(message, query_directory::Response),
        17 => again!(message, set_info::Response),
        18 => again!(message, oplock_break::Response),
        31 => smb2::error::data(message).and_then(smb2::error::parse_symlink).is_ok(),
        _ => smb2::simple::parse(message).is_ok(),
    }
}

/// Input: the first byte selects a value inside buffers of messages: 0x20 and above DFS, 0x10 and above buffers of IOCTL.
pub fn smb2_values(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    if kind & 0x20 != 0 {
        return referral(kind & 3, bytes);
    }
    if kind & 0x10 != 0 {
        return control(kind & 0xf, bytes);
    }
    match kind % 16 {
        0 => descriptor(bytes),
        1 => {
            if let Ok(sid) = Sid::parse(bytes) {
                assert_eq!(Sid::parse(&sid.emit()), Ok(sid.clone()));
                assert_eq!(sid.to_string().parse(), Ok(sid));
            }
        }
        2 => list(ea::FullEa::parse_list(bytes), |l| {
            ea::FullEa::parse_list(&ea::FullEa::emit_list(l))
        }),
        3 => drop(ea::parse_names(bytes)),
        4 => drop(notify::Change::parse_list(bytes)),
        5 => drop(stream::Stream::parse_list(bytes)),
        6 => set_class(bytes),
        7 => drop(bytes.split_first().map(|(n, entry)| dir::level(*n).map(|l| l.parse(entry)))),
        8 | 9 => accept(bytes),
        10 => initiate(bytes),
        11 => drop(smb2::rdma::descriptors(bytes)),
        13 => of_macos(bytes),
        14 | 15 => quotas(kind & 1 == 0, bytes),
        _ => transform(bytes),
    }
}

/// What macOS keeps with a file, its directory entries, and the contexts of both directions.
fn of_macos(bytes: &[u8]) {
    if let Ok(read) = mac::AfpInfo::parse(bytes) {
        assert_eq!(mac::AfpInfo::parse(&read.emit()), Ok(read));
    }
    if let Ok((name, facts)) = dir::Level::parse_for_mac(bytes) {
        let written = dir::Level::IdBothDirectory.entry(&name, 0, &facts);
        assert_eq!(dir::Level::parse_for_mac(&written), Ok((name, facts)));
    }
    let context = [smb2::create::Context::new(context::name::AAPL, bytes.to_vec())];
    if let Ok(read) = context::Told::parse(&context) {
        assert_eq!(context::Told::parse(&read.contexts()), Ok(read));
    }
    if let Some(query) = context::Asked::parse(&context).ok().and_then(|asked| asked.aapl) {
        let written = [query.context()];
        assert_eq!(context::Asked::parse(&written).map(|asked| asked.aapl), Ok(Some(query)));
    }
}

/// Parses the buffer of an FSCTL, encodes it, and parses it again.
macro_rules! value {
    ($bytes:expr, $read:expr) => {
        match $read($bytes) {
            Ok(value) => assert_eq!($read(&value.emit()), Ok(value)),
            Err(fault) => inside($bytes, &fault),
        }
    };
}

/// Requests for quotas, and lists of them.
fn quotas(is_query: bool, bytes: &[u8]) {
    if is_query {
        return value!(bytes, quota::Query::parse);
    }
    list(quota::Quota::parse_list(bytes), |l| {
        quota::Quota::parse_list(&quota::Quota::emit_list(l))
    });
}

/// Requests and responses of DFS.
fn referral(kind: u8, bytes: &[u8]) {
    use smb2::dfs::{ReferralRequest, ReferralResponse};
    match kind {
        0 => value!(bytes, ReferralRequest::parse),
        1 => match ReferralRequest::parse_ex(bytes) {
            Ok(read) => assert_eq!(ReferralRequest::parse_ex(&read.emit_ex()), Ok(read)),
            Err(fault) => inside(bytes, &fault),
        },
        _ => match ReferralResponse::parse(bytes) {
            // Entries that share their text may exceed 16-bit offsets when each has a copy.
            Ok(read) => {
                let written = read.emit(usize::MAX).and_then(|w| ReferralResponse::parse(&w).ok());
                let kept = written.as_ref().map_or(0, |w| w.targets.len());
                let targets = read.targets[..kept].to_vec();
                assert!(written.is_none_or(|w| w == ReferralResponse { targets, ..read }));
            }
            Err(fault) => inside(bytes, &fault),
        },
    }
}

/// Decodes a buffer of IOCTL of this kind.
fn control(kind: u8, bytes: &[u8]) {
    use smb2::fsctl::{
        Copied, CopyChunks, DuplicateExtents, PipeWait, Resiliency, Snapshots, Span, Trim,
        ValidateNegotiate, Validated, emit_interfaces, parse_interfaces,
    };
    match kind {
        0 => value!(bytes, ValidateNegotiate::parse),
        1 => value!(bytes, Validated::parse),
        2 => {
            if let Ok(read) = CopyChunks::parse(bytes, 16) {
                assert!(read.chunks.len() <= 16);
                assert_eq!(CopyChunks::parse(&read.emit(), 16), Ok(read));
            }
        }
        3 => {
            value!(bytes, Copied::parse);
            value!(bytes, Snapshots::parse);
        }
        4 => value!(bytes, DuplicateExtents::parse),
        5 => value!(bytes, Span::parse),
        6 => value!(bytes, Trim::parse),
        7 => value!(bytes, PipeWait::parse),
        8 => value!(bytes, Resiliency::parse),
        9 => match parse_interfaces(bytes) {
            Ok(list) if list.is_empty() => {}
            Ok(list) => assert_eq!(parse_interfaces(&emit_interfaces(&list)), Ok(list)),
            Err(fault) => inside(bytes, &fault),
        },
        10 => reparse(bytes),
        kind => call(kind, bytes),
    }
}

/// A reparse point in the buffer of any owner, and its contents.
fn reparse(bytes: &[u8]) {
    match Reparse::parse(bytes) {
        Ok(None) => {}
        Ok(Some(read)) => assert_eq!(Reparse::parse(&read.emit()), Ok(Some(read))),
        Err(fault) => inside(bytes, &fault),
    }
    for buffer in [Buffer::parse(bytes), Buffer::parse_without_data(bytes)].into_iter().flatten() {
        assert_eq!(Buffer::parse(&buffer.emit()), Ok(buffer));
        assert_eq!(buffer.check_owner(&buffer), Ok(()));
        let contents = Reparse::parse_data(buffer.tag, buffer.data);
        assert_eq!(contents.ok(), Reparse::parse(&buffer.emit()).ok());
    }
}

/// Messages of remote procedure calls, and the data of their stubs.
fn call(kind: u8, bytes: &[u8]) {
    match kind {
        11 => match rpce::Pdu::parse(bytes, 4280) {
            Ok(None) => {}
            Ok(Some((pdu, rest))) => {
                // The minor version and the floating-point format are not preserved.
                let written = pdu.emit();
                assert_eq!(written.len(), bytes.len() - rest.len());
                assert_eq!(rpce::Pdu::parse(&written, 4280), Ok(Some((pdu, &[][..]))));
            }
            Err(fault) => inside(bytes, &fault),
        },
        12 => value!(bytes, rpce::Bind::parse),
        13 => match rpce::BindAck::parse(bytes) {
            Ok(ack) => assert_eq!(rpce::BindAck::parse(&ack.emit()), Ok(ack)),
            Err(fault) => inside(bytes, &fault),
        },
        14 => value!(bytes, rpce::FaultBody::parse),
        _ => {
            let mut stub = ndr::Reader::new(bytes);
            let read = stub.unique_text().and_then(|_| stub.string_head()).and_then(|_| stub.sid());
            if let Err(fault) = read {
                inside(bytes, &fault);
            }
        }
    }
}

/// A parsed value is encoded as an equivalent one.
fn transform(bytes: &[u8]) {
    let Ok((read, segs)) = smb2::rdma::Transform::parse(bytes) else { return };
    let mut written = Vec::new();
    read.put(&mut written, &segs);
    assert_eq!(smb2::rdma::Transform::parse(&written), Ok((read, segs)));
}

fn descriptor(bytes: &[u8]) {
    let Ok(read) = SecurityDescriptor::parse(bytes) else { return };
    let written = read.emit();
    assert_eq!(written.len(), read.wire_len());
    assert_eq!(SecurityDescriptor::parse(&written), Ok(read));
}

fn list<T: PartialEq + std::fmt::Debug>(
    read: smb2::Parsed<Vec<T>>,
    again: impl Fn(&[T]) -> smb2::Parsed<Vec<T>>,
) {
    if let Ok(read) = read {
        assert_eq!(again(&read).as_ref(), Ok(&read));
    }
}

fn set_class(bytes: &[u8]) {
    let Some((class, body)) = bytes.split_first() else { return };
    if let Ok(read) = set::Set::parse(*class, body) {
        let (class, body) = read.emit();
        assert_eq!(set::Set::parse(class, &body), Ok(read));
    }
}

struct OneUser;

impl Secrets for OneUser {
    fn nt_hash(&self, _domain: &str, user: &str) -> Option<NtHash> {
        (user == "user").then(|| NtHash::of("pass"))
    }

    fn must_look_up(&self, _user: &str, _why: Look) -> bool {
        true
    }
}

pub(super) fn fresh() -> Fresh {
    Fresh { challenge: *b"01234567", key: [7; 16], time: 0x01db_0000_0000_0000 }
}

/// Tokens of a client, each after a 16-bit length. A client without the password must never be admitted.
fn accept(bytes: &[u8]) {
    let mechs = Mechs { kerberos: true, ntlm: true };
    // Names of other domains are relayed; no controller knows them.
    let policy = Policy { domain: true, look_up: true, ..Policy::default() };
    let mut acceptor: Acceptor<()> =
        Acceptor::new(Identity::standalone("gateway"), fresh(), policy, mechs);
    let mut rest = bytes;
    while let Some((len, more)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len)).min(more.len());
        let (token, more) = more.split_at(len);
        rest = more;
        let mut step = acceptor.step(token, &OneUser);
        // One controller, and a look-up for each reason.
        for _ in 0..3 {
            step = match step {
                Step::Ask(_) => acceptor.answered(Answer::Local, &OneUser),
                Step::LookUp(..) => acceptor.looked_up(LookedUp::Answered, &OneUser),
                step => step,
            };
        }
        match step {
            Step::Continue(_) => {}
            Step::Ask(_) | Step::LookUp(..) => panic!("asked again for what was told"),
            // The seeds contain no proof of the password, and a fuzzer does not find one.
            Step::Done { who, .. } => panic!("let in {who:?}"),
            Step::Prove(_) => {
                let unproved =
                    acceptor.proved(Err(Refused::unread(Why::Kerberos(Cause::Other), "")));
                assert!(matches!(unproved, Step::Refused(_)), "{unproved:?}");
            }
            Step::Refused(_) => return,
        }
    }
}

/// A server's tokens, parsed by our own client.
fn initiate(bytes: &[u8]) {
    let user = Account { user: "user".into(), domain: String::new(), workstation: "here".into() };
    let credentials =
        Credentials { account: user, hash: NtHash::of("pass"), target_name: "cifs/gateway".into() };
    let mut initiator = Initiator::new(credentials, fresh());
    let _ = initiator.first();
    let (second, last) = bytes.split_at(bytes.len() / 2);
    if initiator.second(second).is_ok() {
        let _ = initiator.finish(last);
    }
    let _ = initiator.second(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::smb_seeds;

    #[test]
    fn seeds_are_good_messages() {
        for (command, body) in smb_seeds::bodies() {
            assert!(request(command, &behind_header(&body)), "{command}: {body:02x?}");
        }
    }
}
