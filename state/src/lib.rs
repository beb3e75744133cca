//! Who may open, lock and cache what.
