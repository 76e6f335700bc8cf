//! Writes the CustomResourceDefinitions of the types into a folder.
//!
//! `cargo run --example crds -- manifests/crds`

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf =
        std::env::args_os().nth(1).ok_or("name the folder to write to, for example manifests/crds")?.into();
    for crd in napkeeper_api::crds::all()? {
        let file = folder.join(&crd.file);
        file.parent().map(std::fs::create_dir_all).transpose()?;
        std::fs::write(file, napkeeper_api::crds::to_yaml(&crd)?)?;
    }
    Ok(())
}
