//! Whole calls as clients make them, and calls that break the rules.

use std::sync::Barrier;
use std::time::Duration;

use proptest::prelude::*;

use super::rpc::{Association, Broken, FRAGMENT_MAX, Fault, NDR, STUB_MAX};
use super::*;
use crate::parts::Parts;
use crate::wire::put_utf16;
use rdma_transport::parts::Limit;

mod passwords;
mod samr;

const ALL: [Interface; 4] =
    [Interface::Srvsvc, Interface::Wkssvc, Interface::Lsarpc, Interface::Samr];

struct Fake;

impl Guard for Fake {}

impl Host for Fake {
    fn computer(&self) -> String {
        "GATE".into()
    }
    fn shares(&self) -> Vec<(String, String)> {
        vec![("data".into(), "What we have".into())]
    }
    fn shares_size(&self) -> (usize, usize) {
        (16, 1)
    }
    fn each_account(&self, each: &mut dyn FnMut(&str, &Cred)) {
        let of = |uid, gid, groups: &[u32]| Cred {
            uid,
            gid,
            groups: groups.into(),
            token: vfs::Token::NONE,
        };
        each("Alice", &of(1000, 50, &[60]));
        each("root", &of(0, 0, &[50]));
        // The same uid as Alice.
        each("alicia", &of(1000, 50, &[]));
    }
    fn knows_caller(&self) -> bool {
        true
    }
    fn machine(&self) -> Sid {
        Sid::new(5, &[21, 1, 2, 3]).unwrap()
    }
    fn account(&self, name: &str) -> Option<(String, u32)> {
        name.eq_ignore_ascii_case("alice").then(|| ("Alice".into(), 1000))
    }
    fn account_of_uid(&self, uid: u32) -> Option<String> {
        (uid == 1000).then(|| "Alice".into())
    }
    fn others(&self) -> &dyn Directory {
        self
    }
    fn caller(&self) -> String {
        "alice".into()
    }
    fn times(&self) -> (u64, u64) {
        // 2000-02-29 12:34:56.78
        (951_827_696_780, 1234)
    }
    fn sessions(&self) -> u32 {
        2
    }
}

impl Directory for Fake {
    fn uid(&self, name: &str) -> Option<u32> {
        (name == "root").then_some(0)
    }
    fn gid(&self, name: &str) -> Option<u32> {
        ["staff", "Users"].contains(&name).then_some(50)
    }
    fn user(&self, uid: u32) -> Option<String> {
        (uid == 0).then(|| "root".into())
    }
    fn group(&self, gid: u32) -> Option<String> {
        (gid == 50).then(|| "staff".into())
    }
}

fn pdu(kind: u8, flags: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let mut out = vec![5, 0, kind, flags, 0x10, 0, 0, 0];
    out.extend(u16::try_from(16 + body.len()).unwrap().to_le_bytes());
    out.extend([0, 0]);
    out.extend(id.to_le_bytes());
    out.extend(body);
    out
}

fn bind(interface: Interface, recv_max: u16) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(4280_u16.to_le_bytes());
    body.extend(recv_max.to_le_bytes());
    body.extend([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]);
    for s in [interface.syntax(), NDR] {
        body.extend(s.uuid);
        body.extend(s.version.to_le_bytes());
    }
    pdu(11, 3, 1, &body)
}

fn request(flags: u8, op: u16, stub: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0, 0, 0];
    body.extend(op.to_le_bytes());
    body.extend(stub);
    pdu(0, flags, 2, &body)
}

/// Returns a quota that no other pipe shares.
fn part() -> Part {
    parts(1 << 30).of("192.0.2.1:1".parse().unwrap())
}

fn parts(of_address: usize) -> Parts {
    Parts::new([Limit::new("pipe-bytes", 1 << 30), Limit::new("pipe-bytes-of-address", of_address)])
}

