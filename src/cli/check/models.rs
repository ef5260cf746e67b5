//! The list of models: whether there is one, and which model the chat requests then name.

use serde_json::Value;

use super::advice::{Place, answered, at_path, refusal, without_repeats};
use super::ask::Heard;
use super::report::{Finding, Status};
use super::words::shown;
use crate::config::{Config, Route, Secret};
use crate::route::Router;

/// The model that the chat requests name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    /// The name as the upstream is to know it.
    pub(super) name: String,
    pub(super) origin: Origin,
}

/// Where a model's name comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// `--model`.
    Flag,
    /// `--model`, which no route sends to this backend.
    Unrouted,
    /// A route that leads to the backend.
    Route,
    /// The first of the upstream's list.
    List,
}

impl Model {
    /// The model that `wanted` (`--model`) or the first route with a name gives for the backend of this index.
    ///
    /// `None` where only globs lead there.
    pub(super) fn configured(config: &Config, backend: usize, wanted: Option<&str>) -> Option<Self> {
        let router = Router::new(config);
        if let Some(wanted) = wanted {
            // As `serve` would send it.
            let sent = router.route(wanted).and_then(|route| sent_as(route, backend, Some(wanted)));
            let origin = match sent {
                None => Origin::Unrouted,
                // The alias is to blame, if anything is.
                Some(sent) if sent != wanted => Origin::Route,
                Some(_) => Origin::Flag,
            };
            return Some(Self { name: sent.unwrap_or(wanted).to_owned(), origin });
        }
        let named: Vec<&Route> = router.named().collect();
        let own = |route| named.contains(&route).then_some(&*route.model);
        let name = router.routes().find_map(|route| sent_as(route, backend, own(route)))?;
        Some(Self { name: name.to_owned(), origin: Origin::Route })
    }

    /// A finding that was well, unless no route sends this name here: `serve` would not ask for it.
    pub(super) fn unless_unrouted(&self, finding: Finding) -> Finding {
        match (self.origin, finding.status) {
            (Origin::Unrouted, Status::Ok | Status::Note) => Finding::note(
                format!("{}; but no route sends this name here", finding.detail),
                format!("add [[route]] with model = \"{}\", or give --model a name that a route takes", self.name),
            ),
            _ => finding,
        }
    }

    /// What to change for another one to be asked for.
    pub(super) fn how_to_change(&self) -> &'static str {
        match self.origin {
            Origin::Flag | Origin::Unrouted => "correct --model",
            Origin::Route => "correct the route's upstream_model or model, or give --model",
            Origin::List => "it was the first of the list; give --model",
        }
    }
}

/// The name under which a route sends a model that clients call `own` to a backend, as its own or as a mirror. `None`
/// where it does not lead there, or sends on the clients' name and none is given.
fn sent_as<'a>(route: &'a Route, backend: usize, own: Option<&'a str>) -> Option<&'a str> {
    let direct = route.destination(backend).map(|to| &to.upstream_model);
    let mirrored = route.mirror.iter().find(|mirror| mirror.backend == backend).map(|to| &to.upstream_model);
    direct.or(mirrored)?.as_deref().or(own)
}

/// Whether a route leads to a backend, as its own or as a mirror.
pub(super) fn leads_to(route: &Route, backend: usize) -> bool {
    sent_as(route, backend, Some("")).is_some()
}

/// What the reply to `GET /models` says, and the names it lists. `known` says that a model to ask for is known
/// without it, so that chat can be tried whatever comes.
pub(super) fn judge(heard: &Heard, place: &Place<'_>, known: bool) -> (Finding, Vec<String>) {
    const NAME_ONE: &str = "not every API has one: give --model where no route names a model";
    let status = heard.status.as_u16();
    if matches!(status, 404 | 405 | 501) {
        let detail = format!("there is no list of models: {}", answered(heard, place));
        let finding = match without_repeats(&place.config.base_url) {
            Some(_) if known => Finding::note(detail, at_path(place, NAME_ONE)),
            Some(_) => Finding::failed(detail, at_path(place, NAME_ONE)),
            None => Finding::note(detail, NAME_ONE),
        };
        return (finding, Vec::new());
    }
    if let Some(mut refused) = refusal(heard, place) {
        if known && status != 401 && !heard.status.is_redirection() {
            refused = Finding { status: Status::Note, ..refused };
        }
        return (refused, Vec::new());
    }
    let Some(listed) = names(&heard.body) else {
        return (
            Finding::note(format!("{} answered with something else than a list of models", place.url), NAME_ONE),
            Vec::new(),
        );
    };
    let some = some_names(listed.iter().map(|name| &**name), place.key.secret);
    let finding = match listed.len() {
        0 => Finding::note("the list of models is empty", "the key may have no model yet: see the service's console"),
        1 => Finding::ok(format!("1 model: {some}")),
        count => Finding::ok(format!("{count} models: {some}")),
    };
    (finding, listed)
}

