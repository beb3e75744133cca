//! Requests of macOS: the context AAPL, directory entries with what Finder shows, FinderInfo and resource forks beside
//! a slow model, copies of whole files, modes in lists, backups. The requests have the form that Apple's client smbfs gives them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use vfs::Stable;
use vfs::types::Cred;

use super::data::{reading, write};
use super::info::{ask, put as set_raw, query, set, to};
use super::ioctl::{copying, done, get, key_of, put, status};
use crate::dtyp::{Ace, SecurityDescriptor, Sid, mask};
use crate::fscc::chained;
use crate::fscc::dir::Level;
use crate::fscc::file::{Class, FileInfo};
use crate::fscc::mac::{AfpInfo, compressed};
use crate::fscc::set::{Set, disposition};
use crate::fscc::stream::Stream;
use crate::fscc::volume;
use crate::harness::{Client, Harness, doom};
use crate::open::{FileId, Open};
use crate::settings::ShareSettings;
use crate::status::Status;
use crate::time_machine::TimeMachine;
use crate::tree::{LastTakeUp, Target, Tree};
use crate::wire::aapl::{Query, Told as Agreement, caps, part, volume as volume_caps};
use crate::wire::context::{DurableV2, Lease, LeaseV2, Told, name};
use crate::wire::create::{Context, Disposition, Request, oplock, option, share};
use crate::wire::fsctl::{Copied, code};
use crate::wire::query_info::{Response, info_type, security_information as about};
use crate::wire::{Command, create, flush, query_directory};

const INFO: &str = "f:AFP_AfpInfo";
const FORK: &str = "f:AFP_Resource";

/// The query of Apple's client: all parts, with all of its capabilities.
const ASKS: Query = Query { parts: 7, client: 0x3f };

fn how(disposition: Disposition) -> impl FnOnce(&mut Request<'static>) {
    move |r| r.disposition = disposition as u32
}

async fn opens(c: &Client, name: &str) -> Result<FileId, Status> {
    c.create(name, how(Disposition::Open)).await.map(|r| r.file)
}

/// Opens the root of the share with a query, as a client does once after it has connected.
async fn agree(c: &Client, query: Query) -> Agreement {
    let root = c.create("", |r| {
        r.disposition = Disposition::Open as u32;
        r.contexts = vec![query.context()];
    });
    let root = root.await.unwrap();
    let told = Told::parse(&root.contexts).unwrap().aapl.unwrap();
    c.close(root.file).await;
    told
}

/// Connects a client of macOS.
async fn macos(harness: &Harness) -> Client {
    let c = harness.client();
    agree(&c, ASKS).await;
    c
}

fn info(finder: [u8; 32]) -> Vec<u8> {
    AfpInfo { finder, ..AfpInfo::default() }.emit()
}

/// FinderInfo with type and creator.
fn picture() -> Vec<u8> {
    let mut finder = [0; 32];
    finder[..8].copy_from_slice(b"JPEGprvw");
    finder[8..10].copy_from_slice(&[0x04, 0x10]);
    finder[24..26].copy_from_slice(&[0x12, 0x34]);
    info(finder)
}

/// Returns the named streams with their sizes.
async fn streams(c: &Client, name: &str) -> BTreeMap<String, u64> {
    let file = opens(c, name).await.unwrap();
    let list = Stream::parse_list(&query(c, file, Class::Stream).await.unwrap()).unwrap();
    c.close(file).await;
    let named = list.into_iter().filter(|stream| stream.name != "::$DATA");
    let plain = |name: String| name.trim_matches(':').trim_end_matches(":$DATA").to_owned();
    named.map(|stream| (plain(stream.name), stream.size)).collect()
}

async fn make(c: &Client, name: &str, data: &[u8]) {
    let file = c.open(name).await;
    put(c, file, 0, data).await;
    c.close(file).await;
}

async fn contents(c: &Client, name: &str) -> Result<Vec<u8>, Status> {
    let file = opens(c, name).await?;
    let data = get(c, file).await;
    c.close(file).await;
    Ok(data)
}

#[tokio::test]
async fn macos_and_server_agree_on_what_both_can() {
    let harness = Harness::new();
    let all = caps::READ_DIR_ATTR | caps::OSX_COPYFILE | caps::UNIX_BASED | caps::NFS_ACE;
    let told = agree(&harness.client(), ASKS).await;
    let model = Some("RackMac".to_owned());
    assert_eq!(told, Agreement { server: Some(all), volume: Some(0), model });
    let few = Query { parts: part::SERVER_CAPS, client: 0 };
    let told = agree(&harness.client(), few).await;
    let without = Some(all & !caps::READ_DIR_ATTR);
    assert_eq!(told, Agreement { server: without, volume: None, model: None });
}

