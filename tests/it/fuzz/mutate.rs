//! Makes inputs from a corpus by small changes.

use napkeeper_sim::random::Random;

/// Longest input, in bytes.
const LONGEST: usize = 4096;
/// Most interesting inputs besides the corpus.
const MAX_KEPT: usize = 256;

/// Mutates inputs of a corpus, and then its own results.
pub(super) struct Mutator {
    random: Random,
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    /// Inputs before this one are never replaced.
    given: usize,
}

impl Mutator {
    pub(super) fn new(seed: u64, corpus: &[&str], words: &[&str]) -> Self {
        let bytes = |texts: &[&str]| texts.iter().map(|t| t.as_bytes().to_vec()).collect::<Vec<_>>();
        Self { random: Random::new(seed), corpus: bytes(corpus), words: bytes(words), given: corpus.len() }
    }

    /// The next input.
    pub(super) fn next(&mut self) -> String {
        let mut input = self.pick_input();
        for _ in 0..=self.below(6) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        let text = String::from_utf8_lossy(&input).into_owned();
        if self.below(20) == 0 {
            self.keep(input);
        }
        text
    }

    fn keep(&mut self, input: Vec<u8>) {
        if self.corpus.len() < self.given + MAX_KEPT {
            self.corpus.push(input);
        } else {
            let at = self.given + self.below(MAX_KEPT);
            self.corpus[at] = input;
        }
    }

    fn pick_input(&mut self) -> Vec<u8> {
        let at = self.below(self.corpus.len());
        self.corpus[at].clone()
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = at + self.below(input.len() - at + 1).min(64);
        match self.below(7) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 => {
                let byte = u8::try_from(self.below(256)).unwrap_or_default();
                input.insert(at, byte);
            }
            2 => drop(input.drain(at..end)),
            3 => {
                let part = input[at..end].to_vec();
                let times = 1 + self.below(8);
                input.splice(at..at, part.repeat(times));
            }
            4 => {
                let other = self.pick_input();
                let from = self.below(other.len() + 1);
                input.splice(at.., other[from..].iter().copied());
            }
            _ => {
                let word = self.below(self.words.len());
                let word = self.words[word].clone();
                input.splice(at..end.min(at + 8), word);
            }
        }
    }

    fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n.max(1)).unwrap_or(1);
        usize::try_from(self.random.bits() % n).unwrap_or_default()
    }
}
