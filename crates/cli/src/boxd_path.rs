//! Where boxd is, the daemon that goes into every box: beside an installed `icebox`, or where the build puts it. Owns
//! that search; whether the file is any good is the driver's to say.

use std::path::{Path, PathBuf};

/// Where it is looked for, from the folder of this program.
const PLACES: [&str; 2] = ["../lib/icebox/boxd", "../boxd/boxd"];

/// The file named by `ICEBOX_BOXD`, or the first that is there; when none is, the place an install would have put it.
pub(crate) fn find() -> PathBuf {
    if let Some(named) = std::env::var_os("ICEBOX_BOXD").filter(|named| !named.is_empty()) {
        return named.into();
    }
    let program = std::env::current_exe().unwrap_or_default();
    // A link in PATH leads to where the rest is installed.
    let program = program.canonicalize().unwrap_or(program);
    near(program.parent().unwrap_or(Path::new("/")))
}

fn near(folder: &Path) -> PathBuf {
    let places = PLACES.map(|place| folder.join(place));
    let found = places.iter().find(|place| place.is_file());
    found.unwrap_or(&places[0]).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_beside_an_install_and_beside_a_build() {
        let dir = tempfile::tempdir().unwrap();
        for (program, boxd) in [
            ("bin", "lib/icebox/boxd"),
            ("target/release", "target/boxd/boxd"),
        ] {
            let (folder, boxd) = (dir.path().join(program), dir.path().join(boxd));
            std::fs::create_dir_all(&folder).unwrap();
            assert_eq!(
                near(&folder),
                folder.join("../lib/icebox/boxd"),
                "there is none yet"
            );
            std::fs::create_dir_all(boxd.parent().unwrap()).unwrap();
            std::fs::write(&boxd, "").unwrap();
            assert_eq!(
                near(&folder).canonicalize().unwrap(),
                boxd.canonicalize().unwrap()
            );
        }
    }
}
