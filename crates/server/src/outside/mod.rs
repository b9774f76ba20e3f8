//! Connections from this server to what others name: endpoints of webhooks, and what boxes' services lead to. Owns where such
//! a connection may go, once for all of them.

mod address;
mod dial;

use crate::config::PrivateAddresses;
use crate::record::AccountId;

pub use dial::{Dialer, Target, connect};

/// Which accounts may have the server connect to addresses that are not on the public internet.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    private: PrivateAddresses,
    /// The account that the first start made.
    admin: AccountId,
}

impl Reach {
    /// As the settings have it.
    #[must_use]
    pub fn new(private: PrivateAddresses, admin: AccountId) -> Self {
        Self { private, admin }
    }

    /// Whether an account may.
    #[must_use]
    pub fn private_too(self, account: AccountId) -> bool {
        match self.private {
            PrivateAddresses::Nobody => false,
            PrivateAddresses::Admin => account == self.admin,
            PrivateAddresses::Everyone => true,
        }
    }
}
