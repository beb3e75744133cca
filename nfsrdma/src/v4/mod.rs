//! NFS 4.0 (RFC 7530), 4.1 (RFC 8881) and 4.2 (RFC 7862), with umask (RFC 8275) and extended attributes (RFC 8276).
//!
//! *Operation.* [`Nfs4::compound`] executes one COMPOUND: `run` decodes and performs one operation after the other, each in the
//! file of `ops` with its name. [`compound::Compound`] is the state that they share.
//!
//! Each file may use the modules on its own line or above in this list, never those below:
//!
//! ```text
//! status wire limits                                          what all of them use
//! above object attrs names name stateid owner machine         what clients send, as data
//! opens recovery channel_attrs room slots striking watched    what they hold, how much that may be, and lists
//! client session                                              a client and its sessions
//! clients nfs4                                                all of them, and the server
//! release make_room watch holdings                            how clients end, and what they hold
//! compound                                                    a COMPOUND under way
//! pseudo attrs::get resolve stateid_access open_owner_seqid   what it sees and may do
//! locks callback deleg                                        what is done with locks and delegations
//! ops dispatch run                                            the operations, and what calls them
//! ```
//!
//! *Memory.* READ passes the volume's buffers to the reply, WRITE passes the request's buffers to the volume.
//!
//! *Errors.* An operation returns a [`Status`]; the first that is not OK ends the COMPOUND. A COMPOUND whose head cannot be decoded
//! gets an RPC error.

use std::sync::Arc;

use crate::context::{CallContext, Conn, Outcome};
use crate::server_state::ServerState;
use rdma_transport::xdr::{Reader, Writer, XdrResult};

pub mod above;
pub mod attrs;
mod callback;
mod channel_attrs;
pub mod client;
pub mod clients;
pub mod compound;
mod deleg;
mod dispatch;
pub mod holdings;
mod in_rates;
pub mod limits;
mod links;
mod locks;
mod machine;
mod make_room;
pub(crate) mod name;
mod names;
mod nfs4;
pub mod object;
mod open_owner_seqid;
mod opens;
mod ops;
mod owner;
mod principal;
mod pseudo;
mod recovery;
mod release;
mod resolve;
mod room;
mod run;
mod session;
mod slots;
mod stateid;
pub mod stateid_access;
pub mod status;
mod striking;
mod usage;
mod watch;
mod watched;
pub mod wire;

pub use clients::{Callbacks, Clients, Options};
pub use names::{Domain, NameOfSid, OwnerNames, Unanswered};
pub use nfs4::Nfs4;
pub use status::Status;

impl Nfs4 {
    /// Builds a server for these shares; no client state survives a restart.
    pub fn new(core: Arc<ServerState>) -> Self {
        // Invariant: only reading the state directory can fail, and this server has no state directory.
        #[allow(clippy::expect_used)]
        Self::with(core, Options::default()).expect("no state directory")
    }

    /// Builds a server for these shares. Fails if the state of the previous run cannot be read.
    pub fn with(core: Arc<ServerState>, options: Options) -> std::io::Result<Self> {
        let domain = options.domain.clone();
        let clients = Clients::new(core.clone(), options)?;
        deleg::attach(&clients);
        Ok(Self { clients, core, domain })
    }

    /// Executes one COMPOUND. `args` is positioned at the tag; `out` contains the head of a successful RPC reply, and the results
    /// are appended. `Err` only if the outer structure of the arguments cannot be decoded (GARBAGE_ARGS: the caller discards
    /// `out`). [`Outcome::Once`] requests that the reply be cached (minor version 0).
    pub async fn compound(
        &self,
        conn: &Arc<Conn>,
        call: &CallContext,
        args: &mut Reader<'_>,
        out: &mut Writer,
    ) -> XdrResult<Outcome> {
        run::run(self, conn, call, args, out).await
    }
}
