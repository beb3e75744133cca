//! Reparse points of each tag: the operations of SMB and the nodes that other protocols see, compared with a slow model.

use vfs::{Cred, Kind, NodeRef};

use super::info::{ask, query, set, to};
use super::ioctl::{get, put, status};
use super::listing::{changes, watch};
use crate::dtyp::mask;
use crate::fscc::attribute::{DIRECTORY, REPARSE_POINT};
use crate::fscc::chained;
use crate::fscc::dir::Level;
use crate::fscc::file::Class;
use crate::fscc::set::{Set, disposition};
use crate::harness::{Client, Harness};
use crate::open::FileId;
use crate::settings::Symlinks;
use crate::status::Status;
use crate::wire::Command;
use crate::wire::change_notify::filter;
use crate::wire::context::name;
use crate::wire::create::{Context, Disposition, option};
use crate::wire::fsctl::code::{DELETE_REPARSE_POINT, GET_REPARSE_POINT, SET_REPARSE_POINT};
use crate::wire::query_directory::{Request, Response, flag};
use crate::wire::query_info::info_type;
use crate::wire::reparse::{Buffer, Reparse, TAG_MOUNT_POINT, TAG_NFS, TAG_SYMLINK};

const DATA: &[u8] = b"contents";
const GUID: [u8; 16] = [7; 16];
/// Windows gives an absolute path in this form.
const ABSOLUTE: &str = "\\??\\C:\\data\\x";

/// What the model expects of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A link that leads to the file `target`.
    Followed,
    /// A link whose text means nothing on this host.
    Text(&'static str),
    Special(Kind),
    /// Data that only its owner interprets.
    Data,
    /// Data that no file can have.
    Refused(Status),
}
use Form::{Data, Followed, Refused, Special, Text};

struct Point {
    name: &'static str,
    bytes: Vec<u8>,
    form: Form,
}

/// The file that gets a reparse point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Empty,
    Filled,
    Folder,
}

fn buffer(tag: u32, guid: Option<[u8; 16]>, len: usize) -> Vec<u8> {
    Buffer { tag, guid, data: &vec![0xa5; len] }.emit()
}

fn points() -> Vec<Point> {
    let link = |target: &str, relative| Reparse::Symlink { target: target.into(), relative }.emit();
    let of = |name, bytes, form| Point { name, bytes, form };
    let (no_tag, no_data) = (Status::IO_REPARSE_TAG_INVALID, Status::IO_REPARSE_DATA_INVALID);
    vec![
        of("relative", link("target", true), Followed),
        of("absolute", link(ABSOLUTE, false), Text(ABSOLUTE)),
        of("from the root", link("\\x", true), Text("\\x")),
        of("junction", Reparse::MountPoint(ABSOLUTE.into()).emit(), Text(ABSOLUTE)),
        of("LX_SYMLINK", Reparse::LxLink("/mnt/c/x".into()).emit(), Text("/mnt/c/x")),
        of("LX_SYMLINK of another version", buffer(0xa000_001d, None, 9), Data),
        of("LX_FIFO", buffer(0x8000_0024, None, 0), Data),
        of("NFS pipe", Reparse::NfsFifo.emit(), Special(Kind::Fifo)),
        of("NFS of another type", buffer(0x8000_0014, None, 8), Data),
        of("deduplication", buffer(0x8000_0013, None, 124), Data),
        of("cloud", buffer(0x9000_101a, None, 300), Data),
        of("third party", buffer(0x1234, Some(GUID), (16 << 10) - 24), Data),
        of("third party without data", buffer(0x2000_4321, Some([1; 16]), 0), Data),
        of("third party, other owner", buffer(0x1234, Some([9; 16]), 4), Data),
        of("third party without GUID", buffer(0x1234, None, 8), Refused(no_data)),
        of("third party, GUID of zeros", buffer(0x1234, Some([0; 16]), 8), Refused(no_data)),
        of("reserved 0", buffer(0, Some(GUID), 8), Refused(no_tag)),
        of("reserved 1", buffer(1, Some(GUID), 8), Refused(no_tag)),
        of("reserved 2", buffer(2, Some(GUID), 8), Refused(no_tag)),
        of("reserved bits", buffer(0x8001_0013, None, 8), Refused(no_tag)),
        of("link without names", buffer(TAG_SYMLINK, None, 8), Refused(no_data)),
        of("junction out of bounds", buffer(TAG_MOUNT_POINT, None, 12), Refused(no_data)),
        of("too long", buffer(0x8000_0013, None, 16 << 10), Refused(no_data)),
        of("short", vec![0x13, 0, 0, 0x80, 0, 0, 0], Refused(no_data)),
        of("of another length", [buffer(0x8000_0013, None, 8), vec![0]].concat(), Refused(no_data)),
    ]
}

