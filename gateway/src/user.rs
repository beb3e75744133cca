//! `headgate user`: manages the users who can log on over SMB.
//!
//! *Operation.* The database is one of the files of the service ([`ServiceFiles`]); a running gateway notices changes within
//! seconds. The password comes from a prompt without echo, a file or standard input, but never from an argument, since every
//! user of the host can see arguments. The database keeps its NT hash, which NTLM needs, and its Kerberos keys, as a KDC
//! would: these are not the password, but enough to log on here. A weak password ([`weak`]) is rejected unless the caller
//! insists.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use config::{Identity, PasswordLength, user_name};
use gss_krb5::Enctype;
use smb_auth::NtHash;
use smbd_core::users::database::{Entry, Keys};
use tools::password::{first_line, given, prompt};
use zeroize::Zeroizing;

use crate::place::DaemonArgs;
use crate::records::ServiceFiles;
use crate::users::{change_database, read_database, resolve, why_no_account};
use crate::weak;

/// Users that may log on over SMB
#[derive(Debug, Args)]
pub struct UserArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    place: DaemonArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add a user, or change the password of one
    Add(AddArgs),
    /// Take over accounts of Samba with their passwords, as `pdbedit -L -w` writes them
    Import {
        /// File of `pdbedit -L -w`; `-` is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Give users that are in the database the password of the file
        #[arg(long)]
        replace: bool,
    },
    /// Remove a user
    Remove {
        /// Name of the user
        #[arg(value_parser = user_name)]
        name: String,
    },
    /// List the users and their numbers in the file system
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct AddArgs {
    /// Name of the user; case does not matter
    #[arg(value_parser = user_name)]
    name: String,
    /// Read the password from the first line of FILE; `-` is standard input. Default: prompt for it
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Accept a password that is short, common or like the user's name
    #[arg(long)]
    weak: bool,
    /// User id in the file system; needed where the host has no user of this name
    #[arg(long, value_name = "NUMBER")]
    uid: Option<u32>,
    /// Primary group; default: the primary group of the host's user
    #[arg(long, value_name = "NUMBER")]
    gid: Option<u32>,
    /// Further groups; default: the groups of the host's user
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    groups: Option<Vec<u32>>,
}

/// Runs the command.
pub fn run(args: UserArgs) -> Result<(), String> {
    let files = args.place.service_files()?;
    match args.command {
        Command::Add(add) => self::add(&files, args.place.password_length(), add),
        Command::Import { file, replace } => crate::passdb::import(&files, &file, replace),
        Command::Remove { name } => {
            let found = change_database(&files, |d| Ok(d.remove(&name)))?;
            if found { Ok(()) } else { Err(format!("there is no user `{name}`")) }
        }
        Command::List { json } => list(&files, json),
    }
}

fn add(files: &ServiceFiles, least: PasswordLength, args: AddArgs) -> Result<(), String> {
    let password = match &args.password_file {
        Some(path) => given(path)?,
        None if io::stdin().is_terminal() => ask(&args.name)?,
        None => first_line(io::stdin().lock())?,
    };
    if !args.weak {
        check_strength(
            (&args.name, &password),
            least,
            "choose a longer one, like a few words; or give `--weak`",
        )?;
    }
    let identity = Identity { uid: args.uid, gid: args.gid, groups: args.groups };
    let done = put(files, &args.name, &password, identity)?;
    say!("{}", done.what);
    if let Some(warning) = done.warning {
        complain!("warning: {warning}; choose another with --uid NUMBER");
    }
    Ok(())
}

/// Refuses a weak password of the user with this name; the error includes the remedy.
pub(crate) fn check_strength(
    (name, password): (&str, &str),
    least: PasswordLength,
    remedy: &str,
) -> Result<(), String> {
    let why = weak::why(name, password, least);
    why.map_or(Ok(()), |why| Err(format!("the password {why}; {remedy}")))
}

/// Derives the Kerberos keys of a password: for all served encryption types, with a random salt. Takes a moment.
pub(crate) fn keys(password: &str) -> Result<Keys, String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|e| format!("the system has no random numbers: {e}"))?;
    let salt: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = |enctype: Enctype| {
        let key = enctype.key_of_password(password, salt.as_bytes(), enctype.rounds());
        key.map(|key| (enctype as u16, key))
            .map_err(|_| "no Kerberos key can be derived from this password")
    };
    let keys = Enctype::ALL.into_iter().map(key).collect::<Result<_, _>>()?;
    Ok(Keys { salt, keys })
}

/// Result of setting a user's password.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Done {
    /// One line about the change.
    pub(crate) what: String,
    /// One line about a possible mistake.
    pub(crate) warning: Option<String>,
}

/// Adds a user to the database, or changes the password of an existing one. Blocks.
pub(crate) fn put(
    files: &ServiceFiles,
    name: &str,
    password: &str,
    identity: Identity,
) -> Result<Done, String> {
    let (cred, known) = resolve(name, &identity)?;
    if let Some(why) = why_no_account(name, (&cred, known)) {
        return Err(why);
    }
    let Identity { uid, gid, groups } = identity;
    let numbers = uid.iter().chain(&gid).chain(groups.iter().flatten());
    if numbers.into_iter().any(|n| *n == u32::MAX) {
        return Err(format!("{} is the number of no user or group", u32::MAX));
    }
    let (hash, keys) = (NtHash::of(password), Some(keys(password)?));
    let entry = Entry { name: name.to_owned(), hash, uid, gid, groups, keys };
    let replaced = change_database(files, |d| Ok(d.put(entry)))?;
    let done = if replaced { "changed" } else { "added" };
    let warning = (!known)
        .then(|| format!("the host has no user `{name}`; files will belong to uid {}", cred.uid));
    Ok(Done { what: format!("{done} {name}: uid {}, gid {}", cred.uid, cred.gid), warning })
}

fn list(files: &ServiceFiles, json: bool) -> Result<(), String> {
    let database = read_database(files)?;
    let users: Vec<_> = database
        .entries()
        .map(|e| {
            let identity = Identity { uid: e.uid, gid: e.gid, groups: e.groups.clone() };
            Ok((e.name.clone(), resolve(&e.name, &identity)?))
        })
        .collect::<Result<_, String>>()?;
    if json {
        let all: Vec<_> = users
            .iter()
            .map(|(name, (cred, known))| {
                serde_json::json!({
                    "name": name, "uid": cred.uid, "gid": cred.gid, "groups": &*cred.groups,
                    "known_to_host": known,
                })
            })
            .collect();
        say!("{}", serde_json::Value::from(all));
        return Ok(());
    }
    let mut table =
        tools::table::Table::new(&["user", "uid", "gid"], 1, io::stdout().is_terminal());
    for (name, (cred, _)) in users {
        let cells = vec![name, cred.uid.to_string(), cred.gid.to_string()];
        table.row(cells, tools::table::Tone::Plain);
    }
    say_as_is!("{}", table.render());
    Ok(())
}

/// Prompts twice, without echo.
fn ask(name: &str) -> Result<Zeroizing<String>, String> {
    let first = prompt(&format!("Password for {name}: "))?;
    let second = prompt("Repeat the password: ")?;
    if *first == *second { Ok(first) } else { Err("the two passwords differ".into()) }
}
