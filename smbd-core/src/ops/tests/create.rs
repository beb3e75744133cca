//! CREATE: every disposition on existing and missing files, names, options, access, streams.

use vfs::local::{LocalBackend, LocalConfig};

use super::info::{query, set};
use super::ioctl::put;
use crate::dtyp::mask;
use crate::fscc::attribute;
use crate::fscc::ea::FullEa;
use crate::fscc::file::{Basic, Class};
use crate::fscc::set::Set;
use crate::harness::{Harness, doom};
use crate::status::Status;
use crate::wire::context::{Told, name};
use crate::wire::create::{Context, Disposition, action, option, share};

#[tokio::test]
async fn every_disposition_does_what_it_says() {
    use Disposition::*;
    let c = Harness::new().client();
    let missing = Status::OBJECT_NAME_NOT_FOUND;
    let table = [
        (Supersede, Ok(action::CREATED), Ok(action::SUPERSEDED)),
        (Open, Err(missing), Ok(action::OPENED)),
        (Create, Ok(action::CREATED), Err(Status::OBJECT_NAME_COLLISION)),
        (OpenIf, Ok(action::CREATED), Ok(action::OPENED)),
        (Overwrite, Err(missing), Ok(action::OVERWRITTEN)),
        (OverwriteIf, Ok(action::CREATED), Ok(action::OVERWRITTEN)),
    ];
    for (d, new, old) in table {
        let name = format!("f{}", d as u32);
        for want in [new, old] {
            if want == old && new.is_err() {
                let file = c.open(&name).await;
                c.close(file).await;
            }
            let got = c.create(&name, |r| r.disposition = d as u32).await;
            assert_eq!(got.as_ref().map(|g| g.action).map_err(|s| *s), want, "{d:?}");
            if let Ok(got) = got {
                assert_eq!(c.close(got.file).await, Status::SUCCESS);
            }
        }
    }
    assert_eq!(c.core.opens.count(), 0);
}

/// The host removes the share's folder or a folder in the path; the client has not closed any handle.
#[tokio::test]
async fn create_in_removed_folder_finds_none() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join("share");
    std::fs::create_dir_all(top.join("d/e")).unwrap();
    let backend = LocalBackend::open(LocalConfig::new(&top)).unwrap();
    let c = Harness::on(backend, None).client_as(0);
    c.open(r"d\e\f").await;
    std::fs::remove_dir_all(&top).unwrap();
    for (path, want) in [
        ("", Status::OBJECT_NAME_NOT_FOUND),
        ("d", Status::OBJECT_NAME_NOT_FOUND),
        (r"d\e", Status::OBJECT_PATH_NOT_FOUND),
        (r"d\e\f", Status::OBJECT_PATH_NOT_FOUND),
    ] {
        for disposition in [Disposition::Open, Disposition::OpenIf, Disposition::Create] {
            let got = c.create(path, |r| r.disposition = disposition as u32).await;
            let why = got.map(|opened| opened.action).unwrap_err();
            let is_there_not = [want, Status::OBJECT_NAME_COLLISION, Status::ACCESS_DENIED];
            assert!(is_there_not.contains(&why), "{path:?} {disposition:?}: {why:?}");
        }
    }
}

#[tokio::test]
async fn requests_that_mean_nothing_are_refused() {
    let c = Harness::new().client();
    let f = c.open("file").await;
    let refused = async |change: &dyn Fn(&mut crate::wire::create::Request<'static>)| {
        c.create("file", |r| change(r)).await.unwrap_err()
    };
    assert_eq!(refused(&|r| r.impersonation = 4).await, Status::BAD_IMPERSONATION_LEVEL);
    assert_eq!(refused(&|r| r.access = 0).await, Status::ACCESS_DENIED);
    assert_eq!(refused(&|r| r.access = 0x0400_0000).await, Status::ACCESS_DENIED);
    assert_eq!(refused(&|r| r.disposition = 6).await, Status::INVALID_PARAMETER);
    assert_eq!(refused(&|r| r.share = 8).await, Status::INVALID_PARAMETER);
    assert_eq!(refused(&|r| r.options = 0x0100_0000).await, Status::INVALID_PARAMETER);
    assert_eq!(refused(&|r| r.options = option::OPEN_BY_FILE_ID).await, Status::NOT_SUPPORTED);
    let both = option::DIRECTORY_FILE | option::NON_DIRECTORY_FILE;
    assert_eq!(refused(&|r| r.options = both).await, Status::INVALID_PARAMETER);
    assert_eq!(refused(&|r| r.options = option::DIRECTORY_FILE).await, Status::NOT_A_DIRECTORY);
    let at = |name: &'static [u8], data: &[u8]| vec![Context::new(name, data.to_vec())];
    let when = at(name::TIMEWARP_TOKEN, &1_u64.to_le_bytes());
    assert_eq!(refused(&|r| r.contexts = when.clone()).await, Status::OBJECT_NAME_NOT_FOUND);
    let disk = at(name::SVHDX_OPEN_DEVICE, &[0; 8]);
    assert_eq!(refused(&|r| r.contexts = disk.clone()).await, Status::INVALID_DEVICE_REQUEST);
    let lease = at(name::REQUEST_LEASE, &[0; 31]);
    assert_eq!(refused(&|r| r.contexts = lease.clone()).await, Status::INVALID_PARAMETER);
    c.close(f).await;
}