fn bound(interface: Interface) -> Pipe {
    let name = ["srvsvc", "\\wkssvc", "LSARPC", "samr"][interface as usize];
    let pipe = open(name, part()).unwrap();
    let ack = pipe.transceive(&Fake, &bind(interface, 4280), 4280).unwrap();
    assert_eq!((ack.data[2], ack.more), (12, false));
    pipe
}

/// Runs a call that is answered in one fragment, and returns the results.
fn call(interface: Interface, op: u16, stub: &[u8]) -> Result<Vec<u8>, u32> {
    let answer = bound(interface).transceive(&Fake, &request(3, op, stub), 4280).unwrap();
    assert!(!answer.more);
    let results = &answer.data[24..];
    match answer.data[2] {
        2 => Ok(results.to_vec()),
        3 => Err(words(&results[..4])[0]),
        other => panic!("PTYPE {other}"),
    }
}

fn text(stub: &mut Vec<u8>, text: &str) {
    let units = u32::try_from(text.encode_utf16().count()).unwrap() + 1;
    stub.resize(stub.len().next_multiple_of(4), 0);
    for n in [units, 0, units] {
        stub.extend(n.to_le_bytes());
    }
    put_utf16(stub, text);
    stub.extend([0, 0]);
    stub.resize(stub.len().next_multiple_of(4), 0);
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect()
}

/// NetrShareEnum of a level, with a null container.
fn share_enum(level: u32) -> Vec<u8> {
    let mut stub = vec![1, 0, 0, 0];
    text(&mut stub, "\\\\gate");
    for n in [level, level, 7, 0, 0, u32::MAX, 0] {
        stub.extend(n.to_le_bytes());
    }
    stub
}

#[test]
fn shares_are_listed_on_every_level() {
    let found = call(Interface::Srvsvc, 15, &share_enum(1)).unwrap();
    let w = words(&found);
    // Level, its union, container, entries, buffer, entries.
    assert_eq!((w[0], w[1], w[3], w[5]), (1, 1, 2, 2));
    // Name, kind, remark of both; then the first name.
    assert_eq!((w[7], w[10]), (0, 0x8000_0003));
    assert_eq!(w[12..15], [5, 0, 5]);
    assert_eq!(found[60..68], [b'd', 0, b'a', 0, b't', 0, b'a', 0]);
    // Total, resume handle, result.
    assert_eq!(w[w.len() - 3..], [2, 0, 0]);
    for level in [0, 2, 501, 502, 503] {
        let w = words(&call(Interface::Srvsvc, 15, &share_enum(level)).unwrap());
        assert_eq!((w[0], w[3], w[w.len() - 1]), (level, 2, 0));
    }
    let w = words(&call(Interface::Srvsvc, 15, &share_enum(9)).unwrap());
    assert_eq!(w, [9, 9, 0, 0, 0, 124], "ERROR_INVALID_LEVEL");
}

#[test]
fn one_share_is_found_without_regard_to_case() {
    let ask = |name: &str, level: u32| {
        let mut stub = vec![0; 4];
        text(&mut stub, name);
        stub.extend(level.to_le_bytes());
        words(&call(Interface::Srvsvc, 16, &stub).unwrap())
    };
    assert_eq!(*ask("DATA", 1).last().unwrap(), 0);
    assert_eq!(ask("nope", 1), [1, 0, 2310]);
    assert_eq!(ask("data", 7), [7, 0, 124]);
    assert_eq!(ask("data", 1005)[2..], [0, 0]);
}

