//! One request by the crate smb: `smb-client HOST USER PASSWORD REQUEST [PATH..]`. It reads what it writes from standard input.
//! With the word `compressed` or `compressed-sealed` before the request, its messages and those of the server may be compressed.

use std::error::Error;
use std::io::{Read, Write, stdin, stdout};
use std::str::FromStr;
use std::sync::Arc;

use futures::TryStreamExt;
use smb::{
    Client, ClientConfig, CreateOptions, Directory, File, FileAccessMask, FileAttributes,
    FileBasicInformation, FileCreateArgs, FileDirectoryInformation, FileDispositionInformation,
    FileRenameInformation, GetLen, ReadAt, Resource, UncPath, WriteAt,
    binrw_util::prelude::FileTime, connection::EncryptionMode,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PIECE: usize = 64 << 10;
/// From 1601 to 1970, in seconds.
const EPOCH: i64 = 11_644_473_600;

struct Visit {
    client: Client,
    share: UncPath,
}

impl Visit {
    async fn open(&self, path: &str, args: FileCreateArgs) -> Result<Resource> {
        Ok(self.client.create_file(&self.share.clone().with_path(&windows(path)), &args).await?)
    }

    async fn existing(&self, path: &str, access: FileAccessMask) -> Result<Resource> {
        self.open(path, FileCreateArgs::make_open_existing(access)).await
    }

    async fn list(&self, path: &str) -> Result<()> {
        let access = FileAccessMask::new().with_generic_read(true);
        let folder = Arc::new(self.existing(path, access).await?.unwrap_dir());
        let found: Vec<FileDirectoryInformation> =
            Directory::query(&folder, "*").await?.try_collect().await?;
        let names = found.iter().map(|entry| entry.file_name.to_string());
        let names = names.filter(|name| name != "." && name != "..").map(|name| name + "\0");
        stdout().write_all(names.collect::<String>().as_bytes())?;
        Ok(folder.close().await?)
    }

    async fn read(&self, path: &str) -> Result<()> {
        let file =
            self.existing(path, FileAccessMask::new().with_generic_read(true)).await?.unwrap_file();
        let (length, mut at, mut piece) = (file.get_len().await?, 0, vec![0; PIECE]);
        while at < length {
            let read = file.read_at(&mut piece, at).await?;
            stdout().write_all(&piece[..read])?;
            at += read as u64;
        }
        Ok(file.close().await?)
    }

    async fn write(&self, path: &str) -> Result<()> {
        let mut data = Vec::new();
        stdin().read_to_end(&mut data)?;
        let args = FileCreateArgs::make_overwrite(FileAttributes::new(), CreateOptions::new());
        let file: File = self.open(path, args).await?.unwrap_file();
        let mut at = 0;
        while at < data.len() {
            let end = data.len().min(at + PIECE);
            at += file.write_at(&data[at..end], at as u64).await?;
        }
        Ok(file.close().await?)
    }

    async fn rename(&self, old: &str, new: &str) -> Result<()> {
        let name = windows(new).as_str().into();
        let info = FileRenameInformation {
            replace_if_exists: false.into(),
            root_directory: 0,
            file_name: name,
        };
        let found = self.existing(old, FileAccessMask::new().with_delete(true)).await?;
        match found {
            Resource::File(file) => (file.set_info(info).await?, file.close().await?),
            Resource::Directory(folder) => (folder.set_info(info).await?, folder.close().await?),
            Resource::Pipe(_) => return Err("a pipe".into()),
        };
        Ok(())
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let gone = || FileDispositionInformation { delete_pending: true.into() };
        let found = self.existing(path, FileAccessMask::new().with_delete(true)).await?;
        match found {
            Resource::File(file) => (file.set_info(gone()).await?, file.close().await?),
            Resource::Directory(folder) => (folder.set_info(gone()).await?, folder.close().await?),
            Resource::Pipe(_) => return Err("a pipe".into()),
        };
        Ok(())
    }

    async fn mkdir(&self, path: &str) -> Result<()> {
        let attributes = FileAttributes::new().with_directory(true);
        let args = FileCreateArgs::make_create_new(
            attributes,
            CreateOptions::new().with_directory_file(true),
        );
        Ok(self.open(path, args).await?.unwrap_dir().close().await?)
    }

    async fn mtime(&self, path: &str) -> Result<()> {
        let access = FileAccessMask::new().with_file_read_attributes(true);
        let file = self.existing(path, access).await?.unwrap_file();
        let found: FileBasicInformation = file.query_info().await?;
        println!("{}", (*found.last_write_time / 10_000_000) as i64 - EPOCH);
        Ok(file.close().await?)
    }

    async fn set_mtime(&self, path: &str, seconds: i64) -> Result<()> {
        let access = FileAccessMask::new().with_file_write_attributes(true);
        let file = self.existing(path, access).await?.unwrap_file();
        let when = FileTime::from((seconds + EPOCH) as u64 * 10_000_000);
        let info = FileBasicInformation {
            creation_time: FileTime::ZERO,
            last_access_time: FileTime::ZERO,
            last_write_time: when,
            change_time: FileTime::ZERO,
            file_attributes: FileAttributes::new(),
        };
        file.set_info(info).await?;
        Ok(file.close().await?)
    }
}

fn windows(path: &str) -> String {
    path.replace('/', "\\")
}

// A listing of this crate loses its wake-up, and never ends, where its reader runs beside it on another thread.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [host, user, password, request @ ..] = &words[..] else {
        return Err("smb-client HOST USER PASSWORD REQUEST [PATH..]".into());
    };
    let mut config = ClientConfig::default();
    let (is_compressed, is_sealed, request) = match request {
        ["compressed", rest @ ..] => (true, false, rest),
        ["compressed-sealed", rest @ ..] => (true, true, rest),
        rest => (false, false, rest),
    };
    config.connection.compression_enabled = is_compressed;
    if is_sealed {
        config.connection.encryption_mode = EncryptionMode::Required;
    }
    let client = Client::new(config);
    let share = UncPath::from_str(&format!("\\\\{host}\\data"))?;
    client.share_connect(&share, user, password.to_string()).await?;
    let visit = Visit { client, share };
    match request {
        ["list", path] => visit.list(path).await,
        ["read", path] => visit.read(path).await,
        ["write", path] => visit.write(path).await,
        ["rename", old, new] => visit.rename(old, new).await,
        ["remove" | "rmdir", path] => visit.remove(path).await,
        ["mkdir", path] => visit.mkdir(path).await,
        ["mtime", path] => visit.mtime(path).await,
        ["set-mtime", path, seconds] => visit.set_mtime(path, seconds.parse()?).await,
        _ => Err(format!("no request {request:?}").into()),
    }
}
