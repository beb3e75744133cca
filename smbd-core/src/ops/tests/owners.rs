//! Owners and groups that a CREATE sets, whose numbers a service of the host knows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use mutex::locked;
use vfs::mem::MemBackend;
use vfs::{Acting, Backend, Cred, Domain, SetAttr, Token, acl};

use crate::auth::relay::{Question, Refused, Why};
use crate::domain_engine::{Engine, Lookup, Numbers, Verdict};
use crate::dtyp::{Ace, Acl, SecurityDescriptor, Sid, descriptor::control, mask};
use crate::harness::{Client, Harness};
use crate::limits::STORAGE_USUAL_MAX;
use crate::status::Status;
use crate::users::{Account, Users};
use crate::wire::context::name::SD_BUFFER;
use crate::wire::create::{Context, Disposition};
use crate::wire::query_info::{info_type, security_information as part};

use super::info::put;

const ANN: u32 = 1000;
/// The number of a RID is this much larger.
const NUMBERS: u32 = 100_000;

fn sid(rid: u32) -> Sid {
    Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
}

/// A service that counts the questions about owners and groups. During each of them `meanwhile` happens.
struct Lab {
    domain: Arc<Domain>,
    asked: AtomicUsize,
    meanwhile: Box<dyn Fn() + Send + Sync>,
    says: Mutex<Says>,
}

/// What a service says about new owners and groups.
#[derive(Clone, Copy)]
enum Says {
    Numbers,
    /// None of them has a number.
    None,
    /// It does not answer.
    Nothing,
}

impl Engine for Lab {
    fn machine(&self) -> Option<crate::auth::Identity> {
        None
    }

    fn knows_domain(&self, _: &str) -> Option<bool> {
        None
    }

    fn is_domain(&self, _: &str) -> Result<bool, Refused> {
        Ok(false)
    }

    fn ask(&self, _: &Question) -> Verdict {
        Verdict::NoDomain
    }

    fn numbers(&self, user: &Sid, _: &Sid, _: &[Sid]) -> Result<Numbers, Refused> {
        Err(Refused { why: Why::NoNumber, detail: user.to_string() })
    }

    fn names(&self, sids: &[Sid]) -> Vec<Lookup> {
        sids.iter().map(|_| Ok(None)).collect()
    }

    fn identities(&self, names: &[(&str, &str)]) -> Vec<Lookup> {
        names.iter().map(|_| Ok(None)).collect()
    }

    fn knows_owners(&self, _: &[u32], _: &[u32]) -> bool {
        true
    }

    fn learn_owners(&self, _: &[u32], _: &[u32]) {}

    fn learn_numbers(&self, user: Option<&Sid>, group: Option<&Sid>) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        (self.meanwhile)();
        let number = |sid: &Sid| NUMBERS + sid.subs()[4];
        match *locked(&self.says) {
            Says::Numbers => {
                user.map(|sid| self.domain.know_uid(number(sid), sid));
                group.map(|sid| self.domain.know_group(number(sid), sid));
                true
            }
            Says::None => true,
            Says::Nothing => false,
        }
    }
}

struct Book(Arc<Lab>);

impl Users for Book {
    fn find(&self, _: &str) -> Option<Account> {
        None
    }

    fn domain(&self) -> Option<Arc<Domain>> {
        Some(self.0.domain.clone())
    }

    fn engine(&self) -> Option<Arc<dyn Engine>> {
        Some(self.0.clone())
    }

    fn guest(&self) -> Cred {
        Cred::root()
    }
}

fn served(
    meanwhile: impl Fn() + Send + Sync + 'static,
    on: Arc<dyn Backend>,
) -> (Harness, Arc<Lab>) {
    let domain = Domain::by_service();
    let (asked, meanwhile) = (AtomicUsize::new(0), Box::new(meanwhile));
    let says = Mutex::new(Says::Numbers);
    let lab = Arc::new(Lab { domain: domain.clone(), asked, meanwhile, says });
    let mut harness = Harness::with_users(on, None, Arc::new(Book(lab.clone())));
    harness.token = Token::of_host(&domain);
    (harness, lab)
}

async fn create(c: &Client, name: &str, owner: Option<u32>, group: u32) -> Result<(), Status> {
    let sd = SecurityDescriptor {
        control: control::DACL_PRESENT,
        owner: owner.map(sid),
        group: Some(sid(group)),
        dacl: Some(Acl::new(vec![Ace::allow(Sid::everyone(), mask::FILE_ALL, 0)])),
        ..Default::default()
    };
    let made = c.create(name, |r| {
        r.disposition = Disposition::Create as u32;
        let (name, data) = (SD_BUFFER.to_vec().into(), sd.emit().into());
        r.contexts = vec![Context { name, data }];
    });
    c.close(made.await?.file).await;
    Ok(())
}

