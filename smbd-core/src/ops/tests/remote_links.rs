//! Folders of a share that are on other servers: paths, listings and referrals (MS-DFSC).

use std::sync::Arc;

use rdma_transport::channel::Transport;
use vfs::links::{Link, Links, targets};
use vfs::namespace::Share;
use vfs::refer::{Referral, Server};
use vfs::{Cred, NodeRef, SetAttr};

use super::info::{set, to};
use crate::fscc::chained;
use crate::fscc::dir::Level;
use crate::fscc::set::Set;
use crate::harness::{Client, Harness, create_request};
use crate::links::TAG_DFS;
use crate::open::FileId;
use crate::status::Status;
use crate::wire::create::{Disposition, option};
use crate::wire::dfs::{REFERRAL_SERVERS, ReferralRequest, ReferralResponse, STORAGE_SERVERS};
use crate::wire::fsctl::code;
use crate::wire::ioctl::{IS_FSCTL, Request, Response};
use crate::wire::negotiate::Dialect;
use crate::wire::query_directory;
use crate::wire::{Command, Flags, tree_connect};

/// Folders and files of the share. `LINKS` are made by the server.
const FOLDERS: [&str; 3] = ["projects", r"projects\plain", "other"];
const FILES: [&str; 2] = ["top", r"projects\file"];
pub(super) const LINKS: [&str; 3] = [r"projects\Old", "away", r"deep\er\est"];
/// A symbolic link in the style of Samba.
pub(super) const MSDFS: &str = r"other\samba";

fn referral(server: &str, path: &str) -> Referral {
    Referral {
        server: Server::Name(server.into()),
        nfs_path: path.replace('\\', "/").into(),
        smb_path: path.into(),
        rdma: false,
        namespace: false,
    }
}

async fn node(top: &NodeRef, path: &str) -> NodeRef {
    let mut at = top.clone();
    for name in path.split('\\') {
        at = at.lookup(&Cred::root(), name.as_bytes()).await.unwrap().0;
    }
    at
}

/// Replaces the links of the share.
async fn link(harness: &Harness, links: Links) {
    let old = harness.core.namespace.shares()[0].clone();
    let placed = links.place(&old.backend.root(), Arc::default()).await.unwrap();
    let mut rules = old.rules.clone();
    rules.links = Arc::new(placed);
    let share = Share {
        name: old.name.clone(),
        id: old.id,
        backend: old.backend.clone(),
        read_only: old.read_only,
        protocols: old.protocols,
        squash: old.squash,
        nfs_locks: old.nfs_locks,
        clients: old.clients.clone(),
        rules,
    };
    harness.core.namespace.set_shares(vec![Arc::new(share)].into());
}

fn all_links(is_interlink: bool) -> Links {
    let to: Arc<[Referral]> = [
        Referral { namespace: is_interlink, ..referral("gw2.example.org", "archive") },
        referral("gw3", r"old\archive"),
    ]
    .into();
    let of = |path: &&str| Link::new(&path.replace('\\', "/"), to.clone());
    Links::new(LINKS.iter().map(of).collect(), true)
}

pub(super) async fn harness() -> Harness {
    let harness = Harness::new();
    let (c, root) = (harness.client(), Cred::root());
    for name in FOLDERS {
        let made = c.create(name, |r| r.options = option::DIRECTORY_FILE).await.unwrap();
        c.close(made.file).await;
    }
    for name in FILES {
        c.close(c.open(name).await).await;
    }
    let top = harness.core.namespace.shares()[0].backend.root();
    let other = node(&top, "other").await;
    let text = br"msdfs:gw4\samba,gw5\samba";
    other.symlink(&root, b"samba", text, SetAttr::default()).await.unwrap();
    link(&harness, all_links(false)).await;
    harness
}

/// The slow model: where a path of the share leads. Compares each beginning of it with each link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leads {
    /// To a link, with this many names.
    Away(usize),
    Here,
    Nowhere,
}