fn tag_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

/// The slow model: what the specification says of a file with a reparse point.
#[derive(Clone, Copy)]
struct Model<'a> {
    start: Start,
    point: &'a Point,
    /// Whether the server follows links.
    follows: bool,
}

impl Model<'_> {
    fn tag(&self) -> u32 {
        tag_of(&self.point.bytes)
    }

    fn set(&self) -> Status {
        match (self.point.form, self.start) {
            (Refused(status), _) => status,
            _ if self.tag() == TAG_MOUNT_POINT && self.start != Start::Folder => {
                Status::NOT_A_DIRECTORY
            }
            // A pipe has no contents.
            (Special(_), Start::Filled) => Status::NOT_SUPPORTED,
            _ => Status::SUCCESS,
        }
    }

    /// The kind of node that NFS clients see, and the text of a link.
    fn node(&self) -> (Kind, Option<&[u8]>) {
        match (self.point.form, self.start) {
            (Special(kind), _) => (kind, None),
            (Followed, Start::Empty | Start::Folder) => (Kind::Symlink, Some(b"target")),
            (Text(text), Start::Empty | Start::Folder) => (Kind::Symlink, Some(text.as_bytes())),
            (_, Start::Folder) => (Kind::Dir, None),
            _ => (Kind::File, None),
        }
    }

    /// Whether the server opens the target of a link in place of the link.
    fn is_followed(&self) -> bool {
        self.follows && self.point.form == Followed && self.node().0 == Kind::Symlink
    }

    /// The attributes that listings show of the reparse point itself.
    fn attributes(&self) -> u32 {
        let of_folder = self.start == Start::Folder && matches!(self.point.form, Text(_) | Data);
        REPARSE_POINT | if of_folder { DIRECTORY } else { 0 }
    }

    /// An open of the name without FILE_OPEN_REPARSE_POINT.
    fn open(&self, how: Disposition) -> Status {
        match how {
            Disposition::Create if self.is_followed() => Status::OBJECT_NAME_COLLISION,
            _ if self.is_followed() => Status::SUCCESS,
            _ if self.tag() == TAG_SYMLINK => Status::STOPPED_ON_SYMLINK,
            Disposition::Create => Status::OBJECT_NAME_COLLISION,
            _ => Status::IO_REPARSE_TAG_NOT_HANDLED,
        }
    }

    /// An open of a name below it.
    fn through(&self) -> Status {
        if self.tag() == TAG_SYMLINK && !self.is_followed() {
            return Status::STOPPED_ON_SYMLINK;
        }
        let is_folder = self.attributes() & DIRECTORY != 0;
        if is_folder { Status::IO_REPARSE_TAG_NOT_HANDLED } else { Status::OBJECT_PATH_NOT_FOUND }
    }

    /// The change to another reparse point of what is a folder for clients, or a file.
    fn change(&self, to: &Point, is_folder: bool) -> Status {
        let owner = |bytes: &[u8]| (tag_of(bytes) >> 31 == 0).then(|| bytes[8..24].to_vec());
        let other = Model { point: to, ..*self };
        match to.form {
            Refused(status) => status,
            _ if other.tag() == TAG_MOUNT_POINT && !is_folder => Status::NOT_A_DIRECTORY,
            _ if other.tag() != self.tag() => Status::IO_REPARSE_TAG_MISMATCH,
            _ if owner(&self.point.bytes) != owner(&to.bytes) => Status::REPARSE_ATTRIBUTE_CONFLICT,
            Special(_) if self.start == Start::Filled => Status::NOT_SUPPORTED,
            _ => Status::SUCCESS,
        }
    }

    /// The kind of the file once it has no reparse point.
    fn kind_after(&self) -> Kind {
        let folder = self.start == Start::Folder && matches!(self.point.form, Text(_) | Data);
        if folder { Kind::Dir } else { Kind::File }
    }
}

fn root(harness: &Harness) -> NodeRef {
    harness.core.namespace.shares()[0].backend.root()
}

