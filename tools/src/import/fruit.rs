//! Carries Samba's module `fruit` over: what it does for macOS is built in, and the keys `fruit:` decide about Time Machine and the
//! model.

use config::{Model, Size};

use super::keys::truth;

/// The settings of `vfs objects` and the keys `fruit:` for a share, or for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fruit {
    /// `vfs objects` names the module, or does not.
    on: Option<bool>,
    time_machine: Option<bool>,
    size: Option<Size>,
    model: Option<Model>,
}

/// Name of the module.
const MODULE: &str = "fruit";

/// Reads a size of smb.conf as the module does: a number with at most one of the letters K, M, G, T and P, each 1024 times the one
/// before.
fn size(value: &str) -> Option<Size> {
    let value = value.trim_matches('"');
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let power = match unit.trim().to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return None,
    };
    let size = number.parse::<u64>().ok()?.checked_mul(1024_u64.pow(power))?;
    (size > 0).then_some(Size(size))
}

impl Fruit {
    /// Notes whether the modules of a share include it.
    pub(super) fn set_modules<'a>(&mut self, mut modules: impl Iterator<Item = &'a str>) {
        self.on = Some(modules.any(|module| module.eq_ignore_ascii_case(MODULE)));
    }

    /// Takes over a line `fruit:KEY`; returns the result, and `None` for other lines.
    pub(super) fn line(&mut self, key: &str, value: &str) -> Option<&'static str> {
        let key = key.strip_prefix("fruit:")?.replace('_', "");
        Some(match key.as_str() {
            "timemachine" => {
                self.time_machine = truth(value);
                "carried over as `time_machine` where `vfs objects` names `fruit`"
            }
            "timemachinemaxsize" => {
                self.size = size(value);
                match self.size {
                    Some(_) => "carried over as `size` of `time_machine`",
                    None => "not carried over: this is no size; set `size` of `time_machine`",
                }
            }
            "model" => match value.trim_matches('"').parse() {
                Ok(model) => {
                    self.model = Some(model);
                    "carried over as `model` of `smb`, where `[global]` has it"
                }
                Err(_) => "not carried over: set `model` of `smb`",
            },
            "metadata" => {
                "not carried over: Finder info is a stream; what `fruit:metadata = netatalk`, Samba's default, kept on the \
                 disk is not read"
            }
            "resource" => {
                "not carried over: a resource fork is a stream; what `fruit:resource = file`, Samba's default, kept in files \
                 `._NAME` stays in them, and no Mac takes it for a resource fork"
            }
            "encoding" => {
                "not carried over: names are shown to macOS as they are on the disk, and characters that SMB does not allow \
                 as private ones"
            }
            "aapl" => "not needed: macOS gets its extensions if it asks for them",
            "copyfile" => "not needed: macOS may have whole files copied on the server",
            "readdirattrrsize" | "readdirattrfinderinfo" | "readdirattrmaxaccess" => {
                "not needed: listings carry all attributes to clients that ask for them"
            }
            "nfsaces" => "not needed: macOS sees and changes the mode of files",
            "posixrename" => {
                "not needed: macOS may rename folders in which it has files open, as with the module"
            }
            "vetoappledouble" => {
                "not carried over: files `._NAME` are ordinary files that every client sees"
            }
            "deleteemptyadfiles" | "wipeintentionallyleftblankrfork" => {
                "not needed: files `._NAME` are left as they are"
            }
            "zerofileid" => "not needed: macOS gets the file's number, which stays with the file",
            "locking" => "not carried over: there is no AFP server beside this one",
            _ => "not carried over",
        })
    }

    /// Adds what `[global]` says.
    pub(super) fn or(self, of_all: &Self) -> Self {
        Self {
            on: self.on.or(of_all.on),
            time_machine: self.time_machine.or(of_all.time_machine),
            size: self.size.or(of_all.size),
            model: self.model.or_else(|| of_all.model.clone()),
        }
    }

    /// Returns the value of `time_machine`; Returns `None` for a share without backups.
    pub(super) fn time_machine(&self) -> Option<String> {
        if self.on != Some(true) || self.time_machine != Some(true) {
            return None;
        }
        Some(self.size.map_or("{}".to_owned(), |size| format!("{{size: {size}}}")))
    }

    /// Returns the model.
    pub(super) fn model(&self) -> Option<&Model> {
        self.model.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_carried_over() {
        let mut of_all = Fruit::default();
        of_all.set_modules(["catia", "Fruit"].into_iter());
        assert!(of_all.line("fruit:model", "MacSamba").unwrap().contains("`model` of `smb`"));
        assert_eq!(of_all.time_machine(), None);
        let mut share = Fruit::default();
        assert!(share.line("fruit:timemachine", "yes").is_some());
        assert_eq!(share.time_machine(), None, "the module is not named");
        assert_eq!(share.clone().or(&of_all).time_machine().as_deref(), Some("{}"));
        assert!(share.line("fruit:timemachinemaxsize", "500G").unwrap().starts_with("carried"));
        let both = share.or(&of_all);
        assert_eq!(both.time_machine().as_deref(), Some("{size: 500GiB}"));
        assert_eq!(both.model().unwrap().to_string(), "MacSamba");
        let mut off = Fruit::default();
        off.set_modules(["acl_xattr"].into_iter());
        let mut of_backups = both.clone();
        of_backups.on = None;
        assert_eq!(off.or(&both).time_machine(), None, "a share's own modules count alone");
        assert_eq!(of_backups.line("path", "/x"), None);
        assert!(of_backups.line("fruit:new_key", "x").unwrap().starts_with("not carried over"));
    }

    #[test]
    fn sizes_are_those_of_the_module() {
        for (text, bytes) in
            [("7", 7), ("1K", 1024), ("2 m", 2 << 20), ("1T", 1 << 40), ("1P", 1 << 50)]
        {
            assert_eq!(size(text), Some(Size(bytes)), "{text}");
        }
        for text in ["", "0", "G", "-1G", "1GB", "1.5T", "99999999999999999999", "99999999P"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
