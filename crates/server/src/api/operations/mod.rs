//! Every call of the boxes dialect, once. Routes and `/openapi.json` are made from the one table in `table.rs`; what a call asks
//! and answers is read off the types of its handler, so that neither can say what the other does not. Owns how calls are named
//! and described; what they do is their handlers'.

mod answers;
mod asks;
mod document;
mod table;

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

pub(super) use answers::{Answer, Answers, Created, Either, Like};
pub(super) use asks::{NoQuery, Param, Query, Takes};
pub(super) use document::document;
pub(super) use table::table;

use super::App;
use crate::commands::Kind;
use asks::{Asked, Asks, Call, Taken, Who};

/// One call.
pub(super) struct Operation {
    method: Method,
    path: &'static str,
    /// Its name in programs that are made from the document.
    id: &'static str,
    /// What it does, in a few words.
    summary: &'static str,
    /// What else has to be known.
    about: Option<&'static str>,
    asked: Asked,
    answers: Vec<Answer>,
    /// What can go wrong, besides what can everywhere.
    refusals: Vec<Kind>,
    /// The tools that do the same for agents.
    tools: &'static [&'static str],
    route: MethodRouter<App>,
}

impl Operation {
    /// Says more about it.
    fn about(self, about: &'static str) -> Self {
        let about = Some(about);
        Self { about, ..self }
    }

    /// Says what can go wrong.
    fn refuses(mut self, kinds: &[Kind]) -> Self {
        self.refusals.extend(kinds);
        self
    }

    /// Names the tools that do the same.
    fn tools(self, tools: &'static [&'static str]) -> Self {
        Self { tools, ..self }
    }

    /// Says what the bytes are that its handler reads.
    fn takes(mut self, taken: Taken) -> Self {
        self.asked.body = Some(taken);
        self
    }

    /// Says who may call, where the handler looks by itself.
    fn by(mut self, who: Who) -> Self {
        self.asked.who = who;
        self
    }
}

macro_rules! methods {
    ($($name:ident: $method:ident),*) => {
        $(
            /// A call by this method, described by the types of its handler.
            fn $name<H, T, Taken, Given>(
                path: &'static str,
                id: &'static str,
                summary: &'static str,
                handler: H,
            ) -> Operation
            where
                H: Handler<T, App> + Call<Taken, Given>,
                T: 'static,
                Taken: Asks,
                Given: Answers,
            {
                let mut asked = Asked::default();
                Taken::add_to(&mut asked);
                Operation {
                    method: Method::$method,
                    path,
                    id,
                    summary,
                    about: None,
                    asked,
                    answers: Given::forms(),
                    refusals: Vec::new(),
                    tools: &[],
                    route: on(MethodFilter::$method, handler),
                }
            }
        )*
    };
}

methods!(
    get: GET,
    post: POST,
    put: PUT,
    patch: PATCH,
    delete: DELETE,
    options: OPTIONS
);

/// The routes of some calls.
pub(super) fn routes(operations: Vec<Operation>) -> Router<App> {
    let routes = operations.into_iter();
    routes.fold(Router::new(), |router, operation| {
        router.route(operation.path, operation.route)
    })
}
