//! READ, WRITE, FLUSH and CLOSE: lengths, offsets, access, and client memory.

use std::sync::atomic::Ordering;

use rdma_transport::channel::{Place, RemoteSeg, Transport};
use vfs::local::{LocalBackend, LocalConfig};

use crate::dtyp::mask;
use crate::harness::{Answered, Client, Harness};
use crate::open::FileId;
use crate::ops::tests::info::put;
use crate::status::Status;
use crate::violation::Violation;
use crate::wire::create::option;
use crate::wire::negotiate::Dialect;
use crate::wire::query_info::{info_type, security_information as part};
use crate::wire::rdma::Channel;
use crate::wire::{Command, close, flush, lock, read, session_setup, write};

pub(super) const RDMA: Transport = Transport::Rdma("test");

pub(super) fn reading(file: FileId, offset: u64, length: u32) -> read::Request {
    read::Request {
        padding: 80,
        flags: 0,
        length,
        offset,
        file,
        minimum_count: 0,
        channel: Some(Channel::None),
        remaining: 0,
        descriptors: Vec::new(),
    }
}

pub(super) fn writing(file: FileId, offset: u64, length: usize) -> write::Request {
    write::Request {
        data_offset: write::Request::DATA_OFFSET,
        length: u32::try_from(length).unwrap(),
        offset,
        file,
        channel: Some(Channel::None),
        remaining: 0,
        flags: 0,
        descriptors: Vec::new(),
        transform: None,
    }
}

async fn read(c: &Client, r: &read::Request) -> Answered {
    c.ask(Command::Read, &r.emit()).await
}

pub(super) async fn write(c: &Client, file: FileId, offset: u64, data: &[u8]) -> Status {
    let body = writing(file, offset, data.len()).emit();
    c.ask_with(Command::Write, &body, data).await.status()
}

/// The write-through flag, by dialect, request flags and options of the handle (MS-SMB2 section 3.3.5.13).
#[tokio::test]
async fn write_through_needs_unbuffered_writes() {
    const BOTH: u32 = write::WRITE_THROUGH | write::WRITE_UNBUFFERED;
    let harness = Harness::new();
    for (n, dialect) in (1..).zip(Dialect::ALL) {
        let c = harness.machine(n, 0, dialect, Transport::Tcp);
        for options in [0, option::WRITE_THROUGH, option::NO_INTERMEDIATE_BUFFERING] {
            let file = c.create("f", |r| r.options = options).await.unwrap().file;
            for flags in [0, write::WRITE_THROUGH, write::WRITE_UNBUFFERED, BOTH] {
                let request = write::Request { flags, ..writing(file, 0, 4) };
                let done = c.ask_with(Command::Write, &request.emit(), b"data").await.status();
                let is_told = match dialect {
                    Dialect::V202 => false,
                    Dialect::V210 | Dialect::V300 => flags & write::WRITE_THROUGH != 0,
                    Dialect::V302 | Dialect::V311 => flags == write::WRITE_THROUGH,
                };
                let is_refused = is_told && options != option::NO_INTERMEDIATE_BUFFERING;
                let want = if is_refused { Status::INVALID_PARAMETER } else { Status::SUCCESS };
                assert_eq!(done, want, "{dialect:?} {options:#x} {flags:#x}");
            }
            c.close(file).await;
        }
    }
}

/// Each violation is answered, counted, and logged once per connection.
#[tokio::test]
async fn a_body_that_breaks_its_format_breaks_a_rule() {
    let c = Harness::new().client();
    let noted = || {
        let rules = rdma_transport::count::broken_rules();
        rules.iter().find(|(rule, _)| *rule == Violation::Format.name()).map_or(0, |(_, n)| *n)
    };
    let f = c.open("f").await;
    let good = [
        (Command::Flush, flush::Request::of(f).emit()),
        (Command::Read, reading(f, 0, 1).emit()),
        (Command::Close, close::Request { flags: 0, file: f }.emit()),
        (Command::SessionSetup, session_setup::Request::default().emit()),
    ];
    for (command, body) in good {
        let before = noted();
        let answer = c.ask(command, &body[..body.len() / 2]).await;
        assert_eq!(answer.status(), Status::INVALID_PARAMETER, "{command:?}");
        // Other tests violate rules concurrently.
        assert!(noted() > before, "{command:?}");
    }
    // A complete message with a truncated buffer.
    let before = noted();
    let short = put(&c, f, info_type::SECURITY, 0, part::DACL, &[1, 0, 4]).await;
    assert_eq!((short, noted() > before), (Status::INVALID_PARAMETER, true));
    let reported = c.conn.reported.load(Ordering::Relaxed);
    assert_eq!(reported, 1 << Violation::Format as u32);
}

