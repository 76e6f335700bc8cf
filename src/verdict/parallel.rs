//! How is one question asked of many things on all cores?

use std::sync::Mutex;
use std::thread;

/// Things that a thread takes at once: enough that taking them costs nothing, few enough that no thread ends much later
/// than the others.
const BATCH: usize = 4;
/// Below this number threads cost more than they save.
const WORTH_IT: usize = BATCH;
/// More threads than this gain nothing: reading the files is then what takes time.
const MOST_THREADS: usize = 8;

/// The answers for all things, in their order.
pub(crate) fn map<T: Send, R: Send>(items: Vec<T>, apply: impl Fn(T) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    if items.len() < WORTH_IT || cores == 1 {
        return items.into_iter().map(apply).collect();
    }
    let queue = Mutex::new(items.into_iter().enumerate());
    let take = || {
        let mut queue = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        queue.by_ref().take(BATCH).collect::<Vec<_>>()
    };
    let work = || {
        let mut answers = Vec::new();
        loop {
            let batch = take();
            if batch.is_empty() {
                return answers;
            }
            answers.extend(batch.into_iter().map(|(i, thing)| (i, apply(thing))));
        }
    };
    let mut answers: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().flat_map(|thread| match thread.join() {
            Ok(answers) => answers,
            // A bug of ours must not look like an input without findings.
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.collect()
    });
    answers.sort_unstable_by_key(|(i, _)| *i);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn answers_come_in_the_order_of_the_things() {
        for n in [0, 1, 31, 32, 1000] {
            let doubled = super::map((0..n).collect(), |i: usize| 2 * i);
            assert_eq!(doubled, (0..n).map(|i| 2 * i).collect::<Vec<_>>());
        }
    }
}
