//! Who may call, and as whom a call acts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use connectrpc::{ConnectError, RequestContext};

use crate::settings::Settings;
use crate::users::User;

/// The user named by `Authorization: Basic base64("<user>:")`, the settings' default otherwise.
pub(crate) fn acting_user(ctx: &RequestContext, settings: &Settings) -> Result<User, ConnectError> {
    let name = match ctx.header("authorization") {
        None => None,
        Some(header) => {
            let name = header.to_str().ok().and_then(basic_user);
            let refused = "authorization must be Basic with a user name";
            Some(name.ok_or_else(|| ConnectError::unauthenticated(refused))?)
        }
    };
    let user = settings.now().user(name.as_deref());
    user.map_err(|error| ConnectError::unauthenticated(error.to_string()))
}

fn basic_user(header: &str) -> Option<String> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(encoded.trim()).ok()?).ok()?;
    Some(decoded.split(':').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_basic_header_names_a_user() {
        assert_eq!(basic_user("Basic dXNlcjo="), Some("user".to_owned()));
        assert_eq!(basic_user("basic dXNlcg=="), Some("user".to_owned()));
        for header in ["Bearer dXNlcjo=", "Basic", "Basic !", "Basic /w=="] {
            assert_eq!(basic_user(header), None, "{header}");
        }
    }
}