/// MS-SRVS section 2.2.3.6: each level that smbd serves for one share, and 503.
#[test]
fn each_level_of_a_share_is_answered() {
    let ask = |name: &str, level: u32| {
        let mut stub = vec![0; 4];
        text(&mut stub, name);
        stub.extend(level.to_le_bytes());
        words(&call(Interface::Srvsvc, 16, &stub).unwrap())
    };
    for level in [0, 1, 2, 501, 502, 503, 1004, 1005, 1006, 1501] {
        for name in ["data", "IPC$"] {
            let found = ask(name, level);
            assert_eq!((found[0], found.last()), (level, Some(&0)), "{name}");
            assert_ne!(found[1], 0, "{name} {level}: a structure");
        }
        assert_eq!(ask("nope", level), [level, 0, 2310]);
    }
    for level in [3, 500, 504, 1003, 1007, 1500, 1502, u32::MAX] {
        assert_eq!(ask("data", level), [level, 0, 124]);
    }
    // A remark of 12 characters and its terminator.
    assert_eq!(ask("data", 1004)[3..6], [13, 0, 13]);
    assert_eq!(ask("data", 1006)[2..], [u32::MAX, 0]);
    assert_eq!(ask("data", 1501)[2..], [0, 0, 0]);
}

#[test]
fn the_server_and_the_workstation_say_what_they_are() {
    for level in [100_u32, 101, 102] {
        let stub = [&[0; 4][..], &level.to_le_bytes()].concat();
        for (interface, op) in [(Interface::Srvsvc, 21), (Interface::Wkssvc, 0)] {
            let found = call(interface, op, &stub).unwrap();
            let w = words(&found);
            assert_eq!((w[0], w[2], *w.last().unwrap()), (level, 500, 0));
            assert!(found.windows(8).any(|b| b == b"G\0A\0T\0E\0"));
        }
    }
    let stub = [&[0; 4][..], &99_u32.to_le_bytes()].concat();
    assert_eq!(words(&call(Interface::Wkssvc, 0, &stub).unwrap()), [99, 0, 124]);
}

#[test]
fn there_is_the_one_drive_that_paths_of_shares_name() {
    let ask = |level: u32, resume: &[u32]| {
        let mut stub = vec![1, 0, 0, 0];
        text(&mut stub, "\\\\gate");
        for n in [level, 0, 0, u32::MAX].iter().chain(resume) {
            stub.extend(n.to_le_bytes());
        }
        call(Interface::Srvsvc, 23, &stub).unwrap()
    };
    for resume in [&[0][..], &[5, 0]] {
        let found = ask(0, resume);
        let w = words(&found);
        // Entries, their array, and of the one: its first character and how many.
        assert_eq!((w[0], &w[2..7]), (1, &[1, 0, 1, 0, 3][..]));
        assert_eq!(found[28..34], [b'C', 0, b':', 0, 0, 0]);
        // Total, whether there is a resume handle, result.
        assert_eq!(w[w.len() - 3..], [1, 0, 0]);
    }
    assert_eq!(words(&ask(1, &[0])), [0, 0, 0, 0, 124], "ERROR_INVALID_LEVEL");
}

#[test]
fn administration_is_refused_as_such() {
    for op in [8, 9, 10, 11, 12, 13, 14, 18, 19, 22, 24, 25, 26, 27] {
        assert_eq!(call(Interface::Srvsvc, op, &[]), Err(5), "ERROR_ACCESS_DENIED for {op}");
    }
    assert_eq!(call(Interface::Wkssvc, 2, &[]), Err(5));
    // NetrShareSetInfo: no parameter is wrong, ERROR_ACCESS_DENIED.
    assert_eq!(words(&call(Interface::Srvsvc, 17, &[]).unwrap()), [0, 5]);
}

#[test]
fn the_time_of_day_is_taken_apart() {
    let w = words(&call(Interface::Srvsvc, 28, &[0; 4]).unwrap());
    let expected = [951_827_696, 1234, 12, 34, 56, 78, 0, 310, 29, 2, 2000, 2, 0];
    assert_eq!(w[1..], expected);
}