#[tokio::test]
async fn wrong_queries_are_refused_before_anything_is_opened() {
    let harness = Harness::new();
    let c = harness.client();
    let good = ASKS.context().data.to_vec();
    let mut other_command = good.clone();
    other_command[0] = 2;
    for bad in [vec![], good[..23].to_vec(), [&good[..], &[0]].concat(), other_command] {
        let asked = c.create("f", |r| r.contexts = vec![Context::new(name::AAPL, bad.clone())]);
        assert_eq!(asked.await.map(|r| r.file), Err(Status::INVALID_PARAMETER), "{bad:?}");
    }
    assert_eq!(opens(&c, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    assert_eq!(harness.core.opens.count(), 0);
}

/// Returns the entries of the root, read with `parse`.
async fn listed(
    c: &Client,
    parse: impl Fn(&[u8]) -> (String, FileInfo),
) -> BTreeMap<String, FileInfo> {
    let root = opens(c, "").await.unwrap();
    let r = query_directory::Request {
        class: Level::IdBothDirectory.number(),
        flags: 0,
        file_index: 0,
        file: root,
        output_len: 65_536,
        pattern: "*".into(),
    };
    let answer = c.ask(Command::QueryDirectory, &r.emit()).await;
    assert_eq!(answer.status(), Status::SUCCESS);
    let buffer = query_directory::Response::parse(&answer.whole()).unwrap().buffer.to_vec();
    c.close(root).await;
    chained(&buffer).map(|entry| parse(entry.unwrap())).collect()
}

#[tokio::test]
async fn listing_has_finder_info_for_clients_that_agreed() {
    let harness = Harness::new();
    let (mac, other) = (macos(&harness).await, harness.client());
    make(&other, "f", b"data").await;
    make(&other, INFO, &picture()).await;
    make(&other, FORK, &[7; 300]).await;
    make(&other, "plain", b"").await;
    let dir = other.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    other.close(dir).await;
    let seen = listed(&mac, |entry| Level::parse_for_mac(entry).unwrap()).await;
    let of = |name: &str| seen[name].mac.unwrap();
    let created = seen["f"].basic.creation.0 / 10_000_000 - 11_644_473_600;
    let created = i64::try_from(created).unwrap();
    let finder = AfpInfo::parse(&picture()).unwrap();
    assert_eq!(of("f").finder, compressed(Some(&finder), false, created));
    assert_eq!(&of("f").finder[..8], b"JPEGprvw");
    assert_eq!((of("f").resource, of("plain").resource, of("d").resource), (300, 0, 0));
    assert_eq!(of("plain").finder, compressed(None, false, created));
    assert_eq!((of("f").mode & 0o170_000, of("d").mode & 0o170_000), (0o100_000, 0o040_000));
    assert_eq!(of("f").access, mask::FILE_ALL);
    assert_eq!(seen["f"].standard.end_of_file, 4);
    let plain = listed(&other, |entry| Level::IdBothDirectory.parse(entry).unwrap()).await;
    assert_eq!(plain.keys().collect::<Vec<_>>(), seen.keys().collect::<Vec<_>>());
    assert!(plain.values().all(|entry| entry.ea_size == 0 && entry.mac.is_none()));
}

/// A session that asked without READ_DIR_ATTR gets entries as Windows does, and one that asked keeps what it agreed on.
#[tokio::test]
async fn entries_follow_what_the_session_agreed_on() {
    let harness = Harness::new();
    let c = harness.client();
    make(&c, "f", b"data").await;
    agree(&c, Query { parts: 7, client: 0 }).await;
    let plain = listed(&c, |entry| Level::IdBothDirectory.parse(entry).unwrap()).await;
    assert_eq!(plain["f"].ea_size, 0);
    agree(&c, ASKS).await;
    agree(&c, Query { parts: part::VOLUME_CAPS, client: 0 }).await;
    let seen = listed(&c, |entry| Level::parse_for_mac(entry).unwrap()).await;
    assert_eq!(seen["f"].mac.unwrap().access, mask::FILE_ALL);
}

#[tokio::test]
async fn finder_info_is_read_and_written_as_by_apples_servers() {
    let c = Harness::new().client();
    make(&c, "f", b"data").await;
    assert_eq!(opens(&c, INFO).await, Err(Status::OBJECT_NAME_NOT_FOUND));
    let file = c.create(INFO, |_| {}).await.unwrap();
    assert_eq!(file.basics.end_of_file, 60);
    let file = file.file;
    assert_eq!(get(&c, file).await, info([0; 32]), "none is shown as empty");
    let refused = Status::INVALID_PARAMETER;
    for (at, data, want) in [
        (0, &b"AF"[..], refused),
        (0, &[0; 60], refused),
        (1, &picture()[..59], refused),
        (0, &b"AFP"[..], Status::SUCCESS),
        (0, &picture()[..16], Status::SUCCESS),
    ] {
        assert_eq!(write(&c, file, at, data).await, want, "{at} {data:?}");
        assert_eq!(get(&c, file).await, info([0; 32]), "{at} {data:?}");
    }
    assert!(streams(&c, "f").await.is_empty());
    assert_eq!(write(&c, file, 0, &picture()).await, Status::SUCCESS);
    assert_eq!(get(&c, file).await, picture());
    let from = |at| reading(file, at, 100);
    let read = c.ask(Command::Read, &from(60).emit()).await;
    assert_eq!(read.data(), picture(), "any offset up to the end is the start");
    assert_eq!(c.ask(Command::Read, &from(61).emit()).await.status(), Status::END_OF_FILE);
    for (size, want) in [(61, Status::ALLOTTED_SPACE_EXCEEDED), (0, Status::SUCCESS)] {
        assert_eq!(set(&c, file, Set::EndOfFile(size)).await, want, "{size}");
        assert_eq!(get(&c, file).await, picture());
    }
    assert_eq!(streams(&c, "f").await, [("AFP_AfpInfo".to_owned(), 60)].into());
    assert_eq!(write(&c, file, 0, &info([0; 32])).await, Status::SUCCESS);
    c.close(file).await;
    assert!(streams(&c, "f").await.is_empty(), "FinderInfo of zeros is none");
    assert_eq!(opens(&c, INFO).await, Err(Status::OBJECT_NAME_NOT_FOUND));
}

/// Programs of the host may leave such a stream.
#[tokio::test]
async fn finder_info_of_a_wrong_form_is_a_stream_for_others_than_macos() {
    let harness = Harness::new();
    let (mac, other) = (macos(&harness).await, harness.client());
    let file = other.open("f").await;
    let base = harness.core.opens.get(file).unwrap().node().unwrap();
    let (share, volume) =
        (harness.core.namespace.shares()[0].clone(), harness.core.namespace.by(None));
    let made = volume.stream_create(&share, &base, &Cred::root(), "AFP_AfpInfo").await.unwrap().0;
    let data = vec![b"foo".to_vec().into()];
    volume.write(&share, &made.node, None, 0, data, Stable::Unstable).await.unwrap();
    assert!(streams(&mac, "f").await.is_empty());
    assert_eq!(opens(&mac, INFO).await, Err(Status::OBJECT_NAME_NOT_FOUND));
    let made = mac.create(INFO, |_| {}).await.unwrap();
    assert_eq!((made.basics.end_of_file, get(&mac, made.file).await), (60, info([0; 32])));
    mac.close(made.file).await;
    assert_eq!(streams(&other, "f").await, [("AFP_AfpInfo".to_owned(), 3)].into());
    let found = other.create(INFO, how(Disposition::Open)).await.unwrap();
    assert_eq!((found.basics.end_of_file, get(&other, found.file).await), (3, b"foo".to_vec()));
    other.close(found.file).await;
    let doomed = other.create(INFO, doom).await.unwrap().file;
    other.close(doomed).await;
    assert!(streams(&other, "f").await.is_empty());
}

#[tokio::test]
async fn resource_fork_exists_while_it_has_data() {
    let c = Harness::new().client();
    make(&c, "f", b"data").await;
    let reads = |r: &mut Request<'static>| r.access = mask::READ_DATA;
    let file = c.create(FORK, reads).await.unwrap().file;
    c.close(file).await;
    assert!(streams(&c, "f").await.is_empty(), "a reader makes none");
    let file = c.open(FORK).await;
    assert_eq!(opens(&c, FORK).await, Err(Status::OBJECT_NAME_NOT_FOUND), "it is empty still");
    c.close(file).await;
    assert!(streams(&c, "f").await.is_empty());
    make(&c, FORK, b"fork").await;
    assert_eq!(streams(&c, "f").await, [("AFP_Resource".to_owned(), 4)].into());
    let file = c.create(FORK, doom).await.unwrap().file;
    c.close(file).await;
    assert_eq!(contents(&c, FORK).await.as_deref(), Ok(&b"fork"[..]), "a delete is not obeyed");
    let file = c.open(FORK).await;
    assert_eq!(set(&c, file, Set::EndOfFile(0)).await, Status::SUCCESS);
    c.close(file).await;
    assert!(streams(&c, "f").await.is_empty(), "one without data is none");
    assert_eq!(contents(&c, "f").await.as_deref(), Ok(&b"data"[..]));
}

/// An open that has its share access, but is in no table yet, counts as one.
#[tokio::test]
async fn stream_without_data_stays_for_an_open_in_progress() {
    let c = Harness::new().client();
    make(&c, "f", b"data").await;
    let file = c.open(FORK).await;
    let node = c.core.opens.get(file).unwrap().node().unwrap();
    let arbiter = c.core.namespace.arbiter();
    let lease = Arc::new(state::Lease::held(arbiter.state().key()));
    let party = state::Holder { holder: arbiter.state().holder(), lease, via: 0 };
    let writes = Open::opening(mask::WRITE_DATA, share::READ | share::WRITE | share::DELETE, false);
    arbiter.open(node.id(), &party, writes).await.unwrap();
    c.close(file).await;
    assert_eq!(node.getattr().await.unwrap().nlink, 1);
    arbiter.close(node.id(), party.holder);
    let file = c.open(FORK).await;
    c.close(file).await;
    assert_eq!(node.getattr().await.unwrap().nlink, 0);
}

/// The close for which an open waits removes the stream that the open has found.
#[tokio::test]
async fn open_that_waited_finds_the_stream_that_replaced_an_empty_one() {
    let harness = Harness::new();
    let (mac, other) = (macos(&harness).await, harness.client());
    make(&other, "f", b"data").await;
    for name in [FORK, INFO] {
        let alone = |r: &mut Request<'static>| (r.oplock_level, r.share) = (oplock::BATCH, 0);
        let first = other.create(name, alone).await.unwrap();
        assert_eq!(first.oplock_level, oplock::BATCH);
        assert_eq!(mac.create(name, |_| {}).await.unwrap_err(), Status::PENDING);
        other.pushed().await;
        assert_eq!(other.close(first.file).await, Status::SUCCESS);
        let second = mac.pushed().await.ok().unwrap();
        let second = create::Response::parse(&second.message).unwrap().file;
        put(&mac, second, 0, &picture()).await;
        mac.close(second).await;
        assert_eq!(contents(&other, name).await, Ok(picture()), "{name}");
    }
}

#[tokio::test]
async fn removal_of_finder_info_recalls_what_others_cache() {
    let harness = Harness::new();
    let (mac, other) = (macos(&harness).await, harness.client());
    make(&other, "f", b"data").await;
    make(&other, INFO, &picture()).await;
    let held = other.create(INFO, |r| r.oplock_level = oplock::II).await.unwrap();
    assert_eq!(held.oplock_level, oplock::II);
    let file = mac.open(INFO).await;
    let zeros = info([0; 32]);
    let ((), told) = tokio::join!(put(&mac, file, 0, &zeros), async {
        tokio::time::timeout(Duration::from_secs(5), other.pushed()).await
    });
    assert_eq!(told.unwrap().status(), Status::SUCCESS);
}

/// Other streams may be empty, but macOS knows no such streams.
#[tokio::test]
async fn macos_sees_no_empty_streams() {
    let harness = Harness::new();
    let (mac, other) = (macos(&harness).await, harness.client());
    make(&other, "f", b"").await;
    let stream = other.open("f:com.apple.metadata").await;
    other.close(stream).await;
    assert_eq!(streams(&other, "f").await.len(), 1);
    assert!(streams(&mac, "f").await.is_empty());
    let missing = opens(&mac, "f:com.apple.metadata").await;
    assert_eq!(missing, Err(Status::OBJECT_NAME_NOT_FOUND));
    make(&mac, "f:com.apple.metadata", b"x").await;
    assert_eq!(streams(&mac, "f").await, [("com.apple.metadata".to_owned(), 1)].into());
}

/// An operation on the two streams, on one open that is closed before the next.
#[derive(Clone, Debug)]
enum Step {
    /// Writes FinderInfo with this type.
    Info([u8; 4]),
    /// Writes only the first bytes of one.
    Part(usize),
    /// Writes at an offset of the fork.
    Fork(u16, u8),
    /// Sets the fork's size.
    Size(u16),
    /// Opens to delete: FinderInfo, or the fork.
    Delete(bool),
    /// Marks an open for deletion.
    Mark(bool),
    /// Replaces the file's contents, and with them its streams.
    Overwrite,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop_oneof![Just([0; 4]), any::<[u8; 4]>()].prop_map(Step::Info),
        (3..60_usize).prop_map(Step::Part),
        (0..2000_u16, 1..=255_u8).prop_map(|(at, byte)| Step::Fork(at, byte)),
        prop_oneof![Just(0), 0..3000_u16].prop_map(Step::Size),
        any::<bool>().prop_map(Step::Delete),
        any::<bool>().prop_map(Step::Mark),
        Just(Step::Overwrite),
    ]
}

/// Contents of the two streams; an empty one is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    finder: Vec<u8>,
    fork: Vec<u8>,
}

