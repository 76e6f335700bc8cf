//! Tests that known mistakes of other garbage collectors are not repeated.
//!
//! Karpenter's collectors on Azure have known weaknesses, W1 to W18. One test for each that concerns ownership, links,
//! listing or deleting; each describes the weakness. W5, W14 and W16 concern launching and are tested there. W18 (one
//! subscription, one node resource group) is a limit of ours too, and documented.

use super::fixtures::*;
use crate::model::azure::cloud::{CloudResource, ResourceKind, Tags};
use crate::model::azure::inventory::{Inventory, ListFailure};
use crate::model::azure::naming::VM_TYPE;
use crate::model::azure::related::RelatedDetail;
use crate::model::cluster::volume::ReclaimPolicy;
use crate::model::errors::CloudErrorCode;
use crate::model::labels;
use crate::model::names::{ClaimName, ProviderId};
use crate::model::orphans::finding::{Classification, DeletionRefusal};
use crate::model::orphans::report::IpUsage;
use crate::model::orphans::sweep::SweepMode;
use crate::orphans::*;
use crate::plan::Command;
use jiff::SignedDuration;
use std::sync::Arc;

const TWO_HOURS: SignedDuration = SignedDuration::from_hours(2);

/// W1: nothing ties a resource to this cluster but the group that it lies in. A second installation pointed at the
/// group, or an API server whose NodeClaims are gone, then loses all of its nodes.
#[test]
fn w01_the_group_alone_makes_nothing_ours() {
    let mut world = eager_world();
    let mut foreign = tags("foreign", "uid-foreign");
    foreign.insert(Arc::from(labels::TAG_CLUSTER), Arc::from("c-2"));
    foreign.insert(Arc::from(labels::TAG_KARPENTER_NODEPOOL), Arc::from("general"));
    world.add(vm("aks-foreign", foreign));
    world.run(TWO_HOURS);
    assert_eq!(world.deleted_names(), [""; 0]);

    let mut pointed_at_another = eager_world();
    pointed_at_another.inventory.group_managed_by = Ok(Some(group()));
    pointed_at_another.add(gone_nic("leaked"));
    pointed_at_another.run(TWO_HOURS);
    assert_eq!(pointed_at_another.deleted_names(), [""; 0]);

    let mut restored = eager_world();
    restored.claims().clear();
    restored.nodes().truncate(1);
    restored.run(TWO_HOURS);
    assert_eq!(restored.deleted_names(), [""; 0]);
    assert_eq!(restored.snapshot.records.trips.len(), 1, "all VMs at once, with their NICs and disks attached");
}

/// W2: ownership is a search for a word in all tags together, so any resource with the word in any tag counts as ours.
#[test]
fn w02_ownership_is_one_exact_key_with_one_exact_value() {
    let near = [
        tag("made-with", "karpenter.sh_nodepool"),
        tag(labels::TAG_KARPENTER_NODEPOOL, "general"),
        tag("NAPKEEPER.IO_CLUSTER", "c-1"),
        tag(labels::TAG_CLUSTER, "C-1"),
        tag(labels::TAG_CLUSTER, "c-1 "),
        tag(labels::TAG_CLUSTER, ""),
    ];
    for tag in near {
        let mut world = eager_world();
        world.add(vm("near", [tag.clone()].into()));
        world.add(nic("near", [tag.clone()].into()));
        world.run(TWO_HOURS);
        assert_eq!(world.deleted_names(), [""; 0], "{tag:?}");
        assert!(world.refusals("near").contains(&DeletionRefusal::NotOwned), "{tag:?}");
    }
    let mut karpenters = eager_world();
    karpenters.add(nic("of-karpenter", [tag(labels::TAG_KARPENTER_CLUSTER, "c-1")].into()));
    karpenters.run(TWO_HOURS);
    assert_eq!(karpenters.deleted_names(), ["of-karpenter"]);
}

