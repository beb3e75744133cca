//! NFS version 4: COMPOUND of minor versions 0, 1 and 2.

use std::sync::Arc;

use crate::context::{CallContext, Conn, Core, Outcome};
use crate::xdr::{Reader, Writer, XdrResult};

/// The version 4 server.
pub struct Nfs4 {
    #[allow(dead_code)]
    core: Arc<Core>,
}

impl Nfs4 {
    /// Over these shares.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// One COMPOUND. `args` stands at the tag; `out` already holds the head of an accepted, successful RPC reply, and the
    /// results are appended to it. `Err` only when the arguments' outermost structure cannot be read (GARBAGE_ARGS: what
    /// was written to `out` is thrown away). [`Outcome::Once`] asks for the reply to be kept for repetitions (minor 0).
    pub async fn compound(
        &self,
        _conn: &Arc<Conn>,
        _call: &CallContext,
        _args: &mut Reader<'_>,
        _out: &mut Writer,
    ) -> XdrResult<Outcome> {
        Ok(Outcome::NoProcedure)
    }

    /// The connection has ended: it carries no session any more.
    pub fn connection_closed(&self, _conn: &Arc<Conn>) {}
}
