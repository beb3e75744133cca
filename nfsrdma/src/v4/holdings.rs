//! Who holds which file, for the administrator.

use state::Rights;
use vfs::NodeRef;

use super::client::{Client, Clients};
use super::opens::Entry;

/// How a file is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Open, for reading, writing or both.
    Open(Rights),
    /// There are locks on it.
    Locked,
    /// Cached under a delegation, which may let its holder write.
    Delegated {
        /// The holder may write without telling.
        write: bool,
    },
}

/// One file that one client holds.
pub struct Holding {
    /// How the client names itself.
    pub client: String,
    /// The file.
    pub node: NodeRef,
    /// How.
    pub held: Held,
}

impl Clients {
    /// What clients hold now. Looks at all of it.
    pub fn holdings(&self) -> Vec<Holding> {
        self.all().iter().flat_map(|client| of(client)).collect()
    }
}

fn of(client: &Client) -> Vec<Holding> {
    let name = shown(client.name.as_bytes());
    let holding = |entry: &Entry| {
        let (node, held) = match entry {
            Entry::Open(o) => (&o.node, Held::Open(o.share.access)),
            Entry::Lock(l) => (&l.node, Held::Locked),
            Entry::Delegation(d) if d.revoked => return None,
            Entry::Delegation(d) => (&d.node, Held::Delegated { write: d.write }),
            Entry::Closed(_) => return None,
        };
        Some(Holding { client: name.clone(), node: node.clone(), held })
    };
    client.held().entries().filter_map(holding).collect()
}

/// A client's name for itself may be any bytes; before it stands a byte of this server. Linux puts its host's name in it.
fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name.get(1..).unwrap_or_default());
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(NAME_CHARS_MAX).collect()
}

/// Characters of a client's name that are shown.
const NAME_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_bytes_is_one_short_line() {
        assert_eq!(shown(b"\x01Linux NFSv4.2 host"), "Linux NFSv4.2 host");
        assert_eq!(shown(b"\x00a\nb\xff"), "a b\u{fffd}");
        assert_eq!(shown(b""), "");
        assert_eq!(shown(&[b'x'; 1000]).len(), NAME_CHARS_MAX);
    }
}
