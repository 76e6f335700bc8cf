//! Resources, ledger, events and operations agree after any sequence of calls.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const DSV5: &str = "standardDSv5Family";
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// One action: its verb, name, variant, and delay in seconds.
type Action = (u8, usize, u8, i64);

/// Any actions; the last two verbs are those of others, whom no limit holds back.
const ALL_VERBS: u8 = 16;
const WITHIN_LIMITS: u8 = 14;

fn actions(verbs: u8) -> impl Strategy<Value = Vec<Action>> {
    prop::collection::vec((0..verbs, 0..NAMES.len(), 0..6_u8, 0..60_i64), 1..80)
}

fn variant(n: u8) -> OfferingKey {
    let size = ["Standard_D2s_v5", "Standard_D4s_v5", "Standard_E4s_v5"][usize::from(n % 3)];
    let capacity_type = CapacityType::FOR_SALE[usize::from(n / 3)];
    offering(size, n % 2, capacity_type)
}

fn do_it(cloud: &mut Cloud, (verb, name, n, _): Action, now: Timestamp) {
    let name = NAMES[name];
    let (vm, nic, disk) = (cloud.vm_id(name), cloud.nic_id(name), cloud.disk_id(name));
    let data = cloud.disk_id(&format!("data-{name}"));
    match verb {
        0 | 1 => drop(put_nic(cloud, name, now)),
        2..=4 => drop(put_vm(cloud, name, &variant(n), now)),
        5 => drop(delete(cloud, &vm, now)),
        6 => drop(delete(cloud, &nic, now)),
        7 => drop(delete(cloud, &disk, now)),
        8 => drop(cloud.evict_spot(&vm, now)),
        9 => drop(cloud.delete_outside(&[vm, nic, disk, data][usize::from(n % 4)], now)),
        10 => cloud.faults.keep_children = n % 2 == 0,
        11 => cloud.faults.unallocatable = vec![Shortage::of_all(FaultDuration::Times(u32::from(n)))],
        12 if cloud.resources().contains_key(&data) => drop(cloud.attach_disk(&data, &vm, now)),
        12 => drop(add_data_disk(cloud, data.name(), now)),
        13 => cloud.detach_disk(&data, &vm, now),
        14 => drop(cloud.add_vm(name, tags(name), &variant(n), now)),
        _ => drop(cloud.leak_nic(name, tags(name), now)),
    }
}

fn apply_action(actions: &[Action], mut meanwhile: impl FnMut(&mut Cloud, Timestamp, Timestamp)) -> Cloud {
    let mut cloud = cloud(7);
    cloud.limits.regional = Some(8);
    cloud.limits.spot = Some(6);
    cloud.limits.families.insert(Arc::from(DSV5), 6);
    cloud.limits.subnet = Some(3);
    let mut now = at(0);
    for action in actions {
        let next = now + SignedDuration::from_secs(action.3);
        meanwhile(&mut cloud, now, next);
        now = next;
        cloud.advance(now);
        do_it(&mut cloud, *action, now);
    }
    meanwhile(&mut cloud, now, at(100_000));
    cloud.advance(at(100_000));
    cloud
}

/// Attachments agree from both ends, and children refer to existing VMs.
fn attachments_agree(cloud: &Cloud) -> Result<(), TestCaseError> {
    for resource in cloud.resources().values() {
        match &resource.detail {
            ResourceDetail::Vm(vm) => {
                for nic in &vm.nics {
                    let ResourceDetail::Nic(nic) = &cloud.resources()[nic].detail else {
                        return Err(TestCaseError::fail("a VM's NIC is none"));
                    };
                    prop_assert_eq!(nic.vm.as_ref(), Some(&resource.id));
                }
                for id in vm.os_disk.iter().chain(&vm.data_disks) {
                    prop_assert_eq!(&disk(cloud, id).managed_by, std::slice::from_ref(&resource.id));
                }
            }
            ResourceDetail::Nic(nic) => {
                if let Some(holder) = &nic.vm {
                    prop_assert!(vm(cloud, holder).nics.contains(&resource.id));
                }
            }
            ResourceDetail::Disk(disk) => {
                for holder in &disk.managed_by {
                    let vm = vm(cloud, holder);
                    prop_assert!(vm.os_disk.iter().chain(&vm.data_disks).any(|d| *d == resource.id));
                }
                prop_assert_eq!(disk.managed_by.is_empty(), disk.state == DiskState::Unattached);
            }
        }
    }
    Ok(())
}

