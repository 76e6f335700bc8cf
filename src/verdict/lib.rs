//! What is right and wrong about a manifest: `(manifest, old, facts) -> findings`.