impl Model {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Info(kind) => {
                let is_empty = kind == &[0; 4];
                self.finder = if is_empty { Vec::new() } else { kind.to_vec() };
            }
            // The data that such a write lacks is zero.
            Step::Part(len) if *len <= 16 => {}
            Step::Part(len) => {
                let mut kind = b"PART".to_vec();
                kind.truncate((len - 16).min(4));
                kind.resize(4, 0);
                self.finder = kind;
            }
            Step::Fork(at, byte) => {
                let at = usize::from(*at);
                if self.fork.len() <= at {
                    self.fork.resize(at + 1, 0);
                }
                self.fork[at] = *byte;
            }
            Step::Size(len) => self.fork.resize((*len).into(), 0),
            Step::Delete(of_fork) | Step::Mark(of_fork) => {
                if !of_fork {
                    self.finder.clear();
                }
            }
            Step::Overwrite => *self = Self::default(),
        }
    }

    fn streams(&self) -> BTreeMap<String, u64> {
        let info = ("AFP_AfpInfo".to_owned(), if self.finder.is_empty() { 0 } else { 60 });
        let fork = ("AFP_Resource".to_owned(), self.fork.len() as u64);
        [info, fork].into_iter().filter(|(_, size)| *size > 0).collect()
    }
}

fn finder(kind: &[u8]) -> Vec<u8> {
    let mut finder = [0; 32];
    finder[..4].copy_from_slice(kind);
    info(finder)
}

