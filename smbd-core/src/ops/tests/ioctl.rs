//! IOCTL: every control code with valid and invalid input.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use rdma_transport::channel::{Command as Asked, Transport};
use vfs::local::{LocalBackend, LocalConfig};

use crate::dtyp::mask;
use crate::harness::{Client, Harness};
use crate::interfaces::Interface;
use crate::open::FileId;
use crate::settings::Settings;
use crate::status::Status;
use crate::wire::create::{Disposition, option};
use crate::wire::fsctl::*;
use crate::wire::ioctl::{IS_FSCTL, Request, Response};
use crate::wire::negotiate::Dialect;
use crate::wire::rdma::Channel;
use crate::wire::reparse::Reparse;
use crate::wire::{Command, read, write};

const NO_FILE: FileId = FileId::PREVIOUS;

async fn ask(c: &Client, r: &Request<'_>) -> (Status, Vec<u8>) {
    let a = c.ask(Command::Ioctl, &r.emit()).await;
    let whole = a.whole();
    let told = Response::parse(&whole);
    (a.status(), told.map(|r| r.output.to_vec()).unwrap_or_default())
}

/// Sends a request with an output limit of 4 KiB.
async fn ioctl(c: &Client, file: FileId, code: u32, input: &[u8]) -> (Status, Vec<u8>) {
    let r = Request { code, file, input, input_max: 0, output_max: 4096, flags: IS_FSCTL };
    ask(c, &r).await
}

pub(super) async fn done(c: &Client, file: FileId, code: u32, input: &[u8]) -> Vec<u8> {
    let (status, output) = ioctl(c, file, code, input).await;
    assert_eq!(status, Status::SUCCESS, "{code:#x}");
    output
}

pub(super) async fn status(c: &Client, file: FileId, code: u32, input: &[u8]) -> Status {
    ioctl(c, file, code, input).await.0
}

pub(super) async fn put(c: &Client, file: FileId, offset: u64, data: &[u8]) {
    let r = write::Request {
        data_offset: write::Request::DATA_OFFSET,
        length: u32::try_from(data.len()).unwrap(),
        offset,
        file,
        channel: Some(Channel::None),
        remaining: 0,
        flags: 0,
        descriptors: Vec::new(),
        transform: None,
    };
    let a = c.ask_with(Command::Write, &r.emit(), data).await;
    assert_eq!(a.status(), Status::SUCCESS);
}

pub(super) async fn get(c: &Client, file: FileId) -> Vec<u8> {
    let r = read::Request {
        padding: 80,
        flags: 0,
        length: 4 << 20,
        offset: 0,
        file,
        minimum_count: 0,
        channel: Some(Channel::None),
        remaining: 0,
        descriptors: Vec::new(),
    };
    c.ask(Command::Read, &r.emit()).await.data()
}

/// Returns the input that deletes a reparse point: its tag without its data (MS-FSCC section 2.3.6).
pub(super) fn owner(reparse: &Reparse) -> Vec<u8> {
    [&reparse.emit()[..4], &[0; 4]].concat()
}

async fn with_access(c: &Client, name: &str, access: u32) -> FileId {
    c.create(name, |r| r.access = access).await.unwrap().file
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1].wrapping_mul(7)).collect()
}

pub(super) fn copying(key: ResumeKey, chunks: &[(u64, u64, u32)]) -> CopyChunks {
    let chunks: Vec<_> = chunks.iter().map(|&(from, to, len)| Chunk { from, to, len }).collect();
    CopyChunks { key, count: u32::try_from(chunks.len()).unwrap(), chunks }
}

pub(super) async fn key_of(c: &Client, file: FileId) -> ResumeKey {
    let output = done(c, file, code::SRV_REQUEST_RESUME_KEY, &[]).await;
    assert_eq!(output.len(), 32);
    ResumeKey::parse(&output).unwrap()
}

