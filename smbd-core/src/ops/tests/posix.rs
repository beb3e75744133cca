//! Behaviour with the POSIX extensions that differs from Windows.

use std::borrow::Cow;

use vfs::{Cred, Kind, NodeRef};

use super::authority::ANN;
use super::info::{ask, put, query, set, to};
use super::ioctl::{done, status};
use super::listing::{BIG, list};
use crate::dtyp::{Ace, Acl, SecurityDescriptor, Sid, descriptor::control, mask};
use crate::fscc::attribute;
use crate::fscc::file::{Class, Standard};
use crate::fscc::set::{Set, rename};
use crate::harness::{Client, Harness, doom};
use crate::open::FileId;
use crate::security::sid_of_uid;
use crate::status::Status;
use crate::wire::context::name::{POSIX, SD_BUFFER};
use crate::wire::context::{DurableV2, Lease, LeaseV2, ReconnectV2};
use crate::wire::create::{Context, Disposition, oplock, option};
use crate::wire::fsctl::code::{GET_REPARSE_POINT, SET_REPARSE_POINT};
use crate::wire::query_info::{Response, info_type, security_information as part};
use crate::wire::reparse::Reparse;
use crate::wire::utf16;

/// Opens or creates a file with the POSIX extensions.
async fn open(c: &Client, name: &str, mode: u32, options: u32) -> Result<FileId, Status> {
    let context =
        || Context { name: Cow::Borrowed(POSIX), data: Cow::Owned(mode.to_le_bytes().to_vec()) };
    let made = c.create(name, |r| {
        r.contexts = vec![context()];
        r.options = options;
    });
    made.await.map(|r| r.file)
}

/// Removes the name itself, not the target of a link.
async fn remove(c: &Client, name: &str) {
    let context = Context { name: Cow::Borrowed(POSIX), data: Cow::Borrowed(&[0xa4, 1, 0, 0]) };
    let doomed = c.create(name, |r| {
        r.contexts = vec![context.clone()];
        r.options = option::OPEN_REPARSE_POINT;
        doom(r);
    });
    c.close(doomed.await.unwrap().file).await;
}

async fn node(harness: &Harness, name: &[u8]) -> (NodeRef, u32) {
    let root = harness.core.namespace.shares()[0].backend.root();
    let (node, attr) = root.lookup(&Cred::root(), name).await.unwrap();
    (node, attr.mode)
}

/// Returns `HardLinks` of FILE_POSIX_INFORMATION.
async fn links(c: &Client, file: FileId) -> u32 {
    let info = query(c, file, Class::Posix).await.unwrap();
    u32::from_le_bytes(info[68..72].try_into().unwrap())
}

#[tokio::test]
async fn directories_have_the_links_that_they_have() {
    let harness = Harness::new();
    let c = harness.posix_client();
    let d = open(&c, "d", 0o755, option::DIRECTORY_FILE).await.unwrap();
    assert_eq!(links(&c, d).await, 2);
    let below = open(&c, "d/e", 0o755, option::DIRECTORY_FILE).await.unwrap();
    assert_eq!(links(&c, d).await, 3);
    let standard = Standard::parse(&query(&c, d, Class::Standard).await.unwrap()).unwrap();
    assert_eq!(standard.links, 1, "to Windows a directory has one name");
    c.close(below).await;
    let f = open(&c, "d/f", 0o600, 0).await.unwrap();
    assert_eq!(set(&c, f, Set::Link(to("d/g", 0))).await, Status::SUCCESS);
    assert_eq!(links(&c, f).await, 2);
}

#[tokio::test]
async fn rename_to_name_with_colon_keeps_it() {
    let harness = Harness::new();
    let c = harness.posix_client();
    let f = open(&c, "f", 0o644, 0).await.unwrap();
    assert_eq!(set(&c, f, Set::Rename(to(":x", 0))).await, Status::SUCCESS);
    assert_eq!(node(&harness, b":x").await.0.kind(), Kind::File);
}

