//! What is asked for on the command line.

use crate::sides::Side;
use crate::world::{self, World};
use anyhow::{Context, Result, bail, ensure};
use std::path::PathBuf;

/// What is measured.
#[derive(Debug)]
pub(crate) struct Args {
    /// Worlds to play.
    pub(crate) worlds: Vec<World>,
    /// Numbers of pods that wait when a controller starts.
    pub(crate) waiting: Vec<u32>,
    /// How often each.
    pub(crate) repeats: u64,
    /// On which sides.
    pub(crate) sides: Vec<Side>,
    /// The folder of the results, if they are kept.
    pub(crate) out: Option<PathBuf>,
}

impl Args {
    /// Reads pairs of a flag and its value.
    ///
    /// # Errors
    /// When a flag is unknown, or its value is.
    pub(crate) fn read(words: &[String]) -> Result<Self> {
        let mut args = Self { worlds: Vec::new(), waiting: Vec::new(), repeats: 1, sides: Vec::new(), out: None };
        for pair in words.chunks(2) {
            let [flag, value] = pair else { bail!("{:?} has no value", pair.concat()) };
            let number = || value.parse().with_context(|| format!("{flag} {value}: say a number"));
            match flag.as_str() {
                "--world" => args.worlds.extend(worlds(value)?),
                "--waiting" => args.waiting.push(number()?),
                "--repeats" => args.repeats = number()?.into(),
                "--sides" => args.sides = value.split(',').map(side).collect::<Result<_>>()?,
                "--out" => args.out = Some(PathBuf::from(value)),
                _ => bail!("{flag:?}: say --world, --waiting, --repeats, --sides or --out"),
            }
        }
        if args.worlds.is_empty() && args.waiting.is_empty() {
            args.worlds = world::all();
        }
        if args.sides.is_empty() {
            args.sides = Side::ALL.into();
        }
        ensure!((1..=100).contains(&args.repeats), "--repeats {}: say 1 to 100", args.repeats);
        ensure!(args.waiting.iter().all(|pods| (10..=20_000).contains(pods)), "--waiting: say 10 to 20000 pods");
        Ok(args)
    }
}

fn worlds(names: &str) -> Result<Vec<World>> {
    let all = world::all();
    let known: Vec<_> = all.iter().map(|world| world.name).collect();
    let find = |name: &str| {
        let found = all.iter().find(|world| world.name == name).cloned();
        found.with_context(|| format!("--world {name:?} is none of {known:?}"))
    };
    names.split(',').map(find).collect()
}

fn side(name: &str) -> Result<Side> {
    let known = Side::ALL.map(Side::name);
    let found = Side::ALL.into_iter().find(|side| side.name() == name);
    found.with_context(|| format!("--sides {name:?} is none of {known:?}"))
}
