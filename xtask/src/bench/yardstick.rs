//! Measures a reference rate: short programs move the same file over the same loopback and do no other work.
//!
//! `put` receives the file and overwrites the existing one, like a server; it receives and writes alternately, or by two threads,
//! whichever is faster. `get` lets the kernel send the pages of the file (`sendfile`). The other side reads the source and sends
//! it, or receives and discards the data.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::sh::Result;

/// Bytes that are moved at a time.
const PIECE: usize = 1 << 20;
const ROUNDS: usize = 5;

/// Bytes per second, the best of some rounds.
pub(super) struct Yardstick {
    pub(super) put: f64,
    pub(super) get: f64,
}

/// Sends `source` to `target`, then sends `target` to a reader that discards it.
pub(super) fn measure(source: &str, target: &str) -> Result<Yardstick> {
    let bytes = fs::metadata(source).map_err(|e| format!("{source}: {e}"))?.len();
    // A file's length is far below 2^52.
    #[allow(clippy::cast_precision_loss)]
    let rate = |took: Duration| bytes as f64 / took.as_secs_f64();
    let moved = || -> io::Result<Yardstick> {
        let mut best = Yardstick { put: 0.0, get: 0.0 };
        fs::copy(source, target)?;
        for _ in 0..ROUNDS {
            for take in [by_turns, by_two] {
                best.put = best.put.max(rate(put(source, target, take)?));
            }
            best.get = best.get.max(rate(get(target)?));
        }
        Ok(best)
    };
    let reached = moved().map_err(|e| format!("{source}, {target}: {e}"));
    fs::remove_file(target).map_err(|e| format!("{target}: {e}"))?;
    reached
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    Ok((one, listener.accept()?.0))
}

fn put(
    source: &str,
    target: &str,
    take: fn(TcpStream, &File) -> io::Result<()>,
) -> io::Result<Duration> {
    let (mut client, server) = pair()?;
    let mut source = File::open(source)?;
    let began = Instant::now();
    let file = OpenOptions::new().write(true).truncate(true).open(target)?;
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut piece = vec![0; PIECE];
            loop {
                match source.read(&mut piece)? {
                    0 => return Ok(()),
                    n => client.write_all(&piece[..n])?,
                }
            }
        });
        let taken = take(server, &file);
        sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender ended")))?;
        taken
    })?;
    Ok(began.elapsed())
}

/// Fills the piece from the stream, up to the end of the data.
fn fill(stream: &mut TcpStream, piece: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < piece.len() {
        match stream.read(&mut piece[have..])? {
            0 => break,
            n => have += n,
        }
    }
    Ok(have)
}

fn by_turns(mut server: TcpStream, file: &File) -> io::Result<()> {
    let (mut piece, mut at) = (vec![0; PIECE], 0);
    loop {
        match fill(&mut server, &mut piece)? {
            0 => return Ok(()),
            n => file.write_all_at(&piece[..n], at)?,
        }
        at += PIECE as u64;
    }
}

fn by_two(mut server: TcpStream, file: &File) -> io::Result<()> {
    let (full, fulls) = mpsc::sync_channel::<(Vec<u8>, usize)>(4);
    let (empty, empties) = mpsc::channel();
    for _ in 0..4 {
        empty.send(vec![0; PIECE]).map_err(io::Error::other)?;
    }
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut at = 0;
            for (piece, n) in fulls {
                file.write_all_at(&piece[..n], at)?;
                at += PIECE as u64;
                // The reader has ended when the last piece is written.
                let _ = empty.send(piece);
            }
            Ok(())
        });
        while let Ok(mut piece) = empties.recv() {
            let n = fill(&mut server, &mut piece)?;
            if n == 0 || full.send((piece, n)).is_err() {
                break;
            }
        }
        drop(full);
        writer.join().unwrap_or_else(|_| Err(io::Error::other("the writer ended")))
    })
}

fn get(target: &str) -> io::Result<Duration> {
    let (mut client, mut server) = pair()?;
    let mut file = File::open(target)?;
    let began = Instant::now();
    thread::scope(|scope| {
        // The kernel copies from a file to a socket.
        let sender = scope.spawn(move || io::copy(&mut file, &mut server));
        let mut piece = vec![0; PIECE];
        while client.read(&mut piece)? > 0 {}
        sender.join().unwrap_or_else(|_| Err(io::Error::other("the sender ended")))
    })?;
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_unchanged() {
        let folder =
            std::env::temp_dir().join(format!("headgate-yardstick-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let place = |name: &str| folder.join(name).display().to_string();
        let (source, target) = (place("source"), place("target"));
        let data: Vec<u8> = (0u32..1 << 20).flat_map(u32::to_le_bytes).chain([1, 2]).collect();
        fs::write(&source, &data).unwrap();
        for take in [by_turns, by_two] {
            fs::write(&target, b"longer ago").unwrap();
            put(&source, &target, take).unwrap();
            assert!(fs::read(&target).unwrap() == data, "something else arrived");
        }
        let reached = measure(&source, &target).unwrap();
        assert!(reached.put > 0.0 && reached.get > 0.0);
        assert!(!fs::exists(&target).unwrap());
        fs::remove_dir_all(&folder).unwrap();
    }
}
