//! Carries Samba's module `recycle` over to the wastebasket of a share.

/// Settings of a share, or of all, from `vfs objects` and the keys `recycle:`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recycle {
    /// `vfs objects` names the module, or does not.
    on: Option<bool>,
    repository: Option<String>,
    names: Option<Vec<String>>,
    folders: Option<Vec<String>>,
}

/// Name of the module.
pub(super) const MODULE: &str = "recycle";
/// The result that the report shows for these keys.
pub(super) const CARRIED: &str = "carried over as `wastebasket`, for NFS clients as well";
/// The module's folder if `recycle:repository` is not set.
const REPOSITORY: &str = ".recycle";

/// Splits a list of smb.conf.
fn list(value: &str) -> Vec<String> {
    let words = value.split([' ', ',', '\t', '|']).map(|word| word.trim_matches('"'));
    words.map(|word| word.trim_matches('/').to_owned()).filter(|word| !word.is_empty()).collect()
}

impl Recycle {
    /// Notes whether the modules of a share include it.
    pub(super) fn set_modules<'a>(&mut self, mut modules: impl Iterator<Item = &'a str>) {
        self.on = Some(modules.any(|module| module.eq_ignore_ascii_case(MODULE)));
    }

    /// Takes over a line `recycle:KEY`; returns the result, and `None` for other lines.
    pub(super) fn line(&mut self, key: &str, value: &str) -> Option<&'static str> {
        let key = key.strip_prefix("recycle:")?.replace('_', "");
        Some(match key.as_str() {
            "repository" => {
                self.repository = Some(value.trim_matches('"').to_owned());
                "not needed: removed files are kept where no client can enter; what Samba kept stays in this folder"
            }
            "exclude" => {
                self.names = Some(list(value));
                "carried over as `exclude` of `wastebasket`"
            }
            "excludedir" => {
                self.folders = Some(list(value));
                "carried over as `exclude` of `wastebasket`"
            }
            "keeptree" => "not needed: a file comes back at the path where it was",
            "versions" | "noversions" => "not needed: every removed file is kept, also of one path",
            "touch" | "touchmtime" => "not needed: `keep` counts from the removal",
            "directorymode" | "subdirmode" => "not needed: no client can enter the wastebasket",
            "maxsize" | "minsize" => {
                "not carried over: files of every size are kept, and `most` of `wastebasket` limits all of them"
            }
            _ => "not carried over",
        })
    }

    /// Adds what `[global]` says.
    pub(super) fn or(self, of_all: &Self) -> Self {
        let of_all = of_all.clone();
        Self {
            on: self.on.or(of_all.on),
            repository: self.repository.or(of_all.repository),
            names: self.names.or(of_all.names),
            folders: self.folders.or(of_all.folders),
        }
    }

    /// Returns the exceptions of the wastebasket; `None` if the share has none.
    pub(super) fn exclude(&self) -> Option<Vec<String>> {
        if self.on != Some(true) {
            return None;
        }
        let has_wildcard = |text: &str| text.contains(['*', '?']);
        let repository = self.repository.as_deref().unwrap_or(REPOSITORY);
        // `%U` is the name of a user.
        let repository = repository.split('%').next().unwrap_or_default().trim_matches('/');
        let mut all: Vec<String> =
            Some(repository.to_owned()).filter(|r| !r.is_empty()).into_iter().collect();
        for folder in self.folders.iter().flatten() {
            let is_one = has_wildcard(folder) && !folder.contains('/');
            all.push(if is_one { format!("{folder}/*") } else { folder.clone() });
        }
        for name in self.names.iter().flatten() {
            all.push(if has_wildcard(name) { name.clone() } else { format!("**/{name}") });
        }
        all.retain(|one| one.parse::<config::Excluded>().is_ok());
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_carried_over() {
        let mut of_all = Recycle::default();
        of_all.set_modules(["acl_xattr", "Recycle"].into_iter());
        assert_eq!(of_all.exclude(), Some(vec![".recycle".to_owned()]));
        assert!(of_all.line("recycle:exclude", "*.tmp|~$* thumbs.db").is_some());
        let mut share = Recycle::default();
        assert!(share.line("recycle:exclude_dir", "/tmp, /a/cache *old*").is_some());
        assert!(share.line("recycle:repository", "/.bin/%U").is_some());
        assert_eq!(share.line("path", "/x"), None);
        assert_eq!(share.exclude(), None, "the module is not named");
        let both = share.or(&of_all).exclude().unwrap();
        assert_eq!(both, [".bin", "tmp", "a/cache", "*old*/*", "*.tmp", "~$*", "**/thumbs.db"]);
        let mut off = Recycle::default();
        off.set_modules(["acl_xattr"].into_iter());
        assert_eq!(off.or(&of_all).exclude(), None, "a share's own modules count alone");
    }
}
