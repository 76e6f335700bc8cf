//! The customer's price sheet: contract prices that differ from the retail price.
//!
//! How its lines are cut into fields is the reader's matter. A header comes first; `*` or an empty field stands for
//! any:
//!
//! ```text
//! region,size,capacityType,usdPerHour,discountPercent
//! westeurope,Standard_D4s_v5,on-demand,0.1728,
//! *,*,on-demand,,12.5
//! ```
//!
//! Of several matching lines the most specific one applies: a size before a region before a capacity type. A price
//! replaces the list price; a discount is subtracted from it, in per cent with at most two decimal places.

use crate::catalog::{CapacityType, RegionCatalog};
use crate::model::amounts::money::HourlyPrice;
use crate::model::names::{Region, VmSize};
use std::collections::BTreeMap;
use std::fmt;

/// Columns, in the order of the documentation; the file may have them in any.
const COLUMNS: [&str; 5] = ["region", "size", "capacityType", "usdPerHour", "discountPercent"];
/// The required columns; one of the others is required too.
const NEEDED: [&str; 3] = ["region", "size", "capacityType"];
/// A whole price, in hundredths of a per cent.
const FULL_PRICE: i64 = 10_000;

/// What a line matches; `None` is any. Ordered by precedence.
type SheetKey = (Option<VmSize>, Option<Region>, Option<CapacityType>);

/// Prices that replace list prices. By default there are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PriceSheet {
    entries: BTreeMap<SheetKey, PriceTerm>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PriceTerm {
    Price(HourlyPrice),
    /// The remaining part of the list price, in hundredths of a per cent.
    Fraction(i64),
}

/// A line of a price sheet, cut into its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SheetLine {
    /// Its number in the file, from 1.
    pub number: usize,
    /// Its fields, without quotation marks and the space around them.
    pub fields: Vec<String>,
}

/// What is wrong with a price sheet, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SheetProblem {
    /// Line, from 1.
    pub line: usize,
    /// Name of the column; `None` for the whole line.
    pub column: Option<&'static str>,
    /// The problem, and how to correct it.
    pub message: String,
}

impl fmt::Display for SheetProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            Some(column) => write!(f, "{}: {column}: {}", self.line, self.message),
            None => write!(f, "{}: {}", self.line, self.message),
        }
    }
}

impl PriceSheet {
    /// Parses a sheet, of which the first line is the header.
    ///
    /// # Errors
    /// All problems, by line; then the sheet must not be used.
    pub fn of(lines: impl IntoIterator<Item = SheetLine>) -> Result<Self, Vec<SheetProblem>> {
        let mut lines = lines.into_iter();
        let Some(header) = lines.next() else {
            return Err(vec![problem(1, format!("the sheet is empty: expected the header {}", COLUMNS.join(",")))]);
        };
        let columns = read_header(&header)?;
        let (mut sheet, mut problems) = (Self::default(), Vec::new());
        for line in lines {
            match read_line(&line, &columns) {
                Err(found) => problems.extend(found),
                Ok((key, term)) => {
                    if sheet.entries.insert(key, term).is_some() {
                        let message = "duplicate of an earlier line (same region, size and capacity type): remove one";
                        problems.push(problem(line.number, message.to_owned()));
                    }
                }
            }
        }
        if problems.is_empty() { Ok(sheet) } else { Err(problems) }
    }

    /// True when it changes no price.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The price of a size whose list price is `list`.
    #[must_use]
    pub fn price(
        &self,
        region: &Region,
        size: &VmSize,
        capacity_type: CapacityType,
        list: Option<HourlyPrice>,
    ) -> Option<HourlyPrice> {
        match self.term(region, size, capacity_type) {
            None => list,
            Some(PriceTerm::Price(price)) => Some(price),
            Some(PriceTerm::Fraction(part)) => list.map(|list| {
                let nanos = i128::from(list.nanos()) * i128::from(part) / i128::from(FULL_PRICE);
                HourlyPrice::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX))
            }),
        }
    }

    /// The catalogue at these prices.
    #[must_use]
    pub fn applied(&self, mut catalog: RegionCatalog) -> RegionCatalog {
        if self.is_empty() {
            return catalog;
        }
        let region = catalog.region.clone();
        for size in &mut catalog.sizes {
            let price = |of, list| self.price(&region, &size.facts.name, of, list);
            (size.on_demand, size.spot) =
                (price(CapacityType::OnDemand, size.on_demand), price(CapacityType::Spot, size.spot));
        }
        catalog
    }

    /// The term of the line that names most.
    fn term(&self, region: &Region, size: &VmSize, capacity_type: CapacityType) -> Option<PriceTerm> {
        let either = |named: bool| move |_: &()| named;
        for named in (0..8_u8).rev() {
            let bit = |n: u8| Some(()).filter(either(named & n != 0));
            let key = (bit(4).map(|()| size.clone()), bit(2).map(|()| region.clone()), bit(1).map(|()| capacity_type));
            if let Some(term) = self.entries.get(&key) {
                return Some(*term);
            }
        }
        None
    }
}

