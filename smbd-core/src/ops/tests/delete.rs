//! Names that are removed when their last open closes.

use crate::dtyp::mask;
use crate::kit::{Client, Kit};
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
    let doomed = a.create("f", |r| r.options = option::DELETE_ON_CLOSE).await.unwrap().file;
    let other = b.open("f").await;
    assert_eq!(exists(&b, "f").await, Ok(()), "not before the close of the one that says so");
    a.close(doomed).await;
    assert_eq!(exists(&b, "f").await, Err(Status::DELETE_PENDING));
    assert_eq!(b.create("F", |_| {}).await.unwrap_err(), Status::DELETE_PENDING);
    b.close(other).await;
    assert_eq!(exists(&b, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
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
    let dir = async |name: &str, more| {
        let made = c.create(name, |r| r.options = option::DIRECTORY_FILE | more).await;
        made.unwrap().file
    };
    let d = dir("d", option::DELETE_ON_CLOSE).await;
    let f = c.open("d\\f").await;
    c.close(f).await;
    c.close(d).await;
    assert_eq!(exists(&c, "d\\f").await, Ok(()), "it was not empty");
    let f = c.create("d\\f", |r| r.options = option::DELETE_ON_CLOSE).await.unwrap().file;
    c.close(f).await;
    let d = dir("d", option::DELETE_ON_CLOSE).await;
    c.close(d).await;
    assert_eq!(exists(&c, "d").await, Err(Status::OBJECT_NAME_NOT_FOUND));
}

#[tokio::test]
async fn a_stream_goes_alone_and_a_file_takes_its_streams() {
    let c = Kit::new().client();
    let f = c.open("f").await;
    let s = c.create("f:s", |r| r.options = option::DELETE_ON_CLOSE).await.unwrap().file;
    c.close(s).await;
    assert_eq!(exists(&c, "f:s").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    assert_eq!(exists(&c, "f").await, Ok(()));
    let s = c.open("f:s").await;
    c.close(f).await;
    let f = c.create("f", |r| r.options = option::DELETE_ON_CLOSE).await.unwrap().file;
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
            r.options = option::DELETE_ON_CLOSE;
            r.share = 0;
        })
        .await;
    assert!(f.is_ok());
    assert_eq!(b.create("f", |_| {}).await.unwrap_err(), Status::SHARING_VIOLATION);
    crate::dispatch::end_of_connection(&kit.core, &a.conn).await;
    assert_eq!(exists(&b, "f").await, Err(Status::OBJECT_NAME_NOT_FOUND));
    assert_eq!(kit.core.opens.count(), 0);
}