/// W3: a tag that users may set hides a VM from every listing, so it is never collected.
#[test]
fn w03_a_tag_of_a_user_hides_no_leak() {
    let mut world = eager_world();
    let mut hidden = tags("gone", "uid-gone");
    hidden.insert(Arc::from(labels::TAG_MACHINE_CLAIM), Arc::from("x"));
    world.add(vm("hidden", hidden));
    world.run(TWO_HOURS);
    assert_eq!(world.deleted_names(), ["hidden"], "no such NodeClaim, no such Machine");

    let mut world = eager_world();
    let mut named = tags("gone", "uid-gone");
    named.insert(Arc::from(labels::TAG_MACHINE_CLAIM), Arc::from("live-1"));
    world.add(vm("named", named));
    world.run(TWO_HOURS);
    assert_eq!(world.deleted_names(), [""; 0], "that NodeClaim lives: a doubt counts as life");
}

/// W4: only the providerID as a whole, letter by letter, speaks for a VM. A difference of case, or a status that could
/// not be written, kills a live node.
#[test]
fn w04_any_one_link_keeps_in_any_case() {
    type Link = fn(&mut SweepWorld, &CloudResource);
    let links: [(&str, Link); 5] = [
        ("uid", |w, _| w.claims().push(Arc::new(claim("other-name", "uid-gone")))),
        ("name", |w, _| w.claims().push(Arc::new(claim("gone", "other-uid")))),
        ("providerID in capitals", |w, vm| {
            let mut by = claim("another", "another-uid");
            let loud =
                format!("azure://{}", vm.id.as_str().to_uppercase().replacen("/SUBSCRIPTIONS", "/subscriptions", 1));
            by.status.provider_id = Some(ProviderId::parse(&loud).unwrap());
            w.claims().push(Arc::new(by));
        }),
        ("node", |w, vm| w.nodes().push(Arc::new(node("some-node", &vm.id)))),
        ("node by name", |w, _| w.nodes().push(Arc::new(node("aks-gone", &group())))),
    ];
    for (how, link) in links {
        let mut world = eager_world();
        let machine = vm("AKS-Gone", tags("gone", "uid-gone"));
        link(&mut world, &machine);
        world.add(machine);
        world.run(TWO_HOURS);
        assert_eq!(world.deleted_names(), [""; 0], "{how}");
        assert_eq!(world.aborted, [], "{how}: known from the listing");
    }
}

/// W6: one object that cannot be understood, say a NodeClaim of a deleted class, stops all collecting for all.
#[test]
fn w06_a_claim_without_its_class_still_speaks_and_stops_nothing() {
    let mut world = eager_world();
    let mut strange = claim("strange", "uid-strange");
    strange.spec.class = crate::model::names::NodeClassName::new("deleted").unwrap();
    strange.spec.pool = None;
    world.claims().push(Arc::new(strange));
    world.add(vm("of-strange", tags("strange", "uid-strange")));
    world.add(gone_nic("leaked"));
    world.run(TWO_HOURS);
    assert_eq!(world.deleted_names(), ["leaked"]);
}

/// W7: the listing lags by minutes, and what is missing from it counts as deleted.
#[test]
fn w07_a_listing_that_lags_proves_nothing() {
    let mut world = eager_world();
    world.add(gone_nic("attached-since"));
    let mut actual = gone_nic("attached-since");
    as_nic(&mut actual).vm = Some(group().resource(VM_TYPE, "new"));
    world.actual = Some(vec![Arc::new(actual)]);
    world.run(MINUTES(30));
    assert_eq!((world.deleted_names(), world.aborted.as_slice()), (vec![], &[DeletionRefusal::SignOfLife][..]));

    let mut ghost = eager_world();
    ghost.add(gone_nic("ghost"));
    ghost.actual = Some(Vec::new());
    ghost.run(TWO_HOURS);
    assert_eq!(ghost.deleted_names(), [""; 0], "listed, but deleted long ago");
    assert_eq!(ghost.snapshot.records.deletions, [], "and the cap is not charged for it");

    let mut missing = eager_world();
    missing.add_claim("fresh", "uid-fresh");
    let shown = missing.inventory.resources.as_mut().unwrap();
    shown.retain(|r| !(r.kind() == ResourceKind::Vm && r.id.name() == "aks-fresh"));
    missing.run(TWO_HOURS);
    assert_eq!(missing.deleted_names(), [""; 0], "its VM is not shown yet, its NIC and disk are");
}