async fn node(harness: &Harness, name: &str) -> NodeRef {
    root(harness).lookup(&Cred::root(), name.as_bytes()).await.unwrap().0
}

async fn open(c: &Client, name: &str, how: Disposition, options: u32) -> Result<FileId, Status> {
    let opened = c.create(name, |r| (r.disposition, r.options) = (how as u32, options)).await;
    opened.map(|r| r.file)
}

async fn itself(c: &Client, name: &str) -> FileId {
    open(c, name, Disposition::Open, option::OPEN_REPARSE_POINT).await.unwrap()
}

/// Makes the share with the file `target`, and the file that gets a reparse point.
async fn made(follows: bool, start: Start) -> (Harness, Client, FileId) {
    let harness = Harness::new();
    let mut settings = (*harness.core.settings()).clone();
    let symlinks = if follows { Symlinks::Server(Vec::new()) } else { Symlinks::Client };
    settings.shares.get_mut("data").unwrap().symlinks = symlinks;
    harness.core.set_settings(settings);
    let c = harness.client();
    c.close(c.open("target").await).await;
    let options = if start == Start::Folder { option::DIRECTORY_FILE } else { 0 };
    let f = c.create("x", |r| r.options = options).await.unwrap().file;
    if start == Start::Filled {
        put(&c, f, 0, DATA).await;
    }
    (harness, c, f)
}

/// Returns all reparse data of an open, by as small and as large a buffer as it needs.
async fn read(c: &Client, f: FileId) -> Result<Vec<u8>, Status> {
    use crate::wire::ioctl::{self, IS_FSCTL};
    let ask = async |output_max| {
        let r = ioctl::Request {
            code: GET_REPARSE_POINT,
            file: f,
            input: &[],
            input_max: 0,
            output_max,
            flags: IS_FSCTL,
        };
        let a = c.ask(Command::Ioctl, &r.emit()).await;
        let told = ioctl::Response::parse(&a.message).map(|r| r.output.to_vec());
        (a.status(), told.unwrap_or_default())
    };
    let (status, all) = ask(16 << 10).await;
    if status != Status::SUCCESS {
        return Err(status);
    }
    let head = if tag_of(&all) >> 31 == 1 { 8 } else { 24 };
    assert_eq!(ask(head - 1).await.0, Status::BUFFER_TOO_SMALL);
    let (status, cut) = ask(head).await;
    let is_all = all.len() == cut.len();
    assert_eq!(status, if is_all { Status::SUCCESS } else { Status::BUFFER_OVERFLOW });
    assert_eq!(cut[..], all[..cut.len()]);
    Ok(all)
}

/// Returns attributes and tag of `x` in a listing of each level; `None` where it is not listed.
async fn listed(c: &Client, level: Level) -> Option<(u32, Option<u32>)> {
    let top = c.create("", |r| {
        r.options = option::DIRECTORY_FILE;
        if level == Level::Posix {
            r.contexts.push(Context::new(name::POSIX, 0_u32.to_le_bytes().to_vec()));
        }
    });
    let top = top.await.unwrap().file;
    let r = Request {
        class: level.number(),
        flags: flag::REOPEN,
        file_index: 0,
        file: top,
        output_len: 65_536,
        pattern: "*".into(),
    };
    let told = c.ask(Command::QueryDirectory, &r.emit()).await.whole();
    c.close(top).await;
    let buffer = Response::parse(&told).unwrap().buffer;
    let mut all = chained(&buffer).map(|entry| entry.unwrap());
    let entry = all.find(|entry| level.parse(entry).unwrap().0 == "x")?;
    if level == Level::Names {
        return Some((0, None));
    }
    let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
    // MS-FSCC section 2.4: ReparsePointTag where the level has that field, else EaSize.
    let tag = match level {
        Level::Directory => None,
        Level::FullDirectory | Level::BothDirectory => Some(word(64)),
        Level::IdFullDirectory | Level::IdBothDirectory => Some(word(64)),
        Level::Posix => Some(word(80)),
        _ => Some(word(68)),
    };
    Some((word(56) & (REPARSE_POINT | DIRECTORY), tag))
}

/// Classes that no client can query over SMB: FileStatInformation, FileStatLxInformation and FileStatBasicInformation, which have a
/// tag as well. MS-FSCC section 2.4 does not list them (MS-SMB2 section 3.3.5.20.1).
const LOCAL: [u8; 3] = [68, 70, 77];