#[tokio::test]
async fn what_holds_for_all_codes() {
    let harness = Harness::new();
    let c = harness.client();
    let f = c.open("f").await;
    let good = Request {
        code: code::GET_COMPRESSION,
        file: f,
        input: &[],
        input_max: 0,
        output_max: 16,
        flags: IS_FSCTL,
    };
    assert_eq!(ask(&c, &good).await.0, Status::SUCCESS);
    let wrong = [
        (Request { flags: 0, ..good.clone() }, Status::NOT_SUPPORTED),
        (Request { output_max: (8 << 20) + 1, ..good.clone() }, Status::INVALID_PARAMETER),
        (Request { input_max: u32::MAX, ..good.clone() }, Status::INVALID_PARAMETER),
        (Request { code: 0x0009_ffff, ..good.clone() }, Status::INVALID_DEVICE_REQUEST),
        (
            Request { file: FileId { persistent: 1, volatile: 1 }, ..good.clone() },
            Status::FILE_CLOSED,
        ),
        (Request { code: code::DFS_GET_REFERRALS, ..good.clone() }, Status::INVALID_PARAMETER),
        (Request { code: code::SRV_READ_HASH, ..good.clone() }, Status::HASH_NOT_SUPPORTED),
    ];
    for (r, want) in wrong {
        assert_eq!(ask(&c, &r).await.0, want, "{r:?}");
    }
    for referrals in [code::DFS_GET_REFERRALS, code::DFS_GET_REFERRALS_EX] {
        assert_eq!(status(&c, NO_FILE, referrals, &[4, 0]).await, Status::FS_DRIVER_REQUIRED);
    }
}

#[tokio::test]
async fn chunks_are_copied() {
    let harness = Harness::new();
    let c = harness.client();
    let (from, to) = (c.open("from").await, c.open("to").await);
    let data = pattern(3 << 20);
    put(&c, from, 0, &data).await;
    let key = key_of(&c, from).await;
    assert_eq!(key_of(&c, from).await, key, "the same each time");
    let mib = 1_u32 << 20;
    let m = u64::from(mib);
    let asked = copying(key, &[(0, 0, mib), (m, m, mib), (2 * m, 2 * m, mib)]);
    for code in [code::SRV_COPYCHUNK, code::SRV_COPYCHUNK_WRITE] {
        let told = Copied::parse(&done(&c, to, code, &asked.emit()).await).unwrap();
        assert_eq!(told, Copied { chunks: 3, chunk_bytes: 0, total: 3 << 20 });
        assert!(get(&c, to).await == data);
    }
    // Overlapping copies within one file, forwards and backwards.
    for (at, to_at) in [(0_u64, 500_u64), (500, 0)] {
        let own = c.open("own").await;
        put(&c, own, 0, &data[..4096]).await;
        let key = key_of(&c, own).await;
        let asked = copying(key, &[(at, to_at, 3000)]);
        done(&c, own, code::SRV_COPYCHUNK, &asked.emit()).await;
        let mut want = data[..4096].to_vec();
        want.copy_within(
            usize::try_from(at).unwrap()..usize::try_from(at).unwrap() + 3000,
            usize::try_from(to_at).unwrap(),
        );
        assert!(get(&c, own).await == want);
        c.close(own).await;
    }
    // An empty list of chunks succeeds without copying.
    let told = done(&c, to, code::SRV_COPYCHUNK, &copying(key, &[]).emit()).await;
    assert_eq!(Copied::parse(&told), Ok(Copied::default()));
}

#[tokio::test]
async fn too_much_to_copy_is_answered_with_the_limits() {
    let harness = Harness::new();
    let c = harness.client();
    let (from, to) = (c.open("from").await, c.open("to").await);
    put(&c, from, 0, b"data").await;
    let key = key_of(&c, from).await;
    let limits = Copied { chunks: 256, chunk_bytes: 1 << 20, total: 16 << 20 };
    let fewer = CopyChunks { count: 3, ..copying(key, &[(0, 0, 4)]) };
    let many = CopyChunks { count: u32::MAX, ..copying(key, &[]) };
    for asked in [
        copying(key, &[(0, 0, 4); 257]),
        copying(key, &[(0, 0, 0)]),
        copying(key, &[(0, 0, 4), (0, 0, (1 << 20) + 1)]),
        copying(key, &[(0, 0, 1 << 20); 17]),
        fewer,
        many,
    ] {
        let (status, output) = ioctl(&c, to, code::SRV_COPYCHUNK, &asked.emit()).await;
        assert_eq!(status, Status::INVALID_PARAMETER);
        assert_eq!(Copied::parse(&output), Ok(limits));
    }
    let input = copying(key, &[(0, 0, 4)]).emit();
    let r = Request {
        code: code::SRV_COPYCHUNK,
        file: to,
        input: &input,
        input_max: 0,
        output_max: 11,
        flags: IS_FSCTL,
    };
    assert_eq!(ask(&c, &r).await, (Status::INVALID_PARAMETER, Vec::new()));
    assert_eq!(status(&c, to, code::SRV_COPYCHUNK, &input[..31]).await, Status::INVALID_PARAMETER);
}

