//! Reparse points that one client sets and removes, as the holders of each kind of caching and the clients of NFS learn of it.
//!
//! Setting and removing break no oplock and no lease of the file (MS-FSA sections 2.1.5.10.3, 2.1.5.10.37 and 2.1.4.12); they break
//! caching of its folder's listing, which shows the tag. Where a link takes the place of the file, the name leads to another node:
//! handles that clients keep must be opened again, and data that a client has not written must be written before.

use client::nfs4::{OpenHow as V4How, StableHow4};
use client::smb::{Break, Caching, OpenHow, SmbFile};
use client::{Error, Result};
use config::{Share, Source, Squash};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, buf};
use smb_proto::NtStatus;
use smb_proto::fscc::notify::Action;
use smb_proto::smb2::change_notify::filter;
use smb_proto::smb2::create::{Disposition, access, oplock, option};
use smb_proto::smb2::fsctl::code::{DELETE_REPARSE_POINT, GET_REPARSE_POINT, SET_REPARSE_POINT};
use smb_proto::smb2::reparse::{Buffer, Reparse};
use tokio::time::timeout;

use crate::side::{At, DATA, Side, Way, patiently};

const ENOUGH: std::time::Duration = std::time::Duration::from_secs(60);
const KEY: [u8; 16] = [0x5a; 16];
/// Lease bits (MS-SMB2 section 2.2.13.2.8).
const R: u32 = 1;
const RH: u32 = 3;
const RW: u32 = 5;
const RWH: u32 = 7;
/// NFS4ERR_STALE and NFS3ERR_STALE.
const STALE: u32 = 70;
const MEM: At = At { share: "mem", folder: "", on_disk: "" };

/// The form in which the gateway keeps a reparse point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Data that is kept with the file and its contents.
    Kept,
    /// A link that cannot take the place of its file, which has contents.
    KeptLink,
    /// A link in place of the file.
    Link,
    /// A pipe in place of the file.
    Pipe,
}

const FORMS: [Form; 4] = [Form::Kept, Form::KeptLink, Form::Link, Form::Pipe];

impl Form {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Kept => Buffer { tag: 0x8000_0013, guid: None, data: &[7; 40] }.emit(),
            Self::KeptLink | Self::Link => {
                Reparse::Symlink { target: "\\??\\C:\\x".into(), relative: false }.emit()
            }
            Self::Pipe => Reparse::NfsFifo.emit(),
        }
    }

    /// Whether another node gets the name.
    fn replaces(self) -> bool {
        matches!(self, Self::Link | Self::Pipe)
    }

    fn contents(self) -> &'static [u8] {
        if self.replaces() { b"" } else { b"contents" }
    }

    /// The type that NFS clients see (RFC 1813 section 2.6).
    fn kind(self) -> u32 {
        match self {
            Self::Kept | Self::KeptLink => 1,
            Self::Link => 5,
            Self::Pipe => 7,
        }
    }
}

/// The two operations, with their inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Set,
    Remove,
}

impl Change {
    async fn make(self, a: &Side, file: &SmbFile, form: Form) -> Result<()> {
        let bytes = form.bytes();
        let (code, input) = match self {
            Self::Set => (SET_REPARSE_POINT, bytes),
            Self::Remove => (DELETE_REPARSE_POINT, [&bytes[..4], &[0; 4]].concat()),
        };
        a.smb.control(file, code, &input).await.map(drop)
    }
}

/// The holding of the other client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Lease(u32),
    Oplock(u8),
    Delegation {
        write: bool,
    },
    /// A lease and a delegation of the listing of its folder.
    FolderLease,
    FolderDelegation,
}

const HOLDS: [Hold; 11] = [
    Hold::Lease(R),
    Hold::Lease(RH),
    Hold::Lease(RW),
    Hold::Lease(RWH),
    Hold::Oplock(oplock::II),
    Hold::Oplock(oplock::EXCLUSIVE),
    Hold::Oplock(oplock::BATCH),
    Hold::Delegation { write: false },
    Hold::Delegation { write: true },
    Hold::FolderLease,
    Hold::FolderDelegation,
];

/// A notice to the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    Lease { from: u32, to: u32 },
    Oplock(u8),
    Recall,
}

