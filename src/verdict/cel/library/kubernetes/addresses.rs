//! IP addresses and networks.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::library::function::CallStyle::{Global, Method};
use crate::cel::library::function::FunctionDef;
use crate::cel::value::Val;
use crate::cel::value::opaque::Opaque;
use ipnet::IpNet;
use std::net::IpAddr;

type Result<T> = std::result::Result<T, EvalError>;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("ip", Global, [1, 1], ip),
    FunctionDef("ip", Method, [1, 1], ip_of_network),
    FunctionDef("isIP", Global, [1, 1], is_ip),
    FunctionDef("ip.isCanonical", Global, [1, 1], is_canonical),
    FunctionDef("family", Method, [1, 1], |_, args| with_ip(args, |ip| Val::Int(if ip.is_ipv4() { 4 } else { 6 }))),
    FunctionDef("isUnspecified", Method, [1, 1], |_, args| with_ip(args, |ip| Val::Bool(ip.is_unspecified()))),
    FunctionDef("isLoopback", Method, [1, 1], |_, args| with_ip(args, |ip| Val::Bool(ip.is_loopback()))),
    FunctionDef("isLinkLocalMulticast", Method, [1, 1], |_, args| {
        with_ip(args, |ip| Val::Bool(link_local_multicast(ip)))
    }),
    FunctionDef("isLinkLocalUnicast", Method, [1, 1], |_, args| with_ip(args, |ip| Val::Bool(link_local_unicast(ip)))),
    FunctionDef("isGlobalUnicast", Method, [1, 1], |_, args| with_ip(args, |ip| Val::Bool(global_unicast(ip)))),
    FunctionDef("cidr", Global, [1, 1], cidr),
    FunctionDef("isCIDR", Global, [1, 1], is_cidr),
    FunctionDef("containsIP", Method, [2, 2], contains_ip),
    FunctionDef("containsCIDR", Method, [2, 2], contains_cidr),
    FunctionDef("prefixLength", Method, [1, 1], prefix_length),
    FunctionDef("masked", Method, [1, 1], masked),
];

/// Reads an address: no zone, and no IPv4 address in the form of an IPv6 one.
fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().filter(|ip| !matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()))
}

/// Reads a network: the length of its prefix has no sign and no leading zero.
fn parse_cidr(text: &str) -> Option<IpNet> {
    let (address, length) = text.rsplit_once('/')?;
    let plain = !length.is_empty()
        && length.bytes().all(|b| b.is_ascii_digit())
        && (length.len() == 1 || !length.starts_with('0'));
    let length = length.parse().ok().filter(|_| plain)?;
    IpNet::new(parse_ip(address)?, length).ok()
}

fn text(args: &[Val]) -> Result<&str> {
    match args {
        [Val::Text(text)] => Ok(text),
        _ => no_overload(),
    }
}

fn ip(_: &mut Budget, args: &[Val]) -> Result<Val> {
    ip_from(text(args)?).map(|ip| Val::opaque(Opaque::Ip(ip)))
}

fn ip_from(text: &str) -> Result<IpAddr> {
    parse_ip(text).map_or_else(|| failed(format!("{text:?} is not an IP address")), Ok)
}

fn cidr_from(text: &str) -> Result<IpNet> {
    parse_cidr(text).map_or_else(|| failed(format!("{text:?} is not a CIDR block")), Ok)
}

fn is_ip(_: &mut Budget, args: &[Val]) -> Result<Val> {
    Ok(Val::Bool(parse_ip(text(args)?).is_some()))
}

fn is_canonical(_: &mut Budget, args: &[Val]) -> Result<Val> {
    let text = text(args)?;
    Ok(Val::Bool(ip_from(text)?.to_string() == text))
}

fn with_ip(args: &[Val], of: impl Fn(&IpAddr) -> Val) -> Result<Val> {
    match args {
        [Val::Opaque(opaque)] => match opaque.as_ref() {
            Opaque::Ip(ip) => Ok(of(ip)),
            _ => no_overload(),
        },
        _ => no_overload(),
    }
}

fn link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// As in Go: every address that is not special, private ones included.
fn global_unicast(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_unspecified() || broadcast || ip.is_loopback() || ip.is_multicast() || link_local_unicast(ip))
}

fn cidr(_: &mut Budget, args: &[Val]) -> Result<Val> {
    cidr_from(text(args)?).map(|net| Val::opaque(Opaque::Cidr(net)))
}

fn is_cidr(_: &mut Budget, args: &[Val]) -> Result<Val> {
    Ok(Val::Bool(parse_cidr(text(args)?).is_some()))
}

fn network(value: Option<&Val>) -> Result<IpNet> {
    match value {
        Some(Val::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Cidr(net) => Ok(*net),
            _ => no_overload(),
        },
        _ => no_overload(),
    }
}

fn contains_ip(_: &mut Budget, args: &[Val]) -> Result<Val> {
    let net = network(args.first())?;
    let ip = match args.get(1) {
        Some(Val::Text(text)) => ip_from(text)?,
        Some(Val::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Ip(ip) => *ip,
            _ => return no_overload(),
        },
        _ => return no_overload(),
    };
    Ok(Val::Bool(net.contains(&ip)))
}

fn contains_cidr(_: &mut Budget, args: &[Val]) -> Result<Val> {
    let net = network(args.first())?;
    let other = match args.get(1) {
        Some(Val::Text(text)) => cidr_from(text)?,
        other => network(other)?,
    };
    Ok(Val::Bool(net.contains(&other)))
}

fn prefix_length(_: &mut Budget, args: &[Val]) -> Result<Val> {
    Ok(Val::Int(network(args.first())?.prefix_len().into()))
}

fn masked(_: &mut Budget, args: &[Val]) -> Result<Val> {
    Ok(Val::opaque(Opaque::Cidr(network(args.first())?.trunc())))
}

fn ip_of_network(_: &mut Budget, args: &[Val]) -> Result<Val> {
    Ok(Val::opaque(Opaque::Ip(network(args.first())?.addr())))
}
