//! VM series that Microsoft has retired or announced to retire.
//!
//! Only what Microsoft has announced, each row with its source. A retired size may still be in the embedded catalogue,
//! whose data is older than this table.

use crate::catalog::SizeName;
use jiff::civil::{Date, date};

/// The day on which the table was last compared with Microsoft's announcements.
pub const RETIREMENTS_AS_OF: Date = date(2026, 11, 21);

/// The end of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retirement {
    /// Microsoft's name of the series.
    pub series: &'static str,
    /// The day from which its VMs no longer run.
    pub on: Date,
    /// The series that Microsoft recommends instead, if any.
    pub instead: Option<&'static str>,
    /// Microsoft's announcement.
    pub source: &'static str,
}

impl Retirement {
    /// True when the series had been retired on [`RETIREMENTS_AS_OF`].
    #[must_use]
    pub fn is_past(&self) -> bool {
        self.on <= RETIREMENTS_AS_OF
    }
}

/// A row: the series as in labels, and their retirement.
struct RetirementRow(&'static [&'static str], Retirement);

const fn row(
    labels: &'static [&'static str],
    series: &'static str,
    on: Date,
    instead: Option<&'static str>,
    source: &'static str,
) -> RetirementRow {
    RetirementRow(labels, Retirement { series, on, instead, source })
}

const NCV3: &str = "https://learn.microsoft.com/azure/virtual-machines/ncv3-nc6s-nc12s-nc24s-retirement";
const NC24RS_V3: &str = "https://learn.microsoft.com/azure/virtual-machines/sizes/retirement/retired-sizes-list";
const NV: &str = "https://learn.microsoft.com/azure/virtual-machines/sizes/retirement/nv-series-retirement";
const N_SERIES: &str = "https://learn.microsoft.com/azure/virtual-machines/migration/sizes/n-series-migration";
const NVV3: &str = "https://azure.microsoft.com/updates?id=516070";
const MAY_2028: &str = "https://azure.microsoft.com/updates?id=485569";
const NOVEMBER_2028: &str = "https://azure.microsoft.com/updates?id=500682";
const M192: &str = "https://learn.microsoft.com/azure/virtual-machines/sizes/retirement/msv2-mdsv2-retirement";
const HC: &str = "https://learn.microsoft.com/azure/virtual-machines/sizes/retirement/hc-series-retirement";
const HBV2: &str = "https://learn.microsoft.com/azure/virtual-machines/sizes/retirement/hbv2-series-retirement";
const DCSV2: &str = "https://learn.microsoft.com/azure/virtual-machines/sizes/retirement/dcsv2-series-retirement";
const DCSV3: &str = "https://learn.microsoft.com/azure/virtual-machines/sizes/retirement/dcsv3-series-retirement";

const A100: Option<&str> = Some("NCads_A100_v4");
const T4: Option<&str> = Some("NCas_T4_v3");
const A10: Option<&str> = Some("NVads_A10_v5");
const HB: Option<&str> = Some("HBv3, HBv4, HBv5 or HX");

