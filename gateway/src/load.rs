//! Reads the configuration, at the start and at each reload.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{Faults, Settings};

type Read = dyn Fn(Option<&Path>) -> Result<Settings, Faults> + Send + Sync;

/// Reads the file and the options again.
#[derive(Clone)]
pub struct Load {
    /// The configuration file, if any.
    pub file: Option<PathBuf>,
    read: Arc<Read>,
}

impl Load {
    /// `read` parses the file, if it gets one, and lets the options override it.
    pub fn new(
        file: Option<PathBuf>,
        read: impl Fn(Option<&Path>) -> Result<Settings, Faults> + Send + Sync + 'static,
    ) -> Self {
        Self { file, read: Arc::new(read) }
    }

    /// Reads the configuration. Blocks.
    pub fn now(&self) -> Result<Settings, Faults> {
        self.of(self.file.as_deref())
    }

    /// Reads the configuration from `file` instead. Blocks.
    pub(crate) fn of(&self, file: Option<&Path>) -> Result<Settings, Faults> {
        (self.read)(file)
    }
}

/// Logs settings that are valid but may be mistakes.
pub(crate) fn warn(settings: &Settings) {
    for warning in &settings.warnings {
        tracing::warn!("the configuration: {}", one_line(warning));
    }
}

/// Joins lines into one for the log.
pub(crate) fn one_line(text: &dyn std::fmt::Display) -> String {
    text.to_string().split('\n').map(str::trim).collect::<Vec<_>>().join("; ")
}