/// Exactly the created and not deleted resources exist, each incarnation once.
fn ledger_balances(cloud: &Cloud) -> Result<(), TestCaseError> {
    let mut living: BTreeMap<Arc<str>, ArmId> = BTreeMap::new();
    for entry in cloud.ledger() {
        let incarnation = Arc::clone(&entry.resource.incarnation);
        match entry.change {
            Change::Created => prop_assert!(living.insert(incarnation, entry.resource.id.clone()).is_none()),
            Change::Tagged => prop_assert!(living.contains_key(&incarnation)),
            Change::Deleted => prop_assert!(living.remove(&incarnation).is_some()),
        }
    }
    let present = cloud.resources().values();
    let present: BTreeMap<_, _> = present.map(|r| (Arc::clone(&r.incarnation), r.id.clone())).collect();
    prop_assert_eq!(living, present);
    prop_assert!(cloud.ledger().is_sorted_by_key(|entry| entry.at));
    Ok(())
}

/// Quotas and the addresses of the subnet, recounted from existing resources, are not exceeded.
fn limits_hold(cloud: &Cloud) -> Result<(), TestCaseError> {
    let (mut nics, mut regular, mut spot, mut family) = (0, 0, 0, 0);
    for resource in cloud.resources().values() {
        match &resource.detail {
            ResourceDetail::Nic(_) => nics += 1,
            ResourceDetail::Disk(_) => {}
            ResourceDetail::Vm(vm) => {
                let facts = &cloud.settings().sizes[&vm.size];
                match vm.capacity_type {
                    CapacityType::Reserved => {}
                    CapacityType::Spot => spot += facts.vcpus,
                    CapacityType::OnDemand => regular += facts.vcpus,
                }
                if vm.capacity_type == CapacityType::OnDemand && &*facts.family == DSV5 {
                    family += facts.vcpus;
                }
            }
        }
    }
    prop_assert!(nics <= 3 && regular <= 8 && spot <= 6 && family <= 6);
    let usage = cloud.usage();
    prop_assert_eq!((usage.addresses, usage.regional, usage.spot), (nics, regular, spot));
    prop_assert_eq!(usage.families.get(DSV5).copied().unwrap_or(0), family);
    Ok(())
}

proptest! {
    // A file of past failures would lie in a folder that the workspace takes for a crate.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_books_always_balance(actions in actions(ALL_VERBS)) {
        let mut outcome = Ok(());
        apply_action(&actions, |cloud, _, _| {
            if outcome.is_ok() {
                outcome = attachments_agree(cloud).and_then(|()| ledger_balances(cloud));
            }
        });
        outcome?;
    }

    #[test]
    fn no_request_of_napkeeper_exceeds_a_limit(actions in actions(WITHIN_LIMITS)) {
        let mut outcome = Ok(());
        apply_action(&actions, |cloud, _, _| {
            if outcome.is_ok() {
                outcome = limits_hold(cloud);
            }
        });
        outcome?;
    }

    #[test]
    fn nothing_depends_on_how_often_time_advances(actions in actions(ALL_VERBS)) {
        let once = apply_action(&actions, |_, _, _| {});
        let often = apply_action(&actions, |cloud, mut now, next| {
            while now < next.min(cloud.next_event().unwrap_or(next)) {
                now += SignedDuration::from_millis(1_300);
                cloud.advance(now.min(next));
            }
        });
        prop_assert_eq!(once.ledger(), often.ledger());
    }

    #[test]
    fn every_operation_ends_and_then_nothing_is_due(actions in actions(ALL_VERBS)) {
        let cloud = apply_action(&actions, |_, _, _| {});
        prop_assert_eq!(cloud.next_event(), None);
        let unsettled = |r: &&Arc<CloudResource>| matches!(
            &r.detail,
            ResourceDetail::Vm(vm) if matches!(vm.state, ProvisioningState::Creating | ProvisioningState::Deleting)
        );
        prop_assert_eq!(cloud.resources().values().find(unsettled), None);
    }
}

#[test]
fn another_seed_is_another_world_and_the_same_seed_the_same() {
    let run = |seed| {
        let mut cloud = super::super::fixtures::cloud(seed);
        launch(&mut cloud, "a", &d4s());
        cloud.take_events()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
