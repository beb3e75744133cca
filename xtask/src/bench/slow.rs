//! Measures reads of compressed data over slow links: a veth pair between two network namespaces, limited by `tc tbf`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::smb::{PASSWORD, Ports, USER, give_to_user, ours_at};
use super::{Folder, SLOW_PART, table_of_the_machine};
use crate::lab::gateway;
use crate::sh::{Result, output, run, target_dir};

const PORTS: Ports = Ports { smb: 22445, direct: 22446, nfs: 22049, nfs_rdma: 22050 };
/// The namespace of the client, and the addresses of both ends.
const NAMESPACE: &str = "client";
const SERVER: &str = "10.78.0.1";
const CLIENT: &str = "10.78.0.2";
const ROUNDS: usize = 2;

/// A limit of the link.
struct Link {
    name: &'static str,
    rate: &'static str,
    /// Bytes that may pass at once: enough for the timer of the kernel.
    burst: &'static str,
    /// Size of each file, so that a plain read takes five to eleven seconds.
    bytes: u64,
}

const LINKS: [Link; 2] = [
    Link { name: "100 Mbit/s", rate: "100mbit", burst: "128kb", bytes: 128 << 20 },
    Link { name: "1 Gbit/s", rate: "1gbit", burst: "1mb", bytes: 512 << 20 },
];
/// What the client offers, and its name in the table.
const HOW: [(&str, &str); 4] =
    [("off", "plain"), ("lz77", "LZ77"), ("huffman", "LZ77+Huffman"), ("lz4", "LZ4")];
/// The parts of an image with files in it, in fourths.
const FULL: u64 = 3;
/// Larger files would make an image of few of them.
const FILE_MAX: u64 = 4 << 20;

/// Builds the client, which is a separate program.
pub(super) fn build() -> Result<()> {
    run(&["cargo", "build", "--release", "--locked", "-p", "client", "--example", "fetch"])
}

/// Measures, and returns the part of the document.
pub(super) fn inside() -> Result<String> {
    run(&["ip", "link", "set", "lo", "up"])?;
    // The names of network namespaces are here.
    run(&["mount", "-t", "tmpfs", "tmpfs", "/run"])?;
    // Inherited by the server and by the client.
    output(&["chrt", "--rr", "--pid", "20", &std::process::id().to_string()])?;
    let folder = Folder::new("/tmp/headgate-bench-slow")?;
    let files = Folder::new("/dev/shm/headgate-bench-1")?;
    give_to_user(&files)?;
    let mut text = format!(
        "{SLOW_PART}\nWritten by `cargo xtask bench slow`: a file is read by SMB 3.1.1 with this project's client, 1 MiB at a \
         time, eight at once, over a\nveth pair that `tc tbf` limits; no delay is added. In turns, the best of {ROUNDS} rounds. \
         \"Text\" is the source text of this\nrepository, repeated up to the size; each message is compressed by itself, so \
         that repetitions do not help. \"Image\" is an ext4 file\nsystem made by `mkfs.ext4 -d` with files of this host's `/usr` \
         in three fourths of it, chosen by a hash of their names; the rest is\nfree. Megabytes of the file in a second, their \
         ratio to a read without compression, and what travelled of 100 bytes. The client has\none address, so the server \
         compresses with half of the processors; both share these, at a real-time priority.\n\n{}",
        table_of_the_machine("headgate itself")?
    );
    join()?;
    let program = Command::new(gateway::program());
    let server = ours_at(&["127.0.0.1", SERVER], program, &folder, &files, PORTS)?;
    for link in &LINKS {
        println!("{}", link.name);
        limit(link)?;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n## {}, files of {} MiB\n\n| file | plain, MB/s | codec | MB/s | ratio | of 100 bytes |\n\
             |---|---:|---|---:|---:|---:|\n",
            link.name,
            link.bytes >> 20
        );
        for (name, make) in [("text", source_text as Make), ("image", image)] {
            let original = files.0.join(name);
            make(&folder, &original, link.bytes)?;
            text.push_str(&rows(name, &measure(name, &original)?, link.bytes));
            fs::remove_file(&original).map_err(|e| format!("{name}: {e}"))?;
        }
    }
    drop(server);
    Ok(text)
}

/// Makes a file of this size.
type Make = fn(&Folder, &Path, u64) -> Result<()>;

/// Makes the client's namespace and the link to it.
fn join() -> Result<()> {
    run(&["ip", "netns", "add", NAMESPACE])?;
    run(&[
        "ip", "link", "add", "slow0", "type", "veth", "peer", "name", "slow1", "netns", NAMESPACE,
    ])?;
    run(&["ip", "addr", "add", &format!("{SERVER}/24"), "dev", "slow0"])?;
    run(&["ip", "link", "set", "slow0", "up"])?;
    let theirs = format!("{CLIENT}/24");
    run(&["ip", "-n", NAMESPACE, "addr", "add", &theirs, "dev", "slow1"])?;
    run(&["ip", "-n", NAMESPACE, "link", "set", "slow1", "up"])
}

