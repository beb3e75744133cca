//! QUERY_INFO and SET_INFO: results and changes, and buffers that are too short, too long or inconsistent.

use std::pin::pin;
use std::task::Poll;

use rdma_transport::channel::Transport;
use vfs::{Cred, SetAttr};

use crate::dtyp::{Ace, Acl, FileTime, SecurityDescriptor, Sid, descriptor::control, mask};
use crate::fscc::ea::FullEa;
use crate::fscc::file::{Basic, Class, Standard};
use crate::fscc::set::{NewName, Set, rename};
use crate::fscc::{attribute, volume};
use crate::harness::{Answered, Client, Harness, doom};
use crate::ops::held_times::{check_write, turn};
use crate::status::Status;
use crate::wire::Command;
use crate::wire::create::{Disposition, option};
use crate::wire::file_id::FileId;
use crate::wire::negotiate::Dialect;
use crate::wire::query_info::{Request, Response, info_type, security_information as part};
use crate::wire::set_info;

pub(super) async fn ask(c: &Client, file: FileId, info_type: u8, class: u8, len: u32) -> Answered {
    let more = if info_type == info_type::SECURITY { part::OWNER | part::DACL } else { 0 };
    let r = Request {
        info_type,
        class,
        output_len: len,
        additional: more,
        flags: 0,
        file,
        input: Vec::new(),
    };
    c.ask(Command::QueryInfo, &r.emit()).await
}

pub(super) async fn query(c: &Client, file: FileId, class: Class) -> Result<Vec<u8>, Status> {
    let answer = ask(c, file, info_type::FILE, class.number(), 65_536).await.ok()?;
    Ok(Response::parse(&answer.message).unwrap().buffer)
}

pub(super) async fn put(
    c: &Client,
    file: FileId,
    info_type: u8,
    class: u8,
    more: u32,
    b: &[u8],
) -> Status {
    let buffer = b.to_vec();
    let r = set_info::Request { info_type, class, additional: more, file, buffer };
    c.ask(Command::SetInfo, &r.emit()).await.status()
}

pub(super) async fn set(c: &Client, file: FileId, set: Set) -> Status {
    let (class, bytes) = set.emit();
    put(c, file, info_type::FILE, class, 0, &bytes).await
}

pub(super) fn to(name: &str, flags: u32) -> NewName {
    NewName { flags, root: 0, name: name.into() }
}

async fn open(c: &Client, name: &str) -> Result<FileId, Status> {
    c.create(name, |r| r.disposition = Disposition::Open as u32).await.map(|r| r.file)
}

/// A class of fixed size is returned completely or not at all; a trailing name is truncated.
#[tokio::test]
async fn short_buffers_get_the_status_of_windows() {
    let c = Harness::new().client();
    let f = c.open("a-name-of-some-length").await;
    for class in Class::ALL {
        let n = class.number();
        let Ok(whole) = query(&c, f, *class).await else { continue };
        let fixed = u32::try_from(class.fixed_len()).unwrap();
        let len = u32::try_from(whole.len()).unwrap();
        if fixed > 0 {
            let status = ask(&c, f, info_type::FILE, n, fixed - 1).await.status();
            assert_eq!(status, Status::INFO_LENGTH_MISMATCH, "{class:?}");
        }
        if len > fixed {
            let cut = ask(&c, f, info_type::FILE, n, fixed).await;
            assert_eq!(cut.status(), Status::BUFFER_OVERFLOW, "{class:?}");
            assert!(Response::parse(&cut.message).unwrap().buffer.len() <= class.fixed_len());
        }
        assert_eq!(ask(&c, f, info_type::FILE, n, len.max(fixed)).await.status(), Status::SUCCESS);
    }
    for class in volume::Class::ALL {
        let fixed = u32::try_from(class.fixed_len()).unwrap();
        let short = ask(&c, f, info_type::FILESYSTEM, class.number(), fixed - 1).await.status();
        let posix = class == volume::Class::Posix;
        let want = if posix { Status::INVALID_INFO_CLASS } else { Status::INFO_LENGTH_MISMATCH };
        assert_eq!(short, want, "{class:?}");
    }
    let small = ask(&c, f, info_type::SECURITY, 0, 4).await;
    assert_eq!(small.status(), Status::BUFFER_TOO_SMALL);
    let needed = u32::from_le_bytes(*small.message.last_chunk().unwrap());
    assert_eq!(ask(&c, f, info_type::SECURITY, 0, needed).await.status(), Status::SUCCESS);
    let much = ask(&c, f, info_type::FILE, Class::All.number(), u32::MAX).await.status();
    assert_eq!(much, Status::INVALID_PARAMETER);
    assert_eq!(ask(&c, f, 9, 4, 65_536).await.status(), Status::INVALID_PARAMETER);
    assert_eq!(ask(&c, f, info_type::QUOTA, 0, 65_536).await.status(), Status::NOT_SUPPORTED);
}

