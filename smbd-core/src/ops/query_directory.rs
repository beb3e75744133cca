//! QUERY_DIRECTORY (MS-SMB2 section 3.3.5.18, MS-FSA section 2.1.5.6.3).
//!
//! *Operation.* A listing continues from a directory cookie and stores no other state. Names are matched first; then attributes
//! of matching entries are fetched one by one, and names that have disappeared are skipped. A pattern without wildcards is found
//! by name, without listing the directory. A folder with few matching or visible entries can be of any length: the request yields
//! after each fetch, sends an interim response, and can be cancelled; a later query continues from the old position. An entry
//! for macOS also costs a look-up of its streams, and two more if it has some, in place of the size of its extended attributes.
//!
//! *Memory.* One buffer of the size that the client requested, reserved with [`room`], and names of [`NAMES_MAX`] entries.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdma_transport::turn;
use vfs::authority::Actor;
use vfs::backend::{NodeRef, ReadInto};
use vfs::names::Spelling;
use vfs::namespace::{LOOKS_AT_ONCE, Share};
use vfs::streams::Folder;
use vfs::types::{Attr, Kind};
use vfs::{Cred, VfsError, names};

use crate::answer::Answer;
use crate::dtyp::mask;
use crate::file_info;
use crate::folders::Above;
use crate::fscc::Chain;
use crate::fscc::dir::{Level, level};
use crate::fscc::file::FileInfo;
use crate::fscc::mac::{self as mac_entry, AFP_INFO, AFP_RESOURCE, AfpInfo};
use crate::links;
use crate::mac::{self, agreed};
use crate::open::{File, Open};
use crate::open_state::{Scan, Stage};
use crate::ops::room::room;
use crate::path_tracking;
use crate::pattern::{CHARS_MAX, Pattern, has_wildcards, is_wildcard};
use crate::request_context::RequestContext;
use crate::security;
use crate::status::Status;
use crate::symlinks::{self, LinkFacts};
use crate::wire::query_directory::{Request, Response, flag};

/// Names fetched from a directory in one call.
const NAMES_MAX: usize = 512;
/// Names after which a listing checks whether other tasks need the thread.
const NAMES_BEFORE_PAUSE: usize = 16;

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let r = cx.parse(Request::parse)?;
    let open = cx.open(r.file)?;
    super::check_output(cx, r.output_len)?;
    cx.check_charge(r.output_len)?;
    if !open.is_dir() {
        return Err(Status::INVALID_PARAMETER);
    }
    let level = level(r.class)?;
    if level == Level::Posix {
        super::check_posix(cx)?;
    }
    open.check(mask::READ_DATA)?;
    let limit = usize::try_from(r.output_len).unwrap_or(usize::MAX);
    if limit < level.fixed_len() {
        return Err(Status::INFO_LENGTH_MISMATCH);
    }
    let _room = room(cx, r.output_len).await?;
    let mut kept = open.open_state.scan.lock().await;
    let scan = begin(&mut kept, &r, open.spelling())?;
    let first = !scan.answered;
    let file = open.file()?;
    let share = cx.tree()?.share_now(&cx.server.namespace).ok_or(Status::INVALID_PARAMETER)?;
    let mut listing = Listing {
        cx,
        open: &open,
        share: &share,
        file,
        level,
        for_macos: level == Level::IdBothDirectory && cx.session()?.mac.has(agreed::READ_DIR_ATTR),
        chain: Chain::new(limit),
        follows: symlinks::are_followed(cx, cx.tree()?),
        above: None,
        single: r.flags & flag::RETURN_SINGLE_ENTRY != 0,
        cut: false,
    };
    // If this query fails, the next query returns the same entries.
    scan.stage = cx.by_storage(listing.fill(scan)).await??;
    scan.answered = true;
    if listing.chain.is_empty() {
        return Err(if first { Status::NO_SUCH_FILE } else { Status::NO_MORE_FILES });
    }
    let status = if listing.cut { Status::BUFFER_OVERFLOW } else { Status::SUCCESS };
    let buffer = listing.chain.into_bytes();
    let wanted = cx.conn.wants_compressed.load(Ordering::Relaxed);
    cx.compresses.store(wanted, Ordering::Relaxed);
    Ok(Answer::with_status(status, Response { buffer }.emit()))
}