async fn does(c: &Client, step: &Step) {
    let of = |is_fork: &bool| if *is_fork { FORK } else { INFO };
    match step {
        Step::Info(kind) => make(c, INFO, &finder(kind)).await,
        Step::Part(len) => make(c, INFO, &finder(b"PART")[..*len]).await,
        Step::Fork(at, byte) => {
            let file = c.open(FORK).await;
            put(c, file, (*at).into(), &[*byte]).await;
            c.close(file).await;
        }
        Step::Size(len) => {
            let file = c.open(FORK).await;
            assert_eq!(set(c, file, Set::EndOfFile((*len).into())).await, Status::SUCCESS);
            c.close(file).await;
        }
        Step::Delete(is_fork) => {
            let file = c.create(of(is_fork), doom).await.unwrap().file;
            c.close(file).await;
        }
        Step::Mark(is_fork) => {
            let file = c.open(of(is_fork)).await;
            let goes = Set::Disposition { flags: disposition::DELETE, ex: false };
            assert_eq!(set(c, file, goes).await, Status::SUCCESS);
            c.close(file).await;
        }
        Step::Overwrite => {
            let file = c.create("f", how(Disposition::Overwrite)).await.unwrap().file;
            c.close(file).await;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn streams_of_finder_follow_the_model(steps in proptest::collection::vec(step(), 1..12), by_macos: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let harness = Harness::new();
            let c = if by_macos { macos(&harness).await } else { harness.client() };
            make(&c, "f", b"data").await;
            let mut model = Model::default();
            for step in &steps {
                does(&c, step).await;
                model.take(step);
                assert_eq!(streams(&c, "f").await, model.streams(), "{step:?} of {steps:?}");
                for (name, want) in [(INFO, &model.finder), (FORK, &model.fork)] {
                    let has = contents(&c, name).await;
                    match (want.is_empty(), name == INFO) {
                        (true, _) => assert_eq!(has, Err(Status::OBJECT_NAME_NOT_FOUND), "{step:?}"),
                        (false, true) => assert_eq!(has, Ok(finder(want)), "{step:?}"),
                        (false, false) => assert_eq!(has.as_ref(), Ok(want), "{step:?}"),
                    }
                }
            }
        });
    }
}

