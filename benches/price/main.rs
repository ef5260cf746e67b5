//! What watching costs: streamgauge beside nginx and beside no proxy at all, on the same upstream.
//!
//! `cargo bench --bench price` drives three legs, direct, nginx (Debian's, unbuffered, one worker) and `streamgauge serve`
//! (one thread, metrics on), in interleaved rounds over loopback. Upstream and clients run in this process on blocking
//! sockets; each paced event carries the instant it was sent, so latency is receipt less stamp, and what a proxy *added*
//! is its leg's percentile less the direct leg's of the same round. CPU is the scheduler's own count for the proxy's
//! process tree. Each ratio to nginx is the median of the rounds' ratios.

mod cpu;
mod http;
mod legs;
mod load;
mod table;
mod upstream;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use cpu::Neighbours;
use legs::Leg;
use load::{Client, WORKLOADS, Workload};
use table::{Round, Rounds};

/// Compares streamgauge's price with nginx's.
#[derive(Debug, Parser)]
#[command(name = "price")]
struct Flags {
    /// Interleaved rounds per workload; p99 wants at least 10
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds that each leg runs in each round
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Workloads to run: paced8, paced64, json, blast1, blast8, flood
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Legs to run
    #[arg(long, value_delimiter = ',', default_values_t = ["direct", "nginx", "streamgauge"].map(str::to_owned))]
    legs: Vec<String>,
    /// Put a second nginx in streamgauge's place: what then differs from 1 is noise
    #[arg(long)]
    twin: bool,
    /// Passed by `cargo bench`, without meaning here
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("price: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<(), String> {
    let time = Duration::try_from_secs_f64(flags.seconds).map_err(|e| format!("--seconds: {e}"))?;
    let workloads = chosen(&flags.only)?;
    let folder = || tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"));
    let (dir, twin) = (folder()?, folder()?);
    let upstream = upstream::start().map_err(|e| format!("the upstream: {e}"))?;
    let mut legs = Vec::new();
    for name in &flags.legs {
        legs.push(match name.as_str() {
            "direct" => Leg::direct(upstream),
            "nginx" => Leg::nginx(upstream, dir.path())?,
            "streamgauge" if flags.twin => Leg::nginx(upstream, twin.path())?.named("twin"),
            "streamgauge" => Leg::streamgauge(upstream, dir.path())?,
            _ => return Err(format!("--legs: no leg is called {name:?}")),
        });
    }
    let processes: Vec<u32> = legs.iter().filter_map(Leg::process).collect();
    let (start, neighbours) = (Instant::now(), Neighbours::watch(&processes));
    let mut text = String::new();
    let mut watched = (0, 0);
    for workload in workloads {
        eprintln!("{} …", workload.title);
        let rounds = compare(workload, &legs, flags.rounds, time, &mut watched)?;
        text.push_str(&table::rows(workload, &rounds));
    }
    let others = neighbours.share(&processes);
    for leg in legs.iter().filter(|leg| leg.admin.is_some()) {
        check_metrics(&leg.admin("/metrics")?, watched)?;
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "{} rounds of {:?} a leg, interleaved, {cores} cores, {:.0} s in all. \"Added\" is the leg's percentile less the \
         direct leg's of the same round; the direct column shows that leg's own. Other programs took {:.0} % of the \
         machine{}.\n\n{}{text}",
        flags.rounds,
        time,
        start.elapsed().as_secs_f64(),
        others * 100.0,
        if others > 0.03 { ": too much to trust these numbers" } else { "" },
        table::HEAD
    );
    Ok(())
}

fn chosen(only: &[String]) -> Result<Vec<&'static Workload>, String> {
    if only.is_empty() {
        return Ok(WORKLOADS.iter().collect());
    }
    let find = |name: &String| WORKLOADS.iter().find(|workload| workload.name == name);
    only.iter().map(|name| find(name).ok_or_else(|| format!("--only: no workload is called {name:?}"))).collect()
}

/// Runs one workload: a warm-up turn for each leg, then the rounds, in changing order, so that no leg always follows the same other.
/// Adds the requests and events that went through streamgauge to `watched`.
fn compare(
    workload: &Workload,
    legs: &[Leg],
    rounds: u32,
    time: Duration,
    watched: &mut (u64, u64),
) -> Result<Rounds, String> {
    let mut clients = Vec::new();
    for leg in legs {
        let connected = workload.connect(leg.address).map_err(|e| format!("{}: connect: {e}", leg.name))?;
        clients.push(connected);
    }
    let mut turn = |leg: &Leg, clients: &mut [Client], time: Duration| -> Result<Round, String> {
        let before = leg.cpu();
        let seen = workload.turn(clients, time).map_err(|e| format!("{}, {}: {e}", leg.name, workload.title))?;
        let cpu = leg.cpu().zip(before).map(|(after, before)| after.since(&before));
        if leg.admin.is_some() {
            *watched = (watched.0 + seen.requests, watched.1 + seen.events);
        }
        Ok(Round::new(seen, cpu))
    };
    for (leg, clients) in legs.iter().zip(&mut clients) {
        turn(leg, clients, time.min(Duration::from_millis(500)))?;
    }
    let mut all = Rounds::default();
    for round in 0..rounds as usize {
        for offset in 0..legs.len() {
            let step = if round % 2 == 0 { offset } else { legs.len() - offset };
            let n = (round / 2 + step) % legs.len();
            let seen = turn(&legs[n], &mut clients[n], time)?;
            match legs[n].name {
                "direct" => all.direct.push(seen),
                "nginx" => all.nginx.push(seen),
                _ => all.streamgauge.push(seen),
            }
        }
    }
    Ok(all)
}

/// A proxy that did not measure would be cheap: its own counters must show all that went through it.
fn check_metrics(metrics: &str, (requests, events): (u64, u64)) -> Result<(), String> {
    let sum = |name: &str, label: &str| -> f64 {
        let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let counted = (sum("streamgauge_requests_total{", "outcome=\"ok\""), sum("streamgauge_token_events_total{", ""));
    let wanted = (requests as f64, events as f64);
    if counted != wanted {
        return Err(format!(
            "streamgauge counted {counted:?} requests and token events of {wanted:?}: it is not measuring"
        ));
    }
    Ok(())
}