/// The slow model: the notices in their order.
fn model(hold: Hold, form: Form, change: Change) -> Vec<Notice> {
    // An empty file may have data that its holder has not written. A link or pipe has no data.
    let asks_for_data = change == Change::Set && form.replaces();
    let lease = |from, to| Notice::Lease { from, to };
    match hold {
        Hold::FolderLease => vec![lease(RH, 0)],
        Hold::FolderDelegation | Hold::Delegation { .. } => vec![Notice::Recall],
        _ if !form.replaces() => vec![],
        Hold::Lease(RWH) if asks_for_data => vec![lease(RWH, RH), lease(RH, R)],
        Hold::Lease(RW) if asks_for_data => vec![lease(RW, R)],
        Hold::Lease(RWH) => vec![lease(RWH, RW)],
        Hold::Lease(RH) => vec![lease(RH, R)],
        Hold::Oplock(oplock::BATCH | oplock::EXCLUSIVE) if asks_for_data => {
            vec![Notice::Oplock(oplock::II)]
        }
        Hold::Oplock(oplock::BATCH) => vec![Notice::Oplock(oplock::NONE)],
        Hold::Lease(_) | Hold::Oplock(_) => vec![],
    }
}

async fn world() -> (World, tempfile::TempDir) {
    with_alice(|settings| {
        let mem = Share { squash: Squash::None, ..Share::new("mem", Source::Memory) };
        settings.shares.push(mem);
    })
    .await
}

/// Opens the file itself, with no right that breaks caching.
async fn itself(a: &Side, name: &str) -> SmbFile {
    let rights = access::WRITE_ATTRIBUTES | access::READ_ATTRIBUTES;
    a.smb.open(name, rights, Disposition::Open, option::OPEN_REPARSE_POINT).await.unwrap()
}

/// Creates a file; before a removal it has the reparse point.
async fn made(a: &Side, name: &str, (form, change): (Form, Change)) -> SmbFile {
    let f = a.smb.create(name).await.unwrap();
    if !form.contents().is_empty() {
        a.smb.write(&f, 0, vec![buf(form.contents())]).await.unwrap();
    }
    a.smb.close(f).await.unwrap();
    let f = itself(a, name).await;
    if change == Change::Remove {
        Change::Set.make(a, &f, form).await.unwrap();
    }
    f
}

/// A holding of the other client.
#[derive(Default)]
struct Held {
    smb: Option<SmbFile>,
    recalled: Option<(client::nfs4::Fh, client::nfs4::Stateid)>,
    open: Option<client::nfs4::OpenFile>,
}

/// Takes the holding; `None`: the gateway does not grant it.
async fn take(b: &Side, hold: Hold, folder: &str, name: &str) -> Option<Held> {
    let how = OpenHow {
        access: access::READ_DATA | access::READ_ATTRIBUTES,
        options: option::OPEN_REPARSE_POINT,
        ..OpenHow::READ
    };
    let path = format!("{folder}\\{name}");
    let smb = async |path: &str, how: OpenHow, wanted: u32| {
        let (file, granted) = b.smb.open_cached(path, &how).await.unwrap();
        (granted == wanted).then_some(Held { smb: Some(file), ..Held::default() })
    };
    match hold {
        Hold::Lease(state) => smb(&path, how.cached(Caching::Lease(KEY, state)), state).await,
        Hold::Oplock(level) => {
            smb(&path, how.cached(Caching::Oplock(level)), u32::from(level)).await
        }
        Hold::FolderLease => smb(folder, OpenHow::LIST.cached(Caching::Lease(KEY, RH)), RH).await,
        Hold::Delegation { write } => {
            let (dir, _) = b.nfs4.lookup(&b.root4, folder.as_bytes()).await.unwrap();
            let how = if write { V4How::WRITE } else { V4How::READ };
            let open =
                patiently(|| b.nfs4.open(&dir, name.as_bytes(), b"owner", how)).await.ok()?;
            let given = open.delegation.filter(|given| given.write == write)?;
            let recalled = Some((open.fh.clone(), given.stateid));
            Some(Held { recalled, open: Some(open), ..Held::default() })
        }
        Hold::FolderDelegation => {
            let (dir, _) = b.nfs4.lookup(&b.root4, folder.as_bytes()).await.unwrap();
            let stateid = b.nfs4.get_dir_delegation(&dir).await.unwrap()?;
            Some(Held { recalled: Some((dir, stateid)), ..Held::default() })
        }
    }
}