/// LsarOpenPolicy2, then LsarLookupSids2 with these SIDs.
fn lookup_sids(sids: &[Sid]) -> Vec<u8> {
    let policy = call(Interface::Lsarpc, 44, &[]).unwrap();
    let mut stub = policy[..20].to_vec();
    let count = u32::try_from(sids.len()).unwrap();
    for n in [count, 1, count] {
        stub.extend(n.to_le_bytes());
    }
    stub.extend(sids.iter().flat_map(|_| [1, 0, 0, 0]));
    for sid in sids {
        stub.extend(u32::try_from(sid.subs().len()).unwrap().to_le_bytes());
        sid.put(&mut stub);
    }
    stub.extend([0; 8]);
    stub.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    call(Interface::Lsarpc, 57, &stub).unwrap()
}

#[test]
fn identifiers_have_names() {
    let has = |found: &[u8], name: &str| {
        let mut wide = Vec::new();
        put_utf16(&mut wide, name);
        found.windows(wide.len()).any(|w| w == wide)
    };
    let alice = Fake.machine().child(3000).unwrap();
    let found = lookup_sids(&[Sid::unix_user(1000), Sid::unix_user(0), Sid::everyone(), alice]);
    let w = words(&found);
    assert_eq!(w[w.len() - 2..], [4, 0], "all are mapped");
    for name in ["Alice", "GATE", "root", "Unix User", "Everyone"] {
        assert!(has(&found, name), "{name}");
    }
    // SIDs of groups from SAMR: the group 50 of the host, and the group of all accounts.
    let groups = [1101, 513].map(|rid| Fake.machine().child(rid).unwrap());
    let found = lookup_sids(&groups);
    assert!(has(&found, "staff") && has(&found, "None"));
    let stranger: Sid = Sid::new(5, &[21, 9, 9, 9, 500]).unwrap();
    let found = lookup_sids(&[stranger.clone(), Sid::unix_group(42)]);
    let w = words(&found);
    assert_eq!(w[w.len() - 2..], [1, 0x107], "STATUS_SOME_NOT_MAPPED");
    assert!(has(&found, "S-1-5-21-9-9-9-500") && has(&found, "42"));
    let w = words(&lookup_sids(&[stranger]));
    assert_eq!(w[w.len() - 2..], [0, Status::NONE_MAPPED.0]);
}

#[test]
fn names_have_identifiers_that_files_know() {
    let policy = call(Interface::Lsarpc, 44, &[]).unwrap();
    let ask = |name: &str| {
        let mut stub = policy[..20].to_vec();
        stub.extend([1, 0, 0, 0, 1, 0, 0, 0]);
        let len = u16::try_from(name.len() * 2).unwrap().to_le_bytes();
        stub.extend([len, len].concat());
        stub.extend([1, 0, 0, 0]);
        let units = u32::try_from(name.len()).unwrap();
        stub.extend([units, 0, units].iter().flat_map(|n| n.to_le_bytes()));
        put_utf16(&mut stub, name);
        stub.resize(stub.len().next_multiple_of(4), 0);
        stub.extend([0; 24]);
        call(Interface::Lsarpc, 68, &stub).unwrap()
    };
    for name in ["alice", "GATE\\ALICE"] {
        let found = ask(name);
        let mut sid = Vec::new();
        Sid::unix_user(1000).put(&mut sid);
        assert!(found.windows(sid.len()).any(|w| w == sid), "{name}");
        assert_eq!(words(&found[found.len() - 8..]), [1, 0]);
    }
    // Users and groups of the host, under the names that are shown for them; BUILTIN\Users takes precedence over the host's group.
    for (name, who) in [
        ("root", Sid::unix_user(0)),
        ("Unix User\\root", Sid::unix_user(0)),
        ("staff", Sid::unix_group(50)),
        ("Unix Group\\Users", Sid::unix_group(50)),
        ("Users", Sid::new(5, &[32, 545]).unwrap()),
    ] {
        let (found, sid) = (ask(name), who.emit());
        assert!(found.windows(sid.len()).any(|w| w == sid), "{name}");
    }
    assert_eq!(words(&ask("Unix Group\\root"))[..3][1..], [0, 0]);
    assert_eq!(words(&ask("OTHER\\alice"))[..3][1..], [0, 0]);
    let found = ask("mallory");
    assert_eq!(words(&found[found.len() - 8..]), [0, Status::NONE_MAPPED.0]);
}