/// Compares what a client with the POSIX extensions lists: links of the host have the tag by which it reads them.
async fn posix_clients_see_what_the_model_says(harness: &Harness, m: &Model<'_>, what: &str) {
    let c = harness.posix_client();
    let (attributes, tag) = listed(&c, Level::Posix).await.unwrap();
    let is_link = m.node().0 == Kind::Symlink;
    let is_folder = !is_link && m.attributes() & DIRECTORY != 0;
    let wanted = REPARSE_POINT | if is_folder { DIRECTORY } else { 0 };
    assert_eq!(attributes, wanted, "{what}");
    assert_eq!(tag, Some(if is_link { TAG_NFS } else { m.tag() }), "{what}");
}

/// Compares listings, queries, and opens of each kind with the model.
async fn is_as_the_model_says(harness: &Harness, c: &Client, m: &Model<'_>, what: &str) {
    let f = itself(c, "x").await;
    assert_eq!(read(c, f).await.as_ref(), Ok(&m.point.bytes), "{what}");
    for level in Level::ALL.into_iter().filter(|l| *l != Level::Posix) {
        let (shown, tag) = listed(c, level).await.unwrap();
        let wanted = if m.is_followed() { (0, 0) } else { (m.attributes(), m.tag()) };
        assert!(level == Level::Names || shown == wanted.0, "{what} {level:?} {shown:#x}");
        assert!(tag.is_none_or(|tag| tag == wanted.1), "{what} {level:?} {tag:x?}");
    }
    for (class, at) in
        [(Class::Basic, 32), (Class::AttributeTag, 0), (Class::NetworkOpen, 48), (Class::All, 32)]
    {
        let told = query(c, f, class).await.unwrap();
        let shown = tag_of(&told[at..]) & (REPARSE_POINT | DIRECTORY);
        assert_eq!(shown, m.attributes(), "{what} {class:?}");
        assert!(class != Class::AttributeTag || tag_of(&told[4..]) == m.tag(), "{what}");
    }
    for class in LOCAL {
        let told = ask(c, f, info_type::FILE, class, 65_536).await.status();
        assert_eq!(told, Status::INVALID_INFO_CLASS, "{what} {class}");
    }
    posix_clients_see_what_the_model_says(harness, m, what).await;
    assert_eq!(c.close(f).await, Status::SUCCESS);
    for how in [Disposition::Open, Disposition::OpenIf, Disposition::Create] {
        let opened = open(c, "x", how, 0).await;
        assert_eq!(opened.err().unwrap_or(Status::SUCCESS), m.open(how), "{what} {how:?}");
        if let Ok(f) = opened {
            c.close(f).await;
        }
        let through = open(c, "x\\below", how, 0).await;
        assert_eq!(through.err(), Some(m.through()), "{what} {how:?}");
    }
    let node = node(harness, "x").await;
    let (kind, text) = m.node();
    assert_eq!(node.kind(), kind, "{what}");
    if let Some(text) = text {
        assert_eq!(node.readlink(&Cred::root()).await.unwrap(), text, "{what}");
    }
    if m.start == Start::Filled {
        assert_eq!(node.getattr().await.unwrap().size, DATA.len() as u64, "{what}");
    }
}

