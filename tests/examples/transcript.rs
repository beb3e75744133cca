//! Transfers files over SMB Direct and records the client's view: `transcript FILE WAY` for one of the ways that `transcript
//! --ways` lists. Other programs compare it with a capture of the wire.

use std::error::Error;
use std::sync::Arc;
use std::{env, fs};

use client::connect::Local;
use client::smb::{Channels, Options, Smb};
use headgate_tests::record::Recording;
use headgate_tests::world::buf;
use headgate_tests::world::smb::{alice, with_alice};
use iobuf::BufMut;
use rdma_transport::iwarp::{Iwarp, IwarpConfig};
use smb_crypto::seal::Cipher;
use smb_crypto::sign::Algorithm;

/// The repeated content of every file.
const MARKER: &[u8] = b"placed-by-headgate-";
/// The smallest size that uses RDMA, an odd size, and one that fills several buffers.
const SIZES: [usize; 3] = [4096, 5001, 200_003];

/// Number of connections of the ways with several.
const SEVERAL: usize = 4;

fn ways() -> Vec<(&'static str, Options, usize)> {
    let signed = |signing| Options { sign: true, signing, ..Options::default() };
    let sealed = |ciphers| Options { seal: true, ciphers, ..Options::default() };
    vec![
        ("clear", Options::default(), 1),
        ("aes-gmac", signed(&[Algorithm::AesGmac]), 1),
        ("aes-cmac", signed(&[Algorithm::AesCmac]), 1),
        ("hmac-sha256", signed(&[Algorithm::HmacSha256]), 1),
        ("aes-128-ccm", sealed(&[Cipher::Aes128Ccm]), 1),
        ("aes-128-gcm", sealed(&[Cipher::Aes128Gcm]), 1),
        ("aes-256-ccm", sealed(&[Cipher::Aes256Ccm]), 1),
        ("aes-256-gcm", sealed(&[Cipher::Aes256Gcm]), 1),
        ("signed-by-four", signed(&[Algorithm::AesGmac]), SEVERAL),
        ("sealed-by-four", sealed(&[Cipher::Aes128Gcm]), SEVERAL),
    ]
}

fn marked(len: usize) -> Vec<u8> {
    MARKER.iter().copied().cycle().take(len).collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    match &args[..] {
        [list] if list == "--ways" => {
            ways().iter().for_each(|(name, ..)| println!("{name}"));
            Ok(())
        }
        [file, way] => {
            let found = ways().into_iter().find(|(name, ..)| name == way);
            let (_, options, connections) = found.ok_or_else(|| format!("no way {way}"))?;
            Ok(fs::write(file, transcript(options, connections).await?)?)
        }
        _ => Err("usage: transcript FILE WAY | transcript --ways".into()),
    }
}

/// Writes and reads files, and returns the lines of all connections, each prefixed with the number of its connection.
async fn transcript(options: Options, connections: usize) -> Result<String, Box<dyn Error>> {
    let (world, _dir) = with_alice(|_| ()).await;
    let recording = Arc::new(Recording::new(Iwarp::new(IwarpConfig::default())));
    let local = Local { rdma: Some(recording.clone()), ..Local::default() };
    let (at, name) = (world.running.smb_direct[0], "127.0.0.1");
    let options = Options { multichannel: connections > 1, ..options };
    let first = Smb::connect(at, true, (name, "data"), &alice(), options, &local).await?;
    let channels = Channels::new(first.clone());
    for _ in 1..connections {
        channels.add(first.bind(at, true, name, &alice(), &local).await?);
    }
    for (nth, size) in SIZES.into_iter().enumerate() {
        let file = first.create(&format!("file-{size}")).await?;
        let data = marked(size);
        let (one, other) = data.split_at(size / (nth + 2));
        for _ in 0..connections {
            let pieces = [buf(one), buf(other)];
            assert_eq!(usize::try_from(channels.write(&file, 0, &pieces).await?)?, size);
            let count = u32::try_from(size)?;
            let smb_reads = channels.by_any(async |smb: &Smb| {
                let into = vec![BufMut::heap(other.len()), BufMut::heap(one.len())];
                smb.read_into(&file, 0, count, into).await
            });
            let found: Vec<u8> = smb_reads.await?.iter().flat_map(|b| b.to_vec()).collect();
            assert!(found == data, "{size} bytes read back");
        }
        first.close(file).await?;
    }
    first.leave().await?;
    world.running.stop().await;
    let mut text = String::new();
    for (nth, tape) in recording.tapes().iter().enumerate() {
        tape.lines().lines().for_each(|line| text.push_str(&format!("{nth} {line}\n")));
    }
    Ok(text)
}