/// A break or a recall as it arrives.
enum Arrived {
    Break(Break),
    Recall(client::nfs4::Recall),
}

/// Waits for the next break or recall. A caller may give up the wait.
async fn next(b: &mut Side) -> Arrived {
    tokio::select! {
        told = b.breaks.recv() => Arrived::Break(told.unwrap()),
        told = b.recalls.recv() => Arrived::Recall(told.unwrap()),
    }
}

/// Answers a break or recall.
async fn answer(b: &Side, held: &Held, told: Arrived) -> Notice {
    match told {
        Arrived::Break(Break::LeaseNotice(n)) => {
            assert_eq!(n.key, KEY);
            if n.acknowledge {
                b.smb.acknowledge_lease(KEY, n.to).await.unwrap();
            }
            Notice::Lease { from: n.from, to: n.to }
        }
        Arrived::Break(Break::Oplock(told)) => {
            let file = held.smb.unwrap();
            assert!(file.is(told.file));
            b.smb.acknowledge_oplock(&file, told.level).await.unwrap();
            Notice::Oplock(told.level)
        }
        Arrived::Break(other) => panic!("{other:?}"),
        Arrived::Recall(told) => {
            let (fh, stateid) = held.recalled.clone().unwrap();
            assert_eq!(told.stateid, stateid);
            b.nfs4.delegreturn(&fh, stateid).await.unwrap();
            Notice::Recall
        }
    }
}

