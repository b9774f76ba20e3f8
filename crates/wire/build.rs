//! Generates boxd's messages, service traits and clients from `proto/`, without needing `protoc`.
//!
//! Owns the choice of generator options. What the generated code means is said in the `.proto` files.

use std::error::Error;
use std::path::PathBuf;

use protox::prost::Message as _;

/// Proto files, named as their imports would name them.
const FILES: [&str; 4] = [
    "process/process.proto",
    "filesystem/filesystem.proto",
    "icebox/boxd.proto",
    "icebox/handover.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?);
    let descriptors = protox::Compiler::new(["proto"])?
        .include_imports(true)
        .include_source_info(true)
        .open_files(FILES)?
        .file_descriptor_set();
    let set = out.join("descriptors.bin");
    std::fs::write(&set, descriptors.encode_to_vec())?;
    connectrpc_build::Config::new()
        .descriptor_set(&set)
        .files(&FILES)
        .include_file("_connectrpc.rs")
        .emit_rerun_directives(false)
        .compile()?;
    println!("cargo:rerun-if-changed=proto");
    Ok(())
}
