//! What a call answers when all goes well, read off the type that its handler gives.

use std::marker::PhantomData;

use axum::Json;
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::asks::SchemaOf;
use crate::api::error;

/// One form of an answer.
#[derive(Clone, Copy)]
pub(in crate::api) struct Answer {
    /// The status.
    pub(super) status: u16,
    /// The media type of its body, if it has one.
    pub(super) media: Option<&'static str>,
    /// The schema of that, where there is one.
    pub(super) schema: Option<SchemaOf>,
    /// Headers that say something: name, and what.
    pub(super) headers: &'static [(&'static str, &'static str)],
    /// What the answer is, if that has to be said.
    pub(super) about: Option<&'static str>,
}

impl Answer {
    /// A body of bytes.
    pub(in crate::api) const fn of(media: &'static str) -> Self {
        Self {
            status: error::OK,
            media: Some(media),
            schema: None,
            headers: &[],
            about: None,
        }
    }

    /// A body of many, each a JSON text.
    pub(in crate::api) fn each<T: JsonSchema>(media: &'static str) -> Self {
        Self {
            schema: Some(each::<T>),
            ..Self::of(media)
        }
    }

    /// No body.
    pub(in crate::api) const fn nothing(status: u16) -> Self {
        Self {
            status,
            media: None,
            schema: None,
            headers: &[],
            about: None,
        }
    }

    /// A JSON body.
    pub(in crate::api) fn json<T: JsonSchema>(status: u16) -> Self {
        Self {
            status,
            media: Some("application/json"),
            schema: Some(SchemaGenerator::subschema_for::<T>),
            headers: &[],
            about: None,
        }
    }

    /// The same, with headers that say something.
    pub(in crate::api) const fn with(
        self,
        headers: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { headers, ..self }
    }

    /// The same, in words.
    pub(in crate::api) const fn about(self, about: &'static str) -> Self {
        Self {
            about: Some(about),
            ..self
        }
    }
}

/// The schema of a text with many of them.
fn each<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<T>();
    json_schema!({
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": one,
    })
}

/// Something that a handler gives.
pub(in crate::api) trait Answers {
    /// The forms that it can have.
    fn forms() -> Vec<Answer>;
}

impl<T: JsonSchema> Answers for Json<T> {
    fn forms() -> Vec<Answer> {
        vec![Answer::json::<T>(error::OK)]
    }
}

/// Something was made.
pub(in crate::api) struct Created<T>(pub(in crate::api) T);

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        (error::CREATED, Json(self.0)).into_response()
    }
}

impl<T: JsonSchema> Answers for Created<T> {
    fn forms() -> Vec<Answer> {
        vec![Answer::json::<T>(error::CREATED.as_u16())]
    }
}

/// One thing or another.
pub(in crate::api) enum Either<A, B> {
    /// The one.
    One(A),
    /// The other.
    Other(B),
}

impl<A: IntoResponse, B: IntoResponse> IntoResponse for Either<A, B> {
    fn into_response(self) -> Response {
        match self {
            Self::One(one) => one.into_response(),
            Self::Other(other) => other.into_response(),
        }
    }
}

impl<A: Answers, B: Answers> Answers for Either<A, B> {
    fn forms() -> Vec<Answer> {
        [A::forms(), B::forms()].concat()
    }
}

/// A response that was put together by hand, in the form of a `T`.
pub(in crate::api) struct Like<T>(Response, PhantomData<T>);

impl<T> Like<T> {
    /// Says that it has that form.
    pub(in crate::api) fn new(response: impl IntoResponse) -> Self {
        Self(response.into_response(), PhantomData)
    }
}

impl<T> IntoResponse for Like<T> {
    fn into_response(self) -> Response {
        self.0
    }
}

impl<T: Answers> Answers for Like<T> {
    fn forms() -> Vec<Answer> {
        T::forms()
    }
}

/// What goes wrong is said by kind, in the table.
impl<T: Answers, E> Answers for Result<T, E> {
    fn forms() -> Vec<Answer> {
        T::forms()
    }
}