/// MS-SMB2 section 3.3.5.9, "Open Execution".
#[tokio::test]
async fn whoever_does_without_buffers_does_not_append() {
    let harness = Harness::new();
    let c = harness.client();
    let f = c.create("f", |r| {
        r.access = mask::WRITE_DATA | mask::APPEND_DATA;
        r.options = option::NO_INTERMEDIATE_BUFFERING;
    });
    let granted = harness.core.opens.get(f.await.unwrap().file).unwrap().granted;
    assert_eq!(granted & (mask::WRITE_DATA | mask::APPEND_DATA), mask::WRITE_DATA);
}

#[tokio::test]
async fn paths_lead_where_they_say() {
    let c = Harness::new().client();
    let dir = c.create("Dir", |r| r.options = option::DIRECTORY_FILE).await.unwrap();
    assert_eq!(dir.basics.attributes, attribute::DIRECTORY);
    let f = c.open("Dir\\File.TXT").await;
    let again = c.create("dIR\\file.txt", |r| r.disposition = Disposition::Open as u32).await;
    let again = again.unwrap().file;
    let place = c.core.opens.get(again).unwrap().file().unwrap().place();
    assert_eq!((place.path.as_str(), &place.name[..]), ("Dir\\File.TXT", &b"File.TXT"[..]));
    for (name, why) in [
        ("nothing\\x", Status::OBJECT_PATH_NOT_FOUND),
        ("Dir\\File.TXT\\x", Status::OBJECT_PATH_NOT_FOUND),
        ("\\Dir", Status::INVALID_PARAMETER),
        ("Dir\\*", Status::OBJECT_NAME_INVALID),
        ("Dir\\..\\..\\x", Status::OBJECT_PATH_SYNTAX_BAD),
        ("Dir\\File.TXT\\", Status::OBJECT_NAME_INVALID),
    ] {
        assert_eq!(c.create(name, |_| {}).await.unwrap_err(), why, "{name}");
    }
    let root = c.create("", |r| r.disposition = Disposition::Open as u32).await.unwrap();
    assert_eq!(root.basics.attributes & attribute::DIRECTORY, attribute::DIRECTORY);
    for file in [dir.file, f, again, root.file] {
        c.close(file).await;
    }
}

#[tokio::test]
async fn attributes_stand_in_the_way_of_writing() {
    let c = Harness::new().client();
    let made = c.create("ro", |r| r.attributes = attribute::READONLY).await.unwrap();
    assert_eq!(made.basics.attributes, attribute::READONLY | attribute::ARCHIVE);
    // FILE_ATTRIBUTE_INTEGRITY_STREAM belongs to other file systems (MS-FSCC section 2.6).
    let other = c.create("other", |r| r.attributes = 0x8000).await.unwrap();
    assert_eq!(other.basics.attributes, attribute::ARCHIVE);
    c.close(made.file).await;
    let write = c.create("ro", |r| r.access = mask::GENERIC_WRITE).await;
    assert_eq!(write.unwrap_err(), Status::ACCESS_DENIED);
    let cut = c.create("ro", |r| r.disposition = Disposition::OverwriteIf as u32).await;
    assert_eq!(cut.unwrap_err(), Status::ACCESS_DENIED);
    let delete = c.create("ro", doom).await;
    assert_eq!(delete.unwrap_err(), Status::CANNOT_DELETE);
    let read = c.create("ro", |_| {}).await.unwrap();
    let granted = c.core.opens.get(read.file).unwrap().granted;
    assert_eq!(granted & (mask::WRITE_DATA | mask::APPEND_DATA), 0, "the most that is allowed");
    let hidden = attribute::HIDDEN;
    let h = c.create("h", |r| r.attributes = hidden).await.unwrap();
    let cut = async |attributes| {
        c.create("h", |r| {
            r.disposition = Disposition::Overwrite as u32;
            r.attributes = attributes;
        })
        .await
    };
    assert_eq!(cut(0).await.unwrap_err(), Status::ACCESS_DENIED);
    assert!(cut(hidden).await.is_ok());
    c.close(h.file).await;
}