/// W8: a VM is deleted first and its Node after it, so pods are never drained.
#[test]
fn w08_a_vm_is_deleted_only_when_no_node_is_left_to_drain() {
    for ready in [true, false] {
        let mut world = eager_world();
        world.add_claim("leaked", "uid-leaked");
        world.claims().retain(|c| c.name.as_str() != "leaked");
        Arc::make_mut(world.nodes().last_mut().unwrap()).ready = ready;
        world.run(HOURS(5));
        assert_eq!(world.deleted_names(), [""; 0], "its Node, with whatever pods it has, is a sign of life: {ready}");
        world.nodes().pop();
        world.run(HOURS(1));
        assert_eq!(world.deleted_names(), ["aks-leaked"], "ready: {ready}");
        assert_eq!(world.deleted[0].1.claim, ClaimName::new("leaked").ok(), "which is looked for once more");
    }
}

/// W9: disks and public IPs are never checked.
#[test]
fn w09_disks_are_collected_and_addresses_reported() {
    let mut world = eager_world();
    world.add(os_disk("leaked-os", tags("gone", "uid-gone")));
    let unused = RelatedDetail::PublicIp { address: Some(Arc::from("20.0.0.1")), used_by: None };
    let made_for = [tag(labels::TAG_SERVICE, "shop/web")].into();
    world.add_related(unused, "Microsoft.Network/publicIPAddresses", "kubernetes-a1", made_for);
    world.run(TWO_HOURS);
    assert_eq!(world.deleted_names(), ["leaked-os"]);
    let reported = &world.report.as_ref().unwrap().report_only;
    assert_eq!((reported.len(), reported[0].service.as_deref()), (1, Some("shop/web")));
}

/// W10: deletions are not limited, cannot be only reported, and are not recorded.
#[test]
fn w10_deletes_are_capped_rate_limited_recorded_with_evidence_and_can_be_only_reported() {
    let mut world = wide_world();
    for n in 0..30 {
        world.add(gone_nic(&format!("leaked-{n:02}")));
    }
    world.sweep.inventory_interval = MINUTES(30);
    world.observe();
    world.now += MINUTES(31);
    world.observe_without_apply();
    let (mut most_at_once, begin) = (0, world.now);
    while world.now < begin + MINUTES(9) {
        let plan = world.decide();
        let deletes = plan.commands.iter().filter(|p| matches!(p.command, Command::SweepDelete(_)));
        let evident = |p: &crate::plan::PlannedCommand| p.reason.contains("the cluster tag names this cluster");
        assert!(deletes.clone().all(evident), "every delete says why");
        most_at_once = most_at_once.max(deletes.count());
        world.now += SignedDuration::from_secs(5);
    }
    assert_eq!(most_at_once, MAX_CONCURRENT);
    let times: Vec<_> = world.deleted.iter().map(|(at, _)| *at).collect();
    assert_eq!(times.len(), 20, "the cap");
    let window = MINUTES(1);
    let within = |at| times.iter().filter(|t| **t >= at && **t < at + window).count();
    assert!(times.iter().all(|at| within(*at) <= DELETES_PER_MINUTE));
    let summary = &world.report.as_ref().unwrap().summary;
    assert_eq!((summary.deletions_in_window, summary.cap), (20, 20));
    assert_eq!(summary.orphans_by_refusal.get(&(ResourceKind::Nic, DeletionRefusal::Cap)), Some(&10));
    let recorded = &world.snapshot.records.deletions;
    assert_eq!((recorded.len(), recorded.iter().any(|d| d.evidence.is_empty())), (20, false));

    let mut report_only = eager_world();
    report_only.sweep.mode = SweepMode::Report;
    report_only.add(gone_nic("leaked"));
    report_only.run(TWO_HOURS);
    assert_eq!((report_only.deleted_names(), report_only.refusals("leaked")), (vec![], vec![DeletionRefusal::Mode]));
}

