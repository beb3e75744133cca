//! Prints docs/configuration.md.

fn main() {
    print!("{}", config::keys::reference());
}
