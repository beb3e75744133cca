//! One request by the crate nfs-rs: `nfs-rs-client HOST UID VERSION REQUEST [PATH..]`. It reads what it writes from standard input.

use std::error::Error;
use std::io::{Read, Write, stdin, stdout};

use futures::TryStreamExt;
use nfs_rs::{Mount, OPEN_READ, Time, parse_url_and_mount, write_all};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PIECE: u32 = 64 << 10;
const MODE: u32 = 0o644;

async fn list(mount: &dyn Mount, path: &str) -> Result<()> {
    let found: Vec<_> = mount.readdir_path(path).await?.try_collect().await?;
    let names = found.into_iter().map(|entry| entry.file_name);
    let names = names.filter(|name| name != "." && name != "..").map(|name| name + "\0");
    Ok(stdout().write_all(names.collect::<String>().as_bytes())?)
}

async fn read(mount: &dyn Mount, path: &str) -> Result<()> {
    let file = mount.open_path(path, OPEN_READ).await?;
    let mut at = 0;
    loop {
        let piece = mount.read(file.fh.clone(), at, PIECE).await?;
        if piece.is_empty() {
            break;
        }
        stdout().write_all(&piece)?;
        at += piece.len() as u64;
    }
    Ok(mount.close(file.fh).await?)
}

async fn write(mount: &dyn Mount, path: &str) -> Result<()> {
    let mut data = Vec::new();
    stdin().read_to_end(&mut data)?;
    let file = mount.create_path(path, Some(MODE)).await?;
    write_all(mount, file.fh.clone(), 0, data.into()).await?;
    Ok(mount.close(file.fh).await?)
}

async fn set_mtime(mount: &dyn Mount, path: &str, seconds: u32) -> Result<()> {
    let when = || Some(Time { seconds, nseconds: 0 });
    Ok(mount.setattr_path(path, false, None, None, None, None, when(), when()).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [host, uid, version, request @ ..] = &words[..] else {
        return Err("nfs-rs-client HOST UID VERSION REQUEST [PATH..]".into());
    };
    let url = format!("nfs://{host}/data?version={version}&uid={uid}&gid={uid}");
    let mount = parse_url_and_mount(&url).await?;
    let mount = &*mount;
    match request {
        ["list", path] => list(mount, path).await?,
        ["read", path] => read(mount, path).await?,
        ["write", path] => write(mount, path).await?,
        ["rename", old, new] => mount.rename_path(old, new).await?,
        ["remove", path] => mount.remove_path(path).await?,
        ["mkdir", path] => drop(mount.mkdir_path(path, 0o755).await?),
        ["rmdir", path] => mount.rmdir_path(path).await?,
        ["mtime", path] => println!("{}", mount.getattr_path(path).await?.mtime.seconds),
        ["set-mtime", path, seconds] => set_mtime(mount, path, seconds.parse()?).await?,
        ["readlink", path] => println!("{}", mount.readlink_path(path).await?),
        ["link", old, new] => drop(mount.link_path(old, new).await?),
        _ => return Err(format!("no request {request:?}").into()),
    }
    Ok(mount.umount().await?)
}
