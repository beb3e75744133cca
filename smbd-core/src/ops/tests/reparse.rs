//! A file that becomes a reparse point and a file again, as seen by its opens.

use vfs::Acting;
use vfs::{CreateHow, Cred, Kind, NodeRef, SetAttr};

use super::hold::{ALONE, READ, leased, lock};
use super::ioctl::{done, get, owner, put, status};
use super::listing::{changes, watch};
use crate::fscc::notify::{Action, Change};
use crate::harness::{Client, Harness, doom};
use crate::open::FileId;
use crate::status::Status;
use crate::wire::Command;
use crate::wire::change_notify::filter;
use crate::wire::create::{Disposition, option, share};
use crate::wire::fsctl::code::{DELETE_REPARSE_POINT, GET_REPARSE_POINT, SET_REPARSE_POINT};
use crate::wire::oplock_break;
use crate::wire::reparse::Reparse;

fn root(harness: &Harness) -> NodeRef {
    harness.core.namespace.shares()[0].backend.root()
}

async fn becomes(c: &Client, f: FileId, what: &Reparse) {
    done(c, f, SET_REPARSE_POINT, &what.emit()).await;
    assert_eq!(done(c, f, GET_REPARSE_POINT, &[]).await, what.emit());
}

/// Opens a link itself, not its target.
async fn open_itself(c: &Client, name: &str, shared: u32) -> Result<FileId, Status> {
    let change = |r: &mut crate::wire::create::Request<'static>| {
        (r.options, r.disposition) = (option::OPEN_REPARSE_POINT, Disposition::Open as u32);
        r.share = shared;
    };
    c.create(name, change).await.map(|r| r.file)
}

const ALL: u32 = share::READ | share::WRITE | share::DELETE;

#[tokio::test]
async fn all_opens_go_on_as_what_the_file_became() {
    let harness = Harness::new();
    let (c, other) = (harness.client(), harness.client());
    let table = harness.core.namespace.arbiter().state();
    let shared =
        |r: &mut crate::wire::create::Request<'static>| r.share = share::READ | share::WRITE;
    let f = c.create("f", shared).await.unwrap().file;
    let g = other.create("f", shared).await.unwrap_err();
    assert_eq!(g, Status::SHARING_VIOLATION, "it may delete");
    let without_delete = |r: &mut crate::wire::create::Request<'static>| {
        (r.access, r.share) = (0x0012_01bf, ALL);
    };
    let g = other.create("f", without_delete).await.unwrap().file;
    becomes(&c, f, &Reparse::NfsFifo).await;
    assert_eq!(done(&other, g, GET_REPARSE_POINT, &[]).await, Reparse::NfsFifo.emit());
    let (node, _) = root(&harness).lookup(&Cred::root(), b"f").await.unwrap();
    assert_eq!(node.kind(), Kind::Fifo);
    assert_eq!((table.nodes(), table.opens(node.id(), None)), (1, 2), "both, and of it alone");
    let denied = open_itself(&other, "f", ALL).await;
    assert_eq!(denied, Err(Status::SHARING_VIOLATION), "share modes hold on");
    // The other handle turns it back into a file, which the first handle can write.
    done(&other, g, DELETE_REPARSE_POINT, &owner(&Reparse::NfsFifo)).await;
    put(&c, f, 0, b"data").await;
    assert_eq!(get(&other, g).await, b"data");
    for (client, file) in [(&c, f), (&other, g)] {
        assert_eq!(client.close(file).await, Status::SUCCESS);
    }
    assert_eq!(table.nodes(), 0, "nothing is left");
    let f = c.open("f").await;
    assert_eq!(get(&c, f).await, b"data", "the name is that file's");
}

#[tokio::test]
async fn a_directory_becomes_a_link_and_goes_with_its_open() {
    let harness = Harness::new();
    let c = harness.client();
    let doomed_directory = |r: &mut crate::wire::create::Request<'static>| {
        r.options = option::DIRECTORY_FILE;
        doom(r);
    };
    let d = c.create("d", doomed_directory).await.unwrap().file;
    let inside = c.open("d\\f").await;
    let link = Reparse::Symlink { target: "x".into(), relative: true };
    let full = status(&c, d, SET_REPARSE_POINT, &link.emit()).await;
    assert_eq!(full, Status::DIRECTORY_NOT_EMPTY);
    c.close(c.create("d\\f", doom).await.unwrap().file).await;
    c.close(inside).await;
    becomes(&c, d, &link).await;
    assert_eq!(root(&harness).readdir(&Cred::root(), 0, 9).await.unwrap().0[0].name[..], *b"d");
    c.close(d).await;
    assert!(root(&harness).readdir(&Cred::root(), 0, 9).await.unwrap().0.is_empty());
}

/// The lease belongs to the file, which is the same for its client (MS-SMB2 section 3.3.5.9.8).
#[tokio::test]
async fn a_lease_goes_along() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let (c, other) = (harness.client(), harness.client());
    let f = leased(&c, "f", 1, READ).await.unwrap();
    becomes(&c, f, &Reparse::NfsFifo).await;
    done(&c, f, DELETE_REPARSE_POINT, &owner(&Reparse::NfsFifo)).await;
    let again = leased(&c, "f", 1, READ).await.unwrap();
    let g = other.open("f").await;
    put(&other, g, 0, b"data").await;
    let told = c.pushed().await;
    let notice = oplock_break::Response::parse(&told.message).unwrap();
    let oplock_break::Response::LeaseNotice(n) = notice else { panic!("{notice:?}") };
    assert_eq!((n.key, n.from, n.to), ([1; 16], READ, 0));
    for (client, file) in [(&c, f), (&c, again), (&other, g)] {
        assert_eq!(client.close(file).await, Status::SUCCESS);
    }
    assert_eq!(
        (harness.core.leases.count(), harness.core.namespace.arbiter().state().nodes()),
        (0, 0)
    );
}

