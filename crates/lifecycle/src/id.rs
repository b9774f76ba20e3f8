//! Names of things: boxes, snapshots, operations, calls, copies. Owns their text form and nothing else; nothing
//! here makes a random id, since randomness is input.

use core::fmt;

/// How many characters the id of a box has.
pub const BOX_ID_LEN: usize = 20;

/// The id of a box: 20 lowercase letters and digits, no dash (it becomes a host name label).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoxId([u8; BOX_ID_LEN]);

impl BoxId {
    /// The first of all ids, in their order.
    pub const FIRST: Self = Self([b'0'; BOX_ID_LEN]);
    /// The last one.
    pub const LAST: Self = Self([b'z'; BOX_ID_LEN]);

    /// Reads the text form; `None` unless it is exactly 20 characters of `a-z0-9`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; BOX_ID_LEN] = text.as_bytes().try_into().ok()?;
        let fits = bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        fits.then_some(Self(bytes))
    }

    /// Makes an id out of random bytes, which the caller supplies.
    #[must_use]
    pub fn from_random(random: [u8; BOX_ID_LEN]) -> Self {
        const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        Self(random.map(|byte| ALPHABET[usize::from(byte) % ALPHABET.len()]))
    }

    /// The text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The constructors admit ASCII only, so this never falls back.
        core::str::from_utf8(&self.0).unwrap_or("")
    }
}

impl fmt::Display for BoxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for BoxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How many characters the id of a snapshot has.
pub const SNAPSHOT_ID_LEN: usize = 20;
/// How many of them are chosen at random.
pub const SNAPSHOT_RANDOM_LEN: usize = 16;

const SNAPSHOT_PREFIX: [u8; SNAPSHOT_ID_LEN - SNAPSHOT_RANDOM_LEN] = *b"snap";

/// The id of a snapshot: `snap` and 16 lowercase letters and digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId([u8; SNAPSHOT_ID_LEN]);

impl SnapshotId {
    /// Reads the text form; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let BoxId(bytes) = BoxId::parse(text)?;
        bytes.starts_with(&SNAPSHOT_PREFIX).then_some(Self(bytes))
    }

    /// Makes an id out of random bytes, which the caller supplies.
    #[must_use]
    pub fn from_random(random: [u8; BOX_ID_LEN]) -> Self {
        let BoxId(mut bytes) = BoxId::from_random(random);
        bytes[..SNAPSHOT_PREFIX.len()].copy_from_slice(&SNAPSHOT_PREFIX);
        Self(bytes)
    }

    /// The text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The constructors admit ASCII only, so this never falls back.
        core::str::from_utf8(&self.0).unwrap_or("")
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One asking of the driver. Numbered per box, never reused, so that a late outcome can be told
/// from the awaited one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// One call under way against a box; chosen by the engine, unique while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// One copy of a box on disk: the `n` of `copies/<n>`. Numbered per box, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyId(pub u32);
