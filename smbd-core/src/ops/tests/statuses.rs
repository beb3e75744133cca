//! Statuses for unusual or unsupported requests that Microsoft's test suites send, each with the section that defines it.

use super::info::{set, to};
use super::ioctl::status;
use super::listing::{BIG, list};
use crate::dtyp::mask;
use crate::fscc::set::Set;
use crate::harness::{Client, Harness};
use crate::open::FileId;
use crate::status::Status;
use crate::wire::create::{Disposition, option};
use crate::wire::fsctl::code;
use crate::wire::negotiate::Dialect;
use crate::wire::{Command, query_directory, query_info, set_info};

async fn open_with(c: &Client, name: &str, access: u32, options: u32, d: Disposition) -> Status {
    let opened = c.create(name, |r| {
        (r.access, r.options, r.disposition) = (access, options, d as u32);
    });
    match opened.await {
        Ok(made) => c.close(made.file).await,
        Err(status) => status,
    }
}

#[tokio::test]
async fn creates_are_answered_by_the_text() {
    let harness = Harness::new();
    let c = harness.client();
    let dir = c.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    let in_dir = c.open("d\\f").await;
    c.close(dir).await;
    c.close(in_dir).await;
    const ON_CLOSE: u32 = option::DELETE_ON_CLOSE;
    const FILE: u32 = option::NON_DIRECTORY_FILE;
    use Disposition::{Open, OpenIf};
    let read = mask::READ_DATA;
    for (name, access, options, disposition, want) in [
        // MS-SMB2 section 3.3.5.9: DELETE may be requested in any form.
        ("x", mask::GENERIC_ALL, ON_CLOSE, OpenIf, Status::SUCCESS),
        ("x", mask::MAXIMUM_ALLOWED, ON_CLOSE, OpenIf, Status::SUCCESS),
        ("x", mask::DELETE, ON_CLOSE, OpenIf, Status::SUCCESS),
        ("x", read, ON_CLOSE, OpenIf, Status::ACCESS_DENIED),
        ("x", mask::GENERIC_WRITE, ON_CLOSE, OpenIf, Status::ACCESS_DENIED),
        // The same section defines special path components.
        ("d\\.\\f", read, FILE, Open, Status::SUCCESS),
        (".\\d\\f", read, FILE, Open, Status::SUCCESS),
        ("d\\.", read, 0, Open, Status::SUCCESS),
        ("d\\..\\d\\f", read, FILE, Open, Status::SUCCESS),
        ("..", read, 0, Open, Status::OBJECT_PATH_SYNTAX_BAD),
        // MS-FSA section 2.1.5.1: a missing name is reported before a wrong type.
        ("missing::$INDEX_ALLOCATION", read, FILE, Open, Status::OBJECT_NAME_NOT_FOUND),
        ("missing::$INDEX_ALLOCATION", read, FILE, OpenIf, Status::NOT_A_DIRECTORY),
        ("d::$INDEX_ALLOCATION", read, FILE, Open, Status::NOT_A_DIRECTORY),
        ("d::$INDEX_ALLOCATION", read, 0, Open, Status::SUCCESS),
        ("$Extend\\$Quota:$Q:$INDEX_ALLOCATION", read, 0, Open, Status::OBJECT_PATH_NOT_FOUND),
        ("$Quota:$Q:$INDEX_ALLOCATION", read, 0, OpenIf, Status::OBJECT_NAME_NOT_FOUND),
        ("d:$Q:$INDEX_ALLOCATION", read, 0, Open, Status::INVALID_PARAMETER),
    ] {
        let got = open_with(&c, name, access, options, disposition).await;
        assert_eq!(got, want, "{name} {access:#x} {disposition:?}");
    }
    let left = harness.core.namespace.shares()[0].backend.root();
    let names = left.readdir(&vfs::Cred::root(), 0, 99).await.unwrap().0;
    assert!(names.iter().all(|e| &e.name[..] == b"d"), "{names:?}");
}

#[tokio::test]
async fn controls_are_answered_by_the_text() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let odd = vec![0; (16 << 10) + 1];
    for (control, input, want) in [
        // MS-FSA section 2.1.5.10.30.
        (code::SET_COMPRESSION, &[0, 0][..], Status::SUCCESS),
        (code::SET_COMPRESSION, &[1, 0], Status::NOT_SUPPORTED),
        (code::SET_COMPRESSION, &[2, 0], Status::INVALID_DEVICE_REQUEST),
        (code::SET_COMPRESSION, &[3, 0], Status::INVALID_PARAMETER),
        (code::SET_COMPRESSION, &[0, 1], Status::INVALID_PARAMETER),
        (code::REFS_STREAM_SNAPSHOT_MANAGEMENT, &[0; 32], Status::NOT_SUPPORTED),
        // MS-FSA section 2.1.5.10.37.
        (code::SET_REPARSE_POINT, &odd, Status::IO_REPARSE_DATA_INVALID),
    ] {
        assert_eq!(status(&c, f, control, input).await, want, "{control:#x} {input:02x?}");
    }
}

