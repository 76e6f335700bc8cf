//! Where in the repository does a finding stand, for services that know only files of the repository?

use super::super::input::{Input, Place, absolute};
use super::super::judge::Shown;
use std::path::{Path, PathBuf};

/// A file and a place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spot {
    /// From the top of the repository, with `/`; an absolute path for a file outside of it. Absent for the standard
    /// input.
    pub(super) file: Option<String>,
    pub(super) line: usize,
    pub(super) column: usize,
    /// The place in a render, which is no file, to be said in words.
    pub(super) within: Option<String>,
}

/// Finds spots.
pub(super) struct Spots<'i> {
    places: &'i [Place],
    top: PathBuf,
}

impl<'i> Spots<'i> {
    pub(super) fn of(input: &'i Input) -> Self {
        let here = absolute(Path::new("."));
        let top = here.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(&here).to_owned();
        Self { places: &input.places, top }
    }

    pub(super) fn spot(&self, shown: &Shown) -> Spot {
        let finding = &shown.finding;
        let within = Some(format!("{}:{}:{}", finding.file, finding.line, finding.column));
        match self.places.get(shown.source) {
            Some(Place::File(_)) => {
                let file = Some(self.file(&finding.file));
                Spot { file, line: finding.line, column: finding.column, within: None }
            }
            Some(Place::Render { file, .. }) => Spot { file: Some(self.file(file)), line: 1, column: 1, within },
            Some(Place::Stdin) | None => Spot { file: None, line: finding.line, column: finding.column, within },
        }
    }

    /// A file from the top of the repository.
    pub(super) fn file(&self, file: &str) -> String {
        let whole = absolute(Path::new(file));
        let near = whole.strip_prefix(&self.top).unwrap_or(&whole);
        let parts: Vec<_> = near.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        parts.join("/").replacen("//", "/", 1)
    }
}

/// A path as a URI: relative, unless it is absolute.
pub(super) fn uri(path: &str) -> String {
    let mut text = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => text.push(char::from(byte)),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_have_no_bare_special_characters() {
        assert_eq!(uri("a b/ü:c#d%.yaml"), "a%20b/%C3%BC%3Ac%23d%25.yaml");
        assert_eq!(uri("/tmp/a.yaml"), "file:///tmp/a.yaml");
    }
}
