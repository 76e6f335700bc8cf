//! An ordered parallel map that stops early.
//!
//! For a search for the first match. Threads compute the next few results together; results are in the order of the
//! items, so they do not depend on the number of threads.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::thread::{Builder, scope};

/// The results of all items, in order. Once a result is requested, as many are computed at once as there are threads.
pub fn map_in_order<T: Sync, R: Send>(
    threads: NonZeroUsize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> impl Iterator<Item = R> {
    items.chunks(threads.get()).flat_map(move |wave| run_wave(wave, &work))
}

/// The results of some items, each on its own thread, the first on this one.
fn run_wave<T: Sync, R: Send>(items: &[T], work: &(impl Fn(&T) -> R + Sync)) -> Vec<R> {
    let Some((first, others)) = items.split_first() else { return Vec::new() };
    scope(|scope| {
        let start = |item| Builder::new().name("ahead".to_owned()).spawn_scoped(scope, move || work(item));
        // If a thread cannot be started, this one does its work too.
        let started: Vec<_> = others.iter().map(|item| start(item).map_err(|_| item)).collect();
        let mut answers = vec![work(first)];
        answers.extend(started.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(item) => work(item),
        }));
        answers
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn answers_come_in_order_and_no_more_than_a_wave_too_many_are_worked_out() {
        let items: Vec<usize> = (0..20).collect();
        for threads in [1, 2, 3, 7, 64] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let done = AtomicUsize::new(0);
            let square = |n: &usize| {
                done.fetch_add(1, Ordering::SeqCst);
                n * n
            };
            assert_eq!(
                map_in_order(threads, &items, square).collect::<Vec<_>>(),
                items.iter().map(|n| n * n).collect::<Vec<_>>()
            );
            done.store(0, Ordering::SeqCst);
            assert_eq!(map_in_order(threads, &items, square).find(|n| *n == 9), Some(9));
            assert_eq!(done.load(Ordering::SeqCst), 4_usize.next_multiple_of(threads.get()).min(20));
        }
        assert_eq!(map_in_order(NonZeroUsize::MIN, &[], |n: &usize| *n).next(), None);
    }

    #[test]
    #[should_panic(expected = "the third")]
    fn a_panic_of_a_thread_is_one_of_the_caller() {
        let three = NonZeroUsize::new(3).unwrap();
        map_in_order(three, &[1, 2, 3], |n| assert!(*n < 3, "the third")).for_each(drop);
    }
}
