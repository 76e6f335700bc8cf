//! CEL rules of a cron schedule: what `napkeeper_core::model::cron` cannot read, a CRD refuses.
//!
//! One rule for each field, so that a message says which one is wrong. Each is a regular expression over the whole text,
//! ranges included: the API server estimates the cost of a rule before it evaluates it, and parts of a split string have
//! no known length. A property test compares the rules with the parser.

use serde_json::{Value, json};

/// An alias, or five fields. [`schedule_rules`] says which.
pub(crate) const SCHEDULE_SHAPE: &str = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|(\S+\s+){4}\S+)$";

/// A step: 1 to 255.
const STEP: &str = "0*([1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])";

/// A field of a schedule: its values, and the names of values that have one, from `min` on.
struct CronField {
    name: &'static str,
    min: u8,
    max: u8,
    words: &'static [&'static str],
    example: &'static str,
}

const FIELDS: [CronField; 5] = [
    CronField { name: "minute", min: 0, max: 59, words: &[], example: "30, 0-29 or */5" },
    CronField { name: "hour", min: 0, max: 23, words: &[], example: "3, 1-5 or */2" },
    CronField { name: "day of month", min: 1, max: 31, words: &[], example: "1, 1-7 or */2" },
    CronField {
        name: "month",
        min: 1,
        max: 12,
        words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
        example: "1, 1-3 or jan-mar",
    },
    CronField {
        name: "weekday",
        min: 0,
        max: 6,
        words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
        example: "0 for Sunday, 1-5 or mon-fri",
    },
];

/// `x-kubernetes-validations` of a schedule with the pattern [`SCHEDULE_SHAPE`].
pub(crate) fn schedule_rules() -> Value {
    FIELDS.iter().enumerate().map(|(index, field)| field.rule(index)).collect()
}

impl CronField {
    /// The rule of the field with this index. An alias has no fields, and the pattern refuses other numbers of them.
    fn rule(&self, index: usize) -> Value {
        let Self { name, min, max, example, .. } = self;
        let item = format!("([*?]|{})(/{STEP})?", self.values());
        // After an item comes another one, or the rest of the schedule.
        let (end, complete) = if index + 1 == FIELDS.len() { ("", " && !self.endsWith(',')") } else { (r"\s.*", "") };
        let fields = format!(r"(?s)^(\S+\s+){{{index}}}({item}(,|{end}$))+$");
        json!({
            "rule": format!(r"!self.matches(r'^\S+(\s+\S+){{4}}$') || self.lowerAscii().matches(r'{fields}'){complete}"),
            "message": format!("{name} must be values, ranges or steps from {min} to {max}: {example}"),
        })
    }

    /// A value, or a range that does not go backwards.
    fn values(&self) -> String {
        let value = |low: u8| format!("{}(-{})?", self.spellings(low), self.at_least(low));
        alternatives((self.min..=self.max).map(value))
    }

    /// How a value may be written.
    fn spellings(&self, value: u8) -> String {
        let number = format!("0*{value}");
        match self.words.get(usize::from(value - self.min)) {
            Some(word) => alternatives([number, (*word).to_owned()]),
            None => number,
        }
    }

    /// All values from this one on.
    fn at_least(&self, low: u8) -> String {
        let tens = (low / 10..=self.max / 10).map(|tens| {
            let from = if tens == low / 10 { low % 10 } else { 0 };
            let to = if tens == self.max / 10 { self.max % 10 } else { 9 };
            let digit = if tens == 0 { String::new() } else { tens.to_string() };
            format!("{digit}[{from}-{to}]")
        });
        let numbers = format!("0*{}", alternatives(tens));
        let words = self.words.iter().skip(usize::from(low - self.min)).map(|word| (*word).to_owned());
        alternatives(std::iter::once(numbers).chain(words))
    }
}

fn alternatives(all: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = all.into_iter().collect();
    match &all[..] {
        [one] => one.clone(),
        _ => format!("({})", all.join("|")),
    }
}
