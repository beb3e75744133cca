//! Every limit on the resources of clients: the one list from which docs/limits.md and the counters are made.
//!
//! A [`Bound`] is one resource that clients use up. It has a total, a share for one address, and a share for one connection,
//! session, client or file. Each of these limits has a name under which it is counted. Numbers are the constants that the code
//! obeys.

mod nfs;
mod services;
mod smb;
mod transport;

/// One resource that clients use up, with its limits. The program needs only the names, the docs page all fields.
#[cfg_attr(not(test), allow(dead_code))]
pub(super) struct Bound {
    /// The counted resource.
    what: &'static str,
    total: Cell,
    of_address: Cell,
    /// Limit for one connection, session, client or file, or the time that one of these has.
    of_one: Cell,
    /// The response to a client that exceeds the limit.
    next: &'static str,
    /// Tests in which one client takes all it can get while others are served from the total: `FILE::FUNCTION`.
    shown_by: &'static [&'static str],
}

/// A limit in words, and the names under which it is counted.
pub(super) struct Cell {
    text: String,
    names: Vec<&'static str>,
}

/// Returns the cell for a limit that does not exist.
fn none() -> Cell {
    Cell { text: "-".into(), names: Vec::new() }
}

/// Returns a cell without a counter: why there is no limit of this kind, or a number that another name counts.
fn words(text: impl Into<String>) -> Cell {
    Cell { text: text.into(), names: Vec::new() }
}

/// Returns the cell for a limit of `text`, counted under this name.
fn most(name: &'static str, text: impl ToString) -> Cell {
    Cell { text: format!("{} (`{name}`)", text.to_string()), names: vec![name] }
}

/// Joins two cells.
fn both(one: Cell, other: Cell) -> Cell {
    let names = [one.names, other.names].concat();
    Cell { text: format!("{}; {}", one.text, other.text), names }
}

/// Returns all limits, in the order of docs/limits.md.
pub(super) fn all() -> Vec<Bound> {
    [transport::all(), smb::all(), nfs::all(), services::all()].into_iter().flatten().collect()
}

/// Returns the names of all limits.
pub fn names() -> Vec<&'static str> {
    let cells = |bound: Bound| [bound.total, bound.of_address, bound.of_one];
    all().into_iter().flat_map(cells).flat_map(|cell| cell.names).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::path::Path;

    use super::super::testing;
    use super::*;

    const HEAD: &str = "\
# Limits

Limits on clients, so that each leaves room for the others. `gateway/src/admin/limits` has this list; a test writes this \
page from it.

Each limit has a name, which is in parentheses. The name is in the log line with the address of the client, in `headgate \
status`, on the
status page, and in the counter `headgate_limits_met_total{limit=\"NAME\"}`. A client that is refused something is listed with \
what to change
([what was refused](operating.md#what-was-refused)). An address is an IPv4 address or an IPv6 network of 64 bits. *Client* means one
client of NFS 4, or one host with NFS 3 locks.

| what | in all | of one address | of one connection, session, client or file | the next one gets |
|---|---|---|---|---|
";

    const TAIL: &str = "
NFS3ERR_JUKEBOX, NFS4ERR_DELAY and NLM4_DENIED_GRACE_PERIOD (to an NLM SHARE) tell a client to come back. Its turn is kept for \
20 s: in that
time no other client is granted caching that conflicts with it ([coherence](coherence.md)).

The set-up of an RDMA connection has limits of its own, which are counted as broken rules (`headgate_violations_total`): 10 s \
for MPA
(`iwarp_mpa_timeout`), or `limits.introduction` if that is shorter, and 5 s for the negotiation of SMB Direct.

The list in the code names the tests of each line, in which one client takes what it can get. Others have many clients at once: \
twelve
clients stuck at each point, beside clients that work, and one address that asks for 24 times the payload memory
(`tests/tests/stuck_clients.rs`); 64 connections that ask for ten large answers each and take none \
(`tests/tests/deaf_clients.rs`); ten
thousand idle connections and a storm of new ones (`gateway/tests/scale.rs`); one address with all connections or receive \
buffers that it
gets, beside another that is served within a second (`tests/tests/limits`). A table there has each limit, with a client that \
fills it or
the reason why none can. `cargo xtask bench neighbours` measures how long \
a client waits beside clients that attack
([benchmarks](benchmarks.md)). What a connection costs is in [tuning](tuning.md).
";

    fn page() -> String {
        let mut page = HEAD.to_owned();
        for Bound { what, total, of_address, of_one, next, .. } in all() {
            let [total, of_address, of_one] = [total, of_address, of_one].map(|cell| cell.text);
            writeln!(page, "| {what} | {total} | {of_address} | {of_one} | {next} |").unwrap();
        }
        page + TAIL
    }

    #[test]
    fn the_page_of_limits_is_in_step() {
        testing::in_step("docs/limits.md", &page());
    }

    #[test]
    fn no_two_limits_have_one_name() {
        let all = names();
        let different: BTreeSet<&str> = all.iter().copied().collect();
        // NFS and SMB share the locks of one file.
        let shared = ["locks-of-file-by-address"];
        assert_eq!(different.len() + shared.len(), all.len());
    }

    #[test]
    fn each_total_has_a_part_of_one_address() {
        for bound in all() {
            let (total, part) = (&bound.total, &bound.of_address);
            assert!(total.text == "-" || part.text != "-", "{}", bound.what);
        }
    }

    #[test]
    fn each_limit_is_shown_by_tests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for bound in all() {
            assert!(!bound.shown_by.is_empty(), "{}", bound.what);
            for test in bound.shown_by {
                let (file, function) = test.split_once("::").unwrap();
                let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
                assert!(
                    text.contains(&format!("fn {function}(")),
                    "{}: no test {test}",
                    bound.what
                );
            }
        }
    }
}
