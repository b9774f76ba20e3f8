//! The secret of a webhook and the signature it makes, as the Standard Webhooks convention has it: `whsec_` and base64,
//! HMAC-SHA256 over id, time and body. Owns that nothing but its one form for its owner shows it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::random;

const PREFIX: &str = "whsec_";
/// Bytes of a secret that we make.
const LEN: usize = 32;
/// Bytes that a given one may have.
const LENS: std::ops::RangeInclusive<usize> = 24..=64;

/// A key for signatures.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        Self(random::bytes::<LEN>().to_vec())
    }

    /// Reads one in the form that people are shown.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
        LENS.contains(&bytes.len()).then_some(Self(bytes))
    }

    /// The form that its owner is shown, once.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// For the store only.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// From the store only.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// What `webhook-signature` says of a message.
    #[must_use]
    pub fn sign(&self, id: &str, at_sec: i64, body: &str) -> String {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        mac.update(format!("{id}.{at_sec}.").as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_openssl_makes() {
        // printf '%s' 'msg_1.1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdefghijklmn -binary | base64
        let secret = Secret::parse("whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1u").unwrap();
        assert_eq!(secret.bytes(), b"0123456789abcdefghijklmn");
        let signature = secret.sign("msg_1", 1_700_000_000, r#"{"a":1}"#);
        assert_eq!(signature, "v1,4ezmuBq3l8hTsGAKr/4Th11OaqFEh0xQLo+s2Ky0inM=");
    }

    #[test]
    fn secrets_are_read_in_their_form_only_and_never_printed() {
        let secret = Secret::random();
        assert_eq!(Secret::parse(&secret.reveal()).unwrap(), secret);
        assert!(secret.reveal().starts_with("whsec_"));
        let short = format!("whsec_{}", STANDARD.encode([7; 23]));
        let long = format!("whsec_{}", STANDARD.encode([7; 65]));
        let bare = STANDARD.encode([7; 32]);
        for text in ["", "whsec_", "whsec_!!", &short, &long, &bare] {
            assert_eq!(Secret::parse(text), None, "{text}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}
