//! QUERY_DIRECTORY and CHANGE_NOTIFY.

use std::sync::Arc;

use vfs::Acting;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::namespace::{LOOKS_AT_ONCE, Rules, Share};
use vfs::{CreateHow, Cred, SetAttr};

use super::data::write;
use super::info::set;
use crate::dtyp::mask;
use crate::fscc::chained;
use crate::fscc::dir::Level;
use crate::fscc::ea::FullEa;
use crate::fscc::file::Class;
use crate::fscc::notify::{Action, Change};
use crate::fscc::set::Set;
use crate::harness::{Answered, Client, Harness, doom};
use crate::ops::room;
use crate::status::Status;
use crate::wire::Command;
use crate::wire::change_notify::{self, WATCH_TREE, filter};
use crate::wire::create::{self, Disposition, option};
use crate::wire::file_id::FileId;
use crate::wire::query_directory::{Request, Response, flag};
use crate::wire::query_info::{self, info_type};
use crate::wire::set_info;

pub(super) async fn list(
    c: &Client,
    file: FileId,
    pattern: &str,
    flags: u8,
    (level, len): (u8, u32),
) -> Result<Vec<String>, Status> {
    let pattern = pattern.to_owned();
    let r = Request { class: level, flags, file_index: 0, file, output_len: len, pattern };
    let answer = c.ask(Command::QueryDirectory, &r.emit()).await;
    if answer.status() != Status::SUCCESS {
        return Err(answer.status());
    }
    let buffer = Response::parse(&answer.whole()).unwrap().buffer;
    let level = Level::from_number(level).unwrap();
    Ok(chained(&buffer).map(|e| level.parse(e.unwrap()).unwrap().0).collect())
}

pub(super) const BIG: (u8, u32) = (37, 65_536);

async fn dir(c: &Client, name: &str) -> FileId {
    c.create(name, |r| r.options = option::DIRECTORY_FILE).await.unwrap().file
}

async fn filled(c: &Client, names: &[&str]) -> FileId {
    let d = dir(c, "d").await;
    for name in names {
        let file = c.open(&format!("d\\{name}")).await;
        c.close(file).await;
    }
    d
}

