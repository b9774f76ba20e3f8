//! What the headers of a call ask for, in both E2B services.

use std::time::Duration;

use connectrpc::RequestContext;

use crate::error::Error;

/// Silence after which a follower gets a keepalive, unless its client asks otherwise.
const KEEPALIVE: Duration = Duration::from_secs(90);

/// `Connect-Timeout-Ms`: of `Start` the process's deadline, of streams how long they last.
pub(crate) fn timeout(ctx: &RequestContext) -> Result<Option<Duration>, Error> {
    let Some(header) = ctx.header("connect-timeout-ms") else {
        return Ok(None);
    };
    let ms = header.to_str().ok().and_then(|text| text.parse().ok());
    let ms = ms.ok_or_else(|| {
        Error::BadRequest("Connect-Timeout-Ms must be a number of milliseconds".to_owned())
    })?;
    Ok(Some(Duration::from_millis(ms)))
}

/// `Keepalive-Ping-Interval`, in seconds.
pub(crate) fn keepalive(ctx: &RequestContext) -> Duration {
    let seconds = ctx
        .header("keepalive-ping-interval")
        .and_then(|header| header.to_str().ok()?.parse::<u32>().ok());
    seconds
        .filter(|&seconds| seconds > 0)
        .map_or(KEEPALIVE, |seconds| Duration::from_secs(seconds.into()))
}
