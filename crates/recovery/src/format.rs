//! The tables of the database, and the check that a database is a store.

use redb::{Builder, Database, ReadableDatabase, TableDefinition, TableError};

use crate::limits::CACHE_BYTES;
use crate::names::FORMAT_NOW;
use crate::record::Kind;

pub(crate) type Table = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// Table with the format version.
pub(crate) const FORMAT: TableDefinition<'static, &'static str, u64> =
    TableDefinition::new("format");

/// Returns the table for records of this kind.
pub(crate) fn table(kind: Kind) -> Table {
    TableDefinition::new(kind.name())
}

/// Marks a fresh database as a store.
pub(crate) fn put_format(db: &Database) -> Result<(), redb::Error> {
    let work = db.begin_write()?;
    work.open_table(FORMAT)?.insert("version", FORMAT_NOW)?;
    for kind in Kind::ALL {
        work.open_table(table(kind))?;
    }
    Ok(work.commit()?)
}

/// The reason why a database is not a store that this program can use.
#[derive(Debug)]
pub(crate) enum Format {
    /// A later version created it, in this format.
    Newer(u64),
    /// It is not a store, or cannot be read.
    Other(String),
}

/// Checks that the database is a store of a known format.
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

/// Returns the builder with this program's database settings.
pub(crate) fn builder() -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder
}
