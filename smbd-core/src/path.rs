//! Parses names of CREATE and rename: a path from the share's root, perhaps with a stream (MS-FSCC section 2.1.5, MS-SMB2 section
//! 3.3.5.9). Pure.
//!
//! *Errors.* STATUS_INVALID_PARAMETER for a path that begins with `\`; STATUS_OBJECT_NAME_INVALID for an invalid name.

use vfs::namespace::gmt_time;

use crate::status::Status;
use crate::wire::utf16;

/// Most UTF-16 units of one component, and of the name of one stream (MS-FSCC section 2.1.5.2).
const COMPONENT_MAX: usize = 255;
/// Most components of one path.
const DEPTH_MAX: usize = 1024;

/// The type of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `$DATA`
    Data,
    /// `$INDEX_ALLOCATION`: the file must be a directory.
    Index,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Its components; empty for the root of the share.
    pub names: Vec<String>,
    /// The name of a stream; `None` for the file itself.
    pub stream: Option<String>,
    /// The type, if it was given.
    pub stream_type: Option<Type>,
    /// True if it names an index other than that of directories, as `$Extend\$Quota:$Q:$INDEX_ALLOCATION` does: the error then
    /// depends on whether the file exists, because no file has such an index.
    pub other_index: bool,
    /// True if that index is `$Q`.
    quota_index: bool,
    /// True if it ends with `\`, so that only a directory may match.
    pub slash: bool,
}

impl Path {
    /// Reads a path in UTF-16.
    pub fn parse(name: &[u8], posix: bool) -> Result<Self, Status> {
        // Windows accepts half a surrogate pair in a name, but no supported file system can store it.
        let text = utf16(name).ok_or(Status::OBJECT_NAME_INVALID)?;
        if posix { Self::of_posix(&text) } else { Self::of(&text) }
    }

    /// Reads a path.
    pub fn of(text: &str) -> Result<Self, Status> {
        let mut path = Self::default();
        if text.is_empty() {
            return Ok(path);
        }
        if text.starts_with('\\') {
            return Err(Status::INVALID_PARAMETER);
        }
        let text = match text.strip_suffix('\\') {
            Some(rest) => {
                path.slash = true;
                rest
            }
            None => text,
        };
        let mut parts = text.split('\\').peekable();
        while let Some(part) = parts.next() {
            let file = if parts.peek().is_none() { path.split_stream(part)? } else { part };
            if file.is_empty() && path.names.is_empty() && part.starts_with(':') {
                // This is a stream of the share's root.
                break;
            }
            if file.is_empty() && part.is_empty() && !path.names.is_empty() {
                // Repeated separators count as one, as with Windows and Samba.
                continue;
            }
            if part == "." {
                continue;
            }
            if file == ".." {
                // MS-SMB2 section 3.3.5.9 refuses such a component with INVALID_PARAMETER. Windows removes it together with the
                // component before it, as smbtorture records (smb2.notify.tree, smb2.mkdir); the root has no component to remove.
                path.names.pop().ok_or(Status::OBJECT_PATH_SYNTAX_BAD)?;
                continue;
            }
            if path.names.len() == DEPTH_MAX || !is_name(file) {
                return Err(Status::OBJECT_NAME_INVALID);
            }
            path.names.push(file.to_owned());
        }
        Ok(path)
    }

    /// Reads a path of a client with the POSIX extensions: `/` separates names, which may contain any other character, and there
    /// are no streams. Names remain as sent ([`vfs::names::Spelling::Posix`]).
    pub fn of_posix(text: &str) -> Result<Self, Status> {
        let mut path = Self::default();
        for part in text.split('/').filter(|p| !p.is_empty()) {
            if part == ".." {
                return Err(Status::OBJECT_PATH_SYNTAX_BAD);
            }
            let long = part.encode_utf16().count() > COMPONENT_MAX;
            if path.names.len() == DEPTH_MAX || part == "." || part.contains('\0') || long {
                return Err(Status::OBJECT_NAME_INVALID);
            }
            path.names.push(part.to_owned());
        }
        Ok(path)
    }

