//! Data that is only ever added to a file, through `FileOps`.

use iobuf::Buf;
use state::Operation;

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::namespace::{FileOps, Share, range};
use crate::types::{AppendAt, Appended, Stable};
use crate::watch::what;

/// How often the end of a file with locks may move before an addition to it is given up, as if a lock were in the way. Each time
/// another addition was made.
const TRIES_MAX: usize = 64;

impl FileOps<'_> {
    /// Adds data to a file, for an open that was checked: no two additions overlap, and none reaches a range that another has
    /// locked.
    pub async fn append(
        &self,
        share: &Share,
        node: &NodeRef,
        at: AppendAt,
        data: Vec<Buf>,
        stable: Stable,
    ) -> VfsResult<Appended> {
        self.writable(share)?;
        let count: usize = data.iter().map(Buf::len).sum();
        let _announced = self.arbiter.state().writing(node.id());
        if count > 0 {
            self.check_data(node).await?;
        }
        let done = match at {
            AppendAt::End if count > 0 => self.append_at_end(node, data, count, stable).await?,
            AppendAt::Offset(start) | AppendAt::Exactly(start) if count > 0 => {
                self.check_conflicts(node, Operation::Write, range(start, count as u64)).await?;
                node.append(self.opener, at, data, stable).await?
            }
            _ => node.append(self.opener, at, data, stable).await?,
        };
        self.watches.post_node(share.id, node, what::SIZE | what::LAST_WRITE).await;
        Ok(done)
    }

    /// Asks for the place that the data will have. While there are locks on the file, the volume takes it there or nowhere:
    /// additions of others move the end meanwhile, and so does whoever gives back what it cached.
    async fn append_at_end(
        &self,
        node: &NodeRef,
        data: Vec<Buf>,
        count: usize,
        stable: Stable,
    ) -> VfsResult<Appended> {
        for _ in 0..TRIES_MAX {
            let end = node.getattr().await?.size;
            self.check_conflicts(node, Operation::Write, range(end, count as u64)).await?;
            if self.arbiter.state().locks_on(node.id()) == 0 {
                return node.append(self.opener, AppendAt::End, data, stable).await;
            }
            match node.append(self.opener, AppendAt::Exactly(end), data.clone(), stable).await {
                Err(VfsError::Delay) => {}
                done => return done,
            }
        }
        Err(VfsError::Locked)
    }
}
