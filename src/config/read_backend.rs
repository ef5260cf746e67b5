//! `[backend.NAME]`, read into its type, and the backend that is there without a file.

use std::io::Read;
use std::sync::Arc;

use super::read::Env;
use super::section::Node;
use super::{
    Backend, BackendKind, BaseUrl, ConfigError, Device, Dtype, KeySource, Llama, LoadWeights, MIRROR_SUFFIX,
    MessagesAuth, OpenAi, Proxy, Quantize, Secret,
};

pub(super) const OPENAI_KEYS: &[&str] = &[
    "kind",
    "base_url",
    "api_key",
    "messages_auth",
    "include_usage",
    "idle_timeout_ms",
    "event_timeout_ms",
    "connect_timeout_ms",
    "head_timeout_ms",
    "ca_file",
    "http2",
    "measure_non_stream",
    "tokenizer",
    "max_models",
];
pub(super) const LLAMA_KEYS: &[&str] =
    &["kind", "model", "device", "dtype", "quantize", "load", "max_sequences", "max_context", "max_queue", "threads"];

/// The label value of requests that no route has placed yet; no backend may be called so.
const UNROUTED: &str = "none";

/// Every backend, in the order of the file.
pub(super) fn backends(node: &Node<'_>, env: Env<'_>, warnings: &mut Vec<String>) -> Result<Vec<Backend>, ConfigError> {
    let mut backends = Vec::new();
    for (name, node) in node.entries()? {
        node.entries()?;
        if name == UNROUTED || name.trim().is_empty() || name.len() > 128 {
            return Err(node.error("not a usable name: it must have 1 to 128 bytes and not be \"none\""));
        }
        if name.ends_with(MIRROR_SUFFIX) {
            return Err(
                node.error(format!("a name that ends in {MIRROR_SUFFIX:?} marks mirrored traffic; choose another"))
            );
        }
        let kind = if is_llama(&node)? {
            refuse_keys_of(&node, "openai", OPENAI_KEYS, "llama", LLAMA_KEYS)?;
            BackendKind::Llama(llama(&node)?)
        } else {
            refuse_keys_of(&node, "llama", LLAMA_KEYS, "openai", OPENAI_KEYS)?;
            BackendKind::OpenAi(open_ai(&node, env, warnings)?)
        };
        backends.push(Backend { name: Arc::from(name), kind });
    }
    Ok(backends)
}

/// The backend of `config/streamgauge.toml`, which `TAOTOKEN_BASE_URL` may place elsewhere.
pub(super) fn taotoken(env: Env<'_>, warnings: &mut Vec<String>) -> Result<Backend, ConfigError> {
    const BASE_URL: &str = "TAOTOKEN_BASE_URL";
    const API_KEY: &str = "TAOTOKEN_API_KEY";
    let base_url = env(BASE_URL).filter(|url| !url.trim().is_empty());
    let base_url: BaseUrl = base_url
        .as_deref()
        .unwrap_or("https://taotoken.net/api")
        .parse()
        .map_err(|error| ConfigError::new(BASE_URL, None, "", format!("{error}")))?;
    let mut api = OpenAi::new(base_url);
    api.proxy = Proxy::for_upstream(&api.base_url, env)?;
    api.include_usage = true;
    let (key, source) = key_from_env(API_KEY, env, warnings)
        .map_err(|error| ConfigError::new(API_KEY, None, "", format!("{error}; copy it again")))?;
    (api.api_key, api.key_source) = (key, Some(source));
    Ok(Backend { name: "taotoken".into(), kind: BackendKind::OpenAi(api) })
}

/// Which kind a backend is; a `base_url` alone makes it an API.
fn is_llama(node: &Node<'_>) -> Result<bool, ConfigError> {
    match node.get("kind") {
        Some(kind) => kind.word(&[("openai", false), ("llama", true)]),
        None if node.get("base_url").is_some() => Ok(false),
        None => Err(node.error("kind is missing; add kind = \"openai\" or kind = \"llama\"")),
    }
}

/// Refuses unknown keys, and says so where a key belongs to the other kind.
fn refuse_keys_of(
    node: &Node<'_>,
    other: &str,
    other_keys: &[&str],
    own: &str,
    own_keys: &[&str],
) -> Result<(), ConfigError> {
    let foreign = |name: &str| other_keys.contains(&name) && !own_keys.contains(&name);
    match node.entries()?.iter().find(|(name, _)| foreign(name)) {
        Some((_, node)) => Err(node.error(format!("belongs to kind = \"{other}\"; this backend is of kind \"{own}\""))),
        None => node.only(own_keys),
    }
}

fn open_ai(node: &Node<'_>, env: Env<'_>, warnings: &mut Vec<String>) -> Result<OpenAi, ConfigError> {
    let url = node.require("base_url", "\"https://…\"")?;
    let mut api = OpenAi::new(url.text()?.parse().map_err(|error| url.error(error))?);
    api.proxy = Proxy::for_upstream(&api.base_url, env)?;
    if let Some(node) = node.get("api_key") {
        let (key, source) = api_key(&node, env, warnings)?;
        (api.api_key, api.key_source) = (key, Some(source));
    }
    if let Some(node) = node.get("messages_auth") {
        if api.key_source.is_none() {
            return Err(node.error("says how a key is sent, and none is configured; add api_key, or remove it"));
        }
        api.messages_auth = node.word(&MessagesAuth::WORDS)?;
    }
    if let Some(node) = node.get("idle_timeout_ms") {
        api.idle_timeout = node.millis(1)?;
    }
    if let Some(node) = node.get("connect_timeout_ms") {
        api.connect_timeout = node.millis(1)?;
    }
    if let Some(node) = node.get("head_timeout_ms") {
        api.head_timeout = node.millis(1)?;
    }
    for (key, switch) in [
        ("include_usage", &mut api.include_usage),
        ("http2", &mut api.http2),
        ("measure_non_stream", &mut api.measure_non_stream),
    ] {
        if let Some(node) = node.get(key) {
            *switch = node.switch()?;
        }
    }
    if let Some(node) = node.get("max_models") {
        api.max_models = node.size(0..=4096)?;
    }
    api.event_timeout = node.get("event_timeout_ms").map(|node| node.millis(1)).transpose()?;
    api.ca_file = node.get("ca_file").map(|node| node.file()).transpose()?;
    api.tokenizer = node.get("tokenizer").map(|node| node.file()).transpose()?;
    Ok(api)
}

