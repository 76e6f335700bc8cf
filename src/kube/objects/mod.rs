//! Objects of the API server: undecoded, and converted to the domain with times of the controller's clock.

pub(crate) mod controller_time;
pub(crate) mod raw_object;
