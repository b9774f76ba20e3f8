//! Randomness from the kernel, in the forms the server needs. Keeps no state and seeds nothing.

use std::fmt::Write as _;

use icebox_lifecycle::id::BOX_ID_LEN;
use icebox_lifecycle::{BoxId, SnapshotId};
use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes.
///
/// # Panics
/// When the kernel gives none: nothing that needs secrets may go on then.
#[must_use]
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Up to 256 bytes the kernel gives all of them or fails.
    const { assert!(N <= 256) };
    let got = getrandom(&mut bytes[..], GetRandomFlags::empty());
    assert_eq!(got, Ok(N), "the kernel gave no randomness");
    bytes
}

/// `N` random bytes as lowercase hex.
#[must_use]
pub fn hex<const N: usize>() -> String {
    bytes::<N>().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// An id for a new box.
#[must_use]
pub fn box_id() -> BoxId {
    BoxId::from_random(even())
}

/// An id for a new snapshot.
#[must_use]
pub fn snapshot_id() -> SnapshotId {
    SnapshotId::from_random(even())
}

/// Randomness for an id. Values that would favour some letters are thrown away.
fn even() -> [u8; BOX_ID_LEN] {
    const EVEN: u8 = 252;
    let mut even = [0; BOX_ID_LEN];
    let mut filled = 0;
    while filled < BOX_ID_LEN {
        for byte in bytes::<32>() {
            if byte < EVEN && filled < BOX_ID_LEN {
                even[filled] = byte;
                filled += 1;
            }
        }
    }
    even
}