    /// Splits `file:stream:type` and returns the file.
    fn split_stream<'a>(&mut self, part: &'a str) -> Result<&'a str, Status> {
        let mut pieces = part.split(':');
        let file = pieces.next().unwrap_or_default();
        let (stream, kind, more) = (pieces.next(), pieces.next(), pieces.next());
        self.stream_type = match kind {
            None => None,
            Some(k) if k.eq_ignore_ascii_case("$DATA") => Some(Type::Data),
            Some(k) if k.eq_ignore_ascii_case("$INDEX_ALLOCATION") => Some(Type::Index),
            Some(_) => return Err(Status::OBJECT_NAME_INVALID),
        };
        let Some(stream) = stream else { return Ok(file) };
        let long = stream.encode_utf16().count() > COMPONENT_MAX;
        // Unlike a file name, a stream name may contain all other characters (MS-FSCC section 2.1.5.3).
        let bad = ['/', '\0'];
        if more.is_some() || long || stream.contains(bad) || self.slash {
            return Err(Status::OBJECT_NAME_INVALID);
        }
        match self.stream_type {
            None if stream.is_empty() => return Err(Status::OBJECT_NAME_INVALID),
            Some(Type::Index) => {
                self.other_index = !stream.is_empty() && !stream.eq_ignore_ascii_case("$I30");
                self.quota_index = stream.eq_ignore_ascii_case("$Q");
            }
            _ if stream.is_empty() => {}
            _ => self.stream = Some(stream.to_owned()),
        }
        Ok(file)
    }

    /// Removes the first component that is the time of a snapshot, and returns that in seconds since 1970 (MS-SMB section
    /// 2.2.1.1.1). Below a folder of snapshots such a component is a name.
    pub fn take_time(&mut self) -> Option<i64> {
        let is_name = |i: usize| {
            let above = i.checked_sub(1).and_then(|i| self.names.get(i));
            above.is_some_and(|above| matches!(above.as_str(), ".snapshot" | ".snap"))
        };
        let times = self.names.iter().enumerate().filter(|(i, _)| !is_name(*i));
        let found = times.into_iter().find_map(|(i, name)| Some((i, gmt_time(name)?)));
        let (at, sec) = found?;
        self.names.remove(at);
        Some(sec)
    }

    /// Returns whether it names the quotas of the volume: `$Extend\$Quota:$Q:$INDEX_ALLOCATION` (MS-FSCC section 2.4.41).
    pub fn is_of_quotas(&self) -> bool {
        let names = self.names.iter().map(String::as_str);
        self.quota_index
            && self.names.len() == 2
            && names.zip(["$Extend", "$Quota"]).all(|(own, name)| own.eq_ignore_ascii_case(name))
    }

    /// Returns the last component and the path before it; `None` for the root.
    pub fn split_last(&self) -> Option<(&[String], &str)> {
        self.names.split_last().map(|(last, before)| (before, last.as_str()))
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name.encode_utf16().count() <= COMPONENT_MAX
        && !name.chars().any(vfs::names::is_reserved)
}

