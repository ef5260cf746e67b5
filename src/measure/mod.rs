//! Measuring: what passes → marks → intervals → metrics.
//!
//! [`timeline`] and [`intervals`] are pure and hold the definitions; [`ObservedBody`] feeds them from the frames that
//! pass; [`Observation`] is one exchange while it runs and becomes an [`Exchange`], the finished fact that the
//! [`Meter`] and everyone else reads.
//!
//! Invariants: nothing here does I/O on the request path. A measuring error never becomes a traffic error.

mod anomaly;
mod body;
mod count;
mod delivery;
mod exchange;
pub mod intervals;
mod metrics;
mod observation;
mod outcome;
mod plausible;
mod reader;
mod recent;
pub mod timeline;
mod track;

pub use anomaly::{Anomalies, Anomaly};
pub use body::{CutOff, IntoFault, ObservedBody};
pub use count::{Counter, Uncounted};
pub use delivery::Framing;
pub use exchange::Exchange;
pub use metrics::{ConnectionMeter, EngineMeter, Listener, Meter, MirrorMeter, Objective, Setup};
pub use observation::{Answered, Asked, Observation};
pub use outcome::{Ending, Fault, Outcome, Said, decide};
pub use reader::{CAP, Content};
pub use recent::{Recent, Row, SLOT, SLOTS, Shown, Summary, WINDOW, WindowNow, Windows};
pub use track::{Tick, Track};
