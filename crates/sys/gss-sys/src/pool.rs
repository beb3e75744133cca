//! Runs calls of the library on a bounded number of separate threads, with a queue and a time limit. One address gets at most half
//! of the threads, so that endless or slow tickets from one address cannot block the others.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mutex::locked;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The error for a call that found no free thread, or got no answer in time: the library waits for a disk or a name service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kerberos has not answered in time")
    }
}

impl std::error::Error for Busy {}

/// Threads for calls that may block.
#[derive(Debug)]
pub struct Pool {
    turns: Semaphore,
    of_address: usize,
    /// Addresses with calls: the number of calls, and the limit of threads for the address.
    addresses: Mutex<BTreeMap<IpAddr, (usize, Arc<Semaphore>)>>,
    wait: Duration,
}

/// A call of an address, queued or running.
struct Caller {
    pool: &'static Pool,
    from: IpAddr,
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut addresses = self.pool.addresses();
        if let Some((calls, _)) = addresses.get_mut(&self.from) {
            *calls -= 1;
            if *calls == 0 {
                addresses.remove(&self.from);
            }
        }
    }
}

impl Pool {
    /// Allows `threads` calls at once, and half of them, or one, for each address. A caller waits up to `wait` for a thread and as
    /// long again for the result.
    pub const fn new(threads: usize, wait: Duration) -> Self {
        let of_address = if threads < 4 { 1 } else { threads / 2 };
        let addresses = Mutex::new(BTreeMap::new());
        Self { turns: Semaphore::const_new(threads), of_address, addresses, wait }
    }

    fn addresses(&self) -> MutexGuard<'_, BTreeMap<IpAddr, (usize, Arc<Semaphore>)>> {
        locked(&self.addresses)
    }

    /// Registers a call of this address; returns its thread limit.
    fn caller(&'static self, from: IpAddr) -> (Caller, Arc<Semaphore>) {
        let mut addresses = self.addresses();
        let new = || (0, Arc::new(Semaphore::new(self.of_address)));
        let (calls, turns) = addresses.entry(from).or_insert_with(new);
        *calls += 1;
        (Caller { pool: self, from }, turns.clone())
    }

    /// Waits for a free thread for this address. Dropping the result frees the thread.
    async fn turn(&'static self, from: IpAddr) -> Result<impl Sized + Send + use<>, Busy> {
        let (caller, own) = self.caller(from);
        let own: OwnedSemaphorePermit = own.acquire_owned().await.map_err(|_| Busy)?;
        let turn = self.turns.acquire().await.map_err(|_| Busy)?;
        // Fields are dropped in this order, so that the next call finds all traces of this one removed.
        Ok((caller, own, turn))
    }

    /// Runs `work` on a thread that may block. `from` is the client's address, or an address that represents its network. A call
    /// that exceeds the limit keeps its thread until it ends, so a hanging library never occupies more threads than allowed.
    ///
    /// # Errors
    /// [`Busy`], which the caller counts; also if the call panics.
    pub async fn run<T: Send + 'static>(
        &'static self,
        from: IpAddr,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let turn = timeout(self.wait, self.turn(from)).await.map_err(|_| Busy)??;
        let working = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        timeout(self.wait, working).await.map_err(|_| Busy)?.map_err(|_| Busy)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    use super::*;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    #[tokio::test]
    async fn hanging_call_keeps_its_thread() {
        static POOL: Pool = Pool::new(1, Duration::from_millis(50));
        let (go, stop) = mpsc::channel::<()>();
        let hung = POOL.run(A, move || stop.recv().is_ok()).await;
        assert_eq!(hung, Err(Busy));
        assert_eq!(POOL.run(B, || 1).await, Err(Busy), "the thread is still at work");
        drop(go);
        let turn = POOL.turns.acquire().await.unwrap();
        drop(turn);
        assert_eq!(POOL.run(A, || 2).await, Ok(2));
        assert!(POOL.addresses().is_empty(), "nothing is kept of who called");
    }

    /// The library hangs on all calls from one address.
    #[tokio::test]
    async fn one_address_never_takes_all_threads() {
        static POOL: Pool = Pool::new(4, Duration::from_secs(60));
        let (go, stop) = mpsc::channel::<()>();
        let stop = Arc::new(Mutex::new(stop));
        let (started, mut has_started) = tokio::sync::mpsc::unbounded_channel();
        let mut flood = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (stop, started) = (stop.clone(), started.clone());
            flood.spawn(POOL.run(A, move || {
                let _ = started.send(());
                locked(&stop).recv().is_ok()
            }));
        }
        for _ in 0..2 {
            has_started.recv().await.unwrap();
        }
        assert_eq!(POOL.run(B, || 1).await, Ok(1));
        assert!(has_started.try_recv().is_err(), "two of the one address");
        drop(go);
        while let Some(done) = flood.join_next().await {
            assert_eq!(done.unwrap(), Ok(false));
        }
        assert!(POOL.addresses().is_empty());
    }
}
