//! Privileges: each privilege x kind of share x operation x access list, against a slow model.

use vfs::acl::kind;
use vfs::namespace::PrincipalSet;
use vfs::{Acting, CreateHow, Cred, NodeRef, SetAttr};

use super::authority::{ANN, BOB, owner_of};
use super::data::{reading, write};
use super::info::{put, set};
use crate::dtyp::{Ace, Acl, SecurityDescriptor, Sid, descriptor::control, mask};
use crate::fscc::set::Set;
use crate::harness::{Client, Harness};
use crate::open::FileId;
use crate::privileges::{Holders, Privileges};
use crate::security::sid_of_uid;
use crate::settings::Settings;
use crate::status::Status;
use crate::wire::Command;
use crate::wire::create::{Disposition, option};
use crate::wire::query_info::{info_type, security_information as part};

const EVE: u32 = 3000;
const DATA: &[u8] = b"secret";
/// Access granted to readers of a share.
const READS: u32 = 0x0012_00a9;

/// How a file decides about Ann.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Mode,
    ListWithoutHer,
    ListThatDenies,
    ListThatLetsHerRead,
}

const BYS: [By; 4] = [By::Mode, By::ListWithoutHer, By::ListThatDenies, By::ListThatLetsHerRead];

/// One case: the privilege, a folder that Ann may search, a writable share, backup intent.
#[derive(Clone, Copy, Debug)]
struct Case {
    held: Privileges,
    by: By,
    is_open: bool,
    is_writable: bool,
    has_intent: bool,
}

fn cases() -> impl Iterator<Item = Case> {
    let held = [
        Privileges::NONE,
        Privileges::BACKUP,
        Privileges::RESTORE,
        Privileges::SECURITY,
        Privileges::TAKE_OWNERSHIP,
        Privileges::BACKUP.and(Privileges::RESTORE),
    ];
    let both = [false, true];
    held.into_iter()
        .flat_map(|held| BYS.map(|by| (held, by)))
        .flat_map(move |(held, by)| both.map(|is_open| (held, by, is_open)))
        .flat_map(move |(held, by, is_open)| {
            both.map(|is_writable| (held, by, is_open, is_writable))
        })
        .flat_map(move |(held, by, is_open, is_writable)| {
            both.map(|has_intent| Case { held, by, is_open, is_writable, has_intent })
        })
}

/// What Ann may do, written out.
impl Case {
    fn reaches(self) -> bool {
        let is_backup = self.held.has(Privileges::BACKUP.and(Privileges::RESTORE));
        self.is_open || self.has_intent && is_backup
    }

    fn may(self, right: u32) -> bool {
        let always = mask::READ_ATTRIBUTES;
        let own = match self.by {
            By::Mode => always | mask::READ_CONTROL | mask::SYNCHRONIZE,
            By::ListWithoutHer | By::ListThatDenies => always,
            By::ListThatLetsHerRead => always | mask::FILE_READ,
        };
        let reads = mask::READ_DATA
            | mask::READ_EA
            | mask::READ_ATTRIBUTES
            | mask::EXECUTE
            | mask::READ_CONTROL
            | mask::SYNCHRONIZE;
        let writes = mask::WRITE_DATA
            | mask::APPEND_DATA
            | mask::WRITE_EA
            | mask::WRITE_ATTRIBUTES
            | mask::READ_CONTROL
            | mask::SYNCHRONIZE
            | mask::DELETE
            | mask::WRITE_DAC
            | mask::WRITE_OWNER;
        let sacl = mask::ACCESS_SYSTEM_SECURITY;
        let beyond = |privilege, rights| if self.held.has(privilege) { rights } else { 0 };
        let with_intent = |rights| if self.has_intent { rights } else { 0 };
        let rights = own
            | with_intent(beyond(Privileges::BACKUP, reads | sacl))
            | with_intent(beyond(Privileges::RESTORE, writes | sacl))
            | beyond(Privileges::SECURITY, sacl)
            | beyond(Privileges::TAKE_OWNERSHIP, mask::WRITE_OWNER);
        let most = if self.is_writable { mask::FILE_ALL } else { READS };
        self.reaches() && rights & (most | sacl) & right != 0
    }
}

fn of(uid: u32, mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), uid: Some(uid), gid: Some(uid), ..SetAttr::default() }
}

/// A server on which Ann has these privileges.
fn harness(held: Privileges) -> Harness {
    let harness = Harness::new();
    let ann = |privilege| match held.has(privilege) {
        true => PrincipalSet::new(vec![ANN], vec![]),
        false => PrincipalSet::default(),
    };
    let privileges = Holders {
        backup: ann(Privileges::BACKUP),
        restore: ann(Privileges::RESTORE),
        security: ann(Privileges::SECURITY),
        take_ownership: ann(Privileges::TAKE_OWNERSHIP),
    };
    let settings = Settings::clone(&harness.core.settings());
    harness.core.set_settings(Settings { privileges, ..settings });
    harness
}

