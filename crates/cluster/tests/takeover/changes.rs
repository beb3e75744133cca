//! Tests of the etcd client: watches, and reading many keys.

use std::time::Instant;

use cluster::etcd::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::world::{PATIENCE, World, compact, etcd, post, start_etcd, until};

#[tokio::test(flavor = "multi_thread")]
async fn watch_reports_all_changes_or_fails() {
    let world = World::new().await;
    let etcd = world.etcd();
    etcd.put("/x/a", b"1").await.unwrap();
    let first = etcd.get("/x/a").await.unwrap().unwrap().created;
    etcd.put("/y", b"").await.unwrap();
    etcd.put("/x/b", b"1").await.unwrap();
    etcd.delete("/x/a").await.unwrap();
    let mut watch = etcd.watch("/x/", first + 1).await.unwrap();
    let (mut keys, mut last) = (Vec::new(), first);
    while keys.len() < 2 {
        let changes = watch.next().await.unwrap();
        assert!(changes.revision > last);
        last = changes.revision;
        keys.extend(changes.keys);
    }
    assert_eq!((keys, last), (vec!["/x/b".to_owned(), "/x/a".into()], first + 3));
    // From now on: reports no earlier change.
    let mut watch = etcd.watch("/x/", 0).await.unwrap();
    assert_eq!(watch.began(), last);
    etcd.put("/x/c", b"1").await.unwrap();
    assert_eq!(watch.next().await.unwrap().keys, ["/x/c"]);
    compact(world.member.port).await;
    let missed = match etcd.watch("/x/", first).await {
        Ok(mut watch) => watch.next().await.map(drop),
        Err(e) => Err(e),
    };
    assert!(matches!(missed, Err(Error::Missed)), "{missed:?}");
    // etcd reports nothing until it has reached that revision; the revision at which the watch began reveals this.
    assert!(etcd.watch("/x/", 1 << 40).await.unwrap().began() < 1 << 40);
}

/// An isolated member does not learn of changes.
#[tokio::test(flavor = "multi_thread")]
async fn watch_without_leader_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut members = start_etcd(dir.path(), 3).await;
    let mut watch = etcd(&[members[0].port]).watch("/x/", 0).await.unwrap();
    for member in &mut members[1..] {
        member.kill();
    }
    let began = Instant::now();
    let ended = watch.next().await;
    assert!(matches!(ended, Err(Error::Unreachable(_))), "{ended:?}");
    assert!(began.elapsed() < PATIENCE / 2, "{ended:?} after {:?}", began.elapsed());
    assert!(etcd(&[members[0].port]).watch("/x/", 0).await.is_err(), "and no other begins there");
}

#[tokio::test(flavor = "multi_thread")]
async fn paged_keys_share_one_revision() {
    let world = World::new().await;
    let etcd = world.etcd();
    let value = [b'v'; 2000];
    for number in 0..1001 {
        etcd.put(&format!("/x/{number:04}"), &value).await.unwrap();
    }
    etcd.put("/y", b"").await.unwrap();
    let (entries, revision) = etcd.below_at("/x/").await.unwrap();
    assert_eq!(entries.len(), 1001);
    for (number, entry) in entries.iter().enumerate() {
        assert_eq!((entry.key.as_str(), entry.value.len()), (&*format!("/x/{number:04}"), 2000));
    }
    assert_eq!(revision, etcd.get("/y").await.unwrap().unwrap().created);
}

/// An idle node sends no other request that would reveal an expired token.
#[tokio::test(flavor = "multi_thread")]
async fn watch_renews_expired_token() {
    let mut world = World::new().await;
    let port = world.member.port;
    let login = r#"{"name":"root","password":"p"}"#;
    post(port, "auth/user/add", login, "").await;
    post(port, "auth/role/add", r#"{"name":"root"}"#, "").await;
    post(port, "auth/user/grant", r#"{"user":"root","role":"root"}"#, "").await;
    post(port, "auth/enable", "{}", "").await;
    let named = || world.etcd().with_user("root".into(), "p".into());
    let (etcd, other) = (named(), named());
    other.watch("/x/", 0).await.expect("nothing has logged in before");
    etcd.put("/x/a", b"").await.unwrap();
    // A restarted member knows no token.
    world.member.restart();
    let is_there = || async { other.put("/x/b", b"").await.is_ok() };
    until("etcd answers", is_there).await;
    etcd.watch("/x/", 0).await.expect("it logs in again");
    // etcd also rejects tokens from before a change of its users.
    let answer = post(port, "auth/authenticate", login, "").await;
    let token = answer.split_once("\"token\":\"").unwrap().1.split_once('"').unwrap().0;
    post(port, "auth/role/add", r#"{"name":"more"}"#, token).await;
    etcd.watch("/x/", 0).await.expect("it logs in again");
    other.put("/x/c", b"").await.expect("it logs in again");
}

/// A reply of another program on a member's port is ignored, and the next member is tried.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_reply_never_ends_lease() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stranger = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        for answer in ["{}", "<p>It works!</p>", "{\"result\":{}}"].iter().cycle() {
            let (mut from, _) = listener.accept().await.unwrap();
            let _ = from.read(&mut [0; 4096]).await;
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length";
            let answer = format!("{head}: {}\r\n\r\n{answer}", answer.len());
            let _ = from.write_all(answer.as_bytes()).await;
            // Wait until the client closes: unread data would be lost.
            let _ = from.read(&mut [0; 4096]).await;
        }
    });
    let lease = world.etcd().grant(PATIENCE).await.unwrap();
    for _ in 0..3 {
        let alone = etcd(&[stranger]).keep_alive(lease).await;
        assert!(matches!(alone, Err(Error::Unreachable(_))), "{alone:?}");
        let both = etcd(&[stranger, world.member.port]).keep_alive(lease).await;
        assert!(matches!(both, Ok(true)), "{both:?}");
    }
    world.etcd().revoke(lease).await.unwrap();
    assert!(matches!(world.etcd().keep_alive(lease).await, Ok(false)));
}