#[tokio::test]
async fn a_copy_needs_key_rights_and_data() {
    let harness = Harness::new();
    let (c, other) = (harness.client(), harness.client());
    let from = c.open("from").await;
    put(&c, from, 0, b"12345678").await;
    let key = key_of(&c, from).await;
    let input = copying(key, &[(0, 0, 8)]).emit();
    let copy = code::SRV_COPYCHUNK;
    let foreign = other.open("to").await;
    let not_found = Status::OBJECT_NAME_NOT_FOUND;
    assert_eq!(status(&other, foreign, copy, &input).await, not_found, "of another session");
    let to = c.open("to").await;
    let bad = copying(ResumeKey([7; 24]), &[(0, 0, 8)]).emit();
    assert_eq!(status(&c, to, copy, &bad).await, not_found);
    let denied = Status::ACCESS_DENIED;
    let write_only = with_access(&c, "to", mask::WRITE_DATA).await;
    assert_eq!(status(&c, write_only, copy, &input).await, denied);
    done(&c, write_only, code::SRV_COPYCHUNK_WRITE, &input).await;
    let read_only = with_access(&c, "to", mask::READ_DATA).await;
    assert_eq!(status(&c, read_only, copy, &input).await, denied);
    let blind = with_access(&c, "from", mask::WRITE_DATA).await;
    let input = copying(key_of(&c, blind).await, &[(0, 0, 8)]).emit();
    assert_eq!(status(&c, to, copy, &input).await, denied);
    // The first chunk is within the source, the second is not.
    let input = copying(key, &[(0, 10, 8), (4, 20, 8)]).emit();
    let (status, output) = ioctl(&c, to, copy, &input).await;
    assert_eq!(status, Status::INVALID_VIEW_SIZE);
    assert_eq!(Copied::parse(&output), Ok(Copied { chunks: 1, chunk_bytes: 0, total: 8 }));
    assert_eq!(get(&c, to).await[10..], *b"12345678");
}

fn span(at: u64, other: u64) -> Vec<u8> {
    Span { at, other }.emit().to_vec()
}

fn spans(output: &[u8]) -> Vec<(u64, u64)> {
    output.chunks(16).map(|s| Span::parse(s).unwrap()).map(|s| (s.at, s.other)).collect()
}

#[tokio::test]
async fn holes_are_made_and_shown() {
    let harness = Harness::new();
    let c = harness.client();
    let f = c.open("f").await;
    let page = 65536;
    put(&c, f, 0, &pattern(4 * 65536)).await;
    let query = |at, len| {
        let c = &c;
        async move { spans(&done(c, f, code::QUERY_ALLOCATED_RANGES, &span(at, len)).await) }
    };
    // A file that is not sparse shows no holes, even if its data is zero.
    done(&c, f, code::SET_ZERO_DATA, &span(page, 2 * page)).await;
    assert_eq!(query(0, 10 * page).await, [(0, 4 * page)]);
    assert!(get(&c, f).await[65536..2 * 65536].iter().all(|b| *b == 0));
    done(&c, f, code::SET_SPARSE, &[]).await;
    done(&c, f, code::SET_ZERO_DATA, &span(page, 2 * page)).await;
    assert_eq!(query(0, 10 * page).await, [(0, page), (2 * page, 2 * page)]);
    assert_eq!(query(100, page).await, [(100, page - 100)]);
    assert_eq!(query(page, page).await, []);
    assert_eq!(query(5 * page, page).await, []);
    assert_eq!(query(0, 0).await, []);
    let whole = span(0, 10 * page);
    for (output_max, want, n) in [
        (16, Status::BUFFER_OVERFLOW, 1),
        (15, Status::BUFFER_TOO_SMALL, 0),
        (32, Status::SUCCESS, 2),
    ] {
        let r = Request {
            code: code::QUERY_ALLOCATED_RANGES,
            file: f,
            input: &whole,
            input_max: 0,
            output_max,
            flags: IS_FSCTL,
        };
        let (status, output) = ask(&c, &r).await;
        assert_eq!((status, output.len()), (want, n * 16));
    }
    // Zeroing beyond the end does not change the size.
    done(&c, f, code::SET_ZERO_DATA, &span(3 * page, 100 * page)).await;
    assert_eq!(get(&c, f).await.len(), 4 * 65536);
    done(&c, f, code::SET_SPARSE, &[0]).await;
    assert_eq!(query(0, 10 * page).await, [(0, 4 * page)]);
}

