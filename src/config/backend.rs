//! `[backend.NAME]`: where requests can go, upstream or into this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{BaseUrl, KeySource, Proxy, Secret};

/// One place a request can go.
#[derive(Debug, Clone, PartialEq)]
pub struct Backend {
    /// The `NAME` of `[backend.NAME]`, and the label `backend` of its metrics.
    pub name: Arc<str>,
    /// What it is.
    pub kind: BackendKind,
}

/// What a backend is.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendKind {
    /// `kind = "openai"`: an OpenAI-compatible API over HTTP.
    OpenAi(OpenAi),
    /// `kind = "llama"`: a Llama model in this process.
    Llama(Llama),
}

/// An OpenAI-compatible API over HTTP.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAi {
    /// Where it is.
    pub base_url: BaseUrl,
    /// The proxy that the environment puts before it. `None` reaches it directly.
    pub proxy: Option<Proxy>,
    /// Replaces the client's credentials. `None` passes them on untouched.
    pub api_key: Option<Secret>,
    /// Where the key is looked for, a variable that is not set included. `None` where no key is configured.
    pub key_source: Option<KeySource>,
    /// How that key is sent where Anthropic's messages are spoken.
    pub messages_auth: MessagesAuth,
    /// Asks for usage where a streaming client did not, and strips it again.
    pub include_usage: bool,
    /// The longest silence of an upstream within a reply, any byte ending it.
    pub idle_timeout: Duration,
    /// The longest time between two events, comments not counted. `None` sets no bound.
    pub event_timeout: Option<Duration>,
    /// The longest time for DNS, TCP and TLS together, a proxy's part included.
    pub connect_timeout: Duration,
    /// The longest wait for the response head.
    pub head_timeout: Duration,
    /// Certificates (PEM) trusted besides the platform's.
    pub ca_file: Option<PathBuf>,
    /// Speaks HTTP/2 to it.
    pub http2: bool,
    /// Asks for a stream where the client asked for a whole reply, to measure it, and hands over the whole.
    pub measure_non_stream: bool,
    /// A `tokenizer.json` to count tokens with where the upstream reports no usage.
    pub tokenizer: Option<PathBuf>,
    /// How many model names learnt from its replies become metric labels.
    pub max_models: usize,
}

impl OpenAi {
    /// An API at `base_url`, everything else by default.
    pub fn new(base_url: BaseUrl) -> Self {
        Self {
            base_url,
            proxy: None,
            api_key: None,
            key_source: None,
            messages_auth: MessagesAuth::Both,
            include_usage: false,
            idle_timeout: Duration::from_mins(5),
            event_timeout: None,
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_mins(5),
            ca_file: None,
            http2: false,
            measure_non_stream: false,
            tokenizer: None,
            max_models: 64,
        }
    }
}

/// The headers that carry a backend's key where Anthropic's messages are spoken. All else gets it as `authorization: Bearer`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MessagesAuth {
    /// Both of the others: relays look for either.
    #[default]
    Both,
    /// `authorization: Bearer KEY`
    Bearer,
    /// `x-api-key: KEY`
    XApiKey,
}

impl MessagesAuth {
    /// Every way, by the word the configuration has for it.
    pub const WORDS: [(&str, Self); 3] = [("both", Self::Both), ("bearer", Self::Bearer), ("x-api-key", Self::XApiKey)];
}

/// A Llama model in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Llama {
    /// A directory of safetensors, or one `.gguf` file.
    pub model: PathBuf,
    /// What it runs on.
    pub device: Device,
    /// The type its weights and arithmetic have.
    pub dtype: Dtype,
    /// Quantises safetensors while they load. `None` leaves them as they are.
    pub quantize: Option<Quantize>,
    /// Where its weights come from.
    pub load: LoadWeights,
    /// How many sequences are generated at once. `None` leaves it to the engine.
    pub max_sequences: Option<usize>,
    /// The longest prompt and output together, in tokens. `None` leaves it to the model.
    pub max_context: Option<usize>,
    /// How many requests may wait for a free slot. `None` leaves it to the engine.
    pub max_queue: Option<usize>,
    /// Threads on the CPU. `None` leaves it to the engine.
    pub threads: Option<usize>,
}

impl Llama {
    /// The model at `model`, everything else by default.
    pub fn new(model: PathBuf) -> Self {
        Self {
            model,
            device: Device::Auto,
            dtype: Dtype::Auto,
            quantize: None,
            load: LoadWeights::Files,
            max_sequences: None,
            max_context: None,
            max_queue: None,
            threads: None,
        }
    }
}

/// What a Llama model runs on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// The first CUDA device where there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device of this ordinal: `cuda:0`.
    Cuda(usize),
}

/// The type a Llama model's weights and arithmetic have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dtype {
    /// What suits the device.
    #[default]
    Auto,
    /// 32-bit floats.
    F32,
    /// 16-bit floats (IEEE 754 binary16).
    F16,
    /// 16-bit floats with eight bits of exponent.
    Bf16,
}

/// How safetensors are quantised while they load, in GGML's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantize {
    /// 8 bits a weight, blocks of 32.
    Q8_0,
    /// 4 bits a weight, super-blocks of 256.
    Q4K,
}

/// Where a Llama model's weights come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoadWeights {
    /// The model's files.
    #[default]
    Files,
    /// Chance: random weights of the shape `config.json` gives, to measure speed without a model.
    Dummy,
}