/// MS-FSA section 2.1.5.15.12.
#[tokio::test]
async fn another_name_of_the_same_file_is_replaced_without_a_word() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    assert_eq!(set(&c, f, Set::Link(to("g", 0))).await, Status::SUCCESS);
    assert_eq!(set(&c, f, Set::Rename(to("g", 0))).await, Status::SUCCESS);
    let standard = Standard::parse(&query(&c, f, Class::Standard).await.unwrap()).unwrap();
    assert_eq!(standard.links, 1);
    assert_eq!(open(&c, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    assert_eq!(set(&c, f, Set::Rename(to("h", 0))).await, Status::SUCCESS, "it knows its name");
    assert_eq!(set(&c, f, Set::Rename(to("\\i", 0))).await, Status::INVALID_PARAMETER);
    assert_eq!(set(&c, f, Set::Disposition { flags: 1, ex: false }).await, Status::SUCCESS);
    assert_eq!(set(&c, f, Set::Rename(to("i", 0))).await, Status::ACCESS_DENIED, "it goes");
    assert_eq!(set(&c, f, Set::Link(to("i", 0))).await, Status::ACCESS_DENIED);
    let stream = c.open("other:s").await;
    assert_eq!(set(&c, stream, Set::Link(to("i", 0))).await, Status::INVALID_PARAMETER);
    let other = c.open("other").await;
    assert_eq!(set(&c, other, Set::Rename(to("h", 1))).await, Status::DELETE_PENDING);
}

/// MS-FSA section 2.1.5.15.4, MS-FSCC section 2.4.12.
#[tokio::test]
async fn dispositions_with_flags() {
    use crate::fscc::set::disposition as flag;
    let c = Harness::new().client();
    let f = c.open("f").await;
    let ex = async |file, flags| set(&c, file, Set::Disposition { flags, ex: true }).await;
    assert_eq!(ex(f, 0x20).await, Status::NOT_SUPPORTED, "no such flag");
    assert_eq!(ex(f, flag::DELETE | flag::ON_CLOSE).await, Status::NOT_SUPPORTED);
    let read_only = Basic { attributes: attribute::READONLY, ..Basic::default() };
    assert_eq!(set(&c, f, Set::Basic(read_only)).await, Status::SUCCESS);
    let ignoring = flag::DELETE | flag::IGNORE_READONLY_ATTRIBUTE;
    assert_eq!(ex(f, flag::DELETE).await, Status::CANNOT_DELETE);
    let only = c.create("f", |r| r.access = mask::DELETE).await.unwrap().file;
    assert_eq!(ex(only, ignoring).await, Status::CANNOT_DELETE, "without FILE_WRITE_ATTRIBUTES");
    assert_eq!(ex(f, ignoring).await, Status::SUCCESS);
    assert_eq!(open(&c, "f").await, Err(Status::DELETE_PENDING));
    assert_eq!(ex(f, 0).await, Status::SUCCESS);
    // With POSIX semantics the name disappears when the deleting handle closes; other handles keep the file.
    assert_eq!(ex(f, ignoring | flag::POSIX_SEMANTICS).await, Status::SUCCESS);
    c.close(f).await;
    assert_eq!(open(&c, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    let standard = Standard::parse(&query(&c, only, Class::Standard).await.unwrap()).unwrap();
    assert_eq!((standard.links, standard.delete_pending), (0, 1));
    let new = c.open("f").await;
    c.close(only).await;
    c.close(new).await;
    assert!(open(&c, "f").await.is_ok(), "another file");
    // This file was opened with delete-on-close.
    let g = c.create("g", doom).await.unwrap().file;
    let other = c.open("g").await;
    let at_once = flag::DELETE | flag::ON_CLOSE | flag::POSIX_SEMANTICS;
    assert_eq!(ex(g, at_once).await, Status::SUCCESS);
    assert!(open(&c, "g").await.is_ok(), "not before it closes");
    c.close(g).await;
    assert_eq!(open(&c, "g").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    c.close(other).await;
}

/// MS-SMB2 sections 3.3.5.20.1 and 3.3.5.20.2, with the exceptions that the appendix lists for Windows.
#[tokio::test]
async fn classes_that_are_not_told_are_refused_as_windows_refuses_them() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let of_file = async |class| ask(&c, f, info_type::FILE, class, 65_536).await.status();
    for class in [1, 2, 3, 10, 11, 12, 13, 19, 20, 31, 37, 38, 39, 40, 0, 42, 255] {
        assert_eq!(of_file(class).await, Status::INVALID_INFO_CLASS, "{class}");
    }
    for class in [9, 26, 27, 29, 32, 33, 36, 44, 45, 46, 50, 54, 60, 64, 65, 41, 43, 47, 49, 51, 53]
    {
        assert_eq!(of_file(class).await, Status::NOT_SUPPORTED, "{class}");
    }
    for class in [23, 24, 25] {
        assert_eq!(of_file(class).await, Status::INVALID_PARAMETER, "of a pipe: {class}");
    }
    for (class, want) in [
        (2, Status::NOT_SUPPORTED),
        (9, Status::NOT_SUPPORTED),
        (10, Status::NOT_SUPPORTED),
        (0, Status::INVALID_INFO_CLASS),
        (12, Status::INVALID_INFO_CLASS),
    ] {
        let told = ask(&c, f, info_type::FILESYSTEM, class, 65_536).await.status();
        assert_eq!(told, want, "{class}");
    }
}

/// Dialect 3.1.1 returns one context without data, older dialects return no data (MS-SMB2 sections 3.3.5.20.1 and 2.2.2).
#[tokio::test]
async fn a_buffer_that_is_too_short_is_told_in_the_form_of_the_dialect() {
    let harness = Harness::new();
    for (dialect, body) in [
        (Dialect::V311, &[9_u8, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..]),
        (Dialect::V302, &[9_u8, 0, 0, 0, 0, 0, 0, 0][..]),
    ] {
        let c = harness.client_by(0, dialect, Transport::Tcp);
        let f = c.open("f").await;
        for info_type in [info_type::FILE, info_type::FILESYSTEM] {
            let told = ask(&c, f, info_type, 5, 7).await;
            assert_eq!(told.status(), Status::INFO_LENGTH_MISMATCH);
            assert_eq!(told.message[64..][..body.len()], *body, "{dialect:?}");
        }
    }
}

/// Input that a request does not need is ignored (MS-SMB2 section 3.3.5.20).
#[tokio::test]
async fn input_that_means_nothing_is_passed_over() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let mut r = Request {
        info_type: info_type::FILE,
        class: Class::Basic.number(),
        output_len: 1000,
        additional: 0,
        flags: 0,
        file: f,
        input: Vec::new(),
    };
    let hostile = |r: &Request| {
        let mut body = r.emit();
        body[8..10].copy_from_slice(&60_000_u16.to_le_bytes());
        body[12..16].copy_from_slice(&9_u32.to_le_bytes());
        body
    };
    assert_eq!(c.ask(Command::QueryInfo, &hostile(&r)).await.status(), Status::SUCCESS);
    r.class = Class::FullEa.number();
    assert_eq!(c.ask(Command::QueryInfo, &hostile(&r)).await.status(), Status::INVALID_PARAMETER);
}

#[tokio::test]
async fn every_class_needs_its_right() {
    let c = Harness::new().client();
    let f = c.create("f", |r| r.access = mask::EXECUTE).await.unwrap().file;
    for class in [Class::Basic, Class::All, Class::NetworkOpen, Class::AttributeTag, Class::FullEa]
    {
        assert_eq!(query(&c, f, class).await.unwrap_err(), Status::ACCESS_DENIED, "{class:?}");
    }
    assert!(query(&c, f, Class::Standard).await.is_ok());
    for what in [
        Set::Basic(Basic::default()),
        Set::EndOfFile(1),
        Set::Allocation(1),
        Set::Disposition { flags: 1, ex: false },
        Set::Rename(to("g", 0)),
        Set::FullEa(FullEa { flags: 0, name: b"A".to_vec(), value: b"b".to_vec() }.emit()),
    ] {
        assert_eq!(set(&c, f, what.clone()).await, Status::ACCESS_DENIED, "{what:?}");
    }
    assert_eq!(set(&c, f, Set::ValidDataLength(0)).await, Status::ACCESS_DENIED);
    let security = ask(&c, f, info_type::SECURITY, 0, 65_536).await.status();
    assert_eq!(security, Status::ACCESS_DENIED);
}

/// Windows Server 2019 and later update last-write times at once. A time that an open has set or frozen stays for its own writes.
#[tokio::test]
async fn a_write_shows_at_once_unless_its_open_holds_the_time() {
    let harness = Harness::new();
    let c = harness.client();
    let (sets, other) = (c.open("f").await, c.open("f").await);
    let time = async |file| {
        Basic::parse(&query(&c, file, Class::Basic).await.unwrap()).unwrap().last_write
    };
    let write = async |file| super::ioctl::put(&c, file, 0, b"data").await;
    let made = time(sets).await;
    write(sets).await;
    let first = time(other).await;
    assert!(made.0 < first.0 && time(sets).await == first);
    let old = Basic { last_write: FileTime(130_000_000_000_000_000), ..Basic::default() };
    assert_eq!(set(&c, sets, Set::Basic(old)).await, Status::SUCCESS);
    write(sets).await;
    assert_eq!(time(other).await, old.last_write);
    write(other).await;
    let second = time(sets).await;
    assert!(first.0 < second.0, "the other holds nothing");
    write(sets).await;
    assert_eq!((time(sets).await, time(other).await), (second, second));
    assert_eq!(c.close(sets).await, Status::SUCCESS);
    assert_eq!(time(other).await, second);
}

/// A writer who does not own the file cannot set an old time, so it cannot freeze the time either.
#[tokio::test]
async fn a_writer_who_is_not_the_owner_holds_no_time() {
    let harness = Harness::new();
    let (owner, eve) = (harness.client(), harness.client_as(1005));
    owner.open("f").await;
    let root = harness.core.namespace.shares()[0].backend.root();
    let (node, _) = root.lookup(&Cred::root(), b"f").await.unwrap();
    let mode = SetAttr { mode: Some(0o666), ..SetAttr::default() };
    node.setattr(&Cred::root(), mode, false).await.unwrap();
    let freeze = Basic { last_write: FileTime::FREEZE, ..Basic::default() };
    let old = Basic { last_write: FileTime(130_000_000_000_000_000), ..Basic::default() };
    let access = mask::WRITE_DATA | mask::WRITE_ATTRIBUTES | mask::READ_ATTRIBUTES;
    for (c, holds) in [(&eve, false), (&owner, true)] {
        let f = c.create("f", |r| r.access = access).await.unwrap().file;
        let set_old = set(c, f, Set::Basic(old)).await;
        assert_eq!(set_old == Status::SUCCESS, holds);
        let thaw = Basic { last_write: FileTime::THAW, ..Basic::default() };
        for what in [thaw, freeze] {
            assert_eq!(set(c, f, Set::Basic(what)).await, Status::SUCCESS);
        }
        let before = node.getattr().await.unwrap().mtime;
        super::ioctl::put(c, f, 0, b"data").await;
        assert_eq!(node.getattr().await.unwrap().mtime == before, holds);
        c.close(f).await;
    }
}

/// A write moves the file's time until the frozen time is restored; the next write of the same open must not see the moved time.
#[tokio::test]
async fn writes_of_an_open_that_holds_the_time_go_one_after_the_other() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let open = c.core.opens.get(f).unwrap();
    assert!(turn(&open).await.is_none(), "others need no turn");
    let held = FileTime(0x01d0_0000_0000_0000);
    let basic = Basic { last_write: held, ..Basic::default() };
    assert_eq!(set(&c, f, Set::Basic(basic)).await, Status::SUCCESS);
    let first = turn(&open).await;
    let mut second = pin!(turn(&open));
    let poll = std::future::poll_fn(|task| Poll::Ready(second.as_mut().poll(task).is_ready()));
    assert!(!poll.await);
    drop(first);
    assert!(second.await.is_some());
    check_write(&open, open.file().unwrap(), true).await.unwrap();
    assert_eq!(open.open_state.held().unwrap().write, crate::dtyp::time::time(held));
}

#[tokio::test]
async fn times_and_attributes_are_kept() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let t = |n: u64| FileTime(0x01d0_0000_0000_0000 + n * 10_000_000);
    let b = Basic {
        creation: t(1),
        last_access: t(2),
        last_write: t(3),
        change: t(4),
        attributes: attribute::HIDDEN,
    };
    assert_eq!(set(&c, f, Set::Basic(b)).await, Status::SUCCESS);
    let basic = async || Basic::parse(&query(&c, f, Class::Basic).await.unwrap()).unwrap();
    assert_eq!(basic().await, b);
    assert_eq!(set(&c, f, Set::Basic(Basic::default())).await, Status::SUCCESS);
    assert_eq!(basic().await, b, "zeros change nothing");
    assert_eq!(set(&c, f, Set::EndOfFile(9)).await, Status::SUCCESS);
    assert_eq!(basic().await.last_write, t(3), "what was set stays for what this open does");
    let thaw = Basic { last_write: FileTime::THAW, ..Basic::default() };
    assert_eq!(set(&c, f, Set::Basic(thaw)).await, Status::SUCCESS);
    assert_eq!(set(&c, f, Set::EndOfFile(5)).await, Status::SUCCESS);
    assert!(basic().await.last_write > t(3));
    let odd = Basic { creation: FileTime(u64::MAX - 2), ..Basic::default() };
    assert_eq!(set(&c, f, Set::Basic(odd)).await, Status::INVALID_PARAMETER);
    let dir = Basic { attributes: attribute::DIRECTORY, ..Basic::default() };
    assert_eq!(set(&c, f, Set::Basic(dir)).await, Status::INVALID_PARAMETER);
    let standard = Standard::parse(&query(&c, f, Class::Standard).await.unwrap()).unwrap();
    assert_eq!((standard.end_of_file, standard.links), (5, 1));
}

