//! Records in files, and a client that makes them stable over NFS.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use client::connect::Local;
use client::target::{Protocol, Target, Transport, Version};
use client::{Credential, Error, File, Volume};
use iobuf::{Buf, BufMut};

use crate::{Idle, is_gone};

pub const RECORD: u64 = 64;
/// Start of the records; locks are below.
pub const RECORDS_AT: u64 = 4096;

pub fn record(of: &str, n: u64) -> Buf {
    let text = format!("{of} {n} ");
    let bytes: Vec<u8> = text.bytes().cycle().take(usize::try_from(RECORD).unwrap()).collect();
    let mut buf = BufMut::heap(bytes.len());
    buf.append(&bytes);
    buf.freeze()
}

/// Checks that the first `count` records on the disk are intact.
pub fn check_records(path: &Path, of: &str, count: u64) {
    let bytes = fs::read(path).unwrap_or_default();
    for n in 0..count {
        let at = usize::try_from(RECORDS_AT + n * RECORD).unwrap();
        let want = record(of, n);
        let found = bytes.get(at..at + want.len());
        assert_eq!(found, Some(want.as_slice()), "record {n} of {count} of {of}");
    }
}

/// Writes records over NFS: each counts as acknowledged after its COMMIT. Each round uses a new file.
pub struct Nfs {
    pub name: String,
    version: Version,
    rounds: u64,
    pub records: u64,
    /// Records of earlier rounds.
    pub before: u64,
}

impl Nfs {
    pub fn new(version: Version) -> Self {
        Self { name: String::new(), version, rounds: 0, records: 0, before: 0 }
    }

    pub fn next_round(self) -> Self {
        let (rounds, before) = (self.rounds + 1, self.before + self.records);
        let name = format!("nfs-{:?}-{rounds}", self.version);
        Self { name, rounds, before, records: 0, ..self }
    }

    pub async fn open(&self, at: SocketAddr) -> (Volume, File) {
        let protocol =
            Protocol::Nfs { version: self.version, mount_port: Some(at.port()), security: None };
        let target = Target {
            host: "127.0.0.1".into(),
            port: at.port(),
            path: "/data".into(),
            protocol,
            transport: Transport::Tcp,
            crc: true,
            device: false,
        };
        let root = Credential::sys(0, 0, &[]);
        let volume = Volume::open(&target, &Local::default(), root).await.unwrap();
        loop {
            const GRACE: u32 = 10_013;
            match volume.create(&self.name).await {
                Ok(file) => return (volume, file),
                Err(Error::Nfs4(_, GRACE)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(e) => panic!("{}: {e}", self.name),
            }
        }
    }

    pub async fn work(mut self, (volume, file): (Volume, File), mut idle: Idle) -> Self {
        loop {
            idle.take_if(|_| self.records > 0);
            let at = RECORDS_AT + self.records * RECORD;
            let data = vec![record(&self.name, self.records)];
            let done = match volume.write(&file, at, data).await {
                Ok(_) => volume.commit(&file).await,
                Err(e) => Err(e),
            };
            match done {
                Ok(()) => self.records += 1,
                Err(e) => {
                    assert!(is_gone(&e));
                    return self;
                }
            }
        }
    }
}