pub(super) fn model(path: &str, is_posix: bool) -> Leads {
    let same =
        |a: &str, b: &str| if is_posix { a == b } else { a.to_lowercase() == b.to_lowercase() };
    let names: Vec<&str> = path.split('\\').filter(|n| !n.is_empty()).collect();
    for count in 1..=names.len() {
        let start = names[..count].join(r"\");
        if LINKS.iter().chain([&MSDFS]).any(|link| same(link, &start)) {
            return Leads::Away(count);
        }
    }
    let path = names.join(r"\");
    let here = FOLDERS.iter().chain(&FILES).chain(&["deep", r"deep\er"]);
    if path.is_empty() || here.clone().any(|name| same(name, &path)) {
        Leads::Here
    } else {
        Leads::Nowhere
    }
}

/// Places at, below, above and beside links, each in several cases.
fn paths() -> Vec<String> {
    let mut all: Vec<String> = vec![String::new(), "none".into(), r"projects\none".into()];
    for name in FOLDERS.iter().chain(&FILES) {
        all.push((*name).to_owned());
    }
    for link in LINKS.iter().chain([&MSDFS]) {
        for tail in ["", r"\x", r"\x\y", r"\", "x"] {
            all.push(format!("{link}{tail}"));
        }
        let above = link.rsplit_once('\\').map_or("", |(above, _)| above);
        all.push(above.to_owned());
    }
    let cases = [str::to_owned, str::to_uppercase, str::to_lowercase] as [fn(&str) -> String; 3];
    let mut all: Vec<String> = all.iter().flat_map(|path| cases.map(|case| case(path))).collect();
    all.sort();
    all.dedup();
    all
}

/// Sends CREATE with a name in the form that the flag asks for.
async fn create(c: &Client, path: &str, is_dfs: bool, how: (Disposition, u32)) -> Status {
    let name = match (is_dfs, path) {
        (true, "") => r"gw\data".to_owned(),
        (true, path) => format!(r"gw\data\{path}"),
        (false, path) => path.to_owned(),
    };
    let body = create_request(&name, |r| (r.disposition, r.options) = (how.0 as u32, how.1)).emit();
    let mut header = c.header(Command::Create, 1);
    header.flags = Flags(if is_dfs { Flags::DFS } else { 0 });
    let answer = c.send(&header, &body).await;
    if answer.status() == Status::SUCCESS {
        let told = crate::wire::create::Response::parse(&answer.message).unwrap();
        c.close(told.file).await;
    }
    answer.status()
}

/// Each path by each client, with and without the flag of DFS, with each disposition and with the options that open reparse points.
#[tokio::test]
async fn walk_ends_at_the_first_link() {
    let harness = harness().await;
    let ways = [
        (Disposition::Open, 0),
        (Disposition::Open, option::OPEN_REPARSE_POINT),
        (Disposition::Open, option::DIRECTORY_FILE),
        (Disposition::Open, option::NON_DIRECTORY_FILE | option::OPEN_REPARSE_POINT),
        (Disposition::OpenIf, 0),
        (Disposition::Create, option::DIRECTORY_FILE),
        (Disposition::OverwriteIf, 0),
        (Disposition::Supersede, 0),
    ];
    let c = harness.client();
    let mut away = 0;
    for path in paths() {
        let leads = model(&path, false);
        for is_dfs in [false, true] {
            for how in ways {
                if path.ends_with('\\') && how.1 & option::NON_DIRECTORY_FILE != 0 {
                    // The name contradicts the option, which is found before the path is walked.
                    continue;
                }
                if leads == Leads::Nowhere && how.0 != Disposition::Open {
                    // Would make it, and so change what the model knows.
                    continue;
                }
                if leads == Leads::Here && how.0 != Disposition::Open {
                    continue;
                }
                let status = create(&c, &path, is_dfs, how).await;
                let what = format!("{path} {is_dfs} {how:?} {leads:?}: {status:?}");
                match leads {
                    Leads::Away(_) => {
                        away += 1;
                        assert_eq!(status, Status::PATH_NOT_COVERED, "{what}");
                    }
                    Leads::Nowhere => assert!(
                        matches!(
                            status,
                            Status::OBJECT_NAME_NOT_FOUND | Status::OBJECT_PATH_NOT_FOUND
                        ),
                        "{what}"
                    ),
                    Leads::Here => assert!(
                        matches!(
                            status,
                            Status::SUCCESS
                                | Status::NOT_A_DIRECTORY
                                | Status::FILE_IS_A_DIRECTORY
                                | Status::OBJECT_NAME_INVALID
                        ),
                        "{what}"
                    ),
                }
            }
        }
    }
    assert!(away > 300, "{away}");
    // Names of clients with the POSIX extensions are exact.
    let c = harness.posix_client();
    for path in paths() {
        let status = c
            .create(&path.replace('\\', "/"), |r| {
                r.disposition = Disposition::Open as u32;
                r.contexts.push(crate::wire::create::Context::new(
                    crate::wire::context::name::POSIX,
                    0_u32.to_le_bytes().to_vec(),
                ));
            })
            .await
            .map_or_else(|why| why, |_| Status::SUCCESS);
        let is_away = matches!(model(&path, true), Leads::Away(_));
        assert_eq!(status == Status::PATH_NOT_COVERED, is_away, "{path}: {status:?}");
    }
}

/// A flag in a tree that is none of DFS changes nothing; a name of DFS may name a server only.
#[tokio::test]
async fn names_of_dfs_are_made_local() {
    let harness = harness().await;
    let c = harness.client();
    let send = async |c: &Client, name: &str| {
        let body = create_request(name, |r| r.disposition = Disposition::Open as u32).emit();
        let mut header = c.header(Command::Create, 1);
        header.flags = Flags(Flags::DFS);
        c.send(&header, &body).await.status()
    };
    for (name, wanted) in [
        (r"gw\data\top", Status::SUCCESS),
        (r"\gw\data\top", Status::SUCCESS),
        (r"\\any\thing\TOP", Status::SUCCESS),
        (r"gw\data", Status::SUCCESS),
        (r"gw\data\", Status::SUCCESS),
        ("gw", Status::SUCCESS),
        ("", Status::INVALID_PARAMETER),
        (r"gw\data\\top", Status::INVALID_PARAMETER),
        (r"gw\data\none", Status::OBJECT_NAME_NOT_FOUND),
    ] {
        assert_eq!(send(&c, name).await, wanted, "{name}");
    }
    let plain = Harness::new();
    let c = plain.client();
    c.close(c.open("top").await).await;
    assert_eq!(send(&c, "top").await, Status::SUCCESS, "the share has no links");
    assert_eq!(send(&c, r"gw\data\top").await, Status::OBJECT_PATH_NOT_FOUND);
}

/// A name that is half a unit long, or no text, is refused and never read beyond its end.
#[tokio::test]
async fn odd_names_of_dfs_are_refused() {
    let harness = harness().await;
    let c = harness.client();
    for name in [&b"\\"[..], &[b'g', 0, b'\\'], &[0, 0xd8, b'\\', 0, b'a', 0, b'\\', 0, 0, 0xd8]] {
        let body = create_request("", |r| r.name = name.to_vec().into()).emit();
        let mut header = c.header(Command::Create, 1);
        header.flags = Flags(Flags::DFS);
        assert_ne!(c.send(&header, &body).await.status(), Status::PATH_NOT_COVERED, "{name:?}");
    }
}

/// New names of renames and hard links are paths of the share, whatever the flag of the request says.
#[tokio::test]
async fn new_names_cannot_be_of_links() {
    let harness = harness().await;
    let c = harness.client();
    let file = c.open("top").await;
    for path in paths() {
        let leads = model(&path, false);
        if !matches!(leads, Leads::Away(_)) || path.ends_with('\\') {
            continue;
        }
        for flags in [0, 1] {
            for new in [Set::Rename(to(&path, flags)), Set::Link(to(&path, flags))] {
                let status = set(&c, file, new).await;
                assert_eq!(status, Status::PATH_NOT_COVERED, "{path}");
            }
        }
    }
    // A folder above a link keeps its name, and cannot be removed.
    for name in ["projects", "deep", r"deep\er"] {
        let dir = c.open(name).await;
        let moved = set(&c, dir, Set::Rename(to("moved", 0))).await;
        assert_eq!(moved, Status::ACCESS_DENIED, "{name}");
        c.close(dir).await;
    }
    let away = set(&c, file, Set::Rename(to(r"projects\plain\top", 0))).await;
    assert_eq!(away, Status::SUCCESS);
}

/// Returns the entry of a name in a listing: attributes, and the tag, where the class has one.
async fn listed(c: &Client, dir: FileId, level: Level, pattern: &str) -> Vec<(String, u32, u32)> {
    let r = query_directory::Request {
        class: level.number(),
        flags: 1,
        file_index: 0,
        file: dir,
        output_len: 65_536,
        pattern: pattern.into(),
    };
    let answer = c.ask(Command::QueryDirectory, &r.emit()).await;
    if answer.status() != Status::SUCCESS {
        return Vec::new();
    }
    let buffer = query_directory::Response::parse(&answer.whole()).unwrap().buffer;
    let read = |entry: &[u8]| {
        let (name, facts) = level.parse(entry).unwrap();
        let at = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
        let tag = match level {
            Level::Directory | Level::Names | Level::Posix => 0,
            Level::FullDirectory
            | Level::BothDirectory
            | Level::IdFullDirectory
            | Level::IdBothDirectory => at(64),
            _ => at(68),
        };
        (name, facts.basic.attributes, tag)
    };
    chained(&buffer).map(|entry| read(entry.unwrap())).collect()
}

#[tokio::test]
async fn listings_of_every_class_show_links_as_folders() {
    const DFS_FOLDER: u32 = 0x410;
    let harness = harness().await;
    let c = harness.client();
    for (dir, name, is_link) in [
        ("projects", "Old", true),
        ("projects", "plain", false),
        ("", "away", true),
        ("other", "samba", true),
        (r"deep\er", "est", true),
    ] {
        let open = c.open(dir).await;
        for level in Level::ALL.into_iter().filter(|level| *level != Level::Posix) {
            for pattern in ["*", name, &name.to_uppercase()] {
                let all = listed(&c, open, level, pattern).await;
                let found = all.iter().find(|(n, ..)| n == name);
                let Some((_, attributes, tag)) = found else {
                    panic!("{dir} {level:?} {pattern}: {all:?}")
                };
                if level == Level::Names {
                    continue;
                }
                let wanted = if is_link { DFS_FOLDER } else { 0x10 };
                assert_eq!(*attributes, wanted, "{dir} {name} {level:?} {pattern}");
                if level != Level::Directory {
                    assert_eq!(*tag, if is_link { TAG_DFS } else { 0 }, "{name} {level:?}");
                }
            }
        }
        c.close(open).await;
    }
}

async fn ask(c: &Client, asked: &ReferralRequest, is_ex: bool, max: u32) -> (Status, Vec<u8>) {
    let (code, input) = match is_ex {
        false => (code::DFS_GET_REFERRALS, asked.emit()),
        true => (code::DFS_GET_REFERRALS_EX, asked.emit_ex()),
    };
    let file = FileId::PREVIOUS;
    let r = Request { code, file, input: &input, input_max: 0, output_max: max, flags: IS_FSCTL };
    let a = c.ask(Command::Ioctl, &r.emit()).await;
    let told = Response::parse(&a.message);
    (a.status(), told.map(|r| r.output.to_vec()).unwrap_or_default())
}

/// Each path, version and form of the request: a link's servers, or the root.
#[tokio::test]
async fn referral_is_of_the_first_link_or_of_the_root() {
    let harness = harness().await;
    let c = harness.client();
    for path in paths() {
        let leads = model(&path, false);
        for (lead, server) in [(r"\", "gw"), (r"\\", "gw.example.org")] {
            let whole = format!(r"{lead}{server}\DATA\{path}");
            for (max_level, is_ex) in [(1, false), (2, false), (3, false), (4, true), (9, false)] {
                let asked = ReferralRequest { max_level, path: whole.clone(), site: None };
                let (status, output) = ask(&c, &asked, is_ex, 4096).await;
                assert_eq!(status, Status::SUCCESS, "{whole}");
                let version = u16::from_le_bytes([output[8], output[9]]);
                assert_eq!(version, max_level.min(4), "{whole}");
                // The prefix that the servers replace, by counting names.
                let count = if let Leads::Away(count) = leads { count + 2 } else { 2 };
                let names: Vec<&str> = whole.split('\\').filter(|n| !n.is_empty()).collect();
                let prefix = format!("{lead}{}", names[..count].join(r"\"));
                let consumed = u16::from_le_bytes([output[0], output[1]]);
                assert_eq!(usize::from(consumed), prefix.len() * 2, "{whole}");
                let flags = u32::from_le_bytes(output[4..8].try_into().unwrap());
                let is_link = matches!(leads, Leads::Away(_));
                let wanted =
                    if is_link { STORAGE_SERVERS } else { STORAGE_SERVERS | REFERRAL_SERVERS };
                assert_eq!(flags, wanted, "{whole}");
                if version < 3 {
                    continue;
                }
                let told = ReferralResponse::parse(&output).unwrap();
                assert_eq!((told.is_root, told.dfs_path), (!is_link, prefix), "{whole}");
                let is_samba = is_link && path.to_lowercase().starts_with(MSDFS);
                let targets = match (is_link, is_samba) {
                    (true, false) => {
                        vec![r"\gw2.example.org\archive".to_owned(), r"\gw3\old\archive".to_owned()]
                    }
                    (true, true) => vec![r"\gw4\samba".to_owned(), r"\gw5\samba".to_owned()],
                    (false, _) => vec![format!(r"\{server}\DATA")],
                };
                assert_eq!(told.targets, targets, "{whole}");
            }
        }
    }
}

#[tokio::test]
async fn link_to_another_namespace_is_an_interlink() {
    let harness = harness().await;
    link(&harness, all_links(true)).await;
    let asked = ReferralRequest { max_level: 4, path: r"\gw\data\away".into(), site: None };
    let (_, output) = ask(&harness.client(), &asked, false, 4096).await;
    let told = ReferralResponse::parse(&output).unwrap();
    assert_eq!((told.flags, told.is_root), (REFERRAL_SERVERS, false));
}

/// Neither a path out of the share nor one without the rights of the user finds a link.
#[tokio::test]
async fn referral_needs_rights_and_stays_in_the_share() {
    let harness = harness().await;
    let root = async |c: &Client, path: &str| {
        let asked = ReferralRequest { max_level: 4, path: path.into(), site: None };
        let (status, output) = ask(c, &asked, false, 4096).await;
        (status, ReferralResponse::parse(&output).is_ok_and(|told| told.is_root))
    };
    let c = harness.client();
    for path in [r"\gw\data\..\away", r"\gw\data\.\away", r"\gw\data\projects\..\away"] {
        assert_eq!(root(&c, path).await, (Status::SUCCESS, true), "{path}");
    }
    assert_eq!(
        root(&c, &format!(r"\gw\data\{}", r"x\".repeat(3000))).await,
        (Status::SUCCESS, true)
    );
    let top = harness.core.namespace.shares()[0].backend.root();
    let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    node(&top, "projects").await.setattr(&Cred::root(), set, false).await.unwrap();
    let stranger = harness.client_as(1000);
    assert_eq!(root(&stranger, r"\gw\data\projects\old").await, (Status::SUCCESS, true));
    assert_eq!(root(&stranger, r"\gw\data\away").await, (Status::SUCCESS, false));
}

/// Links come and go while clients are connected.
#[tokio::test]
async fn links_follow_the_configuration() {
    let harness = harness().await;
    let c = harness.client();
    assert_eq!(create(&c, "away", false, (Disposition::Open, 0)).await, Status::PATH_NOT_COVERED);
    link(&harness, Links::default()).await;
    // The client was told that the tree is one of DFS, so its names stay in that form.
    assert_eq!(create(&c, "away", true, (Disposition::Open, 0)).await, Status::SUCCESS);
    assert_eq!(create(&c, r"away\f", true, (Disposition::Create, 0)).await, Status::SUCCESS);
    link(&harness, all_links(false)).await;
    assert_eq!(create(&c, r"away\f", true, (Disposition::Open, 0)).await, Status::PATH_NOT_COVERED);
    // A process of the host removes a folder, and the link remains.
    let top = harness.core.namespace.shares()[0].backend.root();
    let projects = node(&top, "projects").await;
    projects.rmdir(vfs::Acting::caller(&Cred::root()), b"Old").await.unwrap();
    for path in [r"projects\Old", r"projects\OLD\x"] {
        for how in [Disposition::Open, Disposition::OpenIf] {
            assert_eq!(create(&c, path, false, (how, 0)).await, Status::PATH_NOT_COVERED, "{path}");
        }
    }
}

#[tokio::test]
async fn tree_of_a_root_says_so() {
    use tree_connect::{CAP_DFS, DFS, DFS_ROOT};
    let flags = async |harness: &Harness| {
        let c = harness.client_by(0, Dialect::V302, Transport::Tcp);
        let request = tree_connect::Request { flags: 0, path: r"\\gw\data".into() };
        let told = c.ask(Command::TreeConnect, &request.emit()).await;
        let told = tree_connect::Response::parse(&told.message).unwrap();
        (told.flags & (DFS | DFS_ROOT), told.capabilities & CAP_DFS)
    };
    assert_eq!(flags(&harness().await).await, (DFS | DFS_ROOT, CAP_DFS));
    assert_eq!(flags(&Harness::new()).await, (0, 0));
    let samba = Harness::new();
    link(&samba, Links::new(Vec::new(), true)).await;
    assert_eq!(flags(&samba).await, (DFS | DFS_ROOT, CAP_DFS));
    assert!(targets(b"msdfs:").is_none());
}
