//! The file of the store: how it comes about, how it is opened, and how damage is told from a first start.
//!
//! *Operation.* A store is made beside its place and renamed into it, so a file under [`FILE`] is always whole. Then [`MADE`] is
//! left, which says that the folder has one. A folder with [`MADE`] and no store has lost it. Every start checks every page:
//! the file is small, and a record that is wrong must be found before it is believed.
//!
//! *Errors.* [`Error::Missing`], [`Error::Damaged`]: nothing is made, repaired or thrown away.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use redb::{Database, DatabaseError, StorageError};

use crate::error::Error;
use crate::folder::{self, Folder};
use crate::format::{self, Format, builder};
use crate::header::Headed;
use crate::names::{FILE, MADE};

const NEW: &str = "recovery.new";

/// Opens the store of a folder, or makes it at the folder's first start.
pub(crate) fn open(folder: &dyn Folder) -> Result<Database, Error> {
    let at = |name: &str| folder.path().join(name);
    let is_there = |name: &str| folder.is_there(name).map_err(|e| Error::io(at(name), e));
    if !is_there(FILE)? {
        if is_there(MADE)? {
            return Err(Error::Missing(at(FILE)));
        }
        create(folder)?;
    }
    let db = sound(&at(FILE), || builder().create_with_backend(Headed::open(folder)?))?;
    if !is_there(MADE)? {
        // A crash came between the two, or the store was put here by hand.
        let made = folder.create(MADE).and_then(|made| made.sync_data());
        made.map_err(|e| Error::io(at(MADE), e))?;
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

/// What redb says of a file that is too short or no database at all.
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
    let db = builder().create_with_backend(folder::Any(file)).map_err(|e| refused(&new, e))?;
    format::put_format(&db).map_err(|e| Error::commit(folder.path(), &e))?;
    drop(db);
    let path = folder.path().join(FILE);
    folder.rename(NEW, FILE).map_err(|e| Error::io(&path, e))?;
    sync(folder)
}

fn sync(folder: &dyn Folder) -> Result<(), Error> {
    folder.sync().map_err(|e| Error::io(folder.path(), e))
}