#[tokio::test]
async fn copy_without_chunks_copies_file_and_streams_for_macos_alone() {
    let harness = Harness::new();
    let (mac, other) = (macos(&harness).await, harness.client());
    let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251).to_le_bytes()[0]).collect();
    for c in [&other, &mac] {
        make(c, "f", &data).await;
        make(c, INFO, &picture()).await;
        make(c, FORK, &[7; 300]).await;
        make(c, "f:com.apple.quarantine", b"0081").await;
        make(c, "to", &[1; 4_000_000]).await;
        let (from, to) = (opens(c, "f").await.unwrap(), opens(c, "to").await.unwrap());
        let key = key_of(c, from).await;
        let told = done(c, to, code::SRV_COPYCHUNK_WRITE, &copying(key, &[]).emit()).await;
        let copied = Copied::parse(&told).unwrap();
        let is_mac = std::ptr::eq(c, &raw const mac);
        assert_eq!(copied.total, if is_mac { 3_000_000 } else { 0 });
        let same_file = status(c, from, code::SRV_COPYCHUNK_WRITE, &copying(key, &[]).emit()).await;
        let want = if is_mac { Status::INVALID_PARAMETER } else { Status::SUCCESS };
        assert_eq!(same_file, want);
        c.close(from).await;
        c.close(to).await;
        let copy = contents(c, "to").await.unwrap();
        assert_eq!(copy == data, is_mac);
        let of_copy = streams(c, "to").await;
        assert_eq!(of_copy, if is_mac { streams(c, "f").await } else { BTreeMap::new() });
    }
    assert_eq!(contents(&mac, "to:AFP_AfpInfo").await, Ok(picture()));
    assert_eq!(contents(&mac, "to:com.apple.quarantine").await.as_deref(), Ok(&b"0081"[..]));
}

