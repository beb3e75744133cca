//! How the configuration is read, at the start and at each reload.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{Faults, Settings};

type Read = dyn Fn(Option<&Path>) -> Result<Settings, Faults> + Send + Sync;

/// Reads file and options anew.
#[derive(Clone)]
pub struct Load {
    /// The configuration file, where there is one.
    pub file: Option<PathBuf>,
    read: Arc<Read>,
}

impl Load {
    /// `read` reads a file, where it is given one, and lays the options over it.
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

    /// The configuration, if another file were its file. Blocks.
    pub(crate) fn of(&self, file: Option<&Path>) -> Result<Settings, Faults> {
        (self.read)(file)
    }
}

/// What is sound and may still be a mistake.
pub(crate) fn warn(settings: &Settings) {
    for warning in &settings.warnings {
        tracing::warn!("the configuration: {}", one_line(warning));
    }
}

/// Lines as one, for the log.
pub(crate) fn one_line(text: &dyn std::fmt::Display) -> String {
    text.to_string().split('\n').map(str::trim).collect::<Vec<_>>().join("; ")
}
