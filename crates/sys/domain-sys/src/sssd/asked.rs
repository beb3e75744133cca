//! The interface to the library. Tests implement it as well.

use std::ffi::CStr;
use std::time::Duration;

use crate::error::Error;
use crate::types::{Kind, Number};

/// The questions of the library, each with a time limit. An answer is empty also while sssd does not run.
pub(crate) trait Asked {
    fn sid_of_name(
        &mut self,
        name: &CStr,
        limit: Duration,
    ) -> Result<Option<(String, Kind)>, Error>;
    fn sid_of_uid(&mut self, uid: u32, limit: Duration) -> Result<Option<(String, Kind)>, Error>;
    fn sid_of_gid(&mut self, gid: u32, limit: Duration) -> Result<Option<(String, Kind)>, Error>;
    fn name_of_sid(&mut self, sid: &CStr, limit: Duration)
    -> Result<Option<(String, Kind)>, Error>;
    fn number_of_sid(&mut self, sid: &CStr, limit: Duration) -> Result<Option<Number>, Error>;
    /// The gid of a user's primary group.
    fn primary_group(&mut self, user: &CStr, limit: Duration) -> Result<Option<u32>, Error>;
    /// The gids of a user's groups, with this one.
    fn groups(
        &mut self,
        user: &CStr,
        primary: u32,
        limit: Duration,
    ) -> Result<Option<Vec<u32>>, Error>;
}
