//! Handles that survive the loss of a connection or a restart of the server (MS-SMB2 sections 3.2.4.3.8 and 3.2.4.4).

use smb_proto::smb2::context::{DHANDLE_FLAG_PERSISTENT, DurableV2, ReconnectV2};
use smb_proto::smb2::create::Disposition;
use smb_proto::smb2::file_id::FileId;

use super::Smb;
use super::caching::{Caching, OpenHow};
use super::files::SmbFile;
use crate::error::{Error, Result};

/// Permanent identifier of a create.
type CreateGuid = [u8; 16];

impl Smb {
    /// Opens or creates a file with a persistent handle, which survives a server restart; shares all access. Returns the same as
    /// [`Smb::open_cached`]; [`Error::Protocol`] if the server grants a lesser handle.
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

    /// Opens a file with a durable handle, which survives lost connections but not a server restart. Returns the same as
    /// [`Smb::open_cached`]; [`Error::Protocol`] if the server does not grant it.
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

    /// Reconnects a persistent handle after its connection or server was lost. Without a `file`, the response to the create was
    /// lost too, and the server finds the handle by the identifier of the create.
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
