//! What people see first of a box (`sandbox_scene`): one of its services, a page of one, or a page of somebody else's.

use std::sync::Arc;

use icebox_wire::rest::SceneRequest;

use super::check::{self, unfit};
use super::trouble::{Kind, Trouble};
use super::{Caller, Commands};
use crate::engine::View;
use crate::outside::Target;
use crate::record::{Record, Scene, Shows};
use crate::store::{Ending, HistoryStep, SUMMARY_LEN, cut};

/// What a box's own programs call its own machine.
const OWN_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

impl Commands {
    /// Chooses what the scene of a box is. It is use, and wakes.
    pub async fn set_scene(
        &self,
        caller: &Caller,
        id: &str,
        request: SceneRequest,
    ) -> Result<Arc<View>, Trouble> {
        let view = self.find(caller, id)?;
        let shows = chosen(&view.record, &request)?;
        let step = HistoryStep {
            at: self.0.clock.now(),
            exec: None,
            kind: "scene",
            summary: cut(
                request
                    .service
                    .as_deref()
                    .or(request.url.as_deref())
                    .unwrap_or_default(),
                SUMMARY_LEN,
            ),
            note: None,
            detail: None,
            target: None,
            ending: Ending::default(),
        };
        let again = || {
            let view = self.find(caller, id)?;
            chosen(&view.record, &request).map(drop)
        };
        let change = move |record: &mut Record| {
            let scene = record.scene.take().unwrap_or_default();
            record.scene = Some(Box::new(Scene {
                shows: Some(shows),
                ..*scene
            }));
        };
        self.rewire(caller, view.id(), step, again, change).await
    }
}

fn chosen(record: &Record, request: &SceneRequest) -> Result<Shows, Trouble> {
    match (&request.service, &request.url) {
        (Some(name), None) => {
            let known = record.services.iter().any(|service| service.name == *name);
            if !known {
                return Err(unfit("service"));
            }
            Ok(Shows::Page {
                place: name.clone(),
                path: "/".to_owned(),
            })
        }
        (None, Some(url)) => page(record, url),
        (Some(_), Some(_)) => Err(Trouble::bad("url", "left out when `service` is given")),
        (None, None) => {
            let text = "`service` is required, or `url`: what people are to see first";
            Err(Trouble::new(Kind::BadRequest, text).with("field", "service"))
        }
    }
}

/// A page by its URL, which may be written as programs in the box would.
fn page(record: &Record, url: &str) -> Result<Shows, Trouble> {
    let bad = |why: &str| {
        let limit = format!("`http://` or `https://`, a host, and perhaps a path: {why}");
        Trouble::bad("url", limit)
    };
    let target = Target::parse(url).map_err(bad)?;
    let host = target.host.to_ascii_lowercase();
    let mut services = record.services.iter();
    let place = if OWN_HOSTS.contains(&&*host) {
        check::port("url", target.port).map_err(|_| bad("its port is the box's own daemon"))?;
        let of_port = services.find(|service| service.port == target.port);
        Some(of_port.map_or_else(|| target.port.to_string(), |service| service.name.clone()))
    } else {
        let named = services.find(|service| service.name == host);
        if let Some(service) = named
            && service.port != target.port
            && target.authority.contains(':')
        {
            return Err(bad(&format!(
                "port {} is not that of `{host}`",
                target.port
            )));
        }
        named.map(|service| service.name.clone())
    };
    Ok(match place {
        Some(place) => Shows::Page {
            place,
            path: target.path,
        },
        None => Shows::Url(url.to_owned()),
    })
}
