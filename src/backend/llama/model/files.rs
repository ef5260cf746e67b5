//! Where a model's parts are.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::Content;

use crate::backend::llama::LoadError;

/// A model as it lies on disk.
pub(in crate::backend::llama) enum ModelFiles {
    /// A Hugging Face directory: `config.json`, safetensors, `tokenizer.json` and the rest.
    Directory(PathBuf),
    /// One GGUF file, its header read.
    Gguf {
        /// The file.
        path: PathBuf,
        /// Its metadata and where its tensors are.
        content: Box<Content>,
    },
}

impl ModelFiles {
    /// Looks at `path`: a directory, or a `.gguf` file.
    pub(in crate::backend::llama) fn open(path: &Path) -> Result<Self, LoadError> {
        let fail = |problem: String| LoadError::new("model", path, problem);
        let about = fs::metadata(path).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                fail("not found: give a directory with config.json and safetensors, or a .gguf file".into())
            } else {
                fail(format!("cannot be read: {error}"))
            }
        })?;
        if about.is_dir() {
            return directory(path);
        }
        if !about.is_file() {
            return Err(fail(
                "neither a file nor a directory: give a directory with config.json and safetensors, or a .gguf file"
                    .into(),
            ));
        }
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) if has_extension(name, "safetensors") || name == "config.json" => {
                Err(fail("one file of a model: give the directory that holds it and the others".into()))
            }
            _ => gguf(path),
        }
    }
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

fn directory(path: &Path) -> Result<ModelFiles, LoadError> {
    let config = path.join("config.json");
    if config.is_file() {
        read_json(&config)?;
        return Ok(ModelFiles::Directory(path.into()));
    }
    let names = fs::read_dir(path)
        .map_err(|error| LoadError::new("model", path, format!("cannot be read: {error}")))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut gguf: Vec<String> = names.filter(|name| has_extension(name, "gguf")).collect();
    gguf.sort();
    let problem = match gguf.first() {
        Some(name) => format!("has no config.json; for a .gguf file give the file itself, as in {name}"),
        None => "has no config.json: give the directory that the model was downloaded to, or a .gguf file".into(),
    };
    Err(LoadError::new("model", path, problem))
}

fn gguf(path: &Path) -> Result<ModelFiles, LoadError> {
    let fail = |problem: String| LoadError::new("model", path, problem);
    let unreadable = |error: io::Error| fail(format!("cannot be read: {error}"));
    let mut file = File::open(path).map_err(unreadable)?;
    let mut start = Vec::with_capacity(PEEK);
    file.by_ref().take(PEEK as u64).read_to_end(&mut start).map_err(unreadable)?;
    if let Some(problem) = stand_in(&start) {
        return Err(fail(problem.into()));
    }
    if !start.starts_with(b"GGUF") {
        return Err(fail("not a GGUF file: give a .gguf file, or a directory with config.json".into()));
    }
    let mut reader = BufReader::new(File::open(path).map_err(unreadable)?);
    let content = Content::read(&mut reader).map_err(|error| {
        let error = error.to_string();
        let error = error.lines().next().unwrap_or_default();
        if error.contains("unknown dtype") {
            fail(format!(
                "has weights of a type that cannot be read ({error}): take the model as Q4_K_M, Q8_0 or F16, \
                 not as an IQ or other newer type"
            ))
        } else {
            fail(format!("a damaged or cut off GGUF file ({error}): download it again"))
        }
    })?;
    Ok(ModelFiles::Gguf { path: path.into(), content: Box::new(content) })
}

/// Reads a JSON file of the model, and says what lies in its place where it is none.
pub(super) fn read_json(path: &Path) -> Result<Vec<u8>, LoadError> {
    let fail = |problem: String| LoadError::new("model", path, problem);
    let text = fs::read(path).map_err(|error| fail(format!("cannot be read: {error}")))?;
    match stand_in(&text) {
        Some(problem) => Err(fail(problem.into())),
        None if text.trim_ascii().is_empty() => Err(fail("is empty: download it again".into())),
        None => Ok(text),
    }
}

/// How much of a file [`stand_in`] needs to see.
pub(super) const PEEK: usize = 64;

/// What a file is instead of the model's, by its first bytes: a download that only pretended to work.
pub(super) fn stand_in(start: &[u8]) -> Option<&'static str> {
    let start = start.trim_ascii_start();
    if start.starts_with(b"version https://git-lfs") {
        return Some("only a pointer of git LFS, not the file: run `git lfs pull` where it was cloned");
    }
    let html = [&b"<!doctype"[..], b"<html", b"<head"];
    let is_html = |tag: &[u8]| start.get(..tag.len()).is_some_and(|found| found.eq_ignore_ascii_case(tag));
    html.into_iter().any(is_html).then_some(
        "a web page, not the file: the download was refused, as for a gated model whose licence was not accepted \
         or that asks for a login; download it again with access",
    )
}