#[test]
fn a_handle_that_nobody_gave_is_refused() {
    let w = words(&call(Interface::Lsarpc, 7, &[[7; 20].as_slice(), &[5, 0]].concat()).unwrap());
    assert_eq!(w, [0, Status::INVALID_HANDLE.0]);
    let policy = call(Interface::Lsarpc, 44, &[]).unwrap();
    let ask = |class: u8| call(Interface::Lsarpc, 7, &[&policy[..20], &[class, 0]].concat());
    for class in [3, 5, 6, 12] {
        assert_eq!(*words(&ask(class).unwrap()).last().unwrap(), 0, "{class}");
    }
    assert_eq!(words(&ask(2).unwrap()), [0, Status::INVALID_PARAMETER.0]);
    assert_eq!(call(Interface::Lsarpc, 0, &policy[..20]).unwrap(), [0; 24]);
}

/// smbcacls crashes if LsarQueryInformationPolicy2 is answered without a SID, but continues after a fault.
#[test]
fn second_policy_query_is_a_fault() {
    let policy = call(Interface::Lsarpc, 44, &[]).unwrap();
    for class in [3, 5, 6, 12] {
        let asked = call(Interface::Lsarpc, 46, &[&policy[..20], &[class, 0]].concat());
        assert_eq!(asked, Err(Fault::NO_OPERATION.0), "{class}");
    }
}

/// C706 section 14.3.2: the role has the alignment of the largest arm, with two bytes of padding after the class.
#[test]
fn the_arms_of_a_union_are_aligned_alike() {
    let policy = call(Interface::Lsarpc, 44, &[]).unwrap();
    let role = call(Interface::Lsarpc, 7, &[&policy[..20], &[6, 0]].concat()).unwrap();
    assert_eq!(words(&role)[1..], [6, 3, 0]);
}

#[test]
fn what_is_not_offered_is_a_fault() {
    for interface in ALL {
        assert_eq!(call(interface, 500, &[]), Err(Fault::NO_OPERATION.0));
    }
    for cut in 0..20 {
        assert_eq!(call(Interface::Srvsvc, 15, &share_enum(1)[..cut]), Err(Fault::BAD_STUB.0));
    }
    // A call without a bind.
    let pipe = open("srvsvc", part()).unwrap();
    let answer = pipe.transceive(&Fake, &request(3, 15, &share_enum(1)), 4280).unwrap();
    assert_eq!(answer.data[2], 3);
    assert_eq!(words(&answer.data[24..28]), [Fault::NO_INTERFACE.0]);
}

#[test]
fn contexts_are_judged_one_by_one() {
    // An interface of another pipe, and the pipe's own with an unknown transfer syntax.
    let pipe = open("srvsvc", part()).unwrap();
    let ack = pipe.transceive(&Fake, &bind(Interface::Wkssvc, 4280), 4280).unwrap().data;
    let results = |ack: &[u8]| words(&ack[ack.len() - 24..])[0];
    assert_eq!(results(&ack), 2 | 1 << 16, "abstract syntax not supported");
    let mut other = bind(Interface::Srvsvc, 4280);
    let at = other.len() - 4;
    other[at] = 9;
    let ack = pipe.transceive(&Fake, &other, 4280).unwrap().data;
    assert_eq!(results(&ack), 2 | 2 << 16, "transfer syntax not supported");
    // Authentication inside the pipe is not offered.
    let mut secure = bind(Interface::Srvsvc, 4280);
    secure[10] = 8;
    assert_eq!(pipe.transceive(&Fake, &secure, 4280).unwrap().data[2], 13, "bind_nak");
}

