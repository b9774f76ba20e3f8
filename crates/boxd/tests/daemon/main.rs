//! boxd as a whole: the real program on a port of its own, driven through the clients `icebox-wire` makes.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure how long calls took"
)]

mod access;
mod commands;
mod downloads;
mod files;
mod harness;
mod latency;
mod output;
mod processes;
mod reaping;
mod restart;
mod tree;
mod uploads;
mod watching;
