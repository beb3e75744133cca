//! The question where MOUNT is, to port 111 (RFC 1833 section 3).

use std::sync::Arc;
use std::time::Duration;

use crate::connect::{self, Local};
use crate::error::{Error, Result};
use crate::mount;
use crate::rpc::{Credential, NoCallbacks, ResultPlace, Rpc, results};
use crate::target::Target;

const PORT: u16 = 111;
const PROGRAM: u32 = 100_000;
const VERSION: u32 = 2;
const GETPORT: u32 = 3;
const IPPROTO_TCP: u32 = 6;
/// Longest time for the answer: many servers need not be asked, and some drop the question.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The port of MOUNT over TCP; an error where nobody answers or nobody knows.
pub(crate) async fn port_of_mount(target: &Target, local: &Local) -> Result<u16> {
    let silent = |_| Error::Connect("port 111 does not answer".into());
    tokio::time::timeout(ANSWER_MAX, ask(target, local)).await.map_err(silent)?
}

async fn ask(target: &Target, local: &Local) -> Result<u16> {
    let to = target.address(PORT).map_err(Error::Connect)?;
    let rpc = connect::tcp(to, local, Arc::new(NoCallbacks)).await?;
    let mut w = Rpc::head(PROGRAM, VERSION, GETPORT, &Credential::none());
    for word in [mount::PROGRAM, mount::VERSION, IPPROTO_TCP, 0] {
        w.u32(word);
    }
    let answer = rpc.call(w, ResultPlace::SHORT).await?;
    let port = results(&answer)?.u32()?;
    let served = u16::try_from(port).ok().filter(|port| *port != 0);
    served.ok_or_else(|| Error::Connect("port 111 knows no MOUNT".into()))
}
