//! Tokens for Azure Resource Manager.

mod credential;
mod token_sources;

pub use credential::{Credential, CredentialChain, Token};
pub use token_sources::{CredentialError, CredentialSource};
