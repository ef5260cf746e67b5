//! How a list of models is written, for the clients of either API. Pure.
//!
//! Invariant: a model's `id` is its upstream's, and what is already written as its reader wants it stays as it is.

use serde_json::{Value, json};

use super::shape::Shape;
use crate::calendar::rfc3339;

/// What Anthropic's API says where nobody knows when a model came out.
const UNKNOWN: &str = "1970-01-01T00:00:00Z";

/// A list of these models. Each is an object with an `id`.
pub(super) fn written(models: Vec<Value>, shape: Shape) -> Value {
    match shape {
        Shape::OpenAi => json!({"object": "list", "data": models}),
        Shape::Anthropic => {
            let data: Vec<Value> = models.into_iter().map(anthropic).collect();
            let id = |model: Option<&Value>| model.map_or(Value::Null, |model| model["id"].clone());
            json!({"first_id": id(data.first()), "last_id": id(data.last()), "has_more": false, "data": data})
        }
    }
}

/// The models of a list that clients of Anthropic's API cannot read. `None` where it is theirs, or no list.
pub(super) fn foreign_to_anthropic(body: &[u8]) -> Option<Vec<Value>> {
    let mut list: Value = serde_json::from_slice(body).ok()?;
    let Some(Value::Array(models)) = list.get_mut("data").map(Value::take) else { return None };
    let theirs = list.get("has_more").is_some() && models.iter().all(is_anthropic);
    (!theirs).then(|| models.into_iter().filter(|model| model["id"].is_string()).collect())
}

fn is_anthropic(model: &Value) -> bool {
    model["type"] == "model" && model["id"].is_string()
}

fn anthropic(model: Value) -> Value {
    if is_anthropic(&model) {
        return model;
    }
    let created = model["created"].as_u64().and_then(rfc3339);
    let name = model["display_name"].as_str().or(model["id"].as_str());
    json!({
        "type": "model",
        "id": model["id"],
        "display_name": name,
        "created_at": created.as_deref().unwrap_or(UNKNOWN),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_openais_becomes_one_of_anthropics() {
        let theirs = json!({"type": "model", "id": "claude", "display_name": "Claude", "created_at": "2025-05-22T00:00:00Z",
            "max_tokens": 7});
        let models = vec![
            json!({"id": "gpt", "object": "model", "created": 1_747_872_000, "owned_by": "x"}),
            theirs.clone(),
            json!({"id": "odd", "created": -1.5, "display_name": 7}),
        ];
        let model = |id: &str, at: &str| json!({"type": "model", "id": id, "display_name": id, "created_at": at});
        assert_eq!(
            written(models, Shape::Anthropic),
            json!({"first_id": "gpt", "last_id": "odd", "has_more": false, "data": [
                model("gpt", "2025-05-22T00:00:00Z"), theirs, model("odd", UNKNOWN)
            ]})
        );
        let none = json!({"first_id": null, "last_id": null, "has_more": false, "data": []});
        assert_eq!(written(Vec::new(), Shape::Anthropic), none);
    }

    #[test]
    fn a_list_that_is_anthropics_or_none_stays() {
        for stays in [
            r#"{"data":[{"type":"model","id":"a"}],"has_more":true}"#,
            r#"{"data":[],"has_more":false}"#,
            r#"{"error":"x"}"#,
            r#"{"data":{}}"#,
            "<html>",
            "",
        ] {
            assert_eq!(foreign_to_anthropic(stays.as_bytes()), None, "{stays}");
        }
        let rewritten = foreign_to_anthropic(br#"{"object":"list","data":[{"id":"a"},{"id":7},"x"]}"#);
        assert_eq!(rewritten, Some(vec![json!({"id": "a"})]));
        assert_eq!(
            foreign_to_anthropic(br#"{"data":[{"type":"model","id":"a"}]}"#).map(|models| models.len()),
            Some(1)
        );
    }
}
