//! Inputs that are made to hurt: `napkeeper validate` refuses them quickly and within limits of memory and processor time.

use anyhow::{Context, Result, ensure};
use napkeeper_tests::control_plane::napkeeper_binary;
use std::fs;
use std::process::Command;
use std::time::Instant;

/// Address space that the process may have, in KiB: two threads' stacks, the catalogue, and the largest file that is
/// read, several times over.
const MEMORY_KIB: u64 = 1 << 20;
/// Processor time that the process may have, in seconds: the kernel ends it at more, however busy the machine is.
const CPU_SECONDS: u64 = 20;

fn alias_bomb() -> String {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let list = vec![format!("*a{}", i - 1); 10].join(", ");
        text += &format!("a{i}: &a{i} [{list}]\n");
    }
    text
}

/// The cases: a name, the file, and a part of the expected message.
fn cases() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: ";
    let long_value = format!("{pool}{{template: {}}}\n", "x".repeat(30 << 20));
    vec![
        ("aliases", alias_bomb().into_bytes(), "more than 500000 values"),
        ("too large", vec![b'a'; 100 << 20], "is larger than 32 MiB"),
        ("one long line", long_value.into_bytes(), "must be a map"),
        ("deep flow", "[".repeat(1 << 20).into_bytes(), "recursion limit exceeded"),
        ("deep block", (0..5_000).map(|i| format!("{}a:\n", " ".repeat(i))).collect::<String>().into_bytes(), "nested"),
        ("many documents", "a: 1\n---\n".repeat(1 << 18).into_bytes(), "objects of other kinds"),
        ("NUL", b"apiVersion: karpenter.sh/v1\0\nkind: NodePool\n".to_vec(), "error"),
        ("no UTF-8", b"apiVersion: karpenter.sh/v1\nkind: \xff\xfe\n".to_vec(), "is not valid UTF-8 (byte 34)"),
        ("UTF-16", "a: 1\n".encode_utf16().flat_map(u16::to_le_bytes).collect(), "error"),
    ]
}

#[test]
fn hostile_files_are_refused_within_bounds() -> Result<()> {
    let binary = napkeeper_binary()?;
    let folder = tempfile::tempdir()?;
    for (name, bytes, expected) in cases() {
        let file = folder.path().join("input.yaml");
        fs::write(&file, bytes)?;
        let begun = Instant::now();
        let output = Command::new("sh")
            .args(["-c", &format!("ulimit -v {MEMORY_KIB} && ulimit -t {CPU_SECONDS} && exec \"$0\" validate \"$1\"")])
            .args([&binary, &file])
            .output()
            .context("running napkeeper under a limit")?;
        let output_text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let end: String = output_text.chars().rev().take(600).collect::<Vec<_>>().into_iter().rev().collect();
        ensure!(matches!(output.status.code(), Some(0..=2)), "{name} ended with {}: {end}", output.status);
        ensure!(output_text.contains(expected), "{name} does not say {expected:?}: {end}");
        ensure!(output_text.len() < 1 << 20, "{name}: {} bytes are said about it", output_text.len());
        println!("{name}: {:?}", begun.elapsed());
    }
    Ok(())
}