/// A name in a subfolder that Windows cannot express.
#[tokio::test]
async fn durable_handle_is_reclaimed_by_posix_name() {
    let harness = Harness::new();
    let first = harness.posix_client();
    let d = open(&first, "d", 0o755, option::DIRECTORY_FILE).await.unwrap();
    first.close(d).await;
    let v2 = Some(LeaseV2 { parent: [0; 16], epoch: 1 });
    let lease = || Lease { key: [9; 16], state: 7, flags: 0, v2 }.context();
    let mode = || Context { name: Cow::Borrowed(POSIX), data: Cow::Borrowed(&[0xa4, 1, 0, 0]) };
    let made = first.create("d/a:b", |r| {
        r.oplock_level = oplock::LEASE;
        let durable = DurableV2 { timeout: 0, flags: 0, guid: [5; 16] };
        r.contexts = vec![mode(), lease(), durable.context()];
    });
    let file = made.await.unwrap().file;
    crate::teardown::end_of_connection(&harness.core, &first.conn).await;
    let second = harness.posix_client();
    for (name, want) in [
        ("d/a", Err(Status::INVALID_PARAMETER)),
        ("d/A:b", Err(Status::INVALID_PARAMETER)),
        ("d/a:b", Ok(())),
    ] {
        let back = second.create(name, |r| {
            r.oplock_level = oplock::LEASE;
            let again = ReconnectV2 { file, guid: [5; 16], flags: 0 };
            r.contexts = vec![lease(), again.context()];
        });
        assert_eq!(back.await.map(|_| ()), want, "{name}");
    }
}

/// Linux sends the mode of a new file, but no mode for files made by `mknod`.
#[tokio::test]
async fn modes_are_those_of_the_client_where_it_tells_them() {
    let harness = Harness::new();
    let c = harness.posix_client();
    for (told, want) in [(0o100_4750, 0o4750), (0o640, 0o640), (0xffff, 0o644), (u32::MAX, 0o644)] {
        let f = open(&c, "f", told, 0).await.unwrap();
        assert_eq!(node(&harness, b"f").await.1, want, "{told:#o}");
        done(&c, f, SET_REPARSE_POINT, &Reparse::NfsFifo.emit()).await;
        let (fifo, mode) = node(&harness, b"f").await;
        assert_eq!((fifo.kind(), mode), (Kind::Fifo, want));
        assert_eq!(links(&c, f).await, 1);
        c.close(f).await;
        remove(&c, "f").await;
    }
}

/// All ones in 32 bits, or in the 16 bits that Linux sends, mean an unknown mode; every other number is a mode, with or without the
/// file type.
#[tokio::test]
async fn mode_of_each_form_is_kept() {
    let harness = Harness::new();
    let c = harness.posix_client();
    for (told, file, folder) in [
        (0o600, 0o600, 0o600),
        (0o100_600, 0o600, 0o600),
        (0o040_700, 0o700, 0o700),
        (0o170_600, 0o600, 0o600),
        (0, 0, 0),
        (0o100_000, 0, 0),
        (0o7777, 0o7777, 0o7777),
        (0xfffe, 0o7776, 0o7776),
        (0xffff, 0o644, 0o755),
        (u32::MAX, 0o644, 0o755),
        (0xffff_fe00 | 0o600, 0o7600, 0o7600),
    ] {
        for (options, want) in [(0, file), (option::DIRECTORY_FILE, folder)] {
            let made = open(&c, "new", told, options).await.unwrap();
            assert_eq!(node(&harness, b"new").await.1, want, "{told:#o} {options}");
            c.close(made).await;
            remove(&c, "new").await;
        }
    }
}

/// Linux sends READONLY together with a mode without write permission.
#[tokio::test]
async fn who_made_a_file_that_nobody_may_write_goes_on_with_it() {
    let harness = Harness::new();
    let c = harness.posix_client();
    let made = c.create("f", |r| {
        r.contexts = vec![Context { name: Cow::Borrowed(POSIX), data: vec![0x24, 1, 0, 0].into() }];
        r.attributes = attribute::READONLY;
    });
    c.close(made.await.unwrap().file).await;
    assert_eq!(node(&harness, b"f").await.1, 0o444);
    let writes = c.create("f", |r| (r.access, r.disposition) = (mask::WRITE_DATA, 1));
    assert!(writes.await.is_ok(), "the superuser may");
    let windows = c.create("w", |r| r.attributes = attribute::READONLY);
    c.close(windows.await.unwrap().file).await;
    let writes = c.create("w", |r| (r.access, r.disposition) = (mask::WRITE_DATA, 1));
    assert_eq!(writes.await.unwrap_err(), Status::ACCESS_DENIED, "as Windows has it");
}