async fn fs_control(c: &Client, file: FileId, bytes: usize) -> Status {
    let r = set_info::Request {
        info_type: crate::wire::query_info::info_type::FILESYSTEM,
        class: 6,
        additional: 0,
        file,
        buffer: vec![0; bytes],
    };
    c.ask(Command::SetInfo, &r.emit()).await.status()
}

#[tokio::test]
async fn settings_are_answered_by_the_text() {
    let harness = Harness::new();
    let (c, other) = (harness.client(), harness.client_as(1000));
    let with = async |c: &Client, name: &str, access| {
        c.create(name, |r| r.access = access).await.unwrap().file
    };
    let all = mask::FILE_ALL;
    let (f, read) = (with(&c, "f", all).await, with(&c, "f", mask::READ_DATA).await);
    let theirs = with(&other, "theirs", mask::WRITE_DATA | mask::READ_DATA).await;
    let d = c.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    assert_eq!(set(&c, f, Set::EndOfFile(10)).await, Status::SUCCESS);
    let largest = harness.core.namespace.shares()[0].backend.capabilities().size_max;
    let short = |name: &str| Set::ShortName(name.into());
    for (client, file, what, want) in [
        // MS-FSA section 2.1.5.15.14; parameters are checked first, as on Windows.
        (&c, f, Set::ValidDataLength(10), Status::SUCCESS),
        (&c, f, Set::ValidDataLength(9), Status::INVALID_PARAMETER),
        (&c, f, Set::ValidDataLength(11), Status::INVALID_PARAMETER),
        (&c, d, Set::ValidDataLength(0), Status::INVALID_PARAMETER),
        (&c, read, Set::ValidDataLength(10), Status::ACCESS_DENIED),
        (&other, theirs, Set::ValidDataLength(0), Status::PRIVILEGE_NOT_HELD),
        (&other, theirs, Set::ValidDataLength(1), Status::INVALID_PARAMETER),
        // Section 2.1.5.15.13.
        (&c, f, short("no short name"), Status::INVALID_PARAMETER),
        (&other, theirs, short("no short name"), Status::INVALID_PARAMETER),
        (&c, read, short("F.TXT"), Status::ACCESS_DENIED),
        (&other, theirs, short("F.TXT"), Status::PRIVILEGE_NOT_HELD),
        (&c, f, short("F.TXT"), Status::SHORT_NAMES_NOT_ENABLED_ON_VOLUME),
        (&c, f, short(""), Status::SHORT_NAMES_NOT_ENABLED_ON_VOLUME),
        // Sections 2.1.5.15.4 and 2.1.5.15.1.
        (&c, f, Set::EndOfFile(largest + 1), Status::INVALID_PARAMETER),
        (&c, f, Set::EndOfFile(u64::MAX), Status::INVALID_PARAMETER),
        (&c, f, Set::Allocation(largest + 1), Status::INVALID_PARAMETER),
        (&c, f, Set::Allocation(u64::MAX), Status::INVALID_PARAMETER),
    ] {
        assert_eq!(set(client, file, what.clone()).await, want, "{what:?}");
    }
    // Section 2.1.5.16.6.
    for (file, bytes, want) in [
        (f, 48, Status::INVALID_PARAMETER),
        (f, 47, Status::INFO_LENGTH_MISMATCH),
        (read, 48, Status::ACCESS_DENIED),
    ] {
        assert_eq!(fs_control(&c, file, bytes).await, want, "{bytes}");
    }
    // Section 2.1.5.15.11.1.
    let stream = with(&c, "f:s", all).await;
    for (name, want) in [
        (":t:$INDEX_ALLOCATION", Status::OBJECT_TYPE_MISMATCH),
        (":t:$FOO", Status::OBJECT_TYPE_MISMATCH),
        (":t:", Status::OBJECT_TYPE_MISMATCH),
        (":t:$data", Status::SUCCESS),
        (":u", Status::SUCCESS),
    ] {
        assert_eq!(set(&c, stream, Set::Rename(to(name, 0))).await, want, "{name}");
    }
}

