//! The formulas against upstream's, over the sizes of its recorded Resource SKUs answers.

use super::*;
use crate::catalog::instance_types::tests::class;
use crate::catalog::{Arch, Gpu, OfferedSize, SizeName, exclusion_reason};
use crate::model::amounts::money::HourlyPrice;
use crate::model::names::VmSize;
use std::sync::Arc;

/// Computed from the recorded answers by upstream's formulas in floating point. Columns: region, size, vCPUs, memory
/// in MiB, family, series, version, memory capacity in bytes, reserved CPU in millicores, reserved memory in MiB,
/// allocatable CPU in millicores, allocatable memory in bytes, verdict.
const GOLDEN: &str = "\
southcentralus | Standard_A0              | 1   | 768    | A | A        | 1 | 0            | 60   | 192   | 940    | -987758592   | AKS-restricted, <2 vCPU, <3.5 GiB
southcentralus | Standard_B1s             | 1   | 1024   | B | Bs       | 1 | 993211187    | 60   | 256   | 940    | -61656269    | AKS-restricted, <2 vCPU, <3.5 GiB
southcentralus | Standard_B20ms           | 20  | 81920  | B | Bms      | 1 | 79456894976  | 300  | 6594  | 19700  | 71756152832  | included
southcentralus | Standard_D128ds_v6       | 128 | 524288 | D | Dds_v6   | 6 | 508524127846 | 1380 | 17408 | 126620 | 489484084838 | included
southcentralus | Standard_D16plds_v5      | 16  | 32768  | D | Dplds_v5 | 5 | 31782757990  | 260  | 3645  | 15740  | 27174266470  | included
southcentralus | Standard_D2as_v6         | 2   | 8192   | D | Das_v6   | 6 | 7945689497   | 100  | 1843  | 1900   | 5226731929   | included
southcentralus | Standard_D2s_v3          | 2   | 8192   | D | Ds_v3    | 3 | 7945689497   | 100  | 1843  | 1900   | 5226731929   | included
southcentralus | Standard_D2_v2           | 2   | 7168   | D | D_v2     | 2 | 6952478310   | 100  | 1638  | 1900   | 4448478822   | included
southcentralus | Standard_D2_v3           | 2   | 8192   | D | D_v3     | 3 | 7945689497   | 100  | 1843  | 1900   | 5226731929   | included
southcentralus | Standard_D2_v5           | 2   | 8192   | D | D_v5     | 5 | 7945689497   | 100  | 1843  | 1900   | 5226731929   | included
southcentralus | Standard_D4s_v3          | 4   | 16384  | D | Ds_v3    | 3 | 15891378995  | 140  | 2662  | 3860   | 12313637683  | included
southcentralus | Standard_D64s_v3         | 64  | 262144 | D | Ds_v3    | 3 | 254262063923 | 740  | 12165 | 63260  | 240719704883 | included
southcentralus | Standard_DC8s_v3         | 8   | 65536  | D | DCs_v3   | 3 | 63565515980  | 180  | 5611  | 7820   | 56895524044  | confidential
southcentralus | Standard_DS2_v2          | 2   | 7168   | D | DS_v2    | 2 | 6952478310   | 100  | 1638  | 1900   | 4448478822   | included
southcentralus | Standard_E4d_v5          | 4   | 32768  | E | Ed_v5    | 5 | 31782757990  | 140  | 3645  | 3860   | 27174266470  | included
southcentralus | Standard_F16s_v2         | 16  | 32768  | F | Fs_v2    | 2 | 31782757990  | 260  | 3645  | 15740  | 27174266470  | included
southcentralus | Standard_M8-2ms          | 8   | 224000 | M | Mms      | 1 | 216520038809 | 180  | 11402 | 7820   | 203777743257 | constrained
southcentralus | Standard_NC16as_T4_v3    | 16  | 112640 | N | NCas_v3  | 3 | 109253230592 | 260  | 8437  | 15740  | 99619962880  | included
southcentralus | Standard_NC24ads_A100_v4 | 24  | 225280 | N | NCads_v4 | 4 | 218506461184 | 340  | 11427 | 23660  | 205737951232 | included
southcentralus | Standard_NC6s_v3         | 6   | 114688 | N | NCs_v3   | 3 | 111239652966 | 160  | 8560  | 5840   | 101477410406 | included
westcentralus  | Standard_A0              | 1   | 768    | A | A        | 1 | 0            | 60   | 192   | 940    | -987758592   | AKS-restricted, location-restricted, <2 vCPU, <3.5 GiB
westcentralus  | Standard_B1s             | 1   | 1024   | B | Bs       | 1 | 993211187    | 60   | 256   | 940    | -61656269    | AKS-restricted, <2 vCPU, <3.5 GiB
westcentralus  | Standard_D16plds_v5      | 16  | 32768  | D | Dplds_v5 | 5 | 31782757990  | 260  | 3645  | 15740  | 27174266470  | included
westcentralus  | Standard_D2as_v6         | 2   | 8192   | D | Das_v6   | 6 | 7945689497   | 100  | 1843  | 1900   | 5226731929   | included
westcentralus  | Standard_D2s_v3          | 2   | 8192   | D | Ds_v3    | 3 | 7945689497   | 100  | 1843  | 1900   | 5226731929   | included
westcentralus  | Standard_D2_v2           | 2   | 7168   | D | D_v2     | 2 | 6952478310   | 100  | 1638  | 1900   | 4448478822   | included
westcentralus  | Standard_D2_v3           | 2   | 8192   | D | D_v3     | 3 | 7945689497   | 100  | 1843  | 1900   | 5226731929   | included
westcentralus  | Standard_D2_v5           | 2   | 8192   | D | D_v5     | 5 | 7945689497   | 100  | 1843  | 1900   | 5226731929   | included
westcentralus  | Standard_D4s_v3          | 4   | 16384  | D | Ds_v3    | 3 | 15891378995  | 140  | 2662  | 3860   | 12313637683  | included
westcentralus  | Standard_D64s_v3         | 64  | 262144 | D | Ds_v3    | 3 | 254262063923 | 740  | 12165 | 63260  | 240719704883 | included
westcentralus  | Standard_DS2_v2          | 2   | 7168   | D | DS_v2    | 2 | 6952478310   | 100  | 1638  | 1900   | 4448478822   | included
westcentralus  | Standard_F16s_v2         | 16  | 32768  | F | Fs_v2    | 2 | 31782757990  | 260  | 3645  | 15740  | 27174266470  | included
";

