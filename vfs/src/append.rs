//! Data that is only ever added to a file, through the door.

use iobuf::Buf;
use state::Operation;

use crate::backend::NodeRef;
use crate::error::VfsResult;
use crate::namespace::{Door, Share, range};
use crate::types::{AppendAt, Appended, Stable};
use crate::watch::what;

impl Door<'_> {
    /// Adds data to a file, for an open that was checked: no two additions overlap.
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
        let _announced = self.keeper.state().writing(node.id());
        if count > 0 {
            self.before_data(node).await?;
            self.before_append(node, at, count as u64).await?;
        }
        let done = node.append(self.opener, at, data, stable).await?;
        self.watches.post_node(share.id, node, what::SIZE | what::LAST_WRITE).await;
        Ok(done)
    }

    /// Asks for the place that the data will have as far as is known: who gives back what it cached may have moved the end.
    async fn before_append(&self, node: &NodeRef, at: AppendAt, count: u64) -> VfsResult<()> {
        let place = async || match at {
            AppendAt::Offset(at) => Ok(at),
            AppendAt::End => node.getattr().await.map(|attr| attr.size),
        };
        let start = place().await?;
        self.before(node, Operation::Write, range(start, count)).await?;
        match place().await? {
            now if now == start => Ok(()),
            now => self.before(node, Operation::Write, range(now, count)).await,
        }
    }
}