/// A path on the client's own host is returned unchanged.
#[tokio::test]
async fn links_may_lead_anywhere() {
    let harness = Harness::new();
    let c = harness.posix_client();
    for (sent, target) in [
        ("/etc/passwd", "/etc/passwd"),
        // So sends Linux an absolute target.
        ("etc/passwd", "/etc/passwd"),
        ("../up", "../up"),
        ("x", "x"),
        ("a//b/", "a//b/"),
    ] {
        let f = open(&c, "link", 0o644, 0).await.unwrap();
        let relative = !target.starts_with('/');
        let link = Reparse::Symlink { target: sent.into(), relative };
        done(&c, f, SET_REPARSE_POINT, &link.emit()).await;
        let told = Reparse::NfsLink(target.into());
        assert_eq!(done(&c, f, GET_REPARSE_POINT, &[]).await, told.emit());
        assert_eq!(
            node(&harness, b"link").await.0.readlink(&Cred::root()).await.unwrap(),
            target.as_bytes()
        );
        c.close(f).await;
        remove(&c, "link").await;
    }
    let f = open(&c, "f", 0o644, 0).await.unwrap();
    let none = Reparse::Symlink { target: String::new(), relative: true };
    let refused = status(&c, f, SET_REPARSE_POINT, &none.emit()).await;
    assert_eq!(refused, Status::IO_REPARSE_DATA_INVALID);
}

/// Follows rename(2): a directory replaces an empty directory, a file replaces a file, even if they are open.
#[tokio::test]
async fn renames_replace_what_rename_replaces() {
    let harness = Harness::new();
    let c = harness.posix_client();
    let dir = async |name| open(&c, name, 0o755, option::DIRECTORY_FILE).await.unwrap();
    let over = |name: &str| Set::Rename(to(name, rename::REPLACE_IF_EXISTS));
    for name in ["empty", "full", "full/inside"] {
        c.close(dir(name).await).await;
    }
    let (d, f) = (dir("d").await, open(&c, "f", 0o644, 0).await.unwrap());
    let held = open(&c, "held", 0o644, 0).await.unwrap();
    assert_eq!(set(&c, d, over("full")).await, Status::DIRECTORY_NOT_EMPTY);
    assert_eq!(set(&c, d, over("held")).await, Status::NOT_A_DIRECTORY);
    assert_eq!(set(&c, f, over("empty")).await, Status::FILE_IS_A_DIRECTORY);
    let exists = set(&c, d, Set::Rename(to("empty", 0))).await;
    assert_eq!(exists, Status::OBJECT_NAME_COLLISION);
    assert_eq!(set(&c, d, over("empty")).await, Status::SUCCESS);
    assert_eq!(set(&c, f, over("held")).await, Status::SUCCESS);
    assert_eq!(set(&c, f, over("HELD")).await, Status::SUCCESS);
    c.close(open(&c, "held", 0o644, 0).await.unwrap()).await;
    assert_eq!(set(&c, f, over("hELD")).await, Status::SUCCESS, "held is another file");
    let root = harness.core.namespace.shares()[0].backend.root();
    let entries = root.readdir(&Cred::root(), 0, 99).await.unwrap().0;
    let mut names: Vec<_> = entries.iter().map(|e| &e.name[..]).collect();
    names.sort_unstable();
    assert_eq!(names, [&b"empty"[..], b"full", b"hELD", b"held"]);
    c.close(held).await;
    // Files open below a directory move with it.
    let below = open(&c, "full/inside/f", 0o644, 0).await.unwrap();
    let full = dir("full").await;
    assert_eq!(set(&c, full, over("moved")).await, Status::SUCCESS);
    assert_eq!(set(&c, below, over("moved/inside/g")).await, Status::SUCCESS);
    // A client without the extensions cannot rename a directory with open files below it, and cannot replace a directory or an open
    // file.
    let windows = harness.client();
    let (e, g) = (windows.open("empty").await, windows.open("g").await);
    let flat = dir("other").await;
    c.close(flat).await;
    c.close(d).await;
    assert_eq!(set(&windows, e, over("other")).await, Status::ACCESS_DENIED);
    let moved = windows.open("moved").await;
    assert_eq!(set(&windows, moved, Set::Rename(to("back", 0))).await, Status::ACCESS_DENIED);
    assert_eq!(set(&windows, g, over("hELD")).await, Status::ACCESS_DENIED, "open");
}

