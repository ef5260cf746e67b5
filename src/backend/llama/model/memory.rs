//! Whether a model fits: how many sequences of what context, decided before anything is read.

/// What a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Needs {
    /// Bytes of weights.
    pub(super) weights: u64,
    /// Bytes of K/V for one token of one sequence.
    pub(super) kv_per_token: u64,
    /// The context the model was made for, in tokens.
    pub(super) model_context: usize,
}

/// What the configuration says; `None` leaves it to [`fit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) max_sequences: Option<usize>,
    pub(super) max_context: Option<usize>,
}

/// How the memory is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fit {
    /// Sequences at once.
    pub(super) sequences: usize,
    /// Tokens of each.
    pub(super) context: usize,
    /// What was made smaller than by default.
    pub(super) note: Option<String>,
}

/// Why it does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misfit {
    /// The configuration key to change.
    pub(super) key: &'static str,
    /// What is needed, what there is, and what to change.
    pub(super) problem: String,
}

/// Sequences at once where the configuration leaves it open.
const SEQUENCES: usize = 8;
/// No default makes the context shorter than this.
const SHORTEST: usize = 512;

impl Needs {
    /// Bytes of K/V.
    pub(super) fn kv(&self, sequences: usize, context: usize) -> u64 {
        self.kv_per_token.saturating_mul(sequences as u64).saturating_mul(context as u64)
    }

    fn total(&self, sequences: usize, context: usize) -> u64 {
        self.weights.saturating_add(self.kv(sequences, context))
    }
}

/// Fits `needs` into `free` bytes (`None`: unknown, taken to be enough). What `wishes` leave open is made smaller until
/// four fifths suffice: first fewer sequences, then less context.
pub(super) fn fit(needs: &Needs, wishes: Wishes, free: Option<u64>) -> Result<Fit, Misfit> {
    if let Some(context) = wishes.max_context
        && context > needs.model_context
    {
        let problem =
            format!("the model was made for {} tokens, max_context asks for {context}: lower it", needs.model_context);
        return Err(Misfit { key: "max_context", problem });
    }
    let mut sequences = wishes.max_sequences.unwrap_or(SEQUENCES);
    let mut context = wishes.max_context.unwrap_or(needs.model_context);
    let (default_sequences, default_context) = (sequences, context);
    let Some(free) = free else {
        return Ok(Fit { sequences, context, note: None });
    };
    let comfortable = free / 5 * 4;
    while wishes.max_sequences.is_none() && sequences > 1 && needs.total(sequences, context) > comfortable {
        sequences /= 2;
    }
    while wishes.max_context.is_none() && context / 2 >= SHORTEST && needs.total(sequences, context) > comfortable {
        context /= 2;
    }
    if needs.total(sequences, context) > free {
        return Err(misfit(needs, sequences, context, wishes, free));
    }
    let note = (sequences, context) != (default_sequences, default_context);
    let note = note.then(|| {
        format!(
            "for want of memory {sequences} sequences of {context} tokens, not {default_sequences} of {default_context}: \
             {} are free, the weights take {}; set max_sequences or max_context to choose otherwise",
            bytes(free),
            bytes(needs.weights)
        )
    });
    Ok(Fit { sequences, context, note })
}

fn misfit(needs: &Needs, sequences: usize, context: usize, wishes: Wishes, free: u64) -> Misfit {
    let (key, remedy) = if needs.total(1, SHORTEST.min(context)) > free {
        ("quantize", "set quantize = \"q8_0\" or \"q4_k\", or take a smaller model")
    } else if wishes.max_sequences.is_some() && needs.total(1, context) <= free {
        ("max_sequences", "lower max_sequences or max_context, or set quantize")
    } else {
        ("max_context", "lower max_context or max_sequences, or set quantize")
    };
    let problem = format!(
        "needs {} of memory, {} are free: weights {}, K/V {} for max_sequences {sequences} × max_context {context}; \
         {remedy}",
        bytes(needs.total(sequences, context)),
        bytes(free),
        bytes(needs.weights),
        bytes(needs.kv(sequences, context)),
    );
    Misfit { key, problem }
}

