//! One request by the crate nfs3_client: `nfs3-client HOST UID VERSION REQUEST [PATH..]`. Data to write comes from standard input.

use std::error::Error;
use std::io::{Read, Write, stdin, stdout};

use nfs3_client::nfs3_types::nfs3::{
    CREATE3args, GETATTR3args, LINK3args, LOOKUP3args, MKDIR3args, Nfs3Option, Nfs3Result,
    READ3args, READDIRPLUS3args, READLINK3args, REMOVE3args, RENAME3args, RMDIR3args, SETATTR3args,
    WRITE3args, cookieverf3, createhow3, diropargs3, nfs_fh3, nfstime3, sattr3, sattrguard3,
    set_mtime, stable_how,
};
use nfs3_client::nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_client::{Nfs3Connection, Nfs3ConnectionBuilder};
use tokio::net::TcpStream;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PIECE: usize = 64 << 10;

fn done<T, E>(answer: Nfs3Result<T, E>) -> Result<T> {
    match answer {
        Nfs3Result::Ok(found) => Ok(found),
        Nfs3Result::Err((status, _)) => Err(format!("{status:?}").into()),
    }
}

struct Visit {
    to: Nfs3Connection<TokioIo<TcpStream>>,
}

impl Visit {
    async fn walk(&mut self, names: &[&str]) -> Result<nfs_fh3> {
        let mut at = self.to.root_nfs_fh3();
        for name in names {
            let what = diropargs3 { dir: at, name: name.as_bytes().into() };
            at = done(self.to.lookup(&LOOKUP3args { what }).await?)?.object;
        }
        Ok(at)
    }

    async fn file(&mut self, path: &str) -> Result<nfs_fh3> {
        self.walk(&path.split('/').collect::<Vec<_>>()).await
    }

    async fn place<'p>(&mut self, path: &'p str) -> Result<diropargs3<'p>> {
        let names: Vec<&str> = path.split('/').collect();
        let (name, folders) = names.split_last().ok_or("no name")?;
        Ok(diropargs3 { dir: self.walk(folders).await?, name: name.as_bytes().into() })
    }

    async fn list(&mut self, path: &str) -> Result<()> {
        let dir = self.file(path).await?;
        let (mut cookie, mut cookieverf, mut names) = (0, cookieverf3::default(), Vec::new());
        loop {
            let args = READDIRPLUS3args {
                dir: dir.clone(),
                cookie,
                cookieverf,
                dircount: 32 << 10,
                maxcount: 64 << 10,
            };
            let page = done(self.to.readdirplus(&args).await?)?;
            cookieverf = page.cookieverf;
            for entry in page.reply.entries.into_inner() {
                cookie = entry.cookie;
                names.push(entry.name.0.to_vec());
            }
            if page.reply.eof {
                break;
            }
        }
        names.retain(|name| name != b"." && name != b"..");
        names.iter_mut().for_each(|name| name.push(0));
        Ok(stdout().write_all(&names.concat())?)
    }

    async fn read(&mut self, path: &str) -> Result<()> {
        let file = self.file(path).await?;
        let mut offset = 0;
        loop {
            let args = READ3args { file: file.clone(), offset, count: PIECE as u32 };
            let piece = done(self.to.read(&args).await?)?;
            stdout().write_all(&piece.data)?;
            offset += u64::from(piece.count);
            if piece.eof {
                return Ok(());
            }
        }
    }

    async fn write(&mut self, path: &str) -> Result<()> {
        let mut data = Vec::new();
        stdin().read_to_end(&mut data)?;
        let attributes = sattr3 { mode: Nfs3Option::Some(0o644), ..sattr3::default() };
        let args =
            CREATE3args { where_: self.place(path).await?, how: createhow3::UNCHECKED(attributes) };
        done(self.to.create(&args).await?)?;
        let file = self.file(path).await?;
        for (n, piece) in data.chunks(PIECE).enumerate() {
            let args = WRITE3args {
                file: file.clone(),
                offset: (n * PIECE) as u64,
                count: piece.len() as u32,
                stable: stable_how::FILE_SYNC,
                data: Opaque::borrowed(piece),
            };
            if done(self.to.write(&args).await?)?.count as usize != piece.len() {
                return Err("a short write".into());
            }
        }
        Ok(())
    }

    async fn rename(&mut self, old: &str, new: &str) -> Result<()> {
        let args = RENAME3args { from: self.place(old).await?, to: self.place(new).await? };
        done(self.to.rename(&args).await?).map(drop)
    }

    async fn link(&mut self, old: &str, new: &str) -> Result<()> {
        let args = LINK3args { file: self.file(old).await?, link: self.place(new).await? };
        done(self.to.link(&args).await?).map(drop)
    }

    async fn mtime(&mut self, path: &str) -> Result<()> {
        let object = self.file(path).await?;
        let found = done(self.to.getattr(&GETATTR3args { object }).await?)?;
        println!("{}", found.obj_attributes.mtime.seconds);
        Ok(())
    }

    async fn set_mtime(&mut self, path: &str, seconds: u32) -> Result<()> {
        let when = set_mtime::SET_TO_CLIENT_TIME(nfstime3 { seconds, nseconds: 0 });
        let new_attributes = sattr3 { mtime: when, ..sattr3::default() };
        let args = SETATTR3args {
            object: self.file(path).await?,
            new_attributes,
            guard: sattrguard3::None,
        };
        done(self.to.setattr(&args).await?).map(drop)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [host, uid, _version, request @ ..] = &words[..] else {
        return Err("nfs3-client HOST UID VERSION REQUEST [PATH..]".into());
    };
    let id = uid.parse()?;
    let machine = Opaque::borrowed(b"third");
    let credential = auth_unix { stamp: 1, machinename: machine, uid: id, gid: id, gids: vec![] };
    let builder = Nfs3ConnectionBuilder::new(TokioConnector, *host, "/data");
    let to = builder.credential(opaque_auth::auth_unix(&credential)).mount().await?;
    let mut visit = Visit { to };
    match request {
        ["list", path] => visit.list(path).await?,
        ["read", path] => visit.read(path).await?,
        ["write", path] => visit.write(path).await?,
        ["rename", old, new] => visit.rename(old, new).await?,
        ["remove", path] => {
            let object = visit.place(path).await?;
            done(visit.to.remove(&REMOVE3args { object }).await?).map(drop)?;
        }
        ["mkdir", path] => {
            let where_ = visit.place(path).await?;
            let attributes = sattr3 { mode: Nfs3Option::Some(0o755), ..sattr3::default() };
            done(visit.to.mkdir(&MKDIR3args { where_, attributes }).await?).map(drop)?;
        }
        ["rmdir", path] => {
            let object = visit.place(path).await?;
            done(visit.to.rmdir(&RMDIR3args { object }).await?).map(drop)?;
        }
        ["mtime", path] => visit.mtime(path).await?,
        ["set-mtime", path, seconds] => visit.set_mtime(path, seconds.parse()?).await?,
        ["readlink", path] => {
            let symlink = visit.file(path).await?;
            let found = done(visit.to.readlink(&READLINK3args { symlink }).await?)?;
            println!("{}", String::from_utf8_lossy(&found.data.0));
        }
        ["link", old, new] => visit.link(old, new).await?,
        _ => return Err(format!("no request {request:?}").into()),
    }
    Ok(visit.to.unmount().await?)
}