/// Every name that a POSIX file system allows is passed unchanged in both directions; other clients see private-use characters.
#[tokio::test]
async fn posix_names_go_both_ways_raw() {
    const NAMES: [&str; 8] =
        ["a:b", "q?", "tr.", "sp ", "back\\slash", "st*r", "<|>\"", "private \u{f02b}"];
    let harness = Harness::new();
    let c = harness.posix_client();
    let dir = open(&c, "d", 0o755, option::DIRECTORY_FILE).await.unwrap();
    for name in NAMES {
        let f = open(&c, &format!("d/{name}"), 0o644, 0).await.unwrap();
        let full = query(&c, f, Class::NormalizedName).await.unwrap();
        assert_eq!(utf16(&full[4..]).as_deref(), Some(&*format!("/d/{name}")));
        c.close(f).await;
    }
    let mut listed = list(&c, dir, "*", 0, BIG).await.unwrap();
    listed.retain(|n| n != "." && n != "..");
    listed.sort_unstable();
    let mut want = NAMES.map(str::to_owned);
    want.sort_unstable();
    assert_eq!(listed, want);
    let (d, _) = node(&harness, b"d").await;
    for name in NAMES {
        assert!(d.lookup(&Cred::root(), name.as_bytes()).await.is_ok(), "{name:?} on disk");
        let f = open(&c, &format!("d/{name}"), 0o644, 0).await.unwrap();
        let to_other = Set::Rename(to(&format!("d/to {name}"), 0));
        assert_eq!(set(&c, f, to_other).await, Status::SUCCESS);
        let back = Set::Link(to(&format!("d/{name}"), 0));
        assert_eq!(set(&c, f, back).await, Status::SUCCESS);
        c.close(f).await;
        remove(&c, &format!("d/to {name}")).await;
    }
    let windows = harness.client();
    let w = windows.open("d").await;
    let shown = list(&windows, w, "*", 0, BIG).await.unwrap();
    assert!(shown.contains(&"a\u{f022}b".to_owned()), "{shown:?}");
    assert!(shown.contains(&"back\u{f026}slash".to_owned()), "{shown:?}");
}

/// Linux before 6.11 adds the directory type itself.
#[tokio::test]
async fn directories_have_no_type_in_mode() {
    let harness = Harness::new();
    let c = harness.posix_client();
    let context = Context { name: Cow::Borrowed(POSIX), data: Cow::Borrowed(&[0xed, 1, 0, 0]) };
    let made = c.create("d", |r| {
        r.contexts = vec![context.clone()];
        r.options = option::DIRECTORY_FILE;
    });
    let made = made.await.unwrap();
    let told = made.contexts.iter().find(|c| c.name == POSIX).unwrap();
    assert_eq!(told.data[8..12], 0o755_u32.to_le_bytes());
    let info = query(&c, made.file, Class::Posix).await.unwrap();
    assert_eq!(info[76..80], 0o755_u32.to_le_bytes());
    assert_eq!(info[48..52], attribute::DIRECTORY.to_le_bytes());
}

