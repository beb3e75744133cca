//! A host of its own for the files of the corpus, and what they give there.

mod exports;
mod samba;
mod world;
