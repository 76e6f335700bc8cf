//! The built program, as a user runs it: one binary of tests, a module for each command.

mod audit;
mod azure_sim;
mod controller;
mod disruption;
mod explain;
mod explain_node;
mod habits;
mod history;
mod init;
mod migrate;
mod output;
mod policies;
mod repositories;
mod simulate;
mod summaries;
mod validate;
mod webhook;