/// A pattern matches the trailing dot or space of a name, although clients see another character (MS-FSA section 2.1.4.4).
#[tokio::test]
async fn patterns_see_the_last_character() {
    let harness = Harness::new();
    let posix = harness.posix_client();
    for name in ["x\u{f029}", "y\u{f028}", "x"] {
        let made = posix.open(name).await;
        posix.close(made).await;
    }
    let c = harness.client();
    let root = c.create("", |r| (r.access, r.options) = (mask::READ_DATA, 0)).await.unwrap().file;
    for (pattern, want) in [
        ("x\"", vec!["x\u{f029}", "x"]),
        ("x\u{f029}*", vec!["x\u{f029}"]),
        ("y ", vec!["y\u{f028}"]),
        ("y?", vec!["y\u{f028}"]),
        ("? *", vec!["y\u{f028}"]),
    ] {
        let found = list(&c, root, pattern, 1, BIG).await;
        assert_eq!(found, Ok(want.into_iter().map(str::to_owned).collect()), "{pattern:?}");
    }
}

/// Only CANCEL identifies a request by AsyncId (MS-SMB2 sections 2.2.1.1 and 2.2.1.2).
#[tokio::test]
async fn asynchronous_requests_are_invalid() {
    use crate::wire::{Flags, Header};
    let c = Harness::new().client();
    let f = c.open("f").await;
    for command in
        Command::ALL.into_iter().filter(|c| !matches!(c, Command::Cancel | Command::Negotiate))
    {
        for tree_or_async in [Header::of_tree(c.tree_id), 7, u64::MAX] {
            let mut header = c.header(command, 1);
            (header.flags.0, header.tree_or_async) = (Flags::ASYNC, tree_or_async);
            let told = c.send(&header, &[0; 64]).await;
            assert_eq!(told.status(), Status::INVALID_PARAMETER, "{command:?}");
        }
    }
    assert_eq!(c.close(f).await, Status::SUCCESS);
}

/// MS-SMB2 section 3.3.5.2.6: offsets into the header and beyond the message.
#[tokio::test]
async fn buffers_elsewhere_are_invalid() {
    let c = Harness::new().client();
    let root = c.create("", |r| (r.access, r.options) = (mask::READ_DATA, 0)).await.unwrap().file;
    let listing = query_directory::Request {
        class: 1,
        flags: 0,
        file_index: 0,
        file: root,
        output_len: 1000,
        pattern: "*".into(),
    };
    let eas = query_info::Request {
        info_type: query_info::info_type::FILE,
        class: 15,
        output_len: 1000,
        additional: 0,
        flags: 0,
        file: root,
        input: vec![0; 8],
    };
    let set = set_info::Request {
        info_type: query_info::info_type::FILE,
        class: 20,
        additional: 0,
        file: root,
        buffer: vec![0; 8],
    };
    for (command, body, at) in [
        (Command::QueryDirectory, listing.emit(), 24),
        (Command::QueryInfo, eas.emit(), 8),
        (Command::SetInfo, set.emit(), 8),
    ] {
        for offset in [0_u16, 64, 90, 500, u16::MAX] {
            let mut body = body.clone();
            body[at..at + 2].copy_from_slice(&offset.to_le_bytes());
            let told = c.ask(command, &body).await.status();
            assert_eq!(told, Status::INVALID_PARAMETER, "{command:?} {offset}");
        }
    }
    // Section 3.3.5.20: other information classes have no input, and its fields are ignored.
    let body = query_info::Request { class: 5, ..eas }.emit();
    for (offset, len) in [(0_u16, 8_u32), (500, u32::MAX)] {
        let mut body = body.clone();
        body[8..10].copy_from_slice(&offset.to_le_bytes());
        body[12..16].copy_from_slice(&len.to_le_bytes());
        let told = c.ask(Command::QueryInfo, &body).await.status();
        assert_eq!(told, Status::SUCCESS, "{offset} {len}");
    }
}

/// Section 3.3.5.20.1: the access that each class of file information requires.
#[tokio::test]
async fn information_asks_for_its_right() {
    let c = Harness::new().client();
    let made = c.open("f").await;
    c.close(made).await;
    let attributes = [4, 18, 34, 35];
    for right in [mask::READ_DATA, mask::READ_ATTRIBUTES, mask::READ_EA, mask::SYNCHRONIZE] {
        let f = c.create("f", |r| r.access = right).await.unwrap().file;
        for class in [4, 5, 6, 7, 8, 14, 15, 16, 17, 18, 21, 22, 28, 34, 35, 48, 59] {
            let r = query_info::Request {
                info_type: query_info::info_type::FILE,
                class,
                output_len: 1000,
                additional: 0,
                flags: 0,
                file: f,
                input: Vec::new(),
            };
            let refused =
                c.ask(Command::QueryInfo, &r.emit()).await.status() == Status::ACCESS_DENIED;
            let wants = match class {
                _ if attributes.contains(&class) => mask::READ_ATTRIBUTES,
                15 => mask::READ_EA,
                _ => 0,
            };
            assert_eq!(refused, right & wants != wants, "class {class} with {right:#x}");
        }
        c.close(f).await;
    }
}

