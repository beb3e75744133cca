//! Tests of an orderly stop and the next start: clients that return continue, and no client waits for one that held no state.

use std::sync::Arc;
use std::time::Instant;

use client::connect::{self, Local};
use client::nfs4::{LockType4, Minor, Nfs4, OpenHow};
use client::{Credential, NoCallbacks};

use crate::daemon::{Daemon, home, start_with};
use crate::smb::{Held, machine, machine_again};
use crate::{Dice, nfs4, ports};

/// Much longer than the test takes: a client that had to wait for its end would fail.
const GRACE: &str = "5m";
const WRITE_LT: LockType4 = LockType4::Write;

/// Connects another NFS 4.2 client, which has no state to reclaim.
async fn newcomer(daemon: &Daemon, name: &[u8]) -> Nfs4 {
    let rpc = connect::tcp(daemon.nfs, &Local::default(), Arc::new(NoCallbacks)).await.unwrap();
    let root = Credential::sys(0, 0, &[]);
    Nfs4::connect(rpc, root, Minor::Two, name, *b"one boot").await.unwrap()
}

/// Opens a file, locks a part of it, and releases both.
async fn works(nfs: &Nfs4, name: &[u8]) -> client::Result<()> {
    let root = nfs.walk("/data").await?;
    let how = OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::create(0o666) };
    let file = nfs.open(&root, name, name, how).await?;
    let lock = nfs.lock(&file, name, WRITE_LT, (0, 10)).await?;
    nfs.unlock(&file.fh, lock, WRITE_LT, (0, 10)).await?;
    nfs.close(&file).await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_orderly_stop_nobody_waits_once_the_holders_are_back() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let (home, _data) = home();
    let daemon = start_with(home.path(), None, GRACE);
    let ports = ports(&daemon);
    let mut holder = nfs4::Holder::begin(daemon.nfs).await;
    // This client held state before, holds none now, and does not return.
    let idle = newcomer(&daemon, b"idle").await;
    works(&idle, b"of-idle").await.unwrap();
    let smb = machine(daemon.smb, 1).await;
    let mut held = Held::new(&smb, 0, &mut dice).await;
    held.write(&smb).await.unwrap();
    let session = smb.session();
    daemon.stop();
    drop(idle);

    let daemon = start_with(home.path(), Some(ports), GRACE);
    let other = newcomer(&daemon, b"other").await;
    let early = works(&other, b"of-other").await;
    // NFS4ERR_GRACE (RFC 8881 section 15.1.9.2): the holder has not returned yet.
    assert!(matches!(early, Err(client::Error::Nfs4(_, 10_013))), "{early:?}");
    holder.come_back(daemon.nfs, Instant::now()).await.unwrap();
    works(&other, b"of-other").await.unwrap();
    let smb = machine_again(daemon.smb, 1, session).await;
    held.take_up(&smb).await;
    held.write(&smb).await.unwrap();
    let third = machine(daemon.smb, 2).await;
    held.check_others(&third, true).await;
    holder.check(&third).await;
}
