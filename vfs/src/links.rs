//! Folders of a share that are on other servers: links.
//!
//! *Operation.* A link of the configuration is a folder of the share, which the gateway makes where it is missing
//! ([`Links::place`]). Clients see its name and its attributes; whoever enters it is referred to the other server. A folder is
//! recognized by its node, and by its name in the folder above: a folder that a process of the host removed and made again is the
//! same link, and so are links below a folder that was made again. Links in the style of Samba are symbolic links with the text
//! `msdfs:SERVER\SHARE`, which [`Links::of_text`] reads.
//!
//! Clients cannot change the name of a link or of a folder above it, nor anything inside a link
//! ([`FileOps`](crate::namespace::FileOps) asks [`Links::refuse`] first).
//!
//! *Memory.* Nodes of each link and of the folders above it stay referenced while the share is configured so: at most
//! [`LINKS_MAX`] times [`DEPTH_MAX`].
//!
//! *Errors.* [`VfsError`] if a folder cannot be made or is another kind of file.

use ahash::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use mutex::{reading, writing};

use crate::authority::Acting;
use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::refer::{Referral, Server};
use crate::types::*;

/// Most links of one share.
pub const LINKS_MAX: usize = 256;
/// Most names in the path of a link.
pub const DEPTH_MAX: usize = 32;
/// Most targets that are read from the text of one symbolic link.
const TARGETS_MAX: usize = 16;
/// Longest text of a symbolic link that is a link, in bytes.
const TEXT_MAX: usize = 4096;
/// Mode of a folder that is made for a link, or above one.
const FOLDER_MODE: u32 = 0o755;
/// The start of the text of a link in the style of Samba.
const MSDFS: &[u8] = b"msdfs:";

/// A folder that is on other servers.
#[derive(Debug)]
pub struct Link {
    /// Its path in the share: names joined by `/`.
    pub path: Box<str>,
    /// The servers, in order of preference.
    pub targets: Arc<[Referral]>,
    /// True once the log says that clients of NFS 3 cannot follow it.
    told: AtomicBool,
}

impl Link {
    pub fn new(path: &str, targets: Arc<[Referral]>) -> Self {
        Self { path: path.into(), targets, told: AtomicBool::new(false) }
    }

    /// Returns true at the first call.
    pub fn tells_once(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }
}

impl PartialEq for Link {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.targets) == (&other.path, &other.targets)
    }
}

impl Eq for Link {}

/// How often clients were referred by links of a share.
#[derive(Debug, Default)]
pub struct Referred {
    pub smb: AtomicU64,
    pub nfs: AtomicU64,
}

/// What a caller wants to do with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Give it to a new node.
    Add,
    /// Remove it, or move it away, or replace what it names.
    Take,
}

/// A name on the path of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A folder above a link: the node that had the name when it was last looked up.
    Above(NodeId),
    /// The link of this number.
    Link(usize),
}

/// The links of a share. Two values are equal if they are configured alike.
#[derive(Debug, Default)]
pub struct Links {
    all: Vec<Arc<Link>>,
    /// Symbolic links in the style of Samba are links.
    pub msdfs: bool,
    /// The folders above links.
    above: RwLock<HashMap<NodeId, Above>>,
    /// The nodes of links.
    nodes: RwLock<HashMap<NodeId, (usize, Kept)>>,
    pub referred: Arc<Referred>,
}

/// A folder above links.
#[derive(Debug)]
struct Above {
    /// Kept, so that its number remains.
    dir: Kept,
    /// The names in it that are on paths of links.
    names: HashMap<Box<[u8]>, Place>,
}

/// A node that is only kept.
struct Kept(NodeRef);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.id())
    }
}

impl PartialEq for Links {
    fn eq(&self, other: &Self) -> bool {
        (&self.all, self.msdfs) == (&other.all, other.msdfs)
    }
}

impl Eq for Links {}

impl Links {
    /// Returns these links without folders: [`Links::place`] finds them.
    pub fn new(all: Vec<Link>, msdfs: bool) -> Self {
        Self { all: all.into_iter().map(Arc::new).collect(), msdfs, ..Self::default() }
    }

