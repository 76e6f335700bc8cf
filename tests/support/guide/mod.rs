//! The commands of README.md and the user guide.
//!
//! A block without a language is commands; in one with lines that begin with `$ ` these are, and the others are output. Other
//! output is `text`.

mod reader;

use crate::manifests::repository;
use anyhow::{Context, Result};
pub use reader::{Followed, Programs, Reader};
use std::path::PathBuf;

/// A page.
#[derive(Debug, Clone)]
pub struct Page {
    /// Where it is in the repository.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// README.md, and the user guide without decisions, which are not kept up to date.
///
/// # Errors
/// When a page cannot be read.
pub fn pages() -> Result<Vec<Page>> {
    let mut names = vec![PathBuf::from("README.md"), PathBuf::from("kustomize/README.md")];
    for folder in ["docs", "docs/rules"] {
        for entry in std::fs::read_dir(repository(folder)).with_context(|| format!("listing {folder}"))? {
            names.push(PathBuf::from(folder).join(entry?.file_name()));
        }
    }
    names.retain(|name| name.extension().is_some_and(|extension| extension == "md"));
    names.sort();
    names.into_iter().map(|name| page(&name.display().to_string())).collect()
}

/// One page of the repository.
///
/// # Errors
/// When it cannot be read.
pub fn page(name: &str) -> Result<Page> {
    let text = std::fs::read_to_string(repository(name)).with_context(|| format!("reading {name}"))?;
    Ok(Page { name: name.to_owned(), text })
}

impl Page {
    /// Its scripts: the blocks without a language, and commands of napkeeper and kubectl between backticks.
    #[must_use]
    pub fn scripts(&self) -> Vec<String> {
        let (mut scripts, text) = self.parts();
        let spans = text.lines().flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
        let is_command = |span: &&str| span.starts_with("napkeeper ") || span.starts_with("kubectl ");
        scripts.extend(spans.filter(is_command).map(|span| format!("{}\n", span.replace("\\|", "|"))));
        scripts
    }

    /// The commands of each block without a language.
    #[must_use]
    pub fn blocks(&self) -> Vec<String> {
        self.parts().0
    }

    /// The commands of its blocks, and its text, a paragraph on a line.
    fn parts(&self) -> (Vec<String>, String) {
        let (mut blocks, mut block, mut text) = (Vec::new(), None::<(bool, String)>, String::new());
        for line in self.text.lines() {
            match (&mut block, line.trim_start().strip_prefix("```")) {
                (None, Some(language)) => block = Some((language.is_empty(), String::new())),
                (Some((is_shell, content)), Some(_)) => {
                    blocks.extend(is_shell.then(|| commands_of_block(content)));
                    block = None;
                }
                (Some((_, content)), None) => content.extend([line, "\n"]),
                // A span may be broken into two lines.
                (None, None) => text.extend([line, if line.is_empty() { "\n" } else { " " }]),
            }
        }
        (blocks, text)
    }
}

/// The commands of a block. Without a prompt all of it is.
fn commands_of_block(block: &str) -> String {
    let mut commands = String::new();
    let mut goes_on = false;
    for line in block.lines() {
        let command = line.strip_prefix("$ ").or_else(|| goes_on.then_some(line));
        goes_on = command.is_some_and(|command| command.ends_with('\\'));
        commands.extend(command.map(|command| format!("{command}\n")));
    }
    if commands.is_empty() { block.to_owned() } else { commands }
}
