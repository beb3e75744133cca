//! Names that are removed when their last open closes.

use std::sync::Arc;
use std::time::Duration;

use state::{Caching, Lease, Party};

use crate::dtyp::mask;
use crate::kit::{Client, Kit, doom};
use crate::status::Status;
use crate::wire::create::{Disposition, option};

async fn exists(c: &Client, name: &str) -> Result<(), Status> {
    let found = c
        .create(name, |r| {
            r.disposition = Disposition::Open as u32;
            r.access = mask::READ_ATTRIBUTES;
        })
        .await?;
    c.close(found.file).await;
    Ok(())
}

#[tokio::test]
async fn the_last_close_removes() {
    let kit = Kit::new();
    let (a, b) = (kit.client(), kit.client());
    let doomed = a.create("f", doom).await.unwrap().file;
    let other = b.open("f").await;
    assert_eq!(exists(&b, "f").await, Ok(()), "not before the close of the one that says so");
    a.close(doomed).await;
    assert_eq!(exists(&b, "f").await, Err(Status::DELETE_PENDING));
    assert_eq!(b.create("F", |_| {}).await.unwrap_err(), Status::DELETE_PENDING);
    b.close(other).await;
    assert_eq!(exists(&b, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
}

/// A client of NFS caches the file: CLOSE does not wait for it, and the name goes all the same.
#[tokio::test]
async fn a_name_that_somebody_caches_goes_when_it_is_given_back() {
    let kit = Kit::new();
    let c = kit.client();
    let doomed = c
        .create("f", |r| {
            r.options = option::DELETE_ON_CLOSE;
            r.access = mask::READ_DATA | mask::DELETE;
        })
        .await;
    let doomed = doomed.unwrap().file;
    let node = kit.core.opens.get(doomed).unwrap().node().unwrap().id();
    let keeper = kit.core.namespace.keeper();
    let table = keeper.state();
    let party = Party { holder: table.holder(), lease: Arc::new(Lease::held(table.key())) };
    assert!(table.delegate(node, &party, Caching::READ_HANDLE, kit.core.now()));
    assert_eq!(c.close(doomed).await, Status::SUCCESS);
    assert_eq!(exists(&c, "f").await, Err(Status::DELETE_PENDING), "it is cached still");
    keeper.close(node, party.holder);
    let gone = async {
        while exists(&c, "f").await != Err(Status::OBJECT_NAME_NOT_FOUND) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("the name goes");
}

#[tokio::test]
async fn a_disposition_can_be_taken_back() {
    let kit = Kit::new();
    let c = kit.client();
    let f = c.open("f").await;
    let open = kit.core.opens.get(f).unwrap();
    kit.core.opens.set_delete_pending(&open, true);
    assert!(kit.core.opens.is_delete_pending(&open));
    assert_eq!(exists(&c, "f").await, Err(Status::DELETE_PENDING));
    kit.core.opens.set_delete_pending(&open, false);
    assert_eq!(exists(&c, "f").await, Ok(()));
    kit.core.opens.set_delete_pending(&open, true);
    drop(open);
    c.close(f).await;
    assert_eq!(exists(&c, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
}

#[tokio::test]
async fn directories_go_when_they_are_empty() {
    let c = Kit::new().client();
    let doomed_dir = async || {
        let made = c.create("d", |r| {
            r.options = option::DIRECTORY_FILE;
            doom(r);
        });
        made.await.unwrap().file
    };
    let d = doomed_dir().await;
    let f = c.open("d\\f").await;
    c.close(f).await;
    c.close(d).await;
    assert_eq!(exists(&c, "d\\f").await, Ok(()), "it was not empty");
    let f = c.create("d\\f", doom).await.unwrap().file;
    c.close(f).await;
    let d = doomed_dir().await;
    c.close(d).await;
    assert_eq!(exists(&c, "d").await, Err(Status::OBJECT_NAME_NOT_FOUND));
}

#[tokio::test]
async fn a_stream_goes_alone_and_a_file_takes_its_streams() {
    let c = Kit::new().client();
    let f = c.open("f").await;
    let s = c.create("f:s", doom).await.unwrap().file;
    c.close(s).await;
    assert_eq!(exists(&c, "f:s").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    assert_eq!(exists(&c, "f").await, Ok(()));
    let s = c.open("f:s").await;
    c.close(f).await;
    let f = c.create("f", doom).await.unwrap().file;
    c.close(f).await;
    assert_eq!(exists(&c, "f:s").await, Err(Status::DELETE_PENDING), "a stream is open still");
    assert_eq!(exists(&c, "f").await, Err(Status::DELETE_PENDING));
    c.close(s).await;
    assert_eq!(exists(&c, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
}

#[tokio::test]
async fn the_end_of_a_session_closes_what_it_had() {
    let kit = Kit::new();
    let (a, b) = (kit.client(), kit.client());
    let f = a
        .create("f", |r| {
            doom(r);
            r.share = 0;
        })
        .await;
    assert!(f.is_ok());
    assert_eq!(b.create("f", |_| {}).await.unwrap_err(), Status::SHARING_VIOLATION);
    crate::dispatch::end_of_connection(&kit.core, &a.conn).await;
    assert_eq!(exists(&b, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    assert_eq!(kit.core.opens.count(), 0);
}
