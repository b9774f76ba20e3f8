//! What a call asks of its client, read off the types of its handler: who may call, the query, the body. Owns the names and
//! limits of queries, by which requests are read as well.

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Uri};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::api::input::{Body, Params, Text};
use crate::api::who::{Admin, SameOrigin, SignedIn, WithKey};
use crate::api::{App, Peer};
use crate::commands::Caller;

/// The schema of a type, as a part of a document.
pub(in crate::api) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Who may call. The later one holds where several are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::api) enum Who {
    /// Anybody.
    #[default]
    Anybody,
    /// Apps with the write key of a project.
    Writers,
    /// Who has a key of the account, or is signed in by one.
    Account,
    /// Who shows a key.
    WithKey,
    /// A browser that is signed in.
    SignedIn,
    /// Who has an admin's key, or is signed in by one.
    Admin,
}

/// The body that a call takes.
#[derive(Clone, Copy)]
pub(in crate::api) enum Taken {
    /// JSON.
    Json(SchemaOf),
    /// Text.
    Text,
    /// Bytes that the handler reads by itself. A row that takes them says what they are.
    Bytes,
    /// What such a row says: the media type, and a schema where there is one.
    Media(&'static str, Option<SchemaOf>),
}

/// What a call asks.
#[derive(Clone, Copy, Default)]
pub(in crate::api) struct Asked {
    pub(super) who: Who,
    pub(super) query: &'static [Param],
    pub(super) body: Option<Taken>,
}

/// What a query parameter takes.
#[derive(Clone, Copy)]
pub(in crate::api) enum Takes {
    /// Yes or no.
    Flag,
    /// A whole number in a range.
    Number { least: u64, most: u64 },
    /// Any whole number from 0.
    Count,
    /// Any text; what it may be in detail is for the command to say.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A query parameter.
#[derive(Clone, Copy)]
pub(in crate::api) struct Param {
    pub(in crate::api) name: &'static str,
    pub(in crate::api) takes: Takes,
    pub(super) required: bool,
    pub(super) about: &'static str,
}

impl Param {
    const fn new(name: &'static str, takes: Takes, about: &'static str) -> Self {
        Self {
            name,
            takes,
            required: false,
            about,
        }
    }

    /// Yes or no; no when absent.
    pub(in crate::api) const fn flag(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Takes::Flag, about)
    }

    /// A whole number.
    pub(in crate::api) const fn number(
        name: &'static str,
        least: u64,
        most: u64,
        about: &'static str,
    ) -> Self {
        Self::new(name, Takes::Number { least, most }, about)
    }

    /// A whole number without a limit that anybody meets.
    pub(in crate::api) const fn count(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Takes::Count, about)
    }

    /// A text.
    pub(in crate::api) const fn text(name: &'static str, about: &'static str) -> Self {
        Self::new(name, Takes::Text, about)
    }

    /// One of a few words.
    pub(in crate::api) const fn word(
        name: &'static str,
        words: &'static [&'static str],
        about: &'static str,
    ) -> Self {
        Self::new(name, Takes::Word(words), about)
    }

    /// The same, not to be left out.
    pub(in crate::api) const fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }
}

/// The query of a call: all parameters that it knows.
pub(in crate::api) trait Query {
    const PARAMS: &'static [Param];
}

/// The query of a call that has none.
pub(in crate::api) struct NoQuery;

impl Query for NoQuery {
    const PARAMS: &'static [Param] = &[];
}

/// Something that a handler takes.
pub(in crate::api) trait Asks {
    /// Adds what that asks of the client.
    fn add_to(asked: &mut Asked);
}

macro_rules! asks_nothing {
    ($($kind:ty),*) => {
        $(impl Asks for $kind {
            fn add_to(_: &mut Asked) {}
        })*
    };
}

// Paths speak for themselves.
asks_nothing!(
    State<App>,
    Path<String>,
    Path<(String, String)>,
    HeaderMap,
    Uri,
    Peer,
    SameOrigin,
    WebSocketUpgrade
);

macro_rules! asks_who {
    ($($kind:ty: $who:ident),*) => {
        $(impl Asks for $kind {
            fn add_to(asked: &mut Asked) {
                asked.who = asked.who.max(Who::$who);
            }
        })*
    };
}

asks_who!(Caller: Account, WithKey: WithKey, SignedIn: SignedIn, Admin: Admin);

impl<Q: Query> Asks for Params<Q> {
    fn add_to(asked: &mut Asked) {
        asked.query = Q::PARAMS;
    }
}

impl<T: JsonSchema> Asks for Body<T> {
    fn add_to(asked: &mut Asked) {
        asked.body = Some(Taken::Json(SchemaGenerator::subschema_for::<T>));
    }
}

impl Asks for Text {
    fn add_to(asked: &mut Asked) {
        asked.body = Some(Taken::Text);
    }
}

impl Asks for Request {
    fn add_to(asked: &mut Asked) {
        asked.body = Some(Taken::Bytes);
    }
}

impl Asks for axum::body::Body {
    fn add_to(asked: &mut Asked) {
        asked.body = Some(Taken::Bytes);
    }
}

/// What may be left out, or be wrong, for all that the types say.
impl<T: Asks, E> Asks for Result<T, E> {
    fn add_to(asked: &mut Asked) {
        T::add_to(asked);
    }
}

/// A handler, by what it takes and what it gives.
pub(in crate::api) trait Call<Taken, Given> {}

macro_rules! call {
    ($($taken:ident)*) => {
        impl<Handler, Running, Given, $($taken),*> Call<($($taken,)*), Given> for Handler
        where
            Handler: FnOnce($($taken),*) -> Running,
            Running: Future<Output = Given>,
        {
        }

        impl<$($taken: Asks),*> Asks for ($($taken,)*) {
            fn add_to(_asked: &mut Asked) {
                $($taken::add_to(_asked);)*
            }
        }
    };
}

call!();
call!(A);
call!(A B);
call!(A B C);
call!(A B C D);
call!(A B C D E);
call!(A B C D E F);