/// C706 section 12.6.3.1: the answer names the supported version, and the client may bind again with it.
#[test]
fn bind_of_another_version_gets_nak() {
    let good = bind(Interface::Srvsvc, 4280);
    for (at, value) in [(0, 4), (0, 6), (0, 255), (1, 2), (1, 255)] {
        let pipe = open("srvsvc", part()).unwrap();
        let mut other = good.clone();
        other[at] = value;
        let nak = pipe.transceive(&Fake, &other, 4280).unwrap().data;
        assert_eq!((nak[0], nak[1], nak[2]), (5, 0, 13), "{at} {value}");
        assert_eq!(nak[12..16], other[12..16], "call_id");
        assert_eq!(nak[16..], [4, 0, 1, 5, 0, 0, 0, 0], "{at} {value}");
        assert_eq!(pipe.transceive(&Fake, &good, 4280).unwrap().data[2], 12);
    }
    // Every other PDU with another version ends the pipe.
    for (at, value) in [(0, 4), (1, 2)] {
        let pipe = bound(Interface::Srvsvc);
        let mut other = request(3, 15, &share_enum(1));
        other[at] = value;
        assert_eq!(pipe.write(&Fake, &other), Err(Status::PIPE_DISCONNECTED));
    }
}

#[test]
fn long_answers_come_in_fragments_and_short_reads_in_pieces() {
    let pipe = open("lsarpc", part()).unwrap();
    pipe.transceive(&Fake, &bind(Interface::Lsarpc, 1432), 4280).unwrap();
    let mut stub = call(Interface::Lsarpc, 44, &[]).unwrap()[..20].to_vec();
    let sids = vec![Sid::unix_group(7); 100];
    stub.extend([100_u32, 1, 100].iter().flat_map(|n| n.to_le_bytes()));
    stub.extend(sids.iter().flat_map(|_| [1, 0, 0, 0]));
    for sid in &sids {
        stub.extend(2_u32.to_le_bytes());
        sid.put(&mut stub);
    }
    stub.extend([0; 24]);
    // The request in three fragments, cut anywhere by writes.
    let mut bytes = request(1, 57, &stub[..700]);
    bytes.extend(request(0, 57, &stub[700..1400]));
    bytes.extend(request(2, 57, &stub[1400..]));
    for part in bytes.chunks(333) {
        pipe.write(&Fake, part).unwrap();
    }
    let (mut fragments, mut results) = (0, Vec::new());
    loop {
        let mut fragment = Vec::new();
        loop {
            let piece = pipe.read(500).unwrap();
            fragment.extend(piece.data);
            if !piece.more {
                break;
            }
        }
        assert!(fragment.len() <= 1432);
        results.extend_from_slice(&fragment[24..]);
        fragments += 1;
        if fragment[3] & 2 != 0 {
            break;
        }
    }
    assert!(fragments > 2);
    assert_eq!(words(&results)[results.len() / 4 - 2..], [100, 0]);
    assert_eq!(pipe.read(500), Err(Status::PIPE_EMPTY));
    assert_eq!(pipe.waiting(), (0, 0));
}

#[test]
fn broken_framing_ends_a_pipe() {
    let whole = request(3, 15, &[]);
    let with = |at: usize, value: u8| {
        let mut pdu = whole.clone();
        pdu[at] = value;
        pdu
    };
    let mut long = whole.clone();
    long[8..10].copy_from_slice(&(FRAGMENT_MAX + 1).to_le_bytes());
    for bytes in [
        with(0, 4),
        with(1, 2),
        with(2, 77),
        with(4, 0),
        with(8, 15),
        with(10, 8),
        long,
        request(2, 15, &[]),
        [request(1, 15, &[]), request(3, 15, &[])].concat(),
    ] {
        let pipe = bound(Interface::Srvsvc);
        assert_eq!(pipe.write(&Fake, &bytes), Err(Status::PIPE_DISCONNECTED));
        assert_eq!(pipe.write(&Fake, &whole), Err(Status::PIPE_DISCONNECTED));
        assert_eq!(pipe.read(10), Err(Status::PIPE_DISCONNECTED));
    }
}