#[tokio::test]
async fn what_is_wrong_about_holes() {
    let harness = Harness::new();
    let c = harness.client();
    let f = c.open("f").await;
    let d = c.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    let (zero, query) = (code::SET_ZERO_DATA, code::QUERY_ALLOCATED_RANGES);
    let invalid = Status::INVALID_PARAMETER;
    for code in [code::SET_SPARSE, zero, query] {
        assert_eq!(status(&c, d, code, &span(0, 1)).await, invalid);
    }
    for code in [zero, query] {
        assert_eq!(status(&c, f, code, &span(0, 1)[..15]).await, invalid);
        assert_eq!(status(&c, f, code, &span(1 << 63, 0)).await, invalid);
        assert_eq!(status(&c, f, code, &span(0, u64::MAX)).await, invalid);
    }
    assert_eq!(status(&c, f, zero, &span(2, 1)).await, invalid);
    assert_eq!(status(&c, f, query, &span(i64::MAX as u64, 1)).await, invalid);
    let denied = Status::ACCESS_DENIED;
    let reader = with_access(&c, "f", mask::READ_DATA).await;
    assert_eq!(status(&c, reader, zero, &span(0, 1)).await, denied);
    assert_eq!(status(&c, reader, code::SET_SPARSE, &[1]).await, denied);
    assert_eq!(status(&c, reader, code::FILE_LEVEL_TRIM, &[0; 8]).await, denied);
    let writer = with_access(&c, "f", mask::WRITE_DATA).await;
    assert_eq!(status(&c, writer, query, &span(0, 1)).await, denied);
}

#[tokio::test]
async fn what_is_trimmed_needs_no_storage() {
    let harness = Harness::new();
    let c = harness.client();
    let f = c.open("f").await;
    put(&c, f, 0, &pattern(65536)).await;
    let range = Span { at: 0, other: 1 << 40 };
    let trim = Trim { ranges: vec![range, Span { at: 1 << 50, other: 1 }] };
    assert_eq!(done(&c, f, code::FILE_LEVEL_TRIM, &trim.emit()).await, [2, 0, 0, 0]);
    assert_eq!(get(&c, f).await.len(), 65536);
    let mut keyed = trim.emit();
    keyed[0] = 1;
    assert_eq!(status(&c, f, code::FILE_LEVEL_TRIM, &keyed).await, Status::INVALID_PARAMETER);
}

/// Counts syncs.
#[derive(Debug, Default)]
struct Syncs(AtomicUsize);