/// Returns the listing to continue: a new one for the first query or if the client restarts the scan.
fn begin<'a>(
    kept: &'a mut Option<Scan>,
    r: &Request,
    spelling: Spelling,
) -> Result<&'a mut Scan, Status> {
    let is_bad = |c| match spelling {
        Spelling::Windows => names::is_reserved(c) && !is_wildcard(c),
        Spelling::Posix => matches!(c, '/' | '\0'),
    };
    if r.pattern.chars().nth(CHARS_MAX).is_some() || r.pattern.contains(is_bad) {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    let anew = r.flags & (flag::RESTART_SCANS | flag::REOPEN) != 0;
    let text = match kept.take() {
        Some(scan) if !anew => return Ok(kept.insert(scan)),
        Some(scan) if r.pattern.is_empty() => scan.text,
        _ if r.pattern.is_empty() => "*".to_owned(),
        _ => r.pattern.clone(),
    };
    let pattern = Pattern::new(&text).ok_or(Status::OBJECT_NAME_INVALID)?;
    Ok(kept.insert(Scan { text, pattern, stage: Stage::Dot, answered: false }))
}

/// Returns whether a name matches in the form shown to clients, or with its real trailing dot or space, which clients see as a
/// private-use character: `x"` matches `x.` (MS-FSA section 2.1.4.4).
fn matches(pattern: &Pattern, shown: &str) -> bool {
    pattern.matches(shown)
        || names::last_of(shown)
            .is_some_and(|(rest, last)| pattern.matches(&format!("{rest}{last}")))
}

struct Listing<'a> {
    cx: &'a RequestContext,
    open: &'a Open,
    /// The share with its current settings.
    share: &'a Share,
    file: &'a File,
    level: Level,
    /// Whether entries have what Finder shows.
    for_macos: bool,
    /// Whether links are shown as their targets.
    follows: bool,
    /// The directory and its ancestors, filled in when a link needs them.
    above: Option<Arc<Above<NodeRef>>>,
    chain: Chain,
    single: bool,
    cut: bool,
}