/// W11: the age is that of the resource by two clocks; a resource without one is never deleted, one with a wrong one
/// at once.
#[test]
fn w11_age_is_counted_by_our_own_sightings_whatever_azure_says_of_creation() {
    for created in [None, Some(start() - HOURS(1000)), Some(start() + HOURS(1000))] {
        let mut world = SweepWorld::new();
        let mut leaked = gone_nic("leaked");
        leaked.created_at = created;
        world.add(leaked);
        world.run(HOURS(1));
        assert_eq!(world.deleted.first().map(|d| d.0), Some(start() + MINUTES(30)), "created {created:?}");
    }
    // Our own clock was ahead, and is set back: no age comes of it before its time.
    let mut world = SweepWorld::new();
    world.add(gone_nic("leaked"));
    world.now += HOURS(2);
    world.observe();
    world.now = start();
    world.crash();
    world.run(HOURS(2));
    assert_eq!(world.deleted_names(), [""; 0]);
    // A disk that Azure says was detached in our future waits until its age has come by our clock.
    let mut world = SweepWorld::new();
    let mut disk = os_disk("leaked", tags("gone", "uid-gone"));
    as_disk(&mut disk).last_ownership_update = Some(start() + HOURS(1));
    world.add(disk);
    world.run(HOURS(3));
    assert_eq!(world.deleted.first().map(|d| d.0), Some(start() + MINUTES(90)));
}

/// W12: a NIC that cannot be deleted is skipped silently, and the run counts as a success.
#[test]
fn w12_a_delete_that_always_fails_is_tried_less_often_and_keeps_no_other_waiting() {
    for code in [CloudErrorCode::Invalid, CloudErrorCode::Unavailable, CloudErrorCode::Conflict, CloudErrorCode::InUse]
    {
        let mut world = SweepWorld::new();
        world.refusing.insert("a-stuck".to_owned(), code);
        world.add(gone_nic("a-stuck"));
        world.add(gone_nic("b-leaked"));
        world.run(HOURS(6));
        // An answer that was lost may have been a yes, so its share of the cap of one a day is not free.
        let unknown = code == CloudErrorCode::Unavailable;
        let meanwhile: &[&str] = if unknown { &[] } else { &["b-leaked"] };
        assert_eq!(world.deleted_names(), meanwhile, "{code:?}: the cap is one a day");
        let tries = world.tried.iter().filter(|name| *name == "a-stuck").count();
        let most = if matches!(code, CloudErrorCode::Conflict | CloudErrorCode::InUse) { 40 } else { 12 };
        assert!((1..=most).contains(&tries), "{code:?}: {tries} tries in 6 h");
        let records = world.snapshot.records.deletions.iter().filter(|d| d.id.name() == "a-stuck").count();
        assert_eq!(records, 1, "one incarnation, one record");
        let record = world.snapshot.records.deletions.iter().find(|d| d.id.name() == "a-stuck");
        assert_eq!(record.unwrap().refused.is_some(), !unknown, "{code:?}: Azure's refusal is recorded");
        world.refusing.clear();
        world.run(HOURS(30));
        let order = if unknown { ["a-stuck", "b-leaked"] } else { ["b-leaked", "a-stuck"] };
        assert_eq!(world.deleted_names(), order, "{code:?}: it is deleted once Azure allows it");
    }
}

