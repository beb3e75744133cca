//! The client for which a thread works.

use std::cell::Cell;
use std::net::IpAddr;

thread_local! {
    static CURRENT: Cell<Option<IpAddr>> = const { Cell::new(None) };
}

/// Work for one client, until this is dropped.
#[derive(Debug)]
pub struct ClientWork(Option<IpAddr>);

impl ClientWork {
    /// This thread works for the client of this address from now on.
    pub fn begin(address: IpAddr) -> Self {
        Self(CURRENT.replace(Some(address)))
    }
}

impl Drop for ClientWork {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// The address of the client for which this thread works; `None`: for no client.
pub fn current_client() -> Option<IpAddr> {
    CURRENT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_work_restores_the_client_before() {
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let first = ClientWork::begin(one);
        let second = ClientWork::begin(other);
        assert_eq!(current_client(), Some(other));
        drop(second);
        assert_eq!(current_client(), Some(one));
        drop(first);
        assert_eq!(current_client(), None);
    }
}
