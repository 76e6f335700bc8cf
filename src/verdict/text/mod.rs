//! Text formats that Go defines: regular expressions.

pub(crate) mod re2;
