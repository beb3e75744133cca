//! Home folders: a share in which each SMB user has a folder.
//!
//! *Operation.* The folder has the name of the account and is the root of the share for it. It is created at the first connect, as
//! the user, by the one call that the configuration grants in the share's top folder: so the user owns it from the first moment,
//! and no other user can read it. An existing folder keeps its owner and contents. A gateway that cannot act as other users owns
//! the folder, like all files that it creates.
//!
//! *Errors.* [`VfsError::NotDir`]: a node of another kind has the name. [`VfsError::NotFound`]: the folder does not exist, and the
//! user may not create files.

use crate::authority::Grant;
use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::names::to_disk;
use crate::namespace::{FileOps, Share};
use crate::types::{Cred, Kind, SetAttr};

/// Permissions of a new folder.
const MODE: u32 = 0o700;

impl FileOps<'_> {
    /// Returns the home folder of the account `user`, which acts as `cred`.
    /// A folder of `DOMAIN\alice` is that of the name without the domain: it must belong to her or to root.
    pub async fn home(&self, share: &Share, user: &str, cred: &Cred) -> VfsResult<NodeRef> {
        let (is_of_domain, user) = match user.rsplit_once('\\') {
            Some((_, name)) => (true, name),
            None => (false, user),
        };
        let (name, top) = (to_disk(user)?, share.backend.root());
        let found = match top.lookup(&Cred::root(), &name).await {
            Err(VfsError::NotFound) if !share.read_only => {
                let (grant, set) =
                    (Grant::of_homes(&top), SetAttr { mode: Some(MODE), ..SetAttr::default() });
                match self.granted(None, Some(&grant)).mkdir(share, &top, cred, &name, set).await {
                    // Another connection of the user created it first.
                    Err(VfsError::Exists) => top.lookup(&Cred::root(), &name).await?,
                    made => return Ok(made?.node),
                }
            }
            found => found?,
        };
        let (node, attr) = found;
        if is_of_domain && ![0, cred.uid].contains(&attr.uid) {
            // A user of the same name in another domain, or of this host, has it.
            return Err(VfsError::Access);
        }
        if attr.kind == Kind::Dir { Ok(node) } else { Err(VfsError::NotDir) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::authority::Acting;
    use crate::backend::Backend;
    use crate::mem::MemBackend;
    use crate::namespace::{Namespace, Protocols, Rules, Squash};

    fn share(backend: Arc<dyn Backend>, read_only: bool) -> Share {
        Share {
            name: "home".into(),
            id: Share::id_of("home"),
            backend,
            protocols: Protocols::Both,
            read_only,
            squash: Squash::Root,
            nfs_locks: state::Enforce::Smb,
            clients: None,
            rules: Rules { homes: true, ..Rules::default() },
        }
    }

    #[tokio::test]
    async fn home_created_once_for_its_user() {
        let backend = MemBackend::new(1 << 20).unwrap();
        let top = backend.root();
        let (writer, reader) = (share(backend.clone(), false), share(backend, true));
        let namespace = Namespace::new(Vec::new());
        let file_ops = namespace.by_smb(None);
        let cred = |uid| Cred { uid, gid: uid + 1, groups: [].into(), token: crate::Token::NONE };
        assert_eq!(file_ops.home(&reader, "alice", &cred(7)).await.err(), Some(VfsError::NotFound));
        let made = file_ops.home(&writer, "alice", &cred(7)).await.unwrap();
        let attr = made.getattr().await.unwrap();
        assert_eq!((attr.uid, attr.gid, attr.mode & 0o7777), (7, 8, MODE));
        for share in [&writer, &reader] {
            assert_eq!(file_ops.home(share, "alice", &cred(7)).await.unwrap().id(), made.id());
        }
        // The folder has the name without the domain, and belongs to the first of that name.
        let of_domain = file_ops.home(&writer, r"CONTOSO\alice", &cred(7)).await.unwrap();
        assert_eq!(of_domain.id(), made.id());
        let other = file_ops.home(&writer, r"FABRIKAM\alice", &cred(8)).await;
        assert_eq!(other.err(), Some(VfsError::Access));
        assert_eq!(
            file_ops.home(&writer, r"CONTOSO\", &cred(7)).await.err(),
            Some(VfsError::BadName)
        );
        // Folders that root made stay root's, whatever they contain: a user who was excluded in this way must not get access.
        let set = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
        for (name, mode, uid) in [("bob", MODE, 0), ("carol", 0o755, 0)] {
            top.mkdir(Acting::caller(&Cred::root()), name.as_bytes(), set(mode)).await.unwrap();
            let home = file_ops.home(&writer, name, &cred(9)).await.unwrap();
            assert_eq!(home.getattr().await.unwrap().uid, uid, "{name}");
        }
        top.symlink(&Cred::root(), b"dave", b"alice", SetAttr::default()).await.unwrap();
        assert_eq!(file_ops.home(&writer, "dave", &cred(9)).await.err(), Some(VfsError::NotDir));
        assert_eq!(file_ops.home(&writer, "a/b", &cred(9)).await.err(), Some(VfsError::BadName));
    }
}
