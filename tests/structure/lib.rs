//! Tests of the structure of the source tree. They build nothing of napkeeper, so that they run first.

#[cfg(test)]
mod architecture;
#[cfg(test)]
mod dependencies;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod features;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod parameters;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod variables;
#[cfg(test)]
mod words;