/// A key, where there is one, and where it was looked for.
type Key = (Option<Secret>, KeySource);

/// `{ env = "NAME" }` or `{ file = "PATH" }`. `None` where the variable is unset or empty: the client's key passes.
fn api_key(node: &Node<'_>, env: Env<'_>, warnings: &mut Vec<String>) -> Result<Key, ConfigError> {
    const HOW: &str = "write api_key = { env = \"NAME\" } or { file = \"PATH\" }";
    if !node.is_table() {
        return Err(node.error(format!("a key does not belong in a configuration file; {HOW}")));
    }
    node.only(&["env", "file"])?;
    match (node.get("env"), node.get("file")) {
        (Some(name), None) => {
            let variable = name.text()?;
            if !is_variable_name(variable) {
                // Not repeated: it may be the key itself.
                return Err(name.error("this is no variable's name; name the variable that holds the key, not the key"));
            }
            key_from_env(variable, env, warnings)
                .map_err(|error| name.error(format!("{variable}: {error}; copy it again")))
        }
        (None, Some(file)) => {
            let path = file.text()?;
            let raw =
                read_start(path).map_err(|error| file.error(format!("the key file {path} cannot be read: {error}")))?;
            // A line end is how files end; anything more came along by accident.
            let line = raw.strip_suffix('\n').unwrap_or(&raw);
            if line.trim().is_empty() {
                return Err(file.error(format!("the key file {path} is empty; put the key in it")));
            }
            let source = key_source(line.strip_suffix('\r').unwrap_or(line), path, warnings);
            let key = Secret::new(line).map_err(|error| file.error(format!("{path}: {error}; copy it again")))?;
            Ok((Some(key), source))
        }
        (Some(_), Some(_)) => Err(node.error(format!("names two sources; {HOW}"))),
        (None, None) => Err(node.error(format!("names no source; {HOW}"))),
    }
}

/// The text of a file; of one that has no end, or is no key's, only as much as no key is long.
fn read_start(path: &str) -> std::io::Result<String> {
    const LONGEST: u64 = 64 << 10;
    let mut text = String::new();
    std::fs::File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

fn key_from_env(variable: &str, env: Env<'_>, warnings: &mut Vec<String>) -> Result<Key, super::NotHeaderSafe> {
    let Some(raw) = env(variable).filter(|raw| !raw.trim().is_empty()) else {
        warnings.push(format!("{variable} is not set: each client's own key passes through"));
        return Ok((None, KeySource { name: variable.to_owned(), trimmed: false }));
    };
    let source = key_source(&raw, variable, warnings);
    Secret::new(&raw).map(|key| (Some(key), source))
}

/// Whether a shell could set it: letters, digits and underscores, no digit first.
fn is_variable_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Where `raw` came from; white space around it is warned of.
fn key_source(raw: &str, name: &str, warnings: &mut Vec<String>) -> KeySource {
    let trimmed = raw.trim() != raw;
    if trimmed {
        warnings.push(format!("{name}: whitespace around the key was removed"));
    }
    KeySource { name: name.to_owned(), trimmed }
}

fn llama(node: &Node<'_>) -> Result<Llama, ConfigError> {
    let model = node.require("model", "\"…\", a directory of safetensors or one .gguf file")?;
    let mut llama = Llama::new(model.text()?.into());
    if let Some(node) = node.get("device") {
        llama.device = device(&node)?;
    }
    if let Some(node) = node.get("dtype") {
        llama.dtype =
            node.word(&[("auto", Dtype::Auto), ("f32", Dtype::F32), ("f16", Dtype::F16), ("bf16", Dtype::Bf16)])?;
    }
    if let Some(node) = node.get("load") {
        llama.load = node.word(&[("files", LoadWeights::Files), ("dummy", LoadWeights::Dummy)])?;
    }
    let quantize = |node: Node<'_>| node.word(&[("q8_0", Quantize::Q8_0), ("q4_k", Quantize::Q4K)]);
    llama.quantize = node.get("quantize").map(quantize).transpose()?;
    llama.max_sequences = node.get("max_sequences").map(|node| node.size(1..=65_536)).transpose()?;
    llama.max_context = node.get("max_context").map(|node| node.size(1..=1 << 30)).transpose()?;
    llama.max_queue = node.get("max_queue").map(|node| node.size(0..=1 << 20)).transpose()?;
    llama.threads = node.get("threads").map(|node| node.size(1..=1024)).transpose()?;
    Ok(llama)
}

fn device(node: &Node<'_>) -> Result<Device, ConfigError> {
    match node.text()? {
        "auto" => Ok(Device::Auto),
        "cpu" => Ok(Device::Cpu),
        text => match text.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok()) {
            Some(ordinal) => Ok(Device::Cuda(ordinal)),
            None => Err(node.error("must be \"auto\", \"cpu\" or \"cuda:0\" (or another ordinal)")),
        },
    }
}
