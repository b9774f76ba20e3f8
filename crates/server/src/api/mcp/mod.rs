//! The dialect of agents: MCP over Streamable HTTP at `/mcp`, with the same keys and conversations as REST. Owns the frame
//! of a call: who asks, signs of life while it runs, its end when nobody waits any more, and how its result looks.
//!
//! There are no sessions: every request stands for itself, so a client goes on after the server was restarted. A quick
//! call answers as plain JSON; one that takes longer turns into an event stream with its first sign of life.

mod files;
mod handed;
mod images;
mod keep;
mod logs;
mod params;
mod schema;
mod shape;
mod tools;
mod wiring;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use http::request::Parts;
use icebox_lifecycle::BoxId;
use icebox_wire::rest::{CONFIRMS_HEADER, MessageView};
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, JsonObject, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
    ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tower::Service as _;

use self::handed::Handed;
use self::images::Images;
use self::tools::{Asking, Outcome, TOOLS};
use super::{App, error};
use crate::commands::{Caller, Kind, Trouble};

/// The largest message, in bytes.
const MESSAGE_LIMIT: usize = 8 * 1024 * 1024;
/// How often a call that is under way gives a sign of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);

/// What every agent is told at the beginning.
const INSTRUCTIONS: &str = "\
Boxes are isolated Linux computers that belong to your account. Look at sandbox_list before you start one. A box that nobody \
uses for 10 minutes freezes with its memory; any call that needs it wakes it where it was. A frozen box is stopped for good \
24 h later: keep what matters elsewhere, and stop boxes you are done with. Commands run on when a call ends early. Lines \
under a result are for you: read them; \
`fromHuman` is what a person asks of you.";

/// The MCP server.
#[derive(Clone)]
pub(super) struct Mcp(StreamableHttpService<Agents, NeverSessionManager>);

impl Mcp {
    pub(super) fn new(app: App) -> Self {
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(MESSAGE_LIMIT)
            // A page in a browser cannot make one send the key, by whatever name it calls this host.
            .disable_allowed_hosts();
        let agents = Agents { app };
        let make = move || Ok(agents.clone());
        Self(StreamableHttpService::new(
            make,
            Arc::new(NeverSessionManager::default()),
            config,
        ))
    }

    /// Answers one request of a caller whose key was looked at.
    pub(super) async fn serve(&self, caller: Caller, mut request: Request) -> Response {
        let handed = Handed::default();
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(handed.clone());
        let mut service = self.0.clone();
        match service.call(request).await {
            Ok(response) => response.map(|body| handed.with(body)),
            Err(never) => match never {},
        }
    }
}

/// Answers agents.
#[derive(Clone)]
struct Agents {
    app: App,
}