/// Joins `name` to the path of a directory.
pub fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}\\{name}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        Path::of(text).unwrap().names
    }

    #[test]
    fn paths_are_split() {
        assert_eq!(Path::of(""), Ok(Path::default()));
        assert_eq!(names("a"), ["a"]);
        assert_eq!(names("dir\\sub\\file.txt"), ["dir", "sub", "file.txt"]);
        assert_eq!(names("a\\.\\b\\."), ["a", "b"]);
        assert_eq!(names("a\\..\\b\\c\\.."), ["b"]);
        assert_eq!(names("a\\\\b\\\\\\c"), ["a", "b", "c"]);
        assert!(Path::of("dir\\").unwrap().slash);
        assert_eq!(join("", "a"), "a");
        assert_eq!(join("d", "a"), "d\\a");
    }

    #[test]
    fn time_of_a_snapshot_is_taken_from_any_place() {
        let taken = |text: &str| {
            let mut path = Path::of(text).unwrap();
            (path.take_time(), path.names.join("/"))
        };
        let when = Some(951_786_123);
        for (text, want) in [
            ("@GMT-2000.02.29-01.02.03\\a\\b", (when, "a/b")),
            ("a\\@GMT-2000.02.29-01.02.03\\b", (when, "a/b")),
            ("a\\b\\@GMT-2000.02.29-01.02.03", (when, "a/b")),
            ("@GMT-2000.02.29-01.02.03", (when, "")),
            ("@GMT-2000.02.30-01.02.03\\a", (None, "@GMT-2000.02.30-01.02.03/a")),
            ("x@GMT-2000.02.29-01.02.03", (None, "x@GMT-2000.02.29-01.02.03")),
            (
                "d\\.snapshot\\@GMT-2000.02.29-01.02.03\\a",
                (None, "d/.snapshot/@GMT-2000.02.29-01.02.03/a"),
            ),
        ] {
            assert_eq!(taken(text), (want.0, want.1.to_owned()), "{text}");
        }
    }

    #[test]
    fn quotas_have_one_name() {
        let is = |text: &str| Path::of(text).is_ok_and(|path| path.is_of_quotas());
        assert!(is("$Extend\\$Quota:$Q:$INDEX_ALLOCATION"));
        assert!(is("$extend\\$quota:$q:$index_allocation"));
        for other in [
            "$Quota:$Q:$INDEX_ALLOCATION",
            "a\\$Extend\\$Quota:$Q:$INDEX_ALLOCATION",
            "$Extend\\$Quota:$O:$INDEX_ALLOCATION",
            "$Extend\\$Quota:$Q:$DATA",
            "$Extend\\$Quota:$Q",
            "$Extend\\$Quota",
        ] {
            assert!(!is(other), "{other}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        assert_eq!(Path::of("\\a"), Err(Status::INVALID_PARAMETER));
        let long = "x".repeat(256);
        for bad in [
            ".:s",
            "a\\\\:s",
            "a*",
            "a?b",
            "a<",
            "a>",
            "a|b",
            "a\"b",
            "a/b",
            "\u{1}",
            "\u{1}:s",
            "a:b\\c",
            "a:",
            "a::",
            "a:b:",
            "a:b:$FOO",
            "a:b:$DATA:x",
            "a:x/y",
            "a:s\\",
            &long,
        ] {
            assert_eq!(Path::of(bad), Err(Status::OBJECT_NAME_INVALID), "{bad:?}");
        }
        for up in ["..", "a\\..\\..", "..\\a"] {
            assert_eq!(Path::of(up), Err(Status::OBJECT_PATH_SYNTAX_BAD), "{up:?}");
        }
        assert!(Path::of(&"x".repeat(255)).is_ok());
        assert_eq!(Path::parse(&[0x00, 0xd8], false), Err(Status::OBJECT_NAME_INVALID));
    }

    #[test]
    fn posix_names_hold_anything() {
        let p = Path::of_posix(r"dir/a:b*?\c").unwrap();
        assert_eq!(p.names, ["dir", r"a:b*?\c"]);
        assert_eq!((p.stream, p.slash), (None, false));
        assert_eq!(Path::of_posix("/a//b/").unwrap().names, ["a", "b"]);
        assert_eq!(Path::of_posix("a/../b"), Err(Status::OBJECT_PATH_SYNTAX_BAD));
        assert_eq!(Path::of_posix("a/./b"), Err(Status::OBJECT_NAME_INVALID));
    }

    #[test]
    fn streams_are_told_from_files() {
        let p = Path::of("d\\f:s").unwrap();
        assert_eq!((p.names.len(), p.stream.as_deref(), p.stream_type), (2, Some("s"), None));
        let p = Path::of("f:s:$data").unwrap();
        assert_eq!((p.stream.as_deref(), p.stream_type), (Some("s"), Some(Type::Data)));
        let p = Path::of("f::$DATA").unwrap();
        assert_eq!((p.stream, p.stream_type), (None, Some(Type::Data)));
        let p = Path::of("d:$I30:$INDEX_ALLOCATION").unwrap();
        assert_eq!((p.stream, p.stream_type), (None, Some(Type::Index)));
        let p = Path::of(":s").unwrap();
        assert_eq!((p.names.len(), p.stream.as_deref()), (0, Some("s")));
        assert_eq!(Path::of("f:a*?b").unwrap().stream.as_deref(), Some("a*?b"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_path_or_refused(text in "[a-c\\\\:./*$ é]{0,24}") {
            if let Ok(p) = Path::of(&text) {
                for name in &p.names {
                    prop_assert!(vfs::names::to_disk(name).is_ok(), "{name:?}");
                }
            }
        }
    }
}