#[tokio::test]
async fn copy_of_a_file_respects_opens_of_streams() {
    let harness = Harness::new();
    let (mac, other) = (macos(&harness).await, harness.client());
    for (name, data) in
        [("f", b"data"), (FORK, b"fork"), ("to", b"also"), ("to:AFP_Resource", b"kept")]
    {
        make(&other, name, data).await;
    }
    let (from, to) = (opens(&mac, "f").await.unwrap(), opens(&mac, "to").await.unwrap());
    let copies = copying(key_of(&mac, from).await, &[]).emit();
    let held = other
        .create("to:AFP_Resource", |r| r.share = share::READ | share::DELETE)
        .await
        .unwrap()
        .file;
    let refused = status(&mac, to, code::SRV_COPYCHUNK_WRITE, &copies).await;
    assert_eq!(refused, Status::SHARING_VIOLATION);
    assert_eq!(get(&other, held).await, b"kept");
    other.close(held).await;
    let appends = |r: &mut Request<'static>| r.access = mask::APPEND_DATA;
    let end = mac.create("to", appends).await.unwrap().file;
    let refused = status(&mac, end, code::SRV_COPYCHUNK_WRITE, &copies).await;
    assert_eq!(refused, Status::ACCESS_DENIED);
    assert_eq!(contents(&other, "to:AFP_Resource").await.as_deref(), Ok(&b"kept"[..]));
    assert_eq!(status(&mac, to, code::SRV_COPYCHUNK_WRITE, &copies).await, Status::SUCCESS);
    assert_eq!(contents(&other, "to:AFP_Resource").await.as_deref(), Ok(&b"fork"[..]));
    let table = harness.core.namespace.arbiter().state();
    let held = other.open("to:AFP_Resource").await;
    let node = harness.core.opens.get(held).unwrap().node().unwrap();
    assert_eq!(table.opens(node.id(), None), 1, "the copy has given back what it had");
}

#[tokio::test]
async fn copy_of_a_file_has_what_others_have_not_written_yet() {
    let harness = Harness::new();
    let (mac, other) = (macos(&harness).await, harness.client());
    make(&other, "f", b"data").await;
    make(&other, "to", b"").await;
    let cached = other.create(FORK, |r| r.oplock_level = oplock::BATCH).await.unwrap();
    assert_eq!(cached.oplock_level, oplock::BATCH);
    let (from, to) = (opens(&mac, "f").await.unwrap(), opens(&mac, "to").await.unwrap());
    let copies = copying(key_of(&mac, from).await, &[]).emit();
    let copied = status(&mac, to, code::SRV_COPYCHUNK_WRITE, &copies).await;
    assert_eq!(copied, Status::PENDING);
    other.pushed().await;
    put(&other, cached.file, 0, b"fork").await;
    other.close(cached.file).await;
    assert_eq!(mac.pushed().await.status(), Status::SUCCESS);
    assert_eq!(contents(&other, "to:AFP_Resource").await.as_deref(), Ok(&b"fork"[..]));
}

/// Returns the descriptor of an open, and its entries about mode and owners.
async fn descriptor(c: &Client, file: FileId) -> (SecurityDescriptor, Vec<String>) {
    let answer = ask(c, file, info_type::SECURITY, 0, 65_536).await.ok().unwrap();
    let sd = SecurityDescriptor::parse(&Response::parse(&answer.message).unwrap().buffer).unwrap();
    let of_nfs = |ace: &Ace| match ace {
        Ace::Simple { sid, .. } if sid.is_of_nfs() => Some(sid.to_string()),
        _ => None,
    };
    let told = sd.dacl.iter().flat_map(|dacl| dacl.aces.iter().filter_map(of_nfs)).collect();
    (sd, told)
}

