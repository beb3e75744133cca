//! Peers that break the rules, on raw sockets.