impl Listing<'_> {
    /// Returns the identity for reading the directory. The right to list it includes the attributes of its entries.
    fn reader(&self) -> Actor<'_> {
        self.open.actor(&self.file.node(), mask::READ_DATA)
    }

    /// Returns the identity that decides what the share shows. A backup includes what its user could not read.
    fn viewer(&self) -> Cow<'_, Cred> {
        match self.open.by_privilege & mask::READ_DATA {
            0 => Cow::Borrowed(&self.open.cred),
            _ => Cow::Owned(Cred::root()),
        }
    }

    /// Adds entries until the buffer is full or the listing ends. Returns the new position.
    async fn fill(&mut self, scan: &Scan) -> Result<Stage, Status> {
        let mut stage = scan.stage;
        if !has_wildcards(&scan.text) && !matches!(&scan.text[..], "." | "..") {
            if stage != Stage::End {
                self.name(&scan.text).await?;
            }
            return Ok(Stage::End);
        }
        while !self.is_full() {
            stage = match stage {
                Stage::Dot => {
                    let dir = self.file.node().clone();
                    if !self.dots(&scan.pattern, ".", dir).await? {
                        break;
                    }
                    Stage::DotDot
                }
                Stage::DotDot => {
                    // The parent of a share's root is the root itself, so that no outside directory is visible.
                    let (parent, _) = self.file.node().lookup(self.reader().cred(), b"..").await?;
                    if !self.dots(&scan.pattern, "..", parent).await? {
                        break;
                    }
                    Stage::Names(0)
                }
                Stage::Names(cookie) => {
                    let (next, more) = self.names(&scan.pattern, cookie).await?;
                    stage = next.map_or(Stage::End, Stage::Names);
                    if !more {
                        break;
                    }
                    tokio::task::yield_now().await;
                    stage
                }
                Stage::End => break,
            };
        }
        Ok(stage)
    }

    fn is_full(&self) -> bool {
        self.cut || self.single && !self.chain.is_empty()
    }

    /// Adds `.` or `..`. Returns false if it matches but does not fit.
    async fn dots(&mut self, pattern: &Pattern, name: &str, node: NodeRef) -> Result<bool, Status> {
        if !pattern.matches(name) {
            return Ok(true);
        }
        let attr = node.getattr().await?;
        self.push(name, name.as_bytes(), &node, &attr).await
    }

    /// Adds the single entry that a pattern without wildcards names.
    async fn name(&mut self, text: &str) -> Result<(), Status> {
        let (dir, reader) = (self.file.node(), self.reader());
        let found = match self.open.posix {
            true => self.open.spelling().exact(&dir, reader.cred(), text).await,
            false => {
                let names = self.cx.server.namespace.names();
                names.find_for(self.cx.host(), &dir, reader.cred(), text).await
            }
        };
        match found {
            Ok(found) => {
                let shown = self.open.spelling().to_client(&found.name);
                if !self.share.shows(&found.node, &found.attr, &self.viewer()).await? {
                    return Ok(());
                }
                self.show(&shown, &found.name, (found.node, found.attr)).await.map(|_| ())
            }
            Err(VfsError::NotFound | VfsError::BadName) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Adds one batch of names after a cookie. Returns the next cookie (`None` at the end), and whether there is still room.
    async fn names(&mut self, pattern: &Pattern, from: u64) -> Result<(Option<u64>, bool), Status> {
        let (entries, end) =
            self.file.node().readdir(self.reader().cred(), from, self.names_at_once()).await?;
        let mut at = from;
        for (nth, entry) in entries.iter().enumerate() {
            if nth % NAMES_BEFORE_PAUSE == 0 {
                turn::pause().await;
            }
            let shown = self.open.spelling().to_client(&entry.name);
            if matches(pattern, &shown) && !self.entry(&shown, &entry.name).await? {
                return Ok((Some(at), false));
            }
            at = entry.cookie;
            if self.is_full() {
                return Ok((Some(at), false));
            }
        }
        Ok(if end { (None, false) } else { (Some(at), true) })
    }

    /// Returns how many names probably fit, so that few are fetched twice. If each one needs a visibility check, at most as many as
    /// one slice allows.
    fn names_at_once(&self) -> usize {
        /// Bytes of a short name.
        const SHORT: usize = 24;
        let most = if self.share.rules.only_visible { LOOKS_AT_ONCE } else { NAMES_MAX };
        (self.chain.room() / (self.level.fixed_len() + SHORT) + 1).min(most)
    }

    /// Adds one name of the directory. Returns false if it does not fit.
    async fn entry(&mut self, shown: &str, name: &[u8]) -> Result<bool, Status> {
        let is_plain = !self.share.rules.only_visible && !self.follows;
        if self.level == Level::Names && is_plain {
            return Ok(self.put(shown, &FileInfo::default()));
        }
        let (dir, reader) = (self.file.node(), self.reader());
        match self.share.listed(&dir, reader.cred(), name, &self.viewer()).await? {
            None => Ok(true),
            Some(found) => self.show(shown, name, found).await,
        }
    }

    /// Adds the entry for a name; if the server follows links, with the attributes of the link's target. Dangling links are then
    /// hidden, as with smbd.
    async fn show(
        &mut self,
        shown: &str,
        name: &[u8],
        (mut node, mut attr): (NodeRef, Attr),
    ) -> Result<bool, Status> {
        let dir = self.file.node();
        if self.share.rules.links.find(&dir, name, &node).await?.is_some() {
            return self.link(shown, name, &node, &attr).await;
        }
        if attr.kind == Kind::Symlink
            && self.follows
            && symlinks::tagged(&node, &attr, self.open.posix).await?.is_none()
        {
            let above = self.above().await;
            let tree = self.cx.tree()?;
            let Ok(target) = symlinks::follow(tree, self.share, &above, &node).await else {
                return Ok(true);
            };
            (node, attr) = (target.found.node, target.found.attr);
            if !self.share.shows(&node, &attr, &self.viewer()).await? {
                return Ok(true);
            }
        }
        if self.level == Level::Names {
            return Ok(self.put(shown, &FileInfo::default()));
        }
        self.push(shown, name, &node, &attr).await
    }

    /// Adds the entry for a link to another server.
    async fn link(
        &mut self,
        shown: &str,
        name: &[u8],
        node: &NodeRef,
        attr: &Attr,
    ) -> Result<bool, Status> {
        let dos = match node.dos(attr).await {
            Ok(dos) => dos,
            Err(VfsError::NotFound | VfsError::Stale) => return Ok(true),
            Err(e) => return Err(e.into()),
        };
        let mut facts = file_info::of(attr, &dos, name);
        links::show(&mut facts);
        Ok(self.put(shown, &facts))
    }

    /// Returns the directory and its ancestors.
    async fn above(&mut self) -> Arc<Above<NodeRef>> {
        if let Some(above) = &self.above {
            return above.clone();
        }
        let above = path_tracking::chain(&self.file.share, &self.file.node()).await;
        self.above.insert(above).clone()
    }

    async fn push(
        &mut self,
        shown: &str,
        name: &[u8],
        node: &NodeRef,
        attr: &Attr,
    ) -> Result<bool, Status> {
        let file_ops = self.cx.server.namespace.by(None).waiting(self.cx);
        let attr = if file_ops.is_known(node) { attr } else { &file_ops.getattr(node).await? };
        let dos = match node.dos(attr).await {
            Ok(dos) => dos,
            Err(VfsError::NotFound | VfsError::Stale) => return Ok(true),
            Err(e) => return Err(e.into()),
        };
        let mut facts = file_info::of(attr, &dos, name);
        if attr.kind == Kind::Symlink {
            let (tree, above) = (self.cx.tree()?, self.above().await);
            let link = LinkFacts::read(tree, self.share, &above, node, self.open.posix).await;
            link.add_to(&mut facts);
        }
        if self.for_macos {
            facts.mac = self.for_finder(name, node, attr, &facts).await;
        } else if self.level.tells_ea_size() {
            facts.ea_size = file_info::extended_len(node, attr).await?;
        }
        Ok(self.put(shown, &facts))
    }

    /// Returns what Finder shows of a file or folder; `None` for a reparse point, whose entry has the tag in the first of these
    /// fields. FinderInfo goes to users that may read the file. A stream or file that another client removes just now shows no
    /// such data, instead of failing the listing.
    async fn for_finder(
        &self,
        name: &[u8],
        node: &NodeRef,
        attr: &Attr,
        facts: &FileInfo,
    ) -> Option<mac_entry::Entry> {
        if facts.reparse_tag != 0 {
            return None;
        }
        let dir = self.file.node();
        // The folder of `.` and `..` is not at hand; clients delete neither.
        let parent = Some(&dir).filter(|_| !matches!(name, b"." | b".."));
        let access = match self.cx.tree() {
            Ok(tree) => security::maximal(tree, node, attr, parent).await.unwrap_or(0),
            Err(_) => 0,
        };
        let mut entry = mac_entry::Entry {
            access,
            mode: u16::try_from(file_info::stat_mode(attr)).unwrap_or(0),
            ..mac_entry::Entry::default()
        };
        let (mut info, created) = (None, file_info::created(facts));
        if let Ok(Some(streams)) = Folder::of(self.share, node).await {
            if let Ok(Some(fork)) = streams.exact(AFP_RESOURCE).await {
                entry.resource = fork.attr.size;
            }
            if access & mask::READ_DATA != 0 {
                info = self.finder_info(&streams).await;
            }
        }
        entry.finder = mac_entry::compressed(info.as_ref(), attr.kind == Kind::Dir, created);
        Some(entry)
    }

    async fn finder_info(&self, streams: &Folder) -> Option<AfpInfo> {
        let stream = streams.exact(AFP_INFO).await.ok()??;
        if stream.attr.size != mac::INFO_LEN {
            return None;
        }
        let into = ReadInto { backpressure: None, ..self.cx.conn.read_into.clone() };
        let read = stream.node.read(None, 0, AfpInfo::LEN, &into).await.ok()?;
        let bytes: Vec<u8> = read.data.iter().flat_map(|piece| piece.as_slice()).copied().collect();
        AfpInfo::parse(&bytes).ok()
    }

    /// Adds an entry. Only the first one may be truncated, with STATUS_BUFFER_OVERFLOW; later ones go into the next response.
    fn put(&mut self, shown: &str, facts: &FileInfo) -> bool {
        let entry = self.level.entry(shown, 0, facts);
        if self.chain.push(&entry) {
            return true;
        }
        if !self.chain.is_empty() {
            return false;
        }
        self.chain.push_cut(&entry);
        self.cut = true;
        true
    }
}