/// No client interprets their tags, and reading them as empty files would be wrong (MS-FSA section 2.1.5.1).
#[tokio::test]
async fn special_files_do_not_open_as_files() {
    let harness = Harness::new();
    let c = harness.posix_client();
    let kinds =
        [Reparse::NfsFifo, Reparse::NfsSocket, Reparse::NfsChar(1, 3), Reparse::NfsBlock(7, 0)];
    for kind in kinds {
        let f = open(&c, "f", 0o644, 0).await.unwrap();
        done(&c, f, SET_REPARSE_POINT, &kind.emit()).await;
        c.close(f).await;
        for client in [&c, &harness.client()] {
            for (disposition, want) in [
                (Disposition::Open, Status::IO_REPARSE_TAG_NOT_HANDLED),
                (Disposition::OpenIf, Status::IO_REPARSE_TAG_NOT_HANDLED),
                (Disposition::OverwriteIf, Status::IO_REPARSE_TAG_NOT_HANDLED),
                (Disposition::Supersede, Status::IO_REPARSE_TAG_NOT_HANDLED),
                (Disposition::Create, Status::OBJECT_NAME_COLLISION),
            ] {
                for access in [mask::READ_DATA, mask::WRITE_DATA, mask::READ_ATTRIBUTES] {
                    let opened = client.create("f", |r| {
                        (r.disposition, r.access) = (disposition as u32, access);
                    });
                    assert_eq!(opened.await.unwrap_err(), want, "{kind:?} {disposition:?}");
                }
            }
            let moves = client.create("f", |r| {
                (r.disposition, r.access) = (Disposition::Open as u32, mask::DELETE);
            });
            let moves = moves.await.unwrap().file;
            assert_eq!(set(client, moves, Set::Rename(to("f", 1))).await, Status::SUCCESS);
            client.close(moves).await;
        }
        // smbclient removes it this way.
        let windows = harness.client();
        let doomed = windows.create("f", |r| {
            (r.disposition, r.access) = (Disposition::Open as u32, mask::DELETE);
            r.options = option::DELETE_ON_CLOSE;
        });
        windows.close(doomed.await.unwrap().file).await;
        let gone = windows.create("f", |r| r.disposition = Disposition::Open as u32).await;
        assert_eq!(gone.unwrap_err(), Status::OBJECT_NAME_NOT_FOUND);
    }
}

/// Linux sends a new owner or group with the list that it read, which names the earlier ones.
#[tokio::test]
async fn owner_sent_with_the_list_that_was_read_leaves_the_mode_in_charge() {
    const PARTS: u32 = part::OWNER | part::GROUP | part::DACL;
    let harness = Harness::new();
    let c = harness.posix_client();
    for (mode, parts) in [
        (0o644, part::OWNER),
        (0o640, part::OWNER | part::GROUP),
        (0o600, part::GROUP),
        (0o070, part::OWNER),
        (0o111, part::OWNER | part::GROUP),
        (0o1777, part::OWNER),
    ] {
        for options in [0, option::DIRECTORY_FILE] {
            let f = open(&c, "f", mode, options).await.unwrap();
            let read = ask(&c, f, info_type::SECURITY, 0, 65_536).await.ok().unwrap();
            let read = Response::parse(&read.message).unwrap().buffer;
            let mut sd = SecurityDescriptor::parse(&read).unwrap();
            (sd.owner, sd.group) = (Some(Sid::nfs_user(1000)), Some(Sid::nfs_group(50)));
            let parts = parts | part::DACL;
            let done = put(&c, f, info_type::SECURITY, 0, parts, &sd.emit()).await;
            assert_eq!(done, Status::SUCCESS);
            let (node, _) = node(&harness, b"f").await;
            let now = node.getattr().await.unwrap();
            let told = |part, new| if parts & part == 0 { 0 } else { new };
            let want = (told(part::OWNER, 1000), told(part::GROUP, 50), mode);
            assert_eq!((now.uid, now.gid, now.mode), want, "{mode:#o} {parts}");
            assert!(node.acl(&now).await.unwrap().is_none(), "{mode:#o} {parts}: a list");
            c.close(f).await;
            remove(&c, "f").await;
        }
    }
    // Another list is set.
    let f = open(&c, "f", 0o600, 0).await.unwrap();
    let sd = SecurityDescriptor {
        control: control::DACL_PRESENT,
        owner: Some(Sid::nfs_user(1000)),
        group: Some(Sid::nfs_group(50)),
        dacl: Some(Acl::new(vec![Ace::allow(sid_of_uid(7), mask::FILE_ALL, 0)])),
        ..Default::default()
    };
    let done = put(&c, f, info_type::SECURITY, 0, PARTS, &sd.emit()).await;
    assert_eq!(done, Status::SUCCESS);
    let (node, _) = node(&harness, b"f").await;
    let now = node.getattr().await.unwrap();
    assert!(node.acl(&now).await.unwrap().is_some());
}

