//! The admin address of a daemon that serves.

use std::time::Duration;

use config::{Admin, Settings, Share, Source};
use gateway::admin::show::fetch;
use gateway::admin::snapshot::Snapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn settings(state: &std::path::Path) -> Settings {
    let share = Share::new("data", Source::Memory);
    Settings {
        shares: vec![share],
        bind: vec![[127, 0, 0, 1].into()],
        nfs_port: 0,
        nfs_rdma_port: 0,
        admin: Admin::At(([127, 0, 0, 1], 0).into()),
        state: state.to_owned(),
        ..Settings::default()
    }
}

/// A NULL call of NFS 3 with its record mark (RFC 5531).
const NULL_CALL: [u8; 44] = [
    0x80, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

#[tokio::test]
async fn a_connection_is_seen_while_it_lives_and_counted_afterwards() {
    let state = tempfile::tempdir().unwrap();
    let running = gateway::serve::start(settings(state.path())).await.unwrap();
    let admin = running.admin.unwrap();
    let look = || async {
        let text = fetch(admin, "/status").await.unwrap();
        serde_json::from_str::<Snapshot>(&text).unwrap()
    };
    assert_eq!(fetch(admin, "/healthz").await.unwrap(), "ok\n");
    assert_eq!(fetch(admin, "/readyz").await.unwrap(), "ready\n");
    assert!(fetch(admin, "/nowhere").await.unwrap_err().contains("404"));

    let mut client = tokio::net::TcpStream::connect(running.nfs[0]).await.unwrap();
    client.write_all(&NULL_CALL).await.unwrap();
    let mut answer = [0; 28];
    client.read_exact(&mut answer).await.unwrap();
    let seen = look().await;
    let [one] = &seen.connections[..] else { panic!("{seen:?}") };
    assert_eq!(one.peer, client.local_addr().unwrap().to_string());
    assert_eq!((one.transport.as_str(), one.moved.requests), ("tcp", 1));
    let port = running.nfs_rdma[0].port().to_string();
    assert!(one.why_not_rdma.as_ref().unwrap().text.contains(&port));

    drop(client);
    let gone = async {
        while !look().await.connections.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    assert_eq!(look().await.moved["nfs/tcp"].requests, 1);
    let metrics = fetch(admin, "/metrics").await.unwrap();
    let line = "headgate_requests_total{protocol=\"nfs\",transport=\"tcp\"} 1";
    assert!(metrics.lines().any(|l| l == line), "{metrics}");
}

#[tokio::test]
async fn an_address_that_was_asked_for_and_is_taken_stops_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let state = tempfile::tempdir().unwrap();
    let admin = Admin::At(taken.local_addr().unwrap());
    let refused = gateway::serve::start(Settings { admin, ..settings(state.path()) }).await;
    let why = refused.unwrap_err();
    assert!(why.contains("--admin"), "{why}");
}