/// W13: a page that answers 404 or 403 makes the listing shorter, and what is missing counts as gone.
#[test]
fn w13_a_listing_that_is_not_whole_is_no_listing() {
    fn fail(kind: &str) -> ListFailure {
        ListFailure::new(kind, "404 on page 2")
    }
    type Breaks = fn(&mut Inventory);
    let failures: [(&str, Breaks); 8] = [
        ("group", |i| i.group_managed_by = Err(fail("group"))),
        ("cloud", |i| i.resources = Err(fail("cloud"))),
        ("bystanders", |i| i.related = Err(fail("bystanders"))),
        ("claims", |i| i.claims = Err(fail("claims"))),
        ("nodes", |i| i.nodes = Err(fail("nodes"))),
        ("volumes", |i| i.volumes = Err(fail("volumes"))),
        ("attachments", |i| i.attachments = Err(fail("attachments"))),
        ("disk uses", |i| i.disk_uses = Err(fail("disk uses"))),
    ];
    for (kind, fail) in failures {
        let mut world = eager_world();
        world.add(gone_nic("leaked"));
        world.run(MINUTES(20));
        fail(&mut world.inventory);
        world.now += MINUTES(10);
        world.run(TWO_HOURS);
        assert_eq!(world.deleted_names(), [""; 0], "{kind}");
        let report = world.report.as_ref().unwrap();
        assert!(report.halted.as_ref().unwrap().contains("404 on page 2"), "{kind}");
        let known = report.totals.keys().any(|(_, classification)| *classification != Classification::Unknown);
        assert!(!known && report.discrepancies.is_empty(), "{kind}");
    }
}

/// W15: resources of a NodeClaim without a NodePool lack the NodePool's tag, and are never found.
#[test]
fn w15_leaks_of_standalone_claims_are_found() {
    let mut world = eager_world();
    world.add_claim("standalone", "uid-standalone");
    world.add(vm("aks-lost", tags("lost", "uid-lost")));
    world.run(TWO_HOURS);
    assert_eq!(
        world.deleted_names(),
        ["aks-lost"],
        "no tag names a NodePool, neither of what lives nor of what leaked"
    );
}

/// W17: the names to protect are in lower case and those of Azure are not, so an attached NIC is tried again and again.
#[test]
fn w17_spelling_protects_nothing_less() {
    let mut world = eager_world();
    world.add_claim("cased", "uid-cased");
    let cloud = world.inventory.resources.as_mut().unwrap();
    let at = cloud.iter().position(|r| r.kind() == ResourceKind::Nic && r.id.name() == "aks-cased").unwrap();
    let mut loud = nic("AKS-CASED", Tags::from([tag(labels::TAG_CLUSTER, "c-1")]));
    loud.incarnation = Arc::clone(&cloud[at].incarnation);
    cloud[at] = Arc::new(loud);
    world.run(TWO_HOURS);
    assert_eq!((world.deleted_names(), world.aborted.as_slice()), (vec![], &[][..]), "not even tried");
}

/// Untagged, attached, claimed, retained, replicated, exported, shared: all in one cluster, for weeks, everything
/// approved.
#[test]
fn the_negative_list_is_never_touched() {
    let mut world = eager_world();
    world.sweep.minimum_age = ResourceKind::ALL.map(|kind| (kind, SignedDuration::ZERO)).into();
    add_negative_list(&mut world);
    // Owned claims raise the cap and keep the breaker closed, so neither protects the list.
    (10..60).for_each(|n| world.add_claim(&format!("live-{n}"), &format!("uid-{n}")));
    world.add(gone_nic("leaked"));
    let before: Vec<_> = world.inventory.resources.clone().unwrap();
    before.iter().for_each(|resource| world.approve(resource));
    world.sweep.inventory_interval = HOURS(24);
    for _ in 0..21 {
        world.run(MINUTES(40));
        world.now += HOURS(23);
        let approvals: Vec<_> = before.iter().map(|r| &**r).cloned().collect();
        world.sweep.approvals.clear();
        approvals.iter().for_each(|resource| world.approve(resource));
    }
    assert_eq!(world.snapshot.records.trips, [], "the breaker has not helped");
    assert_eq!(world.deleted_names(), ["leaked"]);
    let findings = report_only_findings(&world.inventory);
    assert!(findings.iter().all(|f| f.usage != IpUsage::Unused), "{findings:?}");
}