/// Compares changes to each other reparse point with the model, and removes it with each wrong input first.
async fn changes_as_the_model_says(harness: &Harness, c: &Client, m: &Model<'_>, what: &str) {
    let f = itself(c, "x").await;
    let mut kind_after = m.kind_after();
    for other in points() {
        let what = format!("{what}, then {}", other.name);
        let told = status(c, f, SET_REPARSE_POINT, &other.bytes).await;
        assert_eq!(told, m.change(&other, kind_after == Kind::Dir), "{what}");
        let now = if told == Status::SUCCESS { &other.bytes } else { &m.point.bytes };
        assert_eq!(read(c, f).await.as_ref(), Ok(now), "{what}");
        if told == Status::SUCCESS {
            // A link of the host and a pipe do not tell that they were folders.
            if matches!(other.form, Followed | Special(_)) {
                kind_after = Kind::File;
            }
            let back = status(c, f, SET_REPARSE_POINT, &m.point.bytes).await;
            assert_eq!(back, Status::SUCCESS, "{what}");
        }
    }
    let head = if m.tag() >> 31 == 1 { 8 } else { 24 };
    let mut right = m.point.bytes[..head].to_vec();
    right[4..8].fill(0);
    let mut wrong = vec![
        (right[..head - 1].to_vec(), Status::IO_REPARSE_DATA_INVALID),
        ([&right[..], &[0]].concat(), Status::IO_REPARSE_DATA_INVALID),
        (buffer(0, Some(GUID), 0), Status::IO_REPARSE_TAG_INVALID),
        (buffer(1, None, 0), Status::IO_REPARSE_TAG_INVALID),
        (buffer(0x4321, None, 0), Status::IO_REPARSE_DATA_INVALID),
        (buffer(0x4321, Some(GUID), 0), Status::IO_REPARSE_TAG_MISMATCH),
        (buffer(0x8000_0099, None, 0), Status::IO_REPARSE_TAG_MISMATCH),
    ];
    if head == 24 {
        wrong.push((buffer(m.tag(), Some([5; 16]), 0), Status::REPARSE_ATTRIBUTE_CONFLICT));
    }
    for (input, want) in wrong {
        let told = status(c, f, DELETE_REPARSE_POINT, &input).await;
        assert_eq!(told, want, "{what} {input:02x?}");
    }
    assert_eq!(status(c, f, DELETE_REPARSE_POINT, &right).await, Status::SUCCESS, "{what}");
    for (code, input) in [(GET_REPARSE_POINT, &[][..]), (DELETE_REPARSE_POINT, &right)] {
        assert_eq!(status(c, f, code, input).await, Status::NOT_A_REPARSE_POINT, "{what}");
    }
    assert_eq!(node(harness, "x").await.kind(), kind_after, "{what}");
    if m.start == Start::Filled {
        assert_eq!(get(c, f).await, DATA, "{what}");
    }
    c.close(f).await;
    let plain = open(c, "x", Disposition::Open, 0).await.unwrap();
    c.close(plain).await;
}

#[tokio::test]
async fn each_tag_meets_the_model() {
    for follows in [true, false] {
        for start in [Start::Empty, Start::Filled, Start::Folder] {
            for point in points() {
                let what = format!("{} on {start:?}, followed: {follows}", point.name);
                let (harness, c, f) = made(follows, start).await;
                let m = Model { start, point: &point, follows };
                let told = status(&c, f, SET_REPARSE_POINT, &point.bytes).await;
                assert_eq!(told, m.set(), "{what}");
                c.close(f).await;
                if told != Status::SUCCESS {
                    let f = itself(&c, "x").await;
                    assert_eq!(read(&c, f).await, Err(Status::NOT_A_REPARSE_POINT), "{what}");
                    continue;
                }
                is_as_the_model_says(&harness, &c, &m, &what).await;
                let f = itself(&c, "x").await;
                assert_eq!(
                    set(&c, f, Set::Rename(to("moved", 0))).await,
                    Status::SUCCESS,
                    "{what}"
                );
                assert_eq!(set(&c, f, Set::Rename(to("x", 0))).await, Status::SUCCESS, "{what}");
                c.close(f).await;
                is_as_the_model_says(&harness, &c, &m, &format!("{what}, renamed")).await;
                changes_as_the_model_says(&harness, &c, &m, &what).await;
            }
        }
    }
}