/// A number of bytes, exact and as one reads it.
fn bytes(count: u64) -> String {
    format!("{count} bytes ({:.2} GiB)", count as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 bytes of weights and a byte per token of 4,096.
    const NEEDS: Needs = Needs { weights: 100, kv_per_token: 1, model_context: 4096 };
    const OPEN: Wishes = Wishes { max_sequences: None, max_context: None };

    /// Sequences and context in `free` bytes, of which four fifths are used.
    fn open(free: u64) -> (usize, usize, bool) {
        let fit = fit(&NEEDS, OPEN, Some(free)).expect("fits");
        (fit.sequences, fit.context, fit.note.is_some())
    }

    #[test]
    fn what_is_left_open_shrinks_sequences_first_then_context() {
        let room = |kv: u64| (100 + kv).div_ceil(4) * 5;
        assert_eq!(open(u64::MAX / 8), (8, 4096, false));
        assert_eq!(open(room(8 * 4096)), (8, 4096, false));
        assert_eq!(open(room(8 * 4096) - 5), (4, 4096, true));
        assert_eq!(open(room(2 * 4096)), (2, 4096, true));
        assert_eq!(open(room(4096)), (1, 4096, true));
        assert_eq!(open(room(2048)), (1, 2048, true));
        assert_eq!(open(room(512)), (1, 512, true));
        // Below that the fifth in reserve is used, and then it is over.
        assert_eq!(open(612), (1, 512, true));
        let misfit = fit(&NEEDS, OPEN, Some(611)).expect_err("does not fit");
        assert_eq!(misfit.key, "quantize");
    }

    #[test]
    fn what_is_set_stays_or_is_refused() {
        let wishes = Wishes { max_sequences: Some(4), max_context: Some(1000) };
        let fits = Fit { sequences: 4, context: 1000, note: None };
        assert_eq!(fit(&NEEDS, wishes, Some(4100)), Ok(fits.clone()));
        assert_eq!(fit(&NEEDS, wishes, None), Ok(fits));
        let misfit = fit(&NEEDS, wishes, Some(4099)).expect_err("does not fit");
        assert_eq!(misfit.key, "max_sequences");
        assert_eq!(
            misfit.problem,
            "needs 4100 bytes (0.00 GiB) of memory, 4099 bytes (0.00 GiB) are free: weights 100 bytes (0.00 GiB), \
             K/V 4000 bytes (0.00 GiB) for max_sequences 4 × max_context 1000; lower max_sequences or max_context, \
             or set quantize"
        );
        let misfit = fit(&NEEDS, wishes, Some(900)).expect_err("does not fit");
        assert_eq!(misfit.key, "max_context");
        let misfit = fit(&NEEDS, wishes, Some(600)).expect_err("does not fit");
        assert_eq!(misfit.key, "quantize");
    }

    #[test]
    fn one_set_leaves_the_other_open() {
        let sequences = Wishes { max_sequences: Some(4), ..OPEN };
        let fitted = fit(&NEEDS, sequences, Some(5 * 1024)).expect("fits");
        assert_eq!((fitted.sequences, fitted.context), (4, 512));
        let context = Wishes { max_context: Some(1000), ..OPEN };
        let fitted = fit(&NEEDS, context, Some(5 * 1024)).expect("fits");
        assert_eq!((fitted.sequences, fitted.context), (2, 1000));
        let note = fitted.note.expect("it is said");
        assert!(note.starts_with("for want of memory 2 sequences of 1000 tokens, not 8 of 1000"), "{note}");
    }

    #[test]
    fn no_context_beyond_the_models() {
        let wishes = Wishes { max_context: Some(4097), ..OPEN };
        let misfit = fit(&NEEDS, wishes, None).expect_err("too long");
        assert_eq!(misfit.key, "max_context");
        let huge = Needs { weights: u64::MAX, kv_per_token: u64::MAX, model_context: 1 << 24 };
        assert!(fit(&huge, OPEN, Some(1 << 40)).is_err(), "sums overflow");
    }
}
