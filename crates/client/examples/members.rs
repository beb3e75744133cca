//! Loads a member of a domain by SMB and prints figures for `cargo xtask bench domain`:
//!
//! * `members ADDRESS:PORT SHARE 'DOMAIN\USER' PASSWORD logons SECONDS AT_ONCE` connects and logs on, again and again, and prints
//!   the seconds and how many logons there were.
//! * `... descriptors FOLDER AT_ONCE` lists a folder and asks for the security descriptor of each file; prints the seconds, and the
//!   numbers of files and of different owners.

#![allow(clippy::expect_used)] // A measurement that cannot continue should panic with a message.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use client::connect::Local;
use client::smb::{Options, Smb, User};
use futures_util::{StreamExt, TryStreamExt, stream};
use smb_proto::smb2::create::{Disposition, access};

/// Owner, group and list (MS-DTYP section 2.4.7).
const PARTS: u32 = 7;

struct Who<'a> {
    at: SocketAddr,
    share: &'a str,
    user: User,
}

impl Who<'_> {
    async fn log_on(&self, local: &Local) -> Smb {
        let share = ("server", self.share);
        let smb = Smb::connect(self.at, false, share, &self.user, Options::default(), local).await;
        smb.expect("a logon")
    }
}

/// Returns the seconds and the logons.
async fn logons(who: &Who<'_>, seconds: u64, at_once: usize) -> (f64, usize) {
    let local = Local::default();
    who.log_on(&local).await;
    let (began, limit) = (Instant::now(), Duration::from_secs(seconds));
    let one = async || {
        let mut count = 0;
        while began.elapsed() < limit {
            drop(who.log_on(&local).await);
            count += 1;
        }
        count
    };
    let counts: Vec<usize> =
        stream::iter(0..at_once).map(|_| one()).buffer_unordered(at_once).collect().await;
    (began.elapsed().as_secs_f64(), counts.iter().sum())
}

/// Returns the owner of a self-relative descriptor (MS-DTYP section 2.4.6).
fn owner(descriptor: &[u8]) -> Option<&[u8]> {
    let at = u32::from_le_bytes(*descriptor.get(4..)?.first_chunk()?) as usize;
    let sid = descriptor.get(at..)?;
    sid.get(..8 + 4 * usize::from(*sid.get(1)?))
}

/// Returns the seconds, the files and the owners.
async fn descriptors(who: &Who<'_>, folder: &str, at_once: usize) -> (f64, usize, usize) {
    let local = Local::default();
    let smb = who.log_on(&local).await;
    let began = Instant::now();
    let names = smb.list(folder).await.expect("a listing");
    let count = names.len();
    let one = async |name: String| {
        let path = format!("{folder}\\{name}");
        let (disposition, mask) = (Disposition::Open, access::READ_CONTROL);
        let file = smb.open(&path, mask, disposition, 0).await?;
        let told = smb.security(&file, PARTS).await?;
        smb.close(file).await?;
        Ok::<_, client::Error>(owner(&told).expect("an owner").to_vec())
    };
    let owners: HashSet<Vec<u8>> = stream::iter(names)
        .map(|entry| one(entry.name))
        .buffer_unordered(at_once)
        .try_collect()
        .await
        .expect("a descriptor");
    (began.elapsed().as_secs_f64(), count, owners.len())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [at, share, user, password, what, of, at_once] = words[..] else {
        panic!("members ADDRESS:PORT SHARE 'DOMAIN\\USER' PASSWORD logons|descriptors OF AT_ONCE");
    };
    let (domain, name) = user.split_once('\\').expect("DOMAIN\\USER");
    let user = User { name: name.into(), domain: domain.into(), password: password.into() };
    let who = Who { at: at.parse().expect("an address"), share, user };
    let at_once = at_once.parse().expect("a number");
    if what == "logons" {
        let (seconds, count) = logons(&who, of.parse().expect("seconds"), at_once).await;
        println!("{seconds} {count}");
    } else {
        let (seconds, count, owners) = descriptors(&who, of, at_once).await;
        println!("{seconds} {count} {owners}");
    }
}