const RETIREMENTS: [RetirementRow; 23] = [
    row(&["NC", "NCr"], "NC", date(2023, 8, 31), T4, N_SERIES),
    row(&["NCs_v2", "NCrs_v2"], "NCv2", date(2023, 8, 31), A100, N_SERIES),
    row(&["NDs", "NDrs"], "ND", date(2023, 8, 31), T4, N_SERIES),
    row(&["NV"], "NV", date(2023, 9, 6), A10, NV),
    row(&["NCs_v3"], "NCv3", date(2025, 9, 30), A100, NCV3),
    row(&["NCrs_v3"], "NCv3", date(2025, 9, 30), A100, NC24RS_V3),
    row(&["DCs_v2"], "DCsv2", date(2026, 6, 30), None, DCSV2),
    row(&["NVs_v3"], "NVv3", date(2026, 9, 30), A10, NVV3),
    row(&["NVas_v4"], "NVv4", date(2026, 9, 30), A10, NVV3),
    row(&["Mis_v2", "Mids_v2", "Mims_v2", "Midms_v2"], "M192i v2", date(2027, 3, 31), None, M192),
    row(&["HCrs"], "HC", date(2027, 5, 31), HB, HC),
    row(&["HBrs_v2"], "HBv2", date(2027, 5, 31), HB, HBV2),
    row(&["NPs"], "NP", date(2027, 5, 31), T4, N_SERIES),
    row(&["D", "DS"], "D and DS", date(2028, 5, 1), None, MAY_2028),
    row(&["D_v2", "DS_v2"], "Dv2 and DSv2", date(2028, 5, 1), None, MAY_2028),
    row(&["Ls"], "Ls", date(2028, 5, 1), None, MAY_2028),
    row(&["A_v2", "Am_v2"], "Av2 and Amv2", date(2028, 11, 15), None, NOVEMBER_2028),
    row(&["Bs", "Bms", "Bls"], "B (version 1)", date(2028, 11, 15), None, NOVEMBER_2028),
    row(&["F", "Fs"], "F and Fs", date(2028, 11, 15), None, NOVEMBER_2028),
    row(&["Fs_v2"], "Fsv2", date(2028, 11, 15), None, NOVEMBER_2028),
    row(&["G", "GS"], "G and GS", date(2028, 11, 15), None, NOVEMBER_2028),
    row(&["Ls_v2"], "Lsv2", date(2028, 11, 15), None, NOVEMBER_2028),
    row(&["DCs_v3", "DCds_v3"], "DCsv3 and DCdsv3", date(2029, 10, 31), None, DCSV3),
];

/// The end of the series of a size (`Standard_NC6s_v3`), or of a series as the label `sku-series` has it (`NCs_v3`);
/// `None` when none has been announced.
#[must_use]
pub fn retirement(name: &str) -> Option<&'static Retirement> {
    let of_size = SizeName::parse(name).ok().map(|size| size.series());
    let series = of_size.as_deref().unwrap_or(name);
    let RetirementRow(_, retirement) = RETIREMENTS.iter().find(|RetirementRow(labels, _)| labels.contains(&series))?;
    Some(retirement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use std::collections::BTreeSet;

    #[test]
    fn sizes_and_series_are_found_and_their_successors_are_not() {
        for (name, on) in [
            ("Standard_NC6s_v3", Some(date(2025, 9, 30))),
            ("Standard_NC24rs_v3", Some(date(2025, 9, 30))),
            ("NCs_v3", Some(date(2025, 9, 30))),
            ("Standard_NC4as_T4_v3", None),
            ("Standard_NV12s_v3", Some(date(2026, 9, 30))),
            ("Standard_NV6ads_A10_v5", None),
            ("Standard_DS13-4_v2", Some(date(2028, 5, 1))),
            ("Standard_D4s_v3", None),
            ("Standard_B2ms", Some(date(2028, 11, 15))),
            ("Standard_B2s_v2", None),
            ("Standard_F4s_v2", Some(date(2028, 11, 15))),
            ("Standard_F4as_v6", None),
            ("nonsense", None),
        ] {
            assert_eq!(retirement(name).map(|r| r.on), on, "{name}");
        }
    }

    #[test]
    fn rows_are_by_date_with_a_source_and_a_series_stands_in_one() {
        let mut seen = BTreeSet::new();
        for RetirementRow(labels, retirement) in &RETIREMENTS {
            assert!(retirement.source.starts_with("https://"), "{}", retirement.series);
            assert!(labels.iter().all(|label| seen.insert(*label)), "{}", retirement.series);
        }
        assert!(RETIREMENTS.is_sorted_by_key(|RetirementRow(_, r)| r.on));
    }

    #[test]
    fn series_that_are_not_retired_yet_are_in_the_catalogue() {
        // A series that no size has is a mistake in the table, unless all its sizes are retired.
        let catalog = Catalog::embedded().unwrap();
        let series: BTreeSet<String> =
            catalog.sizes().iter().map(|s| SizeName::parse(s.name.as_str()).unwrap().series()).collect();
        for RetirementRow(labels, retirement) in RETIREMENTS.iter().filter(|RetirementRow(_, r)| !r.is_past()) {
            assert!(labels.iter().any(|label| series.contains(*label)), "{}: {labels:?}", retirement.series);
        }
    }
}