    /// Makes these links count referrals there.
    #[must_use]
    pub fn counting(self, referred: Arc<Referred>) -> Self {
        Self { referred, ..self }
    }

    /// Returns true if the share has no links of either kind.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && !self.msdfs
    }

    /// Returns the configured links.
    pub fn all(&self) -> &[Arc<Link>] {
        &self.all
    }

    /// Returns these links with their folders below `top`, which are made where they are missing. The error names the link.
    pub async fn place(
        &self,
        top: &NodeRef,
        referred: Arc<Referred>,
    ) -> Result<Self, (String, VfsError)> {
        let placed = Self { all: self.all.clone(), msdfs: self.msdfs, referred, ..Self::default() };
        for (number, link) in self.all.iter().enumerate() {
            let found = placed.place_one(top, number, &link.path).await;
            found.map_err(|e| (link.path.to_string(), e))?;
        }
        Ok(placed)
    }

    async fn place_one(&self, top: &NodeRef, number: usize, path: &str) -> VfsResult<()> {
        let mut dir = top.clone();
        let mut names = path.split('/').peekable();
        while let Some(name) = names.next() {
            let node = folder(&dir, name.as_bytes()).await?;
            let is_last = names.peek().is_none();
            let place = if is_last { Place::Link(number) } else { Place::Above(node.id()) };
            let mut above = writing(&self.above);
            let new = || Above { dir: Kept(dir.clone()), names: HashMap::default() };
            above.entry(dir.id()).or_insert_with(new).names.insert(name.as_bytes().into(), place);
            drop(above);
            if is_last {
                writing(&self.nodes).insert(node.id(), (number, Kept(node.clone())));
            }
            dir = node;
        }
        Ok(())
    }

    /// Returns the link whose folder this node is.
    pub fn of(&self, node: NodeId) -> Option<&Arc<Link>> {
        if self.all.is_empty() {
            return None;
        }
        let number = reading(&self.nodes).get(&node)?.0;
        self.all.get(number)
    }

    /// Returns the link of this name in a folder. If another folder has the name now, it is the link's from then on, or the folder
    /// above links.
    pub fn at(&self, dir: NodeId, name: &[u8], node: &NodeRef) -> Option<&Arc<Link>> {
        let number = match self.placed(dir, name) {
            Some(Place::Link(number)) => number,
            Some(Place::Above(known)) => {
                if node.kind() == Kind::Dir && known != node.id() {
                    self.follow((dir, name), known, node);
                    // The host may have moved a link's folder here: a name above a link is no link itself.
                    writing(&self.nodes).remove(&node.id());
                }
                return None;
            }
            None => return self.of(node.id()),
        };
        if node.kind() == Kind::Dir && self.of(node.id()).is_none() {
            let mut nodes = writing(&self.nodes);
            nodes.retain(|_, (other, _)| *other != number);
            nodes.insert(node.id(), (number, Kept(node.clone())));
        }
        self.all.get(number)
    }

    /// Notes that a folder above links is another node now. If that node had another name on the path of a link, the two have
    /// changed places.
    fn follow(&self, (dir, name): (NodeId, &[u8]), known: NodeId, node: &NodeRef) {
        let mut above = writing(&self.above);
        let its = above.get(&dir).and_then(|above| above.names.get(name));
        // Another caller may have noted it.
        if its != Some(&Place::Above(known)) {
            return;
        }
        let Some(old) = above.remove(&known) else { return };
        let new = Above { dir: Kept(node.clone()), names: old.names };
        let swapped = above.insert(node.id(), new);
        if let Some(Above { names, .. }) = swapped {
            above.insert(known, Above { dir: old.dir, names });
        }
        for place in above.values_mut().flat_map(|above| above.names.values_mut()) {
            *place = match *place {
                Place::Above(id) if id == known => Place::Above(node.id()),
                Place::Above(id) if id == node.id() => Place::Above(known),
                other => other,
            };
        }
    }

    /// Returns the link of this name in a folder in which no file has the name. `is_exact`: upper and lower case differ, as for
    /// clients with the POSIX extensions.
    pub fn missing(&self, dir: NodeId, name: &str, is_exact: bool) -> Option<&Arc<Link>> {
        if self.all.is_empty() {
            return None;
        }
        let lower = name.to_lowercase();
        let is_it = |spelt: &[u8]| match is_exact {
            true => spelt == name.as_bytes(),
            false => std::str::from_utf8(spelt).is_ok_and(|s| s.to_lowercase() == lower),
        };
        let above = reading(&self.above);
        let number = above.get(&dir)?.names.iter().find_map(|(spelt, place)| match place {
            Place::Link(number) if is_it(spelt) => Some(*number),
            _ => None,
        })?;
        self.all.get(number)
    }

    /// Returns the name of each link with the folder that contains it.
    pub fn places(&self) -> Vec<(NodeRef, Vec<u8>)> {
        let above = reading(&self.above);
        let links = |Above { dir, names }: &Above| {
            let links = names.iter().filter(|(_, place)| matches!(place, Place::Link(_)));
            links.map(|(name, _)| (dir.0.clone(), name.to_vec())).collect::<Vec<_>>()
        };
        above.values().flat_map(links).collect()
    }

    /// Returns true if links may be among the entries of this folder.
    pub fn are_in(&self, dir: NodeId) -> bool {
        self.msdfs || !self.all.is_empty() && reading(&self.above).contains_key(&dir)
    }

    fn placed(&self, dir: NodeId, name: &[u8]) -> Option<Place> {
        if self.all.is_empty() {
            return None;
        }
        reading(&self.above).get(&dir)?.names.get(name).copied()
    }

    /// Refuses a change of a name of a link, of a folder above one, or inside one.
    pub fn refuse(&self, dir: NodeId, name: &[u8], change: Change) -> VfsResult<()> {
        if self.all.is_empty() {
            return Ok(());
        }
        if self.of(dir).is_some() {
            return Err(VfsError::ReadOnly);
        }
        match (self.placed(dir, name), change) {
            (None, _) => Ok(()),
            (Some(_), Change::Add) => Err(VfsError::Exists),
            (Some(_), Change::Take) => Err(VfsError::Access),
        }
    }

    /// Refuses a change of the attributes of a link.
    pub fn refuse_attributes(&self, node: NodeId) -> VfsResult<()> {
        if self.of(node).is_some() { Err(VfsError::ReadOnly) } else { Ok(()) }
    }

    /// Refuses a symbolic link that would be a link: only processes of the host make links.
    pub fn refuse_text(&self, text: &[u8]) -> VfsResult<()> {
        if self.msdfs && is_msdfs(text) { Err(VfsError::Access) } else { Ok(()) }
    }

    /// Returns the link that this node is, if it is in the style of Samba. `dir` and `name`: where it was found, if known.
    pub async fn of_text(
        &self,
        node: &NodeRef,
        found: Option<(&NodeRef, &[u8])>,
    ) -> VfsResult<Option<Arc<Link>>> {
        if !self.msdfs || node.kind() != Kind::Symlink {
            return Ok(None);
        }
        // A user may have made it before the share had links, or by a way that no rule of this share knows.
        if node.getattr().await?.uid != 0 {
            return Ok(None);
        }
        let Some(targets) = targets(&node.readlink(&Cred::root()).await?) else { return Ok(None) };
        let path = match found {
            Some((dir, name)) => {
                let mut path = dir.path().await?;
                path.extend_from_slice(if path.is_empty() { b"" } else { b"/" });
                path.extend_from_slice(name);
                path
            }
            None => node.path().await?,
        };
        Ok(Some(Arc::new(Link::new(&String::from_utf8_lossy(&path), targets))))
    }

    /// Returns the link that a look-up of a name has found, of either kind.
    pub async fn find(
        &self,
        dir: &NodeRef,
        name: &[u8],
        node: &NodeRef,
    ) -> VfsResult<Option<Arc<Link>>> {
        if self.is_empty() {
            return Ok(None);
        }
        match self.at(dir.id(), name, node) {
            Some(link) => Ok(Some(link.clone())),
            None => self.of_text(node, Some((dir, name))).await,
        }
    }
}

