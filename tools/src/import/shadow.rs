//! Snapshots of Samba's module `shadow_copy2`, as a pattern of `snapshots`.

use super::keys::truth;

/// The lines of a share about its snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shadow {
    /// Where `vfs objects` named the module, or another list of modules without it.
    module: Option<Option<Place>>,
    snapdir: Option<String>,
    mountpoint: Option<String>,
    format: Option<String>,
    delimiter: Option<String>,
    prefix: Option<String>,
    is_local: Option<bool>,
    is_stamp: Option<bool>,
    is_everywhere: Option<bool>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) whole: String,
}

/// The pattern with its remark, or the reason for no pattern.
type Found = Result<(String, String), String>;

impl Shadow {
    /// Takes over `vfs objects`.
    pub(super) fn modules(&mut self, has_module: bool, place: impl FnOnce() -> Place) {
        self.module = Some(has_module.then(place));
    }

    /// Takes over a line `shadow:KEY = VALUE`. Returns false if the line is about something else.
    pub(super) fn line(&mut self, key: &str, value: &str) -> bool {
        let Some(key) = key.strip_prefix("shadow:") else { return false };
        let text = || Some(value.trim_matches('"').to_owned()).filter(|text| !text.is_empty());
        match key {
            "snapdir" => self.snapdir = text(),
            "mountpoint" => self.mountpoint = text(),
            "format" => self.format = text(),
            "delimiter" => self.delimiter = text(),
            "snapprefix" => self.prefix = text(),
            "localtime" => self.is_local = truth(value),
            "sscanf" => self.is_stamp = truth(value),
            "snapdirseverywhere" => self.is_everywhere = truth(value),
            // The order is always that of times, and numbers of files are distinct.
            "sort" | "fixinodes" | "crossmountpoints" => {}
            _ => return false,
        }
        true
    }

    /// Returns these values, and takes unset ones from `other`.
    pub(super) fn or(self, other: &Self) -> Self {
        let or = |own: Option<String>, all: &Option<String>| own.or_else(|| all.clone());
        Self {
            module: self.module.or_else(|| other.module.clone()),
            snapdir: or(self.snapdir, &other.snapdir),
            mountpoint: or(self.mountpoint, &other.mountpoint),
            format: or(self.format, &other.format),
            delimiter: or(self.delimiter, &other.delimiter),
            prefix: or(self.prefix, &other.prefix),
            is_local: self.is_local.or(other.is_local),
            is_stamp: self.is_stamp.or(other.is_stamp),
            is_everywhere: self.is_everywhere.or(other.is_everywhere),
        }
    }

    /// Returns the pattern for the share of this folder, with what was said of it and where; `None` without the module.
    pub(super) fn pattern(&self, path: &str) -> Option<(&Place, Found)> {
        let place = self.module.as_ref()?.as_ref()?;
        let found = self.found(path).and_then(|(text, said)| {
            match text.parse::<config::SnapshotPattern>() {
                Ok(_) => Ok((text, said)),
                Err(why) => Err(format!("`shadow_copy2` is not carried over: {why}")),
            }
        });
        Some((place, found))
    }

    fn found(&self, path: &str) -> Found {
        if self.is_everywhere == Some(true) {
            return Err("`shadow:snapdirseverywhere` is not carried over: a share has one folder of snapshots; write \
                        `snapshots: PATTERN`"
                .into());
        }
        let dir = self.snapdir.as_deref().unwrap_or(".snapshots").trim_end_matches('/');
        let mountpoint = self.mountpoint.as_deref().map(|at| at.trim_end_matches('/'));
        let below = match mountpoint.map(|at| path.strip_prefix(at)) {
            Some(Some(below)) if below.is_empty() || below.starts_with('/') => below,
            Some(_) => return Err(format!("`shadow:mountpoint` does not contain {path}")),
            None => "",
        };
        let base = match (dir.starts_with('/'), mountpoint) {
            (false, Some(at)) if !below.is_empty() => format!("{at}/{dir}"),
            _ => dir.to_owned(),
        };
        let mut said = "carried over as `snapshots`".to_owned();
        if mountpoint.is_none() {
            said += "; Samba begins at the mount point of the file system: if that is above the share, write the whole path, with \
                     the path from the mount point to the share after the time";
        }
        if self.prefix.is_some() {
            said += "; `shadow:snapprefix` is any text here";
        }
        Ok((format!("{base}/{}{below}", self.name()?), said))
    }