/// Limits what the server sends.
fn limit(link: &Link) -> Result<()> {
    let Link { rate, burst, .. } = link;
    let how = ["root", "tbf", "rate", rate, "burst", burst, "latency", "50ms"];
    run(&[&["tc", "qdisc", "replace", "dev", "slow0"], &how[..]].concat())
}

/// The best of some reads: seconds, and bytes that the connection received.
#[derive(Clone, Copy)]
struct Best {
    seconds: f64,
    wire: f64,
}

/// Reads the file in each way.
fn measure(name: &str, original: &Path) -> Result<[Best; HOW.len()]> {
    let program = target_dir().join("release/examples/fetch").display().to_string();
    let (at, original) = (format!("{SERVER}:{}", PORTS.smb), original.display().to_string());
    let mut all = [Best { seconds: f64::INFINITY, wire: f64::NAN }; HOW.len()];
    for _ in 0..ROUNDS {
        for ((how, _), best) in HOW.into_iter().zip(&mut all) {
            let client = ["ip", "netns", "exec", NAMESPACE, &program];
            let what = [&*at, "share", USER, PASSWORD, name, &original, how];
            let said = output(&[&client[..], &what].concat())?;
            let numbers: Vec<f64> = said.split_whitespace().flat_map(str::parse).collect();
            let [seconds, wire] = numbers[..] else { return Err(format!("fetch: {said}")) };
            if seconds < best.seconds {
                *best = Best { seconds, wire };
            }
        }
    }
    Ok(all)
}

/// Writes a row for each codec.
fn rows(name: &str, all: &[Best; HOW.len()], bytes: u64) -> String {
    let mut text = String::new();
    let [plain, codecs @ ..] = all;
    let rate = |best: &Best| bytes as f64 / best.seconds / 1e6;
    for ((_, codec), best) in HOW.into_iter().skip(1).zip(codecs) {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {name} | {:.1} | {codec} | {:.1} | **{:.2}** | {:.1} |",
            rate(plain),
            rate(best),
            plain.seconds / best.seconds,
            best.wire * 100.0 / bytes as f64
        );
    }
    text
}

/// Makes a file of the source text of this repository.
fn source_text(_folder: &Folder, path: &Path, bytes: u64) -> Result<()> {
    let listed = output(&["git", "ls-files", "*.rs", "*.py", "*.md"])?;
    let mut all = Vec::new();
    for name in listed.lines() {
        all.extend(fs::read(name).map_err(|e| format!("{name}: {e}"))?);
    }
    let failed = |e| format!("{}: {e}", path.display());
    let mut file = File::create(path).map_err(failed)?;
    let mut left = usize::try_from(bytes).map_err(|e| e.to_string())?;
    while left > 0 {
        let part = &all[..left.min(all.len())];
        if part.is_empty() {
            return Err("there is no source text".into());
        }
        file.write_all(part).map_err(failed)?;
        left -= part.len();
    }
    Ok(())
}

/// Makes an image of a file system with files of this host.
fn image(folder: &Folder, path: &Path, bytes: u64) -> Result<()> {
    let mut found = Vec::new();
    for top in ["/usr/bin", "/usr/lib", "/usr/share"] {
        list(Path::new(top), &mut found);
    }
    found.sort_by_key(|(path, _)| {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        hasher.finish()
    });
    let content = PathBuf::from(folder.join("content"));
    let _ = fs::remove_dir_all(&content);
    fs::create_dir_all(&content).map_err(|e| format!("{}: {e}", content.display()))?;
    let mut left = bytes / 4 * FULL;
    for (n, (from, len)) in found.iter().enumerate() {
        // A file takes whole blocks, and an inode.
        let taken = len.next_multiple_of(4096) + 256;
        if taken < left {
            left -= taken;
            let to = content.join(n.to_string());
            fs::copy(from, &to).map_err(|e| format!("{}: {e}", from.display()))?;
        }
    }
    let failed = |e| format!("{}: {e}", path.display());
    File::create(path).and_then(|file| file.set_len(bytes)).map_err(failed)?;
    let (content, image) = (content.display().to_string(), path.display().to_string());
    let inodes =
        (found.len() + 16).min(usize::try_from(bytes >> 12).unwrap_or(usize::MAX)).to_string();
    output(&["mkfs.ext4", "-q", "-F", "-N", &inodes, "-d", &content, &image])?;
    fs::remove_dir_all(&content).map_err(|e| format!("{content}: {e}"))
}

/// Adds the regular files below a folder, with their sizes. Does not follow symbolic links.
fn list(folder: &Path, found: &mut Vec<(PathBuf, u64)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            list(&entry.path(), found);
        } else if kind.is_file() {
            let len = entry.metadata().map_or(0, |m| m.len());
            if (1..=FILE_MAX).contains(&len) {
                found.push((entry.path(), len));
            }
        }
    }
}