impl vfs::local::SyncCalls for Syncs {
    fn fsync(&self, _: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Hypervisors with virtual disks on continuously available shares trim many ranges at once.
#[tokio::test]
async fn ranges_that_are_trimmed_wait_for_no_sync() {
    let dir = tempfile::tempdir().unwrap();
    let syncs = Arc::new(Syncs::default());
    let config = LocalConfig { calls: Some(syncs.clone()), ..LocalConfig::new(dir.path()) };
    let harness = Harness::on(LocalBackend::open(config).unwrap(), None);
    harness.core.namespace.shares()[0].backend.set_strict(true, true);
    let c = harness.client();
    let f = c.open("f").await;
    put(&c, f, 0, &pattern(65536)).await;
    let range = |at| Span { at, other: 4096 };
    let trim = async |ranges: Vec<Span>| {
        done(&c, f, code::FILE_LEVEL_TRIM, &Trim { ranges }.emit()).await;
        syncs.0.load(Ordering::Relaxed)
    };
    let before = trim(vec![range(0)]).await;
    assert_eq!(trim((1..9).map(|n| range(n * 4096)).collect()).await, before);
    assert_eq!(get(&c, f).await[..9 * 4096], [0; 9 * 4096]);
    done(&c, f, code::SET_ZERO_DATA, &Span { at: 0, other: 65536 }.emit()).await;
    assert!(syncs.0.load(Ordering::Relaxed) > before, "zeros that were asked for are kept");
}

/// A file with many ranges is reported in parts, between which other clients have the worker.
#[tokio::test]
async fn many_allocated_ranges_come_in_parts() {
    const RANGES: u64 = 5000;
    const STEP: u64 = 8192;
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("f")).unwrap();
    for n in 0..RANGES {
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], n * STEP).unwrap();
    }
    let config = LocalConfig::new(dir.path());
    let harness = Harness::on(LocalBackend::open(config).unwrap(), None);
    let c = harness.client();
    let f = c.open("f").await;
    done(&c, f, code::SET_SPARSE, &[1]).await;
    let query = async |at| {
        let input = Span { at, other: RANGES * STEP - at }.emit();
        let code = code::QUERY_ALLOCATED_RANGES;
        let output_max = 1 << 20;
        let flags = IS_FSCTL;
        let asked = Request { code, file: f, input: &input, input_max: 0, output_max, flags };
        let (status, output) = ask(&c, &asked).await;
        (status, spans(&output))
    };
    let (status, mut all) = query(0).await;
    assert_eq!((status, all.len()), (Status::BUFFER_OVERFLOW, 4096));
    let last = all.last().unwrap();
    let (status, rest) = query(last.0 + last.1).await;
    assert_eq!(status, Status::SUCCESS);
    all.extend(rest);
    assert_eq!(all.len() as u64, RANGES);
    assert!(all.iter().zip(0..).all(|(one, n)| *one == (n * STEP, 4096)));
}

#[tokio::test]
async fn storage_is_shared() {
    let harness = Harness::new();
    let c = harness.client();
    let (from, to) = (c.open("from").await, c.open("to").await);
    let data = pattern(131_072);
    put(&c, from, 0, &data).await;
    put(&c, to, 0, &vec![0; 131_072]).await;
    let good = DuplicateExtents { source: from, from: 0, to: 0, count: 131_072 };
    let dup = code::DUPLICATE_EXTENTS_TO_FILE;
    done(&c, to, dup, &good.emit()).await;
    assert!(get(&c, to).await == data);
    done(&c, to, dup, &DuplicateExtents { count: 0, ..good }.emit()).await;
    for (bad, want) in [
        (DuplicateExtents { from: 1, ..good }, Status::NOT_SUPPORTED),
        (DuplicateExtents { to: 65536, ..good }, Status::NOT_SUPPORTED),
        (DuplicateExtents { from: 1, count: 65536, ..good }, Status::INVALID_PARAMETER),
        (DuplicateExtents { from: u64::MAX, ..good }, Status::INVALID_PARAMETER),
        (DuplicateExtents { source: FileId::default(), ..good }, Status::INVALID_HANDLE),
    ] {
        assert_eq!(status(&c, to, dup, &bad.emit()).await, want, "{bad:?}");
    }
    assert_eq!(status(&c, to, dup, &good.emit()[..39]).await, Status::INVALID_PARAMETER);
    done(&c, from, code::SET_SPARSE, &[1]).await;
    assert_eq!(status(&c, to, dup, &good.emit()).await, Status::NOT_SUPPORTED, "holes");
}

