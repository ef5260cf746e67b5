//! How many threads models in this process compute with.

use crate::config::{BackendKind, Config};

/// What candle and rayon read, once, when they first compute. They have one pool for the whole process.
const VARIABLES: [&str; 2] = ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"];

/// Sets the number of threads to the largest `threads` that a backend asks for. Where none asks, it stays as it is: one
/// per core, unless the environment says otherwise.
///
/// To be called while the process has one thread.
pub(super) fn limit(config: &Config) {
    let asked = config.backends.iter().filter_map(|backend| match &backend.kind {
        BackendKind::Llama(llama) => llama.threads,
        BackendKind::OpenAi(_) => None,
    });
    let Some(threads) = asked.max() else { return };
    for variable in VARIABLES {
        #[allow(unsafe_code)]
        // SAFETY: no other thread runs yet that could read the environment meanwhile.
        unsafe {
            std::env::set_var(variable, threads.to_string());
        }
    }
}
