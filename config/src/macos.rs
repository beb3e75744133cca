//! Settings for macOS clients: the backups of Time Machine, and the model that the gateway shows itself as.

use std::fmt;
use std::str::FromStr;

use crate::keys::TIME_MACHINE;
use crate::reader::{Group, Report, shown};
use crate::units::Size;

/// Longest model, in bytes.
const MODEL_MAX: usize = 31;

/// A share that takes backups of Time Machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeMachine {
    /// The size of the share that clients see; `None` shows the size of the file system.
    pub size: Option<Size>,
}

/// The model that macOS chooses an icon by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model(String);

impl Default for Model {
    fn default() -> Self {
        Self("RackMac".into())
    }
}

impl FromStr for Model {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.,".contains(c);
        if text.is_empty() || text.len() > MODEL_MAX || !text.chars().all(fits) {
            return Err(format!(
                "`{}` is not a model; write 1 to {MODEL_MAX} letters, digits, `-`, `_`, `.` or `,`, like `MacSamba`",
                shown(text)
            ));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the group of a share.
pub(crate) fn time_machine(share: &Group<'_>, report: &mut Report) -> Option<TimeMachine> {
    let node = share.get("time_machine")?;
    let group = Group::read(node, "`time_machine`", &TIME_MACHINE, report)?;
    let size = group.parse::<Size>("size", report);
    if let Some(size) = size.as_ref().filter(|size| size.value.0 == 0) {
        report.add_help(
            size.origin,
            "backups need space",
            "write a size like `1TiB`, or remove `size`",
        );
    }
    Some(TimeMachine { size: size.map(|size| size.value) })
}
