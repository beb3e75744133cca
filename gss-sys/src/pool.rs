//! Calls of the library beside the runtime's own threads: so many at once, the others wait for a turn, and nobody waits for ever.

use std::fmt;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// There was no turn, or no answer, in time: the library waits for a disk or for a name service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kerberos has not answered in time")
    }
}

impl std::error::Error for Busy {}

/// Turns for calls that may wait.
#[derive(Debug)]
pub struct Pool {
    turns: Semaphore,
    wait: Duration,
}

impl Pool {
    /// At most `threads` calls at once. A caller waits `wait` for its turn and as long again for the answer.
    pub const fn new(threads: usize, wait: Duration) -> Self {
        Self { turns: Semaphore::const_new(threads), wait }
    }

    /// Runs this when it is its turn, by a thread that may wait. What goes on too long keeps its turn until it ends, so that a
    /// library that hangs takes no more threads than there are turns.
    ///
    /// # Errors
    /// [`Busy`], which the caller counts; also where the call panics.
    pub async fn run<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let turn = timeout(self.wait, self.turns.acquire()).await;
        let turn = turn.map_err(|_| Busy)?.map_err(|_| Busy)?;
        let working = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        timeout(self.wait, working).await.map_err(|_| Busy)?.map_err(|_| Busy)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn what_hangs_keeps_its_turn_and_nobody_waits_for_ever() {
        static POOL: Pool = Pool::new(1, Duration::from_millis(50));
        let (go, stop) = mpsc::channel::<()>();
        let hung = POOL.run(move || stop.recv().is_ok()).await;
        assert_eq!(hung, Err(Busy));
        assert_eq!(POOL.run(|| 1).await, Err(Busy), "the thread is still at work");
        drop(go);
        let turn = POOL.turns.acquire().await.unwrap();
        drop(turn);
        assert_eq!(POOL.run(|| 2).await, Ok(2));
    }
}
