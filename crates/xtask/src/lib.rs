//! Tasks of this repository. Owns what is run by developers and tests against the finished program: the
//! harness that starts real servers, the crash matrix, the benchmarks, and the checks of the tree itself.

pub mod bench;
pub mod browser;
pub mod crash;
pub mod docs;
pub mod harness;
pub mod outside;
pub mod sdks;
pub mod sim;
pub mod tidy;
