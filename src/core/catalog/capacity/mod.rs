//! The capacity of a VM, and how much of it pods can use.
//!
//! The formulas are those of Azure/karpenter-provider-azure (`pkg/providers/instancetype/instancetype.go`), in
//! integers. Upstream computes in floating point; its published examples come out the same here.

use crate::catalog::SizeFacts;
use crate::model::amounts::resources::Resources;

const MIB: i64 = 1 << 20;
/// Memory that Azure's hypervisor and the guest's firmware keep back: 7.5 %, the default of upstream's
/// `VM_MEMORY_OVERHEAD_PERCENT`.
const MEMORY_OVERHEAD_PER_MILLE: i64 = 75;
/// The kubelet evicts pods below this: `memory.available<750Mi`.
const EVICTION_MIB: i64 = 750;

/// All that a VM of this size has for a node. Whole GiB of memory only, less the overhead; the OS disk counts in
/// decimal GB.
#[must_use]
pub fn capacity(facts: &SizeFacts, os_disk_gb: u32, max_pods: u32) -> Resources {
    let memory = whole_gib_bytes(facts.memory_mib);
    let mut capacity = Resources {
        cpu_millis: i64::from(facts.vcpus) * 1000,
        memory: memory - (memory * MEMORY_OVERHEAD_PER_MILLE + 999) / 1000,
        ephemeral_storage: i64::from(os_disk_gb) * 1_000_000_000,
        pods: i64::from(max_pods),
        extended: Vec::new(),
    };
    if let Some(gpu) = &facts.gpu {
        let name = format!("{}.com/gpu", gpu.manufacturer);
        capacity.set_extended(&name, i64::from(gpu.count));
    }
    capacity
}

/// What the kubelet, the system and the eviction threshold reserve. Grows with the size:
/// memory by 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112, 2 % of the rest;
/// CPU by 6 % of the first core, 4 % of the second, 2 % of the next two, 1 % of the rest.
#[must_use]
pub fn overhead(facts: &SizeFacts) -> Resources {
    let memory_mib = i64::try_from(facts.memory_mib).unwrap_or(i64::MAX / MIB / 100);
    let percent_mib = taxed(memory_mib, &[(4096, 25), (4096, 20), (8192, 10), (114_688, 6)], 2);
    let percent_cores = taxed(i64::from(facts.vcpus), &[(1, 6), (1, 4), (2, 2)], 1);
    Resources::cpu_memory(percent_cores * 10, (percent_mib / 100 + EVICTION_MIB) * MIB)
}

fn whole_gib_bytes(mib: u64) -> i64 {
    i64::try_from(mib / 1024).unwrap_or(0).saturating_mul(1 << 30)
}

/// Sum of amount × percent over brackets of (width, percent), the rest at the last percentage.
fn taxed(amount: i64, brackets: &[(i64, i64)], beyond: i64) -> i64 {
    let mut left = amount;
    let mut tax = 0;
    for (width, percent) in brackets {
        let within = left.min(*width);
        tax += within * percent;
        left -= within;
    }
    tax + left * beyond
}

#[cfg(test)]
mod tests;
