//! Finds the known word nearest to a misspelt one.

/// Returns the number of single-character changes (insert, delete, replace, swap neighbours) that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut rows = vec![0usize; (a.len() + 1) * width];
    let at = |i: usize, j: usize| i * width + j;
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[at(i, j)] = if i == 0 || j == 0 {
                i + j
            } else {
                let replace = rows[at(i - 1, j - 1)] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = replace.min(rows[at(i - 1, j)] + 1).min(rows[at(i, j - 1)] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[at(i - 2, j - 2)] + 1);
                }
                best
            };
        }
    }
    rows[at(a.len(), b.len())]
}

/// Returns the known word that `word` is probably a misspelling of.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // Skip long words: comparing a megabyte would be slow and pointless.
    if word.len() > 40 {
        return None;
    }
    let plain = word.to_lowercase().replace('-', "_");
    known
        .iter()
        .map(|k| (distance(&plain, k), *k))
        .min()
        .filter(|(d, k)| *d <= 1 + k.len() / 4)
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distances_are_minimal() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("squash", "sqaush"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn only_near_words_are_suggested() {
        let known = ["name", "path", "read_only", "squash", "clients"];
        assert_eq!(nearest("sqush", &known), Some("squash"));
        assert_eq!(nearest("Read-Only", &known), Some("read_only"));
        assert_eq!(nearest("readonly", &known), Some("read_only"));
        assert_eq!(nearest("encryption", &known), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), &known), None);
    }
}