/// MS-FSA section 2.1.5.12.27: entries that fit, and BUFFER_OVERFLOW if some do not.
#[tokio::test]
async fn stream_lists_end_where_they_fit() {
    use crate::fscc::stream::Stream;
    let c = Harness::new().client();
    for name in ["f", "f:a", "f:bb", "f:a longer name"] {
        let made = c.open(name).await;
        c.close(made).await;
    }
    let f = c.open("f").await;
    let ask = async |output_len| {
        let r = query_info::Request {
            info_type: query_info::info_type::FILE,
            class: 22,
            output_len,
            additional: 0,
            flags: 0,
            file: f,
            input: Vec::new(),
        };
        let told = c.ask(Command::QueryInfo, &r.emit()).await;
        let read = query_info::Response::parse(&told.whole()).map(|read| read.buffer);
        (told.status(), read.unwrap_or_default())
    };
    let (status, whole) = ask(1000).await;
    assert_eq!(status, Status::SUCCESS);
    let all = Stream::parse_list(&whole).unwrap();
    assert_eq!((all.len(), &all[0].name[..]), (4, "::$DATA"));
    let end = |count: usize| -> usize {
        all[..count].iter().fold(0, |at, one| at.next_multiple_of(8) + one.emit().len())
    };
    for limit in 32..=whole.len() {
        let (status, buffer) = ask(u32::try_from(limit).unwrap()).await;
        let count = (0..=4).rev().find(|count| end(*count) <= limit).unwrap();
        let want = if count == 4 { Status::SUCCESS } else { Status::BUFFER_OVERFLOW };
        assert_eq!(status, want, "{limit}");
        assert_eq!(Stream::parse_list(&buffer).unwrap(), all[..count], "{limit}");
    }
}

/// A special file has the same tag in listings, file information and reparse data (MS-FSCC section 2.1.2.1), and is deleted by it.
#[tokio::test]
async fn special_files_have_one_tag() {
    use crate::wire::reparse::Reparse;
    let c = Harness::new().client();
    let dir = c.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    let kinds =
        [Reparse::NfsFifo, Reparse::NfsSocket, Reparse::NfsChar(1, 3), Reparse::NfsBlock(7, 0)];
    for kind in kinds {
        let f = c.open("d\\x").await;
        assert_eq!(status(&c, f, code::SET_REPARSE_POINT, &kind.emit()).await, Status::SUCCESS);
        let listing = query_directory::Request {
            class: 37,
            flags: query_directory::flag::REOPEN,
            file_index: 0,
            file: dir,
            output_len: 1000,
            pattern: "x".into(),
        };
        let told = c.ask(Command::QueryDirectory, &listing.emit()).await.whole();
        let entry = query_directory::Response::parse(&told).unwrap().buffer;
        let tag = query_info::Request {
            info_type: query_info::info_type::FILE,
            class: 35,
            output_len: 8,
            additional: 0,
            flags: 0,
            file: f,
            input: Vec::new(),
        };
        let told = c.ask(Command::QueryInfo, &tag.emit()).await.whole();
        let info = query_info::Response::parse(&told).unwrap().buffer;
        let read = super::ioctl::done(&c, f, code::GET_REPARSE_POINT, &[]).await;
        assert_eq!((&entry[64..68], &info[4..8]), (&read[..4], &read[..4]), "{kind:?}");
        // Delete with the listed tag and without data.
        let by_tag = [&entry[64..68], &[0; 4]].concat();
        let gone = status(&c, f, code::DELETE_REPARSE_POINT, &by_tag).await;
        assert_eq!(gone, Status::SUCCESS, "{kind:?}");
        assert_eq!(c.close(f).await, Status::SUCCESS);
    }
}

/// Before dialect 3.0 durable handles of version 2 do not exist (MS-SMB2 section 3.3.5.9.12).
#[tokio::test]
async fn old_dialects_find_no_new_handle() {
    use crate::wire::context::name::DURABLE_HANDLE_RECONNECT_V2;
    use crate::wire::create::Context;
    use rdma_transport::channel::Transport;
    let harness = Harness::new();
    for dialect in [Dialect::V202, Dialect::V210] {
        let c = harness.client_by(0, dialect, Transport::Tcp);
        let data = std::borrow::Cow::Owned(vec![0; 36]);
        let name = std::borrow::Cow::Borrowed(DURABLE_HANDLE_RECONNECT_V2);
        let again = c.create("f", |r| r.contexts = vec![Context { name, data }]);
        assert_eq!(again.await.unwrap_err(), Status::OBJECT_NAME_NOT_FOUND, "{dialect:?}");
    }
}
