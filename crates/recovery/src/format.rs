//! How records lie in the database, and whether a database is a store.

use redb::{Builder, Database, ReadableDatabase, TableDefinition, TableError};

use crate::limits::CACHE_BYTES;
use crate::names::FORMAT_NOW;
use crate::record::Kind;

pub(crate) type Table = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// Says how the rest is to be read.
pub(crate) const FORMAT: TableDefinition<'static, &'static str, u64> =
    TableDefinition::new("format");

/// Where records of this sort are.
pub(crate) fn table(kind: Kind) -> Table {
    TableDefinition::new(kind.name())
}

/// Makes a fresh database a store.
pub(crate) fn put_format(db: &Database) -> Result<(), redb::Error> {
    let work = db.begin_write()?;
    work.open_table(FORMAT)?.insert("version", FORMAT_NOW)?;
    for kind in Kind::ALL {
        work.open_table(table(kind))?;
    }
    Ok(work.commit()?)
}

/// Why a database is no store for this program.
#[derive(Debug)]
pub(crate) enum Format {
    /// A later program made it, in this format.
    Newer(u64),
    /// It is none, or cannot be read.
    Other(String),
}

/// It is a store, and of a format that is known here. The error is for people.
pub(crate) fn check_format(db: &Database) -> Result<(), Format> {
    let version = || -> Result<Option<u64>, redb::Error> {
        let work = db.begin_read()?;
        let format = match work.open_table(FORMAT) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            other => other?,
        };
        Ok(format.get("version")?.map(|v| v.value()))
    };
    match version().map_err(|e| Format::Other(e.to_string()))? {
        Some(FORMAT_NOW) => Ok(()),
        Some(newer) if newer > FORMAT_NOW => Err(Format::Newer(newer)),
        Some(other) => Err(Format::Other(format!("its format is {other}"))),
        None => Err(Format::Other("it is no store of headgate".into())),
    }
}

/// Opens databases as this program does.
pub(crate) fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}