#[tokio::test]
async fn links_are_made_and_read() {
    let harness = Harness::new();
    let c = harness.client();
    let link = Reparse::Symlink { target: "..\\dir\\file".into(), relative: true };
    for (name, reparse) in [
        ("link", link.clone()),
        ("fifo", Reparse::NfsFifo),
        ("socket", Reparse::NfsSocket),
        ("device", Reparse::NfsChar(5, 1)),
        ("nfs", Reparse::NfsLink("/absolute".into())),
    ] {
        let f = c.open(name).await;
        let none = Status::NOT_A_REPARSE_POINT;
        assert_eq!(status(&c, f, code::GET_REPARSE_POINT, &[]).await, none);
        assert_eq!(status(&c, f, code::DELETE_REPARSE_POINT, &owner(&link)).await, none);
        done(&c, f, code::SET_REPARSE_POINT, &reparse.emit()).await;
        c.close(f).await;
        let same = |r: &mut crate::wire::create::Request<'static>| {
            r.options = option::OPEN_REPARSE_POINT;
            r.disposition = Disposition::Open as u32;
        };
        let f = c.create(name, same).await.unwrap().file;
        let output = done(&c, f, code::GET_REPARSE_POINT, &[]).await;
        assert_eq!(Reparse::parse(&output), Ok(Some(reparse)));
        c.close(f).await;
    }
}

#[tokio::test]
async fn what_is_no_link_is_refused() {
    let harness = Harness::new();
    let c = harness.client();
    let f = c.open("f").await;
    let set = code::SET_REPARSE_POINT;
    for empty in [
        Reparse::Symlink { target: String::new(), relative: true },
        Reparse::Symlink { target: String::new(), relative: false },
        Reparse::LxLink(String::new()),
    ] {
        assert_eq!(status(&c, f, set, &empty.emit()).await, Status::IO_REPARSE_DATA_INVALID);
    }
    put(&c, f, 0, b"data").await;
    assert_eq!(status(&c, f, set, &Reparse::NfsFifo.emit()).await, Status::NOT_SUPPORTED);
    assert_eq!(get(&c, f).await, b"data");
}

#[tokio::test]
async fn marks_that_need_little() {
    let harness = Harness::new();
    let c = harness.client();
    let (f, g) = (c.open("f").await, c.open("g").await);
    assert_eq!(done(&c, f, code::GET_COMPRESSION, &[]).await, [0, 0]);
    done(&c, f, code::SET_COMPRESSION, &[0, 0]).await;
    assert_eq!(status(&c, f, code::SET_COMPRESSION, &[2, 0]).await, Status::INVALID_DEVICE_REQUEST);
    assert_eq!(status(&c, f, code::SET_COMPRESSION, &[2]).await, Status::INVALID_PARAMETER);
    let id = done(&c, f, code::CREATE_OR_GET_OBJECT_ID, &[]).await;
    assert_eq!(id.len(), 64);
    assert_eq!(done(&c, f, code::GET_OBJECT_ID, &[]).await, id);
    assert_ne!(done(&c, g, code::CREATE_OR_GET_OBJECT_ID, &[]).await, id);
    assert_eq!(done(&c, f, code::SRV_ENUMERATE_SNAPSHOTS, &[]).await[..8], [0; 8]);
}

fn network(n: u8) -> Interface {
    Interface {
        index: u32::from(n),
        addr: IpAddr::from([10, 0, 0, n]),
        link_speed: 25_000_000_000,
        rss: false,
        rdma: n == 2,
    }
}

#[tokio::test]
async fn networks_are_told() {
    let harness = Harness::new();
    harness.core.interfaces.set(vec![network(1), network(0), network(2)]);
    let query = code::QUERY_NETWORK_INTERFACE_INFO;
    let c = harness.client_by(0, Dialect::V302, Transport::Tcp);
    // The harness's connections do not support multichannel.
    assert_eq!(status(&c, NO_FILE, query, &[]).await, Status::NOT_SUPPORTED);
    let list = emit_interfaces(&[network(1), network(2)]);
    assert_eq!(parse_interfaces(&list).unwrap().len(), 2);
}

