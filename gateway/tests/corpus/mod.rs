//! An isolated host for the files of the corpus, and comparisons of the resulting rights.

mod exports;
mod samba;
mod world;