fn problem(line: usize, message: String) -> SheetProblem {
    SheetProblem { line, column: None, message }
}

/// The index of each of [`COLUMNS`] in a line.
fn read_header(header: &SheetLine) -> Result<[Option<usize>; 5], Vec<SheetProblem>> {
    let line = header.number;
    let mut columns = [None; 5];
    let mut problems = Vec::new();
    for (index, field) in header.fields.iter().enumerate() {
        match COLUMNS.iter().position(|name| *name == field) {
            Some(column) if columns[column].is_none() => columns[column] = Some(index),
            Some(_) => problems.push(problem(line, format!("duplicate column {field:?}"))),
            None => {
                let message = format!("unknown column {field:?}, expected one of {}", COLUMNS.join(", "));
                problems.push(problem(line, message));
            }
        }
    }
    let missing: Vec<&str> = NEEDED.iter().zip(&columns).filter(|(_, p)| p.is_none()).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        problems.push(problem(line, format!("missing columns in the header: {}", missing.join(", "))));
    }
    if columns[3].is_none() && columns[4].is_none() {
        problems.push(problem(line, "the header needs usdPerHour or discountPercent".to_owned()));
    }
    if problems.is_empty() { Ok(columns) } else { Err(problems) }
}

fn read_line(line: &SheetLine, columns: &[Option<usize>; 5]) -> Result<(SheetKey, PriceTerm), Vec<SheetProblem>> {
    let SheetLine { number, fields } = line;
    let most = columns.iter().flatten().max().map_or(0, |last| last + 1);
    if fields.len() > most {
        return Err(vec![problem(*number, format!("the line has more fields than the header ({most})"))]);
    }
    let mut problems = Vec::new();
    let field = |column: usize| columns[column].and_then(|index| fields.get(index));
    let named = |column: usize| field(column).filter(|f| !f.is_empty() && *f != "*");
    let mut note = |column: usize, message: String| {
        problems.push(SheetProblem { line: *number, column: Some(COLUMNS[column]), message });
    };
    let region = named(0).and_then(|f| Region::new(f).map_err(|e| note(0, e.to_string())).ok());
    let size = named(1).and_then(|f| VmSize::new(f).map_err(|e| note(1, e.to_string())).ok());
    // Reserved capacity has no price of its own: it is derived from the full price.
    let capacity_type = named(2).and_then(|f| {
        let found = CapacityType::FOR_SALE.into_iter().find(|c| c.as_str() == f);
        if found.is_none() {
            note(2, format!("capacity type {f:?}: must be on-demand or spot"));
        }
        found
    });
    let filled = |column: usize| field(column).filter(|f| !f.is_empty());
    let term = match (filled(3), filled(4)) {
        (Some(price), None) => match HourlyPrice::parse_usd(price) {
            Ok(price) if price > HourlyPrice::ZERO => Some(PriceTerm::Price(price)),
            Ok(_) => {
                note(3, "the price is 0: leave the field empty if the price is not known".to_owned());
                None
            }
            Err(error) => {
                note(3, error.to_string());
                None
            }
        },
        (None, Some(discount)) => {
            let part = discount_of(discount).map(|off| PriceTerm::Fraction(FULL_PRICE - off));
            if part.is_none() {
                note(4, format!("{discount:?}: must be at least 0 and below 100, with at most 2 decimal places"));
            }
            part
        }
        (Some(_), Some(_)) => {
            note(4, "the line has both a price and a discount: leave one empty".to_owned());
            None
        }
        (None, None) => {
            note(3, "the line has neither a price nor a discount".to_owned());
            None
        }
    };
    match term.filter(|_| problems.is_empty()) {
        Some(term) => Ok(((size, region, capacity_type), term)),
        None => Err(problems),
    }
}

