//! Homes: a share in which each user of SMB has a folder of its own.
//!
//! *Operation.* The folder has the name of the account and is the top of the share for it. It is made at the first connect: it
//! belongs to whom the user acts as, and nobody else reads it. Where the gateway may not give files away it is the gateway's own,
//! as all that is made there.
//!
//! *Errors.* [`VfsError::NotDir`]: something else has the name. [`VfsError::NotFound`]: it is not there, and the user may make
//! nothing.

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::names::to_disk;
use crate::namespace::{Door, Share};
use crate::types::{Attr, Cred, Kind, SetAttr};

/// Permissions of a new one.
const MODE: u32 = 0o700;

impl Door<'_> {
    /// The folder of the account `user`, which acts as `cred`.
    pub async fn home(&self, share: &Share, user: &str, cred: &Cred) -> VfsResult<NodeRef> {
        let (name, top) = (to_disk(user)?, share.backend.root());
        let found = match top.lookup(&Cred::root(), &name).await {
            Err(VfsError::NotFound) if !share.read_only => {
                match self.make_home(share, &name, cred).await {
                    // By another connection of the user.
                    Err(VfsError::Exists) => top.lookup(&Cred::root(), &name).await?,
                    made => return made,
                }
            }
            found => found?,
        };
        let (node, attr) = found;
        if attr.kind != Kind::Dir {
            return Err(VfsError::NotDir);
        }
        if !share.read_only && is_left(&node, &attr, cred).await? {
            self.setattr(share, &node, &Cred::root(), owner(cred), false).await?;
        }
        Ok(node)
    }

    async fn make_home(&self, share: &Share, name: &[u8], cred: &Cred) -> VfsResult<NodeRef> {
        let (root, top) = (Cred::root(), share.backend.root());
        let its = SetAttr { mode: Some(MODE), ..owner(cred) };
        let made = match self.mkdir(share, &top, &root, name, its).await {
            Err(VfsError::Perm) => {
                let ours = SetAttr { mode: Some(MODE), ..SetAttr::default() };
                self.mkdir(share, &top, &root, name, ours).await
            }
            made => made,
        };
        Ok(made?.node)
    }
}

fn owner(cred: &Cred) -> SetAttr {
    SetAttr { uid: Some(cred.uid), gid: Some(cred.gid), ..SetAttr::default() }
}

/// It was made and not given yet when the gateway died: it is root's, for root alone, and empty.
async fn is_left(node: &NodeRef, attr: &Attr, cred: &Cred) -> VfsResult<bool> {
    if attr.uid != 0 || cred.uid == 0 || attr.mode & 0o777 != MODE {
        return Ok(false);
    }
    Ok(node.readdir(&Cred::root(), 0, 1).await?.0.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
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
    async fn a_home_is_made_once_for_its_user_alone() {
        let backend = MemBackend::new(1 << 20).unwrap();
        let top = backend.root();
        let (writer, reader) = (share(backend.clone(), false), share(backend, true));
        let namespace = Namespace::new(Vec::new());
        let door = namespace.by_smb(None);
        let cred = |uid| Cred { uid, gid: uid + 1, groups: [].into() };
        assert_eq!(door.home(&reader, "alice", &cred(7)).await.err(), Some(VfsError::NotFound));
        let made = door.home(&writer, "alice", &cred(7)).await.unwrap();
        let attr = made.getattr().await.unwrap();
        assert_eq!((attr.uid, attr.gid, attr.mode & 0o7777), (7, 8, MODE));
        for share in [&writer, &reader] {
            assert_eq!(door.home(share, "alice", &cred(7)).await.unwrap().id(), made.id());
        }
        // Of one that was interrupted; what root has made for others stays root's.
        let set = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
        for (name, mode, uid) in [("bob", MODE, 9), ("carol", 0o755, 0)] {
            top.mkdir(&Cred::root(), name.as_bytes(), set(mode)).await.unwrap();
            let home = door.home(&writer, name, &cred(9)).await.unwrap();
            assert_eq!(home.getattr().await.unwrap().uid, uid, "{name}");
        }
        top.symlink(&Cred::root(), b"dave", b"alice", SetAttr::default()).await.unwrap();
        assert_eq!(door.home(&writer, "dave", &cred(9)).await.err(), Some(VfsError::NotDir));
        assert_eq!(door.home(&writer, "a/b", &cred(9)).await.err(), Some(VfsError::BadName));
    }
}