/// Returns the folder of this name, which is made if it is missing.
async fn folder(dir: &NodeRef, name: &[u8]) -> VfsResult<NodeRef> {
    let root = Cred::root();
    let set = SetAttr { mode: Some(FOLDER_MODE), ..SetAttr::default() };
    let node = match dir.lookup(&root, name).await {
        Err(VfsError::NotFound) => match dir.mkdir(Acting::caller(&root), name, set).await {
            Err(VfsError::Exists) => dir.lookup(&root, name).await?.0,
            made => made?.node,
        },
        found => found?.0,
    };
    if node.kind() == Kind::Dir { Ok(node) } else { Err(VfsError::NotDir) }
}

fn is_msdfs(text: &[u8]) -> bool {
    text.get(..MSDFS.len()).is_some_and(|start| start.eq_ignore_ascii_case(MSDFS))
}

/// Reads the text of a symbolic link in the style of Samba: `msdfs:SERVER\SHARE\PATH,SERVER\SHARE`. `None` if it is none, or names
/// no server.
pub fn targets(text: &[u8]) -> Option<Arc<[Referral]>> {
    if text.len() > TEXT_MAX || !is_msdfs(text) {
        return None;
    }
    let text = std::str::from_utf8(&text[MSDFS.len()..]).ok()?;
    let found: Arc<[Referral]> = text.split(',').filter_map(target).take(TARGETS_MAX).collect();
    (!found.is_empty()).then_some(found)
}