/// A discount in hundredths of a per cent.
fn discount_of(text: &str) -> Option<i64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || whole.len() > 2 || decimals.len() > 2 || !digits(whole) || !digits(decimals) {
        return None;
    }
    Some(whole.parse::<i64>().ok()? * 100 + format!("{decimals:0<2}").parse::<i64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    fn parse(text: &str) -> Result<PriceSheet, Vec<String>> {
        let fields = |line: &str| line.split(',').map(str::to_owned).collect();
        let lines = text.lines().enumerate().map(|(i, line)| SheetLine { number: i + 1, fields: fields(line) });
        PriceSheet::of(lines).map_err(|all| all.iter().map(ToString::to_string).collect())
    }

    fn sheet(lines: &str) -> Result<PriceSheet, Vec<String>> {
        parse(&format!("region,size,capacityType,usdPerHour,discountPercent\n{lines}"))
    }

    fn usd(text: &str) -> HourlyPrice {
        HourlyPrice::parse_usd(text).unwrap()
    }

    #[test]
    fn the_line_that_names_most_counts() {
        let sheet = sheet(
            "*,*,*,,10\nwesteurope,*,on-demand,,20.5\nwesteurope,Standard_D4s_v5,,0.15,\n\
             *,Standard_D4s_v5,spot,0.03,\n",
        )
        .unwrap();
        let price = |region: &str, size: &str, of| {
            let (region, size) = (Region::new(region).unwrap(), VmSize::new(size).unwrap());
            sheet.price(&region, &size, of, Some(usd("0.2")))
        };
        use CapacityType::{OnDemand, Spot};
        for (region, size, of, expected) in [
            ("northeurope", "Standard_D8s_v5", OnDemand, "0.18"),
            ("westeurope", "Standard_D8s_v5", OnDemand, "0.159"),
            ("westeurope", "Standard_D8s_v5", Spot, "0.18"),
            ("westeurope", "Standard_D4s_v5", OnDemand, "0.15"),
            ("westeurope", "Standard_D4s_v5", Spot, "0.15"),
            ("northeurope", "Standard_D4s_v5", Spot, "0.03"),
        ] {
            assert_eq!(price(region, size, of), Some(usd(expected)), "{region} {size} {of}");
        }
    }

    #[test]
    fn a_discount_of_an_unknown_price_is_unknown_and_a_price_is_known() {
        let catalog = Catalog::embedded().unwrap().region(&Region::new("westeurope").unwrap()).unwrap();
        let unpriced = catalog.sizes.iter().find(|s| s.on_demand.is_none()).unwrap().facts.name.clone();
        let half = sheet("*,*,*,,50\n").unwrap().applied(catalog.clone());
        assert_eq!(half.size(&unpriced).unwrap().on_demand, None);
        let named = sheet(&format!("*,{unpriced},on-demand,1.5,\n")).unwrap().applied(catalog.clone());
        assert_eq!(named.size(&unpriced).unwrap().on_demand, Some(usd("1.5")));
        assert_eq!(PriceSheet::default().applied(catalog.clone()), catalog);
    }

    #[test]
    fn all_that_is_wrong_has_its_line_and_column() {
        let errors = sheet(
            "West Europe,a,on-demand,0.1,\n*,*,reserved,0.1,\n*,*,spot,-1,\n*,*,spot,0,\n*,*,spot,,100\n*,*,spot,1,1\n\
             *,*,spot,,\n*,*,spot,1,,x\n*,b,spot,1,\n*,b,spot,2,\n",
        )
        .unwrap_err();
        let expected = [
            "2: region: region \"West Europe\": must be lower-case letters and digits",
            "3: capacityType: capacity type \"reserved\": must be on-demand or spot",
            "4: usdPerHour: amount \"-1\"",
            "5: usdPerHour: the price is 0",
            "6: discountPercent: \"100\": must be at least 0 and below 100",
            "7: discountPercent: the line has both a price and a discount",
            "8: usdPerHour: the line has neither",
            "9: the line has more fields than the header (5)",
            "11: duplicate of an earlier line",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, expected) in errors.iter().zip(expected) {
            assert!(error.starts_with(expected), "{error} is not {expected}");
        }
    }

    #[test]
    fn a_header_says_which_columns_there_are() {
        let errors = |text: &str| parse(text).unwrap_err().join("; ");
        assert!(errors("").contains("the sheet is empty"));
        assert!(errors("size,price\n").contains("1: unknown column \"price\", expected one of region, size"));
        assert!(errors("size,size\n").contains("1: duplicate column \"size\""));
        assert!(errors("region,size,capacityType\n").contains("needs usdPerHour or discountPercent"));
        let turned = parse("usdPerHour,capacityType,size,region\n0.5,spot,a,*\n");
        let price =
            turned.unwrap().price(&Region::new("x").unwrap(), &VmSize::new("a").unwrap(), CapacityType::Spot, None);
        assert_eq!(price, Some(usd("0.5")));
    }
}
