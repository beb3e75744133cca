//! Finds the configuration for a command, and with it the daemon: its state folder and its admin address.
//!
//! *Operation.* The configuration is the file of `--config`, else the one in the environment variable `HEADGATE_CONFIG`, else
//! [`USUAL_FILE`] if it exists. A file that is partly unreadable or invalid still supplies the values that can be found in
//! it.

use std::path::{Path, PathBuf};

use clap::Args;
use config::{Admin, PasswordLength, Settings};

use crate::records::ServiceFiles;

/// Configuration file in packages, as their unit names it.
pub(crate) const USUAL_FILE: &str = "/etc/headgate/headgate.yaml";

/// Returns the given file, or the usual one if it exists.
pub(crate) fn file_or(given: Option<&Path>, usual: &Path) -> Option<PathBuf> {
    given.or_else(|| Some(usual).filter(|usual| usual.exists())).map(Path::to_owned)
}

fn file(given: Option<&Path>) -> Option<PathBuf> {
    file_or(given, Path::new(USUAL_FILE))
}

/// The daemon that a command refers to.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DaemonArgs {
    /// State folder of the daemon; default: from its file, else /var/lib/headgate
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) state: Option<PathBuf>,
    /// Configuration file of the daemon; default: /etc/headgate/headgate.yaml
    #[arg(long, value_name = "FILE", env = "HEADGATE_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
}

impl DaemonArgs {
    pub(crate) fn state(&self) -> PathBuf {
        let of_file = || file(self.config.as_deref()).as_deref().and_then(config::state_of);
        self.state.clone().or_else(of_file).unwrap_or(Settings::default().state)
    }

    /// Returns the files that move with the service; they are in the state folder, or where the configuration says.
    pub(crate) fn service_files(&self) -> Result<ServiceFiles, String> {
        let of_file = || file(self.config.as_deref()).as_deref().and_then(config::records_of);
        let records = if self.state.is_some() { None } else { of_file() };
        ServiceFiles::look(&self.state(), records.as_ref())
    }

    /// Returns true if the state folder was given, which selects one daemon of several on this host.
    pub(crate) fn names_state(&self) -> bool {
        let of_file = || file(self.config.as_deref()).as_deref().and_then(config::state_of);
        self.state.is_some() || of_file().is_some()
    }

    /// Returns the fewest characters of new passwords.
    pub(crate) fn password_length(&self) -> PasswordLength {
        let of_file = file(self.config.as_deref());
        of_file.as_deref().and_then(config::password_length_of).unwrap_or_default()
    }

    /// Returns the admin address of the file.
    pub(crate) fn admin(&self) -> Admin {
        file(self.config.as_deref()).as_deref().and_then(config::admin_of).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_stands_before_the_file_and_the_file_before_the_default() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "state: /srv/state\nno-such-key: 1\nadmin: off\nsmb: {password_length: 20}\n";
        std::fs::write(file.path(), text).unwrap();
        let of_file = DaemonArgs { state: None, config: Some(file.path().into()) };
        assert_eq!((of_file.state(), of_file.admin()), ("/srv/state".into(), Admin::Off));
        assert!(of_file.names_state());
        assert_eq!(of_file.password_length(), PasswordLength(20));
        let said = DaemonArgs { state: Some("/x".into()), ..of_file };
        assert_eq!(said.state(), PathBuf::from("/x"));
        let gone = DaemonArgs { state: None, config: Some("/no/such/file".into()) };
        assert_eq!((gone.state(), gone.admin()), (Settings::default().state, Admin::Usual));
        assert!(!gone.names_state());
        assert_eq!(gone.password_length(), PasswordLength::default());
    }
}
