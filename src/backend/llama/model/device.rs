//! The device a model runs on. One model runs on one device: splitting it over several GPUs is not supported.

use std::path::Path;

use candle_core::Device;

use crate::backend::llama::LoadError;
use crate::config;

/// A device, its name, and what to tell about the choice.
pub(super) struct Chosen {
    pub(super) device: Device,
    /// `cpu`, `cuda:0`.
    pub(super) name: String,
    /// Why it is not what `auto` would rather have had.
    pub(super) note: Option<String>,
}

/// The device that `wanted` asks for. `model` is named in errors.
pub(super) fn choose(wanted: config::Device, model: &Path) -> Result<Chosen, LoadError> {
    let cpu = |note: Option<String>| Chosen { device: Device::Cpu, name: "cpu".into(), note };
    let cuda = |ordinal: usize, device: Device| Chosen { device, name: format!("cuda:{ordinal}"), note: None };
    match wanted {
        config::Device::Cpu => Ok(cpu(None)),
        // A build without CUDA has nothing to choose from: that is no news at every start.
        config::Device::Auto if !candle_core::utils::cuda_is_available() => Ok(cpu(None)),
        config::Device::Auto => match open(0) {
            Ok(device) => Ok(cuda(0, device)),
            Err(error) => Ok(cpu(Some(format!("no CUDA device ({error}): running on the CPU")))),
        },
        config::Device::Cuda(_) if !candle_core::utils::cuda_is_available() => Err(LoadError::new(
            "device",
            model,
            "this build has no CUDA: build with --features cuda, or set device = \"auto\" or \"cpu\"",
        )),
        config::Device::Cuda(ordinal) => match open(ordinal) {
            Ok(device) => Ok(cuda(ordinal, device)),
            Err(error) => Err(LoadError::new(
                "device",
                model,
                format!(
                    "cuda:{ordinal} cannot be used ({error}): see whether nvidia-smi lists it, or set device = \
                     \"auto\" or \"cpu\""
                ),
            )),
        },
    }
}

fn open(ordinal: usize) -> Result<Device, String> {
    Device::new_cuda(ordinal).map_err(|error| error.to_string().lines().next().unwrap_or_default().into())
}