fn target(text: &str) -> Option<Referral> {
    let mut names = text.trim().split(['\\', '/']).filter(|name| !name.is_empty());
    let server = names.next()?;
    let names: Vec<&str> = names.collect();
    let is_bad = |name: &&str| matches!(*name, "." | "..") || name.chars().any(char::is_control);
    if names.is_empty() || server.contains([':', ' ']) || names.iter().chain([&server]).any(is_bad)
    {
        return None;
    }
    Some(Referral {
        server: match server.parse() {
            Ok(ip) => Server::Ip(ip),
            Err(_) => Server::Name(server.into()),
        },
        nfs_path: names.join("/").into(),
        smb_path: names.join(r"\").into(),
        rdma: false,
        namespace: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::mem::MemBackend;

    fn link(path: &str) -> Link {
        let targets = targets(br"msdfs:gw2\archive").unwrap();
        Link::new(path, targets)
    }

    async fn placed(
        backend: &Arc<MemBackend>,
        paths: &[&str],
    ) -> Result<Links, (String, VfsError)> {
        let links = Links::new(paths.iter().map(|p| link(p)).collect(), false);
        links.place(&backend.root(), Arc::default()).await
    }

    async fn look(backend: &Arc<MemBackend>, path: &str) -> NodeRef {
        let mut node = backend.root();
        for name in path.split('/') {
            node = node.lookup(&Cred::root(), name.as_bytes()).await.unwrap().0;
        }
        node
    }

    #[test]
    fn texts_of_samba_name_servers() {
        let shown = |text: &str| {
            targets(text.as_bytes())
                .map(|t| t.iter().map(Referral::smb_target).collect::<Vec<_>>().join(" "))
        };
        for (text, wanted) in [
            (r"msdfs:gw2\archive", Some(r"\gw2\archive")),
            (r"MSDFS:gw2\archive", Some(r"\gw2\archive")),
            ("msdfs:gw2/archive/old", Some(r"\gw2\archive\old")),
            (r"msdfs:\\gw2\archive\", Some(r"\gw2\archive")),
            (r"msdfs:a\x,192.0.2.3\y", Some(r"\a\x \192.0.2.3\y")),
            (r"msdfs:gw2, a\x", Some(r"\a\x")),
            ("msdfs:", None),
            ("msdfs:gw2", None),
            (r"msdfs:gw2\..", None),
            (r"msdfs:gw2\..\etc", None),
            (r"msdfs:gw2:445\a", None),
            (r"gw2\archive", None),
            ("msdfs:gw2\\a\nb", None),
        ] {
            assert_eq!(shown(text).as_deref(), wanted, "{text}");
        }
        let many = format!("msdfs:{}", vec![r"g\a"; 40].join(","));
        assert_eq!(targets(many.as_bytes()).unwrap().len(), TARGETS_MAX);
        assert_eq!(targets(format!(r"msdfs:g\{}", "a".repeat(TEXT_MAX)).as_bytes()), None);
    }

    #[tokio::test]
    async fn folders_are_made_where_they_are_missing() {
        let backend = MemBackend::new(1 << 20).unwrap();
        let links = placed(&backend, &["projects/old", "projects/new", "a"]).await.unwrap();
        for (path, number) in [("projects/old", 0), ("projects/new", 1), ("a", 2)] {
            let node = look(&backend, path).await;
            assert!(Arc::ptr_eq(links.of(node.id()).unwrap(), &links.all()[number]), "{path}");
            assert_eq!(node.getattr().await.unwrap().mode, FOLDER_MODE);
        }
        assert!(links.of(look(&backend, "projects").await.id()).is_none());
        // Another run finds the same folders.
        let again = placed(&backend, &["projects/old"]).await.unwrap();
        assert!(again.of(look(&backend, "projects/old").await.id()).is_some());
        assert!(again.of(look(&backend, "a").await.id()).is_none());
    }

    #[tokio::test]
    async fn file_at_the_place_is_an_error() {
        let backend = MemBackend::new(1 << 20).unwrap();
        let (root, set) = (Cred::root(), SetAttr::default());
        backend.root().create(Acting::caller(&root), b"a", CreateHow::Guarded, set).await.unwrap();
        for path in ["a", "a/b"] {
            let why = placed(&backend, &["x", path]).await.unwrap_err();
            assert_eq!(why, (path.to_owned(), VfsError::NotDir));
        }
    }

    #[tokio::test]
    async fn folder_made_again_is_the_same_link() {
        let backend = MemBackend::new(1 << 20).unwrap();
        let links = placed(&backend, &["a/b"]).await.unwrap();
        let (dir, old) = (look(&backend, "a").await, look(&backend, "a/b").await);
        assert!(
            links.missing(dir.id(), "b", true).is_some()
                && links.missing(dir.id(), "B", false).is_some()
        );
        assert!(
            links.missing(dir.id(), "c", false).is_none()
                && links.missing(old.id(), "b", false).is_none()
        );
        assert!(links.missing(dir.id(), "B", true).is_none());
        dir.rmdir(Acting::caller(&Cred::root()), b"b").await.unwrap();
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        let new = dir.mkdir(Acting::caller(&Cred::root()), b"b", set).await.unwrap().node;
        assert_ne!(new.id(), old.id());
        assert!(links.of(new.id()).is_none(), "no client has found it yet");
        assert!(links.at(dir.id(), b"b", &new).is_some());
        assert!(links.of(new.id()).is_some(), "its handle is the link's, too");
        assert!(links.at(dir.id(), b"c", &dir).is_none());
    }

    /// A link stays one if the host makes a folder above it again, or exchanges two of them.
    #[tokio::test]
    async fn folder_above_made_again_has_its_links() {
        let backend = MemBackend::new(1 << 20).unwrap();
        let links = placed(&backend, &["a/b/l", "c/m"]).await.unwrap();
        let (root, top) = (Cred::root(), backend.root());
        let by = || Acting::caller(&root);
        // What clients do: look each name up.
        let walk = async |path: &str| {
            let mut dir = top.clone();
            for name in path.split('/') {
                let node = dir.lookup(&root, name.as_bytes()).await.unwrap().0;
                links.at(dir.id(), name.as_bytes(), &node);
                dir = node;
            }
            links.of(dir.id()).map(|link| link.path.to_string())
        };
        top.rename(by(), b"a", &*top, b"old", false).await.unwrap();
        let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        let mut dir = top.clone();
        for name in ["a", "b", "l"] {
            dir = dir.mkdir(by(), name.as_bytes(), set).await.unwrap().node;
        }
        assert!(links.of(dir.id()).is_none(), "no client has found it yet");
        assert_eq!(walk("a/b/l").await.as_deref(), Some("a/b/l"));
        assert_eq!(walk("a/b").await, None);
        assert_eq!(
            links.refuse(look(&backend, "a").await.id(), b"b", Change::Take),
            Err(VfsError::Access)
        );
        assert_eq!(walk("old/b/l").await, None, "it has another name now");
        // The two folders of the top change places.
        for (from, to) in [("a", "x"), ("c", "a"), ("x", "c")] {
            top.rename(by(), from.as_bytes(), &*top, to.as_bytes(), false).await.unwrap();
        }
        look(&backend, "a")
            .await
            .mkdir(by(), b"b", set)
            .await
            .unwrap()
            .node
            .mkdir(by(), b"l", set)
            .await
            .unwrap();
        look(&backend, "c").await.mkdir(by(), b"m", set).await.unwrap();
        assert_eq!(walk("a/b/l").await.as_deref(), Some("a/b/l"));
        assert_eq!(walk("c/m").await.as_deref(), Some("c/m"));
        assert_eq!(links.places().len(), 2);
    }

    #[tokio::test]
    async fn names_of_links_and_folders_above_are_kept() {
        let backend = MemBackend::new(1 << 20).unwrap();
        let links = placed(&backend, &["a/b"]).await.unwrap();
        let (top, a, b) = (backend.root(), look(&backend, "a").await, look(&backend, "a/b").await);
        for (dir, name, add, take) in [
            (&top, &b"a"[..], Err(VfsError::Exists), Err(VfsError::Access)),
            (&a, b"b", Err(VfsError::Exists), Err(VfsError::Access)),
            (&top, b"b", Ok(()), Ok(())),
            (&a, b"a", Ok(()), Ok(())),
            (&a, b"B", Ok(()), Ok(())),
            (&b, b"x", Err(VfsError::ReadOnly), Err(VfsError::ReadOnly)),
        ] {
            assert_eq!(links.refuse(dir.id(), name, Change::Add), add, "{name:?}");
            assert_eq!(links.refuse(dir.id(), name, Change::Take), take, "{name:?}");
        }
        assert_eq!(links.refuse_attributes(b.id()), Err(VfsError::ReadOnly));
        assert_eq!(links.refuse_attributes(a.id()), Ok(()));
        assert!(links.are_in(a.id()) && links.are_in(top.id()) && !links.are_in(b.id()));
    }

    #[tokio::test]
    async fn symbolic_links_count_if_the_share_says_so() {
        let backend = MemBackend::new(1 << 20).unwrap();
        let (root, set) = (Cred::root(), SetAttr::default());
        let top = backend.root();
        let dir = folder(&top, b"d").await.unwrap();
        let made = dir.symlink(&root, b"l", br"msdfs:gw2\archive", set).await.unwrap().node;
        let other = dir.symlink(&root, b"o", b"../x", set).await.unwrap().node;
        let off = Links::default();
        assert!(off.is_empty() && off.find(&dir, b"l", &made).await.unwrap().is_none());
        assert_eq!(off.refuse_text(br"msdfs:gw2\archive"), Ok(()));
        let on = Links::new(Vec::new(), true);
        assert!(!on.is_empty() && on.are_in(dir.id()));
        let found = on.find(&dir, b"l", &made).await.unwrap().unwrap();
        assert_eq!((&*found.path, found.targets.len()), ("d/l", 1));
        assert_eq!(&*on.of_text(&made, None).await.unwrap().unwrap().path, "d/l");
        assert!(on.find(&dir, b"o", &other).await.unwrap().is_none());
        assert_eq!(on.refuse_text(br"msdfs:gw2\archive"), Err(VfsError::Access));
        let user = Cred { uid: 7, gid: 7, groups: [].into(), token: crate::Token::NONE };
        let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        dir.setattr(&root, open, false).await.unwrap();
        let set = SetAttr::default();
        let planted = dir.symlink(&user, b"p", br"msdfs:evil\share", set).await.unwrap().node;
        assert!(on.find(&dir, b"p", &planted).await.unwrap().is_none(), "only links of root count");
        assert_eq!(on.refuse_text(b"msdfs"), Ok(()));
    }
}