/// The other two: the group of another cluster, and an API server that lost everything.
#[test]
fn a_mispointed_group_and_a_restored_api_server_are_never_touched() {
    let stages: [fn(&mut SweepWorld); 2] = [
        |w| w.inventory.group_managed_by = Ok(Some(group().resource("x/clusters", "another"))),
        |w| {
            w.claims().clear();
            w.volumes().clear();
        },
    ];
    for stage in stages {
        let mut world = eager_world();
        (10..30).for_each(|n| world.add_claim(&format!("live-{n}"), &format!("uid-{n}")));
        world.sweep.inventory_interval = HOURS(24);
        world.run(MINUTES(40));
        stage(&mut world);
        let system = world.nodes()[0].clone();
        *world.nodes() = vec![system];
        for _ in 0..21 {
            world.run(MINUTES(40));
            world.now += HOURS(23);
        }
        assert_eq!(world.deleted_names(), [""; 0]);
    }
}

fn add_negative_list(world: &mut SweepWorld) {
    let elsewhere = || group().resource(VM_TYPE, "elsewhere");
    let mut disks = vec![data_disk("untagged")];
    let mut attached = data_disk("attached");
    as_disk(&mut attached).managed_by = vec![elsewhere()];
    let mut asr = data_disk("web-ASRReplica");
    asr.tags = tags("gone", "uid-gone");
    let mut exported = data_disk("exported");
    as_disk(&mut exported).state = crate::model::azure::cloud::DiskState::Other(Arc::from("ActiveSAS"));
    let mut shared = data_disk("shared");
    as_disk(&mut shared).max_shares = 2;
    for (name, disk) in [("pv-a", attached), ("pv-asr", asr), ("pv-e", exported), ("pv-s", shared)] {
        world.had_volume(name, &disk, ReclaimPolicy::Delete);
        disks.push(disk);
    }
    let retained = data_disk("retained");
    world.had_volume("pv-r", &retained, ReclaimPolicy::Retain);
    let claimed = data_disk("claimed");
    world.volumes().push(Arc::new(volume("pv-c", &claimed, ReclaimPolicy::Delete)));
    disks.extend([retained, claimed]);
    disks.into_iter().for_each(|disk| world.add(disk));
    world.add(os_disk("copied-tags", tags("live-1", "uid-1")));
    let mut endpoint = gone_nic("endpoint");
    as_nic(&mut endpoint).serves = Some(Arc::from("private endpoint db"));
    world.add(endpoint);
    let mut managed = vm("managed", tags("gone", "uid-gone"));
    managed.tags.insert(Arc::from("aks-managed-poolName"), Arc::from("user"));
    world.add(managed);
    add_balancer(world);
}

/// A load balancer with an outbound IP and a frontend that has backends.
fn add_balancer(world: &mut SweepWorld) {
    let frontend = |name: &str| format!("kubernetes/frontendIPConfigurations/{name}");
    let id = |name: &str| group().resource("Microsoft.Network/loadBalancers", &frontend(name));
    let ips = "Microsoft.Network/publicIPAddresses";
    for (name, outbound_rules, backends) in [("outbound", 1, 0), ("web", 0, 3)] {
        let ip = RelatedDetail::PublicIp { address: None, used_by: Some(id(name)) };
        world.add_related(ip, ips, name, Tags::new());
        let public_ip = Some(group().resource(ips, name));
        let role = RelatedDetail::LoadBalancerFrontend { public_ip, rules: 1, outbound_rules, backends };
        world.add_related(role, "Microsoft.Network/loadBalancers", &frontend(name), Tags::new());
    }
}