fn folder_of(uid: u32, mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), uid: Some(uid), gid: Some(uid), ..SetAttr::default() }
}

#[tokio::test]
async fn owners_of_new_files_get_their_numbers() {
    let backend = MemBackend::new(64 << 20).unwrap();
    let (harness, lab) = served(|| {}, backend);
    let (root, top) = (Cred::root(), harness.core.namespace.shares()[0].backend.root());
    top.mkdir(Acting::caller(&root), b"others", folder_of(2000, 0o700)).await.unwrap();
    // A refused request asks nothing.
    let ann = harness.client_as(ANN);
    assert_eq!(create(&ann, "others\\f", Some(1103), 1200).await, Err(Status::ACCESS_DENIED));
    assert_eq!(lab.asked.load(Ordering::Relaxed), 0);
    assert_eq!(create(&harness.client(), "f", Some(1103), 1200).await, Ok(()));
    assert_eq!(lab.asked.load(Ordering::Relaxed), 1);
    let (_, attr) = top.lookup(&root, b"f").await.unwrap();
    assert_eq!((attr.uid, attr.gid), (NUMBERS + 1103, NUMBERS + 1200));
    // They are known now.
    assert_eq!(create(&harness.client(), "g", Some(1103), 1200).await, Ok(()));
    assert_eq!(lab.asked.load(Ordering::Relaxed), 1);
}

/// The folder that was read before a question may have another list after it.
#[tokio::test]
async fn right_to_create_is_looked_at_after_the_question() {
    let backend = MemBackend::new(64 << 20).unwrap();
    let (root, top) = (Cred::root(), backend.clone().root());
    let folder = top.mkdir(Acting::caller(&root), b"d", folder_of(3000, 0o700)).await.unwrap().node;
    // The volume takes the word of the request for the right that a list gives.
    let list =
        |uid| acl::Acl::new(vec![acl::Ace::allow(acl::Who::User(uid), acl::mask::FILE_ALL, 0)]);
    folder.acl_set(&list(ANN), 0o700).await.unwrap();
    let runtime = tokio::runtime::Handle::current();
    let changes = folder.clone();
    let meanwhile = move || {
        runtime.block_on(changes.acl_set(&list(2000), 0o700)).unwrap();
        thread::sleep(STORAGE_USUAL_MAX * 3);
    };
    let (harness, lab) = served(meanwhile, backend);
    let made = create(&harness.client_as(ANN), "d\\f", None, 1200).await;
    assert_eq!((made, lab.asked.load(Ordering::Relaxed)), (Err(Status::ACCESS_DENIED), 1));
    assert!(folder.lookup(&root, b"f").await.is_err());
}

/// The earlier owner keeps nothing: the file is the new owner's, or the caller's if the new one has no number. While the service
/// is silent the request fails, since a later answer would not move the file.
#[tokio::test]
async fn file_gets_new_owner_or_keeps_earlier_one_whole() {
    let backend = MemBackend::new(64 << 20).unwrap();
    let (harness, lab) = served(|| {}, backend);
    let (root, top) = (Cred::root(), harness.core.namespace.shares()[0].backend.root());
    let c = harness.client();
    const BOB: u32 = 2000;
    for (rid, says, wanted, status) in [
        (1103, Says::Numbers, NUMBERS + 1103, Status::SUCCESS),
        (1104, Says::None, 0, Status::SUCCESS),
        (1105, Says::Nothing, BOB, Status::INVALID_OWNER),
        // What clients see does not change.
        (1104, Says::Nothing, 0, Status::SUCCESS),
    ] {
        *locked(&lab.says) = says;
        let name = format!("f{rid}");
        if top.lookup(&root, name.as_bytes()).await.is_err() {
            let how = vfs::CreateHow::Guarded;
            let acting = Acting::caller(&root);
            top.create(acting, name.as_bytes(), how, folder_of(BOB, 0o600)).await.unwrap();
        }
        let f = c.open(&name).await;
        let sd = SecurityDescriptor {
            control: control::DACL_PRESENT,
            owner: Some(sid(rid)),
            dacl: Some(Acl::new(vec![Ace::allow(sid(rid), mask::FILE_ALL, 0)])),
            ..Default::default()
        };
        let parts = part::OWNER | part::DACL;
        let done = put(&c, f, info_type::SECURITY, 0, parts, &sd.emit()).await;
        let (_, attr) = top.lookup(&root, name.as_bytes()).await.unwrap();
        assert_eq!((done, attr.uid), (status, wanted), "{rid}");
        c.close(f).await;
    }
}