#[expect(
    deprecated,
    reason = "clients of today's protocol versions know signs of life as log messages"
)]
impl ServerHandler for Agents {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_logging()
            .build();
        let server = Implementation::new("icebox", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities)
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    async fn set_level(
        &self,
        _: rmcp::model::SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Nothing is kept between requests, and there is one kind of message only.
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = TOOLS.iter().map(|tool| tool.listed.clone()).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find(name).map(|tool| tool.listed.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let Some(asking) = parts.and_then(asking) else {
            return Err(ErrorData::internal_error(
                "a request without a caller",
                None,
            ));
        };
        let arguments = request.arguments.unwrap_or_default();
        let named = arguments.get("id").and_then(Value::as_str);
        let named = named.and_then(BoxId::parse);
        let outcome = match tools::find(&request.name) {
            Some(tool) => under_way(&context, (tool.run)(&self.app, &asking, arguments)).await,
            None => Err(no_such_tool(&request.name)),
        };
        let mut notices = self.app.commands.notices(&asking.caller, named);
        let outcome = match (outcome, named) {
            (Ok(fields), Some(id)) => {
                Ok(self.with_messages(&asking, id, fields, &mut notices).await)
            }
            (outcome, _) => outcome,
        };
        Ok(result(outcome, notices, asking.images).into())
    }
}

impl Agents {
    /// Adds what people left at the box for whoever holds it: as a field, and as lines of their own. A client that confirms
    /// makes the lines by itself, of what it does not know yet.
    async fn with_messages(
        &self,
        asking: &Asking,
        id: BoxId,
        mut fields: JsonObject,
        notices: &mut Vec<String>,
    ) -> JsonObject {
        let commands = &self.app.commands;
        let left = commands.from_human(&asking.caller, id, asking.confirms);
        // The result stands, whatever became of the messages: they wait for the next one.
        let (left, receipt) = left.await.unwrap_or_default();
        if left.is_empty() {
            return fields;
        }
        if let Some(receipt) = receipt {
            asking.handed.add(receipt);
            notices.extend(left.iter().map(|message| message.line(id.as_str())));
        }
        let said = |message: MessageView| json!({"id": message.id, "at": message.at, "text": message.text});
        let said: Vec<Value> = left.into_iter().map(said).collect();
        fields.insert("fromHuman".to_owned(), said.into());
        fields
    }
}

/// Who asks, and under which name this server was asked.
fn asking(parts: &Parts) -> Option<Asking> {
    let caller = parts.extensions.get::<Caller>()?.clone();
    let text = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let host = text("host").unwrap_or("localhost");
    let scheme = match text("x-forwarded-proto") {
        Some("https") => "https",
        Some(_) | None => "http",
    };
    Some(Asking {
        caller,
        base: format!("{scheme}://{host}"),
        confirms: text(CONFIRMS_HEADER) == Some("1"),
        handed: parts.extensions.get::<Handed>()?.clone(),
        images: Images::default(),
    })
}

fn no_such_tool(name: &str) -> Trouble {
    let known: Vec<&str> = TOOLS.iter().map(|tool| &*tool.listed.name).collect();
    let name: String = name.chars().take(100).collect();
    let text = format!(
        "there is no tool `{name}`; there are `{}`",
        known.join("`, `")
    );
    Trouble::new(Kind::NotFound, text)
}

/// Waits for a call, with signs of life. When the client cancels it or goes away, the wait ends; what runs in a box goes on
/// (rule 12.2).
async fn under_way(
    context: &RequestContext<RoleServer>,
    call: impl Future<Output = Outcome>,
) -> Outcome {
    let mut call = std::pin::pin!(call);
    let mut waited = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            outcome = &mut call => return outcome,
            () = context.ct.cancelled() => {
                let text = "the call was cancelled; a command that it began goes on, see sandbox_procs";
                return Err(Trouble::new(Kind::Busy, text));
            }
            () = tokio::time::sleep(SIGN_OF_LIFE) => {
                waited += SIGN_OF_LIFE;
                sign_of_life(context, waited.as_secs()).await;
            }
        }
    }
}

#[expect(
    deprecated,
    reason = "clients of today's protocol versions know signs of life as log messages"
)]
async fn sign_of_life(context: &RequestContext<RoleServer>, waited_sec: u64) {
    let text = format!("still running after {waited_sec} s");
    let sent = if let Some(token) = context.meta.get_progress_token() {
        #[expect(
            clippy::cast_precision_loss,
            reason = "no call takes that many seconds"
        )]
        let progress = ProgressNotificationParam::new(token, waited_sec as f64);
        context
            .peer
            .notify_progress(progress.with_message(text))
            .await
    } else if context
        .protocol_version()
        .is_none_or(|version| version < ProtocolVersion::V_2026_07_28)
    {
        use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, text.into());
        context.peer.notify_logging_message(message).await
    } else {
        Ok(())
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "a client does not hear signs of life");
    }
}

/// The first text is the result, or what went wrong in words; each notice is a text of its own. Images come last.
fn result(outcome: Outcome, notices: Vec<String>, images: Images) -> CallToolResult {
    let (text, fields, failed) = match outcome {
        Ok(fields) => (None, Value::Object(fields), false),
        Err(trouble) => {
            let text = trouble.text.clone();
            (Some(text), error_fields(trouble).into(), true)
        }
    };
    let text = text.unwrap_or_else(|| fields.to_string());
    let mut content = vec![ContentBlock::text(text)];
    content.extend(notices.into_iter().map(ContentBlock::text));
    content.extend(images.take());
    let mut result = if failed {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    result.structured_content = Some(fields);
    result
}

/// What REST would say, with the time after which to try again.
fn error_fields(trouble: Trouble) -> JsonObject {
    let retry_after_sec = trouble.retry_after_sec;
    let body = serde_json::to_value(error::body(trouble));
    let mut fields = match body {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => JsonObject::new(),
    };
    if let Some(sec) = retry_after_sec {
        fields.insert("retryAfterSec".to_owned(), sec.into());
    }
    fields
}
