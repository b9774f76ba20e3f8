//! Input schemas from types, in the plain form that every client understands: nothing referred to from elsewhere, and no
//! `null` beside the type of what may be left out.

use rmcp::model::JsonObject;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The schema of a tool's arguments.
pub(super) fn schema<T: JsonSchema>() -> JsonObject {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(simpler).transform(&mut schema);
    let mut schema = match schema.to_value() {
        Value::Object(schema) => schema,
        // Only the schemas of "anything" and "nothing" are no objects.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            JsonObject::new()
        }
    };
    for word in ["$schema", "title", "description"] {
        schema.remove(word);
    }
    schema
        .entry("properties")
        .or_insert_with(|| JsonObject::new().into());
    schema
}

fn simpler(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|word| word != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|word| word != "null"));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            schema.remove("anyOf");
            for (word, value) in only {
                let object = schema.ensure_object();
                object.entry(word).or_insert(value);
            }
        }
    }
    for word in ["format", "default"] {
        schema.remove(word);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tools::TOOLS;
    use serde_json::Value;

    fn walk(path: &str, value: &Value, seen: &mut dyn FnMut(&str, &str, &Value)) {
        match value {
            Value::Object(fields) => {
                for (word, inner) in fields {
                    seen(path, word, inner);
                    walk(&format!("{path}.{word}"), inner, seen);
                }
            }
            Value::Array(items) => {
                for item in items {
                    walk(path, item, seen);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn schemas_are_plain_strict_and_explain_every_argument() {
        for tool in TOOLS.iter() {
            let name = &tool.listed.name;
            let schema = tool.listed.schema_as_json_value();
            assert_eq!(schema["type"], "object", "{name}");
            assert_eq!(schema["additionalProperties"], false, "{name}");
            walk(name, &schema, &mut |path, word, value| {
                assert!(!word.starts_with('$'), "{path}: {word}");
                assert!(word != "type" || *value != "null", "{path}");
            });
            for (field, inner) in schema["properties"].as_object().unwrap() {
                assert!(inner["description"].is_string(), "{name}.{field}: {inner}");
                assert!(
                    inner["type"].is_string() || inner["type"].is_array(),
                    "{name}.{field}: {inner}"
                );
            }
        }
    }

    #[test]
    fn what_is_required_is_said() {
        let required = |name: &str| {
            let tool = super::super::tools::find(name).unwrap();
            tool.listed.schema_as_json_value()["required"].clone()
        };
        assert_eq!(required("sandbox_start"), serde_json::json!(["goal"]));
        assert_eq!(
            required("sandbox_exec"),
            serde_json::json!(["id", "cmd", "note"])
        );
        assert_eq!(required("sandbox_list"), Value::Null);
    }
}