/// A backup clears the archive attribute; the next change sets it again, even through an older handle (MS-FSA section 2.1.4.17).
#[tokio::test]
async fn what_changes_is_to_be_archived_again() {
    let harness = Harness::new();
    let (c, backup) = (harness.client(), harness.client());
    let open = c.open("f").await;
    let taken = backup.open("f").await;
    let normal = Set::Basic(Basic { attributes: attribute::NORMAL, ..Basic::default() });
    let shown = async || {
        let basic = query(&backup, taken, Class::Basic).await.unwrap();
        Basic::parse(&basic).unwrap().attributes
    };
    for change in [Some(Set::EndOfFile(3)), None] {
        assert_eq!(set(&backup, taken, normal.clone()).await, Status::SUCCESS);
        assert_eq!(shown().await, attribute::NORMAL);
        match change {
            Some(change) => assert_eq!(set(&c, open, change).await, Status::SUCCESS),
            None => put(&c, open, 0, b"data").await,
        }
        assert_eq!(shown().await, attribute::ARCHIVE);
    }
}

#[tokio::test]
async fn what_is_shared_can_be_opened() {
    let harness = Harness::new();
    let (a, b) = (harness.client(), harness.client());
    let f = a
        .create("f", |r| {
            r.access = mask::GENERIC_READ;
            r.share = share::READ;
        })
        .await
        .unwrap();
    let want = async |access, shared| {
        b.create("f", |r| {
            r.access = access;
            r.share = shared;
        })
        .await
        .map(|o| o.file)
    };
    let all = share::READ | share::WRITE | share::DELETE;
    assert_eq!(want(mask::GENERIC_WRITE, all).await, Err(Status::SHARING_VIOLATION));
    assert_eq!(want(mask::DELETE, all).await, Err(Status::SHARING_VIOLATION));
    assert_eq!(want(mask::GENERIC_READ, share::WRITE).await, Err(Status::SHARING_VIOLATION));
    let reader = want(mask::GENERIC_READ, all).await.unwrap();
    let looker = want(mask::READ_ATTRIBUTES, 0).await.unwrap();
    let cut = b.create("f", |r| {
        r.access = mask::READ_ATTRIBUTES;
        r.disposition = Disposition::Overwrite as u32;
    });
    assert_eq!(cut.await.unwrap_err(), Status::SHARING_VIOLATION, "cutting is writing");
    a.close(f.file).await;
    b.close(reader).await;
    assert!(want(mask::GENERIC_WRITE, 0).await.is_ok());
    b.close(looker).await;
}

#[tokio::test]
async fn contexts_are_answered() {
    let c = Harness::new().client();
    let ask = || {
        vec![
            Context::new(name::QUERY_MAXIMAL_ACCESS, vec![]),
            Context::new(name::QUERY_ON_DISK_ID, vec![]),
            Context::new(b"what", vec![1]),
        ]
    };
    let made = c.create("f", |r| r.contexts = ask()).await.unwrap();
    let told = Told::parse(&made.contexts).unwrap();
    assert_eq!(told.maximal_access, Some((0, mask::FILE_ALL)));
    assert!(told.on_disk_id.is_some_and(|(file, _)| file != 0));
    // MS-SMB2 section 3.3.5.9.5 compares the change time.
    let known = made.basics.times[3].to_le_bytes().to_vec();
    let again = |data: Vec<u8>| vec![Context::new(name::QUERY_MAXIMAL_ACCESS, data)];
    let same = c.create("f", |r| r.contexts = again(known)).await.unwrap();
    let told = Told::parse(&same.contexts).unwrap();
    assert_eq!(told.maximal_access, Some((Status::NONE_MAPPED.0, 0)));
}

