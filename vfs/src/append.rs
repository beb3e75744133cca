//! Appends to a file through `FileOps`.

use iobuf::Buf;
use state::Operation;

use crate::backend::NodeRef;
use crate::error::{VfsError, VfsResult};
use crate::namespace::{FileOps, Share, range};
use crate::types::{AppendAt, Appended, Stable};
use crate::watch::what;

/// How often the end of a locked file may move before the append is given up with the error of a conflicting lock. Each move means
/// that another append succeeded.
const TRIES_MAX: usize = 64;

impl FileOps<'_> {
    /// Appends data to a file, for an open that was checked: two appends never overlap, and no append writes to a range that
    /// another client has locked.
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

    /// Checks the range that the data will occupy for conflicts. While the file has locks, the volume must write at that offset or
    /// fail, because other appends move the end meanwhile, and so does a client that writes back its cached data.
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
