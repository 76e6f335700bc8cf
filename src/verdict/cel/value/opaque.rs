//! Values that only their own functions look into: quantities, addresses, versions and the like.

use crate::cel::library::kubernetes::named_formats::Format;
use crate::cel::library::kubernetes::quantity::Amount;
use crate::cel::library::kubernetes::url::Url;
use crate::text::re2::Pattern;
use ipnet::IpNet;
use semver::Version;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

/// A value of one of the libraries of Kubernetes.
#[derive(Debug, Clone)]
pub(crate) enum Opaque {
    Quantity(Amount),
    Url(Url),
    Ip(IpAddr),
    Cidr(IpNet),
    Semver(Version),
    Format(Format),
    /// A pattern that was compiled with its expression; no expression can name it.
    Pattern(Arc<Pattern>),
}

impl Opaque {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Pattern(_) => "string",
        }
    }
}

impl PartialEq for Opaque {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Quantity(a), Self::Quantity(b)) => a.compare(b) == Ordering::Equal,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a.cmp_precedence(b) == Ordering::Equal,
            (Self::Format(a), Self::Format(b)) => a == b,
            _ => false,
        }
    }
}