#[tokio::test]
async fn renames_follow_the_rules_of_windows() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    c.close(c.open("there").await).await;
    let dir = c.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    assert_eq!(set(&c, f, Set::Rename(to("there", 0))).await, Status::OBJECT_NAME_COLLISION);
    assert_eq!(set(&c, f, Set::Rename(to("d", 1))).await, Status::ACCESS_DENIED, "a directory");
    assert_eq!(set(&c, f, Set::Rename(to("no\\x", 0))).await, Status::OBJECT_PATH_NOT_FOUND);
    assert_eq!(set(&c, f, Set::Rename(to("a*b", 0))).await, Status::OBJECT_NAME_INVALID);
    let held = open(&c, "there").await.unwrap();
    assert_eq!(set(&c, f, Set::Rename(to("there", 1))).await, Status::ACCESS_DENIED, "in use");
    c.close(held).await;
    assert_eq!(set(&c, f, Set::Rename(to("THERE", 1))).await, Status::SUCCESS);
    let all = query(&c, f, Class::All).await.unwrap();
    assert_eq!(
        crate::wire::utf16(&all[100..]).unwrap(),
        "\\THERE",
        "in the case that was asked for"
    );
    assert_eq!(set(&c, f, Set::Rename(to("There", 0))).await, Status::SUCCESS, "only its case");
    // A handle with delete access on the directory conflicts with names that move into it.
    assert_eq!(set(&c, f, Set::Rename(to("d\\f", 0))).await, Status::SHARING_VIOLATION);
    c.close(dir).await;
    assert_eq!(set(&c, f, Set::Rename(to("d\\f", 0))).await, Status::SUCCESS);
    let dir = open(&c, "d").await.unwrap();
    assert_eq!(set(&c, dir, Set::Rename(to("e", 0))).await, Status::ACCESS_DENIED, "open below");
    c.close(f).await;
    assert_eq!(set(&c, dir, Set::Rename(to("e", 0))).await, Status::SUCCESS);
    assert!(open(&c, "e\\f").await.is_ok());
    assert_eq!(open(&c, "d\\f").await, Err(Status::OBJECT_PATH_NOT_FOUND));
    let posix = rename::REPLACE_IF_EXISTS | rename::POSIX_SEMANTICS;
    let g = c.open("g").await;
    let held = open(&c, "e\\f").await.unwrap();
    assert_eq!(set(&c, g, Set::Rename(to("e\\f", posix))).await, Status::SHARING_VIOLATION);
    c.close(dir).await;
    assert_eq!(set(&c, g, Set::Rename(to("e\\f", posix))).await, Status::SUCCESS);
    c.close(held).await;
}

