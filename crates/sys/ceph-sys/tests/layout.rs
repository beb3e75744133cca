//! Compares the structures, constants and functions of this crate with the installed C header by compiling a C program.
//!
//! Requires a C compiler and the header (Debian: libcephfs-dev); `cargo xtask test --tier third` installs both.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process::Command;

use ceph_sys::ffi::*;

/// Values by name, each with the C expression that must be equal.
type ExpectedValues = BTreeMap<String, (i128, String)>;

/// Lists structures with their C names and fields.
macro_rules! structures {
    ($wanted:ident, $($name:ident $c:literal { $($field:ident),* $(,)? })*) => {$(
        let size = (size_of::<$name>() as i128, format!("sizeof({})", $c));
        $wanted.insert(format!("size {}", $c), size);
        let align = (align_of::<$name>() as i128, format!("__alignof__({})", $c));
        $wanted.insert(format!("align {}", $c), align);
        $(
            let field = stringify!($field);
            let c = format!("__builtin_offsetof({}, {field})", $c);
            $wanted.insert(format!("offset {}.{field}", $c), (offset_of!($name, $field) as i128, c));
        )*
    )*};
}

macro_rules! constants {
    ($wanted:ident, $($constant:ident),* $(,)?) => {$(
        let name = stringify!($constant);
        $wanted.insert(format!("value {name}"), (i128::from($constant), name.into()));
    )*};
}

fn wanted() -> ExpectedValues {
    let mut wanted = ExpectedValues::new();
    structures! { wanted,
        inodeno_t "struct inodeno_t" { val }
        snapid_t "snapid_t" { val }
        vinodeno_t "struct vinodeno_t" { ino, snapid }
        ceph_statx "struct ceph_statx" {
            stx_mask, stx_blksize, stx_nlink, stx_uid, stx_gid, stx_mode, stx_ino, stx_size,
            stx_blocks, stx_dev, stx_rdev, stx_atime, stx_ctime, stx_mtime, stx_btime, stx_version,
        }
    }
    constants! { wanted,
        CEPH_STATX_ALL_STATS, CEPH_STATX_BTIME, CEPH_STATX_VERSION, CEPH_SETATTR_MODE,
        CEPH_SETATTR_UID, CEPH_SETATTR_GID, CEPH_SETATTR_MTIME, CEPH_SETATTR_ATIME,
        CEPH_SETATTR_SIZE, CEPH_SETATTR_MTIME_NOW, CEPH_SETATTR_ATIME_NOW, CEPH_RECLAIM_RESET,
    }
    wanted
}

/// Returns the functions of `src/ffi.rs` as C function pointer declarations. `MNT` and similar names abbreviate pointer types.
fn functions() -> Vec<(String, String)> {
    let source = include_str!("../src/ffi.rs");
    let all = source.split("functions! {\n").nth(1).unwrap();
    let one = |function: &str| {
        let words: Vec<&str> = function.split_whitespace().collect();
        let words = words.join(" ").replace("( ", "(").replace(", )", ")");
        let rest = words.strip_prefix("fn ")?;
        let (name, rest) = rest.split_once('(')?;
        let (args, answer) = rest.rsplit_once(')')?;
        let of = |arg: &str| c_type(arg.split_once(": ").unwrap().1);
        let args: Vec<String> = args.split(", ").map(of).collect();
        let answer = answer.trim().strip_prefix("-> ").map_or("void".into(), c_type);
        Some((name.into(), format!("{answer} (*p)({})", args.join(", "))))
    };
    all.split(';').filter_map(one).collect()
}

fn c_type(rust: &str) -> String {
    let c = match rust {
        "Mnt" => "struct ceph_mount_info *",
        "In" => "struct Inode *",
        "Stx" => "struct ceph_statx *",
        "Perms" => "const UserPerm *",
        "Str" => "const char *",
        "*mut Mnt" => "struct ceph_mount_info **",
        "*mut In" => "struct Inode **",
        "*mut UserPerm" => "UserPerm *",
        "*mut Fh" => "struct Fh *",
        "*mut *mut Fh" => "struct Fh **",
        "*mut ceph_dir_result" => "struct ceph_dir_result *",
        "*mut *mut ceph_dir_result" => "struct ceph_dir_result **",
        "*mut libc::dirent64" => "struct dirent *",
        "*mut libc::statvfs" => "struct statvfs *",
        "*const iovec" => "const struct iovec *",
        "*mut c_char" => "char *",
        "*mut c_void" => "void *",
        "*const c_void" => "const void *",
        "*mut c_int" => "int *",
        "*mut gid_t" => "gid_t *",
        "*mut size_t" => "size_t *",
        "c_int" => "int",
        "c_uint" => "unsigned",
        "i64" => "int64_t",
        "u64" => "uint64_t",
        "vinodeno_t" => "vinodeno_t",
        other => other,
    };
    c.into()
}

fn program(wanted: &ExpectedValues) -> String {
    let mut c = String::from(
        "#define _FILE_OFFSET_BITS 64\n#include <stdio.h>\n#include <dirent.h>\n#include <cephfs/libcephfs.h>\nint main(void) {\n",
    );
    for (name, (_, expression)) in wanted {
        c += &format!("  printf(\"%lld {name}\\n\", (long long)({expression}));\n");
    }
    for (name, pointer) in functions() {
        c += &format!("  {{ {pointer} = {name}; (void)p; }}\n");
    }
    c + "  return 0;\n}\n"
}

#[test]
fn bindings_match_c_header() {
    let wanted = wanted();
    assert!(functions().len() > 45, "{:?}", functions());
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (dir.join("ceph_layout.c"), dir.join("ceph_layout"));
    std::fs::write(&source, program(&wanted)).unwrap();
    // A function with different arguments has a different pointer type. The program takes no addresses, so it need not be linked.
    let mut cc = Command::new("cc");
    cc.args(["-Werror=incompatible-pointer-types", "-Wl,--unresolved-symbols=ignore-all", "-o"]);
    let compiled = cc.arg(&binary).arg(&source).output();
    let compiled = compiled.expect("a C compiler (Debian: gcc, libc6-dev)");
    let why = String::from_utf8_lossy(&compiled.stderr);
    assert!(
        !why.contains("No such file"),
        "the C header is missing (Debian: libcephfs-dev): {why}"
    );
    assert!(compiled.status.success(), "{why}");
    let told = Command::new(&binary).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.lines().count(), wanted.len());
    let wrong = told.lines().filter(|line| {
        let (value, name) = line.split_once(' ').unwrap();
        wanted[name].0 != value.parse::<i128>().unwrap()
    });
    let wrong: Vec<String> = wrong
        .map(|l| format!("{l} in C, {} here", wanted[l.split_once(' ').unwrap().1].0))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_structure_is_compared() {
    let wanted = wanted();
    let source = include_str!("../src/ffi.rs");
    let structures = source.split("#[repr(C)]").skip(1);
    let names: Vec<&str> = structures
        .map(|s| s.split("pub struct ").nth(1).unwrap().split(' ').next().unwrap())
        .collect();
    assert_eq!(names.len(), 4);
    for name in names {
        let is_compared = |c: &String| c.starts_with("size") && c.ends_with(name);
        assert!(wanted.keys().any(is_compared), "{name} is not compared");
    }
}