/// Facts as the row and the recorded answer have them, as far as capacity and filters look at them.
fn facts(name: &str, vcpus: &str, memory_mib: &str) -> SizeFacts {
    let nvidia = |model: &str| Gpu { manufacturer: "nvidia".into(), model: model.into(), count: 1, azure_linux: true };
    SizeFacts {
        name: VmSize::new(name).unwrap(),
        family: "any".into(),
        vcpus: vcpus.parse().unwrap(),
        memory_mib: memory_mib.parse().unwrap(),
        arch: Arch::Amd64,
        hyperv_v1: true,
        hyperv_v2: true,
        max_data_disks: 4,
        max_nics: 2,
        accelerated_networking: true,
        premium_io: true,
        ephemeral: None,
        encryption_at_host: true,
        spot_eligible: true,
        gpu: name.starts_with("Standard_NC").then(|| nvidia("any")),
    }
}

#[test]
fn the_golden_table_holds() {
    let number = |text: &str| text.parse::<i64>().unwrap();
    for row in GOLDEN.lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [
            _,
            name,
            vcpus,
            mib,
            family,
            series,
            version,
            memory,
            reserved_cpu,
            reserved_mib,
            alloc_cpu,
            alloc_memory,
            verdict,
        ] = cells.as_slice()
        else {
            panic!("{row}");
        };
        let facts = facts(name, vcpus, mib);
        let capacity = capacity(&facts, 128, 250);
        let overhead = overhead(&facts);
        let allocatable = capacity.minus(&overhead);
        assert_eq!(capacity.cpu_millis, number(vcpus) * 1000, "{row}");
        assert_eq!(capacity.memory, number(memory), "{row}");
        assert_eq!(overhead.cpu_millis, number(reserved_cpu), "{row}");
        assert_eq!(overhead.memory, (number(reserved_mib) + 750) * MIB, "{row}");
        assert_eq!(allocatable.cpu_millis, number(alloc_cpu), "{row}");
        assert_eq!(allocatable.memory, number(alloc_memory), "{row}");

        let parsed = SizeName::parse(name).unwrap();
        let found = (parsed.family(), parsed.series(), parsed.version());
        assert_eq!(found, (*family, (*series).to_owned(), *version), "{row}");
        let size = OfferedSize {
            facts: Arc::new(facts),
            zones: Vec::new(),
            restricted: verdict.contains("location-restricted"),
            on_demand: Some(HourlyPrice::from_nanos(1)),
            spot: None,
        };
        assert_eq!(exclusion_reason(&size, &class()).is_none(), *verdict == "included", "{row}");
    }
}

#[test]
fn disks_pods_and_gpus_are_part_of_the_capacity() {
    let mut facts = facts("Standard_ND96is_MI300X_v5", "96", "1894400");
    facts.gpu = Some(Gpu { manufacturer: "amd".into(), model: "MI300X".into(), count: 8, azure_linux: false });
    let capacity = capacity(&facts, 2048, 110);
    assert_eq!((capacity.ephemeral_storage, capacity.pods), (2_048_000_000_000, 110));
    assert_eq!(capacity.extended("amd.com/gpu"), 8);
    assert_eq!(capacity.extended("nvidia.com/gpu"), 0);
}
