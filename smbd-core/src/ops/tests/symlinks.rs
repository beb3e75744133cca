//! Symbolic links created by a host process: followed by the server, or left to the client.

use std::borrow::Cow;
use std::path::PathBuf;

use vfs::{Acting, CreateHow, Cred, NodeRef, SetAttr};

use super::info::{set, to};
use super::ioctl::{done, get, put};
use super::listing::{BIG, list};
use crate::dtyp::mask;
use crate::fscc::attribute::{DIRECTORY, REPARSE_POINT};
use crate::fscc::chained;
use crate::fscc::dir::Level;
use crate::fscc::file::FileInfo;
use crate::fscc::set::{Set, disposition};
use crate::harness::{Client, Harness};
use crate::open::FileId;
use crate::settings::Symlinks;
use crate::status::Status;
use crate::wire::Command;
use crate::wire::context::name::POSIX;
use crate::wire::create::{self, Context, Disposition, option};
use crate::wire::fsctl::code::{GET_REPARSE_POINT, SET_REPARSE_POINT};
use crate::wire::query_directory::{Request, Response};
use crate::wire::reparse::Reparse;

/// Path of the share's folder on the host.
const FOLDER: &str = "/srv/data";
const MOVIE: &[u8] = b"movie";
const DELETE: Set = Set::Disposition { flags: disposition::DELETE, ex: false };

/// Destination of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leads {
    /// The test file.
    File,
    /// A folder in which the test file has this path.
    Folder(&'static str),
    /// No file of the share.
    Nowhere,
}
use Leads::{File, Folder, Nowhere};

/// Links in the root of the share.
const LINKS: [(&str, &str, Leads); 22] = [
    ("file", "films/a/x", File),
    ("folder", "films/a", Folder("x")),
    ("slash", "films/a/", Folder("x")),
    ("chain", "folder", Folder("x")),
    ("chained", "chain/x", File),
    ("self", ".", Folder("films\\a\\x")),
    ("dots", "films/../real/./up", Folder("films\\a\\x")),
    ("inside", "/srv/data/films/a/x", File),
    ("inside2", "/srv/./data/real/up/films", Folder("a\\x")),
    ("top", "/srv/data", Folder("films\\a\\x")),
    ("back", "../data/films", Folder("a\\x")),
    ("outside", "/etc/hostname", Nowhere),
    ("above", "..", Nowhere),
    ("beside", "../other/x", Nowhere),
    ("alike", "/srv/database", Nowhere),
    ("dangling", "gone", Nowhere),
    ("below", "films/a/x/y", Nowhere),
    ("deep", "gone/x", Nowhere),
    ("closed", "films/a/x/", Nowhere),
    ("closed2", "file/.", Nowhere),
    ("loop1", "loop2", Nowhere),
    ("loop2", "films/../loop1", Nowhere),
];

fn leave() -> SetAttr {
    SetAttr { mode: Some(0o755), ..SetAttr::default() }
}

async fn link(dir: &NodeRef, name: &str, target: &str) {
    dir.symlink(&Cred::root(), name.as_bytes(), target.as_bytes(), leave()).await.unwrap();
}

async fn folder(dir: &NodeRef, name: &str, mode: u32) -> NodeRef {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    dir.mkdir(Acting::caller(&Cred::root()), name.as_bytes(), set).await.unwrap().node
}

fn root(harness: &Harness) -> NodeRef {
    harness.core.namespace.shares()[0].backend.root()
}

/// Creates a share with the file `films\a\x` and the links.
async fn share(symlinks: Symlinks) -> Harness {
    let harness = Harness::new();
    let mut settings = (*harness.core.settings()).clone();
    settings.shares.get_mut("data").unwrap().symlinks = symlinks;
    harness.core.set_settings(settings);
    let top = root(&harness);
    let a = folder(&folder(&top, "films", 0o755).await, "a", 0o755).await;
    a.create(Acting::caller(&Cred::root()), b"x", CreateHow::Guarded, leave()).await.unwrap();
    link(&folder(&top, "real", 0o755).await, "up", "..").await;
    for (name, target, _) in LINKS {
        link(&top, name, target).await;
    }
    let c = harness.client();
    let x = c.open("films\\a\\x").await;
    put(&c, x, 0, MOVIE).await;
    c.close(x).await;
    harness
}

fn server() -> Symlinks {
    Symlinks::Server(vec![PathBuf::from(FOLDER)])
}

async fn open(c: &Client, name: &str, options: u32) -> Result<create::Response<'static>, Status> {
    let change = |r: &mut create::Request<'static>| {
        (r.options, r.disposition) = (options, Disposition::Open as u32);
    };
    c.create(name, change).await
}