#[tokio::test]
async fn streams_are_files_of_their_own() {
    let c = Harness::new().client();
    let s = c.create("f:one", |_| {}).await.unwrap();
    assert_eq!((s.action, s.basics.end_of_file), (action::CREATED, 0));
    let open = |d: Disposition| {
        move |r: &mut crate::wire::create::Request<'static>| {
            r.disposition = d as u32;
        }
    };
    assert!(c.create("f", open(Disposition::Open)).await.is_ok(), "its file was made with it");
    let missing = c.create("f:two", open(Disposition::Open)).await;
    assert_eq!(missing.unwrap_err(), Status::OBJECT_NAME_NOT_FOUND);
    let there = c.create("F:ONE:$DATA", open(Disposition::Create)).await;
    assert_eq!(there.unwrap_err(), Status::OBJECT_NAME_COLLISION);
    let dir = c.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap();
    let of_dir = c.create("d:s", |_| {}).await.unwrap();
    assert_eq!(of_dir.basics.attributes & attribute::DIRECTORY, 0);
    let as_dir = c.create("d:s", |r| r.options = option::DIRECTORY_FILE).await;
    assert_eq!(as_dir.unwrap_err(), Status::NOT_A_DIRECTORY);
    c.close(dir.file).await;
    // Overwriting the file removes its streams.
    c.close(s.file).await;
    assert!(c.create("f", open(Disposition::Overwrite)).await.is_ok());
    let gone = c.create("f:one", open(Disposition::Open)).await;
    assert_eq!(gone.unwrap_err(), Status::OBJECT_NAME_NOT_FOUND);
}

/// Overwriting a file replaces its extended attributes (MS-FSA section 2.1.5.1.2, NTFS), except for clients with the POSIX
/// extensions.
#[tokio::test]
async fn extended_attributes_go_with_old_contents() {
    let ea = |name: &str| FullEa { flags: 0, name: name.into(), value: b"1".to_vec() }.emit();
    let harness = Harness::new();
    for (is_posix, c) in [(false, harness.client()), (true, harness.posix_client())] {
        for (how, goes) in [
            (Disposition::Open, false),
            (Disposition::OpenIf, false),
            (Disposition::Overwrite, true),
            (Disposition::OverwriteIf, true),
            (Disposition::Supersede, true),
        ] {
            let name = format!("f{is_posix}{how:?}");
            let made =
                c.create(&name, |r| r.contexts = vec![Context::new(name::EA_BUFFER, ea("OLD"))]);
            c.close(made.await.unwrap().file).await;
            let again = c.create(&name, |r| {
                r.disposition = how as u32;
                if goes {
                    r.contexts = vec![Context::new(name::EA_BUFFER, ea("NEW"))];
                }
            });
            let file = again.await.unwrap().file;
            let has = query(&c, file, Class::FullEa).await.unwrap();
            let mut names: Vec<_> =
                FullEa::parse_list(&has).unwrap().into_iter().map(|ea| ea.name).collect();
            names.sort();
            let want: &[&[u8]] = match (goes, is_posix) {
                (false, _) => &[b"OLD"],
                (true, false) => &[b"NEW"],
                (true, true) => &[b"NEW", b"OLD"],
            };
            assert_eq!(names, want, "{how:?} posix {is_posix}");
            c.close(file).await;
        }
    }
}

/// Attributes and extended attributes apply to the file, and its maker gets the requested access (MS-FSA section 2.1.5.1.1).
#[tokio::test]
async fn a_file_made_for_its_stream_gets_what_the_request_brings() {
    let c = Harness::new().client();
    let ea = FullEa { flags: 0, name: b"A".to_vec(), value: b"1".to_vec() };
    let given = attribute::READONLY | attribute::HIDDEN;
    let stream = c.create("f:s", |r| {
        r.attributes = given;
        r.access = mask::WRITE_DATA;
        r.contexts = vec![Context::new(name::EA_BUFFER, ea.emit())];
    });
    let stream = stream.await.unwrap();
    assert_eq!(stream.basics.attributes, given | attribute::ARCHIVE);
    put(&c, stream.file, 0, b"data").await;
    let file = c.create("f", |r| r.disposition = Disposition::Open as u32).await.unwrap();
    assert_eq!(file.basics.attributes, given | attribute::ARCHIVE);
    let has = query(&c, file.file, Class::FullEa).await.unwrap();
    assert_eq!(FullEa::parse_list(&has).unwrap()[0].value, b"1");
    let size = u64::MAX.to_le_bytes().to_vec();
    let too_much = vec![Context::new(name::ALLOCATION_SIZE, size)];
    let refused = c.create("g:s", |r| r.contexts = too_much).await;
    assert_eq!(refused.unwrap_err(), Status::DISK_FULL);
    let kept = c.create("g", |r| r.disposition = Disposition::Open as u32).await;
    assert_eq!(kept.unwrap_err(), Status::OBJECT_NAME_NOT_FOUND, "no file without its stream");
}

