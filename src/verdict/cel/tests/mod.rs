//! Expressions evaluate as kube-apiserver evaluates them.

mod language;
mod walker;