/// A waiting command keeps its message in memory, so commands without data may not have trailing bytes.
#[tokio::test]
async fn nothing_large_stands_behind_a_command_without_data() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let element = lock::Element { offset: 0, length: 1, flags: lock::flag::EXCLUSIVE };
    let locks = |n| lock::Request {
        sequence_number: 0,
        sequence_index: 0,
        file: f,
        locks: vec![
            lock::Element { flags: element.flags | lock::flag::FAIL_IMMEDIATELY, ..element };
            n
        ],
    };
    let cases = [
        (Command::Lock, locks(1).emit()),
        (Command::Flush, flush::Request::of(f).emit()),
        (Command::Read, reading(f, 0, 1).emit()),
        (Command::Close, close::Request { flags: 0, file: f }.emit()),
    ];
    for (command, body) in cases {
        let behind = [&body[..], &vec![7; 8 << 20]].concat();
        let answer = c.ask(command, &behind).await.status();
        assert_eq!(answer, Status::INVALID_PARAMETER, "{command:?}");
        let little = [&body[..], &[7; 64]].concat();
        assert_ne!(
            c.ask(command, &little).await.status(),
            Status::INVALID_PARAMETER,
            "{command:?}"
        );
    }
    // The announced elements are part of the message.
    let f = c.open("f").await;
    let many = lock::Request { file: f, ..locks(1000) };
    let once = c.ask(Command::Lock, &many.emit()).await.status();
    assert_eq!(once, Status::LOCK_NOT_GRANTED, "the second element meets the first");
}

#[tokio::test]
async fn what_is_written_is_read() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let data: Vec<u8> =
        (0..3 << 20).map(|i: u32| i.to_le_bytes()[1] ^ i.to_le_bytes()[0]).collect();
    assert_eq!(write(&c, f, 5, &data).await, Status::SUCCESS);
    let a = read(&c, &reading(f, 0, 8 << 20)).await;
    let told = read::Response::parse(&a.message).unwrap();
    assert_eq!(
        told,
        read::Response { data_offset: 80, data_length: 5 + (3 << 20), ..read::Response::default() }
    );
    assert_eq!(a.payloads[0].at, 80);
    assert_eq!(a.data()[..5], [0; 5]);
    assert!(a.data()[5..] == data);
    let body = flush::Request::of(f).emit();
    assert_eq!(c.ask(Command::Flush, &body).await.status(), Status::SUCCESS);
    let body = close::Request { flags: close::POSTQUERY_ATTRIB, file: f }.emit();
    let a = c.ask(Command::Close, &body).await;
    let basics = close::Response::parse(&a.message).unwrap().basics.unwrap();
    assert_eq!(basics.end_of_file, 5 + (3 << 20));
}

#[tokio::test]
async fn the_end_of_a_file_is_an_error_only_when_nothing_comes() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    assert_eq!(write(&c, f, 0, b"0123456789").await, Status::SUCCESS);
    assert_eq!(read(&c, &reading(f, 4, 100)).await.data(), b"456789");
    assert_eq!(read(&c, &reading(f, 10, 1)).await.status(), Status::END_OF_FILE);
    assert_eq!(read(&c, &reading(f, 11, 0)).await.status(), Status::SUCCESS);
    let least = read::Request { minimum_count: 7, ..reading(f, 4, 100) };
    assert_eq!(read(&c, &least).await.status(), Status::END_OF_FILE);
    let least = read::Request { minimum_count: 6, ..least };
    assert_eq!(read(&c, &least).await.status(), Status::SUCCESS);
}

