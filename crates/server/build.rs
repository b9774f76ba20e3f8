//! The dashboard is part of the program: when it was built anew, so is what holds it.

fn main() {
    println!("cargo:rerun-if-changed=../../web/dist");
}
