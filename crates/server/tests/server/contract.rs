//! `/openapi.json` as what it promises: which call a request is, and whether its answer is as described.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::http::Method;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::rig::Answer;

/// The document of a server.
pub(crate) struct Contract {
    pub(crate) document: Value,
    /// Those that were needed so far, by what they are for.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Contract {
    pub(crate) fn new(document: Value) -> Self {
        Self {
            document,
            validators: Mutex::default(),
        }
    }

    /// All calls: method, path and description.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (Method, &str, &Value)> {
        let paths = self.document["paths"].as_object().unwrap().iter();
        paths.flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().iter();
            methods.map(|(method, call)| {
                let method = method.to_ascii_uppercase().parse().unwrap();
                (method, &**path, call)
            })
        })
    }

    /// The call that a request is; the path that names most of it is meant.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Option<(&str, &Value)> {
        // What is read is answered without its body, too.
        let method = if method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        let path = path.split('?').next().unwrap();
        let fits = |template: &str| {
            let (template, path) = (template.split('/'), path.split('/'));
            let same = template.clone().count() == path.clone().count();
            let is_place = |part: &str| part.starts_with('{');
            same && template
                .zip(path)
                .all(|(part, given)| is_place(part) || part == given)
        };
        let places = |template: &str| template.matches('{').count();
        let fitting = self
            .calls()
            .filter(|(m, template, _)| m == method && fits(template));
        let best = fitting.min_by_key(|(_, template, _)| places(template));
        best.map(|(_, template, call)| (template, call))
    }

    /// Fails unless the answer is as described.
    pub(crate) fn check(&self, method: &Method, path: &str, answer: &Answer) {
        let status = answer.status.as_u16();
        let Some((template, call)) = self.find(method, path) else {
            assert!(
                [404, 405].contains(&status),
                "{method} {path} is not described: {status}"
            );
            return;
        };
        let at = format!("{method} {template} {status}");
        let described = &call["responses"][status.to_string()];
        assert!(
            described.is_object(),
            "{at} is not described: {}",
            answer.json
        );
        if method == Method::HEAD {
            return;
        }
        let Some(content) = described["content"].as_object() else {
            assert!(
                answer.bytes.is_empty(),
                "{at} has a body: {:?}",
                answer.bytes
            );
            return;
        };
        let media = answer.headers.get("content-type");
        let media = media.expect(&at).to_str().unwrap();
        let media = media.split(';').next().unwrap();
        let content = content.get(media);
        let content = content.unwrap_or_else(|| panic!("{at} is not described as {media}"));
        match (media, content.get("schema")) {
            (_, None) => {}
            ("application/x-ndjson", Some(schema)) => {
                let lines = answer.bytes.split(|byte| *byte == b'\n');
                for line in lines.filter(|line| !line.is_empty()) {
                    let line = serde_json::from_slice(line).expect(&at);
                    self.fits(&at, &schema["contentSchema"], &line);
                }
            }
            (_, Some(schema)) => self.fits(&at, schema, &answer.json),
        }
    }

    /// Fails unless the request is as described, which the server took.
    pub(crate) fn accepts(&self, method: &Method, path: &str, body: &[u8]) {
        let (template, call) = self.find(method, path).unwrap();
        let at = format!("{method} {template}");
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let parameters = call["parameters"].as_array().unwrap();
        for (name, _) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let described =
                |parameter: &Value| parameter["name"] == name && parameter["in"] == "query";
            assert!(
                parameters.iter().any(described),
                "{at}: `{name}` is not described"
            );
        }
        let content = &call["requestBody"]["content"]["application/json"];
        match serde_json::from_slice::<Value>(body) {
            Ok(given) if content.is_object() => self.fits(&at, &content["schema"], &given),
            Ok(_) | Err(_) => {
                let required = call["requestBody"]["required"] == true;
                assert!(!required || !body.is_empty(), "{at}: a body is required");
            }
        }
    }

    fn fits(&self, at: &str, schema: &Value, given: &Value) {
        let validator = {
            let mut known = self.validators.lock().unwrap();
            let new = || Arc::new(self.validator(schema));
            Arc::clone(known.entry(at.to_owned()).or_insert_with(new))
        };
        let wrong = validator.iter_errors(given);
        let wrong: Vec<String> = wrong
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{at}: {wrong:#?}\n{given:#}");
    }

    /// For a schema of the document.
    pub(crate) fn validator(&self, schema: &Value) -> Validator {
        let whole = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "allOf": [schema],
            "components": self.document["components"],
        });
        let options = jsonschema::options().should_validate_formats(true);
        options.build(&whole).unwrap()
    }
}
