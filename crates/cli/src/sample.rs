//! A box for tests. Owns one view with ordinary values; each test changes what it is about.

use std::collections::BTreeMap;

use icebox_wire::rest::{BoxView, SizeView, Status};

/// A ready box, used last at 13:00 UTC on Wednesday, 2026-03-04.
pub(crate) fn ready() -> BoxView {
    let at = "2026-03-04T13:00:00Z".parse().expect("a time");
    BoxView {
        id: "abcd0123456789abcdef".to_owned(),
        status: Status::Ready,
        name: None,
        goal: None,
        created_at: at,
        last_used_at: at,
        status_reason: None,
        idle_timeout_min: None,
        stops_at: None,
        restorable_until: None,
        keep: false,
        waits_for_room: None,
        freeze: None,
        tier: None,
        keeps: None,
        snapshot_error: None,
        agent: None,
        services: Vec::new(),
        links: Vec::new(),
        linked_from: Vec::new(),
        connections: Vec::new(),
        scene_url: None,
        web_url: None,
        private: None,
        egress: None,
        environment: None,
        running: None,
        disk: None,
        health: None,
        image: "host".to_owned(),
        image_id: None,
        boxd_version: None,
        size: SizeView {
            cpus: 2.0,
            memory_mb: 2048,
            disk_gb: 10,
        },
        host: None,
        metadata: BTreeMap::new(),
        observed_at: None,
        state_recorded_at: None,
        why: Vec::new(),
        steps: Vec::new(),
        notices: Vec::new(),
        unknown_fields: Vec::new(),
    }
}