/// Changes the reparse point while the other client answers. Returns the notices: all that the model expects, and those that came
/// beyond.
async fn notices(
    (a, b): (&Side, &mut Side),
    (f, form, change): (&SmbFile, Form, Change),
    held: &Held,
    expected: usize,
) -> Vec<Notice> {
    let mut told = Vec::new();
    let changing = change.make(a, f, form);
    tokio::pin!(changing);
    loop {
        tokio::select! {
            biased;
            arrived = next(b) => told.push(answer(b, held, arrived).await),
            done = &mut changing => {
                done.unwrap();
                break;
            }
        }
    }
    // A notice without a wait may arrive after the answer.
    while told.len() < expected {
        match timeout(ENOUGH, next(b)).await {
            Ok(arrived) => told.push(answer(b, held, arrived).await),
            Err(_) => break,
        }
    }
    // Notices to a connection leave before its next answers.
    b.smb.list("").await.unwrap();
    while b.breaks.try_recv().is_ok() || b.recalls.try_recv().is_ok() {
        told.push(Notice::Oplock(u8::MAX));
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_learn_of_reparse_points_as_the_model_says() {
    let (world, _dir) = world().await;
    for at in [DATA, MEM] {
        let a = Side::connect_at(&world, &alice(), Way::Tcp, at).await.unwrap();
        let mut b = Side::connect_at(&world, &alice(), Way::Tcp, at).await.unwrap();
        let mut not_granted = Vec::new();
        for (number, hold) in HOLDS.into_iter().enumerate() {
            for form in FORMS {
                for change in [Change::Set, Change::Remove] {
                    let what = format!("{} {hold:?} {form:?} {change:?}", at.share);
                    // A folder each: a recalled delegation is not granted again for a while.
                    let folder = format!("d{number}-{form:?}-{change:?}");
                    let list = OpenHow { disposition: Disposition::Create, ..OpenHow::LIST };
                    let (dir, _) = a.smb.open_cached(&folder, &list).await.unwrap();
                    a.smb.close(dir).await.unwrap();
                    let f = made(&a, &format!("{folder}\\f"), (form, change)).await;
                    let Some(held) = take(&b, hold, &folder, "f").await else {
                        not_granted.push((hold, form, change));
                        continue;
                    };
                    let wanted = model(hold, form, change);
                    let told = notices((&a, &mut b), (&f, form, change), &held, wanted.len()).await;
                    assert_eq!(told, wanted, "{what}");
                    if let Some(file) = held.smb.filter(|_| hold != Hold::FolderLease) {
                        let read = b.smb.control(&file, GET_REPARSE_POINT, &[]).await;
                        let is_none =
                            matches!(read, Err(Error::Smb(_, NtStatus::NOT_A_REPARSE_POINT)));
                        match change {
                            Change::Set => assert_eq!(read, Ok(form.bytes()), "{what}"),
                            Change::Remove => assert!(is_none, "{what} {read:?}"),
                        }
                    }
                    for file in [held.smb, Some(f)].into_iter().flatten() {
                        let side = if Some(file) == held.smb { &b } else { &a };
                        side.smb.close(file).await.unwrap();
                    }
                    if let Some(open) = &held.open {
                        // Its node may be gone.
                        let _ = b.nfs4.close(open).await;
                    }
                }
            }
        }
        // NFS opens no link and no pipe.
        let is_odd = |(hold, form, change): &&(Hold, Form, Change)| {
            let is_file = !form.replaces() || *change == Change::Set;
            is_file || !matches!(hold, Hold::Delegation { .. })
        };
        let odd: Vec<_> = not_granted.iter().filter(is_odd).collect();
        assert!(odd.is_empty() && not_granted.len() == 4, "{} {odd:?}", at.share);
    }
    world.running.stop().await;
}

/// A client has written to a file that is still empty on the server: a link that another client makes of it must not cost the data.
#[tokio::test(flavor = "multi_thread")]
async fn data_that_a_holder_has_not_written_survives_a_link() {
    let (world, _dir) = world().await;
    for at in [DATA, MEM] {
        let a = Side::connect_at(&world, &alice(), Way::Tcp, at).await.unwrap();
        let mut b = Side::connect_at(&world, &alice(), Way::Tcp, at).await.unwrap();
        for lease in [None, Some(RW), Some(RWH)] {
            let name = format!("late-{lease:?}");
            let f = made(&a, &name, (Form::Link, Change::Set)).await;
            let setting = Change::Set.make(&a, &f, Form::Link);
            let file = if lease.is_none() {
                let how = V4How::WRITE;
                let opened =
                    patiently(|| b.nfs4.open(&b.root4, name.as_bytes(), b"owner", how)).await;
                let file = opened.unwrap();
                let given = file.delegation.expect("a delegation to write");
                let writing = async {
                    timeout(ENOUGH, b.recalls.recv()).await.unwrap();
                    let data = vec![buf(b"late")];
                    let stable = StableHow4::FileSync;
                    b.nfs4.write(&file.fh, file.io(), 0, data, stable).await.unwrap();
                    b.nfs4.delegreturn(&file.fh, given.stateid).await.unwrap();
                };
                let (done, ()) = tokio::join!(setting, writing);
                done.unwrap();
                None
            } else {
                let how = OpenHow { options: 0, ..OpenHow::WRITE };
                let state = lease.unwrap_or_default();
                let how = how.cached(Caching::Lease(KEY, state));
                let (file, granted) = b.smb.open_cached(&name, &how).await.unwrap();
                assert_eq!(granted, state);
                let writing = async {
                    let told = timeout(ENOUGH, b.breaks.recv()).await.unwrap();
                    let Some(Break::LeaseNotice(n)) = told else { panic!("{told:?}") };
                    b.smb.write(&file, 0, vec![buf(b"late")]).await.unwrap();
                    b.smb.acknowledge_lease(KEY, n.to).await.unwrap();
                };
                let (done, ()) = tokio::join!(setting, writing);
                done.unwrap();
                Some(file)
            };
            assert_eq!(a.smb.control(&f, GET_REPARSE_POINT, &[]).await, Ok(Form::Link.bytes()));
            let (fh, attr) = b.nfs3.lookup(&b.root3, name.as_bytes()).await.unwrap();
            assert_eq!(attr.unwrap().size, 4, "{} {name}", at.share);
            let read = patiently(|| b.nfs3.read(&fh, 0, 9)).await.unwrap();
            let read: Vec<u8> = read.data.iter().flat_map(|part| part.to_vec()).collect();
            assert_eq!(read, b"late", "{} {name}", at.share);
            for file in file.into_iter() {
                b.smb.close(file).await.unwrap();
            }
            a.smb.close(f).await.unwrap();
        }
    }
    world.running.stop().await;
}

/// Waits until the clock of the file system is past this time.
async fn tick(a: &Side, past: (u32, u32)) {
    loop {
        let f = a.smb.create("tick").await.unwrap();
        a.smb.write(&f, 0, vec![buf(b"x")]).await.unwrap();
        a.smb.close(f).await.unwrap();
        let (_, attr) = a.nfs3.lookup(&a.root3, b"tick").await.unwrap();
        if attr.unwrap().ctime > past {
            return;
        }
    }
}

/// The file and its folder as both versions of NFS show them.
async fn seen(b: &Side) -> (client::nfs3::Attr, client::nfs4::Attr, u64) {
    let (dir3, _) = b.nfs3.lookup(&b.root3, b"d").await.unwrap();
    let (_, attr) = b.nfs3.lookup(&dir3, b"f").await.unwrap();
    let (dir, _) = b.nfs4.lookup(&b.root4, b"d").await.unwrap();
    let (_, attr4) = b.nfs4.lookup(&dir, b"f").await.unwrap();
    (attr.unwrap(), attr4, b.nfs4.getattr(&dir).await.unwrap().change)
}

/// An NFS client that compares change attributes reads the new type; a watcher of SMB gets one change.
#[tokio::test(flavor = "multi_thread")]
async fn nfs_clients_and_watchers_see_each_change() {
    let (world, _dir) = world().await;
    for at in [DATA, MEM] {
        let a = Side::connect_at(&world, &alice(), Way::Tcp, at).await.unwrap();
        let b = Side::connect_at(&world, &alice(), Way::Tcp, at).await.unwrap();
        let list = OpenHow { disposition: Disposition::Create, ..OpenHow::LIST };
        let (dir, _) = a.smb.open_cached("d", &list).await.unwrap();
        for form in FORMS {
            let f = made(&a, "d\\f", (form, Change::Set)).await;
            for change in [Change::Set, Change::Remove, Change::Set] {
                let what = format!("{} {form:?} {change:?}", at.share);
                let (before3, before4, before_dir) = seen(&b).await;
                let (dir3, _) = b.nfs3.lookup(&b.root3, b"d").await.unwrap();
                let (old, _) = b.nfs3.lookup(&dir3, b"f").await.unwrap();
                let past = b.nfs3.getattr(&dir3).await.unwrap().ctime.max(before3.ctime);
                tick(&a, past).await;
                let interims = b.smb.interims();
                let (watched, _) = b.smb.open_cached("d", &OpenHow::LIST).await.unwrap();
                let waits = b.smb.notify(&watched, false, filter::ATTRIBUTES);
                let changing = async {
                    while b.smb.interims() == interims {
                        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                    }
                    change.make(&a, &f, form).await.unwrap();
                };
                let (told, ()) = tokio::join!(timeout(ENOUGH, waits), changing);
                let told = told.expect("a notice").unwrap();
                let wanted = [(Action::Modified, "f")];
                let told: Vec<_> = told.iter().map(|c| (c.action, &*c.name)).collect();
                assert_eq!(told, wanted, "{what}");
                b.smb.close(watched).await.unwrap();
                let (after3, after4, after_dir) = seen(&b).await;
                let kind = if change == Change::Set { form.kind() } else { 1 };
                assert_eq!((after3.kind, after4.kind), (kind, kind), "{what}");
                let version = |attr: &client::nfs4::Attr| (attr.fileid, attr.change);
                assert_ne!(version(&after4), version(&before4), "{what}");
                assert!(after3.ctime > before3.ctime, "{what} {before3:?} {after3:?}");
                let by_old = b.nfs3.getattr(&old).await;
                if form.replaces() {
                    assert_ne!(after_dir, before_dir, "{what}: the name is another file's");
                    assert_ne!(after3.fileid, before3.fileid, "{what}");
                    assert!(matches!(by_old, Err(Error::Nfs3(STALE))), "{what} {by_old:?}");
                } else {
                    assert_eq!(by_old.unwrap().ctime, after3.ctime, "{what}");
                    assert_eq!(after3.size, form.contents().len() as u64, "{what}");
                }
            }
            a.smb.close(f).await.unwrap();
            let gone = option::DELETE_ON_CLOSE | option::OPEN_REPARSE_POINT;
            let f = a.smb.open("d\\f", access::DELETE, Disposition::Open, gone).await.unwrap();
            a.smb.close(f).await.unwrap();
        }
        a.smb.close(dir).await.unwrap();
    }
    world.running.stop().await;
}
