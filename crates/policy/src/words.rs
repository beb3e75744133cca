//! Types whose values are one of a few words.

/// Implements parsing and formatting of a type from a table of its words, in the order in which messages list them. The text before
/// the table describes the error for unknown words.
#[macro_export]
macro_rules! words {
    ($kind:ident, $wrong:literal, $($word:literal => $value:ident),+) => {
        impl std::str::FromStr for $kind {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$value),)+
                    _ => Err(format!("`{text}` {}; write {}", $wrong, $crate::listed(&[$($word),+]))),
                }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$value => $word,)+
                })
            }
        }
    };
}

/// Formats a list as `a`, `b` or `c`.
pub fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}