#[test]
fn what_is_kept_is_bounded() {
    // Arguments that never end.
    let mut association = Association::new(Interface::Srvsvc);
    let run = |_, _, _: &[u8]| Ok(Vec::new());
    let mut flags = 1;
    let mut taken = 0;
    let ended = loop {
        let fragment = request(flags, 15, &[0; 4000]);
        flags = 0;
        match association.take(&fragment, &Fake, run) {
            Ok(_) => taken += 4000,
            Err(e) => break e,
        }
    };
    assert_eq!(ended, Broken("more arguments than are possible"));
    assert!(taken <= STUB_MAX);
    // Answers that the client never reads.
    let pipe = bound(Interface::Srvsvc);
    let mut calls = 0_usize;
    let ended = loop {
        match pipe.write(&Fake, &request(3, 15, &share_enum(1))) {
            Ok(()) => calls += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(ended, Status::PIPE_BUSY);
    assert!(calls * 100 > UNREAD_MAX / 10 && pipe.waiting().0 < UNREAD_MAX + 4280);
    let busy = pipe.transceive(&Fake, &request(3, 15, &[]), 10);
    assert_eq!(busy, Err(Status::PIPE_BUSY));
}

/// A host that meets its barrier before and after it lists shares.
struct Slow<'a>(&'a Barrier);

impl Guard for Slow<'_> {}

impl Host for Slow<'_> {
    fn computer(&self) -> String {
        Fake.computer()
    }
    fn shares(&self) -> Vec<(String, String)> {
        self.0.wait();
        self.0.wait();
        Fake.shares()
    }
    fn shares_size(&self) -> (usize, usize) {
        Fake.shares_size()
    }
    fn each_account(&self, each: &mut dyn FnMut(&str, &Cred)) {
        Fake.each_account(each);
    }
    fn knows_caller(&self) -> bool {
        Fake.knows_caller()
    }
    fn machine(&self) -> Sid {
        Fake.machine()
    }
    fn account(&self, name: &str) -> Option<(String, u32)> {
        Fake.account(name)
    }
    fn account_of_uid(&self, uid: u32) -> Option<String> {
        Fake.account_of_uid(uid)
    }
    fn others(&self) -> &dyn Directory {
        &Fake
    }
    fn caller(&self) -> String {
        Fake.caller()
    }
    fn times(&self) -> (u64, u64) {
        Fake.times()
    }
    fn sessions(&self) -> u32 {
        Fake.sessions()
    }
}

/// A directory server may be slow with names; threads that serve connections still read pipes, query their state and close them.
#[test]
fn nothing_but_calls_waits_for_a_host_that_takes_long() {
    let (pipe, barrier) = (bound(Interface::Srvsvc), Barrier::new(2));
    let (asks, slow) = (request(3, 15, &share_enum(1)), Slow(&barrier));
    pipe.write(&Fake, &asks).unwrap();
    std::thread::scope(|threads| {
        let called = threads.spawn(|| pipe.write(&slow, &asks));
        barrier.wait();
        let (done, is_done) = std::sync::mpsc::channel();
        let pipe = &pipe;
        threads.spawn(move || {
            assert!(pipe.waiting().0 > 0);
            assert!(pipe.read(4280).is_ok(), "the answer of the call before");
            pipe.close();
            let _ = done.send(pipe.read(4280));
        });
        let ended = is_done.recv_timeout(Duration::from_secs(10));
        barrier.wait();
        assert_eq!(ended, Ok(Err(Status::PIPE_BROKEN)));
        assert_eq!(called.join().unwrap(), Ok(()));
    });
}

#[test]
fn only_these_pipes_are_there() {
    for name in ["srvsvc", "\\SrvSvc", "wkssvc", "lsarpc", "lsass", "pipe\\lsarpc", "samr"] {
        assert!(find(name).is_ok(), "{name}");
    }
    for name in ["", "netlogon", "spoolss", "srvsvc2"] {
        assert_eq!(find(name).err(), Some(Status::OBJECT_NAME_NOT_FOUND));
    }
}