/// The user has the file open but may not remove its name, which is checked last.
#[tokio::test]
async fn what_fails_leaves_the_file_and_its_open() {
    let harness = Harness::new();
    let (admin, set) = (Cred::root(), |uid, mode| SetAttr {
        uid: Some(uid),
        mode: Some(mode),
        ..SetAttr::default()
    });
    let dir = root(&harness).mkdir(Acting::caller(&admin), b"d", set(0, 0o755)).await.unwrap().node;
    dir.create(Acting::caller(&admin), b"f", CreateHow::Guarded, set(1000, 0o600)).await.unwrap();
    let c = harness.client_as(1000);
    let f = leased(&c, "d\\f", 1, READ).await.unwrap();
    let table = harness.core.namespace.arbiter().state();
    for refused in [Reparse::NfsFifo, Reparse::NfsLink("x".into())] {
        let told = status(&c, f, SET_REPARSE_POINT, &refused.emit()).await;
        assert_eq!(told, Status::ACCESS_DENIED);
    }
    assert_eq!((table.nodes(), table.grants()), (1, 1), "as before");
    put(&c, f, 0, b"data").await;
    let (node, attr) = dir.lookup(&admin, b"f").await.unwrap();
    assert_eq!((node.kind(), attr.size), (Kind::File, 4));
    let entries = dir.readdir(&admin, 0, 9).await.unwrap().0;
    assert_eq!(entries.len(), 1, "nothing beside it");
    c.close(f).await;
    assert_eq!(table.nodes(), 0);
}

#[tokio::test]
async fn what_a_reparse_point_cannot_have_is_not_lost() {
    let harness = Harness::new();
    let c = harness.client();
    let fifo = Reparse::NfsFifo.emit();
    let f = c.open("stream").await;
    c.close(c.open("stream:s").await).await;
    assert_eq!(status(&c, f, SET_REPARSE_POINT, &fifo).await, Status::NOT_SUPPORTED);
    let f = c.open("names").await;
    let (node, _) = root(&harness).lookup(&Cred::root(), b"names").await.unwrap();
    node.link(Acting::caller(&Cred::root()), root(&harness).as_ref(), b"another").await.unwrap();
    assert_eq!(status(&c, f, SET_REPARSE_POINT, &fifo).await, Status::NOT_SUPPORTED);
    let f = c.open("ea").await;
    let (node, _) = root(&harness).lookup(&Cred::root(), b"ea").await.unwrap();
    node.xattr_set(&Cred::root(), b"a", b"1", vfs::XattrHow::Either).await.unwrap();
    assert_eq!(status(&c, f, SET_REPARSE_POINT, &fifo).await, Status::NOT_SUPPORTED);
    let f = c.open("locked").await;
    assert_eq!(lock(&c, f, &[(0, 1, ALONE)]).await, Status::SUCCESS);
    assert_eq!(status(&c, f, SET_REPARSE_POINT, &fifo).await, Status::FILE_LOCK_CONFLICT);
    let doomed = c.create("doomed", doom).await.unwrap().file;
    done(&c, doomed, SET_REPARSE_POINT, &fifo).await;
    let top = c.create("", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    assert_eq!(status(&c, top, SET_REPARSE_POINT, &fifo).await, Status::ACCESS_DENIED);
}

/// The client gets the link's target for any disposition (MS-FSA section 2.1.5.1.2).
#[tokio::test]
async fn a_link_is_followed_to_make_what_it_leads_to() {
    let harness = Harness::new();
    let c = harness.client();
    root(&harness).symlink(&Cred::root(), b"l", b"made", SetAttr::default()).await.unwrap();
    let new = async |options| {
        let change = |r: &mut crate::wire::create::Request<'static>| {
            (r.options, r.disposition) = (options, Disposition::Create as u32);
        };
        c.create("l", change).await.map(|r| r.file)
    };
    assert_eq!(new(0).await, Err(Status::STOPPED_ON_SYMLINK));
    assert_eq!(new(option::OPEN_REPARSE_POINT).await, Err(Status::OBJECT_NAME_COLLISION));
}

/// Watchers see a change of the file, not a removal and an addition.
#[tokio::test]
async fn who_watches_is_told_of_a_change() {
    let harness = Harness::new();
    let c = harness.client();
    let f = c.open("f").await;
    let top = c.create("", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    let watching = c.ask(Command::ChangeNotify, &watch(top, 1000, filter::ALL)).await;
    assert_eq!(watching.status(), Status::PENDING);
    becomes(&c, f, &Reparse::NfsFifo).await;
    let modified = Change { action: Action::Modified, name: "f".into() };
    assert_eq!(changes(&c.pushed().await.message), [modified]);
    let removed = c.create("f", |r| {
        r.options = option::OPEN_REPARSE_POINT;
        doom(r);
    });
    let removed = removed.await.unwrap().file;
    c.close(f).await;
    c.close(removed).await;
    let told = c.ask(Command::ChangeNotify, &watch(top, 1000, filter::ALL)).await;
    let removed = Change { action: Action::Removed, name: "f".into() };
    assert_eq!(changes(&told.message), [removed], "nothing else in between");
}
