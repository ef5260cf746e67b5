//! From files to a model that can run.

use std::path::Path;

use super::attention::Manner;
use super::cache::Cache;
use super::config_json;
use super::device;
use super::dummy::Dummy;
use super::files::read_json;
use super::forward::Model;
use super::free::free;
use super::gguf::Gguf;
use super::kernels::Kernels;
use super::memory::{Fit, Needs, Wishes, fit};
use super::plan::Plan;
use super::rope::Tables;
use super::safetensors::Safetensors;
use super::shape::Shape;
use super::source::Source;
use super::weights::Loader;
use super::{Facts, ModelFiles};
use crate::backend::llama::LoadError;
use crate::config::{self, LoadWeights};

impl Model {
    /// Whether `files` hold a model of a kind that can be run, by its configuration alone.
    pub(in crate::backend::llama) fn recognise(files: &ModelFiles) -> Result<(), LoadError> {
        match files {
            ModelFiles::Directory(directory) => {
                let path = directory.join("config.json");
                config_json::read(&path, &read_json(&path)?).map(drop)
            }
            ModelFiles::Gguf { path, content } => Gguf::new(path, content).shape().map(drop),
        }
    }

    /// Loads what `files` hold as `config` asks.
    pub(in crate::backend::llama) fn load(
        files: &ModelFiles,
        config: &config::Llama,
    ) -> Result<(Self, Facts), LoadError> {
        match files {
            ModelFiles::Directory(directory) => {
                let path = directory.join("config.json");
                let shape = config_json::read(&path, &read_json(&path)?)?;
                match config.load {
                    LoadWeights::Dummy => build(directory, &Dummy { config: &path }, shape, config, false),
                    LoadWeights::Files => build(directory, &Safetensors::open(directory)?, shape, config, false),
                }
            }
            ModelFiles::Gguf { path, content } => {
                let source = Gguf::new(path, content);
                let shape = source.shape()?;
                if config.load == LoadWeights::Dummy {
                    let problem = "load = \"dummy\" makes weights for a config.json: give the directory it is in";
                    return Err(LoadError::new("load", path, problem));
                }
                build(path, &source, shape, config, true)
            }
        }
    }
}

/// Reads the weights of `source` and takes the memory for K/V. `interleaved`: the order of Q's and K's rows.
fn build(
    path: &Path,
    source: &dyn Source,
    shape: Shape,
    config: &config::Llama,
    interleaved: bool,
) -> Result<(Model, Facts), LoadError> {
    let chosen = device::choose(config.device, path)?;
    let device = chosen.device;
    let kernels = device.is_cpu().then(Kernels::here);
    let plan = Plan::new(source, &shape, kernels, config.dtype, config.quantize)?;
    let cache_type = plan.policy.cache();
    let needs = Needs {
        weights: plan.weight_bytes,
        kv_per_token: Cache::bytes_per_token(&shape, cache_type),
        model_context: shape.max_context,
    };
    let wishes = Wishes { max_sequences: config.max_sequences, max_context: config.max_context };
    let Fit { sequences, context, note } =
        fit(&needs, wishes, free(&device)).map_err(|misfit| LoadError::new(misfit.key, path, misfit.problem))?;

    let weights = Loader { source, shape: &shape, plan: &plan, device: &device }.load()?;
    let cannot = |what: &str, error: &candle_core::Error| {
        LoadError::new(
            "max_context",
            path,
            format!("no memory for {what} ({error}): lower max_context or max_sequences"),
        )
    };
    let tables = Tables::new(&shape, context, interleaved, plan.policy.compute(), &device)
        .map_err(|error| cannot("positions", &error))?;
    let manner = Manner::of(&device, cache_type);
    let cache = Cache::new(&shape, sequences, context, cache_type, &device).map_err(|error| cannot("K/V", &error))?;
    let facts = Facts {
        device: chosen.name,
        weights: plan.weights,
        weight_bytes: plan.weight_bytes,
        kv_bytes: needs.kv(sequences, context),
        max_sequences: sequences,
        max_context: context,
        notes: chosen.note.into_iter().chain(plan.notes).chain(note).collect(),
    };
    Ok((Model { shape, weights, tables, cache, manner, device }, facts))
}
