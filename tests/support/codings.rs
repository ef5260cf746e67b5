//! Encoders of every content coding, flushed after each part, as servers of streams do.

// Each test program uses its own part of this.
#![allow(dead_code)]

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

/// Every coding there is, by the names of `content-encoding`.
pub(crate) const NAMES: [&str; 5] = ["gzip", "x-gzip", "deflate", "br", "zstd"];
/// What some servers send as `deflate`.
pub(crate) const RAW: &str = "deflate without zlib";

/// Encodes `parts` and flushes after each: one part of the output for each, and the end of the stream as one more.
///
/// `codings` is a list as `content-encoding` gives it, the first applied first.
pub(crate) fn encoded<T: AsRef<[u8]>>(codings: &str, parts: &[T]) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = parts.iter().map(|part| part.as_ref().to_vec()).collect();
    parts.push(Vec::new());
    for coding in codings.split(", ") {
        parts = once(coding, &parts);
    }
    parts
}

fn once(coding: &str, parts: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let out = Shared::default();
    let mut encoder = encoder(coding, out.clone());
    let (last, flushed) = parts.split_last().expect("a part");
    let mut done = Vec::new();
    for part in flushed {
        encoder.write_all(part).expect("encoded");
        encoder.flush().expect("flushed");
        done.push(out.0.take());
    }
    encoder.write_all(last).expect("encoded");
    drop(encoder);
    done.push(out.0.take());
    done
}

/// An encoder that ends its stream when it is dropped.
fn encoder(coding: &str, out: Shared) -> Box<dyn Write> {
    let level = Compression::default();
    match coding {
        "gzip" | "x-gzip" => Box::new(GzEncoder::new(out, level)),
        "deflate" => Box::new(ZlibEncoder::new(out, level)),
        RAW => Box::new(DeflateEncoder::new(out, level)),
        "br" => Box::new(brotli::CompressorWriter::new(out, 4096, 5, 22)),
        "zstd" => Box::new(zstd::stream::write::Encoder::new(out, 3).expect("an encoder").auto_finish()),
        other => panic!("no coding: {other}"),
    }
}

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