    /// The name of a snapshot.
    fn name(&self) -> Result<String, String> {
        let format = self.format.as_deref().unwrap_or("@GMT-%Y.%m.%d-%H.%M.%S");
        let (mut format, word) = match self.is_stamp == Some(true) {
            true => (format.replacen("%lu", "%s", 1), "time"),
            false if self.is_local == Some(true) => (format.to_owned(), "local"),
            false => (format.to_owned(), "time"),
        };
        let at = format.find('%').ok_or("`shadow:format` has no time, and is not carried over")?;
        let time = format.split_off(at);
        let open = if self.prefix.is_some() { "*" } else { "" };
        Ok(format!("{open}{format}{{{word}:{time}}}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(lines: &str, path: &str) -> Result<String, String> {
        let mut shadow = Shadow::default();
        shadow.modules(true, || Place { file: "f".into(), line: 1, whole: "l".into() });
        for line in lines.lines() {
            let (key, value) = line.split_once('=').unwrap();
            assert!(shadow.line(key, value), "{line}");
        }
        let (_, found) = shadow.pattern(path).unwrap();
        found.map(|(text, _)| text)
    }

    #[test]
    fn lines_become_a_pattern() {
        for (lines, path, want) in [
            ("", "/srv", ".snapshots/@GMT-{time:%Y.%m.%d-%H.%M.%S}"),
            (
                "shadow:snapdir=.zfs/snapshot\nshadow:format=%Y-%m-%d_%H.%M\nshadow:localtime=yes",
                "/srv",
                ".zfs/snapshot/{local:%Y-%m-%d_%H.%M}",
            ),
            (
                "shadow:snapdir=/snap/\nshadow:format=daily-%Y%m%d\nshadow:sort=desc",
                "/srv",
                "/snap/daily-{time:%Y%m%d}",
            ),
            (
                "shadow:mountpoint=/mnt\nshadow:snapdir=.snap",
                "/mnt/a/b",
                "/mnt/.snap/@GMT-{time:%Y.%m.%d-%H.%M.%S}/a/b",
            ),
            ("shadow:mountpoint=/mnt", "/mnt", ".snapshots/@GMT-{time:%Y.%m.%d-%H.%M.%S}"),
            (
                "shadow:snapprefix=^auto\\(x\\)*$\nshadow:delimiter=-20\nshadow:format=-%Y-%m-%d-%H%M",
                "/srv",
                ".snapshots/*-{time:%Y-%m-%d-%H%M}",
            ),
            ("shadow:sscanf=yes\nshadow:format=snap%lu", "/srv", ".snapshots/snap{time:%s}"),
        ] {
            assert_eq!(pattern(lines, path).as_deref(), Ok(want), "{lines}");
        }
        for lines in [
            "shadow:snapdirseverywhere=yes",
            "shadow:format=x",
            "shadow:format=%H",
            "shadow:mountpoint=/other",
        ] {
            assert!(pattern(lines, "/srv").is_err(), "{lines}");
        }
    }

    #[test]
    fn a_list_of_modules_without_it_ends_it() {
        let place = || Place { file: "f".into(), line: 1, whole: "l".into() };
        let (mut all, mut own) = (Shadow::default(), Shadow::default());
        all.modules(true, place);
        assert!(own.clone().or(&all).pattern("/srv").is_some());
        own.modules(false, place);
        assert!(own.or(&all).pattern("/srv").is_none());
        assert!(Shadow::default().pattern("/srv").is_none());
        assert!(!Shadow::default().line("shadow:never", "x") && !Shadow::default().line("x", ""));
    }
}