#[tokio::test]
async fn links_and_attributes_with_names_are_made() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    assert_eq!(set(&c, f, Set::Link(to("g", 0))).await, Status::SUCCESS);
    assert_eq!(set(&c, f, Set::Link(to("g", 0))).await, Status::OBJECT_NAME_COLLISION);
    let standard = Standard::parse(&query(&c, f, Class::Standard).await.unwrap()).unwrap();
    assert_eq!(standard.links, 2);
    // smbclient sends the separator of the root.
    assert_eq!(set(&c, f, Set::Link(to("\\root", 0))).await, Status::SUCCESS);
    assert!(open(&c, "root").await.is_ok());
    assert_eq!(query(&c, f, Class::FullEa).await, Err(Status::NO_EAS_ON_FILE));
    let ea = |value: &[u8]| FullEa { flags: 0, name: b"One".to_vec(), value: value.to_vec() };
    assert_eq!(set(&c, f, Set::FullEa(ea(b"1").emit())).await, Status::SUCCESS);
    assert_eq!(FullEa::parse_list(&query(&c, f, Class::FullEa).await.unwrap()), Ok(vec![ea(b"1")]));
    let upper = FullEa { name: b"ONE".to_vec(), ..ea(b"2") };
    assert_eq!(set(&c, f, Set::FullEa(upper.emit())).await, Status::SUCCESS);
    assert_eq!(FullEa::parse_list(&query(&c, f, Class::FullEa).await.unwrap()), Ok(vec![ea(b"2")]));
    assert_eq!(set(&c, f, Set::FullEa(ea(b"").emit())).await, Status::SUCCESS);
    assert_eq!(query(&c, f, Class::FullEa).await, Err(Status::NO_EAS_ON_FILE));
    let bad = FullEa { name: b"a:b".to_vec(), ..ea(b"2") };
    assert_eq!(set(&c, f, Set::FullEa(bad.emit())).await, Status::INVALID_EA_NAME);
    let flagged = FullEa { flags: 1, ..ea(b"2") };
    assert_eq!(set(&c, f, Set::FullEa(flagged.emit())).await, Status::INVALID_EA_NAME);
    // MS-SMB2 section 3.3.5.21.1.
    assert_eq!(set(&c, f, Set::FullEa(vec![0; 7])).await, Status::EA_LIST_INCONSISTENT);
}

