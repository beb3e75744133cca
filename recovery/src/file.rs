//! The file of the store: how it comes about, how it is opened, and how damage is told from a first start.
//!
//! *Operation.* A store is made beside its place and renamed into it, so a file under [`FILE`] is always whole. Then [`MADE`] is
//! left, which says that the folder has one. A folder with [`MADE`] and no store has lost it. Every start checks every page:
//! the file is small, and a record that is wrong must be found before it is believed.
//!
//! *Errors.* [`Error::Missing`], [`Error::Damaged`]: nothing is made, repaired or thrown away.

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use redb::{Builder, Database, DatabaseError, StorageError};

use crate::error::Error;
use crate::header::Headed;
use crate::limits::CACHE_BYTES;
use crate::writer;

/// Name of the store in the state folder.
pub const FILE: &str = "recovery.redb";
/// Name of the file that says that the folder has a store.
pub const MADE: &str = "recovery.made";

const NEW: &str = "recovery.new";

/// Opens the store of a folder, or makes it at the folder's first start.
pub(crate) fn open(folder: &Path) -> Result<Database, Error> {
    let (path, made) = (folder.join(FILE), folder.join(MADE));
    let is_there = |p: &Path| p.try_exists().map_err(|e| Error::io(p, e));
    if !is_there(&path)? {
        if is_there(&made)? {
            return Err(Error::Missing(path));
        }
        create(folder)?;
    }
    let db = sound(&path, || builder().create_with_backend(Headed::open(&path)?))?;
    if !is_there(&made)? {
        // A crash came between the two, or the store was put here by hand.
        private(&made).and_then(|f| f.sync_all()).map_err(|e| Error::io(&made, e))?;
        sync(folder)?;
    }
    Ok(db)
}

/// Opens a database that must be whole, and checks all of it. `path` is for messages.
pub(crate) fn sound(
    path: &Path,
    open: impl FnOnce() -> Result<Database, DatabaseError>,
) -> Result<Database, Error> {
    let damaged = |why: String| Error::Damaged { path: path.to_owned(), why };
    // Reading a damaged file may fail in ways that its library did not foresee; none of them is a reason to end the process.
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let mut db = open()?;
        let sound = db.check_integrity()?;
        Ok((db, sound))
    }));
    let (db, is_sound) = match checked {
        Ok(checked) => checked.map_err(|e| refused(path, e))?,
        Err(panic) => return Err(damaged(words(&*panic))),
    };
    if !is_sound {
        return Err(damaged("its pages do not agree with each other".into()));
    }
    writer::check_format(&db).map_err(damaged)?;
    Ok(db)
}

fn refused(path: &Path, e: DatabaseError) -> Error {
    let path = path.to_owned();
    match e {
        DatabaseError::DatabaseAlreadyOpen => Error::InUse(path),
        DatabaseError::Storage(StorageError::Io(why)) if !is_damage(&why) => Error::io(path, why),
        other => Error::Damaged { path, why: other.to_string() },
    }
}

/// What redb says of a file that is too short or no database at all.
fn is_damage(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it cannot be read").to_owned()
}

pub(crate) fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn create(folder: &Path) -> Result<(), Error> {
    let new = folder.join(NEW);
    let file = private(&new).map_err(|e| Error::io(&new, e))?;
    let db = builder().create_file(file).map_err(|e| refused(&new, e))?;
    writer::put_format(&db).map_err(|e| Error::commit(folder, &e))?;
    drop(db);
    let path = folder.join(FILE);
    fs::rename(&new, &path).map_err(|e| Error::io(&path, e))?;
    sync(folder)
}

/// A fresh file that nobody else may read.
fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn sync(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|d| d.sync_all()).map_err(|e| Error::io(folder, e))
}
