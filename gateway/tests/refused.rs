//! What clients are refused is in `headgate status --json`, the log and the metrics, by both protocols.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use config::{Admin, Settings, Share, Source};
use gateway::admin::show::fetch;
use gateway::admin::snapshot::{RefusedStatus, Snapshot};
use gateway::serve::Running;

fn settings(state: &std::path::Path) -> Settings {
    let mut settings = Settings {
        shares: vec![Share::new("data", Source::Memory)],
        bind: vec![Ipv6Addr::UNSPECIFIED.into()],
        nfs_port: 0,
        nfs_rdma_port: 0,
        admin: Admin::At(([127, 0, 0, 1], 0).into()),
        state: state.to_owned(),
        ..Settings::default()
    };
    (settings.smb.port, settings.smb.direct_port) = (0, 0);
    settings
}

/// By IPv4, to a socket of IPv6.
fn dial(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, at.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// MNT of this path (RFC 1813 section 5.2.1) by AUTH_NONE; the status.
fn mount(at: SocketAddr, path: &str) -> u32 {
    let mut stream = dial(at);
    let mut words: Vec<u32> = vec![7, 0, 2, 100_005, 3, 1, 0, 0, 0, 0];
    words.push(u32::try_from(path.len()).unwrap());
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    bytes.extend(path.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let mark = 0x8000_0000 | u32::try_from(bytes.len()).unwrap();
    stream.write_all(&[&mark.to_be_bytes()[..], &bytes].concat()).unwrap();
    let mut reply = [0; 4 + 24 + 4];
    stream.read_exact(&mut reply).unwrap();
    u32::from_be_bytes(reply[28..].try_into().unwrap())
}

async fn status(running: &Running) -> Snapshot {
    serde_json::from_str(&fetch(running.admin.unwrap(), "/status").await.unwrap()).unwrap()
}

fn row<'a>(s: &'a Snapshot, rule: &str) -> &'a RefusedStatus {
    s.refused.iter().find(|r| r.rule == rule).unwrap_or_else(|| panic!("{rule}: {:?}", s.refused))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_ipv4_is_shown_as_that_also_where_ipv6_listens() {
    let state = tempfile::tempdir().unwrap();
    let mut closed = settings(state.path());
    let mut other = Share::new("other", Source::Memory);
    other.clients = Some(vec!["192.0.2.0/24".parse().unwrap()]);
    closed.shares.push(other);
    let running = gateway::serve::start(closed).await.unwrap();
    let client = dial(running.nfs[0]);
    assert_eq!(mount(running.nfs[0], "/other"), 13, "MNT3ERR_ACCES");
    assert_eq!(mount(running.nfs[0], "/other"), 13);
    let seen = status(&running).await;
    let at = client.local_addr().unwrap().to_string();
    assert!(seen.connections.iter().any(|c| c.peer == at), "{at} in {seen:?}");
    assert!(!format!("{seen:?}").contains("::ffff:"), "{seen:?}");
    let refused = row(&seen, "share-clients");
    assert_eq!((&*refused.client, &*refused.share), ("127.0.0.1", "other"));
    assert!(refused.count >= 2 && refused.age_seconds < 60 && refused.remedy.contains("`clients`"));
    assert!(seen.refusals["share-clients"] >= 2, "{seen:?}");
}