/// The first three of some names, fit to be shown.
pub(super) fn some_names<'a>(names: impl IntoIterator<Item = &'a str>, key: Option<&Secret>) -> String {
    let mut names = names.into_iter().map(|name| shown(name, key));
    let mut some: Vec<String> = names.by_ref().take(3).collect();
    some.extend(names.next().map(|_| "…".to_owned()));
    some.join(", ")
}

/// The names in a list of models. `None` where it is no such list.
fn names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let models = list.get("data").unwrap_or(&list).as_array()?;
    let names = models.iter().filter_map(|model| model.get("id")?.as_str()).filter(|name| !name.trim().is_empty());
    Some(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(routes: &[(&str, &str, Option<&str>)], wanted: Option<&str>) -> Option<Model> {
        let mut text = "[backend.up]\nbase_url = \"https://up\"\n[backend.b]\nbase_url = \"https://b\"\n".to_owned();
        for (model, backend, alias) in routes {
            text.extend(["[[route]]\nmodel = \"", model, "\"\nbackend = \"", backend, "\"\n"]);
            text.extend(alias.map(|alias| format!("upstream_model = \"{alias}\"\n")));
        }
        Model::configured(&Config::parse("test.toml", &text, |_| None).unwrap(), 0, wanted)
    }

    fn model(name: &str, origin: Origin) -> Model {
        Model { name: name.to_owned(), origin }
    }

    #[test]
    fn the_model_is_the_one_that_serve_would_send() {
        let routes = [("other", "b", None), ("gpt-*", "up", None), ("fast", "up", Some("gpt-4o")), ("*", "up", None)];
        assert_eq!(configured(&routes, None), Some(model("gpt-4o", Origin::Route)));
        assert_eq!(configured(&routes, Some("fast")), Some(model("gpt-4o", Origin::Route)));
        assert_eq!(configured(&routes, Some("gpt-5")), Some(model("gpt-5", Origin::Flag)));
        assert_eq!(configured(&routes, Some("other")), Some(model("other", Origin::Unrouted)));
        assert_eq!(configured(&[("*", "up", Some("one"))], None), Some(model("one", Origin::Route)));
        assert_eq!(configured(&[("own", "up", None)], None), Some(model("own", Origin::Route)));
        assert_eq!(configured(&[("own", "b", None), ("*", "up", None)], None), None);
        let mirror = "b\"\nmirror = { backend = \"up\", share = 0.5, upstream_model = \"shadow\" }\n#";
        assert_eq!(configured(&[("own", mirror, None)], None), Some(model("shadow", Origin::Route)));
    }

    #[test]
    fn names_are_read_from_lists_with_and_without_an_envelope() {
        let names = |body: &str| super::names(body.as_bytes());
        assert_eq!(
            names(r#"{"data":[{"id":"a"},{"name":"x"},{"id":" "},{"id":"b"}]}"#),
            Some(vec!["a".into(), "b".into()])
        );
        assert_eq!(names(r#"[{"id":"a"}]"#), Some(vec!["a".into()]));
        assert_eq!(names(r#"{"data":[]}"#), Some(Vec::new()));
        assert_eq!(names(r#"{"models":[]}"#), None);
        assert_eq!(names("OK"), None);
        assert_eq!(some_names(["a", "b\u{1b}[1m", "c"], None), "a, b [1m, c");
        assert_eq!(some_names(["a", "b", "c", "d", "e"], None), "a, b, c, …");
    }
}
