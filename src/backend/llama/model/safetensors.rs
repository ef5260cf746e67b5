//! Weights from safetensors files, one tensor at a time.
//!
//! Invariant: memory holds no more of a file than its header and the tensor being read.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde::Deserialize;

use super::files::{PEEK, read_json, stand_in};
use super::parts::Part;
use super::shape::Shape;
use super::source::{Raw, Source, Stored, wrong_dims};
use crate::backend::llama::LoadError;

/// A directory's safetensors, headers read.
pub(super) struct Safetensors {
    directory: PathBuf,
    files: Vec<Shard>,
    tensors: HashMap<String, Entry>,
}

struct Shard {
    path: PathBuf,
    file: File,
}

struct Entry {
    shard: usize,
    dtype: Dtype,
    dims: Vec<usize>,
    offset: u64,
    bytes: usize,
}

/// `model.safetensors.index.json`.
#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

/// Longest header that is read; the format's own limit.
const MAX_HEADER: u64 = 100_000_000;

impl Safetensors {
    /// Reads the headers of the model's files in `directory`.
    pub(super) fn open(directory: &Path) -> Result<Self, LoadError> {
        let mut source = Self { directory: directory.into(), files: Vec::new(), tensors: HashMap::new() };
        for path in shards(directory)? {
            source.add(path)?;
        }
        Ok(source)
    }

    fn add(&mut self, path: PathBuf) -> Result<(), LoadError> {
        let fail = |problem: String| LoadError::new("model", &path, problem);
        let unreadable = |error: std::io::Error| fail(format!("cannot be read: {error}"));
        let file = File::open(&path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let mut start = [0; PEEK];
        let seen = file.read_at(&mut start, 0).map_err(unreadable)?;
        if let Some(problem) = stand_in(&start[..seen]) {
            return Err(fail(problem.into()));
        }
        let cut = |needed: u64| {
            fail(format!("cut off: {length} bytes where its header speaks of {needed}; download it again"))
        };
        let size = start.first_chunk::<8>().filter(|_| seen >= 8).map(|bytes| u64::from_le_bytes(*bytes));
        let header_bytes = size
            .filter(|&size| size <= MAX_HEADER)
            .ok_or_else(|| fail("not a safetensors file: it begins with no header; download it again".into()))?;
        if 8 + header_bytes > length {
            return Err(cut(8 + header_bytes));
        }
        let mut header = vec![0; usize::try_from(header_bytes).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut header, 8).map_err(unreadable)?;
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| {
            fail(format!("not a safetensors file: its header is damaged ({error}); download it again"))
        })?;
        let needed = 8 + header_bytes + metadata.data_len() as u64;
        if length < needed {
            return Err(cut(needed));
        }
        let shard = self.files.len();
        for (name, info) in metadata.tensors() {
            let (begin, end) = info.data_offsets;
            let entry = Entry {
                shard,
                dtype: info.dtype,
                dims: info.shape.clone(),
                offset: 8 + header_bytes + begin as u64,
                bytes: end - begin,
            };
            self.tensors.insert(name, entry);
        }
        self.files.push(Shard { path, file });
        Ok(())
    }

    fn entry(&self, part: Part) -> Option<(&Entry, String)> {
        let name = part.hugging_face();
        Some((self.tensors.get(&name)?, name))
    }
}

impl Source for Safetensors {
    fn stored(&self, part: Part, shape: &Shape) -> Result<Option<Stored>, LoadError> {
        let Some((entry, name)) = self.entry(part) else {
            return Ok(None);
        };
        let file = &self.files[entry.shard].path;
        let expected = part.dims(shape);
        if entry.dims != expected {
            return Err(wrong_dims(file, &name, &entry.dims, &expected));
        }
        match dtype(entry.dtype) {
            Some(dtype) => Ok(Some(Stored::Dense(dtype))),
            None => Err(LoadError::new(
                "model",
                file,
                format!(
                    "tensor {name} is of type {:?}: only F32, F16 and BF16 weights are read; take the model in one of \
                     these, or a .gguf file",
                    entry.dtype
                ),
            )),
        }
    }

    fn read(&self, part: Part, shape: &Shape) -> Result<Raw, LoadError> {
        let stored = self.need(part, shape)?;
        let (Some((entry, name)), Stored::Dense(dtype)) = (self.entry(part), stored) else {
            unreachable!("`need` found it, and safetensors have no blocks");
        };
        let shard = &self.files[entry.shard];
        let fail = |error: String| {
            LoadError::new("model", &shard.path, format!("tensor {name} cannot be read ({error}): download it again"))
        };
        let mut bytes = vec![0; entry.bytes];
        shard.file.read_exact_at(&mut bytes, entry.offset).map_err(|error| fail(error.to_string()))?;
        Tensor::from_raw_buffer(&bytes, dtype, &entry.dims, &Device::Cpu)
            .map(Raw::Dense)
            .map_err(|error| fail(error.to_string()))
    }

    fn place(&self, part: Part) -> (PathBuf, String) {
        let file = match &self.files[..] {
            [only] => only.path.clone(),
            _ => self.directory.clone(),
        };
        (file, part.hugging_face())
    }
}

fn dtype(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}

/// The files that hold the weights: those the index names, else `model.safetensors`, else every one there is.
fn shards(directory: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let index = directory.join("model.safetensors.index.json");
    if index.is_file() {
        let text = read_json(&index)?;
        let fail = |problem: String| LoadError::new("model", &index, problem);
        let read: Index = serde_json::from_slice(&text)
            .map_err(|error| fail(format!("not an index of safetensors ({error}): download it again")))?;
        let mut names: Vec<String> = read.weight_map.into_values().collect();
        names.sort();
        names.dedup();
        if let Some(name) = names.iter().find(|name| !directory.join(name).is_file()) {
            return Err(fail(format!("names {name}, which is missing beside it: download the model again")));
        }
        return Ok(names.into_iter().map(|name| directory.join(name)).collect());
    }
    let single = directory.join("model.safetensors");
    if single.is_file() {
        return Ok(vec![single]);
    }
    let fail = |problem: String| LoadError::new("model", directory, problem);
    let entries = fs::read_dir(directory).map_err(|error| fail(format!("cannot be read: {error}")))?;
    let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let with = |extension: &str| -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            paths.iter().filter(|path| path.extension().is_some_and(|end| end == extension)).cloned().collect();
        found.sort();
        found
    };
    let found = with("safetensors");
    if !found.is_empty() {
        return Ok(found);
    }
    Err(fail(if with("bin").is_empty() && with("pth").is_empty() {
        "has no safetensors file: download the weights too, or set load = \"dummy\" to measure speed without them"
            .into()
    } else {
        "has its weights as PyTorch pickles (.bin, .pth), which are not read: convert them to safetensors, as by \
         transformers' save_pretrained"
            .into()
    }))
}