/// Makes a file of Bob in his folder `d`.
async fn file(harness: &Harness, case: Case) -> NodeRef {
    let (root, top) = (Cred::root(), harness.core.namespace.shares()[0].backend.root());
    let mode = if case.is_open { 0o755 } else { 0o700 };
    let dir = top.mkdir(Acting::caller(&root), b"d", of(BOB, mode)).await.unwrap().node;
    let how = CreateHow::Guarded;
    dir.create(Acting::caller(&root), b"f", how, of(BOB, 0o600)).await.unwrap();
    let bob = harness.client_as(BOB);
    let f = open(&bob, mask::FILE_ALL, 0).await.unwrap();
    assert_eq!(write(&bob, f, 0, DATA).await, Status::SUCCESS);
    let all = Ace::allow(sid_of_uid(BOB), mask::FILE_ALL, 0);
    let (sid, mask) = (sid_of_uid(ANN), mask::FILE_ALL);
    let more = match case.by {
        By::Mode => None,
        By::ListWithoutHer => Some(vec![]),
        By::ListThatDenies => Some(vec![Ace::Simple { kind: kind::DENIED, flags: 0, mask, sid }]),
        By::ListThatLetsHerRead => Some(vec![Ace::allow(sid, mask::FILE_READ, 0)]),
    };
    if let Some(more) = more {
        let sd = list([more, vec![all]].concat());
        assert_eq!(describe(&bob, f, part::DACL, &sd).await, Status::SUCCESS);
    }
    bob.close(f).await;
    dir
}

fn list(aces: Vec<Ace>) -> SecurityDescriptor {
    let dacl = Some(Acl::new(aces));
    SecurityDescriptor { control: control::DACL_PRESENT, dacl, ..Default::default() }
}

async fn describe(c: &Client, f: FileId, parts: u32, sd: &SecurityDescriptor) -> Status {
    put(c, f, info_type::SECURITY, 0, parts, &sd.emit()).await
}

async fn open(c: &Client, access: u32, options: u32) -> Result<FileId, Status> {
    let asked = c.create("d\\f", |r| {
        (r.access, r.disposition) = (access, Disposition::Open as u32);
        r.options = options;
    });
    asked.await.map(|r| r.file)
}

/// Connects Ann to the share, read-only or not.
fn ann(harness: &Harness, case: Case) -> Client {
    let mut c = harness.client_as(ANN);
    if !case.is_writable {
        super::rights::connect(&mut c, READS, Cred { uid: ANN, gid: ANN, ..Cred::root() });
    }
    c
}

#[tokio::test]
async fn privileges_open_what_the_model_says() {
    for case in cases() {
        let harness = harness(case.held);
        file(&harness, case).await;
        let c = ann(&harness, case);
        let options = if case.has_intent { option::OPEN_FOR_BACKUP_INTENT } else { 0 };
        for bit in (0..25).map(|n| 1 << n).filter(|bit| mask::VALID & bit != 0) {
            let opened = open(&c, bit, options).await;
            assert_eq!(opened.is_ok(), case.may(bit), "{case:?} {bit:x} {opened:?}");
            if let Ok(f) = opened {
                c.close(f).await;
            }
        }
        let all = c.create("d\\f", |r| {
            (r.access, r.options) = (mask::MAXIMUM_ALLOWED, options);
            r.disposition = Disposition::Open as u32;
        });
        let Ok(all) = all.await else {
            assert!(!case.reaches(), "{case:?}");
            continue;
        };
        let open = harness.core.opens.get(all.file).unwrap();
        // Privileges without backup intent are used only for the right that a request names.
        let by_itself = Case { held: case.held.without(Privileges::TAKE_OWNERSHIP), ..case };
        for bit in (0..21).map(|n| 1 << n).filter(|bit| mask::FILE_ALL & bit != 0) {
            assert_eq!(open.granted & bit != 0, by_itself.may(bit), "{case:?} {bit:x} of all");
        }
    }
}

/// Every operation through an open that a privilege granted works, and shows on the volume.
#[tokio::test]
async fn privileged_opens_can_be_used() {
    for case in cases().filter(|case| case.has_intent && case.is_writable) {
        let harness = harness(case.held);
        let dir = file(&harness, case).await;
        let c = ann(&harness, case);
        let options = option::OPEN_FOR_BACKUP_INTENT;
        if case.may(mask::READ_DATA) {
            let f = open(&c, mask::READ_DATA, options).await.unwrap();
            let got = c.ask(Command::Read, &reading(f, 0, 100).emit()).await;
            assert_eq!(got.data(), DATA, "{case:?}");
            c.close(f).await;
        }
        if case.may(mask::WRITE_DATA) {
            let f = open(&c, mask::WRITE_DATA | mask::WRITE_ATTRIBUTES, options).await.unwrap();
            assert_eq!(write(&c, f, 0, b"S").await, Status::SUCCESS, "{case:?}");
            c.close(f).await;
        }
        if case.may(mask::WRITE_DAC) {
            let access = mask::WRITE_DAC | mask::WRITE_OWNER | mask::DELETE;
            let f = open(&c, access, options).await.unwrap();
            let sd = list(vec![Ace::allow(Sid::everyone(), mask::FILE_READ, 0)]);
            assert_eq!(describe(&c, f, part::DACL, &sd).await, Status::SUCCESS, "{case:?}");
            let owner = SecurityDescriptor { owner: Some(sid_of_uid(EVE)), ..Default::default() };
            assert_eq!(describe(&c, f, part::OWNER, &owner).await, Status::SUCCESS, "{case:?}");
            assert_eq!(owner_of(&dir, b"f").await, Some(EVE), "{case:?}");
            let gone = Set::Disposition { flags: 1, ex: false };
            assert_eq!(set(&c, f, gone).await, Status::SUCCESS, "{case:?}");
            c.close(f).await;
            assert_eq!(owner_of(&dir, b"f").await, None, "{case:?}");
        }
    }
}

