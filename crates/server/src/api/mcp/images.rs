//! Small images that come with a result, so that an agent sees them without fetching them. Owns how many and how large, and
//! what counts as one: the bytes say it, not the name.

use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use rmcp::model::ContentBlock;

use crate::api::App;
use crate::commands::Caller;

/// The most images of one result.
const COUNT: usize = 10;
/// The most bytes of them together.
const BYTES: usize = 8 << 20;
/// The names that images have.
const NAMES: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// The images of one result.
#[derive(Default)]
pub(super) struct Images(Mutex<Found>);

#[derive(Default)]
struct Found {
    count: usize,
    bytes: usize,
    items: Vec<ContentBlock>,
}

impl Images {
    /// Adds a file of that size if it is an image and there is room for it. One that cannot be read is left out: its address
    /// is in the result all the same.
    pub(super) async fn add(&self, app: &App, caller: &Caller, id: &str, path: &str, bytes: u64) {
        let name = path.to_ascii_lowercase();
        let room = {
            let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if found.count < COUNT {
                BYTES - found.bytes
            } else {
                0
            }
        };
        let fits = usize::try_from(bytes).is_ok_and(|bytes| bytes <= room);
        if bytes == 0 || !fits || !NAMES.iter().any(|ending| name.ends_with(ending)) {
            return;
        }
        let Ok(file) = app.commands.read_file(caller, id, path).await else {
            return;
        };
        let mut body = file.body;
        let mut content = Vec::new();
        while let Some(piece) = body.next().await {
            let Ok(piece) = piece else { return };
            content.extend_from_slice(&piece);
            if content.len() > room {
                return;
            }
        }
        let Some(kind) = kind(&content) else { return };
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.count += 1;
        found.bytes += content.len();
        found
            .items
            .push(ContentBlock::text(format!("image {path}:")));
        let image = ContentBlock::image(STANDARD.encode(&content), kind);
        found.items.push(image);
    }

    /// All of them, each with its name before it.
    pub(super) fn take(self) -> Vec<ContentBlock> {
        let found = self.0.into_inner();
        found.unwrap_or_else(PoisonError::into_inner).items
    }
}

/// The media type of an image, by its first bytes.
fn kind(content: &[u8]) -> Option<&'static str> {
    match content {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_what_they_are() {
        assert_eq!(kind(b"\x89PNG\r\n\x1a\nrest"), Some("image/png"));
        assert_eq!(kind(b"\xff\xd8\xff\xe0"), Some("image/jpeg"));
        assert_eq!(kind(b"GIF89a"), Some("image/gif"));
        assert_eq!(kind(b"RIFF....WEBPVP8 "), Some("image/webp"));
        for other in [&b""[..], b"GIF88a", b"<svg>", b"RIFF....WAVE"] {
            assert_eq!(kind(other), None);
        }
    }
}