proptest! {
    #[test]
    fn any_bytes(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..5)) {
        let pipe = bound(Interface::Lsarpc);
        for c in &chunks {
            let _ = pipe.write(&Fake, c);
            let _ = pipe.read(100);
        }
    }

    #[test]
    fn any_arguments(op in 0_u16..100, stub in proptest::collection::vec(any::<u8>(), 0..300)) {
        for interface in ALL {
            let _ = interface.call(&Fake, &mut Handles::default(), op, &stub);
        }
    }

    /// Nearly correct arguments reach the most code.
    #[test]
    fn changed_arguments(at: proptest::sample::Index, to: u8, level in 0_u32..4) {
        let mut stub = share_enum(level);
        let at = at.index(stub.len());
        stub[at] = to;
        let _ = Interface::Srvsvc.call(&Fake, &mut Handles::default(), 15, &stub);
    }
}

#[test]
fn what_pipes_keep_counts_until_it_is_gone() {
    const MOST: usize = 20_000;
    let parts = parts(MOST);
    let at = |text: &str| parts.of(text.parse().unwrap());
    let open_at = |text: &str| {
        let pipe = open("srvsvc", at(text)).unwrap();
        pipe.transceive(&Fake, &bind(Interface::Srvsvc, 4280), 4280).unwrap();
        pipe
    };
    let has = |pipe: &Pipe| locked(&pipe.answers).part.count();
    let (one, other) = (open_at("192.0.2.1:1"), open_at("192.0.2.1:2"));
    assert_eq!(has(&one), 0, "what was read is gone");
    // An incomplete call, and an incomplete fragment.
    let begun = request(1, 15, &[0; 4000]);
    one.write(&Fake, &begun).unwrap();
    one.write(&Fake, &begun[..3000]).unwrap();
    assert!((7000..9000).contains(&has(&one)), "{}", has(&one));
    // An unread answer.
    other.write(&Fake, &request(3, 15, &share_enum(1))).unwrap();
    let unread = other.waiting().0;
    assert_eq!(has(&other), unread);
    // More than the quota of the address: that pipe is disconnected and its memory freed, others remain.
    let third = open_at("192.0.2.1:3");
    let ended = (0..10).map(|n| third.write(&Fake, &request(u8::from(n == 0), 15, &[0; 4000])));
    let ended: Vec<_> = ended.take_while(Result::is_ok).collect();
    assert!((2..4).contains(&ended.len()), "{ended:?}");
    assert_eq!(has(&third), 0);
    assert_eq!(third.write(&Fake, &begun), Err(Status::PIPE_DISCONNECTED));
    assert_eq!(other.read(4280).unwrap().data.len(), unread);
    drop((one, other, third));
    at("192.0.2.1:4").set(MOST).unwrap();
}

/// Unfinished calls of one address up to its quota: another address calls as before.
#[test]
fn an_address_has_its_part_of_pipe_bytes() {
    let parts = parts(64 << 10);
    let of = |at: &str| parts.of(at.parse().unwrap());
    // The first fragment of a call, without a last one.
    let begun = pdu(0, 1, 2, &[0; 4000]);
    let mut held = Vec::new();
    let refused = loop {
        let pipe = open("srvsvc", of("192.0.2.1:1")).unwrap();
        pipe.transceive(&Fake, &bind(Interface::Srvsvc, 4280), 4280).unwrap();
        match pipe.write(&Fake, &begun) {
            Ok(()) => held.push(pipe),
            Err(refused) => break refused,
        }
        assert!(held.len() < 64, "more than there is room for");
    };
    println!("{refused:?}");
    let other = open("srvsvc", of("192.0.2.2:1")).unwrap();
    assert!(other.transceive(&Fake, &bind(Interface::Srvsvc, 4280), 4280).is_ok());
    assert!(other.write(&Fake, &begun).is_ok());
}
