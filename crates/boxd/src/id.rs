//! Ids of processes and of boxd's own start.

use std::fmt;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::clock;
use crate::error::Error;

/// Names a process for ever: 16 lowercase hex digits, chosen by the client or made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ExecId(u64);

impl ExecId {
    /// A fresh one.
    pub(crate) fn fresh() -> Self {
        Self(random())
    }

    /// Reads a client's.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let bad = || Error::BadExecId(text.chars().take(64).collect());
        if text.len() != 16 || !text.bytes().all(hex) {
            return Err(bad());
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| bad())
    }
}

impl fmt::Display for ExecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Only a kernel older than the ones boxes run on lacks it; the clock still makes ids differ.
        Ok(_) | Err(_) => clock::unix_ms()
            .unsigned_abs()
            .wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_being_written_and_read() {
        let id = ExecId::fresh();
        assert_eq!(ExecId::parse(&id.to_string()).expect("its own text"), id);
        assert_ne!(id, ExecId::fresh());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "0123456789abcde",
            "0123456789ABCDEF",
            "0123456789abcdefg",
            "+123456789abcdef",
        ] {
            assert!(ExecId::parse(text).is_err(), "{text:?}");
        }
    }
}