/// MS-FSA section 2.1.5.17: users without the restore privilege make only themselves owner.
#[tokio::test]
async fn owners_are_given_by_restore_alone() {
    for case in cases().filter(|case| case.is_open && case.is_writable && case.has_intent) {
        let harness = harness(case.held);
        let dir = file(&harness, case).await;
        let c = ann(&harness, case);
        let asked = open(&c, mask::WRITE_OWNER, option::OPEN_FOR_BACKUP_INTENT).await;
        assert_eq!(asked.is_ok(), case.may(mask::WRITE_OWNER), "{case:?}");
        let Ok(f) = asked else { continue };
        let owner = |uid| SecurityDescriptor { owner: Some(sid_of_uid(uid)), ..Default::default() };
        let restores = case.held.has(Privileges::RESTORE);
        let wanted = if restores { Status::SUCCESS } else { Status::INVALID_OWNER };
        assert_eq!(describe(&c, f, part::OWNER, &owner(EVE)).await, wanted, "{case:?}");
        assert_eq!(describe(&c, f, part::OWNER, &owner(ANN)).await, Status::SUCCESS, "{case:?}");
        assert_eq!(owner_of(&dir, b"f").await, Some(ANN), "{case:?}");
    }
}

/// A restored tree: a file and a folder in a folder that the user may not write, with the descriptor of another user. A volume in
/// memory looks a new name up as the user, so that the user must be able to search the folder.
#[tokio::test]
async fn restore_creates_files_for_others() {
    for case in cases().filter(|case| case.is_writable && case.is_open && case.by == By::Mode) {
        let harness = harness(case.held);
        let dir = file(&harness, case).await;
        let c = ann(&harness, case);
        for (name, is_dir) in [("d\\new", false), ("d\\sub", true)] {
            let made = c.create(name, |r| {
                r.access = mask::FILE_ALL;
                r.disposition = Disposition::Create as u32;
                r.options = if case.has_intent { option::OPEN_FOR_BACKUP_INTENT } else { 0 }
                    | if is_dir { option::DIRECTORY_FILE } else { 0 };
            });
            let made = made.await.map(|r| r.file);
            let may = case.has_intent && case.held.has(Privileges::RESTORE);
            assert_eq!(made.is_ok(), may, "{case:?} {name} {made:?}");
            let Ok(f) = made else { continue };
            let sd = SecurityDescriptor {
                owner: Some(sid_of_uid(EVE)),
                ..list(vec![Ace::allow(sid_of_uid(EVE), mask::FILE_ALL, 0)])
            };
            assert_eq!(describe(&c, f, part::DACL | part::OWNER, &sd).await, Status::SUCCESS);
            // The open keeps its rights, as on Windows: times come after the owner.
            if !is_dir {
                assert_eq!(write(&c, f, 0, DATA).await, Status::SUCCESS, "{case:?}");
            }
            c.close(f).await;
            assert_eq!(owner_of(&dir, &name.as_bytes()[2..]).await, Some(EVE), "{case:?}");
        }
    }
}

/// Guests have no privileges, whatever the configuration says of their number.
#[tokio::test]
async fn guests_have_no_privileges() {
    let case = Case {
        held: Privileges::BACKUP,
        by: By::Mode,
        is_open: true,
        is_writable: true,
        has_intent: true,
    };
    for (kind, may) in [
        (crate::session::Kind::User, true),
        (crate::session::Kind::Guest, false),
        (crate::session::Kind::Anonymous, false),
    ] {
        let harness = harness(case.held);
        file(&harness, case).await;
        let c = ann(&harness, case);
        let session = harness.core.sessions.get(c.session_id).unwrap();
        let user = session.user().unwrap();
        session.log_on(crate::session::User { kind, ..(*user).clone() }, None);
        let opened = open(&c, mask::READ_DATA, option::OPEN_FOR_BACKUP_INTENT).await;
        assert_eq!(opened.is_ok(), may, "{kind:?}");
    }
}