#[tokio::test]
async fn hostile_offsets_and_lengths_are_refused() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let bad = Status::INVALID_PARAMETER;
    for (offset, length) in [(0, (8 << 20) + 1), (0, u32::MAX), (1 << 63, 1), (u64::MAX, 1)] {
        assert_eq!(read(&c, &reading(f, offset, length)).await.status(), bad, "{offset} {length}");
    }
    assert_eq!(write(&c, f, 1 << 63, b"x").await, bad);
    assert_eq!(write(&c, f, i64::MAX.cast_unsigned(), b"xx").await, bad);
    for (data_offset, length) in [(112, 9), (112, u32::MAX), (64, 8), (0, 8), (u16::MAX, 8)] {
        let r = write::Request { data_offset, length, ..writing(f, 0, 0) };
        let mut body = r.emit();
        body.extend([0; 8]);
        assert_eq!(c.ask(Command::Write, &body).await.status(), bad, "{data_offset} {length}");
    }
    let undefined = read::Request { channel: None, ..reading(f, 0, 1) };
    assert_eq!(read(&c, &undefined).await.status(), bad);
    assert_eq!(write(&c, f, 7, b"").await, Status::SUCCESS);
    let dir = c.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    assert_eq!(read(&c, &reading(dir, 0, 1)).await.status(), Status::INVALID_DEVICE_REQUEST);
    assert_eq!(write(&c, dir, 0, b"x").await, Status::INVALID_DEVICE_REQUEST);
}

#[tokio::test]
async fn an_open_does_what_it_was_granted() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    assert_eq!(write(&c, f, 0, b"abc").await, Status::SUCCESS);
    let open = async |access| c.create("f", |r| r.access = access).await.unwrap().file;
    let reader = open(mask::READ_DATA).await;
    assert_eq!(write(&c, reader, 0, b"x").await, Status::ACCESS_DENIED);
    let body = flush::Request::of(reader).emit();
    assert_eq!(c.ask(Command::Flush, &body).await.status(), Status::ACCESS_DENIED);
    let writer = open(mask::WRITE_DATA).await;
    assert_eq!(read(&c, &reading(writer, 0, 1)).await.status(), Status::ACCESS_DENIED);
    let runner = open(mask::EXECUTE).await;
    assert_eq!(read(&c, &reading(runner, 0, 3)).await.data(), b"abc");
}