/// Returns the listed names with their attributes.
async fn entries(c: &Client, dir: FileId, pattern: &str) -> Vec<(String, FileInfo)> {
    let r = Request {
        class: BIG.0,
        flags: 1,
        file_index: 0,
        file: dir,
        output_len: BIG.1,
        pattern: pattern.into(),
    };
    let answer = c.ask(Command::QueryDirectory, &r.emit()).await;
    if answer.status() == Status::NO_SUCH_FILE {
        return Vec::new();
    }
    let buffer = Response::parse(&answer.whole()).unwrap().buffer;
    let level = Level::from_number(BIG.0).unwrap();
    let read = |entry: &[u8]| {
        let (name, mut facts) = level.parse(entry).unwrap();
        // Listings return the reparse tag in `EaSize` (MS-FSCC section 2.4.8).
        facts.reparse_tag = u32::from_le_bytes(entry[64..68].try_into().unwrap());
        (name, facts)
    };
    chained(&buffer).map(|entry| read(entry.unwrap())).collect()
}

/// Opens a link at the end of a path, with and without FILE_OPEN_REPARSE_POINT, and in the middle of a path.
#[tokio::test]
async fn links_open_by_their_kind_and_place() {
    let both = [(true, share(server()).await), (false, share(Symlinks::Client).await)];
    for (is_server, harness) in &both {
        let c = harness.client();
        for (name, target, leads) in LINKS {
            let what = format!("{name} -> {target}, followed by the server: {is_server}");
            let is_text = target.starts_with('/') || target.starts_with("../");
            let to_folder = matches!(leads, Folder(_)) && (*is_server || !is_text);
            let itself = open(&c, name, option::OPEN_REPARSE_POINT).await.unwrap();
            let wanted = REPARSE_POINT | if to_folder { DIRECTORY } else { 0 };
            let seen = itself.basics.attributes & (REPARSE_POINT | DIRECTORY);
            assert_eq!(seen, wanted, "{what}");
            let as_folder = option::OPEN_REPARSE_POINT | option::DIRECTORY_FILE;
            let as_folder = open(&c, name, as_folder).await.map(|r| r.action);
            let wanted = if to_folder { Ok(1) } else { Err(Status::NOT_A_DIRECTORY) };
            assert_eq!(as_folder, wanted, "{what}");
            let opened = open(&c, name, 0).await;
            let middle = match leads {
                Folder(rest) => format!("{name}\\{rest}"),
                _ => format!("{name}\\x"),
            };
            let through = open(&c, &middle, 0).await;
            if !is_server {
                for stopped in [opened.err(), through.err()] {
                    assert_eq!(stopped, Some(Status::STOPPED_ON_SYMLINK), "{what}");
                }
                continue;
            }
            match leads {
                Folder(_) => {
                    assert_eq!(get(&c, through.unwrap().file).await, MOVIE, "{what}");
                    assert_eq!(opened.unwrap().basics.attributes, DIRECTORY, "{what}");
                }
                File => {
                    assert_eq!(get(&c, opened.unwrap().file).await, MOVIE, "{what}");
                    assert_eq!(through.err(), Some(Status::OBJECT_PATH_NOT_FOUND), "{what}");
                }
                Nowhere => {
                    assert_eq!(opened.err(), Some(Status::OBJECT_NAME_NOT_FOUND), "{what}");
                    assert_eq!(through.err(), Some(Status::OBJECT_PATH_NOT_FOUND), "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn listings_show_what_opens() {
    for symlinks in [server(), Symlinks::Client] {
        let is_server = symlinks != Symlinks::Client;
        let harness = share(symlinks).await;
        let c = harness.client();
        let top = open(&c, "", option::DIRECTORY_FILE).await.unwrap().file;
        let all = entries(&c, top, "*").await;
        let names = list(&c, top, "*", 1, (12, 65_536)).await.unwrap();
        for (name, target, leads) in LINKS {
            let what = format!("{name} -> {target}, followed by the server: {is_server}");
            let listed = all.iter().find(|(n, _)| n == name).map(|(_, facts)| facts);
            let alone = entries(&c, top, name).await;
            let is_shown = !is_server || leads != Nowhere;
            let seen = (listed.is_some(), alone.len() == 1, names.iter().any(|n| n == name));
            assert_eq!(seen, (is_shown, is_shown, is_shown), "{what}");
            let Some(facts) = listed else { continue };
            assert_eq!(alone[0].1.basic.attributes, facts.basic.attributes, "{what}");
            let options = if is_server { 0 } else { option::OPEN_REPARSE_POINT };
            let opened = open(&c, name, options).await.unwrap();
            assert_eq!(opened.basics.attributes, facts.basic.attributes, "{what}");
            assert_eq!(opened.basics.end_of_file, facts.standard.end_of_file, "{what}");
            if is_server {
                assert_eq!(facts.reparse_tag, 0, "{what}");
            } else {
                let read = done(&c, opened.file, GET_REPARSE_POINT, &[]).await;
                assert_eq!(Ok(facts.reparse_tag), Reparse::tag(&read[..4]), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn posix_clients_follow_links_themselves() {
    let harness = share(server()).await;
    let c = harness.posix_client();
    let posix = |options| {
        let context = Context { name: Cow::Borrowed(POSIX), data: Cow::Borrowed(&[0xa4, 1, 0, 0]) };
        move |r: &mut create::Request<'static>| {
            (r.options, r.disposition) = (options, Disposition::Open as u32);
            r.contexts = vec![context];
        }
    };
    let top = c.create("", posix(option::DIRECTORY_FILE)).await.unwrap().file;
    for (name, _, _) in LINKS {
        assert_eq!(c.create(name, posix(0)).await.err(), Some(Status::STOPPED_ON_SYMLINK));
        // Linux sends this open on a mount without the extensions.
        assert_eq!(
            c.create(name, |r| r.disposition = Disposition::Open as u32).await.err(),
            Some(Status::STOPPED_ON_SYMLINK)
        );
        let opened = c.create(name, posix(option::OPEN_REPARSE_POINT)).await.unwrap();
        let told = opened.contexts.iter().find(|c| *c.name == *POSIX).unwrap();
        let tag = u32::from_le_bytes(told.data[4..8].try_into().unwrap());
        let listed = &entries(&c, top, name).await[0].1;
        let read = done(&c, opened.file, GET_REPARSE_POINT, &[]).await;
        let read = u32::from_le_bytes(read[..4].try_into().unwrap());
        assert_eq!((tag, listed.reparse_tag), (read, read), "{name}");
        let seen = listed.basic.attributes & (DIRECTORY | REPARSE_POINT);
        assert_eq!(seen, REPARSE_POINT, "{name}");
    }
}

/// A link that Windows keeps as a reparse point has a text for NFS clients, and clients with the POSIX extensions read that text.
/// The server follows it for neither, even where the text is the name of a file.
#[tokio::test]
async fn posix_clients_read_links_of_windows_as_text() {
    let harness = Harness::new();
    let (windows, c) = (harness.client(), harness.posix_client());
    let context = || Context { name: Cow::Borrowed(POSIX), data: Cow::Borrowed(&[0xa4, 1, 0, 0]) };
    let open = |options| {
        move |r: &mut create::Request<'static>| {
            (r.options, r.disposition) = (options, Disposition::Open as u32);
        }
    };
    let text = r"\??\C:\data";
    put(&c, c.create(text, |r| r.contexts = vec![context()]).await.unwrap().file, 0, MOVIE).await;
    let kept = [
        Reparse::MountPoint(text.into()),
        Reparse::Symlink { target: text.into(), relative: false },
    ];
    for (n, link) in kept.iter().enumerate() {
        let name = if n == 0 { "junction" } else { "link" };
        let folder = |r: &mut create::Request<'static>| r.options = option::DIRECTORY_FILE;
        let d = windows.create(name, folder).await.unwrap().file;
        done(&windows, d, SET_REPARSE_POINT, &link.emit()).await;
        assert_eq!(windows.close(d).await, Status::SUCCESS);
        let posix = |options| {
            move |r: &mut create::Request<'static>| {
                open(options)(r);
                r.contexts = vec![context()];
            }
        };
        let stopped = [c.create(name, posix(0)).await.err(), c.create(name, open(0)).await.err()];
        assert_eq!(stopped[0], Some(Status::STOPPED_ON_SYMLINK), "{name}");
        assert!(stopped[1].is_some(), "{name}: not by an open without the extensions either");
        let itself = c.create(name, posix(option::OPEN_REPARSE_POINT)).await.unwrap().file;
        let read = done(&c, itself, GET_REPARSE_POINT, &[]).await;
        assert_eq!(read, Reparse::NfsLink(text.into()).emit(), "{name}");
        let itself = windows.create(name, open(option::OPEN_REPARSE_POINT)).await.unwrap().file;
        assert_eq!(done(&windows, itself, GET_REPARSE_POINT, &[]).await, link.emit(), "{name}");
    }
}

#[tokio::test]
async fn deletes_and_renames_act_on_the_link() {
    let harness = share(server()).await;
    let (c, top) = (harness.client(), root(&harness));
    let kind =
        async |name: &[u8]| top.lookup(&Cred::root(), name).await.map(|(node, _)| node.kind()).ok();
    let for_name = |options| {
        move |r: &mut create::Request<'static>| {
            (r.access, r.disposition) = (mask::DELETE, Disposition::Open as u32);
            r.options = options;
        }
    };
    let doomed = [
        ("file", option::DELETE_ON_CLOSE),
        ("folder", option::DELETE_ON_CLOSE | option::DIRECTORY_FILE),
        ("dangling", option::DELETE_ON_CLOSE),
        ("outside", option::DELETE_ON_CLOSE | option::OPEN_REPARSE_POINT),
    ];
    for (name, options) in doomed {
        let f = c.create(name, for_name(options)).await.unwrap().file;
        assert_eq!(c.close(f).await, Status::SUCCESS);
        assert_eq!(kind(name.as_bytes()).await, None, "{name}");
    }
    let f = c.create("chained", for_name(0)).await.unwrap().file;
    assert_eq!(set(&c, f, Set::Rename(to("moved", 0))).await, Status::SUCCESS);
    c.close(f).await;
    assert_eq!(kind(b"moved").await, Some(vfs::Kind::Symlink));
    // A handle opened through the link has no delete access: it can remove or rename neither the target nor the link.
    let f = c.open("inside").await;
    assert_eq!(set(&c, f, DELETE).await, Status::ACCESS_DENIED);
    assert_eq!(set(&c, f, Set::Rename(to("other", 0))).await, Status::ACCESS_DENIED);
    let goes = c.create("inside", |r| r.options = option::DELETE_ON_CLOSE).await.map(|r| r.file);
    assert_eq!(goes, Err(Status::ACCESS_DENIED));
    c.close(f).await;
    let x = c.open("films\\a\\x").await;
    assert_eq!(get(&c, x).await, MOVIE);
}

#[tokio::test]
async fn new_names_go_where_links_lead() {
    let harness = share(server()).await;
    let c = harness.client();
    c.close(c.open("folder\\new").await).await;
    assert!(open(&c, "films\\a\\new", 0).await.is_ok());
    let f = c.open("folder\\new").await;
    assert_eq!(set(&c, f, Set::Rename(to("inside2\\named", 0))).await, Status::SUCCESS);
    c.close(f).await;
    assert!(open(&c, "films\\named", 0).await.is_ok());
    let f = c.open("films\\named").await;
    let lost = set(&c, f, Set::Rename(to("deep\\named", 0))).await;
    assert_eq!(lost, Status::OBJECT_PATH_NOT_FOUND);
    for how in [Disposition::Create, Disposition::OpenIf, Disposition::OverwriteIf] {
        let made = c.create("dangling", |r| r.disposition = how as u32).await;
        assert_eq!(made.err(), Some(Status::OBJECT_NAME_NOT_FOUND));
    }
    let made = c.create("file", |r| r.disposition = Disposition::Create as u32).await;
    assert_eq!(made.err(), Some(Status::OBJECT_NAME_COLLISION));
}

#[tokio::test]
async fn share_modes_are_of_the_target() {
    let harness = share(server()).await;
    let (c, other) = (harness.client(), harness.client());
    let alone = c.create("file", |r| r.share = 0).await.unwrap().file;
    for name in ["films\\a\\x", "chained", "inside"] {
        assert_eq!(open(&other, name, 0).await.err(), Some(Status::SHARING_VIOLATION), "{name}");
    }
    c.close(alone).await;
    assert!(open(&other, "inside", 0).await.is_ok());
}

#[tokio::test]
async fn links_give_no_rights() {
    let harness = share(server()).await;
    let (top, c) = (root(&harness), harness.client_as(1000));
    let private = folder(&top, "private", 0o700).await;
    folder(&private, "d", 0o777).await;
    for (name, target) in [("to", "private/d"), ("up", "private/d/../.."), ("end", "private")] {
        link(&top, name, target).await;
    }
    for name in ["to", "up"] {
        assert_eq!(open(&c, name, 0).await.err(), Some(Status::ACCESS_DENIED), "{name}");
    }
    let read = |r: &mut create::Request<'static>| {
        (r.access, r.disposition) = (mask::READ_DATA, Disposition::Open as u32);
    };
    assert_eq!(c.create("end", read).await.err(), Some(Status::ACCESS_DENIED));
    assert!(harness.client().create("to", read).await.is_ok());
}

#[tokio::test]
async fn walks_along_links_are_bounded() {
    let harness = share(server()).await;
    let (top, c) = (root(&harness), harness.client());
    link(&top, "l1", "films/a/x").await;
    for n in 2..=41 {
        link(&top, &format!("l{n}"), &format!("l{}", n - 1)).await;
    }
    assert!(open(&c, "l40", 0).await.is_ok());
    assert_eq!(open(&c, "l41", 0).await.err(), Some(Status::OBJECT_NAME_NOT_FOUND));
    link(&top, "long", &"films/../".repeat(450)).await;
    assert!(open(&c, "long", 0).await.is_ok());
    link(&top, "longer", "long/films/../long").await;
    assert_eq!(open(&c, "longer", 0).await.err(), Some(Status::OBJECT_NAME_NOT_FOUND));
}