#[tokio::test]
async fn a_list_that_was_set_is_enforced() {
    let harness = Harness::new();
    let (root, bob) = (harness.client(), harness.client_as(2000));
    let f = root.open("f").await;
    let sd = SecurityDescriptor {
        control: control::DACL_PRESENT,
        dacl: Some(Acl::new(vec![Ace::allow(Sid::everyone(), mask::FILE_READ, 0)])),
        ..Default::default()
    };
    let done = put(&root, f, info_type::SECURITY, 0, part::DACL, &sd.emit()).await;
    assert_eq!(done, Status::SUCCESS);
    let bad = put(&root, f, info_type::SECURITY, 0, part::DACL, &sd.emit()[..19]).await;
    assert_eq!(bad, Status::INVALID_PARAMETER);
    let open = async |access| {
        let asked = bob.create("f", |r| {
            r.access = access;
            r.disposition = Disposition::Open as u32;
        });
        asked.await.map(|r| r.file)
    };
    assert!(open(mask::READ_DATA).await.is_ok());
    assert_eq!(open(mask::WRITE_DATA).await, Err(Status::ACCESS_DENIED));
    let g = open(mask::READ_CONTROL).await.unwrap();
    let set = put(&bob, g, info_type::SECURITY, 0, part::DACL, &sd.emit()).await;
    assert_eq!(set, Status::ACCESS_DENIED);
}

