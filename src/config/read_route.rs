//! `[[route]]`, read into its type.

use globset::GlobBuilder;

use super::section::Node;
use super::{Backend, BackendKind, ConfigError, Destination, Mirror, Route};

pub(super) const ROUTE_KEYS: &[&str] = &["model", "backend", "upstream_model", "sticky", "mirror"];
pub(super) const DESTINATION_KEYS: &[&str] = &["name", "weight", "upstream_model"];
pub(super) const MIRROR_KEYS: &[&str] = &["backend", "share", "upstream_model"];

/// The largest weight: beyond it one part in a million says as much.
const HEAVIEST: u64 = 1_000_000;

/// Every route, in the order of the file.
pub(super) fn routes(
    node: &Node<'_>,
    backends: &[Backend],
    warnings: &mut Vec<String>,
) -> Result<Vec<Route>, ConfigError> {
    let mut routes: Vec<Route> = Vec::new();
    let mut catch_all = None;
    for node in node.elements("an array of tables, each headed [[route]]")? {
        let route = route(&node, backends, warnings)?;
        if routes.iter().any(|before| before.model.eq_ignore_ascii_case(&route.model)) {
            let node = node.get("model").unwrap_or(node);
            return Err(node.error(format!("\"{}\" has a route above, which always wins; remove one", route.model)));
        }
        if let Some(line) = catch_all {
            warnings.push(format!("the route for \"{}\" is never used: \"*\" on line {line} wins", route.model));
        } else if route.model == "*" {
            catch_all = Some(node.line());
        }
        routes.push(route);
    }
    if routes.is_empty() { Err(node.error(no_route(backends))) } else { Ok(routes) }
}

/// What is wrong where there is no route.
pub(super) fn no_route(backends: &[Backend]) -> String {
    let name = backends.first().map_or("…", |backend| &*backend.name);
    format!("no route leads anywhere; add [[route]] with model = \"*\" and backend = \"{name}\"")
}

fn route(node: &Node<'_>, backends: &[Backend], warnings: &mut Vec<String>) -> Result<Route, ConfigError> {
    node.only(ROUTE_KEYS)?;
    let model = glob(&node.require("model", "\"*\"")?)?;
    let to = node.require("backend", "\"…\", the NAME of a [backend.NAME]")?;
    let alias = node.get("upstream_model").map(|node| Ok(node.text()?.to_owned())).transpose()?;
    let destinations = destinations(&to, backends, alias.as_deref())?;
    let mirror = node.get("mirror").map(|node| mirror(&node, backends, alias.as_deref())).transpose()?;
    if let Some(mirror) = &mirror
        && let Backend { name, kind: BackendKind::OpenAi(api) } = &backends[mirror.backend]
        && api.api_key.is_none()
    {
        warnings.push(format!(
            "the mirror of the route for \"{model}\" sends no key: backend {name:?} has none, and clients' own stay here"
        ));
    }
    let needless = |destination: &Destination| is_llama(&backends[destination.backend]);
    if let (Some(alias), true) = (node.get("upstream_model"), destinations.iter().all(needless)) {
        return Err(nameless(&alias, &backends[destinations[0].backend]));
    }
    let sticky = node.get("sticky").map(|node| node.switch()).transpose()?.unwrap_or(false);
    if sticky && destinations.len() == 1 {
        warnings.push(format!("sticky has no effect on the route for \"{model}\", which leads to one backend"));
    }
    Ok(Route { model, destinations, sticky, mirror })
}

/// A backend's name, or several backends with their weights. `alias` is the route's `upstream_model`.
fn destinations(node: &Node<'_>, backends: &[Backend], alias: Option<&str>) -> Result<Vec<Destination>, ConfigError> {
    const FORM: &str =
        "a backend's name, or an array such as [{ name = \"a\", weight = 9 }, { name = \"b\", weight = 1 }]";
    if !node.is_array() {
        let backend = backend_index(node, backends, FORM)?;
        let upstream_model = alias_for(&backends[backend], alias);
        return Ok(vec![Destination { backend, weight: 1, upstream_model }]);
    }
    let mut destinations: Vec<Destination> = Vec::new();
    for node in node.elements(FORM)? {
        node.only(DESTINATION_KEYS)?;
        let name = node.require("name", "\"…\", the NAME of a [backend.NAME]")?;
        let backend = backend_index(&name, backends, "a string")?;
        let weight = node.get("weight").map_or(Ok(1), |node| node.count(0..=HEAVIEST))?;
        if destinations.iter().any(|before| before.backend == backend) {
            return Err(name.error(format!("\"{}\" stands above; give each backend once", backends[backend].name)));
        }
        let upstream_model = own_alias(&node, &backends[backend], alias)?;
        // The range has checked that it fits.
        destinations.push(Destination { backend, weight: u32::try_from(weight).unwrap_or(u32::MAX), upstream_model });
    }
    if destinations.iter().all(|destination| destination.weight == 0) {
        return Err(node.error("no backend has a weight above 0; give one of them weight = 1"));
    }
    Ok(destinations)
}

fn mirror(node: &Node<'_>, backends: &[Backend], alias: Option<&str>) -> Result<Mirror, ConfigError> {
    node.only(MIRROR_KEYS)?;
    let name = node.require("backend", "\"…\", the NAME of a [backend.NAME]")?;
    let backend = backend_index(&name, backends, "a string")?;
    let share = node.require("share", "0.1")?.share()?;
    Ok(Mirror { backend, share, upstream_model: own_alias(node, &backends[backend], alias)? })
}

/// The `upstream_model` that stands beside a backend's name, else the route's.
fn own_alias(node: &Node<'_>, backend: &Backend, alias: Option<&str>) -> Result<Option<String>, ConfigError> {
    match node.get("upstream_model") {
        Some(own) if is_llama(backend) => Err(nameless(&own, backend)),
        Some(own) => Ok(Some(own.text()?.to_owned())),
        None => Ok(alias_for(backend, alias)),
    }
}

/// The route's alias, as far as it means anything to this backend.
fn alias_for(backend: &Backend, alias: Option<&str>) -> Option<String> {
    alias.filter(|_| !is_llama(backend)).map(str::to_owned)
}

fn is_llama(backend: &Backend) -> bool {
    matches!(backend.kind, BackendKind::Llama(_))
}

fn nameless(alias: &Node<'_>, backend: &Backend) -> ConfigError {
    let name = &backend.name;
    alias.error(format!("backend {name:?} is a model in this process, to which no name is sent; remove it"))
}

fn glob(node: &Node<'_>) -> Result<String, ConfigError> {
    let model = node.text()?;
    match GlobBuilder::new(model).case_insensitive(true).build() {
        Ok(_) => Ok(model.to_owned()),
        Err(error) => Err(node.error(format!("not a valid glob: {}", error.kind()))),
    }
}

fn backend_index(node: &Node<'_>, backends: &[Backend], form: &str) -> Result<usize, ConfigError> {
    let name = node.text_or(form)?;
    backends.iter().position(|backend| &*backend.name == name).ok_or_else(|| {
        let names: Vec<&str> = backends.iter().map(|backend| &*backend.name).collect();
        let names = if names.is_empty() { "none, add [backend.NAME]".to_owned() } else { names.join(", ") };
        let hint = if name == "taotoken" {
            "; a file replaces the built-in one, so write [backend.taotoken] here"
        } else {
            ""
        };
        node.error(format!("no backend is called \"{name}\"; configured: {names}{hint}"))
    })
}
