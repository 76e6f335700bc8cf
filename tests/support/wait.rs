//! Waits for a condition.

use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

/// Asks every 100 ms until there is an answer.
///
/// # Errors
/// When asking fails, or there is no answer in time.
pub async fn eventually<T>(
    condition: &str,
    within: Duration,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    while start.elapsed() < within {
        if let Some(answer) = ask().await.with_context(|| format!("waiting for {condition}"))? {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("no {condition} within {within:?}")
}
