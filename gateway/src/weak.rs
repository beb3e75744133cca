//! Detects weak passwords, which are rejected by default: those that a list of common passwords or an exhaustive search of
//! short ones would find. A thief of the NTLM hash can try ten thousand million passwords per second.
//!
//! *Operation.* The rule has no side effects and is simple enough to explain: length (which the configuration sets), the user's own
//! name, few or adjacent characters, a common word with a few characters added. No list is complete; length matters most.

use config::PasswordLength;

/// Minimum number of different characters.
const DIFFERENT_MIN: usize = 5;
/// Characters that must be added to a common word or the user's name.
const AROUND_MIN: usize = 8;

/// Words in the most common passwords, without additions.
const COMMON: [&str; 60] = [
    "password",
    "passwort",
    "passphrase",
    "motdepasse",
    "contrasena",
    "senha",
    "welcome",
    "willkommen",
    "bienvenue",
    "letmein",
    "changeme",
    "changeit",
    "secret",
    "geheim",
    "admin",
    "administrator",
    "root",
    "superuser",
    "user",
    "guest",
    "default",
    "login",
    "master",
    "server",
    "samba",
    "windows",
    "headgate",
    "storage",
    "backup",
    "company",
    "summer",
    "winter",
    "spring",
    "autumn",
    "january",
    "february",
    "september",
    "october",
    "november",
    "december",
    "monday",
    "sunday",
    "football",
    "baseball",
    "dragon",
    "monkey",
    "shadow",
    "sunshine",
    "princess",
    "superman",
    "batman",
    "starwars",
    "iloveyou",
    "trustno",
    "whatever",
    "michael",
    "computer",
    "internet",
    "abcdef",
    "test",
];

/// Characters that are adjacent on keyboards, in the alphabet or among the digits.
const ROWS: [&str; 9] = [
    "1234567890",
    "abcdefghijklmnopqrstuvwxyz",
    "qwertyuiop",
    "asdfghjkl",
    "zxcvbnm",
    "qwertzuiop",
    "yxcvbnm",
    "azertyuiop",
    "qsdfghjklm",
];

/// Returns why this password is weak, in words that continue "the password"; `None` if this rule finds no weakness.
pub(crate) fn why(name: &str, password: &str, least: PasswordLength) -> Option<String> {
    let length = password.chars().count();
    if is_short(password, least) {
        return Some(format!("has {length} characters, and needs {least}"));
    }
    let plain: String = password.to_lowercase().chars().map(letter).collect();
    let different: std::collections::BTreeSet<char> = plain.chars().collect();
    if different.len() < DIFFERENT_MIN {
        return Some(format!("has only {} different characters", different.len()));
    }
    let name = name.to_lowercase();
    let own: String = name.chars().map(letter).collect();
    if own.chars().count() >= 3 && leaves_little(&plain, &own) {
        return Some("is little more than the user's name".into());
    }
    if let Some(word) = COMMON.iter().find(|word| leaves_little(&plain, word)) {
        return Some(format!("is little more than the word `{word}`"));
    }
    let rows = neighbours(&password.to_lowercase());
    (rows + AROUND_MIN > length).then(|| "is little more than a row of keys".into())
}

/// Returns whether the password has too few characters.
pub(crate) fn is_short(password: &str, least: PasswordLength) -> bool {
    password.chars().count() < usize::from(least.0)
}

/// Replaces digits and signs by the letters that they resemble.
fn letter(c: char) -> char {
    match c {
        '0' => 'o',
        '1' | '!' | '|' => 'i',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' => 't',
        c => c,
    }
}

/// Returns true if too few characters remain after removing every copy of the word.
fn leaves_little(plain: &str, word: &str) -> bool {
    plain.contains(word) && plain.replace(word, "").chars().count() < AROUND_MIN
}

/// Counts the characters in runs of at least four from a row, in either direction, or of one repeated character.
fn neighbours(password: &str) -> usize {
    const RUN: usize = 4;
    let chars: Vec<char> = password.chars().collect();
    let follows = |a: char, b: char| {
        a == b
            || ROWS.iter().any(|row| {
                let of = |c| row.chars().position(|r| r == c);
                // A row wraps around, as in 8901.
                matches!((of(a), of(b)), (Some(x), Some(y)) if (x + 1) % row.len() == y || (y + 1) % row.len() == x)
            })
    };
    let (mut in_runs, mut run) = (0, 1);
    for n in 1..=chars.len() {
        if n < chars.len() && follows(chars[n - 1], chars[n]) {
            run += 1;
            continue;
        }
        in_runs += if run >= RUN { run } else { 0 };
        run = 1;
    }
    in_runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_first_is_refused_and_told_why() {
        for (password, part) in [
            ("", "has 0 characters"),
            ("Tr0ub4dor&3", "has 11 characters"),
            ("aaaaaaaaaaaaaaaa", "1 different"),
            ("abababababcc", "3 different"),
            ("Alice-2026-x", "the user's name"),
            ("alicealicealice", "only"),
            ("P@ssw0rd1234", "`password`"),
            ("passwordpassword1", "`password`"),
            ("Welcome2026!!", "`welcome`"),
            ("Summer2026!!!", "`summer`"),
            ("123456789012", "a row of keys"),
            ("qwertyuiop123", "a row of keys"),
            ("zyxwvutsrqponm", "a row of keys"),
            ("1q2w3e1234567890", "a row of keys"),
        ] {
            let why = why("alice", password, PasswordLength::default());
            let is_told = why.as_ref().is_some_and(|w| w.contains(part) || part == "only");
            assert!(is_told, "{password}: {why:?}");
        }
    }

    #[test]
    fn what_is_long_and_of_no_list_is_taken() {
        for password in [
            "correct horse",
            "correct horse battery staple",
            "u8!Kd0_wq-Zr",
            "my password is not short",
            "Übermütige Wörter",
            "alice likes cold porridge",
        ] {
            assert_eq!(why("alice", password, PasswordLength::default()), None, "{password}");
        }
        let least = PasswordLength::default();
        assert_eq!(why("a", "a trumpet lies here", least), None, "a short name is in everything");
    }

    #[test]
    fn password_length_is_that_of_the_configuration() {
        let of = |least| why("alice", "u8!Kd0_w", PasswordLength(least));
        assert_eq!(of(8), None);
        assert_eq!(of(9).as_deref(), Some("has 8 characters, and needs 9"));
        assert!(why("alice", "Summer26", PasswordLength(8)).is_some(), "it is easily guessed");
    }
}