#[tokio::test]
async fn negotiation_is_validated() {
    let harness = Harness::new();
    let good = ValidateNegotiate {
        capabilities: 0,
        guid: [1; 16],
        security_mode: 1,
        dialects: vec![0x202, 0x302],
    };
    let validate = code::VALIDATE_NEGOTIATE_INFO;
    let c = harness.client_by(0, Dialect::V302, Transport::Tcp);
    let told = Validated::parse(&done(&c, NO_FILE, validate, &good.emit()).await).unwrap();
    assert_eq!((told.dialect, told.security_mode, told.capabilities), (0x302, 1, 0));
    for bad in [
        ValidateNegotiate { capabilities: 1, ..good.clone() },
        ValidateNegotiate { guid: [2; 16], ..good.clone() },
        ValidateNegotiate { security_mode: 3, ..good.clone() },
        // Also checked if the greatest common dialect is the same.
        ValidateNegotiate { dialects: vec![0x302], ..good.clone() },
        ValidateNegotiate { dialects: vec![0x302, 0x202], ..good.clone() },
        ValidateNegotiate { dialects: vec![0x202, 0x210, 0x302], ..good.clone() },
        ValidateNegotiate { dialects: vec![0x202, 0x302, 0x302], ..good.clone() },
        ValidateNegotiate { dialects: vec![0x202, 0x302, 0x311], ..good.clone() },
        ValidateNegotiate { dialects: Vec::new(), ..good.clone() },
    ] {
        let c = harness.client_by(0, Dialect::V302, Transport::Tcp);
        assert!(status(&c, NO_FILE, validate, &bad.emit()).await.is_error());
        let ended = c.asked.lock().unwrap().try_recv();
        assert!(matches!(ended, Ok(Asked::Shutdown)), "{bad:?}");
    }
    let newer = harness.client();
    assert!(status(&newer, NO_FILE, validate, &good.emit()).await.is_error());
}

/// MS-SMB2 section 3.3.5.15.12 compares the client's offer; later changes of the configured dialects do not matter.
#[tokio::test]
async fn reloaded_dialects_are_no_downgrade() {
    let harness = Harness::new();
    let c = harness.client_by(0, Dialect::V302, Transport::Tcp);
    let dialects = (Dialect::V202, Dialect::V300);
    harness.core.set_settings(Settings { dialects, ..Settings::clone(&harness.core.settings()) });
    let asked = ValidateNegotiate {
        capabilities: 0,
        guid: [1; 16],
        security_mode: 1,
        dialects: vec![0x202, 0x302],
    };
    let told = done(&c, NO_FILE, code::VALIDATE_NEGOTIATE_INFO, &asked.emit()).await;
    assert_eq!(Validated::parse(&told).unwrap().dialect, 0x302);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any input gets a response, and the server keeps running.
    #[test]
    fn any_input_is_answered(n in 0_usize..24, input in prop::collection::vec(any::<u8>(), 0..120), max in 0_u32..100) {
        let codes = [
            code::GET_COMPRESSION, code::SET_COMPRESSION, code::GET_OBJECT_ID, code::SET_REPARSE_POINT,
            code::GET_REPARSE_POINT, code::DELETE_REPARSE_POINT, code::SET_SPARSE, code::QUERY_ALLOCATED_RANGES,
            code::SET_ZERO_DATA, code::FILE_LEVEL_TRIM, code::DUPLICATE_EXTENTS_TO_FILE, code::PIPE_TRANSCEIVE,
            code::SRV_REQUEST_RESUME_KEY, code::SRV_COPYCHUNK, code::SRV_COPYCHUNK_WRITE, code::SRV_ENUMERATE_SNAPSHOTS,
        ];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let c = Harness::new().client();
            let f = c.open("f").await;
            let code = codes[n % codes.len()];
            let r = Request { code, file: f, input: &input, input_max: 0, output_max: max, flags: IS_FSCTL };
            let (_, output) = ask(&c, &r).await;
            assert!(output.len() <= usize::try_from(max).unwrap());
            c.close(f).await;
        });
    }
}

#[tokio::test]
async fn nobody_waits_for_a_pipe_of_a_file_share() {
    let c = Harness::new().client();
    let refused = Status::INVALID_DEVICE_REQUEST;
    assert_eq!(status(&c, NO_FILE, code::PIPE_WAIT, &[0; 14]).await, refused);
    let f = c.open("f").await;
    assert_eq!(status(&c, f, code::PIPE_TRANSCEIVE, &[0; 14]).await, refused);
}
