//! The dashboard is part of the program: when it was built anew, so is what holds it. A program for developers reads it
//! from its folder as it runs, and needs nothing of that.

fn main() {
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let watched = if is_release {
        "../../web/dist"
    } else {
        "build.rs"
    };
    println!("cargo:rerun-if-changed={watched}");
}
