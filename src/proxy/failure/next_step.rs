//! What to do about an upstream that gave no reply, as the end of the sentence that says why.

use crate::backend::upstream::{Cause, ProxyFault};

pub(super) fn next_step(cause: &Cause) -> &'static str {
    match cause {
        Cause::Dns(_) => "check the host in base_url and this machine's name service",
        Cause::Connect(_) | Cause::ConnectTimeout { .. } => "check that it runs and that base_url is right",
        Cause::Proxy { proxy, fault } => next_step_for_proxy(fault, proxy.authorization.is_some()),
        Cause::Tls(_) => "check that base_url names the certificate's host; for a CA of your own set ca_file",
        Cause::HeadTimeout(_) => "try again, or raise head_timeout_ms",
        Cause::Closed(_) | Cause::StreamReset(_) => {
            "the request may have been acted on, so it was not repeated; try again"
        }
        Cause::Unprocessed(_) => "try again; if it stays so, ask its operator how many requests it takes at once",
        Cause::NotHttp2(_) => "remove http2 = true, or check base_url",
        Cause::NoHead(_) | Cause::Protocol(_) => "check that base_url points at an HTTP API",
        Cause::RequestBody(_) => "send it whole",
    }
}

fn next_step_for_proxy(fault: &ProxyFault, has_credentials: bool) -> &'static str {
    match fault {
        ProxyFault::Dns(_) | ProxyFault::Connect(_) | ProxyFault::Closed(_) | ProxyFault::Timeout { .. } => {
            "start it, correct the variable, or add the host to NO_PROXY"
        }
        ProxyFault::Refused { status: 401 | 407, .. } if has_credentials => {
            "correct the user name and password in the variable"
        }
        // Some answer 401 to credentials that are wrong, and 407 to none.
        ProxyFault::Refused { status: 401 | 407, .. } => {
            "put its credentials into the variable, as http://user:password@host:port"
        }
        ProxyFault::Refused { .. } => "allow the host there, or add it to NO_PROXY",
        ProxyFault::Answer(_) => "check that the variable names an HTTP proxy, or add the host to NO_PROXY",
    }
}
