//! Whether a place in a box is one that a call may name. The daemon there holds to the same, but a box that is frozen must
//! not wake to refuse a call.

use std::path::Path;

use icebox_wire::place::{WORK_DIR, destination, locate, locate_file};

use super::{Kind, Trouble};

/// The path of a file or a folder to read.
pub fn path(value: &str) -> Result<(), Trouble> {
    said("path", locate(Path::new(WORK_DIR), value))
}

/// The path of a file to write.
pub fn file_path(value: &str) -> Result<(), Trouble> {
    said("path", locate_file(Path::new(WORK_DIR), value))
}

/// The folder that a tree is merged into.
pub fn dest(value: &str) -> Result<(), Trouble> {
    said("dest", destination(Path::new(WORK_DIR), value))
}

fn said<T>(field: &str, checked: Result<T, String>) -> Result<(), Trouble> {
    let fits = checked.map(drop);
    fits.map_err(|why| Trouble::new(Kind::BadRequest, why).with("field", field))
}
