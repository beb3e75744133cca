//! A host with NFS 3 and NLM locks that lives through all rounds and reclaims after every kill.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use client::connect::{self, Local};
use client::nfs3::{CreateHow, Fh, Nfs3, SetAttr};
use client::smb::Smb;
use client::{Credential, NoCallbacks, ResultPlace, Rpc, mount};
use nfsrdma::nlm::{Stat, procedure};
use nfsrdma::rpc::program;
use rdma_transport::xdr::{Reader, Writer};

use crate::smb::check_locks;
use crate::{ALWAYS, Dice, Idle, SLOTS, TooLate, extent, is_gone, refused};

const NAME: &str = "nlm-locked";
const HOST: &[u8] = b"crash";

/// State that the host believes to hold.
pub struct Host {
    fh: Fh,
    locks: BTreeSet<u64>,
    rpc: Rpc,
    /// Number of reclaimed locks.
    pub reclaimed: u64,
}

async fn dial(at: SocketAddr) -> Rpc {
    connect::tcp(at, &Local::default(), Arc::new(NoCallbacks)).await.unwrap()
}

fn root() -> Credential {
    Credential::sys(0, 0, &[])
}

impl Host {
    pub async fn begin(at: SocketAddr) -> Self {
        let rpc = dial(at).await;
        let dir = mount::mount(&rpc, &root(), "/data").await.unwrap();
        let nfs = Nfs3::new(rpc.clone(), root());
        let how = CreateHow::Unchecked(SetAttr { mode: Some(0o666), ..SetAttr::default() });
        let (fh, _) = nfs.create(&dir, NAME.as_bytes(), how).await.unwrap();
        let mut host = Self { fh, locks: BTreeSet::new(), rpc, reclaimed: 0 };
        host.lock(ALWAYS, false).await.unwrap();
        host
    }

    /// `nlm4_lock`
    fn put_lock(&self, w: &mut Writer, slot: u64) {
        w.opaque(HOST);
        w.opaque(self.fh.as_bytes());
        w.opaque(b"owner");
        w.i32(1);
        let (offset, length) = extent(slot);
        w.u64(offset);
        w.u64(length);
    }

    async fn call(&self, number: u32, args: impl FnOnce(&mut Writer)) -> client::Result<()> {
        let mut w = Rpc::head(program::NLM, 4, number, &root());
        w.opaque(b"cookie");
        args(&mut w);
        let answer = self.rpc.call(w, ResultPlace::SHORT).await?;
        let mut r = Reader::new(&answer.body, &answer.read_chunks);
        // The xid, REPLY, MSG_ACCEPTED, the verifier, SUCCESS, the cookie.
        let _ = (r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.opaque(400)?, r.u32()?, r.opaque(64)?);
        match r.u32()? {
            n if n == Stat::Granted as u32 => Ok(()),
            n => Err(client::Error::Protocol(format!("NLM answers {n}"))),
        }
    }

    async fn lock(&mut self, slot: u64, reclaim: bool) -> client::Result<()> {
        self.call(procedure::LOCK, |w| {
            // Non-blocking, exclusive.
            w.bool(false);
            w.bool(true);
            self.put_lock(w, slot);
            w.bool(reclaim);
            w.i32(3);
        })
        .await?;
        self.locks.insert(slot);
        Ok(())
    }

    /// Locks and unlocks until the connection is gone.
    pub async fn work(mut self, mut dice: Dice, mut idle: Idle) -> Self {
        loop {
            idle.take_if(|_| self.locks.len() > 1);
            let slot = dice.roll(SLOTS);
            let done = if self.locks.remove(&slot) {
                self.call(procedure::UNLOCK, |w| self.put_lock(w, slot)).await
            } else {
                self.lock(slot, false).await
            };
            if done.is_err_and(|e| is_gone(&e)) {
                return self;
            }
        }
    }

    /// Reclaims all state from the gateway that was restarted at this time.
    pub async fn come_back(&mut self, at: SocketAddr, started: Instant) -> Result<(), TooLate> {
        self.rpc = dial(at).await;
        for slot in std::mem::take(&mut self.locks) {
            let got = self.lock(slot, true).await;
            got.map_err(|e| refused(&format!("{NAME} slot {slot}"), &e, started))?;
            self.reclaimed += 1;
        }
        Ok(())
    }

    pub async fn check(&self, other: &Smb) {
        check_locks(other, NAME, &self.locks, &BTreeSet::new()).await;
    }
}