/// With `idsfromsid` Linux sends a descriptor with each new file: the owner and group of the program, its number for "no mode", and
/// all rights for all users.
#[tokio::test]
async fn descriptor_with_a_mode_gives_owner_and_group_and_no_list() {
    let harness = Harness::new();
    let descriptor = |uid, gid| SecurityDescriptor {
        control: control::DACL_PRESENT,
        owner: Some(Sid::nfs_user(uid)),
        group: Some(Sid::nfs_group(gid)),
        dacl: Some(Acl::new(vec![
            Ace::allow(Sid::unix_mode(0o7777), 0, 0),
            Ace::allow(Sid::nfs_user(uid), mask::FILE_ALL, 0),
            Ace::allow(Sid::authenticated_users(), mask::FILE_ALL, 0),
        ])),
        ..Default::default()
    };
    let (root, user) = (harness.posix_client(), harness.posix_client_as(ANN));
    let all = open(&root, "all", 0o777, option::DIRECTORY_FILE).await.unwrap();
    root.close(all).await;
    let lent = open(&root, "lent", 0o2777, option::DIRECTORY_FILE).await.unwrap();
    root.close(lent).await;
    for (c, folder, mode, told, want) in [
        (&root, "all", 0o640_u32, (5, 60), (5, 60)),
        (&root, "all", 0o4755, (5, 60), (5, 60)),
        (&root, "all", 0o600, (0, 0), (0, 0)),
        (&root, "lent", 0o664, (5, 60), (5, 0)),
        // No other user makes files that are not its own, whatever number it has on its machine.
        (&user, "all", 0o640, (5, 60), (ANN, ANN)),
    ] {
        let name = format!("{folder}/f");
        let made = c.create(&name, |r| {
            let sd = descriptor(told.0, told.1).emit();
            r.contexts = vec![
                Context { name: Cow::Borrowed(POSIX), data: mode.to_le_bytes().to_vec().into() },
                Context { name: Cow::Borrowed(SD_BUFFER), data: sd.into() },
            ];
        });
        c.close(made.await.unwrap().file).await;
        let (dir, _) = node(&harness, folder.as_bytes()).await;
        let (f, now) = dir.lookup(&Cred::root(), b"f").await.unwrap();
        assert_eq!((now.uid, now.gid, now.mode), (want.0, want.1, mode), "{told:?}");
        assert!(f.acl(&now).await.unwrap().is_none(), "{told:?}: a list");
        remove(c, &name).await;
    }
}

/// Linux follows links itself, and opens what a name leads to without OPEN_REPARSE_POINT to set its owner, mode or times.
#[tokio::test]
async fn attributes_of_a_link_are_set_by_its_name() {
    let harness = Harness::new();
    let c = harness.posix_client();
    let f = open(&c, "link", 0o644, 0).await.unwrap();
    let link = Reparse::Symlink { target: "nowhere".into(), relative: true };
    done(&c, f, SET_REPARSE_POINT, &link.emit()).await;
    c.close(f).await;
    let by_name = |access| {
        let context = Context { name: Cow::Borrowed(POSIX), data: Cow::Borrowed(&[0; 4]) };
        c.create("link", move |r| {
            (r.access, r.disposition) = (access, Disposition::Open as u32);
            r.contexts = vec![context];
        })
    };
    for access in [
        mask::READ_ATTRIBUTES,
        mask::READ_DATA,
        mask::WRITE_ATTRIBUTES | mask::WRITE_DATA,
        mask::WRITE_OWNER | mask::READ_ATTRIBUTES,
        mask::MAXIMUM_ALLOWED,
    ] {
        assert_eq!(by_name(access).await.unwrap_err(), Status::STOPPED_ON_SYMLINK, "{access:#x}");
    }
    for access in [mask::WRITE_ATTRIBUTES, mask::WRITE_OWNER | mask::WRITE_DAC] {
        let f = by_name(access).await.unwrap().file;
        c.close(f).await;
    }
    let f = by_name(mask::WRITE_OWNER).await.unwrap().file;
    let sd = SecurityDescriptor { owner: Some(Sid::nfs_user(5)), ..Default::default() };
    let set = put(&c, f, info_type::SECURITY, 0, part::OWNER, &sd.emit()).await;
    assert_eq!(set, Status::SUCCESS);
    assert_eq!(node(&harness, b"link").await.0.getattr().await.unwrap().uid, 5);
    let windows = harness.client();
    let opened = windows.create("link", |r| {
        (r.access, r.disposition) = (mask::WRITE_ATTRIBUTES, Disposition::Open as u32);
    });
    assert_eq!(opened.await.unwrap_err(), Status::STOPPED_ON_SYMLINK);
}
