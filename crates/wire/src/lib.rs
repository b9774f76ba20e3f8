//! What crosses a process boundary, as types: boxd's protocol and, beside it, the REST shapes.
//!
//! Owns names on the wire and their encoding. Knows nothing of what a server or boxd does with them.

pub mod boxd;
pub mod place;
pub mod rest;
pub mod tree;

#[expect(
    missing_docs,
    unreachable_pub,
    reason = "the words are in the .proto files the code is made from"
)]
mod generated {
    connectrpc::include_generated!();
}

pub use generated::filesystem;
pub use generated::icebox::boxd::handover::v1 as handover;
pub use generated::process;
