//! Creates and opens the file of the store, and distinguishes damage from a first start.
//!
//! *Operation.* A new store is written under a temporary name and renamed, so a file named [`FILE`] is always complete. Then the
//! marker file [`MADE`] is created, which records that the folder has a store; a folder with [`MADE`] but no store has lost it.
//! Every start checks every page: the file is small, and a wrong record must be found before it is used.
//!
//! *Errors.* [`Error::Missing`], [`Error::Damaged`]: the store is left unchanged, and no new one is created.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use redb::{Database, DatabaseError, StorageError};

use crate::error::Error;
use crate::folder::{self, Folder};
use crate::format::{self, Format, builder};
use crate::header::HeadedFile;
use crate::names::{FILE, MADE};

const NEW: &str = "recovery.new";

/// Opens the store of a folder, or creates it at the first start.
pub(crate) fn open(folder: &dyn Folder) -> Result<Database, Error> {
    let at = |name: &str| folder.path().join(name);
    let is_there = |name: &str| folder.is_there(name).map_err(|e| Error::io(at(name), e));
    if !is_there(FILE)? {
        if is_there(MADE)? {
            return Err(Error::Missing(at(FILE)));
        }
        create(folder)?;
    }
    let db = sound(&at(FILE), || builder().create_with_backend(HeadedFile::open(folder)?))?;
    if !is_there(MADE)? {
        // A crash came between the two steps, or an administrator copied the store here.
        let made = folder.create(MADE).and_then(|made| made.sync_data());
        made.map_err(|e| Error::io(at(MADE), e))?;
        sync(folder)?;
    }
    Ok(db)
}

/// Opens a database and verifies all of its pages. `path` is for messages.
pub(crate) fn sound(
    path: &Path,
    open: impl FnOnce() -> Result<Database, DatabaseError>,
) -> Result<Database, Error> {
    let damaged = |why: String| Error::Damaged { path: path.to_owned(), why };
    // The database library may panic on damaged files; that must not end the process.
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
    match format::check_format(&db) {
        Ok(()) => Ok(db),
        Err(Format::Newer(format)) => Err(Error::Newer { path: path.to_owned(), format }),
        Err(Format::Other(why)) => Err(damaged(why)),
    }
}

fn refused(path: &Path, e: DatabaseError) -> Error {
    let path = path.to_owned();
    match e {
        DatabaseError::DatabaseAlreadyOpen => Error::InUse(path),
        DatabaseError::Storage(StorageError::Io(why)) if !is_damage(&why) => Error::io(path, why),
        other => Error::Damaged { path, why: other.to_string() },
    }
}

/// Recognizes redb's errors for a file that is too short or not a database.
fn is_damage(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it cannot be read").to_owned()
}

fn create(folder: &dyn Folder) -> Result<(), Error> {
    let new = folder.path().join(NEW);
    let file = folder.create(NEW).map_err(|e| Error::io(&new, e))?;
    let db =
        builder().create_with_backend(folder::AnyBackend(file)).map_err(|e| refused(&new, e))?;
    format::put_format(&db).map_err(|e| Error::commit(folder.path(), &e))?;
    drop(db);
    let path = folder.path().join(FILE);
    folder.rename(NEW, FILE).map_err(|e| Error::io(&path, e))?;
    sync(folder)
}

fn sync(folder: &dyn Folder) -> Result<(), Error> {
    folder.sync().map_err(|e| Error::io(folder.path(), e))
}