/// An offset of all ones means the end of the file when the data is written (MS-FSA section 2.1.5.4).
#[tokio::test(flavor = "multi_thread")]
async fn two_who_append_write_behind_each_other() {
    const EACH: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(LocalConfig::new(dir.path())).unwrap();
    let harness = Harness::on(backend, None);
    let mut tasks = Vec::new();
    for (name, access) in [("one ", mask::APPEND_DATA), ("two ", mask::WRITE_DATA)] {
        let c = harness.client_as(0);
        tasks.push(tokio::spawn(async move {
            let f = c.create("f", |r| r.access = access).await.unwrap().file;
            for _ in 0..EACH {
                assert_eq!(write(&c, f, u64::MAX, name.as_bytes()).await, Status::SUCCESS);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let all = std::fs::read(dir.path().join("f")).unwrap();
    let count = |what: &[u8]| all.chunks(4).filter(|c| *c == what).count();
    assert_eq!((count(b"one "), count(b"two "), all.len()), (EACH, EACH, 8 * EACH));
}

/// MS-SMB2 section 3.3.5.13.
#[tokio::test]
async fn whoever_may_only_append_changes_nothing_that_is_there() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    assert_eq!(write(&c, f, 0, b"0123456789").await, Status::SUCCESS);
    let only = c.create("f", |r| r.access = mask::APPEND_DATA).await.unwrap().file;
    for offset in [0, 9] {
        assert_eq!(write(&c, only, offset, b"xy").await, Status::ACCESS_DENIED, "{offset}");
    }
    assert_eq!(write(&c, only, 10, b"ab").await, Status::SUCCESS);
    assert_eq!(write(&c, only, u64::MAX, b"cd").await, Status::SUCCESS, "at the end");
    assert_eq!(read(&c, &reading(f, 0, 100)).await.data(), b"0123456789abcd");
    let data = c.create("f", |r| r.access = mask::WRITE_DATA).await.unwrap().file;
    assert_eq!(write(&c, data, 13, b"ef").await, Status::SUCCESS, "Windows extends it, too");
}

/// MS-SMB2 section 3.3.5.13.
#[tokio::test]
async fn data_begins_near_its_header() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let far = async |data_offset: u16| {
        let r = write::Request { data_offset, ..writing(f, 0, 4) };
        let mut body = r.emit();
        body.resize(usize::from(data_offset) - 64, 0);
        body.extend(b"data");
        c.ask(Command::Write, &body).await.status()
    };
    assert_eq!(far(0x100).await, Status::SUCCESS);
    assert_eq!(far(0x108).await, Status::INVALID_PARAMETER);
}

#[tokio::test]
async fn memory_of_the_client_is_named_on_rdma_only() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    let descriptors = vec![RemoteSeg { handle: 1, len: 8, offset: 0 }];
    let channel = Some(Channel::RdmaV1);
    let r = read::Request { channel, descriptors: descriptors.clone(), ..reading(f, 0, 8) };
    assert_eq!(read(&c, &r).await.status(), Status::INVALID_PARAMETER);
    let w =
        write::Request { channel, descriptors, remaining: 8, data_offset: 0, ..writing(f, 0, 0) };
    assert_eq!(c.ask(Command::Write, &w.emit()).await.status(), Status::INVALID_PARAMETER);
}

/// The transport has no memory for the data: the write fails without effect, and succeeds later.
#[tokio::test]
async fn write_without_memory_is_refused() {
    let c = Harness::new().client_by(0, Dialect::V311, RDMA);
    let f = c.open("f").await;
    let w = write::Request {
        channel: Some(Channel::RdmaV1Invalidate),
        descriptors: vec![RemoteSeg { handle: 7, len: 10, offset: 0 }],
        remaining: 10,
        data_offset: 0,
        ..writing(f, 0, 0)
    };
    let body = w.emit();
    let (a, ()) = tokio::join!(c.ask(Command::Write, &body), c.pull_gets_no_memory());
    assert_eq!((a.status(), a.invalidate), (Status::INSUFFICIENT_RESOURCES, Some(7)));
    let read_back = async || read(&c, &reading(f, 0, 50)).await.status();
    assert_eq!(read_back().await, Status::END_OF_FILE);
    let (a, _) = tokio::join!(c.ask(Command::Write, &body), c.pull_gets(b"0123456789"));
    assert_eq!((a.status(), read_back().await), (Status::SUCCESS, Status::SUCCESS));
}

#[tokio::test]
async fn data_goes_to_and_comes_from_all_descriptors() {
    let c = Harness::new().client_by(0, Dialect::V311, RDMA);
    let f = c.open("f").await;
    let seg = |handle, len| RemoteSeg { handle, len, offset: u64::from(handle) << 32 };
    let w = write::Request {
        channel: Some(Channel::RdmaV1Invalidate),
        descriptors: vec![seg(7, 4), seg(8, 100)],
        remaining: 10,
        data_offset: 0,
        ..writing(f, 0, 0)
    };
    let body = w.emit();
    let (a, from) = tokio::join!(c.ask(Command::Write, &body), c.pull_gets(b"0123456789"));
    assert_eq!((a.status(), a.invalidate), (Status::SUCCESS, Some(7)));
    assert_eq!(from, [seg(7, 4), RemoteSeg { len: 6, ..seg(8, 0) }]);
    let r = read::Request {
        channel: Some(Channel::RdmaV1),
        descriptors: vec![seg(1, 3), seg(2, 3), seg(3, 100)],
        ..reading(f, 2, 50)
    };
    let a = read(&c, &r).await;
    assert_eq!((a.status(), a.invalidate), (Status::SUCCESS, None));
    let told = read::Response::parse(&a.message).unwrap();
    assert_eq!((told.data_length, told.data_remaining), (0, 8));
    assert_eq!(a.data(), b"23456789");
    let Place::Remote(segs) = &a.payloads[0].place else { panic!("{:?}", a.payloads) };
    assert_eq!(segs.iter().map(|s| s.handle).collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test]
async fn too_little_memory_and_failures_invalidate_too() {
    let c = Harness::new().client_by(0, Dialect::V311, RDMA);
    let f = c.open("f").await;
    let r = read::Request {
        channel: Some(Channel::RdmaV1Invalidate),
        descriptors: vec![RemoteSeg { handle: 9, len: 8, offset: 0 }],
        ..reading(f, 0, 8)
    };
    let a = read(&c, &r).await;
    assert_eq!((a.status(), a.invalidate), (Status::END_OF_FILE, Some(9)));
    let short = read::Request { length: 9, ..r.clone() };
    assert_eq!(read(&c, &short).await.status(), Status::INVALID_PARAMETER);
    let none = read::Request { descriptors: vec![], ..r.clone() };
    assert_eq!(read(&c, &none).await.status(), Status::INVALID_PARAMETER);
    let w = |remaining, length| write::Request {
        channel: Some(Channel::RdmaV1),
        descriptors: vec![RemoteSeg { handle: 9, len: u32::MAX, offset: 0 }],
        remaining,
        length,
        data_offset: 0,
        ..writing(f, 0, 0)
    };
    let status = async |r: write::Request| c.ask(Command::Write, &r.emit()).await.status();
    assert_eq!(status(w((8 << 20) + 1, 0)).await, Status::INVALID_PARAMETER, "before any memory");
    assert_eq!(status(w(8, 8)).await, Status::INVALID_PARAMETER, "data in both places");
    assert_eq!(status(w(0, 0)).await, Status::INVALID_PARAMETER, "no data");
    let no_first = write::Request {
        descriptors: [0, 8].map(|len| RemoteSeg { handle: 9, len, offset: 0 }).to_vec(),
        ..w(8, 0)
    };
    assert_eq!(status(no_first).await, Status::INVALID_PARAMETER, "an empty first descriptor");
    let mut nowhere = w(8, 0).emit();
    nowhere[40..42].fill(0);
    let a = c.ask(Command::Write, &nowhere).await;
    assert_eq!(a.status(), Status::INVALID_PARAMETER, "WriteChannelInfoOffset of 0");
    let nothing = read::Request { length: 0, ..r };
    assert_eq!(read(&c, &nothing).await.status(), Status::INVALID_PARAMETER);
}

#[tokio::test]
async fn old_dialects_know_no_channels() {
    let c = Harness::new().client_by(0, Dialect::V210, Transport::Tcp);
    let f = c.open("f").await;
    assert_eq!(write(&c, f, 0, b"abc").await, Status::SUCCESS);
    let reserved = read::Request { channel: None, ..reading(f, 0, 3) };
    assert_eq!(read(&c, &reserved).await.data(), b"abc");
}

/// Late requests of a lost connection must not change data; reading is harmless (MS-SMB2 section 3.3.5.2.10).
#[tokio::test]
async fn what_comes_late_from_a_lost_connection_is_not_written() {
    let c = Harness::new().client();
    let f = c.open("f").await;
    assert_eq!(write(&c, f, 0, b"first").await, Status::SUCCESS);
    c.sequence.store(1, Ordering::Relaxed);
    assert_eq!(write(&c, f, 0, b"again").await, Status::SUCCESS);
    c.sequence.store(0, Ordering::Relaxed);
    assert_eq!(write(&c, f, 0, b"late!").await, Status::FILE_NOT_AVAILABLE);
    assert_eq!(read(&c, &reading(f, 0, 5)).await.data(), b"again");
    let of_2_1 = Harness::new().client_by(0, Dialect::V210, Transport::Tcp);
    let f = of_2_1.open("f").await;
    of_2_1.sequence.store(1, Ordering::Relaxed);
    assert_eq!(write(&of_2_1, f, 0, b"x").await, Status::SUCCESS);
    of_2_1.sequence.store(0, Ordering::Relaxed);
    assert_eq!(write(&of_2_1, f, 0, b"y").await, Status::SUCCESS, "there the field means nothing");
}

/// A replayed write waits until the original has finished (same section).
#[tokio::test]
async fn a_write_that_is_sent_again_does_not_meet_the_first_one() {
    let c = Harness::new().client_by(0, Dialect::V311, RDMA);
    let f = c.open("f").await;
    let remote = write::Request {
        data_offset: 0,
        channel: Some(Channel::RdmaV1),
        remaining: 5,
        descriptors: vec![RemoteSeg { handle: 7, len: 5, offset: 0 }],
        ..writing(f, 0, 0)
    };
    let remote = remote.emit();
    let (lost, ()) = tokio::join!(c.ask(Command::Write, &remote), async {
        c.sequence.store(1, Ordering::Relaxed);
        c.replays.store(true, Ordering::Relaxed);
        assert_eq!(write(&c, f, 0, b"again").await, Status::FILE_NOT_AVAILABLE);
        c.pull_gets(b"first").await;
    });
    assert_eq!(lost.status(), Status::SUCCESS);
    assert_eq!(write(&c, f, 0, b"again").await, Status::SUCCESS);
    assert_eq!(read(&c, &reading(f, 0, 5)).await.data(), b"again");
}

/// Storage that loses the data it has accepted, and reports the error once.
#[derive(Debug)]
struct FailsOnce(std::sync::atomic::AtomicBool);

impl vfs::local::SyncCalls for FailsOnce {
    fn fsync(&self, _: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
        match self.0.swap(false, Ordering::SeqCst) {
            true => Err(std::io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }
}

/// Linux reports a failed write-back to a single caller; the gateway reports it once to each open with unflushed writes.
#[tokio::test]
async fn each_open_with_unflushed_writes_learns_that_they_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Some(std::sync::Arc::new(FailsOnce(true.into())) as _);
    let backend = LocalBackend::open(LocalConfig { calls, ..LocalConfig::new(dir.path()) });
    let c = Harness::on(backend.unwrap(), None).client();
    let (a, b, closed, clean) =
        (c.open("f").await, c.open("f").await, c.open("f").await, c.open("f").await);
    for f in [a, b, closed] {
        assert_eq!(write(&c, f, 0, b"data").await, Status::SUCCESS);
    }
    let flush = async |file| c.ask(Command::Flush, &flush::Request::of(file).emit()).await.status();
    assert_eq!(flush(a).await, Status::UNEXPECTED_IO_ERROR, "the system's own report");
    assert_eq!(flush(a).await, Status::SUCCESS, "told once");
    assert_eq!(flush(b).await, Status::UNEXPECTED_IO_ERROR);
    assert_eq!(flush(b).await, Status::SUCCESS);
    assert_eq!(flush(clean).await, Status::SUCCESS, "it has written nothing");
    assert_eq!(c.close(closed).await, Status::UNEXPECTED_IO_ERROR);
    assert_eq!(c.close(closed).await, Status::FILE_CLOSED, "it is closed all the same");
    assert_eq!(write(&c, a, 0, b"data").await, Status::SUCCESS);
    for f in [a, b, clean] {
        assert_eq!(c.close(f).await, Status::SUCCESS);
    }
}

/// Closing a stream sets the file's last-write time; on a strict share this must be durable before the response.
#[tokio::test]
async fn a_close_tells_that_its_times_are_not_kept() {
    for fails in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let device = std::sync::Arc::new(FailsOnce(false.into()));
        let config = LocalConfig { calls: Some(device.clone()), ..LocalConfig::new(dir.path()) };
        let harness = Harness::on(LocalBackend::open(config).unwrap(), None);
        harness.core.namespace.shares()[0].backend.set_strict(true, true);
        let c = harness.client();
        let made = c.create("f:s", |r| r.options = option::WRITE_THROUGH).await.unwrap();
        assert_eq!(write(&c, made.file, 0, b"data").await, Status::SUCCESS);
        device.0.store(fails, Ordering::SeqCst);
        let told = if fails { Status::UNEXPECTED_IO_ERROR } else { Status::SUCCESS };
        assert_eq!(c.close(made.file).await, told);
        assert_eq!(c.close(made.file).await, Status::FILE_CLOSED, "it is closed all the same");
    }
}