#[tokio::test]
async fn macos_reads_and_changes_the_mode_in_the_list() {
    let harness = Harness::new();
    let (mac, other) = (macos(&harness).await, harness.client());
    let (file, theirs) = (mac.open("f").await, other.open("f").await);
    assert!(descriptor(&other, theirs).await.1.is_empty());
    let (mut sd, told) = descriptor(&mac, file).await;
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("S-1-5-88-3-"), "{told:?}");
    let dacl = sd.dacl.as_mut().unwrap();
    for ace in &mut dacl.aces {
        if let Ace::Simple { sid, .. } = ace
            && sid.as_unix_mode().is_some()
        {
            *sid = Sid::unix_mode(0o100_640);
        }
    }
    sd.owner = None;
    sd.group = None;
    let done = set_raw(&mac, file, info_type::SECURITY, 0, about::DACL, &sd.emit()).await;
    assert_eq!(done, Status::SUCCESS);
    let (_, told) = descriptor(&mac, file).await;
    assert_eq!(told[0], format!("S-1-5-88-3-{}", 0o100_640));
    assert!(descriptor(&other, theirs).await.1.is_empty());
    let node = mac.core.opens.get(file).unwrap().node().unwrap();
    let attr = node.getattr().await.unwrap();
    assert_eq!(attr.mode & 0o777, 0o640);
    assert_eq!(node.acl(&attr).await.unwrap(), None, "the mode decides as before");
}

/// Entries with the owner and the group of a file give and take no rights, with a mode or without one.
#[tokio::test]
async fn list_of_owners_alone_takes_no_rights() {
    let harness = Harness::new();
    let mac = macos(&harness).await;
    let file = mac.open("f").await;
    let (before, _) = descriptor(&mac, file).await;
    let mut sd = before.clone();
    let is_owner = |sid: &Sid| sid.is_of_nfs() && sid.as_unix_mode().is_none();
    let dacl = sd.dacl.as_mut().unwrap();
    dacl.aces.retain(|ace| matches!(ace, Ace::Simple { sid, .. } if is_owner(sid)));
    assert_eq!(dacl.aces.len(), 2);
    (sd.owner, sd.group) = (None, None);
    let done = set_raw(&mac, file, info_type::SECURITY, 0, about::DACL, &sd.emit()).await;
    assert_eq!(done, Status::SUCCESS);
    assert_eq!(descriptor(&mac, file).await.0, before);
}

#[tokio::test]
async fn macos_moves_folders_in_which_it_has_files_open() {
    let harness = Harness::new();
    let (mac, other) = (macos(&harness).await, harness.client());
    for (c, want) in [(&other, Status::ACCESS_DENIED), (&mac, Status::SUCCESS)] {
        let dir = c.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
        let file = c.open(r"d\f").await;
        assert_eq!(set(c, dir, Set::Rename(to("e", 0))).await, want);
        for file in [file, dir] {
            assert_eq!(c.close(file).await, Status::SUCCESS);
        }
    }
    assert!(opens(&mac, r"e\f").await.is_ok());
}

/// Every name that Finder makes, and the letters that stand for what SMB does not allow.
#[tokio::test]
async fn names_of_finder_are_names() {
    let c = macos(&Harness::new()).await;
    for (name, on_disk) in [
        (".DS_Store", ".DS_Store"),
        ("._f", "._f"),
        ("Icon\u{f00d}", "Icon\r"),
        ("a\u{f022}b", "a:b"),
        ("a\u{f025}b\u{f027}", "a?b|"),
        ("ends\u{f028}", "ends "),
        ("u\u{308}", "u\u{308}"),
    ] {
        make(&c, name, b"x").await;
        let share = c.core.namespace.shares()[0].clone();
        let found = share.backend.root().lookup(&Cred::root(), on_disk.as_bytes()).await;
        assert!(found.is_ok(), "{name:?}");
        let seen = listed(&c, |entry| Level::parse_for_mac(entry).unwrap()).await;
        assert!(seen.contains_key(name), "{name:?}: {:?}", seen.keys());
    }
}

/// macOS sends 0xffff as Reserved1 for F_FULLFSYNC.
#[tokio::test]
async fn full_sync_is_a_flush() {
    let c = macos(&Harness::new()).await;
    let file = c.open("f").await;
    put(&c, file, 0, b"data").await;
    let full = flush::Request { full_sync: true, ..flush::Request::of(file) }.emit();
    assert_eq!(full[2..4], [0xff, 0xff]);
    assert_eq!(c.ask(Command::Flush, &full).await.status(), Status::SUCCESS);
}

