//! The way out of a terminal that may not answer: `~.` at the beginning of a line, as with ssh.

/// What begins it.
const TILDE: u8 = b'~';

/// How far it has been typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A `~` would begin it.
    LineStart,
    /// Anywhere else.
    Within,
    /// Behind that `~`, which is not passed on yet.
    Tilde,
}

/// Looks for it in what is typed.
#[derive(Debug)]
pub(super) struct Escape(At);

impl Default for Escape {
    fn default() -> Self {
        Self(At::LineStart)
    }
}

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Typed {
    /// What is passed on.
    pub(super) bytes: Vec<u8>,
    /// That was the way out, and nothing behind it counts.
    pub(super) leaves: bool,
}

impl Escape {
    /// Takes what was typed next.
    pub(super) fn take(&mut self, typed: &[u8]) -> Typed {
        let mut bytes = Vec::with_capacity(typed.len() + 1);
        for &byte in typed {
            match (self.0, byte) {
                (At::LineStart, TILDE) => {
                    self.0 = At::Tilde;
                    continue;
                }
                (At::Tilde, b'.') => {
                    return Typed {
                        bytes,
                        leaves: true,
                    };
                }
                (At::Tilde, TILDE) | (At::LineStart | At::Within, _) => {}
                (At::Tilde, _) => bytes.push(TILDE),
            }
            bytes.push(byte);
            self.0 = match byte {
                b'\r' | b'\n' => At::LineStart,
                _ => At::Within,
            };
        }
        Typed {
            bytes,
            leaves: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_and_a_point_at_the_beginning_of_a_line_lead_out() {
        for (typed, passed, leaves) in [
            ("~.", "", true),
            ("ls\r~.x", "ls\r", true),
            ("ls ~.\r", "ls ~.\r", false),
            ("~~.", "~.", false),
            ("~/x\r", "~/x\r", false),
            ("~\r~.", "~\r", true),
            ("\r~", "\r", false),
        ] {
            // In one piece, and byte by byte.
            let whole = Escape::default().take(typed.as_bytes());
            let mut escape = Escape::default();
            let (mut bytes, mut left) = (Vec::new(), false);
            for byte in typed.bytes() {
                if !left {
                    let typed = escape.take(&[byte]);
                    bytes.extend(typed.bytes);
                    left = typed.leaves;
                }
            }
            assert_eq!(
                whole,
                Typed {
                    bytes: passed.as_bytes().to_vec(),
                    leaves
                },
                "{typed:?}"
            );
            assert_eq!(
                (bytes.as_slice(), left),
                (passed.as_bytes(), leaves),
                "{typed:?}"
            );
        }
    }
}