#[tokio::test]
async fn every_level_lists_every_name_once() {
    let c = Harness::new().client();
    let names: Vec<String> = (0..300).map(|n| format!("file-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let d = filled(&c, &names).await;
    for level in Level::ALL.into_iter().filter(|l| *l != Level::Posix) {
        let n = level.number();
        let mut found = list(&c, d, "*", flag::REOPEN, (n, 1000)).await.unwrap();
        assert!(found.len() < 60, "what does not fit comes later");
        loop {
            match list(&c, d, "*", 0, (n, 3000)).await {
                Ok(more) => found.extend(more),
                Err(why) => break assert_eq!(why, Status::NO_MORE_FILES),
            }
        }
        assert_eq!(found[..2], [".", ".."]);
        found.sort();
        found.dedup();
        assert_eq!(found.len(), names.len() + 2, "{level:?}");
    }
    let posix = list(&c, d, "*", flag::REOPEN, (100, 65_536)).await;
    assert_eq!(posix, Err(Status::INVALID_INFO_CLASS), "nobody agreed on it");
}

/// Total length of all extended attributes, and four more bytes for an open file (MS-FSA sections 2.1.5.6.3, 2.1.5.12.10 and
/// 2.1.5.12.2).
#[tokio::test]
async fn the_size_of_extended_attributes_is_told() {
    let c = Harness::new().client();
    let d = filled(&c, &["none"]).await;
    let f = c.open("d\\some").await;
    let list = [("ONE", 4), ("OTHER", 0x101)].map(|(name, len)| FullEa {
        flags: 0,
        name: name.into(),
        value: vec![7; len],
    });
    let length: usize = list.iter().map(|ea| ea.emit().len()).sum();
    let length = u32::try_from(length).unwrap();
    let (class, buffer) = Set::FullEa(FullEa::emit_list(&list)).emit();
    let r = set_info::Request { info_type: info_type::FILE, class, additional: 0, file: f, buffer };
    assert_eq!(c.ask(Command::SetInfo, &r.emit()).await.status(), Status::SUCCESS);
    for level in Level::ALL.into_iter().filter(|l| l.tells_ea_size()) {
        for (pattern, want) in [("some", length), ("none", 0), ("s*", length)] {
            let (class, pattern) = (level.number(), pattern.to_owned());
            let flags = flag::REOPEN;
            let r = Request { class, flags, file_index: 0, file: d, output_len: 1000, pattern };
            let answer = c.ask(Command::QueryDirectory, &r.emit()).await;
            let (_, facts) =
                level.parse(&Response::parse(&answer.message).unwrap().buffer).unwrap();
            assert_eq!(facts.ea_size, want, "{level:?}");
        }
    }
    for (class, at) in [(Class::Ea, 0), (Class::All, 72)] {
        let r = query_info::Request {
            info_type: info_type::FILE,
            class: class.number(),
            output_len: 1000,
            additional: 0,
            flags: 0,
            file: f,
            input: Vec::new(),
        };
        let answer = c.ask(Command::QueryInfo, &r.emit()).await;
        let told = Response::parse(&answer.message).unwrap().buffer;
        assert_eq!(told[at..][..4], (length + 4).to_le_bytes(), "{class:?}");
    }
}

#[tokio::test]
async fn patterns_restarts_and_single_entries() {
    let c = Harness::new().client();
    let d = filled(&c, &["a.txt", "b.txt", "b.c"]).await;
    let found = list(&c, d, "B.*", 0, BIG).await.map(|mut f| {
        f.sort();
        f
    });
    assert_eq!(found.unwrap(), ["b.c", "b.txt"]);
    assert_eq!(list(&c, d, "*", 0, BIG).await, Err(Status::NO_MORE_FILES), "goes on");
    let again = list(&c, d, "<.txt", flag::RESTART_SCANS, BIG).await.unwrap();
    assert_eq!(again.len(), 2, "with a new pattern");
    let none = list(&c, d, "x*", flag::REOPEN, BIG).await;
    assert_eq!(none, Err(Status::NO_SUCH_FILE), "nothing at all");
    assert_eq!(list(&c, d, "x*", 0, BIG).await, Err(Status::NO_MORE_FILES), "and no more");
    let one = list(&c, d, "A.TXT", flag::REOPEN, BIG).await.unwrap();
    assert_eq!(one, ["a.txt"], "a name is looked up");
    assert_eq!(list(&c, d, "A.TXT", 0, BIG).await, Err(Status::NO_MORE_FILES));
    let mut names = list(&c, d, "*", flag::REOPEN | flag::RETURN_SINGLE_ENTRY, BIG).await.unwrap();
    while let Ok(one) = list(&c, d, "*", flag::RETURN_SINGLE_ENTRY, BIG).await {
        assert_eq!(one.len(), 1);
        names.extend(one);
    }
    assert_eq!(names.len(), 5);
}

#[tokio::test]
async fn what_cannot_be_listed_is_refused() {
    let c = Harness::new().client();
    let d = filled(&c, &["a-name-of-some-length"]).await;
    let f = c.open("f").await;
    assert_eq!(list(&c, f, "*", 0, BIG).await, Err(Status::INVALID_PARAMETER), "a file");
    assert_eq!(list(&c, d, "*", 0, (4, 1000)).await, Err(Status::INVALID_INFO_CLASS));
    assert_eq!(list(&c, d, "*", 0, (37, 103)).await, Err(Status::INFO_LENGTH_MISMATCH));
    assert_eq!(list(&c, d, "*", 0, (37, u32::MAX)).await, Err(Status::INVALID_PARAMETER));
    for bad in ["a\\*", "a:b", "a|*", "\u{1}*", "a/b"] {
        let refused = list(&c, d, bad, 0, BIG).await;
        assert_eq!(refused, Err(Status::OBJECT_NAME_INVALID), "{bad:?}");
    }
    assert_eq!(list(&c, d, &"*".repeat(5000), 0, BIG).await, Err(Status::OBJECT_NAME_INVALID));
    let cut = list(&c, d, "a*", 0, (37, 106)).await;
    assert_eq!(cut, Err(Status::BUFFER_OVERFLOW), "one name, and not even that");
    let blind = c.create("d", |r| r.access = mask::READ_ATTRIBUTES).await.unwrap().file;
    assert_eq!(list(&c, blind, "*", 0, BIG).await, Err(Status::ACCESS_DENIED));
}

pub(super) fn watch(file: FileId, len: u32, filter: u32) -> Vec<u8> {
    change_notify::Request { flags: WATCH_TREE, output_len: len, file, filter }.emit()
}

pub(super) fn changes(message: &[u8]) -> Vec<Change> {
    Change::parse_list(&Response::parse(message).unwrap().buffer).unwrap()
}

#[tokio::test]
async fn changes_are_told_when_they_come_and_kept_when_nobody_waits() {
    let c = Harness::new().client();
    let d = dir(&c, "d").await;
    let first = c.ask(Command::ChangeNotify, &watch(d, 1000, filter::ALL)).await;
    assert_eq!(first.status(), Status::PENDING);
    let file = c.open("d\\new").await;
    let told = c.pushed().await;
    assert_eq!(told.status(), Status::SUCCESS);
    let added = Change { action: Action::Added, name: "new".into() };
    assert_eq!(changes(&told.message), [added]);
    c.close(file).await;
    let doomed = c.create("d\\new", doom).await.unwrap().file;
    c.close(doomed).await;
    let told = c.ask(Command::ChangeNotify, &watch(d, 1000, filter::ALL)).await;
    let removed = Change { action: Action::Removed, name: "new".into() };
    assert_eq!(changes(&told.message), [removed], "it waited");
}

/// Changes that the kernel does not report (MS-FSCC section 2.7.1).
#[tokio::test]
async fn changes_of_named_streams_are_told() {
    let c = Harness::new().client();
    let d = dir(&c, "d").await;
    let s = c.open("d\\f:s").await;
    let told = async || changes(&c.pushed().await.message);
    let changed = [Change { action: Action::ModifiedStream, name: "f:s".into() }];
    // Each watcher waits for one kind of change: of the size, or of the data.
    let sizes = async || {
        let d = dir(&c, "d").await;
        let first = c.ask(Command::ChangeNotify, &watch(d, 1000, filter::STREAM_SIZE)).await;
        assert_eq!(first.status(), Status::PENDING);
        d
    };
    let first = c.ask(Command::ChangeNotify, &watch(d, 1000, filter::STREAM_WRITE)).await;
    assert_eq!(first.status(), Status::PENDING);
    assert_eq!(write(&c, s, 0, b"12345").await, Status::SUCCESS);
    assert_eq!(told().await, changed, "written");
    let watching = sizes().await;
    assert_eq!(write(&c, s, 0, b"54321").await, Status::SUCCESS);
    assert_eq!(set(&c, s, Set::EndOfFile(3)).await, Status::SUCCESS);
    assert_eq!(told().await, changed, "cut, and only written to before");
    c.close(watching).await;
    sizes().await;
    c.create("d\\f:s", |r| r.disposition = Disposition::Overwrite as u32).await.unwrap();
    assert_eq!(told().await, changed, "overwritten");
}

/// The same for commands that copy, clear and share the data of a stream.
#[tokio::test]
async fn commands_that_change_a_stream_without_a_write_are_told() {
    use super::ioctl::{put, status};
    use crate::wire::fsctl::{Chunk, CopyChunks, DuplicateExtents, ResumeKey, Span, Trim, code};
    const CLUSTER: u32 = 4096;
    let c = Harness::new().client();
    dir(&c, "d").await;
    let (s, source) = (c.open("d\\f:s").await, c.open("source").await);
    for file in [s, source] {
        put(&c, file, 0, &[b'x'; CLUSTER as usize]).await;
    }
    let span = Span { at: 0, other: CLUSTER.into() };
    let copy = |to| {
        let chunks = vec![Chunk { from: 0, to, len: CLUSTER }];
        CopyChunks { key: ResumeKey::of(source), count: 1, chunks }.emit()
    };
    let duplicate = DuplicateExtents { source, from: 0, to: 0, count: CLUSTER.into() };
    let written = filter::STREAM_WRITE;
    for (code, input, kind) in [
        (code::SRV_COPYCHUNK_WRITE, copy(0), written),
        (code::SRV_COPYCHUNK, copy(0), written),
        (code::SRV_COPYCHUNK, copy(CLUSTER.into()), filter::STREAM_SIZE),
        (code::SET_ZERO_DATA, span.emit().to_vec(), written),
        (code::FILE_LEVEL_TRIM, Trim { ranges: vec![span] }.emit(), written),
        (code::DUPLICATE_EXTENTS_TO_FILE, duplicate.emit().to_vec(), written),
    ] {
        let d = dir(&c, "d").await;
        let first = c.ask(Command::ChangeNotify, &watch(d, 1000, kind)).await;
        assert_eq!(first.status(), Status::PENDING);
        assert_eq!(status(&c, s, code, &input).await, Status::SUCCESS, "{code:#x}");
        let changed = Change { action: Action::ModifiedStream, name: "f:s".into() };
        assert_eq!(changes(&c.pushed().await.message), [changed], "{code:#x}");
        c.close(d).await;
        // Closing the watch sends a final response; discard it.
        while c.asked.lock().unwrap().try_recv().is_ok() {}
    }
}

/// A watcher with WATCH_TREE is notified only of names that it could list, no matter which client changes them.
#[tokio::test]
async fn a_watcher_is_told_of_nothing_in_a_folder_that_it_may_not_list() {
    let harness = Harness::new();
    let (owner, eve) = (harness.client(), harness.client_as(1005));
    let (d, secret) = (dir(&owner, "d").await, dir(&owner, "d\\secret").await);
    let root = harness.core.namespace.shares()[0].backend.root();
    let (node, _) = root.lookup(&Cred::root(), b"d").await.unwrap();
    let (inner, _) = node.lookup(&Cred::root(), b"secret").await.unwrap();
    for (node, mode) in [(node, 0o755), (inner, 0o700)] {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        node.setattr(&Cred::root(), set, false).await.unwrap();
    }
    owner.close(d).await;
    owner.close(secret).await;
    let list = |r: &mut create::Request<'_>| {
        (r.access, r.options) = (mask::READ_DATA, option::DIRECTORY_FILE);
    };
    assert_eq!(eve.create("d\\secret", list).await.map(|r| r.file), Err(Status::ACCESS_DENIED));
    let watched = eve.create("d", list).await.unwrap().file;
    let first = eve.ask(Command::ChangeNotify, &watch(watched, 1000, filter::ALL)).await;
    assert_eq!(first.status(), Status::PENDING);
    for name in ["d\\secret\\layoffs", "d\\secret\\f:s", "d\\new"] {
        owner.open(name).await;
    }
    let added = Change { action: Action::Added, name: "new".into() };
    assert_eq!(changes(&eve.pushed().await.message), [added]);
}

#[tokio::test]
async fn a_watch_ends_with_its_open_and_with_its_directory() {
    let c = Harness::new().client();
    let (d, e) = (dir(&c, "d").await, dir(&c, "e").await);
    let ask = async |file| c.ask(Command::ChangeNotify, &watch(file, 1000, filter::ALL)).await;
    assert_eq!(ask(d).await.status(), Status::PENDING);
    c.close(d).await;
    assert_eq!(c.pushed().await.status(), Status::NOTIFY_CLEANUP);
    assert_eq!(ask(e).await.status(), Status::PENDING);
    let doomed = c
        .create("e", |r| {
            r.disposition = Disposition::Open as u32;
            r.options = option::DIRECTORY_FILE;
            doom(r);
        })
        .await
        .unwrap();
    c.close(doomed.file).await;
    assert_eq!(c.pushed().await.status(), Status::DELETE_PENDING);
    assert_eq!(ask(e).await.status(), Status::DELETE_PENDING);
}

#[tokio::test]
async fn what_does_not_fit_is_to_be_looked_up() {
    let c = Harness::new().client();
    let d = dir(&c, "d").await;
    let ask = async |len| c.ask(Command::ChangeNotify, &watch(d, len, filter::FILE_NAME)).await;
    assert_eq!(ask(1).await.status(), Status::PENDING);
    let file = c.open("d\\f").await;
    assert_eq!(c.pushed().await.status(), Status::NOTIFY_ENUM_DIR);
    c.close(file).await;
    let much = c.ask(Command::ChangeNotify, &watch(d, u32::MAX, filter::ALL)).await.status();
    assert_eq!(much, Status::INVALID_PARAMETER);
    let file = c.open("f").await;
    let f = c.ask(Command::ChangeNotify, &watch(file, 1000, filter::ALL)).await.status();
    assert_eq!(f, Status::INVALID_PARAMETER, "a file");
}

/// One request searches a folder of any length without visible entries, and the client can cancel it.
#[tokio::test(start_paused = true)]
async fn a_listing_that_takes_long_can_be_cancelled_and_loses_nothing() {
    let harness = Harness::new();
    let old = harness.core.namespace.shares()[0].clone();
    let rules = Rules { only_visible: true, ..Rules::default() };
    let (name, backend) = (old.name.clone(), old.backend.clone());
    let share = Arc::new(Share { name, backend, clients: None, rules, ..*old });
    harness.core.namespace.set_shares([share].into());
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let (root, guarded) = (Cred::root(), CreateHow::Guarded);
    let made =
        old.backend.root().mkdir(Acting::caller(&root), b"d", mode(0o755)).await.unwrap().node;
    for n in 0..20 * LOOKS_AT_ONCE {
        made.create(Acting::caller(&root), format!("{n:05}").as_bytes(), guarded, mode(0o600))
            .await
            .unwrap();
    }
    made.create(Acting::caller(&root), b"shown", guarded, mode(0o644)).await.unwrap();
    let c = harness.client_as(1005);
    let d = c.create("d", |r| (r.access, r.options) = (mask::READ_DATA, option::DIRECTORY_FILE));
    let d = d.await.unwrap().file;
    let cancelled = c.cancels_next();
    let (listed, ()) = tokio::join!(list(&c, d, "*", 0, BIG), cancelled);
    assert_eq!(listed, Err(Status::CANCELLED));
    assert_eq!(list(&c, d, "*", 0, BIG).await.unwrap(), [".", "..", "shown"]);
}

/// Like READ, a client that leaves responses unread gets no more large ones, and its responses count until they were sent.
#[tokio::test]
async fn a_large_listing_waits_for_a_client_that_takes_no_answers() {
    const LARGE: u32 = 1 << 20;
    let c = Harness::new().client();
    let names: Vec<String> = (0..700).map(|n| format!("a-name-of-some-length-{n:04}")).collect();
    let d = filled(&c, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let request = |len| Request {
        class: BIG.0,
        flags: flag::REOPEN,
        file_index: 0,
        file: d,
        output_len: len,
        pattern: "*".to_owned(),
    };
    let heap = || c.conn.info.pool.heap_stats().in_use;
    let reply = c.reply(Command::QueryDirectory, &request(LARGE).emit(), &[]).await;
    let counted = heap();
    assert!(counted > room::SMALL_MAX, "{counted}");
    let answer = Answered::of(reply);
    let buffer = Response::parse(&answer.whole()).unwrap().buffer;
    assert!(buffer.len() <= counted && chained(&buffer).count() == names.len() + 2);
    drop(answer);
    assert_eq!(heap(), 0, "it has left");
    let backpressure = c.conn.info.backpressure.clone();
    backpressure.moved(0, true, std::time::Instant::now());
    let small = list(&c, d, "*", flag::REOPEN, BIG).await.unwrap();
    assert!(!small.is_empty());
    let mut large = std::pin::pin!(list(&c, d, "*", flag::REOPEN, (BIG.0, LARGE)));
    let wait = std::time::Duration::from_millis(200);
    assert!(tokio::time::timeout(wait, large.as_mut()).await.is_err());
    assert_eq!(heap(), 0, "nothing was put together");
    backpressure.moved(1, false, std::time::Instant::now());
    assert_eq!(large.await.unwrap().len(), names.len() + 2);
}

#[tokio::test]
async fn covered_folders_count_for_their_address() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
    let backend = LocalBackend::open(LocalConfig::new(dir.path())).unwrap();
    let harness = Harness::on(backend, None);
    let c = harness.client_as(0);
    let room = || harness.core.covered_by_address.of(c.conn.info.peer).room(1 << 20);
    let all = room();
    let file = self::dir(&c, "").await;
    let (output_len, filter) = (1000, filter::FILE_NAME);
    let r = change_notify::Request { flags: WATCH_TREE, output_len, file, filter };
    assert_eq!(c.ask(Command::ChangeNotify, &r.emit()).await.status(), Status::PENDING);
    let taken = all - room();
    if taken == 0 {
        println!("skipped: no fanotify for this user");
        return;
    }
    assert_eq!(taken, 4);
    c.close(file).await;
    assert_eq!(c.pushed().await.status(), Status::NOTIFY_CLEANUP);
    tokio::task::yield_now().await;
    assert_eq!(room(), all);
}

#[tokio::test]
async fn an_address_has_its_part_of_the_directories_that_are_watched() {
    let harness = Harness::new();
    let c = harness.client();
    let (d, e) = (dir(&c, "d").await, dir(&c, "e").await);
    let mut rest = harness.core.watches_by_address.of(c.conn.info.peer);
    let most = crate::limits::WATCHES_PER_ADDRESS_MAX;
    rest.set(most - 1).unwrap();
    let watch = async |file| {
        let filter = filter::FILE_NAME;
        let r = change_notify::Request { flags: 0, output_len: 1000, file, filter };
        c.ask(Command::ChangeNotify, &r.emit()).await.status()
    };
    assert_eq!(watch(d).await, Status::PENDING);
    assert_eq!(watch(e).await, Status::INSUFFICIENT_RESOURCES);
    assert_eq!(watch(d).await, Status::PENDING, "it is the same watch");
    c.close(d).await;
    for _ in 0..2 {
        assert_eq!(c.pushed().await.status(), Status::NOTIFY_CLEANUP);
    }
    tokio::task::yield_now().await;
    assert_eq!(watch(e).await, Status::PENDING);
}

/// A client that asks for no changes gets an overflow when its address has used its part.
#[tokio::test]
async fn an_address_has_its_part_of_the_changes_that_wait() {
    use crate::limits::WATCH_EVENT_BYTES_PER_ADDRESS_MAX as MOST;
    let harness = Harness::new();
    let c = harness.client();
    let part = |at| harness.core.watch_events_by_address.of(at);
    let here = c.conn.info.peer;
    let (file, filter) = (self::dir(&c, "").await, filter::FILE_NAME);
    let asks = async || {
        let r = change_notify::Request { flags: 0, output_len: 1000, file, filter };
        assert_eq!(c.ask(Command::ChangeNotify, &r.emit()).await.status(), Status::PENDING);
    };
    asks().await;
    let mut rest = part(here);
    rest.set(MOST - 50).unwrap();
    c.open("a name of some length").await;
    assert_eq!(c.pushed().await.status(), Status::NOTIFY_ENUM_DIR);
    let met = rdma_transport::count::limits_met();
    assert!(met.iter().any(|(limit, n)| *limit == "watch-events-of-address" && *n > 0));
    assert!(part("192.0.2.7:445".parse().unwrap()).set(MOST).is_ok(), "another address");
    rest.set(0).unwrap();
    asks().await;
    c.open("another").await;
    assert_eq!(c.pushed().await.status(), Status::SUCCESS, "the watch goes on");
    assert_eq!(part(here).room(MOST), MOST, "what was told is gone");
}