/// Connects the client to the share as one for backups.
fn for_backups(c: &mut Client, size: Option<u64>) {
    let session = c.core.sessions.get(c.session_id).unwrap();
    let old = session.remove_tree(c.tree_id).unwrap();
    let machine = Some(TimeMachine::of(size));
    let tree = session.add_tree(|id| Tree {
        last_take_up: LastTakeUp::default(),
        is_dfs: false,
        home: None,
        id,
        session_id: session.id,
        name: old.name.clone(),
        target: Target::Files(old.share().unwrap().clone()),
        cred: Cred::root(),
        maximal_access: old.maximal_access,
        settings: ShareSettings { time_machine: machine, ..old.settings.clone() },
    });
    c.tree_id = tree.unwrap().id;
}

async fn space(c: &Client) -> (u64, u64) {
    let root = opens(c, "").await.unwrap();
    let class = volume::Class::FullSize.number();
    let answer = ask(c, root, info_type::FILESYSTEM, class, 32).await.ok().unwrap();
    let told = volume::FullSize::parse(&Response::parse(&answer.message).unwrap().buffer).unwrap();
    c.close(root).await;
    let unit = u64::from(told.sectors_per_unit) * u64::from(told.bytes_per_sector);
    (told.total * unit, told.caller_available * unit)
}

#[tokio::test]
async fn share_for_backups_has_its_size_and_full_sync() {
    let harness = Harness::new();
    let mut c = harness.client();
    let whole = space(&c).await.0;
    for_backups(&mut c, Some(16 << 20));
    let told = agree(&c, ASKS).await;
    assert_eq!(told.volume, Some(volume_caps::FULL_SYNC));
    assert_eq!(space(&c).await, (16 << 20, 16 << 20));
    for folder in ["Mac.sparsebundle", r"Mac.sparsebundle\bands"] {
        let made = c.create(folder, |r| r.options = option::DIRECTORY_FILE).await.unwrap();
        c.close(made.file).await;
    }
    let plist = b"<plist><dict><key>band-size</key><integer>1048576</integer></dict></plist>";
    make(&c, r"Mac.sparsebundle\Info.plist", plist).await;
    for band in ["0", "1", "2f"] {
        make(&c, &format!(r"Mac.sparsebundle\bands\{band}"), b"x").await;
    }
    assert_eq!(space(&c).await.1, 16 << 20, "it was counted just now");
    for_backups(&mut c, Some(16 << 20));
    assert_eq!(space(&c).await, (16 << 20, 13 << 20));
    for_backups(&mut c, None);
    assert_eq!(space(&c).await.0, whole, "without a size the share is as large as its volume");
    assert_eq!(agree(&c, ASKS).await.volume, Some(volume_caps::FULL_SYNC));
}

/// As Time Machine opens the files of a bundle: with AAPL, a lease and a durable handle in one request.
#[tokio::test]
async fn durable_handles_are_granted_beside_aapl() {
    let mut c = Harness::new().client();
    for_backups(&mut c, None);
    let durable = DurableV2 { timeout: 0, flags: 0, guid: [5; 16] };
    let v2 = Some(LeaseV2 { parent: [0; 16], epoch: 0 });
    let lease = Lease { key: [3; 16], state: 7, flags: 0, v2 };
    let made = c.create("bundle", |r| {
        r.oplock_level = oplock::LEASE;
        r.contexts = vec![durable.context(), lease.context(), ASKS.context()];
    });
    let made = made.await.unwrap();
    let told = Told::parse(&made.contexts).unwrap();
    assert!(told.aapl.is_some() && told.durable_v2.is_some(), "{told:?}");
    assert_eq!((made.oplock_level, told.lease.map(|l| l.state)), (oplock::LEASE, Some(7)));
}

/// Spotlight's service. macOS asks for it at every mount.
#[tokio::test]
async fn pipe_of_spotlight_is_not_there() {
    let mut c = Harness::new().client();
    let session = c.core.sessions.get(c.session_id).unwrap();
    let tree = session.add_tree(|id| Tree {
        last_take_up: LastTakeUp::default(),
        is_dfs: false,
        home: None,
        id,
        session_id: session.id,
        name: "IPC$".into(),
        target: Target::Pipes,
        cred: Cred::root(),
        maximal_access: 0x001f_00a9,
        settings: ShareSettings::default(),
    });
    c.tree_id = tree.unwrap().id;
    let asked = c.create("mdssvc", |r| r.access = 0x0012_019f).await;
    assert_eq!(asked.map(|r| r.file), Err(Status::OBJECT_NAME_NOT_FOUND));
}
