//! The server as a client sees it: engine, store, commands and REST together, over real HTTP, on boxes of the fake driver
//! and with the test clock. Time moves only when a test moves it.

mod contract;
mod credits;
mod dashboard;
mod e2b;
mod e2b_once;
mod edge;
mod edge_http2;
mod edge_stream;
mod egress;
mod events;
mod exec;
mod handover;
mod input;
mod keep;
mod life;
mod load;
mod logs;
mod looks;
mod mcp;
mod notices;
mod openapi;
mod program;
mod ready;
mod receiver;
mod restart;
mod rig;
mod room;
mod session;
mod snapshots;
mod steps;
mod tls;
mod versions;
mod wake;
mod webhooks;
mod wiring;
