//! Handles that outlive a connection and the server (MS-SMB2 sections 3.2.4.3.8 and 3.2.4.4).

use smb_proto::smb2::context::{DHANDLE_FLAG_PERSISTENT, DurableV2, ReconnectV2};
use smb_proto::smb2::create::Disposition;
use smb_proto::smb2::file_id::FileId;

use super::Smb;
use super::caching::{Caching, OpenHow};
use super::files::SmbFile;
use crate::error::{Error, Result};

/// Names a create for ever.
type CreateGuid = [u8; 16];

impl Smb {
    /// Opens or makes a file by a handle that outlives the server; others may open it too. Gives the file and what may be cached,
    /// as [`Smb::open_cached`]. [`Error::Protocol`] when the server promises less.
    pub async fn open_persistent(
        &self,
        name: &str,
        guid: CreateGuid,
        caching: Caching,
    ) -> Result<(SmbFile, u32)> {
        let context = DurableV2 { timeout: 0, flags: DHANDLE_FLAG_PERSISTENT, guid }.context();
        let how = OpenHow { disposition: Disposition::OpenIf, ..OpenHow::WRITE.cached(caching) };
        let (file, granted, told) = self.open_with(name, &how, Some(context)).await?;
        match told.durable_v2 {
            Some((_, flags)) if flags & DHANDLE_FLAG_PERSISTENT != 0 => Ok((file, granted)),
            _ => {
                self.close(file).await?;
                Err(Error::Protocol("the server keeps no persistent handles here".into()))
            }
        }
    }

    /// Opens by a handle that outlives its connections and not the server. Gives what [`Smb::open_cached`] does;
    /// [`Error::Protocol`] when the server does not keep it.
    pub async fn open_durable(
        &self,
        name: &str,
        guid: CreateGuid,
        how: &OpenHow,
    ) -> Result<(SmbFile, u32)> {
        let context = DurableV2 { timeout: 0, flags: 0, guid }.context();
        let (file, granted, told) = self.open_with(name, how, Some(context)).await?;
        if told.durable_v2.is_none() {
            self.close(file).await?;
            return Err(Error::Protocol("the server does not keep this handle".into()));
        }
        Ok((file, granted))
    }

    /// Takes up a persistent handle after its connection or its server was lost. Without a `file` the answer to its create was lost
    /// too, and the server knows it by the name of the create.
    pub async fn take_up(
        &self,
        name: &str,
        guid: CreateGuid,
        file: Option<&SmbFile>,
        caching: Caching,
    ) -> Result<(SmbFile, u32)> {
        let unknown = FileId { persistent: 0, volatile: 0 };
        let file = file.map_or(unknown, |f| f.id);
        let context = ReconnectV2 { file, guid, flags: DHANDLE_FLAG_PERSISTENT }.context();
        let how = OpenHow::WRITE.cached(caching);
        let (file, granted, _) = self.open_with(name, &how, Some(context)).await?;
        Ok((file, granted))
    }
}
