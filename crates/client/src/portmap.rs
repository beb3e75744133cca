//! Queries port 111 of a server for the port of MOUNT (RFC 1833 section 3).

use std::sync::Arc;
use std::time::Duration;

use nfs_proto::oncrpc::program;
use nfs_proto::rpcbind::procedure::GETPORT;
use nfs_proto::rpcbind::{Mapping, TCP};

use crate::connect::{self, Local};
use crate::error::{Error, Result};
use crate::rpc::{Credential, NoCallbacks, ResultPlace, Rpc, results};
use crate::target::Target;

const PORT: u16 = 111;
const VERSION: u32 = 2;
/// Time limit for the reply: many servers do not need the query, and some drop it.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Returns the TCP port of MOUNT; fails if the server does not reply or does not know it.
pub(crate) async fn port_of_mount(target: &Target, local: &Local) -> Result<u16> {
    let silent = |_| Error::Connect("port 111 does not answer".into());
    tokio::time::timeout(ANSWER_MAX, ask(target, local)).await.map_err(silent)?
}

async fn ask(target: &Target, local: &Local) -> Result<u16> {
    let to = target.address(PORT).map_err(Error::Connect)?;
    let rpc = connect::tcp(to, local, Arc::new(NoCallbacks)).await?;
    let mut w = Rpc::head(program::PORTMAP, VERSION, GETPORT, &Credential::none());
    let (prog, vers) = (program::MOUNT, nfs_proto::mount::VERSION);
    w.value(&Mapping { prog, vers, prot: TCP, port: 0 });
    let answer = rpc.call(w, ResultPlace::SHORT).await?;
    let port = results(&answer)?.value::<u32>()?;
    let served = u16::try_from(port).ok().filter(|port| *port != 0);
    served.ok_or_else(|| Error::Connect("port 111 knows no MOUNT".into()))
}
