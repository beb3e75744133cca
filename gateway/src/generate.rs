//! `headgate generate DIR`: man pages and shell completions, for packages.
//!
//! *Operation.* The command line's own description is the source of all pages except headgate.yaml(5), which comes from the
//! table of keys, so that neither can become out of date.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_complete::{Shell, generate_to};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// Name of the completions and man pages.
const NAME: &str = "headgate";

/// Writes `DIR/man` and `DIR/completions`.
pub fn run(command: Command, dir: &Path) -> Result<(), String> {
    let at = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    let (man, completions) = (dir.join("man"), dir.join("completions"));
    for folder in [&man, &completions] {
        fs::create_dir_all(folder).map_err(|e| at(folder, e))?;
    }
    clap_mangen::generate_to(command.clone(), &man).map_err(|e| at(&man, e))?;
    let page = man.join("headgate.yaml.5");
    fs::write(&page, configuration_page()).map_err(|e| at(&page, e))?;
    let mut command = command;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, NAME, &completions).map_err(|e| at(&completions, e))?;
    }
    Ok(())
}

/// Returns the page headgate.yaml(5).
fn configuration_page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["headgate.yaml", "5"]);
    page.control("SH", ["NAME"]);
    page.text([roman("headgate.yaml - what headgate(1) serves, and how")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("A YAML file, named by "),
        bold("headgate serve --config"),
        roman(". An unknown key is an error; "),
        bold("headgate check --config"),
        roman(" tells all of them. SIGHUP reads the file again."),
    ]);
    for group in &config::keys::GROUPS {
        page.control("SH", [if group.name.is_empty() { "TOP OF THE FILE" } else { group.name }]);
        page.text([roman(plain(group.about))]);
        for key in group.keys {
            page.control("TP", []);
            let mut head: Vec<Inline> = vec![bold(key.name), roman(": "), italic(plain(key.value))];
            if !key.default.is_empty() {
                head.push(roman(format!(" (default: {})", key.default)));
            }
            page.text(head);
            page.text([roman(plain(key.about))]);
        }
    }
    page.control("SH", ["FILES"]);
    page.text([roman("/etc/headgate/headgate.yaml, as the systemd unit reads it.")]);
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("headgate"), roman("(1), "), bold("headgate-serve"), roman("(1)")]);
    page.render()
}

/// Returns Markdown as plain text: without code marks, and only the words of a link.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((words, after)) = link.split_once("](") else { break };
        let Some((_, after)) = after.split_once(')') else { break };
        out += before;
        out += words;
        rest = after;
    }
    (out + rest).replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_the_page_and_no_markdown() {
        let page = configuration_page();
        for key in config::keys::GROUPS.iter().flat_map(|g| g.keys) {
            assert!(page.contains(&format!("\\fB{}\\fR", key.name)), "{}", key.name);
        }
        assert!(!page.contains("](") && !page.contains('`'), "{page}");
        assert_eq!(plain("See [shares](#shares), `x`."), "See shares, x.");
        assert_eq!(plain("a [b"), "a [b");
    }
}