#[tokio::test]
async fn each_reparse_point_is_removed_by_its_name() {
    for follows in [true, false] {
        for start in [Start::Empty, Start::Filled, Start::Folder] {
            for point in points() {
                let m = Model { start, point: &point, follows };
                if m.set() != Status::SUCCESS {
                    continue;
                }
                for options in [option::OPEN_REPARSE_POINT, 0] {
                    let what = format!("{} on {start:?}, {options:#x}", point.name);
                    let (harness, c, f) = made(follows, start).await;
                    assert_eq!(
                        status(&c, f, SET_REPARSE_POINT, &point.bytes).await,
                        Status::SUCCESS
                    );
                    c.close(f).await;
                    // As programs do that know no reparse points, such as smbclient.
                    let opened = c.create("x", |r| {
                        (r.access, r.disposition) = (mask::DELETE, Disposition::Open as u32);
                        r.options = options;
                    });
                    let opened = opened.await.map(|r| r.file);
                    if options == 0 && !follows && m.tag() == TAG_SYMLINK {
                        assert_eq!(opened, Err(Status::STOPPED_ON_SYMLINK), "{what}");
                        continue;
                    }
                    let f = opened.unwrap_or_else(|e| panic!("{what}: {e:?}"));
                    let gone = Set::Disposition { flags: disposition::DELETE, ex: false };
                    assert_eq!(set(&c, f, gone).await, Status::SUCCESS, "{what}");
                    c.close(f).await;
                    let left = root(&harness).lookup(&Cred::root(), b"x").await.map(drop);
                    assert_eq!(left, Err(vfs::VfsError::NotFound), "{what}");
                    assert!(
                        root(&harness).lookup(&Cred::root(), b"target").await.is_ok(),
                        "{what}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn overwritten_file_is_an_ordinary_file() {
    for how in [Disposition::Overwrite, Disposition::OverwriteIf, Disposition::Supersede] {
        let (_harness, c, f) = made(true, Start::Filled).await;
        let point = buffer(0x8000_0013, None, 40);
        assert_eq!(status(&c, f, SET_REPARSE_POINT, &point).await, Status::SUCCESS);
        c.close(f).await;
        let refused = open(&c, "x", how, 0).await;
        assert_eq!(refused, Err(Status::IO_REPARSE_TAG_NOT_HANDLED), "{how:?}");
        let f = itself(&c, "x").await;
        assert_eq!((read(&c, f).await, get(&c, f).await), (Ok(point), DATA.to_vec()));
        c.close(f).await;
        let f = open(&c, "x", how, option::OPEN_REPARSE_POINT).await.unwrap();
        assert_eq!(read(&c, f).await, Err(Status::NOT_A_REPARSE_POINT), "{how:?}");
        assert_eq!(get(&c, f).await, b"", "{how:?}");
        c.close(f).await;
        assert!(open(&c, "x", Disposition::Open, 0).await.is_ok());
    }
}

#[tokio::test]
async fn folder_with_files_gets_no_tag() {
    let (_harness, c, f) = made(true, Start::Folder).await;
    let inside = c.open("x\\inside").await;
    for point in points().iter().filter(|p| !matches!(p.form, Refused(_))) {
        let told = status(&c, f, SET_REPARSE_POINT, &point.bytes).await;
        assert_eq!(told, Status::DIRECTORY_NOT_EMPTY, "{}", point.name);
    }
    c.close(inside).await;
}

/// The rights of the handle decide (MS-FSA section 2.1.5.10.37); the folder of a file gives no right and takes none.
#[tokio::test]
async fn handle_that_may_write_may_set() {
    let harness = Harness::new();
    let c = harness.client();
    c.close(c.open("f").await).await;
    let point = buffer(0x1234, Some(GUID), 4);
    let mut right = point[..24].to_vec();
    right[4..8].fill(0);
    for (access, want) in [
        (mask::READ_DATA | mask::READ_ATTRIBUTES, Status::ACCESS_DENIED),
        (mask::WRITE_EA, Status::ACCESS_DENIED),
        (mask::WRITE_DATA, Status::SUCCESS),
        (mask::WRITE_ATTRIBUTES, Status::SUCCESS),
    ] {
        let f = c.create("f", |r| r.access = access).await.unwrap().file;
        assert_eq!(status(&c, f, SET_REPARSE_POINT, &point).await, want, "{access:#x}");
        assert_eq!(status(&c, f, DELETE_REPARSE_POINT, &right).await, want, "{access:#x}");
        c.close(f).await;
    }
    let stream = c.open("f:s").await;
    let told = status(&c, stream, SET_REPARSE_POINT, &point).await;
    assert_eq!(told, Status::INVALID_PARAMETER);
}

#[tokio::test]
async fn watcher_gets_each_change_of_a_tag() {
    use crate::fscc::notify::{Action, Change};
    let (_harness, c, f) = made(true, Start::Empty).await;
    let top = c.create("", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    let point = buffer(0x1234, Some(GUID), 4);
    let mut right = point[..24].to_vec();
    right[4..8].fill(0);
    for (code, input) in [(SET_REPARSE_POINT, &point), (DELETE_REPARSE_POINT, &right)] {
        let watching = c.ask(Command::ChangeNotify, &watch(top, 1000, filter::ATTRIBUTES)).await;
        assert_eq!(watching.status(), Status::PENDING);
        assert_eq!(status(&c, f, code, input).await, Status::SUCCESS);
        let modified = Change { action: Action::Modified, name: "x".into() };
        assert_eq!(changes(&c.pushed().await.message), [modified], "{code:#x}");
    }
}