/// MS-FSA section 2.1.5.15.8.
#[tokio::test]
async fn whether_an_open_waits_is_said_when_it_is_opened() {
    /// FILE_SYNCHRONOUS_IO_ALERT.
    const ALERT: u32 = 0x10;
    let c = Harness::new().client();
    let f = c.open("f").await;
    let waits = c.create("f", |r| r.options = ALERT).await.unwrap().file;
    for (file, mode, want) in [
        (f, 2, Status::SUCCESS),
        (f, ALERT, Status::INVALID_PARAMETER),
        (waits, ALERT | 2, Status::SUCCESS),
        (waits, 2, Status::INVALID_PARAMETER),
    ] {
        assert_eq!(set(&c, file, Set::Mode(mode)).await, want, "{mode:#x}");
    }
}

#[tokio::test]
async fn volumes_are_not_to_be_set() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let volume = async |class| put(&c, f, info_type::FILESYSTEM, class, 0, &[0; 64]).await;
    // MS-SMB2 section 3.3.5.21.2.
    for (class, want) in [
        (2, Status::NOT_SUPPORTED),
        (6, Status::INVALID_PARAMETER),
        (8, Status::ACCESS_DENIED),
        (3, Status::INVALID_INFO_CLASS),
    ] {
        assert_eq!(volume(class).await, want, "{class}");
    }
    for class in 0..=255 {
        let none = put(&c, f, info_type::FILE, class, 0, &[]).await;
        assert_eq!(none, Status::INVALID_PARAMETER, "section 3.3.5.21: {class}");
        // A disposition may have a length of one byte.
        if class == 13 {
            continue;
        }
        let want = match class {
            4 | 10 | 11 | 14 | 16 | 19 | 20 | 39 | 40 | 64 | 65 | 72 => {
                Status::INFO_LENGTH_MISMATCH
            }
            15 => Status::EA_LIST_INCONSISTENT,
            29 | 30 | 32 | 41 | 42 | 43 | 44 => Status::NOT_SUPPORTED,
            _ => Status::INVALID_INFO_CLASS,
        };
        assert_eq!(put(&c, f, info_type::FILE, class, 0, &[0]).await, want, "{class}");
    }
}
