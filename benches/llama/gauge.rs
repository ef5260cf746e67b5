//! The process under test.

use std::net::SocketAddr;

use crate::Options;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::process::Serve;

/// A `streamgauge serve` with a Llama and, if asked for, an upstream.
pub(crate) struct Gauge {
    pub(crate) serve: Serve,
}

impl Gauge {
    /// Starts it and waits until the model is warm.
    pub(crate) fn start(options: &Options, slots: usize, context: usize, upstream: Option<SocketAddr>) -> Self {
        let Options { model, more, .. } = options;
        let upstream = upstream.map_or_else(String::new, |address| {
            format!(
                "[backend.up]\nkind = \"openai\"\nbase_url = \"http://{address}\"\n[[route]]\nmodel = \"*\"\nbackend = \"up\"\n"
            )
        });
        let serve = Serve::start(
            &format!(
                "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n\
                 [backend.local]\nkind = \"llama\"\nmodel = \"{}\"\nmax_sequences = {slots}\nmax_context = {context}\n{more}\n\
                 [[route]]\nmodel = \"local\"\nbackend = \"local\"\n{upstream}",
                model.display()
            ),
            "text",
            &[],
        );
        // A large model takes longer than anything a test waits for.
        for _ in 0..20 {
            if serve.output().iter().any(|line| line.contains("loaded")) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        eventually("it is warm", || (Client::connect(serve.admin).get("/readyz").status == 200).then_some(()));
        Self { serve }
    }

    /// What it said of the model.
    pub(crate) fn announcement(&self) -> String {
        self.serve.output().into_iter().find(|line| line.contains("loaded")).expect("it says what it loaded")
    }

    /// CPU time of all its threads so far, in seconds; the kernel counts hundredths.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.serve.pid())).expect("its statistics");
        // utime and stime are the 14th and 15th fields; the name before them may hold anything but ends with ')'.
        let fields: Vec<&str> = stat.rsplit_once(") ").expect("fields").1.split(' ').collect();
        let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().expect("ticks")).sum();
        ticks / 100.0
    }
}