#[tokio::test]
async fn opens_of_others_cannot_be_used() {
    let harness = Harness::new();
    let (a, b) = (harness.client(), harness.client());
    let f = a.open("f").await;
    assert_eq!(b.close(f).await, Status::FILE_CLOSED);
    let mut forged = f;
    forged.persistent ^= 1;
    assert_eq!(a.close(forged).await, Status::FILE_CLOSED);
    assert_eq!(a.close(f).await, Status::SUCCESS);
    assert_eq!(a.close(f).await, Status::FILE_CLOSED);
}

#[tokio::test]
async fn a_user_gets_what_the_mode_gives() {
    let harness = Harness::new();
    let root = harness.client();
    let dir = root.create("d", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    let f = root.open("d\\f").await;
    root.close(f).await;
    root.close(dir).await;
    let user = harness.client_as(1000);
    let ask = async |access| user.create("d\\f", |r| r.access = access).await.map(|o| o.file);
    assert!(ask(mask::GENERIC_READ).await.is_ok());
    assert_eq!(ask(mask::GENERIC_WRITE).await, Err(Status::ACCESS_DENIED));
    assert_eq!(ask(mask::DELETE).await, Err(Status::ACCESS_DENIED));
    assert_eq!(ask(mask::WRITE_DAC).await, Err(Status::ACCESS_DENIED));
    let most = ask(mask::MAXIMUM_ALLOWED).await.unwrap();
    let granted = harness.core.opens.get(most).unwrap().granted;
    assert_eq!(granted & mask::READ_DATA, mask::READ_DATA);
    assert_eq!(granted & mask::WRITE_DATA, 0);
    assert_eq!(user.create("d\\new", |_| {}).await.unwrap_err(), Status::ACCESS_DENIED);
}

#[tokio::test]
async fn an_open_waits_for_the_one_who_caches() {
    use crate::wire::create::oplock;
    let harness = Harness::new();
    let (a, b) = (harness.client(), harness.client());
    let held = a.create("f", |r| r.oplock_level = oplock::BATCH).await.unwrap();
    assert_eq!(held.oplock_level, oplock::BATCH);
    assert_eq!(b.create("f", |_| {}).await.unwrap_err(), Status::PENDING);
    let told = a.pushed().await;
    assert_eq!(told.header.command(), Some(crate::wire::Command::OplockBreak));
    assert_eq!(a.close(held.file).await, Status::SUCCESS);
    let last = b.pushed().await;
    assert_eq!(last.status(), Status::SUCCESS);
    assert!(crate::wire::create::Response::parse(&last.message).is_ok());
}

/// Files and pipes count for every client of the address; closing one makes room.
#[tokio::test]
async fn opens_of_an_address_are_counted_from_create_to_close() {
    let harness = Harness::new();
    let (a, b) = (harness.client(), harness.client());
    let most = crate::limits::OPENS_PER_ADDRESS_MAX;
    let has = || harness.core.opens_by_address.of(a.conn.info.peer).room(most);
    let before = has();
    let (one, other) = (a.open("f").await, b.open("f").await);
    assert_eq!(before - has(), 2);
    let durable = a.create("g", |r| r.disposition = Disposition::OpenIf as u32).await.unwrap();
    assert_eq!(before - has(), 3);
    assert_eq!(
        a.create("none", |r| r.disposition = Disposition::Open as u32).await.err(),
        Some(Status::OBJECT_NAME_NOT_FOUND)
    );
    assert_eq!(before - has(), 3);
    for (c, f) in [(&a, one), (&b, other), (&a, durable.file)] {
        c.close(f).await;
    }
    assert_eq!(before, has());
    // A long path takes as much memory as many short ones: this one has 4,516 bytes of UTF-16.
    let mut path = String::new();
    for _ in 0..9 {
        path.push_str(&"d".repeat(250));
        let made = a.create(&path, |r| {
            (r.disposition, r.options) = (Disposition::Create as u32, option::DIRECTORY_FILE);
        });
        a.close(made.await.unwrap().file).await;
        path.push('\\');
    }
    let deep = a.create(path.trim_end_matches('\\'), |_| {}).await.unwrap();
    assert_eq!(before - has(), 5);
    a.close(deep.file).await;
    assert_eq!(before, has());
    // At the limit of the address no file is created.
    let mut rest = harness.core.opens_by_address.of(a.conn.info.peer);
    rest.set(before).unwrap();
    let refused = a.create("new", |r| r.disposition = Disposition::Create as u32).await;
    assert_eq!(refused.err(), Some(Status::INSUFFICIENT_RESOURCES));
    drop(rest);
    let made = a.create("new", |r| r.disposition = Disposition::Create as u32).await;
    assert!(made.is_ok(), "it had not been made");
}
